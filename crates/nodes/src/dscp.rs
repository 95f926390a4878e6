//! Marking: sets the class of service of IP packets (RFC 2474).

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};
use straightline_wire::{Dscp, EtherType, ipv4, ipv6, vlan};

/// A node that marks each IPv4 and IPv6 packet with a code point, behind priority tags and up to two
/// tags of VLANs. Other packets, and bits of congestion (ECN), stay as they are. It has one edge.
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
    let Ok((ether_type, payload)) = vlan::skip_all(head) else { return };
    let Some(packet) = head.get_mut(payload..) else { return };
    match ether_type {
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
            mark(&mut bytes, Dscp::new(46).unwrap());
            prop_assert_eq!(&bytes, &before);
            // A header that is cut off.
            let mut short = frame([None, None], cut % 2 == 0, 0);
            short.truncate(cut.min(if cut % 2 == 0 { 53 } else { 33 }));
            let before = short.clone();
            mark(&mut short, Dscp::new(46).unwrap());
            prop_assert_eq!(short, before);
        }
    }

    /// The bridge takes priority tags off later, so they are no way around the mark.
    #[test]
    fn a_packet_behind_priority_tags_is_marked() {
        for (is_ipv6, count) in [false, true].into_iter().flat_map(|is_ipv6| (0..=4).map(move |n| (is_ipv6, n))) {
            let stack = [[0x81, 0, 0, 0], [0x88, 0xa8, 0xe0, 0]].concat().repeat(2)[..4 * count].to_vec();
            for behind in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
                let tags = [&stack, behind].concat();
                let tagged = |class| {
                    let mut bytes = frame([None, None], is_ipv6, class);
                    bytes.splice(12..12, tags.iter().copied());
                    bytes
                };
                let mut marked = tagged(1);
                mark(&mut marked, Dscp::new(46).unwrap());
                assert_eq!(marked, tagged(46 << 2 | 1), "{tags:x?}");
            }
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut wrong = frame([None, None], false, 0);
        wrong[24] ^= 1;
        mark(&mut wrong, Dscp::new(46).unwrap());
        let mut right = frame([None, None], false, 46 << 2);
        assert!(!ipv4::Header::new_checked(&wrong[14..]).unwrap().checksum_ok());
        wrong[24] = right[24];
        wrong[25] = right[25];
        assert_eq!(wrong, right);
        right[14] = 0x55;
        let before = right.clone();
        mark(&mut right, Dscp::new(0).unwrap());
        assert_eq!(right, before, "another version");
    }
}
