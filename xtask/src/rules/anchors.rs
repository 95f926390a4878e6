//! The rule for links between documents: a link to a heading, or to another document, leads to one
//! that exists. Headings have the names that GitHub gives them.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the violations in all documents, by their paths.
pub(super) fn check(documents: &BTreeMap<String, String>) -> Vec<String> {
    let headings: BTreeMap<&str, BTreeSet<String>> =
        documents.iter().map(|(path, text)| (path.as_str(), names(text))).collect();
    let mut found = Vec::new();
    for (path, text) in documents {
        for (line, target) in prose(text).flat_map(|(at, line)| targets(line).map(move |target| (at, target))) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") || !(file.is_empty() || file.ends_with(".md")) {
                continue;
            }
            let to = if file.is_empty() { path.clone() } else { beside(path, file) };
            match headings.get(to.as_str()) {
                None => found.push(format!("{path}:{line}: there is no document {to}: name one that exists")),
                Some(names) if !heading.is_empty() && !names.contains(heading) => {
                    found.push(format!("{path}:{line}: {to} has no heading #{heading}: name one that it has"));
                }
                Some(_) => {}
            }
        }
    }
    found
}

/// Returns the lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = ["```", "~~~"].iter().any(|mark| line.trim_start().starts_with(mark));
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the names of the headings of a document. The second of two equal ones ends in `-1`.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some((marks, title)) = line.split_once(' ') else { continue };
        if !(1..=6).contains(&marks.len()) || marks.chars().any(|mark| mark != '#') {
            continue;
        }
        let name = name(title);
        let others = (1_u32..).map(|number| format!("{name}-{number}"));
        let free = [name.clone()].into_iter().chain(others).find(|name| !names.contains(name));
        names.extend(free);
    }
    names
}

/// Returns the name of a heading: letters, digits, underscores and hyphens of its text in lower
/// case, and a hyphen for each space.
fn name(title: &str) -> String {
    let mut text = title.trim().to_lowercase();
    // Of a link, the text counts.
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Returns the targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, mark)| {
        let target = &line[at + mark.len()..];
        target.find([')', ' ']).map(|end| &target[..end])
    })
}

/// Returns the path of a file that is named relative to a document.
fn beside(document: &str, file: &str) -> String {
    let mut path: Vec<&str> = document.split('/').collect();
    path.pop();
    for part in file.split('/') {
        match part {
            ".." => {
                path.pop();
            }
            "." => {}
            part => path.push(part),
        }
    }
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(documents: &[(&str, &str)]) -> Vec<String> {
        check(&documents.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn a_link_leads_to_a_heading_or_a_document() {
        let other =
            ("docs/other.md", "# Other\n\n## `kind = \"tap\"`, of a port\n\n## Twice\n## Twice\n## A [b](c.rs)\n");
        for target in [
            "other.md",
            "other.md#other",
            "./other.md#kind--tap-of-a-port",
            "sub/../other.md#twice-1",
            "other.md#a-b",
            "#this",
            "../crates/lab/src/lib.rs#L1",
            "https://example.org/other.md#none",
        ] {
            let text = format!("# This\n\nSee [it]({target}), and [it again]({target}).\n");
            assert_eq!(found(&[("docs/a.md", &text), other]), [""; 0], "{target}");
        }
    }

    #[test]
    fn a_link_to_nothing_is_a_violation() {
        let other = ("docs/other.md", "# Other\n```\n# Code\n```\n");
        let see = |target: &str| format!("# This\n\n| [it]({target}) |\n");
        for (target, expected) in [
            ("other.md#code", "docs/a.md:3: docs/other.md has no heading #code: name one that it has"),
            ("#other", "docs/a.md:3: docs/a.md has no heading #other: name one that it has"),
            ("../other.md", "docs/a.md:3: there is no document other.md: name one that exists"),
        ] {
            assert_eq!(found(&[("docs/a.md", &see(target)), other]), [expected]);
        }
        let fenced = format!("```\n{}```\n", see("none.md"));
        assert_eq!(found(&[("docs/a.md", &fenced), other]), [""; 0], "code has no links");
    }
}
