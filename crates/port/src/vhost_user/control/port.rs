//! The port as its users hold it: opened, changed, asked and stopped from any thread.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use straightline_packet::{Drops, PortIndex, Rcu, RcuCell};

use super::connector::Connector;
use super::frontend_source::FrontendSource;
use super::log_limit::LogLimit;
use super::shared::Shared;
use super::stop::{ACCEPT_TIME, Stop};
use super::thread::Control;
use crate::control::stop_all;
use crate::kick_routing::KickRouting;
use crate::link_status::LinkState;
use crate::listener::ServerSocket;
use crate::vhost_user::data::announcement::Announcement;
use crate::vhost_user::data::port_data::PortData;
use crate::vhost_user::data::worker_port::WorkerPort;
use crate::vhost_user::data::worker_queues::WorkerQueues;
use crate::vhost_user::inbox::PortInbox;
use crate::vhost_user::{Mode, VhostUserConfig};
use crate::{
    EpollWaiter, LinkHistory, LinkStatus, ListenError, Permissions, Port, QueueAssignment, QueueCounters, Signals,
    Waiters,
};

/// A port that is a guest's network device.
#[derive(Debug)]
pub struct VhostUser {
    shared: Arc<Shared>,
    /// Where it listens at a socket of its own.
    server: Option<Arc<ServerSocket>>,
    stop: Arc<Stop>,
    /// The port's own thread, until somebody has waited for its end.
    control: Mutex<Option<JoinHandle<()>>>,
}

impl VhostUser {
    /// Listens, or connects, and serves whoever is there, until [`Self::stop`]. Those who poll the port sleep in
    /// `waiters`. Until [`Self::assign_queues`] says otherwise, one worker serves all of it: this is a [`Port`] for it.
    ///
    /// # Errors
    /// What it lacks to listen. That nobody listens where it connects to is no error: somebody may later.
    pub fn open(
        config: VhostUserConfig,
        index: PortIndex,
        drops: Arc<Drops>,
        rcu: &Rcu,
        waiters: impl Into<Waiters>,
    ) -> Result<Self, ListenError> {
        let source = match &config.mode {
            Mode::Server(permissions) => {
                FrontendSource::Server(Arc::new(ServerSocket::bind(&config.socket, permissions)?))
            }
            Mode::Client => FrontendSource::Connector(Connector::new(&config.socket)),
            Mode::Given(socket) => FrontendSource::given(socket).map_err(|source| ListenError::System {
                path: config.socket.clone(),
                what: "cannot serve it",
                source,
            })?,
        };
        let system = |source| ListenError::System { path: config.socket.clone(), what: "cannot set it up", source };
        // Without it the port's thread has a helper notify.
        let _ = Signals::prepare_control();
        let data = Arc::new(PortData {
            name: config.name.clone(),
            index,
            drops,
            counters: (0..config.most_pairs()).map(|_| Arc::default()).collect(),
            link: RcuCell::new(rcu),
            announcement: Announcement::default(),
            set_down: AtomicBool::new(false),
        });
        let shared = Arc::new(Shared {
            data,
            pairs_shown: AtomicU16::new(config.told_pairs()),
            rcu: rcu.clone(),
            mover: Mutex::default(),
            commands: Arc::new(EpollWaiter::new().map_err(system)?),
            routing: Arc::new(KickRouting::new(waiters.into(), config.waits)),
            assignment: Mutex::new(Arc::new(QueueAssignment::one(0, config.most_pairs()))),
            holds: Arc::new(AtomicBool::new(config.holds)),
            inbox: Arc::new(PortInbox::new().map_err(system)?),
            log_limit: Mutex::new(LogLimit::new(Instant::now())),
            state: Mutex::new(LinkState::new()),
            config: config.clone(),
        });
        let stop = Arc::new(Stop::default());
        let server = if let FrontendSource::Server(server) = &source { Some(Arc::clone(server)) } else { None };
        let control = Control::new(Arc::clone(&shared), source, Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("port {}", config.name))
            .spawn(move || control.run())
            .map_err(system)?;
        Ok(VhostUser { shared, server, stop, control: Mutex::new(Some(thread)) })
    }

    /// The port as this worker serves it.
    pub fn for_worker(&self, worker: usize) -> Arc<dyn Port> {
        let queues = WorkerQueues::of(&self.shared.assignment(), worker);
        Arc::new(WorkerPort { data: Arc::clone(&self.shared.data), queues })
    }

