//! Several receive rings: which flow goes to which, so that each stays in order on one of them.
//!
//! A flow's hash picks an entry of a table, the entry a ring. The table is made with each link: a pair that the frontend
//! disables hands its entries to the others and gets them back when it is enabled; all other flows stay where they are.

use std::sync::Arc;

use straightline_packet::{Batch, MAX_BATCH, PacketId, Reason, Turn};
use straightline_wire::flow_hash;

use super::deliver::{self, Delivered, Looks};
use super::link::Link;
use super::queue::Queue;
use super::worker_port::WorkerPort;

/// Entries: many for each pair, so that the pairs' shares are about the same.
const ENTRIES: usize = 1024;

/// Most pairs; a set of them is a `u128`.
const PAIRS: usize = 128;

/// The receive rings that packets may go to, and which flow goes to which.
#[derive(Debug)]
pub(crate) struct Spread {
    /// Those that are enabled.
    queues: Box<[Arc<Queue>]>,
    /// Places in `queues`; empty where there are fewer than two.
    table: Box<[u8]>,
    any_runs: bool,
}

impl Spread {
    /// Over the receive rings of all pairs, as far as they run and are enabled, and are one worker's own where any is.
    pub(crate) fn new(
        pairs: impl ExactSizeIterator<Item = Option<Arc<Queue>>>,
        is_own: impl Fn(usize) -> bool,
    ) -> Self {
        let count = pairs.len().min(PAIRS);
        let mut running: Vec<Option<Arc<Queue>>> = pairs.take(PAIRS).collect();
        let any_runs = running.iter().any(Option::is_some);
        let is_there = |(pair, queue): (usize, &Option<Arc<Queue>>)| {
            is_own(pair) && queue.as_ref().is_some_and(|queue| queue.enabled())
        };
        if running.iter().enumerate().any(is_there) {
            running.iter_mut().enumerate().filter(|(pair, _)| !is_own(*pair)).for_each(|(_, other)| *other = None);
        }
        // Where each pair's ring stands among those that are enabled.
        let mut places: Vec<Option<u8>> = Vec::with_capacity(count);
        let mut queues = Vec::with_capacity(count);
        for queue in running {
            let queue = queue.filter(|queue| queue.enabled());
            places.push(queue.as_ref().and_then(|_| queues.len().try_into().ok()));
            queues.extend(queue);
        }
        Spread { table: table(&places), queues: queues.into(), any_runs }
    }

    /// The rings that packets may go to.
    pub(crate) fn queues(&self) -> &[Arc<Queue>] {
        &self.queues
    }

    /// Whether there are rings, enabled or not.
    pub(crate) fn any_runs(&self) -> bool {
        self.any_runs
    }

    /// For each packet: the place of its ring.
    fn places(&self, turn: &Turn<'_>, ids: &[PacketId]) -> [u8; MAX_BATCH] {
        let mut places = [0; MAX_BATCH];
        for (place, &id) in places.iter_mut().zip(ids) {
            // The hash as a fraction of all entries.
            let entry = (u64::from(flow_hash(turn.head(id))) * (self.table.len() as u64)) >> 32;
            *place = usize::try_from(entry).ok().and_then(|at| self.table.get(at)).copied().unwrap_or(0);
        }
        places
    }
}

/// Entries for pairs with these places: each pair has the same ones whatever becomes of the others, and those of a pair
/// without a place are dealt out.
fn table(places: &[Option<u8>]) -> Box<[u8]> {
    let there: Vec<u8> = places.iter().copied().flatten().collect();
    if there.len() < 2 {
        return Box::default();
    }
    let mut others = there.iter().copied().cycle();
    let own = places.iter().copied().cycle();
    own.take(ENTRIES).map(|place| place.or_else(|| others.next()).unwrap_or(0)).collect()
}

