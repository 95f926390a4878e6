//! The frames of a UMEM: their memory, and sets of them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use straightline_packet::MemorySegment;
use straightline_virtio::memory::{GuestMemory, MapError, Region};

/// Frames that a queue receives into, and as many that it sends from. The rings that the kernel
/// writes have as many entries, so they always have a free entry for a frame that goes there.
pub(crate) const FRAMES: u32 = 2048;

/// Entries of the rings that we write. The kernel returns a frame in one ring before it tells that
/// it has read the frame's entry in the other one (`xsk_flush`). So one entry for each frame would
/// not suffice if the frame comes back at once.
pub(crate) const WRITTEN_ENTRIES: u32 = 2 * FRAMES;

/// All frames of a queue.
pub(crate) const ALL_FRAMES: u32 = 2 * FRAMES;

/// A frame of a UMEM, by its number. The first [`FRAMES`] frames receive, the others send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame(pub(crate) u32);

/// The memory of a queue's frames, shared with the kernel.
#[derive(Debug)]
pub(crate) struct Umem {
    /// One region at address 0, so an address is an offset in the UMEM. Checked translation is the
    /// same as for a guest's memory.
    memory: GuestMemory,
    frame_size: u32,
}

/// Returns the bytes of a UMEM with frames of this size.
pub(crate) fn umem_len(frame_size: u32) -> u64 {
    u64::from(frame_size) * u64::from(ALL_FRAMES)
}

impl Umem {
    /// Maps the UMEM's file. `frame_size` is a power of two.
    pub(crate) fn map(file: BorrowedFd<'_>, frame_size: u32) -> Result<Self, MapError> {
        debug_assert!(frame_size.is_power_of_two());
        let region = Region::map_own(file, umem_len(frame_size))?;
        let memory = GuestMemory::new(vec![Arc::new(region)]).ok_or(MapError::Empty(0))?;
        Ok(Umem { memory, frame_size })
    }

    /// Returns the bytes of a frame.
    #[inline]
    pub(crate) fn frame_size(&self) -> u32 {
        self.frame_size
    }

    /// Returns the address of a frame's first byte.
    #[inline]
    pub(crate) fn addr(&self, frame: Frame) -> u64 {
        u64::from(frame.0) * u64::from(self.frame_size)
    }

    /// Returns the frame that has the byte at this address, and the byte's offset in the frame.
    /// `None` if the address is beyond the UMEM.
    #[inline]
    pub(crate) fn frame_at(&self, addr: u64) -> Option<(Frame, u32)> {
        let size = u64::from(self.frame_size);
        let shift = self.frame_size.trailing_zeros();
        let frame = u32::try_from(addr >> shift).ok().filter(|&frame| frame < ALL_FRAMES)?;
        Some((Frame(frame), u32::try_from(addr & (size - 1)).ok()?))
    }

    /// Returns `len` bytes of a frame from this address on, or `None` if the frame has fewer.
    #[inline]
    pub(crate) fn segment(&self, addr: u64, len: u32) -> Option<MemorySegment<'_>> {
        let (_, offset) = self.frame_at(addr)?;
        if len > self.frame_size - offset {
            return None;
        }
        self.memory.segment(addr, len, &mut 0)
    }
}

/// A set of frames.
#[derive(Clone, Debug)]
pub(crate) struct FrameSet {
    bits: Box<[u64]>,
}

impl FrameSet {
    pub(crate) fn new() -> Self {
        FrameSet { bits: vec![0; ALL_FRAMES.div_ceil(64) as usize].into() }
    }

    /// Returns whether the set has a frame.
    #[inline]
    pub(crate) fn contains(&self, frame: Frame) -> bool {
        self.bits.get(frame.0 as usize / 64).is_some_and(|word| word >> (frame.0 % 64) & 1 == 1)
    }

    /// Adds a frame. Returns `false` if the set has it already, or if there is no such frame.
    #[inline]
    pub(crate) fn insert(&mut self, frame: Frame) -> bool {
        let Some(word) = self.bits.get_mut(frame.0 as usize / 64) else { return false };
        let bit = 1 << (frame.0 % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a frame. Returns `false` if the set does not have it.
    #[inline]
    pub(crate) fn remove(&mut self, frame: Frame) -> bool {
        let Some(word) = self.bits.get_mut(frame.0 as usize / 64) else { return false };
        let bit = 1 << (frame.0 % 64);
        let had = *word & bit != 0;
        *word &= !bit;
        had
    }

    /// Returns the number of frames in the set.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn an_address_names_a_frame_and_bytes_stay_in_it() {
        let file = memfd_create("umem", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, umem_len(2048)).expect("size");
        let umem = Umem::map(file.as_fd(), 2048).expect("mapped");
        assert_eq!(umem.frame_at(2048 * 3 + 5), Some((Frame(3), 5)));
        assert_eq!(umem.addr(Frame(3)), 2048 * 3);
        assert_eq!(umem.segment(2048 * 3 + 256, 1792).map(MemorySegment::len), Some(1792));
        assert!(umem.segment(2048 * 3 + 256, 1793).is_none(), "into the next frame");
        let end = umem_len(2048);
        assert_eq!(umem.frame_at(end - 1), Some((Frame(ALL_FRAMES - 1), 2047)));
        for addr in [end, end + 2048, 1 << 43, u64::MAX] {
            assert_eq!(umem.frame_at(addr), None, "{addr:#x}");
            assert!(umem.segment(addr, 0).is_none(), "{addr:#x}");
        }
    }

    #[test]
    fn a_set_has_each_frame_once() {
        let mut set = FrameSet::new();
        assert!(set.insert(Frame(0)) && set.insert(Frame(ALL_FRAMES - 1)) && !set.insert(Frame(0)));
        assert_eq!(set.len(), 2);
        assert!(set.contains(Frame(0)) && !set.contains(Frame(1)) && !set.contains(Frame(u32::MAX)));
        assert!(set.remove(Frame(0)) && !set.remove(Frame(0)) && !set.remove(Frame(77)));
        assert!(!set.insert(Frame(ALL_FRAMES)) && !set.remove(Frame(u32::MAX)));
        assert_eq!(set.len(), 1);
    }
}
