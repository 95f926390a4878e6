//! A learning bridge with guests at its ports.

use std::time::Duration;

use straightline_config::{BridgeConfig, Mac, StaticEntry};
use straightline_graph::Clock;
use straightline_graph::clock::{hertz, in_cycles};
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{EventKind, FdbEntry};
use straightline_testing::packets::{Kind, segmented};
use straightline_testing::{
    BROADCAST, Rig, arrived, bridge, frame, mac, noise, nothing_at, rig, rig_by, send, take, wait_event, wait_until,
};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;

const PORTS: usize = 4;

/// The time after which a bridge forgets a station.
const AGEING: Duration = Duration::from_secs(BridgeConfig::DEFAULT_AGEING as u64);

fn lan(change: impl FnOnce(&mut BridgeConfig)) -> (Rig, Vec<Guest>) {
    lan_by(&Clock::real(), change)
}

fn lan_by(clock: &Clock, change: impl FnOnce(&mut BridgeConfig)) -> (Rig, Vec<Guest>) {
    let rig = rig_by(PORTS, clock, |config| {
        let mut lan = bridge(PORTS);
        change(&mut lan);
        config.bridges.push(lan);
    });
    let guests = (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    (rig, guests)
}

/// Sends a frame; it arrives, unchanged, at exactly the guests in `to`.
fn expect(rig: &Rig, guests: &mut [Guest], from: usize, dst: MacAddr, src: MacAddr, to: &[usize]) {
    let frame = frame(dst, src, 100, u64::from(src.0[5]) << 8 | u64::from(dst.0[5]));
    send(&mut guests[from], &frame);
    for &port in to {
        assert_eq!(take(&mut guests[port], 1)[0].1, frame);
    }
    let others = guests.iter_mut().enumerate().filter(|(port, _)| !to.contains(port));
    nothing_at(&rig.switch, others.map(|(_, guest)| guest));
}

fn fdb(rig: &Rig) -> Vec<FdbEntry> {
    let mut entries = rig.switch.source().fdb().entries;
    entries.sort_by(|a, b| a.mac.cmp(&b.mac));
    entries
}

fn known(rig: &Rig) -> Vec<(String, String)> {
    fdb(rig).into_iter().map(|entry| (entry.mac, entry.port)).collect()
}

fn at(mac: MacAddr, port: usize) -> (String, String) {
    (mac.to_string(), format!("p{port}"))
}

#[test]
fn it_floods_what_it_does_not_know_and_learns_who_is_where() {
    let (rig, mut guests) = lan(|_| ());
    expect(&rig, &mut guests, 0, mac(2), mac(1), &[1, 2, 3]);
    assert_eq!(known(&rig), [at(mac(1), 0)]);
    expect(&rig, &mut guests, 1, mac(1), mac(2), &[0]);
    expect(&rig, &mut guests, 0, mac(2), mac(1), &[1]);
    assert_eq!(known(&rig), [at(mac(1), 0), at(mac(2), 1)]);
    rig.no_drops();
}

#[test]
fn broadcast_and_multicast_go_to_all_others() {
    let (rig, mut guests) = lan(|_| ());
    for from in 0..PORTS {
        let others: Vec<_> = (0..PORTS).filter(|&port| port != from).collect();
        let src = mac(u8::try_from(from).expect("few") + 1);
        expect(&rig, &mut guests, from, BROADCAST, src, &others);
        expect(&rig, &mut guests, from, MacAddr([0x33, 0x33, 0, 0, 0, 1]), src, &others);
    }
    assert_eq!(fdb(&rig).len(), PORTS);
    rig.no_drops();
}

#[test]
fn a_station_moves() {
    let (rig, mut guests) = lan(|_| ());
    expect(&rig, &mut guests, 0, BROADCAST, mac(1), &[1, 2, 3]);
    expect(&rig, &mut guests, 3, mac(1), mac(4), &[0]);
    expect(&rig, &mut guests, 2, BROADCAST, mac(1), &[0, 1, 3]);
    expect(&rig, &mut guests, 3, mac(1), mac(4), &[2]);
    assert_eq!(known(&rig), [at(mac(1), 2), at(mac(4), 3)]);
    wait_event(&rig.switch, "the move is an event", |kind| match kind {
        EventKind::Moved { bridge, mac: moved, from, to } => {
            (bridge.as_str(), from.as_str(), to.as_str()) == ("lan", "p0", "p2") && *moved == mac(1).to_string()
        }
        _ => false,
    });
}

#[test]
fn a_frame_for_its_own_port_is_dropped() {
    let (rig, mut guests) = lan(|_| ());
    expect(&rig, &mut guests, 0, BROADCAST, mac(1), &[1, 2, 3]);
    expect(&rig, &mut guests, 0, mac(1), mac(2), &[]);
    rig.wait_drops(0, "same-port", 1);
}

#[test]
fn static_entries_neither_move_nor_age() {
    let (rig, mut guests) = lan_by(&Clock::moved(), |lan| {
        lan.statics =
            vec![StaticEntry { mac: Mac::new(mac(7).0).expect("a station"), port: "p2".to_owned(), vlan: None }];
    });
    expect(&rig, &mut guests, 0, mac(7), mac(1), &[2]);
    expect(&rig, &mut guests, 1, BROADCAST, mac(7), &[0, 2, 3]);
    expect(&rig, &mut guests, 0, mac(7), mac(1), &[2]);
    let entry = fdb(&rig).into_iter().find(|entry| entry.is_static).expect("the static entry");
    assert_eq!((entry.mac, entry.port, entry.bridge.as_str()), (mac(7).to_string(), "p2".to_owned(), "lan"));
    rig.advance(AGEING);
    assert_eq!(known(&rig), [at(mac(7), 2)], "the learned one has aged");
    expect(&rig, &mut guests, 0, mac(7), mac(1), &[2]);
}

#[test]
fn entries_age() {
    let (rig, mut guests) = lan_by(&Clock::moved(), |_| ());
    expect(&rig, &mut guests, 0, BROADCAST, mac(1), &[1, 2, 3]);
    rig.advance(AGEING - Duration::from_secs(1));
    expect(&rig, &mut guests, 3, mac(1), mac(4), &[0]);
    assert_eq!(known(&rig), [at(mac(1), 0), at(mac(4), 3)]);
    rig.advance(Duration::from_secs(1));
    assert_eq!(known(&rig), [at(mac(4), 3)]);
    expect(&rig, &mut guests, 3, mac(1), mac(4), &[0, 1, 2]);
    assert_eq!(known(&rig), [at(mac(4), 3)]);
}

#[test]
fn a_full_table_floods_and_has_room_again_when_entries_age() {
    let (rig, mut guests) = lan_by(&Clock::moved(), |lan| lan.limit = 8);
    for n in 1..=20 {
        expect(&rig, &mut guests, 0, BROADCAST, mac(n), &[1, 2, 3]);
        assert!(fdb(&rig).len() <= 8);
    }
    expect(&rig, &mut guests, 1, mac(100), mac(101), &[0, 2, 3]);
    rig.advance(AGEING);
    // Each batch sweeps a part of the table.
    wait_until("there is an entry for a new one", || {
        send(&mut guests[1], &frame(BROADCAST, mac(102), 60, 1));
        guests.iter_mut().for_each(|guest| drop(arrived(guest)));
        let known = known(&rig);
        if known.contains(&at(mac(102), 1)) { Ok(()) } else { Err(known) }
    });
}

#[test]
fn a_guest_that_invents_addresses_leaves_the_others_theirs() {
    let (rig, mut guests) = lan(|_| ());
    for n in 0..=u8::MAX {
        // Addressed to its own station, so that no other guest receives them.
        send(&mut guests[0], &frame(MacAddr([2, 0, 0, 0, 1, 0]), MacAddr([2, 0, 0, 0, 1, n]), 60, 1));
    }
    guests.iter_mut().for_each(|guest| drop(arrived(guest)));
    let addresses = |port| rig.port(port).addresses.expect("it is in a bridge");
    // An eighth of 64 for each of four ports, and the half that no port owns.
    wait_until("all were heard", || addresses(0).refused == 256 - 40);
    assert_eq!(addresses(0).learned, 40);
    guests.iter_mut().for_each(|guest| drop(arrived(guest)));
    for n in 1..=8 {
        expect(&rig, &mut guests, 1, BROADCAST, mac(n), &[0, 2, 3]);
        expect(&rig, &mut guests, 2, mac(n), mac(100 + n), &[1]);
        expect(&rig, &mut guests, 1, mac(100 + n), mac(n), &[2]);
    }
    assert_eq!([1, 2].map(|port| addresses(port).learned), [8, 8]);
    assert_eq!([1, 2, 3].map(|port| addresses(port).refused), [0; 3]);
}

#[test]
fn link_local_frames_and_impossible_sources_go_nowhere() {
    let (rig, mut guests) = lan(|_| ());
    for last in 0..16 {
        expect(&rig, &mut guests, 0, MacAddr([1, 0x80, 0xc2, 0, 0, last]), mac(1), &[]);
    }
    rig.wait_drops(0, "link-local", 16);
    expect(&rig, &mut guests, 0, MacAddr([1, 0x80, 0xc2, 0, 0, 16]), mac(1), &[1, 2, 3]);
    expect(&rig, &mut guests, 0, mac(2), BROADCAST, &[]);
    expect(&rig, &mut guests, 0, mac(2), MacAddr([0; 6]), &[]);
    rig.wait_drops(0, "bad-source", 2);
    assert_eq!(known(&rig), [at(mac(1), 0)]);
}

#[test]
fn a_flood_to_a_port_that_is_down_reaches_the_others() {
    let (rig, mut guests) = lan(|_| ());
    drop(guests.remove(2));
    rig.wait_down(2, "closed its connection");
    send(&mut guests[0], &frame(BROADCAST, mac(1), 1000, 1));
    take(&mut guests[1], 1);
    take(&mut guests[2], 1);
    rig.wait_drops(2, "link-down", 1);
}

/// Returns calls of the bridge's node until it has flooded these packets, which one of 33 ports
/// sends at once.
fn turns_for(packets: &[(NetHeader, Vec<u8>)]) -> u64 {
    let rig = rig(33, |config| {
        config.bridges.push(bridge(33));
        config.ports.iter_mut().for_each(|port| port.mtu = 9000);
    });
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_USO;
    let mut source = rig.guest(0, &GuestOptions { features, buffer_len: 9100, ..GuestOptions::default() });
    for (header, frame) in packets {
        assert!(source.send(header, frame));
    }
    source.flush();
    let all = u64::try_from(packets.len()).expect("few");
    for port in 1..33 {
        rig.wait_drops(port, "link-down", all);
    }
    let bridge = rig.switch.source().runtime().nodes.into_iter().find(|node| node.name == "bridge.lan");
    bridge.expect("the bridge's figures").calls
}

/// Each packet is copied to 32 ports. A turn floods packets until their copies beyond the first have
/// cost 100 µs by estimate (`graph/src/shares.rs`), which are more cycles on a faster machine.
#[test]
fn a_turn_takes_less_where_many_ports_are_flooded() {
    let frame = frame(BROADCAST, mac(1), 4000, 1);
    let turns = turns_for(&vec![(NetHeader::default(), frame); 64]);
    let copies = 31 * ((4000 - 256) / 8 + 150);
    let in_a_turn = in_cycles(Duration::from_micros(100), hertz()) / copies + 1;
    assert!(turns >= 64 / in_a_turn && turns > 1, "{turns} turns, of {in_a_turn} packets");
}

/// Each of the receiving ports would segment the packet again.
#[test]
fn a_turn_takes_fewer_segments_where_many_ports_are_flooded() {
    let packet = segmented(Kind::Udp4, BROADCAST, mac(1), &noise(1, 2000), 20);
    let segments = 100 * 64_u64;
    let turns = turns_for(&vec![packet; 64]);
    assert!(turns >= segments / (8192 / 32 + 103), "{turns} turns");
}
