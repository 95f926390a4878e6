//! Loops, compiled once for each instruction set.
//!
//! `Level::run` does the same for copies, and enables what copies need. Lookups also count bits, for
//! which an x86-64 compiler has no instruction unless it is enabled.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm512_and_si512, _mm512_cmple_epu32_mask, _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_set1_epi32,
    _mm512_sub_epi32, _mm512_test_epi64_mask,
};

use straightline_simd::Level;

/// Work that is compiled for each instruction set. It must be `#[inline(always)]`, and so must each
/// function in its loops.
pub(crate) trait Lookup {
    /// Does the work.
    fn run<I: Isa>(self, isa: I);
}

/// Steps for which a compiler finds no good instructions by itself.
pub(crate) trait Isa: Copy {
    /// Returns the number of bounds that are not above a value.
    fn not_above(self, bounds: &[u32; 16], value: u32) -> u32;

    /// Returns a bit for each word that is not 0.
    fn filled(self, words: &[u64; 8]) -> u32;

    /// Comparisons that give bits.
    type Masks: Masks;

    /// Returns them, if the set has them. Without them a compiler finds better instructions for loops.
    fn masks(self) -> Option<Self::Masks>;
}

/// Steps with a bit for each of 16 values.
pub(crate) trait Masks: Copy {
    /// Returns a bit for each value for which `(value & mask) - low <= span`, in 32 bits.
    fn within(self, values: &[u32; LANES], mask: u32, low: u32, span: u32) -> u16;

    /// Sets the values of these bits.
    fn put(self, values: &mut [u32; LANES], bits: u16, value: u32);
}

/// Values of a register of AVX-512.
pub(crate) const LANES: usize = 16;

#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Isa for Portable {
    #[inline(always)]
    fn not_above(self, bounds: &[u32; 16], value: u32) -> u32 {
        bounds.iter().map(|&bound| u32::from(bound <= value)).sum()
    }

    #[inline(always)]
    fn filled(self, words: &[u64; 8]) -> u32 {
        words.iter().enumerate().fold(0, |all, (at, word)| all | u32::from(*word != 0) << at)
    }

    type Masks = NoMasks;

    #[inline(always)]
    fn masks(self) -> Option<NoMasks> {
        None
    }
}

/// The masks of a set without them: there is no value.
#[derive(Clone, Copy)]
pub(crate) enum NoMasks {}

impl Masks for NoMasks {
    fn within(self, _values: &[u32; LANES], _mask: u32, _low: u32, _span: u32) -> u16 {
        match self {}
    }

    fn put(self, _values: &mut [u32; LANES], _bits: u16, _value: u32) {
        match self {}
    }
}

/// AVX-512. Only [`run_avx512`] makes a value.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Wide(());

#[cfg(target_arch = "x86_64")]
impl Isa for Wide {
    #[inline(always)]
    fn not_above(self, bounds: &[u32; 16], value: u32) -> u32 {
        // SAFETY: a value proves the set; the load reads the 64 bytes of the array.
        let mask = unsafe {
            let bounds = _mm512_loadu_si512(bounds.as_ptr().cast());
            _mm512_cmple_epu32_mask(bounds, _mm512_set1_epi32(value.cast_signed()))
        };
        mask.count_ones()
    }

    #[inline(always)]
    fn filled(self, words: &[u64; 8]) -> u32 {
        // SAFETY: as above.
        unsafe {
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            _mm512_test_epi64_mask(words, words).into()
        }
    }

    type Masks = Self;

    #[inline(always)]
    fn masks(self) -> Option<Self> {
        Some(self)
    }
}

#[cfg(target_arch = "x86_64")]
impl Masks for Wide {
    #[inline(always)]
    fn within(self, values: &[u32; LANES], mask: u32, low: u32, span: u32) -> u16 {
        // SAFETY: as above.
        unsafe {
            let values = _mm512_loadu_si512(values.as_ptr().cast());
            let masked = _mm512_and_si512(values, _mm512_set1_epi32(mask.cast_signed()));
            let distance = _mm512_sub_epi32(masked, _mm512_set1_epi32(low.cast_signed()));
            _mm512_cmple_epu32_mask(distance, _mm512_set1_epi32(span.cast_signed()))
        }
    }

    #[inline(always)]
    fn put(self, values: &mut [u32; LANES], bits: u16, value: u32) {
        // SAFETY: a value proves the set; the store writes the 64 bytes of the array at most.
        unsafe {
            _mm512_mask_storeu_epi32(values.as_mut_ptr().cast(), bits, _mm512_set1_epi32(value.cast_signed()));
        }
    }
}

/// Returns the level that is fastest for lookups: AVX-512 where the machine has it, because its
/// comparisons give masks of bits.
#[must_use]
pub fn lookup_level() -> Level {
    "avx512".parse().unwrap_or_else(|_| Level::detect())
}

/// Runs work, compiled for a level.
pub(crate) fn run<L: Lookup>(level: Level, lookup: L) {
    #[cfg(target_arch = "x86_64")]
    {
        // The standard library caches the answers of the CPU.
        let counts_bits = std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt");
        match level {
            Level::Avx512(_) if counts_bits && std::is_x86_feature_detected!("avx512vl") => {
                // SAFETY: the token of the level proves AVX2 and AVX-512, the answers above the rest.
                return unsafe { run_avx512(lookup) };
            }
            Level::Avx2(_) if counts_bits => {
                // SAFETY: as above.
                return unsafe { run_avx2(lookup) };
            }
            _ => {}
        }
    }
    let _ = level;
    lookup.run(Portable);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt,bmi1,bmi2,lzcnt")]
fn run_avx512<L: Lookup>(lookup: L) {
    lookup.run(Wide(()));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn run_avx2<L: Lookup>(lookup: L) {
    lookup.run(Portable);
}
