//! Memory segments: checked pieces of guest memory, borrowed for one turn. The guest may write them
//! at any time.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::marker::PhantomData;
use std::ptr::NonNull;

use straightline_simd::{Kernels, Sum};

use crate::COPIES;

/// A pointer and a length into memory that stays mapped until the turn `'t` ends.
///
/// A memory segment is no slice: the guest may write the bytes at any moment. So they are only
/// copied, by kernels that load each byte once. Within a turn a segment can be kept anywhere:
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
/// Nothing can keep a segment beyond its turn, because each turn has a lifetime of its own. This
/// example does not compile. It differs from the example above only in the place of `kept`:
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
    /// Address of the first byte. It is never null, so an `Option` of a segment takes no more space
    /// than a segment.
    at: NonNull<u8>,
    len: u32,
    turn: PhantomData<&'t ()>,
}

// SAFETY: every thread may access the memory by the kernels, for as long as the turn lasts.
unsafe impl Send for MemorySegment<'_> {}
// SAFETY: as above. Nothing in the segment itself changes.
unsafe impl Sync for MemorySegment<'_> {}

impl<'t> MemorySegment<'t> {
    /// The segment without bytes.
    pub(crate) const EMPTY: Self = MemorySegment { at: NonNull::dangling(), len: 0, turn: PhantomData };

    /// Creates a segment of `len` bytes at `at`.
    ///
    /// # Safety
    /// `at` is not null. The bytes are mapped readable and writable for all of `'t`. No Rust
    /// reference to any of them exists during `'t`. Other processes may read and write them.
    #[inline]
    pub unsafe fn new(at: *mut u8, len: u32) -> Self {
        // SAFETY: the caller promises that `at` is not null, also for an empty segment.
        let at = unsafe { NonNull::new_unchecked(at) };
        MemorySegment { at, len, turn: PhantomData }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Returns whether the segment has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte as a number, for comparisons only.
    #[inline]
    pub fn address(self) -> usize {
        self.at.addr().get()
    }

    /// Returns the address of the first byte, for a system call that reads or writes the bytes.
    #[inline]
    pub fn as_mut_ptr(self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Returns the first `n` bytes and the rest. If `n` is beyond the end, the rest is empty.
    #[inline]
    pub fn split_at(self, n: u32) -> (Self, Self) {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length, so the sum stays inside the segment or one past it.
        let rest = unsafe { self.at.add(n as usize) };
        (MemorySegment { len: n, ..self }, MemorySegment { at: rest, len: self.len - n, turn: PhantomData })
    }

    /// Prefetches the first cache line for reading.
    #[inline]
    pub fn prefetch(self) {
        straightline_simd::prefetch_read(self.at.as_ptr());
    }

    /// Prefetches the cache line `offset` bytes into a frame for reading.
    #[inline]
    pub fn prefetch_at(self, offset: u32) {
        if COPIES {
            straightline_simd::prefetch_read(self.at.as_ptr().wrapping_add(offset as usize));
        }
    }

    /// Prefetches the cache line `offset` bytes from the first byte for writing. Nothing is written.
    #[inline]
    pub fn prefetch_write_at(self, offset: u32) {
        if COPIES {
            straightline_simd::prefetch_write(self.at.as_ptr().wrapping_add(offset as usize));
        }
    }

    /// Returns whether the first `n` bytes and the byte behind them are on one cache line.
    #[inline]
    pub(crate) fn one_line(self, n: u32) -> bool {
        (self.at.addr().get() ^ (self.at.addr().get() + n as usize)) & !63 == 0
    }

    /// Prefetches two cache lines: where a header of `HEADER` bytes begins, and where the frame
    /// behind it begins. The header mostly is in the buffer already and is only read (see
    /// `Turn::store_plain`); the frame is written. One line that has both is prefetched once, for
    /// writing.
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

    /// Copies the first bytes into memory of the switch, as many as both have. Returns their
    /// number.
    #[inline(always)]
    pub fn read(self, kernels: impl Kernels, into: &mut [u8]) -> usize {
        let n = into.len().min(self.len as usize);
        // SAFETY: `n` bytes are valid on both sides: the segment by its type, the slice by its
        // borrow.
        unsafe { kernels.copy(into.as_mut_ptr(), self.at.as_ptr(), n) };
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), n);
        n
    }

    /// [`Self::read`] for bytes of a frame, which a build without copies leaves out: see
    /// [`COPIES`].
    #[inline(always)]
    pub(crate) fn read_frame(self, kernels: impl Kernels, into: &mut [u8]) -> usize {
        if COPIES { self.read(kernels, into) } else { into.len().min(self.len as usize) }
    }

