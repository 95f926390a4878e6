//! A guest behind a vhost-user socket.
//!
//! | folder | holds |
//! |---|---|
//! | `data` | what workers touch while packets pass |
//! | `control` | the port's own thread, which serves one frontend after the other |
//!
//! Control imports data; data imports nothing of control.

mod control;
mod data;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use straightline_packet::{Batch, Drops, PortIndex, Rcu, RcuCell, Reason, Turn};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{NetConfig, Offer, SUPPORTED_PROTOCOL_FEATURES};

use crate::kick_routing::KickRouting;
use crate::{EpollWaiter, Port, QueueCounters, Signals};
use control::connector::Connector;
pub use control::history::LinkHistory;
use control::listener::Server;
pub use control::listener::{ListenError, Listener, Permissions};
use control::log_limit::LogLimit;
pub use control::peer::Peer;
use control::status::State;
pub use control::status::{LinkStatus, RingStatus};
use control::thread::{ACCEPT_TIME, Control, Stop, Way};
use data::announcement::{self, Announcement};
use data::link::{Link, Report};
pub use data::worker_port::{QueueAssignment, Waiters};
use data::worker_port::{Seated, WorkerPort};
pub use straightline_virtio::net_control::Receives;
pub use straightline_virtio::vhost_user::MAX_QUEUE_PAIRS;

/// How long a port's thread may take to end, which it does at once, or when a transfer of device state has failed. To close
/// a descriptor can take for ever: that of a pipe whose lock its frontend keeps, or of a file that the frontend serves.
const END_TIME: Duration = Duration::from_secs(6);

/// Bytes of an Ethernet header and a VLAN tag: what a frame may have beyond the MTU.
const FRAMING: u32 = 18;

/// Most memory regions of one guest.
const MAX_REGIONS: u64 = 64;

/// Who listens, and who connects.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The port listens; these may connect.
    Server(Permissions),
    /// The frontend listens. The port connects, and again for ever when that fails or the connection ends.
    Client,
    /// A Unix socket that somebody has opened: one that listens, or one that is connected to a frontend. With the end of
    /// that connection the port is at its end, and closes it.
    Given(Arc<OwnedFd>),
}

/// What a driver can ask for by commands, whatever else is offered.
const CONTROL: u64 = f::VIRTIO_NET_F_CTRL_VQ
    | f::VIRTIO_NET_F_CTRL_RX
    | f::VIRTIO_NET_F_CTRL_RX_EXTRA
    | f::VIRTIO_NET_F_CTRL_VLAN
    | f::VIRTIO_NET_F_CTRL_MAC_ADDR
    | f::VIRTIO_NET_F_GUEST_ANNOUNCE;

/// How a vhost-user port is set up.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// The port's name.
    pub name: String,
    /// Where it, or the frontend, listens.
    pub socket: PathBuf,
    /// Which of the two.
    pub mode: Mode,
    /// Told to the guest, and the limit of what it may send or be sent.
    pub mtu: u16,
    /// Told to the guest.
    pub mac: Option<[u8; 6]>,
    /// Told to the guest where `mac` is none.
    pub default_mac: Option<[u8; 6]>,
    /// Offer partial checksums.
    pub csum: bool,
    /// Offer TCP segmentation; needs `csum`.
    pub tso: bool,
    /// Offer UDP segmentation; needs `csum`.
    pub uso: bool,
    /// Most queue pairs, 1 to 127. None: a frontend that reads the configuration space is told 1, and others may start
    /// as many as the protocol can name.
    pub queues: Option<u16>,
    /// Offer the packed ring.
    pub packed: bool,
    /// Packets for a full destination are left in this guest's ring.
    pub holds: bool,
    /// Packets for this guest wait for room, so that its worker is to be woken when there is some.
    pub waits: bool,
}

impl VhostUserConfig {
    /// A port with the defaults: it listens at `socket`, has an MTU of 1500, leaves the number of queue pairs to its
    /// frontend, and offers all offloads and the packed ring. Nothing waits.
    pub fn new(name: impl Into<String>, socket: impl Into<PathBuf>) -> Self {
        VhostUserConfig {
            name: name.into(),
            socket: socket.into(),
            mode: Mode::Server(Permissions::default()),
            mtu: 1500,
            mac: None,
            default_mac: None,
            csum: true,
            tso: true,
            uso: true,
            queues: None,
            packed: true,
            holds: false,
            waits: false,
        }
    }

    /// Most queue pairs that a frontend may start.
    fn most_pairs(&self) -> u16 {
        self.queues.unwrap_or(MAX_QUEUE_PAIRS).clamp(1, MAX_QUEUE_PAIRS)
    }

    /// Queue pairs that the configuration space names. Its readers start that many, whether their driver uses them or not.
    fn told_pairs(&self) -> u16 {
        self.queues.unwrap_or(1).clamp(1, MAX_QUEUE_PAIRS)
    }

    fn told_mac(&self) -> Option<[u8; 6]> {
        self.mac.or(self.default_mac)
    }

