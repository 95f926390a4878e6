//! The table beside its reference implementation (`reference.rs`, `tcp.rs`): generated sequences of
//! packets from both sides, pauses, policy changes, and a share that is full most of the time.
//!
//! `STRAIGHTLINE_LONG=1` (`cargo xtask test --long`) compares a hundred times as many sequences.

mod reference;
mod tcp;

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_conntrack::{
    Direction, Ends, Entry, Full, Key, Opened, Opening, PortShare, Refusal, Secret, Segment, Settings, Side, State,
    Table, Tracked, Transport, Verdict, Windows,
};
use straightline_wire::IpProtocol;

use reference::{Class, Reference};

const PORT: u16 = 3;
const SCTP: IpProtocol = IpProtocol(132);

/// Flows that the sequences use.
const FLOWS: u8 = 24;

/// A step of a sequence.
#[derive(Clone, Debug)]
enum Step {
    /// A packet of a flow.
    Packet {
        flow: u8,
        side: Side,
        act: Act,
    },
    /// TCP's handshake, and a data segment, of a flow.
    Handshake {
        flow: u8,
        side: Side,
        scales: [Option<u8>; 2],
    },
    Later(u32),
    Sweep,
    /// The policy changes. Stale connections of a set are denied from now on.
    Policy {
        denied: u8,
    },
    End {
        flow: u8,
    },
    EndPort,
    Restart {
        pickup: bool,
    },
}

/// A TCP segment, in relation to what both sides have sent so far.
#[derive(Clone, Copy, Debug)]
struct Act {
    flags: u8,
    seq: i32,
    ack: i32,
    len: u32,
    window: u16,
    scale: Option<u8>,
}

const PLAIN: Act = Act { flags: 16, seq: 0, ack: 0, len: 0, window: 5000, scale: None };

fn act() -> impl Strategy<Value = Act> {
    let flags = prop_oneof![
        16 => Just(16_u8),
        4 => Just(24),
        4 => Just(2),
        4 => Just(18),
        4 => Just(17),
        2 => Just(4),
        2 => Just(20),
        1 => any::<u8>()
    ];
    let near = || prop_oneof![16 => Just(0), 4 => -3..4, 2 => -90_000..90_000, 1 => any::<i32>()];
    let len = prop_oneof![6 => Just(0_u32), 6 => 1..3000_u32, 1 => 0..200_000_u32];
    let window = prop_oneof![6 => any::<u16>(), 1 => Just(0)];
    (flags, near(), near(), len, window, prop::option::of(0..20_u8))
        .prop_map(|(flags, seq, ack, len, window, scale)| Act { flags, seq, ack, len, window, scale })
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Local), Just(Side::Remote)]
}

/// Returns steps of few flows, so that each has a long history, or of many, so that shares are full.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    // TCP; UDP and TCP; DNS and TCP; all.
    let flows = prop_oneof![2 => Just(0..2_u8), 1 => Just(4..6), 1 => Just(12..14), 4 => Just(0..FLOWS)];
    flows.prop_flat_map(|flows| {
        let packet = (flows.clone(), side(), act()).prop_map(|(flow, side, act)| Step::Packet { flow, side, act });
        let scales = [prop::option::of(0..16_u8), prop::option::of(0..16_u8)];
        let handshake =
            (flows.clone(), side(), scales).prop_map(|(flow, side, scales)| Step::Handshake { flow, side, scales });
        let later = prop_oneof![6 => 0..2000_u32, 2 => 0..200_000_u32, 1 => 0..500_000_000_u32];
        let step = prop_oneof![
            40 => packet,
            8 => handshake,
            8 => later.prop_map(Step::Later),
            2 => Just(Step::Sweep),
            1 => any::<u8>().prop_map(|denied| Step::Policy { denied }),
            1 => flows.prop_map(|flow| Step::End { flow }),
            1 => any::<bool>().prop_map(|pickup| Step::Restart { pickup }),
        ];
        let step = prop_oneof![60 => step, 1 => Just(Step::EndPort)];
        prop::collection::vec(step, 1..120)
    })
}

fn share() -> impl Strategy<Value = PortShare> {
    let rate = prop_oneof![3 => Just(1000_u32), 1 => 0..4_u32];
    let each_opener = prop_oneof![1..10_u32, Just(u32::MAX)];
    (1..20_u32, 0..10_u32, each_opener, 1..4_u16, 1..10_u32, rate, any::<bool>()).prop_map(
        |(connections, reserve, each_opener, openers, half_open, new_per_second, by_protocol)| PortShare {
            connections,
            outbound_reserve: reserve.min(connections),
            each_opener,
            openers,
            by_protocol,
            half_open,
            new_per_second,
            fragments: 8,
        },
    )
}

