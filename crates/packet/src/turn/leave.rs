//! Packets that are left in their source's ring, because they would cost the turn too much.

use std::ops::Range;

use super::{Disposition, Served, SourceQueueId, Turn};
use crate::PacketId;

impl Turn<'_> {
    /// Leaves the packets in these slots in their sources' rings, as far as their queues can keep
    /// them. A later turn accepts them again.
    ///
    /// The slots must be the last ones of their sources, because a ring has no gaps.
    ///
    /// A packet that a tunnel has received stays in the turn. It counts for the tunnel already.
    pub fn leave_tail(&mut self, slots: Range<usize>) {
        // Packets of one source are consecutive.
        let mut source = SourceQueueId::NONE;
        let mut is_kept = false;
        for at in slots {
            let slot = &self.packets.slots[at];
            if slot.source != source {
                source = slot.source;
                let queue = self.sources.get(usize::from(source.0));
                is_kept = queue.is_some_and(|queue| queue.served() == Served::Port(slot.port) && queue.can_keep());
            }
            if is_kept && slot.disposition == Disposition::Sent {
                self.leave(PacketId::new(at));
            }
        }
    }

    /// Returns whether the packet is to be left in its source's ring.
    #[inline]
    pub fn is_left(&self, id: PacketId) -> bool {
        self.packets.slots[id.index()].disposition == Disposition::Left
    }

    /// Returns whether any packet is to be left in its source's ring.
    #[inline]
    pub fn leaves_packets(&self) -> bool {
        self.left > 0
    }
}
