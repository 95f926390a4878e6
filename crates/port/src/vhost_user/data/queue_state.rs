//! The part of a queue that one worker uses at a time.

use straightline_packet::GsoSegment;
use straightline_virtio::ring::{BURST, First, Ring};

use super::buffer_waiters::BufferWaiters;
use super::delivery_plan::Planned;
use crate::notify::notifier::Notifier;

/// The event at which a worker wakes the port's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// No event: the thread has a timer for this ring.
    Never,
    /// A call.
    Call,
    /// A call, or a used entry after position `from`.
    Movement { from: u16 },
}

/// The part of a queue that one worker uses at a time.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) ring: Ring,
    pub(crate) call: Option<Notifier>,
    /// The event that makes the port's thread check the ring again.
    pub(crate) wake: Wake,
    /// The workers whose packets wait for free buffers of the ring.
    pub(crate) buffer_waiters: BufferWaiters,
    /// The round in which all packets taken from the ring were left there, because their
    /// destination was full. Packets still in the ring wait behind them. In another round they are
    /// tried again; a turn may be full before it comes to this ring.
    pub(crate) waiting_round: Option<u64>,
    /// The chains found last.
    pub(crate) firsts: Box<[First; BURST]>,
    /// The most free buffers that were found at once while some were spared.
    pub(crate) most_found: usize,
    /// The packets of the batch being delivered, with the buffers reserved for them.
    pub(crate) plan: Vec<Planned>,
    /// The GSO segment being made, or the headers of a run.
    pub(crate) segment: Box<GsoSegment>,
}
