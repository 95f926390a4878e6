//! Underlays and tunnels: the values of good sections, and the error for each mistake.

mod networks;

use std::net::IpAddr;

use super::{Fixture, Loaded, errors, good, one_error};
use crate::{Config, Cookie, L2tpOver, Offloads, PathMtuErrors, PortConfig, PortKind, TunnelKind, TunnelSettings};

/// The lines of [`file`] before the tunnels' own keys.
const UNDERLAY: usize = 5;
const TUNNEL: usize = 8;

/// A file with port `nic` on lines 1 to 3, underlay `wan` from line 4 on, and tunnel `t` from line
/// 7 on with its keys from line 10 on.
fn file(fixture: &Fixture, keys: &str) -> String {
    let nic = fixture.port("nic");
    let underlay = "[underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n";
    format!("{nic}{underlay}[port.t]\nunderlay = \"wan\"\n{keys}")
}

fn tunnel(config: &Config, name: &str) -> (PortConfig, TunnelSettings) {
    let port = &config.ports[config.port_index(name).expect(name)];
    (port.clone(), port.kind.as_tunnel().expect("a tunnel").clone())
}

/// Reads a tunnel with these keys to this remote.
fn kind(remote: &str, keys: &str) -> TunnelKind {
    let fixture = Fixture::new();
    let text = file(&fixture, &format!("remote = {remote:?}\n{keys}\n"));
    tunnel(&good(&text).config, "t").1.kind
}

fn warnings(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(|warning| warning.to_string().lines().next().unwrap_or("").to_owned()).collect()
}

#[test]
fn an_underlay_with_every_key() {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"vxlan\"\nremote = \"198.51.100.2\"\nvni = 5\n").replace(
        "[port.t]",
        "gateway = [\"192.0.2.254\", \"2001:db8::fe\"]\nvlan = 100\nmtu = 1400\nmac = \"02:00:00:00:00:01\"\n\
         path-mtu = 1300\nneighbours = { \"192.0.2.9\" = \"02:00:00:00:00:09\" }\n[port.t]",
    );
    let config = good(&text).config;
    let underlay = &config.underlays[0];
    let ips = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!((underlay.name.as_str(), underlay.port.as_str()), ("wan", "nic"));
    assert_eq!(ips(&underlay.gateways), "192.0.2.254 2001:db8::fe");
    assert_eq!((underlay.vlan, underlay.mtu, underlay.path_mtu), (Some(100), 1400, PathMtuErrors::Least(1300)));
    let off = good(&text.replace("path-mtu = 1300", "path-mtu = \"off\"")).config;
    assert_eq!(off.underlays[0].path_mtu, PathMtuErrors::Off);
    let default = good(&text.replace("path-mtu = 1300\n", "")).config;
    assert_eq!(default.underlays[0].path_mtu, PathMtuErrors::UsableInside);
    assert_eq!(underlay.mac.map(|mac| mac.to_string()).as_deref(), Some("02:00:00:00:00:01"));
    let (ip, mac) = underlay.neighbours[0];
    assert_eq!((ip.to_string(), mac.to_string()), ("192.0.2.9".to_owned(), "02:00:00:00:00:09".to_owned()));
    // The tunnel carries what fits, and has the underlay's address of the remote's version.
    let (port, tunnel) = tunnel(&config, "t");
    assert_eq!((port.mtu, tunnel.local.to_string()), (1350, "192.0.2.1".to_owned()));
}

#[test]
fn defaults_come_from_the_underlay_and_its_port() {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"l2tpv3\"\nremote = \"2001:db8::2\"\ncookie = \"0011223344556677\"\n");
    let text = text.replacen("[underlay", "mtu = 9000\n[underlay", 1);
    let config = good(&text).config;
    let (port, tunnel) = tunnel(&config, "t");
    assert_eq!((config.underlays[0].mtu, port.mtu), (9000, 8934));
    assert_eq!(tunnel.local.to_string(), "2001:db8::1");
    assert!(tunnel.verify && !tunnel.zero_checksum && tunnel.source_port.is_none() && tunnel.statics.is_empty());
    // The address in the remote's network comes first.
    let near = text.replace("\"2001:db8::1/64\"", "\"2001:db8:1::1/64\", \"2001:db8::1/64\"");
    assert_eq!(self::tunnel(&good(&near).config, "t").1.local.to_string(), "2001:db8::1");
    // The sections may come in any order.
    let (before, after) = text.split_at(text.find("[port.t]").expect("it"));
    assert_eq!(self::tunnel(&good(&format!("{after}{before}")).config, "t").0.mtu, 8934);
}

