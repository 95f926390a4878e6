//! A small part of Rust's lexical grammar: it separates code, comments and literals.

use std::ops::Range;

/// Returns the lines (from 1) that contain `word` as a word of its own in code.
pub(crate) fn lines_with_word(source: &str, word: &str) -> Vec<usize> {
    let code = code_only(source);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let contains_word = |line: &str| line.split(|c| !is_part(c)).any(|part| part == word);
    let lines = code.lines().enumerate().filter(|(_, line)| contains_word(line));
    lines.map(|(at, _)| at + 1).collect()
}

/// Returns the source with spaces in place of every comment and literal. Line numbers and the places
/// of bytes stay the same.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for (kind, text) in parts(source) {
        match kind {
            Kind::Code => code.push_str(text),
            Kind::Comment | Kind::Literal => {
                code.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }))
            }
        }
    }
    code
}

/// Returns the literals of a source, each with its place.
pub(crate) fn literals(source: &str) -> Vec<(usize, &str)> {
    let mut place = 0;
    let mut literals = Vec::new();
    for (kind, text) in parts(source) {
        if kind == Kind::Literal {
            literals.push((place, text));
        }
        place += text.len();
    }
    literals
}

/// Returns the comments of a source that document nothing, each with its place.
pub(crate) fn plain_comments(source: &str) -> Vec<(usize, &str)> {
    let mut place = 0;
    let mut comments = Vec::new();
    for (kind, text) in parts(source) {
        // Four slashes begin an ordinary comment.
        let is_doc = text.starts_with("//!") || text.starts_with("///") && !text.starts_with("////");
        if kind == Kind::Comment && !is_doc {
            comments.push((place, text));
        }
        place += text.len();
    }
    comments
}

/// Returns the places of the items that only tests have, in code without comments and literals.
pub(crate) fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        if items.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let rest = &code[at..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => block_end(rest, open),
            (_, semicolon) => semicolon.map_or(rest.len(), |semicolon| semicolon + 1),
        };
        items.push(at..at + end);
    }
    items
}

/// Returns the end of a block that begins with the brace at `open`.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_i32;
    for (at, c) in code[open..].char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

/// Returns the first line with text of each block of `///` or `//!` comments, with its number (from
/// 1).
pub(crate) fn doc_blocks(source: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut number = 1;
    // The open block: its marker, the number of its next line, and whether a line with text was
    // found.
    let mut open: Option<(&str, usize, bool)> = None;
    for (kind, part) in parts(source) {
        let marker = ["///", "//!"].into_iter().find(|marker| part.starts_with(marker));
        // Four slashes begin an ordinary comment.
        let marker = marker.filter(|_| kind == Kind::Comment && !part.starts_with("////"));
        if let Some(marker) = marker {
            let continued = open.is_some_and(|(last, next, _)| last == marker && next == number);
            let found = continued && open.is_some_and(|(_, _, found)| found);
            let text = part[marker.len()..].trim();
            if !found && !text.is_empty() {
                blocks.push((number, text.to_owned()));
            }
            open = Some((marker, number + 1, found || !text.is_empty()));
        }
        number += part.matches('\n').count();
    }
    blocks
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Returns the source in parts, in order. A line comment ends before its line break.
fn parts(source: &str) -> Vec<(Kind, &str)> {
    let mut parts = Vec::new();
    let mut code = 0;
    let mut at = 0;
    let mut before = ' ';
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let prefixed = if before.is_alphanumeric() || before == '_' { 0 } else { prefixed_literal(rest) };
        let (kind, length) = match next {
            _ if prefixed > 0 => (Kind::Literal, prefixed),
            '/' if rest.starts_with("//") => (Kind::Comment, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (Kind::Comment, block_comment(rest)),
            '"' => (Kind::Literal, quoted(rest)),
            '\'' => (Kind::Literal, char_literal(rest)),
            _ => (Kind::Code, 0),
        };
        if length == 0 {
            before = next;
            at += next.len_utf8();
        } else {
            if code < at {
                parts.push((Kind::Code, &source[code..at]));
            }
            parts.push((kind, &rest[..length]));
            before = ' ';
            at += length;
            code = at;
        }
    }
    if code < at {
        parts.push((Kind::Code, &source[code..at]));
    }
    parts
}

/// Returns the length of a literal with a prefix (`r"`, `br#"`, `c"`, `b'`), or 0 if there is none.
fn prefixed_literal(text: &str) -> usize {
    for prefix in ["r", "br", "cr"] {
        let Some(rest) = text.strip_prefix(prefix) else {
            continue;
        };
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        if rest[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = prefix.len() + hashes + 1;
            return text[start..].find(&end).map_or(text.len(), |at| start + at + end.len());
        }
    }
    match text.as_bytes() {
        [b'b' | b'c', b'"', ..] => 1 + quoted(&text[1..]),
        [b'b', b'\'', ..] => 1 + char_literal(&text[1..]),
        _ => 0,
    }
}

/// Returns the length of a block comment. Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Returns the length of a string literal.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal, or 0 if the quote begins a lifetime.
fn char_literal(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character may be a quote itself.
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(text.len(), |(at, _)| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_code_is_found() {
        for code in [
            "unsafe { x() }",
            "pub unsafe fn f() {}",
            "#[unsafe(no_mangle)]",
            "let c = '\"'; unsafe {}",
            "let c = '\\''; unsafe {}",
            "fn f<'a>(x: &'a str) { unsafe {} }",
            "/* /* nested */ */ unsafe impl Send for X {}",
            "let s = r#\"a \" b\"#; unsafe {}",
            "let s = \"\\\\\"; unsafe {}",
            "let bar = b'\\''; unsafe {}",
        ] {
            assert_eq!(lines_with_word(code, "unsafe"), [1], "{code}");
        }
    }

    #[test]
    fn a_word_elsewhere_is_not() {
        for text in [
            "// unsafe",
            "/// unsafe\nfn f() {}",
            "/* unsafe /* unsafe */ unsafe */",
            "let s = \"unsafe\";",
            "let s = \"\\\"unsafe\";",
            "let s = r\"\\\" ; let t = r#\"unsafe\"#;",
            "let s = b\"unsafe\"; let t = br##\"unsafe\"# unsafe\"##; let u = c\"unsafe\";",
            "#![forbid(unsafe_code)]",
            "fn not_unsafe() {}",
        ] {
            assert_eq!(lines_with_word(text, "unsafe"), [0_usize; 0], "{text}");
        }
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let text = "/*\n\n*/ let s = \"\n\";\nunsafe {}\n// unsafe\nlet r#fn = 1; unsafe {}";
        assert_eq!(lines_with_word(text, "unsafe"), [5, 7]);
    }

    #[test]
    fn doc_blocks_begin_with_their_first_text() {
        let text = "//! Crate.\n//! More.\n\n///\n/// Late.\n/// More.\nfn f() {\n    /// Inner.\n    let s = \"\n/// no\n\";\n\
                    // no\n//// no\n/// After.\n//! Other.\n}\n/// Last.";
        let blocks = doc_blocks(text);
        let blocks: Vec<(usize, &str)> = blocks.iter().map(|(line, text)| (*line, text.as_str())).collect();
        let expected = [(1, "Crate."), (5, "Late."), (8, "Inner."), (14, "After."), (15, "Other."), (17, "Last.")];
        assert_eq!(blocks, expected);
        assert_eq!(doc_blocks("/// One.\nx\n/// Two."), [(1, "One.".to_owned()), (3, "Two.".to_owned())]);
    }
}
