//! Choice of the instruction set, as a value that proves that the machine has it.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::fmt;
use std::str::FromStr;

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
    /// 64 bytes at a time. **Not yet run**, because no machine of the project has it. The
    /// algorithms are tested at this length; the instructions were only reviewed and compiled.
    /// Therefore this level is used only if it is asked for by name. [`Level::detect`] does not
    /// choose it until it was run and measured. (Older cores also lower their frequency for it.)
    /// The tests run it on every machine that has it.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 16 bytes at a time. Part of the baseline of 64-bit ARM. Tested under emulation, not
    /// measured.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Not an instruction set: copies by `memmove` of the C library, for comparisons. Sums use the
    /// level of [`Level::detect`]. [`supported`](Level::supported) does not return it, and
    /// [`FromStr`] does not parse it.
    Libc,
    /// Not an instruction set: copies by `rep movsb`, for comparisons. Sums use the level of
    /// [`Level::detect`]. [`supported`](Level::supported) does not return it, and [`FromStr`] does
    /// not parse it.
    #[cfg(target_arch = "x86_64")]
    Movsb,
}

impl Level {
    /// Returns the widest level that this machine supports and that the project has run: AVX2 at
    /// most.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let level = Avx2::detect().map_or(Self::Sse2, Self::Avx2);
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
            #[cfg(target_arch = "aarch64")]
            Some(Self::Neon),
        ]
        .into_iter()
        .flatten()
    }

    /// Names of the sets of all machines. The sets of one machine are in order, narrowest first.
    pub const NAMES: [&str; 5] = ["scalar", "sse2", "avx2", "avx512", "neon"];

    /// Returns the name. [`FromStr`] parses `scalar`, `sse2`, `avx2`, `avx512` and `neon`.
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
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
            Self::Libc => "libc",
            #[cfg(target_arch = "x86_64")]
            Self::Movsb => "movsb",
        }
    }
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

/// Token that proves that this machine has AVX2 and that the operating system saves its registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Returns the token if the machine has AVX2. The standard library caches the answer of the
    /// CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        std::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the token without detection.
    ///
    /// # Safety
    /// The machine must have AVX2.
    #[must_use]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// Token that proves that this machine has AVX-512's foundation and that the operating system saves
/// its registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// Returns the token if the machine has AVX-512F. AVX2 is required too, for lengths below an
    /// AVX-512 register.
    #[must_use]
    pub fn detect() -> Option<Self> {
        (std::is_x86_feature_detected!("avx512f") && Avx2::detect().is_some()).then_some(Self(()))
    }

    /// Returns the token without detection.
    ///
    /// # Safety
    /// The machine must have AVX-512F and AVX2.
    #[must_use]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

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
        assert_eq!("libc".parse::<Level>(), Err(ParseLevelError::Unknown));
        assert_eq!("movsb".parse::<Level>(), Err(ParseLevelError::Unknown));
        assert_eq!("AVX2".parse::<Level>(), Err(ParseLevelError::Unknown));
        for name in Level::NAMES {
            let here = Level::supported().any(|level| level.name() == name);
            assert_eq!(name.parse::<Level>().is_ok(), here, "{name}");
        }
    }

    #[test]
    fn the_widest_that_was_run_is_detected() {
        let proven = ["scalar", "sse2", "avx2", "neon"];
        assert_eq!(Some(Level::detect()), Level::supported().filter(|level| proven.contains(&level.name())).last());
        assert_eq!(Level::supported().next(), Some(Level::Scalar));
    }

    #[test]
    fn a_level_costs_at_most_one_byte() {
        assert!(size_of::<Level>() <= 1);
    }
}
