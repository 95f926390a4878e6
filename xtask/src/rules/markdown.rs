//! The rule for Markdown: lines of prose have at most [`LIMIT`] columns. The README has at most
//! [`README_LINES`] lines.
//!
//! Tables, headings and fenced code are not checked. The target of a link is not counted, because
//! it cannot be wrapped. A line with a single word passes for the same reason.

/// The limit, in characters.
const LIMIT: usize = 100;

/// The limit of the README, in lines: a reader finds his task within a minute.
const README_LINES: usize = 150;

/// Folders of documents that a program writes (`straightline lab exp`), which are not checked.
const GENERATED: [&str; 5] = [
    "docs/experiments/full/",
    "docs/experiments/quick/",
    "docs/experiments/tunnel/",
    "docs/experiments/zen4/",
    "docs/experiments/zen5/",
];

/// Returns the violations in one document.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    if GENERATED.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let lines = text.lines().count();
    if path == "README.md" && lines > README_LINES {
        found.push(format!("{path}: it has {lines} lines, the limit is {README_LINES}: move a part to docs/"));
    }
    let mut fence: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(mark) = fence {
            // A fence ends with at least as many marks as it began with, and nothing behind them.
            if trimmed.starts_with(mark) && trimmed.trim_end().trim_start_matches(&mark[..1]).is_empty() {
                fence = None;
            }
            continue;
        }
        fence = opened_fence(trimmed);
        if fence.is_some() || trimmed.starts_with('|') || is_heading(trimmed) || is_one_word(trimmed) {
            continue;
        }
        let length = without_targets(line).chars().count();
        if length > LIMIT {
            found.push(format!(
                "{path}:{}: the line has {length} columns, the limit for prose is {LIMIT}: wrap it",
                at + 1
            ));
        }
    }
    found
}

/// Returns the marks that open a block of code, if the line does.
fn opened_fence(trimmed: &str) -> Option<&str> {
    ['`', '~'].into_iter().find_map(|mark| {
        let length = trimmed.len() - trimmed.trim_start_matches(mark).len();
        // Another backtick behind backticks would close a code span in the same line.
        let is_fence = length >= 3 && !(mark == '`' && trimmed[length..].contains('`'));
        is_fence.then(|| &trimmed[..length])
    })
}

/// Returns true for a heading: one to six `#`, then a space.
fn is_heading(trimmed: &str) -> bool {
    let rest = trimmed.trim_start_matches('#');
    (1..=6).contains(&(trimmed.len() - rest.len())) && rest.starts_with(' ')
}

/// Returns whether a line has no place to wrap at. Such a line has one word behind the marks of a
/// list or a quotation, or it defines a link.
fn is_one_word(trimmed: &str) -> bool {
    let is_mark = |word: &str| {
        let number = word.strip_suffix(['.', ')']).unwrap_or_default();
        matches!(word, "-" | "*" | "+" | ">") || (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    let mut words = trimmed.split_whitespace().skip_while(|word| is_mark(word));
    let is_definition = trimmed.starts_with('[') && trimmed.contains("]: ");
    is_definition || (words.next().is_some() && words.next().is_none())
}

/// Returns the line without the targets of its links: `(...)` behind `]`, and bare addresses.
fn without_targets(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        kept.push_str(&rest[..=at]);
        let target = &rest[at + 1..];
        rest = closing(target).map_or("", |end| &target[end..]);
    }
    kept.push_str(rest);
    let is_address = |word: &str| word.contains("://");
    // A word that is an address leaves its space, as a wrapped line would.
    kept.split(' ').map(|word| if is_address(word) { "" } else { word }).collect::<Vec<_>>().join(" ")
}

/// Returns the place behind the bracket that closes the first one. Targets may contain pairs of
/// brackets.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at + 1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(length: usize) -> String {
        "word ".repeat(length / 5 + 1).chars().take(length - 1).chain(['x']).collect()
    }

    #[test]
    fn a_long_line_of_prose_is_a_violation() {
        let long = words(101);
        let found = check("a.md", &format!("# Title\n\n{long}\n"));
        assert_eq!(found, ["a.md:3: the line has 101 columns, the limit for prose is 100: wrap it"]);
        for text in [
            format!("- {}", words(99)),
            format!("#{}", words(100)),
            format!("```\n{long}\n```\n{long}"),
            format!("~~~~ sh\n~~~\n~~~~\n{long}"),
            format!("{} [text](target)", words(95)),
            format!("see `cargo` ```and``` {long}"),
            format!("{} [a](b(c)d) [a](b", words(99)),
        ] {
            assert_eq!(check("a.md", &text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_wrapped_is_none() {
        let long = words(200);
        for text in [
            words(100),
            "ü".repeat(60) + &words(40),
            format!("# {long}"),
            format!("| {long} |"),
            format!("  | {long} |"),
            format!("```sh\n{long}\n```"),
            format!("- item\n\n  ~~~\n  {long}\n  ~~~"),
            format!("````\n```\n{long}\n````"),
            format!("a [link]({}) and more", "x".repeat(200)),
            format!("- [link]({}(x))", "x".repeat(200)),
            format!("see https://example.org/{}", "x".repeat(200)),
            format!("[name]: https://example.org/ \"{long}\""),
            format!("  - {}", "x".repeat(200)),
            format!("12. {}", "x".repeat(200)),
        ] {
            assert_eq!(check("a.md", &text), [""; 0], "{text}");
        }
        assert_eq!(check("docs/experiments/quick/touch/table.md", &long), [""; 0]);
    }

    #[test]
    fn the_readme_alone_has_a_limit_of_lines() {
        assert_eq!(check("README.md", &"word\n".repeat(150)), [""; 0]);
        let found = check("README.md", &"word\n".repeat(151));
        assert_eq!(found, ["README.md: it has 151 lines, the limit is 150: move a part to docs/"]);
        assert_eq!(check("docs/api.md", &"word\n".repeat(151)), [""; 0]);
    }
}
