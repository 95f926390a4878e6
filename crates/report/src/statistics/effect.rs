//! The effect of a variant beside another one in a cell, and its outcome.

use super::digits::{number, ratio_digits};
use super::{Better, Change, Interval, Ratio};

/// The greatest difference that counts as none, as a share: an interval within it shows that there
/// is no difference.
pub const SAME: f64 = 0.05;

/// The effect of a variant in a cell, compared with another variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The ratio of the medians.
    Ratio(Ratio),
    /// A lower bound of the ratio, because a search found only a lower bound of the variant.
    AtLeast(Ratio),
    /// An upper bound of the ratio, because a search found only a lower bound of the other variant.
    AtMost(Ratio),
    /// The difference of the medians, for values without a ratio.
    Change(Change),
}

/// The outcome of a comparison in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The variant is better.
    Better,
    /// The variant is worse.
    Worse,
    /// The metric is higher, and has no better direction.
    Higher,
    /// The metric is lower, and has no better direction.
    Lower,
    /// There is no difference of more than [`SAME`].
    Same,
    /// The interval is too wide to tell, or there is none.
    Inconclusive,
}

impl Outcome {
    /// All outcomes, in the order in which reports count them.
    pub const ALL: [Outcome; 6] =
        [Outcome::Better, Outcome::Worse, Outcome::Higher, Outcome::Lower, Outcome::Same, Outcome::Inconclusive];

    /// Returns the outcome in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Better => "better",
            Outcome::Worse => "worse",
            Outcome::Higher => "higher",
            Outcome::Lower => "lower",
            Outcome::Same => "no difference",
            Outcome::Inconclusive => "inconclusive",
        }
    }
}

impl Effect {
    /// Returns what is left of an effect if either side is only a lower bound: `of`, the variant
    /// itself, or `to`, the one that it is compared with. `None` if nothing is left.
    #[must_use]
    pub fn bounded(self, of: bool, to: bool) -> Option<Effect> {
        match (self, of, to) {
            (effect, false, false) => Some(effect),
            (Effect::Ratio(ratio), true, false) => Some(Effect::AtLeast(ratio)),
            (Effect::Ratio(ratio), false, true) => Some(Effect::AtMost(ratio)),
            _ => None,
        }
    }

    /// Returns the ratio or the difference.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self {
            Effect::Ratio(ratio) | Effect::AtLeast(ratio) | Effect::AtMost(ratio) => ratio.value,
            Effect::Change(change) => change.value,
        }
    }

    /// Returns the interval.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        match self {
            Effect::Ratio(ratio) | Effect::AtLeast(ratio) | Effect::AtMost(ratio) => ratio.interval,
            Effect::Change(change) => change.interval,
        }
    }

    /// Returns the outcome, for a metric with this better direction.
    #[must_use]
    pub fn outcome(&self, better: Option<Better>) -> Outcome {
        let Some(interval) = self.interval() else { return Outcome::Inconclusive };
        let even = if matches!(self, Effect::Change(_)) { 0.0 } else { 1.0 };
        let up = interval.low > even && !matches!(self, Effect::AtMost(_));
        let down = interval.high < even && !matches!(self, Effect::AtLeast(_));
        let is_same = match self {
            Effect::Ratio(_) => interval.low >= 1.0 - SAME && interval.high <= 1.0 + SAME,
            Effect::Change(_) => (interval.low, interval.high) == (0.0, 0.0),
            Effect::AtLeast(_) | Effect::AtMost(_) => false,
        };
        match better {
            Some(Better::More) if up => Outcome::Better,
            Some(Better::Less) if down => Outcome::Better,
            Some(_) if up || down => Outcome::Worse,
            None if up => Outcome::Higher,
            None if down => Outcome::Lower,
            _ if is_same => Outcome::Same,
            _ => Outcome::Inconclusive,
        }
    }

    /// Formats the value as `1.06`, `at least 1.40` or `+0.2`.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Effect::Ratio(ratio) => ratio_digits(ratio.value),
            Effect::AtLeast(ratio) => format!("at least {}", ratio_digits(ratio.value)),
            Effect::AtMost(ratio) => format!("at most {}", ratio_digits(ratio.value)),
            Effect::Change(change) => format!("{}{}", if change.value > 0.0 { "+" } else { "" }, number(change.value)),
        }
    }

    /// Formats the interval as ` [1.03, 1.09]`; empty if there is none.
    #[must_use]
    pub fn brackets(&self) -> String {
        let digits = if matches!(self, Effect::Change(_)) { number } else { ratio_digits };
        self.interval().map_or_else(String::new, |within| format!(" [{}, {}]", digits(within.low), digits(within.high)))
    }
}

/// Counts outcomes, as `3 better, 1 worse, 8 inconclusive`.
#[must_use]
pub fn counts(outcomes: &[Outcome]) -> String {
    let count = |of: Outcome| outcomes.iter().filter(|&&outcome| outcome == of).count();
    let parts = Outcome::ALL.map(|outcome| (count(outcome), outcome.words()));
    let parts: Vec<String> =
        parts.into_iter().filter(|part| part.0 > 0).map(|(count, words)| format!("{count} {words}")).collect();
    if parts.is_empty() { "nothing measured".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_narrow_interval_shows_that_there_is_no_difference() {
        use Outcome::{Better as B, Inconclusive as I, Same as S, Worse as W};
        let ratio = |low, high| Effect::Ratio(Ratio { value: low, interval: Some(Interval { low, high }) });
        let change = |low, high| Effect::Change(Change { value: low, interval: Some(Interval { low, high }) });
        for (effect, more, less) in [
            (ratio(1.03, 1.09), B, W),
            (ratio(0.5, 0.9), W, B),
            (ratio(0.97, 1.04), S, S),
            (ratio(1.0, 1.2), I, I),
            (ratio(0.9, 1.01), I, I),
            (Effect::Ratio(Ratio { value: 2.0, interval: None }), I, I),
            (Effect::AtLeast(Ratio { value: 1.4, interval: Some(Interval { low: 1.3, high: 1.5 }) }), B, W),
            (Effect::AtLeast(Ratio { value: 0.8, interval: Some(Interval { low: 0.7, high: 0.9 }) }), I, I),
            (Effect::AtMost(Ratio { value: 0.8, interval: Some(Interval { low: 0.7, high: 0.9 }) }), W, B),
            (Effect::AtMost(Ratio { value: 1.0, interval: Some(Interval { low: 0.99, high: 1.01 }) }), I, I),
            (change(0.1, 0.2), B, W),
            (change(0.0, 0.0), S, S),
            (change(-0.1, 0.1), I, I),
        ] {
            assert_eq!(
                (effect.outcome(Some(Better::More)), effect.outcome(Some(Better::Less))),
                (more, less),
                "{effect:?}"
            );
        }
        assert_eq!(ratio(1.1, 1.2).outcome(None), Outcome::Higher);
        assert_eq!(counts(&[I, B, W, B]), "2 better, 1 worse, 1 inconclusive");
        assert_eq!(counts(&[]), "nothing measured");
        assert_eq!(ratio(0.8, 0.9).outcome(None), Outcome::Lower);
    }
}
