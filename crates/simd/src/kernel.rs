//! Public functions: a cheap choice by [`Level`], then a wrapper that enables the instruction set.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

#[cfg(target_arch = "x86_64")]
use crate::comparison;
use crate::generic::Algorithms;
use crate::level::Level;
use crate::sum::Sum;
use crate::vector::Vector;

#[cfg(target_arch = "aarch64")]
use crate::arch::NeonVector;
#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2Vector, Sse2Vector};
#[cfg(target_arch = "x86_64")]
use crate::wide::Avx512All;

/// Copies `len` bytes from `src` to `dst`.
///
/// The ranges may overlap, and other processes or threads may write either of them at the same
/// time. The bytes that arrive are then unspecified, but no byte outside the ranges is touched. A
/// byte may be loaded and stored more than once; its last store determines its value. There is no
/// order between the bytes, and no fence.
///
/// # Safety
/// - `src` is mapped and readable for `len` bytes, and `dst` is mapped and writable. Neither range
///   wraps around the end of the address space. No alignment is needed. If `len` is 0, any pointers
///   are allowed.
/// - No live Rust reference covers a byte of `dst`, except one from which `dst` was derived. In the
///   same way, no live `&mut` covers a byte of `src`.
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
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => copy_movsb_long(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Copies(_) => copy_avx512(dst, src, len),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => copy_neon(dst, src, len),
            Level::Compared(comparison) => comparison.copy(dst, src, len),
        }
    }
}

