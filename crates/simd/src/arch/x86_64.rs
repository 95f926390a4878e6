//! SSE2 and AVX2.
//!
//! The methods carry `#[target_feature]`, because `asm!` takes a vector register only where the feature is on.
//! They are inlined into the wrappers of `kernel.rs`, which carry the same feature.
//!
//! A sum keeps 64-bit lanes and adds the two 32-bit halves of each lane of data: 2^31 registers fit before a
//! lane overflows, far beyond the 64 KiB that are asked for. 2^16 is 1 modulo 0xffff, so 32-bit
//! words sum to the same as their 16-bit halves.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi64, _mm_and_si128, _mm_cvtsi128_si64, _mm_set1_epi64x, _mm_setzero_si128,
    _mm_srli_epi64, _mm_unpackhi_epi64, _mm256_add_epi64, _mm256_and_si256, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_srli_epi64,
};

use crate::sum::add_carry;
use crate::vector::Vector;

/// 16 bytes in the encoding of SSE2.
#[derive(Clone, Copy)]
pub(crate) struct Sse2Vector(__m128i);

/// 16 bytes in the encoding of AVX: mixing it with that of SSE2 would cost a transition on some machines.
#[derive(Clone, Copy)]
pub(crate) struct AvxHalf(__m128i);

/// 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Vector(__m256i);

/// The lower half of each 64-bit lane.
const LOW: i64 = 0xffff_ffff;

impl Vector for Sse2Vector {
    const BYTES: usize = 16;
    type Half = u64;
    type Acc = __m128i;

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn load(src: *const u8) -> Self {
        let v: __m128i;
        // SAFETY: one load of 16 bytes that the caller has promised to be readable; no stack, no flags.
        unsafe {
            asm!("movdqu {v}, xmmword ptr [{p}]", p = in(reg) src, v = lateout(xmm_reg) v,
                options(nostack, preserves_flags, readonly));
        }
        Self(v)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: one store of 16 bytes that the caller has promised to be writable; no stack, no flags.
        unsafe {
            asm!("movdqu xmmword ptr [{p}], {v}", p = in(reg) dst, v = in(xmm_reg) self.0,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn zero() -> __m128i {
        _mm_setzero_si128()
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn accumulate(self, acc: __m128i) -> __m128i {
        accumulate_128(self.0, acc)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn reduce(acc: __m128i) -> u64 {
        reduce_128(acc)
    }
}

impl Vector for AvxHalf {
    const BYTES: usize = 16;
    type Half = u64;
    type Acc = __m128i;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(src: *const u8) -> Self {
        let v: __m128i;
        // SAFETY: one load of 16 bytes that the caller has promised to be readable; no stack, no flags.
        unsafe {
            asm!("vmovdqu {v}, xmmword ptr [{p}]", p = in(reg) src, v = lateout(xmm_reg) v,
                options(nostack, preserves_flags, readonly));
        }
        Self(v)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: one store of 16 bytes that the caller has promised to be writable; no stack, no flags.
        unsafe {
            asm!("vmovdqu xmmword ptr [{p}], {v}", p = in(reg) dst, v = in(xmm_reg) self.0,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn zero() -> __m128i {
        _mm_setzero_si128()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn accumulate(self, acc: __m128i) -> __m128i {
        accumulate_128(self.0, acc)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn reduce(acc: __m128i) -> u64 {
        reduce_128(acc)
    }
}

impl Vector for Avx2Vector {
    const BYTES: usize = 32;
    type Half = AvxHalf;
    type Acc = __m256i;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(src: *const u8) -> Self {
        let v: __m256i;
        // SAFETY: one load of 32 bytes that the caller has promised to be readable; no stack, no flags.
        unsafe {
            asm!("vmovdqu {v}, ymmword ptr [{p}]", p = in(reg) src, v = lateout(ymm_reg) v,
                options(nostack, preserves_flags, readonly));
        }
        Self(v)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: one store of 32 bytes that the caller has promised to be writable; no stack, no flags.
        unsafe {
            asm!("vmovdqu ymmword ptr [{p}], {v}", p = in(reg) dst, v = in(ymm_reg) self.0,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn zero() -> __m256i {
        _mm256_setzero_si256()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn accumulate(self, acc: __m256i) -> __m256i {
        let low = _mm256_and_si256(self.0, _mm256_set1_epi64x(LOW));
        let high = _mm256_srli_epi64::<32>(self.0);
        _mm256_add_epi64(acc, _mm256_add_epi64(low, high))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn reduce(acc: __m256i) -> u64 {
        let low = _mm256_castsi256_si128(acc);
        let high = _mm256_extracti128_si256::<1>(acc);
        // Lanes of 64 KiB stay below 2^45, so two of them add without overflow.
        reduce_128(_mm_add_epi64(low, high))
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn accumulate_128(v: __m128i, acc: __m128i) -> __m128i {
    let low = _mm_and_si128(v, _mm_set1_epi64x(LOW));
    let high = _mm_srli_epi64::<32>(v);
    _mm_add_epi64(acc, _mm_add_epi64(low, high))
}

#[inline]
#[target_feature(enable = "sse2")]
fn reduce_128(acc: __m128i) -> u64 {
    let low = _mm_cvtsi128_si64(acc).cast_unsigned();
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(acc, acc)).cast_unsigned();
    add_carry(low, high)
}
