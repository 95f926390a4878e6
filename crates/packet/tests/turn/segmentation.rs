//! Segmentation: each segment is compared with one that is built from its fields.

use std::ops::Range;

use proptest::prelude::*;
use straightline_packet::{
    BodyCursor, Checksum, Gso, GsoKind, GsoSegment, HEAD, MAX_HEADERS, Offload, Outer, OuterChecksum, PortIndex,
    Segmenter, Settings, SourceQueueId,
};
use straightline_simd::reference;
use straightline_testing::memory::{Memory, arena, pattern};

pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const CWR: u8 = 0x80;

/// The fields of a packet's headers. [`Headers::frame`] makes the bytes of any of its segments.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    pub(super) kind: GsoKind,
    pub(super) tags: usize,
    /// 32-bit words of IPv4 options, or of TCP options.
    pub(super) ip_options: usize,
    pub(super) tcp_options: usize,
    /// Extension headers of IPv6: their lengths in units of 8 bytes.
    pub(super) extensions: Vec<usize>,
    pub(super) id: u16,
    pub(super) seq: u32,
    pub(super) flags: u8,
}

impl Headers {
    pub(super) fn v4(&self) -> bool {
        matches!(self.kind, GsoKind::Tcp4 | GsoKind::Udp4)
    }

    fn tcp(&self) -> bool {
        matches!(self.kind, GsoKind::Tcp4 | GsoKind::Tcp6)
    }

    pub(super) fn l3(&self) -> usize {
        14 + 4 * self.tags
    }

    pub(super) fn l4(&self) -> usize {
        let ip = if self.v4() { 20 + 4 * self.ip_options } else { 40 + 8 * self.extensions.iter().sum::<usize>() };
        self.l3() + ip
    }

    pub(super) fn header_len(&self) -> usize {
        self.l4() + if self.tcp() { 20 + 4 * self.tcp_options } else { 8 }
    }

    pub(super) fn gso(&self, size: u16) -> Gso {
        Gso {
            kind: self.kind,
            ecn: self.flags & CWR != 0,
            size,
            l3: u16_of(self.l3()),
            l4: u16_of(self.l4()),
            header_len: u16_of(self.header_len()),
            outer: None,
        }
    }

    pub(super) fn checksum_offset(&self) -> usize {
        if self.tcp() { 16 } else { 6 }
    }

    /// Returns the frame with this payload. Its checksums are right; with `partial`, the transport
    /// checksum is the pseudo header's sum.
    pub(super) fn frame(&self, payload: &[u8], partial: bool) -> Vec<u8> {
        let protocol = if self.tcp() { 6 } else { 17 };
        let mut transport = if self.tcp() {
            let mut t = vec![0xc0, 0x01, 0x01, 0xbb];
            t.extend(self.seq.to_be_bytes());
            t.extend([1, 2, 3, 4, u8::try_from(5 + self.tcp_options).unwrap() << 4, self.flags, 0x72, 0x10]);
            t.extend([0, 0, 0, 0]);
            t.extend(vec![1; 4 * self.tcp_options]);
            t
        } else {
            let len = u16_of((8 + payload.len()) & 0xffff).to_be_bytes();
            vec![0xc0, 0x01, 0x11, 0x51, len[0], len[1], 0, 0]
        };
        let (source, destination) = if self.v4() {
            (vec![192, 0, 2, 255], vec![198, 51, 100, 7])
        } else {
            ([&[0x20, 1, 0xd, 0xb8], &[0xfe; 12][..]].concat(), [&[0xfd], &[0x9a; 15][..]].concat())
        };
        let transport_len = u32::try_from(transport.len() + payload.len()).unwrap();
        let pseudo = [&source[..], &destination, &transport_len.to_be_bytes(), &[0, 0, 0, protocol]].concat();
        let at = self.checksum_offset();
        let value = if partial {
            reference::sum(&[&pseudo])
        } else {
            match !reference::sum(&[&pseudo, &transport, payload]) {
                0 => 0xffff,
                value => value,
            }
        };
        transport[at..at + 2].copy_from_slice(&value.to_be_bytes());

        let inner = transport.len() + payload.len();
        let network = if self.v4() {
            let header = 20 + 4 * self.ip_options;
            let mut ip = vec![0x40 | u8::try_from(header / 4).unwrap(), 0x02];
            ip.extend(u16_of((header + inner) & 0xffff).to_be_bytes());
            ip.extend(self.id.to_be_bytes());
            ip.extend([0x40, 0, 64, protocol, 0, 0]);
            ip.extend([source, destination].concat());
            ip.extend(vec![1; 4 * self.ip_options]);
            let sum = !reference::sum(&[&ip]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ip
        } else {
            let mut extensions = Vec::new();
            for (i, &units) in self.extensions.iter().enumerate() {
                let next = if i + 1 < self.extensions.len() { 60 } else { protocol };
                extensions.extend([next, u8::try_from(units - 1).unwrap(), 1, u8::try_from(8 * units - 4).unwrap()]);
                extensions.extend(vec![0; 8 * units - 4]);
            }
            let mut ip = vec![0x60, 0x12, 0x34, 0x56];
            ip.extend(u16_of((extensions.len() + inner) & 0xffff).to_be_bytes());
            ip.extend([if self.extensions.is_empty() { protocol } else { 60 }, 64]);
            ip.extend([source, destination, extensions].concat());
            ip
        };

        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            frame.extend([if tag + 1 < self.tags { [0x88, 0xa8] } else { [0x81, 0] }, [0x20, 7]].concat());
        }
        frame.extend(if self.v4() { [8, 0] } else { [0x86, 0xdd] });
        [frame, network, transport, payload.to_vec()].concat()
    }