/// Copies `len` bytes from `src` to `dst` as [`copy`] does, and appends the bytes stored to `sum`.
///
/// The sum covers the bytes that were *stored*, even if the source is written at the same time or
/// overlaps the destination. Each byte is loaded once, then stored and summed from the register.
///
/// # Safety
/// As for [`copy`]. `sum` may not lie in either range; this follows from `sum` being a reference.
#[inline]
pub unsafe fn copy_sum(level: Level, dst: *mut u8, src: *const u8, len: usize, sum: &mut Sum) {
    // SAFETY: the level proves the instruction set; the pointers are the caller's promise.
    let partial = unsafe {
        match level {
            Level::Scalar => copy_sum_scalar(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => copy_sum_sse2(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => copy_sum_avx2(dst, src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) | Level::Avx512Copies(_) => copy_sum_avx512(dst, src, len),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => copy_sum_neon(dst, src, len),
            Level::Compared(_) => return copy_sum(Level::detect(), dst, src, len, sum),
        }
    };
    sum.append(partial, len);
}

/// Appends `bytes` to `sum`.
#[inline]
pub fn sum(level: Level, bytes: &[u8], sum: &mut Sum) {
    let src = bytes.as_ptr();
    let len = bytes.len();
    // SAFETY: the level proves the instruction set; `src` and `len` are a slice's.
    let partial = unsafe {
        match level {
            Level::Scalar => sum_scalar(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => sum_sse2(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => sum_avx2(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) | Level::Avx512Copies(_) => sum_avx512(src, len),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => sum_neon(src, len),
            Level::Compared(_) => return self::sum(Level::detect(), bytes, sum),
        }
    };
    sum.append(partial, len);
}

/// Appends `len` bytes from `src` on to `sum`. Other processes or threads may write them at the same
/// time, so each byte is loaded once. For bytes that no one else writes, [`sum`] is faster.
///
/// # Safety
/// As for `src` of [`copy`].
#[inline]
pub unsafe fn sum_shared(level: Level, src: *const u8, len: usize, sum: &mut Sum) {
    // SAFETY: the level proves the instruction set; the pointer is the caller's promise.
    let partial = unsafe {
        match level {
            Level::Scalar => sum_shared_scalar(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => sum_shared_sse2(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => sum_shared_avx2(src, len),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) | Level::Avx512Copies(_) => sum_shared_avx512(src, len),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => sum_shared_neon(src, len),
            Level::Compared(_) => return sum_shared(Level::detect(), src, len, sum),
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
    // SAFETY: every machine has words; 8 and 4 bytes are the caller's 12.
    let (low, high) = unsafe { (u64::load(src), u32::load(src.wrapping_add(8))) };
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&low.to_ne_bytes());
    bytes[8..].copy_from_slice(&high.to_ne_bytes());
    bytes
}

/// Loads eight bytes by one load.
///
/// # Safety
/// As for `src` of [`copy`].
#[inline(always)]
pub unsafe fn load8(src: *const u8) -> [u8; 8] {
    // SAFETY: every machine has words; the eight bytes are the caller's.
    unsafe { u64::load(src) }.to_ne_bytes()
}

/// Stores two bytes by one store.
///
/// # Safety
/// As for `dst` of [`copy`].
#[inline(always)]
pub unsafe fn store2(dst: *mut u8, bytes: [u8; 2]) {
    // SAFETY: every machine has words; the two bytes are the caller's.
    unsafe { u16::from_ne_bytes(bytes).store(dst) }
}

/// Stores four bytes by one store.
///
/// # Safety
/// As for `dst` of [`copy`].
#[inline(always)]
pub unsafe fn store4(dst: *mut u8, bytes: [u8; 4]) {
    // SAFETY: every machine has words; the four bytes are the caller's.
    unsafe { u32::from_ne_bytes(bytes).store(dst) }
}

/// Stores eight bytes by one store.
///
/// # Safety
/// As for `dst` of [`copy`].
#[inline(always)]
pub unsafe fn store8(dst: *mut u8, bytes: [u8; 8]) {
    // SAFETY: every machine has words; the eight bytes are the caller's.
    unsafe { u64::from_ne_bytes(bytes).store(dst) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn copy_movsb_long(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the instruction set is enabled in this function; the pointers are the caller's promise.
    unsafe { comparison::movsb_long(dst, src, len) }
}

/// Defines the kernels of one instruction set.
macro_rules! wrappers {
    ($(#[$attribute:meta])* $set:ty: $copy:ident, $sum:ident, $copy_sum:ident, $sum_shared:ident) => {
        #[inline]
        $(#[$attribute])*
        pub(crate) unsafe fn $copy(dst: *mut u8, src: *const u8, len: usize) {
            // SAFETY: the instruction set is enabled in this function; the pointers are the
            // caller's promise.
            unsafe { <$set>::copy(dst, src, len) }
        }

        #[inline]
        $(#[$attribute])*
        pub(crate) unsafe fn $sum(src: *const u8, len: usize) -> u64 {
            // SAFETY: as above.
            unsafe { <$set>::sum(src, len) }
        }

        #[inline]
        $(#[$attribute])*
        pub(crate) unsafe fn $copy_sum(dst: *mut u8, src: *const u8, len: usize) -> u64 {
            // SAFETY: as above.
            unsafe { <$set>::copy_sum(dst, src, len) }
        }

        #[inline]
        $(#[$attribute])*
        pub(crate) unsafe fn $sum_shared(src: *const u8, len: usize) -> u64 {
            // SAFETY: as above.
            unsafe { <$set>::sum_shared(src, len) }
        }
    };
}

wrappers!(u64: copy_scalar, sum_scalar, copy_sum_scalar, sum_shared_scalar);
wrappers!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse2")]
    Sse2Vector: copy_sse2, sum_sse2, copy_sum_sse2, sum_shared_sse2
);
wrappers!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    Avx2Vector: copy_avx2, sum_avx2, copy_sum_avx2, sum_shared_avx2
);
wrappers!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2")]
    Avx512All: copy_avx512, sum_avx512, copy_sum_avx512, sum_shared_avx512
);
wrappers!(
    #[cfg(target_arch = "aarch64")]
    NeonVector: copy_neon, sum_neon, copy_sum_neon, sum_shared_neon
);
