//! Rings coming and going: what runs is made the same as what the frontend set up.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use straightline_virtio::features::{
    VHOST_F_LOG_ALL, VIRTIO_F_EVENT_IDX, VIRTIO_F_IN_ORDER, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_RING_PACKED,
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_MRG_RXBUF,
};
use straightline_virtio::net_header::Receiver;
use straightline_virtio::ring::{Direction, Geometry, InflightError, Options, PackedDevice, Ring, SplitDevice};
use straightline_virtio::vhost_user::RingSetup;
use tracing::Level;

use super::calls::Watch;
use super::frontend::Guest;
use crate::call_helper::CallHelper;
use crate::kick_routing::{Kick, KickKind, KickRouting};
use crate::notifier::Notifier;
use crate::vhost_user::data::link::Link;
use crate::vhost_user::data::queue::Queue;
use crate::vhost_user::data::spread::Spread;

/// Whether a ring is one that its guest transmits by: receive and transmit rings take turns (virtio 1.2, 5.1.2).
pub(crate) fn is_transmit(index: u16) -> bool {
    index % 2 == 1
}

/// Stands for the control ring's index, which depends on what was negotiated.
const CONTROL: u16 = u16::MAX;

/// What messages call a ring.
pub(crate) fn ring_name(index: u16) -> String {
    let kind = if is_transmit(index) { "transmit ring" } else { "receive ring" };
    match index / 2 {
        _ if index == CONTROL => "control ring".to_owned(),
        0 => kind.to_owned(),
        pair => format!("{kind} {pair}"),
    }
}

/// A ring that workers use.
pub(crate) struct Running {
    pub(crate) queue: Arc<Queue>,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    token: Option<Kick>,
    /// Where its kicks are waited for.
    routing: Arc<KickRouting>,
    /// Whether its driver answers its calls.
    pub(crate) watch: Watch,
}

impl Guest {
    /// Takes a ring out of those that run. Workers may use it until the next link is published.
    pub(crate) fn take_out(&mut self, index: u16) -> Option<Running> {
        let mut stopped = self.rings.get_mut(usize::from(index))?.take()?;
        stopped.forget();
        self.stopping.push((index, Arc::clone(&stopped.queue)));
        Some(stopped)
    }

    /// Notes where stopped rings would go on, once nobody uses them any more.
    pub(crate) fn note_bases(&mut self) {
        for (index, queue) in std::mem::take(&mut self.stopping) {
            self.session.stopped_at(index, queue.base());
        }
    }

