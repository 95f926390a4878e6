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
//! | udp, tcp | the sender | data of as many connections as the row says, whose both sides have spoken |
//! | both ends | sender and receiver | of 1000 known connections of TCP |
//! | new | the sender | each begins a connection of TCP, beside a policy of as many rules as the row says |
//! | denied | the sender | none is allowed |

#![allow(clippy::print_stdout, reason = "a bench prints its results")]

mod rows;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use straightline_conntrack::{PortShare, Settings as ConnectionSettings};
use straightline_firewall::{Definitions, Direction, Group, PortGroups};
use straightline_graph::{Clock, Graph, Port};
use straightline_nodes::{Firewall, FirewallControl, FirewallPort, FirewallSettings};
use straightline_packet::{Batch, Level, PortIndex, Rcu, Turn};
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;

use rows::{BURST, INPUTS, Row};

/// Turns of a round. A round yields one value.
const TURNS: usize = 160;

const ROUNDS: u32 = 30;

/// The packets of a row.
#[derive(Clone, Copy, Debug)]
struct Load {
    transport: Transport,
    /// Flows after which the first one comes again.
    flows: u32,
}

/// Bytes of a packet, and those of TCP's data in it.
const BYTES: usize = 60;
const DATA: u32 = 6;

/// A step of the script: all flows take one before the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    Open,
    Answer,
    Confirm,
    /// An answer whose window is scaled.
    Widen,
    /// Data from the side that has opened, one packet after the other.
    #[default]
    Data,
}

impl Load {
    /// Returns a packet of a flow, of one side: flows differ in their remote address, in its last two
    /// bytes, and in the source port. `pass` counts the packets of each flow.
    fn packet(&self, step: Step, flow: u32, pass: u32) -> [u8; BYTES] {
        // Not one after the other: neighbours would be neighbours in tables.
        let [a, b, c, d] = flow.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let remote = Ipv4Addr::new(192, 0, a, b);
        let port = u16::from_be_bytes([c | 0x80, d]);
        let is_answer = matches!(step, Step::Answer | Step::Widen);
        let ends = |one, other| if is_answer { (other, one) } else { (one, other) };
        let (src_port, dst_port) = ends(port, 5000);
        let transport = match self.transport {
            Transport::Tcp { flags, .. } => {
                let flags = match step {
                    Step::Open => Flags::SYN,
                    Step::Answer => Flags(Flags::SYN.0 | Flags::ACK.0),
                    Step::Confirm | Step::Widen => Flags::ACK,
                    Step::Data => flags,
                };
                let sent = if matches!(step, Step::Open | Step::Answer) { 0 } else { 1 };
                let (seq, ack) = if is_answer { (2000 + sent, 1001) } else { (1000 + sent, 2001) };
                Transport::Tcp { src_port, dst_port, seq: seq + pass * DATA, ack, flags, window: 0xffff }
            }
            _ => Transport::Udp { src_port, dst_port },
        };
        let (src, dst) = if is_answer { (mac(2), mac(1)) } else { (mac(1), mac(2)) };
        let net = if is_answer { Net::v4(remote, own) } else { Net::v4(own, remote) };
        let frame = Frame { src, dst, tags: [None, None], net, transport, payload_len: 0 };
        let spare = u16::try_from(BYTES - frame.headers_len()).unwrap_or(0);
        let has_data = step == Step::Data || matches!(self.transport, Transport::Udp { .. });
        let mut bytes = [0; BYTES];
        let frame = Frame { payload_len: if has_data { spare } else { 0 }, ..frame };
        frame.emit(&mut bytes, Checksum::Complete { payload_sum: 0 }).expect("space for the headers");
        if matches!(step, Step::Open | Step::Answer) && matches!(self.transport, Transport::Tcp { .. }) {
            scale(&mut bytes);
        }
        bytes
    }
}

/// Adds the greatest window scale to a SYN. The checksum of TCP is wrong then: nobody looks at it.
fn scale(bytes: &mut [u8; BYTES]) {
    bytes[16..18].copy_from_slice(&44_u16.to_be_bytes());
    bytes[46] = 6 << 4;
    bytes[54..58].copy_from_slice(&[1, 3, 3, 14]);
}

const UDP: Transport = Transport::Udp { src_port: 1, dst_port: 5000 };

fn tcp(flags: Flags) -> Transport {
    Transport::Tcp { src_port: 1, dst_port: 5000, seq: 0, ack: 0, flags, window: 0xffff }
}

/// The place of a row's sources in the script.
#[derive(Debug, Default)]
struct Script {
    step: AtomicU8,
    /// Packets that were sent in this step.
    at: AtomicU32,
}

