//! Tests server and client against each other, and against malicious clients.

use std::fs;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use straightline_testing::wait_until;

use super::connection::{Connection, PATIENCE};
use super::places::{MAX_STREAMS, Places};
use super::*;

/// A switch that always gives the same answers.
struct Fixed;

/// A stream of numbers, one a line.
struct Numbers {
    /// Readable while there are more numbers.
    more: OwnedFd,
    next: u64,
    kind: u64,
}

impl Numbers {
    /// A stream of this kind has no end.
    const ENDLESS: u64 = 0;
    /// A stream of this kind never has anything.
    const SILENT: u64 = 1;

    /// Makes a stream of this kind, or of that many numbers.
    fn boxed(kind: u64) -> Box<dyn Stream> {
        use rustix::event::{EventfdFlags, eventfd};
        Box::new(Numbers {
            more: eventfd(u32::from(kind != Self::SILENT), EventfdFlags::NONBLOCK).unwrap(),
            next: 0,
            kind,
        })
    }
}

/// The number of bytes that endless streams have handed out.
static HANDED_OUT: AtomicU64 = AtomicU64::new(0);

impl Stream for Numbers {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::Descriptor(self.more.as_fd())
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        let end = if self.kind == Self::SILENT { 0 } else { self.kind };
        while (self.kind == Self::ENDLESS || self.next < end) && output.len() < MAX_FILL {
            writeln!(output, "{}", self.next).unwrap();
            self.next += 1;
        }
        if self.kind == Self::ENDLESS {
            HANDED_OUT.fetch_add(output.len() as u64, Ordering::Relaxed);
        }
        self.kind == Self::ENDLESS || self.kind == Self::SILENT || self.next < end
    }
}

/// A request for a stream of this kind.
fn numbers(kind: u64) -> Request {
    Request::Events(EventsRequest { since: kind, follow: true })
}

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
            joined: None,
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
            tunnel: None,
            ..Port::default()
        };
        Ports { ports: vec![port] }
    }

    fn runtime(&self) -> Runtime {
        Runtime { workers: vec![Worker::default()], nodes: vec![Node::new("patch", 2, 64, 640)], cleared: None }
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
            vlan: 1,
            bridge: "lan".to_owned(),
            mac: format!("02:00:00:00:{:02x}:{:02x}", index >> 8, index & 0xff),
            port: "vm1".to_owned(),
            age_s: 1.5,
            is_static: false,
            is_owned: false,
        };
        Fdb { entries: (0..20_000).map(entry).collect(), ..Fdb::default() }
    }

    fn table(&self, request: &TableRequest) -> Result<Table, Refusal> {
        Ok(Table { table: request.table.clone(), ..Table::default() })
    }

    fn neighbours(&self) -> Neighbours {
        Neighbours::default()
    }

    fn status(&self) -> Status {
        Status { version: "1".to_owned(), ..Status::default() }
    }

    fn events(&self, since: u64) -> Events {
        Events { last: since + 1, events: Vec::new() }
    }

    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        Ok((self.events(since), Numbers::boxed(since)))
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    handle: Option<ApiHandle>,
    clock: Clock,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::moved();
        let server = ApiServer::bind(&folder.path().join("api")).unwrap().with_clock(clock.clone());
        Self { handle: Some(server.serve(Arc::new(Fixed)).unwrap()), folder, clock }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("api")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(straightline_testing::PATIENCE)).unwrap();
        stream
    }

    /// Asks for the status, and waits longer than a client does: others may need the processor.
    fn answers(&self) {
        let answer = self.raw(b"{\"cmd\":\"status\"}\n");
        assert!(answer.contains("\"version\""), "{answer}");
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
    assert_eq!(ask::<Events>(&path).unwrap(), Fixed.events(0));
}

