//! The port's own thread: accepts a frontend, follows its protocol, maps its memory, lets rings come and go.
//!
//! One frontend at a time; the next waits until this one has left. Workers see nothing of it but the [`Link`], which
//! is replaced as a whole: whatever is unmapped or stopped, no turn uses any more.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use straightline_virtio::features::{
    VIRTIO_F_EVENT_IDX, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_RING_PACKED, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_MRG_RXBUF, names,
};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::net_header::Receiver;
use straightline_virtio::ring::{Geometry, PackedDevice, Ring, SplitDevice};
use straightline_virtio::vhost_user::{Connection, Effect, Outcome, Refused, RegionFd, RingSetup, Session, Stopper};

use super::link::{Link, Report};
use super::listener::Listener;
use super::queue::Queue;
use super::{LinkStatus, RingStatus, Shared};
use crate::Token;
use crate::sleeper::Notifier;

/// The guest's receive ring and its transmit ring (virtio 1.2, 5.1.2).
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const RINGS: [u16; 2] = [RECEIVE, TRANSMIT];

/// How long nobody is accepted after the system could not give us a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

fn ring_name(index: u16) -> &'static str {
    if index == RECEIVE { "receive ring" } else { "transmit ring" }
}

/// Tells the thread to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    /// The connection that is served: its frontend may be in the middle of a message, or not read our answers.
    connection: Mutex<Option<Stopper>>,
}

impl Stop {
    pub(super) fn set(&self, report: &Report) {
        self.is_set.store(true, Ordering::Release);
        report.wake();
        if let Some(connection) = &*self.connection() {
            connection.stop();
        }
    }

    /// Whoever enters a connection looks at [`Self::is_set`] afterwards, before it waits for the frontend.
    fn enter(&self, connection: Option<Stopper>) {
        *self.connection() = connection;
    }

