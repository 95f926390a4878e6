//! Two ports with groups, which send packets to each other through their nodes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use straightline_conntrack::{PortShare, Settings as ConnectionSettings, Side};
use straightline_firewall::{Definitions, Group, Level, PortGroups};
use straightline_graph::{Clock, EpollWaiter, Graph, Idle, NodeControl, TableView, Worker};
use straightline_packet::Checksum::Partial;
use straightline_packet::{Arena, Drops, MAX_BATCH, Offload, Rcu, Settings};
use straightline_testing::ports::{Carried, Source, Taken};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::{IpProtocol, MacAddr, vlan};

use proptest::prelude::*;

mod again;
mod members;
mod without_rule;

use super::facts::Facts;
use super::*;
use crate::MacPrefix;

const VM: PortIndex = PortIndex(0);
const OTHER: PortIndex = PortIndex(1);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A port with groups, and another one without any.
struct Rig {
    worker: Worker,
    control: FirewallControl,
    rcu: Rcu,
    /// Packets of each port.
    sources: [Arc<Source>; 2],
    /// Packets that have passed to the other port, and to the port with groups.
    taken: [Arc<Taken>; 2],
    drops: Vec<Arc<Drops>>,
}

fn settings(inbound: &[&str], outbound: &[&str], change: impl FnOnce(&mut FirewallSettings)) -> FirewallSettings {
    let group = Group::parse("g", inbound, outbound).expect("rules");
    let groups = PortGroups { groups: vec!["g".to_owned()], trusted: false, source_check: true };
    let port = FirewallPort {
        name: "vm".to_owned(),
        index: VM,
        groups,
        share: PortShare::new(1000),
        macs: Vec::new(),
        takes_bound: false,
    };
    let mut settings = FirewallSettings {
        definitions: Definitions::new([group], []),
        ports: vec![port],
        trusted: Vec::new(),
        connections: ConnectionSettings::default(),
        pickup: Duration::ZERO,
        messages: vec![MessageSettings { port: VM, most: Some(200) }],
        networks: vec![GuardedNetwork {
            name: "lan".to_owned(),
            ports: vec![(VM, "vm".to_owned()), (OTHER, "other".to_owned())],
        }],
        places: 2,
    };
    change(&mut settings);
    settings
}

impl Rig {
    fn new(inbound: &[&str], outbound: &[&str]) -> Self {
        Self::with(settings(inbound, outbound, |_| ()))
    }

    fn with(settings: FirewallSettings) -> Self {
        Self::with_node(settings, |control| Box::new(Firewall::new(control, VM, Direction::In, false)))
    }

    /// Creates a rig whose packets of the other port pass this node.
    fn with_node(settings: FirewallSettings, inbound: impl FnOnce(&FirewallControl) -> Box<dyn Node>) -> Self {
        let rcu = Rcu::new();
        let control = FirewallControl::new(settings, &rcu, Level::detect(), Clock::real()).expect("known groups");
        let mut graph = Graph::new();
        let taken: [Arc<Taken>; 2] = Default::default();
        let outputs = taken.each_ref().map(|port| graph.output(Arc::clone(port) as _, false));
        let sources: [Arc<Source>; 2] = Default::default();
        let outbound: Box<dyn Node> = Box::new(Firewall::new(&control, VM, Direction::Out, false));
        for ((node, output), source) in [outbound, inbound(&control)].into_iter().zip(outputs).zip(&sources) {
            let node = graph.node("groups", node, &[output]);
            graph.input(Arc::clone(source) as _, node);
        }
        let drops: Vec<Arc<Drops>> = (0..3).map(|_| Arc::default()).collect();
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.set_now(Clock::real().seconds());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Rig { worker, control, rcu, sources, taken, drops }
    }

    /// Has the port with groups send frames, or get them. Returns the number that passes.
    fn pass(&mut self, direction: Direction, frames: Vec<Vec<u8>>) -> usize {
        let (at, port) = if direction == Direction::Out { (0, VM) } else { (1, OTHER) };
        let mut passed = 0;
        for some in frames.chunks(MAX_BATCH) {
            self.sources[at].send(some.iter().map(|bytes| Carried::plain(port.0, bytes.clone())).collect());
            while self.sources[at].waits() {
                self.worker.turn();
            }
            passed += self.taken[at].take().len();
        }
        passed
    }

    fn sends(&mut self, frame: Vec<u8>) -> bool {
        self.pass(Direction::Out, vec![frame]) == 1
    }

    fn gets(&mut self, frame: Vec<u8>) -> bool {
        self.pass(Direction::In, vec![frame]) == 1
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.drops.iter().map(|drops| drops.count(reason)).sum()
    }

    /// Puts another policy in force.
    fn change(&mut self, settings: FirewallSettings) {
        let next = FirewallControl::new(settings, &self.rcu, Level::detect(), Clock::real()).expect("known groups");
        next.commit(&self.control);
        self.control = next;
    }
}

