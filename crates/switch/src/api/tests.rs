//! Tests server and client against each other, and against malicious clients.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;

/// A switch that always gives the same answers.
struct Fixed;

impl Source for Fixed {
    fn ports(&self) -> Ports {
        let port = Port {
            name: "vm1".to_owned(),
            kind: "vhost-user".to_owned(),
            link: Link::Up,
            reason: None,
            pid: Some(77),
            user: Some("qemu".to_owned()),
            link_since_s: 1.5,
            link_changes: 3,
            reasons: vec![DownReason { time: 2.5, reason: "it left".to_owned() }],
            features: vec!["CSUM".to_owned()],
            ring: Some(RingKind::Split),
            ring_size: 256,
            regions: 2,
            queues: vec![Queue::default()],
            drops: [("too-big".to_owned(), 3)].into(),
            rx_mode: None,
            mtu: 1500,
            mac: None,
            socket: None,
            source_check: "mac".to_owned(),
            addresses: None,
            device: None,
        };
        Ports { ports: vec![port] }
    }

    fn runtime(&self) -> Runtime {
        Runtime { workers: vec![Worker::default()], nodes: vec![Node::new("patch", 2, 64, 640)] }
    }

    fn drops(&self) -> Drops {
        Drops {
            drops: vec![DropCount {
                port: "vm1".to_owned(),
                reason: "too-big".to_owned(),
                count: 3,
                ..DropCount::default()
            }],
        }
    }

    /// More than a socket's buffer holds.
    fn fdb(&self) -> Fdb {
        let entry = |index: u32| FdbEntry {
            bridge: "lan".to_owned(),
            mac: format!("02:00:00:00:{:02x}:{:02x}", index >> 8, index & 0xff),
            port: "vm1".to_owned(),
            age_s: 1.5,
            is_static: false,
        };
        Fdb { entries: (0..20_000).map(entry).collect() }
    }

