//! A guest's memory with one ring in it, and turns to access it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_packet::{Arena, Level, Rcu, RcuCell, Settings, Turn};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::ring::{Geometry, RingOptions, SplitDevice, SplitDriver, Tables};

/// The frontend's address of the guest's address 0.
pub const USER: u64 = 0x7f00_0000_0000;
/// Guest address of the descriptors.
pub const DESC: u64 = 0;
/// Guest address of the available ring, or of the driver's event suppression.
pub const AVAIL: u64 = 0x8_0000;
/// Guest address of the used ring, or of the device's event suppression.
pub const USED: u64 = 0xa_0000;
/// First address of the buffers.
pub const BUFFERS: u64 = 0x10_0000;
/// Address of the driver halves' indirect tables. The tables overlap the second half of the
/// buffers.
pub const TABLES: u64 = 0x18_0000;
/// Buffers in one table.
pub const TABLE: u16 = 3;
/// Address behind the region with the ring.
pub const END: u64 = 0x20_0000;

/// A guest's memory with one ring in it, and an arena for turns that access it.
pub struct GuestRing {
    memory: RcuCell<GuestMemory>,
    arena: Arena,
    /// The guest's memory, for the test's own reads and writes.
    pub ours: GuestMemory,
    /// Descriptors of the ring.
    pub size: u16,
}

fn region(fd: &OwnedFd, offset: u64, size: u64, guest: u64) -> Arc<Region> {
    Arc::new(Region::map(fd.as_fd(), offset, size, guest, USER + guest).expect("a good region"))
}

impl GuestRing {
    /// Creates a guest whose ring has `size` descriptors.
    pub fn new(size: u16) -> Self {
        Self::with_more(size, &[])
    }

    /// Creates a guest with further regions besides the ring's, given as guest addresses and sizes.
    pub fn with_more(size: u16, more: &[(u64, u64)]) -> Self {
        let total = END + more.iter().map(|&(_, size)| size).sum::<u64>();
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
        ftruncate(&fd, total).expect("ftruncate");
        let mut offset = END;
        let mut regions = vec![region(&fd, 0, END, 0)];
        for &(guest, size) in more {
            regions.push(region(&fd, offset, size, guest));
            offset += size;
        }
        let rcu = Rcu::new();
        let memory = RcuCell::new(&rcu);
        memory.swap(Some(Box::new(GuestMemory::new(regions.clone()).expect("no overlap"))));
        GuestRing {
            memory,
            arena: Arena::new(rcu.reader(), Settings::default(), Vec::new()),
            ours: GuestMemory::new(regions).expect("no overlap"),
            size,
        }
    }

    /// Returns the place of the ring, in the frontend's addresses.
    pub fn geometry(&self) -> Geometry {
        Geometry { size: self.size, desc: USER + DESC, avail: USER + AVAIL, used: USER + USED }
    }

    /// Returns a device half of the split ring, which goes on at the index `base`.
    pub fn device(&self, base: u16, options: RingOptions) -> SplitDevice {
        SplitDevice::new(&self.ours, self.geometry(), base, options).expect("the ring is in memory")
    }

    /// Returns a driver half of the split ring.
    pub fn driver(&self, options: RingOptions) -> SplitDriver {
        let driver = SplitDriver::new(&self.ours, self.geometry(), options).expect("the ring is in memory");
        driver.with_tables(&self.ours, self.tables()).expect("in memory")
    }

    /// Returns the place of the driver halves' indirect tables.
    pub fn tables(&self) -> Tables {
        Tables { guest: TABLES, user: USER + TABLES, entries: TABLE }
    }

    /// Returns the number of ring descriptors that a chain of `buffers` buffers takes.
    pub fn span(&self, buffers: usize, options: RingOptions) -> u16 {
        let in_table = options.indirect && (2..=usize::from(TABLE.min(self.size))).contains(&buffers);
        if in_table { 1 } else { u16::try_from(buffers).expect("small") }
    }

    /// Runs `f` in a turn, with the memory that it may access.
    pub fn turn<R>(&mut self, f: impl for<'t> FnOnce(&mut Turn<'t>, &'t GuestMemory) -> R) -> R {
        let memory = &self.memory;
        self.arena.turn(|turn| {
            let memory = memory.load(turn).expect("published");
            f(turn, memory)
        })
    }

    /// Writes bytes at a guest address.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("small");
        self.ours.segment(addr, len, &mut 0).expect("in memory").write(Level::Scalar, bytes);
    }

    /// Writes a little-endian number at a guest address.
    pub fn write16(&self, addr: u64, value: u16) {
        self.write(addr, &value.to_le_bytes());
    }

    /// Reads a little-endian number at a guest address.
    pub fn read16(&self, addr: u64) -> u16 {
        let mut bytes = [0; 2];
        self.ours.segment(addr, 2, &mut 0).expect("in memory").read(Level::Scalar, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Writes a descriptor into the ring's table or into an indirect one.
    pub fn descriptor(&self, table: u64, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.write(table + 16 * u64::from(index), &bytes);
    }

    /// Makes the chain that begins with `head` available, as entry `entry` of all.
    pub fn offer(&self, entry: u16, head: u16) {
        self.write16(AVAIL + 4 + 2 * u64::from(entry % self.size), head);
        self.write16(AVAIL + 2, entry.wrapping_add(1));
    }

    /// Returns `used_event` of the split ring.
    pub fn used_event(&self) -> u16 {
        self.read16(AVAIL + 4 + 2 * u64::from(self.size))
    }

    /// Returns `avail_event` of the split ring.
    pub fn avail_event(&self) -> u16 {
        self.read16(USED + 4 + 8 * u64::from(self.size))
    }
}

/// Returns options with nothing but the event index.
pub fn events(event_idx: bool) -> RingOptions {
    RingOptions { event_idx, ..RingOptions::default() }
}
