//! Words of a flow: what stands between commas or spaces.

use super::error::FlowError;

/// A word: a key, and mostly a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    /// The whole word.
    pub(crate) text: &'a str,
    /// The part before the value.
    pub(crate) key: &'a str,
    /// The value, without its parentheses.
    pub(crate) value: Option<&'a str>,
}

impl<'a> Word<'a> {
    fn new(text: &'a str) -> Self {
        // A quoted word is the name of a port.
        let delimiter = if text.starts_with('"') { None } else { text.find([':', '=', '(']) };
        let Some(at) = delimiter else {
            return Self { text, key: text, value: None };
        };
        let value = &text[at + 1..];
        let is_call = text.as_bytes()[at] == b'(';
        let value = if is_call { value.strip_suffix(')').unwrap_or(value) } else { value };
        Self { text, key: &text[..at], value: Some(value) }
    }

    /// Returns the value, or the mistake that there is none.
    pub(crate) fn needed(&self) -> Result<&'a str, FlowError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(FlowError::new(self.text, format!("has no value: write `{}=…`", self.key))),
        }
    }

    /// Creates a mistake in the word.
    pub(crate) fn wrong(&self, problem: impl Into<String>) -> FlowError {
        FlowError::new(self.text, problem)
    }
}

/// Splits text at commas and spaces, but not within parentheses or quotes.
pub(crate) fn words(text: &str) -> Result<Vec<Word<'_>>, FlowError> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if is_quoted {
            is_quoted = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => is_quoted = true,
            b'(' => depth += 1,
            b')' if depth == 0 => {
                return Err(FlowError::new(&text[start..=at], "closes a parenthesis that nobody opened"));
            }
            b')' => depth -= 1,
            b',' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => {
                words.extend((start < at).then(|| Word::new(&text[start..at])));
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || is_quoted {
        let missing = if is_quoted { '"' } else { ')' };
        return Err(FlowError::new(&text[start..], format!("does not end: add `{missing}`")));
    }
    words.extend((start < text.len()).then(|| Word::new(&text[start..])));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_commas_and_spaces() {
        let text = "tcp , tp_dst=80\tresubmit(,3),output:\"a,\\\"b\",load:1->NXM_NX_REG0[]";
        let found: Vec<_> = words(text).expect("words").iter().map(|word| (word.key, word.value)).collect();
        assert_eq!(
            found,
            [
                ("tcp", None),
                ("tp_dst", Some("80")),
                ("resubmit", Some(",3")),
                ("output", Some("\"a,\\\"b\"")),
                ("load", Some("1->NXM_NX_REG0[]")),
            ]
        );
        assert_eq!(words("\"vm:1\"").expect("words")[0].key, "\"vm:1\"");
        for (text, part) in [("a(b", "add `)`"), ("a=\"b", "add `\"`"), ("a)", "nobody opened")] {
            let error = words(text).expect_err("a mistake").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
