//! The effect of a variant beside another one in a cell, and its outcome.

use super::digits::{number, ratio_digits};
use super::{Better, Change, Interval, Ratio};

/// The greatest difference that counts as none, as a share. Variants are equal if the whole interval
/// of their ratio is within it, its ends included.
pub const EQUAL: f64 = 0.02;

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
    /// There is no difference of more than [`EQUAL`].
    Equal,
    /// The interval is too wide to tell, or there is none.
    Unclear,
}

impl Outcome {
    /// All outcomes, in the order in which reports count them.
    pub const ALL: [Outcome; 6] =
        [Outcome::Better, Outcome::Worse, Outcome::Higher, Outcome::Lower, Outcome::Equal, Outcome::Unclear];

    /// Returns the outcome in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Better => "better",
            Outcome::Worse => "worse",
            Outcome::Higher => "higher",
            Outcome::Lower => "lower",
            Outcome::Equal => "equal within 2 %",
            Outcome::Unclear => "unclear",
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

    /// Returns the outcome, for a metric with this better direction. A difference that is certain and
    /// small is none: variants are equal also if the interval excludes 1.
    #[must_use]
    pub fn outcome(&self, better: Option<Better>) -> Outcome {
        let Some(interval) = self.interval() else { return Outcome::Unclear };
        let even = if matches!(self, Effect::Change(_)) { 0.0 } else { 1.0 };
        let up = interval.low > even && !matches!(self, Effect::AtMost(_));
        let down = interval.high < even && !matches!(self, Effect::AtLeast(_));
        let is_equal = match self {
            Effect::Ratio(_) => interval.low >= 1.0 - EQUAL && interval.high <= 1.0 + EQUAL,
            Effect::Change(_) => (interval.low, interval.high) == (0.0, 0.0),
            Effect::AtLeast(_) | Effect::AtMost(_) => false,
        };
        match better {
            _ if is_equal => Outcome::Equal,
            Some(Better::More) if up => Outcome::Better,
            Some(Better::Less) if down => Outcome::Better,
            Some(_) if up || down => Outcome::Worse,
            None if up => Outcome::Higher,
            None if down => Outcome::Lower,
            _ => Outcome::Unclear,
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

/// Counts outcomes, as `3 better, 1 worse, 8 unclear`.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_narrow_interval_shows_that_there_is_no_difference() {
        use Outcome::{Better as B, Equal as E, Unclear as I, Worse as W};
        let ratio = |low, high| Effect::Ratio(Ratio { value: low, interval: Some(Interval { low, high }) });
        let change = |low, high| Effect::Change(Change { value: low, interval: Some(Interval { low, high }) });
        for (effect, more, less) in [
            (ratio(1.03, 1.09), B, W),
            (ratio(0.5, 0.9), W, B),
            (ratio(0.98, 1.02), E, E),
            (ratio(0.97, 1.01), I, I),
            (ratio(0.99, 1.03), I, I),
            (ratio(1.005, 1.015), E, E),
            (ratio(1.005, 1.025), B, W),
            (ratio(1.0, 1.2), I, I),
            (ratio(0.9, 1.01), I, I),
            (Effect::Ratio(Ratio { value: 2.0, interval: None }), I, I),
            (Effect::AtLeast(Ratio { value: 1.4, interval: Some(Interval { low: 1.3, high: 1.5 }) }), B, W),
            (Effect::AtLeast(Ratio { value: 0.8, interval: Some(Interval { low: 0.7, high: 0.9 }) }), I, I),
            (Effect::AtMost(Ratio { value: 0.8, interval: Some(Interval { low: 0.7, high: 0.9 }) }), W, B),
            (Effect::AtMost(Ratio { value: 1.0, interval: Some(Interval { low: 0.99, high: 1.01 }) }), I, I),
            (change(0.1, 0.2), B, W),
            (change(0.0, 0.0), E, E),
            (change(-0.1, 0.1), I, I),
        ] {
            assert_eq!(
                (effect.outcome(Some(Better::More)), effect.outcome(Some(Better::Less))),
                (more, less),
                "{effect:?}"
            );
        }
        assert_eq!(ratio(1.1, 1.2).outcome(None), Outcome::Higher);
        assert_eq!(counts(&[I, B, W, B]), "2 better, 1 worse, 1 unclear");
        assert_eq!(counts(&[]), "nothing measured");
        assert_eq!(ratio(0.8, 0.9).outcome(None), Outcome::Lower);
        assert_eq!(ratio(0.99, 1.01).outcome(None), Outcome::Equal);
    }

    /// Judges by the definitions, for a number of values of the interval.
    fn reference(kind: u8, low: f64, high: f64, better: Option<Better>) -> Outcome {
        let values: Vec<f64> = (0..=64).map(|step| low + (high - low) * f64::from(step) / 64.0).chain([high]).collect();
        let all = |test: &dyn Fn(f64) -> bool| values.iter().all(|&value| test(value));
        let even = if kind == 3 { 0.0 } else { 1.0 };
        // A lower bound may be too low, so it shows only that a value is high.
        let is_up = kind != 2 && all(&|value| value > even);
        let is_down = kind != 1 && all(&|value| value < even);
        let is_equal = match kind {
            0 => all(&|value| (0.98..=1.02).contains(&value)),
            3 => all(&|value| value == 0.0),
            _ => false,
        };
        match (is_equal, is_up, is_down, better) {
            (true, ..) => Outcome::Equal,
            (_, true, _, Some(Better::More)) | (_, _, true, Some(Better::Less)) => Outcome::Better,
            (_, true, _, Some(Better::Less)) | (_, _, true, Some(Better::More)) => Outcome::Worse,
            (_, true, _, None) => Outcome::Higher,
            (_, _, true, None) => Outcome::Lower,
            _ => Outcome::Unclear,
        }
    }

    fn effect(kind: u8, low: f64, high: f64) -> Effect {
        let ratio = Ratio { value: low, interval: Some(Interval { low, high }) };
        match kind {
            0 => Effect::Ratio(ratio),
            1 => Effect::AtLeast(ratio),
            2 => Effect::AtMost(ratio),
            _ => Effect::Change(Change { value: low, interval: ratio.interval }),
        }
    }

    proptest! {
        #[test]
        fn outcomes_are_those_of_the_definitions(
            kind in 0..4_u8,
            // Hundredths, so that ends often lie on a limit.
            low in -5..120_i32,
            width in 0..20_i32,
            better in prop_oneof![Just(None), Just(Some(Better::More)), Just(Some(Better::Less))],
            inner in 0.0..=1.0_f64,
        ) {
            let low = f64::from(low) / 100.0;
            let high = low + f64::from(width) / 100.0;
            let outcome = effect(kind, low, high).outcome(better);
            prop_assert_eq!(outcome, reference(kind, low, high, better), "{} {} {}", kind, low, high);
            // More certainty confirms a decision, or shows that the difference is small.
            let inside = low + (high - low) * inner;
            if outcome != Outcome::Unclear {
                let narrower = effect(kind, inside, high).outcome(better);
                prop_assert!(narrower == outcome || narrower == Outcome::Equal, "{:?} {:?}", outcome, narrower);
            }
        }
    }
}
