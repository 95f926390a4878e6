//! Outer headers of GSO segments. Each segment is compared with one that is built whole: the
//! segment as its sender would have sent it, then the headers around it, then checksums over all
//! bytes. `etherparse` judges it, too.

use etherparse::{NetHeaders, PacketHeaders};
use proptest::prelude::*;
use straightline_packet::{
    Checksum, Gso, GsoKind, GsoSegment, Offload, Outer, OuterChecksum, PacketId, Packets, PortIndex, PrependError,
    Segmenter, Settings, StripError,
};
use straightline_simd::reference;
use straightline_testing::memory::{arena, pattern};
use straightline_wire::vlan::Tag;
use straightline_wire::{EtherType, IpProtocol, MacAddr, ethernet, ipv4, ipv6, udp};

use super::headers::segments;
use super::segmentation::{Headers, headers, u16_of};
use super::store::cuts;

/// Headers between the outer network header and the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// A protocol of its own, as L2TPv3 over IP.
    Ip,
    Udp {
        checksum: bool,
        gtpu: bool,
    },
    /// GRE with a checksum.
    Gre,
}

/// The headers of a tunnel.
#[derive(Clone, Debug)]
struct Tunnel {
    tagged: bool,
    v4: bool,
    /// Words of IPv4 options.
    options: usize,
    over: Over,
    /// Bytes behind all headers that this crate knows: a tunnel header, an even number.
    rest: Vec<u8>,
    /// True if the packet inside has its Ethernet header.
    ethernet: bool,
}

impl Tunnel {
    fn l3(&self) -> usize {
        if self.tagged { 18 } else { 14 }
    }

    fn l4(&self) -> usize {
        self.l3() + if self.v4 { 20 + 4 * self.options } else { 40 }
    }

    /// Returns the offset of the tunnel header.
    fn header(&self) -> usize {
        self.l4() + if self.over == Over::Ip { 0 } else { 8 }
    }

    fn outer(&self) -> Outer {
        let l3 = u16_of(self.l3());
        let l4 = u16_of(self.l4());
        let (checksum, gtpu) = match self.over {
            Over::Ip => (OuterChecksum::None, false),
            Over::Udp { checksum: true, gtpu } => (OuterChecksum::Udp { l4 }, gtpu),
            Over::Udp { checksum: false, gtpu } => (OuterChecksum::UdpZero { l4 }, gtpu),
            Over::Gre => (OuterChecksum::Gre { at: l4 }, false),
        };
        Outer { l3, checksum, gtpu: gtpu.then(|| u16_of(self.header())) }
    }

