//! The packets of a turn, as nodes see them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use az::SaturatingAs;
use straightline_simd::{Kernels, Level, Sum, WithKernels, prefetch_read};
use straightline_wire::{FrameLimit, vlan};

use super::annotation::Annotations;
use super::observe::Observers;
use super::{Rcu, Settings, narrow, narrow16};
use crate::slot::{Disposition, HEADROOM, SLOT_DATA, Slot};
use crate::{Checksum, Drops, MAX_BATCH, MemorySegment, Offload, PacketId, PortIndex, Reason};

/// The packets of a turn, with the operations that a node may use.
///
/// A node can look at packets, change their heads and drop them. Of their bodies it gets nothing but
/// a sum. It cannot accept packets, deliver them or end the turn. Those are methods of [`Turn`](crate::Turn), and
/// nothing leads from `Packets` back to its turn.
///
/// ```
/// use straightline_packet::{Arena, PortIndex, Rcu, Settings};
/// let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
/// arena.turn(|turn| {
///     let id = turn.accept_owned(PortIndex(0), &[0; 60]).expect("an empty turn has free slots");
///     let packets = turn.packets();
///     packets.head_mut(id)[..6].fill(0xff);
///     assert_eq!(packets.len(id), 60);
/// });
/// ```
///
/// A turn that ends early would give buffers back before their packets are delivered, so this
/// example does not compile:
///
/// ```compile_fail,E0599
/// use straightline_packet::{Arena, PortIndex, Rcu, Settings};
/// let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
/// arena.turn(|turn| {
///     let packets = turn.packets();
///     packets.end();
/// });
/// ```
pub struct Packets<'t> {
    pub(super) slots: &'t mut [Slot; MAX_BATCH],
    pub(super) annotations: &'t mut Annotations,
    /// Bodies, and buffers that wait for packets.
    pub(super) segments: Vec<MemorySegment<'t>>,
    /// The drop counters of every port, by its index.
    pub(super) drops: &'t [Arc<Drops>],
    pub(super) settings: Settings,
    pub(super) now: u32,
    /// The worker's observers, if there are any.
    pub(super) observers: Option<Box<Observers>>,
    pub(super) rcu: &'t Rcu,
}

