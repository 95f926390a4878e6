//! Code that the fuzz targets share: a guest's memory, structured input, and marks for branches
//! that were reached.
//!
//! `cargo xtask fuzz [TARGET] [--secs N]` builds and runs them. Each target's file describes its
//! input and the invariants that it checks.

#![expect(clippy::cast_possible_truncation, reason = "inputs are short, and memory is small")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_packet::{Arena, Level, MemorySegment, Rcu, RcuCell, Settings, Turn};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::ring::Geometry;

mod bridge;
mod device;
mod packets;
mod targets;
mod underlay;

pub use targets::{TARGETS, Target};

thread_local! {
    static REACHED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Notes that an input of this thread reached a place, and prints it the first time.
pub(crate) fn reached(place: &'static str) {
    REACHED.with_borrow_mut(|places| {
        if places.insert(place) {
            eprintln!("reached: {place}");
        }
    });
}

/// Returns the places that inputs of this thread have reached.
#[must_use]
pub fn places() -> BTreeSet<&'static str> {
    REACHED.with_borrow(Clone::clone)
}

/// The frontend's address of the guest's address 0.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
/// Usual addresses of a ring's parts: descriptors, the driver's part, the device's part.
pub(crate) const DESC: u64 = 0;
pub(crate) const AVAIL: u64 = 0x2000;
pub(crate) const USED: u64 = 0x3000;
/// Usual address of indirect tables.
pub(crate) const TABLE: u64 = 0x4000;
/// Address behind the last byte. There are two regions, half of the memory each.
pub(crate) const END: u64 = 0x1_0000;

/// A guest's memory, all zeros at first, and turns to access it.
pub(crate) struct FuzzGuest {
    memory: RcuCell<GuestMemory>,
    arena: Arena,
    pub(crate) ours: GuestMemory,
    /// Address ranges of the regions in this process.
    ranges: Vec<std::ops::Range<usize>>,
}

impl Default for FuzzGuest {
    fn default() -> Self {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
        ftruncate(&fd, END).expect("ftruncate");
        let half = END / 2;
        let regions = vec![region(&fd, 0, half), region(&fd, half, half)];
        let rcu = Rcu::new();
        let memory = RcuCell::new(&rcu);
        memory.swap(Some(Box::new(GuestMemory::new(regions.clone()).expect("no overlap"))));
        let ours = GuestMemory::new(regions).expect("no overlap");
        let ranges = [0, half].map(|at| {
            let whole = ours.segment(at, u32::try_from(half).expect("small"), &mut 0).expect("a region");
            whole.address()..whole.address() + whole.len() as usize
        });
        let arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
        FuzzGuest { memory, arena, ranges: ranges.to_vec(), ours }
    }
}

fn region(fd: &OwnedFd, at: u64, size: u64) -> Arc<Region> {
    Arc::new(Region::map(fd.as_fd(), at, size, at, USER + at).expect("a good region"))
}

impl FuzzGuest {
    /// Fills the memory with zeros again: a new mapping for each input would cost more than the
    /// code under test.
    pub(crate) fn clear(&self) {
        self.write(0, &[0; END as usize / 2]);
        self.write(END / 2, &[0; END as usize / 2]);
    }

    /// Returns a ring of this size at the usual addresses.
    pub(crate) fn geometry(&self, size: u16) -> Geometry {
        Geometry { size, desc: USER + DESC, avail: USER + AVAIL, used: USER + USED }
    }

    pub(crate) fn turn<R>(&mut self, f: impl for<'t> FnOnce(&mut Turn<'t>, &'t GuestMemory) -> R) -> R {
        let memory = &self.memory;
        self.arena.turn(|turn| f(turn, memory.load(turn).expect("published")))
    }

    /// Writes as much of `bytes` as there is memory at `addr`.
    pub(crate) fn write(&self, addr: u64, mut bytes: &[u8]) {
        bytes = &bytes[..bytes.len().min(END.saturating_sub(addr) as usize)];
        self.ours.segments(addr, bytes.len() as u32, &mut 0, |segment| {
            let done = segment.write(Level::Scalar, bytes);
            bytes = &bytes[done..];
        });
    }

    pub(crate) fn write16(&self, addr: u64, value: u16) {
        self.write(addr, &value.to_le_bytes());
    }

    pub(crate) fn read16(&self, addr: u64) -> u16 {
        let mut bytes = [0; 2];
        self.ours.segment(addr, 2, &mut 0).expect("in memory").read(Level::Scalar, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Checks that a segment lies in guest memory.
    pub(crate) fn assert_inside(ranges: &[std::ops::Range<usize>], segment: &MemorySegment<'_>) {
        let from = segment.address();
        let to = segment.address() + segment.len() as usize;
        let inside = ranges.iter().any(|range| range.start <= from && to <= range.end);
        assert!(inside || segment.is_empty(), "{from:#x}..{to:#x} is outside {ranges:x?}");
    }

    pub(crate) fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        self.ranges.clone()
    }

    /// Writes the 16 bytes of a descriptor: address, length, and two 16-bit fields. These are flags
    /// and next in a split ring, id and flags in a packed ring.
    pub(crate) fn descriptor(&self, at: u64, addr: u64, len: u32, third: u16, fourth: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&third.to_le_bytes());
        bytes[14..].copy_from_slice(&fourth.to_le_bytes());
        self.write(at, &bytes);
    }
}

/// Returns address and length of a buffer: mostly inside memory, sometimes across its regions, at
/// its end or outside.
pub(crate) fn buffer(u: &mut Unstructured<'_>) -> Result<(u64, u32)> {
    Ok(match u.int_in_range(0..=7_u8)? {
        0 => (u.arbitrary()?, u.arbitrary()?),
        1 => (END / 2 - u64::from(u.arbitrary::<u8>()?), u.arbitrary::<u16>()?.into()),
        2 => (END - u64::from(u.arbitrary::<u8>()?), u.arbitrary::<u8>()?.into()),
        3 => (TABLE, 16 * u32::from(u.int_in_range(0..=9_u8)?)),
        4 => (TABLE + u64::from(u.arbitrary::<u8>()?), u.arbitrary::<u8>()?.into()),
        _ => (0x5000 + u64::from(u.arbitrary::<u16>()? & 0x7fff), u.arbitrary::<u16>()?.into()),
    })
}
