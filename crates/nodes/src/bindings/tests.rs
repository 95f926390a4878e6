use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use straightline_fdb::{BindingSource, Fdb, IpKey, Station};
use straightline_graph::{EpollWaiter, Graph, Idle, NodeControl, Worker};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_wire::messages::{self, Link, Message};
use straightline_wire::{EtherType, IpProtocol, MacAddr, VlanId, WireError, arp, ethernet, icmpv6, ipv6, ndp, udp};

use super::*;
use crate::bridge::tests::{Source, Taken};
use crate::{BindingPort, BindingSettings, BridgePort, BridgeRules, BridgeTable};

/// The bridge's own address.
const OWN: MacAddr = MacAddr([2, 0xff, 0, 0, 0, 0xff]);
/// Ports: a guest whose addresses are checked, another one, a port with a DHCP server, a tunnel.
const CHECKED: u16 = 0;
const PLAIN: u16 = 1;
const TRUSTED: u16 = 2;
const TUNNEL: u16 = 3;

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn v4(n: u8) -> Ipv4Addr {
    [10, 0, 0, n].into()
}

fn v6(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into())
}

fn bytes(message: Result<Message, WireError>) -> Vec<u8> {
    message.expect("a message").bytes().to_vec()
}

fn arp_question(from: u8, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    bytes(messages::arp_request(Link { src: mac(from), dst: MacAddr::BROADCAST, vlan: None }, sender, target))
}

fn solicitation(from: u8, sender: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let link = Link { src: mac(from), dst: messages::everybody(target.into()), vlan: None };
    bytes(messages::solicitation(link, sender, target, true))
}

struct Rig {
    worker: Worker,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
    table: Arc<BindingTable>,
    fdb: Arc<Fdb>,
    agent: BindingAgent,
}

impl Rig {
    fn new() -> Self {
        let indices: Vec<_> = (0..4).map(PortIndex).collect();
        let ports: Vec<_> = indices.iter().map(|&index| BridgePort::plain(index)).collect();
        let settings = BindingSettings {
            limit: 64,
            ageing: 300,
            own: OWN,
            has_vlans: false,
            statics: vec![(VlanId::DEFAULT, v4(99).into(), mac(99))],
            ports: indices
                .iter()
                .map(|&index| BindingPort {
                    index,
                    is_checked: index.0 == CHECKED,
                    is_trusted: index.0 == TRUSTED,
                    is_tunnel: index.0 == TUNNEL,
                    learns: true,
                })
                .collect(),
        };
        let rules = BridgeRules {
            api_stations: 8,
            limit: 64,
            ageing: 300,
            statics: Vec::new(),
            loop_protection: false,
            ports,
            snooping: false,
            flows: false,
            bindings: Some(settings.clone()),
        };
        let bridge = BridgeTable::new("lan", &rules, std::collections::HashMap::new());
        let table = Arc::new(BindingTable::new("lan", settings));
        let taken: Vec<Arc<Taken>> = indices.iter().map(|_| Arc::default()).collect();
        let mut graph = Graph::new();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        let own = graph.node("own", Box::new(BindingOutputs::new(indices)), &edges);
        graph.input(Arc::new(BindingAgent::new(Arc::clone(&table), "lan")), own);
        let to_bridge = graph.node("bridge", Box::new(bridge.node(1)), &edges);
        let node = Neighbours::new(Arc::clone(&table), &bridge);
        let first = graph.node("neighbours", Box::new(node), &[to_bridge]);
        let source = Arc::<Source>::default();
        graph.input(Arc::clone(&source) as _, first);
        let drops: Vec<Arc<Drops>> = edges.iter().map(|_| Arc::default()).collect();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        let agent = BindingAgent::new(Arc::clone(&table), "lan");
        Rig { worker, source, taken, drops, table, fdb: Arc::clone(bridge.fdb()), agent }
    }

    /// Sends a frame. Returns the ports that got frames then, with these frames.
    fn send(&mut self, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.source.frames.lock().unwrap().push((port, frame.to_vec()));
        // Answers are sent in the turn after.
        self.worker.turn();
        self.worker.turn();
        self.took()
    }

