//! Patterns of IPv6 addresses: the bits that they share need not be the first ones.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::prefix::Prefix;

/// IPv6 addresses that share some of their bits, such as all that carry one address of IPv4.
///
/// ```
/// use straightline_firewall::Pattern;
///
/// let isatap: Pattern = "::5efe:a00:1/::ffff:ffff:ffff:ffff".parse().expect("a pattern");
/// assert!(isatap.contains("2001:db8::5efe:a00:1".parse().expect("an address")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    bits: u128,
    mask: u128,
}

impl Pattern {
    /// Creates the pattern of the bits that a mask selects.
    #[must_use]
    pub fn new(bits: u128, mask: u128) -> Self {
        Self { bits: bits & mask, mask }
    }

    /// Returns whether an address has the bits.
    #[must_use]
    pub fn contains(self, address: Ipv6Addr) -> bool {
        address.to_bits() & self.mask == self.bits
    }

    /// Returns whether each address of another pattern is one of this one.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.mask & !other.mask == 0 && other.bits & self.mask == self.bits
    }

    /// Returns the pattern as a prefix, if the bits are the first ones.
    pub(crate) fn prefix(self) -> Option<Prefix> {
        let len = self.mask.leading_ones();
        let first = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let len = u8::try_from(len).ok().filter(|_| first == self.mask)?;
        Prefix::new(Ipv6Addr::from_bits(self.bits).into(), len)
    }

    /// Returns the bits and the mask of each word, the first one first.
    #[expect(clippy::cast_possible_truncation, reason = "one word of four")]
    pub(crate) fn words(self) -> [(u32, u32); 4] {
        [96, 64, 32, 0].map(|shift| ((self.bits >> shift) as u32, (self.mask >> shift) as u32))
    }
}

/// The bits and the mask, both as addresses.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), Ipv6Addr::from_bits(self.mask))
    }
}

/// A text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no pattern of IPv6 addresses: write for example ::5efe:a00:1/::ffff:ffff:ffff:ffff")]
pub struct PatternError;

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (bits, mask) = text.split_once('/').ok_or(PatternError)?;
        let read = |text: &str| text.parse().map(Ipv6Addr::to_bits).map_err(|_| PatternError);
        Ok(Self::new(read(bits)?, read(mask)?))
    }
}