#[test]
fn the_json_is_the_contract() {
    let fixture = Fixture::new();
    let json =
        |command| -> serde_json::Value { serde_json::from_str(&request(&fixture.path(), command).unwrap()).unwrap() };
    let has_fields = |value: &serde_json::Value, fields: &[&str]| {
        for field in fields {
            assert!(value.get(field).is_some(), "{field} in {value}");
        }
    };
    let ports = json(Command::Ports);
    let port = &ports["ports"][0];
    has_fields(
        port,
        &["name", "kind", "link", "reason", "features", "ring", "ring_size", "regions", "queues", "drops"],
    );
    assert_eq!((&port["link"], &port["ring"]), (&"up".into(), &"split".into()));
    assert_eq!(port["drops"]["too-big"], 3);
    has_fields(port, &["pid", "user", "link_since_s", "link_changes"]);
    has_fields(&port["reasons"][0], &["time", "reason"]);
    has_fields(
        &port["queues"][0],
        &["index", "calls_sent", "calls_repeated", "calls_suppressed", "kicks_sent", "rx_worker", "tx_worker"],
    );
    has_fields(&port["queues"][0]["rx"], &["packets", "bytes"]);
    has_fields(&port["queues"][0]["tx"], &["packets", "bytes"]);
    let runtime = json(Command::Runtime);
    has_fields(&runtime["workers"][0], &["cpu", "busy_s", "empty_poll_s", "idle_s", "unexplained_s", "turns"]);
    has_fields(&runtime["nodes"][0], &["name", "calls", "packets", "packets_per_call", "cycles_per_packet", "worker"]);
    assert_eq!(runtime["nodes"][0]["packets_per_call"], 32.0);
    assert_eq!(runtime["nodes"][0]["cycles_per_packet"], 10.0);
    has_fields(&json(Command::Drops)["drops"][0], &["port", "reason", "count", "meaning", "remedy"]);
    has_fields(&json(Command::Fdb)["entries"][0], &["bridge", "mac", "port", "age_s", "static"]);
    has_fields(&json(Command::Status), &["version", "uptime_s", "simd", "workers", "ports_up", "ports"]);
}

#[test]
fn every_answer_says_when_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let clock = Clock::moved();
    let server = ApiServer::bind(&path).unwrap().with_clock(clock.clone());
    let _handle = server.serve_control(Arc::new(Fixed), Arc::<Once>::default()).unwrap();
    let link = "{\"cmd\":\"link\",\"port\":\"vm1\",\"up\":false}".to_owned();
    // Those that need no arguments.
    let others = Command::ALL.map(|command| format!("{{\"cmd\":\"{}\"}}", command.as_str()));
    // The control of these tests has no networks.
    let is_served = |line: &String| Request::parse(line.as_bytes()).is_ok() && !line.contains("subscribe");
    let others = others.into_iter().filter(is_served);
    let requests = others.chain([link]);
    for request in requests {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let time = json["ok"]["time"].as_f64().unwrap_or_else(|| panic!("{request}: {answer:.200}"));
        assert!((time - since_epoch(clock.time_of_day())).abs() < 1e-6, "{request}: {time}");
        clock.advance(Duration::from_millis(10));
    }
}

