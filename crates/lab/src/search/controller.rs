//! The controller: which trial is made next, and when it is enough.
//!
//! Each goal is pursued three times, roughly at first: wide bounds, short trials, few of them. A level begins with the
//! bounds of the one before. Where there is no bound on one side, loads move away from the known one by doubling steps;
//! between two bounds the middle is tried. A load is tried until it is decided. Goals of one level share their trials,
//! and those with less loss come first: "it is better to measure at smaller Loads first".

use std::time::Duration;

use super::classify::{Bound, Done, Load, Target, relevant};
use super::goal::{LEVELS, SLACK};
use super::{Goal, Invalid, Limits, Measure, Measured, Retries, Trial, valid};

/// What is tried for one goal may take a bound from another, which is then pursued again: so many times at most.
const PASSES: u32 = 8;

/// So many times the greatest load may be lowered, because the tester cannot send that much.
const LOWERED: u32 = 8;

/// A tester that sent less than this part of what was meant has reached its limit.
const REACHED: f64 = 0.999;

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// One for each goal, in their order.
    pub results: Vec<GoalResult>,
    /// Trials that counted.
    pub trials: usize,
    /// The greatest load that was searched; less than was asked for where the tester could not send that much.
    pub max_load: f64,
    /// Why the search ended before its goals were reached.
    pub stopped: Option<String>,
}

/// What is known about a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound, in packets a second. Where there is no upper bound: the greatest load that is a lower one.
    /// Of a search that ended early, both are as close as it came.
    pub lower: Option<f64>,
    /// The relevant upper bound.
    pub upper: Option<f64>,
    /// The conditional throughput at the lower bound: what is to be compared.
    pub throughput: Option<f64>,
    /// Why this is not a regular result; such are marked wherever they are shown.
    pub irregular: Option<String>,
}

/// What is told after each trial that counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
    /// The goal that is pursued.
    pub goal: &'a str,
    /// What was tried.
    pub trial: Trial,
    /// What came of it.
    pub measured: &'a Measured,
    /// The relevant lower bound for the goal at this level, as it is now.
    pub lower: Option<f64>,
    /// The upper one.
    pub upper: Option<f64>,
    /// Time of all trials so far.
    pub spent: Duration,
    /// Roughly, the time of those to come.
    pub left: Duration,
}

