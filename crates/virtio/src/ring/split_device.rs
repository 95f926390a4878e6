//! The device half of a split ring (virtio 1.2, 2.7): takes chains that the driver made available,
//! and gives them back as used.
//!
//! Chains are given back in the order in which they were taken. Up to a ring's size of chains are
//! *taken* at a time. Their heads are kept in private memory, so later writes by the driver into
//! its ring change nothing.
//!
//! Memory that the driver owns is read once for each use, and is checked and used as it was read.
//! An index, an entry and each half of a descriptor is one atomic load: `Area` offers nothing else,
//! and the compiler may not repeat such a load. An entry of an indirect table is one copy into a
//! local array. No function keeps a pointer into the ring to read through again.

use std::sync::Arc;

use az::SaturatingAs;
use straightline_packet::{MemorySegment, Turn};

use super::Inflight;
use super::chain::{Chain, ChainFault, Direction, Fault, First, RingFault, Walk};
use super::device::Device;
use super::layout::{self, Descriptor, Geometry, INDIRECT, NEXT, NO_INTERRUPT, NO_NOTIFY, Parts, RingOptions};
use super::notify::{self, SuppressionField};
use super::standing::{Standing, is_used_split};
use crate::fail;
use crate::memory::{DirtyLog, GuestMemory};

/// The device half of a split ring.
#[derive(Debug)]
pub struct SplitDevice {
    parts: Parts,
    size: u16,
    /// The size minus one, in a field of its own with the width in which it is used. Otherwise a
    /// 32-bit load would overlap a recent 16-bit store, and would have to wait until that store is
    /// in the cache.
    mask: usize,
    options: RingOptions,
    /// Index of the next available entry to take.
    next_avail: u16,
    /// The driver's index as it was last read.
    seen_avail: u16,
    /// Index of the next used entry to write.
    next_used: u16,
    /// The used index at the last notification decision; `None` before the first.
    signalled: Option<u16>,
    /// Heads of taken chains and the bytes written into each, by their slot in the ring.
    taken: Box<[(u16, u32)]>,
    /// Index in `taken` of the chain that was taken last.
    last: usize,
    hint: usize,
    log: Option<Arc<DirtyLog>>,
    /// This ring's part of the in-flight table, if there is one. The frontend keeps the table for
    /// the ring's next device half.
    pub(super) inflight: Option<Inflight>,
}

