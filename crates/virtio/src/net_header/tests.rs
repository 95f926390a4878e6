#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use proptest::prelude::*;
use straightline_packet::{
    Arena, HEAD, MemorySegment, Outer, OuterChecksum, PortIndex, Rcu, Segmenter, Settings, SourceQueueId,
};

use super::*;

const CSUM: u64 = f::VIRTIO_NET_F_CSUM;
/// All features that a driver can negotiate about packets that it sends.
const ALL: u64 = CSUM
    | f::VIRTIO_NET_F_HOST_TSO4
    | f::VIRTIO_NET_F_HOST_TSO6
    | f::VIRTIO_NET_F_HOST_USO
    | f::VIRTIO_NET_F_HOST_ECN
    | f::VIRTIO_NET_F_HOST_UFO
    | f::VIRTIO_NET_F_GSO;

/// Checks `header` against a packet of these bytes; `then` sees the packet afterwards.
fn check_then<R>(
    header: NetHeader,
    acked: u64,
    frame: &[u8],
    then: impl FnOnce(Result<Offload, Reason>, &[u8], u32) -> R,
) -> R {
    let mut memory = frame.to_vec();
    let at = memory.as_mut_ptr();
    let len = u32::try_from(memory.len()).expect("small");
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    arena.turn(|turn| {
        // SAFETY: the vector outlives the turn, and is not accessed during the turn.
        let bytes = unsafe { MemorySegment::new(at, len) };
        let id = turn.accept(PortIndex(0), SourceQueueId::NONE, bytes).expect("an empty turn");
        let result = header.check(acked, turn, id);
        assert_eq!(turn.len(id), len);
        assert_eq!(turn.head(id), &frame[..turn.head(id).len()], "a check changes no byte");
        then(result, turn.head(id), len)
    })
}

fn check(header: NetHeader, acked: u64, frame: &[u8]) -> Result<Offload, Reason> {
    check_then(header, acked, frame, |result, _, _| result)
}

fn partial(start: u16, offset: u16) -> NetHeader {
    NetHeader { flags: NEEDS_CSUM, csum_start: start, csum_offset: offset, ..NetHeader::default() }
}

/// Returns a header for GSO segments of 1000 bytes of this frame.
fn gso(gso_type: u8, frame: &Frame) -> NetHeader {
    let offset = if frame.protocol == 6 { 16 } else { 6 };
    NetHeader { gso_type, gso_size: 1000, ..partial(u16::try_from(frame.l4).expect("small"), offset) }
}

struct Frame {
    bytes: Vec<u8>,
    protocol: u8,
    l3: usize,
    l4: usize,
    header_len: usize,
}

