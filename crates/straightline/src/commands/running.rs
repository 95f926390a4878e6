//! The switch that runs now, as `straightline check` sees it.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use straightline_api::{Ports, RequestError, ask};
use straightline_config::Config;
use straightline_doctor::gather;

use crate::output;

/// The switch that answers at the API of a configuration, or that runs its file.
pub(crate) struct Running<'c> {
    file: &'c Path,
    config: &'c Config,
    /// The paths at which it listens for the API and for ports, as the API says.
    sockets: OnceCell<HashSet<PathBuf>>,
    /// True if it runs and does not tell us its sockets.
    is_silent: Cell<bool>,
}

impl<'c> Running<'c> {
    /// Returns the switch of a configuration, which was read from `file`. Asks nobody yet.
    pub(crate) fn new(file: &'c Path, config: &'c Config) -> Self {
        Self { file, config, sockets: OnceCell::new(), is_silent: Cell::new(false) }
    }

    /// Returns whether the switch listens at a path, or may do so. Call this for a path at which a process
    /// listens.
    pub(crate) fn listens_at(&self, path: &Path) -> bool {
        let sockets = self.sockets.get_or_init(|| self.ask());
        self.is_silent.get()
            || sockets.contains(path)
            || gather::listeners(path).into_iter().any(|pid| runs(pid, self.file))
    }

    fn ask(&self) -> HashSet<PathBuf> {
        let mut sockets = HashSet::new();
        let switch = &self.config.switch;
        for api in [&switch.api, &switch.api_read_only].into_iter().flatten() {
            let ports = match ask::<Ports>(api) {
                Ok(answer) => answer.ports,
                Err(RequestError::NotListening(_)) => continue,
                Err(error) => {
                    let what = "the running switch does not answer, so sockets in use are not checked";
                    output::message("warning", &format_args!("{what}: {error}"));
                    self.is_silent.set(true);
                    continue;
                }
            };
            sockets.insert(api.clone());
            // The path of a port that cannot listen is another process's.
            let listening = ports.iter().filter(|port| {
                port.mode.as_deref() == Some("server") && port.cause.as_deref() != Some("cannot-listen")
            });
            sockets.extend(listening.filter_map(|port| port.socket.as_ref()).map(PathBuf::from));
        }
        sockets
    }
}

/// Returns whether a process is a switch that runs this file.
fn runs(pid: u32, file: &Path) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let mut words = command.split(|&byte| byte == 0).map(|word| Path::new(std::ffi::OsStr::from_bytes(word)));
    let Ok(file) = file.canonicalize() else { return false };
    words.any(|word| word == Path::new("run"))
        && words.any(|word| folder.join(word).canonicalize().is_ok_and(|word| word == file))
}
