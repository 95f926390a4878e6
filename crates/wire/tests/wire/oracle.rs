//! Frames parsed by this crate and by `etherparse`, an independent implementation.

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions, Ipv6FragmentHeader,
    Ipv6Header, Ipv6RawExtHeader, LinkExtSlice, LinkSlice, NetSlice, PacketBuilder, SlicedPacket, TcpHeader,
    TransportSlice, UdpHeader,
};
use proptest::prelude::*;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{IpProtocol, IpVersion, WireError, checksum, locate};

use crate::common;

/// Builds a whole frame with a complete checksum.
fn build(frame: &Frame, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 110];
    let payload_sum = checksum::sum(body);
    let len = frame.emit(&mut bytes, Checksum::Complete { payload_sum }).expect("long enough");
    bytes.truncate(len);
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the offset of `part` in `whole`. `part` is a slice of `whole`.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn it_reads_what_we_build((frame, body) in common::frame()) {
        let bytes = build(&frame, &body);
        let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
        let Some(LinkSlice::Ethernet2(link)) = &theirs.link else { panic!("no Ethernet") };
        prop_assert_eq!((link.source(), link.destination()), (frame.src.0, frame.dst.0));

        let ours: Vec<_> = frame.tags.iter().flatten().collect();
        prop_assert_eq!(theirs.link_exts.len(), ours.len());
        for (theirs, ours) in theirs.link_exts.iter().zip(ours) {
            let LinkExtSlice::Vlan(theirs) = theirs else { panic!("no VLAN") };
            prop_assert_eq!(theirs.vlan_identifier().value(), ours.vid);
            prop_assert_eq!(theirs.priority_code_point().value(), ours.pcp);
            prop_assert_eq!(theirs.drop_eligible_indicator(), ours.dei);
        }
        compare_net_and_transport(&theirs, &frame, &body);
    }

    #[test]
    fn it_finds_the_headers_where_we_do(
        (frame, body) in common::frame(),
        damage in prop::collection::vec((12..80usize, any::<u8>()), 0..4),
    ) {
        let mut bytes = build(&frame, &body);
        for (at, byte) in damage {
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }
        agree(&bytes);
    }

    #[test]
    fn we_find_ipv4_options_and_tcp_options(
        words in 0..=10usize, tcp_words in 0..=10usize, udp: bool, more_fragments: bool, offset in prop_oneof![Just(0), 0..8192u16],
    ) {
        let mut header = Ipv4Header::new(0, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        header.options = Ipv4Options::try_from(&[1u8; 40][..words * 4]).unwrap();
        header.more_fragments = more_fragments;
        header.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        let bytes = their_frame(IpHeaders::Ipv4(header, Ipv4Extensions::default()), udp, tcp_words);
        let layers = agree(&bytes).unwrap();
        prop_assert_eq!(usize::from(layers.l4), 14 + 20 + words * 4);
        prop_assert_eq!(layers.fragment, more_fragments || offset > 0);
        let l4_len = if udp { 8 } else { 20 + tcp_words * 4 };
        prop_assert_eq!(usize::from(layers.l4_len), if layers.fragment { 0 } else { l4_len });
    }

    #[test]
    fn we_find_the_way_through_ipv6_extensions(
        hop_by_hop in prop::option::of(0..4usize), destination in prop::option::of(0..4usize),
        fragment in prop::option::of((0..8192u16, any::<bool>())), tcp_words in 0..=10usize, udp: bool,
    ) {
        let raw = |units: usize| Ipv6RawExtHeader::new_raw(IpNumber::UDP, &vec![0; 6 + units * 8]).unwrap();
        let extensions = Ipv6Extensions {
            hop_by_hop_options: hop_by_hop.map(raw),
            destination_options: destination.map(raw),
            fragment: fragment.map(|(offset, more)| {
                Ipv6FragmentHeader::new(IpNumber::UDP, IpFragOffset::try_new(offset).unwrap(), more, 7)
            }),
            ..Ipv6Extensions::default()
        };
        let header = Ipv6Header { hop_limit: 64, source: [1; 16], destination: [2; 16], ..Ipv6Header::default() };
        let len = extensions.header_len();
        let bytes = their_frame(IpHeaders::Ipv6(header, extensions), udp, tcp_words);
        let layers = agree(&bytes).unwrap();
        prop_assert_eq!(usize::from(layers.l4), 14 + 40 + len);
        prop_assert_eq!(layers.fragment, fragment.is_some());
        prop_assert_eq!(layers.protocol, if udp { IpProtocol::UDP } else { IpProtocol::TCP });
    }
}

/// Builds a frame by `etherparse`.
fn their_frame(ip: IpHeaders, udp: bool, tcp_words: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ip(ip);
    if udp {
        builder.udp(1, 2).write(&mut bytes, &[9; 20]).expect("a frame");
    } else {
        let mut tcp = TcpHeader::new(1, 2, 3, 4);
        tcp.set_options_raw(&[1; 40][..tcp_words * 4]).expect("options");
        builder.tcp_header(tcp).write(&mut bytes, &[9; 20]).expect("a frame");
    }
    bytes
}