/// Returns TCP (6) or UDP (17) over IPv4, or over IPv6 with `extension` bytes of destination
/// options.
fn frame(version: u8, protocol: u8, tags: usize, extension: usize, payload: usize) -> Frame {
    let mut bytes = vec![2; 12];
    bytes.extend([0x81, 0, 0, 7].repeat(tags));
    bytes.extend(if version == 4 { [8, 0] } else { [0x86, 0xdd] });
    let l3 = bytes.len();
    if version == 4 {
        let len = u16::try_from(20 + if protocol == 6 { 20 } else { 8 } + payload).expect("small").to_be_bytes();
        bytes.extend([0x45, 0, len[0], len[1], 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    } else {
        let mut ip = [0; 40];
        (ip[0], ip[6]) = (0x60, if extension > 0 { 60 } else { protocol });
        bytes.extend(ip);
        if extension > 0 {
            let mut options = vec![0; extension];
            (options[0], options[1]) = (protocol, u8::try_from(extension / 8 - 1).expect("below 2048"));
            bytes.extend(options);
        }
    }
    let l4 = bytes.len();
    bytes.extend([0, 1, 0, 2, 0, 9, 0, 0]);
    if protocol == 6 {
        bytes.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    }
    let header_len = bytes.len();
    bytes.extend((0..payload).map(|i| u8::try_from(i % 251).expect("below 251")));
    Frame { bytes, protocol, l3, l4, header_len }
}

#[test]
fn fields_round_trip() {
    let header = NetHeader {
        flags: 1,
        gso_type: 0x81,
        hdr_len: 0x0203,
        gso_size: 0x0405,
        csum_start: 0x0607,
        csum_offset: 0x0809,
        num_buffers: 0x0a0b,
    };
    let bytes = header.to_bytes();
    assert_eq!(bytes, [1, 0x81, 3, 2, 5, 4, 7, 6, 9, 8, 0xb, 0xa]);
    assert_eq!(NetHeader::parse(&bytes), header);
}

#[test]
fn a_header_that_asks_for_nothing_is_nothing() {
    let noise = NetHeader { hdr_len: 0xffff, gso_size: 0xffff, csum_start: 0xffff, ..NetHeader::default() };
    for flags in [0, DATA_VALID, 0xfe] {
        assert_eq!(check(NetHeader { flags, ..noise }, 0, &[0; 14]), Ok(Offload::default()));
        assert_eq!(check(NetHeader { flags, ..noise }, ALL, &[]), Ok(Offload::default()));
    }
}

/// Checks every pair of offsets around every limit against the rule in plain numbers.
#[test]
fn the_checksum_lies_in_the_packet_and_in_reach() {
    for len in [14, 15, 16, 60, 255, 256, 257, 300, 511, 512, 513, 514, 600] {
        let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i % 249).expect("small")).collect();
        let around = |at: u32| at.saturating_sub(4)..at + 4;
        let mut places: Vec<u32> =
            [0, 14, 128, len / 2, len, 256, 512].into_iter().flat_map(around).chain([65_534, 65_535]).collect();
        places.sort_unstable();
        places.dedup();
        for &start in &places {
            for &offset in &places {
                let end = start + offset + 2;
                let start16 = u16::try_from(start).unwrap();
                let offset16 = u16::try_from(offset).unwrap();
                let expected = if start < 14 || end > len {
                    Err(Reason::ChecksumRange)
                } else if end > 512 {
                    Err(Reason::ChecksumDepth)
                } else {
                    Ok(Offload { checksum: Checksum::Partial { start: start16, offset: offset16 }, gso: None })
                };
                check_then(partial(start16, offset16), CSUM, &bytes, |result, head, _| {
                    assert_eq!(result, expected, "{start} + {offset} of {len}");
                    assert!(result.is_err() || head.len() >= end as usize, "the field is in the head");
                });
            }
        }
    }
}

#[test]
fn what_was_not_negotiated_is_refused() {
    let bytes = frame(4, 6, 0, 0, 3000);
    assert_eq!(check(partial(34, 16), ALL & !CSUM, &bytes.bytes), Err(Reason::BadHeader));
    // Segmentation without a checksum to finish (5.1.6.2.1).
    let header = NetHeader { flags: 0, ..gso(GSO_TCPV4, &bytes) };
    assert_eq!(check(header, ALL, &bytes.bytes), Err(Reason::BadHeader));
    assert_eq!(check(NetHeader { flags: DATA_VALID, ..header }, ALL, &bytes.bytes), Err(Reason::BadHeader));
}

#[test]
fn each_kind_of_segmentation_with_and_without_its_feature() {
    let cases = [
        (GSO_TCPV4, 4, 6, f::VIRTIO_NET_F_HOST_TSO4, GsoKind::Tcp4),
        (GSO_TCPV6, 6, 6, f::VIRTIO_NET_F_HOST_TSO6, GsoKind::Tcp6),
        (GSO_UDP_L4, 4, 17, f::VIRTIO_NET_F_HOST_USO, GsoKind::Udp4),
        (GSO_UDP_L4, 6, 17, f::VIRTIO_NET_F_HOST_USO, GsoKind::Udp6),
    ];
    for (gso_type, version, protocol, feature, kind) in cases {
        for tags in 0..3 {
            let frame = frame(version, protocol, tags, 0, 3000);
            let header = gso(gso_type, &frame);
            let number = |n: usize| u16::try_from(n).expect("small");
            let expected = Gso {
                kind,
                ecn: false,
                size: 1000,
                l3: number(frame.l3),
                l4: number(frame.l4),
                header_len: number(frame.header_len),
                outer: None,
            };
            let checksum = Checksum::Partial { start: header.csum_start, offset: header.csum_offset };
            for acked in [ALL, CSUM | feature] {
                let offload = Offload { checksum, gso: Some(expected) };
                assert_eq!(check(header, acked, &frame.bytes), Ok(offload));
            }
            assert_eq!(check(header, ALL & !feature, &frame.bytes), Err(Reason::BadHeader));
            assert_eq!(check(NetHeader { gso_size: 0, ..header }, ALL, &frame.bytes), Err(Reason::SegmentSize));
            // The congestion bit has a feature of its own, and is valid for TCP only.
            let with_ecn = NetHeader { gso_type: gso_type | GSO_ECN, ..header };
            let ecn = check(with_ecn, ALL, &frame.bytes);
            if protocol == 6 {
                assert_eq!(ecn, Ok(Offload { checksum, gso: Some(Gso { ecn: true, ..expected }) }));
            } else {
                assert_eq!(ecn, Err(Reason::BadHeader));
            }
            let without = ALL & !f::VIRTIO_NET_F_HOST_ECN;
            assert_eq!(check(with_ecn, without, &frame.bytes), Err(Reason::BadHeader));
        }
    }
    let known = [GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, GSO_ECN | GSO_TCPV4, GSO_ECN | GSO_TCPV6];
    let tcp = frame(4, 6, 0, 0, 3000);
    for gso_type in (0..=u8::MAX).filter(|t| !known.contains(t)) {
        assert_eq!(check(gso(gso_type, &tcp), u64::MAX, &tcp.bytes), Err(Reason::BadHeader), "{gso_type:#x}");
    }
}

