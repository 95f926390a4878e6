//! The controller: chooses the next trial, and ends the search.
//!
//! Each goal is pursued on three levels, the first ones rough: with wide bounds, short trials, and
//! few of them. A level starts with the bounds of the previous level:
//!
//! 1. If one side has no bound, the load moves away from the known bound in doubling steps.
//! 2. Between two bounds, the middle is tried.
//! 3. A load is tried until it is decided.
//!
//! Goals of one level share their trials, and goals with less loss come first: "it is better to
//! measure at smaller Loads first".

use std::time::Duration;

use straightline_report::results::Validity;

use super::classify::{Bound, Done, Load, Target, relevant};
use super::goal::{LEVELS, SLACK};
use super::{Goal, Invalid, Limits, Measure, Measured, Retries, Trial, valid};
use crate::trial::validity::of_error;

/// A trial for one goal may remove a bound of another goal. The other goal is then pursued again,
/// at most this many times.
const PASSES: u32 = 8;

/// How often the greatest load may be lowered because the generator cannot send it.
const LOWERED: u32 = 8;

/// A generator that sent less than this part of the planned packets has reached its limit.
const REACHED: f64 = 0.999;

/// The results of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// One result for each goal, in their order.
    pub results: Vec<GoalResult>,
    /// The number of valid trials.
    pub trials: usize,
    /// The greatest load of the search. It is less than the limit if the generator could not send
    /// that much.
    pub max_load: f64,
    /// The reason why the search ended before its goals were reached.
    pub stopped: Option<Validity>,
}

/// The result of a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound, in packets per second. Without an upper bound, it is the greatest
    /// load that is a lower bound. If a search ended early, the bounds are those found so far.
    pub lower: Option<f64>,
    /// The relevant upper bound.
    pub upper: Option<f64>,
    /// The conditional throughput at the lower bound: the value to compare.
    pub throughput: Option<f64>,
    /// The reason why this is not a regular result; `None` for a regular one. Irregular results are
    /// marked wherever they are shown.
    pub irregular: Option<String>,
}

/// Progress after each valid trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
    /// The goal that is pursued.
    pub goal: &'a str,
    /// The trial.
    pub trial: Trial,
    /// Its results.
    pub measured: &'a Measured,
    /// The current relevant lower bound for the goal at this level.
    pub lower: Option<f64>,
    /// The upper one.
    pub upper: Option<f64>,
    /// Time of all trials so far.
    pub spent: Duration,
}

