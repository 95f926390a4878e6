use std::fs;
use std::sync::Arc;
use std::time::Instant;

use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{
    self, ApiServer, DropCount, Drops, ErrorCode, Event, EventKind, Events, Fdb, FdbEntry, Link, Neighbour,
    NeighbourState, Neighbours, OwnAddress, Port, Ports, Queue, Refusal, Row, Runtime, Source, Status, Stream, Table,
    TableRequest, TableSummary, Tables,
};
use straightline_testing::wait_until;

use super::run::{CONFIG, Running};
use super::{Fixture, has_root};

const COMMANDS: [&str; 8] = ["status", "ports", "tables", "fdb", "neighbours", "runtime", "drops", "events"];

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
            assert!(done.err.contains("no \"api\" has no socket"), "{done:?}");
        }
    }
}

#[test]
fn the_default_socket_is_named() {
    // A switch of this machine may listen there.
    let done = Fixture::new().execute(&["status", "--help"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("[default: /run/straightline/api.sock]"), "{done:?}");
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
    assert!(done.err.starts_with("error: the request to the switch at xxx"), "{done:?}");
}

/// A fake source of answers: a switch with one port.
struct Fixed;

impl Source for Fixed {
    fn ports(&self) -> Ports {
        let port = Port {
            name: "vm1".to_owned(),
            kind: "vhost-user".to_owned(),
            link: Link::Down,
            reason: Some("no frontend is connected".to_owned()),
            queues: vec![Queue::default()],
            drops: [("too-big".to_owned(), 3)].into(),
            mtu: 1500,
            ..Port::default()
        };
        Ports { ports: vec![port] }
    }

    fn runtime(&self) -> Runtime {
        Runtime { workers: Vec::new(), nodes: vec![api::Node::new("patch", 2, 64, 640)], cleared: None }
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

    fn tables(&self) -> Tables {
        let table = |name: &str, rows, counters: &[(&str, u64)]| TableSummary {
            table: name.to_owned(),
            rows,
            counters: counters.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
        };
        Tables { tables: vec![table("bridge:lan", 1234, &[("moved", 5), ("refused", 0)]), table("node:m", 1, &[])] }
    }

    fn table(&self, request: &TableRequest) -> Result<Table, Refusal> {
        if request.table != "bridge:lan" {
            let error = format!("no such table {:?}; tables are bridge:lan, node:m", request.table);
            return Err(Refusal::new(ErrorCode::UnknownTable, error).about(&request.table));
        }
        let station = |last: u32| {
            Row::Station(FdbEntry {
                bridge: "lan".to_owned(),
                vlan: 1,
                mac: format!("02:00:00:00:00:0{last}"),
                port: "vm1".to_owned(),
                age_s: 3.4,
                is_static: last == 2,
                is_owned: false,
            })
        };
        let first = if request.after.is_some() { 3 } else { 1 };
        let rows = (first..).take(request.limit.min(2) as usize).map(station).collect();
        let next = request.after.is_none().then(|| "0001 02:00:00:00:00:02".to_owned());
        Ok(Table { table: request.table.clone(), rows, total: 1234, next })
    }

    fn neighbours(&self) -> Neighbours {
        let next_hop = |ip: &str, mac: Option<&str>, state, age_s| Neighbour {
            underlay: "wan".to_owned(),
            ip: ip.to_owned(),
            mac: mac.map(str::to_owned),
            state,
            age_s,
        };
        let known = next_hop("192.0.2.2", Some("02:00:00:00:00:02"), NeighbourState::Reachable, Some(3));
        let own = OwnAddress {
            underlay: "wan".to_owned(),
            ip: "192.0.2.1".to_owned(),
            conflict: Some("02:00:00:00:00:07".to_owned()),
            age_s: Some(2),
            claims: 9,
        };
        Neighbours {
            neighbours: vec![known, next_hop("2001:db8::2", None, NeighbourState::Asked, None)],
            addresses: vec![own],
        }
    }

    fn status(&self) -> Status {
        Status { version: "9".to_owned(), ports: 1, ..Status::default() }
    }

    fn events(&self, since: u64) -> Events {
        let event = |seq| Event {
            seq,
            time: 1.25,
            message: format!("port \"vm{seq}\": link up"),
            skipped: 0,
            kind: EventKind::LinkUp { port: format!("vm{seq}") },
        };
        Events { last: 2, events: (since + 1..=2).map(event).collect() }
    }

    fn follow_events(&self, _since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Busy, "this switch has no streams"))
    }
}

