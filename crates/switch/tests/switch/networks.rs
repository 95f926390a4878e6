//! Tunnels that are trunks of network identifiers, between guests of two tenants.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{self, Link};
use straightline_testing::tunnel::{Net, config};
use straightline_testing::{BROADCAST, frame, has_nothing, mac, send, take, wait_until};

const VNIS: &str = "vnis = { 10 = 10010, 20 = 10020 }";

/// Returns a configuration: bridge `one` has guests `a` and `c` in VLANs 10 and 20, and a guest `e` on a
/// trunk. Its tunnel `t1` has a network for each VLAN. At the other end, tunnel `t2` leads to guest `b`
/// by the first network, and `t3` to `d` by the second one.
fn text(dir: &std::path::Path, kind: &str, vnis: &str) -> String {
    let mut text = String::new();
    let ports = [("a", "vlan = 10"), ("b", ""), ("c", "vlan = 20"), ("d", ""), ("e", "trunk = [10, 20, 30]")];
    for (port, keys) in ports.into_iter().chain([("left", "mtu = 1600"), ("right", "mtu = 1600")]) {
        let socket = dir.join(port);
        writeln!(text, "[port.{port}]\nkind = \"vhost-user\"\nsocket = {socket:?}\n{keys}").expect("text");
    }
    for (name, ip) in [("left", 1), ("right", 2)] {
        writeln!(text, "[underlay.{name}]\nport = {name:?}\naddress = [\"192.0.2.{ip}/24\"]").expect("text");
    }
    for (name, underlay, remote, keys) in
        [("t1", "left", 2, vnis), ("t2", "right", 1, "vni = 10010"), ("t3", "right", 1, "vni = 10020")]
    {
        let ends = format!("underlay = {underlay:?}\nremote = \"192.0.2.{remote}\"\nmtu = 1500");
        writeln!(text, "[port.{name}]\nkind = {kind:?}\n{ends}\n{keys}").expect("text");
    }
    text + "[bridge.one]\nports = [\"a\", \"c\", \"e\", \"t1\"]\n[patch.two]\nports = [\"t2\", \"b\"]\n\
            [patch.three]\nports = [\"t3\", \"d\"]\n"
}

/// The net, with the guests `c`, `d` and `e`.
fn start(kind: &str) -> (Net, [Guest; 3]) {
    let dir = tempfile::tempdir().expect("a folder");
    let text = text(dir.path(), kind, VNIS);
    let net = Net::with_text(dir, &text);
    net.cut.store(false, Ordering::Relaxed);
    let guests = ["c", "d", "e"]
        .map(|port| Guest::connect(&net.dir.path().join(port), &GuestOptions::default()).expect("a guest"));
    wait_until("the tunnels are up", || ["t1", "t2", "t3"].iter().all(|name| net.port(name).link == Link::Up));
    (net, guests)
}

fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// The next frame at a guest is this one.
#[track_caller]
fn takes(guest: &mut Guest, expected: &[u8]) {
    assert_eq!(take(guest, 1)[0].1, expected);
}

#[test]
fn each_tenant_has_its_network() {
    for kind in ["vxlan", "geneve", "vxlan-gpe"] {
        let (mut net, [mut c, mut d, mut e]) = start(kind);
        // Floods of both tenants from the same address: they differ in their network alone.
        let flood = frame(BROADCAST, mac(1), 100, 1);
        send(&mut net.a, &flood);
        takes(&mut net.b, &flood);
        takes(&mut e, &tagged(&flood, 10));
        send(&mut c, &flood);
        takes(&mut d, &flood);
        takes(&mut e, &tagged(&flood, 20));
        // Answers from the same address go to the tenant alone, with the full MTU.
        for len in [60, 1514] {
            let answer = frame(mac(1), mac(2), len, 2);
            send(&mut net.b, &answer);
            takes(&mut net.a, &answer);
            send(&mut d, &answer);
            takes(&mut c, &answer);
            let known = frame(mac(2), mac(1), len, 3);
            send(&mut net.a, &known);
            takes(&mut net.b, &known);
            send(&mut c, &known);
            takes(&mut d, &known);
        }
        // The trunk's tag chooses the network.
        for (vid, far) in [(10, &mut net.b), (20, &mut d)] {
            let from_trunk = frame(mac(2), mac(5), 1514, 4);
            send(&mut e, &tagged(&from_trunk, 5 << 13 | vid));
            takes(far, &from_trunk);
            let back = frame(mac(5), mac(2), 1514, 5);
            send(far, &back);
            takes(&mut e, &tagged(&back, vid));
        }
        net.settle();
        [&mut net.a, &mut net.b, &mut c, &mut d, &mut e].into_iter().for_each(has_nothing);
        // A VLAN without a network goes nowhere, and a tag inside is not accepted.
        send(&mut e, &tagged(&flood, 30));
        wait_until("a drop", || net.port("e").drops.get("no-receiver") == Some(&1));
        send(&mut net.b, &tagged(&flood, 20));
        wait_until("a drop", || net.port("t1").drops.get("vlan-not-allowed") == Some(&1));

        let entries = net.switch.source().fdb().entries;
        let at_tunnel = entries.iter().filter(|entry| entry.port == "t1");
        let mut vlans: Vec<_> = at_tunnel.map(|entry| (entry.vlan, entry.mac.clone())).collect();
        vlans.sort();
        assert_eq!(vlans, [(10, mac(2).to_string()), (20, mac(2).to_string())]);
        let port = net.port("t1");
        let vlans = port.vlans.as_ref().expect("the VLANs");
        assert_eq!((vlans.role, vlans.vlans.as_str(), vlans.untagged), (api::VlanRole::Networks, "10,20", None));
        let vnis: Vec<_> = port.tunnel.expect("the ends").vnis.into_iter().collect();
        assert_eq!(vnis, [(10, 10_010), (20, 10_020)]);
    }
}

