//! Connections of packets: what `ct` finds, and who pays for what it commits.

use std::collections::HashMap;

use proptest::prelude::*;
use straightline_flow::{NoPortNames, parse_flows};
use straightline_testing::ports::{Narrow, RingSource};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::{MacAddr, vlan};

use super::*;

/// A station: last byte of its address, and its port of TCP or UDP.
type Station = (u8, u16);

fn rig(text: &str) -> Rig {
    let mut rig = Rig::new();
    let flows = parse_flows(text, FlowCommand::Add, &NoPortNames).expect("flows");
    let flows: Vec<_> = flows.into_iter().map(|(_, flow)| flow.into_flow()).collect();
    rig.publish(&flows);
    rig
}

fn frame(net: Net, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let headers = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None; vlan::MAX_TAGS],
        net,
        transport,
        payload_len: payload.len().try_into().expect("short"),
    };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    [&bytes[..], payload].concat()
}

fn net(src: u8, dst: u8) -> Net {
    Net::v4([10, 0, 0, src].into(), [10, 0, 0, dst].into())
}

fn udp(src: Station, dst: Station) -> Vec<u8> {
    frame(net(src.0, dst.0), Transport::Udp { src_port: src.1, dst_port: dst.1 }, b"hello")
}

fn tcp(src: Station, dst: Station, flags: Flags, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let transport = Transport::Tcp { src_port: src.1, dst_port: dst.1, seq, ack, flags, window: 8192 };
    frame(net(src.0, dst.0), transport, b"")
}

impl Rig {
    /// Has a port send a packet. Returns the number of the port that gets it.
    fn way(&mut self, from: u16, bytes: Vec<u8>) -> Option<u16> {
        let got = self.send(vec![Carried::plain(from, bytes)]);
        (1..).zip(got).find(|(_, got)| !got.is_empty()).map(|(port, _)| port)
    }
}

/// A ring in front of the node, and ports that leave packets in it.
struct Waiting {
    worker: Worker,
    ring: Arc<RingSource>,
    ports: Vec<Arc<Narrow>>,
}

impl Waiting {
    fn new(text: &str) -> Self {
        let rcu = Rcu::new();
        let tables = Arc::new(FlowTable::new(&rcu));
        let mut graph = Graph::new();
        let ports: Vec<Arc<Narrow>> = (0..=PORTS).map(|_| Arc::default()).collect();
        let edges: Vec<_> = ports.iter().map(|port| graph.output(Arc::clone(port) as _, true)).collect();
        let indexes = || (0..PORTS).map(PortIndex);
        let node = graph.node("flows", Box::new(Flows::with(indexes().collect(), None, &tables)), &edges);
        let ring = Arc::new(RingSource::new(PortIndex(0)));
        graph.input(Arc::clone(&ring) as _, node);
        let drops: Vec<Arc<Drops>> = (0..PORTS).map(|_| Arc::default()).collect();
        let arena = Arena::new(rcu.reader(), Settings::default(), drops);
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        let mut flows = FlowTables::default();
        let requests = parse_flows(text, FlowCommand::Add, &NoPortNames).expect("flows");
        flows.replace(&requests, Owner::Api, Duration::ZERO).expect("flows that are possible");
        let mut compiler = FlowCompiler::default();
        let settings = FlowConnections { most: MOST_CONNECTIONS, tracking: Default::default() };
        compiler.set_connections(Some(Arc::new(crate::flows::ct::new_table(settings, PORTS.into()))));
        let numbers = indexes().map(|port| (PortNumber(port.0 + 1), port)).collect();
        tables.publish(compiler.compile(&flows, numbers, &FlowMeters::default()));
        Waiting { worker, ring, ports }
    }

    /// Has packets wait for some turns, and then lets them pass. Returns the port that each packet left by.
    fn wait_and_pass(&mut self, frames: &[Vec<u8>]) -> Vec<Option<u16>> {
        self.ring.send(frames.to_vec());
        self.ports.iter().for_each(|port| port.set_space(0));
        for _ in 0..4 {
            self.worker.turn();
        }
        assert_eq!(self.ring.len(), frames.len(), "all wait");
        self.ports.iter().for_each(|port| port.set_space(99));
        while !self.ring.is_empty() {
            self.worker.turn();
        }
        let got: Vec<_> = self.ports.iter().map(|port| port.take()).collect();
        let port_of = |frame: &Vec<u8>| {
            let mut ports = (1..).zip(&got);
            ports.find(|(_, packets)| packets.iter().any(|packet| packet.bytes == *frame)).map(|(port, _)| port)
        };
        frames.iter().map(port_of).collect()
    }
}

