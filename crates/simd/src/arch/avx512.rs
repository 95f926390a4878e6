//! AVX-512 with its byte masks and its dot product (BW, VNNI), in registers of 64 bytes.
//!
//! `vpdpwssd` multiplies 16-bit words by one and adds both products of a lane to the lane of 32 bits.
//! It treats the words as signed. So the highest bit of each word is flipped first, as the file
//! `x86_64.rs` says. This takes two instructions a register, where AVX2 takes three for half of it.
//!
//! A load with a mask reads the bytes of the mask alone, and a store with it writes no other.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, __mmask64, _mm512_add_epi32, _mm512_dpwssd_epi32, _mm512_reduce_add_epi32, _mm512_set1_epi16,
    _mm512_setzero_si512, _mm512_xor_si512,
};

use super::x86_64::Avx512Vector;

/// Loads `n` bytes and zeros behind them; `n` is below 64.
///
/// # Safety
/// The machine has the set, and `src` is readable for `n` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn load_part(src: *const u8, n: usize) -> Avx512Vector {
    let v: __m512i;
    // SAFETY: one load of the bytes of the mask, which the caller has promised to be readable; no
    // stack, no flags.
    unsafe {
        asm!("vmovdqu8 {v}{{{k}}}{{z}}, zmmword ptr [{p}]", p = in(reg) src, k = in(kreg) mask(n), v = lateout(zmm_reg) v,
            options(nostack, preserves_flags, readonly));
    }
    Avx512Vector(v)
}

/// Stores the first `n` bytes; `n` is below 64.
///
/// # Safety
/// The machine has the set, and `dst` is writable for `n` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn store_part(v: Avx512Vector, dst: *mut u8, n: usize) {
    // SAFETY: one store of the bytes of the mask, which the caller has promised to be writable; no
    // stack, no flags.
    unsafe {
        asm!("vmovdqu8 zmmword ptr [{p}]{{{k}}}, {v}", p = in(reg) dst, k = in(kreg) mask(n), v = in(zmm_reg) v.0,
            options(nostack, preserves_flags));
    }
}

fn mask(n: usize) -> __mmask64 {
    !(!0 << n)
}

/// Partial sum in lanes of 32 bits, less 2^15 for each word.
#[derive(Clone, Copy)]
pub(crate) struct WordSum(__m512i);

impl WordSum {
    /// Returns the empty sum.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn zero() -> Self {
        Self(_mm512_setzero_si512())
    }

    /// Adds the words of a register.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(crate) fn join(self, v: Avx512Vector) -> Self {
        let flipped = _mm512_xor_si512(v.0, _mm512_set1_epi16(i16::MIN));
        Self(_mm512_dpwssd_epi32(self.0, flipped, _mm512_set1_epi16(1)))
    }

    /// Reduces two sums of `registers` registers together to one number, as
    /// [`Vector::reduce`](crate::vector::Vector::reduce) does. The registers have 64 KiB at most, and
    /// two registers more of zeros.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn reduce(self, other: Self, registers: usize) -> u64 {
        // All lanes together are between -2^31 and 2^31: 64 KiB have 2^15 words of at most 2^15, and
        // the zeros are 2^6 words. What flipping has subtracted is added again.
        let lanes = i64::from(_mm512_reduce_add_epi32(_mm512_add_epi32(self.0, other.0)));
        lanes.cast_unsigned().wrapping_add(((registers * 32) << 15) as u64)
    }
}
