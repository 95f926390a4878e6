//! To the guest: packets into the buffers of one of its receive rings.
//!
//! First buffers are reserved, then bytes are copied, then the driver sees all of it at once: lines of buffers are on
//! their way while the rest of the burst is reserved, and a packet in several buffers is visible whole. Common packets are
//! done in bursts (`plain`), the others of a frame together.

mod budget;
mod buffers;
mod delivery;
mod fill;
mod marks;
mod plain;
mod runs;
mod segment;

use std::sync::atomic::Ordering;

use straightline_packet::{PacketId, Reason, SourceQueueId, Turn};
use straightline_virtio::memory::fault;

use super::link::Link;
use super::queue::Queue;
use super::worker_queues::WorkerQueues;
pub(crate) use budget::DescriptorBudget;
use delivery::Tally;
use fill::fill;

/// What became of the ring.
pub(crate) struct Delivered {
    /// The guest has something to be told of.
    pub(crate) any: bool,
    /// Some packets are left in their sources' rings, for want of room.
    pub(crate) left: bool,
}

/// Delivers a frame, or a part of one. Where the guest has something to be told of, the caller lends the queue to the
/// turn, once. `looks` counts for all of a port's rings in this turn.
pub(crate) fn deliver<'t>(
    queue: &'t Queue,
    link: &'t Link,
    worker: &WorkerQueues,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    wait: bool,
    budget: &mut DescriptorBudget,
) -> Delivered {
    let mut inner = queue.lock();
    // The epoch for which the frame was done again.
    let mut redone = None;
    let tally = loop {
        let tally = fill(&mut inner, link, turn, ids, wait, budget, redone.is_some());
        let epoch = fault::epoch();
        // The queue's is that of the destination's memory, the worker's that of this worker's sources.
        if epoch == queue.clean_epoch.load(Ordering::Relaxed) && epoch == worker.clean_epoch.load(Ordering::Relaxed) {
            break tally;
        }
        // Somebody's memory has vanished since we last looked. Ours: nothing is published any more. A source's: its
        // packets hold zeros now, so all is taken back, and the frame is done again without them.
        if inner.ring.poisoned() || link.memory.poisoned() {
            link.drops.add(Reason::MemoryFault, ids.len().try_into().unwrap_or(u64::MAX));
            // What was reserved is not published: a successor finds the ring as if it had not been taken.
            let taken = inner.ring.outstanding();
            inner.ring.untake(taken);
            link.fail_vanished();
            return Delivered { any: false, left: false };
        }
        queue.clean_epoch.store(epoch, Ordering::Relaxed);
        // Another source's may have vanished while it was done again: each time one source less is copied from.
        if redone == Some(epoch) || !ids.iter().any(|&id| turn.poisoned(id)) {
            // Frames that are still to come may have packets of others that were taken in this turn.
            if !turn.any_poisoned() {
                worker.clean_epoch.store(epoch, Ordering::Relaxed);
            }
            break tally;
        }
        let taken = inner.ring.outstanding();
        inner.ring.untake(taken);
        redone = Some(epoch);
    };
    let taken = inner.ring.outstanding();
    inner.ring.give_back(taken);
    inner.buffer_waiters.set(worker.worker, tally.left_from.map(|_| tally.short));
    queue.counters.tx.packets.add(tally.packets);
    queue.counters.tx.bytes.add(tally.bytes);
    drop(inner);
    // That it is not, the port has said; what was delivered is delivered.
    let _ = link.is_logged();
    count(link, turn, ids, &tally);
    if let Some(message) = &tally.broken {
        link.fail(queue.name(), message);
    }
    Delivered { any: taken > 0, left: tally.left_from.is_some() }
}

fn count(link: &Link, turn: &mut Turn<'_>, ids: &[PacketId], tally: &Tally) {
    turn.count_delivered(tally.body);
    for (&reason, &n) in Reason::ALL.iter().zip(&tally.drops) {
        if n > 0 {
            link.drops.add(reason, n.into());
        }
    }
    for &id in tally.left_from.and_then(|from| ids.get(from..)).unwrap_or_default() {
        leave(link, turn, id);
    }
}

/// Leaves a packet in its source's ring. One of ours has none: it is dropped.
pub(crate) fn leave(link: &Link, turn: &mut Turn<'_>, id: PacketId) {
    if turn.source(id) == SourceQueueId::NONE {
        link.drops.add(Reason::NoBuffer, 1);
    } else {
        turn.leave(id);
    }
}
