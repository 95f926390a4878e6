//! Rounds of trials, their samples, progress, and interruption.

use std::cell::Cell as Counter;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use straightline_lab::folder::Writer;
use straightline_lab::machine::{environment, line_round_trip_ns};
use straightline_lab::rounds::{self, Measured, Outcome, Plan, Record, Run, Stop, Trials, Visit};
use straightline_lab::trial::validity::{self, of_error};
use straightline_lab::trial::{Step, Watch};
use straightline_report::results::{Sample, Validity};

use super::Candidate;
use crate::machine::two_cpus;
use crate::proc;

/// Upper bound of the machine's busy time before a trial, as a fraction. Above it, the trial counts
/// as disturbed.
const QUIET: f64 = 0.1;

/// The longest wait for a moment in which the CPUs are near.
const NEAR_AGAIN: Duration = Duration::from_secs(60);

/// The number of times that a visit is made, until the CPUs are still near at its end.
const TRIES: u32 = 3;

/// The axes of a trial besides the switch: a row of the table.
pub(crate) trait Cell: Display {
    /// Returns the axes in the form of a sample.
    fn axes(&self) -> BTreeMap<String, String>;
}

/// The trials of a comparison.
pub(crate) struct TrialPlan<'a, C> {
    pub(crate) scenario: &'static str,
    pub(crate) rounds: u32,
    pub(crate) switches: &'a [Candidate],
    pub(crate) cells: &'a [C],
    /// Folder for the samples.
    pub(crate) out: Option<&'a Path>,
    /// Nanoseconds that a line's round trip between the CPUs may take.
    pub(crate) near: Option<u32>,
}

/// The results of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: Vec<Sample>,
    outcome: Outcome,
    disturbed: usize,
}

impl<C: Cell> TrialPlan<'_, C> {
    /// Runs all trials. A trial that fails becomes an invalid sample. After an interrupt, returns
    /// the samples so far.
    pub(crate) fn run(&self, trial: impl Fn(&Candidate, &C) -> Result<Measured>) -> Result<Results> {
        self.run_together(1, |switch, cells| cells.iter().map(|cell| trial(switch, cell)).collect())
    }

    /// Does the same, with trials of `count` consecutive cells at a time. So they can share a running
    /// switch. If `trials` fails, all of them become invalid samples.
    pub(crate) fn run_together(
        &self,
        count: usize,
        trials: impl Fn(&Candidate, &[C]) -> Result<Vec<Measured>>,
    ) -> Result<Results> {
        proc::catch_interrupts()?;
        let mut writer = self.out.map(|out| Writer::create(out, environment())).transpose()?;
        if let Some(writer) = &mut writer {
            self.switches.iter().try_for_each(|switch| writer.peer(&switch.name, &switch.version))?;
        }
        let mut visits = Visits { plan: self, count, trials, disturbed: 0 };
        let mut samples = Vec::new();
        let mut progress = Progress(Instant::now());
        let outcome = rounds::run(&mut visits, self.rounds, &mut progress, &mut |record| {
            let Record::Sample(sample) = record else { return Ok(()) };
            samples.push(sample.clone());
            writer.as_mut().map_or(Ok(()), |writer| writer.write(sample))
        })?;
        if outcome.is_cut_short() {
            eprintln!("interrupted: these are the results so far");
        }
        Ok(Results { samples, outcome, disturbed: visits.disturbed })
    }
}

/// The trials of a plan: those of some consecutive cells with a switch at a time.
struct Visits<'p, 'a, C, T> {
    plan: &'p TrialPlan<'a, C>,
    count: usize,
    trials: T,
    disturbed: usize,
}

impl<C: Cell, T: Fn(&Candidate, &[C]) -> Result<Vec<Measured>>> Trials for Visits<'_, '_, C, T> {
    fn variants(&self) -> Vec<usize> {
        self.plan.cells.chunks(self.count).map(|_| self.plan.switches.len()).collect()
    }

    fn is_stopped(&self) -> bool {
        proc::interrupted()
    }

    fn visit(&mut self, visit: Visit, run: &mut Run<'_, '_>) -> Result<bool> {
        let cells = self.plan.cells.chunks(self.count).nth(visit.cell).unwrap_or_default();
        let switch = &self.plan.switches[visit.variant];
        let mut tries = 0;
        let (made, busy, round_trip) = loop {
            tries += 1;
            let before = self.wait_until_near();
            let busy = busy();
            let made = (self.trials)(switch, cells);
            // An interrupt also makes the current trials fail, so their results are ignored.
            if proc::interrupted() {
                return Ok(false);
            }
            let round_trip = [before, line_round_trip()].into_iter().flatten().reduce(f64::max);
            if tries == TRIES || self.is_near(round_trip) {
                break (made, busy?, round_trip);
            }
        };
        self.disturbed += if busy > QUIET { cells.len() } else { 0 };
        let made = made.unwrap_or_else(|error| vec![invalid(&error); cells.len()]);
        for (cell, measured) in cells.iter().zip(made) {
            let mut sample = Sample {
                scenario: self.plan.scenario.to_owned(),
                round: visit.round,
                variant: switch.name.clone(),
                cell: cell.axes(),
                metrics: measured.metrics,
                cycles: measured.cycles,
                validity: measured.validity,
                ..Sample::default()
            };
            // The fraction of the machine that was busy with something else before the trial.
            sample.metrics.insert("busy_before_ratio".to_owned(), busy);
            if let Some(ns) = round_trip {
                sample.metrics.insert("line_round_trip_ns".to_owned(), ns);
            }
            if let (Validity::Valid, Some(ns), Some(near)) = (&sample.validity, round_trip, self.plan.near) {
                sample.validity = validity::near(ns, f64::from(near));
            }
            run.begins(format!("{} {cell} {}", self.plan.scenario, switch.name));
            run.keep(&sample, &measured.summary)?;
        }
        Ok(true)
    }
}

