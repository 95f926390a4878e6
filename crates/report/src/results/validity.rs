//! The validity of a measurement.

use std::fmt;

/// Whether a measurement can be used. If not, it has the reason.
///
/// ```
/// use straightline_report::results::Validity;
///
/// let validity = Validity::SpoiltByBackend("nothing has returned".to_owned());
/// assert_eq!((validity.word(), validity.reason()), ("spoilt-by-backend", Some("nothing has returned")));
/// assert!(Validity::Valid.is_valid() && !validity.is_valid());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// The measurement kept all rules.
    #[default]
    Valid,
    /// A search finished, but no load was too high. Its rates are lower bounds.
    LowerBound(String),
    /// A stop ended the measurement early. Its metrics are those of the time before.
    Interrupted(String),
    /// The load side did not do as planned: it was descheduled, or asked for too much. The result
    /// says nothing about the backend.
    SpoiltByLoad(String),
    /// A backend failed, or broke a rule: it went silent, or packets came with wrong bytes.
    SpoiltByBackend(String),
}

impl Validity {
    /// Returns the word that samples have for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::LowerBound(_) => "lower-bound",
            Validity::Interrupted(_) => "interrupted",
            Validity::SpoiltByLoad(_) => "spoilt-by-load",
            Validity::SpoiltByBackend(_) => "spoilt-by-backend",
        }
    }

    /// Returns the reason why the measurement is not valid; `None` if it is valid.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Validity::Valid => None,
            Validity::LowerBound(why)
            | Validity::Interrupted(why)
            | Validity::SpoiltByLoad(why)
            | Validity::SpoiltByBackend(why) => Some(why),
        }
    }

    /// Returns the same validity with another reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Validity {
        match self {
            Validity::Valid => Validity::Valid,
            Validity::LowerBound(_) => Validity::LowerBound(why.into()),
            Validity::Interrupted(_) => Validity::Interrupted(why.into()),
            Validity::SpoiltByLoad(_) => Validity::SpoiltByLoad(why.into()),
            Validity::SpoiltByBackend(_) => Validity::SpoiltByBackend(why.into()),
        }
    }

    /// Returns this validity if it has a reason; otherwise the other one.
    #[must_use]
    pub fn or_else(self, other: impl FnOnce() -> Validity) -> Validity {
        if self.is_valid() { other() } else { self }
    }

    /// Returns whether the measurement can be used.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self, Validity::Valid)
    }

    /// Returns whether the measurement found only a lower bound.
    #[must_use]
    pub fn is_lower_bound(&self) -> bool {
        matches!(self, Validity::LowerBound(_))
    }

    /// Returns whether a stop ended the measurement.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Validity::Interrupted(_))
    }

    /// Returns whether the load side alone spoilt the measurement.
    #[must_use]
    pub fn is_spoilt_by_load(&self) -> bool {
        matches!(self, Validity::SpoiltByLoad(_))
    }

    /// Returns whether a backend spoilt the measurement.
    #[must_use]
    pub fn is_spoilt_by_backend(&self) -> bool {
        matches!(self, Validity::SpoiltByBackend(_))
    }

    /// Demands a valid measurement.
    ///
    /// # Errors
    /// It is not valid.
    pub fn demand(self) -> Result<(), NotValid> {
        if self.is_valid() { Ok(()) } else { Err(NotValid(self)) }
    }

    /// Makes a validity of the word and the reason that a sample has.
    ///
    /// # Errors
    /// The word is unknown, or the reason contradicts it.
    pub(super) fn of_word(word: &str, why: Option<String>) -> Result<Validity, String> {
        if word == Validity::Valid.word() {
            return match why {
                None => Ok(Validity::Valid),
                Some(_) => Err("`validity` is valid, but `invalid` has a reason: leave it out".to_owned()),
            };
        }
        let Some(kind) = KINDS.into_iter().find(|kind| kind(String::new()).word() == word) else {
            return Err(format!(
                "`validity` is {word:?}: use valid, lower-bound, interrupted, spoilt-by-load or spoilt-by-backend"
            ));
        };
        why.map(kind).ok_or_else(|| format!("`validity` is {word}, but `invalid` is missing: give the reason there"))
    }

    /// Makes a validity of the reason that a sample has without a word. Older versions wrote such
    /// samples.
    pub(super) fn of_reason(why: Option<String>, is_lower_bound: bool) -> Validity {
        let Some(why) = why else { return Validity::Valid };
        let names_any = |marks: &[&str]| marks.iter().any(|mark| why.contains(mark));
        match () {
            () if is_lower_bound => Validity::LowerBound(why),
            () if names_any(&["interrupted"]) => Validity::Interrupted(why),
            () if names_any(&LATE) => Validity::SpoiltByLoad(why),
            () => Validity::SpoiltByBackend(why),
        }
    }
}

/// The kinds that have a reason.
const KINDS: [fn(String) -> Validity; 4] =
    [Validity::LowerBound, Validity::Interrupted, Validity::SpoiltByLoad, Validity::SpoiltByBackend];

/// Parts of the reasons that older versions wrote if the load side was late.
const LATE: [&str; 5] =
    ["descheduled", "kept from running", "packets were due", "not sent in time", "more than the generator makes"];

/// An error that ends a measurement, with its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotValid(pub Validity);

impl fmt::Display for NotValid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "not a valid trial: {}", self.0.reason().unwrap_or("no reason"))
    }
}

impl std::error::Error for NotValid {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_a_reason_make_the_validity_again() {
        let all = KINDS.map(|kind| kind("it broke".to_owned()));
        for validity in all.iter().chain([&Validity::Valid]) {
            let why = validity.reason().map(str::to_owned);
            assert_eq!(Validity::of_word(validity.word(), why).as_ref(), Ok(validity));
            assert_eq!(validity.is_valid(), validity.clone().demand().is_ok());
        }
        let says = |word: &str, why: Option<&str>| {
            Validity::of_word(word, why.map(str::to_owned)).expect_err("a contradiction")
        };
        assert!(says("valid", Some("it broke")).contains("leave it out"));
        assert!(says("interrupted", None).contains("`invalid` is missing"));
        assert!(says("Valid", None).contains("use valid, lower-bound, "));
    }

    #[test]
    fn samples_of_older_versions_have_a_validity_too() {
        let word_of = |why: &str| Validity::of_reason(Some(why.to_owned()), false).word();
        assert_eq!(Validity::of_reason(None, false), Validity::Valid);
        assert_eq!(Validity::of_reason(Some("no load is too high".to_owned()), true).word(), "lower-bound");
        for (why, word) in [
            ("interrupted, after 3.1 of 9.0 s", "interrupted"),
            ("the search did not finish: interrupted", "interrupted"),
            ("the trial took 1.0011 s instead of 1.0000 s: this thread was descheduled", "spoilt-by-load"),
            ("it lasted 0.3004 s where 0.3000 s were meant: this thread was kept from running", "spoilt-by-load"),
            ("3.000 Mpps are more than the generator makes of these packets", "spoilt-by-load"),
            ("nothing has come from /a for 100 ms", "spoilt-by-backend"),
        ] {
            assert_eq!(word_of(why), word, "{why}");
        }
    }

    #[test]
    fn the_first_reason_is_kept() {
        let [first, second] = ["one", "two"].map(|why| Validity::SpoiltByLoad(why.to_owned()));
        assert_eq!(first.clone().or_else(|| second.clone()), first);
        assert_eq!(Validity::Valid.or_else(|| second.clone()), second);
        assert_eq!(first.because("two"), second);
        assert_eq!(Validity::Valid.because("two"), Validity::Valid);
    }
}