    /// Returns a packet around `inner`. All its checksums are sums over bytes.
    fn around(&self, inner: &[u8]) -> Vec<u8> {
        let ether_type = if self.v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut link = vec![0; 14];
        let repr = ethernet::Repr { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), ether_type };
        repr.emit(&mut link).expect("enough space");
        if self.tagged {
            let mut tag = [0; 4];
            Tag { tpid: EtherType::VLAN, pcp: 1, dei: false, vid: 7 }.emit(&mut tag).expect("enough space");
            link.splice(12..12, tag);
        }
        let behind = self.rest.len() + inner.len();
        let payload_len = u16_of(behind + self.header() - self.l4());
        let protocol = match self.over {
            Over::Ip => IpProtocol(115),
            Over::Udp { .. } => IpProtocol::UDP,
            Over::Gre => IpProtocol(47),
        };
        let mut network = vec![0; self.l4() - self.l3()];
        let pseudo = if self.v4 {
            let repr = ipv4::Repr {
                tos: 3,
                payload_len: payload_len + u16_of(4 * self.options),
                ident: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol,
                src: [192, 0, 2, 1].into(),
                dst: [198, 51, 100, 255].into(),
            };
            repr.emit(&mut network).expect("enough space");
            network[0] += u8::try_from(self.options).expect("few");
            network[20..].fill(1);
            network[10..12].fill(0);
            let sum = !reference::sum(&[&network]);
            network[10..12].copy_from_slice(&sum.to_be_bytes());
            ipv4::Header::new_checked(&network).expect("built above").pseudo_header_sum(payload_len)
        } else {
            let repr = ipv6::Repr {
                traffic_class: 1,
                flow_label: 0x12345,
                payload_len,
                next_header: protocol,
                hop_limit: 64,
                src: "2001:db8::1".parse().expect("an address"),
                dst: "2001:db8:ffff:ffff::ffff".parse().expect("an address"),
            };
            repr.emit(&mut network).expect("enough space");
            ipv6::Header::new_checked(&network).expect("built above").pseudo_header_sum(protocol, payload_len.into())
        };
        let mut transport = vec![0; self.header() - self.l4()];
        let mut rest = self.rest.clone();
        match self.over {
            Over::Ip => {}
            Over::Udp { checksum, gtpu } => {
                if gtpu {
                    rest[2..4].copy_from_slice(&u16_of(behind - 8).to_be_bytes());
                }
                let repr = udp::Repr { src_port: 50_000, dst_port: 2152, payload_len: u16_of(behind), checksum: 0 };
                repr.emit(&mut transport).expect("enough space");
                let all = reference::sum(&[&pseudo.to_be_bytes(), &transport, &rest, inner]);
                let value = if checksum { udp::checksum_of(all) } else { 0 };
                transport[6..].copy_from_slice(&value.to_be_bytes());
            }
            Over::Gre => {
                transport = vec![0x80, 0, 0x65, 0x58, 0, 0, 0, 0];
                let value = !reference::sum(&[&transport, &rest, inner]);
                transport[4..6].copy_from_slice(&value.to_be_bytes());
            }
        }
        [&link, &network, &transport, &rest, inner].concat()
    }
}

/// Checks that `etherparse` finds the same values in the outer headers.
fn judge(frame: &[u8], tunnel: &Tunnel) {
    let parsed = PacketHeaders::from_ethernet_slice(frame).expect("good headers");
    let mut again = parsed.transport.clone();
    let payload = parsed.payload.slice();
    match parsed.net.expect("a network header") {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(usize::from(ip.total_len), frame.len() - tunnel.l3());
            assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
            assert!((ip.identification, ip.dont_fragment) == (0, true));
            if let Some(transport) = &mut again {
                transport.update_checksum_ipv4(&ip, payload).expect("short");
            }
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(usize::from(ip.payload_length), frame.len() - tunnel.l4());
            if let Some(transport) = &mut again {
                transport.update_checksum_ipv6(&ip, payload).expect("short");
            }
        }
        NetHeaders::Arp(_) => panic!("no ARP"),
    }
    if let Over::Udp { checksum, .. } = tunnel.over {
        assert_eq!(payload.len(), frame.len() - tunnel.header(), "all bytes are UDP's");
        if checksum {
            assert_eq!(parsed.transport, again, "the checksum of UDP");
        }
    }
}

fn tunnels() -> impl Strategy<Value = Tunnel> {
    let over = prop_oneof![
        Just(Over::Ip),
        Just(Over::Gre),
        (any::<bool>(), any::<bool>()).prop_map(|(checksum, gtpu)| Over::Udp { checksum, gtpu }),
    ];
    let rest = (0..=10_usize).prop_flat_map(|words| prop::collection::vec(any::<u8>(), 2 * words));
    (any::<(bool, bool, bool)>(), 0..=2_usize, over, rest).prop_map(
        |((tagged, v4, ethernet), options, over, mut rest)| {
            let options = if v4 { options } else { 0 };
            if matches!(over, Over::Udp { gtpu: true, .. }) {
                rest.splice(..0, [0x30, 0xff, 0xaa, 0xaa, 1, 2, 3, 4]);
            }
            Tunnel { tagged, v4, options, over, rest, ethernet }
        },
    )
}

