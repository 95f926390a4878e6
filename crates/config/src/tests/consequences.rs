//! One mistake gives one error: what only follows from it is not told. Independent mistakes are all
//! told at once.

use super::errors;

const WAN: &str = "[port.nic0]\nkind = \"af-xdp\"\ninterface = \"eth1\"\n\
                   [underlay.wan]\nport = \"nic0\"\naddress = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
                   gateway = [\"192.0.2.254\"]\n\
                   [port.t1]\nkind = \"vxlan\"\nunderlay = \"wan\"\nremote = \"192.0.2.2\"\nvni = 7\n\
                   [port.t2]\nkind = \"l2tpv3\"\nunderlay = \"wan\"\nremote = \"198.51.100.9\"\nover = \"udp\"\n\
                   session = 1\npeer-port = 1702\ncookie = \"00112233\"\nprevious-cookie = \"44556677\"\n\
                   [bridge.lan]\nports = [\"vm1\", \"t1\"]\nstatic = { \"02:00:00:00:00:03\" = \"vm1\" }\n\
                   [patch.p]\nports = [\"vm2\", \"t2\"]\n\
                   [port.vm1]\nkind = \"vhost-user\"\nsocket = \"/tmp/vm1.sock\"\nmac = \"52:54:00:00:00:01\"\n\
                   source-check = \"mac\"\nallowed-ips = [\"10.0.0.1\"]\nnodes = [\"watch\"]\n\
                   [port.vm2]\nkind = \"vhost-user\"\nsocket = \"/tmp/vm2.sock\"\n\
                   [port.monitor]\nkind = \"tap\"\nname = \"mon0\"\n\
                   [node.watch]\nkind = \"mirror\"\nto = \"monitor\"\n";

/// Replaces each text by another one in the file above, and returns the number of errors.
#[track_caller]
fn count(replaced: &[(&str, &str)]) -> (usize, String) {
    let mut text = WAN.to_owned();
    for (old, new) in replaced {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    let errors = errors(&text);
    (errors.len(), errors.join("\n"))
}

/// Each row: a mistake in the file above.
const MISTAKES: &[(&str, &str)] = &[
    // Sections.
    ("[port.vm1]", "[prot.vm1]"),
    ("[port.vm1]", "[port]"),
    ("[underlay.wan]", "[underlays.wan]"),
    ("[underlay.wan]", "[underlay]"),
    ("[node.watch]", "[nodes.watch]"),
    ("[port.monitor]", "[ports.monitor]"),
    ("[port.nic0]", "[prt.nic0]"),
    ("[port.vm1]", "[port.vm1"),
    ("[port.vm1]", "[port.vm2]"),
    ("[port.vm1]", "[port.\"vm1\"]\ncolour = 1"),
    // Kinds.
    ("kind = \"tap\"", "kind = \"tpa\""),
    ("kind = \"tap\"", "kind = 3"),
    ("kind = \"tap\"\n", ""),
    ("kind = \"tap\"", "knd = \"tap\""),
    ("kind = \"vxlan\"", "kind = \"vxlam\""),
    ("kind = \"vxlan\"\n", ""),
    ("kind = \"af-xdp\"", "kind = \"afxdp\""),
    ("kind = \"mirror\"", "kind = \"miror\""),
    ("kind = \"mirror\"", "kin = \"mirror\""),
    // Keys.
    ("socket = \"/tmp/vm1.sock\"", "sokcet = \"/tmp/vm1.sock\""),
    ("socket = \"/tmp/vm1.sock\"", "socket = [\"/tmp/vm1.sock\"]"),
    ("name = \"mon0\"", "nmae = \"mon0\""),
    ("interface = \"eth1\"", "iterface = \"eth1\""),
    ("to = \"monitor\"", "to = 3"),
    ("to = \"monitor\"", "to = \"moniter\""),
    ("source-check = \"mac\"", "source-chek = \"mac\""),
    ("source-check = \"mac\"", "source-check = true"),
    ("mac = \"52:54:00:00:00:01\"", "mac = \"52:54:00:00:00\""),
    ("mac = \"52:54:00:00:00:01\"", "mca = \"52:54:00:00:00:01\""),
    ("vni = 7", "vnni = 7"),
    ("vni = 7", "vni = \"7\""),
    ("over = \"udp\"", "over = \"upd\""),
    ("over = \"udp\"", "ovr = \"udp\""),
    ("session = 1", "sesion = 1"),
    ("cookie = \"00112233\"", "cookie = \"001122\""),
    // Lists of ports.
    ("ports = [\"vm1\", \"t1\"]", "ports = \"vm1\""),
    ("ports = [\"vm1\", \"t1\"]", "ports = [1, \"t1\"]"),
    ("ports = [\"vm1\", \"t1\"]", "port = [\"vm1\", \"t1\"]"),
    ("ports = [\"vm1\", \"t1\"]", "ports = [\"vm1\", \"t1\", \"vm9\"]"),
    ("ports = [\"vm2\", \"t2\"]", "ports = [\"vm2\", 7]"),
    ("ports = [\"vm2\", \"t2\"]", "ports = [\"vm2\"]"),
    // Underlays.
    ("address = [\"192.0.2.1/24\", ", "address = [\"192.0.2.1\", "),
    ("address = [\"192.0.2.1/24\", ", "adress = [\"192.0.2.1/24\", "),
    ("address = [\"192.0.2.1/24\", \"2001:db8::1/64\"]", "address = \"192.0.2.1/24\""),
    ("address = [\"192.0.2.1/24\", ", "address = [7, "),
    ("gateway = [\"192.0.2.254\"]", "gateway = \"192.0.2.254\""),
    ("gateway = [\"192.0.2.254\"]", "gateway = [\"192.0.2.254/24\"]"),
    ("gateway = [\"192.0.2.254\"]", "gatway = [\"192.0.2.254\"]"),
    ("port = \"nic0\"", "port = 1"),
    ("port = \"nic0\"", "prot = \"nic0\""),
    ("underlay = \"wan\"\nremote = \"192.0.2.2\"", "underlay = \"lan\"\nremote = \"192.0.2.2\""),
    ("remote = \"192.0.2.2\"", "remote = \"192.0.2\""),
    ("remote = \"192.0.2.2\"", "remotes = [\"192.0.2\"]\nstatic = { \"02:00:00:00:00:04\" = \"192.0.2.2\" }"),
    ("[\"192.0.2.254\"]", "[\"192.0.2.254\"]\nmtu = \"1600\"\npath-mtu = 1550"),
    ("interface = \"eth1\"", "interface = \"eth1\"\nsteal = \"adress\""),
    // A worker that no machine has.
    ("[port.vm1]", "[switch]\nworkers = [999]\n[port.vm1]"),
    ("[port.vm1]", "[switch]\nworkers = \"0\"\n[port.vm1]"),
    ("[port.vm1]", "[switch]\napi = 3\napi-group = \"0\"\n[port.vm1]"),
    ("[port.vm1]", "[switch]\napii = \"/tmp/api.sock\"\napi-perms = \"0600\"\n[port.vm1]"),
];

#[test]
fn the_file_is_right() {
    super::good(WAN);
}

#[test]
fn one_mistake_gives_one_error() {
    let wrong: Vec<_> = MISTAKES
        .iter()
        .filter_map(|mistake| {
            let (count, errors) = count(&[*mistake]);
            (count != 1).then(|| format!("{mistake:?}: {count} errors\n{errors}\n"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An address list or a port that is wrong in a file where others depend on it.
#[test]
fn two_causes_give_two_errors() {
    for rows in [
        [("kind = \"tap\"", "kind = \"tpa\""), ("vni = 7", "vnni = 7")],
        [("[port.vm1]", "[prot.vm1]"), ("ports = [\"vm2\", \"t2\"]", "ports = [\"vm2\", \"t9\"]")],
        [("gateway = [\"192.0.2.254\"]", "gateway = [7]"), ("remote = \"192.0.2.2\"", "remote = \"192.0.2.1\"")],
        [("address = [\"192.0.2.1/24\", ", "address = [7, "), ("to = \"monitor\"", "to = \"moniter\"")],
    ] {
        let (count, errors) = count(&rows);
        assert_eq!(count, 2, "{rows:?}\n{errors}");
    }
}

/// A port with `steal = "address"` whose underlay is not known because of another mistake.
#[test]
fn a_lost_underlay_is_told_once() {
    let steal = ("interface = \"eth1\"", "interface = \"eth1\"\nsteal = \"address\"");
    for mistake in
        [("[underlay.wan]", "[underlays.wan]"), ("port = \"nic0\"", "port = \"nic1\""), ("port = \"nic0\"", "port = 1")]
    {
        let (count, errors) = count(&[steal, mistake]);
        assert_eq!(count, 1, "{mistake:?}\n{errors}");
    }
}

/// Two tunnels whose keys cannot be read have no key in common.
#[test]
fn wrong_keys_are_not_the_same_key() {
    let second = "[port.t3]\nkind = \"vxlan\"\nunderlay = \"wan\"\nremote = \"192.0.2.2\"\nvni = \"8\"\n[port.vm1]";
    let (count, errors) = count(&[("vni = 7", "vni = \"7\""), ("[port.vm1]", second)]);
    assert_eq!(count, 2, "{errors}");
}
