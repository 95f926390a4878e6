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
        &["ports", "x"],
        &["--json", "ports"],
        &["lab"],
        &["lab", "compare"],
        &["lab", "compare", "a"],
        &["lab", "loop"],
        &["lab", "loop", "--backend", "a"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--backend", "c"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--size", "64:x"],
        &["lab", "loop", "--backend", "a", "--backend", "b", "--ring", "round"],
        &["lab", "generate"],
        &["lab", "generate", "--backend", "a", "--stream", "vlan=4096"],
        &["lab", "generate", "--backend", "a", "--rate", "fast"],
        &["lab", "replay", "x.pcap"],
        &["lab", "replay", "x.pcap", "--backend", "a", "--speed", "1", "--rate", "1pps"],
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
    for command in ["check", "link", "port", "reload", "status", "ports", "fdb", "runtime", "drops", "lab"] {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command} in {}", help.out);
    }
    let version = fixture.execute(&["--version"]);
    assert_eq!((version.code, version.out), (Some(0), format!("straightline {}\n", env!("CARGO_PKG_VERSION"))));
}
