//! Goals and limits of a search.

use std::time::Duration;

use anyhow::ensure;

use super::classify::Target;

/// The number of levels on which a goal is pursued: roughly, more closely, and as set.
pub(super) const LEVELS: i32 = 3;

/// A goal's width is larger by this factor on each level before the last. So one halving leads to
/// the next level.
const COARSER: f64 = 2.0;

/// A factor for widths that determine the next load. It is below 1, so that rounding does not leave
/// bounds slightly too far apart.
pub(super) const SLACK: f64 = 0.99;

/// A search goal, in the words of the draft's "Goal Terms".
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Its name in reports.
    pub name: String,
    /// A trial that loses more than this fraction of the packets has a high loss.
    pub loss_ratio: f64,
    /// At a lower bound, trials with a high loss may take up to this fraction of the time.
    pub exceed_ratio: f64,
    /// The greatest allowed distance between the bounds, as a fraction of the upper bound.
    pub width: f64,
    /// The shortest trial that is made for this goal.
    pub initial_trial: Duration,
    /// The length of the trials that a lower bound needs.
    pub final_trial: Duration,
    /// The total time of such trials that is enough to classify a load.
    pub duration_sum: Duration,
}

impl Goal {
    /// The non-drop rate: no loss. Trials take a second. Up to 21 of them run at a load, and half
    /// of them decide (as FD.io's CSIT measures).
    pub fn ndr() -> Goal {
        Goal {
            name: "NDR".to_owned(),
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 0.005,
            initial_trial: Duration::from_secs(1),
            final_trial: Duration::from_secs(1),
            duration_sum: Duration::from_secs(21),
        }
    }

    /// The partial-drop rate: this fraction of the packets may be lost.
    pub fn pdr(loss_ratio: f64) -> Goal {
        Goal { name: "PDR".to_owned(), loss_ratio, ..Goal::ndr() }
    }

    /// Returns the target of a level, from 1 to [`LEVELS`].
    pub(super) fn target(&self, level: i32) -> Target {
        let done = f64::from(level - 1) / f64::from(LEVELS - 1);
        let between = |first: Duration, last: Duration| {
            if level == LEVELS { last } else { first.mul_f64((last.as_secs_f64() / first.as_secs_f64()).powf(done)) }
        };
        let steps = SLACK * COARSER.powi(LEVELS - level);
        Target {
            loss_ratio: self.loss_ratio,
            exceed_ratio: self.exceed_ratio,
            width: if level == LEVELS { self.width } else { 1.0 - (1.0 - self.width).powf(steps) },
            duration: between(self.initial_trial, self.final_trial),
            sum: between(self.initial_trial, self.duration_sum),
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Goal { name, loss_ratio, exceed_ratio, width, initial_trial, final_trial, duration_sum } = self;
        for (what, ratio) in [("loss ratio", loss_ratio), ("exceed ratio", exceed_ratio)] {
            ensure!(
                (0.0..1.0).contains(ratio),
                "{name}: the {what} {ratio} is out of range: use at least 0 and less \
             than 1"
            );
        }
        ensure!(
            *width > 0.0 && *width < 1.0,
            "{name}: the width {width} is out of range: use a part of the load, \
         such as 0.005"
        );
        ensure!(!initial_trial.is_zero(), "{name}: the duration of the first trials must be above 0");
        ensure!(
            initial_trial <= final_trial && final_trial <= duration_sum,
            "{name}: trials grow from {initial_trial:?} to {final_trial:?}, and {duration_sum:?} of the longest ones \
             decide: each must be at least as long as the one before"
        );
        Ok(())
    }
}

/// The limits of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The least load, in packets per second: if even this load is an upper bound, the search gives
    /// up. With this load, the shortest trial must still send some packets.
    pub min_load: f64,
    /// The greatest load. It is lowered if the generator cannot send this load.
    pub max_load: f64,
    /// Repetitions of an invalid trial.
    pub retries: Retries,
}

/// Repetitions of an invalid trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Maximum number of repetitions for any reason.
    pub failed: u32,
    /// Repetitions because the generator was late, and for no other reason. The load is not greater
    /// than that of a valid trial. Such disturbances come and go.
    pub late: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { failed: 3, late: 20 }
    }
}

impl Limits {
    /// Makes limits between two loads.
    pub fn new(min_load: f64, max_load: f64) -> Limits {
        Limits { min_load, max_load, retries: Retries::default() }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Limits { min_load, max_load, .. } = self;
        ensure!(
            *min_load > 0.0 && min_load < max_load && max_load.is_finite(),
            "loads from {min_load} to {max_load} packets a second cannot be searched: the least must be above 0, and \
             the greatest above the least"
        );
        Ok(())
    }
}
