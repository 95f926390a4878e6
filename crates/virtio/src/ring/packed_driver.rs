//! The driver half of a packed ring (virtio 1.2, 2.8): what a guest does. Its memory is ours, its device a stranger's.

use std::sync::atomic::{Ordering, fence};

use super::layout::{self, Geometry, NEXT, PackedParts, WRITE, event};
use super::packed_device::{AVAIL, EVENTS_AT, EVENTS_OFF, EVENTS_ON, Place, USED, wants_event};
use crate::memory::GuestMemory;

/// A chain of at most one buffer for each free descriptor goes out with [`PackedDriver::add`] and comes back with
/// [`PackedDriver::used`]. What the device writes is checked; what describes our chains is kept apart from the ring,
/// which the device overwrites as it goes.
///
/// A device that returns an id which is not out has lost its place in the ring, and so have we: how many descriptors
/// it passed nobody knows. From then on the driver half is broken: it takes nothing more and finds nothing more.
#[derive(Debug)]
pub struct PackedDriver {
    parts: PackedParts,
    size: u16,
    event_idx: bool,
    /// Free descriptors: those from `next_avail` on.
    free: u16,
    /// Free ids, the next one to use at the end.
    ids: Vec<u16>,
    /// Descriptors in the chain with this id; 0 where none is out.
    spans: Box<[u16]>,
    next_avail: Place,
    next_used: Place,
    /// The first descriptor that is not published, and its flags, which are not in the ring yet.
    held: Option<(Place, u16)>,
    /// Up to where it is published, and how many descriptors of that, at most a round, since we last decided to kick.
    published: Place,
    unkicked: u16,
    broken: bool,
}

