//! Marking: sets the class of service of IP packets (RFC 2474).

use std::fmt;
use std::str::FromStr;

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};
use straightline_wire::{EtherType, ipv4, ipv6, vlan};

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
    #[must_use]
    fn put(self, class: u8) -> u8 {
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

/// A node that marks each IPv4 and IPv6 packet with a code point, behind up to two VLAN tags. Other
/// packets, and bits of congestion (ECN), stay as they are. It has one edge.
///
/// Checksums of TCP and UDP do not cover the code point. That of IPv4 is changed by the difference, so a
/// wrong one stays wrong. Segments of a GSO packet get its header.
#[derive(Clone, Copy, Debug)]
pub struct SetDscp(Dscp);

impl SetDscp {
    /// Creates the node.
    #[must_use]
    pub fn new(dscp: Dscp) -> Self {
        SetDscp(dscp)
    }
}

impl Node for SetDscp {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for id in batch.ids() {
            mark(packets.head_mut(*id), self.0);
        }
        next.extend(0, batch.ids());
    }
}

/// Marks the packet that begins with `head`.
#[inline]
fn mark(head: &mut [u8], dscp: Dscp) {
    let Ok(tags) = vlan::skip(head) else { return };
    let Some(packet) = head.get_mut(tags.payload..) else { return };
    match tags.ether_type {
        EtherType::IPV4 => {
            if let Ok(mut header) = ipv4::Header::new_checked(packet) {
                header.replace_tos(dscp.put(header.tos()));
            }
        }
        EtherType::IPV6 => {
            if let Ok(mut header) = ipv6::Header::new_checked(packet) {
                header.set_traffic_class(dscp.put(header.traffic_class()));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use straightline_wire::frame::{Checksum, Frame, Net, Transport};
    use straightline_wire::{MacAddr, vlan::Tag};

    use super::*;

    /// The reference: builds a frame with this class of service, and sums its whole header.
    fn frame(tags: [Option<Tag>; 2], is_ipv6: bool, class: u8) -> Vec<u8> {
        let net = if is_ipv6 {
            Net::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        } else {
            Net::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 255, 0, 2))
        };
        let headers = Frame {
            src: MacAddr([2; 6]),
            dst: MacAddr([4; 6]),
            tags,
            net,
            transport: Transport::Udp { src_port: 1, dst_port: 2 },
            payload_len: 3,
        };
        let mut frame = vec![0; headers.headers_len()];
        headers.emit(&mut frame, Checksum::Partial).unwrap();
        let at = 14 + 4 * tags.iter().flatten().count();
        if is_ipv6 {
            ipv6::Header::new_checked(&mut frame[at..]).unwrap().set_traffic_class(class);
        } else {
            let mut header = ipv4::Header::new_checked(&mut frame[at..]).unwrap();
            header.set_tos(class);
            header.fill_checksum();
        }
        frame.extend([7; 3]);
        frame
    }

    fn tags() -> impl Strategy<Value = [Option<Tag>; 2]> {
        let tag = |tpid: [u8; 2]| Tag::parse(&[tpid[0], tpid[1], 0x20, 5]).ok();
        let customer = [0x81, 0];
        let service = [0x88, 0xa8];
        prop_oneof![Just([None, None]), Just([tag(customer), None]), Just([tag(service), tag(customer)])]
    }

    proptest! {
        #[test]
        fn a_marked_packet_is_the_one_that_was_built_so(
            tags in tags(),
            is_ipv6 in any::<bool>(),
            class in any::<u8>(),
            number in 0..=Dscp::MAX,
        ) {
            let mut marked = frame(tags, is_ipv6, class);
            mark(&mut marked, Dscp::new(number).unwrap());
            prop_assert_eq!(marked, frame(tags, is_ipv6, number << 2 | class & 3));
        }

        #[test]
        fn other_frames_stay_as_they_are(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0..60_usize) {
            // Neither IPv4 nor IPv6, nor a tag.
            if let Some(kind) = bytes.get_mut(12) {
                *kind = 0x90;
            }
            let before = bytes.clone();
            mark(&mut bytes, Dscp(46));
            prop_assert_eq!(&bytes, &before);
            // A header that is cut off.
            let mut short = frame([None, None], cut % 2 == 0, 0);
            short.truncate(cut.min(if cut % 2 == 0 { 53 } else { 33 }));
            let before = short.clone();
            mark(&mut short, Dscp(46));
            prop_assert_eq!(short, before);
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut wrong = frame([None, None], false, 0);
        wrong[24] ^= 1;
        mark(&mut wrong, Dscp(46));
        let mut right = frame([None, None], false, 46 << 2);
        assert!(!ipv4::Header::new_checked(&wrong[14..]).unwrap().checksum_ok());
        wrong[24] = right[24];
        wrong[25] = right[25];
        assert_eq!(wrong, right);
        right[14] = 0x55;
        let before = right.clone();
        mark(&mut right, Dscp(0));
        assert_eq!(right, before, "another version");
    }

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
}
