//! The layout of both rings in memory (virtio 1.2, 2.7.5 to 2.7.8 and 2.8.13).

use az::SaturatingAs;
use straightline_packet::{Level, MemorySegment};

use crate::memory::{Area, DirtyLog, GuestMemory};

/// Descriptor flag: the chain continues at `next`.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes this buffer. Without it, the device reads the buffer.
pub const WRITE: u16 = 2;
/// Descriptor flag: the buffer holds a table of descriptors.
pub const INDIRECT: u16 = 4;

/// Bit of `avail.flags`: the driver asks for no interrupts.
pub(super) const NO_INTERRUPT: u16 = 1;
/// Bit of `used.flags`: the device asks for no kicks.
pub(super) const NO_NOTIFY: u16 = 1;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// One descriptor, as read once from guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest address of the buffer.
    pub addr: u64,
    /// Length of the buffer in bytes.
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

    /// Reads descriptor `index` of a table in guest memory, each half once.
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

    /// Reads the first descriptor of an indirect table of a packed ring, once. Its fields are
    /// address, length, id and flags.
    pub(super) fn read_indirect_packed(level: Level, table: MemorySegment<'_>) -> Self {
        let desc = Self::read_indirect(level, table);
        // In a packed ring flags come last; in a split ring they precede `next`.
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

/// The size of a ring and the addresses of its three parts, as the frontend gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Entries: a power of two, at most 32768.
    pub size: u16,
    /// The descriptor table: 16 bytes an entry, at a multiple of 16.
    pub desc: u64,
    /// The available ring: 6 bytes and 2 for each entry, at a multiple of 2.
    pub avail: u64,
    /// The used ring: 6 bytes and 8 for each entry, at a multiple of 4.
    pub used: u64,
}

/// The ring features that driver and device negotiated (virtio 1.2, 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOptions {
    /// EVENT_IDX: notifications are suppressed by index.
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
    /// The driver event suppression structure: the used descriptors for which the driver asks for a
    /// call.
    pub(super) driver: Area,
    /// The device event suppression structure: the available descriptors for which the device asks
    /// for a kick.
    pub(super) device: Area,
}

/// Offsets in either event suppression structure: the position with its wrap counter, then the mode
/// (2.8.14).
pub(super) mod event {
    // Cites packed-2.8.14-1.
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
    /// Finds a packed ring in guest memory, with the driver event suppression at `avail` and the
    /// device's at `used`. The error names the part that is not wholly in memory.
    pub(super) fn locate_packed(&self, memory: &GuestMemory) -> Result<PackedParts, &'static str> {
        let n = usize::from(self.size);
        // Cites packed-2.8-1.
        if n == 0 || n > 32768 {
            return Err("size");
        }
        Ok(PackedParts {
            // Cites packed-2.8.10.1-1, packed-2.8.11-1.
            desc: memory.area(self.desc, n * DESCRIPTOR, 16).ok_or("descriptor ring")?,
            driver: memory.area(self.avail, event::LEN, 4).ok_or("driver event suppression")?,
            device: memory.area(self.used, event::LEN, 4).ok_or("device event suppression")?,
        })
    }

    /// Finds a split ring in guest memory. The error names the part that is not wholly in memory.
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

/// Offsets in the available ring: flags, index, entries, then the driver's event index, after which
/// it asks for a call.
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

/// Offsets in the used ring: flags, index, entries (id, length), then the device's event index,
/// after which it asks for a kick.
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

/// Marks `n` entries of `entry` bytes, beginning with entry `start`, of a table of `size` entries
/// that begins at `offset` of an area. The range may wrap.
pub(super) fn mark_entries(log: &DirtyLog, area: &Area, offset: usize, entry: usize, start: u16, n: u16, size: u16) {
    let marks = log.after_writes();
    let to_end = n.min(size - start);
    for (from, n) in [(start, to_end), (0, n - to_end)] {
        let at = offset + entry * usize::from(from);
        marks.mark(area.guest_addr() + wide(at), wide(entry) * u64::from(n));
    }
}

fn wide(n: usize) -> u64 {
    n.saturating_as::<u64>()
}
