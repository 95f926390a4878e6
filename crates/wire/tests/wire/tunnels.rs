//! Headers of tunnels and messages of ICMP: what is built is read back unchanged, a truncated header
//! is refused, and no bytes make a view panic. `etherparse` knows ICMP among them.

use std::hint::black_box;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{IcmpEchoHeader, Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type};
use proptest::collection::vec;
use proptest::prelude::*;
use straightline_wire::ecn::{self, Ecn};
use straightline_wire::l2tpv3::{Carrier, Sublayer};
use straightline_wire::{
    EtherType, IpProtocol, WireError, checksum, geneve, gre, gtpu, icmpv4, icmpv6, ipv4, ipv6, l2tpv3, mpls, vxlan,
    vxlan_gpe,
};

/// Builds a header with `emit`, checks that nothing behind it is written, and returns its bytes.
fn built(emit: impl Fn(&mut [u8]) -> Result<usize, WireError>) -> Vec<u8> {
    let mut bytes = vec![0xee; 300];
    let len = emit(&mut bytes).expect("values in range");
    assert!(bytes[len..].iter().all(|&byte| byte == 0xee));
    for short in 0..len {
        assert_eq!(emit(&mut vec![0; short]), Err(WireError::BufferTooSmall), "{short}");
    }
    bytes.truncate(len);
    bytes
}

/// Checks that every truncation of a header is refused.
fn assert_truncations<'a, R>(bytes: &'a [u8], parse: impl Fn(&'a [u8]) -> Result<R, WireError>) {
    for len in 0..bytes.len() {
        assert_eq!(parse(&bytes[..len]).err(), Some(WireError::Truncated), "{len} of {bytes:x?}");
    }
}

fn u24() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(0xff_ffff), 0..0x100_0000_u32]
}

fn ether_type() -> impl Strategy<Value = EtherType> {
    prop_oneof![Just(EtherType::ETHERNET), any::<u16>().prop_map(EtherType)]
}

fn carrier() -> impl Strategy<Value = Carrier> {
    prop_oneof![Just(Carrier::Ip), Just(Carrier::Udp)]
}

/// Strategy for whole Geneve options.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<(u16, u8)>(), 0..4_u8, any::<[u8; 12]>()).prop_map(|((class, option_type), units, data)| {
        [&class.to_be_bytes()[..], &[option_type, units], &data[..usize::from(units) * 4]].concat()
    });
    vec(option, 0..6).prop_map(|options| options.concat())
}