/// Short segments are few: those of UDP, and those of TCP below the least size, which counts options.
#[test]
fn segments_that_no_sender_makes() {
    let cases = [
        (6, GSO_TCPV4, 0, 47, 128),
        (6, GSO_TCPV4, 0, 48, 1000),
        (6, GSO_TCPV4, 12, 35, 128),
        (6, GSO_TCPV4, 12, 36, 1000),
        (17, GSO_UDP_L4, 0, 8, 128),
        (17, GSO_UDP_L4, 0, 100, 128),
    ];
    for (protocol, gso_type, options, size, most) in cases {
        let with_segments = |segments: usize| {
            let mut frame = frame(4, protocol, 0, 0, segments * usize::from(size) + usize::from(options));
            if protocol == 6 {
                // The first bytes of the payload become options.
                frame.bytes[frame.l4 + 12] = (5 + options / 4) << 4;
            }
            check(NetHeader { gso_size: size, ..gso(gso_type, &frame) }, ALL, &frame.bytes)
        };
        assert!(with_segments(most).is_ok(), "{most} of {size} bytes, protocol {protocol}");
        let more = with_segments(most + 1);
        assert_eq!(more.is_ok(), most > 128, "more than {most} of {size} bytes, protocol {protocol}: {more:?}");
    }
}

/// The kernel refuses a datagram that is "to be segmented" and has one segment only.
#[test]
fn a_packet_of_one_segment_is_plain() {
    for (gso_type, version, protocol) in [(GSO_TCPV4 | GSO_ECN, 4, 6), (GSO_TCPV6, 6, 6), (GSO_UDP_L4, 4, 17)] {
        for payload in [0, 1, 999, 1000, 1001, 2000] {
            let frame = frame(version, protocol, 0, 0, payload);
            let header = gso(gso_type, &frame);
            let offload = check(header, ALL, &frame.bytes).expect("a good header");
            assert_eq!(offload.gso.is_some(), payload > 1000, "{payload} bytes of {gso_type:#x}");
            let checksum = Checksum::Partial { start: header.csum_start, offset: header.csum_offset };
            assert_eq!(offload.checksum, checksum);
        }
    }
}

/// No checksum begins in a tag: its value would choose another VLAN than the one that was judged.
#[test]
fn the_checksum_begins_behind_all_tags() {
    let kinds = [[0x81, 0, 0, 10], [0x88, 0xa8, 0, 0], [0x91, 0, 0, 5]];
    for kind in kinds {
        for count in 0..4_u16 {
            let stack = kind.repeat(count.into());
            let bytes = [&[2; 12][..], &stack, &[8, 0], &[1; 60]].concat();
            let payload = 14 + 4 * count;
            for start in 0..payload + 3 {
                for offset in [0, 1, 2, 4] {
                    let accepted = check(partial(start, offset), CSUM, &bytes);
                    let expected = Offload { checksum: Checksum::Partial { start, offset }, gso: None };
                    let expected = if start < payload { Err(Reason::ChecksumRange) } else { Ok(expected) };
                    assert_eq!(accepted, expected, "{start} + {offset} behind {stack:x?}");
                }
            }
        }
    }
}

