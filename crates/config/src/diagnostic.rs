//! Findings about a file: the place, the message, and the line.

use std::fmt;
use std::ops::Range;

/// The range of bytes in the file that a finding is about.
pub(super) type Span = Range<usize>;

/// A finding. It is displayed as `FILE:LINE: MESSAGE`, then the line of the file with a caret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1. `None` if the finding is about the whole file.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The message. It names the faulty key or value, says what is wrong with it, and what would be
    /// right.
    pub message: String,
    /// The line with a caret under the culprit. Empty if there is no line to show.
    pub excerpt: String,
}

impl Diagnostic {
    /// Creates a finding about the whole file.
    #[must_use]
    pub fn of_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), line: None, column: None, message, excerpt: String::new() }
    }

    /// Returns a finding at the same place with another message.
    pub(super) fn with_message(&self, message: String) -> Self {
        Self { message, ..self.clone() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message)?,
            None => write!(f, "{}: {}", self.file, self.message)?,
        }
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

/// All errors of a file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Diagnostic>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects the findings about one text.
pub(super) struct Findings<'t> {
    file: &'t str,
    text: &'t str,
    /// The places of the ends of lines. Each finding, and each socket, has a line.
    newlines: Vec<usize>,
    errors: Vec<(usize, Diagnostic)>,
    warnings: Vec<(usize, Diagnostic)>,
}

impl<'t> Findings<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at).collect();
        Self { file, text, newlines, errors: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn error(&mut self, span: &Span, message: impl Into<String>) {
        let found = self.site(span).with_message(message.into());
        self.errors.push((span.start, found));
    }

    pub(super) fn warn(&mut self, span: &Span, message: impl Into<String>) {
        let found = self.site(span).with_message(message.into());
        self.warnings.push((span.start, found));
    }

    pub(super) fn warn_file(&mut self, message: impl Into<String>) {
        self.warnings.push((0, Diagnostic::of_file(self.file, message.into())));
    }

    /// Returns whether an error points into this part of the file. What depends on the part is unknown
    /// then, and a finding about it would mislead.
    pub(super) fn has_error_in(&self, span: &Span) -> bool {
        self.errors.iter().any(|(start, _)| *start == span.start || span.contains(start))
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns the errors in the file's order.
    pub(super) fn into_errors(mut self) -> ConfigErrors {
        self.errors.sort_by_key(|(start, _)| *start);
        ConfigErrors(self.errors.into_iter().map(|(_, error)| error).collect())
    }

    /// Returns the warnings in the file's order.
    pub(super) fn into_warnings(mut self) -> Vec<Diagnostic> {
        self.warnings.sort_by_key(|(start, _)| *start);
        self.warnings.into_iter().map(|(_, warning)| warning).collect()
    }

    /// Returns the line that a span begins on, from 1.
    pub(super) fn line(&self, span: &Span) -> usize {
        let start = self.before(span.start).len();
        self.newlines.partition_point(|&newline| newline < start) + 1
    }

    /// Returns a finding at this place with an empty message.
    pub(super) fn site(&self, span: &Span) -> Diagnostic {
        let before = self.before(span.start);
        let number = self.line(span);
        let line_start = number.checked_sub(2).map_or(0, |last| self.newlines[last] + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        let lead = before.len() - line_start;
        let marked = self.before(span.end).len().saturating_sub(before.len());
        Diagnostic {
            file: self.file.to_owned(),
            line: Some(number),
            column: Some(before[line_start..].chars().count() + 1),
            message: String::new(),
            excerpt: excerpt(number, line, lead, marked),
        }
    }

    /// Returns the text before this byte, or before the character that contains it.
    fn before(&self, byte: usize) -> &'t str {
        &self.text[..self.text.floor_char_boundary(byte)]
    }
}

/// The maximum number of characters of a line that an excerpt shows.
const EXCERPT_WIDTH: usize = 88;

/// Renders `line` with its number, and carets under the `marked` bytes that begin at byte `lead`.
fn excerpt(number: usize, line: &str, lead: usize, marked: usize) -> String {
    if line.trim().is_empty() {
        return String::new();
    }
    let characters = |bytes: usize| line[..line.floor_char_boundary(bytes)].chars().count();
    // A culprit of several lines is marked on the first one.
    let end = characters(lead.saturating_add(marked));
    let lead = characters(lead);
    let marked = end - lead;
    // A long line is cut to the part around the culprit.
    let first = if lead + marked.min(20) < EXCERPT_WIDTH { 0 } else { lead - lead.min(20) };
    let pad = lead - first;
    // Control characters would move the caret or, worse, the terminal's cursor.
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let window: String = line.chars().skip(first).take(EXCERPT_WIDTH).map(shown).collect();
    let carets = "^".repeat(marked.clamp(1, EXCERPT_WIDTH - pad));
    let number = number.to_string();
    let gutter = " ".repeat(number.len());
    format!("  {number} | {window}\n  {gutter} | {:pad$}{carets}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_at_the_culprit() {
        let text = "a = 1\nports = [\"ä\", \"vm9\"]\n";
        let start = text.find("\"vm9\"").unwrap();
        let mut report = Findings::new("x.toml", text);
        report.error(&(start..start + 5), "no such port");
        let expected = "x.toml:2: no such port\n  2 | ports = [\"ä\", \"vm9\"]\n    |               ^^^^^";
        let errors = report.into_errors();
        assert_eq!(errors.to_string(), expected);
        assert_eq!(errors.0[0].column, Some(15));
    }

    #[test]
    fn any_span_of_any_text_gives_a_finding() {
        let long = format!("k = \"{}\"", "x".repeat(500));
        for text in ["", "\n", "ä", "a\tb\r\n\u{1b}[2J = 1", "\n\n\n", long.as_str()] {
            let mut report = Findings::new("f", text);
            for start in 0..text.len() + 3 {
                for end in [start, start + 1, start + 2, text.len(), 0, usize::MAX] {
                    report.error(&(start..end), "m");
                }
            }
            for error in report.into_errors().0 {
                assert!(error.line.is_some());
                assert!(error.excerpt.lines().all(|line| line.chars().count() <= EXCERPT_WIDTH + 10), "{error}");
                assert!(!error.excerpt.contains('\u{1b}'));
            }
        }
    }

    #[test]
    fn findings_are_sorted_by_place() {
        let mut report = Findings::new("f", "a\nb\nc");
        report.error(&(4..5), "third");
        report.error(&(0..1), "first");
        let lines: Vec<_> = report.into_errors().0.iter().map(|error| error.line).collect();
        assert_eq!(lines, [Some(1), Some(3)]);
    }
}
