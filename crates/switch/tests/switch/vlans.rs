//! A bridge with VLANs, with guests at access ports, trunks and customer ports.

use straightline_config::{Config, Machine, NativeVlan, PortConfig, PortRules, PortVlans, SourceCheckConfig, VlanRole};
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api;
use straightline_testing::packets::{Kind, check, segmented};
use straightline_testing::{BROADCAST, Rig, bridge, frame, mac, noise, nothing_at, rig, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, MacAddr, VlanId};

const PORTS: usize = 5;

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn trunk(vids: &[u16], native: Option<u16>) -> PortVlans {
    let native = native.map(|vid| NativeVlan { id: id(vid), is_tagged: false, has_nested_tags: false });
    let vlans = vids.iter().map(|&vid| id(vid)).chain(native.map(|native| native.id)).collect();
    PortVlans { role: VlanRole::Trunk { tpid: EtherType::VLAN, vlans: Box::new(vlans), native }, priority: 0 }
}

fn set(port: &mut PortConfig, vlans: PortVlans) {
    port.rules = PortRules { vlans: Some(vlans), ..PortRules::default() };
}

/// `p0` and `p1` are access ports of VLANs 10 and 20, `p2` is a trunk of both, `p3` one of VLAN 10
/// whose untagged frames are in VLAN 20, and `p4` has no VLAN.
fn configure(config: &mut Config) {
    config.bridges.push(bridge(PORTS));
    set(&mut config.ports[0], PortVlans { priority: 5, ..PortVlans::access(id(10)) });
    set(&mut config.ports[1], PortVlans::access(id(20)));
    set(&mut config.ports[2], trunk(&[10, 20], None));
    set(&mut config.ports[3], trunk(&[10], Some(20)));
}

fn guests(rig: &Rig, features: u64) -> Vec<Guest> {
    let features = GuestOptions::default().features | features;
    let options = GuestOptions { features, buffer_len: 12_000, ..GuestOptions::default() };
    (0..PORTS).map(|port| rig.guest(port, &options)).collect()
}

fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// Sends a frame; these frames arrive, and nothing else.
fn expect(rig: &Rig, guests: &mut [Guest], from: usize, sent: &[u8], to: &[(usize, Vec<u8>)]) {
    send(&mut guests[from], sent);
    for (port, frame) in to {
        assert_eq!(take(&mut guests[*port], 1)[0].1, *frame, "at p{port}");
    }
    nothing_at(&rig.switch, guests);
}

#[test]
fn frames_stay_in_their_vlan_and_tags_are_at_trunks_only() {
    let rig = rig(PORTS, configure);
    let mut guests = guests(&rig, 0);
    let flood = frame(BROADCAST, mac(1), 100, 1);
    let in_10 = tagged(&flood, 5 << 13 | 10);
    expect(&rig, &mut guests, 0, &flood, &[(2, in_10.clone()), (3, in_10)]);
    let flood = frame(BROADCAST, mac(2), 100, 2);
    expect(&rig, &mut guests, 1, &flood, &[(2, tagged(&flood, 20)), (3, flood.clone())]);
    // From trunk to trunk, and to the access port that the bridge has learned. DEI and priority stay.
    let flood = frame(BROADCAST, mac(3), 100, 3);
    let in_10 = tagged(&flood, 0x7000 | 10);
    expect(&rig, &mut guests, 2, &in_10, &[(0, flood), (3, in_10.clone())]);
    let answer = frame(mac(1), mac(3), 1514, 4);
    expect(&rig, &mut guests, 2, &tagged(&answer, 10), &[(0, answer)]);
    // The same address is another station in another VLAN.
    let same = frame(mac(1), mac(4), 100, 5);
    expect(&rig, &mut guests, 1, &same, &[(2, tagged(&same, 20)), (3, same.clone())]);
    rig.no_drops();

    let entries = rig.switch.source().fdb().entries;
    let mut known: Vec<_> = entries.into_iter().map(|entry| (entry.vlan, entry.mac, entry.port)).collect();
    known.sort();
    let station = |vlan, n, port: &str| (vlan, mac(n).to_string(), port.to_owned());
    assert_eq!(known, [station(10, 1, "p0"), station(10, 3, "p2"), station(20, 2, "p1"), station(20, 4, "p1")]);
}

