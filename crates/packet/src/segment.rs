//! A piece of memory that is not ours: checked, borrowed for one turn, and changed by its guest at any time.

use std::marker::PhantomData;
use std::ptr::NonNull;

use straightline_simd::{Kernels, Sum};

use crate::COPIES;

/// A pointer and a length into memory that stays mapped until the turn `'t` ends.
///
/// It is no slice: the guest may write the bytes at any moment, so they are only ever copied, by kernels that
/// load each byte once. Within a turn it goes wherever it is needed:
///
/// ```
/// use straightline_packet::{Arena, MemorySegment};
/// fn keep(arena: &mut Arena) {
///     arena.turn(|turn| {
///         let mut kept: Vec<MemorySegment<'_>> = Vec::new();
///         kept.extend(turn.staged(0).iter().copied());
///     });
/// }
/// ```
///
/// Nothing keeps one beyond its turn, whose lifetime is its own; the only difference is where `kept` stands:
///
/// ```compile_fail,E0521
/// use straightline_packet::{Arena, MemorySegment};
/// fn keep(arena: &mut Arena) {
///     let mut kept: Vec<MemorySegment<'_>> = Vec::new();
///     arena.turn(|turn| {
///         kept.extend(turn.staged(0).iter().copied());
///     });
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemorySegment<'t> {
    /// Never null, so that an absent segment needs no word of its own.
    at: NonNull<u8>,
    len: u32,
    turn: PhantomData<&'t ()>,
}

// SAFETY: it is a place in memory that every thread may access by the kernels, for as long as the turn lasts.
unsafe impl Send for MemorySegment<'_> {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for MemorySegment<'_> {}

impl<'t> MemorySegment<'t> {
    /// No bytes, nowhere.
    pub(crate) const EMPTY: Self = MemorySegment { at: NonNull::dangling(), len: 0, turn: PhantomData };

