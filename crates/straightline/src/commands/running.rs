//! The switch that runs now, as `straightline check` sees it.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use straightline_api::{Ports, RequestError, ask};
use straightline_doctor::gather;
use straightline_switch::config::Config;

use crate::output;

/// The switch that answers at the API of a configuration, or that runs its file.
pub(crate) struct Running<'c> {
    file: &'c Path,
    config: &'c Config,
    /// The paths at which it listens for the API and for ports, as the API says.
    sockets: OnceCell<HashSet<PathBuf>>,
}

impl<'c> Running<'c> {
    /// Returns the switch of a configuration, which was read from `file`. Asks nobody yet.
    pub(crate) fn new(file: &'c Path, config: &'c Config) -> Self {
        Self { file, config, sockets: OnceCell::new() }
    }

    /// Returns whether the switch listens at a path. Call this for a path at which a process
    /// listens.
    pub(crate) fn listens_at(&self, path: &Path) -> bool {
        let sockets = self.sockets.get_or_init(|| self.ask());
        sockets.contains(path) || gather::listeners(path).into_iter().any(|pid| runs(pid, self.file))
    }

    fn ask(&self) -> HashSet<PathBuf> {
        let mut sockets = HashSet::new();
        let switch = &self.config.switch;
        for api in [&switch.api, &switch.api_read_only].into_iter().flatten() {
            let ports = match ask::<Ports>(api) {
                Ok(answer) => answer.ports,
                Err(RequestError::NotListening(_)) => continue,
                Err(error) => {
                    output::message("warning", &format_args!("cannot ask the switch that runs: {error}"));
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
