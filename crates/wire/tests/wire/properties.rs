//! Headers that are built are read back unchanged, and no bytes make a view panic.

use std::hint::black_box;

use proptest::prelude::*;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{
    EtherType, IpProtocol, IpVersion, Layers, Layout, MacAddr, checksum, ethernet, flow_hash, flow_hash_of, ipv4, ipv6,
    locate, plain_flow, tcp, udp, vlan,
};

use crate::common;

/// Reads the headers at the beginning of `bytes` back into a frame, by views alone.
fn read_frame(bytes: &[u8]) -> (Frame, Layers) {
    let layers = locate(bytes).expect("a built frame");
    let link = ethernet::Header::new_checked(bytes).expect("Ethernet");
    let tags = vlan::skip(bytes).expect("tags");
    let l3 = &bytes[layers.l3.into()..];
    let l4 = &bytes[layers.l4.into()..];
    let (net, net_payload) = match layers.version {
        IpVersion::V4 => {
            let header = ipv4::Header::new_checked(l3).expect("IPv4");
            assert!(header.checksum_ok());
            let net = Net::V4 { src: header.src(), dst: header.dst(), ident: header.ident(), ttl: header.ttl() };
            (net, usize::from(header.total_len()) - header.header_len())
        }
        IpVersion::V6 => {
            let header = ipv6::Header::new_checked(l3).expect("IPv6");
            let src = header.src();
            let dst = header.dst();
            let flow_label = header.flow_label();
            (Net::V6 { src, dst, flow_label, hop_limit: header.hop_limit() }, header.payload_len().into())
        }
    };
    let transport = match layers.protocol {
        IpProtocol::UDP => {
            let header = udp::Header::new_checked(l4).expect("UDP");
            assert_eq!(usize::from(header.length()), net_payload);
            Transport::Udp { src_port: header.src_port(), dst_port: header.dst_port() }
        }
        IpProtocol::TCP => {
            let header = tcp::Header::new_checked(l4).expect("TCP");
            let src_port = header.src_port();
            let dst_port = header.dst_port();
            let window = header.window();
            Transport::Tcp { src_port, dst_port, seq: header.seq(), ack: header.ack(), flags: header.flags(), window }
        }
        other => panic!("protocol {other:?}"),
    };
    let payload_len = u16::try_from(net_payload).expect("16 bits") - layers.l4_len;
    (Frame { src: link.src(), dst: link.dst(), tags: tags.tags, net, transport, payload_len }, layers)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn frames_are_read_back((frame, body) in common::frame(), garbage: u8) {
        let mut bytes = vec![garbage; 200];
        let payload_sum = checksum::sum(&body);
        let len = frame.emit(&mut bytes, Checksum::Complete { payload_sum }).unwrap();
        prop_assert_eq!(len, frame.headers_len());
        prop_assert!(bytes[len..].iter().all(|&byte| byte == garbage));
        let (read, layers) = read_frame(&bytes[..len]);
        prop_assert_eq!(read, frame);
        prop_assert_eq!(usize::from(layers.headers_len()), len);
        for cut in 0..len {
            prop_assert!(locate(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_complete_checksum_sums_to_all_ones((frame, body) in common::frame()) {
        let mut bytes = vec![0; 200];
        let payload_sum = checksum::sum(&body);
        let len = frame.emit(&mut bytes, Checksum::Complete { payload_sum }).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(&body);
        let layers = locate(&bytes).unwrap();
        let segment = &bytes[layers.l4.into()..];
        let segment_len = u16::try_from(segment.len()).unwrap();
        let l3 = &bytes[layers.l3.into()..];
        let pseudo = match layers.version {
            IpVersion::V4 => ipv4::Header::new_checked(l3).unwrap().pseudo_header_sum(segment_len),
            IpVersion::V6 => {
                ipv6::Header::new_checked(l3).unwrap().pseudo_header_sum(layers.protocol, segment_len.into())
            }
        };
        prop_assert_eq!(checksum::add(pseudo, checksum::sum(segment)), 0xffff);

        // The partial checksum is the sum of the pseudo-header. Completing it as a device does
        // gives the complete checksum.
        let mut partial = bytes.clone();
        frame.emit(&mut partial, Checksum::Partial).unwrap();
        let at = usize::from(layers.checksum().unwrap());
        prop_assert_eq!(&partial[at..at + 2], pseudo.to_be_bytes());
        let finished = !checksum::sum(&partial[layers.l4.into()..]);
        let field = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        prop_assert!(finished == field || (finished == 0 && field == 0xffff));
    }

    #[test]
    fn ethernet_is_read_back(dst in common::mac(), src in common::mac(), ether_type: u16) {
        let repr = ethernet::Repr { dst, src, ether_type: EtherType(ether_type) };
        let mut bytes = [0xee; 20];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(14));
        prop_assert_eq!(ethernet::Repr::parse(&ethernet::Header::new_checked(&bytes).unwrap()), repr);
        prop_assert_eq!(src.to_string().parse::<MacAddr>(), Ok(src));
    }

    #[test]
    fn tags_are_read_back(tag in common::tag()) {
        let mut bytes = [0xee; 6];
        prop_assert_eq!(tag.emit(&mut bytes), Ok(4));
        prop_assert_eq!(vlan::Tag::parse(&bytes), Ok(tag));
    }

    #[test]
    fn ipv4_is_read_back(
        (tos, payload_len, ident, dont_fragment, more_fragments) in (any::<u8>(), 0..=65_515u16, any::<u16>(), any::<bool>(), any::<bool>()),
        (fragment_offset, ttl, protocol) in (0..8192u16, any::<u8>(), any::<u8>().prop_map(IpProtocol)),
        (src, dst) in any::<([u8; 4], [u8; 4])>(),
    ) {
        let src = src.into();
        let dst = dst.into();
        let repr = ipv4::Repr {
            tos, payload_len, ident, dont_fragment, more_fragments, fragment_offset, ttl, protocol, src, dst,
        };
        let mut bytes = [0xee; 30];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(20));
        let header = ipv4::Header::new_checked(&bytes).unwrap();
        prop_assert!(header.checksum_ok());
        prop_assert_eq!(ipv4::Repr::parse(&header), repr);
    }

    #[test]
    fn ipv6_is_read_back(
        (traffic_class, flow_label, payload_len, next_header, hop_limit) in
            (any::<u8>(), 0u32..1 << 20, any::<u16>(), any::<u8>().prop_map(IpProtocol), any::<u8>()),
        (src, dst) in any::<([u8; 16], [u8; 16])>(),
    ) {
        let src = src.into();
        let dst = dst.into();
        let repr = ipv6::Repr { traffic_class, flow_label, payload_len, next_header, hop_limit, src, dst };
        let mut bytes = [0xee; 50];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(40));
        prop_assert_eq!(ipv6::Repr::parse(&ipv6::Header::new_checked(&bytes).unwrap()), repr);
    }

    #[test]
    fn udp_is_read_back(src_port: u16, dst_port: u16, payload_len in 0..=65_527u16, checksum: u16) {
        let repr = udp::Repr { src_port, dst_port, payload_len, checksum };
        let mut bytes = [0xee; 10];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(8));
        prop_assert_eq!(udp::Repr::parse(&udp::Header::new_checked(&bytes).unwrap()), repr);
    }

    #[test]
    fn tcp_is_read_back(
        (src_port, dst_port, seq, ack) in any::<(u16, u16, u32, u32)>(),
        (flags, window, checksum, urgent) in any::<(u8, u16, u16, u16)>(),
    ) {
        let flags = tcp::Flags(flags);
        let repr = tcp::Repr { src_port, dst_port, seq, ack, flags, window, checksum, urgent };
        let mut bytes = [0xee; 30];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(20));
        prop_assert_eq!(tcp::Repr::parse(&tcp::Header::new_checked(&bytes).unwrap()), repr);
    }

    #[test]
    fn no_bytes_make_a_view_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        read_everything(&mut bytes);
    }

    /// Random bytes seldom pass the first check. Damaged frames pass most checks.
    #[test]
    fn no_damaged_frame_makes_a_view_panic(
        (frame, body) in common::frame(),
        damage in prop::collection::vec((0..110usize, any::<u8>()), 0..6),
        cut in 0..220usize,
    ) {
        let mut bytes = vec![0; 110];
        let len = frame.emit(&mut bytes, Checksum::Zero).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(&body);
        for (at, byte) in damage {
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }
        bytes.truncate(cut);
        if let Ok(layers) = locate(&bytes) {
            prop_assert!(usize::from(layers.headers_len()) <= bytes.len());
            prop_assert!(layers.checksum().is_none_or(|at| usize::from(at) + 2 <= bytes.len()));
        }
        read_everything(&mut bytes);
        for from in [12, 14, 18, 22, 34, 54] {
            if let Some(rest) = bytes.get_mut(from..) {
                read_everything(rest);
            }
        }
    }
}

