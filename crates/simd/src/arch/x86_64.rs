//! SSE2, AVX2 and AVX-512, all from one pattern: what differs between them is a register's name and length.
//!
//! The methods carry `#[target_feature]`, because `asm!` takes a vector register only where the feature is on.
//! They are inlined into the wrappers of `kernel.rs`, which carry the same feature.
//!
//! A sum takes each 64-bit lane as two halves of 32 bits; 2^16 is 1 modulo 0xffff, so 32-bit words sum to the same as
//! their 16-bit halves. It adds up two things: the lanes as they are, modulo 2^64, and the high halves alone, which
//! is one instruction less a register than to add up both halves by themselves. The sum of the low halves is
//! the first less 2^32 times the second, exactly, since it is below 2^64.
//!
//! AVX-512 has not been run on any machine of ours: see `Level::Avx512`.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_add_epi64, _mm_and_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_setzero_si128,
    _mm_slli_epi64, _mm_srli_epi64, _mm_sub_epi64, _mm_unpackhi_epi64, _mm256_add_epi64, _mm256_and_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_slli_epi64,
    _mm256_srli_epi64, _mm256_sub_epi64, _mm512_add_epi64, _mm512_and_si512, _mm512_castsi512_si256,
    _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_sub_epi64,
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

/// 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vector(__m512i);

/// Lanes of 64 bits: their sum modulo 2^64, and the sum of their high halves.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<R> {
    whole: R,
    high: R,
}

/// As many zeros as the longest register has bytes, and then as many ones: a register's length from some place in it
/// is a mask for the last bytes.
static MASKS: [u8; 128] = {
    let mut masks = [0; 128];
    let mut i = 64;
    while i < 128 {
        masks[i] = 0xff;
        i += 1;
    }
    masks
};

