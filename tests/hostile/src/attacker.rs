//! A guest whose split or packed rings are written by hand.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_testing::wait_until;
use straightline_virtio::features as f;
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT};

/// The layout of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Descriptors, available ring and used ring apart (virtio 1.2, 2.7).
    Split,
    /// One ring of descriptors (virtio 1.2, 2.8).
    Packed,
}

impl Layout {
    /// Both layouts.
    pub const BOTH: [Layout; 2] = [Layout::Split, Layout::Packed];
}

/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A guest that has set its rings up and made nothing available. The test writes their contents.
pub struct Attacker {
    guest: Guest,
    layout: Layout,
    /// Descriptors and chains published so far, for each ring.
    published: [Cell<(u16, u16)>; 2],
    /// Positions of the chains published last, for each ring.
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
    /// Connects a guest. The port must offer the features of `options`.
    pub fn connect(socket: &Path, layout: Layout, options: &GuestOptions) -> Attacker {
        let packed = if layout == Layout::Packed { f::VIRTIO_F_RING_PACKED } else { 0 };
        let options = GuestOptions { features: options.features | packed, ..options.clone() };
        let guest = Guest::connect(socket, &options).expect("a guest");
        let rules = f::VIRTIO_F_RING_PACKED | f::VIRTIO_F_IN_ORDER;
        assert_eq!(guest.features() & rules, options.features & rules, "the rules that are to be broken");
        Attacker { guest, layout, published: Default::default(), last: Default::default() }
    }

    /// Writes a chain at the next position of the ring, and makes it available. Sets `next` of the
    /// descriptors, and adds NEXT to the flags of all but the last.
    pub fn publish(&self, ring: Ring, chain: &[Descriptor]) {
        self.publish_all(ring, &[chain]);
    }

    /// Publishes several chains, which become available together.
    pub fn publish_all(&self, ring: Ring, chains: &[&[Descriptor]]) {
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
                // The first descriptor's flags are written last, so that the device sees all chains
                // or none. Until then, they are the flags of a used descriptor.
                let before = if wrap { 0 } else { AVAIL | USED };
                let now = if held.is_none() { before } else { flags };
                held.get_or_insert((place, flags));
                // A packed descriptor has its id where a split one has its flags, and its flags at
                // the end.
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

    /// Kicks the device, without a change of the driver's index or event suppression.
    pub fn kick(&self, ring: Ring) {
        match self.layout {
            Layout::Split => self.publish_index(ring, self.available_index(ring)),
            Layout::Packed => self.publish_index(ring, 0),
        }
    }

    /// Returns true if the chains published last have been used.
    pub fn last_are_used(&self, ring: Ring) -> bool {
        let geometry = self.geometry(ring);
        match self.layout {
            Layout::Split => self.used_index(ring) == self.published[ring as usize].get().1,
            Layout::Packed => {
                // Check each descriptor: a device may write the used descriptors of a batch in any
                // order, except that the first one is last.
                self.last[ring as usize].borrow().iter().all(|at| {
                    let wrap = (at / geometry.size).is_multiple_of(2);
                    let place = geometry.desc + 16 * u64::from(at % geometry.size);
                    let flags = self.memory().area(place, 16, 16).expect("the ring is in memory").acquire_u16(14);
                    (flags & AVAIL != 0) == wrap && (flags & USED != 0) == wrap
                })
            }
        }
    }

    /// Waits until the chains published last have been used.
    pub fn wait_used(&self, ring: Ring) {
        wait_until("the last chains are used", || self.last_are_used(ring));
    }

    /// Returns the number of bytes that the device reports to have written into the chain published
    /// last.
    pub fn last_written(&self, ring: Ring) -> u32 {
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

    /// Writes an indirect table of these descriptors at `addr`, and returns the descriptor that
    /// refers to it. In the split layout the entries are chained.
    pub fn table(&self, addr: u64, chain: &[Descriptor]) -> Descriptor {
        for (n, &desc) in (1..).zip(chain) {
            let flags = desc.flags | if usize::from(n) < chain.len() { NEXT } else { 0 };
            let desc = match self.layout {
                Layout::Split => Descriptor { flags, next: n, ..desc },
                // The id has no meaning here, and WRITE is the only flag that has one (2.8.7).
                Layout::Packed => Descriptor { flags: 0, next: desc.flags, ..desc },
            };
            self.write_descriptor_at(addr + 16 * u64::from(n - 1), desc);
        }
        let len = u32::try_from(16 * chain.len()).expect("a short table");
        Descriptor { addr, len, flags: INDIRECT, next: 0 }
    }

    /// Returns the guest address at which the memory's only region ends.
    pub fn end(&self) -> u64 {
        self.memory().regions().last().map_or(0, |region| region.guest_addr() + region.size())
    }
}
