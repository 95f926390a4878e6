//! The device half of a packed ring (virtio 1.2, 2.8): one table of descriptors that driver and
//! device write alternately.
//!
//! A descriptor is available while its AVAIL bit equals the driver's wrap counter and its USED bit
//! does not. The fields of a chain are read once each and kept in private memory. A used chain is
//! returned as one descriptor; its remaining positions are skipped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use az::SaturatingAs;
use straightline_packet::{MemorySegment, Turn};

use super::chain::{Chain, ChainFault, Direction, Fault, First, RingFault, Walk};
use super::device::Device;
use super::layout::{self, Descriptor, Geometry, INDIRECT, NEXT, PackedParts, RingOptions, WRITE, event};
use super::standing::{self, Standing, is_used_packed};
use super::{Inflight, notify};
use crate::fail;
use crate::memory::{DirtyLog, GuestMemory};

/// Bits of a packed descriptor's flags (2.8.1).
pub(super) const AVAIL: u16 = 1 << 7;
pub(super) const USED: u16 = 1 << 15;

/// A descriptor's second word holds length, id and flags. These are its bits that show two things:
/// whether the descriptor is available, and whether it is a chain of one.
const SINGLE: u64 = (AVAIL as u64 | USED as u64 | NEXT as u64) << 48;

/// Modes of event suppression (2.8.10): notify always, never, or at one position.
pub(super) const EVENTS_ON: u16 = 0;
pub(super) const EVENTS_OFF: u16 = 1;
pub(super) const EVENTS_AT: u16 = 2;

/// A position in a packed ring: an index and a wrap counter, which changes behind the last index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPosition {
    pub(super) at: u16,
    pub(super) wrap: bool,
}

impl RingPosition {
    /// Reads vhost-user's form: 15 bits of index, and the wrap counter above them.
    pub(super) fn from_bits(bits: u16) -> Self {
        // Cites packed-2.8.14-1.
        RingPosition { at: bits & 0x7fff, wrap: bits & 0x8000 != 0 }
    }

    pub(super) fn bits(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    pub(super) fn plus(self, n: u16, size: u16) -> Self {
        // Cites packed-2.8.1-2, packed-2.8.1-3, packed-2.8.10.1-2.
        let at = self.at + n;
        if at >= size { RingPosition { at: at - size, wrap: !self.wrap } } else { RingPosition { at, wrap: self.wrap } }
    }

    fn minus(self, n: u16, size: u16) -> Self {
        if n > self.at {
            RingPosition { at: self.at + size - n, wrap: !self.wrap }
        } else {
            RingPosition { at: self.at - n, wrap: self.wrap }
        }
    }
}

/// The second words (length, id and flags) of the four descriptors of a cache line, and the index
/// of the first one.
type ReadAhead = (u16, [u64; 4]);

/// A taken chain, as it will be given back.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    id: u16,
    span: u16,
    bytes: u32,
}

impl Taken {
    /// Returns the second word of the used descriptor, at a position with this wrap counter.
    #[inline(always)]
    fn used(self, wrap: bool) -> u64 {
        // Cites packed-2.8.1-5, packed-2.8.3-2.
        let flags = if wrap { AVAIL | USED } else { 0 } | if self.bytes > 0 { WRITE } else { 0 };
        // Cites packed-2.8.4-1, packed-2.8.13-1.
        (u64::from(self.bytes) | u64::from(self.id) << 32 | u64::from(flags) << 48).to_le()
    }
}

/// The device half of a packed ring.
#[derive(Debug)]
pub struct PackedDevice {
    parts: PackedParts,
    size: u16,
    options: RingOptions,
    /// Position of the next descriptor to take.
    next_avail: RingPosition,
    /// Position of the next used descriptor to write.
    next_used: RingPosition,
    /// Descriptors given back since the last notification decision, at most one round; `None`
    /// before the first.
    unsignalled: Option<u16>,
    /// Taken chains, the oldest at `first_taken`.
    taken: Box<[Taken]>,
    /// Index in `taken` of the chain that was taken last. Computing it from the 16-bit fields would
    /// have to wait for the stores that taking has just made.
    last: usize,
    first_taken: u16,
    outstanding: u16,
    /// Descriptors of all taken chains.
    spans: u16,
    /// Number of available descriptors that are known, and not yet taken.
    known: u16,
    /// Descriptors of the chains found last, without their first ones.
    following: Vec<Descriptor>,
    hint: usize,
    log: Option<Arc<DirtyLog>>,
    /// This ring's part of the in-flight table, if there is one. The frontend keeps the table for
    /// the ring's next device half.
    pub(super) inflight: Option<Inflight>,
}

