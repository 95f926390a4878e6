//! The order of visits, and the records of a run.

use straightline_report::results::Sample;
use straightline_report::statistics::Looks;

use crate::trial::{Step, Watch};

/// A variant in a cell, in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The number of the round, from 1.
    pub round: u32,
    /// The number of the cell, from 0.
    pub cell: usize,
    /// The number of the variant in the cell, from 0.
    pub variant: usize,
}

/// The numbers of rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The rounds of every cell.
    pub first: u32,
    /// The rounds of cells with a comparison that is unclear after the first ones. Not below `first`.
    pub most: u32,
}

impl Rounds {
    /// Returns the looks at the samples, which set the confidence of intervals.
    #[must_use]
    pub fn looks(self) -> Looks {
        if self.most > self.first { Looks::Two } else { Looks::One }
    }
}

impl From<u32> for Rounds {
    /// Makes a fixed number of rounds.
    fn from(rounds: u32) -> Self {
        Rounds { first: rounds, most: rounds }
    }
}

/// A maker of the trials of a run.
pub trait Trials {
    /// Returns the number of variants of each cell.
    fn variants(&self) -> Vec<usize>;

    /// Returns whether the variants of a cell begin with another one in each round.
    fn take_turns(&self) -> bool {
        true
    }

    /// Returns whether a comparison of a cell is unclear. This is asked once, after the first rounds.
    fn is_unclear(&self, _cell: usize) -> bool {
        false
    }

    /// Returns whether the run is to end.
    fn is_stopped(&self) -> bool;

    /// Makes the trials of a visit, and passes their samples to `run`. Returns false if a stop has
    /// ended them early.
    ///
    /// # Errors
    /// The run cannot continue.
    fn visit(&mut self, visit: Visit, run: &mut Run<'_, '_>) -> anyhow::Result<bool>;

    /// Cleans up after the last visit of a cell in a round.
    fn leave(&mut self, _cell: usize) {}
}

/// A record of a run, to be stored.
#[derive(Clone, Copy, Debug)]
pub enum Record<'r> {
    /// The features negotiated with somebody, such as with a ring layout. They come before the
    /// samples that belong to them.
    Negotiated(&'r str, &'r [&'static str]),
    /// Name and version of another program that takes part. They come before the samples that
    /// belong to it.
    Peer(&'r str, &'r str),
    /// A result.
    Sample(&'r Sample),
    /// One of the trials of a search or a soak; `load` is the rate that was tried.
    Trial(&'r Sample),
}

/// Stores records.
pub type Keep<'k> = dyn FnMut(Record<'_>) -> anyhow::Result<()> + 'k;

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Planned visits, with those of further rounds as soon as these are known.
    pub planned: usize,
    /// Visits that were made to their end.
    pub made: usize,
    /// Valid samples.
    pub valid: usize,
    /// Samples that are not valid.
    pub invalid: usize,
    /// Number of those of searches that finished without finding a load too high.
    pub at_least: usize,
    /// Number of soaks whose load was not carried: too much was lost, or a trial was not valid
    /// because of a backend.
    pub not_carried: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Returns whether the run was stopped.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.made < self.planned
    }
}

/// A run, as the trials of a visit see it.
pub struct Run<'r, 'k> {
    watch: &'r mut dyn Watch,
    keep: &'r mut Keep<'k>,
    outcome: Outcome,
    step: Step,
}

impl Run<'_, '_> {
    /// Reports a trial that begins, or the progress of one.
    pub fn begins(&mut self, what: String) {
        self.step.what = what;
        self.watch.begins(&self.step);
    }

    /// Names the place of the results that follow.
    pub fn name_place(&mut self, what: String) {
        self.step.what = what;
    }

    /// Keeps a result. `summary` is empty, or a line about it.
    ///
    /// # Errors
    /// The result cannot be kept.
    pub fn keep(&mut self, sample: &Sample, summary: &str) -> anyhow::Result<()> {
        if !summary.is_empty() {
            self.watch.has_ended(&self.step, summary);
        }
        if let Some(why) = sample.validity.reason() {
            self.watch.is_invalid(&self.step, why);
        }
        self.outcome.valid += usize::from(sample.is_valid());
        self.outcome.invalid += usize::from(!sample.is_valid());
        self.outcome.at_least += usize::from(sample.is_at_least());
        self.outcome.not_carried += usize::from(sample.carried == Some(false));
        (self.keep)(Record::Sample(sample))
    }

    /// Keeps another record.
    ///
    /// # Errors
    /// The record cannot be kept.
    pub fn record(&mut self, record: Record<'_>) -> anyhow::Result<()> {
        (self.keep)(record)
    }

    /// Adds a note for the user, unless it is there.
    pub fn note(&mut self, note: String) {
        if !self.outcome.notes.contains(&note) {
            self.outcome.notes.push(note);
        }
    }
}

/// Makes all visits. Each cell has the first rounds. Cells that are unclear then have all others too.
///
/// # Errors
/// The errors of `keep`, and of visits.
pub fn run(
    trials: &mut impl Trials,
    rounds: impl Into<Rounds>,
    watch: &mut dyn Watch,
    keep: &mut Keep<'_>,
) -> anyhow::Result<Outcome> {
    let rounds = rounds.into();
    let variants = trials.variants();
    let mut cells: Vec<usize> = (0..variants.len()).collect();
    let visits = |cells: &[usize]| cells.iter().map(|&cell| variants[cell]).sum::<usize>();
    let planned = visits(&cells) * rounds.first as usize;
    let mut run = Run {
        watch,
        keep,
        outcome: Outcome { planned, ..Outcome::default() },
        step: Step { trial: 0, trials: planned, round: 0, what: String::new() },
    };
    for round in 1..=rounds.most {
        if round == rounds.first + 1 {
            cells.retain(|&cell| trials.is_unclear(cell));
            run.outcome.planned += visits(&cells) * (rounds.most - rounds.first) as usize;
            run.step.trials = run.outcome.planned;
        }
        run.step.round = round;
        for &cell in &cells {
            for variant in order(round, variants[cell], trials.take_turns()) {
                if !trials.is_stopped() {
                    run.step.trial += 1;
                    let is_made = trials.visit(Visit { round, cell, variant }, &mut run)?;
                    run.outcome.made += usize::from(is_made);
                }
            }
            trials.leave(cell);
            if trials.is_stopped() {
                return Ok(run.outcome);
            }
        }
    }
    Ok(run.outcome)
}

/// Returns the order of the variants of a cell in a round.
fn order(round: u32, variants: usize, take_turns: bool) -> impl Iterator<Item = usize> {
    let first = if take_turns { (round as usize - 1) % variants.max(1) } else { 0 };
    (first..variants).chain(0..first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_is_in_each_place() {
        let rounds = |take_turns| (1..=4).map(move |round| order(round, 3, take_turns).collect::<Vec<_>>());
        assert!(rounds(true).eq([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]));
        assert!(rounds(false).all(|order| order == [0, 1, 2]));
        assert_eq!(order(5, 0, true).count(), 0);
    }
}
