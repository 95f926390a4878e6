//! Coalescing: segmentation of the result gives back the original packets.

use proptest::prelude::*;
use straightline_packet::{
    BodyCursor, Checksum, GsoKind, GsoSegment, MAX_FRAME, Offload, PacketId, PortIndex, Segmenter, Settings,
    SourceQueueId, Turn,
};
use straightline_simd::reference;

use super::memory::{Memory, arena, pattern};
use super::segmentation::{CWR, FIN, Headers, PSH, u16_of};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;

fn tcp(kind: GsoKind) -> Headers {
    Headers {
        kind,
        tags: 0,
        ip_options: 0,
        tcp_options: 3,
        extensions: vec![],
        id: 0xfffe,
        seq: u32::MAX - 2000,
        flags: ACK | PSH,
    }
}

/// Makes the frames into which a sender segments a payload, with partial checksums.
fn segments(headers: &Headers, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = payload.chunks(size).collect();
    let frame = |(n, part): (usize, &&[u8])| headers.of_segment(n, n * size, n + 1 == parts.len()).frame(part, true);
    parts.iter().enumerate().map(frame).collect()
}

fn offload(headers: &Headers) -> Offload {
    Offload { checksum: Checksum::Partial { start: u16_of(headers.l4()), offset: 16 }, gso: None }
}

/// Accepts frames, with their bytes scattered over memory as `cuts` say.
fn accept<'t>(turn: &mut Turn<'t>, frames: &[Memory], cuts: &[usize], offload: Offload) -> Vec<PacketId> {
    let accept = |frame: &Memory| {
        let mark = turn.mark();
        frame.cut(cuts).into_iter().for_each(|segment| turn.stage(segment));
        let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0).expect("a free slot");
        turn.set_offload(id, offload);
        id
    };
    frames.iter().map(accept).collect()
}

/// Delivers frames, coalesced where possible. Returns the packets that arrive, with their offloads.
fn delivered(frames: &[Vec<u8>], cuts: &[usize], of: Offload) -> Vec<(Vec<u8>, Offload)> {
    let memory: Vec<_> = frames.iter().map(|frame| Memory::new(frame)).collect();
    let mut arrived = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let ids = accept(turn, &memory, cuts, of);
        let mut at = 0;
        while at < ids.len() {
            let Some((run, count)) = turn.coalesce(&ids[at..]) else {
                arrived.push((frames[at].clone(), of));
                at += 1;
                continue;
            };
            assert!((2..=ids.len() - at).contains(&count));
            let to = Memory::new(&vec![0xee; 12 + run.len() as usize + 3]);
            let mut segment = GsoSegment::default();
            run.headers(turn.head(ids[at]), &mut segment);
            *segment.prefix_mut::<12>() = [0x55; 12];
            let mark = turn.mark();
            to.cut(&[7, 0, 70, 2000]).into_iter().for_each(|segment| turn.stage(segment));
            turn.store_run::<12>(&ids[at..at + count], &segment, mark..turn.mark());
            turn.unstage(mark);
            let bytes = to.bytes();
            let (front, rest) = bytes.split_at(12);
            assert_eq!((front, &rest[run.len() as usize..]), (&[0x55; 12][..], &[0xee; 3][..]));
            arrived.push((rest[..run.len() as usize].to_vec(), run.offload()));
            at += count;
        }
    });
    arrived
}

/// Segments a packet by [`Segmenter`], and leaves its checksums partial.
fn cut(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let Some(gso) = offload.gso else { return vec![frame.to_vec()] };
    let memory = [Memory::new(frame)];
    let mut segments = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let id = accept(turn, &memory, &[], offload)[0];
        let mut plan = Segmenter::new(gso, turn.len(id)).expect("a coalesced packet can be segmented");
        let (mut segment, mut from) = (GsoSegment::default(), BodyCursor::default());
        while plan.next(turn.head(id), &mut segment) {
            let to = Memory::new(&vec![0; segment.len() as usize]);
            let mark = turn.mark();
            turn.stage(to.segment(0, segment.len() as usize));
            turn.store_gso_segment::<0>(id, &segment, &mut from, mark..turn.mark(), false);
            turn.unstage(mark);
            segments.push(to.bytes());
        }
    });
    segments
}

