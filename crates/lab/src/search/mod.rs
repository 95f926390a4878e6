//! Searches for the load that a switch can take: without loss (NDR), with as much as is allowed (PDR), for a long time
//! (soak).
//!
//! [`search`] follows Multiple Loss Ratio Search (draft-ietf-bmwg-mlrsearch-15, in the RFC editor's queue in November 2025):
//! several goals in one search, trials of growing length, loads classified by all trials at them, and a throughput that
//! is what came out and not what was sent. How loads are classified is the draft's; how the next one is chosen is ours.
//! Nothing here knows what a trial is made of: loads in packets a second go to a function, counts come back.
//!
//! ```
//! use straightline_lab::search::{Goal, Limits, Measured, search};
//!
//! // A switch that takes 1.2 million packets a second, and no more.
//! let mut switch = |trial: straightline_lab::search::Trial| {
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

/// A trial to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets a second, of all the tester's ports together.
    pub load: f64,
    /// How long they are sent, warm-up and drain not counted.
    pub duration: Duration,
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Packets that were to be sent and left the tester, or found no room to leave.
    pub sent: u64,
    /// Of those, packets that have not come back.
    pub lost: u64,
    /// Why the trial does not count.
    pub invalid: Option<String>,
    /// Whether that is because the tester was kept from running, and for nothing else: it may be better the next time.
    pub late: bool,
}

impl Measured {
    /// The part that was lost; nothing, of nothing.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost.min(self.sent) as f64 / self.sent as f64 }
    }
}

/// Makes trials. An error ends the search, with what was found so far: the tester is interrupted, or broken.
pub type Measure<'a> = dyn FnMut(Trial) -> anyhow::Result<Measured> + 'a;

/// A trial that counts, after at most so many that did not.
fn valid(measure: &mut Measure<'_>, trial: Trial, retries: Retries) -> anyhow::Result<Result<Measured, Invalid>> {
    let (mut failed, mut late, mut most) = (0, 0, 0);
    loop {
        let measured = measure(trial)?;
        let Some(reason) = measured.invalid.clone() else { return Ok(Ok(measured)) };
        *if measured.late { &mut late } else { &mut failed } += 1;
        most = most.max(measured.sent);
        if failed > retries.failed || late > retries.late {
            let rate = most as f64 / trial.duration.as_secs_f64();
            return Ok(Err(Invalid { trial, reason, rate, attempts: failed + late, is_late: late > retries.late }));
        }
    }
}

/// A trial that never counted.
#[derive(Debug)]
struct Invalid {
    trial: Trial,
    /// Of the last attempt.
    reason: String,
    /// The most that was sent a second.
    rate: f64,
    attempts: u32,
    /// Whether it was given up as the tester was late too often.
    is_late: bool,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Invalid { trial, reason, attempts, .. } = self;
        let (load, secs) = (trial.load, trial.duration.as_secs_f64());
        write!(to, "no trial at {load:.0} packets a second for {secs} s counted, of {attempts}: {reason}")?;
        // Who can send next to nothing of it is not disturbed, but too slow.
        if self.is_late && self.rate > trial.load / 2.0 {
            write!(to, "; shorter trials are disturbed less often")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