impl PackedDevice {
    /// Creates the device half of the ring at `geometry` (its table, then the driver's and the
    /// device's event suppression), which continues at `base`. The error names the part that is not
    /// in guest memory.
    ///
    /// The low half of `base` is the position of the next available descriptor: 15 bits of index
    /// and a wrap counter. The high half is the position of the next used descriptor (vhost-user,
    /// "Vring state descriptor indices for packed virtqueues"). The high half is ignored. A ring
    /// stops only when all taken chains are given back, so both positions are equal. DPDK's driver
    /// sends the low half alone.
    pub fn new(
        memory: &GuestMemory,
        geometry: Geometry,
        base: u32,
        options: RingOptions,
    ) -> Result<Self, &'static str> {
        let parts = geometry.locate_packed(memory)?;
        let size = geometry.size;
        let [low, high, _, _] = base.to_le_bytes();
        let position = RingPosition::from_bits(u16::from_le_bytes([low, high]));
        if position.at >= size {
            return Err("base, a position in the ring,");
        }
        Ok(PackedDevice {
            parts,
            size,
            options,
            next_avail: position,
            next_used: position,
            unsignalled: None,
            taken: vec![Taken::default(); usize::from(size)].into_boxed_slice(),
            last: 0,
            first_taken: 0,
            outstanding: 0,
            spans: 0,
            known: 0,
            following: Vec::with_capacity(usize::from(size)),
            hint: 0,
            log: None,
            inflight: None,
        })
    }

    /// Sets the log in which all later writes to the ring are marked.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// Returns the log in use.
    pub(super) fn log(&self) -> Option<&DirtyLog> {
        self.log.as_deref()
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the position at which the ring's next device half continues, in the form of
    /// [`Self::new`].
    pub fn base(&self) -> u32 {
        // Cites vhost-user-get-vring-base-2.
        u32::from(self.next_avail.bits()) | u32::from(self.next_used.bits()) << 16
    }

    /// Returns the position of the next used descriptor, in vhost-user's form.
    pub(super) fn used_position(&self) -> u16 {
        self.next_used.bits()
    }

    /// Returns whether the memory of the ring has vanished.
    pub fn poisoned(&self) -> bool {
        self.parts.desc.poisoned() || self.parts.driver.poisoned() || self.parts.device.poisoned()
    }

    /// Reads the rest of a chain: the descriptors that follow in the ring (2.8.6). The id comes
    /// from the last one.
    #[cold]
    fn follow(
        &mut self,
        first: &mut First,
        start: RingPosition,
        free: u16,
        ahead: Option<ReadAhead>,
    ) -> Result<(), RingFault> {
        first.following = self.following.len().saturating_as::<u16>();
        loop {
            // Cites packed-2.8.17-2.
            if first.span == free {
                return Err(RingFault::Loop { head: start.at, size: self.size });
            }
            let position = start.plus(first.span, self.size);
            let desc = self.read(position, self.tail_ahead(position, ahead));
            self.following.push(desc);
            first.span += 1;
            // Cites packed-2.8.6-2.
            first.head = desc.next;
            // Cites packed-2.8.6-1.
            if desc.flags & NEXT == 0 {
                return Ok(());
            }
        }
    }

    /// Sets the bytes written into the taken chain that has `n` older ones.
    pub(super) fn written_at(&mut self, n: u16, bytes: u32) {
        let at = self.slot(n);
        self.taken[at].bytes = bytes;
    }

    /// Returns the descriptors of a chain behind its first one; the last [`Device::find`] found it.
    pub(super) fn rest(&self, first: &First) -> &[Descriptor] {
        let rest =
            usize::from(first.following)..usize::from(first.following) + usize::from(first.span.saturating_sub(1));
        if first.span > 1 { self.following.get(rest).unwrap_or_default() } else { &[] }
    }

    /// Returns the number of descriptors of the oldest `n` taken chains.
    fn spans_of(&self, n: u16) -> u16 {
        (0..n).map(|i| self.taken[self.slot(i)].span).sum()
    }

    /// Marks the descriptors behind a chain's first one as used, beginning with the last one.
    /// Drivers do not look at them (2.8.6), but recovery does. The end of the chain and its id stay
    /// readable.
    #[cold]
    fn mark_skipped(&self, start: RingPosition, span: u16) {
        for i in (1..span).rev() {
            let position = start.plus(i, self.size);
            let flags = if position.wrap { AVAIL | USED } else { 0 } | if i + 1 < span { NEXT } else { 0 };
            fail::hit("packed-left-out");
            // Release: the marks behind this one are visible before it, so recovery finds no gap.
            self.parts.desc.release_u16(usize::from(position.at) * layout::DESCRIPTOR + 14, flags);
        }
    }

    /// Writes the used descriptors of `n` taken chains of one descriptor each, from the last to the
    /// first. They end before the position `end`, and before `next` in `taken`.
    #[inline]
    fn use_singles(&self, end: RingPosition, next: usize, n: u16) {
        let cells = self.parts.desc.cells64();
        let mut end = end;
        let mut next = next;
        let mut left = usize::from(n);
        // In most cases once: neither table begins anew within the chains.
        while left > 0 {
            next = if next == 0 { self.taken.len() } else { next };
            let last = end.minus(1, self.size);
            let behind = usize::from(last.at) + 1;
            let run = left.min(next).min(behind);
            let words = &cells[2 * (behind - run)..2 * behind];
            // Cites packed-2.8.9-1, packed-2.8.12-3.
            for (taken, words) in self.taken[next - run..next].iter().zip(words.chunks_exact(2)).rev() {
                fail::hit("packed-element");
                // Release: all bytes copied into or out of the buffers, and all used descriptors behind
                // this one, are visible before it. The last store is the first descriptor's flags, so
                // with it the driver sees all (2.8.22).
                // Cites packed-2.8.15-4.
                words[1].store(taken.used(last.wrap), Ordering::Release);
            }
            left -= run;
            next -= run;
            end = RingPosition { at: last.at + 1 - run.saturating_as::<u16>(), wrap: last.wrap };
        }
    }

    /// As [`Self::use_singles`], for chains of any number of descriptors.
    fn use_chains(&self, end: RingPosition, next: usize, n: u16) {
        let cells = self.parts.desc.cells64();
        let mut position = end;
        let mut at = next;
        for _ in 0..n {
            at = if at == 0 { self.taken.len() } else { at } - 1;
            let taken = self.taken[at];
            position = position.minus(taken.span, self.size);
            if taken.span > 1 {
                self.mark_skipped(position, taken.span);
            }
            fail::hit("packed-element");
            // Release: as above.
            // Cites packed-2.8.9-1, packed-2.8.12-3, packed-2.8.15-4.
            cells[usize::from(position.at) * 2 + 1].store(taken.used(position.wrap), Ordering::Release);
        }
    }

    /// Marks the device event suppression in the dirty log.
    fn mark_suppression(&self) {
        if let Some(log) = &self.log {
            layout::mark(log, &self.parts.device, 0, event::LEN);
        }
    }

    /// Returns whether the driver asked for a notification of the chains given back since the last
    /// call.
    pub fn must_notify(&mut self) -> bool {
        // Cites packed-2.8.10-3, packed-2.8.22-1.
        let given = self.unsignalled.replace(0);
        if given == Some(0) {
            return false;
        }
        let given = given.filter(|_| self.options.event_idx);
        notify::needs_notification_packed(&self.parts.driver, given, self.next_used, self.size)
    }

    /// Returns the progress of both sides, or `None` without the event index. The driver's words
    /// are only compared.
    pub fn standing(&self) -> Option<Standing> {
        if !self.options.event_idx {
            return None;
        }
        let position = self.parts.driver.read_u16(event::POSITION);
        let mode = self.parts.driver.read_u16(event::MODE);
        // The descriptors of taken chains cannot be available.
        let available = standing::partition_point(self.size - self.spans, |i| {
            let position = self.next_avail.plus(i, self.size);
            is_available(self.flags_at(position), position.wrap)
        });
        Some(Standing {
            event: u32::from(position) | u32::from(mode) << 16,
            available: self.next_avail.plus(available, self.size).bits(),
            used: self.next_used.bits(),
            is_asked: mode == EVENTS_AT && is_used_packed(RingPosition::from_bits(position), self.next_used, self.size),
        })
    }

    /// Asks the driver for a kick with the next chain behind the `beyond` descriptors known to be
    /// available. Returns true if that chain is available already: the worker must not sleep then.
    /// One look at that position suffices, because a driver makes chains available in the ring's
    /// order.
    pub fn arm(&mut self, beyond: u16) -> Result<bool, RingFault> {
        // Cites packed-2.8.10-1.
        let mode = if self.options.event_idx { EVENTS_AT } else { EVENTS_ON };
        let beyond = beyond.min(self.size);
        let position = self.next_avail.plus(beyond, self.size);
        // Cites packed-2.8-5.
        let there = notify::request_notification_packed(&self.parts.device, mode, position, || {
            beyond < self.size - self.spans && is_available(self.flags_at(position), position.wrap)
        });
        self.mark_suppression();
        Ok(there)
    }

    /// Asks the driver for no kicks: the worker polls.
    pub fn disarm(&mut self) {
        // Cites packed-2.8-5, packed-2.8.21.2-1.
        self.parts.device.write_u16(event::MODE, EVENTS_OFF);
        self.mark_suppression();
    }

    /// Returns the index in `taken` of the chain that has `n` older ones.
    #[inline]
    fn slot(&self, n: u16) -> usize {
        let at = usize::from(self.first_taken) + usize::from(n);
        if at >= usize::from(self.size) { at - usize::from(self.size) } else { at }
    }

    /// Reads length, id and flags of the descriptor at `position` by one load, before its address.
    ///
    /// The driver writes the flags last. One load of eight aligned bytes never sees the later of
    /// two stores without the earlier one.
    #[inline]
    fn tail(&self, position: RingPosition) -> u64 {
        // Acquire: once the flags are visible, so are the address and the rest of the chain
        // (2.8.21).
        self.parts.desc.acquire_u64(usize::from(position.at) * layout::DESCRIPTOR + 8)
    }

    /// Returns the second word from `ahead` if it was read already, so that nothing is read twice.
    #[inline]
    fn tail_ahead(&self, position: RingPosition, ahead: Option<ReadAhead>) -> u64 {
        let read = ahead.and_then(|(from, tails)| tails.get(usize::from(position.at.checked_sub(from)?)).copied());
        read.unwrap_or_else(|| self.tail(position))
    }

    fn flags_at(&self, position: RingPosition) -> u16 {
        flags_of(self.tail(position))
    }

    /// Reads the address of the descriptor at `position`, whose other fields are in `tail`. The id
    /// goes into `next`.
    #[inline]
    fn read(&self, position: RingPosition, tail: u64) -> Descriptor {
        descriptor(self.parts.desc.read_u64(usize::from(position.at) * layout::DESCRIPTOR), tail)
    }
}

