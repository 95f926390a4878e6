//! The annotation of packets. Operations in any order are compared with a fresh parse of the head,
//! and with a reference of the facts that nodes set.

use proptest::prelude::*;
use straightline_packet::{
    AtTurnEnd, Batch, ChangedPackets, Checksum, KeptPackets, Offload, PacketId, PacketVlan, PortIndex, Settings,
    SourceQueueId, Turn,
};
use straightline_testing::memory::{Memory, arena};
use straightline_wire::{Layout, VlanId, WireError, flow_hash};

use super::store::cuts;

const PORT: PortIndex = PortIndex(0);

/// The facts that nodes set: VLAN, connection, mark.
type SetFacts = (Option<PacketVlan>, u32, u32);

#[derive(Clone, Debug)]
enum Operation {
    /// Only asks.
    Nothing,
    Prepend(Vec<u8>),
    /// Prepends the last bytes of an array.
    PrependLast(usize, u8),
    Strip(usize),
    /// Writes a byte of the head.
    Write(usize, u8),
    PullUp(usize),
    Truncate(u32),
    /// Changes the packet's outside, and restores it.
    Change(Vec<Step>),
    /// Keeps the whole packet, and restores it.
    Keep(Vec<Step>),
    /// Delivers the packet, with a partial checksum that is finished.
    Deliver,
    SetVlan(Option<PacketVlan>),
    SetConnection(u32),
    SetMark(u32),
    SetPort,
}

/// An operation, and the questions that follow it: for the layout, and for the flow hash.
#[derive(Clone, Debug)]
struct Step {
    operation: Operation,
    asks_layout: bool,
    asks_hash: bool,
}

/// Bytes that may begin a frame: an Ethernet header of this type, or others.
fn front() -> impl Strategy<Value = Vec<u8>> {
    let types = prop::sample::select(vec![[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6]]);
    prop_oneof![
        types.prop_map(|ether_type| [&[2; 12][..], &ether_type].concat()),
        prop::collection::vec(any::<u8>(), 0..60),
    ]
}

fn steps(operation: impl Strategy<Value = Operation>, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (operation, any::<bool>(), any::<bool>()).prop_map(|(operation, asks_layout, asks_hash)| Step {
        operation,
        asks_layout,
        asks_hash,
    });
    prop::collection::vec(step, 1..most)
}

/// Operations that are allowed on the outside of a packet.
fn outside() -> impl Strategy<Value = Operation> + Clone {
    use Operation::*;
    prop_oneof![
        Just(Nothing),
        front().prop_map(Prepend),
        (0..=40_usize, prop::sample::select(vec![0, 8, 0x45, 0x81])).prop_map(|(n, byte)| PrependLast(n, byte)),
        (0..300_usize).prop_map(PullUp),
        Just(Deliver),
    ]
    .boxed()
}

/// Operations on a whole packet.
fn whole() -> impl Strategy<Value = Operation> + Clone {
    use Operation::*;
    let vlan = (1..4095_u16, 0..8_u8, any::<bool>()).prop_map(|(id, pcp, dei)| PacketVlan {
        id: VlanId::new(id).expect("a VLAN"),
        pcp,
        dei,
    });
    prop_oneof![
        4 => outside(),
        2 => prop::sample::select(vec![0, 4, 8, 14, 18, 28, 34, 50]).prop_map(Strip),
        2 => (0..80_usize, prop::sample::select(vec![0, 1, 6, 8, 17, 0x44, 0x45, 0x60, 0x81, 0xdd])).prop_map(|(at, byte)| Write(at, byte)),
        1 => prop_oneof![0..80_u32, 0..400_u32].prop_map(Truncate),
        1 => prop::option::of(vlan).prop_map(SetVlan),
        1 => any::<u32>().prop_map(SetConnection),
        1 => any::<u32>().prop_map(SetMark),
        1 => Just(SetPort),
    ]
    .boxed()
}

fn operations() -> impl Strategy<Value = Vec<Step>> {
    let any = prop_oneof![
        6 => whole(),
        1 => steps(outside(), 4).prop_map(Operation::Change),
        1 => steps(whole(), 5).prop_map(Operation::Keep),
    ];
    steps(any, 10)
}