impl SplitDevice {
    /// Creates the device half of the ring at `geometry`, which continues at index `base`. The
    /// error names the part that is not in guest memory.
    pub fn new(
        memory: &GuestMemory,
        geometry: Geometry,
        base: u16,
        options: RingOptions,
    ) -> Result<Self, &'static str> {
        let parts = geometry.locate(memory)?;
        Ok(SplitDevice {
            parts,
            size: geometry.size,
            mask: usize::from(geometry.size).wrapping_sub(1),
            options,
            next_avail: base,
            seen_avail: base,
            next_used: base,
            signalled: None,
            taken: vec![(0, 0); usize::from(geometry.size)].into_boxed_slice(),
            last: 0,
            hint: 0,
            log: None,
            inflight: None,
        })
    }

    /// Creates the device half as [`Self::new`] does, but continues behind the last chain that the
    /// ring itself shows as used. A device that uses chains in order needs no other base. Frontends
    /// lose the base together with their backend: DPDK's then sends 0.
    pub fn recover(memory: &GuestMemory, geometry: Geometry, options: RingOptions) -> Result<Self, &'static str> {
        // Acquire: everything that the last device published before this index is visible.
        let base = geometry.locate(memory)?.used.acquire_u16(layout::used::INDEX);
        Self::new(memory, geometry, base, options)
    }

    /// Sets the log in which all later writes to the ring are marked.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the index at which the ring's next device half continues: the next available entry
    /// that was not taken.
    pub fn base(&self) -> u16 {
        self.next_avail
    }

    /// Returns whether the memory of the ring has vanished.
    pub fn poisoned(&self) -> bool {
        self.parts.desc.poisoned() || self.parts.avail.poisoned() || self.parts.used.poisoned()
    }

    /// Returns the number of chains that can be taken. Reads the driver's index only if fewer than
    /// `count` are known.
    #[inline]
    pub fn available(&mut self, count: u16) -> Result<u16, RingFault> {
        let known = self.seen_avail.wrapping_sub(self.next_avail);
        if known >= count { Ok(known) } else { self.refresh() }
    }

    /// Reads the driver's index.
    #[inline]
    fn refresh(&mut self) -> Result<u16, RingFault> {
        // Acquire: once the index is visible, so are the entries and descriptors before it
        // (2.7.13.3).
        self.saw(self.parts.avail.acquire_u16(layout::avail::INDEX))
    }

    /// Checks the driver's index and keeps it. Returns the number of chains that can be taken.
    #[inline]
    fn saw(&mut self, index: u16) -> Result<u16, RingFault> {
        let ahead = index.wrapping_sub(self.next_avail);
        // A driver has as many descriptors as the ring has entries, and the descriptors of taken
        // chains are not free yet.
        if u32::from(ahead) + u32::from(self.outstanding()) > u32::from(self.size) {
            return Err(RingFault::IndexJump { index, taken: self.next_avail, size: self.size });
        }
        self.seen_avail = index;
        Ok(ahead)
    }

    /// Reads the first descriptors of the next `into.len()` chains, which must be available. Two
    /// passes let their cache lines arrive together. Nothing is taken yet: [`Device::take`] does
    /// that.
    #[inline]
    pub fn peek(&mut self, into: &mut [First]) -> Result<(), RingFault> {
        let mask = self.size - 1;
        for (i, first) in (0_u16..).zip(into.iter_mut()) {
            let entry = self.next_avail.wrapping_add(i) & mask;
            let head = self.parts.avail.read_u16(layout::avail::entry(usize::from(entry)));
            if head > mask {
                return Err(RingFault::Head { entry, head, size: self.size });
            }
            self.parts.desc.prefetch(usize::from(head) * layout::DESCRIPTOR);
            first.head = head;
        }
        for first in into.iter_mut() {
            first.desc = Descriptor::read(&self.parts.desc, first.head);
        }
        Ok(())
    }

    /// Marks the last `n` used entries, and the index.
    #[cold]
    fn mark_given(&self, log: &DirtyLog, n: u16) {
        let start = self.next_used.wrapping_sub(n) & (self.size - 1);
        // Cites vhost-user-migration-3.
        layout::mark_entries(log, &self.parts.used, layout::used::entry(0), layout::used::ENTRY, start, n, self.size);
        layout::mark(log, &self.parts.used, layout::used::INDEX, 2);
    }

    /// Marks a field of the event suppression: the two bytes at `offset` of the used ring.
    fn mark_suppression(&self, offset: usize) {
        if let Some(log) = &self.log {
            layout::mark(log, &self.parts.used, offset, 2);
        }
    }

    /// Returns the slot of the `n`th oldest taken chain, here and in the used ring.
    #[inline]
    fn slot(&self, n: u16) -> usize {
        usize::from(self.next_used.wrapping_add(n)) & self.mask
    }

    /// Returns whether the driver asked for a notification of the chains given back since the last
    /// call.
    pub fn must_notify(&mut self) -> bool {
        let new = self.next_used;
        let old = self.signalled.replace(new);
        if old == Some(new) {
            return false;
        }
        let field = if self.options.event_idx {
            SuppressionField::Event(layout::avail::used_event(usize::from(self.size)))
        } else {
            SuppressionField::Flags(layout::avail::FLAGS, NO_INTERRUPT)
        };
        notify::needs_notification(&self.parts.avail, field, old, new)
    }

    /// Returns the progress of both sides, or `None` without the event index. The driver's words
    /// are read once and only compared.
    pub fn standing(&self) -> Option<Standing> {
        if !self.options.event_idx {
            return None;
        }
        let event = self.parts.avail.read_u16(layout::avail::used_event(usize::from(self.size)));
        Some(Standing {
            event: event.into(),
            available: self.parts.avail.read_u16(layout::avail::INDEX),
            used: self.next_used,
            is_asked: is_used_split(event, self.next_used, self.size),
        })
    }

    /// Asks the driver for a kick with the next chain behind the `beyond` chains known to be
    /// available. Returns true if that chain is available already: the worker must not sleep then.
    pub fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
        let (at, field, word) = if self.options.event_idx {
            let at = layout::used::avail_event(usize::from(self.size));
            (at, SuppressionField::Event(at), self.next_avail.wrapping_add(beyond))
        } else {
            (layout::used::FLAGS, SuppressionField::Flags(layout::used::FLAGS, NO_NOTIFY), 0)
        };
        let Parts { avail, used, .. } = &self.parts;
        // Acquire: as in `refresh`.
        let index = notify::request_notification(used, field, word, || avail.acquire_u16(layout::avail::INDEX));
        self.mark_suppression(at);
        Ok(self.saw(index)? > beyond)
    }

    /// Asks the driver for no kicks: the worker polls. With the event index there is nothing to do.
    /// The kick for the present event index was sent, so the index stays behind the available index
    /// for the next 65535 chains.
    pub fn disarm(&mut self) {
        if !self.options.event_idx {
            self.parts.used.write_u16(layout::used::FLAGS, NO_NOTIFY);
            self.mark_suppression(layout::used::FLAGS);
        }
    }
}

