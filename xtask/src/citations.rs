//! Citations: comments beside code and tests that name a sentence of a specification.
//!
//! `docs/citations` has a file for each specification, with its sentences in our own words. A
//! comment `// Cites ID.` or `// Cites ID, ID.` stands above the code that meets the sentence, and
//! above the test that would fail without it. The report shows which sentences have neither.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::rules;
use crate::source;

/// The folder of the specifications' sentences.
const FOLDER: &str = "docs/citations";

/// The sentences of one specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Specification {
    /// Name and version.
    pub(crate) name: String,
    /// Address of the text.
    pub(crate) source: String,
    #[serde(rename = "sentence")]
    pub(crate) sentences: Vec<Sentence>,
}

/// A sentence that asks something of a device, a driver or one of the two ends of vhost-user.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sentence {
    pub(crate) id: String,
    /// The section, as the specification numbers or names it.
    pub(crate) section: String,
    /// The requirement in our own words.
    pub(crate) says: String,
    /// The reason why the sentence needs neither code nor test here.
    pub(crate) waived: Option<String>,
}

/// A place that cites a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    /// Path and line.
    pub(crate) place: String,
    /// The id as written: any word.
    pub(crate) id: String,
    pub(crate) is_test: bool,
}

/// Reads the specifications of the workspace at `root`, by their paths.
pub(crate) fn specifications(root: &Path) -> Result<BTreeMap<String, Specification>> {
    let mut texts = BTreeMap::new();
    rules::files(root, &root.join(FOLDER), "toml", &mut texts)?;
    let parsed = texts.into_iter().map(|(path, text)| {
        let specification = toml::from_str(&text).with_context(|| format!("cannot parse {path}"))?;
        Ok((path, specification))
    });
    parsed.collect()
}

/// Returns the citations in a source, in the order of their lines.
pub(crate) fn citations(path: &str, source: &str) -> Vec<Citation> {
    let comments = source::plain_comments(source).into_iter();
    let lists: Vec<_> = comments.filter_map(|(at, comment)| Some((at, cited(comment)?))).collect();
    if lists.is_empty() {
        return Vec::new();
    }
    let test_items = source::test_items(&source::code_only(source));
    let mut found = Vec::new();
    for (at, list) in lists {
        let line = 1 + source[..at].matches('\n').count();
        let is_test = is_test_file(path) || test_items.iter().any(|item| item.contains(&at));
        let named = list.split(", ").map(|id| Citation { place: format!("{path}:{line}"), id: id.to_owned(), is_test });
        found.extend(named);
    }
    found
}

/// Returns the list of ids in a comment that is a citation.
fn cited(comment: &str) -> Option<&str> {
    let text = comment.trim_start_matches('/').trim();
    let list = text.strip_prefix("Cites ")?;
    Some(list.strip_suffix('.').unwrap_or(list))
}

/// Returns whether a file has nothing but tests. By convention its name says so.
fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || ["tests.rs", "_loom.rs"].iter().any(|end| path.ends_with(end))
}

/// The places that cite one sentence.
#[derive(Debug, Default)]
struct Cited {
    code: Vec<String>,
    tests: Vec<String>,
}

/// Prints the report for the workspace at `root`: with `all`, every sentence and its places.
pub(crate) fn report(root: &Path, all: bool) -> Result<()> {
    let specifications = specifications(root)?;
    let sources = rules::sources(root)?;
    let found = sources.iter().flat_map(|(path, source)| citations(path, source));
    let text = render(&specifications, &by_id(found), all);
    print!("{text}");
    Ok(())
}

fn by_id(citations: impl IntoIterator<Item = Citation>) -> BTreeMap<String, Cited> {
    let mut cited: BTreeMap<String, Cited> = BTreeMap::new();
    for Citation { place, id, is_test } in citations {
        let entry = cited.entry(id).or_default();
        if is_test { entry.tests.push(place) } else { entry.code.push(place) }
    }
    cited
}

