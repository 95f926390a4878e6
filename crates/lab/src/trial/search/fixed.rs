//! Trials at one load, over a long time.

use std::time::Duration;

use anyhow::{Context, ensure};
use straightline_report::results::Validity;

use super::{Measure, Retries, Trial, valid};
use crate::trial::validity::of_error;

/// Repetitions of a disturbed trial before trials become shorter, and the factor by which they
/// become shorter.
const LONG: u32 = 1;
const SHORTER: u32 = 4;

/// A load to be carried over a long time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakGoal {
    /// Packets per second.
    pub load: f64,
    /// Time of all trials together.
    pub time: Duration,
    /// The longest time of a trial. The loss so far is known after each trial.
    pub trial: Duration,
    /// The shortest time of a trial. Trials are shortened if the generator is descheduled in longer
    /// ones.
    pub shortest: Duration,
    /// The fraction of all packets that may be lost.
    pub loss_ratio: f64,
    /// Repetitions of each invalid trial.
    pub retries: Retries,
}

impl SoakGoal {
    /// Allows the loss of one packet of ten million. Trials take ten seconds each, and down to one
    /// second on a machine that disturbs longer ones.
    pub fn new(load: f64, time: Duration) -> SoakGoal {
        let [trial, shortest] = [10, 1].map(|secs| time.min(Duration::from_secs(secs)));
        SoakGoal { load, time, trial, shortest, loss_ratio: 1e-7, retries: Retries::default() }
    }
}

/// The result of a soak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soak {
    /// The load was carried to the end, with no more loss than allowed.
    Carried,
    /// So much was lost that the rest of the time cannot make up for it.
    TooMuchLost,
    /// No packet was lost, but so few were sent that a single lost packet would be too many. Soak
    /// longer.
    TooFew,
    /// The soak ended early, for this reason.
    Stopped(Validity),
}

/// The results of a soak.
#[derive(Clone, Debug, PartialEq)]
pub struct Soaked {
    /// Packets sent.
    pub sent: u64,
    /// Packets that never returned.
    pub lost: u64,
    /// Time of the valid trials.
    pub time: Duration,
    /// The shortest of the valid trials.
    pub shortest: Duration,
    /// The result: whether the load was carried.
    pub soak: Soak,
}

/// Carries one load over a long time, in consecutive trials. Calls `progress` with the results so
/// far.
///
/// # Errors
/// The goal is contradictory.
pub fn soak(goal: &SoakGoal, measure: &mut Measure<'_>, progress: &mut dyn FnMut(&Soaked)) -> anyhow::Result<Soaked> {
    let SoakGoal { load, time, mut trial, shortest, loss_ratio, retries } = *goal;
    ensure!(load > 0.0 && load.is_finite(), "a soak with {load} packets a second is not possible: use a load above 0");
    ensure!(
        !trial.is_zero() && trial <= time,
        "a soak of {time:?} cannot have trials of {trial:?}: use trials of at most its length, and above 0"
    );
    ensure!(
        !shortest.is_zero() && shortest <= trial,
        "trials of {trial:?} cannot be shortened to {shortest:?}: use a shorter time above 0"
    );
    ensure!(
        loss_ratio > 0.0 && loss_ratio < 1.0,
        "a soak with the loss ratio {loss_ratio} is not possible: use a \
     ratio between 0 and 1"
    );
    let allowed = load * time.as_secs_f64() * loss_ratio;
    let mut soaked = Soaked { sent: 0, lost: 0, time: Duration::ZERO, shortest: trial, soak: Soak::TooFew };
    while soaked.time < time {
        let left = time - soaked.time;
        let trials = u32::try_from(left.as_nanos().div_ceil(trial.as_nanos()));
        let trials = trials
            .with_context(|| format!("a soak of {time:?} has too many trials of {trial:?}: use longer trials"))?;
        // The remaining time is divided equally, because a short rest at the end could not be
        // measured.
        let duration = left / trials;
        let is_shortest = trial <= shortest;
        let retries = Retries { late: if is_shortest { retries.late } else { LONG.min(retries.late) }, ..retries };
        match valid(measure, Trial { load, duration }, retries) {
            Ok(Ok(measured)) => {
                soaked.sent += measured.sent;
                soaked.lost += measured.lost;
                soaked.time += duration;
                soaked.shortest = soaked.shortest.min(duration);
            }
            Ok(Err(invalid)) if invalid.is_late && !is_shortest => {
                trial = (trial / SHORTER).max(shortest);
                continue;
            }
            Ok(Err(invalid)) => return Ok(Soaked { soak: Soak::Stopped(invalid.validity()), ..soaked }),
            Err(error) => return Ok(Soaked { soak: Soak::Stopped(of_error(&error)), ..soaked }),
        }
        progress(&soaked);
        if soaked.lost as f64 > allowed.max(1.0) {
            return Ok(Soaked { soak: Soak::TooMuchLost, ..soaked });
        }
    }
    let enough = soaked.sent as f64 * loss_ratio >= 1.0;
    let soak = match soaked.lost as f64 > soaked.sent as f64 * loss_ratio {
        true if enough || soaked.lost > 1 => Soak::TooMuchLost,
        false if enough => Soak::Carried,
        _ => Soak::TooFew,
    };
    Ok(Soaked { soak, ..soaked })
}
