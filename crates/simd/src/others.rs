//! Copies for comparisons, beside that of the C library. The switch's own copy differs from each of
//! them in one thing; with AVX-512 it is `movsb_long`.
//!
//! | copy | difference |
//! |---|---|
//! | `movsb` | `rep movsb` at any length |
//! | `bytes` | one byte at a time, in a loop that no compiler replaces |
//! | `movsb_long` | `rep movsb` from `MOVSB_FROM` bytes on |
//! | `unaligned` | a long copy does not align the destination |
//! | `streaming` | from `STREAM_FROM` bytes on, stores past the caches; `store_fence` must follow |

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

#[cfg(target_arch = "x86_64")]
use crate::arch::Avx2Vector;
#[cfg(target_arch = "x86_64")]
pub(crate) use crate::arch::store_fence;
#[cfg(target_arch = "x86_64")]
use crate::generic;
use crate::vector::Vector;

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

/// Copies by `rep movsb`. If the destination begins inside the source, bytes are repeated, so the
/// bytes that arrive are unspecified.
///
/// # Safety
/// As for [`copy`](crate::copy()).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn movsb(dst: *mut u8, src: *const u8, len: usize) {
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

/// # Safety
/// As for [`copy`](crate::copy()), here and below.
#[inline(always)]
pub(crate) unsafe fn bytes(dst: *mut u8, src: *const u8, len: usize) {
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
pub(crate) unsafe fn unaligned(dst: *mut u8, src: *const u8, len: usize) {
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
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn streaming(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
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
