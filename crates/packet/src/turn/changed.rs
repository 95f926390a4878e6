//! Packets that are changed for some of their outputs, and then restored: the output adaptor.
//!
//! A flood gives one slot to several outputs, and they may want the packet in different *forms*: with
//! a tunnel's headers, with a VLAN tag, or as it is. So a change lasts for one delivery only:
//!
//! ```text
//! for each packet:   save its outside, and change it    (ChangedPackets::change)
//! deliver the packets to all outputs of this form
//! restore all outsides                                  (ChangedPackets::restore)
//! ```
//!
//! Each packet is changed once for each form, however many outputs have the form. This takes no
//! further slot and copies no body.
//!
//! Other parts of the turn see this:
//!
//! - **Other outputs** see the packet as it was before, whether they run earlier or later.
//! - **Captures and traces** see a delivered packet as its port sent it: an output tells observers
//!   of a delivery before packets are restored. They see a dropped packet as it was before.
//! - **Mirrors** that run within the delivery of a form see that form. All others see the packet as
//!   it was before.
//! - **`full = "wait"`**: a packet that was left in its ring stays marked so. It comes again as its
//!   sender wrote it, and is changed again.

use std::fmt;

use super::{Outside, Packets};
use crate::{Batch, PacketId};

/// Packets that are changed at the moment, with their outsides from before: at most `N`.
pub struct ChangedPackets<const N: usize> {
    batch: Batch,
    /// The outsides of the batch's packets.
    outsides: Box<[Outside; N]>,
    /// The facts that must be the same after packets are restored.
    #[cfg(debug_assertions)]
    prints: Vec<Print>,
}

impl<const N: usize> fmt::Debug for ChangedPackets<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedPackets").field("packets", &self.batch.len()).finish_non_exhaustive()
    }
}

impl<const N: usize> Default for ChangedPackets<N> {
    fn default() -> Self {
        ChangedPackets {
            batch: Batch::new(),
            outsides: Box::new([Outside::default(); N]),
            #[cfg(debug_assertions)]
            prints: Vec::with_capacity(N),
        }
    }
}

impl<const N: usize> ChangedPackets<N> {
    /// Returns the number of further packets for which there is space.
    #[inline]
    pub fn free(&self) -> usize {
        N - self.batch.len()
    }

    /// Returns whether the packet is changed at the moment.
    pub fn contains(&self, id: PacketId) -> bool {
        // All are compared, because that takes a few wide instructions.
        self.batch.ids().iter().fold(false, |any, &other| any | (other == id))
    }

    /// Returns the packets that are changed at the moment.
    #[inline]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Changes a packet by `change`, and keeps it among the changed packets until
    /// [`Self::restore`]. If `change` fails, the packet is restored at once.
    ///
    /// `change` may do what [`Packets::save_outside`] allows: prepend, strip or write the first 16
    /// bytes, pull bytes up, and set the offload. It must not drop the packet, because other outputs
    /// may deliver it.
    ///
    /// There must be space for the packet ([`Self::free`]), and it must not be changed already.
    #[inline(always)]
    pub fn change<T, E>(
        &mut self,
        packets: &mut Packets<'_>,
        id: PacketId,
        change: impl FnOnce(&mut Packets<'_>, PacketId) -> Result<T, E>,
    ) -> Result<T, E> {
        debug_assert!(self.free() > 0 && !self.contains(id), "no space, or changed already");
        #[cfg(debug_assertions)]
        let print = Print::of(packets, id);
        let outside = &mut self.outsides[self.batch.len() % N];
        *outside = packets.save_outside(id);
        let changed = change(packets, id);
        if changed.is_ok() {
            self.batch.push(id);
            #[cfg(debug_assertions)]
            self.prints.push(print);
        } else {
            packets.restore_outside(id, outside);
            #[cfg(debug_assertions)]
            print.check(packets, id);
        }
        changed
    }

    /// Restores all packets.
    #[inline]
    pub fn restore(&mut self, packets: &mut Packets<'_>) {
        for (&id, outside) in self.batch.ids().iter().zip(&*self.outsides) {
            packets.restore_outside(id, outside);
        }
        #[cfg(debug_assertions)]
        self.batch.ids().iter().zip(self.prints.drain(..)).for_each(|(&id, print)| print.check(packets, id));
        self.batch.clear();
    }
}

/// A packet before a change, in debug builds: its length, and a sum of its head.
#[cfg(debug_assertions)]
struct Print {
    len: u32,
    head: usize,
    sum: u16,
}

#[cfg(debug_assertions)]
impl Print {
    fn of(packets: &Packets<'_>, id: PacketId) -> Self {
        let head = packets.head(id).len();
        Print { len: packets.len(id), head, sum: packets.sum_head(id, 0..head) }
    }

    fn check(&self, packets: &Packets<'_>, id: PacketId) {
        // Bytes that were pulled up stay in the head.
        let sum = packets.sum_head(id, 0..self.head);
        assert!((packets.len(id), sum) == (self.len, self.sum), "a form has changed more than a packet's outside");
    }
}