fn frame(src: Ipv4Addr, dst: Ipv4Addr, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let headers = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None; vlan::MAX_TAGS],
        net: Net::v4(src, dst),
        transport,
        payload_len: payload.len().try_into().expect("short"),
    };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    [&bytes[..], payload].concat()
}

fn udp(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16)) -> Vec<u8> {
    frame(src.0, dst.0, Transport::Udp { src_port: src.1, dst_port: dst.1 }, b"hello")
}

fn tcp(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), flags: Flags, [seq, ack]: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let transport = Transport::Tcp { src_port: src.1, dst_port: dst.1, seq, ack, flags, window: 8192 };
    frame(src.0, dst.0, transport, payload)
}

#[test]
fn only_allowed_packets_and_their_answers_pass() {
    let mut rig = Rig::new(&["tcp 80 from any"], &["udp 53 to 192.0.2.0/24"]);
    let [own, peer] = [(OWN, 4000), (PEER, 53)];
    assert!(!rig.gets(udp(peer, own)), "an answer before the question");
    assert!(rig.sends(udp(own, peer)));
    assert!(rig.gets(udp(peer, own)), "the answer");
    assert!(!rig.gets(udp(peer, (OWN, 4001))), "an answer to another port");
    assert!(!rig.gets(udp((PEER, 54), own)), "an answer of another port");
    assert!(!rig.sends(udp(own, (PEER, 54))));
    assert!(!rig.sends(udp(own, (Ipv4Addr::new(198, 51, 100, 1), 53))));
    assert_eq!(rig.dropped(Reason::Denied), 5);
    assert_eq!(rig.control.counts(VM).expect("a share").open + rig.control.counts(VM).expect("a share").closed, 1);
}

/// Returns a router solicitation (RFC 4861, 4.1).
fn router_solicitation(dst: [u8; 6]) -> Vec<u8> {
    let src = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let all_routers = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let ethernet = [&dst[..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd]].concat();
    let ip = [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &src, &all_routers].concat();
    [ethernet, ip, vec![133, 0, 0, 0, 0, 0, 0, 0]].concat()
}

