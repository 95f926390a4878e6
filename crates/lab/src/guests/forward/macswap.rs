//! `macswap`: swaps both Ethernet addresses.

use straightline_guest::endpoints::{Packet, Received};

use super::engine::Mode;

pub(super) struct MacSwap;

impl Mode for MacSwap {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>, _to: usize) -> bool {
        let mut addresses = [0; 12];
        if packet.read(0, &mut addresses) == 12 {
            addresses.rotate_left(6);
            packet.write(0, &addresses);
        }
        true
    }
}
