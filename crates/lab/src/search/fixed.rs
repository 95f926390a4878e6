//! Trials at one load, for a long time.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::{Measure, Retries, Trial, valid};

/// So many times a trial is made again before all are made shorter, by this factor.
const LONG: u32 = 1;
const SHORTER: u32 = 4;

/// A load that is to be carried for a long time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakGoal {
    /// Packets a second.
    pub load: f64,
    /// How long, all trials together.
    pub time: Duration,
    /// How long each trial is at most: what is lost is known so often.
    pub trial: Duration,
    /// Where the tester is kept from running in such trials they are made shorter, to no less than this.
    pub shortest: Duration,
    /// The part of all packets that may be lost.
    pub loss_ratio: f64,
    /// How often each trial that does not count is made again.
    pub retries: Retries,
}

impl SoakGoal {
    /// At most one packet of ten millions, looked at every ten seconds at least; where the machine does not allow that, every
    /// second.
    pub fn new(load: f64, time: Duration) -> SoakGoal {
        let [trial, shortest] = [10, 1].map(|secs| time.min(Duration::from_secs(secs)));
        SoakGoal { load, time, trial, shortest, loss_ratio: 1e-7, retries: Retries::default() }
    }
}

/// Whether a load was carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soak {
    /// To the end, with no more loss than is allowed.
    Carried,
    /// So much was lost that whatever comes cannot make up for it.
    TooMuchLost,
    /// Nothing is wrong yet, but of so few packets a single one would be too many: nobody can say. Soak for longer.
    TooFew,
    /// It ended before its time, and why.
    Stopped(String),
}

/// What a soak came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Soaked {
    /// Packets sent.
    pub sent: u64,
    /// Those that never came back.
    pub lost: u64,
    /// Time of the trials that counted.
    pub time: Duration,
    /// The shortest of these.
    pub shortest: Duration,
    /// Whether it was carried.
    pub soak: Soak,
}

/// Carries one load for a long time, in trials one after the other; `progress` is told what it came to so far.
///
/// # Errors
/// A goal that makes no sense.
pub fn soak(goal: &SoakGoal, measure: &mut Measure<'_>, progress: &mut dyn FnMut(&Soaked)) -> anyhow::Result<Soaked> {
    let SoakGoal { load, time, mut trial, shortest, loss_ratio, retries } = *goal;
    ensure!(load > 0.0 && load.is_finite(), "a soak needs a load above 0 packets a second, not {load}");
    ensure!(!trial.is_zero() && trial <= time, "a soak of {time:?} cannot be made of trials of {trial:?}");
    ensure!(
        !shortest.is_zero() && shortest <= trial,
        "trials of {trial:?} of a soak cannot be made as short as {shortest:?}"
    );
    ensure!(loss_ratio > 0.0 && loss_ratio < 1.0, "a soak allows a loss ratio between 0 and 1, not {loss_ratio}");
    let allowed = load * time.as_secs_f64() * loss_ratio;
    let mut soaked = Soaked { sent: 0, lost: 0, time: Duration::ZERO, shortest: trial, soak: Soak::TooFew };
    while soaked.time < time {
        let left = time - soaked.time;
        let trials = u32::try_from(left.as_nanos().div_ceil(trial.as_nanos()));
        let trials = trials.with_context(|| format!("a soak of {time:?} is too long for trials of {trial:?}"))?;
        // A rest would be too short to be timed.
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
            Ok(Err(invalid)) => return Ok(Soaked { soak: Soak::Stopped(invalid.to_string()), ..soaked }),
            Err(error) => return Ok(Soaked { soak: Soak::Stopped(format!("{error:#}")), ..soaked }),
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