/// Each port of a bridge gets what is sent to many, from all others. It is counted apart, and is no event.
#[test]
fn packets_to_many_that_no_rule_allows_are_unsolicited() {
    const ALL: [u8; 6] = [0xff; 6];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
    const ROUTERS: [u8; 6] = [0x33, 0x33, 0, 0, 0, 2];
    const UNICAST: [u8; 6] = [2, 0, 0, 0, 0, 2];
    let to = |mac: [u8; 6], frame: Vec<u8>| [&mac[..], &frame[6..]].concat();
    let broadcast = |port| to(ALL, udp((PEER, 7), (Ipv4Addr::BROADCAST, port)));
    let mut rig = Rig::new(&["udp 9 from any", "deny udp 10 from any"], &["any to any"]);
    let news = |rig: &Rig| rig.control.events(&TableView { now: 1.0, port: &|port| format!("p{}", port.0) }).len();
    let unsolicited = [
        broadcast(11),
        to(GROUP, udp((PEER, 7), (Ipv4Addr::new(239, 1, 2, 3), 11))),
        [&ALL[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[0; 46]].concat(),
        router_solicitation(ROUTERS),
        router_solicitation(UNICAST),
    ];
    assert_eq!(rig.pass(Direction::In, unsolicited.to_vec()), 0);
    assert_eq!((rig.dropped(Reason::Unsolicited), rig.dropped(Reason::Denied), news(&rig)), (5, 0, 0));
    assert!(rig.gets(broadcast(9)), "a rule allows it");
    // Others are denied as before: a unicast packet, one that a rule denies, and those of a router that is none.
    let mut advertisement = router_solicitation(ROUTERS);
    advertisement[54] = 134;
    for denied in [
        to(UNICAST, udp((PEER, 7), (OWN, 11))),
        to(ALL, udp((PEER, 7), (OWN, 13))),
        to(GROUP, udp((PEER, 7), (OWN, 12))),
        broadcast(10),
        advertisement,
        to(ALL, udp((PEER, 67), (OWN, 68))),
    ] {
        let before = rig.dropped(Reason::Denied);
        assert!(!rig.gets(denied.clone()));
        assert_eq!((rig.dropped(Reason::Denied) - before, rig.dropped(Reason::Unsolicited)), (1, 5), "{denied:?}");
        assert_eq!(news(&rig), 1, "{denied:?}");
    }
    let mut open = Rig::new(&["any from any"], &[]);
    assert!(!open.gets(router_solicitation(ROUTERS)), "no router is behind the port");
    assert_eq!((open.dropped(Reason::Unsolicited), news(&open)), (1, 0));
    let mut closed = Rig::new(&[], &[]);
    assert!(!closed.sends(broadcast(11)));
    assert_eq!(closed.dropped(Reason::Denied), 1, "what the guest sends is denied");
    let mut trusted = Rig::with(settings(&[], &[], |settings| settings.ports[0].groups.trusted = true));
    assert!(trusted.gets(router_solicitation(ROUTERS)), "a router may be behind the port");
    // One with another hop limit is not from the link. A rule that denies it speaks of it.
    let rules = ["deny icmp6 router-solicitation from any log"];
    let mut logged = Rig::with(settings(&rules, &[], |settings| settings.ports[0].groups.trusted = true));
    let mut from_elsewhere = router_solicitation(ROUTERS);
    from_elsewhere[21] = 64;
    assert!(!logged.gets(from_elsewhere));
    assert_eq!((logged.dropped(Reason::Denied), news(&logged)), (1, 1));
}

#[test]
fn a_tcp_connection_from_its_begin_to_its_end() {
    let mut rig = Rig::new(&["tcp 80 from any"], &[]);
    let [client, server] = [(PEER, 50_000), (OWN, 80)];
    let ack = Flags::ACK;
    assert!(!rig.gets(tcp(client, server, ack, [100, 500], b"data")), "no SYN");
    assert_eq!(rig.dropped(Reason::Invalid), 1);
    assert!(rig.gets(tcp(client, server, Flags::SYN, [100, 0], b"")));
    assert!(rig.sends(tcp(server, client, Flags::SYN.with(ack), [500, 101], b"")));
    assert!(rig.gets(tcp(client, server, ack, [101, 501], b"GET")));
    assert!(rig.sends(tcp(server, client, ack, [501, 104], b"page")));
    assert!(!rig.gets(tcp(client, server, Flags::RST, [90_000_000, 0], b"")), "a guessed reset");
    assert!(rig.sends(tcp(server, client, Flags::FIN.with(ack), [505, 104], b"")));
    assert!(rig.gets(tcp(client, server, Flags::FIN.with(ack), [104, 506], b"")));
    assert!(rig.sends(tcp(server, client, ack, [506, 105], b"")));
    assert_eq!(rig.dropped(Reason::Invalid), 2);
    assert!(!rig.sends(tcp((OWN, 1), client, Flags::SYN, [1, 0], b"")), "the port may not begin one");
}

#[test]
fn packets_of_one_batch_find_the_connection_that_the_first_one_opens() {
    let mut rig = Rig::new(&["udp 9 from any"], &[]);
    let frames = vec![udp((PEER, 7), (OWN, 9)); 200];
    assert_eq!(rig.pass(Direction::In, frames), 200);
    let counts = rig.control.counts(VM).expect("a share");
    assert_eq!(counts.inbound, 1, "{counts:?}");
    let connections: Vec<_> = rig.control.connections(VM, |connections| connections.collect());
    let [(connection, rule)] = &connections[..] else { panic!("{connections:?}") };
    assert_eq!((connection.key.local_port(), rule.as_str()), (9, "g:in:1"));
}

#[test]
fn a_connection_that_a_new_policy_denies_ends_with_its_next_packet() {
    let mut rig = Rig::new(&["udp 9 from any", "udp 10 from any"], &[]);
    assert!(rig.gets(udp((PEER, 7), (OWN, 9))) && rig.gets(udp((PEER, 7), (OWN, 10))));
    rig.change(settings(&["udp 10 from any"], &[], |_| ()));
    // The answer of the port shows it as well as a packet to it.
    assert!(!rig.sends(udp((OWN, 9), (PEER, 7))));
    assert!(rig.sends(udp((OWN, 10), (PEER, 7))));
    assert!(rig.gets(udp((PEER, 7), (OWN, 10))));
    assert_eq!(rig.control.counts(VM).expect("a share").inbound, 1);
}

/// Returns a packet of ICMP with these bytes.
fn icmp(src: Ipv4Addr, dst: Ipv4Addr, body: &[u8]) -> Vec<u8> {
    let mut bytes = frame(src, dst, Transport::Udp { src_port: 0, dst_port: 0 }, body);
    // In place of UDP: without its header.
    bytes.drain(34..42);
    bytes[14 + 9] = 1;
    let total = u16::try_from(20 + body.len()).expect("short");
    bytes[14 + 2..14 + 4].copy_from_slice(&total.to_be_bytes());
    bytes
}

/// Returns a router's error about a packet.
fn error(about: &[u8], to: Ipv4Addr) -> Vec<u8> {
    let quoted = &about[14..about.len().min(14 + 28)];
    icmp(Ipv4Addr::new(203, 0, 113, 1), to, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], quoted].concat())
}

#[test]
fn errors_pass_if_they_quote_a_packet_of_a_connection() {
    let mut rig = Rig::new(&[], &["udp 53 to any"]);
    let question = udp((OWN, 4000), (PEER, 53));
    assert!(!rig.gets(error(&question, OWN)), "nothing was asked");
    assert!(rig.sends(question.clone()));
    assert!(rig.gets(error(&question, OWN)));
    assert!(!rig.gets(error(&question, Ipv4Addr::new(10, 0, 0, 9))), "to another station");
    assert!(!rig.gets(error(&udp((OWN, 4001), (PEER, 53)), OWN)), "another packet");
}

