//! Several workers at one port: who serves which queue pair, and one worker's part of it.
//!
//! Of each transmit ring one worker takes, and arms it, and gives its buffers back. Each receive ring is one worker's own
//! as long as all who deliver have one that is enabled: then nobody else wants its lock. Who has none delivers to those of
//! all (a guest that uses fewer pairs than it was offered), and locks are waited for, which is always right, and slower.
//! A flow comes by one transmit ring, so from one worker, which delivers it by one receive ring.

use std::sync::Arc;

use straightline_packet::{Batch, PortIndex, Reason, Turn};

use super::link::Link;
use super::port_data::PortData;
use super::queue::Queue;
use super::worker_queues::WorkerQueues;
use super::{dispatch, receive};
use crate::Port;

/// A port as one of its workers serves it.
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

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if self.data.announcement.is_due() && max > 0 && self.announces() {
            return self.data.announce(turn, into);
        }
        let Some(link) = self.data.usable_link(turn) else { return };
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

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        match self.data.usable_link(turn) {
            Some(link) => dispatch::deliver(link, &self.queues, turn, batch, wait),
            None => self.data.drops.add(Reason::LinkDown, batch.len().try_into().unwrap_or(u64::MAX)),
        }
    }

    fn arm(&self, turn: &Turn<'_>, room: bool) -> bool {
        let Some(link) = self.data.usable_link(turn) else { return false };
        // All are asked, also behind one that has something: each must know that nobody polls.
        let mut any = false;
        let mut ask = |armed: Result<bool, _>, name: &dyn Fn() -> String| {
            any |= armed.unwrap_or_else(|fault| {
                link.fail(name(), &fault);
                false
            });
        };
        if room {
            let queues = link.tx(self.queues.tx_index).queues().iter();
            queues.for_each(|queue| ask(queue.arm_for_buffers(self.queues.worker), &|| queue.name()));
        } else {
            self.rings(link).for_each(|queue| ask(queue.arm(turn.round()), &|| queue.name()));
        }
        any
    }

    fn disarm(&self, turn: &Turn<'_>, room: bool) {
        let Some(link) = self.data.usable_link(turn) else { return };
        if room {
            // Of all: those that are its own may have changed while it slept.
            let all = link.tx.iter().flat_map(|steering| steering.queues());
            all.for_each(|queue| queue.disarm_for_buffers(self.queues.worker));
        } else {
            self.rings(link).for_each(|queue| queue.disarm());
        }
    }
}

impl WorkerPort {
    /// What is announced in the guest's name comes in by the first pair.
    fn announces(&self) -> bool {
        self.queues.rx_pairs.first() == Some(&0)
    }

    /// The transmit rings that it takes from, as far as they run.
    fn rings<'t>(&self, link: &'t Link) -> impl Iterator<Item = &'t Queue> {
        self.queues.rx_pairs(link).iter().filter_map(|&pair| link.rx(pair))
    }
}