    /// Returns the headers that segment `index`, with `sent` payload bytes before it, must have.
    pub(super) fn of_segment(&self, index: usize, sent: usize, last: bool) -> Headers {
        let mut flags = self.flags;
        if index > 0 {
            flags &= !CWR;
        }
        if !last {
            flags &= !(FIN | PSH);
        }
        Headers {
            id: self.id.wrapping_add(u16_of(index)),
            seq: self.seq.wrapping_add(u32::try_from(sent).unwrap()),
            flags,
            ..self.clone()
        }
    }
}

pub(super) fn u16_of(n: usize) -> u16 {
    u16::try_from(n).expect("fits")
}

pub(super) fn headers() -> impl Strategy<Value = Headers> {
    let kind = prop::sample::select(vec![GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6]);
    let options = prop_oneof![Just(0_usize), 0..=10_usize];
    let extensions = prop_oneof![Just(vec![]), prop::collection::vec(1..=8_usize, 0..4)];
    let id = prop_oneof![any::<u16>(), 0xfff0..=0xffff_u16];
    let seq = prop_oneof![any::<u32>(), 0xffff_0000..=u32::MAX];
    (kind, 0..=2_usize, options.clone(), options, extensions, id, seq, any::<u8>()).prop_map(
        |(kind, tags, ip_options, tcp_options, extensions, id, seq, flags)| Headers {
            kind,
            tags,
            ip_options,
            tcp_options,
            extensions,
            id,
            seq,
            flags,
        },
    )
}

/// Payload lengths and segment sizes. Tiny sizes come with few segments only.
fn sizes() -> impl Strategy<Value = (usize, u16)> {
    let payload = prop_oneof![Just(0), 0..50_usize, 0..5000_usize, 0..65_000_usize, Just(65_000)];
    let size = prop_oneof![1..=9000_u16, 500..=1460_u16, Just(1448)];
    (payload, size).prop_map(|(payload, size)| (payload, size.max(u16_of(payload / 2000).max(1))))
}