/// Puts the headers of a tunnel in front of a packet in a different way for each `way`.
fn encapsulate(packets: &mut Packets<'_>, id: PacketId, headers: &Headers, tunnel: &Tunnel, way: u8) {
    assert!(packets.pull_up(id, headers.header_len()));
    if !tunnel.ethernet {
        packets.strip(id, headers.l3()).expect("only link-layer headers");
    }
    // The fields that segmentation fills have any values before.
    let mut front = tunnel.around(&[]);
    for (at, len) in [(tunnel.l3() + if tunnel.v4 { 2 } else { 4 }, 2), (tunnel.l3() + 10, 2 * usize::from(tunnel.v4))]
    {
        front[at..at + len].fill(0xa5);
    }
    match tunnel.over {
        Over::Ip => {}
        Over::Udp { .. } => front[tunnel.l4() + 4..tunnel.l4() + 8].fill(0xa5),
        Over::Gre => front[tunnel.l4() + 4..tunnel.l4() + 6].fill(0xa5),
    }
    let outer = tunnel.outer();
    if way == 0 {
        packets.prepend_outer(id, &front, outer).expect("enough headroom");
        return;
    }
    // The link layer's header comes later.
    let (link, front) = front.split_at(tunnel.l3());
    let less = |at: u16| at - u16_of(tunnel.l3());
    let checksum = match outer.checksum {
        OuterChecksum::None => OuterChecksum::None,
        OuterChecksum::UdpZero { l4 } => OuterChecksum::UdpZero { l4: less(l4) },
        OuterChecksum::Udp { l4 } => OuterChecksum::Udp { l4: less(l4) },
        OuterChecksum::Gre { at } => OuterChecksum::Gre { at: less(at) },
    };
    let outer = Outer { l3: 0, checksum, gtpu: outer.gtpu.map(less) };
    packets.prepend_outer(id, front, outer).expect("enough headroom");
    packets.prepend(id, link).expect("enough headroom");
    if way == 1 {
        packets.strip(id, link.len()).expect("nothing but the link layer's header");
        assert_eq!(packets.offload(id).gso.and_then(|gso| gso.outer), Some(outer));
        packets.prepend(id, link).expect("enough headroom");
    }
    let outer = packets.offload(id).gso.and_then(|gso| gso.outer);
    assert_eq!(outer, Some(tunnel.outer()));
}

fn check(headers: &Headers, tunnel: &Tunnel, payload: &[u8], size: u16, from: &[usize], finish: bool, way: u8) {
    let frame = headers.frame(payload, true);
    let at_once: &[u32] = [&[u32::MAX][..], &[1], &[1, 3, 2]][usize::from(way)];
    let made = segments(&frame, headers, size, from, finish, at_once, |packets, id| {
        encapsulate(packets, id, headers, tunnel, way);
    });
    let mut parts: Vec<&[u8]> = payload.chunks(size.into()).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    assert_eq!(made.len(), parts.len());
    let mut sent = 0;
    for (i, (segment, part)) in made.iter().zip(&parts).enumerate() {
        let headers = headers.of_segment(i, sent, i + 1 == parts.len());
        let strip = if tunnel.ethernet { 0 } else { headers.l3() };
        // The outer checksum covers the finished inner one, also where that is still partial.
        let mut expected = tunnel.around(&headers.frame(part, false)[strip..]);
        let inner = headers.frame(part, !finish).split_off(strip);
        let start = expected.len() - inner.len();
        expected[start..].copy_from_slice(&inner);
        assert!(*segment == expected, "segment {i} of {tunnel:?}:\n{segment:x?}\nshould be\n{expected:x?}");
        if finish {
            judge(segment, tunnel);
        }
        sent += part.len();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn segments_are_those_that_were_built_whole(
        headers in headers(), tunnel in tunnels(), payload in prop_oneof![0..3000_usize, 0..20_000_usize],
        size in 400..1500_u16, seed: u8, from in cuts(), finish: bool, way in 0..3_u8,
    ) {
        let payload: Vec<u8> = pattern(payload).iter().map(|byte| byte ^ seed).collect();
        check(&headers, &tunnel, &payload, size, &from, finish, way);
    }
}

/// Headers without options, of a flow without marks.
fn plain(kind: GsoKind) -> Headers {
    Headers { kind, tags: 0, ip_options: 0, tcp_options: 0, extensions: vec![], id: 7, seq: 9, flags: 0x18 }
}

const UDP: Over = Over::Udp { checksum: true, gtpu: false };

fn tunnel(over: Over) -> Tunnel {
    Tunnel { tagged: false, v4: true, options: 0, over, rest: vec![0x08, 0, 0, 0, 0, 0, 7, 0], ethernet: true }
}

const KINDS: [GsoKind; 4] = [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6];

/// The last segment is as long as the others, shorter, the only one, or without payload.
#[test]
fn payloads_of_any_number_of_segments() {
    for kind in KINDS {
        for over in [Over::Ip, Over::Gre, UDP] {
            for payload in [0, 1, 699, 700, 701, 1399, 1400, 1401, 7000] {
                for (way, finish) in [(0, true), (1, false), (2, true)] {
                    check(&plain(kind), &tunnel(over), &pattern(payload), 700, &[], finish, way);
                }
            }
        }
    }
}

/// A checksum of 0 is sent as 0xffff in UDP, where 0 means "no checksum", but not in GRE.
#[test]
fn a_checksum_of_zero() {
    let headers = Headers { id: 0, ..plain(GsoKind::Tcp6) };
    for (over, zero) in [(UDP, [0xff; 2]), (Over::Gre, [0; 2])] {
        let mut tunnel = tunnel(over);
        let field = tunnel.l4() + if over == UDP { 6 } else { 4 };
        let whole = tunnel.around(&headers.frame(&pattern(500), false));
        // A word with this value makes all others sum to 0xffff.
        tunnel.rest[4..6].copy_from_slice(&whole[field..field + 2]);
        let whole = tunnel.around(&headers.frame(&pattern(500), false));
        assert_eq!(whole[field..field + 2], zero);
        check(&headers, &tunnel, &pattern(500), 500, &[], true, 0);
    }
}

fn with_packet(gso: Option<Gso>, check: impl FnOnce(&mut Packets<'_>, PacketId)) {
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept_owned(PortIndex(0), &[1; 100]).expect("a free slot");
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        turn.set_offload(id, Offload { checksum, gso });
        check(turn.packets(), id);
    });
}

