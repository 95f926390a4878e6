//! The kernels of AVX-512: sums in registers of 64 bytes from some length on, and below it the
//! algorithms of `generic.rs` for AVX2.
//!
//! ```text
//! sum, copy_sum, sum_shared
//!   the begin:   fewer than 64 bytes, up to where the destination (or the source of a sum) is
//!                aligned: an access across two cache lines costs as much as two
//!   the middle:  4 registers at a time, then 1
//!   the end:     fewer than 64 bytes
//! ```
//!
//! The begin and the end take one access each, of any length: a mask says which bytes it has. Each
//! byte is loaded once, and stored once. The lengths are those from which this was faster on the
//! processors that were measured (docs/benchmarks/trials.md).

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use crate::arch::avx512::{WordSum, load_part, store_part};
use crate::arch::{Avx2Vector, Avx512Vector};
use crate::comparison;
use crate::generic::{self, Algorithms};
use crate::sum::add_carry;
use crate::vector::Vector;

/// Copies by AVX2, and long ones by `rep movsb`; sums by AVX-512.
pub(crate) struct Avx512Sums;

/// Copies and sums by AVX-512.
pub(crate) struct Avx512All;

/// Bytes of a register.
const BYTES: usize = 64;

/// Most bytes in a partial sum, so that no lane overflows.
const BLOCK: usize = 1 << 16;

/// Length from which the begin is worth its time.
const LONG: usize = 2048;

/// Length from which a sum takes registers of 64 bytes.
const SUM: usize = 128;

/// Length from which a copy with a sum, or a sum of bytes that others write, takes them.
const COPY_SUM: usize = 128;

impl Algorithms for Avx512Sums {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: passed on, here and below.
        unsafe { comparison::movsb_long(dst, src, len) }
    }

    #[inline(always)]
    unsafe fn sum(src: *const u8, len: usize) -> u64 {
        if len < SUM {
            // SAFETY: as above.
            unsafe { generic::sum::<Avx2Vector>(src, len) }
        } else {
            // SAFETY: as above. Nothing is stored.
            unsafe { sum_once::<false>(src.cast_mut(), src, len) }
        }
    }

    #[inline(always)]
    unsafe fn copy_sum(dst: *mut u8, src: *const u8, len: usize) -> u64 {
        if len < COPY_SUM {
            // SAFETY: as above.
            unsafe { generic::copy_sum::<Avx2Vector>(dst, src, len) }
        } else {
            // SAFETY: as above.
            unsafe { sum_once::<true>(dst, src, len) }
        }
    }

    #[inline(always)]
    unsafe fn sum_shared(src: *const u8, len: usize) -> u64 {
        if len < COPY_SUM {
            // SAFETY: as above.
            unsafe { generic::sum_shared::<Avx2Vector>(src, len) }
        } else {
            // SAFETY: as above. Nothing is stored.
            unsafe { sum_once::<false>(src.cast_mut(), src, len) }
        }
    }
}

impl Algorithms for Avx512All {
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: passed on, here and below.
        unsafe { generic::copy::<Avx512Vector>(dst, src, len) }
    }

    #[inline(always)]
    unsafe fn sum(src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { Avx512Sums::sum(src, len) }
    }

    #[inline(always)]
    unsafe fn copy_sum(dst: *mut u8, src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { Avx512Sums::copy_sum(dst, src, len) }
    }

    #[inline(always)]
    unsafe fn sum_shared(src: *const u8, len: usize) -> u64 {
        // SAFETY: as above.
        unsafe { Avx512Sums::sum_shared(src, len) }
    }
}

/// Returns the sum of `len` bytes, each loaded once. With `STORE`, stores each of them once.
///
/// # Safety
/// The machine has the set. `src` is readable for `len` bytes, and with `STORE`, `dst` is writable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn sum_once<const STORE: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    while len > BLOCK {
        // SAFETY: `len` covers the block, which has an even number of bytes.
        total = add_carry(total, unsafe { sum_block::<STORE>(dst, src, BLOCK) });
        (dst, src, len) = (dst.wrapping_add(BLOCK), src.wrapping_add(BLOCK), len - BLOCK);
    }
    // SAFETY: `len` bytes are left.
    add_carry(total, unsafe { sum_block::<STORE>(dst, src, len) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn sum_block<const STORE: bool>(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut acc = WordSum::zero();
    let mut other = WordSum::zero();
    let mut registers = 0;
    // SAFETY: each step accesses bytes only if `len`, the number of bytes left, covers them. The rest
    // is the caller's promise.
    unsafe {
        if len >= LONG {
            // An even number of bytes, so that words stay words.
            let at = if STORE { dst.addr() } else { src.addr() };
            let begin = (at.wrapping_neg() % BYTES) & !1;
            let v = load_part(src, begin);
            if STORE {
                store_part(v, dst, begin);
            }
            acc = acc.join(v);
            registers += 1;
            (dst, src, len) = (dst.wrapping_add(begin), src.wrapping_add(begin), len - begin);
        }
        while len >= 4 * BYTES {
            let [a, b, c, d] = Avx512Vector::load4(src);
            if STORE {
                Avx512Vector::store4([a, b, c, d], dst);
            }
            acc = acc.join(a).join(b);
            other = other.join(c).join(d);
            registers += 4;
            (dst, src, len) = (dst.wrapping_add(4 * BYTES), src.wrapping_add(4 * BYTES), len - 4 * BYTES);
        }
        while len >= BYTES {
            let v = Avx512Vector::load(src);
            if STORE {
                v.store(dst);
            }
            acc = acc.join(v);
            registers += 1;
            (dst, src, len) = (dst.wrapping_add(BYTES), src.wrapping_add(BYTES), len - BYTES);
        }
        if len > 0 {
            let v = load_part(src, len);
            if STORE {
                store_part(v, dst, len);
            }
            other = other.join(v);
            registers += 1;
        }
    }
    acc.reduce(other, registers)
}