macro_rules! vector {
    (
        $vector:ty, $half:ty, $register:ty, $bytes:literal, $feature:literal,
        class: $class:ident, move: $move:literal, pointer: $pointer:literal,
        zero: $zero:ident, load: $load:ident, and: $and:ident, add: $add:ident, sub: $sub:ident,
        left: $left:ident, right: $right:ident, lanes: $lanes:ident
    ) => {
        impl Vector for $vector {
            const BYTES: usize = $bytes;
            type Half = $half;
            type Acc = Lanes<$register>;

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn load(src: *const u8) -> Self {
                let v: $register;
                // SAFETY: one load of bytes that the caller has promised to be readable; no stack, no flags.
                unsafe {
                    asm!(concat!($move, " {v}, ", $pointer, " ptr [{p}]"), p = in(reg) src, v = lateout($class) v,
                        options(nostack, preserves_flags, readonly));
                }
                Self(v)
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn store(self, dst: *mut u8) {
                // SAFETY: one store of bytes that the caller has promised to be writable; no stack, no flags.
                unsafe {
                    asm!(concat!($move, " ", $pointer, " ptr [{p}], {v}"), p = in(reg) dst, v = in($class) self.0,
                        options(nostack, preserves_flags));
                }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn load4(src: *const u8) -> [Self; 4] {
                let (a, b, c, d): ($register, $register, $register, $register);
                // SAFETY: four loads of bytes that the caller has promised to be readable; no stack, no flags.
                unsafe {
                    asm!(
                        concat!($move, " {a}, ", $pointer, " ptr [{p}]"),
                        concat!($move, " {b}, ", $pointer, " ptr [{p} + ", $bytes, "]"),
                        concat!($move, " {c}, ", $pointer, " ptr [{p} + 2*", $bytes, "]"),
                        concat!($move, " {d}, ", $pointer, " ptr [{p} + 3*", $bytes, "]"),
                        p = in(reg) src, a = out($class) a, b = out($class) b, c = out($class) c, d = lateout($class) d,
                        options(nostack, preserves_flags, readonly));
                }
                [Self(a), Self(b), Self(c), Self(d)]
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn store4([a, b, c, d]: [Self; 4], dst: *mut u8) {
                // SAFETY: four stores of bytes that the caller has promised to be writable; no stack, no flags.
                unsafe {
                    asm!(
                        concat!($move, " ", $pointer, " ptr [{p}], {a}"),
                        concat!($move, " ", $pointer, " ptr [{p} + ", $bytes, "], {b}"),
                        concat!($move, " ", $pointer, " ptr [{p} + 2*", $bytes, "], {c}"),
                        concat!($move, " ", $pointer, " ptr [{p} + 3*", $bytes, "], {d}"),
                        p = in(reg) dst, a = in($class) a.0, b = in($class) b.0, c = in($class) c.0, d = in($class) d.0,
                        options(nostack, preserves_flags));
                }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn last(self, n: usize) -> Self {
                let from = 64 - $bytes + n;
                // SAFETY: `n` is at most the register's length, so `from` is at most 64 and the load ends at 128.
                let mask = unsafe { $load(MASKS.as_ptr().wrapping_add(from).cast()) };
                Self($and(self.0, mask))
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn zero() -> Self::Acc {
                Lanes { whole: $zero(), high: $zero() }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn widen(self) -> Self::Acc {
                Lanes { whole: self.0, high: $right::<32>(self.0) }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc {
                Lanes { whole: $add(a.whole, b.whole), high: $add(a.high, b.high) }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn reduce(acc: Self::Acc) -> u64 {
                let low = $sub(acc.whole, $left::<32>(acc.high));
                // Of 64 KiB each lane is below 2^46, so that all eight of them add without overflow.
                $lanes($add(low, acc.high))
            }
        }
    };
}

vector!(
    Sse2Vector, u64, __m128i, 16, "sse2", class: xmm_reg, move: "movdqu", pointer: "xmmword",
    zero: _mm_setzero_si128, load: _mm_loadu_si128, and: _mm_and_si128, add: _mm_add_epi64, sub: _mm_sub_epi64,
    left: _mm_slli_epi64, right: _mm_srli_epi64, lanes: lanes_128
);
vector!(
    AvxHalf, u64, __m128i, 16, "avx2", class: xmm_reg, move: "vmovdqu", pointer: "xmmword",
    zero: _mm_setzero_si128, load: _mm_loadu_si128, and: _mm_and_si128, add: _mm_add_epi64, sub: _mm_sub_epi64,
    left: _mm_slli_epi64, right: _mm_srli_epi64, lanes: lanes_128
);
vector!(
    Avx2Vector, AvxHalf, __m256i, 32, "avx2", class: ymm_reg, move: "vmovdqu", pointer: "ymmword",
    zero: _mm256_setzero_si256, load: _mm256_loadu_si256, and: _mm256_and_si256, add: _mm256_add_epi64,
    sub: _mm256_sub_epi64, left: _mm256_slli_epi64, right: _mm256_srli_epi64, lanes: lanes_256
);
vector!(
    Avx512Vector, Avx2Vector, __m512i, 64, "avx512f", class: zmm_reg, move: "vmovdqu64", pointer: "zmmword",
    zero: _mm512_setzero_si512, load: _mm512_loadu_si512, and: _mm512_and_si512, add: _mm512_add_epi64,
    sub: _mm512_sub_epi64, left: _mm512_slli_epi64, right: _mm512_srli_epi64, lanes: lanes_512
);

/// The sum of the lanes, as for all `lanes_` below.
#[inline]
#[target_feature(enable = "sse2")]
fn lanes_128(acc: __m128i) -> u64 {
    let low = _mm_cvtsi128_si64(acc).cast_unsigned();
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(acc, acc)).cast_unsigned();
    add_carry(low, high)
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes_256(acc: __m256i) -> u64 {
    lanes_128(_mm_add_epi64(_mm256_castsi256_si128(acc), _mm256_extracti128_si256::<1>(acc)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes_512(acc: __m512i) -> u64 {
    lanes_256(_mm256_add_epi64(_mm512_castsi512_si256(acc), _mm512_extracti64x4_epi64::<1>(acc)))
}
