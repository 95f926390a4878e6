//! The one copy: into buffers of any lengths, with and without a checksum to finish.

use proptest::prelude::*;
use straightline_packet::{
    Checksum, HEAD, Level, MemorySegment, Offload, PacketId, PortIndex, Scatter, Settings, SourceQueueId, Turn,
};
use straightline_simd::{Sum, reference};
use straightline_testing::memory::{Memory, arena, pattern};

const PORT: PortIndex = PortIndex(3);
const FRONT: [u8; 12] = *b"virtio-net-h";

fn accept<'t>(turn: &mut Turn<'t>, segments: &[MemorySegment<'t>]) -> PacketId {
    let mark = turn.mark();
    segments.iter().for_each(|&s| turn.stage(s));
    turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).expect("a free slot")
}

/// The reference implementation: all bytes in a row, with the checksum over them.
pub(super) fn finished(frame: &[u8], checksum: Checksum) -> Vec<u8> {
    let mut bytes = [&FRONT[..], frame].concat();
    if let Checksum::Partial { start, offset } = checksum {
        let from = 12 + usize::from(start);
        let value = match !reference::sum(&[&bytes[from..]]) {
            0 => 0xffff,
            value => value,
        };
        bytes[from + usize::from(offset)..][..2].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

pub(super) fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), 0..15_usize, 0..700_usize], 0..10)
}

fn levels() -> impl Strategy<Value = Level> {
    prop::sample::select(Level::supported().collect::<Vec<_>>())
}

