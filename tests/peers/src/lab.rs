//! The folders of one test: one with a short path for sockets, and one that remains for logs.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::machine::Machine;
use crate::proc;

/// The folders of a test.
pub(crate) struct Lab<'m> {
    /// The machine and its programs.
    pub(crate) machine: &'m Machine,
    /// A temporary folder: the path of a socket has at most 107 bytes, so sockets cannot be beside
    /// the logs.
    sockets: TempDir,
    logs: PathBuf,
    /// A number that no other test of this run has.
    id: u32,
}

impl<'m> Lab<'m> {
    /// Creates the folders of the test `name`. The folder for logs is empty.
    pub(crate) fn new(machine: &'m Machine, name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let logs = machine.cache.join("logs").join(name);
        if logs.exists() {
            fs::remove_dir_all(&logs)?;
        }
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let sockets = tempfile::Builder::new().prefix("peers-").tempdir()?;
        Ok(Self { machine, sockets, logs, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// Returns a name that is unique on this machine.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("peers{}-{}-{name}", std::process::id(), self.id)
    }

    /// Returns the path of a socket.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(format!("{name}.sock"))
    }

    /// Gives the folder for sockets to a user.
    pub(crate) fn give_to(&self, user: &str) -> Result<()> {
        let (code, _, err) = proc::run(Command::new("chown").arg(user).arg(self.sockets.path()))?;
        ensure!(code == Some(0), "chown ended with {code:?}: {err}");
        Ok(())
    }

    /// Returns the path of a log, or of another file to keep.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        let name = if name.contains('.') { name.to_owned() } else { format!("{name}.log") };
        self.logs.join(name)
    }

    /// Returns the switch of this test, for the report of a failure.
    pub(crate) fn scene(&self) -> Scene {
        Scene { switch: self.machine.switch.clone(), api: self.socket("api"), log: self.log("state.log") }
    }

    /// Returns the names of the sockets that exist.
    pub(crate) fn sockets_left(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.sockets.path())? {
            let entry = entry?;
            if entry.file_type()?.is_socket() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    /// Returns the last lines of every log, for the report of a failure.
    pub(crate) fn tails(&self, lines: usize) -> String {
        let mut files: Vec<PathBuf> =
            fs::read_dir(&self.logs).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        // A capture is kept, but is no text.
        files.retain(|file| file.extension().is_none_or(|extension| extension != "pcap"));
        files.sort();
        let mut report = String::new();
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(&file).unwrap_or_default()).replace('\r', "");
            let all: Vec<&str> = text.lines().collect();
            let tail = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
            report += &format!("---- {} (last {} of {} lines)\n", file.display(), tail.len(), all.len());
            report += &format!("{}\n", tail.join("\n"));
        }
        report
    }
}

/// Limit of each question to the switch for the report of a failure: the switch may hang.
const REPORT: Duration = Duration::from_secs(5);

/// The switch of a running test, for the report of a failure. A test that succeeds stops its switch
/// before it drops its guests. So a switch that runs when a guest is dropped belongs to a failed test.
pub(crate) struct Scene {
    switch: PathBuf,
    api: PathBuf,
    log: PathBuf,
}

impl Scene {
    /// Returns true if the test has not stopped the switch.
    pub(crate) fn is_open(&self) -> bool {
        self.api.exists()
    }

    /// Writes the counters of the switch to a log, whose end is part of the report of a failure. The
    /// first call counts: later ones come when a guest is gone, and its rings with it.
    pub(crate) fn keep(&self) {
        if !self.is_open() || self.log.exists() {
            return;
        }
        let mut text = String::new();
        for what in ["ports", "drops", "runtime"] {
            let mut command = Command::new(&self.switch);
            command.args([what, "--json", "--api"]).arg(&self.api);
            text += &match proc::run_within(REPORT, &mut command) {
                Ok((_, out, err)) => format!("{what}: {}{}\n", out.trim(), err.trim()),
                Err(error) => format!("{what}: {error:#}\n"),
            };
        }
        // If writing fails, only the report of a failed test is less complete.
        let _ = fs::write(&self.log, text);
    }
}