fn flow_key(flow: u8) -> Key {
    // Two prefixes.
    let remote = [192, 0, flow % 2, flow];
    let ends = Ends { local: [10, 0, 0, 1], remote, local_port: 1000, remote_port: 80 };
    match flow % 8 {
        5 if flow > 8 => Key::v4(PORT, 0, IpProtocol::UDP, Ends { local_port: 53, remote_port: 53, ..ends }),
        0..=4 => Key::v4(PORT, 0, IpProtocol::TCP, ends),
        5 => Key::v4(PORT, 0, IpProtocol::UDP, ends),
        6 => Key::v4(PORT, 0, IpProtocol::ICMP, ends).with_query(Side::Local, 8, 77),
        _ => Key::v4(PORT, 0, SCTP, ends),
    }
}

/// Both implementations, and the sides of each flow.
struct Rig {
    table: Table,
    reference: Reference,
    /// Next sequence number of both sides of each flow.
    next: BTreeMap<u8, [u32; 2]>,
    now: u32,
    generation: u32,
    denied: u8,
    pickup: bool,
}

impl Rig {
    fn new(settings: Settings, share: PortShare) -> Self {
        Rig {
            table: Table::new(settings, Secret([8, 6, 4, 3]), &[(PORT, share)]),
            reference: Reference::new(settings, share),
            next: BTreeMap::new(),
            now: 0,
            generation: 1,
            denied: 0,
            pickup: false,
        }
    }

    fn packet(&mut self, flow: u8, side: Side, act: Act) -> Transport {
        if flow_key(flow).protocol() != IpProtocol::TCP {
            return Transport::Other;
        }
        let next = self.next.entry(flow).or_insert([u32::from(flow) << 28, 7]);
        let own = side as usize;
        let seq = next[own].wrapping_add_signed(act.seq);
        let ack = next[1 - own].wrapping_add_signed(act.ack);
        let segment = Segment { flags: act.flags, seq, ack, window: act.window, len: act.len, scale: act.scale };
        if act.seq == 0 {
            next[own] = reference::end_of(&segment);
        }
        Transport::Tcp(segment)
    }

    fn send(&mut self, flow: u8, side: Side, act: Act) -> Result<(), TestCaseError> {
        let packet = self.packet(flow, side, act);
        let key = flow_key(flow);
        let found = self.find(&key)?;
        let mut tracked = [Tracked::Unknown; 2];
        let generation = |port| if port == PORT { self.generation } else { 0 };
        self.table.track(&[flow_key(FLOWS), key], side, &[packet; 2], generation, self.now, &mut tracked);
        prop_assert_eq!(tracked[0], Tracked::Unknown);
        let verdict = match tracked[1] {
            Tracked::Unknown => {
                prop_assert_eq!(found, None);
                return self.open(flow, side, &packet);
            }
            Tracked::Known(verdict) => {
                prop_assert!(found.is_some_and(|entry| !entry.is_stale(self.generation)));
                verdict
            }
            Tracked::Stale(entry) => {
                prop_assert!(entry.is_stale(self.generation) && found == Some(entry));
                // Each flow has a bit of the policy.
                if self.denied & 1 << (flow % 8) != 0 {
                    prop_assert!(self.table.end(entry));
                    self.reference.connections.remove(&key);
                    return self.check();
                }
                let renewed = self.table.renew(entry, self.generation, self.generation + 7);
                let connection = self.reference.connections.get_mut(&key).expect("it was found");
                connection.generation = self.generation;
                connection.rule = self.generation + 7;
                // The entry of before has another generation, and is the same connection.
                prop_assert_eq!(self.table.rule(entry), Some(self.generation + 7));
                self.table.advance(renewed.expect("it goes on"), side, &packet, self.now)
            }
        };
        prop_assert_eq!(verdict, self.reference.advance(&key, side, &packet, self.now), "{:?}", packet);
        if verdict == Verdict::Reopen {
            return self.open(flow, side, &packet);
        }
        self.check()
    }