/// Returns the text of the report.
fn render(
    specifications: &BTreeMap<String, Specification>,
    cited: &BTreeMap<String, Cited>,
    shows_all: bool,
) -> String {
    let mut table = vec![row("specification", ["sentences", "with code", "with test", "neither", "waived"])];
    let mut lines = Vec::new();
    let none = Cited::default();
    for Specification { name, source, sentences } in specifications.values() {
        let mut counts = [sentences.len(), 0, 0, 0, 0];
        let [_, with_code, with_test, neither, waived] = &mut counts;
        let mut shown = Vec::new();
        for sentence in sentences {
            let Sentence { id, section, says, waived: reason } = sentence;
            let Cited { code, tests } = cited.get(id).unwrap_or(&none);
            if let Some(reason) = reason {
                *waived += 1;
                if shows_all {
                    shown.push(format!("  {id} ({section}): {says}\n      waived: {reason}"));
                }
                continue;
            }
            *with_code += usize::from(!code.is_empty());
            *with_test += usize::from(!tests.is_empty());
            *neither += usize::from(code.is_empty() && tests.is_empty());
            let lacks = match (code.is_empty(), tests.is_empty()) {
                (true, true) => ", no code and no test",
                (true, false) => ", no code",
                (false, true) => ", no test",
                (false, false) if shows_all => "",
                (false, false) => continue,
            };
            shown.push(format!("  {id} ({section}){lacks}: {says}"));
            if shows_all {
                shown.extend(code.iter().map(|place| format!("      code {place}")));
                shown.extend(tests.iter().map(|place| format!("      test {place}")));
            }
        }
        table.push(row(name, counts.each_ref().map(usize::to_string).each_ref().map(String::as_str)));
        if !shown.is_empty() {
            lines.push(format!("\n{name}\n({source})"));
            lines.append(&mut shown);
        }
    }
    let mut text = table.join("\n");
    text.push('\n');
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn row(name: &str, cells: [&str; 5]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
    format!("{name:<28}{cells}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_cite_and_documents_and_strings_do_not() {
        let source = "/// Cites a-1.\n//! Cites a-1.\nfn f() {\n    // Cites a-1, a-2.\n    g(); // Cites b-3.\n    \
                      // See also: Cites a-9.\n    let s = \"// Cites a-9.\";\n}\n\n#[cfg(test)]\nmod tests {\n    \
                      // Cites a-1.\n    fn t() {}\n}\n// Cites of other people\n";
        let found = citations("crates/x/src/a.rs", source);
        let found: Vec<_> = found.iter().map(|c| (c.place.as_str(), c.id.as_str(), c.is_test)).collect();
        let expected = [
            ("crates/x/src/a.rs:4", "a-1", false),
            ("crates/x/src/a.rs:4", "a-2", false),
            ("crates/x/src/a.rs:5", "b-3", false),
            ("crates/x/src/a.rs:12", "a-1", true),
            // The rule reports it.
            ("crates/x/src/a.rs:15", "of other people", false),
        ];
        assert_eq!(found, expected);
        for path in
            ["tests/peers/src/a.rs", "crates/x/tests/x/a.rs", "crates/x/src/a/tests.rs", "crates/x/src/a_loom.rs"]
        {
            assert!(citations(path, source).iter().all(|citation| citation.is_test), "{path}");
        }
    }

    #[test]
    fn the_report_counts_and_lists_what_is_missing() {
        let text = "name = \"N\"\nsource = \"S\"\n\
                    [[sentence]]\nid = \"n-1\"\nsection = \"1\"\nsays = \"One.\"\n\
                    [[sentence]]\nid = \"n-2\"\nsection = \"1\"\nsays = \"Two.\"\n\
                    [[sentence]]\nid = \"n-3\"\nsection = \"2\"\nsays = \"Three.\"\n\
                    [[sentence]]\nid = \"n-4\"\nsection = \"2\"\nsays = \"Four.\"\nwaived = \"Not ours.\"\n";
        let specifications = BTreeMap::from([("n.toml".to_owned(), toml::from_str(text).expect("a specification"))]);
        let citation = |id: &str, is_test| Citation { place: format!("{id}.rs:{is_test}"), id: id.to_owned(), is_test };
        let cited = by_id([citation("n-1", false), citation("n-1", true), citation("n-2", false)]);
        let short = render(&specifications, &cited, false);
        let counts: Vec<_> = short.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(counts, ["N", "4", "2", "1", "1", "1"]);
        let listed: Vec<_> = short.lines().skip(2).collect();
        assert_eq!(listed, ["", "N", "(S)", "  n-2 (1), no test: Two.", "  n-3 (2), no code and no test: Three."]);
        let long = render(&specifications, &cited, true);
        for part in
            ["  n-1 (1): One.\n      code n-1.rs:false\n      test n-1.rs:true\n", "Four.\n      waived: Not ours.\n"]
        {
            assert!(long.contains(part), "{part} in {long}");
        }
    }

    #[test]
    fn a_key_that_nobody_knows_is_an_error() {
        let text = "name = \"N\"\nsource = \"S\"\n[[sentence]]\nid = \"n-1\"\nsection = \"1\"\nsay = \"One.\"\n";
        assert!(toml::from_str::<Specification>(text).is_err());
    }
}
