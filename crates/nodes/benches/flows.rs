//! The cost of flow tables in front of a bridge: cycles of the time-stamp counter per packet.
//!
//! `cargo bench -p straightline-nodes --bench flows` prints the cycles of all nodes between receive
//! and send, in batches of 256 packets whose heads are in the cache. The values are medians over many
//! short rounds, in which all rows alternate, with their ratio to the bridge without flows. With
//! `--test` it runs each row once and prints nothing.
//!
//! | row | flows | packets |
//! |---|---|---|
//! | bridge | none | known stations |
//! | normal | one: `normal` | the same |
//! | output | one: an output | the same |
//! | search | 1000, with 20 masks | 10 000 flows of UDP, drawn evenly |
//! | full | the same, and each tests all other fields of a datagram too | the same |
//! | change | as in `search`; addresses and ports change | the same |
//! | versions | one: an output, a change, an output | known stations |
//!
//! A last line has the time in which one flow of 10 000 is replaced, without waiting for workers.

#![allow(clippy::print_stdout, reason = "a bench prints its results")]

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use straightline_flow::{Action, Field, FlowCommand, FlowMod, FlowTables, Match, Owner, PortNumber, Spelling};
use straightline_graph::{Graph, Port};
use straightline_nodes::{FlowCompiler, FlowCounters, FlowMeters, FlowPorts, FlowTable, Flows};
use straightline_packet::{Batch, PortIndex, Rcu, Turn};
use straightline_report::random::Random;
use straightline_report::statistics::median;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};

use rows::{BATCH, BURST, INPUTS, PORTS, Row};

/// Turns of a round. A round yields one value.
const TURNS: usize = 40;

const ROUNDS: u32 = 60;

/// Packets that a source repeats.
const PACKETS: usize = 10_240;

