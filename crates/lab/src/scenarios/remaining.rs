//! The estimated remaining time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::testbed::{Loads, Options};
use crate::traffic::generator::Rate;

/// Estimated time of connecting, warm-up and drain for a trial.
const AROUND: Duration = Duration::from_millis(300);

/// Estimated number of trials of a search, before the first search is made.
const SEARCH: u32 = 60;

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

    fn is_find(self) -> bool {
        self == Task::Find
    }
}

/// The tasks that are left.
#[derive(Debug)]
pub(super) struct RemainingTime {
    tasks: VecDeque<Task>,
    time: Duration,
    /// Time of a soak at a load that a search finds.
    soak: Duration,
    /// Time of all searches so far, and their number.
    searches: (Duration, u32),
    began: Instant,
}

impl RemainingTime {
    pub(super) fn new(options: &Options, tasks: impl Iterator<Item = Task>) -> RemainingTime {
        let soak = options.loads.soak.unwrap_or(Duration::ZERO);
        let (tasks, time) = (tasks.collect(), options.time);
        RemainingTime { tasks, time, soak, searches: (Duration::ZERO, 0), began: Instant::now() }
    }

    /// Removes the first task. It took this time.
    pub(super) fn done(&mut self, took: Duration) {
        if self.tasks.pop_front().is_some_and(Task::is_find) {
            self.searches = (self.searches.0 + took, self.searches.1 + 1);
        }
        self.began = Instant::now();
    }

    /// Returns the estimated time of all tasks. `first` is the remaining time of the first task, if
    /// it is known.
    pub(super) fn all(&self, first: Option<Duration>) -> Duration {
        let first = first.unwrap_or_else(|| {
            let whole = self.tasks.front().map_or(Duration::ZERO, |&task| self.one(task));
            whole.saturating_sub(self.began.elapsed())
        });
        self.tasks.iter().skip(1).map(|&task| self.one(task)).fold(first, |sum, one| sum + one)
    }

    fn one(&self, task: Task) -> Duration {
        match task {
            Task::Max | Task::Rate(_) => self.time + AROUND,
            Task::Soak(_, time) => time + AROUND,
            Task::Find => {
                let known = self.searches.0.checked_div(self.searches.1);
                known.unwrap_or((self.time + AROUND) * SEARCH + self.soak)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Scenario;

    #[test]
    fn what_is_left_is_known_better_after_the_first_search() {
        let second = Duration::from_secs(1);
        let mut options = Options::new(Scenario::Vm2Vm);
        options.loads = Loads { max: true, ndr: true, ..Loads::default() };
        let tasks = Task::all(&options.loads);
        assert_eq!(tasks, [Task::Max, Task::Find]);
        let mut left = RemainingTime::new(&options, tasks.iter().copied().cycle().take(4));
        assert_eq!(left.all(Some(second)), second + (second + AROUND) * (2 * SEARCH + 1));
        left.done(second);
        left.done(10 * second);
        assert_eq!(left.all(Some(second)), 11 * second);
        left.done(second);
        assert_eq!(left.all(Some(2 * second)), 2 * second);
        left.done(second);
        assert_eq!(left.all(None), Duration::ZERO);
    }

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