impl fmt::Debug for Packets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Packets<'_> {
    /// Returns the readers to which the worker of this turn belongs.
    pub(super) fn rcu(&self) -> &Rcu {
        self.rcu
    }

    /// Prefetches the parts of a later packet that a node touches first: the slot's words, and the
    /// first line of the head. [`Batch::ahead`](crate::Batch::ahead) yields such packets.
    ///
    /// The prefetched address is right for a head without prepended headers. To know where the head
    /// really begins, the function would have to read the slot, which is not in the cache yet.
    #[inline]
    pub fn prefetch(&self, later: Option<PacketId>) {
        if let Some(id) = later {
            let slot = &self.slots[id.index()];
            prefetch_read(std::ptr::from_ref(slot).cast());
            prefetch_read(slot.data()[HEADROOM..].as_ptr());
        }
    }

    /// Returns the packet's head.
    #[inline]
    pub fn head(&self, id: PacketId) -> &[u8] {
        self.slots[id.index()].head()
    }

    /// Returns the packet's head, to be changed.
    #[inline]
    pub fn head_mut(&mut self, id: PacketId) -> &mut [u8] {
        self.slots[id.index()].head_mut()
    }

    /// Returns the length of the packet in bytes, body included.
    #[inline]
    pub fn len(&self, id: PacketId) -> u32 {
        self.slots[id.index()].len()
    }

    /// Returns the length of the body in bytes.
    #[inline]
    pub fn body_len(&self, id: PacketId) -> u32 {
        self.slots[id.index()].body
    }

    /// Returns the number of memory segments of the body.
    #[inline]
    pub fn body_segments(&self, id: PacketId) -> u32 {
        self.slots[id.index()].count
    }

    /// Returns the port that the packet came from.
    #[inline]
    pub fn port(&self, id: PacketId) -> PortIndex {
        self.slots[id.index()].port
    }

    /// Returns what the packet's sender left to be done.
    #[inline]
    pub fn offload(&self, id: PacketId) -> Offload {
        self.slots[id.index()].offload
    }

    /// Returns the state of the packet's checksum: a part of [`Self::offload`].
    #[inline]
    pub fn checksum(&self, id: PacketId) -> Checksum {
        self.slots[id.index()].offload.checksum
    }

    /// Returns whether the packet is still to be segmented.
    #[inline]
    pub fn is_gso(&self, id: PacketId) -> bool {
        self.slots[id.index()].offload.gso.is_some()
    }

    /// Returns the number of GSO segments that the packet becomes; 1 if it is no GSO packet.
    #[inline]
    pub fn segments(&self, id: PacketId) -> u32 {
        let slot = &self.slots[id.index()];
        let Some(gso) = slot.offload.gso else { return 1 };
        slot.len().saturating_sub(gso.header_len.into()).div_ceil(u32::from(gso.size).max(1)).max(1)
    }

    /// Sets what is left to be done. The caller has checked it against the packet.
    #[inline]
    pub fn set_offload(&mut self, id: PacketId, offload: Offload) {
        self.slots[id.index()].offload = offload;
    }

    /// Returns the time of this turn, in seconds.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Returns the instruction set of this turn's copies.
    #[inline]
    pub fn level(&self) -> Level {
        self.settings.level
    }

    /// Returns whether a frame of `len` bytes with the head of this packet fits into the longest
    /// frame of a port ([`FrameLimit`]): `limit` bytes, which have space for one VLAN tag. A second tag
    /// may take four bytes more.
    #[inline]
    pub fn fits(&self, id: PacketId, len: u32, limit: u32) -> bool {
        len <= limit || (len - limit <= FrameLimit::SECOND_TAG && vlan::has_two_tags(self.head(id)))
    }

    /// Makes the head at least `upto` bytes long by copying bytes from the body. Returns `false`
    /// where the packet is shorter, or where the slot has no space: see [`Self::max_head`].
    pub fn pull_up(&mut self, id: PacketId, upto: usize) -> bool {
        let slot = &mut self.slots[id.index()];
        let start = slot.start();
        let mut head = slot.head_len();
        if upto <= head {
            return true;
        }
        if upto > SLOT_DATA - start || upto > slot.len() as usize {
            return false;
        }
        while head < upto {
            let segment = &mut self.segments[slot.first as usize];
            let n = segment.read(self.settings.level, &mut slot.change().data[start + head..start + upto]);
            *segment = segment.split_at(narrow(n)).1;
            if segment.is_empty() {
                slot.first += 1;
                slot.count -= 1;
            }
            head += n;
            slot.body -= narrow(n);
        }
        *slot.change().head = narrow16(head);
        true
    }

    /// Returns the sum of these bytes of the head, for header checksums. Bytes beyond the head are
    /// left out. A last odd byte counts as the high half of a word.
    #[inline]
    pub fn sum_head(&self, id: PacketId, range: Range<usize>) -> u16 {
        let head = self.head(id);
        let mut sum = Sum::new();
        sum.add_bytes(head.get(range.start..range.end.min(head.len())).unwrap_or_default());
        sum.fold()
    }

    /// Returns the sum of the packet's bytes from offset `start` to its end: 0 if there are none, or
    /// if all are zero. No other operation of a node reads a body.
    ///
    /// Each byte of the body is loaded once. A guest may change it before it is copied, so the sum
    /// proves nothing about the bytes that are delivered. It is good for dropping damaged packets.
    pub fn sum_from(&self, id: PacketId, start: usize) -> u16 {
        let slot = &self.slots[id.index()];
        let head = slot.head();
        let skipped = start.saturating_sub(slot.head().len());
        let own = head.get(start..).unwrap_or_default();
        let body = &self.segments[slot.first as usize..][..slot.count as usize];
        self.settings.level.run(SumPacket { own, body, skipped })
    }

    /// Drops the packet and counts it for the port that it came from. A packet behind one that is
    /// left in its source's ring comes again with that one, and is counted then.
    pub fn discard(&mut self, id: PacketId, reason: Reason) {
        let slot = &mut self.slots[id.index()];
        slot.disposition = Disposition::Dropped(reason);
        let port = slot.port;
        if let Some(drops) = self.drops.get(port.index()) {
            drops.add(reason, 1);
        }
        self.note_dropped(port, &[id], reason);
    }

    /// Drops packets at a port that does not decide their disposition, such as the port that should
    /// send them: counts them for it, and notes them for observers.
    pub fn drop_at(&mut self, port: PortIndex, ids: &[PacketId], reason: Reason) {
        self.count_drops(port, reason, ids.len().try_into().unwrap_or(u64::MAX));
        self.note_dropped(port, ids, reason);
    }

    /// Takes back one drop that [`Self::drop_at`] has counted: the packet goes back to its ring, and is
    /// counted when it comes again.
    pub fn take_back_drop(&self, port: PortIndex, reason: Reason) {
        if let Some(drops) = self.drops.get(port.index()) {
            drops.roll_back(reason);
        }
    }

    /// Counts packets of a port that were dropped for `reason` while they were in no slot.
    pub fn count_drops(&self, port: PortIndex, reason: Reason, packets: u64) {
        if let Some(drops) = self.drops.get(port.index()) {
            drops.add(reason, packets);
        }
    }
}

/// The arguments of a sum over a packet, which is compiled for each instruction set: the bytes of
/// the head, and the body without its first bytes.
struct SumPacket<'a, 't> {
    own: &'a [u8],
    body: &'a [MemorySegment<'t>],
    skipped: usize,
}

impl WithKernels for SumPacket<'_, '_> {
    type Output = u16;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u16 {
        let mut sum = Sum::new();
        kernels.sum(self.own, &mut sum);
        let mut skipped = self.skipped.saturating_as::<u32>();
        for segment in self.body {
            let (front, rest) = segment.split_at(skipped);
            skipped -= front.len();
            rest.sum(kernels, &mut sum);
        }
        sum.fold()
    }
}
