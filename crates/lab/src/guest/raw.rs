//! The rings laid bare, for tests that play a broken or hostile driver.
//!
//! Nothing here keeps books: who writes descriptors and indexes this way has left the driver half behind, and receives
//! or sends no more with it.

use straightline_virtio::ring::{Descriptor, Geometry};

use super::half::Half;
use super::send::descriptor_bytes;
use super::{Guest, Ring};

impl Guest {
    fn half(&self, ring: Ring) -> &Half {
        match ring {
            Ring::Receive => &self.receive,
            Ring::Transmit => &self.transmit,
        }
    }

    /// Where a ring lies.
    pub fn geometry(&self, ring: Ring) -> Geometry {
        self.half(ring).geometry
    }

    /// Guest address of a buffer of a ring.
    pub fn buffer_address(&self, ring: Ring, buffer: u16) -> u64 {
        self.half(ring).address(buffer)
    }

    /// Writes guest memory; `false` where the guest has none.
    pub fn write_memory(&self, addr: u64, bytes: &[u8]) -> bool {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match self.memory.segment(addr, len, &mut 0) {
            Some(segment) => segment.write(self.level, bytes) == bytes.len(),
            None => false,
        }
    }

    /// Reads guest memory; `None` where the guest has none.
    pub fn read_memory(&self, addr: u64, len: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.memory.segment(addr, len, &mut 0)?.read(self.level, &mut bytes);
        Some(bytes)
    }

    /// Writes a descriptor of a ring.
    pub fn write_descriptor(&self, ring: Ring, index: u16, desc: Descriptor) -> bool {
        self.write_descriptor_at(self.half(ring).geometry.desc + 16 * u64::from(index), desc)
    }

    /// Writes a descriptor anywhere, as for an indirect table.
    pub fn write_descriptor_at(&self, addr: u64, desc: Descriptor) -> bool {
        self.write_memory(addr, &descriptor_bytes(desc))
    }

    /// Writes an available entry: which chain stands at this place of the ring.
    pub fn write_available(&self, ring: Ring, place: u16, head: u16) -> bool {
        self.write_memory(self.half(ring).geometry.avail + 4 + 2 * u64::from(place), &head.to_le_bytes())
    }

    /// The available index as last written.
    pub fn available_index(&self, ring: Ring) -> u16 {
        self.index(self.half(ring).geometry.avail)
    }

    /// The used index as the backend wrote it; what it wrote before is visible then.
    pub fn used_index(&self, ring: Ring) -> u16 {
        self.index(self.half(ring).geometry.used)
    }

    /// A used element: the chain's head and the bytes written.
    pub fn used_element(&self, ring: Ring, place: u16) -> Option<(u32, u32)> {
        let at = self.half(ring).geometry.used + 4 + 8 * u64::from(place);
        let bytes = self.read_memory(at, 8)?;
        let (id, len) = bytes.split_at(4);
        Some((u32::from_le_bytes(id.try_into().ok()?), u32::from_le_bytes(len.try_into().ok()?)))
    }

    fn index(&self, part: u64) -> u16 {
        self.memory.area(part, 4, 2).map_or(0, |area| area.acquire_u16(2))
    }

    /// Sets the available index, behind everything written before, and kicks.
    pub fn publish_index(&self, ring: Ring, index: u16) {
        if let Some(area) = self.memory.area(self.half(ring).geometry.avail, 4, 2) {
            area.release_u16(2, index);
        }
        self.half(ring).ring_the_bell();
    }

    /// Writes a chain of descriptors from `first` on, makes it the next available one, and kicks. What each says is up
    /// to the caller.
    pub fn publish_chain(&self, ring: Ring, first: u16, chain: &[Descriptor]) {
        for (at, &desc) in (first..).zip(chain) {
            self.write_descriptor(ring, at, desc);
        }
        let index = self.available_index(ring);
        self.write_available(ring, index & (self.half(ring).geometry.size - 1), first);
        self.publish_index(ring, index.wrapping_add(1));
    }
}
