use super::{Finished, Fixture, skip};

/// Checks the line of JSON at the end of the demo: it has every node. What passes in a second, and what
/// comes half a second late and so counts as lost, depends on the machine. A long run checks it too; the
/// tests of the laboratory check by packets that nothing is lost.
fn ends_with_a_summary(done: &Finished, nodes: &[&str]) {
    assert_eq!(done.code, Some(0), "{done:?}");
    let last = done.out.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    let is_metric = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0 || !is_long);
    assert!(is_metric(&summary["mpps"]) && is_metric(&summary["gbit_per_s"]), "{summary}");
    assert!(summary["lost"].as_u64().is_some_and(|lost| lost == 0 || !is_long), "{summary}");
    for node in nodes {
        assert!(is_metric(&summary["cycles_per_packet"][node]), "{node}: {summary}");
    }
}

/// The first command of the README, run as a script does.
#[test]
fn the_demo_ends_with_one_line_of_json() {
    let done = Fixture::new().execute(&["demo", "--secs", "1", "--json"]);
    ends_with_a_summary(&done, &["left-rx", "right-rx", "patch.demo", "left-tx", "right-tx", "turn-end"]);
}

#[test]
fn the_demo_shows_a_line_each_second_and_a_summary() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["demo", "--secs", "2"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<_> = done.out.lines().collect();
    assert!(lines[2].trim_start().starts_with('1') && lines[3].trim_start().starts_with('2'), "{}", done.out);
    let last = lines.last().unwrap();
    assert!(last.contains(" lost, ") && last.ends_with(" out of order"), "{}", done.out);
}

/// Kinds that carry Ethernet and IP, in UDP and in IP.
#[test]
fn the_demo_joins_two_guests_by_a_tunnel() {
    let fixture = Fixture::new();
    for kind in ["l2tpv3", "vxlan", "gtpu"] {
        let done = fixture.execute(&["demo", "--tunnel", kind, "--secs", "1", "--json"]);
        let nodes = ["a-rx", "patch.left", "encap.t1", "nic0-tx", "nic1-rx", "decap.right", "patch.right", "b-tx"];
        ends_with_a_summary(&done, &nodes);
    }
}

#[test]
fn the_demo_joins_two_namespaces_of_the_host() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["demo", "--host", "--secs", "1", "--json"]);
    if done.err.contains("demo --host needs two network namespaces") {
        skip("the_demo_joins_two_namespaces_of_the_host", "it needs root, or the right to make namespaces");
        return;
    }
    ends_with_a_summary(&done, &["sl0-rx", "sl1-rx", "patch.demo", "sl0-tx", "sl1-tx"]);
}

/// Runs the demo as a user without capabilities on a system that lets nobody make namespaces.
#[test]
fn the_demo_says_what_it_needs_to_join_namespaces() {
    let fixture = Fixture::new();
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all {} demo --host",
        env!("CARGO_BIN_EXE_straightline")
    );
    let inside = ["--user", "--map-root-user", "sh", "-c", &script];
    let done = std::process::Command::new("unshare").args(inside).current_dir(fixture.path("")).output().unwrap();
    let done = Finished::new(&done);
    if done.err.starts_with("unshare: ") {
        skip("the_demo_says_what_it_needs_to_join_namespaces", "it needs a user namespace");
        return;
    }
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    for part in ["run `sudo straightline demo --host`", "or `sudo sysctl user.max_user_namespaces=1000`"] {
        assert!(done.err.contains(part), "{part} in {done:?}");
    }
}