#[test]
fn bad_requests_get_an_error_line() {
    let fixture = Fixture::new();
    let commands = format!("commands are {}", Command::ALL.map(Command::as_str).join(", "));
    for (request, part) in [
        (&b"\n"[..], "not a request"),
        (b"{}\n", "missing field `cmd`"),
        (b"{\"cmd\":1}\n", "not a request"),
        (b"{\"cmd\":\"quit\"}\n", &commands),
        (b"{\"cmd\":\"link\",\"port\":\"a\"}\n", "link: missing field `up`; it needs"),
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
    fn clear_runtime(&self) {}

    fn reload(&self) -> Result<Changes, Refusal> {
        if self.0.swap(true, Ordering::Relaxed) {
            let error = "switch.toml:3: no such port\nswitch.toml:4: nor this one";
            return Err(Refusal::new(ErrorCode::Refused, error));
        }
        let change = Change {
            kind: ChangeKind::Port,
            name: "vm1".to_owned(),
            change: Changed::Remade,
            detail: "mtu 1500 is now 9000".to_owned(),
        };
        Ok(Changes { changes: vec![change], ..Changes::default() })
    }

    fn preview(&self) -> Result<Changes, Refusal> {
        Ok(Changes { dry_run: true, ..self.reload()? })
    }

    fn set_link(&self, port: &str, up: bool) -> Result<(), Refusal> {
        let unknown = || Refusal::new(ErrorCode::UnknownPort, format!("no such port {port:?}")).about(port);
        if port == "vm1" && !up { Ok(()) } else { Err(unknown()) }
    }

    fn trace(&self, _request: &TraceRequest) -> Result<(Trace, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }

    fn ping(&self, _request: &PingRequest) -> Result<(Ping, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }

    fn capture(&self, _wish: &CaptureRequest) -> Result<(Capture, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
    }

    fn add_dynamic_port(&self, _wish: &PortRequest, _socket: OwnedFd) -> Result<DynamicPortGuard, Refusal> {
        Err(Refusal::new(ErrorCode::Refused, "not here"))
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
    let error = set_link(&path, "vm2", false).unwrap_err();
    assert!(error.to_string().contains("no such port \"vm2\""));
    assert!(
        matches!(&error, RequestError::Refused { code: ErrorCode::UnknownPort, culprit: Some(port), .. } if port == "vm2"),
        "{error:?}"
    );
    let port_request = PortRequest {
        name: "x".to_owned(),
        join: "lan".to_owned(),
        socket: "s".to_owned(),
        is_own: false,
        groups: Vec::new(),
    };
    let (a, _b) = UnixStream::pair().unwrap();
    assert!(add_port(&path, &port_request, a.as_fd()).unwrap_err().to_string().contains("not here"));
    drop(handle);

    let only_answers = Fixture::new();
    let error = ask::<Changes>(&only_answers.path()).unwrap_err();
    assert!(matches!(error, RequestError::Refused { code: ErrorCode::ReadOnly, .. }), "{error}");
    assert!(error.to_string().contains("only answers questions"), "{error}");
}

#[test]
fn errors_have_a_code() {
    let fixture = Fixture::new();
    for (request, expected) in [
        (&b"[]\n"[..], "{\"code\":\"bad-request\",\"error\":..}"),
        (b"{\"cmd\":\"quit\"}\n", "{\"code\":\"unknown-command\",\"culprit\":\"quit\",\"error\":..}"),
        (b"{\"cmd\":\"reload\"}\n", "{\"code\":\"read-only\",\"error\":..}"),
        (b"{\"cmd\":\"events\",\"since\":-1}\n", "{\"code\":\"bad-request\",\"culprit\":\"events\",\"error\":..}"),
    ] {
        let mut answer: serde_json::Value = serde_json::from_str(&fixture.raw(request)).unwrap();
        assert!(answer["error"].is_string(), "{answer}");
        answer["error"] = 0.into();
        let mut fields = answer.to_string();
        fields = fields.replace("\"error\":0", "\"error\":..");
        assert_eq!(fields, expected);
    }
}

#[test]
fn a_socket_takes_the_commands_that_its_right_includes() {
    let fixture = Fixture::new();
    for command in Command::ALL {
        let arguments = match command {
            Command::Table => ",\"table\":\"bridge:lan\"",
            Command::Capture => ",\"ports\":[],\"snaplen\":64,\"in\":true",
            Command::Trace => ",\"ports\":[],\"count\":1",
            Command::Ping => ",\"underlay\":\"wan\",\"address\":\"192.0.2.2\"",
            Command::Rate => ",\"port\":\"vm1\",\"direction\":\"in\",\"rate\":[\"1 Gbit/s\"]",
            Command::Link => ",\"port\":\"vm1\",\"up\":true",
            Command::Port => ",\"name\":\"x\",\"join\":\"lan\",\"socket\":\"s\"",
            Command::Flows | Command::Meters => ",\"bridge\":\"lan\"",
            Command::FlowLines => ",\"text\":\"\"",
            Command::ChangeFlows => ",\"bridge\":\"lan\",\"command\":\"add\"",
            Command::ChangeMeter => ",\"bridge\":\"lan\",\"command\":\"add\",\"meter\":\"\"",
            Command::TraceFlow => ",\"bridge\":\"lan\",\"packet\":\"\"",
            Command::SetGroups => ",\"port\":\"vm1\"",
            Command::SetGroup => ",\"name\":\"web\"",
            Command::Remotes => ",\"tunnel\":\"vx0\"",
            Command::ChangeRemotes => ",\"tunnel\":\"vx0\",\"owner\":\"me\",\"command\":\"add\"",
            Command::Stations => ",\"bridge\":\"lan\"",
            Command::ChangeStations => ",\"bridge\":\"lan\",\"owner\":\"me\",\"command\":\"add\"",
            Command::Explain => ",\"port\":\"vm1\",\"packet\":\"\"",
            _ => "",
        };
        let answer = fixture.raw(format!("{{\"cmd\":\"{}\"{arguments}}}\n", command.as_str()).as_bytes());
        let is_refused = answer.contains("\"code\":\"read-only\"");
        assert_eq!(is_refused, command.right() > Right::Read, "{command:?} {answer:.200}");
        // The source of these tests has no flow tables, groups or networks.
        let lacks = answer.contains("\"error\":\"this program has no ");
        let is_taken = answer.starts_with("{\"ok\"") || lacks;
        assert!(is_refused || is_taken, "{command:?} {answer:.200}");
    }
}

#[test]
fn a_stream_follows_its_answer_until_it_ends() {
    let fixture = Fixture::new();
    // Several times what fits the socket.
    let reader = stream(&fixture.path(), &numbers(300_000)).unwrap();
    assert!(reader.answer().contains("\"last\":300001"), "{}", reader.answer());
    let mut lines = 0;
    for (line, expected) in reader.lines().zip(0..) {
        assert_eq!(line.unwrap(), expected.to_string());
        lines += 1;
    }
    assert_eq!(lines, 300_000);
}

#[test]
fn a_silent_stream_stays_and_ends_when_its_client_wants_it() {
    let fixture = Fixture::new();
    let mut silent = stream(&fixture.path(), &numbers(Numbers::SILENT)).unwrap();
    // Longer than a client without a stream may be silent.
    fixture.clock.advance(100 * PATIENCE);
    silent.ender().unwrap().end().unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);

    let fixture = Fixture::new();
    // A client that ends its stream gets the rest, even if it ends the stream at once.
    let line = serde_json::to_string(&numbers(1000)).unwrap();
    assert_eq!(fixture.raw(line.as_bytes()).lines().count(), 1001);
    // More requests on the connection of a stream are not answered.
    let answers = fixture.raw(format!("{line}\n{{\"cmd\":\"status\"}}\n").as_bytes());
    assert_eq!(answers.lines().last(), Some("999"));
}

#[test]
fn streams_that_nobody_reads_cost_one_bounded_buffer_each() {
    let fixture = Fixture::new();
    let path = fixture.path();
    let mut deaf: Vec<_> = (0..MAX_STREAMS).map(|_| stream(&path, &numbers(Numbers::ENDLESS)).unwrap()).collect();
    let error = stream(&path, &numbers(Numbers::ENDLESS)).unwrap_err();
    assert!(matches!(error, RequestError::Refused { code: ErrorCode::Busy, .. }), "{error}");
    // The others have all their places, and the thread has time for them.
    let idle: Vec<_> = (0..10).map(|_| fixture.connect()).collect();
    for _ in 0..100 {
        fixture.answers();
    }
    drop(idle);
    // What the sockets hold, and a buffer for each client.
    let limit = MAX_STREAMS as u64 * (MAX_FILL as u64 + (1 << 20));
    let handed_out = HANDED_OUT.load(Ordering::Relaxed);
    assert!(handed_out <= limit, "{handed_out} bytes are held");
    // A client that disappears makes its place free.
    deaf.pop();
    let again = || stream(&path, &numbers(3));
    let reader = wait_until("there is a free place", again);
    assert_eq!(reader.lines().count(), 3);
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
    fixture.answers();
    silent.extend((0..20).map(|_| fixture.connect()));
    // The server takes clients in their order, so it has all of them when it answers the next one.
    fixture.answers();
    for stream in &mut silent {
        stream.set_nonblocking(true).unwrap();
        // The thread of a client may begin late.
        wait_until("the client is closed", || {
            fixture.clock.advance(PATIENCE);
            match stream.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                end => {
                    assert_eq!(end.unwrap_or(0), 0);
                    true
                }
            }
        });
    }
    fixture.answers();
}