/// The error may be the first packet of its connection behind a change of the policy.
#[test]
fn errors_about_connections_that_the_next_policy_allows_pass() {
    let mut rig = Rig::new(&[], &["udp 53 to any", "icmp echo-request to any"]);
    let packets = [udp((OWN, 4000), (PEER, 53)), icmp(OWN, PEER, &[8, 0, 0, 0, 0, 5, 0, 1])];
    for packet in &packets {
        assert!(rig.sends(packet.clone()));
    }
    rig.change(settings(&["udp 9 from any"], &["udp 53 to any", "icmp echo-request to any"], |_| ()));
    for packet in &packets {
        assert!(rig.gets(error(packet, OWN)));
    }
    rig.change(settings(&[], &["icmp echo-request to any"], |_| ()));
    assert!(!rig.gets(error(&packets[0], OWN)), "its connection is denied now");
    assert!(rig.gets(error(&packets[1], OWN)));
    let [left] = rig.control.connections(VM, |all| all.map(|(one, _)| one).collect::<Vec<_>>())[..] else {
        panic!("one connection is left")
    };
    assert_eq!(left.key.protocol(), IpProtocol::ICMP);
}

/// A priority tag names no VLAN: a receiver takes the packet for what is behind.
#[test]
fn packets_behind_priority_tags_are_judged_as_those_without() {
    let tagged = |count: usize, frame: &[u8]| {
        let tags = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(3);
        [&frame[..12], &tags[..4 * count], &frame[12..]].concat()
    };
    let mut arp = vec![0; 42];
    arp[..12].copy_from_slice(&frame(OWN, PEER, Transport::Udp { src_port: 1, dst_port: 1 }, b"")[..12]);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    for count in 1..=4 {
        let port = 4000 + u16::try_from(count).expect("few");
        let mut rig = Rig::new(&[], &["udp 53 to any", "ethertype vlan"]);
        assert!(rig.sends(tagged(count, &udp((OWN, port), (PEER, 53)))), "{count} tags");
        assert!(rig.gets(udp((PEER, 53), (OWN, port))), "its answer");
        assert!(rig.gets(tagged(count, &udp((PEER, 53), (OWN, port)))), "its answer, with tags");
        assert!(rig.sends(tagged(count, &arp)), "ARP behind {count} tags");
        assert!(!rig.sends(tagged(count, &udp((OWN, port), (PEER, 54)))), "it is no frame of a VLAN");
        assert!(!rig.gets(tagged(count, &udp((PEER, 9), (OWN, 9)))), "nobody allows it");
        // Whatever the groups allow: no server of DHCP, no router.
        let mut rig = Rig::new(&["any from any", "ethertype vlan"], &["any to any", "ethertype vlan"]);
        assert!(!rig.sends(tagged(count, &udp((OWN, 67), (PEER, 68)))), "a server of DHCP behind {count} tags");
        assert!(!rig.sends(tagged(count, &icmp(OWN, PEER, &[9, 0, 0, 0, 0, 0, 0, 0]))), "a router behind {count} tags");
        let with_vlan = [&tagged(count, &arp)[..12 + 4 * count], &[0x81, 0, 0, 5], &arp[12..]].concat();
        assert!(rig.sends(with_vlan), "a frame of a VLAN behind {count} tags");
    }
    let mut rig = Rig::new(&[], &["any to any", "ethertype vlan"]);
    let hidden = rig.dropped(Reason::Hidden);
    assert!(!rig.sends(tagged(5, &udp((OWN, 1), (PEER, 53)))), "receivers differ in what they see");
    assert_eq!(rig.dropped(Reason::Hidden), hidden + 1);
}

/// Checksums and segments that are left to others are those of the packet behind the tags.
#[test]
fn offloads_behind_priority_tags_cover_the_transport_only() {
    let plain = udp((OWN, 1), (PEER, 2));
    let bytes = [&plain[..12], &[0x81, 0, 0, 0], &plain[12..]].concat();
    for (start, offset, passes) in [(38, 6, true), (34, 6, false), (38, 2, false), (14, 0, false)] {
        let mut rig = Rig::new(&[], &["any to any"]);
        let offload = Offload { checksum: Partial { start, offset }, gso: None };
        rig.sources[0].send(vec![Carried { port: 0, bytes: bytes.clone(), offload }]);
        rig.worker.turn();
        assert_eq!(rig.taken[0].take().len(), usize::from(passes), "a checksum at {start} + {offset}");
    }
}