/// Strategy for the extensions of a GTP-U header: types and contents.
fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let content = (1..4_usize).prop_flat_map(|units| vec(any::<u8>(), units * 4 - 2));
    vec((1..=255_u8, content), 1..gtpu::MAX_EXTENSIONS + 1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn l2tpv3_is_read_back(
        carrier in carrier(), session in 1..=u32::MAX, cookie: [u8; 8], cookie_len in prop::sample::select(vec![0, 4, 8]),
        sublayer in prop::option::of(prop::option::of(u24())),
    ) {
        let sublayer = sublayer.map(|sequence| Sublayer { sequence });
        let repr = l2tpv3::Repr { carrier, session, cookie: &cookie[..cookie_len], sublayer };
        let bytes = built(|buffer| repr.emit(buffer));
        let header = l2tpv3::Header::new_checked(&bytes, carrier).unwrap();
        prop_assert_eq!(l2tpv3::Repr::parse(&header, cookie_len, sublayer.is_some()), Ok(repr));
        assert_truncations(&bytes, |bytes| {
            let header = l2tpv3::Header::new_checked(bytes, carrier)?;
            l2tpv3::Repr::parse(&header, cookie_len, sublayer.is_some()).map(|_| ())
        });
    }

    #[test]
    fn vxlan_is_read_back(vni in u24(), next_protocol: u8) {
        let repr = vxlan::Repr { vni };
        let bytes = built(|buffer| repr.emit(buffer));
        prop_assert_eq!(vxlan::Repr::parse(&vxlan::Header::new_checked(&bytes).unwrap()), repr);
        assert_truncations(&bytes, vxlan::Header::new_checked);
        // A receiver of VXLAN-GPE reads VXLAN as well.
        let as_gpe = vxlan_gpe::Repr::parse(&vxlan_gpe::Header::new_checked(&bytes).unwrap());
        prop_assert_eq!(as_gpe, vxlan_gpe::Repr { next_protocol: vxlan_gpe::NextProtocol::ETHERNET, vni });

        let repr = vxlan_gpe::Repr { next_protocol: vxlan_gpe::NextProtocol(next_protocol), vni };
        let bytes = built(|buffer| repr.emit(buffer));
        prop_assert_eq!(vxlan_gpe::Repr::parse(&vxlan_gpe::Header::new_checked(&bytes).unwrap()), repr);
        assert_truncations(&bytes, vxlan_gpe::Header::new_checked);
    }

    #[test]
    fn geneve_is_read_back(protocol in ether_type(), vni in u24(), options in options()) {
        let repr = geneve::Repr { protocol, vni, options: &options };
        let bytes = built(|buffer| repr.emit(buffer));
        let header = geneve::Header::new_checked(&bytes).unwrap();
        prop_assert_eq!(geneve::Repr::parse(&header), repr);
        prop_assert_eq!(header.header_len(), bytes.len());
        assert_truncations(&bytes, geneve::Header::new_checked);

        let read: Vec<_> = header.options().map(|option| option.unwrap()).collect();
        prop_assert_eq!(header.has_critical(), read.iter().any(|option| option.is_critical()));
        let again = read.iter().flat_map(|option| {
            let units = u8::try_from(option.data.len() / 4).unwrap();
            [&option.class.to_be_bytes()[..], &[option.option_type, units], option.data].concat()
        });
        prop_assert_eq!(again.collect::<Vec<_>>(), options);
    }

    #[test]
    fn gre_is_read_back(
        protocol in ether_type(), checksum: Option<u16>, key: Option<u32>, sequence: Option<u32>, (vsid, flow) in (u24(), any::<u8>()),
    ) {
        let nvgre = gre::NvgreKey { vsid, flow };
        prop_assert_eq!(gre::NvgreKey::from_key(nvgre.to_key().unwrap()), nvgre);
        for key in [key, Some(nvgre.to_key().unwrap())] {
            let repr = gre::Repr { protocol, checksum, key, sequence };
            let bytes = built(|buffer| repr.emit(buffer));
            let header = gre::Header::new_checked(&bytes).unwrap();
            prop_assert_eq!((gre::Repr::parse(&header), header.header_len()), (repr, bytes.len()));
            assert_truncations(&bytes, gre::Header::new_checked);
        }
    }

    #[test]
    fn gtpu_is_read_back(message_type: u8, teid: u32, sequence: Option<u16>, payload_len in 0..=65_531_u16) {
        let repr = gtpu::Repr { message_type: gtpu::Type(message_type), teid, sequence, payload_len };
        let bytes = built(|buffer| repr.emit(buffer));
        let header = gtpu::Header::new_checked(&bytes).unwrap();
        prop_assert_eq!((gtpu::Repr::parse(&header), header.header_len()), (repr, bytes.len()));
        prop_assert_eq!(header.extensions().count(), 0);
        assert_truncations(&bytes, gtpu::Header::new_checked);
    }

    #[test]
    fn extensions_of_gtpu_are_walked_through(chain in extensions(), payload_len in 0..1000_u16) {
        let mut bytes = vec![0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, chain[0].0];
        for (i, (_, content)) in chain.iter().enumerate() {
            let next = chain.get(i + 1).map_or(0, |(next, _)| *next);
            bytes.push(u8::try_from((content.len() + 2) / 4).unwrap());
            bytes.extend(content);
            bytes.push(next);
        }
        let length = u16::try_from(bytes.len() - 8).unwrap() + payload_len;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        let header = gtpu::Header::new_checked(&bytes).unwrap();
        prop_assert_eq!((header.header_len(), gtpu::Repr::parse(&header).payload_len), (bytes.len(), payload_len));
        let read: Vec<_> = header.extensions().map(|(kind, content)| (kind.0, content.to_vec())).collect();
        prop_assert_eq!(read, chain);
        assert_truncations(&bytes, gtpu::Header::new_checked);
    }

    #[test]
    fn labels_are_read_back(label in 0..=mpls::MAX_LABEL, traffic_class in 0..8_u8, is_bottom: bool, ttl: u8) {
        let entry = mpls::Entry { label, traffic_class, is_bottom, ttl };
        let bytes = built(|buffer| entry.emit(buffer));
        prop_assert_eq!(mpls::Entry::parse(&bytes), Ok(entry));
        assert_truncations(&bytes, mpls::Entry::parse);
    }

    #[test]
    fn icmp_for_ipv4_is_read_as_etherparse_reads_it(ident: u16, sequence: u16, mtu: u16, body in vec(any::<u8>(), 0..60)) {
        let echo = IcmpEchoHeader { id: ident, seq: sequence };
        let too_big = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
        for (repr, theirs) in [
            (icmpv4::Repr::EchoRequest { ident, sequence }, Icmpv4Type::EchoRequest(echo)),
            (icmpv4::Repr::EchoReply { ident, sequence }, Icmpv4Type::EchoReply(echo)),
            (icmpv4::Repr::FragmentationNeeded { mtu }, Icmpv4Type::DestinationUnreachable(too_big)),
        ] {
            let mut bytes = built(|buffer| repr.emit(buffer, checksum::sum(&body)));
            assert_truncations(&bytes, icmpv4::Header::new_checked);
            bytes.extend(&body);
            prop_assert_eq!(icmpv4::Repr::parse(&icmpv4::Header::new_checked(&bytes).unwrap()), Some(repr));
            let slice = Icmpv4Slice::from_slice(&bytes).unwrap();
            prop_assert_eq!((slice.icmp_type(), slice.payload()), (theirs.clone(), &body[..]));
            prop_assert_eq!(slice.checksum(), theirs.calc_checksum(&body));
        }
    }

    #[test]
    fn icmp_for_ipv6_is_read_as_etherparse_reads_it(
        ident: u16, sequence: u16, mtu: u32, body in vec(any::<u8>(), 0..60), src: [u8; 16], dst: [u8; 16],
    ) {
        let echo = IcmpEchoHeader { id: ident, seq: sequence };
        let len = u32::try_from(icmpv6::LEN + body.len()).unwrap();
        let pseudo = checksum::pseudo_header_v6(src.into(), dst.into(), IpProtocol::ICMPV6, len);
        for (repr, theirs) in [
            (icmpv6::Repr::EchoRequest { ident, sequence }, Icmpv6Type::EchoRequest(echo)),
            (icmpv6::Repr::EchoReply { ident, sequence }, Icmpv6Type::EchoReply(echo)),
            (icmpv6::Repr::TooBig { mtu }, Icmpv6Type::PacketTooBig { mtu }),
        ] {
            let mut bytes = built(|buffer| repr.emit(buffer, checksum::add(pseudo, checksum::sum(&body))));
            assert_truncations(&bytes, icmpv6::Header::new_checked);
            bytes.extend(&body);
            prop_assert_eq!(icmpv6::Repr::parse(&icmpv6::Header::new_checked(&bytes).unwrap()), Some(repr));
            let slice = Icmpv6Slice::from_slice(&bytes).unwrap();
            prop_assert_eq!((slice.icmp_type(), slice.payload()), (theirs, &body[..]));
            prop_assert!(slice.is_checksum_valid(src, dst));
            let mut filled = bytes.clone();
            icmpv6::fill_checksum(&mut filled, src.into(), dst.into()).unwrap();
            prop_assert_eq!(filled, bytes);
        }
    }

    /// Setting a type of service keeps a right checksum right, in every header.
    #[test]
    fn marks_of_congestion_change_two_bits(
        tos: u8, mark in 0..4_u8, ident: u16, payload_len in 0..=65_515_u16, src: [u8; 4], dst: [u8; 4], flow_label in 0..1_u32 << 20,
    ) {
        let mark = Ecn::of(mark);
        let marked = mark.put(tos);
        prop_assert_eq!((marked & !3, Ecn::of(marked)), (tos & !3, mark));
        prop_assert_eq!(ecn::decapsulate(mark, ecn::encapsulate(mark)), Some(mark));

        let repr = ipv4::Repr {
            tos, payload_len, ident, dont_fragment: true, more_fragments: false, fragment_offset: 0, ttl: 64,
            protocol: IpProtocol::UDP, src: src.into(), dst: dst.into(),
        };
        let mut replaced = [0; 20];
        let mut expected = [0; 20];
        repr.emit(&mut replaced).unwrap();
        ipv4::Header::new_checked(&mut replaced).unwrap().replace_tos(marked);
        ipv4::Repr { tos: marked, ..repr }.emit(&mut expected).unwrap();
        prop_assert_eq!(replaced, expected);

        let repr = ipv6::Repr {
            traffic_class: tos, flow_label, payload_len, next_header: IpProtocol::UDP, hop_limit: 64,
            src: [1; 16].into(), dst: [2; 16].into(),
        };
        let mut replaced = [0; 40];
        let mut expected = [0; 40];
        repr.emit(&mut replaced).unwrap();
        ipv6::Header::new_checked(&mut replaced).unwrap().set_traffic_class(marked);
        ipv6::Repr { traffic_class: marked, ..repr }.emit(&mut expected).unwrap();
        prop_assert_eq!(replaced, expected);
    }

    #[test]
    fn no_bytes_make_a_view_panic(mut bytes in vec(any::<u8>(), 0..80), first in prop::sample::select(vec![0, 3, 8, 12, 0x30, 0x34, 0xb0])) {
        read_everything(&bytes);
        // With a first byte that most checks accept.
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        read_everything(&bytes);
    }
}

