//! Typed access to a table of the file. Each value that does not fit is an error at its line.
//!
//! Every getter returns `None` for a key that is absent or wrong. For a wrong key, the getter also
//! adds an error to the findings. The reader continues with the default, to find further errors.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use straightline_api::distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Findings, Span};
use crate::{Mac, key};

/// A key of a table, as the parser returns it.
type Key<'t> = Spanned<Cow<'t, str>>;
/// A value of a table.
type Value<'t> = Spanned<DeValue<'t>>;

#[cfg(test)]
thread_local! {
    /// The keys that readers asked for on this thread: a test compares them with the table.
    pub(crate) static ASKED: std::cell::RefCell<std::collections::BTreeSet<String>> = const {
        std::cell::RefCell::new(std::collections::BTreeSet::new())
    };
}

/// A table with the name that messages give it.
pub(crate) struct Section<'t> {
    title: String,
    span: Span,
    table: &'t DeTable<'t>,
}

impl<'t> Section<'t> {
    /// Returns the file as a section.
    pub(crate) fn root(table: &'t Spanned<DeTable<'t>>) -> Self {
        Self { title: "the file".to_owned(), span: table.span(), table: table.get_ref() }
    }

    /// Returns the table that `key` holds as a section.
    pub(crate) fn open(title: String, key: &Key<'t>, value: &'t Value<'t>, report: &mut Findings<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Self { title, span: key.span(), table }),
            other => {
                report.error(&key.span(), format!("{title} must be a section, not {}", kind(other)));
                None
            }
        }
    }

    /// Returns the name of the section in messages.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the place where the section's name is first.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the keys and values, in the file's order.
    pub(crate) fn entries(&self) -> Vec<(&'t Key<'t>, &'t Value<'t>)> {
        in_order(self.table)
    }

    /// Adds an error for each key that is not one of these.
    pub(crate) fn only(&self, keys: &[key::Key], report: &mut Findings<'_>) {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        self.only_names(&names, report);
    }

    /// Adds an error for each key that has none of these names.
    pub(crate) fn only_names(&self, keys: &[&str], report: &mut Findings<'_>) {
        for (key, _) in self.entries() {
            let name = key.get_ref().as_ref();
            if keys.contains(&name) {
                continue;
            }
            let title = &self.title;
            let message = format!("unknown key {name:?} in {title}; {}", hint(name, keys, "keys"));
            report.error(&key.span(), message);
        }
    }

    /// Returns the value of a key, if it is there.
    pub(crate) fn get(&self, key: &str) -> Option<&'t Value<'t>> {
        #[cfg(test)]
        ASKED.with_borrow_mut(|asked| asked.insert(key.to_owned()));
        self.table.get(key)
    }

    /// Returns the text of a key.
    pub(crate) fn text(&self, key: &str, example: &str, report: &mut Findings<'_>) -> Option<Spanned<&'t str>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            other => self.wrong_type(key, value, other, "a string", example, report),
        }
    }

    /// Returns the text of a key that must be there.
    pub(crate) fn required_text(
        &self,
        key: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) -> Option<Spanned<&'t str>> {
        if self.get(key).is_none() {
            self.missing(key, example, report);
        }
        self.text(key, example, report)
    }

    /// Returns the MAC address of a key.
    pub(crate) fn mac(&self, key: &str, report: &mut Findings<'_>) -> Option<Spanned<Mac>> {
        let text = self.text(key, &format!("{key} = \"52:54:00:00:00:01\""), report)?;
        match text.get_ref().parse() {
            Ok(mac) => Some(Spanned::new(text.span(), mac)),
            Err(why) => {
                report.error(&text.span(), format!("{key} {:?} in {}: {why}", text.get_ref(), self.title));
                None
            }
        }
    }

    /// Returns the entries of a table, in the file's order. Empty if the key is absent.
    pub(crate) fn table(
        &self,
        key: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) -> Vec<(&'t Key<'t>, &'t Value<'t>)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Table(table) = value.get_ref() else {
            return self.wrong_type(key, value, value.get_ref(), "a table", example, report).unwrap_or_default();
        };
        in_order(table)
    }

    /// Returns the number of a key, if it is in range.
    pub(crate) fn integer<T>(
        &self,
        key: &str,
        range: RangeInclusive<T>,
        report: &mut Findings<'_>,
    ) -> Option<Spanned<T>>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let value = self.get(key)?;
        let DeValue::Integer(digits) = value.get_ref() else {
            let example = format!("{key} = {}", range.end());
            return self.wrong_type(key, value, value.get_ref(), "an integer", &example, report);
        };
        let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        match number.and_then(|number| T::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(number) => Some(Spanned::new(value.span(), number)),
            None => {
                let low = range.start();
                let high = range.end();
                let message = format!("{key} {digits} in {}: out of range; it must be {low} to {high}", self.title);
                report.error(&value.span(), message);
                None
            }
        }
    }

    /// Returns the number of a key if it is in range, or `None` in its place for this word.
    pub(crate) fn integer_or<T>(
        &self,
        key: &str,
        range: RangeInclusive<T>,
        word: &str,
        report: &mut Findings<'_>,
    ) -> Option<Spanned<Option<T>>>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let value = self.get(key)?;
        let expected = format!("an integer or {word:?}");
        match value.get_ref() {
            DeValue::Integer(_) => {
                let number = self.integer(key, range, report)?;
                Some(Spanned::new(number.span(), Some(number.into_inner())))
            }
            DeValue::String(text) if text == word => Some(Spanned::new(value.span(), None)),
            DeValue::String(text) => {
                let message = format!("{key} {text:?} in {}: it must be {expected}", self.title);
                report.error(&value.span(), message);
                None
            }
            other => self.wrong_type(key, value, other, &expected, &format!("{key} = {word:?}"), report),
        }
    }

    /// Returns the boolean of a key.
    pub(crate) fn boolean(&self, key: &str, report: &mut Findings<'_>) -> Option<Spanned<bool>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(truth) => Some(Spanned::new(value.span(), *truth)),
            other => self.wrong_type(key, value, other, "true or false", &format!("{key} = true"), report),
        }
    }

    /// Returns the choice that a key names.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
        report: &mut Findings<'_>,
    ) -> Option<Spanned<T>> {
        let first = choices.first().map_or("", |(word, _)| word);
        let text = self.text(key, &format!("{key} = {first:?}"), report)?;
        let word = *text.get_ref();
        if let Some((_, choice)) = choices.iter().find(|(candidate, _)| *candidate == word) {
            return Some(Spanned::new(text.span(), *choice));
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let message = format!("{key} {word:?} in {}: unknown; {}", self.title, hint(word, &words, "known"));
        report.error(&text.span(), message);
        None
    }

    /// Returns the elements of an array of texts. `None` if the key is absent or not an array.
    pub(crate) fn texts(
        &self,
        key: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) -> Option<Spanned<Vec<Spanned<&'t str>>>> {
        let value = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            return self.wrong_type(key, value, value.get_ref(), "an array of strings", example, report);
        };
        let mut texts = Vec::new();
        for element in array.iter() {
            match element.get_ref() {
                DeValue::String(text) => texts.push(Spanned::new(element.span(), text.as_ref())),
                other => self.wrong_element(key, element, other, "strings", example, report),
            }
        }
        Some(Spanned::new(value.span(), texts))
    }

    /// Returns the elements of an array of tables as sections. Empty if the key is absent.
    pub(crate) fn sections(&self, key: &str, example: &str, report: &mut Findings<'_>) -> Vec<Section<'t>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            let found = value.get_ref();
            return self.wrong_type(key, value, found, "an array of tables", example, report).unwrap_or_default();
        };
        let mut sections = Vec::new();
        for (at, element) in array.iter().enumerate() {
            match element.get_ref() {
                DeValue::Table(table) => {
                    let title = format!("{key} {} of {}", at + 1, self.title);
                    sections.push(Section { title, span: element.span(), table });
                }
                other => self.wrong_element(key, element, other, "tables", example, report),
            }
        }
        sections
    }

    /// Returns the elements of an array of numbers, none of them negative.
    pub(crate) fn numbers(
        &self,
        key: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) -> Option<Spanned<Vec<Spanned<usize>>>> {
        let value = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            return self.wrong_type(key, value, value.get_ref(), "an array of integers", example, report);
        };
        let mut numbers = Vec::new();
        for element in array.iter() {
            let DeValue::Integer(digits) = element.get_ref() else {
                self.wrong_element(key, element, element.get_ref(), "integers", example, report);
                continue;
            };
            match usize::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(number) => numbers.push(Spanned::new(element.span(), number)),
                Err(_) => {
                    let message =
                        format!("{digits} in {key} of {}: out of range; write for example {example}", self.title);
                    report.error(&element.span(), message);
                }
            }
        }
        Some(Spanned::new(value.span(), numbers))
    }

    /// Returns the place of an unknown key of the section that is probably this one, misspelled.
    fn misspelled(&self, key: &str, report: &Findings<'_>) -> Option<Span> {
        let mut near = self.table.keys().filter(|name| is_near(name.get_ref(), key)).map(Spanned::span);
        near.find(|span| report.has_error_in(span)).filter(|_| !self.table.contains_key(key))
    }

    /// Returns whether an unknown key of the section is probably this one, misspelled.
    pub(crate) fn has_misspelled(&self, key: &str, report: &Findings<'_>) -> bool {
        self.misspelled(key, report).is_some()
    }

    /// Returns the place of a key's value, or of the key if it is misspelled.
    pub(crate) fn place(&self, key: &str, report: &Findings<'_>) -> Option<Span> {
        self.get(key).map(Spanned::span).or_else(|| self.misspelled(key, report))
    }

    /// Returns whether a key is misspelled, or its value has an error.
    pub(crate) fn is_wrong(&self, key: &str, report: &Findings<'_>) -> bool {
        self.place(key, report).is_some_and(|span| report.has_error_in(&span))
    }

    /// Adds an error: the section lacks a key. A key that is only misspelled has an error already.
    pub(crate) fn missing(&self, key: &str, example: &str, report: &mut Findings<'_>) {
        if self.has_misspelled(key, report) {
            return;
        }
        report.error(&self.span, format!("{} has no {key:?}; add for example {example}", self.title));
    }

    pub(crate) fn wrong_type<T>(
        &self,
        key: &str,
        value: &Value<'_>,
        found: &DeValue<'_>,
        expected: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) -> Option<T> {
        let found = kind(found);
        let message = format!("{key} in {} is {found}; it must be {expected}, for example {example}", self.title);
        report.error(&value.span(), message);
        None
    }

    fn wrong_element(
        &self,
        key: &str,
        element: &Value<'_>,
        found: &DeValue<'_>,
        expected: &str,
        example: &str,
        report: &mut Findings<'_>,
    ) {
        let found = kind(found);
        let message = format!("{key} in {} holds {found}; it must hold {expected}, for example {example}", self.title);
        report.error(&element.span(), message);
    }
}

