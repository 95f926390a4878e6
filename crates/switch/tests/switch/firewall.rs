//! Groups of ports, between guests.

use std::net::Ipv4Addr;
use std::time::Duration;

use straightline_config::{
    BridgeConfig, Config, FlowsConfig, Group, MacPrefix, NativeVlan, PortRules, PortVlans, SourceCheckConfig, VlanRole,
};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{
    Connection, ConnectionsRequest, EventKind, ExplainRequest, SetGroupRequest, SetGroupsRequest, SetsRequest, Stream,
    TraceAction, TraceLine, TraceRequest,
};
use straightline_testing::{
    BROADCAST, Rig, bridge, mac, nothing_at, patch, rig, rig_by, send, take, wait_event, wait_moving, wait_until,
};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::{EtherType, MacAddr, VlanId, vlan};

const PORTS: usize = 3;

/// The address of the guest at a port.
fn ip(port: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, port + 1)
}

/// A UDP packet from the guest at one port to that at another, each with a port of its own.
fn udp([from, src_port]: [u16; 2], [to, dst_port]: [u16; 2]) -> Vec<u8> {
    let place = |port: u16| u8::try_from(port).expect("few ports");
    packet(mac(place(from) + 1), mac(place(to) + 1), [(ip(place(from)), src_port), (ip(place(to)), dst_port)])
}

fn packet(src: MacAddr, dst: MacAddr, [from, to]: [(Ipv4Addr, u16); 2]) -> Vec<u8> {
    let transport = Transport::Udp { src_port: from.1, dst_port: to.1 };
    let tags = [None; vlan::MAX_TAGS];
    let headers = Frame { src, dst, tags, net: Net::v4(from.0, to.0), transport, payload_len: 100 };
    let mut bytes = vec![0; headers.headers_len() + 100];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    bytes
}

/// A TCP segment from the guest at one port to that at another.
fn tcp([from, src_port]: [u16; 2], [to, dst_port]: [u16; 2], flags: Flags, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let place = |port: u16| u8::try_from(port).expect("few ports");
    let transport = Transport::Tcp { src_port, dst_port, seq, ack, flags, window: 8192 };
    let tags = [None; vlan::MAX_TAGS];
    let net = Net::v4(ip(place(from)), ip(place(to)));
    let headers = Frame { src: mac(place(from) + 1), dst: mac(place(to) + 1), tags, net, transport, payload_len: 0 };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    bytes
}

fn with_groups(config: &mut Config, groups: &[(usize, &[&str], &[&str])]) {
    config.groups.clear();
    config.ports.iter_mut().for_each(|port| port.groups.clear());
    for (port, inbound, outbound) in groups {
        let name = format!("g{port}");
        config.groups.push(Group::parse(&name, inbound, outbound).expect("rules"));
        config.ports[*port].groups = vec![name];
    }
}

fn guarded(groups: &[(usize, &[&str], &[&str])]) -> Rig {
    rig(PORTS, |config| {
        config.bridges.push(bridge(PORTS));
        with_groups(config, groups);
    })
}

fn guests(rig: &Rig) -> Vec<Guest> {
    (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect()
}

/// Sends a frame, which arrives at these ports and at no other.
fn expect(rig: &Rig, guests: &mut [Guest], from: usize, sent: &[u8], to: &[usize]) {
    send(&mut guests[from], sent);
    for &port in to {
        let taken = take(&mut guests[port], 1);
        assert_eq!(taken[0].1, sent, "at p{port}");
    }
    nothing_at(&rig.switch, guests);
}

#[test]
fn a_bridge_floods_to_ports_whose_groups_allow_it() {
    let rig = guarded(&[(1, &["udp 53 from any"], &[])]);
    let mut guests = guests(&rig);
    // Nobody is known yet.
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1, 2]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[2]);
    rig.wait_drops(1, "denied", 1);
    // The answer needs no rule, and a question does.
    expect(&rig, &mut guests, 1, &udp([1, 53], [0, 9]), &[0]);
    expect(&rig, &mut guests, 1, &udp([1, 53], [0, 10]), &[]);
    rig.wait_drops(1, "denied", 2);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1]);
    let connections = rig
        .switch
        .source()
        .connections(&ConnectionsRequest { limit: 10, ..ConnectionsRequest::default() })
        .expect("some");
    let [connection] = &connections.connections[..] else { panic!("{connections:?}") };
    assert_eq!((&*connection.local, &*connection.remote), ("10.0.0.2:53", "10.0.0.1:9"));
    assert_eq!((&*connection.direction, &*connection.rule), ("in", "g1:in:1"));
    wait_event(&rig.switch, "a denied packet", |event| {
        matches!(event, EventKind::FirewallPacket { port, allowed: false, packet, .. }
            if port == "p1" && packet == "udp from 10.0.0.1 port 54 source-port 9")
    });
}

