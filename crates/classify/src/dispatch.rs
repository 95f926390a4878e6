//! Loops, compiled once for each instruction set.
//!
//! `Level::run` does the same for copies, and enables what copies need. Lookups also count bits, for
//! which an x86-64 compiler has no instruction unless it is enabled.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm512_cmple_epu32_mask, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_test_epi64_mask};

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
}

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
