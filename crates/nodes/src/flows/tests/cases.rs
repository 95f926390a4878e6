//! The node beside the model, and cases that the generator does not reach.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_flow::{Action, Field, FlowCount, Match, Meter, MeterUnit, Spelling};

use super::generate::{SET, every_kind, flow, flows, frame};
use super::model::{NORMAL, Way};
use super::offload::{finish, partial};
use super::*;
use crate::bridge::tests::storms::datagrams;
use crate::{BridgePort, StormLimits};

/// Has the node and the model send the same packets, and compares all that they say.
fn compare(flows: &[Flow], batches: Vec<Vec<(u16, Vec<u8>)>>) {
    // Of flows with one priority, the first one in the order of keys wins here.
    let mut flows = flows.to_vec();
    flows.sort_by(|one, other| one.key.cmp(&other.key));
    let flows = &*flows;
    let mut rig = Rig::new();
    let counters = rig.publish(flows);
    let mut expected_counts = vec![(0, 0); flows.len()];
    let mut expected_drops = BTreeMap::new();
    for batch in batches {
        let mut expected = vec![Vec::new(); usize::from(PORTS) + 1];
        for (port, bytes) in &batch {
            let (way, dropped) = Way::send(flows, port + 1, bytes);
            for (to, bytes) in way.outputs {
                let at = if to == NORMAL { PORTS } else { to - 1 };
                expected[usize::from(at)].push(bytes);
            }
            for hit in way.hits {
                expected_counts[hit].0 += 1;
                expected_counts[hit].1 += bytes.len() as u64;
            }
            if let Some(reason) = dropped {
                *expected_drops.entry(reason.name()).or_insert(0) += 1;
            }
        }
        let got = rig.send(batch.into_iter().map(|(port, bytes)| Carried::plain(port, bytes)).collect());
        for (got, mut expected) in got.into_iter().zip(expected) {
            let mut got: Vec<_> = got.into_iter().map(|packet| packet.bytes).collect();
            got.sort_unstable();
            expected.sort_unstable();
            assert_eq!(got, expected);
        }
    }
    let counts: Vec<_> = counters.iter().map(|counters| (counters.packets(), counters.bytes())).collect();
    assert_eq!(counts, expected_counts);
    assert_eq!(rig.dropped(), expected_drops.into_iter().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn packets_go_where_the_model_sends_them(
        flows in flows(),
        batches in vec(vec((0..PORTS, frame()), 1..24), 1..3),
    ) {
        compare(&flows, batches);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Damaged packets of any length: each is sent or dropped, and counted.
    #[test]
    fn no_packet_is_lost_or_does_harm(
        flows in flows(),
        frames in vec((frame(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), 0..80_usize), 1..40),
    ) {
        let mut rig = Rig::new();
        rig.publish(&flows);
        let damaged = frames.into_iter().map(|(mut bytes, changes, cut)| {
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            Carried::plain(0, bytes)
        });
        let damaged: Vec<_> = damaged.collect();
        let count = damaged.len();
        let sent: usize = rig.send(damaged).iter().map(Vec::len).sum();
        let dropped: u64 = rig.dropped().into_iter().map(|(_, count)| count).sum();
        prop_assert!(sent + usize::try_from(dropped).unwrap() >= count);
    }
}

/// Each change of a field, of each kind of frame. Packets with partial checksums give the same.
#[test]
fn each_field_changes_as_in_the_model() {
    let frames = every_kind();
    let partials: Vec<_> = frames.iter().filter_map(|bytes| partial(0, bytes)).collect();
    for &(field, value, mask) in SET {
        let change = Action::SetField { field, value, mask, spelling: Spelling::Mod };
        let flows = [flow(0, 1, Match::new(), vec![change, output(2)])];
        for frames in frames.chunks(256) {
            compare(&flows, vec![frames.iter().map(|bytes| (0, bytes.clone())).collect()]);
        }
        let mut rig = Rig::new();
        rig.publish(&flows);
        let sent = |packets: &[Carried], rig: &mut Rig| -> Vec<_> {
            rig.send(packets.to_vec()).swap_remove(1).into_iter().map(finish).collect()
        };
        for partials in partials.chunks(256) {
            let complete: Vec<_> = partials.iter().map(|packet| Carried::plain(0, finish(packet.clone()))).collect();
            assert_eq!(sent(partials, &mut rig), sent(&complete, &mut rig), "{field:?}");
        }
    }
    let all: Vec<_> = frames.into_iter().map(|bytes| (0, bytes)).collect();
    for actions in
        [vec![Action::DecTtl], vec![Action::PushVlan(0x88a8), Action::PushVlan(0x8100)], vec![Action::StripVlan]]
    {
        let flows = [flow(0, 1, Match::new(), [actions, vec![output(2)]].concat())];
        for frames in all.chunks(256) {
            compare(&flows, vec![frames.to_vec()]);
        }
    }
}

fn set(field: Field, value: u128) -> Action {
    Action::SetField { field, value, mask: field.greatest(), spelling: Spelling::Mod }
}

fn output(port: u16) -> Action {
    Action::Output(PortNumber(port))
}

fn plain(last: u8) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[last; 46]].concat()
}