#[test]
fn frames_that_hide_something_drop() {
    let mut rig = Rig::new(&["any from any"], &["any to any"]);
    let good = udp((OWN, 1), (PEER, 2));
    assert!(rig.sends(good.clone()));
    let tag = [&good[..12], &[0x81, 0, 0, 5], &good[12..]].concat();
    assert!(!rig.sends(tag), "a tag");
    let llc = [&good[..12], &[0, 41, 0xaa, 0xaa, 3, 0, 0, 0], &good[12..]].concat();
    assert!(!rig.sends(llc), "IP behind LLC");
    let mut long = good.clone();
    long[16] = 4;
    assert!(!rig.sends(long), "a length beyond the frame");
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    fragment.truncate(14 + 20 + 4);
    fragment[17] = 24;
    assert!(!rig.sends(fragment), "a first fragment without its ports");
    let mut routed = [&good[..34], &[131, 7, 4, 10, 0, 0, 9, 0], &good[34..]].concat();
    routed[14] = 0x47;
    routed[17] += 8;
    assert!(!rig.sends(routed.clone()), "a source route");
    routed[34] = 148;
    routed[35] = 8;
    assert!(rig.sends(routed), "another option");
    for (start, offset) in [(14, 12), (14, 16), (34, 0), (34, 2), (0, 26)] {
        let offload = Offload { checksum: Partial { start, offset }, gso: None };
        rig.sources[0].send(vec![Carried { port: 0, bytes: good.clone(), offload }]);
        rig.worker.turn();
        assert!(rig.taken[0].take().is_empty(), "a checksum at {start} + {offset}");
    }
    let mut version = good.clone();
    version[14] = 0x65;
    assert!(!rig.sends(version), "another version than the type says");
    let mut lldp = good;
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert!(!rig.sends(lldp));
}

/// Returns the parts of an IPv4 packet without options, cut at these offsets.
fn cut(frame: &[u8], id: u16, at: &[usize]) -> Vec<Vec<u8>> {
    let body = &frame[34..];
    let ends = at.iter().copied().chain([body.len()]);
    let begins = [0].into_iter().chain(at.iter().copied());
    let part = |(begin, end): (usize, usize)| {
        let mut part = [&frame[..34], &body[begin..end]].concat();
        let total = u16::try_from(20 + end - begin).expect("short");
        let more = if end < body.len() { 0x2000 } else { 0 };
        let place = u16::try_from(begin / 8).expect("short") | more;
        part[16..18].copy_from_slice(&total.to_be_bytes());
        part[18..20].copy_from_slice(&id.to_be_bytes());
        part[20..22].copy_from_slice(&place.to_be_bytes());
        part
    };
    begins.zip(ends).map(part).collect()
}

#[test]
fn fragments_follow_their_first_one() {
    let mut rig = Rig::new(&["udp 9 from any"], &[]);
    let datagram = |port| frame(PEER, OWN, Transport::Udp { src_port: 7, dst_port: port }, &[1; 92]);
    let good = cut(&datagram(9), 5, &[40, 80]);
    assert!(!rig.gets(good[1].clone()), "before the first one");
    assert_eq!(rig.pass(Direction::In, good.clone()), 3, "in one batch");
    let again = cut(&datagram(9), 6, &[40, 80]);
    assert!(again.into_iter().all(|part| rig.gets(part)), "one after the other");
    assert!(!rig.gets(good[1].clone()), "a second time");
    let denied = cut(&datagram(10), 7, &[40, 80]);
    assert_eq!(rig.pass(Direction::In, denied), 0);
    let tiny = cut(&datagram(9), 8, &[0, 8]);
    assert!(!rig.gets(tiny[2].clone()));
    assert_eq!(rig.dropped(Reason::Denied), 1);
    assert_eq!(rig.dropped(Reason::FragmentRefused), 5);
}

/// Otherwise a change of rules would lose a packet of an allowed connection.
#[test]
fn a_datagram_goes_on_where_the_next_policy_allows_it() {
    let old = [&["udp 9 from any", "icmp"], &["udp 9 to any", "icmp"]];
    let datagram = |[src, dst]: [Ipv4Addr; 2], port| {
        cut(&frame(src, dst, Transport::Udp { src_port: 7, dst_port: port }, &[1; 92]), 5, &[40])
    };
    let echo = |kind, [src, dst]: [Ipv4Addr; 2]| {
        cut(&icmp(src, dst, &[&[kind, 0, 0, 0, 0, 5, 0, 1][..], &[1; 92]].concat()), 6, &[40])
    };
    let inward = [PEER, OWN];
    let outward = [OWN, PEER];
    for (what, new, passes) in [
        ("the same rules", old, true),
        (
            "other rules that allow it",
            [&["udp 1-100 from any", "icmp type 8 from any"], &["udp to any", "icmp type 8 to any"]],
            true,
        ),
        (
            "rules that allow something else",
            [&["udp 10 from any", "icmp type 13 from any"], &["udp 10 to any", "tcp to any"]],
            false,
        ),
    ] {
        let mut rig = Rig::new(old[0], old[1]);
        let datagrams = [
            (Direction::In, datagram(inward, 9)),
            (Direction::Out, datagram(outward, 9)),
            (Direction::In, echo(8, inward)),
            (Direction::Out, echo(0, outward)),
        ];
        for (direction, parts) in &datagrams {
            assert_eq!(rig.pass(*direction, vec![parts[0].clone()]), 1, "{what}: {direction:?}, the first part");
        }
        rig.change(settings(new[0], new[1], |_| ()));
        for (direction, parts) in &datagrams {
            let count = rig.pass(*direction, vec![parts[1].clone()]);
            assert_eq!(count, usize::from(passes), "{what}: {direction:?}, the rest");
        }
        assert_eq!(rig.dropped(Reason::Denied), if passes { 0 } else { 4 }, "{what}");
    }
}