#[test]
fn each_kind_with_its_keys() {
    let v4 = "192.0.2.2";
    let v6 = "2001:db8::2";
    let cookie = |digits: &[u8]| Cookie::new(digits).expect("a cookie");
    assert_eq!(
        kind(v6, "kind = \"l2tpv3\""),
        TunnelKind::L2tpv3 {
            over: L2tpOver::Ip,
            session: u32::MAX,
            peer_session: u32::MAX,
            cookie: Cookie::default(),
            previous_cookie: None,
            peer_cookie: Cookie::default(),
            l2spec: false,
        }
    );
    let keys = "kind = \"l2tpv3\"\nover = \"udp\"\nsession = 1\npeer-session = 2\ncookie = \"01020304\"\n\
                peer-cookie = \"0506070809aAbBcC\"\nprevious-cookie = \"00000001\"\nl2spec = true\npeer-port = 1702";
    assert_eq!(
        kind(v4, keys),
        TunnelKind::L2tpv3 {
            over: L2tpOver::Udp { port: 1702 },
            session: 1,
            peer_session: 2,
            cookie: cookie(&[1, 2, 3, 4]),
            previous_cookie: Some(cookie(&[0, 0, 0, 1])),
            peer_cookie: cookie(&[5, 6, 7, 8, 9, 0xaa, 0xbb, 0xcc]),
            l2spec: true,
        }
    );
    assert_eq!(kind(v4, "kind = \"vxlan\"\nvni = 0xffffff"), TunnelKind::Vxlan { vni: 0xff_ffff });
    let options = vec![1, 2, 1, 1, 0, 0, 0, 7];
    assert_eq!(
        kind(v4, "kind = \"geneve\"\nvni = 0\noptions = \"0102010100000007\""),
        TunnelKind::Geneve { vni: 0, options }
    );
    assert_eq!(kind(v6, "kind = \"gre\""), TunnelKind::Gre { key: None, checksum: false, ip: false });
    assert_eq!(
        kind(v6, "kind = \"gre\"\nkey = 7\nchecksum = true\nip = true"),
        TunnelKind::Gre { key: Some(7), checksum: true, ip: true }
    );
    assert_eq!(kind(v6, "kind = \"nvgre\"\nvsid = 4096"), TunnelKind::Nvgre { vsid: 4096 });
    assert_eq!(kind(v6, "kind = \"vxlan-gpe\"\nvni = 1\nip = true"), TunnelKind::VxlanGpe { vni: 1, ip: true });
    assert_eq!(kind(v4, "kind = \"gtpu\"\nteid = 1"), TunnelKind::Gtpu { teid: 1, peer_teid: 1 });
    assert_eq!(kind(v4, "kind = \"gtpu\"\nteid = 1\npeer-teid = 2"), TunnelKind::Gtpu { teid: 1, peer_teid: 2 });
    assert_eq!(kind(v4, "kind = \"mpls-udp\"\nlabel = 16"), TunnelKind::MplsUdp { label: 16, peer_label: 16 });
    assert_eq!(
        kind(v4, "kind = \"mpls-udp\"\nlabel = 16\npeer-label = 17"),
        TunnelKind::MplsUdp { label: 16, peer_label: 17 }
    );
}

#[test]
fn several_remotes_with_static_entries() {
    let fixture = Fixture::new();
    let keys = "kind = \"vxlan\"\nvni = 5\nremotes = [\"192.0.2.2\", \"192.0.2.3\"]\nsource-port = 4789\n\
                zero-checksum = true\nverify = false\nlimit = 100000\nstatic = { \"02:00:00:00:00:03\" = \"192.0.2.3\" }\n";
    let (_, tunnel) = tunnel(&good(&file(&fixture, keys)).config, "t");
    let remotes: Vec<_> = tunnel.remotes.iter().map(IpAddr::to_string).collect();
    assert_eq!(remotes, ["192.0.2.2", "192.0.2.3"]);
    assert_eq!((tunnel.source_port, tunnel.zero_checksum, tunnel.verify), (Some(4789), true, false));
    assert_eq!((tunnel.statics[0].remote, tunnel.limit), (tunnel.remotes[1], 100_000));
}

