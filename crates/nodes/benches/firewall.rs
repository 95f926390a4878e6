//! The cost of groups: cycles of the time-stamp counter per packet.
//!
//! `cargo bench -p straightline-nodes --bench firewall` prints the cycles of all nodes between receive
//! and send, in batches of 256 packets of 60 bytes. The values are medians over many short rounds, in
//! which all rows alternate, with their difference from the bridge without groups. With `--test` it runs
//! each row once, with few connections, and prints nothing.
//!
//! | row | groups at | packets |
//! |---|---|---|
//! | bridge | no port | of 1000 flows |
//! | udp, tcp | the sender | of as many known connections as the row says |
//! | both ends | sender and receiver | of 1000 known connections of TCP |
//! | new | the sender | each begins a connection of TCP, beside a policy of as many rules as the row says |
//! | denied | the sender | none is allowed |

#![allow(clippy::print_stdout, reason = "a bench prints its results")]

mod rows;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use straightline_conntrack::{PortShare, Settings as ConnectionSettings};
use straightline_firewall::{Definitions, Direction, Group, PortGroups};
use straightline_graph::{Graph, Port};
use straightline_nodes::{Firewall, FirewallControl, FirewallPort, FirewallSettings};
use straightline_packet::{Batch, Level, PortIndex, Rcu, Turn};
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;

use rows::{BATCH, BURST, INPUTS, Row};

/// Turns of a round. A round yields one value.
const TURNS: usize = 160;

const ROUNDS: u32 = 30;

/// The packets of a row.
#[derive(Clone, Copy, Debug)]
struct Load {
    template: [u8; 60],
    /// Flows after which the first one comes again.
    flows: u32,
}

impl Load {
    fn new(transport: Transport, flows: u32) -> Self {
        let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let net = Net::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
        let frame = Frame { src: mac(1), dst: mac(2), tags: [None, None], net, transport, payload_len: 0 };
        let mut template = [0; 60];
        let frame = Frame { payload_len: u16::try_from(60 - frame.headers_len()).unwrap_or(0), ..frame };
        frame.emit(&mut template, Checksum::Complete { payload_sum: 0 }).expect("space for the headers");
        Load { template, flows }
    }