    fn took(&self) -> Vec<(u16, Vec<u8>)> {
        let frames = |port: &Arc<Taken>| std::mem::take(&mut *port.frames.lock().unwrap());
        let all = (0..).zip(&self.taken);
        all.flat_map(|(at, port)| frames(port).into_iter().map(move |frame| (at, frame))).collect()
    }

    /// The ports that get a frame as it is.
    #[track_caller]
    fn floods(&mut self, port: u16, frame: &[u8]) {
        let got = self.send(port, frame);
        let expected: Vec<_> = (0..4).filter(|to| *to != port).map(|to| (to, frame.to_vec())).collect();
        assert_eq!(got, expected);
    }

    fn counter(&self, name: &str) -> u64 {
        self.table.counters().into_iter().find(|(known, _)| *known == name).expect("a counter").1
    }

    fn bound(&self, ip: impl Into<IpAddr>) -> Option<(MacAddr, Option<u16>)> {
        let binding = self.table.bindings.find(IpKey { vlan: VlanId::DEFAULT, ip: ip.into() })?;
        Some((binding.mac, binding.port.map(|port| port.0)))
    }

    fn own(&self, n: u8) {
        let bind = |ip| self.table.bindings.set_owned(IpKey { vlan: VlanId::DEFAULT, ip }, mac(n), PortIndex(TUNNEL));
        assert!(bind(v4(n).into()) && bind(v6(n).into()));
    }
}