const STEPS: [Step; 5] = [Step::Open, Step::Answer, Step::Confirm, Step::Widen, Step::Data];

/// A port that receives packets of one flow after the other.
#[derive(Debug)]
struct Source {
    index: PortIndex,
    load: Load,
    script: Arc<Script>,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let step = STEPS[usize::from(self.script.step.load(Ordering::Relaxed)) % STEPS.len()];
        if matches!(step, Step::Answer | Step::Widen) != (self.index == PortIndex(1)) {
            return;
        }
        let mut at = self.script.at.load(Ordering::Relaxed);
        let most = if step == Step::Data { u32::MAX } else { self.load.flows };
        for _ in 0..max.min(BURST) {
            if at == most {
                break;
            }
            let packet = self.load.packet(step, at % self.load.flows, at / self.load.flows);
            let Some(id) = turn.accept_owned(self.index, &packet) else { break };
            into.push(id);
            at += 1;
        }
        self.script.at.store(at, Ordering::Relaxed);
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
        by_protocol: false,
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
        messages: Vec::new(),
        networks: Vec::new(),
        places: 2,
    };
    FirewallControl::new(settings, rcu, Level::detect(), Clock::real()).expect("known groups")
}

/// Returns a row with groups of these rules at the sender, and at the receiver if it has some, with as
/// many connections as its second member says. One sender may take less than a half of a receiver's.
/// Both sides of each flow have spoken if it is `known`.
fn row(
    name: impl Into<String>,
    load: Load,
    sender: Option<(&[String], u32)>,
    has_receiver: bool,
    is_known: bool,
) -> Row {
    let rcu = Rcu::new();
    let mut graph = Graph::new();
    let mut edges = rows::outputs(&mut graph);
    let control = sender.map(|(rules, connections)| control(&rcu, rules, connections));
    let groups = |graph: &mut Graph, port, direction, to| match &control {
        Some(control) if port == 0 || has_receiver => {
            let name = if direction == Direction::In { "groups-in" } else { "groups-out" };
            graph.node(name, Box::new(Firewall::new(control, PortIndex(port), direction, false)), &[to])
        }
        _ => to,
    };
    for port in [0, 1] {
        edges[usize::from(port)] = groups(&mut graph, port, Direction::In, edges[usize::from(port)]);
    }
    let bridge = graph.node("bridge", Box::new(rows::bridge(false).node(1)), &edges);
    let [first, second] = [0, 1].map(|port| groups(&mut graph, port, Direction::Out, bridge));
    let script = Arc::<Script>::default();
    let source = |index| Arc::new(Source { index: PortIndex(index), load, script: Arc::clone(&script) });
    for _ in 0..INPUTS {
        graph.input(source(0), first);
    }
    if is_known {
        graph.input(source(1), second);
    }
    let mut row = Row::new(name, graph, rcu.reader());
    for (nth, step) in (0..).zip(STEPS) {
        script.step.store(nth, Ordering::Relaxed);
        script.at.store(0, Ordering::Relaxed);
        while is_known && step != Step::Data && script.at.load(Ordering::Relaxed) < load.flows {
            row.worker.turn();
        }
    }
    assert_eq!(row.dropped(), 0, "{}", row.name);
    row
}

fn main() {
    let is_bench = std::env::args().any(|word| word == "--bench");
    let (rounds, turns, most) = if is_bench { (ROUNDS, TURNS, 1_000_000) } else { (1, 2, 2000) };
    let data = tcp(Flags::ACK);
    let few = rules(100);
    let many = rules(if is_bench { 10_000 } else { 200 });
    let none = ["deny any to any".to_owned()];
    // Each packet is that of another flow.
    let syns = Load { transport: tcp(Flags::SYN), flows: u32::MAX };
    let datagrams = Load { transport: UDP, flows: 1000 };
    let known = |name: &str, transport, flows: u32, both| {
        row(format!("{name} {flows}"), Load { transport, flows }, Some((&few, 4 * flows)), both, true)
    };
    let mut rows = vec![
        row("bridge", datagrams, None, false, true),
        known("udp", UDP, 1000, false),
        known("tcp", data, 1000, false),
        known("tcp, both ends", data, 1000, true),
        known("tcp", data, most, false),
        row(format!("new, {} rules", few.len()), syns, Some((&few, 4 * most)), false, false),
        row(format!("new, {} rules", many.len()), syns, Some((&many, 4 * most)), false, false),
        row("denied", datagrams, Some((&none, 1000)), false, false),
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
