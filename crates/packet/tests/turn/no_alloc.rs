//! A turn allocates nothing: its memory is kept from turn to turn.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use straightline_packet::{
    Arena, AtTurnEnd, BodyCursor, Checksum, Gso, GsoKind, GsoSegment, MemorySegment, Offload, Outer, OuterChecksum,
    PortIndex, Rcu, RcuCell, Segmenter, Settings, SourceQueueId, Turn,
};
use straightline_testing::allocations::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct TestQueue;

impl AtTurnEnd for TestQueue {
    fn give_back(&self, _: &mut Turn<'_>, _: SourceQueueId) {}
    fn notify(&self) {}
    fn poisoned(&self) -> bool {
        false
    }
}

/// The work of a whole turn: packets of one segment and staged ones, copies with and without
/// checksum, segmentation with and without outer headers, sums.
fn work<'t>(turn: &mut Turn<'t>, queue: &'t TestQueue, memory: MemorySegment<'t>) {
    let source = turn.borrow_from(queue);
    let mut segment = GsoSegment::default();
    let (from, destination) = memory.split_at(10_000);
    while turn.free_slots() > 0 {
        let mark = turn.mark();
        let (a, b) = from.split_at(1000);
        turn.stage(a);
        turn.stage(b.split_at(500).0);
        let id = turn.accept_staged(PortIndex(0), source, mark, 12).expect("a free slot");
        let whole = turn.accept(PortIndex(0), source, a).expect("an even number of packets fits");
        turn.pull_up(id, 300);
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        turn.set_offload(id, Offload { checksum, gso: None });
        let mark = turn.mark();
        turn.stage(destination);
        let end = turn.mark();
        turn.store::<12>(whole, mark..end, false);
        turn.store::<12>(id, mark..end, true);
        let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 536, l3: 14, l4: 34, header_len: 54, outer: None };
        let mut plan = Segmenter::new(gso, turn.len(id)).expect("the numbers fit");
        let mut from = BodyCursor::default();
        while plan.next(turn.head(id), &mut segment) {
            turn.store_gso_segment::<12>(id, &segment, &mut from, mark..end, true);
        }
        // The same in a tunnel.
        turn.set_offload(id, Offload { checksum, gso: Some(gso) });
        let outer = Outer { l3: 14, checksum: OuterChecksum::Udp { l4: 34 }, gtpu: None };
        turn.prepend_outer(id, &[0x45; 50], outer).expect("enough headroom");
        let gso = turn.offload(id).gso.expect("still to be segmented");
        let mut plan = Segmenter::new(gso, turn.len(id)).expect("the numbers fit");
        let mut from = BodyCursor::default();
        assert!(plan.begin(turn.head(id), &mut segment));
        while plan.left() > 0 {
            turn.store_gso_segments::<12>(id, &mut plan, &segment, &mut from, mark..end, true);
        }
        assert_eq!(turn.sum_from(id, 0), turn.sum_head(id, 0..50), "the rest is zeros");
        turn.unstage(mark);
    }
}

#[test]
fn turns_allocate_nothing() {
    for two_copies in [false, true] {
        let rcu = Rcu::new();
        let source = RcuCell::new(&rcu);
        source.swap(Some(Box::new(TestQueue)));
        let mut memory = vec![0_u8; 20_000];
        let at = memory.as_mut_ptr();
        let mut arena = Arena::new(rcu.reader(), Settings { two_copies, ..Settings::default() }, Vec::new());
        for round in 0..20 {
            let allocated = allocations(|| {
                arena.turn(|turn| {
                    let source = source.load(turn).expect("published");
                    // SAFETY: the vector outlives the arena's turns, and nothing else touches its
                    // bytes.
                    work(turn, source, unsafe { MemorySegment::new(at, 20_000) });
                });
            });
            assert!(round == 0 || allocated == 0, "turn {round} allocated {allocated} times");
        }
        drop(memory);
    }
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 2, "the counter counts");
}
