//! `straightline flow`, with a running switch.

use std::fmt::Write as _;
use std::fs;

use super::run::Running;
use super::{Finished, Fixture};

const CONFIG: &str = "\
[switch]
api = \"@/api\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[port.vm2]
kind = \"vhost-user\"
socket = \"@/vm2\"
[bridge.lan]
ports = [\"vm1\", \"vm2\"]
";

fn flow(fixture: &Fixture, args: &[&str]) -> Finished {
    fixture.execute(&[&["flow"], args, &["--api", "api"]].concat())
}

/// Runs a command that succeeds. Returns its output.
fn good(fixture: &Fixture, args: &[&str]) -> String {
    let done = flow(fixture, args);
    assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
    done.out
}

/// Runs a command that fails. Returns its message.
fn bad(fixture: &Fixture, args: &[&str]) -> String {
    let done = flow(fixture, args);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{args:?}: {done:?}");
    done.err
}

fn dump(fixture: &Fixture) -> Vec<String> {
    good(fixture, &["dump", "lan", "--no-stats"]).lines().map(str::to_owned).collect()
}

#[test]
fn flows_come_change_and_go() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    assert_eq!(dump(&fixture), [""; 0]);
    assert_eq!(good(&fixture, &["del", "lan"]), "nothing changed\n");
    assert_eq!(dump(&fixture), [""; 0], "a deletion makes no tables");
    let web = "priority=100,in_port=vm1,tcp,tp_dst=80,actions=vm2";
    assert_eq!(good(&fixture, &["add", "lan", web, "table=1,arp,actions=flood"]), "2 added\n");
    let all = [
        " priority=100,tcp,in_port=1,tp_dst=80 actions=output:2",
        " priority=0 actions=NORMAL",
        " table=1, arp actions=FLOOD",
    ];
    assert_eq!(dump(&fixture), all);
    let with_names = good(&fixture, &["dump", "lan", "tcp", "--names"]);
    assert!(with_names.starts_with(" cookie=0x0, duration="), "{with_names}");
    assert!(with_names.ends_with(", priority=100,tcp,in_port=vm1,tp_dst=80 actions=output:vm2\n"), "{with_names}");

    let error = bad(&fixture, &["add", "lan", "udp,actions=1", "udp,actions=learn()"]);
    assert!(error.contains("bridge \"lan\": line 2: `learn()` makes flows from packets"), "{error}");
    let error = bad(&fixture, &["add", "lan", "udp,actions=3,vm3"]);
    assert!(error.contains("bridge \"lan\": `vm3` is neither an action nor a port"), "{error}");
    let error = bad(&fixture, &["dump", "wan"]);
    assert!(error.contains("no such bridge \"wan\"; bridges are lan"), "{error}");
    assert_eq!(dump(&fixture), all, "mistakes change nothing");

    assert_eq!(good(&fixture, &["mod", "lan", "tcp,actions=drop"]), "1 changed\n");
    assert_eq!(good(&fixture, &["del", "lan", "--strict", "table=0,priority=0"]), "1 deleted\n");
    let trace = good(&fixture, &["trace", "lan", "in_port=vm1,tcp,tp_dst=80"]);
    let lines = [
        "packet: tcp,in_port=vm1,tp_dst=80",
        " 0. tcp,in_port=vm1,tp_dst=80, priority 100",
        "    drop",
        "no output: the packet is dropped",
    ];
    assert_eq!(trace.lines().collect::<Vec<_>>(), lines);
    let json = good(&fixture, &["dump", "lan", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["flows"][1]["match"], "arp");
    assert_eq!(json["flows"][1]["owner"], "api");
    assert!(json["accesses"].as_u64().is_some_and(|accesses| accesses > 0), "{json}");
    let status = fixture.execute(&["status", "--api", "api"]);
    assert!(status.out.contains("bridge lan: at most "), "{status:?}");

    good(&fixture, &["meter", "add", "lan", "meter=1,kbps,band=type=drop,rate=1000"]);
    assert_eq!(good(&fixture, &["meter", "dump", "lan"]), "meter=1 kbps bands=\ntype=drop rate=1000\n");
    good(&fixture, &["add", "lan", "actions=meter:1,normal"]);
    let stats =
        "meter:1 flow_count:1 packet_in_count:0 passed: packet_count:0 byte_count:0 bands:\n0: packet_count:0\n";
    assert_eq!(good(&fixture, &["meter", "stats", "lan"]), stats);
    assert!(bad(&fixture, &["meter", "del", "lan", "1"]).contains("`meter=1` is used by 1 flows"));
    assert_eq!(good(&fixture, &["del", "lan"]), "3 deleted\n");
    good(&fixture, &["meter", "del", "lan", "meter=1"]);
}

#[test]
fn many_flows_are_replaced_at_once_and_dumped_in_pages() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    // More than a request and a page hold.
    let mut text = String::new();
    for number in 0..12_000 {
        writeln!(text, "ip,nw_src=10.{}.{}.1,actions=output:vm2", number / 256, number % 256).unwrap();
    }
    fs::write(fixture.path("flows"), &text).unwrap();
    good(&fixture, &["replace", "lan", "flows"]);
    let lines = dump(&fixture);
    assert_eq!(lines.len(), 12_000);
    assert_eq!(lines[11_999], " ip,nw_src=10.46.223.1 actions=output:2");
    // A dump is a file of flows.
    fs::write(fixture.path("dumped"), good(&fixture, &["dump", "lan"])).unwrap();
    assert_eq!(good(&fixture, &["replace", "lan", "dumped"]), "nothing changed\n");
    fs::write(fixture.path("flows"), text.replace("nw_src=10.20.30.1", "nw_src=10.20.30.256")).unwrap();
    let error = bad(&fixture, &["replace", "lan", "flows"]);
    assert!(error.contains("line 5151: `nw_src=10.20.30.256` has no IPv4 address"), "{error}");
    assert_eq!(dump(&fixture), lines);
}

#[test]
fn the_file_owns_its_flows() {
    let fixture = Fixture::new();
    fs::write(fixture.path("lan.flows"), "priority=5,tcp,actions=drop\n").unwrap();
    fixture.write(&format!("{CONFIG}flows-file = \"lan.flows\"\nflows = [\"priority=0,actions=normal\"]\n"));
    let checked = fixture.execute(&["check", "switch.toml"]);
    assert!(checked.out.contains("bridge \"lan\": the search in a flow table takes at most "), "{checked:?}");
    let _running = Running::start(&fixture);
    let file = [" priority=5,tcp actions=drop", " priority=0 actions=NORMAL"];
    assert_eq!(dump(&fixture), file);
    good(&fixture, &["add", "lan", "priority=9,udp,actions=vm1"]);
    let error = bad(&fixture, &["add", "lan", "priority=5,tcp,actions=1"]);
    assert!(error.contains("`table=0,priority=5,tcp` is a flow of the configuration file"), "{error}");
    fs::write(fixture.path("lan.flows"), "priority=6,tcp,actions=drop\n").unwrap();
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert!(done.out.contains("its flows have changed"), "{done:?}");
    let both = [" priority=9,udp actions=output:1", " priority=6,tcp actions=drop", file[1]];
    assert_eq!(dump(&fixture), both);
    fs::write(fixture.path("lan.flows"), "priority=6,tcp,actions=drop\ntcp,actions=nosuch\n").unwrap();
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert!(done.err.contains("line 2: `nosuch` is neither an action"), "{done:?}");
    assert_eq!(dump(&fixture), both);
    assert_eq!(good(&fixture, &["del", "lan"]), "1 deleted; 2 of the configuration file stay\n");
}
