//! Mistakes in the text of flows.

use std::fmt;

/// Length of a word in a message.
const SHOWN: usize = 60;

/// A mistake in the text of a flow: where it is, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FlowError {
    /// Line, from 1. It is 0 if the text is a single flow.
    pub line: usize,
    /// The word with the mistake, cut if it is long. It is empty if a word is missing.
    pub word: String,
    /// The mistake and the remedy, as a sentence that begins with the word.
    pub problem: String,
}

impl FlowError {
    /// Creates a mistake in a word.
    #[must_use]
    pub fn new(word: &str, problem: impl Into<String>) -> Self {
        let mut shown: String = word.chars().take(SHOWN).collect();
        if shown.len() < word.len() {
            shown.push('…');
        }
        Self { line: 0, word: shown, problem: problem.into() }
    }

    /// Returns the same mistake with its line.
    #[must_use]
    pub fn at(mut self, line: usize) -> Self {
        self.line = line;
        self
    }
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.word.is_empty() {
            write!(f, "`{}` ", self.word.escape_debug())?;
        }
        f.write_str(&self.problem)
    }
}