#[test]
fn a_guest_is_told_in_its_vlan_what_fits() {
    let (mut net, [mut c, _d, mut e]) = start("vxlan");
    // A small tunnel: all ports are as they were.
    let text = text(net.dir.path(), "vxlan", VNIS).replacen("mtu = 1500\nvnis", "mtu = 1400\nvnis", 1);
    let loaded = straightline_config::Config::parse("f.toml", &text, &straightline_config::Machine::this());
    net.switch.reload(&loaded.expect("a configuration").config).expect("a reload");
    wait_until("the tunnel is up", || net.port("t1").link == Link::Up);
    let mut long = frame(mac(9), mac(1), 1514, 1);
    long[12..34].copy_from_slice(&[8, 0, 0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9]);
    let sum = !straightline_wire::checksum::sum(&long[14..34]);
    long[24..26].copy_from_slice(&sum.to_be_bytes());
    // Only the sender is told: the other tenant has its address, too.
    for (guest, vid) in [(&mut net.a, 10), (&mut c, 20)] {
        send(guest, &long);
        takes(&mut e, &tagged(&long, vid));
        let error = take(guest, 1).remove(0).1;
        assert_eq!((&error[..6], &error[12..14], &error[34..36]), (&mac(1).0[..], &[8, 0][..], &[3, 4][..]));
        assert_eq!(u16::from_be_bytes([error[40], error[41]]), 1400);
    }
    net.settle();
    [&mut net.a, &mut c, &mut e].into_iter().for_each(has_nothing);
}

#[test]
fn a_reload_changes_networks_and_leaves_others() {
    let (mut net, [mut c, mut d, mut e]) = start("vxlan");
    let flood = frame(BROADCAST, mac(1), 100, 1);
    send(&mut c, &flood);
    takes(&mut d, &flood);
    takes(&mut e, &tagged(&flood, 20));
    // VLAN 10 gets another identifier, which the other end does not have.
    let other = "vnis = { 10 = 10011, 20 = 10020 }";
    let reload = |net: &Net, vnis: &str| {
        let new = config(&text(net.dir.path(), "vxlan", vnis));
        net.switch.reload(&new).expect("a reload").changes
    };
    let changes = reload(&net, other);
    assert!(
        changes.iter().any(|change| change.name == "t1" && change.detail.contains("vnis has changed")),
        "{changes:?}"
    );
    assert!(changes.iter().all(|change| ["t1", "one"].contains(&change.name.as_str())), "{changes:?}");
    wait_until("the tunnel is up", || net.port("t1").link == Link::Up);
    send(&mut net.a, &flood);
    takes(&mut e, &tagged(&flood, 10));
    wait_until("a drop", || net.port("right").drops.get("tunnel-unknown") == Some(&1));
    send(&mut net.b, &flood);
    wait_until("a drop", || net.port("left").drops.get("tunnel-unknown") == Some(&1));
    send(&mut c, &flood);
    takes(&mut d, &flood);
    takes(&mut e, &tagged(&flood, 20));
    // Both VLANs exchange their networks.
    reload(&net, "vnis = { 10 = 10020, 20 = 10010 }");
    wait_until("the tunnel is up", || net.port("t1").link == Link::Up);
    send(&mut net.a, &flood);
    takes(&mut d, &flood);
    takes(&mut e, &tagged(&flood, 10));
    send(&mut c, &flood);
    takes(&mut net.b, &flood);
    takes(&mut e, &tagged(&flood, 20));
    // One network is left: frames of the other VLAN stay in the bridge.
    let alone = text(net.dir.path(), "vxlan", "vni = 10010\nvlan = 10");
    net.switch.reload(&config(&alone)).expect("a reload");
    wait_until("the tunnel is up", || net.port("t1").link == Link::Up);
    send(&mut net.a, &flood);
    takes(&mut net.b, &flood);
    takes(&mut e, &tagged(&flood, 10));
    send(&mut c, &flood);
    takes(&mut e, &tagged(&flood, 20));
    net.settle();
    [&mut net.a, &mut net.b, &mut c, &mut d, &mut e].into_iter().for_each(has_nothing);
}
