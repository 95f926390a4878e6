//! Headers in front of packets. Operations in any order are compared with a reference
//! implementation, a plain vector of bytes. Delivered packets are compared with packets that were
//! built with the headers in place.

use proptest::prelude::*;
use straightline_packet::{
    BodyCursor, Checksum, Gso, GsoKind, GsoSegment, HEAD, HEADROOM, MIN_HEADROOM, MemorySegment, Offload, Outer,
    OuterChecksum, Outside, PacketId, Packets, PortIndex, PrependError, Reason, Segmenter, Settings, SourceQueueId,
    StripError, Turn,
};
use straightline_testing::memory::{Memory, arena, arena_with_drops, pattern};

use super::accept::bytes_of;
use super::segmentation::{Headers, headers, u16_of};
use super::store::{cuts, finished, shape};

const PORT: PortIndex = PortIndex(0);

/// Bytes of a slot: its headroom and the longest head.
const SLOT: usize = HEADROOM + 512;

/// Bytes that stripping leaves in a head.
const MIN_HEAD: usize = 128;

/// The reference implementation: a packet is a vector of bytes with its offsets.
#[derive(Clone, Debug)]
struct Reference {
    bytes: Vec<u8>,
    /// Free bytes in front of the packet.
    headroom: usize,
    offload: Offload,
}

impl Reference {
    fn prepend(&mut self, front: &[u8]) -> Result<(), PrependError> {
        if self.headroom < front.len() + MIN_HEADROOM {
            return Err(PrependError::NoHeadroom);
        }
        self.headroom -= front.len();
        self.bytes.splice(..0, front.iter().copied());
        let n = u16_of(front.len());
        match &mut self.offload.checksum {
            Checksum::Partial { start, .. } => *start += n,
            other => *other = Checksum::Complete,
        }
        if let Some(gso) = &mut self.offload.gso {
            (gso.l3, gso.l4, gso.header_len) = (gso.l3 + n, gso.l4 + n, gso.header_len + n);
            gso.outer = gso.outer.map(|outer| gre(outer.l3 + n));
        }
        Ok(())
    }

    fn strip(&mut self, n: usize) -> Result<(), StripError> {
        if n > self.bytes.len() {
            return Err(StripError::TooShort);
        }
        if self.headroom + n > SLOT {
            return Err(StripError::TooDeep);
        }
        let mut offload = self.offload;
        offload.checksum = match offload.checksum {
            Checksum::Partial { start, offset } => {
                let (start, field_end) = (usize::from(start), usize::from(start + offset + 2));
                match (start >= n, field_end <= n) {
                    (true, _) => Checksum::Partial { start: u16_of(start - n), offset },
                    (false, true) => Checksum::Complete,
                    (false, false) => return Err(StripError::Checksum),
                }
            }
            _ => Checksum::Complete,
        };
        if let Some(gso) = &mut offload.gso {
            if usize::from(gso.outer.map_or(gso.l3, |outer| outer.l3)) < n {
                return Err(StripError::Segmentation);
            }
            let n = u16_of(n);
            (gso.l3, gso.l4, gso.header_len) = (gso.l3 - n, gso.l4 - n, gso.header_len - n);
            gso.outer = gso.outer.map(|outer| gre(outer.l3 - n));
        }
        self.offload = offload;
        self.headroom += n;
        self.bytes.drain(..n);
        Ok(())
    }

    fn push_tag(&mut self, tag: [u8; 4]) -> Result<(), PrependError> {
        if self.longest() < 12 {
            return Err(PrependError::NoHeadroom);
        }
        let checksum = self.offload.checksum;
        let addresses = self.bytes[..12].to_vec();
        self.prepend(&addresses[..4])?;
        self.bytes[..12].copy_from_slice(&addresses);
        self.bytes[12..16].copy_from_slice(&tag);
        if checksum == Checksum::Verified {
            self.offload.checksum = checksum;
        }
        Ok(())
    }