/// Searches for all goals at once.
///
/// # Errors
/// Goals or limits are contradictory. (Failures of trials are not errors; they are part of the
/// result.)
pub fn search(
    goals: &[Goal],
    limits: &Limits,
    measure: &mut Measure<'_>,
    progress: &mut dyn FnMut(&Step<'_>),
) -> anyhow::Result<Found> {
    anyhow::ensure!(!goals.is_empty(), "there is no goal to search for: give at least one");
    goals.iter().try_for_each(Goal::check)?;
    limits.check()?;
    let mut order: Vec<&Goal> = goals.iter().collect();
    order.sort_by(|one, other| one.loss_ratio.total_cmp(&other.loss_ratio));
    let mut search = Search {
        goals: order,
        limits,
        measure,
        progress,
        loads: Vec::new(),
        max_load: limits.max_load,
        lowered: 0,
        spent: Duration::ZERO,
    };
    let stopped = search.run().err();
    Ok(Found {
        results: goals.iter().map(|goal| search.result(goal, stopped.is_some())).collect(),
        trials: search.loads.iter().map(|load| load.trials.len()).sum(),
        max_load: search.max_load,
        stopped: stopped.map(|Stopped(why)| why),
    })
}

/// The reason why the search ends.
struct Stopped(Validity);

/// The progress of a goal on a level.
struct GoalProgress {
    /// The bounds of the previous level.
    hints: (Option<f64>, Option<f64>),
    /// The classification of the last load.
    last: Option<Bound>,
    /// Number of consecutive loads with the same classification, from the first load on; 0 as soon
    /// as one differs.
    steps: u32,
}

impl GoalProgress {
    fn note(&mut self, bound: Option<Bound>) {
        let again = self.last.is_none() || (self.steps > 0 && self.last == bound);
        self.steps = if again { self.steps + 1 } else { 0 };
        self.last = bound;
    }

    /// Returns the distance from a bound to the next load, as a number of widths. It doubles with
    /// each step.
    fn doubled(&self) -> f64 {
        f64::from(1_u32 << self.steps.saturating_sub(1).min(20))
    }
}

struct Search<'a, 'm> {
    /// Goals in ascending order of loss.
    goals: Vec<&'a Goal>,
    limits: &'a Limits,
    measure: &'a mut Measure<'m>,
    progress: &'a mut dyn FnMut(&Step<'_>),
    /// Loads in ascending order.
    loads: Vec<Load>,
    max_load: f64,
    lowered: u32,
    spent: Duration,
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<(), Stopped> {
        for level in 1..=LEVELS {
            for _ in 0..PASSES {
                let mut tried = false;
                for goal in self.goals.clone() {
                    tried |= self.pursue(goal, level)?;
                }
                if !tried {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Tries loads until the bounds of a goal are as close as the level demands. Returns whether
    /// any trial was needed.
    fn pursue(&mut self, goal: &Goal, level: i32) -> Result<bool, Stopped> {
        let target = goal.target(level);
        let hints = if level == 1 { (None, None) } else { self.bounds(&goal.target(level - 1)) };
        let mut pursuit = GoalProgress { hints, last: None, steps: 0 };
        while let Some(load) = self.next(&target, &pursuit) {
            self.decide(goal, level, load)?;
            pursuit.note(self.loads.iter().find(|known| known.load >= load).map(|known| known.bound(&target)));
        }
        Ok(pursuit.last.is_some())
    }

    fn bounds(&self, target: &Target) -> (Option<f64>, Option<f64>) {
        let (lower, upper) = relevant(&self.loads, target);
        (lower.map(|load| load.load), upper.map(|load| load.load))
    }

    /// Returns the next load to try; none if the bounds are close enough, or if there is no load
    /// beyond a limit.
    fn next(&self, target: &Target, pursuit: &GoalProgress) -> Option<f64> {
        let min = self.limits.min_load;
        let max = self.max_load;
        let (lower, upper) = relevant(&self.loads, target);
        let above = lower.map_or(0.0, |load| load.load);
        let below = upper.map_or(f64::INFINITY, |load| load.load);
        match (lower, upper) {
            (Some(lower), Some(upper)) if width(lower.load, upper.load) <= target.width => return None,
            (Some(lower), None) if lower.load >= max => return None,
            (None, Some(upper)) if upper.load <= min => return None,
            _ => (),
        }
        // A hint close to a known bound is not used.
        let hint = |hint: Option<f64>| hint.filter(|&load| width(above, load) > target.width && load < below);
        // The rate that is forwarded at too high a load is a hint: the switch may be able to take
        // this rate.
        let forwarded = || upper.map(Load::forwarded).filter(|&load| above < load && load < below);
        let step = (1.0 - target.width).powf(SLACK * pursuit.doubled());
        let middle = (above * below).sqrt();
        let close = width(above, below) <= 1.0 - (1.0 - target.width).powi(4);
        let chosen = match (hint(pursuit.hints.0), hint(pursuit.hints.1)) {
            _ if close => middle,
            (Some(hint), _) => hint,
            // Bounds of a rougher level are likely to be bounds, and so are loads close to them.
            (None, Some(hint)) => lower.map_or(hint, |lower| (lower.load / step).min(hint)),
            (None, None) => match (lower, upper, pursuit.last) {
                (None, None, _) => max,
                (Some(_), Some(_), None) => forwarded().unwrap_or(middle),
                (Some(_), Some(upper), Some(Bound::Upper)) if pursuit.steps > 0 => (upper.load * step).max(middle),
                (Some(lower), Some(_), Some(Bound::Lower)) if pursuit.steps > 0 => (lower.load / step).min(middle),
                (Some(_), Some(_), _) => middle,
                (Some(lower), None, _) => lower.load / step,
                (None, Some(upper), _) => (upper.load * step).min(forwarded().unwrap_or(max)),
            },
        };
        let chosen = chosen.clamp(min, max);
        // If no number is between the bounds, they are as close as possible.
        (lower.is_none_or(|l| l.load < chosen) && upper.is_none_or(|u| chosen < u.load)).then_some(chosen)
    }

    /// Makes trials at a load until the load is a bound.
    fn decide(&mut self, goal: &Goal, level: i32, load: f64) -> Result<(), Stopped> {
        let target = goal.target(level);
        loop {
            let at = self.loads.partition_point(|known| known.load < load);
            if self.loads.get(at).is_none_or(|known| known.load > load) {
                self.loads.insert(at, Load { load, trials: Vec::new() });
            }
            if self.loads[at].bound(&target) != Bound::Undecided {
                return Ok(());
            }
            let trial = Trial { load, duration: target.duration };
            let Some(measured) = self.try_once(trial)? else { return Ok(()) };
            let done = Done { duration: trial.duration, loss_ratio: measured.loss_ratio() };
            self.loads[at].trials.push(done);
            self.tell(goal, level, trial, &measured);
        }
    }

    /// Makes one valid trial. Returns `None` if the generator cannot send this load; the greatest
    /// load is then lower.
    fn try_once(&mut self, trial: Trial) -> Result<Option<Measured>, Stopped> {
        let Retries { failed, late } = self.limits.retries;
        let could = self.loads.iter().any(|known| known.load >= trial.load && !known.trials.is_empty());
        let retries = Retries { failed, late: if could { late } else { failed } };
        let spent = &mut self.spent;
        let mut timed = |trial: Trial| {
            *spent += trial.duration;
            (self.measure)(trial)
        };
        match valid(&mut timed, trial, retries) {
            Ok(Ok(measured)) => Ok(Some(measured)),
            Ok(Err(invalid)) => self.lower_the_greatest(&invalid).map(|()| None),
            Err(error) => Err(Stopped(of_error(&error))),
        }
    }

    /// Returns the highest rate that the generator has certainly sent: packets that were lost may
    /// never have been sent.
    fn sent(&self) -> f64 {
        let tried = self.loads.iter().filter(|known| !known.trials.is_empty());
        tried.map(Load::forwarded).fold(0.0, f64::max)
    }

    /// Lowers the greatest load after a trial in which the generator could not send as planned. The
    /// new load is the rate that the generator reached. If it has sent more than the old load in
    /// this search, nothing is lowered. Trials at higher loads are discarded, because the generator
    /// cannot repeat them.
    fn lower_the_greatest(&mut self, invalid: &Invalid) -> Result<(), Stopped> {
        // The generator's limit varies. Each time the lowered load is still too high, the margin
        // below the reached rate doubles.
        let load = invalid.trial.load;
        let can = invalid.rate * REACHED.powi(1 << self.lowered);
        let tried = self.loads.iter().filter(|known| !known.trials.is_empty()).map(|known| known.load);
        let below = tried.filter(|&tried| tried < load).fold(self.limits.min_load, f64::max);
        let at_its_limit = invalid.rate < load * REACHED && self.sent() <= load && can > below;
        if !at_its_limit || self.lowered == LOWERED {
            return Err(Stopped(invalid.validity()));
        }
        self.lowered += 1;
        self.max_load = can;
        self.loads.retain(|known| known.load <= can);
        Ok(())
    }

    fn tell(&mut self, goal: &Goal, level: i32, trial: Trial, measured: &Measured) {
        let (lower, upper) = self.bounds(&goal.target(level));
        (self.progress)(&Step { goal: &goal.name, trial, measured, lower, upper, spent: self.spent });
    }

    fn result(&self, goal: &Goal, is_stopped: bool) -> GoalResult {
        let bounds = |level: i32| {
            let (lower, upper) = self.bounds(&goal.target(level));
            u8::from(lower.is_some()) + u8::from(upper.is_some())
        };
        // Uses the last one of the levels that have the most bounds. A finished search uses the
        // last level.
        let least = if is_stopped { 1 } else { LEVELS };
        let level = (least..=LEVELS).max_by_key(|&level| bounds(level)).unwrap_or(LEVELS);
        let target = goal.target(level);
        let (lower, upper) = relevant(&self.loads, &target);
        let irregular = match (lower, upper) {
            _ if level < LEVELS => Some("the load was searched only roughly".to_owned()),
            (Some(lower), Some(upper)) if width(lower.load, upper.load) > target.width => {
                Some("the bounds are farther apart than the goal allows".to_owned())
            }
            (Some(_), Some(_)) => None,
            (_, None) => Some(format!("no load up to {:.0} packets a second is too high", self.max_load)),
            (None, Some(_)) => {
                Some(format!("even the least load, {:.0} packets a second, is too high", self.limits.min_load))
            }
        };
        // In a search that did not finish, nothing is known about missing bounds.
        let known = lower.is_some() || upper.is_some();
        GoalResult {
            goal: goal.clone(),
            lower: lower.map(|load| load.load),
            upper: upper.map(|load| load.load),
            throughput: lower.map(|load| load.throughput(&target)),
            irregular: if known { irregular } else { Some("no load was tried long enough to find a bound".to_owned()) },
        }
    }
}

/// Returns the distance between two bounds, as a fraction of the upper bound.
fn width(lower: f64, upper: f64) -> f64 {
    (upper - lower) / upper
}
