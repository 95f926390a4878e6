//! The test programs of the workspace: cargo builds them, and lists them as JSON.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::test::WORKSPACE;
use crate::{run, times};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The path of its source in the repository.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The folder of its package, in which it runs.
    pub(super) folder: PathBuf,
    /// Whether its tests are inside of a crate.
    pub(super) is_inside: bool,
    /// Part of the names of the tests that run; all run for `None`.
    pub(super) filter: Option<String>,
    /// The number of tests that run.
    pub(super) tests: usize,
}

/// The result of a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    /// The program of the end-to-end tests.
    pub(super) peers: Option<PathBuf>,
}

/// A message of cargo, as far as it is read.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs that these arguments select, with the lints and features of all tests.
pub(super) fn build(root: &Path, selected: &[&str]) -> Result<Built> {
    let mut cargo = run::linting_cargo(root);
    cargo.arg("test").args(WORKSPACE).args(selected);
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    println!("+ cargo test --no-run, once for all rounds");
    let began = Instant::now();
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    times::note_step(began, "cargo test --no-run".to_owned());
    ensure!(output.status.success(), "the tests did not build, or have lints (see above)");
    read(root, &String::from_utf8_lossy(&output.stdout))
}

/// Reads cargo's messages.
fn read(root: &Path, messages: &str) -> Result<Built> {
    let mut built = Built::default();
    // A build script or a test may print lines of its own.
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cannot parse a message of cargo")?;
        let (Some(path), Some(target), Some(profile), Some(manifest)) =
            (message.executable, message.target, message.profile, message.manifest_path)
        else {
            continue;
        };
        if message.reason != "compiler-artifact" {
            continue;
        }
        if !profile.test {
            if target.name == "peers" {
                built.peers = Some(path);
            }
            continue;
        }
        let name = target.src_path.strip_prefix(root).unwrap_or(&target.src_path).display().to_string();
        let folder = manifest.parent().context("a manifest has no folder")?.to_owned();
        let is_inside = !target.kind.iter().any(|kind| kind == "test");
        built.programs.push(Program { name, path, folder, is_inside, filter: None, tests: 0 });
    }
    // Cargo lists them as their builds end.
    built.programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(built)
}

/// Returns the programs with tests that the name selects: all tests of a program whose path contains it,
/// else the tests whose names contain it.
pub(super) fn select(programs: &[Program], name: Option<&str>) -> Result<Vec<Program>> {
    let mut selected = Vec::new();
    for program in programs {
        let mut program = program.clone();
        program.filter = name.filter(|name| !program.name.contains(name)).map(str::to_owned);
        let mut list = Command::new(&program.path);
        list.args(["--list", "--format", "terse"]).args(&program.filter);
        let list = run::output(list.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder))?;
        program.tests = list.lines().filter(|line| line.ends_with(": test")).count();
        if program.tests > 0 {
            selected.push(program);
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const MESSAGES: &str = r#"{"reason":"build-script-executed","package_id":"x"}
a line of something else
{"reason":"compiler-artifact","manifest_path":"/r/crates/b/Cargo.toml","target":{"kind":["lib"],"name":"b","src_path":"/r/crates/b/src/lib.rs"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/r/crates/b/Cargo.toml","target":{"kind":["test"],"name":"cli","src_path":"/r/crates/b/tests/cli/main.rs"},"profile":{"test":true},"executable":"/t/cli-1"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/b/Cargo.toml","target":{"kind":["lib"],"name":"b","src_path":"/r/crates/b/src/lib.rs"},"profile":{"test":true},"executable":"/t/b-2"}
{"reason":"compiler-artifact","manifest_path":"/r/tests/peers/Cargo.toml","target":{"kind":["bin"],"name":"peers","src_path":"/r/tests/peers/src/main.rs"},"profile":{"test":false},"executable":"/t/peers"}
{"reason":"build-finished","success":true}
"#;

    #[test]
    fn programs_are_taken_from_cargo() {
        let built = read(Path::new("/r"), MESSAGES).expect("messages of cargo");
        assert_eq!(built.peers.as_deref(), Some(Path::new("/t/peers")));
        let program = |name: &str, path: &str, is_inside| Program {
            name: name.to_owned(),
            path: path.into(),
            folder: "/r/crates/b".into(),
            is_inside,
            filter: None,
            tests: 0,
        };
        let expected =
            [program("crates/b/src/lib.rs", "/t/b-2", true), program("crates/b/tests/cli/main.rs", "/t/cli-1", false)];
        assert_eq!(built.programs, expected);
    }

    /// A script stands for a test program: it lists its tests as libtest does.
    fn script(folder: &Path, name: &str, tests: &[&str]) -> Program {
        let path = folder.join(name);
        let lines: Vec<String> = tests.iter().map(|test| format!("{test}: test\n")).collect();
        let text = format!("#!/bin/sh\nprintf '{}' | grep -e \"$4\"; true\n", lines.concat().replace('\n', "\\n"));
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        let name = format!("crates/{name}/src/lib.rs");
        Program { name, path, folder: folder.to_owned(), is_inside: true, filter: None, tests: 0 }
    }

    #[test]
    fn a_name_selects_programs_and_tests() {
        let folder = tempfile::tempdir().expect("a folder");
        let programs =
            [script(folder.path(), "port", &["a::ageing", "b"]), script(folder.path(), "switch", &["port_up", "c"])];
        let selected = |name: Option<&str>| {
            let found = select(&programs, name).expect("lists");
            found.into_iter().map(|one| (one.name, one.filter, one.tests)).collect::<Vec<_>>()
        };
        let port = "crates/port/src/lib.rs".to_owned();
        let switch = "crates/switch/src/lib.rs".to_owned();
        assert_eq!(selected(None), [(port.clone(), None, 2), (switch.clone(), None, 2)]);
        assert_eq!(selected(Some("port")), [(port.clone(), None, 2), (switch, Some("port".to_owned()), 1)]);
        assert_eq!(selected(Some("ageing")), [(port, Some("ageing".to_owned()), 1)]);
        assert!(selected(Some("gone")).is_empty());
    }
}
