//! Timers of a bridge: limits of moves, the pause of a loop, members of groups, bindings.
//!
//! ```text
//! p0 ─┐
//! p1 ─┼─ bridge lan, by a moved clock
//! p2 ─┘
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use straightline_config::BridgeConfig;
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{EventKind, Port};
use straightline_testing::multicast::{data, join, query};
use straightline_testing::{BROADCAST, Rig, bridge, frame, mac, rig_by, send, take};
use straightline_wire::MacAddr;

const PORTS: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// Time between two looks of the switch for events.
const LOOK: Duration = Duration::from_millis(100);

fn lan(change: impl FnOnce(&mut BridgeConfig)) -> (Rig, Vec<Guest>) {
    let rig = rig_by(PORTS, &Clock::moved(), |config| {
        let mut lan = bridge(PORTS);
        change(&mut lan);
        config.bridges.push(lan);
    });
    let guests = (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    (rig, guests)
}

/// Sends a frame from a port, and checks that it is the next one to arrive at these ports.
fn expect(guests: &mut [Guest], from: usize, sent: &[u8], to: &[usize]) {
    send(&mut guests[from], sent);
    for &port in to {
        assert_eq!(take(&mut guests[port], 1)[0].1, sent, "at p{port}");
    }
}

fn place(rig: &Rig, station: MacAddr) -> Option<String> {
    let entries = rig.switch.source().fdb().entries;
    entries.into_iter().find(|entry| entry.mac == station.to_string()).map(|entry| entry.port)
}

fn addresses(port: &Port) -> u32 {
    port.addresses.as_ref().expect("it is in a bridge").learned
}

/// A port gets one station from other ports in a second. The next one stays where it was until the next
/// second.
#[test]
fn a_port_takes_as_many_stations_in_a_second_as_its_limit_says() {
    let rig = rig_by(PORTS, &Clock::moved(), |config| {
        config.bridges.push(bridge(PORTS));
        config.ports[1].move_limit = Some(1);
    });
    let mut guests: Vec<_> = (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    for station in [1, 2] {
        expect(&mut guests, 0, &frame(BROADCAST, mac(station), 60, 1), &[1, 2]);
    }
    for station in [1, 2] {
        expect(&mut guests, 1, &frame(BROADCAST, mac(station), 60, 2), &[0, 2]);
    }
    let places = || [1, 2].map(|station| place(&rig, mac(station)).expect("a known station"));
    assert_eq!(places(), ["p1", "p0"], "the second one is held");
    rig.advance(SECOND);
    expect(&mut guests, 1, &frame(BROADCAST, mac(2), 60, 3), &[0, 2]);
    assert_eq!(places(), ["p1", "p1"]);
    assert_eq!([0, 1].map(|port| addresses(&rig.port(port))), [0, 2]);
}

#[test]
fn floods_of_a_looped_port_pause_for_ten_seconds() {
    let (rig, mut guests) = lan(|lan| lan.loop_protection = true);
    expect(&mut guests, 0, &frame(BROADCAST, mac(1), 60, 0), &[1, 2]);
    // A station that moves to and fro. Ten moves pass, and the eleventh is a loop.
    for round in 0..5 {
        expect(&mut guests, 1, &frame(mac(9), mac(1), 60, round), &[0, 2]);
        if round < 4 {
            expect(&mut guests, 0, &frame(mac(9), mac(1), 60, round), &[1, 2]);
        }
    }
    let is_loop = |kind: &EventKind| matches!(kind, EventKind::Loop { .. });
    let is_found = || rig.switch.source().events(0).events.iter().any(|event| is_loop(&event.kind));
    rig.advance(LOOK);
    assert!(!is_found(), "nine moves are no loop");
    expect(&mut guests, 0, &frame(mac(9), mac(1), 60, 5), &[1, 2]);
    send(&mut guests[1], &frame(mac(9), mac(1), 60, 6));
    rig.wait_drops(1, "loop", 1);
    rig.advance(LOOK);
    assert!(is_found());

    let flood = |guests: &mut [Guest], n, to: &[usize]| expect(guests, 2, &frame(BROADCAST, mac(3), 60, n), to);
    flood(&mut guests, 10, &[0]);
    rig.advance(8 * SECOND);
    flood(&mut guests, 11, &[0]);
    rig.advance(2 * SECOND);
    // The first flood that arrives again: none of the pause does.
    flood(&mut guests, 12, &[0, 1]);
}

/// The membership time is 260 s, and a querier is known for 255 s (RFC 3376, 8.4 and 8.5).
#[test]
fn a_member_that_reports_nothing_is_forgotten_after_its_time() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    let (rig, mut guests) = lan(|lan| lan.snooping = true);
    expect(&mut guests, 0, &query(), &[1, 2]);
    // Members have answered by then.
    rig.advance(3 * SECOND);
    expect(&mut guests, 1, &join(GROUP), &[0]);
    expect(&mut guests, 2, &data(GROUP), &[0, 1]);
    rig.advance(200 * SECOND);
    expect(&mut guests, 0, &query(), &[1, 2]);
    rig.advance(59 * SECOND);
    expect(&mut guests, 2, &data(GROUP), &[0, 1]);
    rig.advance(2 * SECOND);
    expect(&mut guests, 2, &data(GROUP), &[0]);
    // The next packet for all comes first: the one before has not come.
    expect(&mut guests, 2, &frame(BROADCAST, mac(3), 60, 1), &[0, 1]);
    // Without a querier, all get all.
    rig.advance(300 * SECOND);
    expect(&mut guests, 2, &data(GROUP), &[0, 1]);
}
