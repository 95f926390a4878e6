//! A running switch together with its configuration file. Commands to the switch come here.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Switch;
use crate::api::{Changes, Control, DynamicPortGuard, PortRequest};
use crate::config::{Config, Diagnostic, Kinds};

/// Reloads the file when a signal or the API asks for it.
#[derive(Debug)]
pub struct Keeper {
    switch: Arc<Switch>,
    file: PathBuf,
    kinds: Kinds,
}

impl Keeper {
    /// Returns the keeper of a switch that was started from `file`.
    pub fn new(switch: Arc<Switch>, file: impl Into<PathBuf>) -> Self {
        Keeper { switch, file: file.into(), kinds: Kinds::default() }
    }

    /// Returns the keeper for a file that may have nodes of these kinds.
    #[must_use]
    pub fn with_kinds(self, kinds: Kinds) -> Self {
        Keeper { kinds, ..self }
    }
}

impl Control for Keeper {
    fn reload(&self) -> Result<Changes, String> {
        let done = Config::load_with(&self.file, &self.kinds).map_err(|errors| errors.to_string()).and_then(|loaded| {
            for warning in &loaded.warnings {
                tracing::warn!("{warning}");
            }
            // A socket that this switch has itself does not count as taken.
            let taken = loaded.taken_sockets_beside(&self.switch.config());
            if !taken.is_empty() {
                return Err(taken.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n"));
            }
            self.switch.reload(&loaded.config).map_err(|error| format!("{}: {error:#}", self.file.display()))
        });
        match &done {
            Ok(changes) if changes.changes.is_empty() => tracing::info!("reload: nothing changed"),
            Ok(changes) => changes.changes.iter().for_each(|change| tracing::info!("reload: {change}")),
            Err(error) => tracing::error!("reload: nothing is changed: {error}"),
        }
        done
    }

    fn set_link(&self, port: &str, up: bool) -> Result<(), String> {
        self.switch.set_link(port, up).map_err(|error| error.to_string())
    }

    fn add_dynamic_port(&self, port_request: &PortRequest, socket: OwnedFd) -> Result<DynamicPortGuard, String> {
        let added = self.switch.add_dynamic_port(&port_request.name, &port_request.join, socket, &port_request.socket);
        added.map(|port| Box::new(port) as DynamicPortGuard).map_err(|error| format!("{error:#}"))
    }
}
