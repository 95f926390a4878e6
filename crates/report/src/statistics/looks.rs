//! The looks of a run at its own samples.
//!
//! A run that goes on until a comparison is clear finds differences that are none: each look has a
//! chance of its own to be wrong. So the number of looks is fixed before, and each look has a higher
//! confidence. With two looks, each interval is one of 97.5 %. Then both contain the true value in at
//! least 95 of 100 cases, whatever the first look decides (Bonferroni).

use serde::{Deserialize, Serialize};

use super::{Change, Pairing, Ratio, ratio};

/// The number of looks at which a run can end for a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Looks {
    /// The number of rounds is fixed.
    #[default]
    One,
    /// A comparison that is unclear gets further rounds, once.
    Two,
}

impl Looks {
    /// Returns the fewest samples that have an interval. All of `n` samples are on one side of the
    /// median in one of 2^(n-1) cases. With one look, 6 samples are enough, and with two looks 7.
    #[must_use]
    pub fn fewest(self) -> usize {
        match self {
            Looks::One => 6,
            Looks::Two => 7,
        }
    }

    /// Returns the confidence of an interval, in percent.
    #[must_use]
    pub fn percent(self) -> &'static str {
        match self {
            Looks::One => "95",
            Looks::Two => "97.5",
        }
    }

    /// Returns the quantile of the normal distribution at the upper end of an interval.
    pub(super) fn quantile(self) -> f64 {
        match self {
            Looks::One => 1.959_963_984_540_054,
            Looks::Two => 2.241_402_727_604_945,
        }
    }

    /// Returns the ratio of the medians of two sets of samples, each with its round. `None` if either
    /// has no samples, or one that is not a number above 0: such a ratio would have no meaning.
    #[must_use]
    pub fn ratio(self, first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing) -> Option<Ratio> {
        ratio::ratio(first, second, pairing, self)
    }

    /// Returns the difference of the medians of two sets of samples: for metrics that may be 0, such as
    /// losses. `None` if either has no samples, or one that is no number.
    #[must_use]
    pub fn change(self, first: &[(u32, f64)], second: &[(u32, f64)], pairing: Pairing) -> Option<Change> {
        ratio::change(first, second, pairing, self)
    }
}