    /// What is offered to the guest (virtio 1.2, 5.1.3: segmentation needs the checksum, so it is offered only with it).
    fn offer(&self) -> Offer {
        let mut features = f::VIRTIO_F_VERSION_1
            | f::VIRTIO_F_EVENT_IDX
            | f::VIRTIO_F_INDIRECT_DESC
            | f::VIRTIO_F_IN_ORDER
            | f::VIRTIO_NET_F_MRG_RXBUF
            | f::VIRTIO_NET_F_STATUS
            | f::VHOST_F_LOG_ALL
            | f::VIRTIO_NET_F_MTU;
        if self.packed {
            features |= f::VIRTIO_F_RING_PACKED;
        }
        if self.told_mac().is_some() {
            features |= f::VIRTIO_NET_F_MAC;
        }
        features |= CONTROL;
        if self.most_pairs() > 1 {
            features |= f::VIRTIO_NET_F_MQ;
        }
        if self.csum {
            features |= f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS;
            if self.tso {
                features |= f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_ECN;
                features |= f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6 | f::VIRTIO_NET_F_GUEST_ECN;
            }
            if self.uso {
                features |= f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;
            }
        }
        let link_up = 1;
        Offer {
            features,
            protocol_features: SUPPORTED_PROTOCOL_FEATURES,
            queue_pairs: self.most_pairs(),
            max_mem_slots: MAX_REGIONS,
            config: NetConfig {
                mac: self.told_mac().unwrap_or_default(),
                status: link_up,
                max_virtqueue_pairs: self.told_pairs(),
                mtu: self.mtu,
            },
        }
    }
}

/// What the port's control thread and its users share.
#[derive(Debug)]
struct Shared {
    config: VhostUserConfig,
    index: PortIndex,
    drops: Arc<Drops>,
    /// Of each queue pair.
    counters: Box<[Arc<QueueCounters>]>,
    /// Queue pairs that operators see: those that are told, and all that a frontend has ever started.
    pairs_shown: AtomicU16,
    link: RcuCell<Link>,
    rcu: Rcu,
    /// Moves a device's state, or did.
    mover: Mutex<Option<JoinHandle<()>>>,
    /// Kicks of the control ring.
    commands: Arc<EpollWaiter>,
    routing: Arc<KickRouting>,
    /// Who serves which pair. The port's thread shows it to workers with the next link.
    assignment: Mutex<Arc<QueueAssignment>>,
    announcement: Announcement,
    /// An administrator has set the link down.
    set_down: AtomicBool,
    /// Packets may be left in the guest's transmit rings.
    holds: Arc<AtomicBool>,
    report: Arc<Report>,
    log_limit: Mutex<LogLimit>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_set_down(&self) -> bool {
        self.set_down.load(Ordering::Acquire)
    }

    fn assignment(&self) -> Arc<QueueAssignment> {
        Arc::clone(&self.assignment.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The guest, where there is one that can be served.
    #[inline]
    fn sound<'t>(&self, turn: &Turn<'t>) -> Option<&'t Link> {
        self.link.load(turn).filter(|link| link.is_sound())
    }

    /// Takes what is to be announced in the guest's name, as if it had sent it.
    #[cold]
    fn announce(&self, turn: &mut Turn<'_>, into: &mut Batch) {
        if let Some(id) = self.announcement.take(self.index, turn) {
            if self.is_set_down() {
                return turn.discard(id, Reason::SetDown);
            }
            into.push(id);
            if let Some(counters) = self.counters.first() {
                counters.rx.packets.add(1);
                counters.rx.bytes.add(announcement::LEN as u64);
            }
        }
    }

    /// Bytes of the longest frame that is not to be segmented.
    fn max_len(&self) -> u32 {
        u32::from(self.config.mtu) + FRAMING
    }
}

