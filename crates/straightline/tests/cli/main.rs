//! Tests of the built binary, as scripts and people use it: answers, messages, exit codes.

mod bugreport;
mod capture;
mod check;
mod completions;
mod crash;
mod demo;
mod doctor;
mod events;
mod firewall;
mod flow;
mod hosts;
mod init;
mod lab;
mod logs;
mod opener;
mod ping;
mod port;
mod query;
mod rates;
mod reconnect;
mod reload;
mod run;
mod runtime;
mod sandbox;
mod tenants;
mod top;
mod trace;
mod usage;
mod web;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Folder for configurations and sockets.
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

    /// Writes `switch.toml`. Each `@` is replaced by the fixture's folder.
    fn write(&self, text: &str) {
        let folder = self.folder.path().display().to_string();
        fs::write(self.path("switch.toml"), text.replace('@', &folder)).unwrap();
    }

    /// Returns a command that runs the binary in the fixture's folder.
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

/// Exit code and output of a command.
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

/// Returns whether `test` can run, which needs two CPUs. Reports a skip if not.
fn has_two_cpus(test: &str) -> bool {
    let has = std::thread::available_parallelism().map_or(true, |cpus| cpus.get() > 1);
    if !has {
        skip(test, "it needs two CPUs");
    }
    has
}

/// Returns whether `test` can run, which needs root. Reports a skip if not, with the reason.
fn has_root(test: &str, why: &str) -> bool {
    let has = our_uid() == 0;
    if !has {
        skip(test, why);
    }
    has
}

/// Reports that this machine cannot run a test, in the line that `cargo xtask test` counts as a
/// skip. On a machine of continuous integration, `cargo xtask test` then fails.
fn skip(test: &str, why: &str) {
    // `println!` is not used, because libtest captures it. The newline comes first, because libtest
    // may have begun a line already.
    let _ = writeln!(io::stdout(), "\nskipped {test}: {why}");
}

fn our_uid() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}