const GSO: Gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1000, l3: 14, l4: 34, header_len: 54, outer: None };
const OUTER: Outer = Outer { l3: 14, checksum: OuterChecksum::Udp { l4: 34 }, gtpu: None };

#[test]
fn outer_headers_that_do_not_fit_are_refused() {
    let refused = |gso, len: usize, outer, error| {
        with_packet(gso, |packets, id| {
            let before = (packets.head(id).to_vec(), packets.offload(id));
            assert_eq!(packets.prepend_outer(id, &vec![2; len], outer), Err(error), "{outer:?} in {len} bytes");
            assert_eq!((packets.head(id).to_vec(), packets.offload(id)), before, "nothing has changed");
        });
    };
    let at = |checksum| Outer { checksum, ..OUTER };
    // The inner network header is at 14 in the packet, so it is at 64 behind 50 bytes.
    for (len, outer) in [
        (50, Outer { l3: 15, ..OUTER }),
        (50, Outer { l3: u16::MAX, ..OUTER }),
        (50, Outer { l3: 45, checksum: OuterChecksum::None, gtpu: None }),
        (50, at(OuterChecksum::Udp { l4: 58 })),
        (50, at(OuterChecksum::UdpZero { l4: 58 })),
        (50, at(OuterChecksum::Gre { at: 58 })),
        (50, at(OuterChecksum::Udp { l4: 33 })),
        (50, at(OuterChecksum::Udp { l4: 35 })),
        (50, at(OuterChecksum::Udp { l4: u16::MAX })),
        (50, Outer { gtpu: Some(41), ..OUTER }),
        (50, Outer { gtpu: Some(58), ..OUTER }),
        (50, Outer { gtpu: Some(u16::MAX), ..OUTER }),
        (27, OUTER),
    ] {
        refused(Some(GSO), len, outer, PrependError::Outer);
    }
    refused(Some(GSO), 117, OUTER, PrependError::NoHeadroom);
    refused(None, 50, OUTER, PrependError::Outer);
    refused(
        Some(Gso { outer: Some(Outer { l3: 0, checksum: OuterChecksum::None, gtpu: None }), ..GSO }),
        50,
        OUTER,
        PrependError::Outer,
    );
    refused(Some(Gso { header_len: u16::MAX, ..GSO }), 50, OUTER, PrependError::Offset);
}

