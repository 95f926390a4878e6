//! Generated packets and flows. Few values of each kind, so that packets match flows.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_flow::{Action, Field, Flow, FlowKey, Match, Spelling, Subfield};
use straightline_testing::frames::{ADDRESSES, FrameDraft};

use super::*;

/// A frame of each kind.
pub(super) fn every_kind() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (network, transport) in [0, 4, 7, 8, 9].into_iter().flat_map(|network| (0..8).map(move |kind| (network, kind)))
    {
        for (fragment, options) in [(0, 0), (0, 1), (0, 2), (0, 3), (6, 0), (8, 1), (9, 0)] {
            let tags = if (fragment + options) % 2 == 0 { vec![] } else { vec![0xa006] };
            let odd = usize::from(fragment % 4 + options);
            let draft = FrameDraft {
                macs: [1, 2],
                tags,
                network,
                transport,
                addresses: [0, 1],
                ports: [3, 1],
                ttl: 1 + options,
                tos: 0xff,
                fragment,
                options,
                body: vec![0xab; 9 + odd],
                cut: 0,
            };
            all.push(draft.bytes());
        }
    }
    all
}

/// Frames of all kinds, some of them truncated. Their checksums are right.
pub(super) fn frame() -> impl Strategy<Value = Vec<u8>> {
    let first = ([0..3_u8, 0..3_u8], vec(prop_oneof![Just(5_u16), Just(0xa006), Just(0)], 0..3), 0..10_u8, 0..8_u8);
    let second = ([0..3_usize, 0..3], [0..4_u16, 0..4], 0..4_u8, prop_oneof![Just(0_u8), any::<u8>()]);
    let third = (0..12_u8, 0..4_u8, vec(any::<u8>(), 0..24), prop_oneof![4 => Just(0_usize), 1 => 1..60_usize]);
    (first, second, third).prop_map(|(first, second, third)| {
        let (macs, tags, network, transport) = first;
        let (addresses, ports, ttl, tos) = second;
        let (fragment, options, body, cut) = third;
        let draft =
            FrameDraft { macs, tags, network, transport, addresses, ports, ttl, tos, fragment, options, body, cut };
        draft.bytes()
    })
}

fn v4(field: Field) -> Match {
    let at = if field == Field::IpSrc { 0 } else { 1 };
    Match::new().with(Field::EthType, 0x800).with(field, u32::from_be_bytes(ADDRESSES[at]).into())
}

/// A condition of one or two tests.
fn condition() -> impl Strategy<Value = Match> {
    let one = (0..26_u8, 0..4_u16).prop_map(|(kind, value)| {
        let ip =
            |version: u128, protocol: u128| Match::new().with(Field::EthType, version).with(Field::IpProto, protocol);
        let small = u128::from(value);
        match kind {
            0 => Match::new().with(Field::InPort, small + 1),
            1 => Match::new().with(Field::EthDst, 0x0200_0000_0000 + small),
            2 => Match::new().with(Field::EthSrc, 0x0200_0000_0000 + small),
            3 => Match::new().with(Field::EthType, [0x800, 0x86dd, 0x806, 0x5ff][usize::from(value)]),
            4 => Match::new().with(Field::VlanTci, [0, 0x1005, 0xb006, 0x1000][usize::from(value)]),
            5 => {
                let mut tagged = Match::new();
                tagged.set(Field::VlanTci, 0x1000, 0x1000);
                tagged
            }
            6 => v4(Field::IpSrc),
            7 => v4(Field::IpDst),
            8 => {
                let mut odd = Match::new().with(Field::EthType, 0x800);
                odd.set(Field::IpDst, 0x0a00_0001, 0xff00_0001);
                odd
            }
            9 => ip(0x800, [6, 17, 1, 47][usize::from(value)]),
            10 => ip(0x86dd, [6, 17, 58, 44][usize::from(value)]),
            11 => ip(0x800, 6).with(Field::TpDst, small),
            12 => ip(0x86dd, 17).with(Field::TpSrc, small),
            13 => {
                let mut flags = ip(0x800, 6);
                flags.set(Field::TcpFlags, 0x112, 0x1ff);
                flags
            }
            14 => ip(0x800, 1).with(Field::IcmpType, small * 4),
            15 => ip(0x86dd, 58).with(Field::IcmpType, 135).with(Field::NdSll, 0x0200_0000_0000 + small),
            16 => {
                let mut target = ip(0x86dd, 58).with(Field::IcmpType, 135);
                target.set(Field::NdTarget, small, 0xff);
                target
            }
            17 => {
                let mut net = Match::new().with(Field::EthType, 0x86dd);
                net.set(Field::Ipv6Dst, 0xfd07 << 112 | small, u128::MAX << 112 | 0xff);
                net
            }
            18 => Match::new().with(Field::EthType, 0x806).with(Field::ArpOp, small),
            19 => Match::new().with(Field::EthType, 0x806).with(Field::ArpSha, 0x0200_0000_0000 + small),
            20 => Match::new().with(Field::Reg1, small),
            21 => Match::new().with(Field::EthType, 0x800).with(Field::IpTtl, small),
            22 => Match::new().with(Field::EthType, 0x86dd).with(Field::IpFrag, small),
            23 => Match::new().with(Field::EthType, 0x86dd).with(Field::Ipv6Label, 0x3_0007),
            24 => Match::new().with(Field::PktMark, small),
            _ => Match::new(),
        }
    });
    (one.clone(), proptest::option::of(one)).prop_map(|(mut one, other)| {
        // A test of a field needs its EtherType, so a contradiction is no flow.
        if let Some(other) = other.filter(|other| one.overlaps(other)) {
            other.tests().iter().for_each(|test| one.set(test.field, test.value, test.mask));
        }
        one
    })
}

