//! The ratio of two medians; and their difference, if there is no ratio.

use serde::Serialize;

use super::bootstrap::{self, middle, pick};
use super::{Better, Effect, Interval, Looks, Verdict, median};
use crate::random::Random;

/// The relation between two sets of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// The sets were measured in the same rounds, so a disturbance of a round affects both. Samples
    /// of a common round are drawn together. Samples of other rounds are drawn singly.
    ByRound,
    /// The sets were measured one after the other, or on two machines. Rounds with the same number
    /// are unrelated.
    Apart,
}

/// The ratio of two medians: the first divided by the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio of the samples.
    pub value: f64,
    /// The interval of the true ratio; `None` if either set has too few samples ([`Looks::fewest`]).
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Returns the verdict on the first, compared with the second.
    pub fn verdict(&self, better: Better) -> Verdict {
        Effect::Ratio(*self).outcome(Some(better)).into()
    }
}

/// The difference of two medians, the first minus the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The difference of the samples.
    pub value: f64,
    /// The interval of the true difference; `None` if either set has too few samples ([`Looks::fewest`]).
    pub interval: Option<Interval>,
}

impl Change {
    /// Returns the verdict on the first, compared with the second.
    pub fn verdict(&self, better: Better) -> Verdict {
        Effect::Change(*self).outcome(Some(better)).into()
    }
}

/// See [`Looks::ratio`].
pub(super) fn ratio(first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing, looks: Looks) -> Option<Ratio> {
    if first.iter().chain(second).any(|&(_, value)| value <= 0.0) {
        return None;
    }
    let (value, interval) = compared(first, second, pairing, looks, |one, other| one / other)?;
    Some(Ratio { value, interval })
}

/// See [`Looks::change`].
pub(super) fn change(first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing, looks: Looks) -> Option<Change> {
    let (value, interval) = compared(first, second, pairing, looks, |one, other| one - other)?;
    Some(Change { value, interval })
}

fn compared(
    first: &[(u32, f64)],
    second: &[(u32, f64)],
    pairing: Pairing,
    looks: Looks,
    of: fn(f64, f64) -> f64,
) -> Option<(f64, Option<Interval>)> {
    let values = |samples: &[(u32, f64)]| samples.iter().map(|&(_, value)| value).collect::<Vec<_>>();
    let value = of(median(&values(first))?, median(&values(second))?);
    let strata = Strata::new(first, second, pairing);
    let samples = first.len().min(second.len());
    let draw = |random: &mut Random| {
        let (one, other) = strata.draw(random);
        of(one, other)
    };
    Some((value, bootstrap::interval(samples, looks, draw)))
}

/// Samples, grouped by the way in which they are drawn.
#[derive(Debug, Default)]
struct Strata {
    pairs: Vec<(f64, f64)>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Strata {
    fn new(first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing) -> Strata {
        let mut strata = Strata::default();
        let mut rest = second.to_vec();
        for &(round, value) in first {
            // A round with several samples has several pairs, in their order.
            match rest.iter().position(|&(other, _)| pairing == Pairing::ByRound && other == round) {
                Some(at) => strata.pairs.push((value, rest.remove(at).1)),
                None => strata.first.push(value),
            }
        }
        strata.second = rest.into_iter().map(|(_, value)| value).collect();
        strata
    }

    /// Draws a random resample of both sets and returns the two medians.
    fn draw(&self, random: &mut Random) -> (f64, f64) {
        let mut first = Vec::with_capacity(self.pairs.len() + self.first.len());
        let mut second = Vec::with_capacity(self.pairs.len() + self.second.len());
        for _ in &self.pairs {
            let (one, other) = pick(&self.pairs, random);
            first.push(one);
            second.push(other);
        }
        first.extend(self.first.iter().map(|_| pick(&self.first, random)));
        second.extend(self.second.iter().map(|_| pick(&self.second, random)));
        (middle(&mut first), middle(&mut second))
    }
}
