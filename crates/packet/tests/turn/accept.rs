//! Accepting packets: staged or in one segment, scattered in any way. Pulling up. The limits of a
//! turn.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use straightline_packet::{
    AtTurnEnd, Batch, Drops, HEAD, InputRules, MAX_BATCH, MAX_FRAME, MemorySegment, PacketId, PortIndex, RcuCell,
    Reason, Settings, SourceQueueId, Turn,
};
use straightline_testing::memory::{Memory, arena, arena_with_drops, pattern};

const PORT: PortIndex = PortIndex(0);
const HEAD_MAX: usize = 512;

/// Returns all bytes of a packet, from its head and from the segments of its body.
pub(super) fn bytes_of(turn: &Turn<'_>, id: PacketId) -> Vec<u8> {
    let mut bytes = turn.head(id).to_vec();
    for segment in turn.body(id) {
        let mut part = vec![0; segment.len() as usize];
        assert_eq!(segment.read(turn.level(), &mut part), part.len());
        bytes.extend(part);
    }
    bytes
}

fn accept_cut<'t>(turn: &mut Turn<'t>, segments: &[MemorySegment<'t>], skip: u32) -> PacketId {
    let mark = turn.mark();
    segments.iter().for_each(|&s| turn.stage(s));
    turn.accept_staged(PORT, SourceQueueId::NONE, mark, skip).expect("a free slot")
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let cut = prop_oneof![Just(0), Just(1), 0..20_usize, 0..600_usize, Just(12), Just(HEAD), Just(HEAD + 12)];
    prop::collection::vec(cut, 0..12)
}

proptest! {
    #[test]
    fn a_packet_is_its_bytes_however_it_is_cut(
        len in 0..3000_usize, cuts in cuts(), skip in prop_oneof![0..30_u32, 0..3100_u32], two_copies: bool,
        pulls in prop::collection::vec(0..600_usize, 0..4),
    ) {
        let memory = Memory::patterned(len);
        let expected = pattern(len).split_off(len.min(skip as usize));
        arena(Settings { two_copies, ..Settings::default() }).turn(|turn| {
            // A segment that was staged before must not become part of the packet.
            turn.stage(memory.segment(0, len.min(5)));
            let id = accept_cut(turn, &memory.cut(&cuts), skip);
            assert_eq!(turn.head(id), &expected[..expected.len().min(HEAD)], "a head is as long as can be");
            assert_eq!(turn.len(id) as usize, expected.len());
            assert_eq!(turn.body_len(id) as usize, expected.len().saturating_sub(HEAD));
            assert_eq!(bytes_of(turn, id), expected);
            let mut longest = expected.len().min(HEAD);
            for upto in pulls {
                let possible = upto <= longest || (upto <= HEAD_MAX && upto <= expected.len());
                assert_eq!(turn.pull_up(id, upto), possible, "{upto} of {}", expected.len());
                if possible {
                    longest = longest.max(upto);
                }
                assert_eq!(turn.head(id).len(), longest);
                assert_eq!(turn.len(id) as usize, expected.len());
                assert_eq!(turn.body_len(id) as usize, expected.len() - longest);
                assert_eq!(bytes_of(turn, id), expected);
            }
            let body = if two_copies { 0 } else { expected.len().saturating_sub(HEAD) };
            assert_eq!(turn.borrowed() as usize, body);
        });
        assert_eq!(memory.bytes(), pattern(len), "a source is not written");
    }

    #[test]
    fn one_segment_is_taken_as_staged_ones_are(len in 0..2000_usize, two_copies: bool) {
        let memory = Memory::patterned(len);
        arena(Settings { two_copies, ..Settings::default() }).turn(|turn| {
            let id = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, len)).expect("a free slot");
            assert_eq!(bytes_of(turn, id), pattern(len));
            assert_eq!(turn.head(id).len(), len.min(HEAD));
            assert_eq!(turn.body(id).is_empty(), len <= HEAD);
        });
    }
}

#[test]
fn packets_do_not_mix() {
    let memory = Memory::patterned(20_000);
    for two_copies in [false, true] {
        arena(Settings { two_copies, ..Settings::default() }).turn(|turn| {
            let ids: Vec<_> = (0..MAX_BATCH)
                .map(|i| {
                    let whole = memory.segment(i * 50, i * 3);
                    let (a, b) = whole.split_at(100);
                    accept_cut(turn, &[a, b], 0)
                })
                .collect();
            assert_eq!(turn.free_slots(), 0);
            for (i, &id) in ids.iter().enumerate() {
                turn.pull_up(id, i * 3);
                assert_eq!(bytes_of(turn, id), &pattern(20_000)[i * 50..][..i * 3]);
            }
        });
    }
}

