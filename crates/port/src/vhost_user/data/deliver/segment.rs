//! Segmentation of packets that the guest does not take unsegmented.

use az::SaturatingAs;
use straightline_packet::{BodyCursor, Checksum, Offload, PacketId, Reason, Segmenter};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::{Device, Direction};

use super::buffers::Buffers;
use super::delivery::{Delivery, NotDelivered, Tally};
use super::marks::mark;
use crate::vhost_user::data::HEADER;

/// The counts of the segments of a packet so far.
#[derive(Default)]
struct SegmentTally {
    packets: u64,
    bytes: u64,
    body: u64,
    chains: u16,
}

impl<R: Device> Delivery<'_, '_, R> {
    /// Delivers a packet segment by segment.
    #[inline(never)]
    pub(super) fn deliver_segmented(
        &mut self,
        id: PacketId,
        mut plan: Segmenter,
        tally: &mut Tally,
    ) -> Result<(), NotDelivered> {
        if !plan.begin(self.turn.head(id), self.segment) {
            return Err(NotDelivered::Dropped(Reason::SegmentHeaders));
        }
        let finish = !self.link.receiver.takes_partial();
        let mut done = SegmentTally::default();
        let mut from = BodyCursor::default();
        while plan.left() > 0 {
            if self.segments_into_singles(id, &mut plan, &mut from, finish, &mut done) > 0 {
                continue;
            }
            match self.segment_into_any(id, &mut plan, &mut from, finish, &mut done) {
                Ok(()) => {}
                Err(NotDelivered::Dropped(Reason::NoBuffer))
                    if self.wait && !self.buffers.never_suffice(done.chains) =>
                {
                    self.buffers.untake(done.chains);
                    return Err(NotDelivered::Dropped(Reason::NoBuffer));
                }
                Err(NotDelivered::Dropped(reason)) => {
                    // The buffers do not suffice for the remaining segments either.
                    tally.drops.drop_segments_at(self.turn, self.link.index, id, reason, plan.left());
                    break;
                }
                Err(broken) => {
                    // If a packet is dropped, none of its segments is delivered.
                    self.buffers.untake(done.chains);
                    return Err(broken);
                }
            }
        }
        self.turn.note_segmented(self.link.index, id, done.packets.saturating_as::<u32>());
        tally.packets += done.packets;
        tally.bytes += done.bytes;
        tally.body += done.body;
        Ok(())
    }

    /// Delivers the next segments, one into each known buffer that takes a whole segment. Takes all
    /// these buffers, then fills them. Returns the number of segments.
    #[inline(always)]
    fn segments_into_singles(
        &mut self,
        id: PacketId,
        plan: &mut Segmenter,
        from: &mut BodyCursor,
        finish: bool,
        done: &mut SegmentTally,
    ) -> usize {
        if !self.buffers.look() {
            return 0;
        }
        let Delivery { link, turn, buffers: Buffers { ring, firsts, at, known, .. }, segment, .. } = self;
        let staged = turn.mark();
        let left = plan.left();
        // All segments are as long as the next one, except the last, which may be shorter.
        let full = plan.len_of(0);
        let mut found = 0;
        for (_, first) in (0..left).zip(&firsts[*at..*known]) {
            let Some(buffer) = ring.single(&link.memory, first, Direction::ToGuest) else { break };
            if buffer.len() < full + HEADER {
                break;
            }
            if turn.prefetches() {
                buffer.prefetch_for_store::<HEADER>();
            }
            turn.stage(buffer);
            found += 1;
        }
        if found == 0 {
            return 0;
        }
        let last = plan.len_of((found - 1).saturating_as::<u32>());
        let len = |nth: usize| if nth + 1 == found { last } else { full };
        ring.take_all(&firsts[*at..*at + found], |nth| len(nth) + HEADER);
        *at += found;
        let checksum = if finish { Checksum::Complete } else { plan.checksum() };
        *segment.prefix_mut::<LEN>() = NetHeader::for_receiver(Offload { checksum, gso: None }, 1).to_bytes();
        done.body += u64::from(turn.store_gso_segments::<LEN>(id, plan, segment, from, staged..staged + found, finish));
        if let Some(log) = &link.log {
            let marks = log.after_writes();
            for (nth, buffer) in turn.staged(staged).iter().enumerate() {
                mark(&marks, &link.memory, &[*buffer], len(nth) + HEADER);
            }
        }
        turn.unstage(staged);
        done.packets += found as u64;
        done.bytes += (found as u64 - 1) * u64::from(full) + u64::from(last);
        done.chains += found.saturating_as::<u16>();
        found
    }

    /// Delivers the next segment into the next buffers, of any kind and size.
    #[inline(never)]
    fn segment_into_any(
        &mut self,
        id: PacketId,
        plan: &mut Segmenter,
        from: &mut BodyCursor,
        finish: bool,
        done: &mut SegmentTally,
    ) -> Result<(), NotDelivered> {
        let len = plan.len_of(0);
        let (to, chains) = self.reserve(len)?;
        if !plan.next(self.turn.head(id), self.segment) {
            // Nothing was written into the reserved buffers.
            self.buffers.untake(chains);
            self.turn.unstage(to.start);
            return Err(NotDelivered::Dropped(Reason::SegmentHeaders));
        }
        let checksum = if finish { Checksum::Complete } else { self.segment.checksum() };
        *self.segment.prefix_mut::<LEN>() = NetHeader::for_receiver(Offload { checksum, gso: None }, chains).to_bytes();
        done.body += u64::from(self.turn.store_gso_segment::<LEN>(id, self.segment, from, to.clone(), finish));
        if let Some(log) = &self.link.log {
            mark(&log.after_writes(), &self.link.memory, self.turn.staged_at(to), len + HEADER);
        }
        done.packets += 1;
        done.bytes += u64::from(len);
        done.chains += chains;
        Ok(())
    }
}
