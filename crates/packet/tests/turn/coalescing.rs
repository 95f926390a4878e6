//! Coalescing: segmentation of the result gives back the original packets.

use proptest::prelude::*;
use straightline_packet::{
    BodyCursor, Checksum, GsoKind, GsoKinds, GsoSegment, Level, MAX_FRAME, Offload, PacketId, PortIndex, Run,
    Segmenter, Settings, SourceQueueId, Turn, WrongChecksum,
};
use straightline_simd::reference;
use straightline_testing::memory::{Memory, arena, pattern};

use super::segmentation::{CWR, FIN, Headers, PSH, u16_of};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;

const KINDS: [GsoKind; 4] = [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6];
/// The most datagrams in a packet.
const MAX_DATAGRAMS: usize = 64;

fn all() -> GsoKinds {
    GsoKinds::of(|_| true)
}

fn of_kind(kind: GsoKind) -> Headers {
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

/// Makes the frames into which a sender segments a payload, with partial checksums or finished
/// ones.
fn segments(headers: &Headers, payload: &[u8], size: usize, partial: bool) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = payload.chunks(size).collect();
    let frame = |(n, part): (usize, &&[u8])| headers.of_segment(n, n * size, n + 1 == parts.len()).frame(part, partial);
    parts.iter().enumerate().map(frame).collect()
}

fn partial(headers: &Headers) -> Offload {
    let start = u16_of(headers.l4());
    let offset = u16_of(headers.checksum_offset());
    Offload { checksum: Checksum::Partial { start, offset }, gso: None }
}

fn offload(headers: &Headers, is_partial: bool) -> Offload {
    if is_partial { partial(headers) } else { Offload::default() }
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

/// Stores a run as one packet into scattered memory. Returns the packet.
fn stored(turn: &mut Turn<'_>, run: &Run, ids: &[PacketId]) -> Result<Vec<u8>, WrongChecksum> {
    let to = Memory::new(&vec![0xee; 12 + run.len() as usize + 3]);
    let mut segment = GsoSegment::default();
    run.headers(turn.head(ids[0]), &mut segment);
    *segment.prefix_mut::<12>() = [0x55; 12];
    let mark = turn.mark();
    to.cut(&[7, 0, 70, 2000]).into_iter().for_each(|segment| turn.stage(segment));
    let copied = turn.store_run::<12>(ids, run, &segment, mark..turn.mark());
    turn.unstage(mark);
    assert_eq!(copied?, ids.iter().map(|&id| turn.body_len(id)).sum::<u32>());
    let bytes = to.bytes();
    let (front, rest) = bytes.split_at(12);
    let (packet, behind) = rest.split_at(run.len() as usize);
    assert_eq!((front, behind), (&[0x55; 12][..], &[0xee; 3][..]));
    Ok(packet.to_vec())
}

/// Delivers frames to a receiver that takes packets of `kinds`, coalesced where possible. Returns
/// the packets that arrive, with their offloads.
fn delivered_to(kinds: GsoKinds, frames: &[Vec<u8>], cuts: &[usize], of: Offload) -> Vec<(Vec<u8>, Offload)> {
    let memory: Vec<_> = frames.iter().map(|frame| Memory::new(frame)).collect();
    let mut arrived = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let ids = accept(turn, &memory, cuts, of);
        let mut at = 0;
        while at < ids.len() {
            let coalesced = turn.coalesce(&ids[at..], kinds);
            assert_eq!(coalesced.is_some(), follows(turn, &ids[at..], kinds), "the cheap check is right");
            let packet = coalesced.map(|(run, count)| {
                assert!((2..=ids.len() - at).contains(&count));
                let stored = stored(turn, &run, &ids[at..at + count]);
                (count, stored.map(|packet| (packet, run.offload())))
            });
            match packet {
                Some((count, Ok(packet))) => {
                    arrived.push(packet);
                    at += count;
                }
                other => {
                    let count = other.map_or(1, |(count, _)| count);
                    arrived.extend(frames[at..at + count].iter().map(|frame| (frame.clone(), of)));
                    at += count;
                }
            }
        }
    });
    arrived
}

