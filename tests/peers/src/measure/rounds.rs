//! The order of trials. In each round every switch has one trial in every cell; the trials of a
//! cell follow each other.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use straightline_lab::folder::Writer;
use straightline_lab::machine::environment;
use straightline_lab::trial::validity::of_error;
use straightline_report::results::{Sample, Validity};

use super::Candidate;
use crate::proc;

/// Upper bound of the machine's busy time before a trial, as a fraction. Above it, the trial counts
/// as disturbed.
const QUIET: f64 = 0.1;

/// The axes of a trial besides the switch: a row of the table.
pub(crate) trait Cell: Display {
    /// Returns the axes in the form of a sample.
    fn axes(&self) -> BTreeMap<String, String>;
}

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrialResult {
    /// Metrics in the form of a sample.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// A summary for the line of progress.
    pub(crate) summary: String,
    /// Whether the trial is valid. A search that found only a lower bound has metrics, but is not
    /// valid.
    pub(crate) validity: Validity,
}

/// The trials of a comparison.
pub(crate) struct TrialPlan<'a, C> {
    pub(crate) scenario: &'static str,
    pub(crate) rounds: u32,
    pub(crate) switches: &'a [Candidate],
    pub(crate) cells: &'a [C],
    /// Folder for the samples.
    pub(crate) out: Option<&'a Path>,
}

/// The results of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: Vec<Sample>,
    disturbed: usize,
}

impl<C: Cell> TrialPlan<'_, C> {
    /// Runs all trials. A trial that fails becomes an invalid sample. After an interrupt, returns
    /// the samples so far.
    pub(crate) fn run(&self, mut trial: impl FnMut(&Candidate, &C) -> Result<TrialResult>) -> Result<Results> {
        proc::catch_interrupts()?;
        let mut writer = self.out.map(|out| Writer::create(out, environment())).transpose()?;
        if let Some(writer) = &mut writer {
            self.switches.iter().try_for_each(|switch| writer.peer(&switch.name, &switch.version))?;
        }
        let total = self.rounds as usize * self.switches.len() * self.cells.len();
        let mut done = Results::default();
        let start = Instant::now();
        for round in 1..=self.rounds {
            for cell in self.cells {
                for switch in self.switches {
                    let busy_before = busy();
                    let result = trial(switch, cell);
                    // An interrupt also makes the current trial fail, so its result is ignored.
                    if proc::interrupted() {
                        eprintln!("interrupted: these are the results so far");
                        return Ok(done);
                    }
                    let busy_before = busy_before?;
                    done.disturbed += usize::from(busy_before > QUIET);
                    let made = done.samples.len() + 1;
                    let secs = start.elapsed().as_secs();
                    let head = format!("[{secs:>3} s] {made} of {total} {:10} {cell}", switch.name);
                    match &result {
                        Ok(measured) => eprintln!("{head}: {}", measured.summary),
                        Err(error) => eprintln!("{head}: no valid trial: {error:#}"),
                    }
                    let sample = self.sample(round, switch, cell, busy_before, result);
                    if let Some(writer) = &mut writer {
                        writer.write(&sample)?;
                    }
                    done.samples.push(sample);
                }
            }
        }
        Ok(done)
    }

    /// Returns the sample that `lab report` and `lab compare` read.
    fn sample(
        &self,
        round: u32,
        switch: &Candidate,
        cell: &C,
        busy_before: f64,
        result: Result<TrialResult>,
    ) -> Sample {
        let (mut metrics, validity) = match result {
            Ok(measured) => (measured.metrics, measured.validity),
            Err(error) => (BTreeMap::new(), of_error(&error)),
        };
        // The fraction of the machine that was busy with something else before the trial.
        metrics.insert("busy_before_ratio".to_owned(), busy_before);
        let scenario = self.scenario.to_owned();
        let variant = switch.name.clone();
        Sample { scenario, round, variant, cell: cell.axes(), metrics, validity, ..Sample::default() }
    }
}

impl Results {
    /// Prints remarks on disturbed and invalid trials. Returns true if all trials were made and are
    /// valid.
    pub(crate) fn judge(&self) -> bool {
        let made = self.samples.len();
        let failed = self.samples.iter().filter(|sample| !sample.is_valid() && !sample.is_at_least()).count();
        if self.disturbed > 0 {
            let disturbed = self.disturbed;
            eprintln!(
                "the machine was busy with something else before {disturbed} of {made} trials: only ratios are meaningful"
            );
        }
        if failed > 0 {
            eprintln!("{failed} of {made} trials are not valid");
        }
        failed == 0 && !proc::interrupted()
    }
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
