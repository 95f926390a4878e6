use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use straightline_api::Link;
use straightline_evpn::process::Status;
use straightline_testing::wait_until;

use super::{Switch, Time, Web};

#[test]
fn answers_are_passed_on_and_metrics_have_two_formats() {
    let web = Web::start();
    let _switch = web.switch();
    for (command, answer) in super::answers(Link::Down) {
        let reply = web.get(&format!("/api/{command}"));
        assert!(reply.status == 200 && reply.head.contains("content-type: application/json"), "{reply:?}");
        assert_eq!(reply.body, answer);
    }
    let all: serde_json::Value = serde_json::from_str(&web.get("/api/all").body).unwrap();
    assert_eq!((&all["ports"]["ports"][1]["name"], all.get("fdb")), (&"vm2".into(), None));
    assert_eq!(all["events"]["last"], 7);

    let metrics = web.get("/metrics");
    assert!(metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics:?}");
    for line in ["straightline_up 1", "straightline_port_up{port=\"vm2\"} 0", "# EOF"] {
        assert!(metrics.body.lines().any(|one| one == line), "{line}: {}", metrics.body);
    }
    let classic =
        web.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nConnection: close\r\n\r\n");
    assert!(classic.head.contains("content-type: text/plain; version=0.0.4"), "{classic:?}");
    assert!(classic.body.contains("# TYPE straightline_port_drops_total counter\n"), "{classic:?}");
}

#[test]
fn metrics_of_evpn_come_and_go_with_its_process() {
    let web = Web::start();
    let _switch = web.switch();
    let wait_for_lines = |lines: &[&str]| {
        wait_until(&format!("the metrics have {lines:?}"), || {
            let metrics = web.get("/metrics").body;
            let has_line = |line: &&str| metrics.lines().any(|one| one == *line);
            if lines.iter().all(has_line) { Ok(()) } else { Err(metrics) }
        });
    };
    wait_for_lines(&["straightline_evpn_up 0"]);
    let listener = UnixListener::bind(web.folder.path().join("evpn")).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).unwrap();
            assert_eq!(line, "status\n");
            let status = Status { received: 7, ..Status::default() };
            // The server may have ended.
            let _ = writeln!(client, "{}", serde_json::to_string(&status).unwrap());
        }
    });
    wait_for_lines(&["straightline_evpn_routes_received 7", "straightline_evpn_up 1", "straightline_evpn_gobgp_up 0"]);
}

#[test]
fn findings_are_there_if_somebody_finds() {
    assert_eq!(Web::start().get("/api/doctor").status, 404);
    let findings = "{\"checks\":[{\"name\":\"api\",\"result\":\"PASS\"}]}";
    let web = Web::start_with(|server| server.with_findings(move || Some(findings.to_owned())));
    assert_eq!(web.get("/api/doctor").body, findings);
    let _switch = web.switch();
    let all: serde_json::Value = serde_json::from_str(&web.get("/api/all").body).unwrap();
    assert_eq!((&all["doctor"]["checks"][0]["name"], &all["status"]["version"]), (&"api".into(), &"9".into()));
}

#[test]
fn findings_are_made_anew_when_a_link_changes() {
    let time = Time::new();
    let shown = time.clone();
    let find = move || Some(format!("{{\"checks\":[{}]}}", shown.passed().as_secs()));
    let web = Web::start_with(|server| time.set(server.with_findings(find)));
    let path = web.folder.path().join("api");
    let wait_for = |second: u64| {
        wait_until(&format!("the findings of second {second} are shown"), || {
            let shown: serde_json::Value = serde_json::from_str(&web.get("/api/all").body).unwrap();
            if shown["doctor"]["checks"][0] == second { Ok(()) } else { Err(shown) }
        });
    };
    let switch = web.switch();
    wait_for(0);
    drop(switch);
    let _switch = Switch::start_with(&path, Link::Up);
    // Answers of a moment ago are shared. Findings are used for longer, unless a link changes.
    time.advance(Duration::from_secs(1));
    wait_for(1);
}

#[test]
fn a_switch_may_go_and_come_back() {
    let time = Time::new();
    let web = Web::start_with(|server| time.set(server));
    // Answers of a moment ago are shared.
    let advance = || time.advance(Duration::from_millis(1001));
    for _ in 0..2 {
        let gone = web.get("/api/fdb");
        assert!(gone.status == 503 && gone.body.contains("no switch listens on"), "{gone:?}");
        let switch = web.switch();
        assert_eq!(web.get("/api/fdb").status, 503, "an answer of this moment");
        advance();
        assert_eq!([web.get("/api/fdb").status, web.get("/api/all").status], [200; 2]);
        assert!(web.get("/metrics").body.contains("\nstraightline_up 1\n"));
        drop(switch);
        assert_eq!([web.get("/api/fdb").status, web.get("/api/all").status], [200; 2], "answers of this moment");
        advance();
        assert_eq!([web.get("/api/fdb").status, web.get("/api/all").status], [503; 2]);
        assert!(web.get("/metrics").body.contains("\nstraightline_up 0\n"));
    }
}

#[test]
fn it_changes_nothing_and_refuses_foreign_hosts() {
    let web = Web::start();
    let own = web.address.to_string();
    let request = |method: &str, path: &str, host: &str| {
        web.send(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for (method, path, host, status) in [
        ("GET", "/", "localhost", 200),
        ("GET", "/main.js", own.as_str(), 200),
        ("GET", "/api/nothing", "localhost", 503),
        ("GET", "/nothing", "localhost", 404),
        ("GET", "/../../etc/passwd", "localhost", 404),
        ("POST", "/api/reload", "localhost", 405),
        ("PUT", "/", "localhost", 405),
        ("OPTIONS", "/metrics", "localhost", 405),
        ("GET", "/metrics", "evil.example", 421),
        ("POST", "/metrics", "evil.example:80", 421),
    ] {
        let reply = request(method, path, host);
        assert_eq!(reply.status, status, "{method} {path} of {host}: {reply:?}");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cache-control: no-store",
        ] {
            assert!(reply.head.contains(header), "{header}: {reply:?}");
        }
        assert_eq!(reply.head.contains("\r\nallow: get, head"), status == 405, "{reply:?}");
    }
    let got = request("GET", "/page.css", "localhost");
    let head = request("HEAD", "/page.css", "localhost");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.head.contains(&format!("content-length: {}", got.body.len())), "{head:?}");
    // Headers without an end, and no request at all.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "a".repeat(64 << 10));
    let mut stream = TcpStream::connect(web.address).unwrap();
    let _ = stream.write_all(long.as_bytes());
    let mut reply = [0; 12];
    assert!(stream.read(&mut reply).is_err() || reply.starts_with(b"HTTP/1.1 431") || reply == [0; 12], "{reply:?}");
    assert_eq!(web.send("nonsense\r\n\r\n").status, 400);
}
