//! Sums of heads and of whole packets.

use proptest::prelude::*;
use straightline_packet::{Level, PortIndex, Settings, SourceQueueId};
use straightline_simd::reference;
use straightline_testing::memory::{Memory, arena, pattern};

use super::store::cuts;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn sums_are_those_of_the_bytes(
        len in prop_oneof![0..600_usize, 0..10_000_usize], from in cuts(), pulled in 0..600_usize, two_copies: bool,
        level in prop::sample::select(Level::supported().collect::<Vec<_>>()),
        starts in prop::collection::vec(prop_oneof![0..600_usize, 0..10_100_usize, Just(usize::MAX)], 1..5),
        range in (0..600_usize, 0..600_usize),
    ) {
        let source = Memory::patterned(len);
        let bytes = pattern(len);
        arena(Settings { two_copies, level, ..Settings::default() }).turn(|turn| {
            let mark = turn.mark();
            source.cut(&from).into_iter().for_each(|segment| turn.stage(segment));
            let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0).expect("a free slot");
            turn.pull_up(id, pulled);
            for start in starts {
                let rest = &bytes[start.min(len)..];
                assert_eq!(turn.sum_from(id, start), reference::sum(&[rest]), "from {start} of {len} bytes");
            }
            let (start, end) = range;
            let head = turn.head(id);
            let part = head.get(start..end.min(head.len())).unwrap_or_default();
            assert_eq!(turn.sum_head(id, start..end), reference::sum(&[part]), "{start} to {end} of {}", head.len());
        });
    }
}

#[test]
fn a_right_checksum_makes_all_ones() {
    let mut bytes = pattern(1500);
    bytes[40..42].fill(0);
    let value = !reference::sum(&[&bytes[34..]]);
    bytes[40..42].copy_from_slice(&value.to_be_bytes());
    let source = Memory::new(&bytes);
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept(PortIndex(0), SourceQueueId::NONE, source.segment(0, 1500)).expect("a free slot");
        assert_eq!(turn.sum_from(id, 34), 0xffff);
        turn.head_mut(id)[50] ^= 1;
        assert_ne!(turn.sum_from(id, 34), 0xffff);
    });
}