#[test]
fn outer_headers_move_with_the_packet() {
    with_packet(Some(GSO), |packets, id| {
        let outer = Outer { gtpu: Some(42), ..OUTER };
        assert_eq!(packets.prepend_outer(id, &[2; 50], outer), Ok(()));
        assert_eq!(packets.prepend(id, &[3; 4]), Ok(()));
        let moved = Outer { l3: 18, checksum: OuterChecksum::Udp { l4: 38 }, gtpu: Some(46) };
        let gso = Gso { l3: 68, l4: 88, header_len: 108, outer: Some(moved), ..GSO };
        assert_eq!(packets.offload(id).gso, Some(gso));
        assert_eq!(packets.strip(id, 19), Err(StripError::Segmentation));
        assert_eq!(packets.strip(id, 68), Err(StripError::Segmentation), "no outer header at all would be left");
        assert_eq!(packets.offload(id).gso, Some(gso), "nothing has changed");
        assert_eq!(packets.strip(id, 18), Ok(()));
        let moved = Outer { l3: 0, checksum: OuterChecksum::Udp { l4: 20 }, gtpu: Some(28) };
        assert_eq!(packets.offload(id).gso.and_then(|gso| gso.outer), Some(moved));
    });
    let at_the_end = Outer { l3: u16::MAX - 19, ..OUTER };
    with_packet(Some(Gso { outer: Some(at_the_end), ..GSO }), |packets, id| {
        assert_eq!(packets.prepend(id, &[3; 20]), Err(PrependError::Offset));
    });
}

/// The length field of an outer header holds one segment's length, not the whole packet's.
#[test]
fn a_segment_must_fit_the_outer_length() {
    let gso = Gso { l3: 64, l4: 84, header_len: 104, outer: Some(OUTER), ..GSO };
    assert!(Segmenter::new(gso, 64 + 65_535).is_some(), "the packet is longer than an outer header could say");
    let size = 65_535 - (104 - 14);
    assert!(Segmenter::new(Gso { size, ..gso }, 64 + 65_535).is_some());
    assert!(Segmenter::new(Gso { size: size + 1, ..gso }, 64 + 65_535).is_none());
    assert!(Segmenter::new(Gso { size: u16::MAX, ..gso }, 64 + 30_000).is_some(), "the only segment is short");
}

#[test]
fn outer_headers_that_are_not_ip_give_no_segment() {
    let gso = Gso { l3: 64, l4: 84, header_len: 104, outer: Some(OUTER), ..GSO };
    for (first, is_good) in [(0x45, true), (0x44, false), (0x46, false), (0x60, false), (0x00, false), (0xf5, false)] {
        let mut head = [0; 104];
        head[14] = first;
        let mut segmenter = Segmenter::new(gso, 5000).expect("good numbers");
        assert_eq!(segmenter.begin(&head, &mut GsoSegment::default()), is_good, "{first:#x}");
        assert_eq!(segmenter.next(&head, &mut GsoSegment::default()), is_good, "{first:#x}");
    }
}

#[test]
fn segments_of_tcp_become_smaller_on_request() {
    let size = |kind, size| {
        let mut made = 0;
        with_packet(Some(Gso { kind, ..GSO }), |packets, id| {
            let before = packets.offload(id);
            packets.set_gso_size(id, size);
            made = packets.offload(id).gso.expect("still to be segmented").size;
            let gso = before.gso.map(|gso| Gso { size: made, ..gso });
            assert_eq!(packets.offload(id), Offload { gso, ..before });
        });
        made
    };
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6] {
        assert_eq!([900, 1000, 1100, 0].map(|n| size(kind, n)), [900, 1000, 1000, 1]);
    }
    assert_eq!([GsoKind::Udp4, GsoKind::Udp6].map(|kind| size(kind, 900)), [1000, 1000]);
    with_packet(None, |packets, id| {
        let before = packets.offload(id);
        packets.set_gso_size(id, 900);
        assert_eq!(packets.offload(id), before);
    });
}