impl Device for PackedDevice {
    /// Reads all descriptors of the chains that it finds, each once.
    #[inline]
    fn find(&mut self, into: &mut [First]) -> Result<usize, RingFault> {
        self.following.clear();
        self.known = 0;
        // Cites packed-2.8.12-1.
        let mut position = self.next_avail;
        // The driver can have made at most these descriptors available: the descriptors of taken
        // chains are not free.
        let mut free = self.size - self.spans;
        let mut found = 0;
        let mut ahead = None;
        let expected = (u64::from(AVAIL) << 48, u64::from(USED) << 48);
        loop {
            // Fast path: a cache line of four descriptors at a time, while all of them are available
            // chains of one. One comparison checks the flags of all four.
            while let Some(four) = into.get_mut(found..found + 4)
                && free >= 4
                && position.at.is_multiple_of(4)
                && position.at + 4 <= self.size
            {
                let at = usize::from(position.at) * layout::DESCRIPTOR;
                // Acquire: as in `tail`.
                let tails = self.parts.desc.acquire_seconds(at);
                let expected = if position.wrap { expected.0 } else { expected.1 };
                // Cites packed-2.8.15-3.
                if tails.iter().fold(0, |differences, tail| differences | (tail ^ expected)) & SINGLE != 0 {
                    ahead = Some((position.at, tails));
                    break;
                }
                for ((first, tail), addr) in four.iter_mut().zip(tails).zip(self.parts.desc.read_firsts(at)) {
                    let desc = descriptor(addr, tail);
                    *first = First { head: desc.next, desc, span: 1, following: 0 };
                }
                found += 4;
                free -= 4;
                position = position.plus(4, self.size);
            }
            self.known = self.size - self.spans - free;
            // One chain, of any length and at any place in its line.
            let Some(first) = into.get_mut(found) else { return Ok(found) };
            if free == 0 {
                return Ok(found);
            }
            let tail = self.tail_ahead(position, ahead);
            let flags = flags_of(tail);
            // Cites packed-2.8.15-3.
            if !is_available(flags, position.wrap) {
                return Ok(found);
            }
            let desc = self.read(position, tail);
            *first = First { head: desc.next, desc, span: 1, following: 0 };
            if flags & NEXT != 0 {
                self.follow(first, position, free, ahead)?;
            }
            found += 1;
            free -= first.span;
            position = position.plus(first.span, self.size);
        }
    }