/// A packet that waits in its ring, and comes again, counts once for its connection.
#[test]
fn packets_that_come_again_are_searched_once() {
    let mut rig = Waiting::new(STATES);
    let [client, server] = [(1, 5000), (2, 80)];
    let ack = Flags::ACK;
    assert_eq!(rig.wait_and_pass(&[tcp(client, server, Flags::SYN, [100, 0])]), [NEW]);
    assert_eq!(rig.wait_and_pass(&[tcp(server, client, Flags::SYN.with(ack), [500, 101])]), [ANSWER]);
    assert_eq!(rig.wait_and_pass(&[tcp(client, server, ack, [101, 501])]), [KNOWN]);
    let reset = tcp(client, server, Flags::RST, [101, 0]);
    assert_eq!(rig.wait_and_pass(std::slice::from_ref(&reset)), [KNOWN]);

    let whole = frame(net(1, 2), Transport::Udp { src_port: 7, dst_port: 9 }, &[1; 56]);
    assert_eq!(rig.wait_and_pass(&[part_of(&whole, 0, 32)]), [NEW]);
    assert_eq!(rig.wait_and_pass(&[part_of(&whole, 32, 64)]), [NEW]);
    assert_eq!(rig.wait_and_pass(&[part_of(&whole, 32, 64)]), [INVALID], "a second time");
}

/// Returns the fragment with these bytes of a packet's body.
fn part_of(whole: &[u8], begin: usize, end: usize) -> Vec<u8> {
    let mut part = [&whole[..34], &whole[34 + begin..34 + end]].concat();
    let more = if end < 64 { 0x2000 } else { 0 };
    part[16..18].copy_from_slice(&u16::try_from(20 + end - begin).expect("short").to_be_bytes());
    part[20..22].copy_from_slice(&(u16::try_from(begin / 8).expect("short") | more).to_be_bytes());
    part
}

/// Ports 2 to 4 say which state a packet has: new, established, established and an answer.
const STATES: &str = "table=0,ip,actions=ct(table=1)
    table=0,ipv6,actions=ct(table=1)
    table=1,priority=9,ip,ct_state=+trk+new,actions=ct(commit),2
    table=1,priority=9,ct_state=+trk+est-rpl,actions=3
    table=1,priority=9,ct_state=+trk+est+rpl,actions=4
    table=1,priority=8,ct_state=+rel,actions=3,4
    table=1,priority=7,ct_state=+trk+inv,actions=in_port";
const NEW: Option<u16> = Some(2);
const KNOWN: Option<u16> = Some(3);
const ANSWER: Option<u16> = Some(4);
const INVALID: Option<u16> = Some(1);

#[test]
fn a_tcp_connection_is_new_until_it_is_answered() {
    let mut rig = rig(STATES);
    let [client, server] = [(1, 5000), (2, 80)];
    let ack = Flags::ACK;
    assert_eq!(rig.way(0, tcp(server, client, Flags::SYN.with(ack), [500, 101])), INVALID, "nobody asked");
    assert_eq!(rig.way(0, tcp(client, server, Flags::SYN, [100, 0])), NEW);
    assert_eq!(rig.way(0, tcp(client, server, Flags::SYN, [100, 0])), NEW, "nobody has answered");
    assert_eq!(rig.way(0, tcp(server, client, Flags::SYN.with(ack), [500, 101])), ANSWER);
    assert_eq!(rig.way(0, tcp(client, server, ack, [101, 501])), KNOWN);
    assert_eq!(rig.way(0, tcp(server, client, ack, [900_000_000, 101])), INVALID, "out of the window");
    assert_eq!(rig.way(0, tcp(server, client, Flags::RST.with(ack), [501, 101])), ANSWER);
    // As in Open vSwitch, a segment in the middle begins a connection.
    assert_eq!(rig.way(0, tcp((3, 1), server, ack, [7, 7])), NEW);
}

