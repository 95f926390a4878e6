//! The traces of one worker. They go round between the worker and the thread that sends them.

use rtrb::{Consumer, Producer, RingBuffer};

use super::{MAX_TRACES, Trace};

/// The worker's side.
pub(super) struct TracePool {
    full: Producer<Trace>,
    empty: Consumer<Trace>,
    /// Traces that were put back.
    spare: Vec<Trace>,
    /// Packets that found no trace since the last one that did.
    skipped: u64,
}

/// The side that takes the traces of one worker.
pub struct TraceReader {
    full: Consumer<Trace>,
    empty: Producer<Trace>,
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader").finish_non_exhaustive()
    }
}

/// Creates the two sides, with memory for `traces` packets.
pub(super) fn pool(traces: usize) -> (TracePool, TraceReader) {
    let traces = traces.clamp(1, MAX_TRACES);
    let (full, full_end) = RingBuffer::new(traces);
    let (mut empty, empty_end) = RingBuffer::new(traces);
    for _ in 0..traces {
        // The queue has space for all traces.
        let _ = empty.push(Trace::new());
    }
    let pool = TracePool { full, empty: empty_end, spare: Vec::with_capacity(traces), skipped: 0 };
    (pool, TraceReader { full: full_end, empty })
}

impl TracePool {
    /// Returns an unused trace, and the number of packets that found none before. If there is none,
    /// the packet is counted as such.
    pub(super) fn take(&mut self) -> Option<(Trace, u64)> {
        let Some(trace) = self.spare.pop().or_else(|| self.empty.pop().ok()) else {
            self.skipped += 1;
            return None;
        };
        Some((trace, std::mem::take(&mut self.skipped)))
    }

    /// Puts a trace back that is not to be read.
    pub(super) fn put_back(&mut self, trace: Trace) {
        self.skipped += trace.skipped;
        self.spare.push(trace);
    }

    /// Hands a trace over.
    pub(super) fn hand_over(&mut self, trace: Trace) {
        // The queue has space for all traces.
        let _ = self.full.push(trace);
    }
}

impl TraceReader {
    /// Calls `take` with the next trace. Returns `None` if the worker has handed over no further one.
    pub fn next<T>(&mut self, take: impl FnOnce(&Trace) -> T) -> Option<T> {
        let trace = self.full.pop().ok()?;
        let taken = take(&trace);
        // The queue has space for all traces.
        let _ = self.empty.push(trace);
        Some(taken)
    }

    /// Returns the time of the next trace.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        self.full.peek().ok().map(|trace| trace.time)
    }
}