#[test]
fn a_batch_may_have_many_datagrams_in_fragments() {
    let mut rig = Rig::new(&["udp 9 from any"], &[]);
    let datagram = frame(PEER, OWN, Transport::Udp { src_port: 7, dst_port: 9 }, &[1; 92]);
    for known in [false, true] {
        let frames: Vec<_> = (0..120).flat_map(|id| cut(&datagram, id, &[40])).collect();
        assert_eq!(rig.pass(Direction::In, frames), 240, "connection known: {known}");
    }
}

#[test]
fn an_answer_of_icmp_begins_nothing() {
    let mut rig = Rig::new(&["icmp"], &[]);
    let echo = |icmp_type, [src, dst]: [Ipv4Addr; 2]| icmp(src, dst, &[icmp_type, 0, 0, 0, 0, 5, 0, 1]);
    assert!(!rig.gets(echo(0, [PEER, OWN])), "an answer that nobody asked for");
    assert!(rig.gets(echo(8, [PEER, OWN])));
    let answer = echo(0, [OWN, PEER]);
    assert!(rig.sends(answer.clone()));
    // A router may send an error about the answer.
    assert!(rig.gets(error(&answer, OWN)));
    assert_eq!(rig.dropped(Reason::Invalid), 1);
}

#[test]
fn without_rules_for_the_port_nothing_passes() {
    let mut rig = Rig::new(&["any from any"], &["any to any"]);
    let frame = udp((OWN, 1), (PEER, 2));
    assert!(rig.sends(frame.clone()));
    rig.change(settings(&[], &[], |settings| settings.ports.clear()));
    assert!(!rig.sends(frame.clone()) && !rig.gets(frame));
    assert_eq!(rig.dropped(Reason::Denied), 2);
}

#[test]
fn a_full_share_refuses_further_connections_of_the_port() {
    let mut rig =
        Rig::with(settings(&["tcp 9 from any"], &[], |settings| settings.ports[0].share = PortShare::new(16)));
    let syn_ack = Flags::SYN.with(Flags::ACK);
    let passed = (0..64).filter(|&n| {
        let peer = (PEER, 1000 + n);
        // With its handshake it is established, and makes no space for others.
        rig.gets(tcp(peer, (OWN, 9), Flags::SYN, [100, 0], b""))
            && rig.sends(tcp((OWN, 9), peer, syn_ack, [500, 101], b""))
            && rig.gets(tcp(peer, (OWN, 9), Flags::ACK, [101, 501], b""))
    });
    // Half of the share is for connections of the VM, and a quarter of the other half for exchanges.
    assert_eq!(passed.count(), 6);
    assert_eq!(rig.dropped(Reason::ConnectionsFull), 58);
}

/// Where exchanges have all their places, the one that is idle longest ends for a new one.
#[test]
fn a_datagram_finds_a_place_in_a_full_share() {
    let mut rig =
        Rig::with(settings(&["udp 9 from any"], &[], |settings| settings.ports[0].share = PortShare::new(16)));
    for n in 0..64 {
        assert!(rig.gets(udp((PEER, 1000 + n), (OWN, 9))) && rig.sends(udp((OWN, 9), (PEER, 1000 + n))));
    }
    assert_eq!(rig.control.counts(VM).expect("a share").evicted, 58);
}

#[test]
fn a_neighbour_that_floods_stops_no_connection_of_another() {
    let mut rig =
        Rig::with(settings(&["udp 9 from any"], &[], |settings| settings.ports[0].share = PortShare::new(64)));
    let flood = (0..2000).map(|n| Carried::plain(1, udp((PEER, 1000 + n), (OWN, 9)))).collect::<Vec<_>>();
    for part in flood.chunks(200) {
        rig.sources[1].send(part.to_vec());
        while rig.sources[1].waits() {
            rig.worker.turn();
        }
    }
    rig.taken[1].take();
    for n in 0..4 {
        rig.sources[1].send(vec![Carried::plain(2, udp((PEER, 9000 + n), (OWN, 9)))]);
        while rig.sources[1].waits() {
            rig.worker.turn();
        }
        assert_eq!(rig.taken[1].take().len(), 1, "connection {n} of another port");
    }
}

