//! Coalescing: consecutive segments of a TCP flow, delivered as one packet to a guest that takes
//! such packets.

use std::ops::Range;

use straightline_packet::{GsoSegment, PacketId, Run, Turn};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::Device;

use super::delivery::{Delivery, Tally};
use crate::vhost_user::data::delivery_plan::{Planned, PlannedRun};

impl<R: Device> Delivery<'_, '_, R> {
    /// Reserves buffers for the packets from `at` on that can be coalesced into one packet. Returns
    /// their number, and whether buffers were reserved.
    ///
    /// If no buffers were reserved (the packet is not for this guest, or there are too few
    /// buffers), each packet is delivered singly. If the packet at `at` cannot be coalesced,
    /// returns the number of packets before the next that can.
    #[inline]
    pub(super) fn merge(&mut self, at: usize, tally: &mut Tally) -> (usize, bool) {
        if let Some((run, count)) = self.turn.coalesce(&self.ids[at..]) {
            return (count, self.plan_run(run, at..at + count, tally));
        }
        let rest = &self.ids[at + 1..];
        // The first two packets show whether any can be coalesced.
        let two = |from: usize| &rest[from..rest.len().min(from + 2)];
        let single = (0..rest.len()).take_while(|&from| self.turn.coalesce(two(from)).is_none()).count();
        (1 + single, false)
    }

    #[inline(never)]
    fn plan_run(&mut self, run: Run, places: Range<usize>, tally: &mut Tally) -> bool {
        let ids = &self.ids[places.clone()];
        let gso = run.gso();
        if !self.link.receiver.takes(gso) || u32::from(gso.header_len) + u32::from(gso.size) > self.link.max_len {
            return false;
        }
        let Ok((to, chains)) = self.reserve(run.len()) else { return false };
        self.plan.push(Planned { id: ids[0], to, chains, is_run: true });
        self.runs.push(PlannedRun { run, places });
        // The guest gets one packet. The bodies of all of them are delivered.
        tally.packets += 1;
        tally.bytes += u64::from(run.len());
        tally.body += ids.iter().map(|&id| u64::from(self.turn.body_len(id))).sum::<u64>();
        true
    }
}

/// Copies the packets of a run into the buffers of one.
#[inline(never)]
pub(super) fn copy(
    turn: &mut Turn<'_>,
    run: &Run,
    ids: &[PacketId],
    segment: &mut GsoSegment,
    to: Range<usize>,
    chains: u16,
) {
    let Some(&first) = ids.first() else { return };
    run.headers(turn.head(first), segment);
    *segment.prefix_mut::<LEN>() = NetHeader::for_receiver(run.offload(), chains).to_bytes();
    turn.store_run::<LEN>(ids, segment, to);
}
