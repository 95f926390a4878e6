use std::io::Read;
use std::process::Stdio;

use super::capture::{Bench, Capture};
use super::run::Running;

/// Waits for the end of a trace. Returns its exit code, standard output and standard error.
fn finish(mut trace: Capture) -> (Option<i32>, String, String) {
    let mut out = String::new();
    trace.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let done = trace.finish();
    (done.code, out, done.err)
}

#[test]
fn it_shows_the_way_of_packets_and_ends_after_a_count() {
    let mut bench = Bench::new();
    let text = bench.start("trace", "vm1 --count 3", Stdio::piped());
    let json = bench.start("trace", "vm1 vm2 --count 2 --filter arp --json", Stdio::piped());
    bench.send(5);
    let (code, out, err) = finish(text);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(err, "tracing: vm1; end with Ctrl-C\ntraced: 3 of 3 packets\n");
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    let blocks: Vec<_> = out.split("\n\n").filter(|block| !block.is_empty()).collect();
    assert_eq!(blocks.len(), 3, "{out}");
    for (n, block) in (1..).zip(blocks) {
        assert!(block.starts_with(&format!("packet {n}: from vm1, worker 0, after ")), "{block}");
        assert!(block.contains("    100 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, "), "{block}");
        let nodes: Vec<_> = block.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(nodes[2..], ["node", "vm1-rx", "patch.a", "vm2-tx", "=>"], "{block}");
        assert!(block.trim_end().ends_with("=> delivered by vm2"), "{block}");
    }
    let (code, out, err) = finish(json);
    assert_eq!(code, Some(0), "{err}");
    let packets: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(packets.len(), 2, "{out}");
    for packet in packets {
        assert_eq!((packet["port"].as_str(), packet["delivered"][0].as_str()), (Some("vm1"), Some("vm2")), "{packet}");
        assert!(packet["packet"].as_str().unwrap().ends_with(", ARP"), "{packet}");
    }
}

#[test]
fn it_ends_with_a_signal_and_says_that_nothing_came() {
    let bench = Bench::new();
    for (args, words) in [("vm1", "none came from vm1"), ("vm1 --filter arp", "no packet that the filter selects")] {
        let trace = bench.start("trace", args, Stdio::piped());
        trace.interrupt();
        let (code, out, err) = finish(trace);
        assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
        assert!(err.contains("traced: 0 of 10 packets; ") && err.contains(words), "{err}");
    }
}

#[test]
fn it_ends_after_a_time_with_what_it_has() {
    let mut bench = Bench::new();
    let limited = bench.start("trace", "vm1 --count 10000 --json --limit-time 1.5", Stdio::piped());
    bench.send(5);
    let (code, out, err) = finish(limited);
    assert_eq!(code, Some(0), "{err}");
    // How many of them came in time depends on the machine.
    assert!(err.contains(&format!("\ntraced: {} of 10000 packets", out.lines().count())), "{err} {out}");
}

#[test]
fn a_reader_that_leaves_ends_it_and_one_that_is_stuck_does_not_keep_it() {
    let mut bench = Bench::new();
    let mut left = bench.start("trace", "vm1 --count 1000", Stdio::piped());
    drop(left.child.stdout.take());
    let stuck = bench.start("trace", "vm1 --count 10000", Stdio::piped());
    bench.send_until_stuck(&stuck);
    let done = left.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    stuck.interrupt();
    let done = stuck.finish();
    assert_eq!(done.code, Some(1), "{done:?}");
    bench.send(1);
    let drops = bench.fixture.execute(&["drops", "--json", "--api", "api"]);
    assert!(drops.out.contains("\"drops\":[]"), "{drops:?}");
}

#[test]
fn it_says_when_the_switch_ends_and_what_is_wrong() {
    let mut bench = Bench::new();
    let execute = |args: &[&str]| bench.fixture.execute(&[&["trace", "--api", "api"], args].concat());
    let done = execute(&["vm7"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("no such port \"vm7\"; ports are vm1, vm2") && done.out.is_empty(), "{done:?}");
    assert_eq!(execute(&["vm1", "--count", "0"]).code, Some(2));
    assert_eq!(execute(&["vm1", "--filter", "tcp prot 80"]).code, Some(2));
    let mut trace = bench.start("trace", "vm1", Stdio::piped());
    bench.send(1);
    let mut start = [0; 10];
    trace.child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(start, *b"packet 1: ");
    Running::signal(&bench.switch, "TERM");
    let (code, _, err) = finish(trace);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("traced: 1 of 10 packets\nerror: the switch has ended"), "{err}");
}