/// Checks that an underlay with `line` in place of its line `at`, or at its end, has one error.
fn wrong_underlay(at: Option<usize>, line: &str, parts: &[&str]) {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n");
    let mut lines: Vec<_> = text.lines().collect();
    let at = match at {
        Some(at) => {
            lines[at - 1] = line;
            at
        }
        None => {
            lines.insert(UNDERLAY + 1, line);
            UNDERLAY + 2
        }
    };
    one_error(&(lines.join("\n") + "\n"), at, parts);
}

#[test]
fn mistakes_in_an_underlay() {
    let port = |line: &str, parts: &[&str]| wrong_underlay(Some(UNDERLAY), line, parts);
    port("port = \"nik\"", &["port \"nik\" of underlay \"wan\": no such port; ports are nic, t"]);
    port("port = \"t\"", &["port \"t\" of underlay \"wan\": a tunnel"]);
    port("port = 3", &["port in underlay \"wan\" is an integer; it must be a string"]);
    let address = |list: &str, parts: &[&str]| {
        wrong_underlay(Some(UNDERLAY + 1), &format!("address = [\"192.0.2.1/24\", \"2001:db8::1/64\", {list}]"), parts);
    };
    address("\"192.0.2.7\"", &["\"192.0.2.7\" in address of underlay \"wan\": no prefix; write"]);
    address("\"192.0.2.1/25\"", &["named twice"]);
    address("\"224.0.0.1/4\"", &["a multicast address"]);
    address("\"192.0.2.255/24\"", &["the broadcast address of its network"]);
    let more = |line: &str, parts: &[&str]| wrong_underlay(None, line, parts);
    more("gateway = [\"192.0.3.1\"]", &["gateway 192.0.3.1 of underlay \"wan\": in no network of the underlay"]);
    more("gateway = [\"192.0.2.1\"]", &["gateway 192.0.2.1", "an address of the underlay itself"]);
    more("gateway = [\"192.0.2.2\", \"192.0.2.3\"]", &["gateway 192.0.2.3", "the second one of IPv4"]);
    more("vlan = 4095", &["vlan 4095 in underlay \"wan\": out of range; it must be 1 to 4094"]);
    more("mtu = 9217", &["out of range; it must be 576 to 9216"]);
    more("mtu = 1501", &["mtu 1501 of underlay \"wan\": more than mtu 1500 of its port \"nic\""]);
    more("mtu = 1279", &["mtu 1279 of underlay \"wan\": IPv6 (2001:db8::1) needs at least 1280"]);
    more("path-mtu = 575", &["path-mtu 575 in underlay \"wan\": out of range; it must be 576 to 9216"]);
    more("path-mtu = \"on\"", &["path-mtu \"on\" in underlay \"wan\": it must be an integer or \"off\""]);
    more("path-mtu = true", &["path-mtu in underlay \"wan\" is a boolean; it must be an integer or \"off\""]);
    more("path-mtu = 1501", &["path-mtu 1501 of underlay \"wan\": more than its mtu 1500"]);
    more("mac = \"03:00:00:00:00:01\"", &["mac \"03:00:00:00:00:01\" in underlay \"wan\": a multicast address"]);
    more("neighbours = { \"192.0.2.x\" = \"02:00:00:00:00:01\" }", &["neighbour \"192.0.2.x\"", "not an IP address"]);
    more("neighbours = { \"192.0.2.9\" = 3 }", &["its value must be a MAC address"]);
    more("neighbours = { \"192.0.2.9\" = \"x\" }", &["\"x\" is not an Ethernet address"]);
    more("neighbours = { \"192.0.3.9\" = \"02:00:00:00:00:01\" }", &["neighbour 192.0.3.9", "in no network"]);
    more("neighbours = { \"192.0.2.1\" = \"02:00:00:00:00:01\" }", &["neighbour 192.0.2.1", "itself"]);
    more("gatway = []", &["unknown key \"gatway\" in underlay \"wan\"; did you mean \"gateway\"?"]);
    let fixture = Fixture::new();
    one_error(&format!("{}[underlay.wan]\naddress = []\nport = \"p\"\n", fixture.port("p")), 5, &["0 addresses"]);
    let found = errors("[underlay.wan]\n");
    assert!(found[0].contains("has no \"port\"") && found[1].contains("has no \"address\""), "{found:?}");
}