/// Packets that are for all or for routers reach ports without groups, and are counted apart at those with
/// groups. A later denial is the first event.
#[test]
fn what_nobody_asked_for_is_unsolicited() {
    let rig = guarded(&[(1, &["udp 53 from any"], &[])]);
    let mut guests = guests(&rig);
    let src = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let all_routers = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let ethernet = [&[0x33, 0x33, 0, 0, 0, 2][..], &mac(1).0, &[0x86, 0xdd]].concat();
    let header = [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &src, &all_routers].concat();
    let solicitation = [ethernet, header, vec![133, 0, 0, 0, 0, 0, 0, 0]].concat();
    expect(&rig, &mut guests, 0, &solicitation, &[2]);
    let to_all = |port| packet(mac(1), BROADCAST, [(ip(0), 9), (Ipv4Addr::BROADCAST, port)]);
    expect(&rig, &mut guests, 0, &to_all(54), &[2]);
    expect(&rig, &mut guests, 0, &to_all(53), &[1, 2]);
    rig.wait_drops(1, "unsolicited", 2);
    assert_eq!(rig.drops(1, "denied"), 0);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[2]);
    rig.wait_drops(1, "denied", 1);
    let is_of_firewall = |kind: &EventKind| matches!(kind, EventKind::FirewallPacket { .. });
    wait_event(&rig.switch, "the denied packet", is_of_firewall);
    let events = rig.switch.source().events(0).events;
    let told: Vec<_> = events.iter().filter(|event| is_of_firewall(&event.kind)).collect();
    let [event] = &told[..] else { panic!("{told:?}") };
    let EventKind::FirewallPacket { packet, .. } = &event.kind else { panic!("{event:?}") };
    assert_eq!(packet, "udp from 10.0.0.1 port 54 source-port 9");
}

#[test]
fn in_a_patch_both_ends_decide() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        with_groups(config, &[(0, &[], &["udp 53,54 to any"]), (1, &["udp 54,55 from any"], &[])]);
    });
    let mut guests: Vec<_> = (0..2).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 55]), &[]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[1]);
    expect(&rig, &mut guests, 1, &udp([1, 54], [0, 9]), &[0]);
    // In a patch, the sender's counter has both.
    rig.wait_drops(0, "denied", 2);
}

#[test]
fn a_reload_changes_policies_without_a_pause() {
    let rig = guarded(&[(1, &["udp 53 from any", "udp 54 from any"], &[])]);
    let mut guests = guests(&rig);
    expect(&rig, &mut guests, 1, &packet(mac(2), BROADCAST, [(ip(1), 1), (Ipv4Addr::BROADCAST, 1)]), &[]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1, 2]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[1, 2]);
    let mut config = rig.switch.config();
    with_groups(&mut config, &[(1, &["udp 54 from any"], &[])]);
    let changes = rig.switch.reload(&config).expect("a good configuration");
    assert_eq!(changes.pauses, Vec::<String>::new());
    expect(&rig, &mut guests, 1, &udp([1, 53], [0, 9]), &[]);
    expect(&rig, &mut guests, 1, &udp([1, 54], [0, 9]), &[0]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[]);
    // A port that gets groups is closed at once, and one that loses them is open.
    with_groups(&mut config, &[(2, &[], &[])]);
    rig.switch.reload(&config).expect("a good configuration");
    expect(&rig, &mut guests, 2, &udp([2, 9], [1, 53]), &[]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1]);
}

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

