//! The tasks of a scenario.

use std::time::Duration;

use crate::testbed::Loads;
use crate::traffic::generator::Rate;

/// One task in each cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Task {
    /// A trial at maximum rate.
    Max,
    /// A trial at a rate.
    Rate(Rate),
    /// A search, and the measurements that depend on it.
    Find,
    /// A rate for a long time.
    Soak(Rate, Duration),
}

impl Task {
    /// Returns the tasks of these loads, in their order.
    pub(super) fn all(loads: &Loads) -> Vec<Task> {
        let max = loads.max.then_some(Task::Max);
        let fixed = loads.rate.map(|rate| match loads.soak {
            Some(time) => Task::Soak(rate, time),
            None => Task::Rate(rate),
        });
        let find = loads.searches().then_some(Task::Find);
        max.into_iter().chain(fixed).chain(find).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_has_a_rate_or_follows_from_a_search() {
        let rate = Rate::Pps(1e6);
        let time = Duration::from_secs(60);
        let loads = Loads { rate: Some(rate), soak: Some(time), ..Loads::default() };
        assert_eq!(Task::all(&loads), [Task::Soak(rate, time)]);
        assert_eq!(Task::all(&Loads { rate: None, ..loads }), [Task::Find]);
        assert_eq!(Task::all(&Loads { rate: Some(rate), ..Loads::default() }), [Task::Rate(rate)]);
    }
}
