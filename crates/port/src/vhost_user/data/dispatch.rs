//! Delivery of a batch to a guest that has one receive ring or several.

use straightline_packet::{Batch, MAX_BATCH, PacketId, Reason, Turn};

use super::deliver::{self, Delivered, DescriptorBudget, WhenFull};
use super::link::Link;
use super::queue::Queue;
use super::steering::{PAIRS, Steering};
use super::worker_queues::WorkerQueues;

/// Delivers a batch to a guest, to each packet's receive ring.
pub(crate) fn deliver<'t>(link: &'t Link, worker: &WorkerQueues, turn: &mut Turn<'t>, batch: &Batch, full: WhenFull) {
    let steering = link.tx(worker.tx_index);
    match steering.queues() {
        [] => {
            let reason = if steering.any_runs() { Reason::RingDisabled } else { Reason::LinkDown };
            turn.drop_at(link.index, batch.ids(), reason);
        }
        [queue] => {
            if deliver::deliver(queue, link, worker, turn, batch.ids(), full, &mut DescriptorBudget::default()).any {
                turn.notify_at_end(&**queue);
            }
        }
        _ if full == WhenFull::Wait => deliver_in_order(steering, link, worker, turn, batch),
        _ => deliver_grouped(steering, link, worker, turn, batch, full),
    }
}

/// Groups the packets by ring, then delivers each ring's packets together.
fn deliver_grouped<'t>(
    steering: &'t Steering,
    link: &'t Link,
    worker: &WorkerQueues,
    turn: &mut Turn<'t>,
    batch: &Batch,
    full: WhenFull,
) {
    let ids = batch.ids();
    let Some(&any) = ids.first() else { return };
    let places = &steering.ring_positions(turn, ids)[..ids.len()];
    // A counting sort: first the number of packets for each ring, then the start of each ring's
    // group, then its end.
    let mut ends = [0_u16; PAIRS];
    for &place in places {
        ends[usize::from(place)] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    let mut sorted = [any; MAX_BATCH];
    for (&place, &id) in places.iter().zip(ids) {
        let end = &mut ends[usize::from(place)];
        sorted[usize::from(*end)] = id;
        *end += 1;
    }
    let mut start = 0;
    let mut budget = DescriptorBudget::in_parts();
    for (queue, end) in steering.queues().iter().zip(ends) {
        let end = usize::from(end);
        let part = &sorted[start..end];
        start = end;
        if !part.is_empty() && deliver_part(queue, link, worker, turn, part, full, &mut budget).any {
            turn.notify_at_end(&**queue);
        }
    }
}

/// Delivers without loss where a ring is full (`full = "wait"`).
///
/// The packets that stay in a source's ring must be the last ones taken from it. So packets are
/// delivered in their order, with consecutive packets for one ring together. After a packet that
/// stays:
///
/// 1. all packets of the same source stay;
/// 2. all packets for the same ring stay, because later packets of the batch must not overtake it.
fn deliver_in_order<'t>(
    steering: &'t Steering,
    link: &'t Link,
    worker: &WorkerQueues,
    turn: &mut Turn<'t>,
    batch: &Batch,
) {
    let places = steering.ring_positions(turn, batch.ids());
    let mut full = 0_u128;
    let mut told = 0_u128;
    let mut budget = DescriptorBudget::in_parts();
    let mut previous = None;
    let mut is_behind = false;
    let mut rest = batch.ids();
    let mut places = &places[..rest.len()];
    while let (Some(&id), Some(&place)) = (rest.first(), places.first()) {
        let source = turn.source(id);
        let is_same = |&(&id, &at): &(&PacketId, &u8)| at == place && turn.source(id) == source;
        let len = rest.iter().zip(places).take_while(is_same).count();
        let (run, behind) = rest.split_at(len);
        (rest, places) = (behind, &places[len..]);
        if previous.replace(source) != Some(source) {
            is_behind = turn.leaves_any(source);
        }
        let bit = 1_u128 << place;
        if full & bit != 0 || is_behind {
            is_behind = true;
            run.iter().for_each(|&id| deliver::leave(link, turn, id));
            continue;
        }
        let Some(queue) = steering.queues().get(usize::from(place)) else { continue };
        let Delivered { any, left } = deliver_part(queue, link, worker, turn, run, WhenFull::Wait, &mut budget);
        told |= if any { bit } else { 0 };
        if left {
            full |= bit;
            is_behind = true;
        }
    }
    for (at, queue) in steering.queues().iter().enumerate() {
        if told >> at & 1 != 0 {
            turn.notify_at_end(&**queue);
        }
    }
}

/// Delivers a part of a batch, unless another part has found that the guest cannot be served.
fn deliver_part<'t>(
    queue: &'t Queue,
    link: &'t Link,
    worker: &WorkerQueues,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    full: WhenFull,
    budget: &mut DescriptorBudget,
) -> Delivered {
    if link.is_usable() {
        return deliver::deliver(queue, link, worker, turn, ids, full, budget);
    }
    turn.drop_at(link.index, ids, Reason::LinkDown);
    Delivered { any: false, left: false }
}
