//! What samples say, and what they do not: medians with their intervals, and differences that are called one only where
//! the interval of the ratio excludes 1.
//!
//! Machines that share a host have trials that went wrong for reasons of their own, so nothing here is a mean. Intervals
//! are of 95 %, by bootstrap, and deterministic: the same samples have the same interval everywhere.
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

/// Samples without which there is no interval of 95 %. Five lie all on one side of a median once in sixteen times: even
/// from the lowest to the highest of them covers it with 93.75 % only.
pub const FEWEST: usize = 6;

/// Where a figure lies with 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether a value lies in it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// What some samples say of the figure that they are of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Half of the samples are below it.
    pub median: f64,
    /// Where the median of all samples that could be taken lies; none of fewer than [`FEWEST`].
    pub interval: Option<Interval>,
    /// The lowest sample.
    pub lowest: f64,
    /// The highest sample.
    pub highest: f64,
    /// How many there are.
    pub samples: usize,
}

/// The median of samples, with its interval. None where there are no samples, or one of them is no number.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let median = median(values)?;
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let interval = bootstrap::interval(values.len(), |random| bootstrap::median(values, random));
    Some(Estimate { median, interval, lowest, highest, samples: values.len() })
}

#[cfg(test)]
mod tests;