/// Returns whether the second packet can follow the first, by the complete check alone.
fn follows(turn: &Turn<'_>, ids: &[PacketId], kinds: GsoKinds) -> bool {
    let &[first, second, ..] = ids else { return false };
    let head = turn.head(first);
    Run::begin(head, turn.len(first), turn.offload(first), kinds).is_some_and(|mut run| {
        turn.offload(first).gso.is_none() && run.join(head, turn.head(second), turn.len(second), turn.offload(second))
    })
}

/// Delivers frames to a receiver that takes all kinds.
fn delivered(frames: &[Vec<u8>], cuts: &[usize], of: Offload) -> Vec<(Vec<u8>, Offload)> {
    delivered_to(all(), frames, cuts, of)
}

/// Segments a packet by [`Segmenter`], with partial checksums or finished ones.
fn cut(frame: &[u8], offload: Offload, is_partial: bool) -> Vec<Vec<u8>> {
    let Some(gso) = offload.gso else { return vec![frame.to_vec()] };
    let memory = [Memory::new(frame)];
    let mut segments = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let id = accept(turn, &memory, &[], offload)[0];
        let mut plan = Segmenter::new(gso, turn.len(id)).expect("a coalesced packet can be segmented");
        let mut segment = GsoSegment::default();
        let mut from = BodyCursor::default();
        while plan.next(turn.head(id), &mut segment) {
            let to = Memory::new(&vec![0; segment.len() as usize]);
            let mark = turn.mark();
            turn.stage(to.segment(0, segment.len() as usize));
            turn.store_gso_segment::<0>(id, &segment, &mut from, mark..turn.mark(), !is_partial);
            turn.unstage(mark);
            segments.push(to.bytes());
        }
    });
    segments
}