#[test]
fn each_output_gets_the_packet_as_it_was_then() {
    let actions = vec![
        output(2),
        set(Field::EthDst, 0x0200_0000_0009),
        output(3),
        output(2),
        set(Field::EthSrc, 0x0200_0000_000a),
        Action::Flood,
        Action::Normal,
    ];
    compare(&[flow(0, 1, Match::new(), actions)], vec![(0..9).map(|last| (0, plain(last))).collect()]);
}

#[test]
fn full_batches_fit() {
    let actions = vec![output(2), output(2), Action::Flood, output(2), Action::Normal];
    let batch: Vec<_> = (0..=255).map(|last| (0, plain(last))).collect();
    compare(&[flow(0, 1, Match::new(), actions.clone())], vec![batch.clone(), batch.clone()]);
    let search = flow(0, 2, Match::new().with(Field::EthSrc, 1), vec![]);
    compare(&[search, flow(0, 1, Match::new(), actions)], vec![batch.clone(), batch]);
}

/// The limits of floods hold for flows, too. A packet counts as its segments, so those of a second pass
/// with the first one.
#[test]
fn floods_of_flows_are_limited() {
    for action in [Action::Flood, Action::All] {
        for destination in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [2, 9, 9, 9, 9, 9]] {
            let mut ports: Vec<_> = (0..PORTS).map(|port| BridgePort::plain(PortIndex(port))).collect();
            let limit = Some(1);
            ports[0].rules.storm = StormLimits { broadcast: limit, multicast: limit, unknown: limit };
            let mut rig = Rig::with_rules(Rules::of(&ports).map(Arc::new));
            rig.publish(&[flow(0, 1, Match::new(), vec![action])]);
            let packet = datagrams(destination, 8000);
            let got = rig.send(vec![packet.clone(); 10]);
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1, 1, 0]);
            assert_eq!(rig.dropped(), [("storm", 9)]);
            // The limit is that of the port by which the packet came.
            let other = Carried { port: 1, ..packet };
            assert_eq!(rig.send(vec![other; 10])[0].len(), 10);
        }
    }
}

#[test]
fn packets_without_a_flow_are_dropped() {
    let mut rig = Rig::new();
    rig.send(vec![Carried::plain(0, plain(1))]);
    assert_eq!(rig.dropped(), [("no-flow", 1)], "nothing was published");
    rig.publish(&[]);
    rig.send(vec![Carried::plain(0, plain(1))]);
    assert_eq!(rig.dropped(), [("no-flow", 2)]);
    rig.publish(&[flow(0, 1, Match::new(), vec![])]);
    rig.send(vec![Carried::plain(0, plain(1))]);
    assert_eq!(rig.dropped(), [("no-flow", 2), ("flow-drop", 1)].into_iter().rev().collect::<Vec<_>>());
}