#[test]
fn a_full_turn_takes_no_more_and_forgets_what_was_staged() {
    let memory = Memory::patterned(1000);
    let mut arena = arena(Settings::default());
    arena.turn(|turn| {
        for left in (0..MAX_BATCH).rev() {
            assert_eq!(turn.free_slots(), left + 1);
            turn.accept_owned(PORT, b"small").expect("a free slot");
        }
        assert_eq!(turn.free_slots(), 0);
        let mark = turn.mark();
        turn.stage(memory.segment(0, 1000));
        assert!(turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).is_none());
        assert_eq!(turn.mark(), mark);
        assert!(turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, 1000)).is_none());
        assert!(turn.accept_owned(PORT, b"").is_none());
        assert_eq!((turn.mark(), turn.borrowed()), (mark, 0));
    });
    arena.turn(|turn| assert_eq!(turn.free_slots(), MAX_BATCH, "the next turn is empty again"));
}

#[test]
fn bytes_of_ours_fit_a_head_or_are_refused() {
    arena(Settings::default()).turn(|turn| {
        let bytes = pattern(HEAD + 1);
        assert!(turn.accept_owned(PORT, &bytes).is_none());
        let id = turn.accept_owned(PORT, &bytes[..HEAD]).expect("a free slot");
        assert_eq!((turn.head(id), turn.body_len(id)), (&bytes[..HEAD], 0));
    });
}

#[test]
fn a_turn_is_bounded_in_bytes_and_in_descriptors() {
    let memory = Memory::patterned(MAX_FRAME as usize);
    for two_copies in [false, true] {
        let mut arena = arena(Settings { two_copies, body_limit: 1 << 20, ..Settings::default() });
        arena.turn(|turn| {
            let mut taken = 0_u64;
            while turn.free_slots() > 0 {
                let id = turn
                    .accept(PORT, SourceQueueId::NONE, memory.segment(0, memory.bytes().len()))
                    .expect("a free slot");
                taken += u64::from(turn.body_len(id));
            }
            assert!((1 << 20..(1 << 20) + u64::from(MAX_FRAME)).contains(&taken), "{taken}");
        });
        arena.turn(|turn| {
            turn.count_descriptors(8191);
            assert_eq!(turn.free_slots(), MAX_BATCH);
            turn.count_descriptors(1);
            assert_eq!(turn.free_slots(), 0);
            turn.count_descriptors(u32::MAX);
            assert_eq!(turn.free_slots(), 0);
        });
    }
}

/// A bridge may copy a packet to many ports, and each of them segments the packet. If the input
/// cannot take packets back, the turn accepts less of it, but always a burst of Ethernet frames.
#[test]
fn a_turn_takes_less_of_an_input_that_takes_nothing_back() {
    let memory = Memory::patterned(MAX_FRAME as usize);
    let fixed = InputRules { returns: false, keeps_buffers: false };
    for (copies, taken) in [(1, 17), (2, 9), (4, 5), (8, 3), (16, 3), (1023, 3), (u32::MAX, 3)] {
        for two_copies in [false, true] {
            let mut arena = arena(Settings { two_copies, ..Settings::default() });
            assert_eq!(arena.change(vec![Arc::default(); 2], copies).1, 1);
            arena.turn(|turn| {
                // What others have lent does not count for this input.
                let others = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, 1000)).expect("a free slot");
                turn.begin_input(fixed);
                let mut packets = 0;
                while turn.free_slots() > 0 {
                    turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, MAX_FRAME as usize)).expect("a free slot");
                    packets += 1;
                }
                assert_eq!(packets, taken, "{copies} copies");
                assert_eq!((turn.accepted(), turn.ids(0..1).last()), (packets + 1, Some(others)));
                turn.begin_input(InputRules::RETURNING);
                assert_eq!(turn.free_slots() > 0, copies > 1, "another input's packets can go back");
            });
            arena.turn(|turn| {
                turn.begin_input(fixed);
                let mut packets = 0;
                while turn.free_slots() > 0 {
                    turn.count_gso_segments(512);
                    packets += 1;
                }
                assert_eq!(packets, 16_u32.div_ceil(copies), "{copies} copies");
                assert_eq!(turn.gso_segments(), 512 * packets);
            });
        }
    }
}

