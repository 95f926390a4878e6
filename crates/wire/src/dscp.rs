//! Differentiated services code points (RFC 2474): the class of service of IP packets.

use std::fmt;
use std::str::FromStr;

use crate::{EtherType, ipv4, ipv6, vlan};

/// A differentiated services code point, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// The largest code point.
    pub const MAX: u8 = 63;

    /// The names in the registry of IANA: RFC 2474, 2597, 3246, 5865 and 8622.
    pub const NAMES: [(&str, u8); 23] = [
        ("cs0", 0),
        ("le", 1),
        ("cs1", 8),
        ("af11", 10),
        ("af12", 12),
        ("af13", 14),
        ("cs2", 16),
        ("af21", 18),
        ("af22", 20),
        ("af23", 22),
        ("cs3", 24),
        ("af31", 26),
        ("af32", 28),
        ("af33", 30),
        ("cs4", 32),
        ("af41", 34),
        ("af42", 36),
        ("af43", 38),
        ("cs5", 40),
        ("voice-admit", 44),
        ("ef", 46),
        ("cs6", 48),
        ("cs7", 56),
    ];

    /// Returns a code point. `None` above [`Self::MAX`].
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number <= Self::MAX).then_some(Dscp(number))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }

    /// Returns a type of service, or a traffic class, with this code point. Its ECN bits stay.
    #[inline]
    #[must_use]
    pub fn put(self, class: u8) -> u8 {
        self.0 << 2 | class & 3
    }
}

impl FromStr for Dscp {
    type Err = ();

    /// Reads a name.
    fn from_str(name: &str) -> Result<Self, ()> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| Dscp(*number)).ok_or(())
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => to.write_str(name),
            None => write!(to, "{}", self.0),
        }
    }
}

/// Returns the code point of an IPv4 or IPv6 packet in a frame that begins with `head`, behind up to two
/// VLAN tags. `None` for other frames, and where the header is cut off.
#[inline]
#[must_use]
pub fn dscp_of(head: &[u8]) -> Option<Dscp> {
    let tags = vlan::skip(head).ok()?;
    let packet = head.get(tags.payload..)?;
    let class = match tags.ether_type {
        EtherType::IPV4 => ipv4::Header::new_checked(packet).ok()?.tos(),
        EtherType::IPV6 => ipv6::Header::new_checked(packet).ok()?.traffic_class(),
        _ => return None,
    };
    Some(Dscp(class >> 2))
}

/// A set of code points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DscpSet(u64);

impl DscpSet {
    /// Returns whether the code point is in the set.
    #[inline]
    #[must_use]
    pub fn contains(self, dscp: Dscp) -> bool {
        self.0 >> dscp.0 & 1 != 0
    }

    /// Returns the code points, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Dscp> {
        (0..=Dscp::MAX).map(Dscp).filter(move |&dscp| self.contains(dscp))
    }
}

impl FromIterator<Dscp> for DscpSet {
    fn from_iter<I: IntoIterator<Item = Dscp>>(dscps: I) -> Self {
        DscpSet(dscps.into_iter().fold(0, |set, dscp| set | 1 << dscp.0))
    }
}

impl fmt::Display for DscpSet {
    /// Writes the names, such as `ef, cs6`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, dscp) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(to, "{separator}{dscp}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_registry() {
        for (name, number) in Dscp::NAMES {
            assert_eq!(name.parse(), Ok(Dscp(number)));
            assert_eq!(Dscp(number).to_string(), name);
        }
        // Assured forwarding: class times 8 and drop precedence times 2 (RFC 2597, 6).
        for (class, precedence) in (1..=4).flat_map(|class| (1..=3).map(move |precedence| (class, precedence))) {
            assert_eq!(format!("af{class}{precedence}").parse(), Ok(Dscp(8 * class + 2 * precedence)));
        }
        assert_eq!(Dscp(3).to_string(), "3");
        assert!("af44".parse::<Dscp>().is_err() && Dscp::new(64).is_none());
    }

    #[test]
    fn a_frame_has_the_code_point_of_its_ip_header() {
        let ef = [0xb8 | 1, 0xb8 | 2];
        let v4 = [&[0x45, ef[0], 0, 20][..], &[0; 16]].concat();
        let v6 = [&[0x60 | ef[1] >> 4, ef[1] << 4][..], &[0; 38]].concat();
        let vlan = [0x81, 0, 0, 5];
        let service = [0x88, 0xa8, 0, 6];
        for (ether_type, packet) in [([8, 0], v4), ([0x86, 0xdd], v6)] {
            for tags in [vec![], vlan.to_vec(), [service, vlan].concat()] {
                let frame = [&[2; 12][..], &tags, &ether_type, &packet].concat();
                assert_eq!(dscp_of(&frame), Dscp::new(46), "{frame:02x?}");
                for len in 0..frame.len() {
                    assert_eq!(dscp_of(&frame[..len]), None, "{len} bytes of {frame:02x?}");
                }
            }
            let arp = [&[2; 12][..], &[8, 6], &packet].concat();
            let three = [&[2; 12][..], &vlan, &vlan, &vlan, &ether_type, &packet].concat();
            assert_eq!([dscp_of(&arp), dscp_of(&three)], [None; 2]);
        }
    }

    #[test]
    fn a_set_has_the_code_points_it_was_made_of() {
        let numbers = [0, 46, 48, 63];
        let set: DscpSet = numbers.into_iter().filter_map(Dscp::new).collect();
        for dscp in (0..=Dscp::MAX).map(Dscp) {
            assert_eq!(set.contains(dscp), numbers.contains(&dscp.get()));
        }
        assert_eq!(set.to_string(), "cs0, ef, cs6, 63");
        assert_eq!(DscpSet::default().to_string(), "");
    }
}
