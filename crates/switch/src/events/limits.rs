//! Limits for events that guests or the network can cause: each source has a budget of its own.
//!
//! While a source has used up its budget, its last event waits, and the ones before it are counted.
//! So the last event that is told always says how things are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Happening;

/// The number of events of a source that are told at once.
const BURST: u32 = 20;

/// The time in which a source may cause one more event.
const REFILL: Duration = Duration::from_secs(1);

/// The budgets of the sources that have caused events recently.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<String, Budget>);

#[derive(Debug)]
struct Budget {
    tokens: u32,
    refilled: Instant,
    waiting: Option<Happening>,
    /// The number of events that the waiting one has replaced.
    skipped: u64,
}

impl Limits {
    /// Returns the event if its source may cause one now. If not, the event waits.
    pub(super) fn admit(&mut self, source: &str, happening: Happening, now: Instant) -> Option<Happening> {
        if !self.0.contains_key(source) {
            let full = Budget { tokens: BURST, refilled: now, waiting: None, skipped: 0 };
            self.0.insert(source.to_owned(), full);
        }
        let budget = self.0.get_mut(source)?;
        budget.refill(now);
        if budget.tokens > 0 && budget.waiting.is_none() {
            budget.tokens -= 1;
            return Some(happening);
        }
        budget.skipped += u64::from(budget.waiting.replace(happening).is_some());
        None
    }

    /// Returns the events that have waited for long enough, each with the number of those that it
    /// replaces. Forgets sources that have their whole budget again.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(Happening, u64)> {
        let mut due = Vec::new();
        self.0.retain(|_, budget| {
            budget.refill(now);
            if budget.tokens > 0
                && let Some(happening) = budget.waiting.take()
            {
                budget.tokens -= 1;
                due.push((happening, std::mem::take(&mut budget.skipped)));
            }
            budget.tokens < BURST
        });
        due
    }
}

impl Budget {
    fn refill(&mut self, now: Instant) {
        while self.tokens < BURST && now.saturating_duration_since(self.refilled) >= REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use straightline_graph::Clock;

    use super::*;
    use crate::api::EventKind;

    fn happening(n: u64) -> Happening {
        Happening { time: SystemTime::UNIX_EPOCH, kind: EventKind::Lost { count: n }, message: String::new() }
    }

    #[test]
    fn a_source_that_causes_too_many_has_its_last_event_told_later() {
        let mut limits = Limits::default();
        let start = Clock::moved().now();
        let told = (0..100).filter_map(|n| limits.admit("a", happening(n), start));
        assert!(told.eq((0..BURST.into()).map(happening)));
        assert_eq!(limits.admit("b", happening(7), start), Some(happening(7)), "it has a budget of its own");
        assert_eq!(limits.due(start), []);
        assert_eq!(limits.due(start + REFILL), [(happening(99), 79)]);
        // An event that comes while another one waits does not overtake it.
        assert_eq!(limits.admit("a", happening(100), start + REFILL), None);
        assert_eq!(limits.admit("a", happening(101), start + 2 * REFILL), None);
        assert_eq!(limits.due(start + 2 * REFILL), [(happening(101), 1)]);
        assert_eq!(limits.admit("a", happening(102), start + 4 * REFILL), Some(happening(102)));
        assert_eq!(limits.due(start + 60 * REFILL), []);
        assert!(limits.0.is_empty(), "silent sources are forgotten");
    }
}