/// OvS takes the second of two priority tags for the type, so a test of fields behind them would be passed by.
#[test]
fn flows_look_behind_priority_tags() {
    let arp = Match::new().with(Field::EthType, 0x0806);
    let flows = [flow(0, 2, arp, vec![]), flow(0, 1, Match::new(), vec![output(2)])];
    let mut rig = Rig::new();
    rig.publish(&flows);
    let frame = |tags: &[u8]| {
        let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], tags, &[8, 6], &[0; 46]].concat();
        vec![Carried::plain(0, bytes)]
    };
    let stack = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(3);
    for count in 0..=4 {
        assert!(rig.send(frame(&stack[..4 * count])).concat().is_empty(), "{count} tags");
    }
    assert_eq!(rig.dropped(), [("flow-drop", 5)]);
    assert!(rig.send(frame(&stack[..20])).concat().is_empty());
    assert_eq!(rig.dropped(), [("flow-drop", 5), ("hidden", 1)]);
    assert_eq!(rig.send(frame(&[0x81, 0, 0, 0, 0x81, 0, 0, 5])).concat().len(), 1, "it is no ARP for anybody");
}

/// A changed VLAN is another view of what is behind the tag: a priority tag is stepped over.
#[test]
fn flows_look_again_where_a_tag_becomes_a_priority_tag() {
    let vid = |vid: u128| Action::SetField {
        field: Field::VlanTci,
        value: 0x1000 | vid,
        mask: 0x1fff,
        spelling: Spelling::Mod,
    };
    let again = Action::Resubmit { port: None, table: Some(1) };
    let with = |first: u128| {
        let arp = Match::new().with(Field::EthType, 0x0806);
        let flows = [
            flow(0, 1, Match::new(), vec![vid(first), again]),
            flow(1, 2, arp, vec![]),
            flow(1, 1, Match::new(), vec![output(2)]),
        ];
        let mut rig = Rig::new();
        rig.publish(&flows);
        rig
    };
    let frame = |tags: &[u8]| {
        let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], tags, &[8, 6], &[0; 46]].concat();
        vec![Carried::plain(0, bytes)]
    };
    let stack = |first: u8, count| [vec![0x81, 0, 0, first], [0x81, 0, 0, 0].repeat(count)].concat();
    let mut rig = with(0);
    for count in 0..4 {
        assert!(rig.send(frame(&stack(5, count))).concat().is_empty(), "{count} tags behind it");
    }
    assert_eq!(rig.dropped(), [("flow-drop", 4)]);
    assert!(rig.send(frame(&stack(5, 4))).concat().is_empty());
    assert_eq!(rig.dropped(), [("flow-drop", 4), ("hidden", 1)]);
    let mut rig = with(5);
    for count in 1..4 {
        assert_eq!(rig.send(frame(&stack(0, count))).concat().len(), 1, "{count} tags behind that of a VLAN");
    }
    assert!(rig.send(frame(&stack(0, 0))).concat().is_empty(), "ARP in a VLAN");
}

#[test]
fn calls_have_limits() {
    let again = |actions: &[Action], table| [actions, &[Action::Resubmit { port: None, table: Some(table) }]].concat();
    // A table that calls itself; two calls each; 253 tables in a row, with a list that waits or without.
    let this = flow(0, 1, Match::new(), again(&[], 0));
    compare(&[this], vec![vec![(0, plain(1)), (1, plain(2))]]);
    let twice = flow(0, 1, Match::new(), again(&again(&[], 0), 0));
    compare(&[twice], vec![vec![(0, plain(1))]]);
    let row: Vec<_> = (0..253).map(|table| flow(table, 1, Match::new(), again(&[], table + 1))).collect();
    compare(&row, vec![vec![(0, plain(1))]]);
    let to_end = flow(253, 1, Match::new(), vec![output(2)]);
    compare(&[row.clone(), vec![to_end.clone()]].concat(), vec![vec![(0, plain(1))]]);
    let waits = |table: u8| flow(table, 1, Match::new(), [again(&[], table + 1), vec![output(3)]].concat());
    compare(&[(0..253).map(waits).collect(), vec![to_end]].concat(), vec![vec![(0, plain(1))]]);
}

