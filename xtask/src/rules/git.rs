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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A git repository in a temporary folder.
    pub(in crate::rules) struct Repository(tempfile::TempDir);

    impl Repository {
        pub(in crate::rules) fn new() -> Self {
            let repository = Self(tempfile::tempdir().expect("a folder"));
            repository.git(&["init", "--quiet"]);
            repository
        }

        pub(in crate::rules) fn path(&self) -> &Path {
            self.0.path()
        }

        pub(in crate::rules) fn git(&self, args: &[&str]) -> String {
            let mut git = git(self.path());
            git.args(["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]);
            run::output(git.args(args)).expect("git works").trim().to_owned()
        }

        pub(in crate::rules) fn commit(&self, subject: &str) -> String {
            self.git(&["commit", "--quiet", "--allow-empty", "-m", subject]);
            self.git(&["rev-parse", "HEAD"])
        }
    }
}
