//! The rule for commits: a subject has at most [`LIMIT`] columns, so that `git log --oneline` fits
//! a terminal.
//!
//! Only descendants of [`LAST_OLD`] are checked: older subjects cannot be changed any more. Merges
//! and reverts are not checked, because git writes their subjects.

use std::path::Path;

use anyhow::{Result, ensure};

use super::git;

/// The limit, in characters.
const LIMIT: usize = 72;

/// The last commit from before the rule.
const LAST_OLD: &str = "f9f53f35a65ece8cd8e2a3993f895a11d7874a49";

/// Returns the new commits as lines of an abbreviated id, a space and the subject. Returns an error
/// if there is no history: outside of a repository, or in a shallow clone.
pub(super) fn new_commits(root: &Path) -> Result<String> {
    commits_since(root, LAST_OLD)
}

fn commits_since(root: &Path, base: &str) -> Result<String> {
    let head = git::ask(root, &["rev-parse", "HEAD"])?;
    let has_base = git::ask(root, &["cat-file", "-e", &format!("{base}^{{commit}}")]).is_ok();
    ensure!(has_base, "commit {base} is not in this clone: fetch the whole history (`git fetch --unshallow`)");
    let range = format!("{base}..{}", head.trim_end());
    let log = ["log", "--no-color", "--no-show-signature", "--no-merges", "--ancestry-path", "--format=%h %s"];
    git::ask(root, &[&log[..], &[&range]].concat())
}

/// Returns the violations in lines that [`new_commits`] returned.
pub(super) fn check(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter_map(|(id, subject)| {
        let length = own_part(subject).chars().count();
        (length > LIMIT && !subject.starts_with("Revert \"")).then(|| {
            format!(
                "commit {id}: the subject has {length} columns, the limit is {LIMIT}: shorten it, and move details to \
                 the body: {subject}"
            )
        })
    });
    long.collect()
}

/// Returns a subject without the marks that `git rebase --autosquash` removes.
fn own_part(mut subject: &str) -> &str {
    let marks = ["fixup! ", "squash! ", "amend! "];
    while let Some(rest) = marks.iter().find_map(|mark| subject.strip_prefix(mark)) {
        subject = rest;
    }
    subject
}

#[cfg(test)]
mod tests {
    use super::git::tests::Repository;
    use super::*;
    use std::fs;

    #[test]
    fn a_long_subject_is_a_violation() {
        let long = format!("area: {}", "x".repeat(67));
        let log = format!("abc1234 area: short\ndef5678 {long}\n0123456 fixup! {long}\n");
        let found = check(&log);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("commit def5678: the subject has 73 columns, the limit is 72"), "{found:?}");
    }

    #[test]
    fn a_subject_up_to_the_limit_is_none() {
        let fits = format!("area: {}", "ü".repeat(66));
        let revert = format!("Revert \"{fits}\"");
        for subject in [&fits, &format!("fixup! {fits}"), &format!("squash! fixup! {fits}"), &revert] {
            assert_eq!(check(&format!("abc1234 {subject}\n")), [""; 0], "{subject}");
        }
        assert_eq!(check(""), [""; 0]);
    }

    #[test]
    fn only_descendants_of_the_base_are_listed() {
        let repository = Repository::new();
        repository.commit("older");
        let base = repository.commit("base");
        let subjects = |from: &str| -> Vec<String> {
            let log = commits_since(repository.path(), from).expect("a history");
            log.lines().map(|line| line.split_once(' ').expect("an id").1.to_owned()).collect()
        };
        assert_eq!(subjects(&base), [""; 0]);
        repository.commit("first");
        repository.commit("second");
        assert_eq!(subjects(&base), ["second", "first"]);
        // A branch from before the base is old, also once it is merged.
        let trunk = repository.git(&["symbolic-ref", "--short", "HEAD"]);
        repository.git(&["checkout", "--quiet", "-b", "side", &format!("{base}~")]);
        repository.commit("aside");
        assert_eq!(subjects(&base), [""; 0]);
        repository.git(&["checkout", "--quiet", &trunk]);
        repository.git(&["merge", "--quiet", "-m", "a merge", "side"]);
        assert_eq!(subjects(&base), ["second", "first"]);
    }

    #[test]
    fn without_history_nothing_is_checked() {
        let repository = Repository::new();
        repository.commit("only");
        let error = commits_since(repository.path(), LAST_OLD).expect_err("another history").to_string();
        assert!(error.contains(LAST_OLD) && error.contains("--unshallow"), "{error}");
        let inner = repository.path().join("inner");
        fs::create_dir_all(&inner).expect("a folder");
        let error = commits_since(&inner, LAST_OLD).expect_err("a folder of it").to_string();
        assert!(error.contains("repository of their own"), "{error}");
    }
}