fn headers() -> impl Strategy<Value = Headers> {
    let kind = prop::sample::select(vec![GsoKind::Tcp4, GsoKind::Tcp6]);
    let flags = prop::sample::select(vec![ACK, ACK | PSH, ACK | ECE, ACK | ECE | PSH]);
    (kind, 0..=2_usize, 0..=10_usize, any::<u16>(), any::<u32>(), flags).prop_map(
        |(kind, tags, tcp_options, id, seq, flags)| Headers { tags, tcp_options, id, seq, flags, ..tcp(kind) },
    )
}

/// A change of a list of frames.
#[derive(Clone, Debug)]
enum Accident {
    /// Changes a byte of a frame, and makes the IPv4 header checksum right again, or not.
    Byte {
        frame: usize,
        at: usize,
        with: u8,
        mended: bool,
    },
    Shorter {
        frame: usize,
        by: usize,
    },
    Longer {
        frame: usize,
    },
    Swapped(usize, usize),
    Twice(usize),
    Lost(usize),
}

fn accidents() -> impl Strategy<Value = Vec<Accident>> {
    let (frame, other) = (0..200_usize, 0..200_usize);
    let one = prop_oneof![
        6 => (frame.clone(), 0..110_usize, 1..=255_u8, any::<bool>())
            .prop_map(|(frame, at, with, mended)| Accident::Byte { frame, at, with, mended }),
        1 => (frame.clone(), 1..50_usize).prop_map(|(frame, by)| Accident::Shorter { frame, by }),
        1 => frame.clone().prop_map(|frame| Accident::Longer { frame }),
        1 => (frame.clone(), other).prop_map(|(a, b)| Accident::Swapped(a, b)),
        1 => frame.clone().prop_map(Accident::Twice),
        1 => frame.prop_map(Accident::Lost),
    ];
    prop::collection::vec(one, 0..5)
}

