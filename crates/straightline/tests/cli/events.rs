//! Events of a running switch, and its socket that only answers questions.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use straightline_api::{self as api, ErrorCode, RequestError};
use straightline_guest::{Guest, GuestOptions};

use super::Fixture;
use super::run::Running;

const CONFIG: &str = "\
[switch]
api = \"@/api\"
api-read-only = \"@/ro\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[bridge.lan]
ports = [\"vm1\"]
";

/// `straightline events --follow --json`. It is killed at the end.
struct Follower {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn new(fixture: &Fixture, args: &[&str]) -> Self {
        let mut command = fixture.command(&[&["events", "--follow", "--json"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Follower { child, lines }
    }

    /// Returns the next event of this kind.
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let line = self.lines.next().expect("the follower has ended").unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["kind"] == kind {
                return event;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn started() -> (Fixture, Running) {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    (fixture, running)
}

#[test]
fn a_follower_sees_links_reloads_and_ports_come_and_go() {
    let (fixture, running) = started();
    let mut follower = Follower::new(&fixture, &["--api", "ro"]);
    let guest = Guest::connect(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let up = follower.next("link-up");
    assert_eq!((&up["port"], &up["message"]), (&"vm1".into(), &"port \"vm1\": link up".into()));
    assert_eq!(fixture.execute(&["link", "vm1", "down", "--api", "api"]).code, Some(0));
    let down = follower.next("link-down");
    assert_eq!(down["reason"], "set down by the administrator");
    assert!(down["seq"].as_u64() > up["seq"].as_u64() && down["time"].as_f64() >= up["time"].as_f64());
    assert_eq!(fixture.execute(&["link", "vm1", "up", "--api", "api"]).code, Some(0));
    follower.next("link-up");
    drop(guest);
    assert!(follower.next("link-down")["reason"].as_str().unwrap().contains("closed its connection"));

    fixture.write(&CONFIG.replace("vm1", "vm2"));
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(0));
    let reload = follower.next("reload");
    assert_eq!(reload["changes"][0]["name"], "vm2", "{reload}");
    fixture.write(&format!("{CONFIG}nonsense = 1\n"));
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(1));
    assert!(follower.next("reload-failed")["error"].as_str().unwrap().contains("nonsense"));

    let port = ["port", "--api", "api", "--socket-path", "vm7", "--join", "lan", "--name", "vm7"];
    let mut port = fixture.command(&port).spawn().unwrap();
    assert_eq!(follower.next("port-added")["port"], "vm7");
    port.kill().unwrap();
    port.wait().unwrap();
    let last = follower.next("port-removed");
    assert_eq!(last["port"], "vm7");

    // Without --follow, the same events, as text and as JSON.
    let text = fixture.execute(&["events", "--api", "ro"]);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""), "{text:?}");
    let first = format!("Z INFO {} port \"vm1\": link up", up["seq"]);
    assert!(text.out.lines().any(|line| line.ends_with(&first)), "{}", text.out);
    assert!(text.out.contains(" WARN ") && text.out.contains("port \"vm2\" added\n"), "{}", text.out);
    let newest = last["seq"].as_u64().unwrap();
    let json = fixture.execute(&["events", "--json", "--api", "api", "--since", &(newest - 1).to_string()]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    // Something else, such as a worker that was away, may have become an event since then.
    assert!(json["events"][0] == last && json["last"].as_u64().unwrap() >= newest, "{json}");

    // The end of the switch is the end of the stream, and an error.
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    assert!(follower.lines.by_ref().all(|line| line.is_ok()));
    assert_eq!(follower.child.wait().unwrap().code(), Some(1));
}

#[test]
fn the_read_only_socket_changes_nothing() {
    let (fixture, _running) = started();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("api"), mode("ro")), (0o600, 0o666));
    let ro = fixture.path("ro");
    for command in ["status", "ports", "fdb", "neighbours", "runtime", "drops", "events"] {
        assert_eq!(fixture.execute(&[command, "--api", "ro"]).code, Some(0), "{command}");
    }
    let is_read_only = |error: RequestError| {
        assert!(matches!(error, RequestError::Refused { code: ErrorCode::ReadOnly, .. }), "{error}");
    };
    is_read_only(api::ask::<api::Changes>(&ro).unwrap_err());
    is_read_only(api::set_link(&ro, "vm1", false).unwrap_err());
    let (socket, _other) = UnixStream::pair().unwrap();
    let port = api::PortRequest {
        name: "x".to_owned(),
        join: "lan".to_owned(),
        socket: "s".to_owned(),
        is_own: false,
        groups: Vec::new(),
    };
    is_read_only(api::add_port(&ro, &port, std::os::fd::AsFd::as_fd(&socket)).unwrap_err());
    let error = api::set_link(&fixture.path("api"), "vm9", false).unwrap_err();
    assert!(matches!(error, RequestError::Refused { code: ErrorCode::UnknownPort, .. }), "{error}");
}

#[test]
fn a_group_gets_the_sockets() {
    if !super::has_root("a_group_gets_the_sockets", "it needs root to give files away") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("api-read-only", "api-group = \"1\"\napi-read-only"));
    // In the sandbox, which keeps only what this takes.
    let _running = Running::start(&fixture);
    let owner_of = |name: &str| {
        let metadata = fs::metadata(fixture.path(name)).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    assert_eq!((owner_of("api"), owner_of("ro")), ((0, 1, 0o660), (0, 1, 0o666)));
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(0));
    fixture.write(&CONFIG.replace("api-read-only", "api-perms = \"0600\"\napi-read-only"));
    let done = fixture.execute(&["reload", "--api", "api"]);
    assert!(done.err.contains("api-group, api-perms cannot change while the switch runs"), "{done:?}");
    let status = api::ask::<api::Status>(&fixture.path("ro")).unwrap();
    assert_eq!((status.refused_calls, status.api_version), (0, api::API_VERSION));
}

#[test]
fn another_group_gets_the_socket_that_only_answers() {
    if !super::has_root("another_group_gets_the_socket_that_only_answers", "it needs root to give files away") {
        return;
    }
    let fixture = Fixture::new();
    for (keys, expected) in [("", (0, 2, 0o660)), ("api-read-only-perms = \"0640\"\n", (0, 2, 0o640))] {
        let keys = format!("api-group = \"1\"\napi-read-only-group = \"2\"\n{keys}api-read-only =");
        fixture.write(&CONFIG.replace("api-read-only =", &keys));
        let running = Running::start(&fixture);
        let owner_of = |name: &str| {
            let metadata = fs::metadata(fixture.path(name)).unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
        };
        assert_eq!((owner_of("api"), owner_of("ro")), ((0, 1, 0o660), expected));
        fixture.write(&CONFIG.replace("api-read-only =", "api-group = \"1\"\napi-read-only ="));
        let done = fixture.execute(&["reload", "--api", "api"]);
        assert!(done.err.contains("api-read-only-group") && done.err.contains("cannot change while"), "{done:?}");
        let status = api::ask::<api::Status>(&fixture.path("ro")).unwrap();
        assert_eq!(status.refused_calls, 0);
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    }
}
