//! The results of a trial, also in the form of a sample.

use std::fmt;

use straightline_guest::endpoints::Work;
use straightline_report::results::{Sample, Validity};

use crate::convert::float;
use crate::traffic::generator::{Measured, Rate};

use super::{Disturbance, Plan};

/// The results of a trial.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// The planned rate.
    pub rate: Rate,
    /// The measured values, unless the trial never began.
    pub measured: Option<Measured>,
    /// The generator's work.
    pub work: Work,
    /// The work of the endpoints that took turns with the generator, in their order.
    pub others: Vec<Work>,
    /// The generator's limit by itself.
    pub limit_mpps: Option<f64>,
    /// The time for which others had the CPUs.
    pub disturbance: Disturbance,
    /// Whether the trial is valid.
    pub validity: Validity,
}

impl TrialOutcome {
    pub(super) fn never_began(plan: &Plan, rate: Rate, validity: Validity) -> TrialOutcome {
        let work = Work::default();
        let others = Vec::new();
        TrialOutcome {
            rate,
            measured: None,
            work,
            others,
            limit_mpps: plan.limit_mpps,
            disturbance: Disturbance::default(),
            validity,
        }
    }

    /// Returns the number of planned packets (at maximum rate, of sent packets), and how many of
    /// these have not returned. Packets that a port did not take count as not returned.
    #[must_use]
    pub fn sent_and_lost(&self) -> (u64, u64) {
        self.measured.as_ref().map_or((0, 0), |measured| {
            let total = measured.total();
            (total.sent + measured.refused, total.lost() + measured.refused)
        })
    }

    /// Returns a sample. Its scenario, round, variant and cell are still to be filled in.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let mut sample = Sample { validity: self.validity.clone(), ..Sample::default() };
        let mut note = |name: &str, value: f64| {
            sample.metrics.insert(name.to_owned(), value);
        };
        if let Some(limit) = self.limit_mpps {
            note("generator_limit_mpps", limit);
        }
        let Some(measured) = &self.measured else { return sample };
        let total = measured.total();
        let seconds = measured.seconds[1];
        let (sent, lost) = self.sent_and_lost();
        note("secs", seconds);
        note("mpps", mpps(measured.arrived[0], seconds));
        note("gbit_per_s", mpps(measured.arrived[1], seconds) * 8.0 / 1e3);
        note("offered_mpps", mpps(sent, seconds));
        note("loss_ratio", if sent == 0 { 0.0 } else { float(lost) / float(sent) });
        for (name, count) in [
            ("sent", sent),
            ("lost", lost),
            ("refused", measured.refused),
            ("duplicates", total.duplicates),
            ("reordered", total.reordered),
            ("reordering_extent", total.extent),
            ("corrupt", total.corrupt),
            ("foreign", measured.foreign),
        ] {
            note(name, float(count));
        }
        for (reason, &count) in &measured.drops {
            note(&format!("dropped_{}", reason.replace('-', "_")), float(count));
        }
        if let Some(cycles) = self.work.cycles_per_packet() {
            note("generator_cycles_per_packet", cycles);
        }
        for (name, value) in measured.latency_metrics().into_iter().chain(self.disturbance.metrics()) {
            note(name, value);
        }
        sample.latency = Some(measured.latency()).filter(|latency| !latency.steps.is_empty());
        sample
    }
}

impl fmt::Display for TrialOutcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sample = self.sample();
        let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or_default();
        if self.measured.is_some() {
            writeln!(
                to,
                "{:>9.3} Mpps {:>8.2} Gbit/s received in {:.3} s, {:.3} Mpps offered ({})",
                metric("mpps"),
                metric("gbit_per_s"),
                metric("secs"),
                metric("offered_mpps"),
                self.rate
            )?;
            writeln!(to, "{} lost of {}, a ratio of {:.6}", metric("lost"), metric("sent"), metric("loss_ratio"))?;
            for name in ["refused", "duplicates", "reordered", "corrupt", "foreign"] {
                write!(to, "{} {name}{}", metric(name), if name == "foreign" { "\n" } else { ", " })?;
            }
        }
        if let Some(measured) = self.measured.as_ref().filter(|measured| !measured.drops.is_empty()) {
            let drops: Vec<_> = measured.drops.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            writeln!(to, "dropped by the generator's interfaces: {}", drops.join(", "))?;
        }
        if sample.latency.is_some() {
            write!(to, "latency in us:")?;
            for name in ["min", "p50", "p90", "p99", "p99_9", "p99_99", "p99_9999", "max"] {
                // With few packets, high quantiles are unknown, so they are left out.
                if let Some(value) = sample.metrics.get(&format!("latency_{name}_us")) {
                    write!(to, " {} {value:.1}", name.replace('_', "."))?;
                }
            }
            writeln!(to)?;
        }
        if let Some(limit) = self.limit_mpps {
            writeln!(to, "the generator alone makes {limit:.3} Mpps of these packets")?;
        }
        match self.validity.reason() {
            Some(why) => writeln!(to, "not a valid trial: {why}"),
            None => Ok(()),
        }
    }
}

/// Returns millions per second; 0 for no time.
pub(super) fn mpps(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { float(count) / seconds / 1e6 } else { 0.0 }
}
