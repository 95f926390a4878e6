//! Rings that start and stop: the rings that run follow those that the frontend has set up.

use std::sync::Arc;

use straightline_graph::{Down, DownCause};
use straightline_virtio::features::{
    VHOST_F_LOG_ALL, VIRTIO_F_EVENT_IDX, VIRTIO_F_IN_ORDER, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_RING_PACKED,
};
use straightline_virtio::ring::{Direction, Geometry, InflightError, PackedDevice, Ring, RingOptions, SplitDevice};
use straightline_virtio::vhost_user::RingSetup;
use tracing::Level;

use super::call_watch::CallWatch;
use super::frontend::ConnectedFrontend;
use super::running_ring::RunningRing;
use crate::notify::notifier::Notifier;
use crate::vhost_user::data::queue::Queue;
use crate::vhost_user::ring_name::{CONTROL_RING, is_transmit, ring_name};

impl ConnectedFrontend {
    /// Takes a ring out of those that run. Workers may use it until the next link is published.
    pub(crate) fn take_out(&mut self, index: u16) -> Option<RunningRing> {
        let mut stopped = self.rings.get_mut(usize::from(index))?.take()?;
        stopped.unwatch_kick();
        self.stopping.push((index, Arc::clone(&stopped.queue)));
        Some(stopped)
    }

    /// Records the positions at which stopped rings would continue, once workers no longer use
    /// them.
    pub(crate) fn note_bases(&mut self) {
        for (index, queue) in std::mem::take(&mut self.stopping) {
            self.session.stopped_at(index, queue.base());
        }
    }

    /// Starts and stops rings until exactly the rings that should run are running.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        let others = self.acked ^ self.session.acked_features();
        let mut changed = others != 0;
        // The dirty log is turned on and off while the driver continues.
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

    /// Starts, stops or adjusts one ring. Returns true if workers must see a new link.
    pub(crate) fn sync_ring(&mut self, index: u16) -> Result<bool, String> {
        let at = usize::from(index);
        let Some(setup) = self.session.ring(index) else { return Ok(false) };
        let broken = self.broken[at] == Some(setup.starts);
        let wanted = self.session.ready(index) && self.session.refusal().is_none() && !broken;
        match (&mut self.rings[at], wanted) {
            (None, false) => Ok(false),
            // Cites vhost-user-ring-states-1, vhost-user-suspended-1, vhost-user-suspended-2.
            (Some(_), false) => {
                self.take_out(index);
                Ok(true)
            }
            (Some(running), true) => {
                // Cites vhost-user-ring-states-8.
                if running.queue.enabled() != setup.enabled {
                    running.queue.set_enabled(setup.enabled);
                    // A new link is published, because publishing waits: afterwards no turn still
                    // uses the old state.
                    return Ok(true);
                }
                let index = if self.session.control_ring() == Some(index) { CONTROL_RING } else { index };
                // Cites vhost-user-ring-states-10.
                let replaced = running.update_descriptors(index, setup, &self.calls)?;
                if replaced.is_some() {
                    // A worker may still use the descriptor in this turn. Closing it can take for
                    // ever, so this thread closes it.
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

    fn start(&self, index: u16, setup: &RingSetup) -> Result<RunningRing, String> {
        let is_control = self.session.control_ring() == Some(index);
        let routing = Arc::clone(if is_control { &self.control_queue.routing } else { &self.shared.routing });
        let index = if is_control { CONTROL_RING } else { index };
        let geometry = Geometry { size: setup.size, desc: setup.desc, avail: setup.avail, used: setup.used };
        let acked = self.session.acked_features();
        let options = RingOptions {
            event_idx: acked & VIRTIO_F_EVENT_IDX != 0,
            indirect: acked & VIRTIO_F_INDIRECT_DESC != 0,
            in_order: acked & VIRTIO_F_IN_ORDER != 0,
        };
        let packed = acked & VIRTIO_F_RING_PACKED != 0;
        let inflight = match self.inflight.table() {
            // Commands are executed at once, and the control ring has a size of its own.
            Some(table) if !is_control => table.queue(index, setup.size, packed),
            _ => Ok(None),
        };
        let memory = &self.memory;
        let log = self.active_log();
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
        let waits = if is_transmit(index) && !is_control { Arc::clone(&self.shared.waits) } else { Arc::default() };
        let counters = self.shared.data.counters.of_pair(usize::from(index / 2)).unwrap_or_default();
        let memory = Arc::clone(&self.memory);
        // Cites vhost-user-ring-states-2.
        let queue = Queue::new(ring, index, memory, setup.enabled, counters, waits, setup.polled);
        let mut queue = queue.of_port(self.shared.data.index);
        if options.event_idx {
            queue = queue.watched_by(Arc::clone(&self.shared.inbox));
        }
        let queue = Arc::new(queue);
        let node = self.memory.node(setup.desc);
        let mut running =
            RunningRing { queue, kick: None, call: None, token: None, routing, watch: CallWatch::default(), node };
        running.update_descriptors(index, setup, &self.calls)?;
        Ok(running)
    }

    /// Stops all rings, because a worker found the link broken.
    pub(crate) fn break_off(&mut self, fault: String) {
        self.shared.log(Level::WARN, format_args!("the port stops: {fault}"));
        for index in 0..self.session.rings() {
            let at = usize::from(index);
            if self.take_out(index).is_some() {
                self.broken[at] = self.session.ring(index).map(|setup| setup.starts);
            }
            if let Some(err) = self.session.ring(index).and_then(|r| r.err.as_ref()) {
                // A frontend that listens for it learns that the ring is broken. Frontends need not
                // listen.
                if let Ok(err) = Notifier::new(Arc::clone(err), &self.calls) {
                    // Cites vhost-user-set-vring-err-1.
                    err.notify();
                }
            }
        }
        self.publish();
        self.note_bases();
        self.shared.state().set_fault(Down::new(DownCause::RingFault, fault));
        self.show();
    }
}
