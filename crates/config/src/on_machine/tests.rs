use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::Machine;

/// A machine whose `eth0` has the default route, `eth1` an address, and `eth2` is in bridge `br0`.
fn machine() -> (tempfile::TempDir, Interfaces) {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let names = ["lo", "eth0", "eth1", "eth2", "eth6", "tap0", "br0"];
    let lines: String = names.iter().map(|name| format!("{name:>6}: 0 0 0\n")).collect();
    write("proc/self/net/dev", &format!("Inter-|   Receive\n face |bytes\n{lines}"));
    write(
        "proc/self/net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
         eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n\
         eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n",
    );
    let nowhere = "0".repeat(32);
    let router = format!("fe8{}1", "0".repeat(28));
    let route = |to: &str, hop: &str, name: &str| {
        format!("{nowhere} {to} {nowhere} 00 {hop} 00000400 00000001 00000000 00000003     {name}\n")
    };
    // The kernel has a route to nowhere on `lo`.
    write("proc/self/net/ipv6_route", &[route("00", &router, "eth6"), route("00", &nowhere, "lo")].concat());
    for name in names {
        fs::create_dir_all(root.path().join("sys/class/net").join(name)).unwrap();
    }
    write("sys/class/net/tap0/tun_flags", "0x5002\n");
    fs::create_dir_all(root.path().join("sys/class/net/br0/bridge")).unwrap();
    symlink("../br0", root.path().join("sys/class/net/eth2/master")).unwrap();
    let interfaces = Interfaces::below(root.path());
    (root, interfaces)
}

fn found(text: &str) -> OnMachine {
    let loaded = Config::parse("f.toml", text, &Machine::with_cpus(vec![0], vec![0])).unwrap();
    loaded.on_machine(&machine().1, &Config::default())
}

fn port(name: &str, keys: &str) -> String {
    format!("[port.{name}]\n{keys}\n")
}

fn nic(kind: &str, interface: &str) -> String {
    port("p", &format!("kind = \"{kind}\"\ninterface = \"{interface}\""))
}