#[test]
fn a_known_neighbour_is_answered_and_nobody_else_hears_the_question() {
    let mut rig = Rig::new();
    rig.own(2);
    let got = rig.send(PLAIN, &arp_question(7, v4(7), v4(2)));
    let [(port, answer)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(*port, PLAIN);
    let header = ethernet::Header::new_checked(&answer[..]).unwrap();
    assert_eq!((header.dst(), header.src(), header.ether_type()), (mac(7), mac(2), EtherType::ARP));
    let reply = arp::Repr::parse(&arp::Header::new_checked(&answer[14..]).unwrap());
    let expected = arp::Repr {
        operation: arp::Operation::REPLY,
        sender_mac: mac(2),
        sender_ip: v4(2),
        target_mac: mac(7),
        target_ip: v4(7),
    };
    assert_eq!(reply, expected);

    let got = rig.send(PLAIN, &solicitation(7, v6(7), v6(2)));
    let [(PLAIN, answer)] = &got[..] else { panic!("{got:?}") };
    let ip = ipv6::Header::new_checked(&answer[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (v6(2), v6(7), 255));
    let len = u32::try_from(answer.len() - 54).unwrap();
    let sum = straightline_wire::checksum::add(
        ip.pseudo_header_sum(IpProtocol::ICMPV6, len),
        straightline_wire::checksum::sum(&answer[54..]),
    );
    assert_eq!(sum, 0xffff, "the checksum");
    let message = ndp::Header::new_checked(&answer[54..]).unwrap();
    assert_eq!((message.kind(), message.target()), (ndp::Kind::NeighborAdvertisement, Some(v6(2))));
    assert!(message.flags().contains(ndp::Flags::SOLICITED) && message.flags().contains(ndp::Flags::ROUTER));
    let option = message.options(answer.len() - 54).next().unwrap().unwrap();
    assert_eq!(option.link_address(), Ok(Some(mac(2))));
    // The file's binding names no port.
    assert_eq!(rig.send(CHECKED, &arp_question(5, v4(5), v4(99))).len(), 1);
    assert_eq!((rig.counter("answered"), rig.counter("unanswered")), (3, 0));
}

#[test]
fn all_other_questions_are_flooded() {
    let mut rig = Rig::new();
    rig.own(2);
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let mut forwarded = solicitation(7, v6(7), v6(2));
    forwarded[21] = 254;
    for frame in [
        // An address that nobody has.
        arp_question(7, v4(7), v4(3)),
        solicitation(7, v6(7), v6(3)),
        // Probes for duplicates, and an announcement.
        arp_question(7, unspecified, v4(2)),
        arp_question(7, v4(2), v4(2)),
        solicitation(7, Ipv6Addr::UNSPECIFIED, v6(2)),
        // The station itself asks: it may have moved, or looks for another one that has its address.
        arp_question(2, v4(2), v4(2)),
        arp_question(2, v4(8), v4(2)),
        solicitation(2, v6(8), v6(2)),
        // A router has forwarded it.
        forwarded,
        // A reply is no question.
        bytes(messages::arp_reply(Link { src: mac(7), dst: MacAddr::BROADCAST, vlan: None }, v4(7), v4(2))),
    ] {
        rig.floods(PLAIN, &frame);
    }
    // The far end of a tunnel has asked itself first.
    let got = rig.send(TUNNEL, &arp_question(9, v4(9), v4(99)));
    assert_eq!(got.len(), 3);
    // A question to the station alone asks whether it is still there.
    let mut alone = arp_question(7, v4(7), v4(99));
    alone[..6].copy_from_slice(&mac(99).0);
    rig.floods(PLAIN, &alone);
    assert_eq!(rig.counter("answered"), 0);
}

#[test]
fn claims_bind_at_checked_ports_only_and_never_twice() {
    let mut rig = Rig::new();
    rig.floods(CHECKED, &arp_question(5, v4(5), v4(77)));
    rig.floods(CHECKED, &solicitation(5, v6(5), v6(77)));
    assert_eq!((rig.bound(v4(5)), rig.bound(v6(5))), (Some((mac(5), Some(CHECKED))), Some((mac(5), Some(CHECKED)))));
    // Probes and wrong messages bind nothing.
    rig.floods(CHECKED, &arp_question(5, Ipv4Addr::UNSPECIFIED, v4(6)));
    rig.floods(CHECKED, &solicitation(5, Ipv6Addr::UNSPECIFIED, v6(6)));
    let mut other_sender = arp_question(5, v4(6), v4(77));
    other_sender[27] = 0x77;
    rig.floods(CHECKED, &other_sender);
    assert_eq!((rig.bound(v4(6)), rig.bound(v6(6))), (None, None));
    for port in [PLAIN, TRUSTED, TUNNEL] {
        rig.send(port, &arp_question(8, v4(8), v4(77)));
        assert_eq!(rig.bound(v4(8)), None, "port {port}");
    }
    // An address of the configuration stays there, whoever says what. One of an owner stays unless the source
    // check of a port here has let the claim pass.
    rig.own(2);
    rig.floods(CHECKED, &arp_question(5, v4(99), v4(77)));
    for port in [PLAIN, TRUSTED, TUNNEL] {
        rig.send(port, &arp_question(8, v4(2), v4(77)));
    }
    assert_eq!((rig.bound(v4(2)), rig.bound(v4(99))), (Some((mac(2), Some(TUNNEL))), Some((mac(99), None))));
    rig.floods(CHECKED, &arp_question(5, v4(2), v4(77)));
    assert_eq!(rig.bound(v4(2)), Some((mac(5), Some(CHECKED))));
    assert_eq!((rig.counter("bound-elsewhere"), rig.counter("overruled")), (1, 1));
}

/// Returns a UDP packet from a server's port to a client's.
fn to_client(dst: MacAddr, is_v6: bool, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(udp::LEN + message.len()).unwrap();
    let (ports, ether_type) = if is_v6 { ([547, 546], EtherType::IPV6) } else { ([67, 68], EtherType::IPV4) };
    let mut frame = vec![0; 14];
    ethernet::Repr { dst, src: mac(0x70), ether_type }.emit(&mut frame).unwrap();
    if is_v6 {
        let ip = messages::v6(v6(0x70), v6(0x71), IpProtocol::UDP, len.into()).unwrap();
        frame.resize(14 + ipv6::LEN, 0);
        ip.emit(&mut frame[14..]).unwrap();
    } else {
        let ip = messages::v4(v4(0x70), v4(0x71), IpProtocol::UDP, len.into()).unwrap();
        frame.resize(34, 0);
        ip.emit(&mut frame[14..]).unwrap();
    }
    for number in [ports[0], ports[1], len, 0_u16] {
        frame.extend_from_slice(&number.to_be_bytes());
    }
    frame.extend_from_slice(message);
    frame
}

fn ack(n: u8) -> Vec<u8> {
    let mut message = vec![0; 240];
    message[..3].copy_from_slice(&[2, 1, 6]);
    message[16..20].copy_from_slice(&v4(n).octets());
    message[28..34].copy_from_slice(&mac(n).0);
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend_from_slice(&[53, 1, 5, 51, 4, 0, 0, 14, 16, 255]);
    message
}

fn reply(n: u8, valid: u8) -> Vec<u8> {
    let mut message = vec![7, 0, 0, 1, 0, 3, 0, 40];
    message.extend_from_slice(&[0; 12]);
    message.extend_from_slice(&[0, 5, 0, 24]);
    message.extend_from_slice(&v6(n).octets());
    message.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, valid]);
    message
}

