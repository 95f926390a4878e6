//! Coalescing: consecutive packets of a TCP or UDP flow, delivered as one packet to a guest that
//! takes such packets.
//!
//! The packets are copied at once, because finished checksums are verified in the copy. If one is
//! wrong, the buffers are given back, and each packet is delivered singly, as it came. The packets
//! before the wrong one are then copied twice.

use straightline_packet::{GsoKinds, PacketId, Run};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::Device;

use super::delivery::{Delivery, Tally};
use super::marks::mark;
use crate::vhost_user::data::HEADER;

impl<R: Device> Delivery<'_, '_, R> {
    /// Delivers the packets from `at` on that can be coalesced into one packet of `kinds`. Returns
    /// their number, and whether they were delivered.
    ///
    /// If they were not (the packet is not for this guest, a checksum is wrong, or there are too
    /// few buffers), each packet is delivered singly. If the packet at `at` cannot be coalesced,
    /// returns the number of packets before the next that can.
    #[inline]
    pub(super) fn merge(&mut self, at: usize, kinds: GsoKinds, tally: &mut Tally) -> (usize, bool) {
        if let Some((run, count)) = self.turn.coalesce(&self.ids[at..], kinds) {
            return (count, self.deliver_run(&run, &self.ids[at..at + count], tally));
        }
        // The first two packets show whether any can be coalesced.
        let rest = &self.ids[at + 1..];
        let begins = |two: &[PacketId]| self.turn.coalesce(two, kinds).is_some();
        let single = rest.windows(2).position(begins).unwrap_or(rest.len());
        (1 + single, false)
    }

    /// Delivers the packets of a run as one. If that fails, nothing has changed.
    #[inline(never)]
    fn deliver_run(&mut self, run: &Run, ids: &[PacketId], tally: &mut Tally) -> bool {
        let gso = run.gso();
        let limit = self.buffers.budget.limit();
        if !self.turn.fits(ids[0], u32::from(gso.header_len) + u32::from(gso.size), self.link.max_len) {
            return false;
        }
        let Ok((to, chains)) = self.reserve(run.len()) else { return false };
        run.headers(self.turn.head(ids[0]), self.segment);
        *self.segment.prefix_mut::<LEN>() = NetHeader::for_receiver(run.offload(), chains).to_bytes();
        let stored = self.turn.store_run::<LEN>(ids, run, self.segment, to.clone());
        if let Some(log) = &self.link.log {
            let buffers = self.turn.staged_at(to.clone());
            mark(&log.after_writes(), &self.link.memory, buffers, run.len() + HEADER);
        }
        self.turn.unstage(to.start);
        let Ok(copied) = stored else {
            // A limit that these buffers have raised would rise again with every wrong checksum.
            self.buffers.budget.set_limit(limit);
            self.buffers.untake(chains);
            return false;
        };
        // The guest gets one packet. The bodies of all of them are delivered.
        tally.packets += 1;
        tally.bytes += u64::from(run.len());
        tally.body += u64::from(copied);
        true
    }
}