    /// Makes the rings that run those that should.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        let others = self.acked ^ self.session.acked_features();
        let mut changed = others != 0;
        // The dirty log comes and goes while the driver goes on.
        if others & !VHOST_F_LOG_ALL != 0 {
            self.reset_commands();
            self.started_pairs = 0;
        }
        self.acked = self.session.acked_features();
        self.check_log(&self.memory)?;
        let mut result = Ok(());
        for index in 0..self.session.rings() {
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
    pub(crate) fn sync_ring(&mut self, index: u16) -> Result<bool, String> {
        let at = usize::from(index);
        let Some(setup) = self.session.ring(index) else { return Ok(false) };
        let broken = self.broken[at] == Some(setup.starts);
        let wanted = self.session.ready(index) && self.session.refusal().is_none() && !broken;
        match (&mut self.rings[at], wanted) {
            (None, false) => Ok(false),
            (Some(_), false) => {
                self.take_out(index);
                Ok(true)
            }
            (Some(running), true) => {
                if running.queue.enabled() != setup.enabled {
                    running.queue.set_enabled(setup.enabled);
                    // RcuCell again for its wait: no turn that saw the old state goes on.
                    return Ok(true);
                }
                let index = if self.session.control_ring() == Some(index) { CONTROL } else { index };
                let replaced = running.rewire(index, setup, &self.calls)?;
                if replaced.is_some() {
                    // A worker may still call by it in this turn. To close it can take for ever: that is for this thread.
                    self.shared.rcu.wait();
                }
                Ok(false)
            }
            (None, true) => {
                let started = self.start(index, setup)?;
                self.rings[at] = Some(started);
                self.forget_state();
                self.broken[at] = None;
                self.shared.state().forget_fault();
                Ok(true)
            }
        }
    }

    fn start(&self, index: u16, setup: &RingSetup) -> Result<Running, String> {
        let is_control = self.session.control_ring() == Some(index);
        let routing = Arc::clone(if is_control { &self.commands.routing } else { &self.shared.routing });
        let index = if is_control { CONTROL } else { index };
        let geometry = Geometry { size: setup.size, desc: setup.desc, avail: setup.avail, used: setup.used };
        let acked = self.session.acked_features();
        let options = Options {
            event_idx: acked & VIRTIO_F_EVENT_IDX != 0,
            indirect: acked & VIRTIO_F_INDIRECT_DESC != 0,
            in_order: acked & VIRTIO_F_IN_ORDER != 0,
        };
        let packed = acked & VIRTIO_F_RING_PACKED != 0;
        let inflight = match self.inflight.table() {
            // A command is executed in one go, and the control ring has a size of its own.
            Some(table) if !is_control => table.queue(index, setup.size, packed),
            _ => Ok(None),
        };
        let (memory, log) = (&self.memory, self.active_log());
        let ring = inflight.and_then(|inflight| {
            if packed {
                let direction = if is_transmit(index) { Direction::FromGuest } else { Direction::ToGuest };
                let base = setup.base;
                match inflight {
                    None => PackedDevice::recover(memory, geometry, base, options, direction, log)
                        .map_err(InflightError::Ring),
                    Some(table) => PackedDevice::tracked(memory, geometry, base, options, direction, log, table),
                }
                .map(Ring::Packed)
            } else {
                match inflight {
                    None => SplitDevice::recover(memory, geometry, options).map_err(InflightError::Ring),
                    Some(table) => SplitDevice::tracked(memory, geometry, options, log, table),
                }
                .map(Ring::Split)
            }
        });
        let mut ring = ring.map_err(|error| format!("{}: {error}", ring_name(index)))?;
        ring.set_log(self.active_log().cloned());
        ring.disarm();
        let holds = if is_transmit(index) && !is_control { Arc::clone(&self.shared.holds) } else { Arc::default() };
        let counters = self.shared.counters.get(usize::from(index / 2)).cloned().unwrap_or_default();
        let memory = Arc::clone(&self.memory);
        let queue = Queue::new(ring, index, memory, setup.enabled, counters, holds, setup.polled);
        let mut queue = queue.of_port(self.shared.index);
        if options.event_idx {
            queue = queue.watched_by(Arc::clone(&self.shared.report));
        }
        let queue = Arc::new(queue);
        let mut running = Running { queue, kick: None, call: None, token: None, routing, watch: Watch::default() };
        running.rewire(index, setup, &self.calls)?;
        Ok(running)
    }

    /// Shows workers the rings as they are now, and waits until none uses what is gone.
    pub(crate) fn publish(&mut self) {
        self.generation += 1;
        // Without MQ the control ring stands where the second pair would (virtio 1.2, 5.1.2), and a frontend may set up
        // rings that no driver has; with it, the driver says how many pairs it uses, if it says so to us. A frontend may
        // have far more pairs than it starts: workers see only pairs up to the last that was started.
        let started = self.rings.iter().rposition(Option::is_some).map_or(0, |index| index / 2 + 1);
        let started = u16::try_from(started).unwrap_or(u16::MAX).min(self.session.queue_pairs());
        self.started_pairs = self.started_pairs.max(started);
        self.shared.pairs_shown.fetch_max(self.started_pairs, Ordering::Relaxed);
        let pairs = usize::from(self.started_pairs);
        let running = |index: usize| self.rings.get(index)?.as_ref().map(|r| Arc::clone(&r.queue));
        let used = self.running_control().map_or(pairs, |_| self.commands.state.pairs().into());
        // Packets in a transmit ring wait until it is enabled for the first time. A ring that is disabled later discards
        // them ("Ring states").
        let was_enabled = |index: usize| {
            u16::try_from(index).ok().and_then(|index| self.session.ring(index)).is_some_and(|setup| setup.was_enabled)
        };
        let rx: Box<[_]> =
            (0..pairs).map(|pair| 2 * pair + 1).map(|index| running(index).filter(|_| was_enabled(index))).collect();
        // A link that is set down has none that packets may go to.
        let open = |pair: usize| pair < used && !self.set_down;
        self.seated = self.shared.assignment();
        let tx = |giver: &usize| {
            let is_own = |pair: usize| self.seated.gives.get(pair) == Some(giver);
            Spread::new((0..pairs).map(|pair| running(2 * pair).filter(|_| open(pair))), is_own)
        };
        let tx: Box<[_]> = self.seated.givers.iter().map(tx).collect();
        let acked = self.session.acked_features();
        let offloads = if self.running_control().is_some() { self.commands.state.features() } else { acked };
        let log = self.active_log();
        for ring in self.rings.iter().flatten() {
            ring.queue.renew(log.cloned());
        }
        // Who delivers to which ring.
        let givers = self.seated.givers.iter().copied().zip(tx.iter());
        let serves = givers.flat_map(|(worker, to)| to.queues().iter().map(move |queue| (worker, Arc::clone(queue))));
        let serves: Vec<_> = serves.collect();
        let link = (rx.iter().any(Option::is_some) || tx.iter().any(Spread::any_runs)).then(|| {
            Box::new(Link {
                index: self.shared.index,
                memory: Arc::clone(&self.memory),
                log: log.cloned(),
                set_down: self.set_down,
                acked,
                receiver: Receiver::new(offloads),
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
        for queue in self.rings.iter().flatten().map(|ring| &ring.queue) {
            queue.forget_who_waits(|worker| serves.iter().any(|(by, to)| *by == worker && Arc::ptr_eq(to, queue)));
        }
        // There may be packets already, from before anybody looked.
        self.shared.routing.wake();
    }

    /// A worker found the link broken.
    pub(crate) fn break_off(&mut self, fault: String) {
        self.shared.log(Level::WARN, format_args!("the port stops: {fault}"));
        for index in 0..self.session.rings() {
            let at = usize::from(index);
            if self.take_out(index).is_some() {
                self.broken[at] = self.session.ring(index).map(|setup| setup.starts);
            }
            if let Some(err) = self.session.ring(index).and_then(|r| r.err.as_ref()) {
                // Whoever listens learns that the ring is broken; nobody has to.
                if let Ok(err) = Notifier::new(Arc::clone(err), &self.calls) {
                    err.ring();
                }
            }
        }
        self.publish();
        self.note_bases();
        self.shared.state().set_fault(fault);
        self.show();
    }
}

impl Running {
    /// Takes over the descriptors of a ring's set-up where they are new. Returns the call descriptor that was replaced: it
    /// must outlive the turns that are under way.
    fn rewire(&mut self, index: u16, setup: &RingSetup, calls: &CallHelper) -> Result<Option<Arc<OwnedFd>>, String> {
        let name = ring_name(index);
        if !same(self.kick.as_ref(), setup.kick.as_ref()) {
            self.forget();
            if let Some(kick) = &setup.kick {
                let says = if index == CONTROL || is_transmit(index) {
                    KickKind::Packets(index / 2)
                } else {
                    KickKind::Buffers
                };
                let token = self.routing.add(Arc::clone(kick), says);
                self.token = Some(token.map_err(|e| format!("{name}: cannot wait for its kick: {e}"))?);
            }
            self.kick = setup.kick.clone();
        }
        if setup.polled != self.queue.polled() {
            self.queue.set_polled(setup.polled);
            // Whoever sleeps would be told of nothing any more.
            self.routing.wake();
        }
        if !same(self.call.as_ref(), setup.call.as_ref()) {
            let call = setup.call.clone().map(|call| Notifier::new(call, calls)).transpose();
            self.queue.set_call(call.map_err(|e| format!("{name}: cannot use its call descriptor: {e}"))?);
            self.watch.start_again();
            return Ok(std::mem::replace(&mut self.call, setup.call.clone()));
        }
        Ok(None)
    }

    /// Waits for its kick no more.
    pub(crate) fn forget(&mut self) {
        if let Some(token) = self.token.take() {
            self.routing.remove(token);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.forget();
    }
}

fn same(a: Option<&Arc<OwnedFd>>, b: Option<&Arc<OwnedFd>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost_user::data::queue::tests::queue;

    use rustix::event::{EventfdFlags, eventfd};

    use crate::EpollWaiter;

    fn running(routing: &Arc<KickRouting>) -> Running {
        Running {
            queue: queue(),
            kick: None,
            call: None,
            token: None,
            routing: Arc::clone(routing),
            watch: Watch::default(),
        }
    }

    /// What the frontend sends: a kick descriptor, or that there is none.
    fn started(kick: Option<OwnedFd>) -> RingSetup {
        let (mut setup, polled) = (RingSetup::default(), kick.is_none());
        (setup.kick, setup.polled) = (kick.map(Arc::new), polled);
        setup
    }

    #[test]
    fn a_ring_that_runs_may_lose_its_kick_and_get_one_again() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let routing = Arc::new(KickRouting::new(Arc::clone(&waiter).into(), false));
        let mut ring = running(&routing);
        let calls = CallHelper::new("test", || ());
        let kick = || Some(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        ring.rewire(1, &started(kick()), &calls).expect("a kick");
        waiter.wait(std::time::Duration::ZERO).expect("the wake of the kick");
        assert_eq!(ring.queue.arm(0), Ok(false), "a worker may sleep");
        ring.rewire(1, &started(None), &calls).expect("no kick");
        assert!(waiter.woken_by().1, "whoever sleeps looks again");
        assert_eq!(ring.queue.arm(0), Ok(true), "nobody will kick");
        ring.rewire(1, &started(kick()), &calls).expect("a kick");
        assert_eq!(ring.queue.arm(0), Ok(false));
        ring.forget();
    }

    #[test]
    fn a_call_that_is_replaced_is_handed_over_and_not_closed() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let mut ring = running(&Arc::new(KickRouting::new(waiter.into(), false)));
        let calls = CallHelper::new("test", || ());
        let event = || Some(Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd")));
        let with = |call: Option<Arc<OwnedFd>>| {
            let mut setup = started(None);
            setup.call = call;
            setup
        };
        let (first, second) = (event(), event());
        assert!(ring.rewire(1, &with(first.clone()), &calls).expect("a call").is_none());
        assert!(ring.rewire(1, &with(first.clone()), &calls).expect("the same").is_none());
        let replaced = ring.rewire(1, &with(second), &calls).expect("another call");
        assert!(same(replaced.as_ref(), first.as_ref()), "who waits for the turns has it");
        assert!(ring.rewire(1, &with(None), &calls).expect("no call").is_some());
    }
}
