//! `cargo xtask bugs`: puts each published bug back into a copy of the sources and sees the test that it belongs to turn
//! red. A bug whose test stays green is one that the rig would not find.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::run;

/// A test that takes longer has been held up by the bug, and is red.
const LIMIT_SECONDS: &str = "120";

/// A bug as a patch. Its first lines say what it is, and one which test finds it: `Test: BINARY NAME`.
struct Bug {
    name: String,
    patch: PathBuf,
    binary: String,
    test: String,
}

/// Tries the bugs whose name contains `pattern`; true where each of their tests turned red.
pub(crate) fn run(pattern: Option<&str>) -> Result<bool> {
    let root = run::root()?;
    let scratch = run::target(&root).join("bugs");
    let tree = scratch.join("tree");
    let mut bugs = read(&root.join("tests/hostile/bugs"))?;
    bugs.retain(|bug| pattern.is_none_or(|pattern| bug.name.contains(pattern)));
    ensure!(!bugs.is_empty(), "no such bug");
    copy_sources(&root, &tree)?;
    // Red means nothing where it was red before.
    for bug in &bugs {
        ensure!(builds(&tree, &scratch, bug)?, "{} does not build", bug.binary);
        ensure!(is_green(&tree, &scratch, bug)?, "{} is red without any bug", bug.test);
    }
    let mut missed = Vec::new();
    for bug in &bugs {
        run::must(&mut git_apply(&tree, bug, &[]))?;
        let outcome = builds(&tree, &scratch, bug).and_then(|builds| {
            ensure!(builds, "with {} the sources do not build", bug.name);
            is_green(&tree, &scratch, bug)
        });
        run::must(&mut git_apply(&tree, bug, &["--reverse"]))?;
        let green = outcome?;
        println!("{}: {} is {}", bug.name, bug.test, if green { "GREEN: not found" } else { "red, as it must be" });
        if green {
            missed.push(bug.name.as_str());
        }
    }
    println!(
        "{} bugs put back, {} found, {} not found: {missed:?}",
        bugs.len(),
        bugs.len() - missed.len(),
        missed.len()
    );
    Ok(missed.is_empty())
}

fn read(folder: &Path) -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let patch = entry?.path();
        let text = fs::read_to_string(&patch)?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (binary, test) = test_of(&text).with_context(|| format!("{name} does not say `Test: BINARY NAME`"))?;
        bugs.push(Bug { name, patch, binary, test });
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

/// The test that a patch names before it begins.
fn test_of(text: &str) -> Option<(String, String)> {
    let mut head = text.lines().take_while(|line| !line.starts_with("diff "));
    let (binary, test) = head.find_map(|line| line.strip_prefix("Test: "))?.split_once(' ')?;
    Some((binary.to_owned(), test.trim().to_owned()))
}

/// Brings the copy up to date. What has not changed stays as it is, so that cargo builds little.
fn copy_sources(root: &Path, tree: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = run::output(&mut list)?;
    let names: BTreeSet<&str> = list.split('\0').filter(|name| !name.is_empty()).collect();
    remove_others(tree, tree, &names)?;
    for name in names {
        let (from, to) = (root.join(name), tree.join(name));
        // What is listed and not there is being removed.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::write(&to, bytes).with_context(|| format!("{}", to.display()))?;
    }
    Ok(())
}

/// Removes what an earlier copy had below `folder` and the sources have no more.
fn remove_others(tree: &Path, folder: &Path, names: &BTreeSet<&str>) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        let name = path.strip_prefix(tree)?.to_str();
        if path.is_dir() {
            remove_others(tree, &path, names)?;
        } else if name.is_none_or(|name| !names.contains(name)) {
            fs::remove_file(&path).with_context(|| format!("{}", path.display()))?;
        }
    }
    Ok(())
}

fn git_apply(tree: &Path, bug: &Bug, options: &[&str]) -> Command {
    let mut apply = Command::new("git");
    apply.current_dir(tree).arg("apply").args(options).arg(&bug.patch);
    // The copy lies within the workspace and is no repository: paths are meant from here on.
    apply.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    apply
}

fn builds(tree: &Path, scratch: &Path, bug: &Bug) -> Result<bool> {
    let mut build = run::cargo(tree);
    build.args(["test", "--quiet", "-p", "hostile", "--test", &bug.binary, "--no-run"]);
    run::passes(build.env("CARGO_TARGET_DIR", scratch.join("target")))
}

fn is_green(tree: &Path, scratch: &Path, bug: &Bug) -> Result<bool> {
    let mut test = Command::new("timeout");
    test.args(["--kill-after=5", LIMIT_SECONDS]).arg(run::cargo(tree).get_program());
    test.args(["test", "--quiet", "-p", "hostile", "--test", &bug.binary, "--", "--exact", &bug.test]);
    test.current_dir(tree).env("CARGO_TARGET_DIR", scratch.join("target")).env("RUST_BACKTRACE", "0");
    test.env_remove("STRAIGHTLINE_LONG");
    // A bug may say what it likes; and a test that is not there is green where nobody looks.
    let output = test.stdin(Stdio::null()).stderr(Stdio::null()).output().context("cannot start timeout")?;
    let green = output.status.success();
    if green && !String::from_utf8_lossy(&output.stdout).contains("1 passed") {
        bail!("there is no test {}", bug.test);
    }
    Ok(green)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_which_test_finds_it() {
        let patch = "What it is.\nTest: rig a::b\n\ndiff --git a/x b/x\n";
        assert_eq!(test_of(patch), Some(("rig".to_owned(), "a::b".to_owned())));
        assert_eq!(test_of("diff --git a/x b/x\n+Test: rig a::b\n"), None);
        assert_eq!(test_of("Test: rig\n"), None);
    }
}
