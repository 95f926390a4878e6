//! Tunnels with several networks, and tags inside of tunnels.

use straightline_wire::VlanId;

use super::*;
use crate::{Network, VlanRole};

const VXLAN: &str = "kind = \"vxlan\"\nremote = \"192.0.2.2\"\n";

/// A file with tunnel `t`, and a bridge with it.
fn bridged(fixture: &Fixture, keys: &str) -> String {
    format!("{}[bridge.lan]\nports = [\"t\"]\n", file(fixture, keys))
}

/// Checks that a tunnel of a bridge with these keys has one error on this line of them.
fn wrong(line: usize, keys: &str, parts: &[&str]) {
    one_error(&bridged(&Fixture::new(), keys), TUNNEL + line, parts);
}

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

#[test]
fn a_port_is_in_the_vlans_of_its_networks() {
    let fixture = Fixture::new();
    for (kind, first) in [
        ("vxlan", TunnelKind::Vxlan { vni: 10_010 }),
        ("geneve", TunnelKind::Geneve { vni: 10_010, options: Vec::new() }),
        ("vxlan-gpe", TunnelKind::VxlanGpe { vni: 10_010, ip: false }),
    ] {
        let keys =
            format!("kind = {kind:?}\nremote = \"192.0.2.2\"\nvnis = {{ 4094 = 0xffffff, 20 = 0, 10 = 10010 }}\n");
        let (port, settings) = tunnel(&good(&bridged(&fixture, &keys)).config, "t");
        let network = |vid, vni| Network { vlan: id(vid), vni };
        assert_eq!(settings.networks, [network(10, 10_010), network(20, 0), network(4094, 0xff_ffff)]);
        assert_eq!((settings.kind, settings.drops_tags, port.mtu), (first, true, 1450));
        let vlans = port.rules.vlans.expect("the VLANs");
        let expected = [10, 20, 4094].map(id).into_iter().collect();
        assert_eq!(vlans.role, VlanRole::Networks { vlans: Box::new(expected), keeps_tags: false });
        assert_eq!(vlans.priority, 0);
    }
    let keys = format!("{VXLAN}vnis = {{ 10 = 10 }}\ninner-tags = \"keep\"\npriority = 3\n");
    let (port, settings) = tunnel(&good(&bridged(&fixture, &keys)).config, "t");
    let vlans = port.rules.vlans.expect("the VLANs");
    assert!(matches!(vlans.role, VlanRole::Networks { keeps_tags: true, .. }));
    assert_eq!((vlans.priority, settings.drops_tags), (3, false));
}

#[test]
fn a_tunnel_of_one_network_keeps_tags_unless_it_is_told_otherwise() {
    let fixture = Fixture::new();
    let drops = |more: &str| {
        let keys = format!("{VXLAN}vni = 5\n{more}");
        tunnel(&good(&bridged(&fixture, &keys)).config, "t").1.drops_tags
    };
    assert_eq!(["", "inner-tags = \"keep\"\n", "inner-tags = \"drop\"\n"].map(drops), [false, false, true]);
    let trunk = format!("{VXLAN}vni = 5\ntrunk = [10]\ninner-tags = \"drop\"\n");
    wrong(5, &trunk, &["inner-tags = \"drop\" in port \"t\": the port has trunk", "name the VLANs in vnis"]);
}

