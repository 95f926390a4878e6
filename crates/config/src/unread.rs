//! The parts of a file that could not be read, so that nothing that follows from that is reported.

use std::collections::HashSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::SINGLE_SECTIONS;

/// The sections that could not be read, and have an error: a finding that one is missing would mislead.
#[derive(Default)]
pub(super) struct Unread {
    /// Families, such as `port`: some of their sections could not be read.
    families: HashSet<&'static str>,
    /// The names in sections of unknown families.
    pub(super) names: HashSet<String>,
}

impl Unread {
    /// Returns whether the file has such a section, perhaps.
    pub(super) fn may_have(&self, family: &str, name: &str) -> bool {
        self.families.contains(family) || self.names.contains(name)
    }

    /// Returns whether all sections could be read.
    pub(super) fn is_empty(&self) -> bool {
        self.families.is_empty() && self.names.is_empty()
    }

    /// Notes whether a family has keys where its sections should be.
    pub(super) fn note(&mut self, family: &'static str, value: &Spanned<DeValue<'_>>) {
        let is_wrong = |table: &DeTable<'_>| table.iter().any(|(_, value)| value.get_ref().as_table().is_none());
        if !SINGLE_SECTIONS.contains(&family) && value.get_ref().as_table().is_none_or(is_wrong) {
            self.families.insert(family);
        }
    }
}

/// Keeps one error about a section that is in the file twice: the parser also reports each key that
/// both have.
pub(super) fn drop_keys_of_repeated_sections(text: &str, errors: &mut Vec<toml::de::Error>) {
    let mut repeated = HashSet::new();
    errors.retain(|error| {
        let (Some(span), "duplicate key") = (error.span(), error.message()) else { return true };
        let before = &text[..text.floor_char_boundary(span.start)];
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        let is_header = text[line..].trim_start().starts_with('[');
        let section = if is_header { line } else { before.rfind("\n[").map_or(0, |end| end + 1) };
        if is_header {
            repeated.insert(section);
        }
        is_header || !repeated.contains(&section)
    });
}
