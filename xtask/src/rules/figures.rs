//! The rule for figures: each page of `docs/experiments` and `docs/benchmarks` begins with the commit
//! of its figures, and with the code that they measure. Code hosts show these lines as a table:
//!
//! ```text
//! ---
//! figures of commit: fc3bcd17
//! measured code: crates/simd/src, crates/lab/src/experiments/width.rs
//! ---
//! ```
//!
//! - Words behind the commits are free, as in `6035a3c0, or earlier`. With several commits, the one
//!   with the oldest figures decides.
//! - A page without figures of its own has `none` and a reason, and no measured code.
//! - A page is *old* if at least [`OLD`] commits have changed the measured code since. That is a note:
//!   no change of code may wait for measurements. Front matter that is missing, or names what does not
//!   exist, is a violation.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::git;

/// The folders of pages with figures.
const FOLDERS: [&str; 2] = ["docs/experiments/", "docs/benchmarks/"];

/// The fewest commits that make figures old. Fewer are mostly words and moves.
const OLD: usize = 10;

const COMMIT: &str = "figures of commit";
const CODE: &str = "measured code";

/// The front matter of a page with figures.
#[derive(Debug, Default, PartialEq, Eq)]
struct FrontMatter {
    commits: Vec<String>,
    code: Vec<String>,
}

/// The age of the figures of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Age {
    page: String,
    commit: String,
    /// The number of commits that have changed the measured code since.
    changes: usize,
}

/// Returns the violations that need no history.
pub(super) fn check(root: &Path, documents: &BTreeMap<String, String>) -> Vec<String> {
    let mut violations = Vec::new();
    for (path, text) in pages(documents) {
        match front_matter(text) {
            Ok(page) => violations.extend(
                page.code
                    .iter()
                    .filter(|code| !root.join(code).exists())
                    .map(|code| format!("{path}: there is no {code}: name the code that has what the figures measure")),
            ),
            Err(why) => violations.push(format!("{path}: {why}")),
        }
    }
    violations
}

/// Returns the age of the figures of each page, and the violations that only the history shows.
///
/// # Errors
/// There is no history, or only a part of it.
pub(super) fn ages(root: &Path, documents: &BTreeMap<String, String>) -> Result<(Vec<Age>, Vec<String>)> {
    let shallow = git::ask(root, &["rev-parse", "--is-shallow-repository"])?;
    ensure!(shallow.trim() == "false", "this clone is shallow: fetch the whole history (`git fetch --unshallow`)");
    let mut ages = Vec::new();
    let mut violations = Vec::new();
    for (path, text) in pages(documents) {
        let Ok(page) = front_matter(text) else { continue };
        let mut oldest: Option<Age> = None;
        for commit in page.commits {
            if git::ask(root, &["merge-base", "--is-ancestor", &commit, "HEAD"]).is_err() {
                violations.push(format!(
                    "{path}: commit {commit} is not in the history of this branch: name the one that was measured"
                ));
                continue;
            }
            let range = format!("{commit}..HEAD");
            let code = page.code.iter().map(String::as_str);
            let count = ["rev-list", "--count", &range, "--"].into_iter().chain(code).collect::<Vec<_>>();
            let changes = git::ask(root, &count)?.trim().parse()?;
            if oldest.as_ref().is_none_or(|oldest| oldest.changes < changes) {
                oldest = Some(Age { page: path.clone(), commit, changes });
            }
        }
        ages.extend(oldest);
    }
    ages.sort_by(|one, other| other.changes.cmp(&one.changes).then_with(|| one.page.cmp(&other.page)));
    Ok((ages, violations))
}

/// Returns the ages as text: one line, or a line for each page.
pub(super) fn summary(ages: &[Age], is_list: bool) -> String {
    let old = ages.iter().filter(|age| age.changes >= OLD).count();
    let mut text = format!(
        "figures: {old} of {} pages are old: at least {OLD} commits have changed the code that they measure\n",
        ages.len()
    );
    if !is_list {
        let end = if old > 0 { " (`cargo xtask house --figures` lists them)\n" } else { "\n" };
        return text.trim_end().to_owned() + end;
    }
    for Age { page, commit, changes } in ages {
        text += &format!("{changes:6} commits since {commit}  {page}\n");
    }
    text
}

/// Returns the documents that are such pages. Folders of results in theirs have no pages.
fn pages(documents: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    let is_page =
        |path: &str| FOLDERS.iter().any(|folder| path.strip_prefix(folder).is_some_and(|name| !name.contains('/')));
    documents.iter().filter(move |(path, _)| is_page(path))
}

