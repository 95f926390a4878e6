//! Statistics of nodes and workers, in cycles. The worker writes them and any thread reads them,
//! without a lock.

use crate::Counter;

/// Statistics of one node, input or output. They have cache lines of their own, as [`WorkerStats`]
/// have, because another worker writes the neighbouring ones. They have two lines, because the
/// processor fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NodeStats {
    /// Name of the node.
    pub name: String,
    /// Number of calls with at least one packet.
    pub calls: Counter,
    /// Number of packets in these calls.
    pub packets: Counter,
    /// Most packets in one of these calls.
    pub most: Counter,
    /// Cycles of these calls. Calls of an input that found no packet are not included: they belong
    /// to no packet.
    pub cycles: Counter,
}

impl NodeStats {
    /// Adds the statistics of another node. Neither node may count during the call.
    pub fn absorb(&self, other: &NodeStats) {
        self.calls.add(other.calls.get());
        self.packets.add(other.packets.get());
        self.cycles.add(other.cycles.get());
        self.most.raise(other.most.get());
    }
}

/// Statistics of one worker. All times are in cycles. Each time is measured; none is computed from
/// the others.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerStats {
    /// CPU that the worker is pinned to.
    pub cpu: Option<usize>,
    /// Number of turns.
    pub turns: Counter,
    /// Number of times that the worker fell asleep.
    pub sleeps: Counter,
    /// Time in turns with packets.
    pub busy: Counter,
    /// Time in turns without packets.
    pub empty_poll: Counter,
    /// Time spent asleep, and on arming and disarming kicks.
    pub idle: Counter,
    /// Time of the start.
    pub started: Counter,
    /// Time at which the other counters were last updated.
    pub updated: Counter,
    /// Time at which the present sleep began; 0 if the worker is awake.
    pub asleep_since: Counter,
    /// Body bytes copied.
    pub bodies_copied: Counter,
    /// Body bytes delivered.
    pub bodies_delivered: Counter,
}

/// The time of a worker since its start, in cycles, divided by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time in turns with packets.
    pub busy: u64,
    /// Time in turns without packets.
    pub empty_poll: u64,
    /// Time spent asleep, and on arming and disarming kicks.
    pub idle: u64,
    /// Time that is in none of the other three.
    pub unexplained: u64,
}

impl WorkerStats {
    /// Returns the times up to `now`.
    pub fn times(&self, now: u64) -> Times {
        let since = self.asleep_since.get();
        let asleep = if since > 0 { now.saturating_sub(since) } else { 0 };
        let busy = self.busy.get();
        let empty_poll = self.empty_poll.get();
        let idle = self.idle.get() + asleep;
        let updated = if since > 0 { now } else { self.updated.get() };
        let passed = updated.saturating_sub(self.started.get());
        Times { busy, empty_poll, idle, unexplained: passed.saturating_sub(busy + empty_poll + idle) }
    }
}
