//! Prefixes of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IP addresses of one version that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// A text is no prefix. The message begins behind the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The address is none.
    #[error("is no IP address: write for example 10.0.0.5, 10.0.0.0/24 or fd00::/64")]
    Address,
    /// The length is none, or too long.
    #[error("has no valid length: it must be 0 to {0}")]
    Length(u8),
    /// The address has bits behind the prefix.
    #[error("has bits behind its length: write {0}")]
    Behind(Prefix),
}

impl Prefix {
    /// Creates the prefix of the first `len` bits of `address`. Returns `None` if an address has fewer
    /// bits, or if `address` has bits set behind the prefix.
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        if len > bits(address) {
            return None;
        }
        let prefix = Self::around(address, len);
        (prefix.address == address).then_some(prefix)
    }

    /// Creates the prefix of one address.
    #[must_use]
    pub fn exact(address: IpAddr) -> Self {
        Self { address, len: bits(address) }
    }

    /// Returns the prefix of this length that the address is in.
    pub(crate) fn around(address: IpAddr, len: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Self { address, len }
    }

    /// Returns whether each address of another prefix is in this one.
    pub(crate) fn has(self, other: Self) -> bool {
        self.len <= other.len && Self::around(other.address, self.len.min(bits(other.address))) == self
    }

    /// Returns the first address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that all addresses share.
    #[expect(clippy::len_without_is_empty, reason = "a prefix always has an address")]
    #[must_use]
    pub fn len(self) -> u8 {
        self.len
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address)?;
        let most = bits(address);
        let len = match len {
            None => most,
            Some(digits) if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                return Err(PrefixError::Length(most));
            }
            Some(digits) => digits.parse().ok().filter(|len| *len <= most).ok_or(PrefixError::Length(most))?,
        };
        Self::new(address, len).ok_or_else(|| PrefixError::Behind(Self::around(address, len)))
    }
}

/// The address, with the length if the prefix has more than one address.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.len < bits(self.address) { write!(f, "/{}", self.len) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let same = ["10.0.0.5", "10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "2001:db8::1"];
        for text in same {
            assert_eq!(text.parse::<Prefix>().expect(text).to_string(), text);
        }
        assert_eq!("10.0.0.5/32".parse::<Prefix>().expect("an address").to_string(), "10.0.0.5");
        let wrong = |text: &str| text.parse::<Prefix>().expect_err(text).to_string();
        assert!(wrong("10.0.0").starts_with("is no IP address"));
        assert!(wrong("10.0.0.0/").ends_with("0 to 32"));
        assert!(wrong("10.0.0.0/+8").ends_with("0 to 32"));
        assert!(wrong("::/129").ends_with("0 to 128"));
        assert_eq!(wrong("10.1.2.3/8"), "has bits behind its length: write 10.0.0.0/8");
    }
}