#[test]
fn headers_that_do_not_match_the_segmentation() {
    let refused = |header, bytes: &[u8]| assert_eq!(check(header, ALL, bytes), Err(Reason::SegmentHeaders));
    let tcp = frame(4, 6, 0, 0, 3000);
    let good = gso(GSO_TCPV4, &tcp);
    refused(gso(GSO_TCPV6, &tcp), &tcp.bytes);
    refused(gso(GSO_UDP_L4, &tcp), &tcp.bytes);
    let udp = frame(6, 17, 0, 0, 3000);
    refused(gso(GSO_TCPV6, &udp), &udp.bytes);
    // The checksum must be that of the header that segmentation rewrites.
    refused(NetHeader { csum_offset: 15, ..good }, &tcp.bytes);
    refused(NetHeader { csum_offset: 6, ..good }, &tcp.bytes);
    refused(NetHeader { csum_start: 33, csum_offset: 17, ..good }, &tcp.bytes);
    refused(NetHeader { csum_start: 14, csum_offset: 36, ..good }, &tcp.bytes);
    let changed = |at: usize, value: u8| {
        let mut bytes = tcp.bytes.clone();
        bytes[at] = value;
        bytes
    };
    refused(good, &changed(20, 0x20)); // more fragments
    refused(good, &changed(21, 1)); // a fragment
    refused(good, &changed(23, 17)); // UDP's number
    refused(good, &changed(12, 9)); // not IP
    refused(good, &changed(14, 0x65)); // not version 4
    refused(good, &changed(14, 0x44)); // a header of 16 bytes
    refused(good, &changed(14, 0x46)); // options, so that TCP begins elsewhere
    refused(good, &changed(46, 0x40)); // a TCP header of 16 bytes
    refused(good, &tcp.bytes[..53]);
    assert!(check(good, ALL, &tcp.bytes[..54]).is_ok(), "no payload at all is one segment");
    refused(good, &[&tcp.bytes[..46], &[0xf0], &tcp.bytes[47..93]].concat()); // options beyond the end
}

#[test]
fn deep_headers_are_pulled_up() {
    for (extension, protocol, gso_type) in [(160, 6, GSO_TCPV6), (400, 6, GSO_TCPV6), (400, 17, GSO_UDP_L4)] {
        let frame = frame(6, protocol, 0, extension, 3000);
        check_then(gso(gso_type, &frame), ALL, &frame.bytes, |result, head, _| {
            let gso = result.expect("within reach").gso.expect("segments");
            assert_eq!(usize::from(gso.header_len), frame.header_len);
            assert!(head.len() >= frame.header_len && head.len() >= HEAD);
        });
    }
    // The checksum's field is within reach, but the end of the TCP header is not.
    let frame_of = |extension| frame(6, 6, 0, extension, 3000);
    let just = frame_of(432);
    assert_eq!(just.header_len, 506);
    assert!(check(gso(GSO_TCPV6, &just), ALL, &just.bytes).is_ok());
    let mut options = just;
    options.bytes[options.l4 + 12] = 0x70; // 28 bytes of TCP header, to 514
    assert_eq!(check(gso(GSO_TCPV6, &options), ALL, &options.bytes), Err(Reason::SegmentHeaders));
    let beyond = frame_of(448);
    assert_eq!(check(gso(GSO_TCPV6, &beyond), ALL, &beyond.bytes), Err(Reason::ChecksumDepth));
}

#[test]
fn a_receiver_gets_an_equivalent_header() {
    for (gso_type, version, protocol) in
        [(GSO_TCPV4 | GSO_ECN, 4, 6), (GSO_TCPV6, 6, 6), (GSO_UDP_L4, 4, 17), (GSO_UDP_L4, 6, 17), (GSO_NONE, 4, 17)]
    {
        let frame = frame(version, protocol, 1, 0, 3000);
        // The sender's hint of the headers' length is not passed on.
        let mut header = NetHeader { hdr_len: 3, num_buffers: 99, ..gso(gso_type, &frame) };
        if gso_type == GSO_NONE {
            header.gso_size = 0;
        }
        let offload = check(header, ALL, &frame.bytes).expect("a good header");
        let rebuilt = NetHeader::for_receiver(offload, 7);
        let hdr_len = if gso_type == GSO_NONE { 0 } else { u16::try_from(frame.header_len).expect("small") };
        assert_eq!(rebuilt, NetHeader { hdr_len, num_buffers: 7, ..header });
        assert_eq!(check(rebuilt, ALL, &frame.bytes), Ok(offload));
    }
    let plain = |checksum| NetHeader::for_receiver(Offload { checksum, gso: None }, 1).flags;
    assert_eq!((plain(Checksum::Complete), plain(Checksum::Verified)), (0, DATA_VALID));
}