    fn pop_tag(&mut self) -> Result<(), StripError> {
        if self.bytes.len() < 18 || self.longest() < 18 {
            return Err(StripError::TooShort);
        }
        let checksum = self.offload.checksum;
        if matches!(checksum, Checksum::Partial { start, .. } if start < 18) {
            return Err(StripError::Checksum);
        }
        if self.offload.gso.is_some_and(|gso| gso.outer.map_or(gso.l3, |outer| outer.l3.min(gso.l3)) < 18) {
            return Err(StripError::Segmentation);
        }
        self.bytes.copy_within(..12, 4);
        self.strip(4)?;
        if checksum == Checksum::Verified {
            self.offload.checksum = checksum;
        }
        Ok(())
    }

    /// Returns the length of the longest head that the slot has space for.
    fn longest(&self) -> usize {
        self.bytes.len().min(SLOT - self.headroom)
    }

    fn assert_is(&self, turn: &Turn<'_>, id: PacketId) {
        assert_eq!(bytes_of(turn, id), self.bytes);
        assert_eq!(turn.len(id) as usize, self.bytes.len());
        assert_eq!(turn.head(id).len() + turn.body_len(id) as usize, self.bytes.len());
        assert!(turn.head(id).len() >= self.longest().min(MIN_HEAD), "a head is left");
        assert_eq!(turn.offload(id), self.offload);
        assert_eq!(turn.max_head(id), SLOT - self.headroom);
    }
}

/// Outer headers of IPv4 and GRE, as far as their places matter.
fn gre(l3: u16) -> Outer {
    Outer { l3, checksum: OuterChecksum::Gre { at: l3 + 20 }, gtpu: Some(l3 + 28) }
}

#[derive(Clone, Debug)]
enum Operation {
    Prepend(Vec<u8>),
    /// Prepends the last bytes of an array.
    PrependLast(usize, u8),
    Strip(usize),
    PushTag([u8; 4]),
    PopTag,
    PullUp(usize),
    Save,
    Restore,
    /// Delivers the packet into buffers of these lengths, and finishes its checksum or not.
    Deliver(Vec<usize>, bool),
    SetPort(u16),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::*;
    let prepended = prop_oneof![0..20_usize, 0..130_usize];
    let operation = prop_oneof![
        4 => (prepended, any::<u8>()).prop_map(|(n, byte)| Prepend(vec![byte; n])),
        4 => (0..=40_usize, any::<u8>()).prop_map(|(n, byte)| PrependLast(n, byte)),
        4 => prop_oneof![0..20_usize, 0..150_usize, 0..700_usize].prop_map(Strip),
        3 => any::<[u8; 4]>().prop_map(PushTag),
        3 => Just(PopTag),
        1 => (0..700_usize).prop_map(PullUp),
        2 => Just(Save),
        2 => Just(Restore),
        2 => (cuts(), any::<bool>()).prop_map(|(to, finish)| Deliver(to, finish)),
        1 => (0..3_u16).prop_map(SetPort),
    ];
    prop::collection::vec(operation, 0..16)
}

/// A packet to begin with: its length, and offsets that lie within its head.
fn packets() -> impl Strategy<Value = (usize, Offload)> {
    let outer = prop::option::of(0..60_u16);
    let gso =
        (any::<bool>(), 0..60_u16, 20..60_u16, 8..60_u16, outer).prop_map(|(some, l3, network, transport, outer)| {
            some.then(|| Gso {
                kind: GsoKind::Udp6,
                ecn: false,
                size: 700,
                l3,
                l4: l3 + network,
                header_len: l3 + network + transport,
                outer: outer.map(|outer| gre(outer.min(l3))),
            })
        });
    (shape(), gso, 0..4_u8).prop_map(|((len, partial), gso, which)| {
        let checksum = match which {
            0 => Checksum::Complete,
            1 => Checksum::Verified,
            _ => partial,
        };
        (len, Offload { checksum, gso })
    })
}

/// Delivers the packet, and compares what arrives with the reference.
fn deliver<'t>(
    turn: &mut Turn<'t>,
    id: PacketId,
    expected: &Reference,
    destination: Vec<MemorySegment<'t>>,
    finish: bool,
) {
    // All bytes that a port may overwrite, not only the 12 of a virtio-net header.
    *turn.front_mut::<MIN_HEADROOM>(id) = [0x55; MIN_HEADROOM];
    *turn.front_mut::<12>(id) = *b"virtio-net-h";
    let mark = turn.mark();
    destination.into_iter().for_each(|segment| turn.stage(segment));
    let copied = turn.store::<12>(id, mark..turn.mark(), finish);
    turn.unstage(mark);
    assert_eq!(copied, turn.body_len(id), "a body is copied once, with any headers in front");
    expected.assert_is(turn, id);
}