/// Searches for all goals at once.
///
/// # Errors
/// Goals or limits that make no sense. Whatever goes wrong with trials is in what was found.
pub fn search(
    goals: &[Goal],
    limits: &Limits,
    measure: &mut Measure<'_>,
    progress: &mut dyn FnMut(&Step<'_>),
) -> anyhow::Result<Found> {
    anyhow::ensure!(!goals.is_empty(), "nothing is searched for: name a goal");
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

/// Why the search ends.
struct Stopped(String);

/// How a goal was pursued at a level so far.
struct GoalProgress {
    /// The bounds of the level before.
    hints: (Option<f64>, Option<f64>),
    /// What the last load turned out to be.
    last: Option<Bound>,
    /// So many loads in a row were so, from the first on; 0 when one was not.
    steps: u32,
}

impl GoalProgress {
    fn note(&mut self, bound: Option<Bound>) {
        let again = self.last.is_none() || (self.steps > 0 && self.last == bound);
        self.steps = if again { self.steps + 1 } else { 0 };
        self.last = bound;
    }

    /// How many widths the next step away from a bound is: twice as many each time.
    fn doubled(&self) -> f64 {
        f64::from(1_u32 << self.steps.saturating_sub(1).min(20))
    }
}

struct Search<'a, 'm> {
    /// Those with less loss first.
    goals: Vec<&'a Goal>,
    limits: &'a Limits,
    measure: &'a mut Measure<'m>,
    progress: &'a mut dyn FnMut(&Step<'_>),
    /// In ascending order.
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

    /// Tries loads until the bounds of a goal are as close as its level demands; says whether any had to be tried.
    fn pursue(&mut self, goal: &Goal, level: i32) -> Result<bool, Stopped> {
        let target = goal.target(level);
        let hints = if level == 1 { (None, None) } else { self.bounds(&goal.target(level - 1)) };
        let mut way = GoalProgress { hints, last: None, steps: 0 };
        while let Some(load) = self.next(&target, &way) {
            self.decide(goal, level, load)?;
            way.note(self.loads.iter().find(|known| known.load >= load).map(|known| known.bound(&target)));
        }
        Ok(way.last.is_some())
    }

    fn bounds(&self, target: &Target) -> (Option<f64>, Option<f64>) {
        let (lower, upper) = relevant(&self.loads, target);
        (lower.map(|load| load.load), upper.map(|load| load.load))
    }

    /// The load to be tried next; none where the bounds are close enough, or there is none beyond a limit.
    fn next(&self, target: &Target, way: &GoalProgress) -> Option<f64> {
        let (min, max) = (self.limits.min_load, self.max_load);
        let (lower, upper) = relevant(&self.loads, target);
        let above = lower.map_or(0.0, |load| load.load);
        let below = upper.map_or(f64::INFINITY, |load| load.load);
        match (lower, upper) {
            (Some(lower), Some(upper)) if width(lower.load, upper.load) <= target.width => return None,
            (Some(lower), None) if lower.load >= max => return None,
            (None, Some(upper)) if upper.load <= min => return None,
            _ => (),
        }
        // What is as good as known already is no hint.
        let hint = |hint: Option<f64>| hint.filter(|&load| width(above, load) > target.width && load < below);
        // What came out of a load that was too high may be what the switch can take.
        let forwarded = || upper.map(Load::forwarded).filter(|&load| above < load && load < below);
        let step = (1.0 - target.width).powf(SLACK * way.doubled());
        let middle = (above * below).sqrt();
        let close = width(above, below) <= 1.0 - (1.0 - target.width).powi(4);
        let chosen = match (hint(way.hints.0), hint(way.hints.1)) {
            _ if close => middle,
            (Some(hint), _) => hint,
            // Bounds of less certainty are likely to be bounds, and so is what is not far from them.
            (None, Some(hint)) => lower.map_or(hint, |lower| (lower.load / step).min(hint)),
            (None, None) => match (lower, upper, way.last) {
                (None, None, _) => max,
                (Some(_), Some(_), None) => forwarded().unwrap_or(middle),
                (Some(_), Some(upper), Some(Bound::Upper)) if way.steps > 0 => (upper.load * step).max(middle),
                (Some(lower), Some(_), Some(Bound::Lower)) if way.steps > 0 => (lower.load / step).min(middle),
                (Some(_), Some(_), _) => middle,
                (Some(lower), None, _) => lower.load / step,
                (None, Some(upper), _) => (upper.load * step).min(forwarded().unwrap_or(max)),
            },
        };
        let chosen = chosen.clamp(min, max);
        // Bounds that no number is between are as close as can be.
        (lower.is_none_or(|l| l.load < chosen) && upper.is_none_or(|u| chosen < u.load)).then_some(chosen)
    }

    /// Tries a load until it is a bound.
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

    /// One trial that counts; none where the tester cannot send that much, and the greatest load is less now.
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
            Err(error) => Err(Stopped(format!("{error:#}"))),
        }
    }

    /// The most that the tester has certainly sent: of what was lost it may never have had to send anything.
    fn sent(&self) -> f64 {
        let tried = self.loads.iter().filter(|known| !known.trials.is_empty());
        tried.map(Load::forwarded).fold(0.0, f64::max)
    }

    /// A tester that could not send what was meant has told how much it can, if it never sent more than was meant here. What it
    /// did at this very load, it cannot do again: that counts no more.
    fn lower_the_greatest(&mut self, invalid: &Invalid) -> Result<(), Stopped> {
        // What it can do is not the same each time: by twice as much less than it told, each time that it was too much.
        let (load, can) = (invalid.trial.load, invalid.rate * REACHED.powi(1 << self.lowered));
        let tried = self.loads.iter().filter(|known| !known.trials.is_empty()).map(|known| known.load);
        let below = tried.filter(|&tried| tried < load).fold(self.limits.min_load, f64::max);
        let at_its_limit = invalid.rate < load * REACHED && self.sent() <= load && can > below;
        if !at_its_limit || self.lowered == LOWERED {
            return Err(Stopped(invalid.to_string()));
        }
        self.lowered += 1;
        self.max_load = can;
        self.loads.retain(|known| known.load <= can);
        Ok(())
    }

    fn tell(&mut self, goal: &Goal, level: i32, trial: Trial, measured: &Measured) {
        let (lower, upper) = self.bounds(&goal.target(level));
        let (spent, left) = (self.spent, self.left(goal, level));
        (self.progress)(&Step { goal: &goal.name, trial, measured, lower, upper, spent, left });
    }

    /// As if half of the trials that a load may need decided on it, and each goal needed both its bounds at each level.
    fn left(&self, goal: &Goal, level: i32) -> Duration {
        let at = self.goals.iter().position(|known| *known == goal).unwrap_or(0);
        let mut left = Duration::ZERO;
        for later in level..=LEVELS {
            for (n, goal) in self.goals.iter().enumerate().filter(|(n, _)| later > level || *n >= at) {
                let target = goal.target(later);
                let halvings = match (self.bounds(&target), later == level && n == at) {
                    ((Some(lower), Some(upper)), _) => halvings(width(lower, upper), target.width),
                    (_, true) => 2.0 + halvings(0.5, target.width).min(4.0),
                    (_, false) => 4.0,
                };
                left += target.duration.max(target.sum / 2).mul_f64(halvings);
            }
        }
        left
    }

    fn result(&self, goal: &Goal, is_stopped: bool) -> GoalResult {
        let bounds = |level: i32| {
            let (lower, upper) = self.bounds(&goal.target(level));
            u8::from(lower.is_some()) + u8::from(upper.is_some())
        };
        // The last one of those that know the most; it has only to be known when it is all over.
        let least = if is_stopped { 1 } else { LEVELS };
        let level = (least..=LEVELS).max_by_key(|&level| bounds(level)).unwrap_or(LEVELS);
        let target = goal.target(level);
        let (lower, upper) = relevant(&self.loads, &target);
        let irregular = match (lower, upper) {
            _ if level < LEVELS => Some("it was searched roughly only".to_owned()),
            (Some(lower), Some(upper)) if width(lower.load, upper.load) > target.width => {
                Some("its bounds are farther apart than they should be".to_owned())
            }
            (Some(_), Some(_)) => None,
            (_, None) => Some(format!("no load up to {:.0} packets a second is too much", self.max_load)),
            (None, Some(_)) => Some(format!("even {:.0} packets a second are too much", self.limits.min_load)),
        };
        // What was not searched to its end is not known.
        let known = lower.is_some() || upper.is_some();
        GoalResult {
            goal: goal.clone(),
            lower: lower.map(|load| load.load),
            upper: upper.map(|load| load.load),
            throughput: lower.map(|load| load.throughput(&target)),
            irregular: if known { irregular } else { Some("no load was tried long enough to say".to_owned()) },
        }
    }
}

/// How far bounds are from each other, as a part of the upper one.
fn width(lower: f64, upper: f64) -> f64 {
    (upper - lower) / upper
}

/// How often an interval must be halved until it is as narrow as it should be.
fn halvings(now: f64, then: f64) -> f64 {
    ((1.0 - now.min(0.999)).ln() / (1.0 - then).ln()).log2().ceil().max(0.0)
}