/// In the two-copy mode, a body for which the bounce buffer has no space stays borrowed. The turn
/// counts it as borrowed, because its buffer must not be given back early.
#[test]
fn a_body_that_cannot_be_copied_early_counts_as_borrowed() {
    let long = 3 * MAX_FRAME as usize;
    let memory = Memory::patterned(long);
    arena(Settings { two_copies: true, body_limit: 1, ..Settings::default() }).turn(|turn| {
        let id = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, long)).expect("a free slot");
        assert_eq!(turn.borrowed() as usize, long - HEAD);
        assert_eq!(bytes_of(turn, id), pattern(long));
        assert_eq!(turn.free_slots(), 0);
    });
}

#[test]
fn the_two_copy_mode_leaves_the_source_early() {
    let memory = Memory::patterned(1500);
    let mut arena = arena(Settings { two_copies: true, ..Settings::default() });
    arena.turn(|turn| {
        let id = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, 1500)).expect("a free slot");
        memory.segment(0, 1500).write(turn.level(), &[0; 1500]);
        assert_eq!(bytes_of(turn, id), pattern(1500));
    });
    assert_eq!(arena.bodies().copied, 1500 - HEAD as u64);
}

#[test]
fn drops_are_counted_for_the_port_that_the_packet_came_from() {
    let drops: Vec<_> = (0..2).map(|_| Arc::new(Drops::default())).collect();
    arena_with_drops(Settings::default(), drops.clone()).turn(|turn| {
        let a = turn.accept_owned(PortIndex(1), b"a").expect("a free slot");
        let stranger = turn.accept_owned(PortIndex(9), b"b").expect("a free slot");
        turn.discard(a, Reason::Runt);
        turn.discard(a, Reason::Runt);
        turn.discard(a, Reason::TooBig);
        turn.discard(stranger, Reason::Runt);
    });
    assert_eq!(drops[0].total(), 0);
    assert_eq!(drops[1].nonzero().collect::<Vec<_>>(), [(Reason::TooBig, 1), (Reason::Runt, 2)]);
}

/// A source queue that logs the calls of the turn.
#[derive(Default)]
struct TestQueue {
    name: &'static str,
    log: Arc<Mutex<Vec<String>>>,
    poisoned: AtomicU32,
}

impl TestQueue {
    fn say(&self, what: &str) {
        self.log.lock().expect("no panic within").push(format!("{} {what}", self.name));
    }
}

impl AtTurnEnd for TestQueue {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        let (packets, bytes) = turn.roll_back(source);
        self.say(&format!("gives back, {packets} left of {bytes} bytes"));
    }

    fn notify(&self) {
        self.say("notifies");
    }

    fn poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn all_is_given_back_before_anybody_is_notified() {
    let rcu = straightline_packet::Rcu::new();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let source = |name| TestQueue { name, log: Arc::clone(&log), ..TestQueue::default() };
    let sources = RcuCell::new(&rcu);
    sources.swap(Some(Box::new([source("a"), source("b")])));
    let mut arena = straightline_packet::Arena::new(rcu.reader(), Settings::default(), Vec::new());
    arena.turn(|turn| {
        let [a, b] = sources.load(turn).expect("published");
        let first = turn.borrow_from(a);
        let second = turn.borrow_from(b);
        assert_ne!(first, second);
        let memory = Memory::patterned(10);
        let of_a = turn.accept(PORT, first, memory.segment(0, 10)).expect("a free slot");
        let of_b = turn.accept(PORT, second, memory.segment(0, 10)).expect("a free slot");
        let ours = turn.accept_owned(PORT, b"ours").expect("a free slot");
        for id in [of_a, of_b, ours] {
            assert!(!turn.poisoned(id));
        }
        b.poisoned.store(1, Ordering::Relaxed);
        assert_eq!([of_a, of_b, ours].map(|id| turn.poisoned(id)), [false, true, false]);
        turn.leave(of_a);
        turn.leave(ours);
        assert_eq!([first, second].map(|source| turn.leaves_any(source)), [true, false]);
    });
    let expected = ["a gives back, 1 left of 10 bytes", "b gives back, 0 left of 0 bytes", "a notifies", "b notifies"];
    assert_eq!(*log.lock().expect("no panic"), expected);
    arena.turn(|_| {});
    assert_eq!(log.lock().expect("no panic").len(), 4, "a source is asked in its own turn only");
}