#[test]
fn groups_see_frames_without_the_tags_of_their_bridge() {
    // `p0` is in VLAN 10, `p1` is a trunk of 10 and 20, and both have groups.
    let rig = rig(PORTS, |config| {
        config.bridges.push(bridge(PORTS));
        let vlans = |role| PortRules { vlans: Some(PortVlans { role, priority: 0 }), ..PortRules::default() };
        config.ports[0].rules = vlans(VlanRole::Access(id(10)));
        let native = None::<NativeVlan>;
        let set = [id(10), id(20)].into_iter().collect();
        config.ports[1].rules = vlans(VlanRole::Trunk { tpid: EtherType::VLAN, vlans: Box::new(set), native });
        config.ports[2].rules = vlans(VlanRole::Access(id(20)));
        with_groups(config, &[(0, &[], &["udp 53 to any"]), (1, &["udp 53 from 10.0.0.1"], &[])]);
    });
    let mut guests = guests(&rig);
    let question = udp([0, 9], [1, 53]);
    send(&mut guests[0], &question);
    assert_eq!(take(&mut guests[1], 1)[0].1, tagged(&question, 10));
    let answer = udp([1, 53], [0, 9]);
    // The same ends in another VLAN are no answer.
    send(&mut guests[1], &tagged(&answer, 20));
    rig.wait_drops(1, "denied", 1);
    send(&mut guests[1], &tagged(&answer, 10));
    assert_eq!(take(&mut guests[0], 1)[0].1, answer);
    // A tag within the VLAN hides what is behind it.
    send(&mut guests[1], &tagged(&tagged(&answer, 5), 10));
    rig.wait_drops(1, "denied", 2);
    nothing_at(&rig.switch, &mut guests);
}

#[test]
fn what_decides_is_explained_at_both_ends() {
    let rig = guarded(&[(0, &[], &["tcp 443 to any"])]);
    let explain = |packet: &str| {
        let request = ExplainRequest { port: "p0".to_owned(), packet: packet.to_owned() };
        rig.switch.source().explain(&request)
    };
    let answer = explain("tcp to 192.0.2.1 port 443").expect("a decision");
    assert!(answer.decisions[0].allowed && answer.decisions[0].rule.contains("tcp 443 to any"), "{answer:?}");
    let answer = explain("tcp to 192.0.2.1 port 80").expect("a decision");
    assert!(!answer.decisions[0].allowed, "{answer:?}");
    let wrong = explain("tcp 443").expect_err("no address").error;
    assert!(wrong.contains("tcp to 192.0.2.1 port 443"), "{wrong}");
    let request = ExplainRequest { port: "p1".to_owned(), packet: "tcp to 192.0.2.1 port 443".to_owned() };
    let open = rig.switch.source().explain(&request).expect_err("no groups").error;
    assert!(open.contains("no groups"), "{open}");
}

#[test]
fn clients_set_groups_of_ports_that_have_none_in_the_file() {
    let rig = guarded(&[(2, &[], &[])]);
    let file = rig.switch.config();
    let mut guests = guests(&rig);
    let set_group = |name: &str, inbound: &[&str]| {
        let inbound = inbound.iter().map(|&rule| rule.to_owned()).collect();
        rig.switch.set_group(&SetGroupRequest { name: name.to_owned(), inbound, outbound: Vec::new(), delete: false })
    };
    let set = |port: &str, groups: &[&str]| {
        let groups = groups.iter().map(|&name| name.to_owned()).collect();
        rig.switch.set_groups(&SetGroupsRequest { port: port.to_owned(), groups })
    };
    expect(&rig, &mut guests, 1, &udp([1, 9], [0, 9]), &[0]);
    set_group("dns", &["udp 53 from any"]).expect("a rule");
    set("p1", &["dns"]).expect("a group");
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[]);
    // Another rule holds at once, and a reload keeps what clients have set.
    set_group("dns", &["udp 54 from any"]).expect("a rule");
    rig.switch.reload(&file).expect("a good configuration");
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[]);
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[1]);

    let why = |done: Result<(), straightline_switch::api::Refusal>| done.expect_err("refused").error;
    assert!(why(set("p1", &["none-such"])).contains("group \"none-such\" does not exist"));
    assert!(why(set("p2", &["dns"])).contains("has groups in the file"));
    assert!(why(set("p7", &["dns"])).contains("no such port"));
    assert!(why(set_group("g2", &[])).contains("in the file"));
    assert!(why(set_group("dns", &["tcp 99999 from any"])).contains("99999"));
    let delete = SetGroupRequest { name: "dns".to_owned(), inbound: Vec::new(), outbound: Vec::new(), delete: true };
    assert!(why(rig.switch.set_group(&delete)).contains("does not exist"), "p1 has it");
    // What was refused has changed nothing.
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 54]), &[1]);
    set("p1", &[]).expect("no groups");
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1]);
    rig.switch.set_group(&delete).expect("nobody has it");
}

