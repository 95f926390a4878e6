//! The condition of a flow.

use crate::field::{Field, VLAN_PRESENT};
use crate::numbers::{ADVERTISEMENT, ARP, ICMP, ICMPV6, IPV4, IPV6, RARP, SCTP, SOLICITATION, TCP, UDP};
use crate::prerequisite::Prerequisite;

/// A test of a whole field: the bits of `mask` are those of `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldTest {
    /// A whole field ([`Field::whole`]).
    pub field: Field,
    /// Value. Bits outside of the mask are 0.
    pub value: u128,
    /// Mask, at least 1 bit.
    pub mask: u128,
}

/// The condition of a flow: tests that a packet must all pass.
///
/// Each whole field is tested once at most, and the tests are in the order of the fields. So two
/// equal conditions are equal values. The match of a parsed flow has the prerequisites of its fields
/// among its tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match(Vec<FieldTest>);

impl Match {
    /// Creates the condition that every packet meets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tests in the order of the fields.
    #[must_use]
    pub fn tests(&self) -> &[FieldTest] {
        &self.0
    }

    /// Returns value and mask of a field. The mask is 0 if the field is not tested.
    #[must_use]
    pub fn get(&self, field: Field) -> (u128, u128) {
        let (whole, shift) = field.whole();
        let test = self.0.iter().find(|test| test.field == whole);
        test.map_or((0, 0), |test| ((test.value >> shift) & field.greatest(), (test.mask >> shift) & field.greatest()))
    }

    /// Returns whether all bits of a field are tested, and must have this value.
    #[must_use]
    pub fn is_exactly(&self, field: Field, value: u128) -> bool {
        self.get(field) == (value, field.greatest())
    }

    /// Tests bits of a field. Bits that were tested already get the new value.
    pub fn set(&mut self, field: Field, value: u128, mask: u128) {
        let (whole, shift) = field.whole();
        let mask = (mask & field.greatest()) << shift;
        if mask == 0 {
            return;
        }
        let value = (value << shift) & mask;
        match self.0.binary_search_by_key(&whole, |test| test.field) {
            Ok(at) => {
                let test = &mut self.0[at];
                test.value = (test.value & !mask) | value;
                test.mask |= mask;
            }
            Err(at) => self.0.insert(at, FieldTest { field: whole, value, mask }),
        }
    }

    /// Returns the match with a test for a value of a field.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Self {
        self.set(field, value, field.greatest());
        self
    }

    /// Stops testing a field. Returns its value and mask.
    pub fn take(&mut self, field: Field) -> (u128, u128) {
        let taken = self.get(field);
        let (whole, shift) = field.whole();
        if let Some(test) = self.0.iter_mut().find(|test| test.field == whole) {
            test.mask &= !(field.greatest() << shift);
            test.value &= test.mask;
        }
        self.0.retain(|test| test.mask != 0);
        taken
    }

    /// Returns whether each packet that meets `other` meets this condition too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().all(|test| {
            let (value, mask) = other.get(test.field);
            mask & test.mask == test.mask && value & test.mask == test.value
        })
    }

    /// Returns whether a packet may meet both conditions.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().all(|test| {
            let (value, mask) = other.get(test.field);
            (value ^ test.value) & mask & test.mask == 0
        })
    }

    /// Returns the condition of packets that meet both; `None` if no packet does.
    #[must_use]
    pub fn and(&self, other: &Self) -> Option<Self> {
        if !self.overlaps(other) {
            return None;
        }
        let mut both = self.clone();
        other.0.iter().for_each(|test| both.set(test.field, test.value, test.mask));
        Some(both)
    }

    /// Returns whether a packet meets the condition, which `read` gives the values of whole fields.
    #[must_use]
    pub fn accepts(&self, mut read: impl FnMut(Field) -> u128) -> bool {
        self.0.iter().all(|test| read(test.field) & test.mask == test.value)
    }

    /// Returns whether all packets that meet this condition meet the prerequisite of a field.
    #[must_use]
    pub fn meets(&self, prerequisite: Prerequisite) -> bool {
        let has_type = |number: u16| self.is_exactly(Field::EthType, number.into());
        let is_ip = || has_type(IPV4) || has_type(IPV6);
        let is_protocol = |number: u8| is_ip() && self.is_exactly(Field::IpProto, number.into());
        let is_icmpv6 = || has_type(IPV6) && is_protocol(ICMPV6);
        let is_neighbour = |kind: u8| is_icmpv6() && self.is_exactly(Field::IcmpType, kind.into());
        match prerequisite {
            Prerequisite::None => true,
            Prerequisite::Vlan => self.get(Field::VlanTci).0 & u128::from(VLAN_PRESENT) != 0,
            Prerequisite::Ip => is_ip(),
            Prerequisite::Ipv4 => has_type(IPV4),
            Prerequisite::Ipv6 => has_type(IPV6),
            Prerequisite::Arp => has_type(ARP) || has_type(RARP),
            Prerequisite::Tcp => is_protocol(TCP),
            Prerequisite::Udp => is_protocol(UDP),
            Prerequisite::Sctp => is_protocol(SCTP),
            Prerequisite::Ports => is_protocol(TCP) || is_protocol(UDP) || is_protocol(SCTP),
            Prerequisite::Icmp => is_icmpv6() || (has_type(IPV4) && is_protocol(ICMP)),
            Prerequisite::Icmpv6 => is_icmpv6(),
            Prerequisite::Nd => is_neighbour(SOLICITATION) || is_neighbour(ADVERTISEMENT),
            Prerequisite::NdSolicit => is_neighbour(SOLICITATION),
            Prerequisite::NdAdvert => is_neighbour(ADVERTISEMENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_test_of_their_field() {
        let flow = Match::new().with(Field::IpDscp, 8).with(Field::IpEcn, 1);
        assert_eq!(flow.tests(), [FieldTest { field: Field::IpTos, value: 0x21, mask: 0xff }]);
        assert_eq!(flow.get(Field::IpDscp), (8, 0x3f));
        let mut flow = flow;
        assert_eq!(flow.take(Field::IpDscp), (8, 0x3f));
        assert_eq!(flow, Match::new().with(Field::IpEcn, 1));
        flow.take(Field::IpEcn);
        assert_eq!(flow, Match::new());
    }

    #[test]
    fn a_wider_match_covers_and_overlaps() {
        let mut net = Match::new().with(Field::EthType, 0x800);
        net.set(Field::IpDst, 0x0a00_0000, 0xff00_0000);
        let host = Match::new().with(Field::EthType, 0x800).with(Field::IpDst, 0x0a00_0001);
        let port = Match::new().with(Field::InPort, 1);
        let other = Match::new().with(Field::EthType, 0x800).with(Field::IpDst, 0x0b00_0001);
        assert!(net.covers(&host) && !host.covers(&net) && net.covers(&net));
        assert!(net.overlaps(&host) && host.overlaps(&net) && net.overlaps(&port));
        assert!(!net.covers(&port) && !net.covers(&other) && !net.overlaps(&other));
        assert!(net.accepts(|field| if field == Field::IpDst { 0x0a01_0203 } else { 0x800 }));
        assert!(!net.accepts(|_| 0x800));
        assert_eq!(net.and(&host), Some(host.clone()));
        assert_eq!(net.and(&other), None);
        assert_eq!(net.and(&port).map(|both| (net.covers(&both), port.covers(&both))), Some((true, true)));
    }
}