impl Device for SplitDevice {
    #[inline]
    fn find(&mut self, into: &mut [First]) -> Result<usize, RingFault> {
        let count = into.len().saturating_as::<u16>();
        let found = usize::from(self.available(count)?).min(into.len());
        self.peek(&mut into[..found])?;
        Ok(found)
    }

    #[inline]
    fn take(&mut self, first: &First) {
        self.take_all(std::slice::from_ref(first), |_| 0);
    }

    #[inline(always)]
    fn take_all(&mut self, firsts: &[First], bytes: impl Fn(usize) -> u32) {
        let mut next = self.next_avail;
        for (i, first) in firsts.iter().enumerate() {
            self.last = usize::from(next) & self.mask;
            self.taken[self.last] = (first.head, bytes(i));
            next = next.wrapping_add(1);
        }
        self.next_avail = next;
    }

    fn untake(&mut self, n: u16) {
        debug_assert!(n <= self.outstanding());
        self.next_avail = self.next_avail.wrapping_sub(n);
        self.last = usize::from(self.next_avail.wrapping_sub(1)) & self.mask;
    }

    #[inline]
    fn written(&mut self, bytes: u32) {
        self.taken[self.last].1 = bytes;
    }

    #[inline(always)]
    fn single<'t>(
        &mut self,
        memory: &'t GuestMemory,
        first: &First,
        direction: Direction,
    ) -> Option<MemorySegment<'t>> {
        first.single(memory, direction, &mut self.hint)
    }

    fn chain<'t>(
        &mut self,
        memory: &'t GuestMemory,
        turn: &mut Turn<'t>,
        first: &First,
        direction: Direction,
    ) -> Result<Chain, Fault> {
        let mut walk = Walk::new(memory, turn, self.hint, direction);
        let result = walk.direct(&self.parts, self.size, self.options.indirect, first);
        walk.end(result, &mut self.hint)
    }

    /// Writes the used elements of all `n` chains, and then the index, once.
    #[inline]
    fn give_back(&mut self, n: u16) {
        debug_assert!(n <= self.outstanding());
        if n == 0 {
            return;
        }
        // With in-order use, one element can represent a batch (2.7.9). It names the last chain,
        // and the driver treats all chains before it as wholly used. That is true for chains that
        // were only read. Chains with bytes written need an element each, for their lengths.
        let is_batch = self.options.in_order && (0..n).all(|i| self.taken[self.slot(i)].1 == 0);
        let (elements, ahead) = if is_batch { (1, n - 1) } else { (n, 0) };
        for i in 0..elements {
            let (head, bytes) = self.taken[self.slot(i + ahead)];
            let at = layout::used::entry(self.slot(i));
            fail::hit("split-element");
            self.parts.used.write_two_u32(at, u32::from(head), bytes);
        }
        self.next_used = self.next_used.wrapping_add(n);
        fail::hit("split-index");
        // Release: all elements, and all bytes copied into or out of the buffers, are visible
        // before the index (2.7.8.2).
        self.parts.used.release_u16(layout::used::INDEX, self.next_used);
        fail::hit("split-published");
        if let Some(log) = &self.log {
            self.mark_given(log, n);
        }
        if let Some(inflight) = &self.inflight {
            inflight.end_batch(self.next_used);
        }
    }

    #[inline]
    fn outstanding(&self) -> u16 {
        self.next_avail.wrapping_sub(self.next_used)
    }

    fn known(&self) -> u16 {
        self.seen_avail.wrapping_sub(self.next_avail)
    }

    #[inline]
    fn followed(&self) -> u32 {
        0
    }

    fn is_all_taken(&self) -> bool {
        self.outstanding() == self.size
    }
}

