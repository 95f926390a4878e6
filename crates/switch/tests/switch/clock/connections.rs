//! Times of connections and flows: idle connections and flows end, and connections of before a start
//! are taken up for a while.
//!
//! ```text
//! p0 (groups) ─┐
//! p1          ─┴─ bridge lan, by a moved clock
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use straightline_config::{Config, FlowsConfig, Group};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{ConnectionsRequest, FlowsRequest};
use straightline_testing::{Rig, bridge, mac, rig_by, send, take};
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{tcp, vlan};

const SECOND: Duration = Duration::from_secs(1);

/// The time after which a UDP connection without an answer ends.
const UDP: Duration = Duration::from_secs(30);

fn guests(rig: &Rig) -> [Guest; 2] {
    [0, 1].map(|port| rig.guest(port, &GuestOptions::default()))
}

/// A packet from the guest at one port to that at the other.
fn packet(from: u8, transport: Transport) -> Vec<u8> {
    let to = 1 - from;
    let ip = |port: u8| Ipv4Addr::new(10, 0, 0, port + 1);
    let tags = [None; vlan::MAX_TAGS];
    let net = Net::v4(ip(from), ip(to));
    let headers = Frame { src: mac(from + 1), dst: mac(to + 1), tags, net, transport, payload_len: 100 };
    let mut bytes = vec![0; headers.headers_len() + 100];
    headers.emit(&mut bytes, Checksum::Zero).expect("enough space");
    bytes
}

fn udp(from: u8, ports: [u16; 2]) -> Vec<u8> {
    packet(from, Transport::Udp { src_port: ports[0], dst_port: ports[1] })
}

/// Sends a packet, which arrives.
fn pass(guests: &mut [Guest; 2], from: usize, sent: &[u8]) {
    send(&mut guests[from], sent);
    assert_eq!(take(&mut guests[1 - from], 1)[0].1, sent);
}

/// Gives port 0 a group that may send to port 53, and get nothing but answers.
fn with_group(config: &mut Config) {
    config.bridges.push(bridge(2));
    config.groups = vec![Group::parse("g", &[], &["udp 53 to any", "tcp 53 to any"]).expect("rules")];
    config.ports[0].groups = vec!["g".to_owned()];
}

fn count(rig: &Rig, request: &ConnectionsRequest) -> u64 {
    rig.switch.source().connections(request).expect("connections").shares[0].used.connections
}

#[test]
fn an_idle_connection_ends_and_its_answers_are_denied() {
    let rig = rig_by(2, &Clock::moved(), with_group);
    let mut guests = guests(&rig);
    let answer = udp(1, [53, 9]);
    pass(&mut guests, 0, &udp(0, [9, 53]));
    rig.advance(UDP - SECOND);
    // A packet begins the time again.
    pass(&mut guests, 0, &udp(0, [9, 53]));
    rig.advance(UDP - SECOND);
    assert_eq!(count(&rig, &ConnectionsRequest::default()), 1);
    rig.advance(2 * SECOND);
    assert_eq!(count(&rig, &ConnectionsRequest::default()), 0);
    send(&mut guests[1], &answer);
    rig.wait_drops(0, "denied", 1);
    pass(&mut guests, 0, &udp(0, [9, 53]));
    pass(&mut guests, 1, &answer);
}

#[test]
fn a_connection_of_before_the_start_is_taken_up_for_its_time() {
    let pickup = Duration::from_secs(60);
    let rig = rig_by(2, &Clock::moved(), |config| {
        with_group(config);
        config.firewall.pickup = Some(pickup);
    });
    let mut guests = guests(&rig);
    // A packet in the middle of a connection.
    let segment = |port| {
        let flags = tcp::Flags::ACK;
        packet(0, Transport::Tcp { src_port: port, dst_port: 53, seq: 1000, ack: 2000, flags, window: 500 })
    };
    rig.advance(pickup - SECOND);
    pass(&mut guests, 0, &segment(1));
    rig.advance(SECOND);
    send(&mut guests[0], &segment(2));
    rig.wait_drops(0, "invalid", 1);
    // What was taken up goes on.
    pass(&mut guests, 0, &segment(1));
}

#[test]
fn a_flow_ends_when_it_is_idle_and_when_its_time_is_over() {
    let rig = rig_by(2, &Clock::moved(), |config| {
        config.bridges.push(bridge(2));
        let lines = ["idle_timeout=10,priority=2,udp,actions=normal", "hard_timeout=25,priority=1,actions=normal"];
        let lines = lines.map(str::to_owned).to_vec();
        config.bridges[0].flows = Some(FlowsConfig { lines, ..FlowsConfig::default() });
    });
    let mut guests = guests(&rig);
    let flows = || rig.switch.source().flows(&FlowsRequest::new("lan")).expect("flows").total;
    rig.advance(9 * SECOND);
    assert_eq!(flows(), 2);
    // A packet begins the time of the idle flow again.
    pass(&mut guests, 0, &udp(0, [9, 53]));
    rig.advance(9 * SECOND);
    assert_eq!(flows(), 2);
    // Workers note whole seconds, so an idle flow may last for one more.
    rig.advance(2 * SECOND);
    assert_eq!(flows(), 1);
    rig.advance(5 * SECOND);
    assert_eq!(flows(), 0);
}