    fn connection(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// The thread's state while nobody is connected.
pub(super) struct Control {
    shared: Arc<Shared>,
    listener: Listener,
    stop: Arc<Stop>,
}

impl Control {
    pub(super) fn new(shared: Arc<Shared>, listener: Listener, stop: Arc<Stop>) -> Self {
        shared.state().now.reason = "no frontend has connected yet".to_owned();
        Control { shared, listener, stop }
    }

    pub(super) fn run(self) {
        let name = &self.shared.config.name;
        while !self.stop.is_set() {
            let ready = wait_for(self.listener.socket().as_fd(), self.shared.report.event());
            self.shared.report.take();
            if self.stop.is_set() || !ready {
                continue;
            }
            let accepted = self.listener.socket().accept().and_then(|(stream, _)| {
                let connection = Connection::new(stream);
                let stopper = connection.stopper()?;
                Ok((connection, stopper))
            });
            match accepted {
                Ok((connection, stopper)) => {
                    tracing::info!(port = name, "a frontend has connected");
                    self.stop.enter(Some(stopper));
                    let mut guest = Guest::new(Arc::clone(&self.shared), connection);
                    let why = guest.serve(&self.stop);
                    self.stop.enter(None);
                    guest.leave();
                    tracing::info!(port = name, "the frontend has left: {why}");
                    self.shared.state().now =
                        LinkStatus { reason: format!("{why}; waiting for a frontend"), ..LinkStatus::default() };
                }
                Err(error) => {
                    tracing::warn!(port = name, "cannot accept a frontend: {error}");
                    // Whoever waits still waits; what is missing (descriptors, mostly) comes back or does not.
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }
}

/// Waits until `fd` is readable (`true`) or the port's own event is.
fn wait_for(fd: BorrowedFd<'_>, event: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::from_borrowed_fd(event, PollFlags::IN)];
    // An interrupted wait looks at both again.
    let _ = poll(&mut fds, None);
    !fds[0].revents().is_empty()
}

/// A ring that workers use.
struct Running {
    queue: Arc<Queue>,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    token: Option<Token>,
}

/// A connected frontend.
struct Guest {
    shared: Arc<Shared>,
    connection: Connection,
    session: Session,
    memory: Arc<GuestMemory>,
    rings: [Option<Running>; 2],
    /// The kick of a ring that broke: it stays stopped until the frontend sets another.
    broken: [Option<Arc<OwnedFd>>; 2],
    acked: u64,
    /// Counts the links published.
    generation: u64,
    /// Rings that were stopped and that workers may still use until the next link is published.
    stopping: Vec<(u16, Arc<Queue>)>,
}

impl Guest {
    fn new(shared: Arc<Shared>, connection: Connection) -> Self {
        let session = Session::new(shared.config.offer());
        let memory = Arc::default();
        let guest = Guest {
            shared,
            connection,
            session,
            memory,
            rings: [None, None],
            broken: [None, None],
            acked: 0,
            generation: 0,
            stopping: Vec::new(),
        };
        guest.show();
        guest
    }

    /// Serves until the frontend leaves or errs, or the port stops. Says which.
    fn serve(&mut self, stop: &Stop) -> String {
        loop {
            let ready = wait_for(self.connection.stream().as_fd(), self.shared.report.event());
            // A report about a link that has been replaced since says nothing about this one.
            if let Some((_, fault)) = self.shared.report.take().filter(|(about, _)| *about == self.generation) {
                self.break_off(fault);
            }
            if stop.is_set() {
                return "the port was stopped".to_owned();
            }
            if !ready {
                continue;
            }
            match self.step() {
                Ok(true) => self.show(),
                Ok(false) => return "the frontend closed its connection".to_owned(),
                Err(why) => return why,
            }
        }
    }

    /// One message. `false` at the connection's end.
    fn step(&mut self) -> Result<bool, String> {
        let Some((message, fds)) = self.connection.recv().map_err(|e| format!("its socket failed: {e}"))? else {
            return Ok(false);
        };
        tracing::trace!(port = self.shared.config.name, fds = fds.len(), "{message:?}");
        let answer = match self.session.handle(message, fds) {
            Ok(effect) => {
                let outcome = self.carry_out(effect);
                let failed = matches!(outcome, Outcome::Failed);
                let answer = self.session.reply(outcome);
                if failed {
                    // The session took the set-up back: the rings follow. What is wrong was said already.
                    let _ = self.sync();
                    if answer.is_none() {
                        let why = self.shared.state().fault.clone().unwrap_or_default();
                        return Err(format!("what it asked for failed: {why}"));
                    }
                }
                answer
            }
            Err(error) => match self.session.refuse(&error) {
                Refused::Answer(bytes) => {
                    tracing::warn!(port = self.shared.config.name, "refused: {error}");
                    self.shared.state().fault = Some(format!("refused: {error}"));
                    Some(bytes)
                }
                Refused::Ignore => {
                    tracing::debug!(port = self.shared.config.name, "ignored: {error}");
                    None
                }
                Refused::Close => return Err(error.to_string()),
            },
        };
        if let Some(bytes) = answer {
            self.connection.send(&bytes, &[]).map_err(|e| format!("its socket failed: {e}"))?;
        }
        Ok(true)
    }

    fn carry_out(&mut self, effect: Effect) -> Outcome {
        let done = match effect {
            Effect::None | Effect::Status(_) | Effect::Rarp(_) => Ok(()),
            Effect::Memory(regions) => self.set_memory(regions),
            Effect::AddRegion(region) => self.add_region(&region),
            Effect::RemoveRegion(spec) => {
                let kept = |r: &&Arc<Region>| r.guest_addr() != spec.guest_addr;
                let regions = self.memory.regions().iter().filter(kept).cloned().collect();
                self.replace_memory(regions)
            }
            Effect::Features(_) | Effect::Ring(_) | Effect::DisableRings => self.sync(),
            Effect::Reset => {
                let done = self.sync();
                // A reset device begins anew (virtio 1.2, 2.4), wherever its rings stood.
                // In a packed ring both wrap counters begin at 1 (2.8.1).
                let base = if self.session.acked_features() & VIRTIO_F_RING_PACKED != 0 { 0x8000_8000 } else { 0 };
                RINGS.iter().for_each(|&index| self.session.stopped_at(index, base));
                done
            }
            Effect::StopRing(index) => {
                let base = self.rings.get(usize::from(index)).and_then(Option::as_ref).map(|r| Arc::clone(&r.queue));
                let done = self.sync();
                let base = match base {
                    Some(queue) => queue.base(),
                    None => self.session.ring(index).map_or(0, |r| r.base),
                };
                if done.is_ok() {
                    return Outcome::RingBase(base);
                }
                done
            }
            Effect::Mtu(mtu) if mtu <= self.shared.config.mtu => Ok(()),
            Effect::Mtu(mtu) => {
                Err(format!("the frontend sets an MTU of {mtu}; the port's is {}", self.shared.config.mtu))
            }
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(why) => {
                tracing::warn!(port = self.shared.config.name, "{why}");
                self.shared.state().fault = Some(why);
                Outcome::Failed
            }
        }
    }

    fn set_memory(&mut self, regions: Vec<RegionFd>) -> Result<(), String> {
        let mapped = regions.iter().map(map).collect::<Result<_, _>>()?;
        self.replace_memory(mapped)
    }

    fn add_region(&mut self, region: &RegionFd) -> Result<(), String> {
        let mut regions = self.memory.regions().to_vec();
        regions.push(map(region)?);
        let memory = GuestMemory::new(regions).ok_or("memory regions overlap")?;
        // The regions that were there stay where they are mapped, so the rings go on in them.
        self.memory = Arc::new(memory);
        for ring in self.rings.iter().flatten() {
            ring.queue.set_memory(Arc::clone(&self.memory));
        }
        self.publish();
        self.sync()
    }

    /// Another memory map: rings are stopped, found again in the new map, and go on where they were.
    fn replace_memory(&mut self, regions: Vec<Arc<Region>>) -> Result<(), String> {
        let memory = Arc::new(GuestMemory::new(regions).ok_or("memory regions overlap")?);
        for index in RINGS {
            if let Some(stopped) = self.rings[usize::from(index)].take() {
                self.shared.forget(stopped.token);
                self.stopping.push((index, stopped.queue));
            }
        }
        self.publish();
        // Also for a ring whose memory comes back only later.
        self.note_bases();
        self.memory = memory;
        for index in RINGS {
            self.sync_ring(index)?;
        }
        self.publish();
        Ok(())
    }

    /// Notes where stopped rings would go on, once nobody uses them any more.
    fn note_bases(&mut self) {
        for (index, queue) in std::mem::take(&mut self.stopping) {
            self.session.stopped_at(index, queue.base());
        }
    }

    /// Makes the rings that run those that should.
    fn sync(&mut self) -> Result<(), String> {
        let mut changed = self.acked != self.session.acked_features();
        self.acked = self.session.acked_features();
        let mut result = Ok(());
        for index in RINGS {
            match self.sync_ring(index) {
                Ok(ring_changed) => changed |= ring_changed,
                Err(why) => result = Err(why),
            }
        }
        if changed {
            self.publish();
        }
        self.note_bases();
        result
    }

    /// Starts, stops or adjusts one ring. `true` if workers are to see a new link.
    fn sync_ring(&mut self, index: u16) -> Result<bool, String> {
        let at = usize::from(index);
        let Some(setup) = self.session.ring(index) else { return Ok(false) };
        let broken = self.broken[at].as_ref().is_some_and(|kick| same(Some(kick), setup.kick.as_ref()));
        let wanted = self.session.ready(index) && self.session.refusal().is_none() && !broken;
        match (&mut self.rings[at], wanted) {
            (None, false) => Ok(false),
            (Some(_), false) => {
                if let Some(stopped) = self.rings[at].take() {
                    self.shared.forget(stopped.token);
                    self.stopping.push((index, stopped.queue));
                }
                Ok(true)
            }
            (Some(running), true) => {
                if running.queue.enabled() != setup.enabled {
                    running.queue.set_enabled(setup.enabled);
                    // Published again for its wait: no turn that saw the old state goes on.
                    return Ok(true);
                }
                self.shared.rewire(index, running, setup)?;
                Ok(false)
            }
            (None, true) => {
                let started = self.start(index, setup)?;
                self.rings[at] = Some(started);
                self.broken[at] = None;
                self.shared.state().fault = None;
                Ok(true)
            }
        }
    }

    fn start(&self, index: u16, setup: &RingSetup) -> Result<Running, String> {
        let geometry = Geometry { size: setup.size, desc: setup.desc, avail: setup.avail, used: setup.used };
        let acked = self.session.acked_features();
        let (event_idx, indirect) = (acked & VIRTIO_F_EVENT_IDX != 0, acked & VIRTIO_F_INDIRECT_DESC != 0);
        let ring = if acked & VIRTIO_F_RING_PACKED != 0 {
            PackedDevice::new(&self.memory, geometry, setup.base, event_idx, indirect).map(Ring::Packed)
        } else {
            let base = u16::try_from(setup.base & 0xffff).unwrap_or(0);
            SplitDevice::new(&self.memory, geometry, base, event_idx, indirect).map(Ring::Split)
        };
        let mut ring = ring.map_err(|part| format!("{}: its {part} is not in guest memory", ring_name(index)))?;
        ring.disarm();
        let holds = self.shared.config.holds && index == TRANSMIT;
        let (memory, counters) = (Arc::clone(&self.memory), Arc::clone(&self.shared.counters));
        let queue = Arc::new(Queue::new(ring, memory, setup.enabled, counters, holds, setup.polled));
        let mut running = Running { queue, kick: None, call: None, token: None };
        match self.shared.rewire(index, &mut running, setup) {
            Ok(()) => Ok(running),
            Err(why) => {
                self.shared.forget(running.token);
                Err(why)
            }
        }
    }

    /// Shows workers the rings as they are now, and waits until none uses what is gone.
    fn publish(&mut self) {
        self.generation += 1;
        let [tx, rx] = self.rings.each_ref().map(|ring| ring.as_ref().map(|r| Arc::clone(&r.queue)));
        let acked = self.session.acked_features();
        let link = (tx.is_some() || rx.is_some()).then(|| {
            Box::new(Link {
                index: self.shared.index,
                memory: Arc::clone(&self.memory),
                acked,
                receiver: Receiver::new(acked),
                mergeable: acked & VIRTIO_NET_F_MRG_RXBUF != 0,
                // Segmentation needs it, so it stands for all that a header can ask for.
                reads_header: acked & VIRTIO_NET_F_CSUM != 0,
                max_len: self.shared.max_len(),
                drops: Arc::clone(&self.shared.drops),
                rx,
                tx,
                broken: AtomicBool::new(false),
                generation: self.generation,
                report: Arc::clone(&self.shared.report),
            })
        });
        drop(self.shared.link.swap(link));
        // There may be packets already, from before anybody looked.
        self.shared.sleeper.ring();
    }

    /// A worker found the link broken.
    fn break_off(&mut self, fault: String) {
        tracing::warn!(port = self.shared.config.name, "the port stops: {fault}");
        for index in RINGS {
            let at = usize::from(index);
            if let Some(running) = self.rings[at].take() {
                self.broken[at] = running.kick;
                self.shared.forget(running.token);
                self.stopping.push((index, running.queue));
            }
            if let Some(err) = self.session.ring(index).and_then(|r| r.err.as_ref()) {
                // Whoever listens learns that the ring is broken; nobody has to.
                if let Ok(err) = Notifier::new(Arc::clone(err), OFlags::WRONLY) {
                    err.ring();
                }
            }
        }
        self.publish();
        self.note_bases();
        self.shared.state().fault = Some(fault);
        self.show();
    }

    /// The frontend is gone: nothing of it stays.
    fn leave(&mut self) {
        for ring in &mut self.rings {
            self.shared.forget(ring.take().and_then(|r| r.token));
        }
        self.publish();
        self.memory = Arc::default();
        self.shared.state().fault = None;
    }

    /// Brings what operators see up to date.
    fn show(&self) {
        let reason = self.why_down();
        let up = reason.is_none();
        let now = LinkStatus {
            up,
            reason: reason.unwrap_or_default(),
            features: names(self.session.acked_features()).collect(),
            regions: self.memory.regions().len(),
            ring: self
                .rings
                .iter()
                .flatten()
                .next()
                .map(|r| RingStatus { size: r.queue.size(), packed: r.queue.is_packed() }),
        };
        let mut state = self.shared.state();
        if up != state.now.up {
            let link = if up { "up" } else { "down" };
            tracing::info!(port = self.shared.config.name, "link {link}{}{}", if up { "" } else { ": " }, now.reason);
        }
        state.now = now;
    }

    fn why_down(&self) -> Option<String> {
        if let Some(refusal) = self.session.refusal()
            && self.session.acked_features() != 0
        {
            return Some(refusal.to_string());
        }
        for index in RINGS {
            if let Some(missing) = self.session.missing(index) {
                return Some(format!("a frontend is connected; its {} waits for {missing}", ring_name(index)));
            }
            match &self.rings[usize::from(index)] {
                None => return Some(format!("the {} does not run", ring_name(index))),
                Some(r) if !r.queue.enabled() => {
                    return Some(format!("the frontend has disabled the {}", ring_name(index)));
                }
                Some(_) => {}
            }
        }
        None
    }
}

impl Shared {
    /// Takes over the descriptors of a ring's set-up where they are new.
    fn rewire(&self, index: u16, running: &mut Running, setup: &RingSetup) -> Result<(), String> {
        let name = ring_name(index);
        if !same(running.kick.as_ref(), setup.kick.as_ref()) {
            self.forget(running.token.take());
            // The receive ring's kicks say that there is room: only who waits for room wants to know.
            let watched = index == TRANSMIT || self.config.waits;
            if let Some(kick) = setup.kick.as_ref().filter(|_| watched) {
                let token =
                    self.sleeper.add(Arc::clone(kick)).map_err(|e| format!("{name}: cannot wait for its kick: {e}"))?;
                running.token = Some(token);
            }
            running.kick = setup.kick.clone();
        }
        if !same(running.call.as_ref(), setup.call.as_ref()) {
            let call = setup.call.clone().map(|fd| Notifier::new(fd, OFlags::WRONLY)).transpose();
            running.queue.set_call(call.map_err(|e| format!("{name}: cannot use its call descriptor: {e}"))?);
            running.call = setup.call.clone();
        }
        Ok(())
    }

    fn forget(&self, token: Option<Token>) {
        if let Some(token) = token {
            self.sleeper.remove(token);
        }
    }
}

fn same(a: Option<&Arc<OwnedFd>>, b: Option<&Arc<OwnedFd>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

fn map(region: &RegionFd) -> Result<Arc<Region>, String> {
    let spec = region.spec();
    Region::map(region.fd.as_fd(), spec.mmap_offset, spec.size, spec.guest_addr, spec.user_addr)
        .map(Arc::new)
        .map_err(|e| e.to_string())
}