/// Clauses of two priorities, a flow that wins over them, and a search from another port. Then a clause goes.
#[test]
fn conjunctions_follow_their_clauses() {
    let part = |id, clause, clauses| vec![Action::Conjunction { id, clause, clauses }];
    let src = |last: u128| Match::new().with(Field::EthSrc, 0x0200_0000_0000 + last);
    let ends = |last: u128| {
        let mut end = Match::new();
        end.set(Field::EthDst, last, 0xff);
        end
    };
    let joined = |id: u128, port| flow(1, 1, Match::new().with(Field::ConjId, id), vec![output(port)]);
    let mut flows = vec![
        flow(0, 1, Match::new(), vec![Action::Resubmit { port: Some(PortNumber(4)), table: Some(1) }, output(4)]),
        flow(1, 7, src(1), part(5, 0, 3)),
        flow(1, 7, src(2), part(5, 0, 3)),
        flow(1, 7, ends(1), part(5, 1, 3)),
        flow(1, 7, Match::new().with(Field::InPort, 4), part(5, 2, 3)),
        flow(1, 7, src(2).with(Field::EthDst, 0x0200_0000_0101), vec![Action::Normal]),
        flow(1, 3, src(1), part(6, 0, 2)),
        flow(1, 3, Match::new().with(Field::EthType, 0x88b5), part(6, 1, 2)),
        joined(5, 2),
        joined(6, 3),
        flow(1, 0, Match::new(), vec![Action::InPort]),
    ];
    let frame =
        |src: u8, high: u8, low: u8| [&[2, 0, 0, 0, high, low, 2, 0, 0, 0, 0, src, 0x88, 0xb5][..], &[0; 46]].concat();
    let frames: Vec<_> =
        (0..3).flat_map(|src| [(0, 1), (1, 1), (0, 2)].map(|(high, low)| (0, frame(src, high, low)))).collect();
    compare(&flows, vec![frames.clone()]);
    let outputs = |rig: &mut Rig| -> Vec<usize> {
        let packets = frames.iter().map(|(port, bytes)| Carried::plain(*port, bytes.clone())).collect();
        rig.send(packets).iter().map(Vec::len).collect()
    };
    let mut rig = Rig::new();
    rig.publish(&flows);
    assert_eq!(outputs(&mut rig), [4, 3, 1, 9, 1]);
    flows.retain(|flow| flow.key.condition != ends(1));
    rig.publish(&flows);
    assert_eq!(outputs(&mut rig), [5, 0, 3, 9, 1]);
    compare(&flows, vec![frames.clone()]);
    // A clause becomes another flow, and one of them a clause.
    flows[1].actions = vec![output(2)];
    flows[5].actions = part(6, 0, 2);
    rig.publish(&flows);
    let changed = outputs(&mut rig);
    let mut fresh = Rig::new();
    fresh.publish(&flows);
    assert_eq!(changed, outputs(&mut fresh));
    compare(&flows, vec![frames.clone()]);
}

#[test]
fn rounds_have_a_limit() {
    let mut rig = Rig::new();
    let actions = vec![output(2); 100];
    rig.publish(&[flow(0, 1, Match::new(), actions)]);
    let got = rig.send(vec![Carried::plain(0, plain(1)), Carried::plain(1, plain(1))]);
    assert_eq!(got[1].len(), 1 + 64, "the first round, and 64 more");
    assert_eq!(rig.dropped(), [("flow-limit", 1), ("same-port", 1)]);
}

