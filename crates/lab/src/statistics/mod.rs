//! Statistics of samples: medians with their intervals, and verdicts. Two values are called
//! different only if the interval of their ratio excludes 1.
//!
//! Machines that share a host have trials that fail for reasons of their own, so there are no
//! means. Intervals are of 95 %, by bootstrap, and deterministic: the same samples have the same
//! interval everywhere.
//!
//! ```
//! use straightline_lab::statistics::{Better, Pairing, Verdict, ratio};
//!
//! let old: Vec<(u32, f64)> = (1..=8).zip([4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.8, 4.0]).collect();
//! let new: Vec<(u32, f64)> = old.iter().map(|&(round, mpps)| (round, mpps * 1.1)).collect();
//! let ratio = ratio(&new, &old, Pairing::ByRound).expect("there are samples");
//! assert_eq!(ratio.verdict(Better::More), Verdict::Faster);
//! ```

mod better;
mod bootstrap;
mod order;
mod ratio;

use serde::Serialize;

pub(crate) use better::LIMIT;
pub use better::{Better, Verdict};
pub use order::{median, percentile};
pub use ratio::{Change, Pairing, Ratio, change, ratio};

/// The fewest samples with an interval of 95 %. Five are all on one side of the median once in
/// sixteen times: even the range from the lowest to the highest contains it with 93.75 % only.
pub const FEWEST: usize = 6;

/// An interval that contains a value with 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Returns whether it contains a value.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The statistics of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of the samples.
    pub median: f64,
    /// The interval of the median of all possible samples; none with fewer than [`FEWEST`].
    pub interval: Option<Interval>,
    /// The lowest sample.
    pub lowest: f64,
    /// The highest sample.
    pub highest: f64,
    /// The number of samples.
    pub samples: usize,
}

/// Returns the statistics of samples. None if there are no samples, or if one of them is no number.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let median = median(values)?;
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let interval = bootstrap::interval(values.len(), |random| bootstrap::median(values, random));
    Some(Estimate { median, interval, lowest, highest, samples: values.len() })
}

#[cfg(test)]
mod tests;