/// A server's answer that gives a guest an address, for some seconds.
fn lease(to: usize, ip: Ipv4Addr, seconds: u8) -> Vec<u8> {
    let client = mac(u8::try_from(to).expect("few ports") + 1);
    let mut message = vec![0; 240];
    message[..3].copy_from_slice(&[2, 1, 6]);
    message[16..20].copy_from_slice(&ip.octets());
    message[28..34].copy_from_slice(&client.0);
    message[236..].copy_from_slice(&[99, 130, 83, 99]);
    message.extend_from_slice(&[53, 1, 5, 51, 4, 0, 0, 0, seconds, 255]);
    let transport = Transport::Udp { src_port: 67, dst_port: 68 };
    let payload_len = message.len().try_into().expect("short");
    let net = Net::v4([10, 0, 0, 200].into(), ip);
    let headers = Frame { src: mac(9), dst: client, tags: [None; vlan::MAX_TAGS], net, transport, payload_len };
    let mut bytes = vec![0; headers.headers_len()];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    [bytes, message].concat()
}

/// Sends frames from one port to another, each of which arrives there.
fn passes(guests: &mut [Guest], [from, to]: [usize; 2], frames: &[Vec<u8>]) {
    for frame in frames {
        send(&mut guests[from], frame);
        assert_eq!(take(&mut guests[to], 1)[0].1, *frame);
    }
}

/// A server of DNS and HTTP behind one uplink: it answers many questions, and TCP connections begin.
#[test]
fn questions_close_no_server() {
    let rig = rig_by(PORTS, &Clock::moved(), |config| {
        config.bridges.push(bridge(PORTS));
        config.ports[0].trusted = true;
        config.ports[1].connections = 200;
        with_groups(config, &[(1, &["udp 53 from any", "tcp 80 from any"], &[])]);
    });
    let mut guests = guests(&rig);
    for second in 0..4 {
        for n in 0..100 {
            let client = [0, 1000 + 100 * second + n];
            passes(&mut guests, [0, 1], &[udp(client, [1, 53])]);
            passes(&mut guests, [1, 0], &[udp([1, 53], client)]);
        }
        let client = [0, 1000 + second];
        passes(&mut guests, [0, 1], &[tcp(client, [1, 80], Flags::SYN, [100, 0])]);
        passes(&mut guests, [1, 0], &[tcp([1, 80], client, Flags::SYN.with(Flags::ACK), [500, 101])]);
        passes(&mut guests, [0, 1], &[tcp(client, [1, 80], Flags::ACK, [101, 501])]);
        rig.clock.advance(Duration::from_secs(1));
    }
    assert!(!rig.port(1).drops.contains_key("connections-full"), "{:?}", rig.port(1).drops);
}

/// Two questions of one socket: the second answer comes four seconds after the first one.
#[test]
fn a_late_answer_passes_while_its_question_is_open() {
    let rig = rig_by(PORTS, &Clock::moved(), |config| {
        config.bridges.push(bridge(PORTS));
        with_groups(config, &[(0, &[], &["udp 53 to any"])]);
    });
    let mut guests = guests(&rig);
    let question = udp([0, 9], [1, 53]);
    let answer = udp([1, 53], [0, 9]);
    passes(&mut guests, [0, 1], &[question.clone(), question]);
    passes(&mut guests, [1, 0], std::slice::from_ref(&answer));
    rig.clock.advance(Duration::from_secs(4));
    passes(&mut guests, [1, 0], std::slice::from_ref(&answer));
    rig.clock.advance(Duration::from_secs(3));
    send(&mut guests[1], &answer);
    rig.wait_drops(0, "denied", 1);
}