#[test]
fn a_server_at_a_trusted_port_binds_the_addresses_that_it_gives() {
    let mut rig = Rig::new();
    let known = |rig: &mut Rig, n| drop(rig.send(PLAIN, &arp_question(n, v4(n), v4(77))));
    // A station that the bridge has not heard has no port.
    rig.send(TRUSTED, &to_client(mac(8), false, &ack(8)));
    assert_eq!((rig.bound(v4(8)), rig.counter("unplaced")), (None, 1));
    known(&mut rig, 8);
    // A guest is no server.
    rig.send(CHECKED, &to_client(mac(8), false, &ack(8)));
    assert_eq!(rig.bound(v4(8)), None);
    rig.send(TRUSTED, &to_client(mac(8), false, &ack(8)));
    assert_eq!(rig.bound(v4(8)), Some((mac(8), Some(PLAIN))));
    let source =
        rig.table.bindings.entries().iter().find(|binding| binding.mac == mac(8)).map(|binding| binding.source);
    assert!(matches!(source, Some(BindingSource::Leased { .. })), "{source:?}");
    rig.send(TRUSTED, &to_client(mac(8), true, &reply(8, 60)));
    assert_eq!(rig.bound(v6(8)), Some((mac(8), Some(PLAIN))));
    rig.send(TRUSTED, &to_client(mac(8), true, &reply(8, 0)));
    assert_eq!(rig.bound(v6(8)), None, "it is taken back");
    // What is bound elsewhere is not given away.
    rig.send(
        TRUSTED,
        &to_client(mac(8), false, &{
            let mut message = ack(8);
            message[16..20].copy_from_slice(&v4(99).octets());
            message
        }),
    );
    assert_eq!((rig.bound(v4(99)), rig.counter("bound-elsewhere")), (Some((mac(99), None)), 1));
}