/// A port that receives its packets in turn.
#[derive(Debug)]
struct Source {
    packets: Vec<Vec<u8>>,
    at: AtomicUsize,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let at = self.at.load(Ordering::Relaxed);
        for packet in self.packets.iter().cycle().skip(at).take(max.min(BURST)) {
            let Some(id) = turn.accept_owned(PortIndex(0), packet) else { return };
            into.push(id);
        }
        self.at.store((at + BURST) % self.packets.len(), Ordering::Relaxed);
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

/// Returns a datagram of a flow. Flows differ in both addresses and ports.
fn packet(random: &mut Random) -> Vec<u8> {
    let mut below = |most: u64| u32::try_from(random.below(most)).unwrap_or(0);
    let src = 0x0a00_0000 + below(4096);
    let dst = 0xc0a8_0000 + below(4096);
    let port = |number: u32| u16::try_from(number).unwrap_or(0);
    let frame = Frame {
        src: mac(1),
        dst: mac(2),
        tags: [None, None],
        net: Net::v4(src.into(), dst.into()),
        transport: Transport::Udp { src_port: port(1024 + below(60_000)), dst_port: port(below(1024)) },
        payload_len: 18,
    };
    let mut bytes = vec![0; 60];
    frame.emit(&mut bytes, Checksum::Complete { payload_sum: 0 }).expect("space for the headers");
    bytes
}

/// Returns a request that adds a flow, with its line.
fn flow(priority: u16, condition: Match, actions: Vec<Action>) -> (usize, FlowMod) {
    let add = FlowMod {
        command: FlowCommand::Add,
        table: None,
        priority,
        condition,
        cookie: None,
        cookie_filter: (0, 0),
        out_port: None,
        idle_timeout: Duration::ZERO,
        hard_timeout: Duration::ZERO,
        check_overlap: false,
        reset_counts: false,
        actions,
    };
    (0, add)
}

fn output(port: u16) -> Action {
    Action::Output(PortNumber(port))
}

fn set(field: Field, value: u128) -> Action {
    Action::SetField { field, value, mask: field.greatest(), spelling: Spelling::Mod }
}

/// Returns 1000 flows: prefixes of both addresses of 10 lengths, with a port and without.
fn many(actions: &[Action]) -> Vec<(usize, FlowMod)> {
    let mut random = Random::new(33);
    let mut flows: Vec<_> = (0..999_u16)
        .map(|at| {
            let kind = at % 20;
            let mut condition = Match::new().with(Field::EthType, 0x800).with(Field::IpProto, 17);
            let cut = u32::from(kind % 10);
            let src = 0x0a00_0000 + u32::try_from(random.below(4096)).unwrap_or(0);
            let dst = 0xc0a8_0000 + u32::try_from(random.below(4096)).unwrap_or(0);
            condition.set(Field::IpSrc, src.into(), (u32::MAX << (cut + 2)).into());
            condition.set(Field::IpDst, dst.into(), (u32::MAX << (11 - cut)).into());
            if kind >= 10 {
                condition.set(Field::TpDst, u128::from(random.below(1024)), 0xff00);
            }
            flow(100 + kind, condition, actions.to_vec())
        })
        .collect();
    flows.push(flow(0, Match::new(), actions.to_vec()));
    flows
}

/// Returns the same flows, which test all other fields of a datagram too.
fn full(actions: &[Action]) -> Vec<(usize, FlowMod)> {
    let mut flows = many(actions);
    for (_, one) in flows.iter_mut().filter(|(_, one)| one.priority > 0) {
        let tests = [
            (Field::InPort, 1, u16::MAX.into()),
            (Field::VlanTci, 0, u16::MAX.into()),
            (Field::EthSrc, 0x0200_0000_0001, 0xffff_ffff_ffff),
            (Field::EthDst, 0x0200_0000_0002, 0xffff_ffff_ffff),
            (Field::IpTos, 0, 0xff),
            (Field::IpTtl, 64, 0xff),
            (Field::IpFrag, 0, 3),
            (Field::TpSrc, 0, 1 << 15),
            (Field::Reg0, 0, u32::MAX.into()),
        ];
        for (field, value, mask) in tests {
            one.condition.set(field, value, mask);
        }
    }
    flows
}

/// Returns a row with these flows in front of the bridge.
fn row(name: &str, packets: &[Vec<u8>], flows: Option<Vec<(usize, FlowMod)>>) -> Row {
    let rcu = Rcu::new();
    let table = rows::bridge(flows.is_some());
    let mut graph = Graph::new();
    let mut edges = rows::outputs(&mut graph);
    let mut first = graph.node("bridge", Box::new(table.node(1)), &edges);
    if let Some(flows) = flows {
        let tables = Arc::new(FlowTable::new(&rcu));
        let ports = (0..PORTS).map(|port| (PortNumber(port + 1), PortIndex(port))).collect();
        let mut all = FlowTables::<FlowCounters>::default();
        all.apply(&flows, Owner::File, Duration::ZERO).expect("flows that are possible");
        tables.publish(FlowCompiler::default().compile(&all, ports, &FlowMeters::default()));
        edges.push(first);
        first = graph.node("flows", Box::new(Flows::new(&table, &tables)), &edges);
    }
    for part in packets.chunks(packets.len().div_ceil(INPUTS)) {
        graph.input(Arc::new(Source { packets: part.to_vec(), at: AtomicUsize::new(0) }), first);
    }
    let mut row = Row::new(name, graph, rcu.reader());
    let mut taken = 0;
    while taken < BATCH {
        taken += row.worker.turn();
    }
    assert_eq!(row.dropped(), 0, "{name}");
    row
}

/// Returns the microseconds in which one flow of many is replaced, and the program compiled.
fn updates(count: u32) -> Option<f64> {
    let mut tables = FlowTables::<FlowCounters>::default();
    let one = |at: u32, port: u16| {
        let condition = Match::new().with(Field::EthType, 0x800).with(Field::IpDst, (0x0a00_0000 + at).into());
        flow(100, condition, vec![output(port)])
    };
    let all: Vec<_> = (0..count).map(|at| one(at, 1)).collect();
    tables.apply(&all, Owner::Api, Duration::ZERO).ok()?;
    let mut compiler = FlowCompiler::default();
    let compile = |compiler: &mut FlowCompiler, tables: &FlowTables<FlowCounters>| {
        compiler.compile(tables, FlowPorts::default(), &FlowMeters::default())
    };
    drop(compile(&mut compiler, &tables));
    let mut times = Vec::new();
    for at in 0..200 {
        let change = [one(at * 7 % count, 2), one(count + at, 1)];
        // A replaced flow, and a new one.
        for request in change {
            let began = Instant::now();
            tables.apply(&[request], Owner::Api, Duration::ZERO).ok()?;
            let program = compile(&mut compiler, &tables);
            times.push(began.elapsed().as_secs_f64() * 1e6);
            drop(program);
            if let Some((number, compilation)) = compiler.stale() {
                drop(compiler.adopt(number, compilation.run()));
            }
        }
    }
    median(&times)
}

fn main() {
    let is_bench = std::env::args().any(|word| word == "--bench");
    let (rounds, turns) = if is_bench { (ROUNDS, TURNS) } else { (1, 2) };
    let mut random = Random::new(34);
    let packets: Vec<_> = (0..PACKETS).map(|_| packet(&mut random)).collect();
    let all = Match::new;
    let changes = [set(Field::EthSrc, 7), set(Field::IpDst, 0x0a09_0807), set(Field::TpDst, 4242), output(2)];
    let mut rows = [
        row("bridge", &packets, None),
        row("normal", &packets, Some(vec![flow(0, all(), vec![Action::Normal])])),
        row("output", &packets, Some(vec![flow(0, all(), vec![output(2)])])),
        row("search", &packets, Some(many(&[output(2)]))),
        row("full", &packets, Some(full(&[output(2)]))),
        row("change", &packets, Some(many(&changes))),
        row("versions", &packets, Some(vec![flow(0, all(), vec![output(3), set(Field::EthSrc, 7), output(2)])])),
    ];
    for round in 0..rounds {
        rows.iter_mut().for_each(|row| row.round(round, turns));
    }
    if !is_bench {
        assert!(updates(500).is_some());
        return;
    }
    for row in &rows {
        println!("{:10} {:7.1} cycles, beside the bridge {}", row.name, row.median(), row.beside(&rows[0]));
    }
    println!("one flow of 10 000: {:.0} us", updates(10_000).unwrap_or(f64::NAN));
}