impl PackedDriver {
    /// An empty ring at `geometry` (its table, then the driver's and the device's event suppression), in memory that
    /// is all zeros there. Fails with the part that is not in memory.
    pub fn new(memory: &GuestMemory, geometry: Geometry, event_idx: bool) -> Result<Self, &'static str> {
        let parts = geometry.locate_packed(memory)?;
        let size = geometry.size;
        // 2.8.1: both wrap counters begin with 1.
        let start = Place { at: 0, wrap: true };
        Ok(PackedDriver {
            parts,
            size,
            event_idx,
            free: size,
            ids: (0..size).rev().collect(),
            spans: vec![0; usize::from(size)].into_boxed_slice(),
            next_avail: start,
            next_used: start,
            held: None,
            published: start,
            unkicked: 0,
            broken: false,
        })
    }

    /// Descriptors that are free.
    pub fn free(&self) -> u16 {
        self.free
    }

    /// Makes a chain of `buffers` (guest address, length, whether the device writes it) ready, to be seen by the
    /// device after [`Self::publish`]; where it makes a batch of the whole ring, those before it are published now. Returns its
    /// id, or `None` where too few descriptors are free.
    pub fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        let count = u16::try_from(buffers.len()).ok().filter(|&n| n > 0 && n <= self.free && !self.broken)?;
        if self.held.is_some() && self.unpublished() + count == self.size {
            // A batch of the whole ring, but for its first flags, would look like a burst that a device was killed in the
            // middle of giving back (see `recover`).
            self.publish();
        }
        let id = self.ids.pop()?;
        for (i, &(addr, len, write)) in (1..).zip(buffers) {
            let place = self.next_avail;
            let at = usize::from(place.at) * layout::DESCRIPTOR;
            self.parts.desc.write_u64(at, addr);
            self.parts.desc.write_u32(at + 8, len);
            // The id counts in the last descriptor of a chain only (2.8.6); it harms in no other.
            self.parts.desc.write_u16(at + 12, id);
            let flags = if i < count { NEXT } else { 0 } | if write { WRITE } else { 0 };
            // 2.8.1: available is AVAIL as the wrap counter and USED as its inverse.
            let flags = flags | if place.wrap { AVAIL } else { USED };
            if self.held.is_none() {
                self.held = Some((place, flags));
            } else {
                // The device comes here over the first one, which it cannot pass yet.
                self.parts.desc.write_u16(at + 14, flags);
            }
            self.next_avail = place.plus(1, self.size);
        }
        self.free -= count;
        self.spans[usize::from(id)] = count;
        Some(id)
    }

    /// Lets the device see all that was added.
    pub fn publish(&mut self) {
        let Some((place, flags)) = self.held.take() else { return };
        // Release: all other descriptors, and this one's other fields, come before its flags (2.8.21.1).
        self.parts.desc.release_u16(usize::from(place.at) * layout::DESCRIPTOR + 14, flags);
        self.unkicked = self.unkicked.saturating_add(self.unpublished()).min(self.size);
        self.published = self.next_avail;
    }

    /// Descriptors that were added and are not published, where there are any.
    fn unpublished(&self) -> u16 {
        let (old, new) = (self.published.at, self.next_avail.at);
        // No more than the ring holds: the same place again is a whole round later.
        if new > old { new - old } else { self.size - old + new }
    }

    /// Whether the device wants a kick for what was published since the last call.
    pub fn must_kick(&mut self) -> bool {
        let count = std::mem::take(&mut self.unkicked);
        if count == 0 {
            return false;
        }
        // The descriptors are visible before we look whether the device sleeps (2.8.21.3.1).
        fence(Ordering::SeqCst);
        let mode = self.parts.device.read_u16(event::MODE);
        let count = Some(count).filter(|_| self.event_idx);
        wants_event(mode, count, self.published, self.size, || self.parts.device.read_u16(event::PLACE))
    }

    /// The next chain that the device has used: its id and the bytes written. What the device says that cannot be
    /// (an id that is not out) is an `Err`, once; nothing comes after it.
    pub fn used(&mut self) -> Option<Result<(u16, u32), u32>> {
        if !self.has_used() {
            return None;
        }
        let at = usize::from(self.next_used.at) * layout::DESCRIPTOR;
        // 2.8.4: without WRITE the length means nothing.
        let written = self.parts.desc.read_u16(at + 14) & WRITE != 0;
        let bytes = if written { self.parts.desc.read_u32(at + 8) } else { 0 };
        let id = self.parts.desc.read_u16(at + 12);
        let count = self.spans.get_mut(usize::from(id)).map(std::mem::take).filter(|&n| n > 0);
        let Some(count) = count else {
            self.broken = true;
            return Some(Err(id.into()));
        };
        self.next_used = self.next_used.plus(count, self.size);
        self.free += count;
        self.ids.push(id);
        Some(Ok((id, bytes)))
    }

    /// Where a device goes on that knows nothing of what was before, in vhost-user's form: behind the last chain that
    /// was used.
    pub fn base(&self) -> u32 {
        let mut place = self.next_used;
        let mut out = self.size - self.free;
        while out > 0 && self.is_used(place) {
            let at = usize::from(place.at) * layout::DESCRIPTOR;
            let id = self.parts.desc.read_u16(at + 12);
            let Some(&count) = self.spans.get(usize::from(id)).filter(|&&n| n > 0 && n <= out) else { break };
            place = place.plus(count, self.size);
            out -= count;
        }
        u32::from(place.bits()) * 0x1_0001
    }

    /// Asks for no interrupts (we poll), or for one with the next used chain; `true` if there is one already.
    pub fn want_interrupt(&mut self, wanted: bool) -> bool {
        let mode = match (wanted, self.event_idx) {
            (false, _) => EVENTS_OFF,
            (true, false) => EVENTS_ON,
            (true, true) => EVENTS_AT,
        };
        if mode == EVENTS_AT {
            self.parts.driver.write_u16(event::PLACE, self.next_used.bits());
        }
        self.parts.driver.release_u16(event::MODE, mode);
        // Our wish must be visible before we look: the device writes its descriptors, then looks at the wish.
        fence(Ordering::SeqCst);
        self.has_used()
    }

    /// Whether the device has used the descriptor at our place, while chains are out.
    fn has_used(&self) -> bool {
        !self.broken && self.free != self.size && self.is_used(self.next_used)
    }

    #[inline]
    fn is_used(&self, place: Place) -> bool {
        // Acquire: id, length and the bytes in the buffers are visible once the flags are.
        let flags = self.parts.desc.acquire_u16(usize::from(place.at) * layout::DESCRIPTOR + 14);
        // 2.8.1: used while both bits are the device's wrap counter.
        (flags & AVAIL != 0) == place.wrap && (flags & USED != 0) == place.wrap
    }
}
