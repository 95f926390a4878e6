//! A fixed range of guest memory that keeps its region mapped: a ring's table, accessed by atomics.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Region;

/// A range of bytes in a region. Every access is checked against the length and its alignment, and
/// is one atomic load or store. A value that was read cannot change afterwards, and the compiler
/// cannot read it twice.
#[derive(Debug)]
pub struct Area {
    at: *mut u8,
    len: usize,
    align: usize,
    region: Arc<Region>,
}

// SAFETY: the pointer points into the region, which is Send and Sync and lives as long as the area.
unsafe impl Send for Area {}
// SAFETY: as above. All accesses are atomic.
unsafe impl Sync for Area {}

macro_rules! access {
    ($type:ty, $atomic:ty, $cell:ident, $get:ident, $set:ident) => {
        #[inline]
        fn $cell(&self, offset: usize) -> &$atomic {
            const SIZE: usize = size_of::<$type>();
            assert!(offset < self.len && SIZE <= self.len - offset && offset % SIZE == 0 && SIZE <= self.align);
            // SAFETY: the number is in bounds, and aligned since both the area's start and the
            // offset are. Atomics may be shared with other writers of the memory.
            unsafe { <$atomic>::from_ptr(self.at.add(offset).cast()) }
        }

        /// Reads the little-endian number at `offset`, which is within the area and aligned.
        #[inline]
        pub fn $get(&self, offset: usize) -> $type {
            let value = <$type>::from_le(self.$cell(offset).load(Ordering::Relaxed));
            #[cfg(feature = "memory-double")]
            self.loaded(offset, size_of::<$type>());
            value
        }

        /// Writes the little-endian number at `offset`, which is within the area and aligned.
        #[inline]
        pub fn $set(&self, offset: usize, value: $type) {
            self.$cell(offset).store(value.to_le(), Ordering::Relaxed);
        }
    };
}

impl Area {
    /// Returns `len` bytes from `offset` of the region, if the region has them and they begin at a
    /// multiple of `align` in this process.
    pub(super) fn new(region: Arc<Region>, offset: u64, len: usize, align: usize) -> Option<Area> {
        let end = offset.checked_add(u64::try_from(len).ok()?)?;
        if len == 0 || end > region.size() {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: the offset is within the region's mapping, as checked above.
        let at = unsafe { region.host().add(offset) };
        (at.addr() % align == 0).then_some(Area { at, len, align, region })
    }

    access!(u16, AtomicU16, cell16, read_u16, write_u16);
    access!(u32, AtomicU32, cell32, read_u32, write_u32);
    access!(u64, AtomicU64, cell64, read_u64, write_u64);

    /// Reads the two little-endian numbers at `offset`, each by one load, as [`Self::read_u64`]
    /// does.
    #[inline]
    pub fn read_two_u64(&self, offset: usize) -> (u64, u64) {
        assert!(offset < self.len && 16 <= self.len - offset && offset.is_multiple_of(8) && 8 <= self.align);
        // SAFETY: both numbers are in bounds, and aligned since both the area's start and the
        // offset are. Atomics may be shared with other writers of the memory.
        let words: &[AtomicU64; 2] = unsafe { &*self.at.add(offset).cast() };
        let both = words.each_ref().map(|word| u64::from_le(word.load(Ordering::Relaxed)));
        #[cfg(feature = "memory-double")]
        self.loaded(offset, 16);
        both.into()
    }

    /// Writes two little-endian numbers at `offset`, each by one store, as [`Self::write_u32`]
    /// does.
    #[inline]
    pub fn write_two_u32(&self, offset: usize, first: u32, second: u32) {
        assert!(offset < self.len && 8 <= self.len - offset && offset.is_multiple_of(4) && 4 <= self.align);
        // SAFETY: as above.
        let words: &[AtomicU32; 2] = unsafe { &*self.at.add(offset).cast() };
        words[0].store(first.to_le(), Ordering::Relaxed);
        words[1].store(second.to_le(), Ordering::Relaxed);
    }

    /// Returns the area as cells of 32 bits, for loops over a table. The area must be aligned to
    /// them.
    #[inline]
    pub fn cells32(&self) -> &[AtomicU32] {
        assert!(self.align.is_multiple_of(4));
        // SAFETY: the cells fit into the area, which is mapped as long as it lives and aligned to
        // `align`. Atomics may be shared with other writers of the memory.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len / 4) }
    }

    /// Returns the area as cells of 64 bits. The area must be aligned to them.
    #[inline]
    pub fn cells64(&self) -> &[AtomicU64] {
        assert!(self.align.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len / 8) }
    }

