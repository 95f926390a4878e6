//! A guest whose rings are written by hand, split or packed.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use straightline_lab::{Guest, GuestOptions, Ring};
use straightline_virtio::features as f;
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT};

use crate::common::wait_until;

/// How its rings are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Split,
    Packed,
}

impl Layout {
    pub(crate) const BOTH: [Layout; 2] = [Layout::Split, Layout::Packed];
}

/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A guest that has set its rings up and given nothing; what stands in them is up to the test.
pub(crate) struct Attacker {
    guest: Guest,
    layout: Layout,
    /// For each ring: descriptors and chains published so far.
    published: [Cell<(u16, u16)>; 2],
    /// For each ring: the places of the chains published last.
    last: [RefCell<Vec<u16>>; 2],
}

impl Deref for Attacker {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl DerefMut for Attacker {
    fn deref_mut(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

impl Attacker {
    pub(crate) fn connect(socket: &Path, layout: Layout, options: &GuestOptions) -> Attacker {
        let packed = if layout == Layout::Packed { f::VIRTIO_F_RING_PACKED } else { 0 };
        let options = GuestOptions { features: options.features | packed, ..options.clone() };
        let guest = Guest::connect(socket, &options).expect("a guest");
        let rules = f::VIRTIO_F_RING_PACKED | f::VIRTIO_F_IN_ORDER;
        assert_eq!(guest.features() & rules, options.features & rules, "the rules that are to be broken");
        Attacker { guest, layout, published: Default::default(), last: Default::default() }
    }

    /// Writes a chain where the ring goes on, all but its last descriptor with NEXT, and makes it available. The
    /// descriptors' `next` is filled in; flags are added to.
    pub(crate) fn publish(&self, ring: Ring, chain: &[Descriptor]) {
        self.publish_all(ring, &[chain]);
    }

    /// The same with several chains, which become available together.
    pub(crate) fn publish_all(&self, ring: Ring, chains: &[&[Descriptor]]) {
        match self.layout {
            Layout::Split => self.publish_split(ring, chains),
            Layout::Packed => self.publish_packed(ring, chains),
        }
    }

    fn publish_split(&self, ring: Ring, chains: &[&[Descriptor]]) {
        let size = self.geometry(ring).size;
        let (mut at, mut count) = self.published[ring as usize].get();
        for chain in chains {
            self.write_available(ring, count % size, at % size);
            for (n, &desc) in (1..).zip(*chain) {
                let next = at.wrapping_add(1) % size;
                let flags = desc.flags | if n < chain.len() { NEXT } else { 0 };
                self.write_descriptor(ring, at % size, Descriptor { flags, next, ..desc });
                at = at.wrapping_add(1);
            }
            count = count.wrapping_add(1);
        }
        self.published[ring as usize].set((at, count));
        self.publish_index(ring, count);
    }

    fn publish_packed(&self, ring: Ring, chains: &[&[Descriptor]]) {
        let geometry = self.geometry(ring);
        let (mut at, mut count) = self.published[ring as usize].get();
        let mut held = None;
        let mut last = self.last[ring as usize].borrow_mut();
        last.clear();
        for chain in chains {
            last.push(at);
            for (n, &desc) in (1..).zip(*chain) {
                let wrap = (at / geometry.size).is_multiple_of(2);
                let flags = desc.flags | if n < chain.len() { NEXT } else { 0 } | if wrap { AVAIL } else { USED };
                let place = geometry.desc + 16 * u64::from(at % geometry.size);
                // The first flags come last: the device sees all or nothing. Until then they are those of a used one.
                let before = if wrap { 0 } else { AVAIL | USED };
                let now = if held.is_none() { before } else { flags };
                held.get_or_insert((place, flags));
                // In a packed descriptor the id stands where a split one has its flags, and the flags come last.
                self.write_descriptor_at(place, Descriptor { flags: count, next: now, ..desc });
                at = at.wrapping_add(1);
            }
            count = count.wrapping_add(1);
        }
        self.published[ring as usize].set((at, count));
        if let Some((place, flags)) = held {
            let desc = self.memory().area(place, 16, 16).expect("the ring is in memory");
            desc.release_u16(14, flags);
        }
        self.kick(ring);
    }

    /// A kick, with nothing else said: the driver's index, or its mode of events, stays as it is.
    pub(crate) fn kick(&self, ring: Ring) {
        match self.layout {
            Layout::Split => self.publish_index(ring, self.available_index(ring)),
            Layout::Packed => self.publish_index(ring, 0),
        }
    }

    /// Whether the chains published last have been used.
    pub(crate) fn last_are_used(&self, ring: Ring) -> bool {
        let geometry = self.geometry(ring);
        match self.layout {
            Layout::Split => self.used_index(ring) == self.published[ring as usize].get().1,
            Layout::Packed => {
                // Each of them: a device may write the used descriptors of a batch in any order, if only the first one last.
                self.last[ring as usize].borrow().iter().all(|at| {
                    let wrap = (at / geometry.size).is_multiple_of(2);
                    let place = geometry.desc + 16 * u64::from(at % geometry.size);
                    let flags = self.memory().area(place, 16, 16).expect("the ring is in memory").acquire_u16(14);
                    (flags & AVAIL != 0) == wrap && (flags & USED != 0) == wrap
                })
            }
        }
    }

    /// Waits until they have been.
    pub(crate) fn wait_used(&self, ring: Ring) {
        wait_until("the last chains are used", || self.last_are_used(ring));
    }

    /// Bytes that the device says it wrote into the chain published last.
    pub(crate) fn last_written(&self, ring: Ring) -> u32 {
        let geometry = self.geometry(ring);
        match self.layout {
            Layout::Split => {
                let place = self.published[ring as usize].get().1.wrapping_sub(1) % geometry.size;
                self.used_element(ring, place).map_or(0, |(_, len)| len)
            }
            Layout::Packed => {
                let last = self.last[ring as usize].borrow().last().copied().unwrap_or(0);
                let at = geometry.desc + 16 * u64::from(last % geometry.size);
                let bytes = self.read_memory(at + 8, 4).expect("the ring is in memory");
                u32::from_le_bytes(bytes.try_into().expect("four bytes"))
            }
        }
    }

    /// Writes a table of these descriptors at `addr`, chained where the layout has it so; what is to lead there comes
    /// back.
    pub(crate) fn table(&self, addr: u64, chain: &[Descriptor]) -> Descriptor {
        for (n, &desc) in (1..).zip(chain) {
            let flags = desc.flags | if usize::from(n) < chain.len() { NEXT } else { 0 };
            let desc = match self.layout {
                Layout::Split => Descriptor { flags, next: n, ..desc },
                // The id means nothing here, and of the flags WRITE alone does (2.8.7).
                Layout::Packed => Descriptor { flags: 0, next: desc.flags, ..desc },
            };
            self.write_descriptor_at(addr + 16 * u64::from(n - 1), desc);
        }
        let len = u32::try_from(16 * chain.len()).expect("a short table");
        Descriptor { addr, len, flags: INDIRECT, next: 0 }
    }

    /// Where the memory's one region ends, in guest addresses.
    pub(crate) fn end(&self) -> u64 {
        self.memory().regions().last().map_or(0, |region| region.guest_addr() + region.size())
    }
}