#[test]
fn a_connection_that_is_not_committed_stays_new() {
    let mut rig = rig("ip,actions=ct(table=1)\ntable=1,ct_state=+new,actions=2\ntable=1,ct_state=+inv,actions=3");
    for _ in 0..3 {
        assert_eq!(rig.way(0, udp((1, 7), (2, 9))), Some(2));
        assert_eq!(rig.way(0, udp((2, 9), (1, 7))), Some(2));
    }
}

#[test]
fn a_zone_knows_nothing_of_another() {
    let mut rig = rig("ip,in_port=1,actions=ct(commit,zone=7),2
        ip,in_port=2,actions=load:7->NXM_NX_REG0[0..15],ct(table=1,zone=NXM_NX_REG0[0..15])
        ip,in_port=3,actions=ct(table=1)
        table=1,ct_state=+est,ct_zone=7,actions=3
        table=1,ct_state=+new,ct_zone=0,actions=4");
    assert_eq!(rig.way(0, udp((1, 7), (2, 9))), Some(2));
    assert_eq!(rig.way(1, udp((2, 9), (1, 7))), Some(3));
    assert_eq!(rig.way(2, udp((2, 9), (1, 7))), Some(4));
}

#[test]
fn lists_that_wait_do_not_see_the_connection() {
    let mut rig = rig("ip,actions=resubmit(,1),resubmit(,2)
        table=1,ip,actions=ct(table=3)
        table=3,ip,ct_state=+trk,actions=3,ct(commit),resubmit(,4)
        table=4,ct_state=0,ct_zone=0,actions=in_port
        table=2,ct_state=0,actions=2
        table=2,priority=9,ct_state=+trk,actions=4");
    let got = rig.send(vec![Carried::plain(0, udp((1, 7), (2, 9)))]);
    let got: Vec<_> = got.iter().map(Vec::len).collect();
    assert_eq!(got, [1, 1, 1, 0, 0]);
}

#[test]
fn a_packet_counts_once_and_is_forgotten_by_ct_clear() {
    let mut rig = rig("ip,actions=ct(table=1)
        table=1,priority=9,ct_state=+new,ip,actions=ct(commit),ct(commit),ct(table=2)
        table=1,ct_state=+est,ip,actions=ct(table=2)
        table=2,ct_state=+trk,actions=ct_clear,resubmit(,3)
        table=3,ct_state=0,actions=2");
    assert_eq!(rig.way(0, tcp((1, 5000), (2, 80), Flags::SYN, [100, 0])), Some(2));
    assert_eq!(rig.way(0, tcp((2, 80), (1, 5000), Flags::SYN.with(Flags::ACK), [500, 101])), Some(2));
    let table = rig.compiler.connections().expect("flows search");
    let all: Vec<_> = table.connections(super::super::ct::SHARE, 0).collect();
    assert_eq!(all.iter().map(|c| (c.opener_packets, c.answer_packets)).collect::<Vec<_>>(), [(1, 1)]);
}

#[test]
fn fragments_and_errors_have_the_state_of_their_connection() {
    let mut rig = rig(STATES);
    let whole = frame(net(1, 2), Transport::Udp { src_port: 7, dst_port: 9 }, &[1; 56]);
    let part = |begin, end| part_of(&whole, begin, end);
    assert_eq!(rig.way(0, part(32, 64)), INVALID, "its first one has not come");
    assert_eq!(rig.way(0, part(0, 32)), NEW);
    assert_eq!(rig.way(0, part(32, 64)), NEW);
    let error = |about: &[u8]| {
        let body = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &about[14..42]].concat();
        let mut bytes = frame(net(2, 1), Transport::Udp { src_port: 0, dst_port: 0 }, &body);
        bytes.drain(34..42);
        bytes[14 + 9] = 1;
        bytes[16..18].copy_from_slice(&u16::try_from(20 + body.len()).expect("short").to_be_bytes());
        bytes
    };
    assert_eq!(rig.way(1, error(&whole)), KNOWN, "a related one, to both ports");
    assert_eq!(rig.way(0, error(&udp((1, 8), (2, 9)))), INVALID);
    assert_eq!(rig.way(1, udp((2, 9), (1, 7))), ANSWER);
}

/// Table 0 searches for all packets of a batch, before table 1 commits the first one of them.
#[test]
fn fragments_that_come_together_have_the_state_of_their_first_one() {
    let mut rig = rig(STATES);
    let whole = frame(net(1, 2), Transport::Udp { src_port: 7, dst_port: 9 }, &[1; 56]);
    let parts = [(0, 32), (32, 48), (48, 64), (32, 48)].map(|(begin, end)| part_of(&whole, begin, end));
    let got = rig.send(parts.map(|part| Carried::plain(0, part)).to_vec());
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 0, 0, 0], "one comes a second time");
    let table = rig.compiler.connections().expect("flows search");
    assert_eq!(table.connections(super::super::ct::SHARE, 0).count(), 1);
    assert_eq!(rig.way(1, udp((2, 9), (1, 7))), ANSWER);
}

