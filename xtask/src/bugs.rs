//! `cargo xtask bugs`: applies each published bug to a copy of the sources, and expects its test to
//! fail. If the test passes, the rig does not find that bug.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::run;

/// The folder of the patches.
const FOLDER: &str = "tests/hostile/bugs";

/// Time limit for a test. A test that takes longer hangs because of the bug, and counts as failed.
const LIMIT_SECONDS: &str = "120";

/// A bug as a patch. Its first lines describe the bug; one of them names its test: `Test: BINARY
/// NAME`.
struct Bug {
    name: String,
    patch: PathBuf,
    binary: String,
    test: String,
}

/// Returns the number of published bugs.
pub(crate) fn count(root: &Path) -> Result<usize> {
    Ok(read(&root.join(FOLDER))?.len())
}

/// Tries the bugs whose name contains `pattern`. Returns true if the test of each bug failed.
pub(crate) fn run(pattern: Option<&str>) -> Result<bool> {
    let root = run::root()?;
    let scratch = run::target(&root).join("bugs");
    let tree = scratch.join("tree");
    let mut bugs = read(&root.join(FOLDER))?;
    bugs.retain(|bug| pattern.is_none_or(|pattern| bug.name.contains(pattern)));
    ensure!(!bugs.is_empty(), "no bug in tests/hostile/bugs has {:?} in its name", pattern.unwrap_or_default());
    copy_sources(&root, &tree)?;
    // A failure proves nothing if the test also fails without the bug.
    for bug in &bugs {
        ensure!(builds(&tree, &scratch, bug)?, "test program {} does not build without any bug", bug.binary);
        ensure!(test_passes(&tree, &scratch, bug)?, "test {} fails without any bug", bug.test);
    }
    let mut missed = Vec::new();
    for bug in &bugs {
        run::must(&mut git_apply(&tree, bug, &[]))?;
        let outcome = builds(&tree, &scratch, bug).and_then(|builds| {
            ensure!(builds, "the sources do not build with {}: refit the patch", bug.name);
            test_passes(&tree, &scratch, bug)
        });
        run::must(&mut git_apply(&tree, bug, &["--reverse"]))?;
        let passes = outcome?;
        println!(
            "{}: {} {}",
            bug.name,
            bug.test,
            if passes { "PASSES: the bug is not found" } else { "fails, as it must" }
        );
        if passes {
            missed.push(bug.name.as_str());
        }
    }
    println!(
        "{} bugs applied, {} found, {} not found: {missed:?}",
        bugs.len(),
        bugs.len() - missed.len(),
        missed.len()
    );
    Ok(missed.is_empty())
}

fn read(folder: &Path) -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let patch = entry?.path();
        let text = fs::read_to_string(&patch)?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (binary, test) = test_of(&text)
            .with_context(|| format!("{name}.patch names no test: add a line `Test: BINARY NAME` before the diff"))?;
        bugs.push(Bug { name, patch, binary, test });
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

/// Returns the program and the name of the test that the text before the diff names.
fn test_of(text: &str) -> Option<(String, String)> {
    let mut head = text.lines().take_while(|line| !line.starts_with("diff "));
    let (binary, test) = head.find_map(|line| line.strip_prefix("Test: "))?.split_once(' ')?;
    Some((binary.to_owned(), test.trim().to_owned()))
}

/// Brings the copy up to date. Unchanged files keep their time, so that cargo builds little.
fn copy_sources(root: &Path, tree: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = run::output(&mut list)?;
    let names: BTreeSet<&str> = list.split('\0').filter(|name| !name.is_empty()).collect();
    remove_others(tree, tree, &names)?;
    for name in names {
        let from = root.join(name);
        let to = tree.join(name);
        // A listed file that is missing has been removed from the work tree.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// Removes files below `folder` that an earlier copy had and that the sources no longer have.
fn remove_others(tree: &Path, folder: &Path, names: &BTreeSet<&str>) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        let name = path.strip_prefix(tree)?.to_str();
        if path.is_dir() {
            remove_others(tree, &path, names)?;
        } else if name.is_none_or(|name| !names.contains(name)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn git_apply(tree: &Path, bug: &Bug, options: &[&str]) -> Command {
    let mut apply = Command::new("git");
    apply.current_dir(tree).arg("apply").args(options).arg(&bug.patch);
    // The copy lies within the workspace and is no repository of its own: paths begin here.
    apply.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    apply
}

fn builds(tree: &Path, scratch: &Path, bug: &Bug) -> Result<bool> {
    let mut build = run::cargo(tree);
    build.args(["test", "--quiet", "-p", "hostile", "--test", &bug.binary, "--no-run"]);
    run::passes(build.env("CARGO_TARGET_DIR", scratch.join("target")))
}

fn test_passes(tree: &Path, scratch: &Path, bug: &Bug) -> Result<bool> {
    let mut test = Command::new("timeout");
    test.args(["--kill-after=5", LIMIT_SECONDS]).arg(run::cargo(tree).get_program());
    test.args(["test", "--quiet", "-p", "hostile", "--test", &bug.binary, "--", "--exact", &bug.test]);
    test.current_dir(tree).env("CARGO_TARGET_DIR", scratch.join("target")).env("RUST_BACKTRACE", "0");
    test.env_remove("STRAIGHTLINE_LONG");
    // The output of a test with a bug does not matter. But cargo also succeeds if no test has this
    // name.
    let output = test.stdin(Stdio::null()).stderr(Stdio::null()).output().context("cannot start timeout")?;
    let passed = output.status.success();
    if passed && !String::from_utf8_lossy(&output.stdout).contains("1 passed") {
        bail!("{}.patch names {}, and there is no such test in {}", bug.name, bug.test, bug.binary);
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_which_test_finds_it() {
        let patch = "A description.\nTest: rig a::b\n\ndiff --git a/x b/x\n";
        assert_eq!(test_of(patch), Some(("rig".to_owned(), "a::b".to_owned())));
        assert_eq!(test_of("diff --git a/x b/x\n+Test: rig a::b\n"), None);
        assert_eq!(test_of("Test: rig\n"), None);
    }
}
