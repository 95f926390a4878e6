//! SSE2, AVX2 and AVX-512, all from one pattern. They differ in the name and length of a register.
//!
//! The methods carry `#[target_feature]`, because `asm!` accepts a vector register only where the
//! feature is enabled. They are inlined into the wrappers of `kernel.rs`, which carry the same
//! feature.
//!
//! # Sums of single registers, SSE2 and AVX2
//! `pmaddwd` multiplies 16-bit words by one and adds neighbours into 32-bit lanes. It treats the
//! words as signed. Therefore the highest bit of each word is flipped first, which subtracts
//! 32 768. `reduce` adds the subtracted amount again. This takes three instructions a register.
//!
//! # Sums of groups of eight registers, SSE2 and AVX2
//! Let `s` be the sum of the eight words at one position of the eight registers. Two values are
//! cheaper to compute than `s`:
//! - `m`, which is `s` modulo 2^16, by 16-bit additions (`paddw`).
//! - `a`, which is eight times the average of the eight words. Three levels of `pavgw` compute the
//!   average. Each level rounds up by at most 1/2, so `a` is at least `s` and at most `s + 12`.
//!
//! `a` is summed like a single register, with a factor of eight. There are 4096 such positions in
//! 64 KiB. So the sum of all `a` exceeds the sum of all `s` by at most 49 152, which is below 2^16.
//! The excess is therefore the difference of the sums of `a` and `m`, modulo 2^16. `reduce_groups`
//! subtracts it. This takes 2.25 instructions a register.
//!
//! # Sums in AVX-512
//! The foundation of AVX-512 has no `pmaddwd` for its registers. A sum treats each 64-bit lane as
//! two halves of 32 bits. Because 2^16 is 1 modulo 0xffff, 32-bit words have the same sum as their
//! 16-bit halves. Two values are accumulated: `whole`, the lanes modulo 2^64, and `high`, the high
//! halves. The sum of the low halves is `whole` minus 2^32 times `high`. This is exact, because
//! that sum is below 2^64. `Level::Avx512` sums by dot products instead, see `avx512.rs`.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_add_epi16, _mm_add_epi32, _mm_and_si128, _mm_avg_epu16, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_madd_epi16, _mm_set1_epi16, _mm_setzero_si128, _mm_shuffle_epi32, _mm_xor_si128,
    _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_avg_epu16, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16, _mm256_setzero_si256,
    _mm256_xor_si256, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512, _mm512_reduce_add_epi64,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_sub_epi64,
};

use crate::vector::{Vector, default_groups};

/// Register of 16 bytes in the encoding of SSE2.
#[derive(Clone, Copy)]
pub(crate) struct Sse2Vector(__m128i);

/// Register of 16 bytes in the encoding of AVX. Mixing it with the encoding of SSE2 would cost a
/// transition on some machines.
#[derive(Clone, Copy)]
pub(crate) struct AvxHalf(__m128i);

/// Register of 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Vector(__m256i);

/// Register of 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vector(pub(super) __m512i);

/// Partial sum of lanes of 64 bits: their sum modulo 2^64, and the sum of their high halves.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<R> {
    whole: R,
    high: R,
}

/// Partial sum of groups of eight registers. `averages` holds eight times the averages in lanes of
/// 32 bits, minus 32 768 for each word. `modulo` holds the sum of the words modulo 2^16. It has two
/// accumulators, because each addition waits for the one before it.
#[derive(Clone, Copy)]
pub(crate) struct Groups<R> {
    averages: R,
    modulo: [R; 2],
}

/// As many zeros as the longest register has bytes, then as many ones. A load of a register's
/// length at an offset is a mask for the last bytes.
static MASKS: [u8; 128] = {
    let mut masks = [0; 128];
    let mut i = 64;
    while i < 128 {
        masks[i] = 0xff;
        i += 1;
    }
    masks
};