/// Segments a packet whose body is scattered over memory as `cuts` say, and delivers each segment.
fn delivered(headers: &Headers, payload: &[u8], size: u16, cuts: &[usize], finish: bool) -> Vec<Vec<u8>> {
    let frame = headers.frame(payload, true);
    let source = Memory::new(&frame);
    let total = u32::try_from(frame.len()).expect("small");
    let gso = headers.gso(size);
    let mut plan = Segmenter::new(gso, total).expect("a good packet");
    let mut frames = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let mark = turn.mark();
        source.cut(cuts).into_iter().for_each(|s| turn.stage(s));
        let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0).expect("a free slot");
        assert!(turn.pull_up(id, headers.header_len()));
        let start = gso.l4;
        let offset = u16_of(headers.checksum_offset());
        turn.set_offload(id, Offload { checksum: Checksum::Partial { start, offset }, gso: Some(gso) });
        let mut segment = GsoSegment::default();
        let mut from = BodyCursor::default();
        while plan.next(turn.head(id), &mut segment) {
            assert_eq!(segment.checksum(), Checksum::Partial { start, offset });
            let len = segment.len() as usize;
            let destination = Memory::new(&vec![0xee; 12 + len + 3]);
            *segment.prefix_mut::<12>() = [0x55; 12];
            let front = segment.headers().to_vec();
            let mark = turn.mark();
            // Segments go into one buffer and into several, alternately.
            let buffers: &[usize] = if frames.len().is_multiple_of(2) { &[7, 0, 70] } else { &[] };
            destination.cut(buffers).into_iter().for_each(|s| turn.stage(s));
            turn.store_gso_segment::<12>(id, &segment, &mut from, mark..turn.mark(), finish);
            turn.unstage(mark);
            assert_eq!(segment.headers(), front, "the headers are as before, for the next destination");
            let stored = destination.bytes();
            assert_eq!((&stored[..12], &stored[12 + len..]), (&[0x55; 12][..], &[0xee; 3][..]));
            frames.push(stored[12..12 + len].to_vec());
        }
        assert!(!plan.next(turn.head(id), &mut segment), "no segment follows the last one");
    });
    frames
}

/// Delivers the same segments up to seven at once. Each third call delivers one segment alone.
fn delivered_together(headers: &Headers, payload: &[u8], size: u16, cuts: &[usize], finish: bool) -> Vec<Vec<u8>> {
    let frame = headers.frame(payload, true);
    let source = Memory::new(&frame);
    let gso = headers.gso(size);
    let mut plan = Segmenter::new(gso, u32::try_from(frame.len()).expect("small")).expect("a good packet");
    let mut frames = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let mark = turn.mark();
        source.cut(cuts).into_iter().for_each(|s| turn.stage(s));
        let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0).expect("a free slot");
        assert!(turn.pull_up(id, headers.header_len()));
        let mut segment = GsoSegment::default();
        let mut from = BodyCursor::default();
        assert!(plan.begin(turn.head(id), &mut segment));
        *segment.prefix_mut::<12>() = [0x55; 12];
        for alone in [true, false, false].into_iter().cycle() {
            let n = plan.left().min(if alone { 1 } else { 7 });
            let lens: Vec<_> = (0..n).map(|nth| plan.len_of(nth) as usize).collect();
            // The buffer begins at any offset in a cache line. So the header and the frame may
            // share a line.
            let memory = |(nth, &len): (usize, &usize)| (Memory::new(&vec![0xee; 80 + 12 + len + 3]), nth * 11);
            let to: Vec<_> = lens.iter().enumerate().map(memory).collect();
            let mark = turn.mark();
            for (&len, (memory, at)) in lens.iter().zip(&to) {
                turn.stage(memory.segment(*at, 12 + len));
            }
            if alone && n == 1 {
                assert!(plan.next(turn.head(id), &mut segment));
                assert_eq!(segment.len() as usize, lens[0]);
                turn.store_gso_segment::<12>(id, &segment, &mut from, mark..turn.mark(), finish);
            } else {
                turn.store_gso_segments::<12>(id, &mut plan, &segment, &mut from, mark..turn.mark(), finish);
            }
            turn.unstage(mark);
            for (len, (memory, at)) in lens.into_iter().zip(to) {
                let stored = memory.bytes();
                let (before, rest) = stored.split_at(at);
                let (stored, behind) = rest.split_at(12 + len);
                assert!(before.iter().chain(behind).all(|&byte| byte == 0xee), "nothing else is written");
                assert_eq!(&stored[..12], &[0x55; 12]);
                frames.push(stored[12..].to_vec());
            }
            if plan.left() == 0 {
                break;
            }
        }
        assert!(!plan.next(turn.head(id), &mut segment), "no segment follows the last one");
    });
    frames
}

