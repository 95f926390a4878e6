//! The better direction of a metric, and the verdict on two values.

use std::fmt;

use serde::Serialize;

use super::Outcome;

/// A metric that is a limit of a trial, and not a result.
pub(crate) const LIMIT: &str = "generator_limit_mpps";

/// The better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

impl Better {
    /// Returns the direction by a metric's name, which ends in its unit. `None` for metrics that
    /// are neither good nor bad, for limits of a trial, and for unknown names. Such metrics get no
    /// verdict.
    pub fn of(metric: &str) -> Option<Better> {
        let has_word = |word: fn(&str) -> bool| metric.split('_').any(word);
        if metric == LIMIT {
            None
        } else if ["pps", "packets_per_s", "bit_per_s"].iter().any(|unit| metric.ends_with(unit)) {
            Some(Better::More)
        } else if has_word(|word| matches!(word, "latency" | "cycles" | "cpu" | "ns" | "us" | "ms"))
            || has_word(is_fault)
        {
            Some(Better::Less)
        } else {
            None
        }
    }
}

/// Returns whether a word of a metric's name stands for a fault. Fewer faults are better.
fn is_fault(word: &str) -> bool {
    ["loss", "lost", "drop", "error", "miss", "retransmit"].iter().any(|fault| word.starts_with(fault))
}

/// The verdict on two sets of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first is better.
    Faster,
    /// The first is worse.
    Slower,
    /// They differ by no more than [`EQUAL`](super::EQUAL).
    Equal,
    /// The interval is too wide to tell, or there is none.
    Unclear,
}

impl From<Outcome> for Verdict {
    /// Makes the verdict from the outcome for a metric with a better direction.
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Better => Verdict::Faster,
            Outcome::Worse => Verdict::Slower,
            Outcome::Equal => Verdict::Equal,
            Outcome::Higher | Outcome::Lower | Outcome::Unclear => Verdict::Unclear,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Equal => "equal",
            Verdict::Unclear => "unclear",
        })
    }
}
