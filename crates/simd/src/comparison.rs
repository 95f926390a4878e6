//! Copies for comparisons. The switch's own copy differs from each of them in one thing; with AVX-512
//! it is `movsb_long`.
//!
//! | copy | difference |
//! |---|---|
//! | `libc` | `memmove` of the C library |
//! | `movsb` | `rep movsb` at any length |
//! | `bytes` | one byte at a time, in a loop that no compiler replaces |
//! | `movsb_long` | `rep movsb` from `MOVSB_FROM` bytes on |
//! | `unaligned` | a long copy does not align the destination |
//! | `streaming` | from `STREAM_FROM` bytes on, stores past the caches; `store_fence` must follow |

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::ffi::c_void;
use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2Vector, store_fence};
#[cfg(target_arch = "x86_64")]
use crate::generic;
#[cfg(target_arch = "x86_64")]
use crate::tokens::Avx2;
use crate::vector::Vector;

/// A copy that the switch's own is compared with. On x86-64 a value proves that the machine has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    way: Way,
    #[cfg(target_arch = "x86_64")]
    _proof: Avx2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Libc,
    Bytes,
    #[cfg(target_arch = "x86_64")]
    Movsb,
    #[cfg(target_arch = "x86_64")]
    MovsbLong,
    #[cfg(target_arch = "x86_64")]
    Unaligned,
    #[cfg(target_arch = "x86_64")]
    Streaming,
}

impl Comparison {
    /// Returns all comparisons of this machine.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let ways = [Way::Libc, Way::Bytes, Way::Movsb, Way::MovsbLong, Way::Unaligned, Way::Streaming];
        Avx2::detect().into_iter().flat_map(move |proof| ways.map(|way| Comparison { way, _proof: proof }))
    }

    /// Returns all comparisons of this machine.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Way::Libc, Way::Bytes].into_iter().map(|way| Comparison { way })
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self.way {
            Way::Libc => "libc",
            Way::Bytes => "bytes",
            #[cfg(target_arch = "x86_64")]
            Way::Movsb => "movsb",
            #[cfg(target_arch = "x86_64")]
            Way::MovsbLong => "movsb-long",
            #[cfg(target_arch = "x86_64")]
            Way::Unaligned => "unaligned",
            #[cfg(target_arch = "x86_64")]
            Way::Streaming => "streaming",
        }
    }

    /// Copies in this way, inlined into a caller that is compiled for AVX2 where the machine has it.
    ///
    /// # Safety
    /// As for [`copy`](crate::copy()). After the last copy, [`Self::end`] must be called.
    #[inline(always)]
    pub(crate) unsafe fn copy_inlined(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise, and the proof of AVX2.
        unsafe {
            match self.way {
                Way::Libc => libc(dst, src, len),
                Way::Bytes => bytes(dst, src, len),
                #[cfg(target_arch = "x86_64")]
                Way::Movsb => movsb(dst, src, len),
                #[cfg(target_arch = "x86_64")]
                Way::MovsbLong => movsb_long(dst, src, len),
                #[cfg(target_arch = "x86_64")]
                Way::Unaligned => unaligned(dst, src, len),
                #[cfg(target_arch = "x86_64")]
                Way::Streaming => streaming(dst, src, len),
            }
        }
    }

    /// Orders the stores of copies before all later ones.
    #[inline]
    pub(crate) fn end(self) {
        #[cfg(target_arch = "x86_64")]
        if self.way == Way::Streaming {
            store_fence();
        }
    }

    /// Copies in this way, from a caller that is compiled for the baseline.
    ///
    /// # Safety
    /// As for [`copy`](crate::copy()).
    #[inline]
    pub(crate) unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise, and the proof of AVX2.
        unsafe { enabled(self, dst, src, len) };
        self.end();
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn enabled(copy: Comparison, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy.copy_inlined(dst, src, len) }
}

/// Length from which [`movsb_long`] takes `rep movsb`. On Zen 5 both were equal at 4096 bytes, and it
/// took 0.7 of the time at 16 384 (docs/experiments/memcpy.md).
#[cfg(target_arch = "x86_64")]
const MOVSB_FROM: usize = 8192;

/// Length from which [`streaming`] stores past the caches: four lines. Most of a shorter copy would
/// be its begin and its end.
#[cfg(target_arch = "x86_64")]
const STREAM_FROM: usize = 256;

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

unsafe extern "C" {
    fn memmove(dst: *mut c_void, src: *const c_void, len: usize) -> *mut c_void;
}

/// Copies by `memmove` of the C library. It allows overlap, and in glibc it is the same code as
/// `memcpy`.
///
/// # Safety
/// As for [`copy`](crate::copy()), here and below.
unsafe fn libc(dst: *mut u8, src: *const u8, len: usize) {
    // The compiler must not recognise `memmove`: a call that it recognises implies that no one else
    // writes the bytes.
    let memmove: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = black_box(memmove);
    // SAFETY: the pointers are the caller's promise. If bytes change during the call, each
    // instruction of `memmove` loads some value. `memmove` takes no decision by these values.
    unsafe { memmove(dst.cast(), src.cast(), len) };
}

/// Copies by `rep movsb`. If the destination begins inside the source, bytes are repeated, so the
/// bytes that arrive are unspecified.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn movsb(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every x86-64 processor has the instruction. It accesses the bytes that the caller
    // promises, in ascending order, because the direction flag is clear wherever Rust code runs.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
unsafe fn bytes(dst: *mut u8, src: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: every machine has bytes, and `len` covers this one.
        unsafe { u8::load(src.wrapping_add(at)).store(dst.wrapping_add(at)) };
    }
}

/// Callers are compiled for AVX2, here and below: a call would cost as much as a short copy.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn movsb_long(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise, for either copy.
    unsafe {
        if len < MOVSB_FROM {
            generic::copy::<Avx2Vector>(dst, src, len);
        } else {
            movsb(dst, src, len);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn unaligned(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise, for either copy.
    unsafe {
        if len > 8 * Avx2Vector::BYTES {
            generic::copy_unaligned::<Avx2Vector>(dst, src, len);
        } else {
            generic::copy::<Avx2Vector>(dst, src, len);
        }
    }
}

/// Whole lines of the destination are stored past the caches, and the parts of lines at both ends by
/// the usual copy. No byte is stored in both ways.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn streaming(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    const STEP: usize = 4 * Avx2Vector::BYTES;
    if len >= STREAM_FROM {
        let begin = dst.addr().wrapping_neg() % LINE;
        // SAFETY: `begin` is below a line, and `len` above one. Then `dst` is aligned, and each step
        // ends within `len`.
        unsafe {
            generic::copy::<Avx2Vector>(dst, src, begin);
            (dst, src, len) = (dst.wrapping_add(begin), src.wrapping_add(begin), len - begin);
            while len >= STEP {
                Avx2Vector::stream4(Avx2Vector::load4(src), dst);
                (dst, src, len) = (dst.wrapping_add(STEP), src.wrapping_add(STEP), len - STEP);
            }
        }
    }
    // SAFETY: `len` bytes are left.
    unsafe { generic::copy::<Avx2Vector>(dst, src, len) };
}