/// A frame: tags, IPv4 or IPv6, UDP or TCP, and an extension header that is longer than a head.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    (0..3_usize, any::<bool>(), any::<bool>(), prop_oneof![Just(0_u8), 1..40_u8], any::<[u8; 4]>(), 0..400_usize)
        .prop_map(|(tags, is_v4, is_tcp, options, [a, b, c, d], rest)| {
            let mut frame = vec![2; 12];
            (0..tags).for_each(|_| frame.extend([0x81, 0, 0, a]));
            let protocol = if is_tcp { 6 } else { 17 };
            if is_v4 {
                frame.extend([8, 0, 0x45, 0, 2, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, a, 10, 0, 0, b]);
            } else {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 2, 0, if options > 0 { 60 } else { protocol }, 64]);
                frame.extend([a; 16]);
                frame.extend([b; 16]);
                if options > 0 {
                    frame.extend([protocol, options - 1]);
                    frame.resize(frame.len() + usize::from(options) * 8 - 2, 0);
                }
            }
            frame.extend([c, 1, d, 2, 0, 40, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
            frame.resize(frame.len() + rest, d);
            frame
        })
}

/// Compares the annotation with a fresh parse and with the reference.
fn check(turn: &mut Turn<'_>, id: PacketId, asks_layout: bool, asks_hash: bool, set: SetFacts) {
    if asks_layout {
        let fresh = Layout::parse(turn.head(id));
        assert_eq!(turn.layout(id), fresh);
    }
    if asks_hash {
        let fresh = flow_hash(turn.head(id));
        assert_eq!(turn.flow_hash(id), fresh);
    }
    assert!(turn.is_annotation_fresh(id));
    assert_eq!((turn.vlan(id), turn.connection(id), turn.mark_of(id)), set);
}

/// Delivers the packet into a buffer of its own, as a port does.
fn deliver(turn: &mut Turn<'_>, id: PacketId) {
    turn.front_mut::<12>(id).fill(0xee);
    let before = turn.offload(id);
    if turn.head(id).len() >= 42 && before.gso.is_none() {
        let checksum = Checksum::Partial { start: 34, offset: 6 };
        turn.set_offload(id, Offload { checksum, gso: None });
    }
    let buffer = Memory::new(&vec![0; turn.len(id) as usize + 12]);
    let mark = turn.mark();
    turn.stage(buffer.segment(0, turn.len(id) as usize + 12));
    turn.store::<12>(id, mark..mark + 1, true);
    turn.unstage(mark);
    turn.set_offload(id, before);
}

fn run(turn: &mut Turn<'_>, id: PacketId, steps: &[Step], set: &mut SetFacts) {
    for Step { operation, asks_layout, asks_hash } in steps {
        apply(turn, id, operation, set);
        check(turn, id, *asks_layout, *asks_hash, *set);
    }
}

/// Operations that are refused change nothing, so their results do not matter.
fn apply(turn: &mut Turn<'_>, id: PacketId, operation: &Operation, set: &mut SetFacts) {
    match operation {
        Operation::Nothing => {}
        Operation::Prepend(front) => _ = turn.prepend(id, front),
        Operation::PrependLast(n, byte) => _ = turn.prepend_last(id, &[*byte; 40], *n),
        Operation::Strip(n) => _ = turn.strip(id, *n),
        Operation::Write(at, byte) => {
            if let Some(to) = turn.head_mut(id).get_mut(*at) {
                *to = *byte;
            }
        }
        Operation::PullUp(upto) => _ = turn.pull_up(id, *upto),
        Operation::Truncate(len) => _ = turn.truncate(id, *len),
        Operation::Change(steps) => {
            let outside = turn.save_outside(id);
            run(turn, id, steps, set);
            turn.restore_outside(id, &outside);
        }
        Operation::Keep(steps) => {
            let mut kept = KeptPackets::default();
            let mut batch = Batch::new();
            batch.push(id);
            kept.keep(turn, &batch);
            run(turn, id, steps, &mut set.clone());
            kept.restore(turn);
        }
        Operation::Deliver => deliver(turn, id),
        Operation::SetVlan(vlan) => {
            turn.set_vlan(id, *vlan);
            set.0 = *vlan;
        }
        Operation::SetConnection(connection) => {
            turn.set_connection(id, *connection);
            set.1 = *connection;
        }
        Operation::SetMark(mark) => {
            turn.set_mark(id, *mark);
            set.2 = *mark;
        }
        Operation::SetPort => {
            turn.set_port(id, PortIndex(1));
            (set.0, set.1) = (None, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Two packets a turn, and three turns, so that slots are used again.
    #[test]
    fn an_annotation_is_that_of_a_fresh_parse(
        turns in prop::collection::vec(prop::collection::vec((frame(), cuts(), operations(), any::<bool>()), 1..3), 1..4),
    ) {
        let mut arena = arena(Settings::default());
        for packets in turns {
            arena.turn(|turn| {
                let memories: Vec<_> = packets.iter().map(|(frame, ..)| Memory::new(frame)).collect();
                let ids: Vec<_> = packets.iter().zip(&memories).map(|((frame, cuts, _, is_whole), memory)| {
                    let id = if *is_whole {
                        turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, frame.len()))
                    } else {
                        let mark = turn.mark();
                        memory.cut(cuts).into_iter().for_each(|segment| turn.stage(segment));
                        turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0)
                    };
                    id.expect("a free slot")
                }).collect();
                for (&id, (_, _, steps, _)) in ids.iter().zip(&packets) {
                    check(turn, id, true, true, (None, 0, 0));
                    run(turn, id, steps, &mut (None, 0, 0));
                }
            });
        }
    }
}