#[test]
fn the_port_of_an_underlay_has_no_other_use() {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n");
    let patch = format!("{text}[patch.x]\nports = [\"nic\", \"t\"]\n");
    one_error(&patch, UNDERLAY, &["port \"nic\" of underlay \"wan\": already in patch \"x\" (line 13)"]);
    let bridge = patch.replace("[patch.x]", "[bridge.x]");
    one_error(&bridge, UNDERLAY, &["already in bridge \"x\" (line 13); give the underlay a VLAN of its own"]);
    let two = format!("{text}[underlay.lan]\nport = \"nic\"\naddress = [\"192.0.3.1/24\"]\n");
    one_error(&two, 13, &["underlay \"wan\" has it already (line 5)"]);
    let mirror = format!("{text}nodes = [\"m\"]\n[node.m]\nkind = \"mirror\"\nto = \"nic\"\n");
    one_error(&mirror, UNDERLAY, &["node \"m\" sends copies there (line 15)"]);
    let node = "[node.m]\nkind = \"mirror\"\nto = \"t\"\n";
    for (line, key) in [
        ("nodes = [\"m\"]", "nodes"),
        ("egress-nodes = [\"m\"]", "egress-nodes"),
        ("dscp = 46", "dscp"),
        ("expedited = [46]", "expedited"),
        ("mac = \"02:00:00:00:00:01\"\nsource-check = \"mac\"", "source-check"),
    ] {
        let text = text.replacen("[underlay", &format!("{line}\n[underlay"), 1) + node;
        let text = if key.ends_with("nodes") { text } else { text.replace(node, "") };
        let line = if key == "source-check" { 5 } else { 4 };
        one_error(&text, line, &[&format!("{key} of port \"nic\": it is the port of underlay \"wan\"")]);
    }
}

