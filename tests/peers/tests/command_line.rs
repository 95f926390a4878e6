//! Tests of the command line that need no switch and no guest. Because of this test, the
//! workspace's tests build the program itself, which `cargo xtask test` runs after them.

use std::collections::HashSet;
use std::process::{Command, Output};

fn peers(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peers")).args(args).output().expect("peers runs")
}

#[test]
fn each_case_has_a_name_of_its_own() {
    let output = peers(&["--list"]);
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).expect("text");
    let mut seen = HashSet::new();
    assert!(names.lines().all(|name| !name.is_empty() && seen.insert(name)), "{names}");
    assert!(seen.contains("uml_patch_ping"), "{names}");
}

#[test]
fn what_it_does_not_know_is_refused_with_the_usage() {
    let output = peers(&["--listen"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--listen") && said.contains("Usage: "), "{said}");
}
