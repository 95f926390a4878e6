//! The patches of published bugs must apply to the current sources, so that `cargo xtask bugs` can
//! check that the rig finds them. That check needs a build for each bug, so it is not part of this
//! test.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

#[test]
fn every_bug_can_be_put_back() {
    let mut bugs = 0;
    let mut errors = Vec::new();
    for entry in fs::read_dir(root().join("tests/hostile/bugs")).expect("the patches") {
        let path = entry.expect("a patch").path();
        bugs += 1;
        let name = path.display();
        let check = Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root()).output();
        let check = check.expect("git");
        if !check.status.success() {
            errors.push(format!("{name} does not apply: {}", String::from_utf8_lossy(&check.stderr)));
        }
        let text = fs::read_to_string(&path).expect("text");
        let test = text.lines().find_map(|line| line.strip_prefix("Test: ")).unwrap_or_default();
        if !names_a_test(test) {
            errors.push(format!("{name} names no test of the rig: {test:?}; expected `Test: BINARY MODULE::FUNCTION`"));
        }
    }
    assert!(errors.is_empty(), "refit the patches to the sources:\n{}", errors.join("\n"));
    assert!(bugs >= 12, "{bugs} patches, at least 12 are expected");
}

/// Returns true if the text names a test binary, and a module and a function in it.
fn names_a_test(test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else { return false };
    let Some((module, function)) = path.split_once("::") else { return false };
    let file = root().join("tests/hostile/tests").join(binary).join(module).with_extension("rs");
    fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {function}() {{")))
}
