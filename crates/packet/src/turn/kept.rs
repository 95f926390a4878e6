//! Whole packets, saved before nodes that may change all of them, and then restored.
//!
//! [`ChangedPackets`](crate::ChangedPackets) saves less, and suffices for headers. Nodes that a port
//! names in a bridge may do everything that [`Packets`] allows: they write heads, pull bytes up,
//! truncate packets and drop them. Bodies are not copied: the nodes get a list of memory segments
//! of their own.

use std::fmt;

use super::Packets;
use crate::slot::{Disposition, Slot};
use crate::{Batch, MAX_BATCH};

/// Whole packets, kept from [`Self::keep`] until [`Self::restore`].
pub struct KeptPackets {
    batch: Batch,
    /// Words and heads of the batch's packets.
    slots: Box<[Slot; MAX_BATCH]>,
    /// Number of the turn's segments before those for the nodes.
    mark: usize,
}

impl fmt::Debug for KeptPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPackets").field("packets", &self.batch.len()).finish_non_exhaustive()
    }
}

impl Default for KeptPackets {
    fn default() -> Self {
        let slots = vec![Slot::EMPTY; MAX_BATCH].into_boxed_slice().try_into().expect("as many as asked for");
        KeptPackets { batch: Batch::new(), slots, mark: 0 }
    }
}

impl KeptPackets {
    /// Keeps the packets of a batch. Until [`Self::restore`], nodes may change them in any way.
    pub fn keep(&mut self, packets: &mut Packets<'_>, batch: &Batch) {
        self.mark = packets.segments.len();
        self.batch.clear();
        self.batch.extend(batch.ids());
        for (&id, kept) in batch.ids().iter().zip(&mut *self.slots) {
            let slot = &mut packets.slots[id.index()];
            slot.copy_to(kept);
            if slot.count > 0 {
                // Pulling up and truncating change segments.
                let body = slot.first as usize..(slot.first + slot.count) as usize;
                slot.first = super::narrow(packets.segments.len());
                packets.segments.extend_from_within(body);
            }
        }
    }

    /// Restores the packets. Those that were left in their ring meanwhile stay so.
    pub fn restore(&mut self, packets: &mut Packets<'_>) {
        for (&id, kept) in self.batch.ids().iter().zip(&mut *self.slots) {
            let slot = &mut packets.slots[id.index()];
            if slot.disposition == Disposition::Left {
                kept.disposition = Disposition::Left;
            }
            kept.copy_to(slot);
        }
        packets.segments.truncate(self.mark);
        self.batch.clear();
    }
}