fn compare_net_and_transport(theirs: &SlicedPacket<'_>, frame: &Frame, body: &[u8]) {
    let (udp, tcp) = match theirs.transport.as_ref().expect("a transport header") {
        TransportSlice::Udp(udp) => (Some(udp.to_header()), None),
        TransportSlice::Tcp(tcp) => (None, Some(tcp.to_header())),
        other => panic!("{other:?}"),
    };
    match (frame.net, theirs.net.as_ref().expect("a network header")) {
        (Net::V4 { src, dst, ident, ttl }, NetSlice::Ipv4(net)) => {
            let header = net.header().to_header();
            assert_eq!((header.source, header.destination), (src.octets(), dst.octets()));
            assert_eq!((header.identification, header.time_to_live), (ident, ttl));
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            check_transport(frame, udp, tcp, |udp, tcp| match (udp, tcp) {
                (Some(udp), _) => udp.calc_checksum_ipv4(&header, body).expect("short"),
                (_, Some(tcp)) => tcp.calc_checksum_ipv4(&header, body).expect("short"),
                _ => unreachable!("one of the two is there"),
            });
        }
        (Net::V6 { src, dst, flow_label, hop_limit }, NetSlice::Ipv6(net)) => {
            let header = net.header().to_header();
            assert_eq!((header.source, header.destination), (src.octets(), dst.octets()));
            assert_eq!((header.flow_label.value(), header.hop_limit), (flow_label, hop_limit));
            check_transport(frame, udp, tcp, |udp, tcp| match (udp, tcp) {
                (Some(udp), _) => udp.calc_checksum_ipv6(&header, body).expect("short"),
                (_, Some(tcp)) => tcp.calc_checksum_ipv6(&header, body).expect("short"),
                _ => unreachable!("one of the two is there"),
            });
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

fn check_transport(
    frame: &Frame,
    udp: Option<UdpHeader>,
    tcp: Option<TcpHeader>,
    checksum: impl Fn(Option<&UdpHeader>, Option<&TcpHeader>) -> u16,
) {
    let expected = checksum(udp.as_ref(), tcp.as_ref());
    match (frame.transport, udp, tcp) {
        (Transport::Udp { src_port, dst_port }, Some(udp), _) => {
            assert_eq!(
                (udp.source_port, udp.destination_port, udp.length),
                (src_port, dst_port, frame.payload_len + 8)
            );
            assert_eq!(udp.checksum, expected);
        }
        (Transport::Tcp { src_port, dst_port, seq, ack, flags, window }, _, Some(tcp)) => {
            assert_eq!((tcp.source_port, tcp.destination_port), (src_port, dst_port));
            assert_eq!((tcp.sequence_number, tcp.acknowledgment_number, tcp.window_size), (seq, ack, window));
            let theirs = [tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack, tcp.urg, tcp.ece, tcp.cwr];
            assert_eq!(theirs, std::array::from_fn(|bit| flags.0 & 1 << bit != 0));
            assert_eq!(tcp.checksum, expected);
        }
        (ours, ..) => panic!("{ours:?} is not what was read"),
    }
}

/// Asserts that `locate` finds the same headers as `etherparse`, at the same offsets.
///
/// `etherparse` also checks lengths against the whole frame, so it may refuse frames that `locate`
/// accepts. Every frame that it accepts `locate` accepts too, except in the cases named here.
fn agree(bytes: &[u8]) -> Option<straightline_wire::Layers> {
    let ours = locate(bytes);
    let Ok(theirs) = SlicedPacket::from_ethernet(bytes) else {
        return ours.ok();
    };
    let Some(net) = theirs.net.as_ref().filter(|net| net.is_ip()) else {
        assert_eq!(ours, Err(WireError::NotIp));
        return None;
    };
    let known_tags = [[0x81, 0x00], [0x88, 0xa8]];
    let tags = theirs.link_exts.len();
    if tags > 2 || (0..tags).any(|tag| !known_tags.contains(&[bytes[12 + tag * 4], bytes[13 + tag * 4]])) {
        assert_eq!(ours, Err(WireError::NotIp), "three tags, or tag types that `locate` does not skip");
        return None;
    }
    let (version, l3, payload, fragment, has_fragment_header) = match net {
        NetSlice::Ipv4(net) => {
            if !net.extensions().is_empty() {
                // `etherparse` skips an authentication header; `locate` returns it as the protocol.
                return ours.ok();
            }
            let fragment = net.is_payload_fragmented();
            (IpVersion::V4, net.header().slice(), net.payload(), fragment, fragment)
        }
        NetSlice::Ipv6(net) => {
            use etherparse::Ipv6ExtensionSlice::{Authentication, Fragment};
            if net.extensions().clone().into_iter().any(|extension| matches!(extension, Authentication(_))) {
                return ours.ok();
            }
            let fragment = net.extensions().clone().into_iter().any(|extension| matches!(extension, Fragment(_)));
            (IpVersion::V6, net.header().slice(), net.payload(), net.is_payload_fragmented(), fragment)
        }
        NetSlice::Arp(_) => unreachable!("filtered out"),
    };
    if ours == Err(WireError::BadLength) && matches!(theirs.transport, Some(TransportSlice::Udp(_))) {
        return None; // `etherparse` reads a UDP length of 0 as "to the end"
    }
    let layers = ours.unwrap_or_else(|error| panic!("{error:?}, but they found {theirs:?}"));
    assert_eq!((layers.version, usize::from(layers.l3)), (version, offset_in(bytes, l3)));
    assert_eq!(layers.fragment, has_fragment_header, "`locate` treats an atomic fragment as a fragment");
    if fragment || layers.fragment {
        return Some(layers);
    }
    assert_eq!(usize::from(layers.l4), offset_in(bytes, payload.payload));
    assert_eq!(layers.protocol.0, payload.ip_number.0);
    match &theirs.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            assert_eq!(usize::from(layers.l4_len), tcp.header_slice().len())
        }
        Some(TransportSlice::Udp(_)) => assert_eq!(layers.l4_len, 8),
        _ => assert_eq!(layers.l4_len, 0),
    }
    Some(layers)
}