    #[inline]
    fn take(&mut self, first: &First) {
        self.take_all(std::slice::from_ref(first), |_| 0);
    }

    #[inline(always)]
    fn take_all(&mut self, firsts: &[First], bytes: impl Fn(usize) -> u32) {
        let mut at = self.slot(self.outstanding);
        let mut taken = 0;
        let mut spans = 0;
        for (i, first) in firsts.iter().enumerate() {
            self.taken[at] = Taken { id: first.head, span: first.span, bytes: bytes(i) };
            self.last = at;
            at = if at + 1 == self.taken.len() { 0 } else { at + 1 };
            taken += 1;
            spans += first.span;
        }
        self.outstanding += taken;
        self.spans += spans;
        self.known = self.known.saturating_sub(spans);
        self.next_avail = self.next_avail.plus(spans, self.size);
    }

    fn untake(&mut self, n: u16) {
        for _ in 0..n.min(self.outstanding) {
            self.outstanding -= 1;
            let span = self.taken[self.slot(self.outstanding)].span;
            self.spans -= span;
            self.known += span;
            self.next_avail = self.next_avail.minus(span, self.size);
        }
        if let Some(before) = self.outstanding.checked_sub(1) {
            self.last = self.slot(before);
        }
    }

    #[inline]
    fn written(&mut self, bytes: u32) {
        self.taken[self.last].bytes = bytes;
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
        let mut result = Ok(());
        // Cites packed-2.8.18-1.
        for desc in std::iter::once(&first.desc).chain(self.rest(first)) {
            let step = if desc.flags & INDIRECT == 0 {
                walk.buffer(*desc).map_err(Fault::Chain)
            } else if !self.options.indirect {
                // Cites packed-2.8.19-1.
                Err(Fault::Ring(RingFault::Indirect(first.head)))
            } else if first.span > 1 {
                // 2.8.19: an indirect descriptor is a chain of one.
                // Cites packed-2.8.5-1, packed-2.8.19-4.
                Err(Fault::Chain(ChainFault::Indirect))
            } else {
                // Cites packed-2.8.7-4.
                walk.packed_table(*desc, self.size).map_err(Fault::Chain)
            };
            result = result.and(step);
        }
        walk.end(result, &mut self.hint)
    }

