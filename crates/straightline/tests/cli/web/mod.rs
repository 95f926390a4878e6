//! `straightline web` beside a real switch: replies, rights, a switch that goes and comes back. The crate
//! `straightline-web` has the tests with a fake switch.

mod browser;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use straightline_testing::wait_until;

use super::run::{CONFIG, Running};
use super::{Fixture, our_uid};

/// A running server. It is killed if the test fails.
struct Web {
    child: Child,
    /// Address and port of the server.
    address: String,
}

impl Web {
    /// Starts the server on a free port, and waits until it serves.
    fn start(fixture: &Fixture, args: &[&str]) -> Self {
        let listen = if args.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] };
        let api = if args.contains(&"--api") { &[][..] } else { &["--api", "api"] };
        let args = [&["web"], api, listen, args].concat();
        let mut child = fixture
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(fixture.path("web.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("it prints its address, not {line:?}")).to_owned();
        Self { child, address }
    }

    fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Sends the text of a request, and returns the reply.
    fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a reply, not {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Returns a field of `/proc/PID/status`.
    fn process_status(&self, field: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }

    /// Stops the server as its supervisor does.
    fn stop(mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)
            .unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    /// Status line and headers, in lower case.
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[test]
fn it_serves_the_answers_and_the_metrics() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let web = Web::start(&fixture, &[]);
    for command in ["status", "ports", "fdb", "neighbours", "runtime", "drops"] {
        let reply = web.get(&format!("/api/{command}"));
        assert!(reply.status == 200 && reply.head.contains("content-type: application/json"), "{reply:?}");
        let asked = fixture.execute(&[command, "--json", "--api", "api"]).out;
        let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
        let keys = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&reply.json()), keys(&asked));
        assert_eq!(web.get("/api/all").json()[command].is_null(), command == "fdb");
    }
    assert!(web.get("/api/events").json()["events"].is_array());
    let history = wait_until("there is a history", || {
        let history = web.get("/api/history").json();
        if history["times"].as_array().is_some_and(|times| times.len() > 1) { Ok(history) } else { Err(history) }
    });
    let times = history["times"].as_array().unwrap();
    let port = &history["ports"][1];
    assert!(times.is_sorted_by(|a, b| a.as_f64() <= b.as_f64()), "{history}");
    assert_eq!(port["name"], "vm2");
    assert!(port["rx_bytes"].as_array().unwrap().iter().all(|bytes| *bytes == 0), "{history}");
    assert_eq!(port["tx_bytes"].as_array().unwrap().len(), times.len());
    let ports = web.get("/api/ports").json();
    assert_eq!((&ports["ports"][0]["name"], &ports["ports"][1]["name"]), (&"vm1".into(), &"vm2".into()));

    let metrics = web.get("/metrics");
    assert!(metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics:?}");
    for line in ["straightline_up 1", "straightline_port_up{port=\"vm1\"} 0", "# EOF"] {
        assert!(metrics.body.lines().any(|one| one == line), "{line}: {}", metrics.body);
    }
    let classic =
        web.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nConnection: close\r\n\r\n");
    assert!(classic.head.contains("content-type: text/plain; version=0.0.4"), "{classic:?}");
    assert!(classic.body.contains("# TYPE straightline_port_drops_total counter\n"), "{classic:?}");
    web.stop();
}

/// Nothing of the page or the metrics asks for more than the socket that only answers questions.
#[test]
fn the_socket_that_only_answers_is_enough() {
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("api = \"@/api\"", "api-read-only = \"@/ro\""));
    let _running = Running::start(&fixture);
    let web = Web::start(&fixture, &["--api", "ro"]);
    for path in ["", "metrics"] {
        assert_eq!(web.get(&format!("/{path}")).status, 200, "{path:?}");
    }
    for answer in ["status", "ports", "fdb", "neighbours", "runtime", "drops", "events", "history", "all", "doctor"] {
        let reply = web.get(&format!("/api/{answer}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(!reply.body.contains("only answers questions"), "{reply:?}");
    }
    assert!(web.get("/metrics").body.lines().any(|line| line == "straightline_up 1"));
    web.stop();
}

#[test]
fn a_switch_may_go_and_come_back() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let web = Web::start(&fixture, &[]);
    let wait_for_status = |what: &str, status: u16| {
        wait_until(what, || {
            let reply = web.get("/api/all");
            if reply.status == status { Ok(reply) } else { Err(reply) }
        })
    };
    let wait_for_metric = |line: &str| {
        wait_until(&format!("the metrics have {line:?}"), || {
            let metrics = web.get("/metrics").body;
            if metrics.lines().any(|one| one == line) { Ok(()) } else { Err(metrics) }
        });
    };
    for _ in 0..2 {
        let gone = wait_for_status("the switch is gone", 503);
        assert!(gone.json()["error"].as_str().unwrap().starts_with("no switch listens on api"), "{gone:?}");
        wait_for_metric("straightline_up 0");
        let running = Running::start(&fixture);
        let back = wait_for_status("the switch is back", 200);
        assert_eq!(back.json()["status"]["ports"], 2);
        wait_for_metric("straightline_up 1");
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    }
    web.stop();
}

#[test]
fn other_machines_need_a_name_and_cause_a_warning() {
    let fixture = Fixture::new();
    let done = fixture.execute(&["web", "--listen", "0.0.0.0:0"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(
        done.err.contains("0.0.0.0:0 can be reached from other machines") && done.err.contains("--allow-host"),
        "{done:?}"
    );
    let done = fixture.execute(&["web", "--allow-host", "http://a"]);
    assert!(done.code == Some(1) && done.err.contains("not a name or an address"), "{done:?}");

    let web = Web::start(&fixture, &["--listen", "0.0.0.0:0", "--allow-host", "switch.example"]);
    let log = fs::read_to_string(fixture.path("web.log")).unwrap();
    assert!(log.starts_with("warning: 0.0.0.0:") && log.contains("asks for no password"), "{log}");
    let get = |host: &str| web.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).status;
    assert_eq!((get("switch.example:80"), get("0.0.0.0"), get("other.example")), (200, 421, 421));
    web.stop();
}

#[test]
fn it_gives_its_rights_up() {
    let fixture = Fixture::new();
    let web = Web::start(&fixture, &[]);
    assert_eq!(web.process_status("CapEff"), "0000000000000000");
    assert_eq!(web.process_status("CapPrm"), "0000000000000000");
    assert_eq!(web.process_status("NoNewPrivs"), "1");
    let log = fs::read_to_string(fixture.path("web.log")).unwrap();
    assert!(log.contains("sandbox: landlock") && log.contains("sandbox: no capabilities kept"), "{log}");
    web.stop();
    if our_uid() == 0 {
        // A socket of another user can still be reached, and the log says at what price.
        fixture.write(CONFIG);
        let _running = Running::start(&fixture);
        std::os::unix::fs::chown(fixture.path("api"), Some(1), Some(1)).unwrap();
        let web = Web::start(&fixture, &[]);
        assert_eq!(web.get("/api/status").status, 200);
        let log = fs::read_to_string(fixture.path("web.log")).unwrap();
        assert!(log.contains("CAP_DAC_OVERRIDE kept"), "{log}");
        web.stop();
    }
}