fn run(turn: &mut Turn<'_>, id: PacketId, mut reference: Reference, operations: &[Operation]) {
    let mut saved: Vec<(Outside, Reference)> = Vec::new();
    for operation in operations {
        match operation {
            Operation::Prepend(front) => assert_eq!(turn.prepend(id, front), reference.prepend(front)),
            Operation::PrependLast(n, byte) => {
                assert_eq!(turn.prepend_last(id, &[*byte; 40], *n), reference.prepend(&vec![*byte; *n]));
            }
            Operation::Strip(n) => {
                // A saved packet may be stripped of 16 bytes at most.
                let most = saved.iter().map(|(_, saved)| saved.headroom + 16 - reference.headroom).min();
                let n = most.map_or(*n, |most| most.min(*n));
                assert_eq!(turn.strip(id, n), reference.strip(n), "{n} bytes");
            }
            // Tags change the first 16 bytes: as in a saved packet that was not stripped.
            Operation::PushTag(_) | Operation::PopTag
                if saved.iter().any(|(_, saved)| reference.headroom > saved.headroom) => {}
            Operation::PushTag(tag) => assert_eq!(turn.push_tag(id, *tag), reference.push_tag(*tag)),
            Operation::PopTag => assert_eq!(turn.pop_tag(id), reference.pop_tag()),
            Operation::PullUp(upto) => assert_eq!(turn.pull_up(id, *upto), *upto <= reference.longest(), "{upto}"),
            Operation::Save => saved.push((turn.save_outside(id), reference.clone())),
            Operation::Restore => {
                if let Some((outside, before)) = saved.pop() {
                    turn.restore_outside(id, &outside);
                    reference = before;
                }
            }
            Operation::Deliver(to, finish) => {
                let finish = *finish && reference.offload.checksum != Checksum::Verified;
                let expected =
                    finished(&reference.bytes, if finish { reference.offload.checksum } else { Checksum::Complete });
                let destination = Memory::new(&vec![0xee; expected.len() + 7]);
                deliver(turn, id, &reference, destination.cut(to), finish);
                let stored = destination.bytes();
                assert_eq!(stored.split_at(expected.len()), (&expected[..], &[0xee; 7][..]));
            }
            Operation::SetPort(port) => {
                turn.set_port(id, PortIndex(*port));
                assert_eq!(turn.port(id), PortIndex(*port));
            }
        }
        reference.assert_is(turn, id);
    }
    while let Some((outside, before)) = saved.pop() {
        turn.restore_outside(id, &outside);
        before.assert_is(turn, id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_order_of_operations_keeps_bytes_and_offsets(
        (len, offload) in packets(), from in cuts(), operations in operations(), two_copies: bool,
    ) {
        let source = Memory::patterned(len);
        arena(Settings { two_copies, ..Settings::default() }).turn(|turn| {
            let mark = turn.mark();
            source.cut(&from).into_iter().for_each(|segment| turn.stage(segment));
            let id = turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).expect("a free slot");
            turn.set_offload(id, offload);
            run(turn, id, Reference { bytes: pattern(len), headroom: HEADROOM, offload }, &operations);
        });
        assert_eq!(source.bytes(), pattern(len), "a source is not written");
    }

    #[test]
    fn the_same_for_packets_of_ours((len, mut offload) in packets(), operations in operations()) {
        let len = len.min(HEAD);
        if let Checksum::Partial { start, offset } = offload.checksum && usize::from(start + offset + 2) > len {
            offload.checksum = Checksum::Complete;
        }
        arena(Settings::default()).turn(|turn| {
            let id = turn.accept_owned(PORT, &pattern(len)).expect("a free slot");
            turn.set_offload(id, offload);
            run(turn, id, Reference { bytes: pattern(len), headroom: HEADROOM, offload }, &operations);
        });
    }

    /// Prepended bytes are in front of every segment of a packet. The rest is the same as without
    /// them.
    #[test]
    fn segments_have_what_was_prepended_in_front(
        headers in headers(), payload in 0..6000_usize, size in 500..1500_u16, front in 0..=112_usize, strip in 0..20_usize,
        from in cuts(), finish: bool, together: bool,
    ) {
        let at_once = if together { &[u32::MAX] } else { &[1] };
        let frame = headers.frame(&pattern(payload), true);
        // The front may replace bytes of the packet, as far as these are link-layer headers.
        let strip = strip.min(headers.l3()).min(front);
        let front = vec![0xab; front];
        prop_assume!(headers.header_len() <= HEAD);
        let whole = segments(&frame, &headers, size, &from, finish, at_once, |_, _| ());
        let changed = segments(&frame, &headers, size, &from, finish, at_once, |packets, id| {
            packets.strip(id, strip).expect("only link-layer headers");
            packets.prepend(id, &front).expect("as much as there is");
        });
        let expected: Vec<_> = whole.iter().map(|segment| [&front[..], &segment[strip..]].concat()).collect();
        assert!(changed == expected, "{changed:x?}\nshould be\n{expected:x?}");
    }
}

/// Returns the segments of a packet, delivered after `change`: as many at once as `at_once` says, in
/// turn.
pub(super) fn segments(
    frame: &[u8],
    headers: &Headers,
    size: u16,
    from: &[usize],
    finish: bool,
    at_once: &[u32],
    change: impl Fn(&mut Packets<'_>, PacketId),
) -> Vec<Vec<u8>> {
    let source = Memory::new(frame);
    let gso = headers.gso(size);
    let mut segments = Vec::new();
    arena(Settings::default()).turn(|turn| {
        let mark = turn.mark();
        source.cut(from).into_iter().for_each(|segment| turn.stage(segment));
        let id = turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).expect("a free slot");
        let checksum = Checksum::Partial { start: gso.l4, offset: u16_of(headers.checksum_offset()) };
        turn.set_offload(id, Offload { checksum, gso: Some(gso) });
        change(turn.packets(), id);
        let gso = turn.offload(id).gso.expect("still to be segmented");
        let mut segmenter = Segmenter::new(gso, turn.len(id)).expect("a good packet");
        assert_eq!(segmenter.checksum(), turn.offload(id).checksum);
        let mut segment = GsoSegment::default();
        let mut place = BodyCursor::default();
        assert!(segmenter.begin(turn.head(id), &mut segment));
        *segment.prefix_mut::<12>() = [0x55; 12];
        for &at_once in at_once.iter().cycle() {
            let n = segmenter.left().min(at_once);
            let lens: Vec<_> = (0..n).map(|nth| segmenter.len_of(nth) as usize).collect();
            let to: Vec<_> = lens.iter().map(|len| Memory::new(&vec![0xee; 12 + len])).collect();
            let mark = turn.mark();
            to.iter().zip(&lens).for_each(|(memory, len)| turn.stage(memory.segment(0, 12 + len)));
            if at_once > 1 {
                let to = mark..turn.mark();
                turn.store_gso_segments::<12>(id, &mut segmenter, &segment, &mut place, to, finish);
            } else {
                assert!(segmenter.next(turn.head(id), &mut segment));
                turn.store_gso_segment::<12>(id, &segment, &mut place, mark..turn.mark(), finish);
            }
            turn.unstage(mark);
            segments.extend(to.iter().map(|memory| memory.bytes().split_off(12)));
            if segmenter.left() == 0 {
                break;
            }
        }
    });
    segments
}

/// A tunnel prepends its headers in a flood. Another output then finds the packet unchanged.
#[test]
fn a_delivery_with_headers_leaves_the_packet_to_the_next_output() {
    let source = Memory::patterned(1000);
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept(PORT, SourceQueueId::NONE, source.segment(0, 1000)).expect("a free slot");
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let offload = Offload { checksum, gso: None };
        turn.set_offload(id, offload);
        for front in [0, 50, 112] {
            let outside = turn.save_outside(id);
            turn.prepend(id, &vec![0xab; front]).expect("enough headroom");
            let checksum = Checksum::Partial { start: 34 + u16_of(front), offset: 16 };
            assert_eq!(turn.offload(id), Offload { checksum, gso: None });
            let destination = Memory::new(&vec![0; 12 + front + 1000]);
            *turn.front_mut::<12>(id) = [0x55; 12];
            let mark = turn.mark();
            turn.stage(destination.segment(0, 12 + front + 1000));
            turn.store::<12>(id, mark..turn.mark(), false);
            turn.unstage(mark);
            assert_eq!(destination.bytes(), [vec![0x55; 12], vec![0xab; front], pattern(1000)].concat());
            turn.restore_outside(id, &outside);
            assert_eq!((bytes_of(turn, id), turn.offload(id)), (pattern(1000), offload));
        }
    });
}

