//! A flow in a table, with its age and its counters.

use std::time::Duration;

use crate::flow::Flow;
use crate::text::FlowStatistics;

/// The counters of a flow, which workers share. A clone counts into the same place.
pub trait FlowCount: Clone + Default {
    /// Returns the number of packets.
    fn packets(&self) -> u64;

    /// Returns the number of bytes.
    fn bytes(&self) -> u64;

    /// Returns the time of the last packet, on the clock of the tables; `None` if there was none.
    fn last_used(&self) -> Option<Duration>;
}

/// The maker of a flow. Each may change and delete its own flows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The configuration file. Its flows win over those of clients.
    File,
    /// Clients of the API.
    Api,
}

/// The reason why a flow ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// No packet came for its idle timeout.
    Idle,
    /// Its hard timeout has passed.
    Hard,
}

/// A flow in a table. It never changes: a change makes a new entry, with the same counters.
#[derive(Clone, Debug)]
pub struct FlowEntry<C> {
    /// The flow.
    pub flow: Flow,
    /// Its maker.
    pub owner: Owner,
    /// Counters.
    pub counters: C,
    /// Time at which it was added.
    pub added: Duration,
    /// Time at which its actions were last set.
    pub changed: Duration,
}

impl<C: FlowCount> FlowEntry<C> {
    /// Returns counters and ages.
    #[must_use]
    pub fn statistics(&self, now: Duration) -> FlowStatistics {
        FlowStatistics {
            duration: now.saturating_sub(self.added),
            packets: self.counters.packets(),
            bytes: self.counters.bytes(),
            idle: now.saturating_sub(self.last_used()),
            unchanged: now.saturating_sub(self.changed),
        }
    }

    /// Returns whether the flow has ended, and why.
    #[must_use]
    pub fn expiry(&self, now: Duration) -> Option<Expiry> {
        let is_over = |since: Duration, timeout: Duration| !timeout.is_zero() && now.saturating_sub(since) >= timeout;
        if is_over(self.changed, self.flow.hard_timeout) {
            return Some(Expiry::Hard);
        }
        is_over(self.last_used(), self.flow.idle_timeout).then_some(Expiry::Idle)
    }

    /// Returns the time of the last packet, or the one at which the flow was added.
    fn last_used(&self) -> Duration {
        self.counters.last_used().unwrap_or_default().max(self.added)
    }
}
