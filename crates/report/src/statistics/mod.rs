//! Statistics of samples: medians with their intervals, and verdicts. Two values are called
//! different only if the interval of their ratio excludes 1, and equal only if the whole interval is
//! close to 1.
//!
//! On machines that share a host, some trials are disturbed from outside, so means are not used.
//! Intervals are 95 % intervals by bootstrap. They are deterministic: the same samples have the
//! same interval everywhere.
//!
//! ```
//! use straightline_report::statistics::{Better, Pairing, Verdict, ratio};
//!
//! let old: Vec<(u32, f64)> = (1..=8).zip([4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.8, 4.0]).collect();
//! let new: Vec<(u32, f64)> = old.iter().map(|&(round, mpps)| (round, mpps * 1.1)).collect();
//! let ratio = ratio(&new, &old, Pairing::ByRound).expect("there are samples");
//! assert_eq!(ratio.verdict(Better::More), Verdict::Faster);
//! ```

mod better;
mod bootstrap;
mod cell;
mod digits;
mod effect;
mod looks;
mod metric;
mod order;
mod ratio;

use serde::Serialize;

pub use better::{Better, Verdict};
pub use cell::{axis_in_words, is_size};
pub use digits::{number, ratio_digits};
pub use effect::{EQUAL, Effect, Outcome, counts};
pub use looks::Looks;
pub use metric::Metric;
pub use order::{median, percentile};
pub use ratio::{Change, Pairing, Ratio};

/// Returns the ratio of medians of a run with a fixed number of rounds ([`Looks::ratio`]).
#[must_use]
pub fn ratio(first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing) -> Option<Ratio> {
    Looks::One.ratio(first, second, pairing)
}

/// An interval that contains the true value with a probability of 95 %; of 97.5 %, if the run had two
/// looks ([`Looks`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Returns whether the interval contains a value.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The statistics of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of the samples.
    pub median: f64,
    /// The interval of the true median; `None` with too few samples ([`Looks::fewest`]).
    pub interval: Option<Interval>,
    /// The lowest sample.
    pub lowest: f64,
    /// The highest sample.
    pub highest: f64,
    /// The number of samples.
    pub samples: usize,
}

/// Returns the statistics of samples. `None` if there are no samples, or if a sample is not a
/// number.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let median = median(values)?;
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let interval = bootstrap::interval(values.len(), Looks::One, |random| bootstrap::median(values, random));
    Some(Estimate { median, interval, lowest, highest, samples: values.len() })
}

#[cfg(test)]
mod tests;
