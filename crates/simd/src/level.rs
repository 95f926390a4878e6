//! Choice of the instruction set, as a value that proves that the machine has it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid;
use std::fmt;
use std::str::FromStr;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use crate::comparison::Comparison;
#[cfg(target_arch = "x86_64")]
use crate::tokens::{Avx2, Avx512};

/// Instruction set that this machine has.
///
/// Safe code cannot create a value of a set that the machine lacks. A set beyond the baseline of
/// the target contains a token, such as [`Avx2`], which only detection creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Words of up to 8 bytes. Every machine has them.
    Scalar,
    /// 16 bytes at a time. Part of the x86-64 baseline.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 32 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Copies by AVX2, and by `rep movsb` from 8 KiB on. Sums 64 bytes at a time from some length on. See
    /// [`Avx512`] for the processors that have it.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// Copies 64 bytes at a time, and sums as [`Level::Avx512`] does. For comparisons:
    /// [`Level::detect`] does not choose it, because such copies were never faster.
    #[cfg(target_arch = "x86_64")]
    Avx512Copies(Avx512),
    /// 16 bytes at a time. Part of the baseline of 64-bit ARM. Tested under emulation, not
    /// measured.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Not an instruction set: a copy that the switch's own is compared with. Sums use the level of
    /// [`Level::detect`]. [`supported`](Level::supported) does not return it, and [`FromStr`] does not
    /// parse it.
    Compared(Comparison),
}

impl Level {
    /// Returns the level that is fastest on this machine, as far as processors were measured. AVX-512
    /// is chosen on AMD's family 1Ah (Zen 5) only. On family 19h (Zen 4) its sums were level with
    /// AVX2, and slower for lines that another core has written. Others were not measured.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let level = match (Avx512::detect().filter(|_| has_wide_registers()), Avx2::detect()) {
            (Some(token), _) => Self::Avx512(token),
            (None, Some(token)) => Self::Avx2(token),
            (None, None) => Self::Sse2,
        };
        #[cfg(target_arch = "aarch64")]
        let level = Self::Neon;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let level = Self::Scalar;
        level
    }

    /// Returns all levels that this machine supports, narrowest first.
    pub fn supported() -> impl Iterator<Item = Self> {
        [
            Some(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            Some(Self::Sse2),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Self::Avx512Copies),
            #[cfg(target_arch = "aarch64")]
            Some(Self::Neon),
        ]
        .into_iter()
        .flatten()
    }

    /// Returns the levels of this machine that are no instruction sets. They copy in other ways than
    /// the switch does. An x86-64 machine without AVX2 has none.
    pub fn for_comparison() -> impl Iterator<Item = Self> {
        Comparison::all().map(Self::Compared)
    }

    /// Names of [`Self::for_comparison`] of all machines, in its order.
    pub const COMPARISONS: [&str; 6] = ["libc", "bytes", "movsb", "movsb-long", "unaligned", "streaming"];

    /// Names of the sets of all machines. The sets of one machine are in order, narrowest first.
    pub const NAMES: [&str; 6] = ["scalar", "sse2", "avx2", "avx512", "avx512-copies", "neon"];

    /// Returns the name. [`FromStr`] parses [`Self::NAMES`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => "sse2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Copies(_) => "avx512-copies",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
            Self::Compared(copy) => copy.name(),
        }
    }
}

/// Returns whether this processor is one whose registers of 64 bytes were measured to be faster.
#[cfg(target_arch = "x86_64")]
fn has_wide_registers() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // In a virtual machine the instruction takes microseconds.
    *ANSWER.get_or_init(|| {
        let vendor = __cpuid(0);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes) == [*b"Auth", *b"enti", *b"cAMD"];
        is_amd && family(__cpuid(1).eax) >= 0x1a
    })
}

/// Returns the family of a processor, from the answer of CPUID's leaf 1 (AMD64 Architecture
/// Programmer's Manual, volume 3, appendix E.3.2).
#[cfg(target_arch = "x86_64")]
fn family(eax: u32) -> u32 {
    let base = eax >> 8 & 0xf;
    if base == 0xf { base + (eax >> 20 & 0xff) } else { base }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(name: &str) -> Result<Self, ParseLevelError> {
        if let Some(level) = Self::supported().find(|level| level.name() == name) {
            return Ok(level);
        }
        if Self::NAMES.contains(&name) { Err(ParseLevelError::Unsupported) } else { Err(ParseLevelError::Unknown) }
    }
}

/// Error of parsing the name of a [`Level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseLevelError {
    /// No level has this name.
    Unknown,
    /// The level exists, but this machine does not support it.
    Unsupported,
}

impl fmt::Display for ParseLevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "unknown level; the levels are {}", Level::NAMES.join(", ")),
            Self::Unsupported => f.write_str("this machine does not support that level"),
        }
    }
}

impl std::error::Error for ParseLevelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for level in Level::supported() {
            assert_eq!(level.name().parse(), Ok(level));
            assert_eq!(level.to_string(), level.name());
            assert!(Level::NAMES.contains(&level.name()));
        }
    }

    #[test]
    fn a_name_that_is_no_level_here_is_an_error() {
        assert_eq!("mmx".parse::<Level>(), Err(ParseLevelError::Unknown));
        for level in Level::for_comparison() {
            assert!(Level::COMPARISONS.contains(&level.name()), "{level}");
            assert_eq!(level.name().parse::<Level>(), Err(ParseLevelError::Unknown), "{level}");
        }
        assert_eq!("AVX2".parse::<Level>(), Err(ParseLevelError::Unknown));
        for name in Level::NAMES {
            let here = Level::supported().any(|level| level.name() == name);
            assert_eq!(name.parse::<Level>().is_ok(), here, "{name}");
        }
    }

    #[test]
    fn what_is_detected_is_supported() {
        assert!(Level::supported().any(|level| level == Level::detect()));
        assert_eq!(Level::supported().next(), Some(Level::Scalar));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_family_of_a_processor() {
        // Zen 5 (Turin), Zen 4 (Genoa), and Intel's Ice Lake.
        assert_eq!([0x00b0_0f21, 0x00a1_0f11, 0x0006_06a6].map(family), [0x1a, 0x19, 6]);
    }

    #[test]
    fn a_level_costs_at_most_one_byte() {
        assert!(size_of::<Level>() <= 1);
    }
}