/// Reads the front matter of a page. The error says what is wrong with it, and what would be right.
fn front_matter(text: &str) -> Result<FrontMatter, String> {
    let example = format!("begin with `---`, `{COMMIT}: ID`, `{CODE}: PATHS`, `---`");
    let block = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let (block, _) = block.ok_or_else(|| format!("it has no front matter: {example}"))?;
    // A line that begins with a space continues the one before.
    let block = block.replace("\n ", " ");
    let value = |key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(|value| {
            value.split([' ', ',', ';']).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let words = value(COMMIT).ok_or_else(|| format!("its front matter has no `{COMMIT}`: {example}"))?;
    if words.first().is_some_and(|first| first == "none") {
        return if words.len() > 1 {
            Ok(FrontMatter::default())
        } else {
            Err("`none` has no reason: add it".to_owned())
        };
    }
    let code = value(CODE).filter(|code| !code.is_empty());
    let code = code.ok_or_else(|| format!("its front matter has no `{CODE}`: {example}"))?;
    let commits: Vec<String> = words.into_iter().filter(|word| is_id(word)).collect();
    if commits.is_empty() {
        return Err(format!("its `{COMMIT}` has no commit: use 7 to 40 hexadecimal digits, or `none` and a reason"));
    }
    Ok(FrontMatter { commits, code })
}

fn is_id(word: &str) -> bool {
    (7..=40).contains(&word.len()) && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::git::tests::Repository;
    use super::*;
    use std::fs;

    fn page(front: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("docs/benchmarks/a.md".to_owned(), format!("---\n{front}\n---\n# a\n"))])
    }

    #[test]
    fn front_matter_names_commits_and_code() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let read = |front: &str| front_matter(&page(front)["docs/benchmarks/a.md"]);
        let both = read("figures of commit: 0123456 and abcdef89, or earlier\nmeasured code: a/b,\n  c");
        assert_eq!(both, Ok(FrontMatter { commits: words(&["0123456", "abcdef89"]), code: words(&["a/b", "c"]) }));
        let both = read("figures of commit: 0123456; older tables abcdef89\nmeasured code: a").map(|page| page.commits);
        assert_eq!(both, Ok(words(&["0123456", "abcdef89"])));
        assert_eq!(read("figures of commit: none, an index"), Ok(FrontMatter::default()));
        for (front, why) in [
            ("title: a", "no `figures of commit`"),
            ("figures of commit: none", "no reason"),
            ("figures of commit: 0123456", "no `measured code`"),
            ("figures of commit: 0123456\nmeasured code:", "no `measured code`"),
            ("figures of commit: 012345\nmeasured code: a", "7 to 40"),
            ("figures of commit: newest\nmeasured code: a", "7 to 40"),
        ] {
            let error = read(front).expect_err(front);
            assert!(error.contains(why), "{front}: {error}");
        }
        assert!(front_matter("# a\n\n---\n").expect_err("a rule").contains("no front matter"));
    }

    #[test]
    fn pages_are_those_of_the_two_folders() {
        let documents = ["docs/benchmarks/a.md", "docs/experiments/full/a/table.md", "docs/a.md", "README.md"];
        let documents = documents.map(|path| (path.to_owned(), "# a\n".to_owned())).into();
        let found = check(Path::new("."), &documents);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/benchmarks/a.md: it has no front matter"), "{found:?}");
        let gone = check(Path::new("."), &page("figures of commit: 0123456\nmeasured code: Cargo.toml, gone/src"));
        assert_eq!(
            gone,
            ["docs/benchmarks/a.md: there is no gone/src: name the code that has what the figures measure"]
        );
    }

    #[test]
    fn figures_are_as_old_as_their_code_has_changed() {
        let repository = Repository::new();
        let root = repository.path();
        let change = |name: &str, number: usize| {
            fs::write(root.join(name), format!("{number}\n")).expect("written");
            repository.git(&["add", name]);
            repository.commit("a change")
        };
        let first = change("code", 0);
        let age = |front: &str| ages(root, &page(front)).expect("a history");
        let only = |(found, violations): (Vec<Age>, Vec<String>)| {
            assert_eq!(violations, [""; 0]);
            found.into_iter().map(|age| age.changes).collect::<Vec<_>>()
        };
        change("other", 1);
        let front = format!("figures of commit: {first}\nmeasured code: code");
        assert_eq!(only(age(&front)), [0], "another file has changed");
        let second = change("code", 2);
        change("code", 3);
        assert_eq!(only(age(&front)), [2]);
        let both = format!("figures of commit: {second} {first}\nmeasured code: code other");
        let (found, _) = age(&both);
        assert_eq!(found, [Age { page: "docs/benchmarks/a.md".to_owned(), commit: first.clone(), changes: 3 }]);
        assert_eq!(only(age("figures of commit: none, an index")), [0; 0]);
        // A commit of another branch is gone as soon as the branch is.
        repository.git(&["checkout", "--quiet", "-b", "side", &first]);
        let aside = change("code", 4);
        repository.git(&["checkout", "--quiet", "-"]);
        for unknown in [&aside, "0123456"] {
            let (found, violations) = age(&format!("figures of commit: {unknown}\nmeasured code: code"));
            assert_eq!((found.len(), violations.len()), (0, 1), "{violations:?}");
            assert!(violations[0].contains(unknown), "{violations:?}");
        }
    }

    #[test]
    fn without_the_whole_history_no_age_is_known() {
        let repository = Repository::new();
        let commit = repository.commit("first");
        repository.commit("second");
        let front = format!("figures of commit: {commit}\nmeasured code: code");
        let folder = tempfile::tempdir().expect("a folder");
        let from = format!("file://{}", repository.path().display());
        let clone = folder.path().join("clone");
        repository.git(&["clone", "--quiet", "--depth", "1", &from, &clone.display().to_string()]);
        let error = ages(&clone, &page(&front)).expect_err("a shallow clone").to_string();
        assert!(error.contains("--unshallow"), "{error}");
        let error = ages(folder.path(), &page(&front)).expect_err("no repository").to_string();
        assert!(error.contains("not in a git repository"), "{error}");
    }

    #[test]
    fn the_summary_is_one_line() {
        let age = |page: &str, changes| Age { page: page.to_owned(), commit: "0123456".to_owned(), changes };
        let ages = [age("b.md", OLD), age("a.md", OLD - 1)];
        let line = summary(&ages, false);
        assert!(line.starts_with("figures: 1 of 2 pages are old") && line.contains("--figures"), "{line}");
        assert_eq!(line.lines().count(), 1);
        assert!(!summary(&ages[1..], false).contains("--figures"));
        let list = summary(&ages, true);
        assert!(list.lines().eq([
            "figures: 1 of 2 pages are old: at least 10 commits have changed the code that they measure",
            "    10 commits since 0123456  b.md",
            "     9 commits since 0123456  a.md",
        ]));
    }
}