/// Returns a file in which a bridge has the port of the underlay, too. `nic` are further lines of the port.
fn shared(fixture: &Fixture, nic: &str) -> String {
    let text = file(fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n");
    let text = text.replacen("[underlay.wan]\n", &format!("{nic}[underlay.wan]\nvlan = 30\n"), 1);
    format!("{text}vlan = 10\n[bridge.x]\nports = [\"nic\", \"t\"]\n")
}

#[test]
fn an_underlay_has_a_vlan_that_the_bridge_of_its_port_has_not() {
    let fixture = Fixture::new();
    let shared = |nic: &str| shared(&fixture, nic);
    good(&shared("trunk = [10, \"31-40\"]\n"));
    good(&shared("trunk = [10]\nnative-vlan = 20\nnative = \"tagged\"\n"));
    one_error(
        &shared("trunk = [10, \"20-40\"]\n"),
        6,
        &["vlan 30 of underlay \"wan\": bridge \"x\" uses it, too, by trunk of port \"nic\" (line 4)"],
    );
    one_error(
        &shared("trunk = [10]\nnative-vlan = 30\nnative = \"tagged\"\n"),
        8,
        &["vlan 30 of underlay \"wan\": bridge \"x\" uses it, too, by native-vlan of port \"nic\" (line 5)"],
    );
    one_error(
        &shared("trunk = [10]\nnative-vlan = 20\n"),
        5,
        &["native-vlan of port \"nic\": a frame that leaves without a tag", "VLAN 30 of underlay \"wan\""],
    );
    for access in ["vlan = 10\n", "qinq = 10\n", ""] {
        let line = 4 + access.lines().count() + 2;
        one_error(&shared(access), line, &["an underlay shares only a trunk; give the port a trunk without VLAN 30"]);
    }
    one_error(&shared("trunk = [10, 5000]\n"), 4, &["it must be a VLAN from 1 to 4094"]);
}

/// Checks that a tunnel with these keys has one error on this line of them, or with 0, on the line
/// of its name.
fn wrong(line: usize, keys: &str, parts: &[&str]) {
    let fixture = Fixture::new();
    let line = if line == 0 { TUNNEL - 1 } else { TUNNEL + line };
    one_error(&file(&fixture, keys), line, parts);
}

#[test]
fn mistakes_in_the_ends_of_a_tunnel() {
    let vxlan = "kind = \"vxlan\"\nvni = 5\n";
    let remote = |remote: &str, parts: &[&str]| wrong(3, &format!("{vxlan}remote = {remote:?}\n"), parts);
    remote("192.0.2.1", &["remote 192.0.2.1 of port \"t\": an address of underlay \"wan\" itself"]);
    remote("198.51.100.2", &["remote 198.51.100.2", "which has no IPv4 gateway; add one"]);
    remote("host", &["remote \"host\" in port \"t\": not an IP address"]);
    remote("255.255.255.255", &["the broadcast address"]);
    wrong(0, vxlan, &["port \"t\" has no \"remote\"; add for example remote = \"192.0.2.2\""]);
    let remotes = |list: &str, parts: &[&str]| wrong(3, &format!("{vxlan}remotes = {list}\n"), parts);
    remotes("[\"192.0.2.2\", \"192.0.2.2\"]", &["remote 192.0.2.2 in port \"t\": named twice"]);
    remotes("[\"192.0.2.2\", \"2001:db8::2\"]", &["remote 2001:db8::2", "other IP version"]);
    let both = format!("{vxlan}remote = \"192.0.2.2\"\nremotes = [\"192.0.2.3\"]\n");
    wrong(4, &both, &["remotes in port \"t\": it has remote as well"]);
    wrong(2, "kind = \"gre\"\nremotes = [\"192.0.2.2\"]\n", &["unknown key \"remotes\"", "did you mean \"remote\"?"]);
    let near = format!("{vxlan}remote = \"192.0.2.2\"\n");
    wrong(4, &format!("{near}local = \"192.0.2.7\"\n"), &["local 192.0.2.7 of port \"t\": no address of underlay"]);
    wrong(4, &format!("{near}local = \"2001:db8::1\"\n"), &["not of the remote's IP version"]);
    let entry = |entry: &str, parts: &[&str]| wrong(4, &format!("{near}static = {{ {entry} }}\n"), parts);
    entry("\"02:00:00:00:00:03\" = \"192.0.2.3\"", &["remote 192.0.2.3 of static entry", "its remotes are 192.0.2.2"]);
    entry("\"02:00:00:00:00:03\" = \"x\"", &["\"x\" is not an IP address"]);
    entry("\"x\" = \"192.0.2.2\"", &["static entry \"x\" in port \"t\": not an Ethernet address"]);
    let two = "static = { \"02:00:00:00:00:03\" = \"192.0.2.2\", \"02:00:00:00:00:04\" = \"192.0.2.2\" }\n";
    wrong(5, &format!("{near}{two}limit = 1\n"), &["limit 1 in port \"t\"", "2 static entries", "at least 2"]);
    wrong(4, &format!("{near}limit = 0\n"), &["limit"]);
    entry("\"02:00:00:00:00:03\" = 2", &["its value must be a remote's address"]);
    let fixture = Fixture::new();
    let only_v4 = file(&fixture, &format!("{vxlan}remote = \"2001:db8::2\"\n"));
    let only_v4 = only_v4.replace(", \"2001:db8::1/64\"", "");
    one_error(&only_v4, TUNNEL + 3, &["remote 2001:db8::2", "underlay \"wan\" has no IPv6 address"]);
    let text = file(&fixture, &near);
    let unknown = text.replace("underlay = \"wan\"", "underlay = \"wam\"");
    let found = errors(&unknown);
    assert!(found[0].contains("underlay \"wam\" of port \"t\": no such underlay; underlays are wan"), "{found:?}");
    let none = text.split_once("[port.t]").expect("it").1;
    one_error(&format!("[port.t]{none}"), 2, &["no such underlay; there is no section [underlay.NAME]"]);
}

#[test]
fn mistakes_in_the_keys_of_a_kind() {
    let keys =
        |line: usize, keys: &str, parts: &[&str]| wrong(line, &format!("remote = \"192.0.2.2\"\n{keys}\n"), parts);
    keys(0, "kind = \"vxlan\"", &["port \"t\" has no \"vni\"; add for example vni = 0"]);
    keys(3, "kind = \"vxlan\"\nvni = 0x1000000", &["out of range; it must be 0 to 16777215"]);
    keys(3, "kind = \"nvgre\"\nvsid = 4095", &["it must be 4096 to 16777214"]);
    keys(3, "kind = \"gtpu\"\nteid = 0", &["it must be 1 to 4294967295"]);
    keys(3, "kind = \"mpls-udp\"\nlabel = 15", &["it must be 16 to 1048575"]);
    keys(3, "kind = \"gre\"\nkey = 0x100000000", &["key 0x100000000 in port \"t\": out of range"]);
    keys(3, "kind = \"gre\"\nvni = 5", &["unknown key \"vni\" in port \"t\""]);
    keys(3, "kind = \"gre\"\nsource-port = 5", &["unknown key \"source-port\""]);
    let options = |digits: &str, parts: &[&str]| {
        keys(4, &format!("kind = \"geneve\"\nvni = 5\noptions = {digits:?}"), parts);
    };
    options("0102", &["options in port \"t\": not whole options"]);
    options("01020102", &["not whole options"]);
    options("0102010", &["options \"0102010\" in port \"t\": not pairs of hexadecimal digits"]);
    options(&"00000000".repeat(10), &["options in port \"t\": 40 bytes; at most 36 fit"]);
    let l2tp = |line: usize, more: &str, parts: &[&str]| keys(line, &format!("kind = \"l2tpv3\"\n{more}"), parts);
    l2tp(0, "", &["port \"t\" has no \"session\"; add for example session = 1"]);
    l2tp(3, "session = 0", &["session 0 in port \"t\": out of range"]);
    l2tp(4, "session = 1\ncookie = \"001122\"", &["cookie in port \"t\": 3 bytes; a cookie has 0, 4 or 8"]);
    l2tp(4, "session = 1\ncookie = \"0x001122\"", &["not pairs of hexadecimal digits"]);
    let two = "session = 1\ncookie = \"00112233\"\nprevious-cookie = \"0011223344556677\"";
    l2tp(5, two, &["previous-cookie in port \"t\": 8 bytes, but cookie has 4"]);
    l2tp(4, "session = 1\npeer-port = 5", &["peer-port in port \"t\" needs over = \"udp\""]);
    l2tp(4, "session = 1\nverify = false", &["verify in port \"t\" needs over = \"udp\""]);
    l2tp(
        5,
        "over = \"udp\"\nsession = 1\nsource-port = 5",
        &["source-port in port \"t\": l2tpv3 always sends from 1701"],
    );
    l2tp(3, "over = \"tcp\"\nsession = 1", &["over \"tcp\" in port \"t\": unknown; known are ip, udp"]);
}

#[test]
fn two_tunnels_that_look_the_same() {
    let fixture = Fixture::new();
    let two = |first: &str, second: &str| {
        let text = file(&fixture, &format!("remote = \"192.0.2.2\"\n{first}\n"));
        format!("{text}[port.u]\nunderlay = \"wan\"\nremote = \"192.0.2.2\"\n{second}\n")
    };
    let same = |first: &str, second: &str, what: &str| {
        let found = errors(&two(first, second));
        let expected = format!("{what} of port \"u\": port \"t\" has it already for remote 192.0.2.2 (line ");
        assert!(found.len() == 1 && found[0].contains(&expected), "{found:?}");
    };
    same("kind = \"vxlan\"\nvni = 5", "kind = \"vxlan\"\nvni = 5", "vni 5");
    same("kind = \"geneve\"\nvni = 5", "kind = \"geneve\"\nvni = 5\noptions = \"\"", "vni 5");
    same("kind = \"vxlan-gpe\"\nvni = 5", "kind = \"vxlan-gpe\"\nvni = 5\nip = true", "vni 5");
    same("kind = \"gre\"", "kind = \"gre\"\nip = true", "gre without key");
    same("kind = \"gre\"\nkey = 3", "kind = \"gre\"\nkey = 3", "key 3");
    same("kind = \"gre\"\nkey = 0x100042", "kind = \"nvgre\"\nvsid = 0x1000", "vsid 4096");
    // Frames of the other tunnel would go to the one that carries IP, and drop there.
    same("kind = \"gre\"\nkey = 0x100042\nip = true", "kind = \"nvgre\"\nvsid = 0x1000", "vsid 4096");
    same("kind = \"nvgre\"\nvsid = 0x1000", "kind = \"gre\"\nkey = 0x100042\nip = true", "key 1048642");
    same("kind = \"nvgre\"\nvsid = 0x1000", "kind = \"nvgre\"\nvsid = 0x1000", "vsid 4096");
    same("kind = \"gtpu\"\nteid = 1", "kind = \"gtpu\"\nteid = 1\npeer-teid = 2", "teid 1");
    same("kind = \"mpls-udp\"\nlabel = 16", "kind = \"mpls-udp\"\nlabel = 16", "label 16");
    same("kind = \"l2tpv3\"\nsession = 1", "kind = \"l2tpv3\"\nsession = 1\ncookie = \"00000001\"", "session 0x1");
    let other = |first: &str, second: &str| drop(good(&two(first, second)));
    other("kind = \"vxlan\"\nvni = 5", "kind = \"geneve\"\nvni = 5");
    other("kind = \"vxlan\"\nvni = 5", "kind = \"vxlan\"\nvni = 6");
    other("kind = \"gre\"", "kind = \"gre\"\nkey = 0");
    other("kind = \"gre\"\nkey = 0x200042", "kind = \"nvgre\"\nvsid = 0x1000");
    other("kind = \"l2tpv3\"\nsession = 1", "kind = \"l2tpv3\"\nover = \"udp\"\nsession = 1");
    // Another remote of one of several is enough.
    let keys = "kind = \"vxlan\"\nvni = 5\nremotes = [\"192.0.2.3\", \"192.0.2.2\"]\n";
    let text = file(&fixture, keys);
    let second = "[port.u]\nunderlay = \"wan\"\nkind = \"vxlan\"\nvni = 5\nremote = \"192.0.2.4\"\n";
    good(&format!("{text}{second}"));
    one_error(&format!("{text}{}", second.replace("2.4", "2.2")), TUNNEL + 7, &["vni 5 of port \"u\""]);
}

#[test]
fn a_tunnel_that_carries_ip_has_one_port_beside_it() {
    let fixture = Fixture::new();
    let vms = fixture.ports(&["a", "b"]);
    let with = |keys: &str, network: &str| {
        let keys = format!("remote = \"192.0.2.2\"\nmtu = 1400\n{keys}\n");
        format!("[{network}]\nports = [\"a\", \n\"t\"]\n{}{vms}", file(&fixture, &keys))
    };
    let more = |text: String| text.replacen("\"t\"]", "\"t\", \"b\"]", 1);
    for keys in [
        "kind = \"gtpu\"\nteid = 1",
        "kind = \"mpls-udp\"\nlabel = 16",
        "kind = \"gre\"\nip = true",
        "kind = \"vxlan-gpe\"\nvni = 3\nip = true",
    ] {
        good(&with(keys, "patch.x"));
        good(&with(keys, "bridge.x"));
        let words = ["port \"t\" in bridge \"x\": a tunnel that carries IP", "the 2 other ports", "with a patch"];
        one_error(&more(with(keys, "bridge.x")), 3, &words);
    }
    good(&more(with("kind = \"gre\"", "bridge.x")));
}

/// Anybody who can send packets with the remote's address could put frames into such a tunnel.
#[test]
fn a_keyed_tunnel_without_its_cookie_is_worth_a_warning() {
    let fixture = Fixture::new();
    let warned = |remote: &str, keys: &str| {
        let text = file(&fixture, &format!("remote = {remote:?}\nkind = \"l2tpv3\"\n{keys}\n"));
        let vm = fixture.port("vm");
        let found = warnings(&good(&format!("{text}mtu = 1000\n{vm}[patch.p]\nports = [\"t\", \"vm\"]\n")));
        found.into_iter().filter(|warning| warning.contains("RFC 8159")).collect::<Vec<_>>()
    };
    let v6 = "2001:db8::2";
    let found = warned(v6, "");
    assert!(found.len() == 1 && found[0].contains("port \"t\" is a keyed tunnel and has no cookie"), "{found:?}");
    assert!(found[0].contains("cookie = \"0011223344556677\""), "{found:?}");
    let found = warned(v6, "cookie = \"00112233\"");
    assert!(found.len() == 1 && found[0].contains("has a cookie of 4 bytes"), "{found:?}");
    assert_eq!(warned(v6, "cookie = \"0011223344556677\""), [""; 0]);
    assert_eq!(warned(v6, "session = 4294967295").len(), 1);
    for (remote, keys) in
        [(v6, "session = 7"), ("192.0.2.2", "session = 4294967295"), (v6, "over = \"udp\"\nsession = 1")]
    {
        assert_eq!(warned(remote, keys), [""; 0]);
    }
}

#[test]
fn what_does_not_fit_is_worth_a_warning() {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n");
    let vms = fixture.ports(&["a", "b", "c"]);
    let with = |text: &str, ports: &str| warnings(&good(&format!("{text}{vms}[bridge.lan]\nports = [{ports}]\n")));
    let found = with(&text, "\"t\", \"a\", \"b\", \"c\"");
    let expected = "f.toml:7: port \"t\" carries IP packets of at most 1450 bytes, but port \"a\" and 2 more in bridge \
                    \"lan\" has mtu 1500; use mtu = 1450 there, or mtu = 1550 in underlay \"wan\"";
    assert_eq!(found, [expected.replace("port \"a\"", "port \"c\"")]);
    let fits = text.replacen("[underlay", "mtu = 1550\n[underlay", 1);
    assert_eq!(with(&fits, "\"t\", \"a\", \"b\", \"c\""), [""; 0]);
    let own = format!("{fits}mtu = 1501\n");
    let found = with(&own, "\"t\", \"a\", \"b\", \"c\"");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("mtu 1501 of port \"t\"") && found[0].contains("use mtu = 1500 here, or mtu = 1551"));
    // An underlay without tunnels, and a tunnel in no patch and no bridge.
    let alone = text.split_once("[port.t]").expect("it").0;
    assert_eq!(warnings(&good(alone)).len(), 1);
    assert!(warnings(&good(alone))[0].contains("underlay \"wan\" has no tunnel"));
    assert!(warnings(&good(&text))[0].contains("port \"t\" is in no patch or bridge"));
}