/// Questions of a rule with `stateless` have no connections, and their answers pass.
#[test]
fn a_stateless_service_answers() {
    let rig = guarded(&[(1, &["udp 53 from any stateless"], &["tcp 443 to any"])]);
    let mut guests = guests(&rig);
    for n in 0..100 {
        passes(&mut guests, [0, 1], &[udp([0, 1000 + n], [1, 53])]);
        passes(&mut guests, [1, 0], &[udp([1, 53], [0, 1000 + n])]);
    }
    let request = ConnectionsRequest { port: Some("p1".to_owned()), ..ConnectionsRequest::default() };
    assert_eq!(rig.switch.source().connections(&request).expect("connections").total, 0);
    let explain = |packet: &str| {
        let request = ExplainRequest { port: "p1".to_owned(), packet: packet.to_owned() };
        rig.switch.source().explain(&request).expect("a decision").decisions[0].clone()
    };
    let answer = explain("udp to 10.0.0.1 port 1000 source-port 53");
    assert!(answer.allowed && answer.rule.contains("udp 53 from any stateless"), "{answer:?}");
    assert!(!explain("udp to 10.0.0.1 port 1000 source-port 54").allowed);
}

#[test]
fn a_lease_makes_a_port_a_member_of_its_groups() {
    let groups: &[(usize, &[&str], &[&str])] = &[(1, &[], &["udp 53,54 to any"]), (2, &["udp 53 from group:g1"], &[])];
    let rig = rig_by(PORTS, &Clock::moved(), |config| {
        config.bridges.push(BridgeConfig { neighbour_suppression: true, ..bridge(PORTS) });
        config.ports[0].trusted = true;
        config.ports[1].source_check = Some(SourceCheckConfig { macs: vec![MacPrefix::exact(mac(2))], ips: None });
        with_groups(config, groups);
    });
    let mut guests = guests(&rig);
    let decides = |allowed: bool| {
        let request = ExplainRequest { port: "p2".to_owned(), packet: "udp from 10.0.0.2 port 53".to_owned() };
        wait_moving(&rig.clock, Duration::from_millis(100), "the group has other members", || {
            let decisions = rig.switch.source().explain(&request).expect("a decision").decisions;
            decisions.last().expect("one").allowed == allowed
        });
    };
    expect(&rig, &mut guests, 1, &udp([1, 9], [2, 53]), &[0]);
    rig.wait_drops(2, "denied", 1);
    // A guest is no server.
    send(&mut guests[2], &lease(1, ip(1), 60));
    rig.wait_drops(2, "denied", 2);
    expect(&rig, &mut guests, 0, &lease(1, ip(1), 60), &[1]);
    decides(true);
    expect(&rig, &mut guests, 1, &udp([1, 9], [2, 53]), &[0, 2]);
    let sets = rig.switch.source().sets(&SetsRequest { name: Some("group:g1".to_owned()) }).expect("a group");
    assert_eq!(sets.sets[0].prefixes, ["10.0.0.2"]);
    // At both ends, by the addresses of leases.
    let request = ExplainRequest { port: "p1".to_owned(), packet: "udp to 10.0.0.3 port 53".to_owned() };
    assert_eq!(rig.switch.source().explain(&request).expect("a decision").decisions.len(), 1);

    // A reload keeps the member: no connection waits for the next lease.
    let mut config = rig.switch.config();
    with_groups(&mut config, &[(1, &[], &["udp 53 to any"]), (2, &["udp 53 from group:g1"], &[])]);
    rig.switch.reload(&config).expect("a good configuration");
    expect(&rig, &mut guests, 1, &udp([1, 10], [2, 53]), &[0, 2]);
    // The end of the lease ends its connections.
    expect(&rig, &mut guests, 0, &lease(1, ip(1), 20), &[1]);
    rig.advance(Duration::from_secs(19));
    decides(true);
    rig.advance(Duration::from_secs(1));
    decides(false);
    expect(&rig, &mut guests, 1, &udp([1, 10], [2, 53]), &[0]);
}