/// Methods that load, store and mask a register.
macro_rules! access {
    (
        $register:ty, $bytes:literal, $feature:literal, class: $class:ident, move: $move:literal, pointer: $pointer:literal,
        load: $load:ident, and: $and:ident
    ) => {
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn load(src: *const u8) -> Self {
            let v: $register;
            // SAFETY: one load of bytes that the caller has promised to be readable; no stack, no
            // flags.
            unsafe {
                asm!(concat!($move, " {v}, ", $pointer, " ptr [{p}]"), p = in(reg) src, v = lateout($class) v,
                    options(nostack, preserves_flags, readonly));
            }
            Self(v)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn store(self, dst: *mut u8) {
            // SAFETY: one store of bytes that the caller has promised to be writable; no stack, no
            // flags.
            unsafe {
                asm!(concat!($move, " ", $pointer, " ptr [{p}], {v}"), p = in(reg) dst, v = in($class) self.0,
                    options(nostack, preserves_flags));
            }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn load4(src: *const u8) -> [Self; 4] {
            let (a, b, c, d): ($register, $register, $register, $register);
            // SAFETY: four loads of bytes that the caller has promised to be readable; no stack, no
            // flags.
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
            // SAFETY: four stores of bytes that the caller has promised to be writable; no stack,
            // no flags.
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
        unsafe fn keep_last(self, n: usize) -> Self {
            let from = 64 - $bytes + n;
            // SAFETY: `n` is at most the register's length, so `from` is at most 64 and the load
            // ends at 128.
            let mask = unsafe { $load(MASKS.as_ptr().wrapping_add(from).cast()) };
            Self($and(self.0, mask))
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn load_owned(src: *const u8) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { $load(src.cast()) })
        }
    };
}

/// Methods that sum 16-bit words in lanes of 32 bits.
macro_rules! words {
    (
        $feature:literal, $words:literal, zero: $zero:ident, add: $add:ident, madd: $madd:ident, xor: $xor:ident,
        set: $set:ident, total: $total:ident, add16: $add16:ident, average: $average:ident
    ) => {
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn zero() -> Self::Acc {
            $zero()
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn widen(self) -> Self::Acc {
            $madd($xor(self.0, $set(i16::MIN)), $set(1))
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc {
            $add(a, b)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn reduce(acc: Self::Acc, vectors: usize) -> u64 {
            // The sum covers 64 KiB and a few partly masked vectors: 2^15 words of at most 2^15,
            // and no more than 2^20 in addition. So the sum of all lanes is below 2^31. Adding the
            // subtracted amount again leaves no negative number.
            let subtracted = (vectors * $words) << 15;
            i64::from($total(acc)).cast_unsigned().wrapping_add(subtracted as u64)
        }

        type Groups = Groups<Self::Acc>;

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn no_groups() -> Self::Groups {
            Groups { averages: $zero(), modulo: [$zero(); 2] }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn join_group(groups: Self::Groups, [a, b, c, d, e, f, g, h]: [Self; 8]) -> Self::Groups {
            let half = |a: Self, b: Self, c: Self, d: Self| {
                ($average($average(a.0, b.0), $average(c.0, d.0)), $add16($add16(a.0, b.0), $add16(c.0, d.0)))
            };
            let ((average, first), (other, second)) = (half(a, b, c, d), half(e, f, g, h));
            let average = $xor($average(average, other), $set(i16::MIN));
            let [one, two] = groups.modulo;
            Groups {
                averages: $add(groups.averages, $madd(average, $set(8))),
                modulo: [$add16(one, first), $add16(two, second)],
            }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn reduce_groups(groups: Self::Groups, n: usize) -> u64 {
            // SAFETY: the caller has the instruction set.
            let most = unsafe { Self::reduce(groups.averages, 8 * n) };
            let [one, two] = groups.modulo;
            // Signed words have the same value modulo 2^16.
            let modulo = i64::from($total($madd($add16(one, two), $set(1)))).cast_unsigned();
            most - (most.wrapping_sub(modulo) & 0xffff)
        }
    };
}

impl Vector for Sse2Vector {
    const BYTES: usize = 16;
    type Half = u64;
    type Word = u64;
    type Acc = __m128i;

    access!(
        __m128i, 16, "sse2", class: xmm_reg, move: "movdqu", pointer: "xmmword", load: _mm_loadu_si128, and: _mm_and_si128
    );
    words!(
        "sse2", 8, zero: _mm_setzero_si128, add: _mm_add_epi32, madd: _mm_madd_epi16, xor: _mm_xor_si128,
        set: _mm_set1_epi16, total: total_128, add16: _mm_add_epi16, average: _mm_avg_epu16
    );
}

impl Vector for AvxHalf {
    const BYTES: usize = 16;
    type Half = u64;
    type Word = u64;
    type Acc = __m128i;

    access!(
        __m128i, 16, "avx2", class: xmm_reg, move: "vmovdqu", pointer: "xmmword", load: _mm_loadu_si128, and: _mm_and_si128
    );
    words!(
        "avx2", 8, zero: _mm_setzero_si128, add: _mm_add_epi32, madd: _mm_madd_epi16, xor: _mm_xor_si128,
        set: _mm_set1_epi16, total: total_128, add16: _mm_add_epi16, average: _mm_avg_epu16
    );
}

impl Vector for Avx2Vector {
    const BYTES: usize = 32;
    type Half = AvxHalf;
    type Word = u64;
    type Acc = __m256i;

    access!(
        __m256i, 32, "avx2", class: ymm_reg, move: "vmovdqu", pointer: "ymmword", load: _mm256_loadu_si256,
        and: _mm256_and_si256
    );
    words!(
        "avx2", 16, zero: _mm256_setzero_si256, add: _mm256_add_epi32, madd: _mm256_madd_epi16, xor: _mm256_xor_si256,
        set: _mm256_set1_epi16, total: total_256, add16: _mm256_add_epi16, average: _mm256_avg_epu16
    );
}

impl Avx2Vector {
    /// Stores four consecutive registers past the caches. [`store_fence`] must follow before other
    /// stores may tell anybody that the bytes are there.
    ///
    /// # Safety
    /// As for [`Vector::store4`], and `dst` is aligned to 32 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) unsafe fn stream4([a, b, c, d]: [Self; 4], dst: *mut u8) {
        // SAFETY: four aligned stores of bytes that the caller has promised to be writable; no stack,
        // no flags.
        unsafe {
            asm!(
                "vmovntdq ymmword ptr [{p}], {a}", "vmovntdq ymmword ptr [{p} + 32], {b}",
                "vmovntdq ymmword ptr [{p} + 64], {c}", "vmovntdq ymmword ptr [{p} + 96], {d}",
                p = in(reg) dst, a = in(ymm_reg) a.0, b = in(ymm_reg) b.0, c = in(ymm_reg) c.0, d = in(ymm_reg) d.0,
                options(nostack, preserves_flags));
        }
    }
}

/// Orders all earlier stores before all later ones, also those past the caches (AMD64 Architecture
/// Programmer's Manual, volume 2, 7.4.2).
#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: every x86-64 processor has the instruction, which accesses no memory of its own.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

impl Vector for Avx512Vector {
    const BYTES: usize = 64;
    type Half = Avx2Vector;
    type Word = u64;
    type Acc = Lanes<__m512i>;

    access!(
        __m512i, 64, "avx512f", class: zmm_reg, move: "vmovdqu64", pointer: "zmmword", load: _mm512_loadu_si512,
        and: _mm512_and_si512
    );

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn zero() -> Self::Acc {
        Lanes { whole: _mm512_setzero_si512(), high: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen(self) -> Self::Acc {
        Lanes { whole: self.0, high: _mm512_srli_epi64::<32>(self.0) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc {
        Lanes { whole: _mm512_add_epi64(a.whole, b.whole), high: _mm512_add_epi64(a.high, b.high) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn reduce(acc: Self::Acc, _: usize) -> u64 {
        let low = _mm512_sub_epi64(acc.whole, _mm512_slli_epi64::<32>(acc.high));
        // After 64 KiB each lane is below 2^46, so the eight lanes add without overflow.
        _mm512_reduce_add_epi64(_mm512_add_epi64(low, acc.high)).cast_unsigned()
    }

    default_groups!();
}

/// Returns the sum of the lanes of 32 bits.
#[inline]
#[target_feature(enable = "sse2")]
fn total_128(acc: __m128i) -> i32 {
    let acc = _mm_add_epi32(acc, _mm_shuffle_epi32::<0b11_10_11_10>(acc));
    _mm_cvtsi128_si32(_mm_add_epi32(acc, _mm_shuffle_epi32::<0b01_01_01_01>(acc)))
}

/// Returns the sum of the lanes of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn total_256(acc: __m256i) -> i32 {
    total_128(_mm_add_epi32(_mm256_castsi256_si128(acc), _mm256_extracti128_si256::<1>(acc)))
}