impl<C: Cell, T> Visits<'_, '_, C, T> {
    fn is_near(&self, round_trip: Option<f64>) -> bool {
        round_trip.zip(self.plan.near).is_none_or(|(ns, near)| ns <= f64::from(near))
    }

    /// Waits until the CPUs are near, if the plan wants that. Returns a line's round trip between them.
    fn wait_until_near(&self) -> Option<f64> {
        let most = Instant::now() + NEAR_AGAIN;
        loop {
            let round_trip = line_round_trip();
            if self.is_near(round_trip) || Instant::now() > most || proc::interrupted() {
                return round_trip;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Returns the nanoseconds of a line's round trip between the first two CPUs. With one CPU there is
/// none.
fn line_round_trip() -> Option<f64> {
    let (one, other) = two_cpus().ok()?;
    line_round_trip_ns([one, other].map(|cpu| usize::try_from(cpu).unwrap_or(usize::MAX))).ok()
}

/// Returns the result of a trial that is not valid because of an error.
pub(crate) fn invalid(error: &anyhow::Error) -> Measured {
    Measured { validity: of_error(error), ..Measured::default() }
}

/// Runs a plan whose trials count in `disturbed`. `peers` are names and versions of the programs that
/// take part. After an interrupt, returns the samples so far.
pub(crate) fn run_plan(
    plan: &Plan<'_, Interrupts>,
    rounds: u32,
    out: Option<&Path>,
    peers: &[(&str, &str)],
    disturbed: &Counter<usize>,
) -> Result<Results> {
    proc::catch_interrupts()?;
    let mut writer = out.map(|out| Writer::create(out, environment())).transpose()?;
    if let Some(writer) = &mut writer {
        peers.iter().try_for_each(|(name, version)| writer.peer(name, version))?;
    }
    let mut samples = Vec::new();
    let outcome = plan.run(rounds, &Interrupts, &mut Progress(Instant::now()), &mut |record| {
        let Record::Sample(sample) = record else { return Ok(()) };
        samples.push(sample.clone());
        writer.as_mut().map_or(Ok(()), |writer| writer.write(sample))
    })?;
    if outcome.is_cut_short() {
        eprintln!("interrupted: these are the results so far");
    }
    Ok(Results { samples, outcome, disturbed: disturbed.get() })
}

impl Results {
    /// Prints remarks on disturbed and invalid trials. Returns true if all trials were made and are
    /// valid.
    pub(crate) fn judge(&self) -> bool {
        let made = self.samples.len();
        let failed = self.outcome.invalid - self.outcome.at_least;
        if self.disturbed > 0 {
            let disturbed = self.disturbed;
            eprintln!(
                "the machine was busy with something else before {disturbed} of {made} trials: only ratios are meaningful"
            );
        }
        if failed > 0 {
            eprintln!("{failed} of {made} trials are not valid");
        }
        failed == 0 && !self.outcome.is_cut_short()
    }
}

/// Signals that ask this program to end.
pub(crate) struct Interrupts;

impl Stop for Interrupts {
    fn is_stopped(&self) -> bool {
        proc::interrupted()
    }
}

/// Prints a line for each trial that has ended.
struct Progress(Instant);

impl Progress {
    fn say(&self, step: &Step, what: &str) {
        let secs = self.0.elapsed().as_secs();
        eprintln!("[{secs:>3} s] {} of {} {}: {what}", step.trial, step.trials, step.what);
    }
}

impl Watch for Progress {
    fn begins(&mut self, _: &Step) {}

    fn has_ended(&mut self, step: &Step, summary: &str) {
        self.say(step, summary);
    }

    fn is_invalid(&mut self, step: &Step, why: &str) {
        self.say(step, &format!("no valid trial: {why}"));
    }
}

/// Makes a trial, after looking whether the machine is busy with something else.
pub(crate) fn in_quiet(disturbed: &Counter<usize>, trial: impl Fn() -> Result<Measured>) -> Result<Measured> {
    let busy = busy()?;
    let result = trial();
    // An interrupt also makes the current trial fail, so its result is ignored.
    if proc::interrupted() {
        bail!("interrupted");
    }
    disturbed.set(disturbed.get() + usize::from(busy > QUIET));
    let mut measured = result.unwrap_or_else(|error| invalid(&error));
    // The fraction of the machine that was busy with something else before the trial.
    measured.metrics.insert("busy_before_ratio".to_owned(), busy);
    Ok(measured)
}

/// Returns the fraction of the machine's time that other programs use. None of our programs may run
/// at the same time.
fn busy() -> Result<f64> {
    let ticks = || -> Result<(u64, u64)> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal (proc(5))
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
        Ok((ticks.iter().sum(), idle))
    };
    let (all, idle) = ticks()?;
    proc::pause(Duration::from_millis(200))?;
    let (all_now, idle_now) = ticks()?;
    // The time spent waiting for devices may decrease (proc(5)).
    let idle = idle_now.saturating_sub(idle);
    let all = all_now.saturating_sub(all).max(1);
    Ok(1.0 - ratio(usize::try_from(idle.min(all))?, usize::try_from(all)?))
}

#[expect(clippy::cast_precision_loss, reason = "values for people")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