    /// Writes one used descriptor for each chain, from the last chain to the first.
    ///
    /// The driver looks at one position after the other, so it sees all of them at once, with the
    /// first.
    ///
    /// This process may be killed at any step, and a successor must then find the position in the
    /// ring (see [`Self::recover`]). Two rules make that possible:
    /// 1. A used descriptor is one store: it is there or it is not.
    /// 2. The positions that a chain skips are marked as used before its used descriptor is
    ///    written. So every descriptor behind a written one is written too.
    #[inline]
    fn give_back(&mut self, n: u16) {
        let n = n.min(self.outstanding);
        if n == 0 {
            return;
        }
        let spans = if n == self.outstanding { self.spans } else { self.spans_of(n) };
        // Cites packed-2.8.6-4.
        let end = self.next_used.plus(spans, self.size);
        // Cites packed-2.8.12-2, packed-6.2-1.
        let next_taken = self.slot(n);
        if let Some(inflight) = &self.inflight {
            inflight.begin_batch(end.bits());
        }
        if spans == n {
            self.use_singles(end, next_taken, n);
        } else {
            self.use_chains(end, next_taken, n);
        }
        fail::hit("packed-published");
        if let Some(log) = &self.log {
            // Cites vhost-user-migration-3.
            // The range includes the skipped positions.
            let start = self.next_used.at;
            layout::mark_entries(log, &self.parts.desc, 0, layout::DESCRIPTOR, start, spans, self.size);
        }
        if let Some(inflight) = &self.inflight {
            inflight.end_batch(end.bits());
        }
        self.next_used = end;
        self.unsignalled = self.unsignalled.map(|given| given.saturating_add(spans).min(self.size));
        self.spans -= spans;
        self.first_taken = u16::try_from(next_taken).unwrap_or(0);
        self.outstanding -= n;
    }