    /// Reads a 16-bit index (acquire): everything that its writer stored before it is then visible.
    #[inline]
    pub fn acquire_u16(&self, offset: usize) -> u16 {
        let value = u16::from_le(self.cell16(offset).load(Ordering::Acquire));
        #[cfg(feature = "memory-double")]
        self.loaded(offset, 2);
        value
    }

    /// Writes a 16-bit index (release), behind everything that was stored before it.
    #[inline]
    pub fn release_u16(&self, offset: usize, value: u16) {
        self.cell16(offset).store(value.to_le(), Ordering::Release);
    }

    /// Reads 64 bits at once (acquire): everything that the writer of any of these bits stored
    /// before them is then visible.
    #[inline]
    pub fn acquire_u64(&self, offset: usize) -> u64 {
        let value = u64::from_le(self.cell64(offset).load(Ordering::Acquire));
        #[cfg(feature = "memory-double")]
        self.loaded(offset, 8);
        value
    }

    /// Reads the second number of each of the four pairs at `offset`, as [`Self::acquire_u64`] does.
    #[inline(always)]
    pub fn acquire_seconds(&self, offset: usize) -> [u64; 4] {
        self.of_pairs::<1>(offset, Ordering::Acquire)
    }

    /// Reads the first number of each of the four pairs at `offset`, as [`Self::read_u64`] does.
    #[inline(always)]
    pub fn read_firsts(&self, offset: usize) -> [u64; 4] {
        self.of_pairs::<0>(offset, Ordering::Relaxed)
    }

    /// Reads number `AT` of each of the four pairs at `offset`, each by one load.
    #[inline(always)]
    fn of_pairs<const AT: usize>(&self, offset: usize, order: Ordering) -> [u64; 4] {
        assert!(offset < self.len && 64 <= self.len - offset && offset.is_multiple_of(8) && 8 <= self.align);
        // SAFETY: all numbers are in bounds, and aligned since both the area's start and the
        // offset are. Atomics may be shared with other writers of the memory.
        let pairs: &[[AtomicU64; 2]; 4] = unsafe { &*self.at.add(offset).cast() };
        let load = |pair: usize| {
            let value = u64::from_le(pairs[pair][AT].load(order));
            #[cfg(feature = "memory-double")]
            self.loaded(offset + 16 * pair + 8 * AT, 8);
            value
        };
        // `map` is not always inlined.
        [load(0), load(1), load(2), load(3)]
    }

    /// Lets a double of guest memory change the bytes that were just read.
    #[cfg(feature = "memory-double")]
    fn loaded(&self, offset: usize, len: usize) {
        straightline_packet::double::loaded(self.at.wrapping_add(offset), len);
    }

    /// Returns the guest address of the first byte.
    pub fn guest_addr(&self) -> u64 {
        // The area begins within the region, so neither the difference nor the sum overflows.
        let offset = self.at.addr() - self.region.host().addr();
        self.region.guest_addr() + u64::try_from(offset).unwrap_or(0)
    }

    /// Prefetches the cache line at `offset`.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        straightline_simd::prefetch_read(self.at.wrapping_add(offset));
    }

    /// Returns whether a part of the region has vanished.
    #[inline]
    pub fn poisoned(&self) -> bool {
        self.region.poisoned()
    }
}