/// A switch that needs longer for its stations than a client may be silent.
struct Slow(Clock);

impl Source for Slow {
    fn fdb(&self) -> Fdb {
        self.0.advance(20 * PATIENCE);
        Fixed.fdb()
    }

    fn ports(&self) -> Ports {
        Fixed.ports()
    }

    fn runtime(&self) -> Runtime {
        Fixed.runtime()
    }

    fn drops(&self) -> Drops {
        Fixed.drops()
    }

    fn neighbours(&self) -> Neighbours {
        Fixed.neighbours()
    }

    fn status(&self) -> Status {
        Fixed.status()
    }

    fn events(&self, since: u64) -> Events {
        Fixed.events(since)
    }

    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        Fixed.follow_events(since)
    }
}

#[test]
fn an_answer_that_takes_long_to_make_arrives_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let clock = Clock::moved();
    let server = ApiServer::bind(&path).unwrap().with_clock(clock.clone());
    let _handle = server.serve(Arc::new(Slow(clock))).unwrap();
    let answer = send_long(&path, &Request::Fdb, |_| ()).unwrap();
    assert_eq!(serde_json::from_str::<Fdb>(&answer).unwrap(), Fixed.fdb());
}

#[test]
fn a_client_is_served_however_late_its_thread_begins() {
    let fixture = Fixture::new();
    let (mut client, server) = UnixStream::pair().unwrap();
    let place = Arc::<Places>::default().connection(0).unwrap_or_else(|_| panic!("a place"));
    let connection = Connection::new(server.into(), place, fixture.clock.clone());
    client.write_all(b"{\"cmd\":\"status\"}\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    fixture.clock.advance(20 * PATIENCE);
    connection.run(fixture.handle.as_ref().unwrap().shared());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"version\""), "{answer:?}");
}

#[test]
fn a_client_asks_again_if_no_byte_came() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        // It closes the first connection, before or after it has read the request.
        for answer in ["", "{\"ok\":{}}\n"] {
            let (mut stream, _) = listener.accept().unwrap();
            if !answer.is_empty() {
                assert!(stream.read(&mut [0; 100]).unwrap() > 0);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert_eq!(send_long(&path, &Request::Ports, |_| ()).unwrap(), "{}");
    server.join().unwrap();
}

#[test]
fn a_client_that_leaves_early_is_forgotten() {
    let fixture = Fixture::new();
    // A debug build takes a while for each of these answers, and the next client waits for all of
    // them.
    for _ in 0..10 {
        fixture.connect().write_all(b"{\"cmd\":\"fdb\"}\n").unwrap();
    }
    fixture.answers();
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
            // A client asks again if no byte came.
            for _ in 0..if answer.is_empty() { 2 } else { 1 } {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 100]).unwrap() > 0);
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let message = request(&path, Command::Ports).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        server.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
