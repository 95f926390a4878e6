//! Fuzz target: packets of any bytes through flows of any text.
//!
//! Input: lines of flows up to a zero byte, then packets. Each packet has its port, a mark for a checksum
//! that is left to others, its length, and its bytes.
//!
//! Invariants:
//! - Each port, and the bridge, get the packets that the model of the flows says.
//! - A packet with a checksum that is left to others goes the same way, with as many bytes. Its checksum
//!   lies within it.
//! - A packet that goes nowhere is dropped once, and each flow counts its packets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use model::{NORMAL, Way};
use straightline_flow::{
    Action, Flow, FlowCommand, FlowCount, FlowMod, FlowTables, NoCount, Owner, PortNumber, PortTable, parse_flows,
};
use straightline_graph::{EpollWaiter, Graph, Idle, Worker};
use straightline_nodes::{
    BridgePort, BridgeRules, BridgeTable, FlowCompiler, FlowCounters, FlowMeters, FlowTable, Flows,
};
use straightline_packet::{Arena, Checksum, Drops, Offload, PortIndex, Rcu, Settings};
use straightline_testing::ports::{Carried, Source, Taken};
use straightline_wire::EtherType;

use crate::reached;

#[allow(dead_code)]
#[path = "../../../crates/nodes/src/flows/tests/model.rs"]
mod model;

/// Ports of the bridge. The model needs the number.
const PORTS: u16 = 4;

/// The most packets of an input.
const MOST_PACKETS: usize = 24;

/// The most flows. The model searches a list for each packet and table.
const MOST_FLOWS: usize = 64;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let text = data[..end].utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let Some(read) = read(text) else { return };
    let mut u = Unstructured::new(data.get(end + 1..).unwrap_or_default());
    let packets: Vec<_> = std::iter::from_fn(|| packet(&mut u).ok().flatten()).take(MOST_PACKETS).collect();
    run(&read, &packets);
}

/// The text's flows, as requests and in the order in which the switch searches them.
struct Read {
    requests: Vec<(usize, FlowMod)>,
    flows: Vec<Flow>,
}

/// Reads flows. `None` if the model does not know the way of packets: meters and connections depend on
/// packets before, and of several conjunctions any may be taken. A flow has one call at most, so that there
/// are few rounds.
fn read(text: &str) -> Option<Read> {
    let mut ports = PortTable::default();
    ports.update(["1", "2", "3", "4"]);
    let requests = parse_flows(text, FlowCommand::Add, &ports).ok()?;
    let mut tables = FlowTables::<NoCount>::default();
    tables.replace(&requests, Owner::Api, Duration::ZERO).ok()?;
    let flows: Vec<_> = tables.entries().map(|entry| entry.flow.clone()).collect();
    let is_known = |flow: &Flow| {
        let calls =
            flow.actions.iter().filter(|action| matches!(action, Action::Resubmit { .. } | Action::GotoTable(_)));
        let unknown = |action: &Action| {
            matches!(action, Action::Meter(_) | Action::Conjunction { .. } | Action::Ct(_) | Action::CtClear)
        };
        calls.count() <= 1 && !flow.actions.iter().any(unknown)
    };
    (flows.len() <= MOST_FLOWS && flows.iter().all(is_known)).then_some(Read { requests, flows })
}

/// A packet, and whether its checksum is left to others.
fn packet(u: &mut Unstructured<'_>) -> Result<Option<Carried>> {
    if u.is_empty() {
        return Ok(None);
    }
    let kind: u8 = u.arbitrary()?;
    let len = usize::from(u.arbitrary::<u8>()?);
    let bytes = u.bytes(len.min(u.len()))?.to_vec();
    if bytes.len() < 14 {
        return Ok(None);
    }
    let mut packet = Carried::plain(u16::from(kind) % PORTS, bytes);
    // A checksum that begins within a tag ends with it: such a packet is dropped.
    let is_tag = |tag: &&[u8]| EtherType(u16::from_be_bytes([tag[0], tag[1]])).is_vlan();
    let tags = packet.bytes[12..].chunks_exact(4).take_while(is_tag).count();
    let start = 14 + 4 * u16::try_from(tags).unwrap_or(0) + u16::from(kind >> 3) * 2;
    if kind & 4 != 0 && usize::from(start) + 8 <= packet.bytes.len() {
        packet.offload = Offload { checksum: Checksum::Partial { start, offset: 6 }, gso: None };
    }
    Ok(Some(packet))
}