fn check(headers: &Headers, payload: &[u8], size: u16, cuts: &[usize], finish: bool) {
    let frames = delivered(headers, payload, size, cuts, finish);
    assert!(frames == delivered_together(headers, payload, size, cuts, finish), "one by one or all together");
    let mut parts: Vec<&[u8]> = payload.chunks(size.into()).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    assert_eq!(frames.len(), parts.len());
    let plan = Segmenter::new(headers.gso(size), u32::try_from(headers.header_len() + payload.len()).expect("small"));
    assert_eq!(plan.expect("a good packet").count() as usize, parts.len());
    let mut sent = 0;
    for (i, (frame, part)) in frames.iter().zip(&parts).enumerate() {
        let expected = headers.of_segment(i, sent, i + 1 == parts.len()).frame(part, !finish);
        assert!(*frame == expected, "segment {i}:\n{frame:x?}\nshould be\n{expected:x?}");
        sent += part.len();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn segments_are_those_that_a_sender_would_have_made(
        headers in headers(), (payload, size) in sizes(), finish: bool,
        cuts in prop::collection::vec(prop_oneof![0..3_usize, 0..3000_usize], 0..6),
    ) {
        check(&headers, &pattern(payload), size, &cuts, finish);
    }
}

#[test]
fn the_smallest_segments_of_the_longest_packets() {
    let headers = Headers {
        kind: GsoKind::Udp4,
        tags: 0,
        ip_options: 0,
        tcp_options: 0,
        extensions: vec![],
        id: 0xfffe,
        seq: 0,
        flags: 0,
    };
    check(&headers, &pattern(3000), 1, &[], true);
    let tcp = Headers { kind: GsoKind::Tcp4, flags: 0xff, ..headers.clone() };
    // The longest IPv4 packet: 65535 bytes.
    check(&tcp, &pattern(65_535 - 40), 700, &[HEAD], true);
    check(&tcp, &pattern(65_535 - 40), u16::MAX, &[], true);
    let six = Headers { kind: GsoKind::Tcp6, ..tcp };
    check(&six, &pattern(65_535 - 20), 65_000, &[], true);
}

/// Every segment is made exactly once, also where a 16-bit count of segments could wrap.
#[test]
fn pieces_are_as_many_as_announced() {
    let head = [0_u8; MAX_HEADERS];
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6] {
        let (l4, header_len) = match kind {
            GsoKind::Tcp4 => (34, 54),
            GsoKind::Udp4 => (34, 42),
            GsoKind::Tcp6 => (54, 74),
            GsoKind::Udp6 => (54, 62),
        };
        let gso = Gso { kind, ecn: false, size: 1, l3: 14, l4, header_len, outer: None };
        let most = (0..70_000).rev().find_map(|total| Segmenter::new(gso, total)).expect("some length is right");
        let count = most.count();
        let mut plan = most;
        let mut segment = GsoSegment::default();
        for i in 0..count {
            assert!(plan.next(&head, &mut segment), "{kind:?}: {i} of {count}");
        }
        assert!(!plan.next(&head, &mut segment), "{kind:?}: more than {count}");
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1000, l3: 14, l4: 34, header_len: 54, outer: None };
    let six = Gso { kind: GsoKind::Tcp6, l4: 54, header_len: 74, ..gso };
    let good = [
        (gso, 54),
        (gso, 14 + 65_535),
        (six, 14 + 40 + 65_535),
        (Gso { kind: GsoKind::Udp4, header_len: 42, ..gso }, 42),
        (Gso { header_len: 628, ..gso }, 628),
        (Gso { size: 1, ..gso }, 5000),
    ];
    for (gso, total) in good {
        assert!(Segmenter::new(gso, total).is_some(), "{gso:?}, {total}");
    }
    let bad = [
        (Gso { size: 0, ..gso }, 5000),
        (gso, 53),
        (gso, 0),
        // More than the length field of an IP header can hold.
        (gso, 14 + 65_535 + 1),
        (six, 14 + 40 + 65_535 + 1),
        (gso, u32::MAX),
        (Gso { l4: 33, ..gso }, 5000),
        (Gso { header_len: 53, ..gso }, 5000),
        (Gso { l4: 10, ..gso }, 5000),
        (Gso { l3: u16::MAX, ..gso }, 5000),
        (Gso { l4: u16::MAX, header_len: u16::MAX, ..gso }, 70_000),
        (Gso { header_len: 629, ..gso }, 5000),
        (Gso { header_len: 630, ..gso }, 5000),
        (Gso { l4: 53, ..six }, 5000),
        (Gso { kind: GsoKind::Udp6, l4: 54, header_len: 61, ..gso }, 5000),
    ];
    for (gso, total) in bad {
        assert!(Segmenter::new(gso, total).is_none(), "{gso:?}, {total}");
    }
}

