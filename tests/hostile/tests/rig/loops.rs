//! A VM that uses loop protection as a weapon: it claims the address of a station behind a trunk that
//! other tenants use, too.
//!
//! ```text
//! p0: the attacker, VLAN 10 ┐
//! p1: its neighbour, VLAN 10├─ bridge ── p3: trunk of 10 and 20
//! p2: the victim, VLAN 20   ┘
//! ```
//!
//! Success: no broadcast of either VLAN is lost, in either direction, but those of the attacker.
//!
//! In a bridge without VLANs, a tap leads to the station, which is the machine itself.

use std::net::UdpSocket;
use std::time::Duration;

use straightline_config::{PortConfig, PortRules, PortVlans, VlanRole};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::EventKind;
use straightline_testing::host::{Host, tap};
use straightline_testing::{
    BROADCAST, Rig, arrived, bridge, frame, mac, rig_by, send, wait_event, wait_turns, wait_until,
};
use straightline_wire::{EtherType, MacAddr, VlanId};

const ATTACKER: usize = 0;
const NEIGHBOUR: usize = 1;
const VICTIM: usize = 2;
const TRUNK: usize = 3;

/// Seconds of the attack.
const SECONDS: u64 = 25;

/// Claims in the first second, more than the moves that pass, and in each one after it.
const CLAIMS: (u64, u64) = (12, 2);

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn tagged(frame: &[u8], vid: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vid.to_be_bytes(), &frame[12..]].concat()
}

fn set(port: &mut PortConfig, vlans: PortVlans) {
    port.rules = PortRules { vlans: Some(vlans), ..PortRules::default() };
}

struct Lan {
    rig: Rig,
    guests: Vec<Guest>,
    sent: u64,
}

impl Lan {
    fn new() -> Self {
        let rig = rig_by(4, &Clock::moved(), |config| {
            for (port, vid) in [(ATTACKER, 10), (NEIGHBOUR, 10), (VICTIM, 20)] {
                set(&mut config.ports[port], PortVlans::access(id(vid)));
            }
            let vlans = Box::new([10, 20].map(id).into_iter().collect());
            let role = VlanRole::Trunk { tpid: EtherType::VLAN, vlans, native: None };
            set(&mut config.ports[TRUNK], PortVlans { role, priority: 0 });
            config.bridges.push(bridge(4));
        });
        let guests = (0..4).map(|port| rig.guest(port, &GuestOptions::default())).collect();
        Lan { rig, guests, sent: 0 }
    }

    /// Sends a broadcast in a VLAN, which arrives.
    fn broadcast(&mut self, from: usize, source: MacAddr, vid: u16, to: usize) {
        self.sent += 1;
        let plain = frame(BROADCAST, source, 60, self.sent);
        let form = |port: usize| if port == TRUNK { tagged(&plain, vid) } else { plain.clone() };
        let expected = form(to);
        send(&mut self.guests[from], &form(from));
        let Lan { guests, .. } = self;
        wait_until("the broadcast arrives", || arrived(&mut guests[to]).iter().any(|(_, frame)| *frame == expected));
        for guest in guests {
            arrived(guest);
        }
    }

    /// Has a guest claim an address, in a frame for a station that nobody knows.
    fn claim(&mut self, port: usize, address: MacAddr) {
        self.sent += 1;
        claim(&self.rig, &mut self.guests, port, &frame(mac(99), address, 60, self.sent));
    }

    /// Returns the port of an address in VLAN 10.
    fn place(&self, address: MacAddr) -> Option<String> {
        let places = self.rig.switch.source().fdb().entries;
        let place = places.into_iter().find(|entry| entry.vlan == 10 && entry.mac == address.to_string());
        place.map(|entry| entry.port)
    }
}

/// Sends a frame, and waits until the switch has done with it.
fn claim(rig: &Rig, guests: &mut [Guest], port: usize, frame: &[u8]) {
    send(&mut guests[port], frame);
    guests[port].kick_anyway();
    wait_turns(&rig.switch);
    for guest in guests {
        arrived(guest);
    }
}