#[test]
fn packets_for_tunnels_do_not_wait() {
    let fixture = Fixture::new();
    let text = file(&fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n") + &fixture.ports(&["a", "b"]);
    let patch = |ports: &str| format!("{text}[patch.x]\nports = [{ports}]\nfull = \"wait\"\n");
    one_error(&patch("\"a\", \"t\""), 20, &["full = \"wait\" in patch \"x\": port \"t\" is no vhost-user port"]);
    let mirrored = patch("\"a\", \"b\"").replacen("[port.b]", "nodes = [\"m\"]\n[port.b]", 1)
        + "[node.m]\nkind = \"mirror\"\nto = \"t\"\n";
    one_error(&mirrored, 21, &["full = \"wait\" in patch \"x\": a node sends copies to tunnel \"t\""]);
    good(&mirrored.replace("full = \"wait\"\n", ""));
}

#[test]
fn ports_of_underlays_have_no_udp_segmentation() {
    let fixture = Fixture::new();
    let underlay = "[underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\"]\n";
    let tap = "[port.nic]\nkind = \"tap\"\nname = \"sl0\"\npersist = false\n".to_owned();
    for nic in [fixture.port("nic"), tap] {
        let offloads = |text: &str| match &good(text).config.ports[0].kind {
            PortKind::VhostUser(kind) => kind.offloads,
            PortKind::Tap(kind) => kind.offloads,
            kind => panic!("{kind:?}"),
        };
        assert_eq!(offloads(&nic), Offloads { csum: true, tso: true, uso: true });
        assert_eq!(offloads(&format!("{nic}{underlay}")), Offloads { csum: true, tso: true, uso: false });
        assert_eq!(offloads(&format!("{underlay}{nic}")), Offloads { csum: true, tso: true, uso: false });
    }
}

#[test]
fn packets_for_other_addresses_may_be_left_to_the_kernel() {
    let nic = "[port.nic]\nkind = \"af-xdp\"\ninterface = \"eth1\"\nsteal = \"address\"\n";
    let underlay = "[underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\"]\nvlan = 7\n\
                    mac = \"02:00:00:00:00:01\"\n";
    one_error(nic, 4, &["steal = \"address\" in port \"nic\" needs an underlay on the port"]);
    let config = good(&format!("{nic}{underlay}")).config;
    let request = config.ports[0].kind.device(1500, None);
    let straightline_port::device::DeviceRequest::AfXdp(request) = request.expect("a request") else { panic!() };
    let expected = straightline_port::device::Steal::Address {
        addresses: vec!["192.0.2.1".parse().expect("an address")],
        vlan: Some(7),
        mac: Some([2, 0, 0, 0, 0, 1]),
    };
    assert_eq!(request.steal, expected);
}

#[test]
fn two_tunnels_to_one_site_in_a_bridge_are_worth_a_warning() {
    let fixture = Fixture::new();
    let one = file(&fixture, "kind = \"vxlan\"\nremote = \"192.0.2.2\"\nvni = 5\n");
    let two = |keys: &str, remote: u8| {
        format!("{one}{keys}[port.u]\nkind = \"vxlan\"\nunderlay = \"wan\"\nremote = \"192.0.2.{remote}\"\nvni = 6\n")
    };
    let lan = "[bridge.lan]\nports = [\"t\", \"u\"]\n";
    let found = warnings(&good(&format!("{}{lan}", two("", 2))));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("\"t\" and \"u\" of bridge \"lan\" are tunnels to one remote"), "{found:?}");
    assert_eq!(warnings(&good(&format!("{}{lan}", two("", 3)))), [""; 0]);
    let apart = format!("{}vlan = 20\n{lan}", two("vlan = 10\n", 2));
    assert_eq!(warnings(&good(&apart)), [""; 0]);
}
