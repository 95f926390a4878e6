//! A key of a section: its value, its default, its meaning.

/// A key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) default: Absent,
    /// The meaning, in one to three sentences. Values and names of keys are between backticks.
    pub(crate) meaning: &'static str,
    /// A value, as the file has it.
    pub(crate) example: &'static str,
}

impl Key {
    pub(crate) const fn new(
        name: &'static str,
        value: Value,
        default: Absent,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, value, default, meaning, example }
    }
}

/// The type and range of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number from `min` to `max`, with its unit; empty for a number without one.
    Integer { min: i64, max: i64, unit: &'static str },
    /// A number from `min` to `max`, with its unit, or this text.
    IntegerOr { min: i64, max: i64, unit: &'static str, word: &'static str },
    /// A number from `min` to `max`, or one of these texts, which have this form.
    IntegerOrChoice { min: i64, max: i64, words: &'static [&'static str], of: &'static str },
    /// True or false.
    Boolean,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A text of this form.
    Text(&'static str),
    /// A text of this form, or a list of such texts.
    TextOrTexts { of: &'static str },
    /// A list of some of these texts, each at most once.
    Choices(&'static [&'static str]),
    /// A list of texts.
    Texts { of: &'static str, min: usize, max: usize },
    /// A list of at least one number, or of ranges of numbers in texts.
    Ranges { of: &'static str, min: i64, max: i64 },
    /// A list of at least one number.
    Integers { of: &'static str },
    /// A table of texts, of tables with such a text under this key and a VLAN, or of lists of both.
    Places { of: &'static str, key: &'static str },
    /// A table of numbers from `min` to `max`, with the form of its keys and values.
    Numbers { of: &'static str, min: i64, max: i64 },
    /// A table of texts, with the form of its keys and values.
    Table { of: &'static str },
}

/// The longest list of a key whose lists may have any length.
pub(crate) const UNBOUNDED: usize = usize::MAX;

impl Value {
    /// A number without a unit.
    pub(crate) const fn integer(min: i64, max: i64) -> Self {
        Self::Integer { min, max, unit: "" }
    }

    /// Returns the type and range in words, with values between backticks.
    pub(crate) fn describe(&self) -> String {
        let quoted = |words: &[&str]| words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
        match *self {
            Self::Integer { min, max, unit } => {
                let range = if max == min + 1 { format!("{min} or {max}") } else { format!("{min} to {max}") };
                format!("{range} {unit}").trim_end().to_owned()
            }
            Self::IntegerOr { min, max, unit, word } => format!("{min} to {max} {unit}, or `\"{word}\"`"),
            Self::IntegerOrChoice { min, max, of, .. } => format!("{min} to {max}, or {of}"),
            Self::Boolean => "`true`, `false`".to_owned(),
            Self::Choice(words) => quoted(words),
            Self::Text(form) | Self::TextOrTexts { of: form } => form.to_owned(),
            Self::Choices(words) => format!("list of {}, each at most once", quoted(words)),
            Self::Texts { of, min: 0, max: UNBOUNDED } => format!("list of {of}"),
            Self::Texts { of, min, max: UNBOUNDED } => format!("list of {of}, at least {min}"),
            Self::Texts { of, min: 0, max } => format!("list of at most {max} {of}"),
            Self::Texts { of, min, max } if min == max => format!("list of {min} {of}"),
            Self::Texts { of, min, max } => format!("list of {min} to {max} {of}"),
            Self::Integers { of } => format!("list of {of}, at least 1"),
            Self::Ranges { of, min, max } => format!("list of {of} from {min} to {max}, and of ranges in texts"),
            Self::Table { of } | Self::Places { of, .. } => format!("table of {of}"),
            Self::Numbers { of, min, max } => format!("table of {of} from {min} to {max}"),
        }
    }

    /// Returns the name of the type in TOML.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Integer { .. } => "integer",
            Self::IntegerOr { .. } | Self::IntegerOrChoice { .. } => "integer or string",
            Self::Boolean => "boolean",
            Self::Choice(_) | Self::Text(_) => "string",
            Self::TextOrTexts { .. } => "string or array of strings",
            Self::Choices(_) | Self::Texts { .. } => "array of strings",
            Self::Integers { .. } => "array of integers",
            Self::Ranges { .. } => "array of integers and strings",
            Self::Table { .. } | Self::Places { .. } | Self::Numbers { .. } => "table",
        }
    }
}

/// The meaning of a key that a section does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The section is wrong.
    Required,
    /// The key has this value, as the file would have it.
    Value(&'static str),
    /// The key has a value that depends on others.
    Text(&'static str),
    /// The section has this other key, which says the same. Exactly one of both is there.
    InsteadOf(&'static str),
}

impl Absent {
    /// Returns the default in words, with texts between backticks.
    pub(crate) fn describe(&self) -> String {
        match *self {
            Self::Required => "required".to_owned(),
            Self::Value(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => number.to_owned(),
            Self::Value(value) => format!("`{value}`"),
            Self::Text(text) => text.to_owned(),
            Self::InsteadOf(other) => format!("`{other}`"),
        }
    }
}
