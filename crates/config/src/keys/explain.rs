//! Explanations of keys for people.

use std::fmt;

use straightline_api::distance;

use super::{Group, groups, title};
use crate::key::Key;

/// The width of a terminal that the text fits.
const WIDTH: usize = 80;

/// A key of the configuration, with its place, type, default and meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub(super) section: &'static str,
    pub(super) kinds: Vec<&'static str>,
    pub(super) key: Key,
}

/// A word is the name of no key, section and kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown key {word:?}; {hint}")]
pub struct UnknownKey {
    word: String,
    hint: String,
}

/// Returns the keys that `query` names, in the order of the documents. A query is the name of a
/// key, a section or a kind, or several of them with dots: `mtu`, `port.tap.name`, `tap`, `bridge`.
///
/// # Errors
/// The query names nothing: the error has the nearest names.
pub fn explain(query: &str) -> Result<Vec<Explanation>, UnknownKey> {
    let groups = groups();
    let words: Vec<_> = query.split('.').map(|word| word.trim_matches(['[', ']'])).collect();
    let (last, places) = words.split_last().map_or(("", &[][..]), |(last, places)| (*last, places));
    let kinds: Vec<_> = groups.iter().filter(|group| group.section == "port").filter_map(|group| group.kind).collect();
    let mut found: Vec<(&Group, &Key)> = Vec::new();
    for group in &groups {
        // The keys of all ports are keys of each kind of port too.
        let is_any_port = group.section == "port" && group.kind.is_none();
        let is_place = |word: &&str| group.is(word) || (is_any_port && kinds.contains(word));
        if places.iter().all(is_place) {
            found.extend(group.keys.iter().filter(|key| key.name == last).map(|key| (group, key)));
        }
    }
    // Some words name a key and a section: `port` is a key of underlays too.
    let named = groups.iter().filter(|group| words.iter().all(|word| group.is(word)));
    found.extend(named.flat_map(|group| group.keys.iter().map(move |key| (group, key))));
    if found.is_empty() { Err(unknown(query, last, &groups)) } else { Ok(merge(&found)) }
}

/// Returns explanations of all keys of a configuration file, section by section.
#[must_use]
pub fn explain_all() -> Vec<Explanation> {
    let groups = groups();
    let all: Vec<_> = groups.iter().flat_map(|group| group.keys.iter().map(move |key| (group, key))).collect();
    merge(&all)
}

/// Returns an explanation for each key. Kinds with the same key have one explanation.
fn merge(found: &[(&Group, &Key)]) -> Vec<Explanation> {
    let mut merged: Vec<Explanation> = Vec::new();
    for (group, key) in found {
        let known = merged.iter_mut().find(|known| known.section == group.section && known.key == **key);
        match known {
            Some(known) => known.kinds.extend(group.kind),
            None => {
                merged.push(Explanation { section: group.section, kinds: group.kind.into_iter().collect(), key: **key })
            }
        }
    }
    merged
}

impl Group {
    /// Returns whether a word of a query names the section or its kind.
    fn is(&self, word: &str) -> bool {
        self.section == word || self.kind == Some(word) || word == "NAME"
    }
}

/// Returns the error for a query, with the names that resemble its last word.
fn unknown(query: &str, last: &str, groups: &[Group]) -> UnknownKey {
    let keys = groups.iter().flat_map(|group| group.keys.iter().map(|key| key.name));
    let mut names: Vec<_> = keys.chain(groups.iter().map(|group| group.section)).collect();
    names.extend(groups.iter().filter_map(|group| group.kind));
    names.sort_unstable();
    names.dedup();
    let is_near = |name: &&str| {
        let edits = distance(last, name);
        let is_misspelt = edits <= 2 && edits * 2 < name.len().min(last.len());
        is_misspelt || (last.len() > 2 && name.contains(last))
    };
    let mut near: Vec<_> = names.iter().copied().filter(is_near).collect();
    near.sort_by_key(|name| distance(last, name));
    near.truncate(4);
    let hint = if near.is_empty() {
        "name a section to see its keys: switch, port, underlay, patch, bridge, node, rate, group, set, firewall"
            .to_owned()
    } else if names.contains(&last) {
        format!("it is elsewhere; try {last:?} alone")
    } else {
        let near: Vec<_> = near.iter().map(|name| format!("{name:?}")).collect();
        format!("did you mean {}?", near.join(" or "))
    };
    UnknownKey { word: query.to_owned(), hint }
}

impl Explanation {
    /// Returns the explanation as JSON: `section`, `kinds` (empty for a key of all kinds), `key`,
    /// `type`, `values`, `default`, `meaning` and `example`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Self { section, kinds, key } = self;
        serde_json::json!({
            "section": section,
            "kinds": kinds,
            "key": key.name,
            "type": key.value.type_name(),
            "values": plain(&key.value.describe()),
            "default": plain(&key.default.describe()),
            "meaning": plain(key.meaning),
            "example": self.example(),
        })
    }

    fn example(&self) -> String {
        format!("{} = {}", self.key.name, self.key.example)
    }
}

/// The explanation, at most 80 columns wide.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, kinds, key } = self;
        let mut place = format!("{} in {}", key.name, title(section));
        let kinds: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
        if !kinds.is_empty() {
            place += &format!(" with kind = {}", kinds.join(", "));
        }
        for (number, line) in wrap(&place, WIDTH - 4).iter().enumerate() {
            writeln!(f, "{}{line}", if number == 0 { "" } else { "    " })?;
        }
        for (name, text) in [
            ("type", key.value.type_name()),
            ("values", &plain(&key.value.describe())),
            ("default", &plain(&key.default.describe())),
            ("meaning", &plain(key.meaning)),
            ("example", &self.example()),
        ] {
            let lines = wrap(text, WIDTH - 12);
            for (number, line) in lines.iter().enumerate() {
                writeln!(f, "  {:<10}{line}", if number == 0 { name } else { "" })?;
            }
        }
        Ok(())
    }
}

/// Returns a text without its backticks.
pub(super) fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Returns the lines of a text, each at most `width` bytes long unless one word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
