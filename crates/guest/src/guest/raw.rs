//! Direct access to the rings, for tests that play a broken or hostile driver.
//!
//! These functions bypass the driver half, which does not know of their writes. After writing
//! descriptors or indexes this way, a test must not receive or send with the driver half any more.

use az::SaturatingAs;
use straightline_virtio::ring::{Descriptor, Geometry};

use super::send::descriptor_bytes;
use super::{Pair, Ring};

/// AVAIL and USED in the flags of a packed descriptor (virtio 1.2, 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A descriptor of a packed ring in memory (virtio 1.2, 2.8.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedDescriptor {
    /// Guest address of the buffer.
    pub addr: u64,
    /// Length of the buffer; in a used descriptor, the number of written bytes.
    pub len: u32,
    /// The id with which the chain returns.
    pub id: u16,
    /// The flags of a split ring's descriptor, and AVAIL and USED.
    pub flags: u16,
}

impl PackedDescriptor {
    /// Returns whether the descriptor is available, in a round with this wrap counter.
    pub fn is_available(&self, wrap: bool) -> bool {
        (self.flags & AVAIL != 0) == wrap && (self.flags & USED != 0) != wrap
    }

    /// Returns whether the descriptor is used, in a round with this wrap counter.
    pub fn is_used(&self, wrap: bool) -> bool {
        (self.flags & AVAIL != 0) == wrap && (self.flags & USED != 0) == wrap
    }

    /// Returns this descriptor marked as available, in a round with this wrap counter.
    #[must_use]
    pub fn available(self, wrap: bool) -> Self {
        let turn = if wrap { AVAIL } else { USED };
        PackedDescriptor { flags: self.flags & !(AVAIL | USED) | turn, ..self }
    }
}

impl Pair {
    /// Returns the addresses of a ring.
    pub fn geometry(&self, ring: Ring) -> Geometry {
        self.half(ring).geometry
    }

    /// Returns the guest address of a buffer of a ring.
    pub fn buffer_address(&self, ring: Ring, buffer: u16) -> u64 {
        self.half(ring).buffers.address(buffer)
    }

    /// Writes guest memory; returns `false` outside it.
    pub fn write_memory(&self, addr: u64, bytes: &[u8]) -> bool {
        let len = bytes.len().saturating_as::<u32>();
        match self.memory.segment(addr, len, &mut 0) {
            Some(segment) => segment.write(self.level, bytes) == bytes.len(),
            None => false,
        }
    }

    /// Reads guest memory; returns `None` outside it.
    pub fn read_memory(&self, addr: u64, len: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.memory.segment(addr, len, &mut 0)?.read(self.level, &mut bytes);
        Some(bytes)
    }

    /// Writes a descriptor of a ring.
    pub fn write_descriptor(&self, ring: Ring, index: u16, desc: Descriptor) -> bool {
        self.write_descriptor_at(self.half(ring).geometry.desc + 16 * u64::from(index), desc)
    }

    /// Writes a descriptor at any address, for example in an indirect table.
    pub fn write_descriptor_at(&self, addr: u64, desc: Descriptor) -> bool {
        self.write_memory(addr, &descriptor_bytes(desc))
    }

    /// Writes an available entry: the chain at this place of the ring.
    pub fn write_available(&self, ring: Ring, place: u16, head: u16) -> bool {
        self.write_memory(self.half(ring).geometry.avail + 4 + 2 * u64::from(place), &head.to_le_bytes())
    }

    /// Returns the available index as last written.
    pub fn available_index(&self, ring: Ring) -> u16 {
        self.index(self.half(ring).geometry.avail)
    }

    /// Returns the backend's used index. The backend's earlier writes are visible then.
    pub fn used_index(&self, ring: Ring) -> u16 {
        self.index(self.half(ring).geometry.used)
    }

    /// Returns a used element: the chain's head and the bytes written.
    pub fn used_element(&self, ring: Ring, place: u16) -> Option<(u32, u32)> {
        let at = self.half(ring).geometry.used + 4 + 8 * u64::from(place);
        let bytes = self.read_memory(at, 8)?;
        let (id, len) = bytes.split_at(4);
        Some((u32::from_le_bytes(id.try_into().ok()?), u32::from_le_bytes(len.try_into().ok()?)))
    }

    fn index(&self, part: u64) -> u16 {
        self.memory.area(part, 4, 2).map_or(0, |area| area.acquire_u16(2))
    }

    /// Sets the available index, after everything written before, and kicks.
    pub fn publish_index(&self, ring: Ring, index: u16) {
        if let Some(area) = self.memory.area(self.half(ring).geometry.avail, 4, 2) {
            area.release_u16(2, index);
        }
        self.half(ring).ring_the_bell();
    }

    /// Writes a chain of descriptors from `first` on, makes it the next available chain, and kicks.
    /// The caller chooses the content of each.
    pub fn publish_chain(&self, ring: Ring, first: u16, chain: &[Descriptor]) {
        for (at, &desc) in (first..).zip(chain) {
            self.write_descriptor(ring, at, desc);
        }
        let index = self.available_index(ring);
        self.write_available(ring, index & (self.half(ring).geometry.size - 1), first);
        self.publish_index(ring, index.wrapping_add(1));
    }

    /// Writes a descriptor of a packed ring, its flags last.
    pub fn write_packed(&self, ring: Ring, index: u16, desc: PackedDescriptor) -> bool {
        let at = self.half(ring).geometry.desc + 16 * u64::from(index);
        let Some(area) = self.memory.area(at, 16, 16) else { return false };
        area.write_u64(0, desc.addr);
        area.write_u32(8, desc.len);
        area.write_u16(12, desc.id);
        area.release_u16(14, desc.flags);
        true
    }

    /// Returns a descriptor of a packed ring. If its flags mark it as used, the bytes in its buffer
    /// are visible.
    pub fn packed_descriptor(&self, ring: Ring, index: u16) -> Option<PackedDescriptor> {
        let at = self.half(ring).geometry.desc + 16 * u64::from(index);
        let area = self.memory.area(at, 16, 16)?;
        let flags = area.acquire_u16(14);
        Some(PackedDescriptor { addr: area.read_u64(0), len: area.read_u32(8), id: area.read_u16(12), flags })
    }

    /// Writes a chain of descriptors into a packed ring from `first` on, in a round with this wrap
    /// counter, and kicks. The first one becomes available last. The caller chooses the content of
    /// each, except for AVAIL and USED.
    pub fn publish_packed(&self, ring: Ring, first: u16, wrap: bool, chain: &[PackedDescriptor]) {
        let size = self.half(ring).geometry.size;
        let places: Vec<_> = (first..).zip(chain).collect();
        for &(place, desc) in places.iter().rev() {
            let (place, wrap) = if place < size { (place, wrap) } else { (place - size, !wrap) };
            self.write_packed(ring, place, desc.available(wrap));
        }
        self.half(ring).ring_the_bell();
    }

    /// Writes the driver's event suppression of a packed ring (virtio 1.2, 2.8.14): a position with
    /// its wrap counter, and the mode.
    pub fn write_driver_events(&self, ring: Ring, place: u16, mode: u16) -> bool {
        let words = u32::from(place) | u32::from(mode) << 16;
        self.write_memory(self.half(ring).geometry.avail, &words.to_le_bytes())
    }
}