/// Calls every getter, parser and setter whose check accepts the bytes.
fn read_everything(bytes: &mut [u8]) {
    let layers = locate(bytes);
    let layout = Layout::parse(bytes);
    assert_eq!(layout.and_then(|layout| layout.layers), layers);
    assert_eq!(
        layout.map(|layout| (layout.tags, layout.ether_type, layout.payload.into())),
        vlan::skip(bytes).map(|skipped| (skipped.tags, skipped.ether_type, skipped.payload))
    );
    let hash = flow_hash(bytes);
    assert_eq!(plain_flow(bytes).map_or_else(|| flow_hash_of(bytes, layers.ok()), |flow| flow.hash), hash);
    // Frames with wrong lengths may have plain headers.
    assert!(layers.is_err() || flow_hash_of(bytes, layers.ok()) == hash);
    let _ = vlan::Tag::parse(bytes);
    let _ = vlan::skip(bytes);
    for protocol in [0, 6, 43, 44, 60] {
        if let Ok(walked) = ipv6::skip_extensions(bytes, IpProtocol(protocol)) {
            assert!(walked.len <= bytes.len());
        }
    }
    if let Ok(header) = ethernet::Header::new_checked(&*bytes) {
        black_box(ethernet::Repr::parse(&header));
    }
    if let Ok(header) = ipv6::Header::new_checked(&*bytes) {
        black_box(ipv6::Repr::parse(&header));
    }
    if let Ok(header) = udp::Header::new_checked(&*bytes) {
        black_box(udp::Repr::parse(&header));
    }
    if let Ok(header) = tcp::Header::new_checked(&*bytes) {
        black_box(tcp::Repr::parse(&header));
        assert_eq!(header.options().len() + 20, header.header_len());
    }
    if let Ok(mut header) = ipv4::Header::new_checked(bytes) {
        black_box(ipv4::Repr::parse(&header));
        assert_eq!(header.options().len() + 20, header.header_len());
        header.fill_checksum();
        assert!(header.checksum_ok());
    }
}
