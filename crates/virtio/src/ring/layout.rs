//! Where things are in a split ring (virtio 1.2, 2.7.5 to 2.7.8).

use straightline_packet::{Level, MemorySegment};

use crate::memory::{Area, DirtyLog, GuestMemory};

/// The chain goes on at `next`.
pub const NEXT: u16 = 1;
/// The device writes this buffer; without it, the device reads it.
pub const WRITE: u16 = 2;
/// The buffer holds a table of descriptors.
pub const INDIRECT: u16 = 4;

/// The other side of `avail.flags`: the driver wants no interrupts.
pub(super) const NO_INTERRUPT: u16 = 1;
/// `used.flags`: the device wants no kicks.
pub(super) const NO_NOTIFY: u16 = 1;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// One descriptor, as read once from guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest address of the buffer.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// The next descriptor of the chain, where [`NEXT`] is set.
    pub next: u16,
}

impl Descriptor {
    #[expect(clippy::cast_possible_truncation, reason = "the fields are parts of the word")]
    fn from_words(addr: u64, rest: u64) -> Self {
        Descriptor { addr, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    fn words(self) -> (u64, u64) {
        (self.addr, u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48)
    }

    /// Reads descriptor `index` of a table in guest memory, once.
    #[inline]
    pub(super) fn read(table: &Area, index: u16) -> Self {
        let at = usize::from(index) * DESCRIPTOR;
        let (addr, rest) = table.read_two_u64(at);
        Self::from_words(addr, rest)
    }

    /// Reads the first descriptor of an indirect table, once.
    pub(super) fn read_indirect(level: Level, table: MemorySegment<'_>) -> Self {
        let mut bytes = [0; DESCRIPTOR];
        table.read(level, &mut bytes);
        let (addr, rest) = bytes.split_at(8);
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).unwrap_or(0);
        Self::from_words(word(addr), word(rest))
    }

    /// Reads the first descriptor of an indirect table of a packed ring, once: length, then id, then flags.
    pub(super) fn read_indirect_packed(level: Level, table: MemorySegment<'_>) -> Self {
        let desc = Self::read_indirect(level, table);
        // The two 16-bit fields have changed places.
        Descriptor { flags: desc.next, next: desc.flags, ..desc }
    }

    pub(super) fn write(self, table: &Area, index: u16) {
        self.write_at(table, usize::from(index) * DESCRIPTOR);
    }

    pub(super) fn write_at(self, table: &Area, at: usize) {
        let (addr, rest) = self.words();
        table.write_u64(at, addr);
        table.write_u64(at + 8, rest);
    }
}

/// The size of a ring and the places of its three parts, as the frontend says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Entries: a power of two, at most 32768.
    pub size: u16,
    /// The descriptor table: 16 bytes an entry, at a multiple of 16.
    pub desc: u64,
    /// What the driver makes available: 6 bytes and 2 an entry, at a multiple of 2.
    pub avail: u64,
    /// What the device has used: 6 bytes and 8 an entry, at a multiple of 4.
    pub used: u64,
}

/// What driver and device have agreed on about a ring (virtio 1.2, 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// EVENT_IDX: notifications are asked for by index.
    pub event_idx: bool,
    /// INDIRECT_DESC: a descriptor may name a table of descriptors.
    pub indirect: bool,
    /// IN_ORDER: chains are used in the order in which they were made available.
    pub in_order: bool,
}

/// The three parts of a packed ring in mapped memory (virtio 1.2, 2.8).
#[derive(Debug)]
pub(super) struct PackedParts {
    pub(super) desc: Area,
    /// What the driver wants to be told of.
    pub(super) driver: Area,
    /// What the device wants to be told of.
    pub(super) device: Area,
}

/// Offsets in either event suppression structure: a place with its wrap counter, then the mode (2.8.14).
pub(super) mod event {
    pub(in crate::ring) const POSITION: usize = 0;
    pub(in crate::ring) const MODE: usize = 2;
    pub(in crate::ring) const LEN: usize = 4;
}

/// The three parts of a split ring in mapped memory.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) desc: Area,
    pub(super) avail: Area,
    pub(super) used: Area,
}

impl Geometry {
    /// Finds a packed ring in guest memory, with the driver's event suppression at `avail` and the device's at `used`;
    /// says which part is not wholly there.
    pub(super) fn locate_packed(&self, memory: &GuestMemory) -> Result<PackedParts, &'static str> {
        let n = usize::from(self.size);
        if n == 0 || n > 32768 {
            return Err("size");
        }
        Ok(PackedParts {
            desc: memory.area(self.desc, n * DESCRIPTOR, 16).ok_or("descriptor ring")?,
            driver: memory.area(self.avail, event::LEN, 4).ok_or("driver event suppression")?,
            device: memory.area(self.used, event::LEN, 4).ok_or("device event suppression")?,
        })
    }

    /// Finds the ring in guest memory; says which part is not wholly there.
    pub(super) fn locate(&self, memory: &GuestMemory) -> Result<Parts, &'static str> {
        let n = usize::from(self.size);
        if !self.size.is_power_of_two() || n > 32768 {
            return Err("size");
        }
        Ok(Parts {
            desc: memory.area(self.desc, n * DESCRIPTOR, 16).ok_or("descriptor table")?,
            avail: memory.area(self.avail, 6 + 2 * n, 2).ok_or("available ring")?,
            used: memory.area(self.used, 6 + 8 * n, 4).ok_or("used ring")?,
        })
    }
}

/// Offsets in the available ring: flags, index, entries, then the index after which the driver wants to be told.
pub(super) mod avail {
    pub(in crate::ring) const FLAGS: usize = 0;
    pub(in crate::ring) const INDEX: usize = 2;
    pub(in crate::ring) const fn entry(slot: usize) -> usize {
        4 + 2 * slot
    }
    pub(in crate::ring) const fn used_event(size: usize) -> usize {
        4 + 2 * size
    }
}

/// Offsets in the used ring: flags, index, entries (id, length), then the index after which the device wants a kick.
pub(super) mod used {
    pub(in crate::ring) const FLAGS: usize = 0;
    pub(in crate::ring) const INDEX: usize = 2;
    pub(in crate::ring) const ENTRY: usize = 8;
    pub(in crate::ring) const fn entry(slot: usize) -> usize {
        4 + ENTRY * slot
    }
    pub(in crate::ring) const fn avail_event(size: usize) -> usize {
        4 + 8 * size
    }
}

/// Marks `len` bytes at `offset` of an area, which were just written.
pub(super) fn mark(log: &DirtyLog, area: &Area, offset: usize, len: usize) {
    log.after_writes().mark(area.guest_addr() + wide(offset), wide(len));
}

/// Marks `n` entries of `entry` bytes, from the one at `start` on, of a table of `size` that begins at `offset` of an area.
pub(super) fn mark_entries(log: &DirtyLog, area: &Area, offset: usize, entry: usize, start: u16, n: u16, size: u16) {
    let marks = log.after_writes();
    let to_end = n.min(size - start);
    for (from, n) in [(start, to_end), (0, n - to_end)] {
        let at = offset + entry * usize::from(from);
        marks.mark(area.guest_addr() + wide(at), wide(entry) * u64::from(n));
    }
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