#[test]
fn a_claimed_address_behind_a_trunk() {
    let gateway = mac(1);
    let mut lan = Lan::new();
    // The worst case: the attacker was first.
    lan.broadcast(ATTACKER, gateway, 10, NEIGHBOUR);
    for second in 0..SECONDS {
        for _ in 0..if second == 0 { CLAIMS.0 } else { CLAIMS.1 } {
            lan.claim(ATTACKER, gateway);
            lan.broadcast(TRUNK, gateway, 10, NEIGHBOUR);
            lan.broadcast(NEIGHBOUR, mac(2), 10, TRUNK);
            lan.broadcast(TRUNK, mac(3), 20, VICTIM);
            lan.broadcast(VICTIM, mac(4), 20, TRUNK);
        }
        lan.rig.advance(Duration::from_secs(1));
        assert_eq!(lan.place(gateway), Some(format!("p{TRUNK}")), "second {second}");
    }
    assert!(lan.rig.drops(ATTACKER, "loop") > 0);
    assert_eq!([VICTIM, TRUNK].map(|port| lan.rig.drops(port, "loop")), [0, 0]);
    wait_event(&lan.rig.switch, "the attack is told", |kind| match kind {
        EventKind::Loop { mac, from, to, .. } => {
            *mac == gateway.to_string() && (from.as_str(), to.as_str()) == ("p3", "p0")
        }
        _ => false,
    });
}

/// Two VMs have an address frozen at one of them, before its station is heard at the trunk.
#[test]
fn an_address_that_two_vms_have_frozen_first() {
    let gateway = mac(1);
    let mut lan = Lan::new();
    for _ in 0..CLAIMS.0 {
        lan.claim(ATTACKER, gateway);
        lan.claim(NEIGHBOUR, gateway);
    }
    assert_eq!(lan.place(gateway), Some(format!("p{ATTACKER}")), "it is frozen there");
    for second in 0..SECONDS {
        let broadcast = tagged(&frame(BROADCAST, gateway, 60, second), 10);
        claim(&lan.rig, &mut lan.guests, TRUNK, &broadcast);
        for _ in 0..CLAIMS.1 {
            lan.claim(ATTACKER, gateway);
            lan.claim(NEIGHBOUR, gateway);
            lan.broadcast(TRUNK, mac(3), 20, VICTIM);
            lan.broadcast(VICTIM, mac(4), 20, TRUNK);
        }
        assert_eq!(lan.place(gateway), Some(format!("p{TRUNK}")), "second {second}");
        lan.rig.advance(Duration::from_secs(1));
    }
    // Both VMs of VLAN 10 pause, so its broadcasts from the trunk reach nobody.
    assert_eq!(lan.rig.drops(VICTIM, "loop"), 0);
}

/// The way to the gateway is an interface of the machine, in a bridge without VLANs. It never pauses.
#[test]
fn a_claimed_address_behind_an_interface() {
    const PAYLOAD: usize = 64;
    let Some(host) = Host::new("a_claimed_address_behind_an_interface") else { return };
    let gateway = mac(1);
    let rig = rig_by(2, &Clock::moved(), |config| {
        let mut up = tap("up0");
        up.mac = Some(gateway.to_string().parse().expect("an address"));
        config.ports.push(up);
        let mut lan = bridge(2);
        lan.ports.push("up0".to_owned());
        config.bridges.push(lan);
    });
    let mut guests: Vec<_> = (0..2).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    // The worst case: the attacker was first.
    claim(&rig, &mut guests, ATTACKER, &frame(mac(99), gateway, 60, 0));
    host.ip("addr add 10.0.0.1/24 brd 10.0.0.255 dev up0");
    host.ip("link set up0 up");
    let socket = UdpSocket::bind("10.0.0.1:2000").expect("bound");
    socket.set_broadcast(true).expect("an option");
    let mut sent = 0_u8;
    for second in 0..SECONDS {
        for _ in 0..if second == 0 { CLAIMS.0 } else { CLAIMS.1 } {
            claim(&rig, &mut guests, ATTACKER, &frame(mac(99), gateway, 60, second));
            sent += 1;
            let payload = [sent; PAYLOAD];
            socket.send_to(&payload, "10.0.0.255:2001").expect("sent");
            let is_it = |(_, frame): &(_, Vec<u8>)| frame.ends_with(&payload);
            wait_until("the broadcast arrives", || arrived(&mut guests[NEIGHBOUR]).iter().any(is_it));
        }
        rig.advance(Duration::from_secs(1));
    }
    assert!(rig.drops(ATTACKER, "loop") > 0);
    assert_eq!(rig.drops(2, "loop"), 0);
}
