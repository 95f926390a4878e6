//! The port as its users hold it. Any thread opens, changes, queries and stops it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use straightline_graph::{
    DownCause, EpollWaiter, LinkHistory, LinkState, LinkStatus, ListenError, Permissions, Port, PortControl,
    QueueAssignment, QueueCounters, Signals, Waiters, stop_all,
};
use straightline_packet::{Drops, IgnorePoison, PortIndex, Rcu, RcuCell};

use super::connector::Connector;
use super::frontend_source::FrontendSource;
use super::shared::Shared;
use super::stop::{ACCEPT_TIME, Stop};
use super::thread::PortThread;
use crate::descriptor_share::DescriptorShare;
use crate::log_limit::PortLogLimit;
use crate::notify::call_cost::CallCost;
use crate::notify::kick_routing::KickRouting;
use crate::pair_counters::PairCounters;
use crate::socket::listener::ServerSocket;
use crate::vhost_user::data::announcement::Announcement;
use crate::vhost_user::data::port_data::PortData;
use crate::vhost_user::data::worker_port::WorkerPort;
use crate::vhost_user::data::worker_queues::WorkerQueues;
use crate::vhost_user::inbox::PortInbox;
use crate::vhost_user::{Mode, VhostUserConfig};

/// A port whose peer is a guest's network device behind a vhost-user socket.
#[derive(Debug)]
pub struct VhostUser {
    shared: Arc<Shared>,
    /// The port's own listening socket, if it has one.
    server: Option<Arc<ServerSocket>>,
    stop: Arc<Stop>,
    /// The port's own thread, until it has been joined.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl VhostUser {
    /// Opens the port: it listens or connects, and serves frontends until [`Self::stop`]. Workers
    /// wait in `waiters`. Until [`PortControl::assign_queues`] is called, worker 0 serves the whole
    /// port.
    ///
    /// # Errors
    /// The reason why the port cannot listen. If the port connects and no frontend listens there,
    /// that is no error: a frontend may come later.
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
            Mode::Given(socket) => FrontendSource::given(socket).map_err(|error| ListenError::System {
                path: config.socket.clone(),
                what: "cannot serve it",
                error,
            })?,
        };
        let system = |error| ListenError::System { path: config.socket.clone(), what: "cannot set it up", error };
        // If this fails, a helper thread notifies in place of the port's thread.
        let _ = Signals::prepare_control();
        let data = Arc::new(PortData {
            name: config.name.clone(),
            index,
            drops,
            counters: PairCounters::new(config.most_pairs()),
            link: RcuCell::new(rcu),
            announcement: Announcement::default(),
            set_down: AtomicBool::new(false),
        });
        let shared = Arc::new(Shared {
            data,
            pairs_shown: AtomicU16::new(config.told_pairs()),
            rcu: rcu.clone(),
            transfer_thread: Mutex::default(),
            control_kicks: Arc::new(EpollWaiter::new().map_err(system)?),
            routing: Arc::new(KickRouting::new(waiters.into(), config.waits)),
            assignment: Mutex::new(Arc::new(QueueAssignment::one(0, config.most_pairs()))),
            waits: Arc::new(AtomicBool::new(config.waits)),
            inbox: Arc::new(PortInbox::new().map_err(system)?),
            call_cost: Arc::new(CallCost::new()),
            descriptors: Mutex::new(DescriptorShare::new(config.reserved_descriptors())),
            log_limit: PortLogLimit::new(config.clock.clone()),
            state: Mutex::new(LinkState::new(config.clock.clone())),
            config: config.clone(),
        });
        let stop = Arc::new(Stop::default());
        let server = if let FrontendSource::Server(server) = &source { Some(Arc::clone(server)) } else { None };
        let control = PortThread::new(Arc::clone(&shared), source, Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("port {}", config.name))
            .spawn(move || control.run())
            .map_err(system)?;
        Ok(VhostUser { shared, server, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the port: takes the link down, closes the connection, removes the socket file, and
    /// waits until the port's thread has ended. See [`stop_all`].
    pub fn stop(&self) {
        stop_all([self as &dyn PortControl], self.shared.clock());
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().ignore_poison()
    }
}

impl PortControl for VhostUser {
    fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn for_worker(&self, worker: usize) -> Arc<dyn Port> {
        let queues = WorkerQueues::of(&self.shared.assignment(), worker);
        Arc::new(WorkerPort { data: Arc::clone(&self.shared.data), queues })
    }

    fn assign_queues(&self, assignment: QueueAssignment) {
        assert!(!assignment.delivering.is_empty(), "somebody delivers to each port");
        *self.shared.assignment.lock().ignore_poison() = Arc::new(assignment);
        self.shared.inbox.wake();
    }

    fn route_kicks(&self, waiters: Waiters, waits: bool) -> io::Result<()> {
        self.shared.routing.change(waiters, waits)
    }

    fn set_waits(&self, waits: bool) {
        self.shared.waits.store(waits, Ordering::Relaxed);
    }

    /// If its frontend allows it, the guest sees the change as the status in its configuration
    /// space.
    fn set_link(&self, up: bool) {
        self.shared.data.set_down.store(!up, Ordering::Release);
        self.shared.state().set_down(!up);
        self.shared.inbox.wake();
        // A worker that sleeps until the guest has buffers drops what waits for them.
        self.shared.routing.wake();
    }

    fn is_set_down(&self) -> bool {
        self.shared.data.is_set_down()
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<(), ListenError> {
        self.server.as_ref().map_or(Ok(()), |server| server.set_permissions(permissions))
    }

    fn status(&self) -> LinkStatus {
        let status = LinkStatus { slow_calls: self.shared.call_cost.is_slow(), ..self.shared.state().status() };
        match self.listen_failure().filter(|_| !status.up && !self.is_set_down()) {
            Some(reason) => LinkStatus { reason, cause: Some(DownCause::CannotListen), ..status },
            None => status,
        }
    }

    fn history(&self) -> LinkHistory {
        self.shared.state().history()
    }

    /// Returns the counters of queue pairs that are offered to the guest, and of all that were ever
    /// started.
    fn counters(&self) -> Vec<Arc<QueueCounters>> {
        self.shared.data.counters.first(self.shared.pairs_shown.load(Ordering::Relaxed).into())
    }

    fn drops(&self) -> &Arc<Drops> {
        &self.shared.data.drops
    }

    /// Closes the listener first. A frontend that connects again at once, when its connection ends,
    /// must not reach it: some give up for good on a connection that ends in the handshake.
    fn pause(&self) {
        if let Some(server) = &self.server {
            server.close();
        }
        self.stop.pause(&self.shared.inbox);
    }

    fn resume(&self) -> Result<(), ListenError> {
        let opened = self.server.as_ref().map_or(Ok(()), |server| server.open());
        self.stop.resume(&self.shared.inbox);
        opened
    }

    fn listen_failure(&self) -> Option<String> {
        self.server.as_ref()?.failure()
    }

    /// Closes the listener first, as [`Self::pause`] does.
    fn begin_stop(&self) {
        if let Some(server) = &self.server {
            server.close();
        }
        self.stop.set(&self.shared.inbox);
    }

    fn has_ended(&self) -> bool {
        self.thread().as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Frees a thread that waits for a connection on a socket that was handed over.
    fn end_wait(&self, began: Instant) {
        if let Mode::Given(socket) = &self.shared.config.mode {
            self.stop.leave(socket, self.shared.clock(), began + ACCEPT_TIME);
        }
    }

    fn join(&self) -> bool {
        let Some(thread) = self.thread().take() else { return true };
        if thread.is_finished() {
            // A panic was logged already.
            let _ = thread.join();
            return true;
        }
        false
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.stop();
    }
}
