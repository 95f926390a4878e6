//! The kernels of `straightline-simd` for programs in C: users of DPDK or VPP.
//!
//! What it is: a static library (`libstraightline_simd_c.a`) and a header (`include/straightline_simd.h`, written by cbindgen;
//! a test says when it is old). A program asks once for the table of a set, and calls through it.
//!
//! What it is not: a way for Rust, which has the kernels themselves; and it knows no more of packets than they do.
//!
//! ```c
//! const struct sl_kernels *kernels = sl_kernels("auto");
//! struct sl_sum sum = {0};
//! kernels->copy_sum(to, from, len, &sum);
//! uint16_t checksum = htons(sl_sum_finish(&sum));
//! ```
//!
//! ```
//! // The same from Rust, to be seen to work.
//! let kernels = unsafe { &*straightline_simd_c::sl_kernels(c"auto".as_ptr()) };
//! let mut sum = straightline_simd_c::sl_sum::default();
//! unsafe { (kernels.sum)(b"\x12\x34".as_ptr().cast(), 2, &raw mut sum) };
//! assert_eq!(unsafe { straightline_simd_c::sl_sum_fold(&raw const sum) }, 0x1234);
//! ```
//!
//! # Safety of all functions here
//! C has no types to say it with: pointers are valid for what the header says of them.

#![allow(non_camel_case_types, reason = "names of C")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use straightline_simd::{Level, Sum, copy, copy_sum, sum};

/// A running Internet checksum (RFC 1071): of no bytes where all its fields are zero. Chunks of any lengths may be added
/// one after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct sl_sum {
    /// Not to be looked at.
    pub acc: u64,
    /// Whether the bytes so far are an odd number.
    pub odd: u8,
}

/// The kernels of one instruction set. It is never freed.
#[repr(C)]
#[derive(Debug)]
pub struct sl_kernels {
    /// Its name, such as "avx2".
    pub name: *const c_char,
    /// Copies `len` bytes. The ranges may overlap and be written by others meanwhile; then it is not said which
    /// bytes arrive.
    pub copy: unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, len: usize),
    /// Adds `len` bytes, which nobody else writes, to a sum.
    pub sum: unsafe extern "C" fn(src: *const c_void, len: usize, sum: *mut sl_sum),
    /// Copies as `copy` does, and adds the bytes that it stores to a sum, which lies in neither range.
    pub copy_sum: unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, len: usize, sum: *mut sl_sum),
}

// SAFETY: `name` points to a constant; nothing in a table is ever written.
unsafe impl Sync for sl_kernels {}

/// The kernels of the set of this name ("scalar", "sse2", "avx2", "avx512", "neon"), or of the best one for "auto" and for NULL.
/// NULL where this machine does not have it, and for any other name.
///
/// # Safety
/// `name` is NULL or a string that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_kernels(name: *const c_char) -> *const sl_kernels {
    let level = if name.is_null() {
        Some(Level::detect())
    } else {
        // SAFETY: a string by the caller's promise, and not kept.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok("auto") => Some(Level::detect()),
            Ok(name) => name.parse().ok(),
            Err(_) => None,
        }
    };
    level.and_then(table).map_or(ptr::null(), ptr::from_ref)
}

/// The sum folded to 16 bits, in the host's order.
///
/// # Safety
/// `sum` is a sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_sum_fold(sum: *const sl_sum) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { *sum }.load().fold()
}

/// The checksum that a header carries, in the host's order: the complement of the folded sum.
///
/// # Safety
/// `sum` is a sum.
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

/// A level's kernels as functions of C, and their table.
macro_rules! kernels {
    ($module:ident, $name:literal, $level:expr) => {
        mod $module {
            use super::*;

            unsafe extern "C" fn c_copy(dst: *mut c_void, src: *const c_void, len: usize) {
                // SAFETY: the table is handed out where the machine has the set; the pointers are the caller's promise.
                unsafe { copy($level, dst.cast(), src.cast(), len) }
            }

            unsafe extern "C" fn c_sum(src: *const c_void, len: usize, total: *mut sl_sum) {
                // SAFETY: as above. A slice of no bytes may not begin at NULL, as C's may.
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
        #[cfg(target_arch = "aarch64")]
        Level::Neon => Some(&neon::KERNELS),
        // C has its own.
        Level::Libc => None,
        #[cfg(target_arch = "x86_64")]
        Level::Movsb => None,
    }
}
