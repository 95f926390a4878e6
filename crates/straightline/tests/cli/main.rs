//! The built binary, as scripts and people use it: answers, messages, exit codes.

mod check;
mod demo;
mod lab;
mod logs;
mod port;
mod query;
mod reload;
mod run;
mod sandbox;
mod usage;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder for configurations and sockets.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `switch.toml`, with the fixture's folder in the place of `@`.
    fn write(&self, text: &str) {
        let folder = self.folder.path().display().to_string();
        fs::write(self.path("switch.toml"), text.replace('@', &folder)).unwrap();
    }

    /// The binary in the fixture's folder.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_straightline"));
        command.args(args).current_dir(self.folder.path()).env_remove("RUST_LOG");
        for colours in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(colours);
        }
        command
    }

    fn execute(&self, args: &[&str]) -> Finished {
        Finished::new(&self.command(args).output().unwrap())
    }
}

/// What a command left.
#[derive(Debug)]
struct Finished {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Finished {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}
