//! What is searched for, and within what.

use std::time::Duration;

use anyhow::ensure;

use super::classify::Target;

/// How many times a goal is pursued: roughly, closer, and as it is meant.
pub(super) const LEVELS: i32 = 3;

/// A goal's width is so many times larger with each level before the last: one halving leads to the next.
const COARSER: f64 = 2.0;

/// What is taken off widths that are steps and not ends, so that rounding makes no bounds a hair too far apart.
pub(super) const SLACK: f64 = 0.99;

/// A search goal; the words are those of the draft's "Goal Terms".
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What it is called where it is reported.
    pub name: String,
    /// A trial that loses more than this part has a high loss.
    pub loss_ratio: f64,
    /// At a lower bound, this part of the time may be trials of high loss.
    pub exceed_ratio: f64,
    /// How far the bounds may be from each other, as a part of the upper one.
    pub width: f64,
    /// The shortest trial that is made for this goal.
    pub initial_trial: Duration,
    /// As long as trials must be to make a load a lower bound.
    pub final_trial: Duration,
    /// So much time of such trials decides on any load.
    pub duration_sum: Duration,
}

impl Goal {
    /// The non-drop rate: no loss. Trials of a second, up to 21 of them at a load, of which the half decides (as FD.io's
    /// CSIT measures).
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

    /// The partial-drop rate: this part may be lost.
    pub fn pdr(loss_ratio: f64) -> Goal {
        Goal { name: "PDR".to_owned(), loss_ratio, ..Goal::ndr() }
    }

    /// What is pursued at a level, from 1 to [`LEVELS`].
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
            ensure!((0.0..1.0).contains(ratio), "{name}: a {what} is at least 0 and below 1, not {ratio}");
        }
        ensure!(*width > 0.0 && *width < 1.0, "{name}: a width is a part of the load, such as 0.005, not {width}");
        ensure!(!initial_trial.is_zero(), "{name}: the first trials need a duration above 0");
        ensure!(
            initial_trial <= final_trial && final_trial <= duration_sum,
            "{name}: trials grow from {initial_trial:?} to {final_trial:?}, and {duration_sum:?} of the longest ones \
             decide: each must be at least as long as the one before"
        );
        Ok(())
    }
}

/// Within what is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The least load, in packets a second: where even this is an upper bound, the search gives up. Some packets must be
    /// sent in the shortest trial.
    pub min_load: f64,
    /// The greatest load. It is lowered where the tester turns out to be unable to send that much.
    pub max_load: f64,
    /// How often a trial that does not count is made again.
    pub retries: Retries,
}

/// So many times a trial that does not count is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Whatever was wrong.
    pub failed: u32,
    /// Because the tester was late, and for nothing else, at a load not greater than one that counted: what kept it from
    /// running comes and goes.
    pub late: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { failed: 3, late: 20 }
    }
}

impl Limits {
    /// Between two loads.
    pub fn new(min_load: f64, max_load: f64) -> Limits {
        Limits { min_load, max_load, retries: Retries::default() }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Limits { min_load, max_load, .. } = self;
        ensure!(
            *min_load > 0.0 && min_load < max_load && max_load.is_finite(),
            "loads from {min_load} to {max_load} packets a second cannot be searched: the least must be above 0, and the \
             greatest above the least"
        );
        Ok(())
    }
}