/// Calls every getter and parser whose check accepts the bytes, and builds again what was read.
fn read_everything(bytes: &[u8]) {
    for carrier in [Carrier::Ip, Carrier::Udp] {
        let Ok(header) = l2tpv3::Header::new_checked(bytes, carrier) else { continue };
        for (cookie_len, has_sublayer) in [(0, false), (0, true), (4, false), (8, true)] {
            if let Ok(repr) = l2tpv3::Repr::parse(&header, cookie_len, has_sublayer) {
                assert_eq!(built(|buffer| repr.emit(buffer)).len(), repr.header_len());
            }
        }
        // No configuration has this length, but a view must not panic.
        assert_eq!(header.cookie(usize::MAX), Err(WireError::Truncated));
        assert_eq!(header.sublayer(usize::MAX), Err(WireError::Truncated));
    }
    if let Ok(header) = vxlan::Header::new_checked(bytes) {
        built(|buffer| vxlan::Repr::parse(&header).emit(buffer));
    }
    if let Ok(header) = vxlan_gpe::Header::new_checked(bytes) {
        black_box(header.is_control());
        built(|buffer| vxlan_gpe::Repr::parse(&header).emit(buffer));
    }
    if let Ok(header) = geneve::Header::new_checked(bytes) {
        black_box((header.is_control(), header.has_critical()));
        let are_whole = header.options().all(|option| option.is_ok());
        let built = geneve::Repr::parse(&header).emit(&mut [0; 300]);
        assert_eq!(built, if are_whole { Ok(header.header_len()) } else { Err(WireError::BadLength) });
    }
    if let Ok(header) = gre::Header::new_checked(bytes) {
        assert_eq!(built(|buffer| gre::Repr::parse(&header).emit(buffer)).len(), header.header_len());
    }
    if let Ok(header) = gtpu::Header::new_checked(bytes) {
        let extensions: usize = header.extensions().map(|(_, content)| content.len() + 2).sum();
        assert!(extensions == 0 || extensions == header.header_len() - gtpu::LONG_LEN);
        assert!(header.header_len() <= gtpu::MIN_LEN + usize::from(header.length()));
        built(|buffer| gtpu::Repr::parse(&header).emit(buffer));
    }
    if let Ok(entry) = mpls::Entry::parse(bytes) {
        assert_eq!(built(|buffer| entry.emit(buffer)), bytes[..mpls::LEN]);
    }
    if let Ok(header) = icmpv4::Header::new_checked(bytes.to_vec()) {
        black_box((icmpv4::Repr::parse(&header), header.checksum()));
        let mut header = header;
        header.replace_type(icmpv4::Type::ECHO_REPLY);
    }
    if let Ok(header) = icmpv6::Header::new_checked(bytes.to_vec()) {
        black_box((icmpv6::Repr::parse(&header), header.checksum()));
        let mut header = header;
        header.replace_type(icmpv6::Type::ECHO_REPLY);
    }
    let _ = icmpv6::fill_checksum(&mut bytes.to_vec(), [0; 16].into(), [0; 16].into());
}
