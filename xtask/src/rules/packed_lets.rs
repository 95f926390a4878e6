//! The rule for `let`: one binds one value. A tuple of several values on both sides hides which
//! belongs to which.

use crate::source;

/// Returns the lets of a source that bind several values by a tuple that is written out. Values that
/// change places need such a let.
pub(super) fn check(path: &str, source: &str) -> Vec<String> {
    let code = source::code_only(source);
    let mut violations = Vec::new();
    let mut line = 1;
    let mut seen = 0;
    for (start, _) in code.match_indices("let (") {
        line += code[seen..start].matches('\n').count();
        seen = start;
        if is_packed(source, &code, start + "let (".len()) {
            violations.push(format!("{path}:{line}: a `let` binds several values: write one `let` for each"));
        }
    }
    violations
}

/// Returns whether the let whose names begin at `start` has a written tuple on its right side.
fn is_packed(source: &str, code: &str, start: usize) -> bool {
    let Some(length) = code[start..].find(") = (") else { return false };
    let Some(names) = names(&code[start..start + length]) else { return false };
    let begin = start + length + ") = (".len();
    let Some((values, end)) = values(code, begin) else { return false };
    // A tuple with a method behind it, or with `else`, is no plain one.
    if !code[end..].starts_with(");") || values.len() != names.len() {
        return false;
    }
    // A text may name a value too, so the source counts, and not only its code.
    let uses = |range: &(usize, usize), name: &str| has_word(source.get(range.0..range.1).unwrap_or_default(), name);
    let swaps = names.iter().enumerate().any(|(at, name)| values[at + 1..].iter().any(|value| uses(value, name)));
    !swaps
}

/// Returns the names of a pattern that has plain names only, at least two.
fn names(pattern: &str) -> Option<Vec<&str>> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    let parts = pattern.trim_end().trim_end_matches(',').split(',');
    let names: Vec<_> = parts.map(|name| name.trim().trim_start_matches("mut ").trim()).collect();
    (names.len() > 1 && names.iter().all(|name| is_name(name) && *name != "_")).then_some(names)
}

/// Returns where each value of a tuple begins and ends, and where the tuple ends.
fn values(code: &str, begin: usize) -> Option<(Vec<(usize, usize)>, usize)> {
    let mut values = Vec::new();
    let mut depth = 0_u32;
    let mut generics = 0_u32;
    let mut first = begin;
    let bytes = code.as_bytes();
    for at in begin..bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if !code[first..at].trim().is_empty() {
                    values.push((first, at));
                }
                return Some((values, at));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            // Only behind a path does `<` begin generic arguments.
            b'<' if generics > 0 || code[..at].ends_with("::") => generics += 1,
            b'>' if generics > 0 && bytes[at - 1] != b'-' => generics -= 1,
            b',' if depth == 0 && generics == 0 => {
                values.push((first, at));
                first = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_let_binds_one_value() {
        let found = |source: &str| check("a.rs", source).len();
        assert_eq!(found("let (a, b) = (1, f(2, 3));"), 1);
        assert_eq!(found("\nlet (mut a, b) = (\n    Vec::<(u8, u8)>::new(),\n    \"x, y\",\n);"), 1);
        assert!(check("a.rs", "\n\nlet (a, b) = (1, 2);")[0].starts_with("a.rs:3: "));
    }

    #[test]
    fn values_that_change_places_and_patterns_may_stay() {
        for source in [
            "let (a, b) = (b, a);",
            "let (a, text) = (1, format!(\"{a}\"));",
            "let (a, b) = f(1, 2);",
            "let (Some(a), b) = (x, y) else { return };",
            "let (a, b) = (1, 2).into();",
            "let (a, _) = (x, y);",
            "// let (a, b) = (1, 2);",
        ] {
            assert_eq!(check("a.rs", source), [""; 0], "{source}");
        }
    }
}