/// A tag inside takes four bytes.
#[test]
fn a_trunk_over_a_tunnel_carries_less() {
    let fixture = Fixture::new();
    let vm = "mtu = 1446\ntrunk = [10]\n";
    let text = |mtu: &str| {
        let tunnel =
            bridged(&fixture, &format!("{VXLAN}vni = 5\ntrunk = [10]\n{mtu}")).replace("[\"t\"]", "[\"t\", \"vm\"]");
        format!("{tunnel}{}{vm}", fixture.port("vm"))
    };
    let loaded = good(&text(""));
    assert_eq!(tunnel(&loaded.config, "t").0.mtu, 1446);
    assert_eq!(warnings(&loaded), [""; 0]);
    let found = warnings(&good(&text("mtu = 1450\n")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("use mtu = 1446 here, or mtu = 1504 there"), "{found:?}");
}

#[test]
fn static_entries_name_the_vlan_of_their_network() {
    let fixture = Fixture::new();
    let text = |networks: &str, entry: &str| {
        let keys =
            format!("kind = \"vxlan\"\nremotes = [\"192.0.2.2\", \"192.0.2.3\"]\n{networks}\nstatic = {{ {entry} }}\n");
        bridged(&fixture, &keys)
    };
    let vnis = "vnis = { 10 = 10, 20 = 20 }";
    let both = "\"02:00:00:00:00:03\" = [{ remote = \"192.0.2.3\", vlan = 10 }, { remote = \"192.0.2.2\", vlan = 20 }]";
    let (_, tunnel) = tunnel(&good(&text(vnis, both)).config, "t");
    let found: Vec<_> = tunnel.statics.iter().map(|entry| (entry.remote.to_string(), entry.vlan)).collect();
    assert_eq!(found, [("192.0.2.3".to_owned(), Some(id(10))), ("192.0.2.2".to_owned(), Some(id(20)))]);
    let wrong = |networks: &str, value: &str, parts: &[&str]| {
        one_error(&text(networks, &format!("\"02:00:00:00:00:03\" = {value}")), TUNNEL + 4, parts);
    };
    wrong(vnis, "\"192.0.2.3\"", &["the port has vnis; name the VLAN", "{ remote = \"192.0.2.3\", vlan = 10 }"]);
    wrong(vnis, "{ remote = \"192.0.2.3\" }", &["the port has vnis; name the VLAN"]);
    wrong(vnis, "{ remote = \"192.0.2.3\", vlan = 30 }", &["VLAN 30 is not in vnis of the port"]);
    wrong(vnis, "{ port = \"t\", vlan = 10 }", &["its value must be a remote's address"]);
    wrong("vni = 5", "{ remote = \"192.0.2.3\", vlan = 10 }", &["the port has no vnis; remove vlan"]);
    let twice = "[{ remote = \"192.0.2.3\", vlan = 10 }, { remote = \"192.0.2.2\", vlan = 10 }]";
    wrong(vnis, twice, &["this VLAN is named twice"]);
}

#[test]
fn mistakes_in_networks() {
    let vnis = |value: &str, parts: &[&str]| wrong(3, &format!("{VXLAN}vnis = {value}\n"), parts);
    vnis("{}", &["vnis in port \"t\": no network named", "vnis = { 10 = 10010, 20 = 10020 }"]);
    vnis("[10]", &["vnis in port \"t\" is an array; it must be a table"]);
    vnis("{ 0 = 5 }", &["\"0\" in vnis of port \"t\": it must be a VLAN from 1 to 4094"]);
    vnis("{ 4095 = 5 }", &["\"4095\" in vnis of port \"t\": it must be a VLAN"]);
    vnis("{ red = 5 }", &["\"red\" in vnis of port \"t\": it must be a VLAN"]);
    vnis("{ 10 = \"5\" }", &["VLAN 10 in vnis of port \"t\": its value must be a network identifier"]);
    vnis("{ 10 = 16777216 }", &["16777216 of VLAN 10", "out of range; use 0 to 16777215"]);
    vnis("{ 10 = -1 }", &["out of range"]);
    vnis("{ 10 = 5, 010 = 6 }", &["VLAN 10 in vnis of port \"t\": named twice"]);
    vnis("{ 10 = 5, 20 = 5 }", &["network identifier 5 of VLAN 20", "VLAN 10 has it already; give each VLAN its own"]);
    let role = |line: &str| {
        let parts = ["vnis in port \"t\": the port has ", "a port has one of vlan, trunk, vnis and qinq"];
        wrong(3, &format!("{VXLAN}vnis = {{ 10 = 5 }}\n{line}\n"), &parts);
    };
    ["vlan = 10", "trunk = [10]", "qinq = 10"].iter().for_each(|line| role(line));
    wrong(4, &format!("{VXLAN}vni = 5\nvnis = {{ 10 = 6 }}\n"), &["vnis in port \"t\": it has vni as well"]);
    wrong(2, "kind = \"gre\"\nvnis = { 10 = 5 }\nremote = \"192.0.2.2\"\n", &["unknown key \"vnis\""]);
    let gpe = "kind = \"vxlan-gpe\"\nip = true\nremote = \"192.0.2.2\"\n";
    wrong(
        4,
        &format!("{gpe}vnis = {{ 10 = 5 }}\n"),
        &["vnis in port \"t\": with ip = true the tunnel carries no Ethernet"],
    );
    wrong(5, &format!("{gpe}vni = 5\ninner-tags = \"drop\"\n"), &["inner-tags in port \"t\": with ip = true"]);
    wrong(4, &format!("{VXLAN}vni = 5\ninner-tags = \"strip\"\n"), &["inner-tags \"strip\"", "known are keep, drop"]);
    let all: Vec<_> = (1..=4094).map(|vid| format!("{vid} = {vid}")).collect();
    let remotes: Vec<_> = (2..19).map(|host| format!("\"192.0.2.{host}\"")).collect();
    let keys = format!("kind = \"vxlan\"\nremotes = [{}]\nvnis = {{ {} }}\n", remotes.join(", "), all.join(", "));
    wrong(3, &keys, &["vnis in port \"t\"", "are 69598; at most 65536"]);
    good(&bridged(&Fixture::new(), &keys.replace("\"192.0.2.18\"", "").replace(", ]", "]")));
}

#[test]
fn networks_need_a_bridge() {
    let fixture = Fixture::new();
    let keys = format!("{VXLAN}vnis = {{ 10 = 5 }}\nmtu = 1400\n");
    let text = file(&fixture, &keys) + &fixture.port("vm");
    let patch = format!("{text}[patch.p]\nports = [\"t\", \"vm\"]\n");
    one_error(&patch, TUNNEL + 3, &["vnis in port \"t\": only a bridge heeds it, and the port is in patch \"p\""]);
    one_error(&text, TUNNEL + 3, &["vnis in port \"t\": only a bridge heeds it, and the port is in no bridge"]);
}

#[test]
fn two_ports_with_one_network_look_the_same() {
    let fixture = Fixture::new();
    let two = |first: &str, second: &str| {
        let text = file(&fixture, &format!("remote = \"192.0.2.2\"\n{first}\n"));
        let second = format!("[port.u]\nunderlay = \"wan\"\nremote = \"192.0.2.2\"\n{second}\n");
        format!("{text}{second}[bridge.one]\nports = [\"t\"]\n[bridge.two]\nports = [\"u\"]\n")
    };
    let vxlan = "kind = \"vxlan\"\n";
    let several = format!("{vxlan}vnis = {{ 10 = 5, 20 = 6 }}");
    let says =
        |line: usize| format!("vni 6 of port \"u\": port \"t\" has it already for remote 192.0.2.2 (line {line})");
    for second in ["vnis = { 10 = 7, 30 = 6 }", "vni = 6"] {
        one_error(&two(&several, &format!("{vxlan}{second}")), TUNNEL + 8, &[&says(TUNNEL + 3)]);
    }
    one_error(&two(&format!("{vxlan}vni = 6"), &several), TUNNEL + 8, &[&says(TUNNEL + 3)]);
    // A table of its own has a line for each network.
    let table = two(&format!("{vxlan}[port.t.vnis]\n10 = 5\n20 = 6"), &format!("{vxlan}[port.u.vnis]\n40 = 4\n30 = 6"));
    one_error(&table, TUNNEL + 12, &[&says(TUNNEL + 5)]);
    good(&two(&several, "kind = \"geneve\"\nvni = 6"));
    good(&two(&several, &format!("{vxlan}vnis = {{ 10 = 7 }}")));
    let far = ["192.0.2.2", "192.0.2.3"].map(|remote| format!("[port.u]\nunderlay = \"wan\"\nremote = {remote:?}"));
    good(&two(&several, &format!("{vxlan}vni = 6")).replace(&far[0], &far[1]));
}

#[test]
fn a_static_entry_of_a_bridge_names_a_vlan_of_the_networks() {
    let fixture = Fixture::new();
    let text = |value: &str| {
        let text = bridged(&fixture, &format!("{VXLAN}vnis = {{ 10 = 5 }}\n"));
        format!("{text}static = {{ \"02:00:00:00:00:03\" = {value} }}\n")
    };
    good(&text("{ port = \"t\", vlan = 10 }"));
    one_error(&text("\"t\""), TUNNEL + 6, &["port \"t\" has vnis; name the VLAN"]);
    one_error(&text("{ port = \"t\", vlan = 20 }"), TUNNEL + 6, &["port \"t\" is not in VLAN 20"]);
}
