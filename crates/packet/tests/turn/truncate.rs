//! Shortening packets, compared with a vector of bytes.

use proptest::prelude::*;
use straightline_packet::{Checksum, Gso, GsoKind, HEAD, Offload, PortIndex, Settings, SourceQueueId};
use straightline_testing::memory::{Memory, arena, pattern};

use super::accept::bytes_of;
use super::store::cuts;

const PORT: PortIndex = PortIndex(0);

proptest! {
    #[test]
    fn a_shorter_packet_has_the_first_bytes(
        len in 0..3000_usize, cuts in cuts(), to in prop::collection::vec(0..3100_u32, 1..4), strip in 0..200_usize,
    ) {
        let memory = Memory::patterned(len);
        let other = Memory::patterned(1000);
        arena(Settings::default()).turn(|turn| {
            let mark = turn.mark();
            memory.cut(&cuts).into_iter().for_each(|segment| turn.stage(segment));
            let id = turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).expect("a free slot");
            let neighbour = turn.accept(PORT, SourceQueueId::NONE, other.segment(0, 1000)).expect("a free slot");
            let mut expected = pattern(len);
            if turn.packets().strip(id, strip).is_ok() {
                expected.drain(..strip);
            }
            for to in to {
                assert!(turn.packets().truncate(id, to));
                expected.truncate(to as usize);
                assert_eq!(bytes_of(turn, id), expected);
                assert_eq!(turn.len(id) as usize, expected.len());
                assert_eq!(turn.head(id).len() + turn.body_len(id) as usize, expected.len());
            }
            let longest = expected.len().min(turn.max_head(id));
            assert!(turn.packets().pull_up(id, longest));
            assert_eq!(turn.head(id), &expected[..longest]);
            assert_eq!(bytes_of(turn, neighbour), pattern(1000));
        });
    }
}

#[test]
fn a_packet_keeps_the_fields_of_its_offload() {
    let memory = Memory::patterned(1000);
    let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 100, l3: 14, l4: 34, header_len: 54, outer: None };
    let partial = Checksum::Partial { start: 34, offset: 16 };
    for (checksum, gso, least) in
        [(partial, None, 52), (partial, Some(gso), 54), (Checksum::Complete, None, 0), (Checksum::Verified, None, 0)]
    {
        arena(Settings::default()).turn(|turn| {
            let id = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, 1000)).expect("a free slot");
            let packets = turn.packets();
            let offload = Offload { checksum, gso };
            packets.set_offload(id, offload);
            assert!(packets.truncate(id, u32::MAX) && packets.truncate(id, 999) && packets.truncate(id, least));
            assert_eq!((packets.len(id), packets.offload(id)), (least, offload));
            if least > 0 {
                assert!(!packets.truncate(id, least - 1));
                assert_eq!((packets.len(id), packets.head(id).len() <= HEAD), (least, true));
            }
        });
    }
}
