//! The device half of a split ring: takes chains that the driver made available, gives them back as used.
//!
//! Chains are taken and given back in the same order. Between, up to a ring's size of them are *taken*: their heads
//! are kept here, in memory of ours, so that what the driver writes into its ring meanwhile changes nothing.
//!
//! What the driver owns is read once for each use, and checked and used as it was read: an index, an entry and each half
//! of a descriptor by one atomic load (`Area` has nothing else, and the compiler may not repeat it), an entry of an
//! indirect table by one copy into a local array. No function keeps a place in the ring to look at again.

use std::sync::Arc;

use straightline_packet::{MemorySegment, Turn};

use super::Inflight;
use super::chain::{Chain, ChainFault, Direction, Fault, First, RingFault, Walk};
use super::device::Device;
use super::layout::{self, Descriptor, Geometry, INDIRECT, NEXT, NO_INTERRUPT, NO_NOTIFY, Options, Parts};
use super::notify::{self, SuppressionField};
use super::standing::{Standing, is_used_split};
use crate::fail;
use crate::memory::{DirtyLog, GuestMemory};

/// See the module.
#[derive(Debug)]
pub struct SplitDevice {
    parts: Parts,
    size: u16,
    /// The size less one. Apart from it, and as wide as it is used: what was stored a moment ago beside a field of 16 bits
    /// keeps a load of 32 bits waiting for the cache.
    mask: usize,
    options: Options,
    /// The next available entry to take.
    next_avail: u16,
    /// The driver's index as last read.
    seen_avail: u16,
    /// The next used entry to write.
    next_used: u16,
    /// The used index at the last decision whether to notify; `None` before the first.
    signalled: Option<u16>,
    /// Heads of taken chains and the bytes written into each, by their place in the ring.
    taken: Box<[(u16, u32)]>,
    /// Where the chain taken last stands in `taken`.
    last: usize,
    hint: usize,
    log: Option<Arc<DirtyLog>>,
    /// What the frontend keeps for a successor of ours, where it does.
    pub(super) inflight: Option<Inflight>,
}

impl SplitDevice {
    /// The ring at `geometry`, going on at index `base`. Fails with the part that is not in guest memory.
    pub fn new(memory: &GuestMemory, geometry: Geometry, base: u16, options: Options) -> Result<Self, &'static str> {
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

    /// As [`Self::new`], going on behind the last chain that the ring itself says is used. A device that uses chains in
    /// their order needs no other base, and frontends lose it with their backend: DPDK's then says 0.
    pub fn recover(memory: &GuestMemory, geometry: Geometry, options: Options) -> Result<Self, &'static str> {
        let base = geometry.locate(memory)?.used.acquire_u16(layout::used::INDEX);
        Self::new(memory, geometry, base, options)
    }

    /// What this half writes into its ring is marked in `log` from now on.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Where a successor goes on: the next available entry that nobody has taken.
    pub fn base(&self) -> u16 {
        self.next_avail
    }

    /// Whether the memory it lies in has vanished.
    pub fn poisoned(&self) -> bool {
        self.parts.desc.poisoned() || self.parts.avail.poisoned() || self.parts.used.poisoned()
    }

    /// Chains that can be taken. Reads the driver's index only when the ones known of are fewer than `wanted`.
    #[inline]
    pub fn available(&mut self, count: u16) -> Result<u16, RingFault> {
        let known = self.seen_avail.wrapping_sub(self.next_avail);
        if known >= count { Ok(known) } else { self.refresh() }
    }

    /// Reads the driver's index.
    #[inline]
    fn refresh(&mut self) -> Result<u16, RingFault> {
        // Acquire: the entries and descriptors behind the index are visible once the index is (2.7.13.3).
        self.saw(self.parts.avail.acquire_u16(layout::avail::INDEX))
    }

    /// The driver's index is this.
    #[inline]
    fn saw(&mut self, index: u16) -> Result<u16, RingFault> {
        let ahead = index.wrapping_sub(self.next_avail);
        // A driver has as many descriptors as the ring has entries, and those of taken chains are not free yet.
        if u32::from(ahead) + u32::from(self.outstanding()) > u32::from(self.size) {
            return Err(RingFault::IndexJump { index, taken: self.next_avail, size: self.size });
        }
        self.seen_avail = index;
        Ok(ahead)
    }

    /// Reads the next `into.len()` chains' first descriptors, in two passes so that their lines arrive together.
    /// As many must be available. Nothing is taken yet: [`Self::take`] does that.
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
        layout::mark_entries(log, &self.parts.used, layout::used::entry(0), layout::used::ENTRY, start, n, self.size);
        layout::mark(log, &self.parts.used, layout::used::INDEX, 2);
    }

    /// Marks the two bytes at `offset` of the used ring.
    fn mark_suppression(&self, offset: usize) {
        if let Some(log) = &self.log {
            layout::mark(log, &self.parts.used, offset, 2);
        }
    }

    /// Where the taken chain stands that has `n` before it, here and in the used ring.
    #[inline]
    fn slot(&self, n: u16) -> usize {
        usize::from(self.next_used.wrapping_add(n)) & self.mask
    }

    /// Whether the driver is to be notified of what was given back since the last call.
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

    /// Returns where both sides stand, or `None` without the event index. The driver's words are read once and only
    /// compared.
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

    /// Asks the driver for a kick with the next chain that it makes available behind `beyond`, which are known to be.
    /// `true` if there is one already, so that sleeping would miss it.
    pub fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
        let (at, field, word) = if self.options.event_idx {
            let at = layout::used::avail_event(usize::from(self.size));
            (at, SuppressionField::Event(at), self.next_avail.wrapping_add(beyond))
        } else {
            (layout::used::FLAGS, SuppressionField::Flags(layout::used::FLAGS, NO_NOTIFY), 0)
        };
        let Parts { avail, used, .. } = &self.parts;
        // Acquire as in `refresh`.
        let index = notify::request_notification(used, field, word, || avail.acquire_u16(layout::avail::INDEX));
        self.mark_suppression(at);
        Ok(self.saw(index)? > beyond)
    }

    /// Asks the driver for no kicks: we are polling. With the event index nothing is to be done: the field that was
    /// fulfilled is behind the index for the next 65535 chains.
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
        let count = u16::try_from(into.len()).unwrap_or(u16::MAX);
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

    #[inline]
    fn give_back(&mut self, n: u16) {
        debug_assert!(n <= self.outstanding());
        if n == 0 {
            return;
        }
        // In order, one element stands for a batch: it names the last chain, and those before count as wholly used (2.7.9),
        // which is true of what was only read. Lengths need an element each.
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
        // Release: all elements, and all bytes copied into or out of the buffers, come before the index (2.7.8.2).
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
    fn direct(&mut self, parts: &Parts, size: u16, indirect: bool, first: &First) -> Result<(), Fault> {
        let (mut at, mut desc) = (first.head, first.desc);
        let mut fault = Ok(());
        for _ in 0..size {
            // Buffers are counted as they are staged; this is for what is none.
            self.descriptors += u32::from(desc.flags & INDIRECT != 0);
            let step = if desc.flags & INDIRECT == 0 {
                self.buffer(desc)
            } else if !indirect {
                return Err(Fault::Ring(RingFault::Indirect(at)));
            } else if desc.flags & NEXT != 0 {
                // 2.7.5.3.1: a descriptor has at most one of the two.
                Err(ChainFault::Indirect)
            } else {
                self.table(desc, size)
            };
            // A fault of the chain must not hide one of the ring behind it: the chain is followed to its end.
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

    /// Follows an indirect table (2.7.5.3): its own chain, with indexes into the table.
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