/// Returns the entries of a table, in the file's order.
fn in_order<'t>(table: &'t DeTable<'t>) -> Vec<(&'t Key<'t>, &'t Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Returns the sections `[family.NAME]` of a file, in its order, each with its checked name. A name
/// that is not valid and a family that is not a table are errors.
pub(crate) fn named<'t>(family: &str, value: &'t Value<'t>, report: &mut Findings<'_>) -> Vec<(&'t str, Section<'t>)> {
    let DeValue::Table(table) = value.get_ref() else {
        let message = format!("{family} is {}; write a section [{family}.NAME]", kind(value.get_ref()));
        report.error(&value.span(), message);
        return Vec::new();
    };
    let family_section = Section { title: format!("[{family}]"), span: value.span(), table };
    let mut sections = Vec::new();
    let mut has_keys = false;
    for (key, value) in family_section.entries() {
        let name = key.get_ref().as_ref();
        let DeValue::Table(_) = value.get_ref() else {
            let found = kind(value.get_ref());
            let message = format!("{name:?} in [{family}] is {found}; write keys below a name, as in [{family}.NAME]");
            // One section without a name may have many keys.
            if !has_keys {
                report.error(&key.span(), message);
            }
            has_keys = true;
            continue;
        };
        if !is_name(name) {
            let message = format!("{family} {name:?}: not a valid name; use 1 to 32 of A-Z a-z 0-9 _ . -");
            report.error(&key.span(), message);
        }
        // The section is read even if its name is not valid. The rest of it may be wrong too, and
        // other sections may refer to it.
        sections.extend(Section::open(format!("{family} {name:?}"), key, value, report).map(|section| (name, section)));
    }
    sections
}