    fn status(&self) -> Status {
        Status { version: "1".to_owned(), ..Status::default() }
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    handle: Option<ApiHandle>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::bind(&folder.path().join("api")).unwrap();
        Self { handle: Some(server.serve(Arc::new(Fixed)).unwrap()), folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("api")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn every_answer_arrives_as_it_was_given() {
    let fixture = Fixture::new();
    let path = fixture.path();
    assert_eq!(ask::<Ports>(&path).unwrap(), Fixed.ports());
    assert_eq!(ask::<Runtime>(&path).unwrap(), Fixed.runtime());
    assert_eq!(ask::<Drops>(&path).unwrap(), Fixed.drops());
    assert_eq!(ask::<Fdb>(&path).unwrap(), Fixed.fdb());
    assert_eq!(ask::<Status>(&path).unwrap(), Fixed.status());
}

#[test]
fn the_json_is_the_contract() {
    let fixture = Fixture::new();
    let json =
        |command| -> serde_json::Value { serde_json::from_str(&request(&fixture.path(), command).unwrap()).unwrap() };
    let has = |value: &serde_json::Value, fields: &[&str]| {
        for field in fields {
            assert!(value.get(field).is_some(), "{field} in {value}");
        }
    };
    let ports = json(Command::Ports);
    let port = &ports["ports"][0];
    has(port, &["name", "kind", "link", "reason", "features", "ring", "ring_size", "regions", "queues", "drops"]);
    assert_eq!((&port["link"], &port["ring"]), (&"up".into(), &"split".into()));
    assert_eq!(port["drops"]["too-big"], 3);
    has(port, &["pid", "user", "link_since_s", "link_changes"]);
    has(&port["reasons"][0], &["time", "reason"]);
    has(&port["queues"][0], &["index", "kicks_sent", "calls_repeated", "kicks_suppressed", "rx_worker", "tx_worker"]);
    has(&port["queues"][0]["rx"], &["packets", "bytes"]);
    has(&port["queues"][0]["tx"], &["packets", "bytes"]);
    let runtime = json(Command::Runtime);
    has(&runtime["workers"][0], &["cpu", "busy_s", "empty_poll_s", "idle_s", "unexplained_s", "turns"]);
    has(&runtime["nodes"][0], &["name", "calls", "packets", "packets_per_call", "cycles_per_packet", "worker"]);
    assert_eq!(runtime["nodes"][0]["packets_per_call"], 32.0);
    assert_eq!(runtime["nodes"][0]["cycles_per_packet"], 10.0);
    has(&json(Command::Drops)["drops"][0], &["port", "reason", "count", "meaning", "remedy"]);
    has(&json(Command::Fdb)["entries"][0], &["bridge", "mac", "port", "age_s", "static"]);
    has(&json(Command::Status), &["version", "uptime_s", "simd", "workers", "ports_up", "ports"]);
}

#[test]
fn every_answer_says_when_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let _handle = ApiServer::bind(&path).unwrap().serve_control(Arc::new(Fixed), Arc::<Once>::default()).unwrap();
    let mut last = since_epoch(std::time::SystemTime::now());
    let link = "{\"cmd\":\"link\",\"port\":\"vm1\",\"up\":false}".to_owned();
    let others = Command::ALL.iter().filter(|command| !matches!(command, Command::Link | Command::Port));
    let requests = others.map(|command| format!("{{\"cmd\":\"{}\"}}", command.as_str())).chain([link]);
    for request in requests {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let time = json["ok"]["time"].as_f64().unwrap_or_else(|| panic!("{request}: {answer:.200}"));
        assert!(time >= last && time <= since_epoch(std::time::SystemTime::now()), "{request}: {time}");
        last = time;
    }
}

#[test]
fn bad_requests_get_an_error_line() {
    let fixture = Fixture::new();
    for (request, part) in [
        (&b"\n"[..], "not a request"),
        (b"{}\n", "missing field `cmd`"),
        (b"{\"cmd\":1}\n", "not a request"),
        (b"{\"cmd\":\"quit\"}\n", "commands are status, ports, fdb, runtime, drops, reload, link, port"),
        (b"\xff\xfe\n", "not a request"),
        (b"[[[[", "not a request"),
    ] {
        let answer = fixture.raw(request);
        assert!(answer.starts_with("{\"error\":\"") && answer.contains(part), "{answer}");
        assert_eq!(answer.matches('\n').count(), 1);
    }
    assert_eq!(fixture.raw(b""), "");
}

/// A switch whose configuration changed once and has had an error since.
#[derive(Default)]
struct Once(std::sync::atomic::AtomicBool);

impl Control for Once {
    fn reload(&self) -> Result<Changes, String> {
        if self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Err("switch.toml:3: no such port\nswitch.toml:4: nor this one".to_owned());
        }
        let change = Change {
            kind: ChangeKind::Port,
            name: "vm1".to_owned(),
            change: Changed::Remade,
            detail: "mtu 1500 is now 9000".to_owned(),
        };
        Ok(Changes { changes: vec![change] })
    }

    fn set_link(&self, port: &str, up: bool) -> Result<(), String> {
        if port == "vm1" && !up { Ok(()) } else { Err(format!("no such port {port:?}")) }
    }

    fn add_dynamic_port(&self, _wish: &PortRequest, _socket: OwnedFd) -> Result<DynamicPortGuard, String> {
        Err("not here".to_owned())
    }
}

#[test]
fn a_reload_tells_what_changed_or_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let handle = ApiServer::bind(&path).unwrap().serve_control(Arc::new(Fixed), Arc::<Once>::default()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&request(&path, Command::Reload).unwrap()).unwrap();
    let change = &json["changes"][0];
    assert_eq!(
        (&change["kind"], &change["name"], &change["change"]),
        (&"port".into(), &"vm1".into(), &"remade".into())
    );
    let error = ask::<Changes>(&path).unwrap_err();
    assert!(matches!(&error, RequestError::Refused { message, .. } if message.lines().count() == 2), "{error}");
    set_link(&path, "vm1", false).unwrap();
    assert!(set_link(&path, "vm2", false).unwrap_err().to_string().contains("no such port \"vm2\""));
    let port_request = PortRequest { name: "x".to_owned(), join: "lan".to_owned(), socket: "s".to_owned() };
    let (a, _b) = UnixStream::pair().unwrap();
    assert!(add_port(&path, &port_request, std::os::fd::AsFd::as_fd(&a)).unwrap_err().to_string().contains("not here"));
    drop(handle);

