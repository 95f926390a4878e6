//! QEMU's human monitor, and a migration by it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::proc;
use crate::say::say;

/// Returns a socket's address in QEMU's syntax.
fn unix(path: &Path, more: &str) -> String {
    format!("unix:{}{more}", path.display())
}

/// Returns the options of a guest whose monitor listens on a socket.
pub(crate) fn listening(path: &Path) -> [String; 2] {
    ["-monitor".to_owned(), unix(path, ",server=on,wait=off")]
}

/// Returns the options of a QEMU that continues a guest, which comes by a socket.
pub(crate) fn expecting(path: &Path) -> [String; 2] {
    ["-incoming".to_owned(), unix(path, "")]
}

/// QEMU's human monitor, on a socket.
pub(crate) struct Monitor(UnixStream);

impl Monitor {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let stream = proc::until("QEMU's monitor", || Ok(UnixStream::connect(path).ok()))?;
        stream.set_read_timeout(Some(proc::PATIENCE))?;
        let mut monitor = Self(stream);
        monitor.answer()?;
        Ok(monitor)
    }

    /// Migrates the guest to the QEMU that listens on a socket, and waits until the guest runs there.
    pub(crate) fn migrate(&mut self, incoming: &Path) -> Result<()> {
        proc::until("QEMU expects the guest", || Ok(incoming.exists().then_some(())))?;
        self.ask("migrate_set_parameter max-bandwidth 1G")?;
        self.ask(&format!("migrate -d {}", unix(incoming, "")))?;
        let end = proc::until("the guest has migrated", || {
            let state = self.ask("info migrate")?;
            ensure!(!state.contains("status: failed"), "the migration failed: {state}");
            Ok(state.contains("status: completed").then_some(state))
        })?;
        let value =
            |name: &str| end.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or("?").trim().to_owned();
        say!("  migrated in {}, {} of downtime", value("total time:"), value("downtime:"));
        Ok(())
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        self.0.write_all(format!("{command}\n").as_bytes())?;
        self.answer().with_context(|| format!("QEMU's monitor did not answer `{command}`"))
    }

    /// Returns the output up to the next prompt.
    fn answer(&mut self) -> Result<String> {
        let mut text = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes)? {
                0 => bail!("QEMU closed the monitor"),
                n => text.extend_from_slice(&bytes[..n]),
            }
            if text.ends_with(b"(qemu) ") {
                return Ok(String::from_utf8_lossy(&text).replace('\r', ""));
            }
        }
    }
}
