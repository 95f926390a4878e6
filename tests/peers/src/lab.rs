//! The folders of one test: one with a short path for sockets, and one that remains for logs.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::Command;
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
}

impl<'m> Lab<'m> {
    /// Creates the folders of the test `name`. The folder for logs is empty.
    pub(crate) fn new(machine: &'m Machine, name: &str) -> Result<Self> {
        let logs = machine.cache.join("logs").join(name);
        if logs.exists() {
            fs::remove_dir_all(&logs)?;
        }
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        Ok(Self { machine, sockets: tempfile::Builder::new().prefix("peers-").tempdir()?, logs })
    }

    /// Returns the path of a socket.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(format!("{name}.sock"))
    }

    /// Gives the folder for sockets to a user.
    pub(crate) fn give_to(&self, user: &str) -> Result<()> {
        let (code, _, err) =
            proc::run(Command::new("chown").arg(user).arg(self.sockets.path()), Duration::from_secs(10))?;
        ensure!(code == Some(0), "chown ended with {code:?}: {err}");
        Ok(())
    }

    /// Returns the path of a log, or of another file to keep.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        let name = if name.contains('.') { name.to_owned() } else { format!("{name}.log") };
        self.logs.join(name)
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
