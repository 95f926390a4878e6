use super::Fixture;

#[test]
fn wrong_usage_exits_2() {
    let fixture = Fixture::new();
    for args in [
        &[][..],
        &["fly"],
        &["check"],
        &["check", "a", "b"],
        &["ports", "--jsn"],
        &["ports", "--api"],
        &["status", "x"],
        &["--json", "ports"],
        &["lab"],
        &["lab", "compare"],
        &["lab", "compare", "a"],
        &["lab", "loop"],
        &["lab", "loop", "--backend", "a"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--backend", "c"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--size", "64:x"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--ring", "round"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--queue-size", "100"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--buffer-len", "70"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--size", "20"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--bursts", "0"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--secs", "0"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--touch", "all"],
        &["lab", "exp", "width", "--secs", "0"],
        &["lab", "exp", "width", "--cell", "size"],
        &["lab", "generate"],
        &["lab", "generate", "--backend", "a", "--stream", "vlan=4096"],
        &["lab", "generate", "--backend", "a", "--stream", "size=20"],
        &["lab", "generate", "--backend", "a", "--rate", "fast"],
        &["lab", "generate", "--backend", "a", "--backend", "b", "--backend", "c"],
        &["lab", "generate", "--backend", "a", "--burst", "0"],
        &["lab", "generate", "--backend", "a", "--secs", "0"],
        &["lab", "generate", "--backend", "a", "--queue-size", "100"],
        &["lab", "generate", "--backend", "a", "--queue-size", "32", "--stream", "size=65000"],
        &["lab", "replay", "x.pcap"],
        &["lab", "replay", "x.pcap", "--backend", "a", "--speed", "1", "--rate", "1pps"],
        &["lab", "replay", "x.pcap", "--backend", "a", "--speed", "0"],
        &["lab", "replay", "x.pcap", "--backend", "a", "--speed", "NaN"],
        &["lab", "replay", "x.pcap", "--backend", "a", "--times", "0"],
        &["lab", "guest"],
        &["lab", "guest", "--backend", "a", "--backend", "b", "--backend", "c"],
        &["lab", "guest", "--backend", "a", "--queue-size", "2048"],
        &["lab", "guest", "--backend", "a", "--longest", "70000"],
        &["lab", "guest", "--backend", "a", "--mode", "txonly", "--touch", "read"],
        &["lab", "guest", "--backend", "a", "--mode", "flowgen", "--touch", "header"],
        &["lab", "pvp", "--backend", "a"],
        &["lab", "pvp", "--mode", "rxonly"],
        &["lab", "pvp", "--mode", "fast"],
        &["lab", "pvp", "--touch", "edit"],
        &["lab", "pvp", "--size", "9300"],
        &["lab", "pvp", "--queue-size", "100"],
        &["lab", "pvp", "--secs", "0"],
        &["lab", "vm2vm", "--backend", "a"],
        &["lab", "vm2vm", "--size", "20"],
        &["lab", "vm2vm", "--backend", "a", "--backend", "b", "--switch-cpu", "1"],
        &["lab", "pvp", "--backend", "a", "--backend", "b", "--backend", "c", "--backend", "d", "--switch-cpu", "1"],
        &["lab", "patch-external"],
        &["lab", "patch-external", "--backend", "a"],
        &["lab", "patch-external", "--backend", "a", "--backend", "b", "--backend", "c"],
        &["lab", "patch-external", "--interface", "tap:a"],
        &["lab", "vm2vm", "--interface", "tap:a", "--interface", "tap:b"],
        &["lab", "pvp", "--interface", "tap:a"],
        &["lab", "pvp", "--interface", "tap:a", "--interface", "tap:b", "--backend", "a"],
        &["lab", "pvp", "--interface", "tap:a", "--interface", "tap:b", "--switch-interface", "af-packet:a"],
        &["lab", "pvp", "--switch-interface", "tap:a"],
        &["lab", "generate", "--interface", "tap:a", "--interface", "tap:b", "--backend", "a"],
        &["lab", "generate", "--interface", "eth1"],
        &["lab", "generate", "--interface", "xdp:eth1"],
        &["lab", "generate", "--interface", "tap:a/b"],
    ] {
        let done = fixture.execute(args);
        assert_eq!(done.code, Some(2), "{args:?} {done:?}");
        assert!(done.err.contains("--help") && done.out.is_empty(), "{args:?} {done:?}");
    }
}

#[test]
fn help_and_version_exit_0() {
    let fixture = Fixture::new();
    let help = fixture.execute(&["--help"]);
    assert_eq!(help.code, Some(0));
    for command in
        ["check", "link", "port", "reload", "status", "ports", "fdb", "neighbours", "runtime", "drops", "lab"]
    {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command} in {}", help.out);
    }
    let version = fixture.execute(&["--version"]);
    assert_eq!((version.code, version.out), (Some(0), format!("straightline {}\n", env!("CARGO_PKG_VERSION"))));
}
