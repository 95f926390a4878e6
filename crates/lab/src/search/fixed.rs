//! Trials at one load: as much as the tester can send, and one load for a long time.

use std::time::Duration;

use anyhow::ensure;

use super::{Measure, Trial, valid};

/// The load of a trial that sends as fast as it can.
pub const UNPACED: f64 = f64::INFINITY;

/// What comes back of as much as the tester can send (FD.io's MRR). It says nothing about loss: only what a switch does
/// when it is asked for too much.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxRate {
    /// Packets a second that came back, of each trial.
    pub received: Vec<f64>,
    /// Packets a second that were sent.
    pub sent: Vec<f64>,
    /// Why fewer trials were made than were asked for.
    pub stopped: Option<String>,
}

/// Makes trials that send as fast as they can.
pub fn max_receive_rate(measure: &mut Measure<'_>, duration: Duration, trials: u32, retries: u32) -> MaxRate {
    let mut rates = MaxRate { received: Vec::new(), sent: Vec::new(), stopped: None };
    let secs = duration.as_secs_f64();
    for _ in 0..trials {
        match valid(measure, Trial { load: UNPACED, duration }, retries) {
            Ok(Ok(measured)) => {
                rates.sent.push(measured.sent as f64 / secs);
                rates.received.push(measured.sent.saturating_sub(measured.lost) as f64 / secs);
            }
            Ok(Err(invalid)) => rates.stopped = Some(invalid.to_string()),
            Err(error) => rates.stopped = Some(format!("{error:#}")),
        }
        if rates.stopped.is_some() {
            break;
        }
    }
    rates
}

/// A load that is to be carried for a long time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakGoal {
    /// Packets a second.
    pub load: f64,
    /// How long, all trials together.
    pub time: Duration,
    /// How long each trial is: what is lost is known so often.
    pub trial: Duration,
    /// The part of all packets that may be lost.
    pub loss_ratio: f64,
    /// So many times each trial that does not count is made again.
    pub retries: u32,
}

impl SoakGoal {
    /// At most one packet of ten millions, looked at every ten seconds.
    pub fn new(load: f64, time: Duration) -> SoakGoal {
        SoakGoal { load, time, trial: time.min(Duration::from_secs(10)), loss_ratio: 1e-7, retries: 3 }
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
    /// Whether it was carried.
    pub soak: Soak,
}

/// Carries one load for a long time, in trials one after the other; `progress` is told what it came to so far.
///
/// # Errors
/// A goal that makes no sense.
pub fn soak(goal: &SoakGoal, measure: &mut Measure<'_>, progress: &mut dyn FnMut(&Soaked)) -> anyhow::Result<Soaked> {
    let SoakGoal { load, time, trial, loss_ratio, retries } = *goal;
    ensure!(load > 0.0 && load.is_finite(), "a soak needs a load above 0 packets a second, not {load}");
    ensure!(!trial.is_zero() && trial <= time, "a soak of {time:?} cannot be made of trials of {trial:?}");
    ensure!(loss_ratio > 0.0 && loss_ratio < 1.0, "a soak allows a loss ratio between 0 and 1, not {loss_ratio}");
    let allowed = load * time.as_secs_f64() * loss_ratio;
    let mut soaked = Soaked { sent: 0, lost: 0, time: Duration::ZERO, soak: Soak::TooFew };
    while soaked.time < time {
        let duration = trial.min(time - soaked.time);
        match valid(measure, Trial { load, duration }, retries) {
            Ok(Ok(measured)) => {
                soaked.sent += measured.sent;
                soaked.lost += measured.lost;
                soaked.time += duration;
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
