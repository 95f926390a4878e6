//! `straightline runtime` of a switch that forwards packets.

use serde_json::Value;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::wait_until;
use straightline_virtio::net_header::NetHeader;

use super::Fixture;
use super::run::Running;

const CONFIG: &str = "\
[switch]
api = \"@/api\"
api-read-only = \"@/ro\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[port.vm2]
kind = \"vhost-user\"
socket = \"@/vm2\"
[patch.p]
ports = [\"vm1\", \"vm2\"]
";

/// Sends packets from the first guest to the second.
fn exchange([from, to]: &mut [Guest; 2], count: usize) {
    for _ in 0..count {
        assert!(from.send(&NetHeader::default(), &[0x02; 60]));
    }
    from.flush();
    let mut arrived = 0;
    wait_until("all packets have arrived", || {
        arrived += to.receive(usize::MAX, |_, _| ());
        if arrived < count { Err(arrived) } else { Ok(()) }
    });
}

#[test]
fn it_counts_since_the_start_since_it_was_cleared_and_in_an_interval() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let mut guests = ["vm1", "vm2"].map(|port| Guest::connect(&fixture.path(port), &GuestOptions::default()).unwrap());
    let json = |arguments: &[&str]| -> Value {
        let done = fixture.execute(&[&["runtime", "--api", "api", "--json"], arguments].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.out).unwrap()
    };
    let node = |answer: &Value, name: &str| {
        let nodes = answer["nodes"].as_array().unwrap().clone();
        nodes.into_iter().find(|node| node["name"] == name).unwrap_or_else(|| panic!("{name} in {answer}"))
    };
    // A worker counts packets when it has delivered them, and its sleep when it wakes.
    let counted = |packets: u64| {
        wait_until("the worker has counted all packets", || {
            let all = json(&[]);
            let is_counted = ["vm1-rx", "vm2-tx"].iter().all(|name| node(&all, name)["packets"] == packets);
            if is_counted { Ok(all) } else { Err(all) }
        })
    };
    exchange(&mut guests, 20);
    let all = counted(20);
    let most = node(&all, "vm1-rx")["most_packets"].as_u64().unwrap();
    assert!((1..=20).contains(&most), "{all}");
    assert!(all["cleared"].is_null(), "{all}");
    wait_until("the worker has slept", || json(&[])["workers"][0]["sleeps"].as_u64().unwrap() > 0);

    let refused = fixture.execute(&["runtime", "--clear", "--api", "ro"]);
    assert!(refused.code == Some(1) && refused.err.contains("only answers questions"), "{refused:?}");
    let done = fixture.execute(&["runtime", "--clear", "--api", "api"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "", ""));
    exchange(&mut guests, 3);
    let all = counted(23);
    assert!(node(&all, "vm1-rx")["most_packets"].as_u64().unwrap() <= 3, "{all}");
    let text = fixture.execute(&["runtime", "--api", "api"]).out;
    assert!(text.starts_with("since `straightline runtime --clear`, "), "{text}");
    let line = text.lines().find(|line| line.starts_with("vm1-rx")).unwrap();
    assert_eq!(line.split_whitespace().nth(2), Some("3"), "{text}");
    let all = json(&[]);
    assert_eq!(node(&all, "vm1-rx")["packets"], 23, "metrics do not go back: {all}");

    let quiet = json(&["--interval", "0.1"]);
    assert_eq!(node(&quiet, "vm1-rx")["packets"], 0, "{quiet}");
    let text = fixture.execute(&["runtime", "--interval", "0.1", "--api", "api"]).out;
    assert!(text.starts_with("packets a second: 0 in, 0 out, 0 dropped\n\nworker"), "{text}");
}
