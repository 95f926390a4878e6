//! Words of a text, one after the other, and the values that rules and flows share.

use crate::error::RuleError;
use crate::words::names;

/// The most bytes of a rule's text.
pub const MAX_TEXT: usize = 8192;

/// The words of a text that are left.
#[derive(Clone, Debug)]
pub(crate) struct Tokens<'t> {
    words: std::iter::Peekable<std::str::SplitWhitespace<'t>>,
    /// The last word that was taken.
    last: &'t str,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(text: &'t str) -> Result<Self, RuleError> {
        if text.len() > MAX_TEXT {
            return Err(RuleError::new(
                "",
                format!("the text has more than {MAX_TEXT} bytes: use a set for its peers"),
            ));
        }
        Ok(Self { words: text.split_whitespace().peekable(), last: "" })
    }

    /// Takes the next word.
    pub(crate) fn next(&mut self) -> Option<&'t str> {
        let word = self.words.next()?;
        self.last = word;
        Some(word)
    }

    /// Returns the next word.
    pub(crate) fn peek(&mut self) -> Option<&'t str> {
        self.words.peek().copied()
    }

    /// Takes the next word if it is this one.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        if is_it {
            self.next();
        }
        is_it
    }

    /// Takes the next word, which must be there. `what` says what it is, with an example.
    pub(crate) fn require(&mut self, what: &str) -> Result<&'t str, RuleError> {
        let last = self.last;
        self.next().ok_or_else(|| RuleError::new(last, format!("is followed by nothing: add {what}")))
    }

    /// Takes a list with commas. Spaces may follow a comma.
    pub(crate) fn list(&mut self, what: &str) -> Result<String, RuleError> {
        let mut list = self.require(what)?.to_owned();
        while list.ends_with(',') || self.peek().is_some_and(|word| word.starts_with(',')) {
            list.push_str(self.require(what)?);
        }
        Ok(list)
    }

    /// Reports a word that is left.
    pub(crate) fn end(&mut self, known: &str) -> Result<(), RuleError> {
        match self.next() {
            Some(word) => Err(RuleError::new(word, format!("is unknown here: {known}"))),
            None => Ok(()),
        }
    }

    /// Takes a type of ICMP: a name, or `type` and a number; then, if it follows, `code` and a number.
    pub(crate) fn icmp(&mut self, types: &[(&'static str, u8)]) -> Result<Option<(u8, Option<u8>)>, RuleError> {
        let Some(word) = self.peek() else { return Ok(None) };
        let kind = if let Some((_, kind)) = types.iter().find(|(name, _)| *name == word) {
            self.next();
            *kind
        } else if word == "type" {
            self.next();
            number(self.require("a number, such as `8`")?, "type")?
        } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RuleError::new(word, format!("is a bare number: write `type {word}`")));
        } else if ["from", "to", "name", "log"].contains(&word) {
            return Ok(None);
        } else {
            let known = names(types);
            return Err(RuleError::new(word, format!("is no type: write `type` and a number, or one of {known}")));
        };
        let code = if self.take("code") { Some(number(self.require("a number, such as `4`")?, "code")?) } else { None };
        Ok(Some((kind, code)))
    }
}

/// Reads a number of 8 or 16 bits in decimal digits.
pub(crate) fn number<T>(text: &str, what: &str) -> Result<T, RuleError>
where
    T: std::str::FromStr + Bounded,
{
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = || RuleError::new(text, format!("is no {what}: write a number from 0 to {}", T::GREATEST));
    text.parse().ok().filter(|_| is_number).ok_or_else(wrong)
}

/// A number with a greatest value.
pub(crate) trait Bounded {
    const GREATEST: u16;
}

impl Bounded for u8 {
    const GREATEST: u16 = 0xff;
}

impl Bounded for u16 {
    const GREATEST: u16 = 0xffff;
}

/// Reads an EtherType's number, such as `0x88b5`.
pub(crate) fn ether_type(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0x")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_number)
}
