//! Tells the crate which commit it is built from, so that results can say it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Figures are those of optimized builds. All others would be built once more at each commit, and for nothing.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // Not in a checkout; or these files are part of another project's, whose commits say nothing of them.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some("crates/lab/") {
        return;
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]) {
        println!("cargo::rustc-env=STRAIGHTLINE_COMMIT={commit}");
    }
    // What was checked out, and what was changed since.
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"]).unwrap_or_default();
    for path in ["..", "../../Cargo.toml", "../../Cargo.lock", &head] {
        // Of a file that is not there, it would be asked again and again.
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Runs git and returns its output, or `None` if git is missing or fails.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
