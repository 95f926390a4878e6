//! Several workers at one port: who serves which queue pair, and one worker's part of it.
//!
//! Of each transmit ring one worker takes, and arms it, and gives its buffers back. Each receive ring is one worker's own
//! as long as all who deliver have one that is enabled: then nobody else wants its lock. Who has none delivers to those of
//! all (a guest that uses fewer pairs than it was offered), and locks are waited for, which is always right, and slower.
//! A flow comes by one transmit ring, so from one worker, which delivers it by one receive ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use straightline_packet::{Batch, PortIndex, Reason, Turn};

use super::link::Link;
use super::{receive, spread};
use crate::vhost_user::Shared;
use crate::{EpollWaiter, Port};

/// Which worker serves which of a port's rings. Workers are numbers of whoever says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAssignment {
    /// By pair: who takes from the guest's transmit ring.
    pub takes: Vec<usize>,
    /// By pair: whose own the guest's receive ring is.
    pub gives: Vec<usize>,
    /// All who deliver, each once.
    pub givers: Vec<usize>,
}

impl QueueAssignment {
    /// One worker serves all of `pairs`.
    pub fn one(worker: usize, pairs: u16) -> Self {
        let all = vec![worker; pairs.max(1).into()];
        QueueAssignment { takes: all.clone(), gives: all, givers: vec![worker] }
    }
}

/// Who is woken by a port's kicks.
#[derive(Clone, Debug)]
pub struct Waiters {
    /// By pair: there is something in the transmit ring. For pairs beyond, and for what is no pair's, the first.
    pub takes: Vec<Arc<EpollWaiter>>,
    /// There is room in a receive ring.
    pub givers: Vec<Arc<EpollWaiter>>,
}

impl From<Arc<EpollWaiter>> for Waiters {
    /// One worker serves all.
    fn from(waiter: Arc<EpollWaiter>) -> Self {
        Waiters { takes: vec![Arc::clone(&waiter)], givers: vec![waiter] }
    }
}

/// One worker's part of a port. Only one thread uses it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerPort {
    /// The pairs that it takes from, in ascending order.
    pairs: Box<[usize]>,
    /// Which of them comes first in the next turn.
    pub(crate) first: AtomicUsize,
    /// Whose it is: what it waits for is noted under this. A worker that does not deliver here waits for nothing.
    pub(crate) worker: usize,
    /// Its place among those who deliver; the first, where it does not.
    pub(crate) giver: usize,
    /// The fault epoch up to which no memory has vanished that this worker's packets came from.
    pub(crate) clean: AtomicU64,
}

impl WorkerPort {
    pub(crate) fn new(worker: usize, pairs: Box<[usize]>, giver: usize) -> Self {
        WorkerPort { pairs, first: AtomicUsize::new(0), worker, giver, clean: AtomicU64::new(u64::MAX) }
    }

    /// A worker's seat.
    pub(crate) fn of(assignment: &QueueAssignment, worker: usize) -> Self {
        let pairs = (0..assignment.takes.len()).filter(|&pair| assignment.takes[pair] == worker).collect();
        WorkerPort::new(worker, pairs, assignment.givers.iter().position(|&giver| giver == worker).unwrap_or(0))
    }

    /// The pairs that it takes from, as far as the guest has started any. A frontend that may start a hundred pairs
    /// and starts one costs a worker one.
    pub(crate) fn pairs(&self, link: &Link) -> &[usize] {
        let started = self.pairs.partition_point(|&pair| pair < link.rx.len());
        &self.pairs[..started]
    }

    /// What is announced in the guest's name comes in by the first pair.
    fn announces(&self) -> bool {
        self.pairs.first() == Some(&0)
    }

    pub(crate) fn receive(&self, shared: &Shared, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        if shared.announcement.is_due() && max > 0 && self.announces() {
            return shared.announce(turn, into);
        }
        let Some(link) = shared.sound(turn) else { return };
        match *self.pairs(link) {
            [] => {}
            [pair] => {
                if let Some(queue) = link.rx(pair) {
                    receive::receive(queue, link, turn, into, max);
                }
            }
            ref pairs => receive::receive_in_turns(self, pairs, link, turn, into, max),
        }
    }

    pub(crate) fn deliver(&self, shared: &Shared, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        match shared.sound(turn) {
            Some(link) => spread::deliver(link, self, turn, batch, wait),
            None => shared.drops.add(Reason::LinkDown, batch.len().try_into().unwrap_or(u64::MAX)),
        }
    }

    pub(crate) fn arm(&self, shared: &Shared, turn: &Turn<'_>, room: bool) -> bool {
        let Some(link) = shared.sound(turn) else { return false };
        // All are asked, also behind one that has something: each must know that nobody polls.
        let mut any = false;
        let mut ask = |armed: Result<bool, _>, name: &dyn Fn() -> String| {
            any |= armed.unwrap_or_else(|fault| {
                link.fail(name(), &fault);
                false
            });
        };
        if room {
            link.tx(self).queues().iter().for_each(|queue| ask(queue.arm_for_room(self.worker), &|| queue.name()));
        } else {
            self.rings(link).for_each(|queue| ask(queue.arm(turn.round()), &|| queue.name()));
        }
        any
    }

    pub(crate) fn disarm(&self, shared: &Shared, turn: &Turn<'_>, room: bool) {
        let Some(link) = shared.sound(turn) else { return };
        if room {
            // Of all: those that are its own may have changed while it slept.
            let all = link.tx.iter().flat_map(|spread| spread.queues());
            all.for_each(|queue| queue.disarm_for_room(self.worker));
        } else {
            self.rings(link).for_each(|queue| queue.disarm());
        }
    }

    /// The transmit rings that it takes from, as far as they run.
    fn rings<'t>(&self, link: &'t Link) -> impl Iterator<Item = &'t super::queue::Queue> {
        self.pairs(link).iter().filter_map(|&pair| link.rx(pair))
    }
}

/// A port as one of its workers serves it: see [`super::VhostUser::seat`].
#[derive(Debug)]
pub(crate) struct Seated {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seat: WorkerPort,
}

impl Port for Seated {
    fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.shared.index)
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        self.seat.receive(&self.shared, turn, into, max);
    }

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        self.seat.deliver(&self.shared, turn, batch, wait);
    }

    fn arm(&self, turn: &Turn<'_>, room: bool) -> bool {
        self.seat.arm(&self.shared, turn, room)
    }

    fn disarm(&self, turn: &Turn<'_>, room: bool) {
        self.seat.disarm(&self.shared, turn, room);
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::queue;
    use super::*;

    /// As in a patch of two ports with one pair each: one worker takes from the port, the other delivers to it.
    #[test]
    fn whoever_does_not_deliver_leaves_the_wish_of_whoever_does() {
        let assignment = QueueAssignment { takes: vec![0], gives: vec![1], givers: vec![1] };
        let [taker, giver] = [0, 1].map(|worker| WorkerPort::of(&assignment, worker));
        let queue = queue();
        let is_waited_for = || queue.lock().room.any_sleeps();
        queue.lock().room.wants(giver.worker, Some(0));
        assert_eq!((queue.arm_for_room(giver.worker), is_waited_for()), (Ok(false), true));
        assert_eq!(queue.arm_for_room(taker.worker), Ok(false));
        queue.disarm_for_room(taker.worker);
        assert!(is_waited_for(), "the taker has woken, and the giver sleeps");
        queue.disarm_for_room(giver.worker);
        assert!(!is_waited_for());
    }
}
