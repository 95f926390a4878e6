//! Just enough of Rust's lexical grammar to tell code from comments and literals.

/// The lines (from 1) on which `word` stands as a word of its own in code.
pub(crate) fn lines_with_word(source: &str, word: &str) -> Vec<usize> {
    let code = code_only(source);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let has = |line: &str| line.split(|c| !is_part(c)).any(|part| part == word);
    let lines = code.lines().enumerate().filter(|(_, line)| has(line));
    lines.map(|(at, _)| at + 1).collect()
}

/// The source with every comment and literal blanked; lines stay where they are.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let skipped = if before.is_alphanumeric() || before == '_' { 0 } else { prefixed_literal(rest) };
        let length = match next {
            _ if skipped > 0 => skipped,
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest),
            '\'' => char_literal(rest),
            _ => 0,
        };
        if length == 0 {
            code.push(next);
            before = next;
            rest = &rest[next.len_utf8()..];
        } else {
            code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            before = ' ';
            rest = &rest[length..];
        }
    }
    code
}

/// The length of a literal with a prefix (`r"`, `br#"`, `c"`, `b'`), 0 where there is none.
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

/// Comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
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

/// The length of a character literal, 0 where the quote begins a lifetime.
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
}
