//! The public functions: a cheap choice by [`Level`], then a wrapper that turns the instruction set on.

use std::ptr;

use crate::generic;
use crate::level::Level;
use crate::sum::Sum;
use crate::vector::Vector;

#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2Vector, Sse2Vector};

/// Copies `len` bytes from `src` to `dst`.
///
/// The ranges may overlap, and other processes or threads may write either of them meanwhile: then it is not said
/// which bytes arrive, but no byte outside the ranges is touched. Each byte of the source is loaded once, each
/// byte of the destination is stored once. There is no order between the bytes, and no fence.
///
/// # Safety
/// - `src` is mapped and readable for `len` bytes, `dst` mapped and writable; neither range wraps round the end
///   of the address space. No alignment is needed. For a `len` of 0 any pointers will do.
/// - No live Rust reference covers a byte of `dst`, save one that `dst` was derived from, and no live `&mut`
///   covers a byte of `src` likewise.
#[inline]
pub unsafe fn copy(level: Level, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the level proves the instruction set; the pointers are the caller's promise.
    unsafe {
        match level {
            Level::Scalar => copy_scalar(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => copy_sse2(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => copy_avx2(dst, src, len),
        }
    }
}

/// Copies `len` bytes from `src` to `dst` as [`copy`] does, and appends the bytes stored to `sum`.
///
/// The sum covers the bytes that were *stored*, even if the source is written meanwhile or overlaps the
/// destination: each is loaded once, and both stored and summed from the register.
///
/// # Safety
/// As for [`copy`]; `sum` may not lie in either range, which its being a reference already says.
#[inline]
pub unsafe fn copy_sum(level: Level, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum) {
    // SAFETY: the level proves the instruction set; the pointers are the caller's promise.
    let partial = unsafe {
        match level {
            Level::Scalar => sum_scalar::<true>(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => sum_sse2::<true>(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => sum_avx2::<true>(dst, src, len),
        }
    };
    sum.append(partial, len);
}

/// Appends bytes that we own to `sum`.
#[inline]
pub fn sum(level: Level, bytes: &[u8], sum: &mut Sum) {
    let (dst, src, len) = (ptr::null_mut(), bytes.as_ptr(), bytes.len());
    // SAFETY: the level proves the instruction set; `src` is a slice, and nothing is stored without COPY.
    let partial = unsafe {
        match level {
            Level::Scalar => sum_scalar::<false>(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => sum_sse2::<false>(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => sum_avx2::<false>(dst, src, len),
        }
    };
    sum.append(partial, len);
}

/// Loads twelve bytes, each once.
///
/// # Safety
/// As for `src` of [`copy`].
#[inline(always)]
pub unsafe fn load12(src: *const u8) -> [u8; 12] {
    // SAFETY: words are on every machine; 8 and 4 bytes make the caller's 12.
    let (low, high) = unsafe { (u64::load(src), u32::load(src.wrapping_add(8))) };
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&low.to_ne_bytes());
    bytes[8..].copy_from_slice(&high.to_ne_bytes());
    bytes
}

unsafe fn copy_scalar(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every machine has words; the pointers are the caller's promise.
    unsafe { generic::copy::<u64>(dst, src, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
unsafe fn copy_sse2(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: SSE2 is on in this function; the pointers are the caller's promise.
    unsafe { generic::copy::<Sse2Vector>(dst, src, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_avx2(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: AVX2 is on in this function; the pointers are the caller's promise.
    unsafe { generic::copy::<Avx2Vector>(dst, src, len) }
}

unsafe fn sum_scalar<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: every machine has words; the pointers are the caller's promise.
    unsafe { generic::sum::<u64, COPY>(dst, src, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
unsafe fn sum_sse2<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: SSE2 is on in this function; the pointers are the caller's promise.
    unsafe { generic::sum::<Sse2Vector, COPY>(dst, src, len) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_avx2<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: AVX2 is on in this function; the pointers are the caller's promise.
    unsafe { generic::sum::<Avx2Vector, COPY>(dst, src, len) }
}