/// Returns a hint at what would be right: the candidate that `word` probably misspells, or all
/// candidates.
pub(crate) fn hint(word: &str, candidates: &[&str], what: &str) -> String {
    let near = candidates.iter().map(|candidate| (distance(word, candidate), *candidate)).min();
    match near {
        Some((_, candidate)) if is_near(word, candidate) => format!("did you mean {candidate:?}?"),
        _ => format!("{what} are {}", candidates.join(", ")),
    }
}

/// Returns whether `word` is probably `candidate`, misspelled.
fn is_near(word: &str, candidate: &str) -> bool {
    let distance = distance(word, candidate);
    distance <= 2 && distance * 2 < candidate.len().min(word.len())
}

/// Returns the name of a value's type with its article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Returns whether a name is valid. Names are in messages, counters and tables, so they are short
/// and plain.
pub fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints() {
        assert_eq!(hint("sokcet", &["kind", "socket"], "keys"), "did you mean \"socket\"?");
        assert_eq!(hint("colour", &["kind", "socket"], "keys"), "keys are kind, socket");
        assert_eq!(hint("x", &["a", "b"], "keys"), "keys are a, b");
    }

    #[test]
    fn names() {
        for good in ["a", "vm-1_x.y", "0123456789abcdef0123456789abcdef"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "ä", "a/b", "0123456789abcdef0123456789abcdef0"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