    /// Returns a packet of a flow: flows differ in their remote address, in its last two bytes, and in
    /// the source port.
    fn packet(&self, flow: u32) -> [u8; 60] {
        let mut packet = self.template;
        // Not one after the other: neighbours would be neighbours in tables.
        let [a, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
        packet[32..34].copy_from_slice(&[a, b]);
        packet[34..36].copy_from_slice(&[c | 0x80, d]);
        packet
    }
}

const UDP: Transport = Transport::Udp { src_port: 1, dst_port: 5000 };

fn tcp(flags: Flags) -> Transport {
    Transport::Tcp { src_port: 1, dst_port: 5000, seq: 1000, ack: 2000, flags, window: 8192 }
}

/// A port that receives packets of one flow after the other.
#[derive(Debug)]
struct Source {
    load: Load,
    at: Arc<AtomicU32>,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let mut at = self.at.load(Ordering::Relaxed);
        for _ in 0..max.min(BURST) {
            let Some(id) = turn.accept_owned(PortIndex(0), &self.load.packet(at)) else { break };
            into.push(id);
            at = (at + 1) % self.load.flows;
        }
        self.at.store(at, Ordering::Relaxed);
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Returns a policy of this number of rules, of which the last allows all packets of the bench. The rest
/// are prefixes and ports of others.
fn rules(count: u32) -> Vec<String> {
    let other = |n: u32| format!("tcp {} to 10.{}.{}.0/24", 1 + n % 4000, n >> 8 & 255, n & 255);
    (1..count).map(other).chain(["any to 192.0.0.0/16".to_owned()]).collect()
}

fn control(rcu: &Rcu, rules: &[String], connections: u32) -> FirewallControl {
    let outbound: Vec<_> = rules.iter().map(String::as_str).collect();
    let group = Group::parse("g", &["any from any"], &outbound).expect("rules");
    let groups = PortGroups { groups: vec!["g".to_owned()], trusted: false, source_check: true };
    let share = PortShare {
        half_open: connections,
        new_per_second: u32::MAX,
        each_opener: connections,
        outbound_reserve: connections / 4,
        ..PortShare::new(connections)
    };
    let port = |index| FirewallPort {
        name: format!("vm{index}"),
        index: PortIndex(index),
        groups: groups.clone(),
        share,
        macs: Vec::new(),
        takes_bound: false,
    };
    let settings = FirewallSettings {
        definitions: Definitions::new([group], []),
        ports: vec![port(0), port(1)],
        trusted: Vec::new(),
        connections: ConnectionSettings::default(),
        // Connections begin with any packet.
        pickup: Duration::from_secs(3600),
    };
    FirewallControl::new(settings, rcu, Level::detect()).expect("known groups")
}

/// Returns a row with groups of these rules at the sender, and at the receiver if it has some, with as
/// many connections as its second member says. One sender may take less than a half of a receiver's.
fn row(name: impl Into<String>, load: Load, sender: Option<(&[String], u32)>, has_receiver: bool) -> Row {
    let rcu = Rcu::new();
    let mut graph = Graph::new();
    let mut edges = rows::outputs(&mut graph);
    let control = sender.map(|(rules, connections)| control(&rcu, rules, connections));
    if let Some(control) = control.as_ref().filter(|_| has_receiver) {
        let node = Firewall::new(control, PortIndex(1), Direction::In, false);
        edges[1] = graph.node("groups-in", Box::new(node), &[edges[1]]);
    }
    let mut first = graph.node("bridge", Box::new(rows::bridge(false).node(1)), &edges);
    if let Some(control) = &control {
        let node = Firewall::new(control, PortIndex(0), Direction::Out, false);
        first = graph.node("groups-out", Box::new(node), &[first]);
    }
    let at = Arc::new(AtomicU32::new(0));
    for _ in 0..INPUTS {
        graph.input(Arc::new(Source { load, at: Arc::clone(&at) }), first);
    }
    Row::new(name, graph, rcu.reader())
}

/// Has each flow of a row pass once.
fn warm(mut row: Row, flows: u32) -> Row {
    let mut packets = 0;
    while packets < flows as usize + BATCH {
        packets += row.worker.turn();
    }
    assert_eq!(row.dropped(), 0, "{}", row.name);
    row
}

fn main() {
    let is_bench = std::env::args().any(|word| word == "--bench");
    let (rounds, turns, most) = if is_bench { (ROUNDS, TURNS, 1_000_000) } else { (1, 2, 2000) };
    let ack = tcp(Flags::ACK);
    let few = rules(100);
    let many = rules(if is_bench { 10_000 } else { 200 });
    let none = ["deny any to any".to_owned()];
    // Each packet is that of another flow.
    let syns = Load::new(tcp(Flags::SYN), u32::MAX);
    let known = |name: &str, transport, flows: u32, both| {
        warm(row(format!("{name} {flows}"), Load::new(transport, flows), Some((&few, 4 * flows)), both), flows)
    };
    let mut rows = vec![
        warm(row("bridge", Load::new(UDP, 1000), None, false), 1000),
        known("udp", UDP, 1000, false),
        known("tcp", ack, 1000, false),
        known("tcp, both ends", ack, 1000, true),
        known("tcp", ack, most, false),
        row(format!("new, {} rules", few.len()), syns, Some((&few, 4 * most)), false),
        row(format!("new, {} rules", many.len()), syns, Some((&many, 4 * most)), false),
        row("denied", Load::new(UDP, 1000), Some((&none, 1000)), false),
    ];
    for round in 0..rounds {
        rows.iter_mut().for_each(|row| row.round(round, turns));
    }
    for row in &rows {
        assert_eq!(row.dropped() > 0, row.name == "denied", "{}", row.name);
    }
    if !is_bench {
        return;
    }
    for row in &rows {
        let median = row.median();
        let more = median - rows[0].median();
        let beside = row.beside(&rows[0]);
        println!("{:24} {median:7.1} cycles, {more:6.1} more than the bridge, {beside} of it", row.name);
    }
}