#[test]
fn connections_of_flows_are_listed_with_their_port_and_zone() {
    let rig = rig(PORTS, |config| {
        let lines = ["udp,in_port=p0,actions=ct(commit,zone=7),normal", "udp,actions=ct(commit),normal"];
        let flows = FlowsConfig { lines: lines.map(str::to_owned).to_vec(), ..FlowsConfig::default() };
        config.bridges.push(BridgeConfig { flows: Some(flows), connections: 1000, ..bridge(PORTS) });
    });
    let mut guests = guests(&rig);
    let ask = |port: Option<&str>, bridge: &str| {
        let port = port.map(str::to_owned);
        let request = ConnectionsRequest { port, bridge: Some(bridge.to_owned()), ..ConnectionsRequest::default() };
        rig.switch.source().connections(&request)
    };
    expect(&rig, &mut guests, 0, &udp([0, 9], [1, 53]), &[1, 2]);
    expect(&rig, &mut guests, 2, &udp([2, 9], [1, 53]), &[0, 1]);
    let mut all = ask(None, "lan").expect("connections");
    all.connections.sort_by(|one, other| one.port.cmp(&other.port));
    let seen = |c: &Connection| (c.port.clone(), c.local.clone(), c.remote.clone(), c.zone, c.state.clone());
    let row = |port: &str, from: &str, zone| {
        (port.to_owned(), from.to_owned(), "10.0.0.2:53".to_owned(), Some(zone), "UNREPLIED".to_owned())
    };
    let [first, second] = [row("p0", "10.0.0.1:9", 7), row("p2", "10.0.0.3:9", 0)];
    assert_eq!(all.connections.iter().map(seen).collect::<Vec<_>>(), [first, second.clone()]);
    assert_eq!((all.total, all.shares[0].used.connections, all.shares[0].used.most), (2, 2, 1000));
    let of_port = ask(Some("p2"), "lan").expect("connections");
    assert_eq!((of_port.total, of_port.connections.iter().map(seen).collect::<Vec<_>>()), (1, vec![second]));
    let error = ask(None, "other").expect_err("no such bridge").error;
    assert!(error.contains("no bridge \"other\" with flows"), "{error}");
}

/// Returns the rules that a trace names: the port, whether it allows the packet, and its text.
fn traced(stream: &mut dyn Stream) -> Vec<(String, bool, String)> {
    let mut rules = Vec::new();
    wait_until("the packet is traced", || {
        let mut output = Vec::new();
        stream.fill(&mut output);
        let lines =
            output.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).expect("a line"));
        let packets: Vec<_> = lines.collect();
        for line in &packets {
            let TraceLine::Packet(packet) = line else { continue };
            for action in packet.steps.iter().flat_map(|step| &step.actions) {
                if let TraceAction::Decided { port, allowed, rule } = action {
                    rules.push((port.clone(), *allowed, rule.clone()));
                }
            }
        }
        !packets.is_empty()
    });
    rules
}

#[test]
fn a_trace_names_the_rules_that_decided() {
    let rig = guarded(&[(0, &[], &["udp 53 to any name ask"]), (1, &["udp 53 from 10.0.0.1", "udp 54 from any"], &[])]);
    let mut guests = guests(&rig);
    let request =
        TraceRequest { ports: vec!["p0".to_owned(), "p1".to_owned(), "p2".to_owned()], count: 10, filter: None };
    let (_, mut stream) = rig.switch.trace(&request).expect("a trace");
    let ask = ("p0".to_owned(), true, "rule 1 of \"out\" in group \"g0\": udp 53 to any name ask".to_owned());
    let asked = ("p1".to_owned(), true, "rule 1 of \"in\" in group \"g1\": udp 53 from 10.0.0.1".to_owned());
    // The first packet, a further one, and the answer.
    for (from, frame) in [(0, udp([0, 9], [1, 53])), (0, udp([0, 9], [1, 53])), (1, udp([1, 53], [0, 9]))] {
        send(&mut guests[from], &frame);
        let mut rules = traced(&mut *stream);
        rules.sort();
        assert_eq!(rules, [ask.clone(), asked.clone()], "from p{from}");
    }
    send(&mut guests[0], &udp([0, 9], [1, 54]));
    assert_eq!(traced(&mut *stream), [("p0".to_owned(), false, "no rule of \"out\" allows it".to_owned())]);
    send(&mut guests[2], &udp([2, 9], [1, 53]));
    assert_eq!(traced(&mut *stream), [("p1".to_owned(), false, "no rule of \"in\" allows it".to_owned())]);
}
