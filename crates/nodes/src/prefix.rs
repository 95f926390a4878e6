//! Prefixes: ranges of MAC and IP addresses that share their first bits.

use std::fmt;
use std::net::IpAddr;

use straightline_wire::MacAddr;

/// MAC addresses that share their first bits. A prefix of all 48 bits is one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacPrefix {
    address: MacAddr,
    len: u8,
}

/// IP addresses of one version that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl MacPrefix {
    /// Number of bits of an address.
    pub const BITS: u8 = 48;

    /// Creates the prefix of the first `len` bits of `address`. Returns `None` if an address has
    /// fewer bits, or if `address` has bits set behind the prefix.
    #[must_use]
    pub fn new(address: MacAddr, len: u8) -> Option<Self> {
        let rest = Self::BITS.checked_sub(len)?;
        (address.as_u64() & mask(rest) == 0).then_some(Self { address, len })
    }

    /// Creates the prefix of one address.
    #[must_use]
    pub fn exact(address: MacAddr) -> Self {
        Self { address, len: Self::BITS }
    }

    /// Returns the address if the prefix has only one.
    #[must_use]
    pub fn only(self) -> Option<MacAddr> {
        (self.len == Self::BITS).then_some(self.address)
    }

    /// Returns the bits of the prefix, and their mask.
    pub(crate) fn masked(self) -> (u64, u64) {
        (self.address.as_u64(), mask(Self::BITS) & !mask(Self::BITS - self.len))
    }
}

/// Returns a mask of the low `bits` bits. There are at most 48.
fn mask(bits: u8) -> u64 {
    (1 << bits) - 1
}

impl IpPrefix {
    /// Creates the prefix of the first `len` bits of `address`. Returns `None` if an address has
    /// fewer bits, or if `address` has bits set behind the prefix.
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let prefix = Self { address, len };
        let (bits, mask) = (len <= prefix.bits()).then(|| prefix.masked())?;
        (bits & !mask == 0).then_some(prefix)
    }

    /// Creates the prefix of one address.
    #[must_use]
    pub fn exact(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Returns the first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns whether an address begins with the prefix.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (bits, mask) = self.masked();
        let (own, _) = Self::exact(address).masked();
        address.is_ipv4() == self.is_ipv4() && own & mask == bits
    }

    /// Returns the number of bits of an address.
    fn bits(self) -> u8 {
        Self::exact(self.address).len
    }

    /// Returns whether the addresses are IPv4.
    pub(crate) fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns the bits of the prefix, and their mask. IPv4 has the low 32 bits, and the mask has
    /// no bit above them.
    pub(crate) fn masked(self) -> (u128, u128) {
        let (bits, all) = match self.address {
            IpAddr::V4(address) => (address.to_bits().into(), u32::MAX.into()),
            IpAddr::V6(address) => (address.to_bits(), u128::MAX),
        };
        let rest = self.bits() - self.len;
        // A shift by all 128 bits leaves no bit.
        (bits, all & u128::MAX.checked_shl(rest.into()).unwrap_or(0))
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.len < Self::BITS { write!(f, "/{}", self.len) } else { Ok(()) }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.len < self.bits() { write!(f, "/{}", self.len) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_prefixes() {
        let vrrp = MacAddr([0, 0, 0x5e, 0, 1, 0]);
        let prefix = MacPrefix::new(vrrp, 40).expect("no bits behind it");
        assert_eq!(prefix.masked(), (0x0000_5e00_0100, 0xffff_ffff_ff00));
        assert_eq!((prefix.to_string().as_str(), prefix.only()), ("00:00:5e:00:01:00/40", None));
        assert_eq!(MacPrefix::new(vrrp, 39), None, "a bit behind the prefix");
        assert_eq!(MacPrefix::new(vrrp, 49), None);
        assert_eq!(MacPrefix::new(MacAddr([0; 6]), 0).expect("all").masked(), (0, 0));
        let one = MacPrefix::exact(vrrp);
        assert_eq!((MacPrefix::new(vrrp, 48), one.only(), one.masked().1), (Some(one), Some(vrrp), 0xffff_ffff_ffff));
        assert_eq!(one.to_string(), "00:00:5e:00:01:00");
    }

    #[test]
    fn ip_prefixes() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let net = IpPrefix::new(ip("10.1.0.0"), 16).expect("no bits behind it");
        assert_eq!((net.masked(), net.to_string().as_str()), ((0x0a01_0000, 0xffff_0000), "10.1.0.0/16"));
        assert_eq!(IpPrefix::new(ip("10.1.0.0"), 15), None, "a bit behind the prefix");
        assert_eq!(IpPrefix::new(ip("10.1.0.0"), 33), None);
        assert_eq!(IpPrefix::new(ip("0.0.0.0"), 0).expect("all").masked(), (0, 0));
        assert_eq!(IpPrefix::new(ip("::"), 0).expect("all").masked(), (0, 0));
        assert_eq!(IpPrefix::new(ip("fe80::"), 10).expect("a prefix").masked().1, u128::MAX << 118);
        assert_eq!(IpPrefix::new(ip("fe80::1"), 127), None);
        assert_eq!(IpPrefix::new(ip("fe80::1"), 129), None);
        assert_eq!(IpPrefix::exact(ip("fe80::1")).masked().1, u128::MAX);
        assert_eq!(IpPrefix::exact(ip("fe80::1")).to_string(), "fe80::1");
    }
}