#[test]
fn a_head_shorter_than_the_headers_gives_no_piece() {
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1000, l3: 14, l4: 34, header_len: 54, outer: None };
    let mut plan = Segmenter::new(gso, 5000).expect("a good packet");
    assert!(!plan.next(&[0; 53], &mut GsoSegment::default()));
    assert!(plan.next(&[0; 54], &mut GsoSegment::default()));
}

fn any_gso() -> impl Strategy<Value = Gso> {
    let kind = prop::sample::select(vec![GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6]);
    let place = |around: Range<u16>| prop_oneof![3 => around, 1 => any::<u16>()];
    let size = prop_oneof![0..3_u16, any::<u16>()];
    let gso = (kind, any::<bool>(), size, place(0..30), place(20..200), place(40..520))
        .prop_map(|(kind, ecn, size, l3, l4, header_len)| Gso { kind, ecn, size, l3, l4, header_len, outer: None });
    let checksum = (0..4_u8, place(0..100)).prop_map(|(which, at)| match which {
        0 => OuterChecksum::None,
        1 => OuterChecksum::UdpZero { l4: at },
        2 => OuterChecksum::Udp { l4: at },
        _ => OuterChecksum::Gre { at },
    });
    let outer = (place(0..30), checksum, prop::option::of(place(0..100))).prop_map(|(l3, checksum, gtpu)| Outer {
        l3,
        checksum,
        gtpu,
    });
    // Mostly the inner headers are far enough behind.
    (gso, prop::option::of(outer), prop_oneof![Just(0), 0..112_u16]).prop_map(|(gso, outer, behind)| {
        let [l3, l4, header_len] = [gso.l3, gso.l4, gso.header_len].map(|at| at.saturating_add(behind));
        Gso { l3, l4, header_len, outer, ..gso }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_numbers_and_no_bytes_make_it_panic(
        gso in any_gso(), total in prop_oneof![0..3000_u32, 0..70_000_u32, any::<u32>()],
        head in prop::collection::vec(any::<u8>(), 0..700),
        version in prop::sample::select(vec![None, Some(0x45), Some(0x46), Some(0x60)]),
    ) {
        let Some(mut plan) = Segmenter::new(gso, total) else { return Ok(()) };
        let count = plan.count();
        let mut segments = 0;
        let mut at = u32::from(gso.header_len);
        let mut segment = GsoSegment::default();
        let mut head = head;
        if let (Some(outer), Some(first)) = (gso.outer, version)
            && let Some(byte) = head.get_mut(usize::from(outer.l3))
        {
            *byte = first;
        }
        while plan.next(&head, &mut segment) {
            assert_eq!((segment.payload().start, segment.headers().len()), (at, usize::from(gso.header_len)));
            assert!(segment.payload().end - at <= u32::from(gso.size));
            at = segment.payload().end;
            segments += 1;
            assert!(segments <= count);
        }
        if segments == 0 && gso.outer.is_some() {
            // The outer network header may be none of IP.
        } else if head.len() >= usize::from(gso.header_len) {
            assert_eq!((segments, at), (count, total), "every byte once");
        } else {
            assert_eq!(segments, 0);
        }
    }
}
