//! A running switch together with its configuration file. Commands to the switch come here.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::api::{
    Capture, CaptureRequest, ChangeFlows, ChangeMeter, ChangeRemotes, ChangeStations, Changes, Control,
    DynamicPortGuard, EntriesChanged, ErrorCode, EventKind, FlowsChanged, NewStation, Ping, PingRequest, PortRequest,
    RateRequest, RateSet, Refusal, SetGroupRequest, SetGroupsRequest, Stream, SubscribeRequest, Subscribed, Trace,
    TraceRequest,
};
use crate::config::{Config, Diagnostic, Interfaces, Kinds, Loaded};
use crate::config_file::AppliedFile;
use crate::descriptors::descriptor_shortage;
use crate::{GivenSocket, Switch, sandbox};

/// Reloads the file when a signal or the API asks for it.
#[derive(Debug)]
pub struct Keeper {
    switch: Arc<Switch>,
    file: PathBuf,
    kinds: Kinds,
}

impl Keeper {
    /// Returns the keeper of a switch that was started from `file`, which had this text.
    pub fn new(switch: Arc<Switch>, file: impl Into<PathBuf>, text: String) -> Self {
        let file = file.into();
        switch.running.file_applied(AppliedFile::new(&file, text));
        Keeper { switch, file, kinds: Kinds::default() }
    }

    /// Returns the keeper for a file that may have nodes of these kinds.
    #[must_use]
    pub fn with_kinds(self, kinds: Kinds) -> Self {
        Keeper { kinds, ..self }
    }
}

/// The maximum number of changes in an event.
const MOST_CHANGES: usize = 100;

/// The maximum length of an error in an event.
const MOST_ERROR: usize = 4096;

impl Keeper {
    /// Reads the file and checks it against the machine.
    fn checked(&self) -> Result<Loaded, String> {
        let hint = |error: &std::io::Error| sandbox::about_reading(&self.file, error);
        let loaded = Config::load_hinted(&self.file, &self.kinds, hint).map_err(|errors| errors.to_string())?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(shortage) = descriptor_shortage(&loaded.config) {
            tracing::warn!("{shortage}");
        }
        // A socket that this switch has itself does not count as taken.
        let running = self.switch.config();
        let mut wrong = loaded.taken_sockets_beside(&running);
        wrong.extend(loaded.on_machine(&Interfaces::routes_of_this_machine(), &running).errors);
        if wrong.is_empty() {
            Ok(loaded)
        } else {
            Err(wrong.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n"))
        }
    }

    fn add_event(&self, done: &Result<Changes, String>) {
        let (kind, message) = match done {
            Ok(Changes { changes, .. }) => {
                let message = match changes.len() {
                    0 => "reload: nothing changed".to_owned(),
                    1 => format!("reload: {}", changes[0]),
                    count => format!("reload: {count} changes"),
                };
                let told: Vec<_> = changes.iter().take(MOST_CHANGES).cloned().collect();
                let more = (changes.len() - told.len()) as u64;
                (EventKind::Reload { changes: told, more }, message)
            }
            Err(error) => {
                let mut error = error.clone();
                error.truncate(error.floor_char_boundary(MOST_ERROR));
                let first = error.lines().next().unwrap_or_default();
                let message = format!("reload: nothing is changed: {first}");
                (EventKind::ReloadFailed { error }, message)
            }
        };
        self.switch.running.events.add(kind, message);
    }
}

impl Control for Keeper {
    fn reload(&self) -> Result<Changes, Refusal> {
        let done = self.checked().and_then(|loaded| {
            let changes = self.switch.reload(&loaded.config);
            let changes = changes.map_err(|error| format!("{}: {error:#}", self.file.display()))?;
            self.switch.running.file_applied(AppliedFile::new(&self.file, loaded.text));
            Ok(changes)
        });
        match &done {
            Ok(changes) if changes.changes.is_empty() => tracing::info!("reload: nothing changed"),
            Ok(changes) => changes.changes.iter().for_each(|change| tracing::info!("reload: {change}")),
            Err(error) => tracing::error!("reload: nothing is changed: {error}"),
        }
        self.add_event(&done);
        done.map_err(|error| Refusal::new(ErrorCode::Refused, error))
    }

    fn preview(&self) -> Result<Changes, Refusal> {
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error);
        let loaded = self.checked().map_err(refused)?;
        let changes = self.switch.preview(&loaded.config);
        changes.map_err(|error| refused(format!("{}: {error:#}", self.file.display())))
    }

    fn clear_runtime(&self) {
        self.switch.running.clear_runtime();
    }

    fn set_link(&self, port: &str, up: bool) -> Result<(), Refusal> {
        // The name is the only thing that can be wrong.
        let unknown = |error: anyhow::Error| Refusal::new(ErrorCode::UnknownPort, error.to_string()).about(port);
        self.switch.set_link(port, up).map_err(unknown)
    }

    fn set_rate(&self, request: &RateRequest) -> Result<RateSet, Refusal> {
        self.switch.set_rate(request)
    }

    fn change_flows(&self, request: &ChangeFlows, text: &str) -> Result<FlowsChanged, Refusal> {
        self.switch.change_flows(request, text)
    }

    fn set_groups(&self, request: &SetGroupsRequest) -> Result<(), Refusal> {
        self.switch.set_groups(request)
    }

    fn set_group(&self, request: &SetGroupRequest) -> Result<(), Refusal> {
        self.switch.set_group(request)
    }

    fn change_remotes(&self, request: &ChangeRemotes, remotes: &[String]) -> Result<EntriesChanged, Refusal> {
        self.switch.change_remotes(request, remotes)
    }

    fn change_stations(&self, request: &ChangeStations, stations: &[NewStation]) -> Result<EntriesChanged, Refusal> {
        self.switch.change_stations(request, stations)
    }

    fn subscribe(&self, request: &SubscribeRequest) -> Result<(Subscribed, Box<dyn Stream>), Refusal> {
        self.switch.subscribe(request)
    }

    fn change_meter(&self, request: &ChangeMeter) -> Result<(), Refusal> {
        self.switch.change_meter(request)
    }

    fn capture(&self, request: &CaptureRequest) -> Result<(Capture, Box<dyn Stream>), Refusal> {
        self.switch.capture(request)
    }

    fn trace(&self, request: &TraceRequest) -> Result<(Trace, Box<dyn Stream>), Refusal> {
        self.switch.trace(request)
    }

    fn ping(&self, request: &PingRequest) -> Result<(Ping, Box<dyn Stream>), Refusal> {
        self.switch.ping(request)
    }

    fn add_dynamic_port(&self, port_request: &PortRequest, socket: OwnedFd) -> Result<DynamicPortGuard, Refusal> {
        let PortRequest { name, join, socket: label, is_own, groups } = port_request;
        let refused = |error: anyhow::Error| Refusal::new(ErrorCode::Refused, format!("{error:#}")).about(name);
        let added = self
            .switch
            .add_guarded_port(name, join, GivenSocket { socket, is_own: *is_own }, label, groups)
            .map_err(refused)?;
        Ok(Box::new(added))
    }
}
