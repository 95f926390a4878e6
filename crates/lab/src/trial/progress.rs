//! The progress of a run of trials.

/// A trial that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The number of the trial, from 1.
    pub trial: usize,
    /// The number of all trials.
    pub trials: usize,
    /// The number of the round, from 1.
    pub round: u32,
    /// The cell, with the variant or the load.
    pub what: String,
}

/// An observer of a run's progress.
pub trait Watch {
    /// Called when a trial begins.
    fn begins(&mut self, step: &Step);

    /// Called when a trial has ended that has a summary.
    fn has_ended(&mut self, _step: &Step, _summary: &str) {}

    /// Called when the trial that has just ended is not valid.
    fn is_invalid(&mut self, step: &Step, why: &str);
}