/// The headers of a packet with long options do not lie in its head until they are pulled up.
#[test]
fn pulling_up_makes_a_layout_whole() {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 2, 0, 60, 64], &[1; 32], &[17, 39]].concat();
    frame.resize(54 + 320, 0);
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    let memory = Memory::new(&frame);
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept(PORT, SourceQueueId::NONE, memory.segment(0, frame.len())).expect("a free slot");
        let layout = turn.layout(id).expect("an Ethernet header");
        assert_eq!((layout.payload, layout.layers), (14, Err(WireError::Truncated)));
        assert!(turn.pull_up(id, frame.len()));
        assert_eq!(turn.layout(id).expect("as before").layers.expect("whole").l4, 374);
    });
}

/// A queue that keeps its packets.
struct Keeps;

impl AtTurnEnd for Keeps {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        turn.roll_back(source);
    }

    fn notify(&self) {}

    fn poisoned(&self) -> bool {
        false
    }

    fn can_keep(&self) -> bool {
        true
    }
}

fn set_all(turn: &mut Turn<'_>, id: PacketId) -> SetFacts {
    let vlan = Some(PacketVlan { id: VlanId::MAX, pcp: 7, dei: true });
    turn.set_vlan(id, vlan);
    turn.set_connection(id, 5);
    turn.set_mark(id, 6);
    (vlan, 5, 6)
}

/// With `full = "wait"`, a packet goes back to its ring and comes again. Nodes then set its facts
/// again.
#[test]
fn a_packet_that_comes_again_has_no_facts() {
    let mut arena = arena(Settings::default());
    for turns in 0..2 {
        arena.turn(|turn| {
            let source = turn.borrow_from(&Keeps);
            let memory = Memory::new(&[2; 60]);
            let id = turn.accept(PORT, source, memory.segment(0, 60)).expect("a free slot");
            check(turn, id, true, true, (None, 0, 0));
            set_all(turn, id);
            turn.leave(id);
            turn.end();
            assert_eq!(turn.returned(), 1, "turn {turns}");
        });
    }
}

/// The inner packet of a tunnel is in no VLAN of the outer one's bridge, and is no packet of its
/// connection. A mark, such as that of a class of traffic, stays.
#[test]
fn decapsulation_keeps_the_mark() {
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept_owned(PORT, &[2; 120]).expect("a free slot");
        set_all(turn, id);
        turn.strip(id, 50).expect("long enough");
        turn.set_port(id, PortIndex(1));
        check(turn, id, true, true, (None, 0, 6));
    });
}

/// A form changes a packet for some outputs. The facts that nodes have set stay for all outputs.
#[test]
fn a_form_keeps_facts() {
    arena(Settings::default()).turn(|turn| {
        let id = turn.accept_owned(PORT, &[2; 60]).expect("a free slot");
        let facts = set_all(turn, id);
        let mut changed = ChangedPackets::<4>::default();
        let tag = |packets: &mut straightline_packet::Packets<'_>, id| packets.prepend(id, &[0x81, 0, 0, 1]);
        changed.change(turn.packets(), id, tag).expect("headroom");
        check(turn, id, true, true, facts);
        changed.restore(turn.packets());
        check(turn, id, true, true, facts);
    });
}