/// Fields that actions set, with a value that depends on a small number.
pub(super) const SET: &[(Field, u128, u128)] = &[
    (Field::EthDst, 0x0200_0000_0001, 0xffff_ffff_ffff),
    (Field::EthSrc, 0xff, 0xff),
    (Field::IpSrc, 0xc0a8_0102, 0xffff_ffff),
    (Field::IpDst, 0x0a00_fffe, 0xffff_ffff),
    (Field::IpDst, 0x1_0000, 0xff_0000),
    (Field::Ipv6Src, 0xfd07 << 112 | 1, u128::MAX),
    (Field::Ipv6Dst, 0xffff_ffff_ffff_fffe, 0xffff_ffff_ffff_ffff),
    (Field::Ipv6Label, 0x7_7777, 0xf_ffff),
    (Field::IpTos, 0x48, 0xfc),
    (Field::IpTos, 1, 3),
    (Field::IpTtl, 2, 0xff),
    (Field::ArpOp, 2, 0xffff),
    (Field::ArpSpa, 0x0a00_0009, 0xffff_ffff),
    (Field::ArpTpa, 0x0a00_0008, 0xffff_ffff),
    (Field::ArpSha, 0x0200_0000_0002, 0xffff_ffff_ffff),
    (Field::ArpTha, 0x0200_0000_0001, 0xffff_ffff_ffff),
    (Field::TpSrc, 80, 0xffff),
    (Field::TpDst, 0xff00, 0xff00),
    (Field::IcmpType, 0, 0xff),
    (Field::IcmpType, 135, 0xff),
    (Field::IcmpCode, 1, 0xff),
    (Field::NdTarget, 0xff << 64, 0xff << 64),
    (Field::NdSll, 0x0200_0000_0001, 0xffff_ffff_ffff),
    (Field::NdTll, 3, 0xff),
    (Field::VlanTci, 0x1005, 0x1fff),
    (Field::VlanTci, 0x6000, 0xe000),
    (Field::VlanTci, 0xf006, 0xffff),
    (Field::VlanTci, 0, 0xffff),
    (Field::Reg1, 2, 0xffff_ffff),
    (Field::Reg1, 1, 1),
    (Field::Reg7, 0x1234_5678, 0xffff_ffff),
    (Field::PktMark, 1, 0xff),
    (Field::InPort, 2, 0xffff),
];

/// Places that actions copy bits between.
const MOVED: &[(Field, u8, u8)] = &[
    (Field::EthSrc, 0, 16),
    (Field::EthDst, 8, 16),
    (Field::Reg1, 0, 16),
    (Field::Reg7, 16, 16),
    (Field::IpSrc, 0, 16),
    (Field::Ipv6Dst, 32, 16),
    (Field::TpDst, 0, 16),
    (Field::TpSrc, 0, 16),
    (Field::ArpSpa, 16, 16),
    (Field::NdTarget, 100, 16),
    (Field::Ipv6Label, 2, 16),
    (Field::PktMark, 3, 16),
];