fn texts(findings: &[Diagnostic]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn af_xdp_on_the_default_route_is_an_error() {
    for interface in ["eth0", "eth6"] {
        let errors = texts(&found(&nic("af-xdp", interface)).errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
        let start = format!("f.toml:1: port \"p\": AF_XDP takes all packets of {interface}, which has this machine's");
        assert!(errors[0].starts_with(&start) && errors[0].contains("`take-default-route = true`"), "{errors:?}");
    }
    let allowed = format!("{}take-default-route = true\n", nic("af-xdp", "eth0"));
    let underlay = "steal = \"address\"\n[underlay.u]\nport = \"p\"\naddress = [\"192.0.2.1/24\"]\n";
    let addresses = format!("{}{underlay}", nic("af-xdp", "eth0"));
    for harmless in [allowed, addresses, nic("af-xdp", "eth1"), nic("af-packet", "eth0")] {
        assert_eq!(found(&harmless).errors, [], "{harmless}");
    }
}

#[test]
fn a_port_that_is_open_already_does_not_keep_a_reload_from_working() {
    let loaded = Config::parse("f.toml", &nic("af-xdp", "eth0"), &Machine::with_cpus(vec![0], vec![0])).unwrap();
    assert_eq!(loaded.on_machine(&machine().1, &loaded.config).errors, []);
}

#[test]
fn interfaces_that_are_not_there_or_of_another_kind() {
    let tap = |keys: &str| port("p", &format!("kind = \"tap\"\n{keys}"));
    for (text, message) in [
        (nic("af-xdp", "eth9"), "there is no interface eth9"),
        (nic("af-packet", "eth9"), "there is no interface eth9"),
        (nic("af-packet", "eth1"), "this machine's own network stack gets the same packets"),
        (tap("name = \"eth2\"\npersist = true"), "interface eth2 exists, and is no tap"),
        (tap("name = \"tap1\"\nbridge = \"br9\""), "make it: ip link add br9 type bridge"),
        (tap("name = \"tap1\"\nbridge = \"eth1\""), "interface eth1 is no bridge"),
    ] {
        let OnMachine { errors, warnings } = found(&text);
        let warnings = texts(&warnings);
        assert!(errors.is_empty() && warnings.len() == 1 && warnings[0].contains(message), "{message}: {warnings:?}");
    }
    for harmless in
        [tap("name = \"tap0\"\nbridge = \"br0\""), tap("name = \"new\"\npersist = true"), nic("af-packet", "eth2")]
    {
        assert_eq!(found(&harmless), OnMachine::default(), "{harmless}");
    }
}

#[test]
fn two_ports_that_meet_in_a_linux_bridge_are_a_loop() {
    let tap = |name: &str| port(name, &format!("kind = \"tap\"\nname = \"{name}\"\nbridge = \"br0\""));
    let nic = port("nic", "kind = \"af-packet\"\ninterface = \"eth2\"");
    for (ports, names) in [([tap("a"), tap("b")], ["a", "b"]), ([tap("a"), nic], ["a", "nic"])] {
        let bridge = |ports: &str| format!("[bridge.lan]\nports = [{ports}]\n");
        let [first, second] = names.map(|name| format!("{name:?}"));
        let warnings = texts(&found(&format!("{}{}", ports.concat(), bridge(&format!("{first}, {second}")))).warnings);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("both in br0") && warnings[0].contains("bridge \"lan\""), "{warnings:?}");
        // In two of our bridges there is no circle.
        let two = format!("{}{}[bridge.wan]\nports = [{second}]\n", ports.concat(), bridge(&first));
        assert_eq!(found(&two).warnings, []);
    }
}

/// The table of broken situations in `docs/doctor.md`: each row of `configuration` has here a file
/// that provokes it.
#[test]
fn each_situation_of_the_table_is_found() {
    let meeting = [
        port("x", "kind = \"tap\"\nname = \"sl0\"\npersist = false\nbridge = \"br0\""),
        nic("af-packet", "eth2"),
        "[bridge.lan]\nports = [\"x\", \"p\"]\n".to_owned(),
    ];
    let files = [
        ("AF_XDP on the NIC of the default route", nic("af-xdp", "eth0")),
        ("Two ports that meet in a Linux bridge", meeting.concat()),
    ];
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md")).unwrap();
    let (_, section) = document.split_once("\n## Broken situations\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut rows = 0;
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, situation, "`configuration`", says, fix, _] = cells[..] else { continue };
        let (_, file) = files.iter().find(|(name, _)| *name == situation).unwrap_or_else(|| panic!("no file: {row}"));
        let OnMachine { errors, warnings } = found(file);
        let told = [texts(&errors), texts(&warnings)].concat();
        assert!(told.iter().any(|text| text.contains(says) && text.contains(fix)), "{row}: {told:?}");
        rows += 1;
    }
    assert_eq!(rows, files.len(), "each file has its row");
}

#[test]
fn what_is_not_known_is_no_finding() {
    let nothing = Interfaces::below(Path::new("/nowhere"));
    let text = format!("{}{}", nic("af-xdp", "eth9"), port("t", "kind = \"tap\"\nname = \"t\"\nbridge = \"br9\""));
    let loaded = Config::parse("f.toml", &text, &Machine::with_cpus(vec![0], vec![0])).unwrap();
    assert_eq!(loaded.on_machine(&nothing, &Config::default()), OnMachine::default());
}

#[test]
fn workers_without_work_are_told() {
    let warnings = |keys: &str| {
        let text = format!("[switch]\nworkers = [0, 1]\n{}{keys}", nic("af-packet", "eth2"));
        let loaded = Config::parse("f.toml", &text, &Machine::with_cpus(vec![0, 1], vec![0, 1])).unwrap();
        texts(&loaded.warnings)
    };
    let idle = "2 workers for 1 queue pairs of all ports";
    assert!(warnings("").iter().any(|warning| warning.contains(idle)), "{:?}", warnings(""));
    assert!(!warnings("queues = 2\n").iter().any(|warning| warning.contains("workers")), "{:?}", warnings(""));
}