/// A tag is popped where the packet, or the space of its slot, ends soon: the head is as long as it
/// can be.
#[test]
fn a_popped_tag_leaves_as_long_a_head_as_there_can_be() {
    for (len, strip, left) in [(1000, SLOT - HEADROOM - 130, 126), (258, 128, 126), (1000, 128, MIN_HEAD)] {
        let source = Memory::patterned(len);
        arena(Settings::default()).turn(|turn| {
            let id = turn.accept(PORT, SourceQueueId::NONE, source.segment(0, len)).expect("a free slot");
            turn.strip(id, strip).expect("enough bytes");
            turn.pop_tag(id).expect("enough bytes");
            assert_eq!(turn.head(id).len(), left, "{len} bytes without {strip}");
        });
    }
}

#[test]
fn offsets_that_would_overflow_are_refused() {
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1, l3: 14, l4: 34, header_len: 54, outer: None };
    let partial = |start, offset| Offload { checksum: Checksum::Partial { start, offset }, gso: None };
    let max = u16::MAX;
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept_owned(PORT, &[1; 60]).expect("a free slot");
        for offload in [
            partial(max, 0),
            partial(max - 19, 0),
            partial(0, max - 19),
            Offload { gso: Some(Gso { header_len: max - 19, ..gso }), ..Offload::default() },
            Offload { gso: Some(Gso { l3: max, ..gso }), ..Offload::default() },
            Offload { gso: Some(Gso { l4: max, ..gso }), ..Offload::default() },
        ] {
            turn.set_offload(id, offload);
            assert_eq!(turn.prepend(id, &[2; 20]), Err(PrependError::Offset));
            assert_eq!((turn.head(id), turn.offload(id)), (&[1; 60][..], offload), "nothing has changed");
        }
        for offload in [partial(max - 20, 0), partial(0, max - 20)] {
            turn.set_offload(id, offload);
            let outside = turn.save_outside(id);
            assert_eq!(turn.prepend(id, &[2; 20]), Ok(()));
            assert_eq!((turn.strip(id, 20), turn.offload(id)), (Ok(()), offload));
            turn.restore_outside(id, &outside);
        }
    });
}

#[test]
fn errors_say_what_is_wrong() {
    for (error, text) in [
        (StripError::TooShort, "the packet has fewer bytes than are to be stripped"),
        (StripError::TooDeep, "the slot has no space for the bytes to be stripped"),
        (StripError::Segmentation, "segmentation of the packet needs headers that are to be stripped"),
        (StripError::Checksum, "an unfinished checksum covers bytes that are to be stripped"),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(PrependError::NoHeadroom.to_string(), "too little headroom in front of the packet");
    assert_eq!(PrependError::Offset.to_string(), "an offset of the packet's offload exceeds 16 bits");
}

#[test]
fn a_packet_is_counted_for_the_port_that_was_set() {
    let drops: Vec<_> = (0..2).map(|_| std::sync::Arc::default()).collect();
    arena_with_drops(Settings::default(), drops.clone()).turn(|turn| {
        let id = turn.accept_owned(PORT, &[0; 60]).expect("a free slot");
        turn.set_port(id, PortIndex(1));
        turn.discard(id, Reason::Runt);
    });
    assert_eq!([drops[0].total(), drops[1].total()], [0, 1]);
}
