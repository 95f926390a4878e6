//! Runs cells, loads and rounds, one after the other.

use std::collections::BTreeMap;

use straightline_report::results::Sample;

use super::task::Task;
use super::{find, soak};
use crate::testbed::Testbed;
use crate::testbed::TestbedOptions;
use crate::traffic::generator::Rate;
use crate::trial::{Step, Watch};

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScenarioOutcome {
    /// Number of planned and of finished tasks. A task is one load in one cell in one round.
    pub tasks: [usize; 2],
    /// Number of valid and of invalid samples.
    pub samples: [usize; 2],
    /// Number of invalid samples of searches that finished without finding a load too high.
    pub at_least: usize,
    /// Number of soaks whose load was not carried: too much was lost, or a trial was not valid
    /// because of a backend.
    pub not_carried: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Descriptions of the interfaces that packets passed.
    pub interfaces: Vec<String>,
    /// The negotiated features, by ring layout: `split`, and `split, guest` for the guest between
    /// the generator's ports.
    pub features: BTreeMap<String, Vec<&'static str>>,
}

impl ScenarioOutcome {
    /// Returns whether the run was stopped.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.tasks[1] < self.tasks[0]
    }
}

/// A record of a run, to be stored.
#[derive(Clone, Copy, Debug)]
pub enum ScenarioRecord<'s> {
    /// The result of a load.
    Result(&'s Sample),
    /// One of the trials of a search or a soak; `load` is the rate that was tried.
    Trial(&'s Sample),
}

/// Stores records.
pub(super) type Keep<'k> = dyn FnMut(ScenarioRecord<'_>) -> anyhow::Result<()> + 'k;

/// Measures everything in `rounds` rounds, and passes each sample to `keep`. A stop ends the run.
/// An interrupted sample is kept as not valid, with its metrics so far.
///
/// # Errors
/// The options are not possible; and the errors of `keep`.
pub fn run(options: &TestbedOptions, watch: &mut dyn Watch, keep: &mut Keep<'_>) -> anyhow::Result<ScenarioOutcome> {
    options.check()?;
    let mut testbeds = Vec::new();
    for (layout, sizes) in options.cells() {
        testbeds.push(Testbed::new(options, layout, sizes)?);
    }
    let tasks = Task::all(&options.loads);
    let count = tasks.len() * testbeds.len() * options.rounds as usize;
    let mut run = Run {
        options,
        watch,
        keep,
        outcome: ScenarioOutcome {
            tasks: [count, 0],
            notes: options.warning()?.into_iter().collect(),
            ..ScenarioOutcome::default()
        },
        step: Step { trial: 0, trials: count, round: 0, what: String::new() },
    };
    for round in 1..=options.rounds {
        run.step.round = round;
        for testbed in &mut testbeds {
            for &task in &tasks {
                if !options.is_stopped() {
                    run.step.trial += 1;
                    run.task(testbed, task)?;
                }
            }
            // The endpoints are disconnected, because two cells cannot share a backend's two
            // sockets.
            testbed.end();
        }
    }
    Ok(run.outcome)
}

/// A run, and its progress.
pub(super) struct Run<'a, 'k> {
    pub(super) options: &'a TestbedOptions,
    watch: &'a mut dyn Watch,
    keep: &'a mut Keep<'k>,
    outcome: ScenarioOutcome,
    step: Step,
}

impl Run<'_, '_> {
    fn task(&mut self, testbed: &mut Testbed<'_>, task: Task) -> anyhow::Result<()> {
        match task {
            Task::Max => self.fixed(testbed, Rate::Max)?,
            Task::Rate(rate) => self.fixed(testbed, rate)?,
            Task::Find => find::find(self, testbed)?,
            Task::Soak(rate, time) => soak::carry(self, testbed, rate, time)?,
        }
        if !self.options.is_stopped() {
            self.outcome.tasks[1] += 1;
        }
        Ok(())
    }

    /// Makes one trial at a rate.
    fn fixed(&mut self, testbed: &mut Testbed<'_>, rate: Rate) -> anyhow::Result<()> {
        let load = rate.to_string();
        self.says(&self.place(testbed), &load);
        let trial_result = testbed.trial(rate, self.options.time);
        self.keep(testbed, &load, trial_result.sample)
    }

    /// Reports the current step.
    pub(super) fn says(&mut self, place: &str, what: &str) {
        self.step.what = format!("{} {place} {what}", self.options.scenario.name());
        self.watch.begins(&self.step);
    }

    /// Adds a note for the user.
    pub(super) fn note(&mut self, testbed: &Testbed<'_>, load: &str, what: &str) {
        self.outcome.notes.push(format!("{}: {what}", label(&self.cell(testbed, Some(load)))));
    }

    /// Keeps the trials of a search, also if the search was stopped.
    pub(super) fn keep_trials(&mut self, testbed: &Testbed<'_>, trials: Vec<(Rate, Sample)>) -> anyhow::Result<()> {
        for (rate, sample) in trials {
            let sample = self.placed(testbed, &rate.to_string(), sample);
            (self.keep)(ScenarioRecord::Trial(&sample))?;
        }
        Ok(())
    }

    /// Keeps a sample, unless it was interrupted before any packet had come.
    pub(super) fn keep(&mut self, testbed: &Testbed<'_>, load: &str, sample: Sample) -> anyhow::Result<()> {
        if self.options.is_stopped() && sample.metrics.get("mpps").is_none_or(|&mpps| mpps <= 0.0) {
            return Ok(());
        }
        let sample = self.placed(testbed, load, sample);
        if let Some(why) = sample.validity.reason() {
            self.step.what = label(&sample.cell);
            self.watch.is_invalid(&self.step, why);
        }
        self.outcome.samples[usize::from(!sample.is_valid())] += 1;
        self.outcome.at_least += usize::from(sample.is_at_least());
        self.outcome.not_carried += usize::from(sample.carried == Some(false));
        for interface in &testbed.interfaces {
            if !self.outcome.interfaces.contains(interface) {
                self.outcome.interfaces.push(interface.clone());
            }
        }
        let layout = testbed.layout().name();
        for (whose, features) in [layout.to_owned(), format!("{layout}, guest")].into_iter().zip(testbed.features) {
            self.outcome.features.extend(features.map(|features| (whose, TestbedOptions::names(features))));
        }
        (self.keep)(ScenarioRecord::Result(&sample))
    }

    /// Returns a sample with its scenario, cell, variant and round.
    fn placed(&self, testbed: &Testbed<'_>, load: &str, mut sample: Sample) -> Sample {
        sample.scenario = self.options.scenario.name().to_owned();
        sample.round = self.step.round;
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
