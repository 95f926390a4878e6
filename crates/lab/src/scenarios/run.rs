//! The tasks in each cell, and their samples.

use std::collections::BTreeMap;

use straightline_report::results::Sample;

use super::task::Task;
use super::{find, soak};
use crate::rounds::{self, Keep, Outcome, Record, Trials, Visit};
use crate::testbed::Testbed;
use crate::testbed::TestbedOptions;
use crate::traffic::generator::Rate;
use crate::trial::Watch;

/// Measures everything in `rounds` rounds, and passes each sample to `keep`. A stop ends the run.
/// An interrupted sample is kept as not valid, with its metrics so far. Features are those negotiated
/// with a ring layout: `split`, and `split, guest` for the guest between the generator's ports.
///
/// # Errors
/// The options are not possible; and the errors of `keep`.
pub fn run(options: &TestbedOptions, watch: &mut dyn Watch, keep: &mut Keep<'_>) -> anyhow::Result<Outcome> {
    options.check()?;
    let testbeds: anyhow::Result<_> =
        options.cells().map(|(layout, sizes)| Testbed::new(options, layout, sizes)).collect();
    let mut outcome = run_on(options, testbeds?, watch, keep)?;
    outcome.notes.splice(0..0, options.warning()?);
    Ok(outcome)
}

/// Measures everything as [`run`] does, on these testbeds.
pub(super) fn run_on(
    options: &TestbedOptions,
    testbeds: Vec<Testbed<'_>>,
    watch: &mut dyn Watch,
    keep: &mut Keep<'_>,
) -> anyhow::Result<Outcome> {
    let mut scenario = Scenario { options, testbeds, tasks: Task::all(&options.loads) };
    rounds::run(&mut scenario, options.rounds, watch, keep)
}

/// A scenario: its cells, and its tasks in each cell.
struct Scenario<'a> {
    options: &'a TestbedOptions,
    testbeds: Vec<Testbed<'a>>,
    tasks: Vec<Task>,
}

impl Trials for Scenario<'_> {
    fn variants(&self) -> Vec<usize> {
        vec![self.tasks.len(); self.testbeds.len()]
    }

    /// Tasks are not compared with one another.
    fn take_turns(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        self.options.is_stopped()
    }

    fn visit(&mut self, visit: Visit, run: &mut rounds::Run<'_, '_>) -> anyhow::Result<bool> {
        let testbed = &mut self.testbeds[visit.cell];
        let mut run = Run { options: self.options, round: visit.round, run };
        match self.tasks[visit.variant] {
            Task::Max => run.fixed(testbed, Rate::Max)?,
            Task::Rate(rate) => run.fixed(testbed, rate)?,
            Task::Find => find::find(&mut run, testbed)?,
            Task::Soak(rate, time) => soak::carry(&mut run, testbed, rate, time)?,
        }
        Ok(!self.is_stopped())
    }

    /// Disconnects the endpoints, because two cells cannot share a backend's two sockets.
    fn leave(&mut self, cell: usize) {
        self.testbeds[cell].end();
    }
}

/// A run, as the tasks see it.
pub(super) struct Run<'a, 'r, 'k> {
    pub(super) options: &'a TestbedOptions,
    round: u32,
    run: &'a mut rounds::Run<'r, 'k>,
}

impl Run<'_, '_, '_> {
    /// Makes one trial at a rate.
    fn fixed(&mut self, testbed: &mut Testbed<'_>, rate: Rate) -> anyhow::Result<()> {
        let load = rate.to_string();
        self.says(&self.place(testbed), &load);
        let trial_result = testbed.trial(rate, self.options.time);
        self.keep(testbed, &load, trial_result.sample)
    }

    /// Reports the current step.
    pub(super) fn says(&mut self, place: &str, what: &str) {
        self.run.begins(format!("{} {place} {what}", self.options.scenario.name()));
    }

    /// Adds a note for the user.
    pub(super) fn note(&mut self, testbed: &Testbed<'_>, load: &str, what: &str) {
        self.run.note(format!("{}: {what}", label(&self.cell(testbed, Some(load)))));
    }

    /// Keeps the trials of a search, also if the search was stopped.
    pub(super) fn keep_trials(&mut self, testbed: &Testbed<'_>, trials: Vec<(Rate, Sample)>) -> anyhow::Result<()> {
        for (rate, sample) in trials {
            let sample = self.placed(testbed, &rate.to_string(), sample);
            self.run.record(Record::Trial(&sample))?;
        }
        Ok(())
    }

    /// Keeps a sample, unless it was interrupted before any packet had come.
    pub(super) fn keep(&mut self, testbed: &Testbed<'_>, load: &str, sample: Sample) -> anyhow::Result<()> {
        if self.options.is_stopped() && sample.metrics.get("mpps").is_none_or(|&mpps| mpps <= 0.0) {
            return Ok(());
        }
        let sample = self.placed(testbed, load, sample);
        testbed.interfaces.iter().for_each(|interface| self.run.note(interface.clone()));
        let layout = testbed.layout().name();
        for (whose, features) in [layout.to_owned(), format!("{layout}, guest")].into_iter().zip(testbed.features) {
            if let Some(features) = features {
                self.run.record(Record::Negotiated(&whose, &TestbedOptions::names(features)))?;
            }
        }
        self.run.name_place(label(&sample.cell));
        self.run.keep(&sample, "")
    }

    /// Returns a sample with its scenario, cell, variant and round.
    fn placed(&self, testbed: &Testbed<'_>, load: &str, mut sample: Sample) -> Sample {
        sample.scenario = self.options.scenario.name().to_owned();
        sample.round = self.round;
        sample.variant.clone_from(&self.options.name);
        sample.cell = self.cell(testbed, Some(load));
        sample.metrics.insert("generator_limit_mpps".to_owned(), testbed.limit_mpps);
        sample
    }

    /// Returns the cell as text.
    pub(super) fn place(&self, testbed: &Testbed<'_>) -> String {
        label(&self.cell(testbed, None))
    }

    fn cell(&self, testbed: &Testbed<'_>, load: Option<&str>) -> BTreeMap<String, String> {
        let mut cell = BTreeMap::from([
            ("size".to_owned(), testbed.sizes().name()),
            ("ring".to_owned(), testbed.layout().name().to_owned()),
        ]);
        cell.extend(load.map(|load| ("load".to_owned(), load.to_owned())));
        cell.extend(self.options.particulars().into_iter().map(|(axis, value)| (axis.to_owned(), value)));
        cell
    }
}

/// Returns the axes as text, in an order that is easy to read.
pub(super) fn label(cell: &BTreeMap<String, String>) -> String {
    let first = ["size", "ring"].into_iter().filter_map(|axis| cell.get(axis).cloned());
    let others = cell.iter().filter(|(axis, _)| !["size", "ring", "load"].contains(&axis.as_str()));
    let others = others.map(|(axis, value)| format!("{axis}={value}"));
    first.chain(others).chain(cell.get("load").cloned()).collect::<Vec<_>>().join(" ")
}
