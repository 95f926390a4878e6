//! A packet whose tunnel was found.

use straightline_wire::ecn::Ecn;

use crate::decap::carrier::Carrier;
use crate::decap::tunnel_header::{OuterChecksum, TunnelHeader};
use crate::kind::Carries;
use crate::tunnel::lookup::Place;

/// The facts of a packet whose tunnel was found and whose headers are right. All offsets count from
/// the beginning of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// Offset of the header behind IP.
    pub(crate) l4: usize,
    /// Offset of the inner packet.
    pub(crate) payload: usize,
    /// Offset of the inner packet's end.
    pub(crate) end: usize,
    /// Offset of the end of the bytes that the outer checksum covers.
    pub(crate) checked_end: usize,
    pub(crate) carries: Carries,
    pub(crate) checksum: OuterChecksum,
    /// Sum of the addresses and the protocol, not folded: the pseudo header without the length.
    pub(crate) addresses: u64,
    /// The mark of the outer IP header.
    pub(crate) ecn: Ecn,
    pub(crate) is_v4: bool,
    /// True if a sublayer of L2TPv3 precedes the inner packet.
    pub(crate) has_sublayer: bool,
}

impl Found {
    /// Returns the facts of a packet with these headers.
    #[inline]
    pub(crate) fn new(place: Place, carrier: &Carrier, header: &TunnelHeader, has_sublayer: bool) -> Self {
        Found {
            place,
            l4: carrier.l4,
            payload: header.payload,
            end: header.end,
            checked_end: header.checked_end,
            carries: header.carries,
            checksum: header.checksum,
            addresses: carrier.pseudo_words(),
            ecn: Ecn::of(carrier.tos),
            is_v4: carrier.ends.is_v4,
            has_sublayer,
        }
    }
}