fn mend(frame: &mut [u8], l3: usize) {
    frame[l3 + 10..l3 + 12].fill(0);
    let sum = !reference::sum(&[&frame[l3..l3 + 20]]);
    frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

fn happen(frames: &mut Vec<Vec<u8>>, headers: &Headers, accidents: &[Accident]) {
    for accident in accidents {
        let count = frames.len();
        if count < 2 {
            return;
        }
        match *accident {
            Accident::Byte { frame, at, with, mended } => {
                let frame = &mut frames[frame % count];
                let at = at % frame.len();
                frame[at] ^= with;
                if mended && headers.v4() {
                    mend(frame, headers.l3());
                }
            }
            Accident::Shorter { frame, by } => {
                let frame = &mut frames[frame % count];
                frame.truncate(frame.len() - by.min(frame.len() - headers.header_len()));
            }
            Accident::Longer { frame } => frames[frame % count].push(0),
            Accident::Swapped(a, b) => frames.swap(a % count, b % count),
            Accident::Twice(frame) => {
                let again = frames[frame % count].clone();
                frames.insert(frame % count, again);
            }
            Accident::Lost(frame) => _ = frames.remove(frame % count),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_cut_is_put_together(
        headers in headers(), size in 20..=1460_usize, count in 2..=40_usize, less in 0..20_usize,
        cuts in prop::collection::vec(prop_oneof![0..3_usize, 0..3000_usize], 0..6),
    ) {
        let size = size.max(headers.header_len() - headers.l4());
        let payload = pattern(size * count - less);
        let frames = segments(&headers, &payload, size);
        let of = offload(&headers);
        let arrived = delivered(&frames, &cuts, of);
        assert_eq!(arrived.len(), 1);
        let (frame, told) = &arrived[0];
        assert!(*frame == headers.frame(&payload, true));
        let gso = headers.gso(u16_of(size));
        assert_eq!(*told, Offload { gso: Some(gso), ..of });
    }

    #[test]
    fn whatever_is_put_together_is_what_came_when_it_is_cut(
        headers in headers(), size in 20..=400_usize, count in 2..=40_usize, less in 0..20_usize,
        accidents in accidents(),
    ) {
        let mut frames = segments(&headers, &pattern(size * count - less), size);
        happen(&mut frames, &headers, &accidents);
        let again: Vec<_> = delivered(&frames, &[], offload(&headers)).iter().flat_map(|(f, of)| cut(f, *of)).collect();
        assert!(again == frames, "{accidents:?}");
    }
}

/// Returns the number of packets that arrive if the second of three segments is changed.
fn after(kind: GsoKind, change: impl Fn(&mut Vec<u8>, usize, usize)) -> usize {
    let headers = tcp(kind);
    let mut frames = segments(&headers, &pattern(3000), 1000);
    change(&mut frames[1], headers.l3(), headers.l4());
    if headers.v4() {
        mend(&mut frames[1], headers.l3());
    }
    delivered(&frames, &[], offload(&headers)).len()
}

#[test]
fn headers_that_differ_are_left_alone() {
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6] {
        assert_eq!(after(kind, |_, _, _| ()), 1);
        for at in [0, 5, 6, 11] {
            assert_eq!(after(kind, |frame, _, _| frame[at] ^= 1), 3, "an Ethernet address, byte {at}");
        }
        // Ports, the acknowledgement, the reserved bits, the window, the checksum, the urgent
        // pointer, options.
        for at in [1, 3, 8, 11, 14, 15, 16, 17, 18, 20, 31] {
            assert_eq!(after(kind, |frame, _, l4| frame[l4 + at] ^= 1), 3, "byte {at} of TCP");
        }
        assert_eq!(after(kind, |frame, _, l4| frame[l4 + 12] ^= 1), 3, "a reserved bit");
        for at in [4, 7] {
            assert_eq!(after(kind, |frame, _, l4| frame[l4 + at] ^= 1), 3, "a sequence number with a gap");
        }
        for flag in [FIN, SYN, RST, URG, ECE, CWR, ACK] {
            assert_eq!(after(kind, |frame, _, l4| frame[l4 + 13] ^= flag), 3, "flag {flag:#x}");
        }
        // PSH: it may be the last segment of its packet.
        assert_eq!(after(kind, |frame, _, l4| frame[l4 + 13] |= PSH), 2);
    }
    // Service, length, identification, fragments, time to live, addresses.
    for at in [1, 3, 5, 6, 7, 8, 12, 19] {
        assert_eq!(after(GsoKind::Tcp4, |frame, l3, _| frame[l3 + at] ^= 1), 3, "byte {at} of IPv4");
    }
    assert_eq!(after(GsoKind::Tcp4, |frame, l3, _| frame[l3 + 6] ^= 0x40), 3, "don't fragment");
    for at in [0, 1, 3, 4, 5, 7, 8, 39] {
        assert_eq!(after(GsoKind::Tcp6, |frame, l3, _| frame[l3 + at] ^= 1), 3, "byte {at} of IPv6");
    }
}

#[test]
fn packets_that_begin_no_run() {
    let whole = |headers: &Headers, of: Offload| delivered(&segments(headers, &pattern(3000), 1000), &[], of).len();
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6] {
        let good = tcp(kind);
        assert_eq!(whole(&good, offload(&good)), 1);
        for flags in [FIN, SYN, RST, URG, CWR].map(|flag| ACK | flag).into_iter().chain([0, PSH]) {
            let headers = Headers { flags, ..good.clone() };
            let expected = if flags == ACK | FIN { 2 } else { 3 };
            let arrived = whole(&headers, offload(&headers));
            // FIN may be in the last segment only, CWR in the first.
            let expected = if flags == ACK | CWR { 2 } else { expected };
            assert_eq!(arrived, expected, "flags {flags:#x}");
        }
        // A finished checksum, a partial one elsewhere, and one that was verified.
        assert_eq!(whole(&good, Offload::default()), 3);
        assert_eq!(whole(&good, Offload { checksum: Checksum::Verified, gso: None }), 3);
        let Checksum::Partial { start, .. } = offload(&good).checksum else { unreachable!() };
        for (start, offset) in [(start + 2, 16), (start, 6), (start - 2, 16)] {
            assert_eq!(whole(&good, Offload { checksum: Checksum::Partial { start, offset }, gso: None }), 3);
        }
        let gso = Some(good.gso(1000));
        assert_eq!(whole(&good, Offload { gso, ..offload(&good) }), 3, "packets that are to be segmented");
    }
    let options = Headers { ip_options: 1, ..tcp(GsoKind::Tcp4) };
    assert_eq!(whole(&options, offload(&options)), 3);
    let extensions = Headers { extensions: vec![1], ..tcp(GsoKind::Tcp6) };
    assert_eq!(whole(&extensions, offload(&extensions)), 3);
    let udp = Headers { kind: GsoKind::Udp4, ..tcp(GsoKind::Tcp4) };
    let partial = Offload { checksum: Checksum::Partial { start: u16_of(udp.l4()), offset: 6 }, gso: None };
    assert_eq!(whole(&udp, partial), 3);
}

/// A sender says where in the packet a checksum lies. It does not say to which protocol the
/// checksum belongs.
#[test]
fn packets_whose_transport_is_too_short_for_tcp_are_left_alone() {
    // An echo request, UDP, a fragment of TCP, TCP without its header's end, and bytes without any
    // header.
    for (protocol, fragment) in [(1, 0), (17, 0), (6, 0x2000), (6, 0x00b9), (6, 0), (59, 0)] {
        for transport in 0..40 {
            let headers = tcp(GsoKind::Tcp4);
            let mut frame = headers.frame(&[], true);
            let l4 = headers.l4();
            frame.resize(l4 + transport, 0x55);
            let ip = &mut frame[l4 - 20..];
            (ip[9], [ip[6], ip[7]]) = (protocol, u16::to_be_bytes(fragment));
            ip[2..4].copy_from_slice(&u16_of(20 + transport).to_be_bytes());
            if protocol == 17 && transport >= 8 {
                ip[24..26].copy_from_slice(&u16_of(transport).to_be_bytes());
            }
            let anywhere = Offload { checksum: Checksum::Partial { start: 14, offset: 16 }, gso: None };
            for of in [anywhere, offload(&headers)] {
                let frames = [frame.clone(), frame.clone()];
                assert_eq!(delivered(&frames, &[], of).len(), 2, "{protocol} {fragment:x} {transport}");
            }
        }
    }
}

#[test]
fn a_packet_is_as_long_as_its_length_field_can_say_and_as_any_may_be() {
    // With IPv6, and behind tags, the length field can hold more than a port carries.
    for (kind, tags) in [(GsoKind::Tcp4, 0), (GsoKind::Tcp4, 2), (GsoKind::Tcp6, 0), (GsoKind::Tcp6, 1)] {
        let headers = Headers { tags, flags: ACK, ..tcp(kind) };
        let most =
            if tags == 0 && kind == GsoKind::Tcp4 { 65_535 - 52 } else { MAX_FRAME as usize - headers.header_len() };
        let count = most / 1000;
        let frames = segments(&headers, &pattern(1000 * (count + 3)), 1000);
        let arrived = delivered(&frames, &[], offload(&headers));
        assert_eq!(arrived.len(), 2);
        assert_eq!(arrived[0].0.len(), headers.header_len() + 1000 * count);
        assert_eq!(arrived[1].0.len(), headers.header_len() + 3000);
        let frames = segments(&headers, &pattern(most), 1000);
        assert_eq!(delivered(&frames, &[], offload(&headers)).len(), 1, "to the last byte");
        let frames = segments(&headers, &pattern(most + 1), 1000);
        assert_eq!(delivered(&frames, &[], offload(&headers)).len(), 2);
    }
}

#[test]
fn tiny_segments_and_empty_ones_are_left_alone() {
    let headers = Headers { tcp_options: 0, flags: ACK, ..tcp(GsoKind::Tcp4) };
    let count = |size| delivered(&segments(&headers, &pattern(5 * size), size), &[], offload(&headers)).len();
    assert_eq!((count(19), count(20)), (5, 1));
    let empty = headers.frame(&[], true);
    assert_eq!(delivered(&[empty.clone(), empty], &[], offload(&headers)).len(), 2);
}
