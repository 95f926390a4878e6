//! Mistakes in the text of a rule or a flow.

use std::fmt;

/// Length of a word in a message.
const SHOWN: usize = 60;

/// A mistake in a text: the word, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    /// Word with the mistake, cut if it is long. It is empty if a word is missing.
    pub word: String,
    /// The mistake and the remedy, as a sentence that begins with the word.
    pub problem: String,
}

impl RuleError {
    /// Creates a mistake in a word.
    #[must_use]
    pub fn new(word: &str, problem: impl Into<String>) -> Self {
        let mut shown: String = word.chars().take(SHOWN).collect();
        if shown.len() < word.len() {
            shown.push('…');
        }
        Self { word: shown, problem: problem.into() }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.word.is_empty() {
            write!(f, "`{}` ", self.word.escape_debug())?;
        }
        f.write_str(&self.problem)
    }
}