#[test]
fn what_a_port_may_not_send_drops_with_its_reason() {
    let rig = rig(PORTS, configure);
    let mut guests = guests(&rig, 0);
    let plain = frame(BROADCAST, mac(1), 100, 1);
    expect(&rig, &mut guests, 0, &tagged(&plain, 10), &[]);
    expect(&rig, &mut guests, 0, &tagged(&plain, 20), &[]);
    rig.wait_drops(0, "vlan-not-allowed", 2);
    for tci in [30, 0, 4095] {
        expect(&rig, &mut guests, 2, &tagged(&plain, tci), &[]);
    }
    expect(&rig, &mut guests, 2, &plain, &[]);
    rig.wait_drops(2, "vlan-not-allowed", 4);
    expect(&rig, &mut guests, 4, &plain, &[]);
    rig.wait_drops(4, "no-receiver", 1);
    // A priority tag names no VLAN.
    expect(
        &rig,
        &mut guests,
        0,
        &tagged(&plain, 3 << 13),
        &[(2, tagged(&plain, 3 << 13 | 10)), (3, tagged(&plain, 3 << 13 | 10))],
    );
}

/// A tag inside of a frame does not lead into the VLAN of others: `p3` would send it as its first tag.
#[test]
fn a_tag_inside_is_not_the_first_one_of_a_frame_that_leaves() {
    let rig = rig(PORTS, configure);
    let mut guests = guests(&rig, 0);
    send(&mut guests[1], &frame(BROADCAST, mac(1), 100, 1));
    take(&mut guests[2], 1);
    take(&mut guests[3], 1);
    send(&mut guests[3], &frame(BROADCAST, mac(3), 100, 1));
    take(&mut guests[1], 1);
    take(&mut guests[2], 1);
    for (count, station) in [(1, mac(1)), (2, mac(3))] {
        let nested = tagged(&frame(station, mac(2), 100, 2), 10);
        expect(&rig, &mut guests, 2, &tagged(&nested, 20), &[]);
        rig.wait_drops(2, "nested-tag", count);
    }
    let nested = tagged(&frame(BROADCAST, mac(2), 100, 3), 10);
    expect(&rig, &mut guests, 2, &tagged(&nested, 20), &[]);
    rig.wait_drops(2, "nested-tag", 3);
    // With a tag of its VLAN it passes.
    expect(&rig, &mut guests, 2, &tagged(&nested, 10), &[(3, tagged(&nested, 10))]);
}

#[test]
fn frames_of_the_full_mtu_pass_with_two_tags() {
    let rig = rig(PORTS, |config| {
        configure(config);
        set(&mut config.ports[1], PortVlans { role: VlanRole::Customer(id(10)), priority: 0 });
    });
    let mut guests = guests(&rig, 0);
    let plain = frame(BROADCAST, mac(1), 1514, 1);
    let inner = tagged(&plain, 7);
    let both = tagged(&inner, 10);
    // The customer's tag travels inside. The access port does not get it.
    expect(&rig, &mut guests, 1, &inner, &[(2, both.clone()), (3, both.clone())]);
    let answer = frame(mac(1), mac(2), 1514, 2);
    expect(&rig, &mut guests, 2, &tagged(&tagged(&answer, 7), 10), &[(1, tagged(&answer, 7))]);
    // One byte more than the MTU.
    let long = frame(BROADCAST, mac(1), 1515, 3);
    expect(&rig, &mut guests, 2, &tagged(&tagged(&long, 7), 10), &[]);
    rig.wait_drops(2, "too-big", 1);
    let three = tagged(&tagged(&tagged(&plain, 1), 7), 10);
    expect(&rig, &mut guests, 2, &three, &[]);
    rig.wait_drops(2, "too-big", 2);
}

#[test]
fn segments_and_checksums_are_right_behind_a_tag() {
    let rig = rig(PORTS, configure);
    let offloads = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6;
    let mut guests = guests(&rig, offloads | f::VIRTIO_NET_F_HOST_USO);
    for kind in Kind::ALL {
        let payload = noise(7, 10_000);
        let (header, packet) = segmented(kind, BROADCAST, mac(1), &payload, 1400);
        assert!(guests[0].send(&header, &packet));
        guests[0].flush();
        let mut got = Vec::new();
        for (_, segment) in take(&mut guests[2], 8) {
            assert_eq!(segment[12..16], [0x81, 0, 5 << 5, 10]);
            got.extend(check(&[&segment[..12], &segment[16..]].concat(), false).payload);
        }
        assert_eq!(got, payload, "{kind:?} by the trunk");
        take(&mut guests[3], 8);

        let mut packet = packet;
        packet.splice(12..12, [0x81, 0, 0, 20]);
        let header = NetHeader { csum_start: header.csum_start + 4, hdr_len: header.hdr_len + 4, ..header };
        assert!(guests[2].send(&header, &packet));
        guests[2].flush();
        let got: Vec<_> =
            take(&mut guests[1], 8).iter().flat_map(|(_, segment)| check(segment, false).payload).collect();
        assert_eq!(got, payload, "{kind:?} from the trunk");
        take(&mut guests[3], 8);
    }
    nothing_at(&rig.switch, &mut guests);
    rig.no_drops();
}

