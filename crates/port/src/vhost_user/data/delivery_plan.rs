//! Packets of a batch with the buffers that are reserved for them.

use std::ops::Range;

use straightline_packet::{PacketId, Run};

/// A packet and the buffers that wait for it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) id: PacketId,
    pub(crate) to: Range<usize>,
    pub(crate) chains: u16,
    /// It is the first of a run, whose other packets go into the same buffers.
    pub(crate) is_run: bool,
}

/// Packets that go into the buffers of one, which are planned for the first of them.
#[derive(Debug)]
pub(crate) struct PlannedRun {
    pub(crate) run: Run,
    /// Their places in the frame.
    pub(crate) places: Range<usize>,
}