    #[inline]
    fn outstanding(&self) -> u16 {
        self.outstanding
    }

    fn known(&self) -> u16 {
        self.known
    }

    #[inline]
    fn followed(&self) -> u32 {
        self.following.len().saturating_as::<u32>()
    }

    fn is_all_taken(&self) -> bool {
        self.spans == self.size
    }
}

/// Returns the descriptor of these two words. The id goes into `next`.
#[inline]
fn descriptor(addr: u64, tail: u64) -> Descriptor {
    // Cites packed-2.8.13-1.
    let [a, b, c, d, id @ .., _, _] = tail.to_le_bytes();
    let len = u32::from_le_bytes([a, b, c, d]);
    Descriptor { addr, len, flags: flags_of(tail), next: u16::from_le_bytes(id) }
}

#[inline]
fn flags_of(tail: u64) -> u16 {
    let [.., low, high] = tail.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Returns whether a descriptor with these flags is available: AVAIL equals the driver's wrap
/// counter, and USED does not (2.8.1).
#[inline]
pub(super) fn is_available(flags: u16, wrap: bool) -> bool {
    // Cites packed-2.8.1-4.
    (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap
}

impl Walk<'_, '_> {
    /// Walks an indirect table: all of its entries, in order (2.8.7). WRITE is the only flag in
    /// them that has a meaning.
    fn packed_table(&mut self, outer: Descriptor, size: u16) -> Result<(), ChainFault> {
        let bytes = u32::try_from(layout::DESCRIPTOR).unwrap_or(16);
        // Cites packed-2.8.7-1.
        let entries = outer.len / bytes;
        // Cites packed-2.8.18-2, packed-2.8.19-3.
        if !outer.len.is_multiple_of(bytes) || entries == 0 || entries > u32::from(size) {
            return Err(ChainFault::Indirect);
        }
        let table = self.memory.segment(outer.addr, outer.len, &mut self.hint).ok_or(ChainFault::Address)?;
        for at in 0..entries {
            // Cites packed-2.8.7-2, packed-2.8.7-3.
            let mut desc = Descriptor::read_indirect_packed(self.turn.level(), table.split_at(at * bytes).1);
            if self.direction == Direction::FromGuest {
                // DPDK's driver (22.11) leaves WRITE in the tables of packets that it sends: always
                // in the header's entry, and now and then in another one. A device should not read
                // such a buffer (2.8.15), but reading it does no harm.
                desc.flags &= !WRITE;
            }
            self.buffer(desc)?;
        }
        Ok(())
    }
}
