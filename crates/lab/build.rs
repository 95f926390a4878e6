//! Passes the commit of the source to the crate, for the environment of results.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only optimized builds are measured. Others would be rebuilt at each commit for nothing.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // There is no checkout; or these files are part of another project, whose commits do not describe
    // them.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some("crates/lab/") {
        return;
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]) {
        println!("cargo::rustc-env=STRAIGHTLINE_COMMIT={commit}");
    }
    // The commit that was checked out, and changes since.
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"]).unwrap_or_default();
    for path in ["..", "../../Cargo.toml", "../../Cargo.lock", &head] {
        // A missing file would make cargo run this script every time.
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