    fn find(&mut self, key: &Key) -> Result<Option<Entry>, TestCaseError> {
        let mut found = [None; 2];
        self.table.find(&[flow_key(FLOWS), *key], self.now, &mut found);
        prop_assert_eq!(found[0], None);
        let entry = found[1];
        prop_assert_eq!(entry, self.table.find_one(key, self.now));
        let expected = self.reference.find(key, self.now).map(|expected| (expected.generation, expected.direction));
        prop_assert_eq!(entry.map(|entry| (entry.generation(), entry.direction())), expected);
        Ok(entry)
    }

    fn open(&mut self, flow: u8, side: Side, packet: &Transport) -> Result<(), TestCaseError> {
        let direction = if side == Side::Local { Direction::Outbound } else { Direction::Inbound };
        let opener = if side == Side::Local { 0 } else { u16::from(flow % 3) };
        let opening = reference::Opening {
            direction,
            opener,
            is_trusted: side == Side::Remote && opener == 2,
            rule: flow.into(),
            generation: self.generation,
            pickup: self.pickup,
        };
        let expected = self.reference.open(flow_key(flow), &opening, packet, self.now);
        let reference::Opening { is_trusted, rule, generation, pickup, .. } = opening;
        let opening = Opening { direction, opener, is_trusted, generation, rule, packet, pickup };
        let opened = self.table.open(&flow_key(flow), &opening, self.now);
        prop_assert_eq!(opened.is_ok(), expected.is_ok(), "{:?} {:?}", opened, expected);
        match opened {
            Ok(Opened::New(entry)) => prop_assert_eq!(self.find(&flow_key(flow))?, Some(entry)),
            Ok(Opened::Known(_)) => prop_assert!(false, "it was not found before"),
            Err(refusal) => prop_assert_eq!(Err(refusal), expected),
        }
        self.check()
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Packet { flow, side, act } => self.send(flow, side, act)?,
            Step::Handshake { flow, side, scales } => {
                let other = if side == Side::Local { Side::Remote } else { Side::Local };
                self.send(flow, side, Act { flags: 2, scale: scales[0], ..PLAIN })?;
                self.send(flow, other, Act { flags: 18, scale: scales[1], ..PLAIN })?;
                self.send(flow, side, PLAIN)?;
                self.send(flow, side, Act { len: 100, ..PLAIN })?;
            }
            Step::Later(time) => self.now = (self.now + time).min(1 << 31),
            Step::Sweep => {
                self.table.sweep(self.now, 1000);
                self.reference.sweep(self.now);
            }
            Step::Policy { denied } => {
                self.generation += 1;
                self.denied = denied;
            }
            Step::End { flow } => {
                let Some(entry) = self.find(&flow_key(flow))? else { return Ok(()) };
                prop_assert!(self.table.end(entry));
                self.reference.connections.remove(&flow_key(flow));
                prop_assert!(!self.table.end(entry), "it has ended");
                prop_assert_eq!(self.table.advance(entry, Side::Local, &Transport::Other, self.now), Verdict::Gone);
            }
            Step::EndPort => {
                self.table.end_port(PORT);
                self.reference.connections.clear();
            }
            Step::Restart { pickup } => self.pickup = pickup,
        }
        self.check()
    }

    /// Compares counts, and all connections.
    fn check(&self) -> Result<(), TestCaseError> {
        let counts = self.table.counts(PORT).expect("a port");
        let all = &self.reference.connections;
        let count = |class, direction: Option<Direction>| {
            let is_one = |c: &&reference::Connection| {
                c.class() == class && direction.is_none_or(|direction| c.direction == direction)
            };
            u32::try_from(all.values().filter(is_one).count()).expect("few")
        };
        prop_assert_eq!(counts.open, count(Class::Open, None) + count(Class::Exchange, None));
        prop_assert_eq!(counts.half_open_outbound, count(Class::HalfOpen, Some(Direction::Outbound)));
        prop_assert_eq!(counts.half_open_inbound, count(Class::HalfOpen, Some(Direction::Inbound)));
        prop_assert_eq!(counts.closed, count(Class::Closed, None));
        let inbound = all.values().filter(|c| c.direction == Direction::Inbound).count();
        prop_assert_eq!(counts.inbound as usize, inbound);
        prop_assert_eq!(counts.evicted, self.reference.evicted);
        let refused = Full::ALL.map(|full| self.reference.refused.get(&full).copied().unwrap_or(0));
        prop_assert_eq!(counts.refused, refused);
        let mut shown = 0;
        for connection in self.table.connections(PORT, self.now) {
            let expected = self.reference.find(&connection.key, self.now).expect("it is known");
            prop_assert_eq!(connection.state, expected.state());
            prop_assert_eq!((connection.direction, connection.opener), (expected.direction, expected.opener));
            prop_assert_eq!((connection.rule, connection.generation), (expected.rule, expected.generation));
            prop_assert_eq!(connection.left, expected.expires - self.now);
            prop_assert_eq!([connection.opener_packets, connection.answer_packets], expected.packets);
            shown += 1;
        }
        prop_assert_eq!(shown, all.values().filter(|c| c.expires > self.now).count());
        Ok(())
    }
}

