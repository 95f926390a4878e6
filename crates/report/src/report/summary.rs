//! A summary of several trials: the median with its interval, and the ratio to another variant's
//! median.

use crate::statistics::{self, Pairing};

/// The median of several trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The 95 % interval of the median; none with too few trials ([`statistics::FEWEST`]).
    pub(super) interval: Option<(f64, f64)>,
    /// The number of trials.
    pub(super) n: usize,
}

/// A variant's summary in a cell, and its ratio to the first variant there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VariantResult {
    pub(super) summary: Summary,
    pub(super) ratio: Option<Summary>,
}

/// A value with the round in which it was measured.
pub(super) type Trial = (u32, f64);

impl Summary {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let estimate = statistics::estimate(values)?;
        let interval = estimate.interval.map(|interval| (interval.low, interval.high));
        Some(Summary { median: estimate.median, interval, n: estimate.samples })
    }

    /// Returns the ratio of two variants. Their values are paired by round, because a disturbance
    /// of a round affects both.
    pub(super) fn ratio(of: &[Trial], to: &[Trial]) -> Option<Self> {
        let ratio = statistics::ratio(of, to, Pairing::ByRound)?;
        let interval = ratio.interval.map(|interval| (interval.low, interval.high));
        Some(Summary { median: ratio.value, interval, n: of.len().min(to.len()) })
    }

    /// Returns whether the median and its interval are zero.
    pub(super) fn is_nothing(&self) -> bool {
        self.median == 0.0 && self.interval.is_none_or(|interval| interval == (0.0, 0.0))
    }

    /// Returns whether a ratio differs from 1, and in which direction.
    pub(super) fn verdict(&self) -> Option<std::cmp::Ordering> {
        let (low, high) = self.interval?;
        if low > 1.0 {
            Some(std::cmp::Ordering::Greater)
        } else if high < 1.0 {
            Some(std::cmp::Ordering::Less)
        } else {
            None
        }
    }
}

/// Returns whether a value can be drawn and used in computations. Files may contain any value.
pub(super) fn plausible(value: f64) -> bool {
    value == 0.0 || (1e-30..1e30).contains(&value.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_trials_are_the_fewest_with_an_interval() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0, 5.0]), Some(Summary { median: 2.5, interval: None, n: 4 }));
        let six = Summary::of(&[6.0, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("values");
        let (low, high) = six.interval.expect("six trials");
        assert!(six.median == 3.5 && (1.0..3.5).contains(&low) && (3.5..=6.0).contains(&high), "{six:?}");
    }

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let of: Vec<Trial> = (1..=8).map(|round| (round, 2.0 * f64::from(round * round))).collect();
        let to: Vec<Trial> = (1..=8).map(|round| (round, f64::from(round * round))).collect();
        let ratio = Summary::ratio(&of, &to).expect("rounds");
        // Rounds differ much, but the ratio is similar in all rounds.
        assert_eq!((ratio.median, ratio.interval, ratio.n), (2.0, Some((2.0, 2.0)), 8));
        assert_eq!(ratio.verdict(), Some(std::cmp::Ordering::Greater));
        assert_eq!(Summary::ratio(&of, &[(0, 0.0)]), None);
    }
}
