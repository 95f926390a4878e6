use std::fs;
use std::sync::Arc;

use straightline_switch::api::{
    self, ApiServer, DropCount, Drops, Fdb, Link, Port, Ports, Queue, Runtime, Source, Status,
};

use super::Fixture;

const COMMANDS: [&str; 5] = ["status", "ports", "fdb", "runtime", "drops"];

#[test]
fn without_a_switch_they_say_so() {
    let fixture = Fixture::new();
    for command in COMMANDS {
        for json in [&[][..], &["--json"]] {
            let args = [&[command, "--api", "none.sock"], json].concat();
            let done = fixture.execute(&args);
            assert_eq!(done.code, Some(1), "{done:?}");
            assert_eq!(done.out, "");
            assert!(done.err.starts_with("error: no switch listens on none.sock"), "{done:?}");
            assert!(done.err.contains("no \"api\" listens nowhere"), "{done:?}");
        }
    }
}

#[test]
fn the_default_socket_is_named() {
    let done = Fixture::new().execute(&["status"]);
    assert_eq!(done.code, Some(1), "a switch runs on this machine? {done:?}");
    assert!(done.err.contains("/run/straightline/api.sock"), "{done:?}");
}

#[test]
fn what_is_no_socket_is_an_error_of_its_own() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "").unwrap();
    let done = fixture.execute(&["status", "--api", "file"]);
    assert_eq!(done.code, Some(1));
    let long = "x".repeat(200);
    let done = fixture.execute(&["status", "--api", &long]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.starts_with("error: cannot ask the switch on xxx"), "{done:?}");
}

/// A switch with one port.
struct Fixed;

impl Source for Fixed {
    fn ports(&self) -> Ports {
        let port = Port {
            name: "vm1".to_owned(),
            kind: "vhost-user".to_owned(),
            link: Link::Down,
            reason: Some("no frontend is connected".to_owned()),
            features: Vec::new(),
            ring: None,
            ring_size: 0,
            regions: 0,
            queues: vec![Queue::default()],
            drops: [("too-big".to_owned(), 3)].into(),
            rx_mode: None,
            mtu: 1500,
            mac: None,
            socket: None,
            addresses: None,
        };
        Ports { ports: vec![port] }
    }

    fn runtime(&self) -> Runtime {
        Runtime { workers: Vec::new(), nodes: vec![api::Node::new("patch", 2, 64, 640)] }
    }

    fn drops(&self) -> Drops {
        let row = DropCount {
            port: "vm1".to_owned(),
            reason: "too-big".to_owned(),
            count: 3,
            meaning: "It is too long.".to_owned(),
            remedy: "Make it shorter.".to_owned(),
        };
        Drops { drops: vec![row] }
    }

    fn fdb(&self) -> Fdb {
        Fdb::default()
    }

    fn status(&self) -> Status {
        Status { version: "9".to_owned(), ports: 1, ..Status::default() }
    }
}

#[test]
fn with_a_switch_they_print_tables_or_json() {
    let fixture = Fixture::new();
    let server = ApiServer::bind(&fixture.path("api")).unwrap();
    let _handle = server.serve(Arc::new(Fixed)).unwrap();
    let text = |command| {
        let done = fixture.execute(&[command, "--api", "api"]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        done.out
    };
    assert!(text("ports").starts_with("vm1  vhost-user  down: no frontend is connected\n"));
    let drops = "port  reason   packets\nvm1   too-big        3\n\ntoo-big: It is too long.\n    Make it shorter.\n";
    assert_eq!(text("drops"), drops);
    assert_eq!(text("fdb"), "no addresses\n");
    assert!(text("status").contains("ports    0 of 1 up\n"));
    assert!(text("runtime").contains("\npatch      2       64         32.00           10.0\n"), "{}", text("runtime"));

    let key = |command| match command {
        "fdb" => "entries",
        "runtime" => "workers",
        "status" => "uptime_s",
        other => other,
    };
    for command in COMMANDS {
        let done = fixture.execute(&[command, "--json", "--api", "api"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.out.matches('\n').count(), 1);
        let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert!(json.get(key(command)).is_some(), "{json}");
    }
}
