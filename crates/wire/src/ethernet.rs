//! Ethernet II: addresses, the type, and the 14-byte header (IEEE 802.3 clause 3).

use std::fmt;
use std::str::FromStr;

use crate::WireError;
use crate::field::{cleared, get, put, u16_at};

/// Length of the header without tags, in bytes.
pub const LEN: usize = 14;

const DST: usize = 0;
const SRC: usize = 6;
const TYPE: usize = 12;

/// A MAC address: six bytes, in the order of the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address: all bits set.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether this is a group address: the lowest bit of the first byte is set (IEEE 802
    /// section 8.2). The broadcast address is a group address too.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether this is the address of one station.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast()
    }

    /// Returns the address of a number, as [`Self::as_u64`] gives it. Higher bits do not count.
    #[must_use]
    #[inline]
    pub fn from_u64(number: u64) -> Self {
        let [_, _, bytes @ ..] = number.to_be_bytes();
        MacAddr(bytes)
    }

    /// Returns the address as a number below 2^48, with its first byte as the highest; for keys and
    /// hashes.
    #[must_use]
    #[inline]
    pub fn as_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    /// Parses six pairs of hexadecimal digits, separated by colons.
    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut pairs = text.split(':');
        let mut address = [0; 6];
        for byte in &mut address {
            let pair = pairs.next().ok_or(ParseMacError)?;
            // `from_str_radix` alone would accept a sign.
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseMacError)?;
        }
        if pairs.next().is_some() { Err(ParseMacError) } else { Ok(Self(address)) }
    }
}

/// Error of parsing a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: expected six pairs of hexadecimal digits such as 02:00:00:00:00:01")]
pub struct ParseMacError;

/// Type of an Ethernet frame's payload. A value below 0x600 is the length of an 802.3 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// Ethernet frames inside a tunnel ("transparent Ethernet bridging").
    pub const ETHERNET: Self = Self(0x6558);
    /// Reverse ARP.
    pub const RARP: Self = Self(0x8035);
    /// Customer VLAN tag, 802.1Q.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// Provider VLAN tag, 802.1ad.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Control of the link to the next station, such as PAUSE (IEEE 802.3, 31). No switch forwards it.
    pub const MAC_CONTROL: Self = Self(0x8808);
    /// Outer VLAN tag of devices older than 802.1ad (`ETH_P_QINQ1` of Linux). No tag here.
    pub const QINQ1: Self = Self(0x9100);

    /// Returns whether a VLAN tag follows.
    #[must_use]
    pub fn is_vlan(self) -> bool {
        self == Self::VLAN || self == Self::SERVICE_VLAN
    }

    /// Returns whether some receiver takes it for a VLAN tag.
    #[must_use]
    pub fn may_be_vlan(self) -> bool {
        self.is_vlan() || self == Self::QINQ1
    }
}

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 14 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < LEN { Err(WireError::Truncated) } else { Ok(Self { bytes }) }
    }

    /// The destination address.
    #[must_use]
    pub fn dst(&self) -> MacAddr {
        MacAddr(get(self.bytes.as_ref(), DST))
    }

    /// The source address.
    #[must_use]
    pub fn src(&self) -> MacAddr {
        MacAddr(get(self.bytes.as_ref(), SRC))
    }

    /// Returns the type. In a tagged frame it is the type of the first tag.
    #[must_use]
    pub fn ether_type(&self) -> EtherType {
        EtherType(u16_at(self.bytes.as_ref(), TYPE))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the destination address.
    pub fn set_dst(&mut self, address: MacAddr) {
        put(self.bytes.as_mut(), DST, &address.0);
    }

    /// Sets the source address.
    pub fn set_src(&mut self, address: MacAddr) {
        put(self.bytes.as_mut(), SRC, &address.0);
    }

    /// Sets the type.
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        put(self.bytes.as_mut(), TYPE, &ether_type.0.to_be_bytes());
    }
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The destination address.
    pub dst: MacAddr,
    /// The source address.
    pub src: MacAddr,
    /// The type.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self { dst: header.dst(), src: header.src(), ether_type: header.ether_type() }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 14 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let mut header = Header { bytes: cleared(buffer, LEN)? };
        header.set_dst(self.dst);
        header.set_src(self.src);
        header.set_ether_type(self.ether_type);
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_and_read() {
        let address = MacAddr([0x02, 0, 0, 0xab, 0, 1]);
        assert_eq!(address.to_string(), "02:00:00:ab:00:01");
        assert_eq!("02:00:00:AB:00:01".parse(), Ok(address));
        assert_eq!(address.as_u64(), 0x0200_00ab_0001);
        assert_eq!(MacAddr::from_u64(0xffff_0200_00ab_0001), address);
        for wrong in ["", "02", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:+1"] {
            assert_eq!(wrong.parse::<MacAddr>(), Err(ParseMacError), "{wrong}");
        }
        for wrong in ["02-00-00-00-00-01", "02:00:00:00:00:0g", "02:00:00:00:00:01 ", "02:00:00:00:00:\u{e9}"] {
            assert_eq!(wrong.parse::<MacAddr>(), Err(ParseMacError), "{wrong}");
        }
    }

    #[test]
    fn kinds_of_addresses() {
        let one = MacAddr([2, 0, 0, 0, 0, 1]);
        let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
        assert!(one.is_unicast() && !one.is_multicast());
        assert!(!group.is_unicast() && group.is_multicast());
        assert!(MacAddr::BROADCAST.is_multicast());
    }

    #[test]
    fn fields_stand_where_they_should() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd, 99];
        let header = Header::new_checked(&bytes).unwrap();
        assert_eq!(header.dst(), MacAddr([1, 2, 3, 4, 5, 6]));
        assert_eq!(header.src(), MacAddr([7, 8, 9, 10, 11, 12]));
        assert_eq!(header.ether_type(), EtherType::IPV6);
        assert_eq!(Header::new_checked(&bytes[..13]).err(), Some(WireError::Truncated));
    }

    #[test]
    fn setters_change_their_field_only() {
        let mut bytes = [0x55; 15];
        let mut header = Header::new_checked(&mut bytes[..]).unwrap();
        header.set_src(MacAddr([0; 6]));
        assert_eq!(bytes, [&[0x55; 6][..], &[0; 6], &[0x55; 3]].concat()[..]);
    }

    #[test]
    fn building_needs_space() {
        let repr = Repr { dst: MacAddr::BROADCAST, src: MacAddr::default(), ether_type: EtherType::ARP };
        assert_eq!(repr.emit(&mut [0; 13]), Err(WireError::BufferTooSmall));
        assert_eq!(repr.emit(&mut [0; 14]), Ok(14));
    }
}
