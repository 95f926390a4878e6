//! `mac`: writes new Ethernet addresses. The source is the port through which the packet leaves,
//! and the destination is the peer at this port.

use straightline_guest::endpoints::Packet;

use super::engine::Mode;
use super::{own, peer};

pub(super) struct Mac;

impl Mode for Mac {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>, to: usize) -> bool {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&peer(to).0);
        addresses[6..].copy_from_slice(&own(to).0);
        packet.write(0, &addresses);
        true
    }
}
