//! What a trial came to, and as a sample.

use std::fmt;

use crate::convert::float;
use crate::endpoints::Work;
use crate::generator::{Measured, Rate};
use crate::results::Sample;

use super::Plan;

/// What a trial came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was asked for.
    pub rate: Rate,
    /// What was measured, unless it did not even begin.
    pub measured: Option<Measured>,
    /// What the generator did.
    pub work: Work,
    /// What those did who took turns with it, in their order.
    pub others: Vec<Work>,
    /// What the generator could do by itself.
    pub limit_mpps: Option<f64>,
    /// Why the trial does not count.
    pub invalid: Option<String>,
    /// Whether that is the tester's doing alone, and no backend's: it was not on time, or was asked for more than it can do.
    pub by_generator: bool,
}

impl Outcome {
    pub(super) fn never_began(plan: &Plan, rate: Rate, why: String) -> Outcome {
        let (work, others, invalid) = (Work::default(), Vec::new(), Some(why));
        Outcome { rate, measured: None, work, others, limit_mpps: plan.limit_mpps, invalid, by_generator: true }
    }

    /// Packets that were meant to be sent, or at a rate of all that there is room for were sent; and of these how many have
    /// not come back. What a port had no room for has not.
    #[must_use]
    pub fn sent_and_lost(&self) -> (u64, u64) {
        self.measured.as_ref().map_or((0, 0), |measured| {
            let total = measured.total();
            (total.sent + measured.refused, total.lost() + measured.refused)
        })
    }

    /// As a sample, of which the scenario, round, variant and cell are still to be filled in.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let mut sample = Sample { invalid: self.invalid.clone(), ..Sample::default() };
        let mut note = |name: &str, value: f64| {
            sample.metrics.insert(name.to_owned(), value);
        };
        if let Some(limit) = self.limit_mpps {
            note("generator_limit_mpps", limit);
        }
        let Some(measured) = &self.measured else { return sample };
        let (total, seconds) = (measured.total(), measured.seconds[1]);
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
        if let Some(cycles) = self.work.cycles_per_packet() {
            note("generator_cycles_per_packet", cycles);
        }
        for (name, value) in measured.latency_metrics() {
            note(name, value);
        }
        sample.latency = Some(measured.latency()).filter(|latency| !latency.steps.is_empty());
        sample
    }
}

impl fmt::Display for Outcome {
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
            writeln!(to, "{} lost of {}, a part of {:.6}", metric("lost"), metric("sent"), metric("loss_ratio"))?;
            for name in ["refused", "duplicates", "reordered", "corrupt", "foreign"] {
                write!(to, "{} {name}{}", metric(name), if name == "foreign" { "\n" } else { ", " })?;
            }
        }
        if sample.latency.is_some() {
            write!(to, "latency in us:")?;
            for name in ["min", "p50", "p90", "p99", "p99_9", "p99_99", "p99_9999", "max"] {
                // Of few packets nobody knows all.
                if let Some(value) = sample.metrics.get(&format!("latency_{name}_us")) {
                    write!(to, " {} {value:.1}", name.replace('_', "."))?;
                }
            }
            writeln!(to)?;
        }
        if let Some(limit) = self.limit_mpps {
            writeln!(to, "the generator alone makes {limit:.3} Mpps of these packets")?;
        }
        match &self.invalid {
            Some(why) => writeln!(to, "not a valid trial: {why}"),
            None => Ok(()),
        }
    }
}

/// Millions a second; none, of no time.
pub(super) fn mpps(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { float(count) / seconds / 1e6 } else { 0.0 }
}