#[test]
fn headers_behind_the_head_are_pulled_up_or_the_packet_is_dropped() {
    // IPv6 with destination options of so many bytes, and UDP.
    let packet = |options: usize| {
        let udp = [0, 1, 0, 2, 0, 8, 0xff, 0xff];
        let len = u16::try_from(options + 8).unwrap().to_be_bytes();
        let header = [&[0x60, 0, 0, 0, len[0], len[1], 60, 64][..], &[0xfd; 32]].concat();
        let mut extension = vec![0; options];
        extension[..2].copy_from_slice(&[17, u8::try_from(options / 8 - 1).unwrap()]);
        [&[2; 12][..], &[0x86, 0xdd], &header, &extension, &udp].concat()
    };
    let udp6 = Match::new().with(Field::EthType, 0x86dd).with(Field::IpProto, 17).with(Field::TpDst, 2);
    let mut rig = Rig::new();
    let addressed = set(Field::Ipv6Src, 1);
    rig.publish(&[flow(0, 1, udp6, vec![addressed, output(2)])]);
    let got = rig.send([8, 160, 240, 400, 480, 1024].map(|options| Carried::plain(0, packet(options))).to_vec());
    assert_eq!(got[1].len(), 4);
    assert_eq!(rig.dropped(), [("flow-headers", 2)]);
    // Without a test of these headers, the packet passes, and its MAC addresses change.
    let mut rig = Rig::new();
    rig.publish(&[flow(0, 1, Match::new(), vec![set(Field::EthSrc, 7), output(2)])]);
    assert_eq!(rig.send(vec![Carried::plain(0, packet(1024))])[1].len(), 1);
    rig.publish(&[flow(0, 1, Match::new(), vec![output(3), set(Field::Ipv6Src, 7), output(2)])]);
    let got = rig.send(vec![Carried::plain(0, packet(1024))]);
    assert_eq!((got[1].len(), got[2].len()), (0, 1));
    assert_eq!(rig.dropped(), [("flow-headers", 1)]);
}

#[test]
fn meters_drop_what_is_beyond_their_rate() {
    let mut rig = Rig::new();
    let meter = Meter { unit: MeterUnit::Packets, rate: 1, burst: Some(5) };
    rig.flows.set_meter(7, meter, Owner::Api, false).expect("a new meter");
    rig.publish(&[flow(0, 1, Match::new(), vec![Action::Meter(7), output(2)])]);
    let batch: Vec<_> = (0..20).map(|last| Carried::plain(0, plain(last))).collect();
    let passed = rig.send(batch)[1].len();
    // A second may pass meanwhile.
    assert!((5..20).contains(&passed), "{passed}");
    assert_eq!(rig.dropped(), [("flow-meter", 20 - passed as u64)]);
    let stats = rig.meters.stats(7).expect("it is there");
    assert_eq!((stats.packets.get(), stats.dropped.get()), (passed as u64, 20 - passed as u64));
}

/// The program of flows that have changed step by step is that of flows that are new.
#[test]
fn changes_give_the_same_as_new_tables() {
    let flow_of = |at: u16, port: u16| {
        let condition = Match::new().with(Field::EthSrc, 0x0200_0000_0000 + u128::from(at));
        flow((at % 2).try_into().unwrap(), 1, condition, vec![output(2 + port % 3)])
    };
    let mut rig = Rig::new();
    let mut random = straightline_report::random::Random::new(35);
    let mut flows = vec![flow(0, 0, Match::new(), vec![Action::GotoTable(1)])];
    let frames: Vec<_> = (0..=255)
        .map(|last| Carried::plain(0, [&[2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, last][..], &[0x88, 0xb5]].concat()))
        .collect();
    for step in 0..400_u16 {
        let mut below = |most: u64| u16::try_from(random.below(most)).unwrap();
        for _ in 0..1 + step % 3 {
            let new = flow_of(below(256), below(3));
            flows.retain(|flow| flow.key != new.key);
            if below(3) > 0 {
                flows.push(new);
            }
        }
        rig.publish(&flows);
        if let Some((number, compilation)) = rig.compiler.stale().filter(|_| step % 7 == 0) {
            let compiled = compilation.run();
            let program = rig.compiler.adopt(number, compiled);
            rig.tables.publish(program);
        }
        if step % 16 == 0 {
            let mut fresh = Rig::new();
            fresh.publish(&flows);
            assert_eq!(rig.send(frames.clone()), fresh.send(frames.clone()), "{step}");
        }
    }
}