fn sequences() -> u32 {
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    if is_long { 60_000 } else { 600 }
}

/// Sequences that once made a difference.
#[test]
fn sequences_of_before() {
    let packet = |flow, side, flags, seq| Step::Packet { flow, side, act: Act { flags, seq, window: 0, ..PLAIN } };
    // Sequence numbers that are 2^31 apart: each lies before the other one.
    let half_apart = [
        Step::Restart { pickup: true },
        packet(1, Side::Local, 16, 0),
        packet(0, Side::Local, 16, 0),
        packet(8, Side::Remote, 16, 0),
        packet(8, Side::Local, 4, -1),
    ];
    let share = PortShare { each_opener: 1, openers: 2, half_open: 2, outbound_reserve: 0, ..PortShare::new(5) };
    for steps in [half_apart] {
        let mut rig = Rig::new(Settings::default(), share);
        for step in steps {
            rig.run(step).expect("both agree");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(sequences()))]

    #[test]
    fn the_table_agrees_with_a_map(
        share in share(), is_liberal in prop::bool::weighted(0.15), steps in steps(),
    ) {
        let windows = if is_liberal { Windows::Liberal } else { Windows::Strict };
        let mut rig = Rig::new(Settings { windows, ..Settings::default() }, share);
        for step in steps {
            rig.run(step)?;
        }
    }
}

/// The sequences reach all states, and each reason to refuse: otherwise the comparison says little.
#[test]
fn sequences_reach_all_states() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut states: Vec<State> = Vec::new();
    let mut refused = [0; Full::ALL.len()];
    for _ in 0..300 {
        let steps = steps().new_tree(&mut runner).expect("steps").current();
        let share = share().new_tree(&mut runner).expect("a share").current();
        let mut rig = Rig::new(Settings::default(), share);
        for step in steps {
            rig.run(step).expect("both agree");
            states.extend(rig.table.connections(PORT, rig.now).map(|connection| connection.state));
        }
        let counts = rig.table.counts(PORT).expect("a port");
        refused.iter_mut().zip(counts.refused).for_each(|(sum, count)| *sum += count);
    }
    let all = [
        State::SynSent,
        State::SynRecv,
        State::Established,
        State::FinWait,
        State::CloseWait,
        State::LastAck,
        State::TimeWait,
        State::Close,
        State::SynSent2,
        State::Unreplied,
        State::Replied,
        State::Stream,
    ];
    for state in all {
        assert!(states.contains(&state), "no sequence reaches {state:?}");
    }
    for full in Full::ALL.into_iter().filter(|full| *full != Full::Places) {
        assert!(refused[full as usize] > 0, "no share is full by {full:?}");
    }
}

/// A packet between two ports with groups passes two entries.
#[test]
fn ports_do_not_share() {
    let table = Table::new(Settings::default(), Secret([1; 4]), &[(0, PortShare::new(4)), (9, PortShare::new(4))]);
    let ends = Ends { local: [10, 0, 0, 1], remote: [10, 0, 0, 2], local_port: 5, remote_port: 6 };
    let key = Key::v4(0, 0, IpProtocol::UDP, ends);
    let open = |key: &Key, direction| {
        let opening = Opening {
            direction,
            opener: 0,
            is_trusted: false,
            generation: 1,
            rule: 1,
            packet: &Transport::Other,
            pickup: false,
        };
        table.open(key, &opening, 0)
    };
    assert!(open(&key, Direction::Outbound).is_ok());
    assert_eq!(table.find_one(&key.at_other_end(9), 0), None);
    assert!(open(&key.at_other_end(9), Direction::Inbound).is_ok());
    assert!(table.find_one(&key.at_other_end(9), 0).is_some());
    assert_eq!(open(&key.at_other_end(5), Direction::Inbound), Err(Refusal::NoShare));
    table.end_port(0);
    assert_eq!(table.find_one(&key, 0), None);
    assert!(table.find_one(&key.at_other_end(9), 0).is_some());
}
