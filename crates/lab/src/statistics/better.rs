//! Which way a figure is better, and what is said of two.

use std::fmt;

use serde::Serialize;

/// What says of a trial only what it could have been at most: no result of it.
pub(crate) const LIMIT: &str = "generator_limit_mpps";

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More of it.
    More,
    /// Less of it.
    Less,
}

impl Better {
    /// By a figure's name, which ends in its unit. None of figures that are neither good nor bad, of what a trial could have
    /// been at most, and of names that nobody here knows: of those no verdict is given.
    pub fn of(metric: &str) -> Option<Better> {
        let has = |word: fn(&str) -> bool| metric.split('_').any(word);
        if metric == LIMIT {
            None
        } else if ["pps", "packets_per_s", "bit_per_s"].iter().any(|unit| metric.ends_with(unit)) {
            Some(Better::More)
        } else if has(|word| matches!(word, "latency" | "cycles" | "cpu" | "ns" | "us" | "ms")) || has(is_fault) {
            Some(Better::Less)
        } else {
            None
        }
    }
}

/// Words of names of which nobody wants more.
fn is_fault(word: &str) -> bool {
    ["loss", "lost", "drop", "error", "miss", "retransmit"].iter().any(|fault| word.starts_with(fault))
}

/// What may be said of two sets of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first is better.
    Faster,
    /// The first is worse.
    Slower,
    /// The interval of their ratio has 1 in it, or that of their difference 0, or there is none.
    CannotTell,
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::CannotTell => "cannot tell",
        })
    }
}