    /// A segment of `len` bytes at `at`.
    ///
    /// # Safety
    /// `at` is not null. The bytes are mapped readable and writable for all of `'t`, and no Rust reference to any of them lives
    /// meanwhile. Other processes may read and write them.
    #[inline]
    pub unsafe fn new(at: *mut u8, len: u32) -> Self {
        // SAFETY: what is mapped has an address, and that of an empty segment is not null either, by the caller's promise.
        let at = unsafe { NonNull::new_unchecked(at) };
        MemorySegment { at, len, turn: PhantomData }
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where it begins. Only its number means anything outside the kernels.
    #[inline]
    pub fn address(self) -> usize {
        self.at.addr().get()
    }

    /// The first `n` bytes and the rest; `n` beyond the end splits there.
    #[inline]
    pub fn split_at(self, n: u32) -> (Self, Self) {
        let n = n.min(self.len);
        // SAFETY: n is at most the length, so the sum stays inside the segment or one past it.
        let rest = unsafe { self.at.add(n as usize) };
        (MemorySegment { len: n, ..self }, MemorySegment { at: rest, len: self.len - n, turn: PhantomData })
    }

    /// Asks for the first line early, to be read.
    #[inline]
    pub fn prefetch(self) {
        straightline_simd::prefetch_read(self.at.as_ptr());
    }

    /// Asks for the line of a frame `offset` bytes in, to be read.
    #[inline]
    pub fn prefetch_at(self, offset: u32) {
        if COPIES {
            straightline_simd::prefetch_read(self.at.as_ptr().wrapping_add(offset as usize));
        }
    }

    /// Whether its first `n` bytes and the one behind them are in one line.
    #[inline]
    pub(crate) fn one_line(self, n: u32) -> bool {
        (self.at.addr().get() ^ (self.at.addr().get() + n as usize)) & !63 == 0
    }

    /// Asks for the lines in which a frame behind `HEADER` bytes of header begins. A header is mostly the same as before and
    /// only read (see `Turn::store_plain`), the frame is written: one line for both is asked for once, to be written.
    #[inline]
    pub fn prefetch_for_store<const HEADER: u32>(self) {
        let frame = self.at.as_ptr().wrapping_add(HEADER as usize);
        if !COPIES || (self.at.addr().get() ^ frame.addr()) & !63 != 0 {
            straightline_simd::prefetch_read(self.at.as_ptr());
        }
        if COPIES {
            straightline_simd::prefetch_write(frame);
        }
    }

    /// Copies the first bytes, as many as both have, into memory that is ours. Returns how many.
    #[inline(always)]
    pub fn read(self, kernels: impl Kernels, into: &mut [u8]) -> usize {
        let n = into.len().min(self.len as usize);
        // SAFETY: `n` bytes are valid on both sides: the segment by its type, the slice by its borrow.
        unsafe { kernels.copy(into.as_mut_ptr(), self.at.as_ptr(), n) };
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), n);
        n
    }

    /// [`Self::read`] for bytes of a frame: see [`COPIES`].
    #[inline(always)]
    pub(crate) fn read_frame(self, kernels: impl Kernels, into: &mut [u8]) -> usize {
        if COPIES { self.read(kernels, into) } else { into.len().min(self.len as usize) }
    }

    /// Its first 12 bytes, each loaded once; `None` where it is shorter.
    #[inline]
    pub fn read12(self) -> Option<[u8; 12]> {
        // SAFETY: the segment has the bytes.
        let bytes = (self.len >= 12).then(|| unsafe { straightline_simd::load12(self.at.as_ptr()) });
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), bytes.map_or(0, |bytes| bytes.len()));
        bytes
    }

    /// Copies bytes of ours to its beginning, as many as fit. Returns how many.
    #[inline(always)]
    pub fn write(self, kernels: impl Kernels, from: &[u8]) -> usize {
        let n = from.len().min(self.len as usize);
        // SAFETY: `n` bytes are valid on both sides: the segment by its type, the slice by its borrow.
        unsafe { kernels.copy(self.at.as_ptr(), from.as_ptr(), n) };
        n
    }

    /// [`Self::write`] for bytes of a frame: see [`COPIES`].
    #[inline(always)]
    pub(crate) fn write_frame(self, kernels: impl Kernels, from: &[u8]) -> usize {
        if COPIES { self.write(kernels, from) } else { from.len().min(self.len as usize) }
    }

    /// Stores two bytes of a frame at `at`, at once, where it has them: see [`COPIES`].
    #[inline(always)]
    pub(crate) fn put2(self, at: u32, bytes: [u8; 2]) {
        if COPIES && u64::from(self.len) >= u64::from(at) + 2 {
            // SAFETY: the segment has the bytes.
            unsafe { straightline_simd::store2(self.at.as_ptr().add(at as usize), bytes) };
        }
    }

    /// The same with four bytes.
    #[inline(always)]
    pub(crate) fn put4(self, at: u32, bytes: [u8; 4]) {
        if COPIES && u64::from(self.len) >= u64::from(at) + 4 {
            // SAFETY: the segment has the bytes.
            unsafe { straightline_simd::store4(self.at.as_ptr().add(at as usize), bytes) };
        }
    }

    /// Copies from another segment, as many bytes as both have, and adds them to `sum` if there is one: the
    /// sum is that of the bytes stored. The two may overlap; what the shared bytes are then is unspecified.
    #[inline(always)]
    pub fn copy_from(self, kernels: impl Kernels, from: MemorySegment<'_>, sum: Option<&mut Sum>) -> u32 {
        let n = from.len.min(self.len);
        if !COPIES {
            return n;
        }
        // SAFETY: `n` bytes are valid on both sides by the type; the kernels bear overlap and writers.
        unsafe {
            match sum {
                None => kernels.copy(self.at.as_ptr(), from.at.as_ptr(), n as usize),
                Some(sum) => kernels.copy_sum(self.at.as_ptr(), from.at.as_ptr(), n as usize, sum),
            }
        }
        #[cfg(feature = "memory-double")]
        crate::double::loaded(from.at.as_ptr(), n as usize);
        n
    }
}
