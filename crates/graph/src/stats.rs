//! Where the cycles went. Written by the worker, read by anybody, without a lock.

use straightline_port::Counter;

/// One node, input or output. On lines of its own (two: the processor fetches them in pairs), as [`WorkerStats`] are:
/// another worker writes the neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NodeStats {
    /// Its name.
    pub name: String,
    /// Calls with at least one packet.
    pub calls: Counter,
    /// Packets of those calls.
    pub packets: Counter,
    /// Cycles of those calls. An input's call that found nothing is not among them: it belongs to nobody's packet.
    pub cycles: Counter,
}

impl NodeStats {
    /// Adds what another node has counted. Not while either is counting.
    pub fn absorb(&self, other: &NodeStats) {
        self.calls.add(other.calls.get());
        self.packets.add(other.packets.get());
        self.cycles.add(other.cycles.get());
    }
}

/// One worker. All times are in cycles, each measured by itself: none is what the others left over.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerStats {
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// Turns.
    pub turns: Counter,
    /// In turns with packets.
    pub busy: Counter,
    /// In turns that found nothing.
    pub empty_poll: Counter,
    /// Asking to be woken, and asleep.
    pub idle: Counter,
    /// When it started.
    pub started: Counter,
    /// When the other figures were last brought up to date.
    pub updated: Counter,
    /// Since when it sleeps; 0 while it does not.
    pub asleep_since: Counter,
    /// Bytes of bodies copied.
    pub bodies_copied: Counter,
    /// Bytes of bodies delivered.
    pub bodies_delivered: Counter,
}

/// A worker's time, in cycles, as it adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// See [`WorkerStats`].
    pub busy: u64,
    /// See [`WorkerStats`].
    pub empty_poll: u64,
    /// See [`WorkerStats`].
    pub idle: u64,
    /// What passed and is in none of the three.
    pub unexplained: u64,
}

impl WorkerStats {
    /// The times up to now.
    pub fn times(&self, now: u64) -> Times {
        let since = self.asleep_since.get();
        let asleep = if since > 0 { now.saturating_sub(since) } else { 0 };
        let (busy, empty_poll, idle) = (self.busy.get(), self.empty_poll.get(), self.idle.get() + asleep);
        let updated = if since > 0 { now } else { self.updated.get() };
        let passed = updated.saturating_sub(self.started.get());
        Times { busy, empty_poll, idle, unexplained: passed.saturating_sub(busy + empty_poll + idle) }
    }
}