    /// KickKind who serves which pair. Seats that were given out before are not to be used any more. Who delivers to which
    /// receive ring follows soon, not at once: until then workers may wait for one another's rings.
    ///
    /// # Panics
    /// If nobody delivers.
    pub fn assign_queues(&self, assignment: QueueAssignment) {
        assert!(!assignment.givers.is_empty(), "somebody delivers to each port");
        *self.shared.assignment.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(assignment);
        self.shared.inbox.wake();
    }

    /// Takes the link down, closes the connection, removes the socket file, and waits until its thread has ended. See
    /// [`stop_all`].
    pub fn stop(&self) {
        stop_all([self]);
    }

    /// Begins to stop, and does not wait: the socket file is removed, the connection is closed, and the port's thread ends
    /// soon.
    pub fn begin_stop(&self) {
        self.stop.set(&self.shared.inbox);
        if let Some(server) = &self.server {
            server.close();
        }
    }

    /// Whether the port's thread has ended.
    pub fn has_ended(&self) -> bool {
        self.control().as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Frees the socket's path and closes the connection, until [`Self::resume`]. It does not wait for the port's thread,
    /// which a frontend may hold.
    pub fn pause(&self) {
        self.stop.pause(&self.shared.inbox);
        if let Some(server) = &self.server {
            server.close();
        }
    }

    /// Serves frontends again after [`Self::pause`]. If the port cannot listen, it goes on trying every second, and
    /// [`Self::status`] says why. On a port that tries in vain this is one more try.
    ///
    /// # Errors
    /// Why it cannot listen now.
    pub fn resume(&self) -> Result<(), ListenError> {
        let opened = self.server.as_ref().map_or(Ok(()), |server| server.open());
        self.stop.resume(&self.shared.inbox);
        opened
    }

    /// Why the port cannot listen at its socket, where that is so.
    pub fn listen_failure(&self) -> Option<String> {
        self.server.as_ref()?.failure()
    }

    /// Joins the port's thread if it has ended. Returns `false` if it has not: then it is left behind.
    pub(crate) fn join(&self) -> bool {
        let Some(thread) = self.control().take() else { return true };
        if thread.is_finished() {
            // It has said what it panicked of.
            let _ = thread.join();
            return true;
        }
        false
    }

    /// Frees a thread that waits for a connection on a socket that was handed over, 100 ms after `began` at most.
    pub(crate) fn end_accept(&self, began: Instant) {
        if let Mode::Given(socket) = &self.shared.config.mode {
            self.stop.leave(socket, began + ACCEPT_TIME);
        }
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn control(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other workers' waiters from now on, or another answer to whether packets for this guest wait for room. A worker
    /// that still polls the port may miss a kick until it is rung.
    ///
    /// # Errors
    /// What the system said; all is as before then.
    pub fn move_to(&self, waiters: impl Into<Waiters>, waits: bool) -> std::io::Result<()> {
        self.shared.routing.change(waiters.into(), waits)
    }

    /// Whether packets for a full destination are left in this guest's rings. Not while a worker uses the port.
    pub fn set_holds(&self, holds: bool) {
        self.shared.holds.store(holds, Ordering::Relaxed);
    }

    /// Gives the socket file other permissions; they count for whoever connects from now on.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_permissions(&self, permissions: &Permissions) -> Result<(), ListenError> {
        self.server.as_ref().map_or(Ok(()), |server| server.set_permissions(permissions))
    }

    /// Sets the link down, or up again where there is one. While it is down, whatever comes from the guest or is for it is
    /// dropped, and the guest is told where its frontend lets us: by the status in its configuration space. Takes effect
    /// soon, not at once.
    pub fn set_link(&self, up: bool) {
        self.shared.data.set_down.store(!up, Ordering::Release);
        self.shared.state().set_down(!up);
        self.shared.inbox.wake();
    }

    /// Whether an administrator has set the link down.
    pub fn is_set_down(&self) -> bool {
        self.shared.data.is_set_down()
    }

    /// What an operator wants to know of it.
    pub fn status(&self) -> LinkStatus {
        let status = self.shared.state().status();
        match self.listen_failure().filter(|_| !status.up && !self.is_set_down()) {
            Some(reason) => LinkStatus { reason, ..status },
            None => status,
        }
    }

    /// When its link changed, and why it was down.
    pub fn history(&self) -> LinkHistory {
        self.shared.state().history()
    }

    /// The counters of its queue pairs: of those that the guest is told of, and of all that were ever started.
    pub fn counters(&self) -> &[Arc<QueueCounters>] {
        let shown = usize::from(self.shared.pairs_shown.load(Ordering::Relaxed));
        &self.shared.data.counters[..shown.min(self.shared.data.counters.len())]
    }

    /// Why packets that came from it, or were for it, were dropped.
    pub fn drops(&self) -> &Arc<Drops> {
        &self.shared.data.drops
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.stop();
    }
}