impl Walk<'_, '_> {
    /// Walks the chain in the descriptor table (2.7.5).
    fn direct(&mut self, parts: &Parts, size: u16, indirect: bool, first: &First) -> Result<(), Fault> {
        let mut at = first.head;
        let mut desc = first.desc;
        let mut fault = Ok(());
        for _ in 0..size {
            // `buffer` counts the buffers that it stages. An indirect descriptor is no buffer and
            // is counted here.
            self.descriptors += u32::from(desc.flags & INDIRECT != 0);
            let step = if desc.flags & INDIRECT == 0 {
                self.buffer(desc)
            } else if !indirect {
                return Err(Fault::Ring(RingFault::Indirect(at)));
            } else if desc.flags & NEXT != 0 {
                // 2.7.5.3.1: a descriptor has at most one of INDIRECT and NEXT.
                Err(ChainFault::Indirect)
            } else {
                self.table(desc, size)
            };
            // The walk continues after a fault of the chain, to the chain's end: it must not hide a
            // fault of the ring behind it.
            fault = fault.and(step.map_err(Fault::Chain));
            if desc.flags & NEXT == 0 {
                return fault;
            }
            if desc.next >= size {
                return Err(Fault::Ring(RingFault::Next { at, next: desc.next, size }));
            }
            at = desc.next;
            desc = Descriptor::read(&parts.desc, at);
        }
        Err(Fault::Ring(RingFault::Loop { head: first.head, size }))
    }

    /// Walks an indirect table (2.7.5.3), which holds a chain of its own, with indexes into the
    /// table.
    fn table(&mut self, outer: Descriptor, size: u16) -> Result<(), ChainFault> {
        let bytes = u32::try_from(layout::DESCRIPTOR).unwrap_or(16);
        let entries = outer.len / bytes;
        if !outer.len.is_multiple_of(bytes) || entries == 0 || entries > u32::from(size) {
            return Err(ChainFault::Indirect);
        }
        let table = self.memory.segment(outer.addr, outer.len, &mut self.hint).ok_or(ChainFault::Address)?;
        let mut at = 0;
        for _ in 0..entries {
            let desc = Descriptor::read_indirect(self.turn.level(), table.split_at(at * bytes).1);
            if desc.flags & INDIRECT != 0 {
                return Err(ChainFault::Indirect);
            }
            self.buffer(desc)?;
            if desc.flags & NEXT == 0 {
                return Ok(());
            }
            at = u32::from(desc.next);
            if at >= entries {
                return Err(ChainFault::Indirect);
            }
        }
        Err(ChainFault::Indirect)
    }
}