#[test]
fn a_reload_moves_a_port_to_another_vlan_and_its_guest_stays() {
    let mut kept = None;
    let rig = rig(PORTS, |config| {
        configure(config);
        kept = Some(config.clone());
    });
    let mut config = kept.expect("the configuration");
    let mut guests = guests(&rig, 0);
    let flood = frame(BROADCAST, mac(1), 100, 1);
    expect(&rig, &mut guests, 0, &flood, &[(2, tagged(&flood, 5 << 13 | 10)), (3, tagged(&flood, 5 << 13 | 10))]);
    let other = frame(BROADCAST, mac(2), 100, 2);
    expect(&rig, &mut guests, 1, &other, &[(2, tagged(&other, 20)), (3, other.clone())]);

    set(&mut config.ports[0], PortVlans::access(id(20)));
    rig.switch.reload(&config).expect("a good configuration");
    let entries = || rig.switch.source().fdb().entries;
    assert_eq!(entries().into_iter().map(|entry| entry.mac).collect::<Vec<_>>(), [mac(2).to_string()]);
    expect(&rig, &mut guests, 0, &frame(mac(2), mac(1), 100, 3), &[(1, frame(mac(2), mac(1), 100, 3))]);
    assert_eq!(rig.port(0).link_changes, 1, "the guest stayed");
    rig.no_drops();
}

#[test]
fn ports_say_their_vlans() {
    let rig = rig(PORTS, configure);
    let vlans = |port| rig.port(port).vlans.expect("the bridge has VLANs");
    let access = vlans(0);
    assert_eq!((access.role, access.vlans.as_str(), access.priority), (api::VlanRole::Access, "10", 5));
    let trunk = vlans(3);
    assert_eq!((trunk.role, trunk.vlans.as_str(), trunk.untagged), (api::VlanRole::Trunk, "10,20", Some(20)));
    assert_eq!((vlans(4).vlans.as_str(), vlans(4).untagged), ("1", Some(1)));
}

/// A mirror sees the frames of its port: with the port's tags, in both directions.
#[test]
fn mirrors_and_source_checks_see_a_ports_own_frames() {
    let rig = rig(PORTS + 1, |config| {
        configure(config);
        let text = "[port.p5]\nkind = \"vhost-user\"\nsocket = \"/tmp/p\"\n[node.m]\nkind = \"mirror\"\nto = \"p5\"\n";
        config.nodes.push(Config::parse("m.toml", text, &Machine::this()).expect("a file").config.nodes.remove(0));
        config.ports[2].nodes = vec!["m".to_owned()];
        config.ports[2].egress_nodes = vec!["m".to_owned()];
        config.ports[2].source_check =
            Some(SourceCheckConfig { macs: vec![straightline_config::MacPrefix::exact(MacAddr(mac(3).0))], ips: None });
    });
    let mut mirror = rig.guest(PORTS, &GuestOptions { buffer_len: 2048, ..GuestOptions::default() });
    let mut guests = guests(&rig, 0);
    let flood = frame(BROADCAST, mac(1), 100, 1);
    let in_10 = tagged(&flood, 5 << 13 | 10);
    expect(&rig, &mut guests, 0, &flood, &[(2, in_10.clone()), (3, in_10.clone())]);
    assert_eq!(take(&mut mirror, 1)[0].1, in_10);
    let own = tagged(&frame(mac(1), mac(3), 100, 2), 10);
    expect(&rig, &mut guests, 2, &own, &[(0, frame(mac(1), mac(3), 100, 2))]);
    assert_eq!(take(&mut mirror, 1)[0].1, own);
    expect(&rig, &mut guests, 2, &tagged(&frame(mac(1), mac(4), 100, 3), 10), &[]);
    rig.wait_drops(2, "spoofed", 1);
    wait_until("nothing else is mirrored", || take(&mut mirror, 0).is_empty());
}