#[test]
fn a_queue_that_several_outputs_deliver_to_notifies_once() {
    let rcu = straightline_packet::Rcu::new();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let queue = |name| TestQueue { name, log: Arc::clone(&log), ..TestQueue::default() };
    let queues = RcuCell::new(&rcu);
    queues.swap(Some(Box::new([queue("a"), queue("b")])));
    let mut arena = straightline_packet::Arena::new(rcu.reader(), Settings::default(), Vec::new());
    arena.turn(|turn| {
        let [a, b] = queues.load(turn).expect("published");
        turn.borrow_from(a);
        for queue in [b, a, b, b] {
            turn.notify_at_end(queue);
        }
    });
    let log = log.lock().expect("no panic");
    let count = |line: &str| log.iter().filter(|&said| said == line).count();
    assert_eq!(["a notifies", "b notifies"].map(count), [1, 1], "{log:?}");
    assert_eq!(log.len(), 4, "each gives back once: {log:?}");
}

/// Ends a turn with packets of these dispositions, in their order: `-` sent, `l` left, `d` dropped
/// by a node. Returns what the source queue logged, and the drops that were counted.
fn dispositions(dispositions: &str) -> (String, Vec<(Reason, u64)>) {
    let rcu = straightline_packet::Rcu::new();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let source = RcuCell::new(&rcu);
    source.swap(Some(Box::new(TestQueue { name: "a", log: Arc::clone(&log), ..TestQueue::default() })));
    let drops = Arc::new(Drops::default());
    let mut arena = straightline_packet::Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&drops); 8]);
    let returned = arena.turn(|turn| {
        let source = turn.borrow_from(source.load(turn).expect("published"));
        let memory = Memory::patterned(10);
        // Packets without a source, and packets taken from it, lie between them.
        let ids: Vec<_> = dispositions
            .chars()
            .map(|_| {
                turn.accept_owned(PORT, b"ours").expect("a free slot");
                let refused = turn.accept(PORT, source, memory.segment(0, 10)).expect("a free slot");
                turn.disown(refused);
                let id = turn.accept(PORT, source, memory.segment(0, 10)).expect("a free slot");
                // The ring counted 10 bytes, so 10 bytes go back, although a node prepended some.
                turn.prepend(id, b"front").expect("enough headroom");
                id
            })
            .collect();
        for (&id, disposition) in ids.iter().zip(dispositions.chars()) {
            match disposition {
                'l' => turn.leave(id),
                'd' => turn.discard(id, Reason::Runt),
                _ => {}
            }
        }
        let mut batch = Batch::new();
        batch.extend(&ids);
        let departs = turn.departs();
        let departing = turn.departing(&batch).unwrap_or(batch);
        for id in &ids {
            assert_eq!(departs.is_none_or(|departs| departs[id.index()]), departing.ids().contains(id));
        }
        turn.end();
        // The departing packets are the first of the source's packets. The others are in its ring
        // again.
        assert_eq!(departing.ids(), &ids[..ids.len() - turn.returned()]);
        turn.returned()
    });
    let said = log.lock().expect("no panic")[0].clone();
    assert_eq!(said, format!("a gives back, {returned} left of {} bytes", 10 * returned));
    (said, drops.nonzero().collect())
}

/// A ring has no gaps, so only its last packets can go back.
#[test]
fn what_stands_behind_a_packet_that_is_left_goes_back_with_it() {
    let node = Reason::Node;
    let runt = Reason::Runt;
    for (row, back, counted) in [
        ("---", 0, vec![]),
        ("-dd", 0, vec![(runt, 2)]),
        ("lll", 3, vec![]),
        ("--ll", 2, vec![]),
        // Packets dropped before and behind the first one that is left.
        ("dldl", 3, vec![(runt, 1)]),
        ("d-dldd", 3, vec![(runt, 2)]),
        // Out of order: packets that were overtaken are dropped, and counted.
        ("ll-", 0, vec![(node, 2)]),
        ("ld-dl", 1, vec![(runt, 2), (node, 1)]),
    ] {
        assert_eq!(dispositions(row), (format!("a gives back, {back} left of {} bytes", 10 * back), counted), "{row}");
    }
}