    let only_answers = Fixture::new();
    let error = ask::<Changes>(&only_answers.path()).unwrap_err().to_string();
    assert!(error.contains("nothing can be changed through its API"), "{error}");
}

#[test]
fn one_client_may_ask_often() {
    let fixture = Fixture::new();
    let answers = fixture.raw(b"{\"cmd\":\"status\"}\n{\"cmd\":\"drops\"}\n{\"cmd\":\"status\"}");
    let kinds: Vec<_> = answers.lines().map(|line| line.contains("\"version\"")).collect();
    assert_eq!(kinds, [true, false, true]);
}

#[test]
fn a_request_that_is_too_long_is_refused() {
    let fixture = Fixture::new();
    let mut stream = fixture.connect();
    stream.write_all(&[b' '; 4096]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("at most 4096 bytes"), "{answer}");

    let padded = format!("{{\"cmd\":\"status\"{}}}\n", " ".repeat(4096 - 17));
    assert_eq!(padded.len(), 4096);
    assert!(fixture.raw(padded.as_bytes()).starts_with("{\"ok\""));
}

#[test]
fn stalled_clients_hurt_nobody_and_are_closed() {
    let fixture = Fixture::new();
    // Fewer clients than places: the next one is served at once.
    let mut silent: Vec<_> = (0..6).map(|_| fixture.connect()).collect();
    let mut deaf: Vec<_> = (0..6).map(|_| fixture.connect()).collect();
    for stream in &mut deaf {
        stream.write_all(b"{\"cmd\":\"fdb\"}\n").unwrap();
    }
    ask::<Status>(&fixture.path()).unwrap();
    // More clients than places: the next one is served when those time out.
    silent.extend((0..20).map(|_| fixture.connect()));
    ask::<Status>(&fixture.path()).unwrap();
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn a_client_that_leaves_early_is_forgotten() {
    let fixture = Fixture::new();
    // A debug build takes a while for each of these answers, and the next client waits for all of
    // them.
    for _ in 0..10 {
        fixture.connect().write_all(b"{\"cmd\":\"fdb\"}\n").unwrap();
    }
    ask::<Status>(&fixture.path()).unwrap();
}

#[test]
fn the_socket_file_comes_and_goes() {
    let mut fixture = Fixture::new();
    let path = fixture.path();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(ApiServer::bind(&path), Err(ApiError::Taken(_))));
    let idle_client = fixture.connect();
    fixture.handle = None;
    drop(idle_client);
    assert!(!path.exists());
    assert!(matches!(request(&path, Command::Ports), Err(RequestError::NotListening(_))));

    // A socket that a dead process left.
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(request(&path, Command::Ports), Err(RequestError::NotListening(_))));
    let server = ApiServer::bind(&path).unwrap();

    // Another process has replaced it: the server must not remove it.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    drop(server);
    assert!(path.exists());
    assert!(matches!(ApiServer::bind(&path), Err(ApiError::NotASocket(_))));
    assert!(matches!(ApiServer::bind(Path::new("/no/such/folder/api")), Err(ApiError::Path { .. })));
}

#[test]
fn the_client_knows_what_is_no_switch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let message = request(&path, Command::Ports).unwrap_err().to_string();
    assert!(message.contains(path.to_str().unwrap()) && message.contains("no \"api\" has no socket"), "{message}");
    for (answer, part) in
        [("", "does not answer like a switch"), ("hello\n", "does not answer"), ("{\"error\":\"no\"}\n", "says: no")]
    {
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 100]).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let message = request(&path, Command::Ports).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        server.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
