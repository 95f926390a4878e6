//! Queries to git about the workspace's repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// Returns git's answer for the repository whose top folder is `root`.
pub(super) fn ask(root: &Path, args: &[&str]) -> Result<String> {
    let top = run::output(git(root).args(["rev-parse", "--show-toplevel"]));
    let top = top.context("the sources are not in a git repository")?;
    // The sources may be unpacked inside of another repository.
    let is_own = Path::new(top.trim_end()).canonicalize()? == root.canonicalize()?;
    ensure!(is_own, "the sources are not a git repository of their own");
    run::output(git(root).args(args))
}

/// Returns the tracked files, by their paths from `root`.
pub(super) fn tracked(root: &Path) -> Result<BTreeSet<String>> {
    let list = ask(root, &["ls-files", "-z"])?;
    Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Returns a command for git in a folder. It also works if a hook of another repository runs us.
pub(super) fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder);
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        git.env_remove(variable);
    }
    git
}
