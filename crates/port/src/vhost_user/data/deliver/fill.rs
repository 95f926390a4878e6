//! The loop over a batch: each packet by the fastest way that takes it.

use straightline_packet::{Checksum, DropTally, GsoKinds, PacketId, Reason, Turn};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{Device, Ring};

use super::WhenFull;
use super::budget::DescriptorBudget;
use super::buffers::{Buffers, Spared};
use super::delivery::{Delivery, NotDelivered, Tally};
use super::marks::mark;
use super::plain;
use crate::vhost_user::data::HEADER;
use crate::vhost_user::data::delivery_plan::Planned;
use crate::vhost_user::data::link::Link;
use crate::vhost_user::data::queue_state::QueueState;

/// Reserves buffers for the whole batch and copies it. Nothing is visible to the guest yet. With
/// `without_vanished`, packets of sources whose memory has vanished are dropped.
pub(super) fn fill<'t>(
    inner: &mut QueueState,
    link: &'t Link,
    turn: &mut Turn<'t>,
    ids: &[PacketId],
    full: WhenFull,
    budget: &mut DescriptorBudget,
    without_vanished: bool,
) -> Tally {
    let QueueState { ring, firsts, most_found, plan, segment, .. } = inner;
    plan.clear();
    let spared = Spared { most: full.spared(ring.size()), found: most_found };
    let wait = full == WhenFull::Wait;
    match ring {
        Ring::Split(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), spared, budget);
            fill_into(Delivery { link, turn, ids, buffers, plan, segment, wait }, without_vanished)
        }
        Ring::Packed(ring) => {
            let buffers = Buffers::new(ring, firsts, ids.len(), spared, budget);
            fill_into(Delivery { link, turn, ids, buffers, plan, segment, wait }, without_vanished)
        }
    }
}

/// Fills the buffers of a ring of one layout.
fn fill_into(mut delivery: Delivery<'_, '_, impl Device>, without_vanished: bool) -> Tally {
    let ids = delivery.ids;
    let wait = delivery.wait;
    let mark = delivery.turn.mark();
    let mut tally =
        Tally { packets: 0, bytes: 0, body: 0, drops: DropTally::default(), left_from: None, short: 0, broken: None };
    // After memory has vanished, each packet is checked by itself.
    let kinds = if without_vanished { GsoKinds::NONE } else { delivery.link.receiver.kinds() };
    // Packets before position `looked` are known not to be coalesced with their neighbours.
    let mut at = 0;
    let mut looked = if kinds == GsoKinds::NONE { ids.len() } else { 0 };
    loop {
        if delivery.buffers.budget.is_spent() {
            delivery.drop_rest(at, Reason::ManyDescriptors, without_vanished, &mut tally);
            break;
        }
        if !without_vanished && at < looked {
            at += plain::deliver(&mut delivery, at..looked, &mut tally);
        }
        let Some(&id) = ids.get(at) else { break };
        if at >= looked {
            let (count, delivered) = delivery.merge(at, kinds, &mut tally);
            looked = at + count;
            if delivered {
                at = looked;
            }
            // Packets that are not coalesced may be plain.
            continue;
        }
        match delivery.add(id, without_vanished, &mut tally) {
            Ok(()) => {}
            Err(NotDelivered::Dropped(Reason::NoBuffer)) if wait && !delivery.buffers.never_suffice(0) => {
                tally.left_from = Some(at);
                // Includes the buffers that a segmented packet had taken and gave back.
                tally.short = delivery.buffers.ring.known();
                break;
            }
            Err(NotDelivered::Dropped(reason)) => {
                tally.drops.drop_at(delivery.turn, delivery.link.index, &[id], reason);
            }
            Err(NotDelivered::Broken(message)) => {
                tally.drops.drop_at(delivery.turn, delivery.link.index, &ids[at..], Reason::LinkDown);
                tally.broken = Some(message);
                break;
            }
        }
        at += 1;
        if delivery.buffers.dry && !wait {
            // Another look for each packet that follows would take the available ring's line away
            // from the driver while it gives buffers.
            delivery.drop_rest(at, Reason::NoBuffer, without_vanished, &mut tally);
            break;
        }
    }
    delivery.copy();
    delivery.turn.unstage(mark);
    tally
}

impl<R: Device> Delivery<'_, '_, R> {
    /// Reserves buffers for a packet, to be copied later. A packet that must be segmented is
    /// segmented and copied now.
    #[inline(never)]
    fn add(&mut self, id: PacketId, without_vanished: bool, tally: &mut Tally) -> Result<(), NotDelivered> {
        if let Some(plan) = self.segmenter(id, without_vanished).map_err(NotDelivered::Dropped)? {
            return self.deliver_segmented(id, plan, tally);
        }
        let len = self.turn.len(id);
        let (to, chains) = self.reserve(len)?;
        self.plan.push(Planned { id, to, chains });
        tally.packets += 1;
        tally.bytes += u64::from(len);
        tally.body += u64::from(self.turn.body_len(id));
        Ok(())
    }

    /// Drops the packets of the batch from position `at` on for `reason`. A packet that would be
    /// segmented counts as its segments. A packet that is not for this guest at all is dropped for
    /// its own reason.
    #[cold]
    fn drop_rest(&mut self, at: usize, reason: Reason, without_vanished: bool, tally: &mut Tally) {
        for &id in self.ids.get(at..).unwrap_or_default() {
            let (reason, n) = match self.segmenter(id, without_vanished) {
                Ok(plan) => (reason, plan.map_or(1, |plan| plan.left())),
                Err(reason) => (reason, 1),
            };
            tally.drops.drop_segments_at(self.turn, self.link.index, id, reason, n);
        }
    }

    /// Copies all planned packets, and marks what was written in the dirty log.
    fn copy(&mut self) {
        let partial = self.link.receiver.takes_partial();
        for &Planned { id, ref to, chains } in self.plan.iter() {
            let mut offload = self.turn.offload(id);
            let finish = !partial && offload.checksum != Checksum::Complete;
            if finish {
                offload.checksum = Checksum::Complete;
            }
            *self.turn.front_mut::<LEN>(id) = NetHeader::for_receiver(offload, chains).to_bytes();
            self.turn.store::<LEN>(id, to.clone(), finish);
        }
        if let Some(log) = &self.link.log {
            let marks = log.after_writes();
            for Planned { id, to, .. } in self.plan.iter() {
                mark(&marks, &self.link.memory, self.turn.staged_at(to.clone()), self.turn.len(*id) + HEADER);
            }
        }
        self.plan.clear();
    }
}