fn headers() -> impl Strategy<Value = Headers> {
    let kind = prop::sample::select(KINDS.to_vec());
    let flags = prop::sample::select(vec![ACK, ACK | PSH, ACK | ECE, ACK | ECE | PSH]);
    (kind, 0..=2_usize, 0..=10_usize, any::<u16>(), any::<u32>(), flags).prop_map(
        |(kind, tags, tcp_options, id, seq, flags)| Headers { tags, tcp_options, id, seq, flags, ..of_kind(kind) },
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
    let frame = 0..200_usize;
    let other = 0..200_usize;
    let one = prop_oneof![
        6 => (frame.clone(), prop_oneof![0..110_usize, 0..2000_usize], 1..=255_u8, any::<bool>())
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

/// If identifications of coalesced packets are all the same, lets them count up, as segmentation
/// does.
fn count_identifications(frames: &mut [Vec<u8>], headers: &Headers) {
    let at = headers.l3() + 4;
    let id = |frame: &[u8]| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if !headers.v4() || frames.len() < 2 || id(&frames[0]) != id(&frames[1]) {
        return;
    }
    for (n, frame) in frames.iter_mut().enumerate() {
        let counted = id(frame).wrapping_add(u16_of(n));
        frame[at..at + 2].copy_from_slice(&counted.to_be_bytes());
        mend(frame, headers.l3());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_cut_is_put_together(
        headers in headers(), is_partial: bool, size in 20..=1460_usize, count in 2..=40_usize, less in 0..20_usize,
        cuts in prop::collection::vec(prop_oneof![0..3_usize, 0..3000_usize], 0..6),
    ) {
        let size = size.max(headers.header_len() - headers.l4());
        let payload = pattern(size * count - less);
        let frames = segments(&headers, &payload, size, is_partial);
        let arrived = delivered(&frames, &cuts, offload(&headers, is_partial));
        assert_eq!(arrived.len(), 1);
        let (frame, told) = &arrived[0];
        assert!(*frame == headers.frame(&payload, true));
        let gso = headers.gso(u16_of(size));
        assert_eq!(*told, Offload { gso: Some(gso), ..partial(&headers) });
    }

    #[test]
    fn whatever_is_put_together_is_what_came_when_it_is_cut(
        headers in headers(), is_partial: bool, size in 20..=400_usize, count in 2..=40_usize, less in 0..20_usize,
        accidents in accidents(),
    ) {
        let mut frames = segments(&headers, &pattern(size * count - less), size, is_partial);
        happen(&mut frames, &headers, &accidents);
        let arrived = delivered(&frames, &[], offload(&headers, is_partial));
        let mut rest = &mut frames[..];
        for (frame, of) in arrived {
            let again = cut(&frame, of, is_partial);
            let (sent, behind) = rest.split_at_mut(again.len());
            count_identifications(sent, &headers);
            assert!(again == sent, "{accidents:?}");
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    /// A wrong checksum undoes its run, wherever it is and whatever made it wrong.
    #[test]
    fn finished_checksums_are_verified(
        headers in headers(), size in 20..=1460_usize, count in 2..=40_usize, less in 0..20_usize,
        cuts in prop::collection::vec(prop_oneof![0..3_usize, 0..3000_usize], 0..6),
        (packet, at, xor) in (0..40_usize, any::<usize>(), 1..=255_u8),
    ) {
        let size = size.max(headers.header_len() - headers.l4());
        let mut frames = segments(&headers, &pattern(size * count - less), size, false);
        let frame = &mut frames[packet % count];
        // Any byte of the payload, or of the checksum.
        let field = headers.l4() + headers.checksum_offset();
        let payload = headers.header_len()..frame.len();
        let at = payload.clone().chain(field..field + 2).nth(at % (payload.len() + 2)).expect("within");
        frame[at] ^= xor;
        let arrived = delivered(&frames, &cuts, Offload::default());
        assert!(arrived.iter().map(|(frame, _)| frame).eq(&frames), "byte {at} of packet {packet}");
        assert!(arrived.iter().all(|(_, of)| *of == Offload::default()));
    }
}

/// Makes a finished checksum right for the frame as it is.
fn finish(frame: &mut [u8], headers: &Headers) {
    let l3 = headers.l3();
    let l4 = headers.l4();
    let addresses = if headers.v4() { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let protocol = if headers.kind.is_tcp() { 6 } else { 17 };
    let len = u16_of(frame.len() - l4).to_be_bytes();
    let field = l4 + headers.checksum_offset();
    frame[field..field + 2].fill(0);
    let sum = !reference::sum(&[&frame[addresses], &[0, protocol], &len, &frame[l4..]]);
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the number of packets that arrive if the second of three segments is changed, and its
/// checksums are made right again: a finished one only if the change is not in it.
fn after(kind: GsoKind, is_partial: bool, change: impl Fn(&mut Vec<u8>, usize, usize)) -> usize {
    let headers = of_kind(kind);
    let mut frames = segments(&headers, &pattern(3000), 1000, is_partial);
    let field = headers.l4() + headers.checksum_offset();
    let before = frames[1][field..field + 2].to_vec();
    change(&mut frames[1], headers.l3(), headers.l4());
    if headers.v4() {
        mend(&mut frames[1], headers.l3());
    }
    if !is_partial && frames[1][field..field + 2] == before {
        finish(&mut frames[1], &headers);
    }
    delivered(&frames, &[], offload(&headers, is_partial)).len()
}

#[test]
fn headers_that_differ_are_left_alone() {
    for (kind, is_partial) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let after = |change: &dyn Fn(&mut Vec<u8>, usize, usize)| after(kind, is_partial, change);
        assert_eq!(after(&|_, _, _| ()), 1);
        for at in [0, 5, 6, 11] {
            assert_eq!(after(&|frame, _, _| frame[at] ^= 1), 3, "an Ethernet address, byte {at}");
        }
        if kind.is_tcp() {
            // Ports, the acknowledgement, the reserved bits, the window, the checksum, the urgent
            // pointer, options.
            for at in [1, 3, 8, 11, 14, 15, 16, 17, 18, 20, 31] {
                assert_eq!(after(&|frame, _, l4| frame[l4 + at] ^= 1), 3, "byte {at} of TCP");
            }
            assert_eq!(after(&|frame, _, l4| frame[l4 + 12] ^= 1), 3, "a reserved bit");
            for at in [4, 7] {
                assert_eq!(after(&|frame, _, l4| frame[l4 + at] ^= 1), 3, "a sequence number with a gap");
            }
            for flag in [FIN, SYN, RST, URG, ECE, CWR, ACK] {
                assert_eq!(after(&|frame, _, l4| frame[l4 + 13] ^= flag), 3, "flag {flag:#x}");
            }
            // PSH: it may be the last segment of its packet.
            assert_eq!(after(&|frame, _, l4| frame[l4 + 13] |= PSH), 2);
        } else {
            // Ports, the length, the checksum.
            for at in 0..8 {
                assert_eq!(after(&|frame, _, l4| frame[l4 + at] ^= 1), 3, "byte {at} of UDP");
            }
        }
        if kind.is_v4() {
            // Service, length, identification, fragments, time to live, protocol, addresses.
            for at in [1, 3, 4, 6, 7, 8, 9, 12, 19] {
                assert_eq!(after(&|frame, l3, _| frame[l3 + at] ^= 1), 3, "byte {at} of IPv4");
            }
            // The first identification once more, but the third one is another.
            assert_eq!(after(&|frame, l3, _| frame[l3 + 5] ^= 1), 2);
            assert_eq!(after(&|frame, l3, _| frame[l3 + 6] ^= 0x40), 3, "don't fragment");
        } else {
            for at in [0, 1, 3, 4, 5, 6, 7, 8, 39] {
                assert_eq!(after(&|frame, l3, _| frame[l3 + at] ^= 1), 3, "byte {at} of IPv6");
            }
        }
    }
}

#[test]
fn packets_that_begin_no_run() {
    let whole = |headers: &Headers, is_partial: bool, of: Offload| {
        delivered(&segments(headers, &pattern(3000), 1000, is_partial), &[], of).len()
    };
    for (kind, is_partial) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let good = of_kind(kind);
        assert_eq!(whole(&good, is_partial, offload(&good, is_partial)), 1);
        let tcp_flags = [FIN, SYN, RST, URG, CWR].map(|flag| ACK | flag).into_iter().chain([0, PSH]);
        for flags in tcp_flags.filter(|_| kind.is_tcp()) {
            let headers = Headers { flags, ..good.clone() };
            // FIN may be in the last segment only, CWR in the first.
            let expected = if flags == ACK | FIN || flags == ACK | CWR { 2 } else { 3 };
            let arrived = whole(&headers, is_partial, offload(&headers, is_partial));
            assert_eq!(arrived, expected, "flags {flags:#x}");
        }
        // A checksum that was verified is verified again. One that is said to be finished, and is
        // not, is wrong.
        let expected = if is_partial { 3 } else { 1 };
        for checksum in [Checksum::Complete, Checksum::Verified] {
            assert_eq!(whole(&good, is_partial, Offload { checksum, gso: None }), expected);
        }
        // A partial checksum elsewhere.
        let Checksum::Partial { start, offset } = partial(&good).checksum else { unreachable!() };
        for (start, offset) in [(start + 2, offset), (start, 22 - offset), (start - 2, offset), (start, 4)] {
            assert_eq!(whole(&good, true, Offload { checksum: Checksum::Partial { start, offset }, gso: None }), 3);
        }
        let gso = Some(good.gso(1000));
        let of = Offload { gso, ..offload(&good, is_partial) };
        assert_eq!(whole(&good, is_partial, of), 3, "packets that are to be segmented");
        let odd = if good.v4() {
            Headers { ip_options: 1, ..good.clone() }
        } else {
            Headers { extensions: vec![1], ..good.clone() }
        };
        assert_eq!(whole(&odd, is_partial, offload(&odd, is_partial)), 3, "options, or an extension header");
    }
}

#[test]
fn kinds_that_the_receiver_does_not_take_are_left_alone() {
    for (kind, is_partial) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        for tags in [0, 1] {
            let headers = Headers { tags, ..of_kind(kind) };
            let frames = segments(&headers, &pattern(3000), 1000, is_partial);
            let count = |kinds| delivered_to(kinds, &frames, &[], offload(&headers, is_partial)).len();
            assert_eq!(
                (count(GsoKinds::of(|taken| taken == kind)), count(GsoKinds::of(|taken| taken != kind))),
                (1, 3)
            );
            let other = if kind.is_tcp() { GsoKinds::UDP } else { GsoKinds::TCP };
            assert_eq!((count(GsoKinds::NONE), count(other)), (3, 3));
        }
    }
}

/// Where "don't fragment" is set, all identifications may be one.
#[test]
fn identifications_count_up_or_have_no_meaning() {
    for (kind, is_partial) in [GsoKind::Tcp4, GsoKind::Udp4].into_iter().flat_map(|kind| [(kind, true), (kind, false)])
    {
        let headers = of_kind(kind);
        let count = |ids: [u16; 4], flags: u8| {
            let mut frames = segments(&headers, &pattern(4000), 1000, is_partial);
            for (frame, id) in frames.iter_mut().zip(ids) {
                frame[18..20].copy_from_slice(&id.to_be_bytes());
                frame[20] = flags;
                mend(frame, headers.l3());
            }
            let arrived = delivered(&frames, &[], offload(&headers, is_partial));
            assert!(arrived.iter().all(|(frame, _)| ids.contains(&u16::from_be_bytes([frame[18], frame[19]]))));
            arrived.len()
        };
        for id in [0, 5, 0xffff] {
            assert_eq!((count([id; 4], 0x40), count([id; 4], 0)), (1, 4));
        }
        assert_eq!((count([0, 0, 0, 1], 0x40), count([0, 0, 1, 1], 0x40), count([0, 1, 1, 1], 0x40)), (2, 2, 2));
        assert_eq!((count([1, 2, 3, 4], 0x40), count([0xfffe, 0xffff, 0, 1], 0)), (1, 1));
        assert_eq!((count([4, 3, 2, 1], 0x40), count([1, 3, 5, 7], 0x40)), (4, 4));
    }
}

/// Without a checksum, an error in a datagram would be hidden; over IPv6, the datagram is wrong.
#[test]
fn datagrams_without_a_checksum_are_left_alone() {
    for kind in [GsoKind::Udp4, GsoKind::Udp6] {
        let headers = of_kind(kind);
        for without in 0..3 {
            let mut frames = segments(&headers, &pattern(3000), 1000, false);
            frames[without][headers.l4() + 6..][..2].fill(0);
            let arrived = delivered(&frames, &[], Offload::default());
            assert_eq!(arrived.len(), if without == 1 { 3 } else { 2 });
            assert!(arrived.contains(&(frames[without].clone(), Offload::default())));
        }
    }
}

#[test]
fn a_run_has_so_many_datagrams_at_most() {
    for (kind, is_partial) in [(GsoKind::Udp4, true), (GsoKind::Udp4, false), (GsoKind::Udp6, false)] {
        let headers = of_kind(kind);
        let frames = segments(&headers, &pattern(10 * (2 * MAX_DATAGRAMS + 5)), 10, is_partial);
        let arrived = delivered(&frames, &[], offload(&headers, is_partial));
        let payloads = arrived.iter().map(|(frame, _)| frame.len() - headers.header_len());
        assert!(payloads.eq([10 * MAX_DATAGRAMS, 10 * MAX_DATAGRAMS, 50]));
    }
}

/// The sender changes a body after its head was read. The sum covers what is stored, so a packet
/// that arrives coalesced has the checksum that its head says.
#[test]
fn a_body_that_changes_before_the_copy_undoes_the_run() {
    for kind in KINDS {
        let headers = of_kind(kind);
        let frames = segments(&headers, &pattern(3000), 1000, false);
        for changed in 0..3 {
            let memory: Vec<_> = frames.iter().map(|frame| Memory::new(frame)).collect();
            arena(Settings::default()).turn(|turn| {
                let ids = accept(turn, &memory, &[], Offload::default());
                let (run, count) = turn.coalesce(&ids, all()).expect("a run");
                assert_eq!(count, 3);
                let place = memory[changed].segment(600, 4);
                place.write(Level::Scalar, &[frames[changed][600] ^ 1]);
                assert_eq!(stored(turn, &run, &ids), Err(WrongChecksum));
                // The two words change places, which a checksum does not see.
                let word = |at: usize| &frames[changed][at..at + 2];
                place.write(Level::Scalar, &[word(602), word(600)].concat());
                let packet = stored(turn, &run, &ids).expect("the checksum is right");
                let at = 1000 * changed + 600;
                assert_eq!(packet[at..at + 4], [word(602), word(600)].concat());
            });
        }
    }
}

/// A sender says where in the packet a checksum lies. It does not say to which protocol the
/// checksum belongs.
#[test]
fn packets_whose_transport_is_too_short_for_tcp_are_left_alone() {
    // An echo request, UDP, a fragment of TCP, TCP without its header's end, and bytes without any
    // header.
    for (protocol, fragment) in [(1, 0), (17, 0), (6, 0x2000), (6, 0x00b9), (6, 0), (59, 0)] {
        for transport in 0..40 {
            let headers = of_kind(GsoKind::Tcp4);
            let mut frame = headers.frame(&[], true);
            let l4 = headers.l4();
            frame.resize(l4 + transport, 0x55);
            let ip = &mut frame[l4 - 20..];
            (ip[9], [ip[6], ip[7]]) = (protocol, u16::to_be_bytes(fragment));
            ip[2..4].copy_from_slice(&u16_of(20 + transport).to_be_bytes());
            if protocol == 17 && transport >= 8 {
                ip[24..26].copy_from_slice(&u16_of(transport).to_be_bytes());
            }
            let at = |start, offset| Offload { checksum: Checksum::Partial { start, offset }, gso: None };
            for of in [at(14, 16), at(34, 16), at(14, 6), at(34, 6), Offload::default()] {
                let frames = [frame.clone(), frame.clone()];
                assert_eq!(delivered(&frames, &[], of).len(), 2, "{protocol} {fragment:x} {transport}");
            }
        }
    }
}

#[test]
fn a_packet_is_as_long_as_its_length_field_can_say_and_as_any_may_be() {
    // With IPv6, and behind tags, the length field can hold more than a port carries.
    let cases = [(GsoKind::Tcp4, 0), (GsoKind::Tcp4, 2), (GsoKind::Tcp6, 0), (GsoKind::Tcp6, 1), (GsoKind::Udp4, 0)];
    for (kind, tags) in cases {
        // So large that the limit of datagrams is not reached.
        let size = if kind.is_tcp() { 1000 } else { 1460 };
        for is_partial in [true, false] {
            let headers = Headers { tags, flags: ACK, ..of_kind(kind) };
            let most = if tags == 0 && kind.is_v4() {
                65_535 - (headers.header_len() - 14)
            } else {
                MAX_FRAME as usize - headers.header_len()
            };
            let count = most / size;
            let of = offload(&headers, is_partial);
            let frames = segments(&headers, &pattern(size * (count + 3)), size, is_partial);
            let arrived = delivered(&frames, &[], of);
            assert_eq!(arrived.len(), 2);
            assert_eq!(arrived[0].0.len(), headers.header_len() + size * count);
            assert_eq!(arrived[1].0.len(), headers.header_len() + 3 * size);
            let frames = segments(&headers, &pattern(most), size, is_partial);
            assert_eq!(delivered(&frames, &[], of).len(), 1, "to the last byte");
            let frames = segments(&headers, &pattern(most + 1), size, is_partial);
            assert_eq!(delivered(&frames, &[], of).len(), 2);
        }
    }
}

#[test]
fn tiny_segments_and_empty_ones_are_left_alone() {
    for (kind, least) in [(GsoKind::Tcp4, 20), (GsoKind::Udp4, 8), (GsoKind::Udp6, 8)] {
        for is_partial in [true, false] {
            let headers = Headers { tcp_options: 0, flags: ACK, ..of_kind(kind) };
            let of = offload(&headers, is_partial);
            let count = |size| delivered(&segments(&headers, &pattern(5 * size), size, is_partial), &[], of).len();
            assert_eq!((count(least - 1), count(least)), (5, 1));
            let empty = headers.frame(&[], is_partial);
            assert_eq!(delivered(&[empty.clone(), empty], &[], of).len(), 2);
        }
    }
}