fn run(Read { requests, flows }: &Read, packets: &[Carried]) {
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); usize::from(PORTS) + 1];
    let mut drops = 0;
    let mut counts: HashMap<usize, u64> = HashMap::new();
    let (whole, partial): (Vec<_>, Vec<_>) =
        packets.iter().cloned().partition(|packet| packet.offload == Offload::default());
    for packet in &whole {
        let (way, dropped) = Way::send(flows, packet.port + 1, &packet.bytes);
        for (to, bytes) in way.outputs {
            let at = if to == NORMAL { PORTS } else { to - 1 };
            if bytes != packet.bytes {
                reached("a packet that was changed");
            }
            expected[usize::from(at)].push(bytes);
        }
        way.hits.into_iter().for_each(|hit| *counts.entry(hit).or_default() += 1);
        drops += u64::from(dropped.is_some());
        reached(if dropped.is_some() { "a packet that was dropped" } else { "a packet that was sent" });
    }
    let mut rig = Rig::new(requests);
    let got = rig.send(whole.clone());
    for (got, mut expected) in got.into_iter().zip(expected) {
        let mut got: Vec<_> = got.into_iter().map(|packet| packet.bytes).collect();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    }
    assert_eq!(rig.dropped(), drops);
    for (at, flow) in flows.iter().enumerate() {
        let counted = rig.flows.get(&flow.key).map_or(0, |entry| entry.counters.packets());
        assert_eq!(counted, counts.get(&at).copied().unwrap_or(0), "{flow:?}");
    }
    for packet in partial {
        reached("a checksum that is left to others");
        let complete = Carried { offload: Offload::default(), ..packet.clone() };
        let lens = |got: Vec<Vec<Carried>>| -> Vec<Vec<usize>> {
            let check = |packet: Carried| {
                if let Checksum::Partial { start, offset } = packet.offload.checksum {
                    assert!(usize::from(start) + usize::from(offset) + 2 <= packet.bytes.len(), "{packet:?}");
                }
                packet.bytes.len()
            };
            got.into_iter().map(|packets| packets.into_iter().map(check).collect()).collect()
        };
        let before = rig.dropped();
        let ways = [complete, packet].map(|packet| {
            let lens = lens(rig.send(vec![packet]));
            (lens, rig.dropped())
        });
        assert_eq!(ways[0].0, ways[1].0);
        assert_eq!(ways[0].1 - before, ways[1].1 - ways[0].1);
    }
}

/// A worker with the flows of a bridge. An output stands in place of the bridge.
struct Rig {
    worker: Worker,
    flows: FlowTables<FlowCounters>,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
}

impl Rig {
    fn new(requests: &[(usize, FlowMod)]) -> Self {
        let rcu = Rcu::new();
        let rules = BridgeRules {
            limit: 256,
            ageing: 300,
            api_stations: 0,
            bindings: None,
            statics: Vec::new(),
            loop_protection: false,
            ports: (0..PORTS).map(PortIndex).map(BridgePort::plain).collect(),
            snooping: false,
            flows: true,
        };
        let bridge = BridgeTable::new("lan", &rules, HashMap::new());
        let table = Arc::new(FlowTable::new(&rcu));
        let mut tables = FlowTables::default();
        tables.replace(requests, Owner::Api, Duration::ZERO).expect("flows that were read");
        let ports = (0..PORTS).map(|port| (PortNumber(port + 1), PortIndex(port))).collect();
        table.publish(FlowCompiler::default().compile(&tables, ports, &FlowMeters::default()));
        let mut graph = Graph::new();
        let taken: Vec<Arc<Taken>> = (0..=PORTS).map(|_| Arc::default()).collect();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        let node = graph.node("flows", Box::new(Flows::new(&bridge, &table)), &edges);
        let source = Arc::new(Source::default());
        graph.input(Arc::clone(&source) as _, node);
        let drops: Vec<Arc<Drops>> = (0..PORTS).map(|_| Arc::default()).collect();
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Rig { worker, flows: tables, source, taken, drops }
    }

    /// Has the node send a batch. Returns the packets that each port gets, and then those of the bridge.
    fn send(&mut self, packets: Vec<Carried>) -> Vec<Vec<Carried>> {
        self.source.send(packets);
        while self.source.waits() {
            self.worker.turn();
        }
        self.taken.iter().map(|port| port.take()).collect()
    }

    /// Returns the number of all drops.
    fn dropped(&self) -> u64 {
        self.drops.iter().flat_map(|drops| drops.nonzero()).map(|(_, count)| count).sum()
    }
}
