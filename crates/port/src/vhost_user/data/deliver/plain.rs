//! The common case: packets that are delivered as they are, each into one buffer.
//!
//! The loops are compiled for each instruction set and keep their state in registers. A packet of
//! any other kind ends them; `fill` delivers it.

use std::ops::Range;

use straightline_packet::{Kernels, MemorySegment, Offload, PacketId, WithKernels};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{BURST, Device, Direction};

use super::buffers::Buffers;
use super::delivery::{Delivery, Tally};
use super::marks::mark;
use crate::vhost_user::data::HEADER;

/// Delivers the packets of the batch at `places`, up to the first that is not plain. Returns their
/// number. None of them is coalesced with its neighbours.
pub(super) fn deliver<R: Device>(delivery: &mut Delivery<'_, '_, R>, places: Range<usize>, tally: &mut Tally) -> usize {
    let level = delivery.turn.level();
    level.run(Plain { delivery, places, tally })
}

struct Plain<'f, 'a, 't, R> {
    delivery: &'f mut Delivery<'a, 't, R>,
    places: Range<usize>,
    tally: &'f mut Tally,
}

impl<R: Device> WithKernels for Plain<'_, '_, '_, R> {
    type Output = usize;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> usize {
        let ids = &self.delivery.ids[self.places];
        let mut done = 0;
        while done < ids.len() {
            match burst(kernels, self.delivery, &ids[done..], self.tally) {
                0 => break,
                delivered => done += delivered,
            }
        }
        done
    }
}

/// Delivers packets into buffers that are known already. Finds all buffers first and then fills
/// them, so that the lines of the buffers arrive meanwhile.
#[inline(always)]
fn burst<K: Kernels, R: Device>(
    kernels: K,
    to: &mut Delivery<'_, '_, R>,
    ids: &[PacketId],
    tally: &mut Tally,
) -> usize {
    let partial = to.link.receiver.takes_partial();
    let is_plain = |offload: Offload| offload.is_nothing() || (partial && offload.gso.is_none());
    // For a batch without plain packets, each packet costs only this check.
    if !ids.first().is_some_and(|&id| is_plain(to.turn.offload(id))) || !to.buffers.look() {
        return 0;
    }
    let Delivery { link, turn, buffers: Buffers { ring, firsts, at, known, .. }, .. } = to;
    let mut places: [Option<MemorySegment<'_>>; BURST] = [None; BURST];
    let prefetches = turn.prefetches();
    let mut found = 0;
    let mut bytes = 0;
    let mut some_ask = false;
    for ((&id, first), place) in ids.iter().zip(&firsts[*at..*known]).zip(&mut places) {
        let len = turn.len(id);
        let offload = turn.offload(id);
        if !turn.fits(id, len, link.max_len) || !is_plain(offload) {
            break;
        }
        let Some(segment) = ring.single(&link.memory, first, Direction::ToGuest) else { break };
        if segment.len() < len + HEADER {
            break;
        }
        if prefetches {
            segment.prefetch_for_store::<HEADER>();
        }
        *place = Some(segment);
        bytes += u64::from(len);
        some_ask |= !offload.is_nothing();
        found += 1;
    }
    ring.take_all(&firsts[*at..*at + found], |i| turn.len(ids[i]) + HEADER);
    *at += found;
    let nothing_asked = NetHeader::for_receiver(Offload::default(), 1).to_bytes();
    let mut body = 0;
    for (&id, &place) in ids.iter().zip(places[..found].iter().flatten()) {
        let asked;
        let header = if some_ask {
            asked = header_of(turn.offload(id));
            &asked
        } else {
            &nothing_asked
        };
        body += turn.store_plain(kernels, id, place, header);
    }
    if let Some(log) = &link.log {
        let marks = log.after_writes();
        for (&id, &place) in ids.iter().zip(places[..found].iter().flatten()) {
            mark(&marks, &link.memory, &[place], turn.len(id) + HEADER);
        }
    }
    turn.count_copied(body);
    tally.packets += found as u64;
    tally.bytes += bytes;
    tally.body += u64::from(body);
    found
}

#[inline(never)]
fn header_of(offload: Offload) -> [u8; LEN] {
    NetHeader::for_receiver(offload, 1).to_bytes()
}