fn action(table: u8) -> impl Strategy<Value = Action> {
    let set = (0..SET.len()).prop_map(|at| {
        let (field, value, mask) = SET[at];
        Action::SetField { field, value, mask, spelling: Spelling::Mod }
    });
    let moved = (0..MOVED.len(), 0..MOVED.len()).prop_map(|(from, to)| {
        let part = |at: usize| {
            let (field, offset, bits) = MOVED[at];
            Subfield { field, offset, bits }
        };
        Action::Move { from: part(from), to: part(to) }
    });
    let number = prop_oneof![4 => 1..=PORTS, 1 => Just(9)].prop_map(PortNumber);
    let register = Subfield { field: Field::Reg1, offset: 0, bits: 16 };
    let resubmit = (proptest::option::of(1..=PORTS))
        .prop_map(move |port| Action::Resubmit { port: port.map(PortNumber), table: Some(table + 1) });
    prop_oneof![
        4 => number.prop_map(Action::Output),
        1 => Just(Action::OutputField(register)),
        1 => Just(Action::InPort),
        1 => Just(Action::Normal),
        1 => Just(Action::Flood),
        8 => set,
        2 => moved,
        1 => Just(Action::DecTtl),
        1 => Just(Action::PushVlan(0x8100)),
        1 => Just(Action::StripVlan),
        2 => resubmit,
        1 => Just(Action::GotoTable(table + 1)),
    ]
}

pub(super) fn flow(table: u8, priority: u16, condition: Match, actions: Vec<Action>) -> Flow {
    Flow {
        key: FlowKey { table, priority, condition },
        cookie: 0,
        idle_timeout: Duration::ZERO,
        hard_timeout: Duration::ZERO,
        actions,
    }
}

/// The flows of a conjunction, and one for its packets. A priority has one conjunction in each table: of
/// several, any would be right.
fn conjunction() -> impl Strategy<Value = Vec<Flow>> {
    let clauses = vec(vec(condition(), 1..4), 2..4);
    (0..3_u8, 1..4_u16, clauses, 0..4_u16, condition(), vec(action(3), 1..4)).prop_map(
        |(table, priority, clauses, own, condition, mut actions)| {
            let id = 10 + u32::from(priority);
            let count = u8::try_from(clauses.len()).unwrap();
            let mut all = Vec::new();
            for (clause, conditions) in (0..).zip(clauses) {
                let part = Action::Conjunction { id, clause, clauses: count };
                all.extend(conditions.into_iter().map(|condition| flow(table, priority, condition, vec![part])));
            }
            actions.retain(|action| !matches!(action, Action::Resubmit { .. } | Action::GotoTable(_)));
            let condition = if own == 0 { condition } else { Match::new() };
            all.push(flow(table, own, condition.with(Field::ConjId, id.into()), actions));
            all
        },
    )
}

/// Flows of up to four tables.
pub(super) fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let one = (0..4_u8).prop_flat_map(|table| {
        (0..3_u16, condition(), vec(action(table), 0..6)).prop_map(move |(priority, condition, mut actions)| {
            // A packet visits few tables, so there are few rounds.
            let is_call = |action: &Action| matches!(action, Action::Resubmit { .. } | Action::GotoTable(_));
            let mut calls = 0;
            actions.retain(|action| {
                calls += u32::from(is_call(action));
                !is_call(action) || calls == 1
            });
            if let Some(at) = actions.iter().position(|action| matches!(action, Action::GotoTable(_))) {
                actions.truncate(at + 1);
            }
            flow(table, priority, condition, actions)
        })
    });
    // Each table has a flow for all packets, so that many of them change and go on.
    let rest = (vec(action(0), 1..6), vec(action(1), 1..6), vec(action(2), 1..6)).prop_map(|(first, second, third)| {
        let on = |mut actions: Vec<Action>, port: u16, table: u8| {
            actions.retain(|action| !matches!(action, Action::Resubmit { .. } | Action::GotoTable(_)));
            actions.extend([Action::Output(PortNumber(port)), Action::GotoTable(table + 1)]);
            flow(table, 0, Match::new(), actions)
        };
        vec![on(first, 1, 0), on(second, 2, 1), on(third, 3, 2)]
    });
    let joined = || proptest::option::of(conjunction());
    (vec(one, 1..24), rest, joined(), joined()).prop_map(|(flows, mut all, first, second)| {
        all.extend(flows);
        all.extend([first, second].into_iter().flatten().flatten());
        let mut flows = all;
        let mut keys = std::collections::HashSet::new();
        flows.retain(|flow| keys.insert(flow.key.clone()));
        flows
    })
}
