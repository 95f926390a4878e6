//! Packets to the guest: into the buffers of one of its receive rings.
//!
//! A batch is delivered in three steps:
//!
//! ```text
//! lock the ring
//! loop {
//!     for each packet of the batch:                       # 1 reserve
//!         drop it if it is not for this guest
//!         take buffers from the ring until header and packet fit
//!         prefetch the buffers; note packet and buffers in the plan
//!     for each planned packet:                            # 2 copy
//!         write the new virtio-net header and the packet's head from its slot
//!         copy the body from the source's memory; sum it if the guest needs the checksum
//!         mark the written bytes in the dirty log, if there is one
//!     if no memory has vanished since the last check: break
//!     if the guest's own memory has vanished: give nothing back, stop the port, return
//!     if no packet's source has vanished: break
//!     untake the buffers; do the batch again without the packets of vanished sources
//! }
//! write the used elements, publish the index              # 3 publish
//! unlock; count; later, at the turn's end: notify
//! ```
//!
//! # Why it is done this way
//!
//! 1. **Reserve first, then copy.** The lines of the buffers arrive while the rest of the batch is
//!    reserved.
//! 2. **Publish once, at the end.** A packet in several buffers becomes visible whole (virtio 1.2,
//!    5.1.6.3.2). Until then nothing is visible, so a batch can be done again.
//! 3. **The order of stores.** Bytes are written before the used elements, and these before the
//!    index (release, in `ring`). A crash between two steps repeats a packet or loses it, but never
//!    loses a buffer.
//! 4. **Check memory after the copies, not before.** A frontend may truncate its file at any time.
//!    The SIGBUS handler puts zeros in place of the vanished memory, and raises the fault epoch.
//!    Comparing the epoch after the copies detects this, so no guest gets zeros that no guest has
//!    sent.
//! 5. **Fast paths by kind of packet.** `plain` delivers packets that go as they are, each into one
//!    buffer. It works in bursts of up to 64, with loops compiled for each instruction set. It
//!    writes them at once, because their buffers were prefetched within the burst. `segment` splits
//!    GSO packets that the guest does not take unsegmented. `runs` coalesces packets, and undoes
//!    that if a checksum is wrong. Both write at once, too. All other packets go through the plan in
//!    `fill`.
//! 6. **Bounded work.** The guest decides how small its buffers are. [`DescriptorBudget`] bounds
//!    the descriptors that a turn reads for one port.
//!
//! # Known imperfections
//!
//! - The ring's lock is held during the copies. Where workers share a ring, one waits for the
//!   other's burst.
//! - If a source vanishes, the whole batch is done again, also the packets of other sources. That is
//!   rare, and happens at most once for each source that vanishes.
//! - Packets are dropped after the first that finds no buffer, even if a shorter one behind it
//!   would fit. Reading the available index for each of them would take the driver's line away
//!   while it gives buffers.
//!
//! | file | holds |
//! |---|---|
//! | `fill` | the loop over a batch: each packet by the fastest way that takes it |
//! | `plain` | packets that go as they are, each into one buffer |
//! | `runs` | packets of a TCP or UDP flow that are coalesced into one |
//! | `segment` | GSO packets that the guest does not take unsegmented |
//! | `delivery` | the state of a batch on its way, and the reservation of buffers |
//! | `buffers` | the next buffers of the ring, found in bursts |
//! | `budget` | the bound on the work for one port in a turn |
//! | `marks` | marks in the dirty log |

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
use straightline_virtio::ring::BURST;

use super::link::Link;
use super::queue::Queue;
use super::worker_queues::WorkerQueues;
pub(crate) use budget::DescriptorBudget;
use delivery::Tally;
use fill::fill;

/// The fate of packets for which the guest has too few free buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// They are dropped.
    Drop,
    /// They are dropped, and some buffers stay free for packets that are delivered before others.
    Spare,
    /// They stay in their sources' rings.
    Wait,
}

impl WhenFull {
    /// Returns the most buffers that stay free in a ring of this size: for an eighth of its entries. They are
    /// at most half of a burst, so that a look at the next burst finds some to use.
    fn spared(self, size: u16) -> usize {
        if self == WhenFull::Spare { usize::from(size / 8).min(BURST / 2) } else { 0 }
    }
}

