//! The published bugs, kept as patches, must go into the sources as they are: else nobody knows whether the rig would
//! still find them. (That it does find them takes a build for each: `cargo xtask bugs`.)

use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the workspace is.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

#[test]
fn every_bug_can_be_put_back() {
    let mut bugs = 0;
    let mut faults = Vec::new();
    for entry in fs::read_dir(root().join("tests/hostile/bugs")).expect("the patches") {
        let path = entry.expect("a patch").path();
        bugs += 1;
        let name = path.display();
        let check = Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root()).output();
        let check = check.expect("git");
        if !check.status.success() {
            faults.push(format!("{name} does not apply: {}", String::from_utf8_lossy(&check.stderr)));
        }
        let text = fs::read_to_string(&path).expect("text");
        let test = text.lines().find_map(|line| line.strip_prefix("Test: ")).unwrap_or_default();
        if !names_a_test(test) {
            faults.push(format!("{name} names no test of the rig: {test:?}"));
        }
    }
    assert!(faults.is_empty(), "mend the patches with the sources that they are for:\n{}", faults.join("\n"));
    assert!(bugs >= 12, "{bugs} patches");
}

/// Whether it is a binary of tests, a module and a function there.
fn names_a_test(test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else { return false };
    let Some((module, function)) = path.split_once("::") else { return false };
    let file = root().join("tests/hostile/tests").join(binary).join(module).with_extension("rs");
    fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {function}() {{")))
}