/// Questions and answers of a rule with `stateless` pass without connections.
#[test]
fn a_stateless_service_has_no_connections() {
    let mut rig = Rig::new(&["udp 53 from 192.0.2.0/24 stateless"], &["udp 123 to any"]);
    for n in 0..3000 {
        assert!(rig.gets(udp((PEER, 1000 + n), (OWN, 53))));
        assert!(rig.sends(udp((OWN, 53), (PEER, 1000 + n))));
    }
    assert!(rig.control.connections(VM, |all| all.next().is_none()));
    assert!(!rig.gets(udp((Ipv4Addr::new(198, 51, 100, 1), 7), (OWN, 53))));
    assert!(!rig.sends(udp((OWN, 53), (Ipv4Addr::new(198, 51, 100, 1), 7))), "the rule's peers hold for the answer");
    assert!(!rig.sends(udp((OWN, 54), (PEER, 7))), "and so do its ports");
    let pieces = cut(&udp((PEER, 7), (OWN, 53)), 9, &[8]);
    assert!(!rig.gets(pieces[0].clone()));
    assert_eq!((rig.dropped(Reason::Denied), rig.dropped(Reason::FragmentRefused)), (3, 1));
    // Other rules open connections.
    assert!(rig.sends(udp((OWN, 53), (PEER, 123))));
    assert!(rig.control.connections(VM, |all| all.next().is_none()), "it is an answer, too");
    assert!(rig.sends(udp((OWN, 99), (PEER, 123))) && rig.gets(udp((PEER, 123), (OWN, 99))));
}

/// A rule with `stateless` replaces the default of `out`, and no rule: neither those of the network nor those
/// that deny. Where `out` allows an answer, it needs no connection.
#[test]
fn a_stateless_service_passes_no_rule_by() {
    let out = ["deny udp to 10.0.0.0/8", "udp to 192.0.2.0/24"];
    let mut rig = Rig::new(&["udp 53 from any stateless"], &out);
    for remote in [PEER, Ipv4Addr::new(198, 51, 100, 1)] {
        assert!(rig.sends(udp((OWN, 53), (remote, 4000))));
        assert!(!rig.sends(udp((OWN, 53), (remote, 68))), "an answer of DHCP");
    }
    let net = Net::v6([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into());
    let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
    let transport = Transport::Udp { src_port: 53, dst_port: 546 };
    let headers = Frame { src: mac(1), dst: mac(2), tags: [None; vlan::MAX_TAGS], net, transport, payload_len: 0 };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    assert!(!rig.sends(bytes), "an answer of DHCPv6");
    assert!(!rig.sends(udp((OWN, 53), (Ipv4Addr::new(10, 9, 9, 9), 4000))));
    assert_eq!(rig.dropped(Reason::Denied), 4);
    assert!(rig.control.connections(VM, |all| all.next().is_none()));
}

/// An answer in fragments passes if `out` allows it.
#[test]
fn a_stateless_service_answers_in_fragments_where_out_allows_it() {
    for (out, passes) in [("udp to any", true), ("udp 99 to any", false)] {
        let mut rig = Rig::new(&["udp 53 from any stateless"], &[out]);
        for piece in cut(&udp((OWN, 53), (PEER, 7)), 9, &[8]) {
            assert_eq!(rig.sends(piece), passes, "{out}");
        }
    }
}

/// A connection of before goes on where the next policy allows its packets without one, and the reverse.
#[test]
fn a_service_becomes_stateless() {
    let stateless = || settings(&["udp 53 from any stateless"], &[], |_| ());
    let stateful = || settings(&["udp 53 from any"], &[], |_| ());
    let mut rig = Rig::with(stateful());
    assert!(rig.gets(udp((PEER, 7), (OWN, 53))) && rig.gets(udp((PEER, 8), (OWN, 53))));
    rig.change(stateless());
    assert!(rig.sends(udp((OWN, 53), (PEER, 7))), "the answer");
    assert!(rig.gets(udp((PEER, 8), (OWN, 53))) && rig.sends(udp((OWN, 53), (PEER, 8))));
    assert!(rig.control.connections(VM, |all| all.next().is_none()));
    rig.change(stateful());
    assert!(!rig.sends(udp((OWN, 53), (PEER, 8))));
    assert!(rig.gets(udp((PEER, 8), (OWN, 53))) && rig.sends(udp((OWN, 53), (PEER, 8))));
}

#[test]
fn a_frame_to_another_station_begins_no_connection() {
    let own = MacPrefix::exact(MacAddr([2, 0, 0, 0, 0, 2]));
    let mut rig = Rig::with(settings(&["udp 9 from any"], &[], |settings| settings.ports[0].macs = vec![own]));
    let mut flooded = udp((PEER, 7), (OWN, 9));
    flooded[5] = 3;
    assert!(rig.gets(flooded));
    assert_eq!(rig.control.counts(VM).expect("a share").inbound, 0);
    assert!(rig.gets(udp((PEER, 7), (OWN, 9))));
    assert_eq!(rig.control.counts(VM).expect("a share").inbound, 1);
}

/// A segment to a group address begins a connection, or belongs to one.
#[test]
fn a_segment_to_a_group_is_one_of_a_connection() {
    let mut rig = Rig::new(&["tcp 80 from any"], &[]);
    let segment = |flags, numbers| tcp((PEER, 4000), (OWN, 80), flags, numbers, b"");
    let to_group = |mut frame: Vec<u8>| {
        frame[0] |= 1;
        frame
    };
    for flags in [Flags::ACK, Flags::FIN.with(Flags::ACK), Flags::RST, Flags::SYN.with(Flags::ACK)] {
        assert!(!rig.gets(to_group(segment(flags, [101, 501]))), "{flags:?}");
    }
    assert_eq!(rig.dropped(Reason::Invalid), 4);
    assert!(rig.gets(to_group(segment(Flags::SYN, [100, 0]))));
    assert!(rig.gets(segment(Flags::SYN, [100, 0])));
    assert!(rig.gets(to_group(segment(Flags::ACK, [101, 501]))), "its connection is known");
}

#[test]
fn what_could_change_behind_the_firewall_drops() {
    let mut rig = Rig::new(&["any from any"], &["any to any"]);
    // A type of ARP that a finished checksum would turn into another one.
    let mut arp = udp((PEER, 7), (OWN, 9));
    arp[12..14].copy_from_slice(&[8, 6]);
    let offload = Offload { checksum: Partial { start: 12, offset: 0 }, gso: None };
    rig.sources[1].send(vec![Carried { port: 1, bytes: arp, offload }]);
    rig.worker.turn();
    assert!(rig.taken[1].take().is_empty());
    // A first fragment whose extension headers do not end.
    let net = Net::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 1].into());
    let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
    let transport = Transport::Udp { src_port: 0x2c00, dst_port: 1 };
    let headers = Frame { src: mac(1), dst: mac(2), tags: [None; vlan::MAX_TAGS], net, transport, payload_len: 8 };
    let mut bytes = vec![0; headers.headers_len() + 8];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    bytes[20] = 44;
    bytes[54..62].copy_from_slice(&[60, 0, 0, 1, 0, 0, 0, 9]);
    bytes[62..70].copy_from_slice(&[6, 1, 0, 0, 0, 0, 0, 0]);
    assert!(!rig.gets(bytes));
    assert_eq!(rig.dropped(Reason::Hidden), 2);
}