/// A port that is a guest's network device.
#[derive(Debug)]
pub struct VhostUser {
    shared: Arc<Shared>,
    /// Of the one worker that serves all of it.
    whole: WorkerPort,
    /// Where it listens at a socket of its own.
    server: Option<Arc<Server>>,
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
        let way = match &config.mode {
            Mode::Server(permissions) => Way::Server(Arc::new(Server::bind(&config.socket, permissions)?)),
            Mode::Client => Way::Connector(Connector::new(&config.socket)),
            Mode::Given(socket) => Way::given(socket).map_err(|source| ListenError::System {
                path: config.socket.clone(),
                what: "cannot serve it",
                source,
            })?,
        };
        let system = |source| ListenError::System { path: config.socket.clone(), what: "cannot set it up", source };
        // Without it the port's thread has a helper notify.
        let _ = Signals::prepare_control();
        let shared = Arc::new(Shared {
            index,
            drops,
            counters: (0..config.most_pairs()).map(|_| Arc::default()).collect(),
            pairs_shown: AtomicU16::new(config.told_pairs()),
            link: RcuCell::new(rcu),
            rcu: rcu.clone(),
            mover: Mutex::default(),
            commands: Arc::new(EpollWaiter::new().map_err(system)?),
            routing: Arc::new(KickRouting::new(waiters.into(), config.waits)),
            assignment: Mutex::new(Arc::new(QueueAssignment::one(0, config.most_pairs()))),
            announcement: Announcement::default(),
            set_down: AtomicBool::new(false),
            holds: Arc::new(AtomicBool::new(config.holds)),
            report: Arc::new(Report::new().map_err(system)?),
            log_limit: Mutex::new(LogLimit::new(Instant::now())),
            state: Mutex::new(State::new()),
            config: config.clone(),
        });
        let stop = Arc::new(Stop::default());
        let server = if let Way::Server(server) = &way { Some(Arc::clone(server)) } else { None };
        let control = Control::new(Arc::clone(&shared), way, Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("port {}", config.name))
            .spawn(move || control.run())
            .map_err(system)?;
        let whole = WorkerPort::of(&QueueAssignment::one(0, config.most_pairs()), 0);
        Ok(VhostUser { shared, whole, server, stop, control: Mutex::new(Some(thread)) })
    }

    /// The port as this worker serves it.
    pub fn seat(&self, worker: usize) -> Arc<dyn Port> {
        let seat = WorkerPort::of(&self.shared.assignment(), worker);
        Arc::new(Seated { shared: Arc::clone(&self.shared), seat })
    }

    /// KickKind who serves which pair. Seats that were given out before are not to be used any more. Who delivers to which
    /// receive ring follows soon, not at once: until then workers may wait for one another's rings.
    ///
    /// # Panics
    /// If nobody delivers.
    pub fn assign_queues(&self, assignment: QueueAssignment) {
        assert!(!assignment.givers.is_empty(), "somebody delivers to each port");
        *self.shared.assignment.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(assignment);
        self.shared.report.wake();
    }

    /// Takes the link down, closes the connection, removes the socket file, and waits until its thread has ended. See
    /// [`stop_all`].
    pub fn stop(&self) {
        stop_all([self]);
    }

    /// Begins to stop, and does not wait: the socket file is removed, the connection is closed, and the port's thread ends
    /// soon.
    pub fn begin_stop(&self) {
        self.stop.set(&self.shared.report);
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
        self.stop.pause(&self.shared.report);
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
        self.stop.resume(&self.shared.report);
        opened
    }

    /// Why the port cannot listen at its socket, where that is so.
    pub fn listen_failure(&self) -> Option<String> {
        self.server.as_ref()?.failure()
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
        self.shared.set_down.store(!up, Ordering::Release);
        self.shared.state().set_down(!up);
        self.shared.report.wake();
    }

    /// Whether an administrator has set the link down.
    pub fn is_set_down(&self) -> bool {
        self.shared.is_set_down()
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
        &self.shared.counters[..shown.min(self.shared.counters.len())]
    }

    /// Why packets that came from it, or were for it, were dropped.
    pub fn drops(&self) -> &Arc<Drops> {
        &self.shared.drops
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Port for VhostUser {
    fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.shared.index)
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        self.whole.receive(&self.shared, turn, into, max);
    }

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        self.whole.deliver(&self.shared, turn, batch, wait);
    }

    fn arm(&self, turn: &Turn<'_>, room: bool) -> bool {
        self.whole.arm(&self.shared, turn, room)
    }

    fn disarm(&self, turn: &Turn<'_>, room: bool) {
        self.whole.disarm(&self.shared, turn, room);
    }
}

/// Stops ports: all of them begin to stop before any is waited for, and all together have the time of one. Returns the
/// names of those whose thread is left behind, because a frontend holds it.
pub fn stop_all<'a>(ports: impl IntoIterator<Item = &'a VhostUser>) -> Vec<String> {
    let ports: Vec<_> = ports.into_iter().collect();
    ports.iter().for_each(|port| port.begin_stop());
    wait_for_ends(&ports, END_TIME);
    let mut left = Vec::new();
    for port in ports {
        let Some(thread) = port.control().take() else { continue };
        if thread.is_finished() {
            // It has said what it panicked of.
            let _ = thread.join();
            continue;
        }
        // Its link is in no graph any more, or soon will not be.
        let name = &port.shared.config.name;
        tracing::error!(port = name, "a descriptor that its frontend sent keeps its thread; the thread is left behind");
        left.push(name.clone());
    }
    left
}

/// Waits until the threads of ports that have begun to stop have ended, for all of them together at most for `limit`. A
/// thread that waits for a connection on a socket that was handed over is freed, which takes 100 ms at most.
pub fn wait_for_ends(ports: &[&VhostUser], limit: Duration) {
    let began = Instant::now();
    for port in ports.iter().filter(|port| !port.has_ended()) {
        if let Mode::Given(socket) = &port.shared.config.mode {
            port.stop.leave(socket, began + ACCEPT_TIME);
        }
        is_within(limit.saturating_sub(began.elapsed()), || port.has_ended());
    }
}

/// Waits until it is so, at most for that long; whether it is.
fn is_within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_is_held_is_waited_for_in_vain() {
        let (release, held) = channel::<()>();
        let thread = std::thread::spawn(move || held.recv());
        assert!(!is_within(Duration::from_millis(20), || thread.is_finished()));
        drop(release);
        assert!(is_within(Duration::from_secs(60), || thread.is_finished()));
    }
}
