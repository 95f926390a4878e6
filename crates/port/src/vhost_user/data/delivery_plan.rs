//! Packets of a batch with the buffers that are reserved for them.

use std::ops::Range;

use straightline_packet::PacketId;

/// A packet with the buffers reserved for it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) id: PacketId,
    pub(crate) to: Range<usize>,
    pub(crate) chains: u16,
}