/// A frame of some kind, with some bytes of its headers changed, and a checksum that is left to others.
fn frames() -> impl Strategy<Value = (Vec<u8>, Option<(u16, u16)>)> {
    let net = prop_oneof![
        Just(Net::v4(OWN, PEER)),
        Just(Net::v6([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into())),
    ];
    let transport = (any::<u16>(), any::<u16>(), any::<u32>(), any::<u8>()).prop_flat_map(|(a, b, seq, flags)| {
        let flags = Flags(flags & 0x1f);
        prop_oneof![
            Just(Transport::Udp { src_port: a, dst_port: b }),
            Just(Transport::Tcp { src_port: a, dst_port: b, seq, ack: !seq, flags, window: a }),
        ]
    });
    // Few changes: most frames stay whole.
    let changes = prop::collection::vec((0..80_usize, any::<u8>()), 0..3);
    let partial = prop::option::of(prop_oneof![Just((34, 16)), Just((34, 6)), Just((54, 16)), (0..60_u16, 0..20_u16)]);
    (net, transport, 0..300_usize, changes, partial, 0..20_usize).prop_map(
        |(net, transport, payload, changes, partial, cut)| {
            let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
            let payload_len = u16::try_from(payload).expect("short");
            let headers = Frame { src: mac(1), dst: mac(2), tags: [None, None], net, transport, payload_len };
            let mut bytes = vec![0; headers.headers_len() + payload];
            headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len()) / 10 * 10);
            (bytes, partial)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_plain_has_the_facts_of_any_packet((bytes, partial) in frames()) {
        let rcu = Rcu::new();
        let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::default()]);
        arena.turn(|turn| {
            let Some(id) = turn.accept_owned(VM, &bytes[..bytes.len().min(256)]) else { return };
            if let Some((start, offset)) = partial {
                turn.set_offload(id, Offload { checksum: Partial { start, offset }, gso: None });
            }
            for sender in [Side::Local, Side::Remote] {
                let Some((key, transport)) = plain::plain(turn.packets(), id, 7, sender) else { continue };
                let Facts::Packet(flow) = Facts::of(turn.packets(), id) else {
                    panic!("{:?} of {bytes:02x?}", Facts::of(turn.packets(), id));
                };
                assert_eq!((flow.key(7, sender), flow.transport()), (key, transport));
            }
        });
    }
}

/// Frames whose headers are not what they say, among them ICMP errors, fragments and extension headers.
fn wild_frames() -> impl Strategy<Value = Vec<u8>> {
    let more = prop::collection::vec(any::<u8>(), 0..90);
    (frames(), any::<bool>(), any::<u8>(), more).prop_map(|((mut bytes, _), is_v4, kind, more)| {
        if let Some(byte) = bytes.get_mut(if is_v4 { 23 } else { 20 }) {
            *byte = kind;
        }
        let at = bytes.len().min(34);
        bytes.splice(at..at, more);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_bytes_pass_or_drop(frames in prop::collection::vec(wild_frames(), 200)) {
        let mut rig = Rig::new(&["any from any", "ethertype llc"], &["any to any"]);
        rig.pass(Direction::In, frames.clone());
        rig.pass(Direction::Out, frames);
    }
}
