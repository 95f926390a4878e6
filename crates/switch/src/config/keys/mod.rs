//! The table of keys: what the file may say, for everything that tells it to somebody.
//!
//! Each section's keys stand beside their reader, as a list of [`Key`]. The check for unknown keys,
//! `straightline check --explain` and the JSON schema read these lists. Tests compare them with the
//! keys that the readers ask for, and with the tables of `docs/configuration.md`.

mod explain;
mod schema;
#[cfg(test)]
pub(super) mod schema_tests;
#[cfg(test)]
mod tests;

use super::{kind, network, node, port, switch, underlay};

pub use explain::{Explanation, UnknownKey, explain, explain_all};
pub use schema::schema;

/// A key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) value: Value,
    pub(super) default: Absent,
    /// The meaning, in one to three sentences. Values and names of keys are between backticks.
    pub(super) meaning: &'static str,
    /// A value, as the file has it.
    pub(super) example: &'static str,
}

impl Key {
    pub(super) const fn new(
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
pub(super) enum Value {
    /// A number from `min` to `max`, with its unit; empty for a number without one.
    Integer { min: i64, max: i64, unit: &'static str },
    /// A number from `min` to `max`, with its unit, or this text.
    IntegerOr { min: i64, max: i64, unit: &'static str, word: &'static str },
    /// True or false.
    Boolean,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A text of this form.
    Text(&'static str),
    /// A list of some of these texts, each at most once.
    Choices(&'static [&'static str]),
    /// A list of texts.
    Texts { of: &'static str, min: usize, max: usize },
    /// A list of at least one number.
    Integers { of: &'static str },
    /// A table of texts, with the form of its keys and values.
    Table { of: &'static str },
}

/// The longest list of a key whose lists may have any length.
pub(super) const UNBOUNDED: usize = usize::MAX;

impl Value {
    /// A number without a unit.
    pub(super) const fn integer(min: i64, max: i64) -> Self {
        Self::Integer { min, max, unit: "" }
    }

    /// Returns the type and range in words, with values between backticks.
    fn describe(&self) -> String {
        let quoted = |words: &[&str]| words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
        match *self {
            Self::Integer { min, max, unit } => {
                let range = if max == min + 1 { format!("{min} or {max}") } else { format!("{min} to {max}") };
                format!("{range} {unit}").trim_end().to_owned()
            }
            Self::IntegerOr { min, max, unit, word } => format!("{min} to {max} {unit}, or `\"{word}\"`"),
            Self::Boolean => "`true`, `false`".to_owned(),
            Self::Choice(words) => quoted(words),
            Self::Text(form) => form.to_owned(),
            Self::Choices(words) => format!("list of {}, each at most once", quoted(words)),
            Self::Texts { of, min: 0, max: UNBOUNDED } => format!("list of {of}"),
            Self::Texts { of, min, max: UNBOUNDED } => format!("list of {of}, at least {min}"),
            Self::Texts { of, min: 0, max } => format!("list of at most {max} {of}"),
            Self::Texts { of, min, max } if min == max => format!("list of {min} {of}"),
            Self::Texts { of, min, max } => format!("list of {min} to {max} {of}"),
            Self::Integers { of } => format!("list of {of}, at least 1"),
            Self::Table { of } => format!("table of {of}"),
        }
    }

    /// Returns the name of the type in TOML.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Integer { .. } => "integer",
            Self::IntegerOr { .. } => "integer or string",
            Self::Boolean => "boolean",
            Self::Choice(_) | Self::Text(_) => "string",
            Self::Choices(_) | Self::Texts { .. } => "array of strings",
            Self::Integers { .. } => "array of integers",
            Self::Table { .. } => "table",
        }
    }
}

/// The meaning of a key that a section does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
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
    fn describe(&self) -> String {
        match *self {
            Self::Required => "required".to_owned(),
            Self::Value(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => number.to_owned(),
            Self::Value(value) => format!("`{value}`"),
            Self::Text(text) => text.to_owned(),
            Self::InsteadOf(other) => format!("`{other}`"),
        }
    }
}

/// The keys of one kind of section.
pub(super) struct Group {
    /// The first word of the section's name.
    pub(super) section: &'static str,
    /// The value of `kind` in such a section. `None`: the keys belong to all kinds, or the section
    /// has none.
    pub(super) kind: Option<&'static str>,
    pub(super) keys: Vec<Key>,
}

/// Returns all keys of all sections, in the order of the documents.
pub(super) fn groups() -> Vec<Group> {
    let group = |section, kind, keys: &[Key]| Group { section, kind, keys: keys.to_vec() };
    let mut groups = vec![group("switch", None, switch::KEYS), group("port", None, port::KEYS)];
    groups.extend(kind::keys().map(|(kind, keys)| Group { section: "port", kind: Some(kind), keys }));
    groups.extend([
        group("underlay", None, underlay::KEYS),
        group("patch", None, network::PATCH_KEYS),
        group("bridge", None, network::BRIDGE_KEYS),
        group("node", None, node::KEYS),
        group("node", Some("mirror"), node::MIRROR_KEYS),
    ]);
    groups
}

/// Returns the title of a section as the file has it.
fn title(section: &str) -> String {
    if section == "switch" { "[switch]".to_owned() } else { format!("[{section}.NAME]") }
}
