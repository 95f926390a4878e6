//! Searches for the load that a switch can take: without loss (NDR), with an allowed loss (PDR),
//! over a long time (soak).
//!
//! [`search`] follows Multiple Loss Ratio Search (draft-ietf-bmwg-mlrsearch-15, in the RFC editor's
//! queue in November 2025). One search has several goals, and trials of growing length. All trials
//! at a load classify the load. The throughput is the received rate and not the sent rate. The
//! classification of loads is the draft's; the choice of the next load is ours. This module does
//! not know how trials are made. It calls a function with a load in packets per second, and gets
//! counters.
//!
//! ```
//! use straightline_lab::trial::search::{Goal, Limits, Measured, search};
//!
//! // A switch that takes 1.2 million packets a second, and no more.
//! let mut switch = |trial: straightline_lab::trial::search::Trial| {
//!     let secs = trial.duration.as_secs_f64();
//!     let (sent, most) = (trial.load * secs, 1.2e6 * secs);
//!     Ok(Measured { sent: sent as u64, lost: (sent - sent.min(most)) as u64, ..Measured::default() })
//! };
//! let goals = [Goal::ndr(), Goal::pdr(0.005)];
//! let found = search(&goals, &Limits::new(1e4, 1e7), &mut switch, &mut |_| {}).expect("goals that make sense");
//! let ndr = found.results[0].lower.expect("a load without loss");
//! assert!((1.19e6..=1.2e6).contains(&ndr) && found.results[0].irregular.is_none());
//! ```

mod classify;
mod controller;
mod fixed;
mod goal;

use std::time::Duration;

pub use controller::{Found, GoalResult, Step, search};
pub use fixed::{Soak, SoakGoal, Soaked, soak};
pub use goal::{Goal, Limits, Retries};
use straightline_report::results::Validity;

/// A trial to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The load of all the generator's ports together, in packets per second.
    pub load: f64,
    /// Measured time, without warm-up and drain.
    pub duration: Duration,
}

/// The results of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Number of packets that were to be sent: packets that left the generator, and packets for
    /// which no buffer was free.
    pub sent: u64,
    /// Number of these packets that have not returned.
    pub lost: u64,
    /// Whether the trial is valid.
    pub validity: Validity,
}

impl Measured {
    /// Returns the fraction of the packets that was lost; 0 without packets.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost.min(self.sent) as f64 / self.sent as f64 }
    }

    /// Returns whether only the load side spoilt the trial, so that the next trial may be better. A
    /// trial that never began would not begin the next time either.
    pub fn is_late(&self) -> bool {
        self.validity.is_spoilt_by_load() && self.sent > 0
    }
}

/// A function that makes a trial. If the trial was interrupted or is not possible, it returns an
/// error, which ends the search with the results so far.
pub type Measure<'a> = dyn FnMut(Trial) -> anyhow::Result<Measured> + 'a;

/// Makes a valid trial, with a limited number of repetitions.
fn valid(measure: &mut Measure<'_>, trial: Trial, retries: Retries) -> anyhow::Result<Result<Measured, Invalid>> {
    let mut failed = 0;
    let mut late = 0;
    let mut most = 0;
    loop {
        let measured = measure(trial)?;
        if measured.validity.is_valid() {
            return Ok(Ok(measured));
        }
        *if measured.is_late() { &mut late } else { &mut failed } += 1;
        most = most.max(measured.sent);
        if failed > retries.failed || late > retries.late {
            let rate = most as f64 / trial.duration.as_secs_f64();
            let last = measured.validity;
            let attempts = failed + late;
            let is_late = late > retries.late;
            return Ok(Err(Invalid { trial, last, rate, attempts, is_late }));
        }
    }
}

/// A trial that was never valid.
#[derive(Debug)]
struct Invalid {
    trial: Trial,
    /// The validity of the last attempt.
    last: Validity,
    /// The highest rate that was sent.
    rate: f64,
    attempts: u32,
    /// True if the trial was given up because the generator was late too often.
    is_late: bool,
}

impl Invalid {
    /// Returns the validity of what this trial ends, with all details as the reason.
    fn validity(&self) -> Validity {
        self.last.clone().because(self.to_string())
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Invalid { trial, last, attempts, .. } = self;
        let reason = last.reason().unwrap_or_default();
        let load = trial.load;
        let secs = trial.duration.as_secs_f64();
        write!(to, "no valid trial at {load:.0} packets a second for {secs} s in {attempts} attempts: {reason}")?;
        // A generator that sends far less than planned is too slow for this load, and not only
        // disturbed.
        if self.is_late && self.rate > trial.load / 2.0 {
            write!(to, "; shorter trials are disturbed less often")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
