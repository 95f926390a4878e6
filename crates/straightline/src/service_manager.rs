//! Messages to the service manager that started this process (systemd; sd_notify(3)).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use straightline_graph::Clock;
use straightline_switch::api::{Source, Status};

/// The socket of the service manager. Without a service manager, messages go nowhere.
///
/// The crate `sd_notify` connects for each message, and the sandbox forbids that. So this socket is
/// connected before the process enters its sandbox.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// The time after which the service manager restarts a service that has sent no sign of life.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the socket that `NOTIFY_SOCKET` names.
    ///
    /// # Errors
    /// The variable is set, but the socket cannot be reached.
    pub(crate) fn connect() -> io::Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Ok(Self::default());
        };
        // A leading "@" stands for the null byte of an abstract address.
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(Path::new(&name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // Nobody waits for a service manager that does not read.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some(socket), watchdog: sd_notify::watchdog_enabled() })
    }

    /// Tells that the service is ready, for the first time or after a reload.
    pub(crate) fn ready(&self, status: &Status) {
        self.send(&[NotifyState::Ready, NotifyState::Status(&summary(status))]);
    }

    /// Tells that the service reads its configuration again. [`Self::ready`] ends the reload.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")]),
            Err(error) => tracing::warn!("cannot tell the service manager that a reload begins: {error}"),
        }
    }

    /// Tells that the service stops.
    pub(crate) fn stopping(&self) {
        self.send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// Starts a thread that tells the state of the ports until the returned value is dropped. With a
    /// watchdog it also gives signs of life, but not while a worker hangs in a turn.
    ///
    /// # Errors
    /// The system cannot provide a thread.
    pub(crate) fn follow(self: &Arc<Self>, source: Arc<dyn Source>, clock: Clock) -> io::Result<Follower> {
        let (end, ended) = channel();
        if self.socket.is_some() {
            let manager = Arc::clone(self);
            // systemd recommends half of the time.
            let interval = manager.watchdog.map_or(STATUS_INTERVAL, |limit| (limit / 2).min(STATUS_INTERVAL));
            let follow = move || {
                let mut last = String::new();
                while clock.receive(&ended, clock.now() + interval) == Err(RecvTimeoutError::Timeout) {
                    let status = source.status();
                    if manager.watchdog.is_some() && status.workers_stalled == 0 {
                        manager.send(&[NotifyState::Watchdog]);
                    }
                    let now = summary(&status);
                    if now != last {
                        manager.send(&[NotifyState::Status(&now)]);
                        last = now;
                    }
                }
            };
            thread::Builder::new().name("service-manager".to_owned()).spawn(follow)?;
        }
        Ok(Follower(end))
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else {
            return;
        };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        // Nothing depends on a message: the service manager acts by itself if the process ends.
        let _ = socket.send(message.as_bytes());
    }
}

/// The time between two looks at the ports.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Ends the thread of [`ServiceManager::follow`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Follower(#[expect(dead_code, reason = "the thread notices that it is dropped")] Sender<()>);

/// Returns the state of the ports in a few words, as `systemctl status` shows it.
fn summary(status: &Status) -> String {
    format!("{} of {} ports up, {} workers, {}", status.ports_up, status.ports, status.workers, status.simd)
}