#[test]
fn a_port_fills_its_own_part_only() {
    let mut rig = rig("ip,actions=ct(commit),4");
    let part = MOST_CONNECTIONS / u32::from(PORTS);
    // Established connections are never evicted.
    for n in 0..2 * part {
        let port = 1000 + u16::try_from(n).expect("few");
        let segment = |flags, numbers| tcp((1, port), (2, 9), flags, numbers);
        let passed = rig.way(0, segment(Flags::SYN, [100, 0])).is_some();
        assert_eq!(passed, n < part, "connection {n}");
        if passed {
            let answer = tcp((2, 9), (1, port), Flags::SYN.with(Flags::ACK), [500, 101]);
            assert!(rig.way(1, answer).is_some() && rig.way(0, segment(Flags::ACK, [101, 501])).is_some());
        }
    }
    assert_eq!(rig.dropped(), [("connections-full", part.into())]);
    // Of exchanges, the idlest one of the same port ends for a new one.
    for n in 0..2 * part {
        let port = 1000 + u16::try_from(n).expect("few");
        assert!(rig.way(2, udp((3, port), (2, 9))).is_some() && rig.way(1, udp((2, 9), (3, port))).is_some());
    }
    assert!(rig.way(1, udp((2, 7), (3, 9))).is_some(), "another port");
}

#[test]
fn what_is_no_ip_packet_is_invalid() {
    let mut rig = rig("actions=resubmit(,1)\ntable=1,ip,actions=ct(table=2)\ntable=2,ct_state=+inv,actions=2");
    let mut igmp = frame(net(1, 2), Transport::Udp { src_port: 0, dst_port: 0 }, b"");
    igmp[23] = 1;
    assert_eq!(rig.way(0, igmp), Some(2), "an answer to no echo request");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Datagrams of few stations in two zones, by several ports: a connection is a pair of stations, it
    /// begins when it is committed, and is established once it was answered.
    #[test]
    fn states_agree_with_a_map(
        packets in prop::collection::vec((0..2_u16, 1..4_u8, 1..4_u8, any::<bool>(), any::<bool>()), 1..60),
    ) {
        // Port 1 searches in zone 0, port 2 in zone 1. A packet to UDP port 9 commits.
        let mut rig = rig("priority=9,udp,in_port=1,tp_dst=9,actions=ct(table=1)
            priority=8,udp,in_port=1,actions=ct(table=2)
            priority=9,udp,in_port=2,tp_dst=9,actions=ct(table=3,zone=1)
            priority=8,udp,in_port=2,actions=ct(table=2,zone=1)
            table=1,ip,actions=resubmit(,2),ct(commit)
            table=3,ip,actions=resubmit(,2),ct(commit,zone=1)
            table=2,ct_state=+trk+new-est-rpl-inv,actions=output:3
            table=2,ct_state=+trk+est-new-rpl-inv,actions=output:4
            table=2,ct_state=+trk+est+rpl-new-inv,actions=normal");
        let mut answered: HashMap<(u16, Station, Station), bool> = HashMap::new();
        for (zone, src, dst, to_nine, from_nine) in packets {
            let port = |is_nine| if is_nine { 9 } else { 7 };
            let src = (src, port(from_nine));
            let dst = (dst, port(to_nine));
            if src == dst {
                continue;
            }
            let expected = match (answered.get(&(zone, src, dst)).copied(), answered.get_mut(&(zone, dst, src))) {
                (Some(true), _) => 4,
                (Some(false), _) => 3,
                (None, Some(is_answered)) => {
                    *is_answered = true;
                    5
                }
                (None, None) => {
                    if dst.1 == 9 {
                        answered.insert((zone, src, dst), false);
                    }
                    3
                }
            };
            prop_assert_eq!(rig.way(zone, udp(src, dst)), Some(expected), "{:?} to {:?}", src, dst);
        }
    }
}
