//! Classification of a load by all trials at it (draft-ietf-bmwg-mlrsearch-15, "Load Classification
//! Logic" and "Conditional Throughput Logic").

use std::time::Duration;

/// A goal at one level of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) loss_ratio: f64,
    pub(super) exceed_ratio: f64,
    pub(super) width: f64,
    pub(super) duration: Duration,
    pub(super) sum: Duration,
}

/// The classification of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Lower,
    Upper,
    Undecided,
}

/// A valid trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    pub(super) duration: Duration,
    pub(super) loss_ratio: f64,
}

/// All trials at one load.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) load: f64,
    pub(super) trials: Vec<Done>,
}

impl Load {
    pub(super) fn bound(&self, target: &Target) -> Bound {
        let sum = |full: bool, high: bool| -> f64 {
            let is_of_goal = |trial: &&Done| {
                (trial.duration >= target.duration) == full && (trial.loss_ratio > target.loss_ratio) == high
            };
            self.trials.iter().filter(is_of_goal).map(|trial| nanos(trial.duration)).sum()
        };
        let low = sum(true, false);
        // Short trials cannot make a load a lower bound. Bad short trials make it an upper bound,
        // but only as far as good short trials do not compensate.
        let made_up = sum(false, false) * target.exceed_ratio / (1.0 - target.exceed_ratio);
        let high = sum(true, true) + (sum(false, true) - made_up).max(0.0);
        let whole = (low + high).max(nanos(target.sum));
        // One nanosecond more, so that half of two equal times is a half.
        let allowed = whole * target.exceed_ratio + 1.0;
        if high > allowed {
            // The remaining trials cannot change this classification.
            Bound::Upper
        } else if whole - low <= allowed {
            Bound::Lower
        } else {
            Bound::Undecided
        }
    }

    /// Returns the conditional throughput of a lower bound: the worst rate among the best trials
    /// that are enough to make the load a lower bound. Missing time counts as lost.
    pub(super) fn throughput(&self, target: &Target) -> f64 {
        let mut full: Vec<&Done> = self.trials.iter().filter(|trial| trial.duration >= target.duration).collect();
        full.sort_by(|one, other| one.loss_ratio.total_cmp(&other.loss_ratio));
        let measured: f64 = full.iter().map(|trial| nanos(trial.duration)).sum();
        let mut remaining = measured.max(nanos(target.sum)) * (1.0 - target.exceed_ratio) - 1.0;
        for trial in full {
            remaining -= nanos(trial.duration);
            if remaining <= 0.0 {
                return self.load * (1.0 - trial.loss_ratio);
            }
        }
        0.0
    }

    /// Returns the forwarding rate of the trial with the least loss.
    pub(super) fn forwarded(&self) -> f64 {
        self.load * (1.0 - self.trials.iter().map(|trial| trial.loss_ratio).fold(1.0, f64::min))
    }
}

/// Returns the relevant bounds among loads in ascending order: the smallest upper bound, and the
/// greatest lower bound below it. A lower bound above an upper bound is a fluke ("Conservativeness
/// and Relevant Bounds").
pub(super) fn relevant<'a>(loads: &'a [Load], target: &Target) -> (Option<&'a Load>, Option<&'a Load>) {
    let mut lower = None;
    for load in loads {
        match load.bound(target) {
            Bound::Upper => return (lower, Some(load)),
            Bound::Lower => lower = Some(load),
            Bound::Undecided => (),
        }
    }
    (lower, None)
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}