fn tagged(tags: &[u8], frame: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

/// A priority tag names no VLAN: messages behind some count as those without.
#[test]
fn messages_behind_priority_tags_are_heard() {
    for count in 1..=4 {
        let tags = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(2)[..4 * count].to_vec();
        let mut rig = Rig::new();
        rig.own(2);
        let got = rig.send(PLAIN, &tagged(&tags, &arp_question(8, v4(8), v4(2))));
        assert_eq!(got.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [PLAIN], "{count} tags: it is answered");
        let got = rig.send(PLAIN, &tagged(&tags, &solicitation(8, v6(8), v6(2))));
        assert_eq!(got.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [PLAIN], "{count} tags: it is answered");
        rig.send(CHECKED, &tagged(&tags, &arp_question(5, v4(5), v4(77))));
        rig.send(CHECKED, &tagged(&tags, &solicitation(5, v6(5), v6(77))));
        assert_eq!([rig.bound(v4(5)), rig.bound(v6(5))], [Some((mac(5), Some(CHECKED))); 2], "{count} tags");
        rig.send(TRUSTED, &tagged(&tags, &to_client(mac(8), false, &ack(8))));
        rig.send(TRUSTED, &tagged(&tags, &to_client(mac(8), true, &reply(8, 60))));
        assert_eq!([rig.bound(v4(8)), rig.bound(v6(8))], [Some((mac(8), Some(PLAIN))); 2], "{count} tags");
        // A guest asks a server for itself only.
        assert_eq!(rig.send(PLAIN, &tagged(&tags, &ask(8, 5))), []);
        assert_eq!(rig.drops[usize::from(PLAIN)].count(Reason::Spoofed), 1, "{count} tags");
    }
}

#[test]
fn messages_of_a_vlan_or_behind_too_many_priority_tags_are_not_heard() {
    let mut rig = Rig::new();
    let question = arp_question(5, v4(5), v4(77));
    rig.floods(CHECKED, &tagged(&[0x81, 0, 0, 0, 0x81, 0, 0, 5], &question));
    assert_eq!(rig.send(CHECKED, &tagged(&[0x81, 0, 0, 0].repeat(5), &question)), []);
    assert_eq!(rig.drops[usize::from(CHECKED)].count(Reason::Hidden), 1);
    assert_eq!(rig.bound(v4(5)), None);
}

/// Returns a question to a server about an address for a station.
fn ask(from: u8, client: u8) -> Vec<u8> {
    let mut message = ack(client);
    message[0] = 1;
    let mut frame = to_client(MacAddr::BROADCAST, false, &message);
    frame[6..12].copy_from_slice(&mac(from).0);
    frame[34..38].copy_from_slice(&[0, 68, 0, 67]);
    frame
}

#[test]
fn a_guest_asks_a_server_for_itself_only() {
    let mut rig = Rig::new();
    for port in [PLAIN, CHECKED, TRUSTED, TUNNEL] {
        rig.floods(port, &ask(port.try_into().unwrap(), port.try_into().unwrap()));
    }
    // A relay gets the answer itself. Behind the others, there are stations that nobody here knows.
    let mut relayed = ask(PLAIN.try_into().unwrap(), 7);
    relayed[42 + 24] = 10;
    rig.floods(PLAIN, &relayed);
    rig.floods(TRUSTED, &ask(50, 7));
    rig.floods(TUNNEL, &ask(51, 7));
    let spoofed = ask(PLAIN.try_into().unwrap(), 7);
    let mut fragment = spoofed.clone();
    fragment[20] = 0x20;
    let cut = spoofed[..80].to_vec();
    let mut from_elsewhere = spoofed.clone();
    from_elsewhere[34..36].copy_from_slice(&[9, 9]);
    let all = [spoofed, fragment, cut, from_elsewhere];
    for frame in &all {
        assert_eq!(rig.send(PLAIN, frame), []);
    }
    assert_eq!(rig.drops[usize::from(PLAIN)].count(Reason::Spoofed), all.len() as u64);
}

#[test]
fn frames_that_end_here_tell_where_their_station_is() {
    let mut rig = Rig::new();
    let place = |rig: &Rig, n| rig.fdb.lookup(Station::new(VlanId::DEFAULT, mac(n)), 0);
    // A question that is answered here, and the answer to a question of the bridge.
    rig.own(2);
    assert_eq!(rig.send(CHECKED, &arp_question(5, v4(5), v4(2))).len(), 1);
    assert_eq!(place(&rig, 5), Some(PortIndex(CHECKED)));
    let answer = Link { src: mac(6), dst: OWN, vlan: None };
    assert_eq!(rig.send(TRUSTED, &bytes(messages::arp_reply(answer, v4(6), Ipv4Addr::UNSPECIFIED))), []);
    assert_eq!(place(&rig, 6), Some(PortIndex(TRUSTED)));
}

#[test]
fn a_quiet_station_is_asked_and_its_answer_ends_at_the_bridge() {
    let mut rig = Rig::new();
    rig.send(CHECKED, &arp_question(5, v4(5), v4(77)));
    rig.send(CHECKED, &solicitation(5, v6(5), v6(77)));
    let seen = rig.table.bindings.entries().iter().map(|binding| binding.seen).max().unwrap();
    let answer = |n: u8| Link { src: mac(n), dst: OWN, vlan: None };
    for round in 1..4 {
        rig.agent.ask(seen + 300 * round);
        rig.worker.turn();
        let got = rig.took();
        assert_eq!(got.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [CHECKED; 2]);
        for (_, question) in &got {
            let header = ethernet::Header::new_checked(&question[..]).unwrap();
            assert_eq!((header.dst(), header.src()), (mac(5), OWN));
        }
        // Both answers come, and nobody gets them.
        let now = seen + 300 * round;
        assert_eq!(rig.send(CHECKED, &bytes(messages::arp_reply(answer(5), v4(5), Ipv4Addr::UNSPECIFIED))), []);
        assert_eq!(rig.send(CHECKED, &bytes(messages::advertisement(answer(5), v6(5), v6(1), true))), []);
        assert!(rig.table.bindings.entries().iter().all(|binding| binding.asked == 0), "at {now}");
        // The worker's clock is behind the test's, so the answers count for the test's time, too.
        for ip in [v4(5).into(), v6(5).into()] {
            let key = IpKey { vlan: VlanId::DEFAULT, ip };
            let claim =
                straightline_fdb::Claim { key, mac: mac(5), port: PortIndex(CHECKED), until: None, only_known: false };
            rig.table.bindings.claim(claim, now);
        }
    }
    // It is silent: three questions, and it goes.
    for second in 0..5 {
        rig.agent.ask(seen + 1200 + second);
        rig.worker.turn();
    }
    assert_eq!((rig.took().len(), rig.bound(v4(5)), rig.counter("withdrawn")), (6, None, 2));
    assert_eq!(rig.drops.iter().flat_map(|drops| drops.nonzero()).count(), 0);
}

#[test]
fn a_flood_of_questions_is_answered_as_far_as_there_is_space_and_flooded_beyond() {
    let mut rig = Rig::new();
    rig.own(2);
    let question = arp_question(7, v4(7), v4(2));
    *rig.source.frames.lock().unwrap() = vec![(PLAIN, question); 100];
    rig.worker.turn();
    let flooded = rig.took().len();
    rig.worker.turn();
    let answers = rig.took();
    assert!(answers.iter().all(|(port, _)| *port == PLAIN), "{}", answers.len());
    assert_eq!((rig.counter("answered"), rig.counter("unanswered")), (32, 68));
    assert_eq!((flooded, answers.len()), (68 * 3, 32));
}

/// A message that claims what others have, with bytes changed, and cut.
#[derive(Clone, Debug)]
struct Hostile {
    which: usize,
    port: u16,
    cut: usize,
    changes: Vec<(usize, u8)>,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let changes = prop::collection::vec((0..300_usize, any::<u8>()), 0..6);
    (0..8_usize, 0..4_u16, 14..400_usize, changes).prop_map(|(which, port, cut, changes)| Hostile {
        which,
        port,
        cut,
        changes,
    })
}

/// Returns the bytes from `at` on, if they are there.
fn at<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

/// The slow model of hearing: returns the address that a frame of ARP or neighbour discovery claims for its
/// sender. It reads fixed places, in the order in which the standards name them.
fn heard(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let from = MacAddr(at(frame, 6)?);
    match at(frame, 12)? {
        [0x08, 0x06] if frame.len() >= 42 => {
            // Ethernet, IPv4, and lengths of both.
            let is_right = at(frame, 14)? == [0, 1, 8, 0, 6, 4] && at(frame, 22)? == from.0;
            let ip = Ipv4Addr::from(at::<4>(frame, 28)?);
            (is_right && !ip.is_unspecified()).then_some((ip.into(), from))
        }
        [0x86, 0xdd] if frame.len() >= 54 && frame[14] >> 4 == 6 => {
            let is_nd = frame[20] == 58 && frame[21] == 255;
            let ip = match (frame.get(54)?, is_nd) {
                (135, true) => at::<16>(frame, 22)?,
                (136, true) => at::<16>(frame, 62)?,
                _ => return None,
            };
            // A whole message has its target.
            at::<16>(frame, 62)?;
            let ip = Ipv6Addr::from(ip);
            (!ip.is_unspecified() && !ip.is_multicast()).then_some((ip.into(), from))
        }
        _ => None,
    }
}

/// The bindings of [`heard`] beside those of DHCP, which come from the trusted port only.
#[derive(Default)]
struct SlowModel {
    checked: std::collections::BTreeMap<IpAddr, MacAddr>,
}

impl SlowModel {
    /// Hears a frame. The first one that claims an address has it; a static one is nobody's else.
    fn hear(&mut self, port: u16, frame: &[u8]) {
        if let Some((ip, mac)) = heard(frame).filter(|(ip, _)| port == CHECKED && *ip != IpAddr::from(v4(99))) {
            self.checked.entry(ip).or_insert(mac);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever a guest or a server sends, whole or cut, with lengths that lie: nothing panics, and the
    /// bindings are those of a slow model. Only the checked port and the server bind anything.
    #[test]
    fn hostile_messages_bind_what_a_slow_model_binds(all in prop::collection::vec(hostile(), 64)) {
        let mut rig = Rig::new();
        let mut model = SlowModel::default();
        rig.own(2);
        let first = arp_question(5, v4(5), v4(77));
        rig.send(CHECKED, &first);
        model.hear(CHECKED, &first);
        for Hostile { which, port, cut, changes } in all {
            let to_bridge = Link { src: mac(6), dst: OWN, vlan: None };
            let mut frame = match which {
                0 => arp_question(6, v4(2), v4(5)),
                1 => solicitation(6, v6(2), v6(5)),
                2 => bytes(messages::advertisement(to_bridge, v6(2), v6(1), true)),
                3 => to_client(mac(5), false, &ack(2)),
                4 => to_client(mac(5), true, &reply(2, 60)),
                5 => bytes(messages::arp_reply(to_bridge, v4(99), v4(5))),
                6 => arp_question(7, v4(8), v4(5)),
                _ => solicitation(7, v6(8), v6(5)),
            };
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            frame.truncate(cut);
            let before: Vec<_> = rig.table.bindings.entries();
            rig.send(port, &frame);
            model.hear(port, &frame);
            prop_assert_eq!(rig.bound(v4(99)), Some((mac(99), None)));
            let entries = rig.table.bindings.entries();
            let is_checked = |binding: &&straightline_fdb::Binding| binding.source == BindingSource::Checked;
            // All ports are in one VLAN here. Beyond its share, the port binds nothing more.
            let checked: std::collections::BTreeMap<IpAddr, MacAddr> =
                entries.iter().filter(is_checked).map(|binding| (binding.key.ip, binding.mac)).collect();
            let has_space = checked.len() < 32;
            prop_assert!(!has_space || checked == model.checked, "{:?} {:?}", checked, model.checked);
            // An owner's binding stays unless the checked port has overruled it.
            for ip in [IpAddr::from(v4(2)), v6(2).into()] {
                let expected = model.checked.get(&ip).map_or((mac(2), Some(TUNNEL)), |mac| (*mac, Some(CHECKED)));
                prop_assert_eq!(rig.bound(ip), Some(expected));
            }
            // Leases change by frames of the server only.
            let leases = |all: &[straightline_fdb::Binding]| {
                let is_lease = |binding: &&straightline_fdb::Binding| {
                    matches!(binding.source, BindingSource::Leased { .. })
                };
                all.iter().filter(is_lease).map(|binding| (binding.key, binding.mac)).collect::<std::collections::BTreeMap<_, _>>()
            };
            prop_assert!(port == TRUSTED || leases(&before) == leases(&entries));
        }
    }
}

#[test]
fn an_icmpv6_message_of_another_kind_passes() {
    let mut rig = Rig::new();
    let mut echo = solicitation(5, v6(5), v6(2));
    echo[54] = icmpv6::Type::ECHO_REQUEST.0;
    rig.floods(CHECKED, &echo);
    assert_eq!(rig.bound(v6(5)), None);
}
