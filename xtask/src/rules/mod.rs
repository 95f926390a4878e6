//! The workspace rules (`cargo xtask house`; `cargo test -p xtask` checks them too). One file for
//! each group:
//!
//! | file | rule |
//! |---|---|
//! | `layers` | each crate imports crates of lower layers only |
//! | `circles` | the modules of a crate do not import each other in a circle |
//! | `port_sides` | a port's data side does not import its control side |
//! | `kind_names` | who reads the API's answers names no kind of port |
//! | `doc_comments` | no doc comment begins with "What", "Who" or "Whoever" |
//! | `packed_lets` | a `let` binds one value, and no written tuple of several |
//! | `markdown` | prose in Markdown has lines of at most 100 columns, the README at most 150 lines |
//! | `anchors` | a link in Markdown leads to a document that exists, and to a heading that it has |
//! | `recipes` | each path that ARCHITECTURE.md or CONTRIBUTING.md names exists |
//! | `citations` | a citation of a specification names a sentence that docs/citations has, once |
//! | `licences` | every crate that we build with may be used under a licence that asks for a notice only |
//! | `figures` | a page with figures names their commit, and the code that they measure |
//! | `time` | only named places use the system's time: others take a clock, and tests wait for events |
//! | `subjects` | subjects of new commits have at most 72 columns |

mod anchors;
mod circles;
mod citations;
mod doc_comments;
mod figures;
mod git;
mod kind_names;
mod layers;
mod licences;
mod markdown;
mod packed_lets;
mod port_sides;
mod recipes;
mod subjects;
mod time;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::Table;

use layers::{FROM_OUTSIDE, from_outside, imports};

/// The result of all checks.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Violations, each with the place and a remedy.
    pub(crate) violations: Vec<String>,
    /// Checks that this checkout does not allow, each with the reason.
    pub(crate) unchecked: Vec<String>,
    /// The ages of the figures in pages, oldest first.
    pub(crate) ages: Vec<figures::Age>,
}

/// Checks every rule in the workspace at `root`, and prints what is wrong. If `lists_figures` is set,
/// lists the age of the figures of each page. Returns true if nothing is wrong.
pub(crate) fn pass(root: &Path, lists_figures: bool) -> Result<bool> {
    let findings = check(root)?;
    for violation in &findings.violations {
        println!("{violation}");
    }
    for check in &findings.unchecked {
        println!("not checked: {check}");
    }
    if !findings.ages.is_empty() {
        print!("{}", figures::summary(&findings.ages, lists_figures));
    }
    println!("workspace rules: {} violations", findings.violations.len());
    Ok(findings.violations.is_empty())
}

/// Checks every rule in the workspace at `root`.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    let violations = &mut findings.violations;
    for dir in folders(&root.join("crates"))? {
        let name = file_name(&dir);
        let manifest = read_manifest(&dir)?;
        violations.extend(imports(&name, &manifest));
    }
    for (dir, allowed) in FROM_OUTSIDE {
        violations.extend(from_outside(dir, allowed, &read_manifest(&root.join(dir))?));
    }
    for dir in folders(&root.join("examples"))? {
        let name = format!("examples/{}", file_name(&dir));
        if !FROM_OUTSIDE.iter().any(|(known, _)| *known == name) {
            violations.push(format!(
                "{name} has no import rule: list its imports in xtask/src/rules/layers.rs (FROM_OUTSIDE)"
            ));
        }
    }
    let sources = sources(root)?;
    violations.extend(port_sides::check(&sources));
    violations.extend(circles::check(&sources));
    let schema = root.join(kind_names::SCHEMA);
    let schema = fs::read_to_string(&schema).with_context(|| format!("cannot read {}", schema.display()))?;
    let kinds = kind_names::words(&schema)?;
    violations.extend(sources.iter().flat_map(|(path, source)| kind_names::check(path, source, &kinds)));
    violations.extend(sources.iter().flat_map(|(path, source)| doc_comments::check(path, source)));
    violations.extend(sources.iter().flat_map(|(path, source)| packed_lets::check(path, source)));
    violations.extend(time::check(&sources));
    violations.extend(citations::check(&crate::citations::specifications(root)?, &sources));
    let mut documents = BTreeMap::new();
    files(root, root, "md", &mut documents)?;
    // Notes and results that are not tracked may have long lines.
    if let Ok(tracked) = git::tracked(root) {
        documents.retain(|path, _| tracked.contains(path));
        violations.extend(documents.iter().flat_map(|(path, text)| recipes::check(path, text, &tracked)));
    }
    violations.extend(documents.iter().flat_map(|(path, text)| markdown::check(path, text)));
    violations.extend(anchors::check(&documents));
    violations.extend(figures::check(root, &documents));
    match figures::ages(root, &documents) {
        Ok((ages, unknown)) => {
            findings.ages = ages;
            violations.extend(unknown);
        }
        Err(error) => findings.unchecked.push(format!("age of figures: {error:#}")),
    }
    violations.extend(licences::check(&licences::metadata(root)?)?);
    match subjects::new_commits(root) {
        Ok(log) => violations.extend(subjects::check(&log)),
        Err(error) => findings.unchecked.push(format!("subjects of new commits: {error:#}")),
    }
    Ok(findings)
}

/// Returns the Rust sources of the workspace at `root`, by their paths.
pub(crate) fn sources(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut sources = BTreeMap::new();
    for dir in ["crates", "examples", "fuzz", "tests", "xtask"] {
        files(root, &root.join(dir), "rs", &mut sources)?;
    }
    Ok(sources)
}

fn read_manifest(dir: &Path) -> Result<Table> {
    let path = dir.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("cannot parse {}", path.display()))
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Reads every file with this extension below `dir`, by its path from `root`. Skips `target` and
/// hidden folders.
pub(crate) fn files(root: &Path, dir: &Path, extension: &str, found: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            let name = file_name(&path);
            if name != "target" && !name.starts_with('.') {
                files(root, &path, extension, found)?;
            }
        } else if path.extension().is_some_and(|end| end == extension) {
            let name = path.strip_prefix(root)?.display().to_string();
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.insert(name, text);
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_obeys_its_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let findings = check(root).expect("the workspace can be read");
        assert!(findings.violations.is_empty(), "\n{}", findings.violations.join("\n"));
    }
}
