//! The port as one of its workers serves it.
//!
//! - **Transmit rings.** One worker receives from each ring, arms it, and gives its buffers back.
//! - **Receive rings.** Each ring is one worker's own as long as every worker that delivers has an
//!   enabled ring. Then no other worker wants its lock.
//! - **Shared receive rings.** A worker without an enabled ring of its own delivers to all rings.
//!   That happens where a guest uses fewer pairs than it was offered. Workers then wait for the
//!   locks, which is always correct, and slower.
//! - **Order.** A flow comes through one transmit ring, and so by one worker, which delivers it to
//!   one receive ring.

use std::sync::Arc;

use straightline_graph::Port;
use straightline_packet::{Batch, PortIndex, Reason, Turn};

use super::deliver::WhenFull;
use super::link::Link;
use super::port_data::PortData;
use super::queue::Queue;
use super::worker_queues::WorkerQueues;
use super::{dispatch, receive};

/// A port as one of its workers serves it. Each worker has one; it is the worker's [`Port`].
#[derive(Debug)]
pub(crate) struct WorkerPort {
    pub(crate) data: Arc<PortData>,
    pub(crate) queues: WorkerQueues,
}

impl Port for WorkerPort {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.data.index)
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn drains(&self) -> bool {
        self.data.is_set_down()
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if self.data.announcement.is_due() && max > 0 && self.announces() {
            return self.data.announce(turn, into);
        }
        let Some(link) = self.data.usable_link(turn) else { return };
        if self.data.is_set_down() { self.refuse(link, turn, max) } else { self.receive_from(link, turn, into, max) }
    }

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        self.deliver_with(turn, batch, if wait { WhenFull::Wait } else { WhenFull::Drop });
    }

    #[cold]
    fn deliver_sparing(&self, turn: &mut Turn<'_>, batch: &Batch) {
        self.deliver_with(turn, batch, WhenFull::Spare);
    }

    fn arm(&self, turn: &Turn<'_>, for_buffers: bool) -> bool {
        let Some(link) = self.data.usable_link(turn) else { return false };
        // All rings are armed, even after one that has something already: every driver must know
        // that no worker polls.
        let mut any = false;
        let mut ask = |armed: Result<bool, _>, name: &dyn Fn() -> String| {
            any |= armed.unwrap_or_else(|fault| {
                link.fail(name(), &fault);
                false
            });
        };
        if for_buffers {
            let queues = link.tx(self.queues.tx_index).queues().iter();
            queues.for_each(|queue| ask(queue.arm_for_buffers(self.queues.worker), &|| queue.name()));
        } else {
            self.rings(link).for_each(|queue| ask(queue.arm(turn.round()), &|| queue.name()));
        }
        any
    }

    fn disarm(&self, turn: &Turn<'_>, for_buffers: bool) {
        let Some(link) = self.data.usable_link(turn) else { return };
        if for_buffers {
            // Disarms all rings: this worker's rings may have changed while it slept.
            let all = link.tx.iter().flat_map(|steering| steering.queues());
            all.for_each(|queue| queue.disarm_for_buffers(self.queues.worker));
        } else {
            self.rings(link).for_each(|queue| queue.disarm());
        }
    }
}

impl WorkerPort {
    #[inline]
    fn deliver_with(&self, turn: &mut Turn<'_>, batch: &Batch, full: WhenFull) {
        let reason = match self.data.usable_link(turn) {
            Some(_) if self.data.is_set_down() => Reason::SetDown,
            Some(link) => return dispatch::deliver(link, &self.queues, turn, batch, full),
            None => Reason::LinkDown,
        };
        turn.drop_at(self.data.index, batch.ids(), reason);
    }

    #[inline]
    fn receive_from<'t>(&self, link: &'t Link, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        match *self.queues.rx_pairs(link) {
            [] => {}
            [pair] => {
                if let Some(queue) = link.rx(pair) {
                    receive::receive(queue, link, turn, into, max);
                }
            }
            ref pairs => receive::receive_in_turns(&self.queues, pairs, link, turn, into, max),
        }
    }

    /// Takes packets of a guest whose link is set down, and drops them.
    #[cold]
    fn refuse<'t>(&self, link: &'t Link, turn: &mut Turn<'t>, max: usize) {
        let mut refused = Batch::new();
        self.receive_from(link, turn, &mut refused, max);
        refused.ids().iter().for_each(|&id| turn.discard(id, Reason::SetDown));
    }

    /// Returns whether announcements come in by this worker. They come by the first pair.
    fn announces(&self) -> bool {
        self.queues.rx_pairs.first() == Some(&0)
    }

    /// Returns the running transmit rings that the worker receives from.
    fn rings<'t>(&self, link: &'t Link) -> impl Iterator<Item = &'t Queue> {
        self.queues.rx_pairs(link).iter().filter_map(|&pair| link.rx(pair))
    }
}