    /// Returns the first 12 bytes, each loaded once. `None` if the segment is shorter.
    #[inline]
    pub fn read12(self) -> Option<[u8; 12]> {
        // SAFETY: the segment has the bytes.
        let bytes = (self.len >= 12).then(|| unsafe { straightline_simd::load12(self.at.as_ptr()) });
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), bytes.map_or(0, |bytes| bytes.len()));
        bytes
    }

    /// Returns the first 8 times `N` bytes as words in network byte order, each word by one load.
    /// `None` if the segment is shorter.
    #[inline(always)]
    pub fn read_words<const N: usize>(self) -> Option<[u64; N]> {
        if (self.len as usize) < 8 * N {
            return None;
        }
        // SAFETY: the segment has the bytes of all words.
        let word = |at: usize| u64::from_be_bytes(unsafe { straightline_simd::load8(self.at.as_ptr().add(8 * at)) });
        let words = std::array::from_fn(word);
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), 8 * N);
        Some(words)
    }

    /// Writes as [`Self::write`] does, for a few bytes that were just stored as words of 8 bytes.
    ///
    /// Each word is loaded and stored at once. A wider load would have to wait until all stores of
    /// its bytes have reached the cache, behind earlier stores that may still wait for their lines.
    #[inline(always)]
    pub fn write_words(self, kernels: impl Kernels, from: &[u8]) -> usize {
        let (words, rest) = from.as_chunks::<8>();
        if (self.len as usize) < from.len() || !rest.is_empty() {
            return self.write(kernels, from);
        }
        for (at, word) in words.iter().enumerate() {
            // SAFETY: the segment is as long as all words.
            unsafe { straightline_simd::store8(self.at.as_ptr().add(8 * at), *word) };
        }
        from.len()
    }

    /// Copies bytes of the switch to the beginning of the segment, as many as fit. Returns their
    /// number.
    #[inline(always)]
    pub fn write(self, kernels: impl Kernels, from: &[u8]) -> usize {
        let n = from.len().min(self.len as usize);
        // SAFETY: `n` bytes are valid on both sides: the segment by its type, the slice by its
        // borrow.
        unsafe { kernels.copy(self.at.as_ptr(), from.as_ptr(), n) };
        n
    }

    /// [`Self::write`] for bytes of a frame, which a build without copies leaves out: see
    /// [`COPIES`].
    #[inline(always)]
    pub(crate) fn write_frame(self, kernels: impl Kernels, from: &[u8]) -> usize {
        if COPIES { self.write(kernels, from) } else { from.len().min(self.len as usize) }
    }

    /// Stores two bytes of a frame at offset `at` by one store, if the segment is long enough. A
    /// build without copies leaves the store out: see [`COPIES`].
    #[inline(always)]
    pub(crate) fn put2(self, at: u32, bytes: [u8; 2]) {
        if COPIES && u64::from(self.len) >= u64::from(at) + 2 {
            // SAFETY: the segment has the bytes.
            unsafe { straightline_simd::store2(self.at.as_ptr().add(at as usize), bytes) };
        }
    }

    /// [`Self::put2`] with four bytes.
    #[inline(always)]
    pub(crate) fn put4(self, at: u32, bytes: [u8; 4]) {
        if COPIES && u64::from(self.len) >= u64::from(at) + 4 {
            // SAFETY: the segment has the bytes.
            unsafe { straightline_simd::store4(self.at.as_ptr().add(at as usize), bytes) };
        }
    }

    /// Copies bytes from another segment, as many as both have, and adds them to `sum` if there is
    /// one. The sum covers the stored bytes. The segments may overlap; the values of the shared
    /// bytes are then unspecified.
    #[inline(always)]
    pub fn copy_from(self, kernels: impl Kernels, from: MemorySegment<'_>, sum: Option<&mut Sum>) -> u32 {
        let n = from.len.min(self.len);
        if !COPIES {
            return n;
        }
        // SAFETY: `n` bytes are valid on both sides, by the type. The kernels allow overlap and
        // concurrent writers.
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

    /// Adds the bytes to `sum`. Each is loaded once. A build without copies leaves this out: see
    /// [`COPIES`].
    #[inline(always)]
    pub(crate) fn sum(self, kernels: impl Kernels, sum: &mut Sum) {
        if !COPIES {
            return;
        }
        // SAFETY: the bytes are valid, by the type. The kernel allows concurrent writers.
        unsafe { kernels.sum_shared(self.at.as_ptr(), self.len as usize, sum) };
        #[cfg(feature = "memory-double")]
        crate::double::loaded(self.at.as_ptr(), self.len as usize);
    }
}