#[test]
fn a_table_is_shown_in_pages() {
    let fixture = Fixture::new();
    let server = ApiServer::bind(&fixture.path("api")).unwrap();
    let _handle = server.serve(Arc::new(Fixed)).unwrap();
    let text = |args: &[&str]| {
        let done = fixture.execute(&[&["table", "bridge:lan", "--api", "api"], args].concat());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        done.out
    };
    let first = "vlan  address            port     age\n   \
                 1  02:00:00:00:00:01  vm1      3 s\n   \
                 1  02:00:00:00:00:02  vm1   static\n\n\
                 2 of 1,234 rows; for those behind: --after \"0001 02:00:00:00:00:02\"\n";
    assert_eq!(text(&[]), first);
    let last = "vlan  address            port  age\n   1  02:00:00:00:00:03  vm1   3 s\n";
    assert_eq!(text(&["--after", "0001 02:00:00:00:00:02", "--limit", "1"]), last);
    let json = text(&["--json", "--limit", "1"]);
    assert!(json.contains(r#""rows":[{"kind":"station","bridge":"lan","vlan":1,"mac":"02:00:00:00:00:01""#), "{json}");
    let unknown = fixture.execute(&["table", "bridge:lam", "--api", "api"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("no such table \"bridge:lam\"; tables are bridge:lan, node:m"), "{unknown:?}");
    let many = fixture.execute(&["table", "bridge:lan", "--limit", "10001"]);
    assert!(many.code == Some(2) && many.err.contains("1..=10000"), "{many:?}");
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
    let events = "1970-01-01T00:00:01.250Z INFO 1 port \"vm1\": link up\n\
                  1970-01-01T00:00:01.250Z INFO 2 port \"vm2\": link up\n";
    assert_eq!(text("events"), events);
    assert_eq!(text("tables"), "table        rows  counters\nbridge:lan  1,234  moved 5\nnode:m          1\n");
    let refused = fixture.execute(&["events", "--follow", "--api", "api"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("says: this switch has no streams"), "{refused:?}");
    let neighbours = "underlay  address      mac                state      age\n\
                      wan       192.0.2.2    02:00:00:00:00:02  reachable  3 s\n\
                      wan       2001:db8::2                     asked\n\
                      \n\
                      underlay  own address  another station    age\n\
                      wan       192.0.2.1    02:00:00:00:00:07  2 s\n";
    assert_eq!(text("neighbours"), neighbours);
    assert!(text("status").contains("ports    0 of 1 up\n"));
    assert!(
        text("runtime").contains("\npatch      2       64          -         32.00     0           10.0\n"),
        "{}",
        text("runtime")
    );

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

#[test]
fn named_ports_and_short_lines() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    let ports = |args: &str| {
        let args: Vec<_> = ["ports", "--api", "api"].into_iter().chain(args.split_whitespace()).collect();
        fixture.execute(&args)
    };
    let done = ports("vm2");
    assert!(done.out.starts_with("vm2  vhost-user  down: ") && !done.out.contains("vm1  "), "{done:?}");
    let done = ports("--short");
    assert_eq!(done.out.lines().count(), 3, "{done:?}");
    assert!(done.out.contains("\nvm1   vhost-user  down           0           0      0  no-frontend\n"), "{done:?}");
    assert_eq!(ports("vm1 --short").out.lines().count(), 2);
    let json: serde_json::Value = serde_json::from_str(&ports("vm2 --json").out).unwrap();
    let names: Vec<_> = json["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert!(names == ["vm2"] && json["time"].is_number(), "{json}");
    for form in ["", "--short", "--json"] {
        let done = ports(&format!("vm1 vm22 {form}"));
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
        assert_eq!(done.err, "error: no such port \"vm22\"; ports are vm2, vm1\n", "{done:?}");
    }
    assert_eq!(ports("--short --json").code, Some(2));
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

/// Returns the answer to `ports` once its first port meets the condition.
fn port_once(fixture: &Fixture, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    wait_until(what, || {
        let json = fixture.ask("ports");
        if is_so(&json["ports"][0]) { Ok(json) } else { Err(json) }
    })
}

fn guest(fixture: &Fixture) -> Guest {
    Guest::connect(&fixture.path("vm1"), &GuestOptions::default()).unwrap()
}

#[test]
fn ports_say_who_is_connected_and_why_the_link_was_down() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    // The switch is in the sandbox, where no user name can be looked up.
    let running = Running::start(&fixture);
    let before = port_once(&fixture, "the link is down", |port| port["link"] == "down");
    let port = &before["ports"][0];
    assert!(port["pid"].is_null() && port["user"].is_null(), "{port}");
    assert_eq!((&port["link_changes"], &port["reasons"]), (&0.into(), &serde_json::json!([])));

    // The time is the subject: the link cannot be in a state for longer than from here on.
    let begun = Instant::now();
    let connected = guest(&fixture);
    let json = port_once(&fixture, "the link is up", |port| port["link"] == "up");
    let port = &json["ports"][0];
    assert_eq!(port["pid"], std::process::id());
    let id = std::process::Command::new("id").args(["--user", "--name"]).output().unwrap();
    assert_eq!(port["user"], String::from_utf8(id.stdout).unwrap().trim());
    assert_eq!((&port["link_changes"], &port["reasons"]), (&1.into(), &serde_json::json!([])));
    let text = fixture.execute(&["ports", "--api", "api"]).out;
    assert!(text.contains(&format!("\n    frontend  process {} of user ", std::process::id())), "{text}");

    drop(connected);
    let is_left = |port: &serde_json::Value| port["pid"].is_null() && port["link"] == "down";
    let json = port_once(&fixture, "the frontend has left", is_left);
    let port = &json["ports"][0];
    assert!(port["user"].is_null() && port["link_changes"] == 2, "{port}");
    let reasons = port["reasons"].as_array().unwrap();
    assert!(reasons.len() == 1 && reasons[0]["reason"] == port["reason"], "{port}");
    let times = [&before["time"], &reasons[0]["time"], &json["time"]].map(|time| time.as_f64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    // The time is the subject: the link went down since then. It is read last, so a pause only raises the
    // bound.
    assert!(port["link_since_s"].as_f64().unwrap() <= begun.elapsed().as_secs_f64(), "{port}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn a_frontend_outside_our_pid_namespace_has_no_number() {
    let test = "a_frontend_outside_our_pid_namespace_has_no_number";
    if !has_root(test, "only root can create a PID namespace on every machine") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let mut command = std::process::Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_straightline"), "run", "switch.toml"]);
    command.current_dir(fixture.path(".")).stderr(std::process::Stdio::null());
    let _running = Running::start_as(command);
    let _guest = guest(&fixture);
    let json = port_once(&fixture, "the link is up", |port| port["link"] == "up");
    let port = &json["ports"][0];
    assert!(port["pid"].is_null() && port["user"] == "root", "{port}");
}
