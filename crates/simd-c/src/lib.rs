//! Kernels of `straightline-simd` for C programs, such as users of DPDK or VPP.
//!
//! The crate builds a static library, `libstraightline_simd_c.a`. Its header is
//! `include/straightline_simd.h`. cbindgen generates the header, and a test fails if the header is
//! outdated. A program asks once for the table of an instruction set, and calls the kernels through
//! the table.
//!
//! This crate is not for Rust programs, which use `straightline-simd` itself. Like the kernels, it
//! knows nothing about packets.
//!
//! ```c
//! const struct sl_kernels *kernels = sl_kernels("auto");
//! struct sl_sum sum = {0};
//! kernels->copy_sum(to, from, len, &sum);
//! uint16_t checksum = htons(sl_sum_finish(&sum));
//! ```
//!
//! ```
//! // The same from Rust, as a test of the C interface.
//! let kernels = unsafe { &*straightline_simd_c::sl_kernels(c"auto".as_ptr()) };
//! let mut sum = straightline_simd_c::sl_sum::default();
//! unsafe { (kernels.sum)(b"\x12\x34".as_ptr().cast(), 2, &raw mut sum) };
//! assert_eq!(unsafe { straightline_simd_c::sl_sum_fold(&raw const sum) }, 0x1234);
//! ```
//!
//! # Safety of all functions here
//! C has no types that express validity. Each pointer must be valid for the use that the header
//! describes.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]
#![allow(non_camel_case_types, reason = "names of C")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use straightline_simd::{Level, Sum, copy, copy_sum, sum};

/// Running Internet checksum (RFC 1071). A structure of zeros is the sum of no bytes. Chunks of any
/// length may be added one after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct sl_sum {
    /// Internal value. Do not read or change it.
    pub acc: u64,
    /// 1 if the number of bytes so far is odd, else 0.
    pub odd: u8,
}

/// Kernels of one instruction set. The table is never freed.
#[repr(C)]
#[derive(Debug)]
pub struct sl_kernels {
    /// Name of the instruction set, such as "avx2".
    pub name: *const c_char,
    /// Copies `len` bytes. The ranges may overlap, and others may write them at the same time. The
    /// bytes that arrive are then unspecified.
    pub copy: unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, len: usize),
    /// Adds `len` bytes to a sum. No other thread may write these bytes at the same time.
    pub sum: unsafe extern "C" fn(src: *const c_void, len: usize, sum: *mut sl_sum),
    /// Copies as `copy` does, and adds the stored bytes to a sum. The sum must not lie in either
    /// range.
    pub copy_sum: unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, len: usize, sum: *mut sl_sum),
}

// SAFETY: `name` points to a constant, and no table is ever written.
unsafe impl Sync for sl_kernels {}

/// Returns the kernels of an instruction set by its name: "scalar", "sse2", "avx2", "avx512",
/// "avx512-copies" or "neon". "auto" and NULL mean the best set. Returns NULL if this machine does not have the set,
/// and for any other name.
///
/// # Safety
/// `name` is NULL or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_kernels(name: *const c_char) -> *const sl_kernels {
    let level = if name.is_null() {
        Some(Level::detect())
    } else {
        // SAFETY: a string by the caller's promise; it is not kept.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok("auto") => Some(Level::detect()),
            Ok(name) => name.parse().ok(),
            Err(_) => None,
        }
    };
    level.and_then(table).map_or(ptr::null(), ptr::from_ref)
}

/// Returns the sum folded to 16 bits, in host byte order.
///
/// # Safety
/// `sum` points to a valid sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_sum_fold(sum: *const sl_sum) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { *sum }.load().fold()
}

/// Returns the checksum for a header, in host byte order: the complement of the folded sum.
///
/// # Safety
/// `sum` points to a valid sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_sum_finish(sum: *const sl_sum) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { *sum }.load().finish()
}

impl sl_sum {
    fn load(self) -> Sum {
        Sum::from_parts(self.acc, self.odd != 0)
    }

    fn store(&mut self, sum: Sum) {
        let (acc, odd) = sum.into_parts();
        *self = Self { acc, odd: odd.into() };
    }
}

/// Defines the kernels of a level as C functions, and their table.
macro_rules! kernels {
    ($module:ident, $name:literal, $level:expr) => {
        mod $module {
            use super::*;

            unsafe extern "C" fn c_copy(dst: *mut c_void, src: *const c_void, len: usize) {
                // SAFETY: the table is returned only if the machine has the set; the pointers are
                // the caller's promise.
                unsafe { copy($level, dst.cast(), src.cast(), len) }
            }

            unsafe extern "C" fn c_sum(src: *const c_void, len: usize, total: *mut sl_sum) {
                // SAFETY: as above. C may pass NULL for no bytes, but a slice may not begin at
                // NULL.
                unsafe {
                    let bytes = if len == 0 { &[] } else { std::slice::from_raw_parts(src.cast(), len) };
                    let mut running = (*total).load();
                    sum($level, bytes, &mut running);
                    (*total).store(running);
                }
            }

            unsafe extern "C" fn c_copy_sum(dst: *mut c_void, src: *const c_void, len: usize, total: *mut sl_sum) {
                // SAFETY: as above.
                unsafe {
                    let mut running = (*total).load();
                    copy_sum($level, dst.cast(), src.cast(), len, &mut running);
                    (*total).store(running);
                }
            }

            pub(super) static KERNELS: sl_kernels =
                sl_kernels { name: $name.as_ptr(), copy: c_copy, sum: c_sum, copy_sum: c_copy_sum };
        }
    };
}

kernels!(scalar, c"scalar", Level::Scalar);
#[cfg(target_arch = "x86_64")]
kernels!(sse2, c"sse2", Level::Sse2);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, c"avx2", Level::Avx2(straightline_simd::Avx2::new_unchecked()));
#[cfg(target_arch = "x86_64")]
kernels!(avx512, c"avx512", Level::Avx512(straightline_simd::Avx512::new_unchecked()));
#[cfg(target_arch = "x86_64")]
kernels!(avx512_copies, c"avx512-copies", Level::Avx512Copies(straightline_simd::Avx512::new_unchecked()));
#[cfg(target_arch = "aarch64")]
kernels!(neon, c"neon", Level::Neon);

fn table(level: Level) -> Option<&'static sl_kernels> {
    match level {
        Level::Scalar => Some(&scalar::KERNELS),
        #[cfg(target_arch = "x86_64")]
        Level::Sse2 => Some(&sse2::KERNELS),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => Some(&avx2::KERNELS),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => Some(&avx512::KERNELS),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Copies(_) => Some(&avx512_copies::KERNELS),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => Some(&neon::KERNELS),
        // C programs have the most important one, `memmove`, already.
        Level::Compared(_) => None,
    }
}
