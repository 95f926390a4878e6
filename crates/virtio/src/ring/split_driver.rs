//! The driver half of a split ring: what a guest does. Its memory is ours, its device is a stranger's.

use std::sync::atomic::{Ordering, fence};

use super::layout::{self, Descriptor, Geometry, NEXT, NO_INTERRUPT, NO_NOTIFY, Parts, WRITE};
use super::need_event;
use crate::memory::GuestMemory;

/// A chain of at most one buffer for each free descriptor goes out with [`SplitDriver::add`] and comes back with
/// [`SplitDriver::used`]. What the device writes is checked; what describes our chains is kept apart from the ring,
/// where the device could change it.
#[derive(Debug)]
pub struct SplitDriver {
    parts: Parts,
    size: u16,
    event_idx: bool,
    /// Free descriptors, a list through `next`.
    free_head: u16,
    free: u16,
    next: Box<[u16]>,
    /// Descriptors in the chain that begins here; 0 where none does.
    chain: Box<[u16]>,
    /// The next available entry to fill, what of it is published, and how far it was when we last decided to kick.
    next_avail: u16,
    published: u16,
    kicked: u16,
    last_used: u16,
    seen_used: u16,
}

impl SplitDriver {
    /// An empty ring at `geometry`, in memory that is all zeros there. Fails with the part that is not in memory.
    pub fn new(memory: &GuestMemory, geometry: Geometry, event_idx: bool) -> Result<Self, &'static str> {
        let parts = geometry.locate(memory)?;
        let size = geometry.size;
        Ok(SplitDriver {
            parts,
            size,
            event_idx,
            free_head: 0,
            free: size,
            next: (1..=size).collect(),
            chain: vec![0; usize::from(size)].into_boxed_slice(),
            next_avail: 0,
            published: 0,
            kicked: 0,
            last_used: 0,
            seen_used: 0,
        })
    }

    /// Descriptors that are free.
    pub fn free(&self) -> u16 {
        self.free
    }

    /// Makes a chain of `buffers` (guest address, length, whether the device writes it) ready, to be seen by the
    /// device after [`Self::publish`]. Returns its head, or `None` where too few descriptors are free.
    pub fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        let count = u16::try_from(buffers.len()).ok().filter(|&n| n > 0 && n <= self.free)?;
        let head = self.free_head;
        let mut at = head;
        for (i, &(addr, len, write)) in (1..).zip(buffers) {
            let next = self.next[usize::from(at)];
            let more = if i < count { NEXT } else { 0 };
            let flags = more | if write { WRITE } else { 0 };
            Descriptor { addr, len, flags, next: if more == 0 { 0 } else { next } }.write(&self.parts.desc, at);
            if more == 0 {
                self.free_head = next;
            } else {
                at = next;
            }
        }
        self.free -= count;
        self.chain[usize::from(head)] = count;
        let slot = usize::from(self.next_avail & (self.size - 1));
        self.parts.avail.write_u16(layout::avail::entry(slot), head);
        self.next_avail = self.next_avail.wrapping_add(1);
        Some(head)
    }

    /// Lets the device see all that was added.
    pub fn publish(&mut self) {
        if self.published != self.next_avail {
            self.published = self.next_avail;
            self.parts.avail.release_u16(layout::avail::INDEX, self.next_avail);
        }
    }

    /// Whether the device wants a kick for what was published since the last call.
    pub fn must_kick(&mut self) -> bool {
        let (old, new) = (self.kicked, self.published);
        if old == new {
            return false;
        }
        self.kicked = new;
        // The index is visible before we look whether the device sleeps (2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.parts.used.read_u16(layout::used::avail_event(usize::from(self.size)));
            need_event(event, new, old)
        } else {
            self.parts.used.read_u16(layout::used::FLAGS) & NO_NOTIFY == 0
        }
    }

    /// The next chain that the device has used: its head and the bytes written. What the device says that cannot be
    /// (an id that is not out) is left out, as `Err`.
    pub fn used(&mut self) -> Option<Result<(u16, u32), u32>> {
        if self.last_used == self.seen_used {
            self.seen_used = self.parts.used.acquire_u16(layout::used::INDEX);
            if self.last_used == self.seen_used {
                return None;
            }
        }
        let at = layout::used::entry(usize::from(self.last_used & (self.size - 1)));
        let id = self.parts.used.read_u32(at);
        let bytes = self.parts.used.read_u32(at + 4);
        self.last_used = self.last_used.wrapping_add(1);
        let head = match u16::try_from(id) {
            Ok(head) if self.chain.get(usize::from(head)).is_some_and(|&n| n > 0) => head,
            _ => return Some(Err(id)),
        };
        let count = std::mem::take(&mut self.chain[usize::from(head)]);
        let mut last = head;
        for _ in 1..count {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.free_head;
        self.free_head = head;
        self.free += count;
        Some(Ok((head, bytes)))
    }

    /// Where a device goes on that knows nothing of what was before: behind the last chain that was used.
    pub fn base(&self) -> u16 {
        self.parts.used.acquire_u16(layout::used::INDEX)
    }

    /// Asks for no interrupts (we poll), or for one with the next used chain; `true` if there is one already.
    pub fn want_interrupt(&mut self, wanted: bool) -> bool {
        if self.event_idx {
            // Without a wish the event stays behind the index: far from what the device will pass.
            let at = if wanted { self.last_used } else { self.last_used.wrapping_sub(1) };
            self.parts.avail.write_u16(layout::avail::used_event(usize::from(self.size)), at);
        } else {
            // With the event index the flags stay 0 (2.7.7.1).
            self.parts.avail.write_u16(layout::avail::FLAGS, if wanted { 0 } else { NO_INTERRUPT });
        }
        fence(Ordering::SeqCst);
        self.parts.used.acquire_u16(layout::used::INDEX) != self.last_used
    }
}
