//! Packets of a batch with the buffers that are reserved for them.

use std::ops::Range;

use straightline_packet::{PacketId, Run};

/// A packet with the buffers reserved for it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) id: PacketId,
    pub(crate) to: Range<usize>,
    pub(crate) chains: u16,
    /// The packet is the first of a run. The run's other packets go into the same buffers.
    pub(crate) is_run: bool,
}

/// Packets that are coalesced into the buffers of one. The buffers are planned for the first of
/// them.
#[derive(Debug)]
pub(crate) struct PlannedRun {
    pub(crate) run: Run,
    /// The positions of the packets in the batch.
    pub(crate) places: Range<usize>,
}
