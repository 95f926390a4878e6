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

use serde_json::Value;
use straightline_testing::wait_until;
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

    /// Returns the answer of the switch to a command.
    fn ask(&self, command: &str) -> Value {
        let done = self.execute(&[command, "--json", "--api", "api"]);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{command}: {error}: {done:?}"))
    }

    /// Waits until the link of a port is up. Returns what `ports` says about the port.
    fn wait_for_link(&self, port: &str) -> Value {
        wait_until("the link is up", || {
            let ports = self.ask("ports");
            let found = ports["ports"].as_array().unwrap().iter().find(|found| found["name"] == port);
            found.filter(|found| found["link"] == "up").cloned().ok_or(ports)
        })
    }

    /// Waits until the switch has an event that is so, and returns it.
    fn wait_for_event(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, || {
            let events = self.ask("events");
            events["events"].as_array().unwrap().iter().find(|event| is_so(event)).cloned().ok_or(events)
        })
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

/// Returns a text with one space between words, and 0 seconds as each age. A page shows the ages of a
/// moment, and a longer age makes its column wider.
fn without_ages(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().collect();
        for at in 1..words.len() {
            if words[at] == "s" && words[at - 1].parse::<u64>().is_ok() {
                words[at - 1] = "0";
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
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