#[test]
fn a_receiver_takes_what_it_negotiated() {
    let gso = |kind, ecn| Gso { kind, ecn, size: 1000, l3: 14, l4: 34, header_len: 54, outer: None };
    let cases = [
        (GsoKind::Tcp4, f::VIRTIO_NET_F_GUEST_TSO4),
        (GsoKind::Tcp6, f::VIRTIO_NET_F_GUEST_TSO6),
        (GsoKind::Udp4, f::VIRTIO_NET_F_GUEST_USO4),
        (GsoKind::Udp6, f::VIRTIO_NET_F_GUEST_USO6),
    ];
    let csum = f::VIRTIO_NET_F_GUEST_CSUM;
    let ecn = f::VIRTIO_NET_F_GUEST_ECN;
    for (kind, feature) in cases {
        assert!(Receiver::new(csum | feature).takes(gso(kind, false)));
        assert!(!Receiver::new(csum | feature).takes(gso(kind, true)));
        assert!(Receiver::new(csum | feature | ecn).takes(gso(kind, true)));
        assert!(!Receiver::new(feature | ecn).takes(gso(kind, false)), "segments need the partial checksum");
        assert!(!Receiver::new(!feature).takes(gso(kind, false)));
        assert_eq!(Receiver::new(csum | feature).kinds(), GsoKinds::of(|taken| taken == kind));
        let outer = Some(Outer { l3: 14, checksum: OuterChecksum::None, gtpu: None });
        assert!(!Receiver::new(u64::MAX).takes(Gso { outer, ..gso(kind, false) }), "no header can tell it");
    }
    assert_eq!(Receiver::new(!csum).kinds(), GsoKinds::NONE);
    assert!(Receiver::new(csum).takes_partial());
    assert!(!Receiver::new(!csum).takes_partial());
}

fn any_header() -> impl Strategy<Value = NetHeader> {
    let gso_type = prop_oneof![Just(GSO_NONE), Just(GSO_TCPV4), Just(GSO_TCPV6), Just(GSO_UDP_L4), any::<u8>()];
    let start = prop_oneof![Just(34), Just(54), 0..700_u16, any::<u16>()];
    let offset = prop_oneof![Just(16), Just(6), 0..700_u16, any::<u16>()];
    (0..4_u8, gso_type, any::<u16>(), start, offset).prop_map(|(flags, gso_type, gso_size, csum_start, csum_offset)| {
        NetHeader { flags, gso_type, hdr_len: gso_size, gso_size, csum_start, csum_offset, num_buffers: 0 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Every accepted header keeps the invariants that the copy and the segmentation rely on.
    #[test]
    fn what_passes_is_sound(
        header in any_header(), acked in prop_oneof![Just(ALL), any::<u64>()],
        (version, protocol) in prop::sample::select(vec![(4, 6), (4, 17), (6, 6), (6, 17), (4, 1)]),
        tags in 0..3_usize, extension in (0..60_usize).prop_map(|n| 8 * n),
        noise in prop::collection::vec((0..400_usize, any::<u8>()), 0..3), len in 0..1200_usize,
    ) {
        let mut bytes = frame(version, protocol, tags, extension, 700).bytes;
        for (at, value) in noise {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(len);
        check_then(header, acked, &bytes, |result, head, total| {
            let Ok(offload) = result else { return };
            if let Checksum::Partial { start, offset } = offload.checksum {
                assert!(usize::from(start) + usize::from(offset) + 2 <= head.len());
                let is_tag = |type_: &[u8]| matches!(type_, [0x81 | 0x91, 0] | [0x88, 0xa8]);
                let tags = head[12..].chunks(4).take_while(|tag| is_tag(&tag[..tag.len().min(2)])).count();
                assert!(usize::from(start) >= 14 + 4 * tags);
            }
            if let Some(gso) = offload.gso {
                assert!(usize::from(gso.header_len) <= head.len());
                assert!(matches!(offload.checksum, Checksum::Partial { start, .. } if start == gso.l4));
                assert!(Segmenter::new(gso, total).is_some(), "a packet that passes can be segmented");
            }
        });
    }
}