/// Delivers a batch to a guest, however many rings it has.
pub(crate) fn deliver<'t>(link: &'t Link, seat: &WorkerPort, turn: &mut Turn<'t>, batch: &Batch, wait: bool) {
    let spread = link.tx(seat);
    match spread.queues() {
        [] => {
            let reason = match spread.any_runs {
                _ if link.set_down => Reason::SetDown,
                true => Reason::RingDisabled,
                false => Reason::LinkDown,
            };
            link.drops.add(reason, batch.len().try_into().unwrap_or(u64::MAX));
        }
        [queue] => {
            if deliver::deliver(queue, link, seat, turn, batch.ids(), wait, &mut Looks::default()).any {
                turn.borrow_from(&**queue);
            }
        }
        _ if wait => in_order(spread, link, seat, turn, batch),
        _ => apart(spread, link, seat, turn, batch),
    }
}

/// Delivers each ring's packets together.
fn apart<'t>(spread: &'t Spread, link: &'t Link, seat: &WorkerPort, turn: &mut Turn<'t>, batch: &Batch) {
    let ids = batch.ids();
    let Some(&any) = ids.first() else { return };
    let places = &spread.places(turn, ids)[..ids.len()];
    // Sorted by counting: how many there are for each ring, then where each ring's begin, then where they end.
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
    let (mut start, mut looks) = (0, Looks::in_parts());
    for (queue, end) in spread.queues().iter().zip(ends) {
        let end = usize::from(end);
        let part = &sorted[start..end];
        start = end;
        if !part.is_empty() && send(queue, link, seat, turn, part, false, &mut looks).any {
            turn.borrow_from(&**queue);
        }
    }
}

/// Delivers with nothing lost where a ring is full (`full = "wait"`): what is left of a source's packets must be the tail
/// of what was taken from it. So packets go in their order, those in a row for one ring together; behind a packet that is
/// left, all of the same source are left, and so are all for the same ring, which others of the batch must not overtake.
fn in_order<'t>(spread: &'t Spread, link: &'t Link, seat: &WorkerPort, turn: &mut Turn<'t>, batch: &Batch) {
    let places = spread.places(turn, batch.ids());
    let (mut full, mut told) = (0_u128, 0_u128);
    let mut looks = Looks::in_parts();
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
        let Some(queue) = spread.queues().get(usize::from(place)) else { continue };
        let Delivered { any, left } = send(queue, link, seat, turn, run, true, &mut looks);
        told |= if any { bit } else { 0 };
        if left {
            full |= bit;
            is_behind = true;
        }
    }
    for (at, queue) in spread.queues().iter().enumerate() {
        if told >> at & 1 != 0 {
            turn.borrow_from(&**queue);
        }
    }
}

/// Delivers a part of a batch, unless another part has found the guest broken.
fn send<'t>(
    queue: &'t Queue,
    link: &'t Link,
    seat: &WorkerPort,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    wait: bool,
    looks: &mut Looks,
) -> Delivered {
    if link.is_sound() {
        return deliver::deliver(queue, link, seat, turn, ids, wait, looks);
    }
    link.drops.add(Reason::LinkDown, ids.len().try_into().unwrap_or(u64::MAX));
    Delivered { any: false, left: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many entries each place has, and how many differ between two tables of pairs.
    fn shares(table: &[u8], places: usize) -> Vec<usize> {
        (0..places).map(|place| table.iter().filter(|&&p| usize::from(p) == place).count()).collect()
    }

    #[test]
    fn pairs_have_equal_shares_and_keep_their_entries() {
        let four = table(&[Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(shares(&four, 4), [256; 4]);
        // The third one is disabled: the fourth stands in its place now.
        let three = table(&[Some(0), Some(1), None, Some(2)]);
        let name = [0, 1, 3];
        for (before, after) in four.iter().zip(&three) {
            assert!(*before == 2 || *before == name[usize::from(*after)], "{before} moved to {after}");
        }
        assert!(shares(&three, 3).into_iter().all(|n| (341..=342).contains(&n)));
        let many: Vec<_> = (0..127).map(Some).collect();
        assert!(shares(&table(&many), 127).into_iter().all(|n| n >= 8));
    }

    #[test]
    fn one_pair_needs_no_table() {
        assert!(table(&[Some(0)]).is_empty() && table(&[None, Some(0), None]).is_empty() && table(&[]).is_empty());
    }
}