/// The outcome of a delivery.
pub(crate) struct Delivered {
    /// The ring has used elements, so the guest may have to be notified.
    pub(crate) any: bool,
    /// Some packets stay in their sources' rings, because the guest has too few free buffers.
    pub(crate) left: bool,
}

/// Delivers a batch, or a part of one, to one ring. If [`Delivered::any`] is true, the caller
/// registers the queue with the turn. The end of the turn then notifies the guest. `budget` counts
/// for all rings that the caller delivers its batch to.
pub(crate) fn deliver<'t>(
    queue: &'t Queue,
    link: &'t Link,
    worker: &WorkerQueues,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    full: WhenFull,
    budget: &mut DescriptorBudget,
) -> Delivered {
    let mut inner = queue.lock();
    // The fault epoch for which the batch was done again.
    let mut redone = None;
    let notes = turn.note_mark();
    let tally = loop {
        let tally = fill(&mut inner, link, turn, ids, full, budget, redone.is_some());
        let epoch = fault::epoch();
        // The queue's epoch is about the destination's memory, the worker's about its sources'.
        if epoch == queue.clean_epoch.load(Ordering::Relaxed) && epoch == worker.clean_epoch.load(Ordering::Relaxed) {
            break tally;
        }
        // Some memory has vanished since the last check. If it is the guest's own, nothing is
        // published. If it is a source's, its packets may hold zeros now: all buffers are untaken,
        // and the batch is done again without them.
        if inner.ring.poisoned() || link.memory.poisoned() {
            turn.forget_notes(notes);
            turn.drop_at(link.index, ids, Reason::MemoryFault);
            // The reserved buffers are not published. The next device half finds them in the ring
            // as if they had not been taken.
            let taken = inner.ring.outstanding();
            inner.ring.untake(taken);
            link.fail_vanished();
            return Delivered { any: false, left: false };
        }
        queue.clean_epoch.store(epoch, Ordering::Relaxed);
        // If another source vanishes during the repetition, the epoch changes once more. Each
        // repetition copies from fewer sources, so the loop ends.
        if redone == Some(epoch) || !ids.iter().any(|&id| turn.poisoned(id)) {
            // Later batches of this turn may have packets of a source that has vanished. The epoch
            // is up to date only if none has.
            if !turn.any_poisoned() {
                worker.clean_epoch.store(epoch, Ordering::Relaxed);
            }
            break tally;
        }
        let taken = inner.ring.outstanding();
        inner.ring.untake(taken);
        turn.forget_notes(notes);
        redone = Some(epoch);
    };
    let taken = inner.ring.outstanding();
    inner.ring.give_back(taken);
    inner.buffer_waiters.set(worker.worker, tally.left_from.map(|_| tally.short));
    queue.counters.tx.packets.add(tally.packets);
    queue.counters.tx.bytes.add(tally.bytes);
    drop(inner);
    // If a mark is missing, this check stops the port. Packets that were delivered stay delivered.
    let _ = link.is_logged();
    count(link, turn, ids, &tally);
    if let Some(message) = &tally.broken {
        link.fail(queue.name(), message);
    }
    Delivered { any: taken > 0, left: tally.left_from.is_some() }
}

/// Adds the batch's counts, and leaves its last packets in their sources' rings if they must wait.
fn count(link: &Link, turn: &mut Turn<'_>, ids: &[PacketId], tally: &Tally) {
    turn.count_delivered(tally.body);
    tally.drops.count(turn, link.index);
    for &id in tally.left_from.and_then(|from| ids.get(from..)).unwrap_or_default() {
        leave(link, turn, id);
    }
}

/// Leaves a packet in its source's ring. A packet that the switch made has no source, so it is
/// dropped.
pub(crate) fn leave(link: &Link, turn: &mut Turn<'_>, id: PacketId) {
    if turn.source(id) == SourceQueueId::NONE {
        turn.drop_at(link.index, &[id], Reason::NoBuffer);
    } else {
        turn.leave(id);
    }
}