/// A frame's length, and a partial checksum whose field lies in its head.
pub(super) fn shape() -> impl Strategy<Value = (usize, Checksum)> {
    let long = prop_oneof![4..300_usize, 240..270_usize, 4..3000_usize];
    long.prop_flat_map(|len| {
        let field = 0..=len.min(HEAD) - 2;
        (Just(len), field.prop_flat_map(|field| (Just(field), 0..=field)))
    })
    .prop_map(|(len, (field, start))| {
        let number = |n: usize| u16::try_from(n).expect("within a head");
        (len, Checksum::Partial { start: number(start), offset: number(field - start) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_arrives_is_what_was_sent(
        (len, checksum) in shape(), from in cuts(), to in cuts(), finish: bool, two_copies: bool, level in levels(),
        spare in 0..40_usize, times in 1..4_usize, header in 0..3_u8,
    ) {
        let source = Memory::patterned(len);
        let expected = finished(&pattern(len), if finish { checksum } else { Checksum::Complete });
        let mut arena = arena(Settings { two_copies, level, ..Settings::default() });
        arena.turn(|turn| {
            let id = accept(turn, &source.cut(&from));
            turn.set_offload(id, Offload { checksum, gso: None });
            // Flooding: the same packet goes to several ports.
            for _ in 0..times {
                // A buffer comes back with the header of its last packet: another one, the same,
                // nearly the same.
                let mut before = vec![0xee; 12 + len + spare];
                if header > 0 {
                    before[..12].copy_from_slice(&FRONT);
                    before[11] ^= header - 1;
                }
                let destination = Memory::new(&before);
                *turn.front_mut::<12>(id) = FRONT;
                let mark = turn.mark();
                destination.cut(&to).into_iter().for_each(|s| turn.stage(s));
                let copied = turn.store::<12>(id, mark..turn.mark(), finish);
                turn.unstage(mark);
                assert_eq!(copied, turn.body_len(id));
                let stored = destination.bytes();
                assert_eq!(&stored[..12 + len], expected);
                assert!(stored[12 + len..].iter().all(|&b| b == 0xee), "nothing beyond the packet");
                // The packet is unchanged.
                assert_eq!(*turn.front_mut::<12>(id), FRONT);
                assert_eq!(turn.head(id), &pattern(len)[..len.min(HEAD)]);
                assert_eq!(turn.offload(id).checksum, checksum);
            }
        });
        let body = u64::try_from(len.saturating_sub(HEAD)).expect("small");
        let copies = u64::try_from(times).expect("small") + u64::from(two_copies);
        assert_eq!(arena.bodies().copied, body * copies, "a body is copied once for each destination");
        assert_eq!(source.bytes(), pattern(len));
    }

    /// Bytes that do not fit into the destination are lost, and nothing behind it is written.
    #[test]
    fn a_short_destination_is_filled_and_not_exceeded(
        (len, checksum) in shape(), room in 0..2000_usize, to in cuts(), finish: bool,
    ) {
        let source = Memory::patterned(len);
        let destination = Memory::new(&vec![0xee; room + 64]);
        arena(Settings::default()).turn(|turn| {
            let id = accept(turn, &source.cut(&[]));
            turn.set_offload(id, Offload { checksum, gso: None });
            *turn.front_mut::<12>(id) = FRONT;
            let mark = turn.mark();
            let mut rest = destination.segment(32, room);
            for cut in to {
                let (part, after) = rest.split_at(u32::try_from(cut).expect("small"));
                turn.stage(part);
                rest = after;
            }
            turn.stage(rest);
            turn.store::<12>(id, mark..turn.mark(), finish);
        });
        let stored = destination.bytes();
        assert!(stored[..32].iter().chain(&stored[32 + room..]).all(|&b| b == 0xee));
        if !finish {
            let fits = room.min(12 + len);
            assert_eq!(&stored[32..32 + fits], &finished(&pattern(len), Checksum::Complete)[..fits]);
        }
    }

    /// A guest with two ports may make the switch copy a range onto itself. The values of these
    /// bytes are unspecified, and bytes around them stay as they are.
    #[test]
    fn overlap_changes_nothing_outside_the_destination(
        len in 300..3000_usize, from in 0..1000_usize, at in 0..1000_usize, cut in 0..3000_usize, finish: bool,
        level in levels(),
    ) {
        let memory = Memory::patterned(5000);
        let before = memory.bytes();
        arena(Settings { level, ..Settings::default() }).turn(|turn| {
            let id = accept(turn, &[memory.segment(from, len)]);
            turn.set_offload(id, Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: None });
            *turn.front_mut::<12>(id) = FRONT;
            let mark = turn.mark();
            let (a, b) = memory.segment(at, len + 12).split_at(u32::try_from(cut).expect("small"));
            turn.stage(a);
            turn.stage(b);
            turn.store::<12>(id, mark..turn.mark(), finish);
        });
        let after = memory.bytes();
        assert_eq!(&after[..at], &before[..at]);
        assert_eq!(&after[at + len + 12..], &before[at + len + 12..]);
        // The head was copied before, so an overlap does not change it. The sum covers the stored
        // bytes.
        assert_eq!(&after[at..at + 12], FRONT);
        if finish {
            let sum = reference::sum(&[&after[at + 12 + 34..at + 12 + len]]);
            let pseudo = reference::sum(&[&before[from + 34 + 16..][..2]]);
            let field = reference::sum(&[&after[at + 12 + 34 + 16..][..2]]);
            // field == !(sum of the rest + pseudo): with the pseudo header added, all is 0xffff.
            assert_eq!(straightline_wire::checksum::add(sum, pseudo), 0xffff, "field {field:#x}");
        }
    }

    #[test]
    fn a_scatter_takes_bytes_in_any_portions(len in 0..1000_usize, to in cuts(), portions in cuts(), skip in 0..200_u32) {
        let destination = Memory::new(&vec![0; len]);
        let segments = destination.cut(&to);
        let mut scatter = Scatter::new(&segments).expect("at least one segment");
        scatter.skip(skip);
        let bytes = pattern(len + 100);
        let source = Memory::new(&bytes);
        let mut at = 0;
        let mut sum = Sum::new();
        let room = len.saturating_sub(skip as usize);
        for (i, portion) in portions.into_iter().enumerate() {
            let n = portion.min(bytes.len() - at);
            let done = if i % 2 == 0 {
                sum.add_bytes(&bytes[at..][..n.min(room - at)]);
                scatter.put(Level::detect(), &bytes[at..at + n])
            } else {
                scatter.put_segment(Level::detect(), source.segment(at, n), Some(&mut sum)) as usize
            };
            assert_eq!(done, n.min(room - at));
            at += done;
        }
        let stored = destination.bytes();
        assert_eq!(&stored[len - room..len - room + at], &bytes[..at]);
        assert!(stored[..len - room].iter().all(|&b| b == 0));
        assert_eq!(sum.fold(), reference::sum(&[&bytes[..at]]));
    }
}

#[test]
fn nothing_to_store_into_is_no_trouble() {
    let memory = Memory::patterned(600);
    assert!(Scatter::new(&[]).is_none());
    arena(Settings::default()).turn(|turn| {
        let id = accept(turn, &[memory.segment(0, 600)]);
        let mark = turn.mark();
        assert_eq!(turn.store::<12>(id, mark..mark, false), 0);
        assert_eq!(turn.store::<0>(id, mark + 5..mark + 9, true), 0, "places beyond what is staged");
    });
}

/// RFC 768: a checksum that comes to 0 is sent as 0xffff.
#[test]
fn a_sum_that_cancels_out_is_sent_as_its_twin() {
    for len in [60, 600] {
        let mut frame = vec![0; len];
        frame[40..42].copy_from_slice(&0xffff_u16.to_be_bytes());
        let source = Memory::new(&frame);
        let destination = Memory::new(&vec![1; len]);
        arena(Settings::default()).turn(|turn| {
            let id = accept(turn, &[source.segment(0, len)]);
            turn.set_offload(id, Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: None });
            let mark = turn.mark();
            turn.stage(destination.segment(0, len));
            turn.store::<0>(id, mark..turn.mark(), true);
        });
        assert_eq!(destination.bytes()[40..42], [0xff, 0xff]);
    }
}

#[test]
fn a_head_changed_by_a_node_is_what_leaves() {
    let source = Memory::patterned(1000);
    let destination = Memory::new(&[0; 1000]);
    arena(Settings::default()).turn(|turn| {
        let id = accept(turn, &source.cut(&[100]));
        turn.head_mut(id)[..6].copy_from_slice(b"node!!");
        // The guest writes at the same time. The bytes that the node saw are the bytes that are
        // sent.
        source.segment(0, HEAD).write(turn.level(), &[0xaa; HEAD]);
        let mark = turn.mark();
        turn.stage(destination.segment(0, 1000));
        turn.store::<0>(id, mark..turn.mark(), false);
    });
    let mut expected = pattern(1000);
    expected[..6].copy_from_slice(b"node!!");
    assert_eq!(destination.bytes(), expected);
}

#[test]
fn words_are_written_and_read_as_bytes_are() {
    for len in [0, 7, 8, 23, 24, 25, 40] {
        for at in 0..9 {
            let memory = Memory::patterned(64);
            let segment = memory.segment(at, len);
            let mut bytes = vec![0; len];
            segment.read(Level::Scalar, &mut bytes);
            let words = segment.read_words::<3>().map(|words| words.map(u64::to_be_bytes).concat());
            assert_eq!(words.as_deref(), bytes.get(..24), "{len} bytes at {at}");
            // Patches of any length, also longer than the segment.
            for patch in [0, 1, 8, 16, 20, 24, 48] {
                let memory = Memory::patterned(64);
                let bytes = vec![0xa5; patch];
                let mut expected = memory.bytes();
                let written = patch.min(len);
                expected[at..at + written].fill(0xa5);
                assert_eq!(memory.segment(at, len).write_words(Level::Scalar, &bytes), written);
                assert_eq!(memory.bytes(), expected, "{patch} of {len} bytes at {at}");
            }
        }
    }
}
