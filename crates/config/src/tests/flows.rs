//! `flows`, `flows-file` and `meters` of a bridge.

use std::fs;

use straightline_flow::MeterUnit;

use super::{Config, Fixture, Meter, good, machine, one_error};

/// Returns a file with a bridge of two ports, up to its keys. The next line is line 9.
fn bridge(fixture: &Fixture) -> String {
    format!("{}[bridge.lan]\nports = [\"vm1\", \"vm2\"]\n", fixture.ports(&["vm1", "vm2"]))
}

#[test]
fn flows_of_list_and_file_come_together() {
    let fixture = Fixture::new();
    let path = fixture.path("lan.flows");
    fs::write(&path, "# first\n\npriority=5,tcp,actions=meter:1,output:vm2\n").unwrap();
    let keys = format!(
        "flows = [\"in_port=vm1,actions=2\"]\nflows-file = \"{path}\"\n\
         meters = [\"meter=1,pktps,band=type=drop,rate=7\"]\n"
    );
    let flows = good(&(bridge(&fixture) + &keys)).config.bridges[0].flows.clone().expect("flows");
    assert_eq!(flows.lines, ["priority=5,tcp,actions=meter:1,output:vm2", "in_port=vm1,actions=2"]);
    assert_eq!(flows.meters, [(1, Meter { unit: MeterUnit::Packets, rate: 7, burst: None })]);
    assert_eq!(good(&bridge(&fixture)).config.bridges[0].flows, None);
    assert!(good(&(bridge(&fixture) + "flows = []\n")).config.bridges[0].flows.is_some());
}

#[test]
fn a_relative_path_begins_at_the_configuration() {
    let fixture = Fixture::new();
    fs::write(fixture.path("lan.flows"), "actions=normal\n").unwrap();
    let text = bridge(&fixture) + "flows-file = \"lan.flows\"\n";
    let loaded = Config::parse(&fixture.path("switch.toml"), &text, &machine()).unwrap();
    assert_eq!(loaded.config.bridges[0].flows.as_ref().map(|flows| flows.lines.len()), Some(1));
}

#[test]
fn mistakes_have_their_line_and_word() {
    let fixture = Fixture::new();
    let wrong = |keys: &str, parts: &[&str]| one_error(&(bridge(&fixture) + keys), 9, parts);
    wrong(
        "flows = [\"in_port=vm3,actions=1\"]\n",
        &["flows of bridge \"lan\": `in_port=vm3` names no port of the bridge"],
    );
    wrong("flows = [\"actions=learn()\"]\n", &["`learn()` makes flows from packets"]);
    wrong("flows = [\"actions=meter:1\"]\n", &["`meter:1` is no meter of the bridge"]);
    wrong(
        "flows = [\"ip,actions=1\", \"check_overlap,tcp,actions=1\", \"priority=1,actions=1\"]\n",
        &["`check_overlap`"],
    );
    wrong("flows = 3\n", &["it must be an array of strings"]);
    wrong("meters = [\"meter=1,kbps\"]\n", &["meters of bridge \"lan\": the meter has no rate"]);
    wrong("meters = [\"meter=1,kbps,band=type=drop,rate=1\", \"meter=1,kbps,band=type=drop,rate=1\"]\n", &["already"]);
    wrong(&format!("flows-file = \"{}\"\n", fixture.path("none")), &["flows-file \"/", "cannot read it: No such file"]);
    wrong(&format!("flows-file = \"{}\"\n", fixture.path("")), &["it is no file"]);
    let path = fixture.path("bad.flows");
    fs::write(&path, "actions=1\n\nactions=nosuch\nactions=2").unwrap();
    let key = format!("flows-file = \"{path}\"\n");
    wrong(&key, &["bad.flows\" of bridge \"lan\": line 3: `nosuch` is neither"]);
    fs::write(&path, "actions=1\ntcp,actions=meter:4\n").unwrap();
    wrong(&key, &["flows-file of bridge \"lan\": line 2: `meter:4` is no meter"]);
    fs::write(&path, b"actions=1\n\xff").unwrap();
    wrong(&key, &["not UTF-8"]);
}
