//! The page in headless Chromium, against a running switch.

use std::process::Command;
use std::sync::Arc;

use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{
    ApiServer, DropCount, Drops, ErrorCode, Events, Fdb, History, Link, Neighbours, Port, PortHistory, Ports, Queue,
    Refusal, Runtime, Source, Status, Stream, Tunnel,
};
use straightline_testing::wait_until;

use super::super::run::Running;
use super::super::{Fixture, our_uid, skip};
use super::Web;

const CONFIG: &str = "\
[switch]
api = \"@/api\"
[port.guest-one]
kind = \"vhost-user\"
socket = \"@/one\"
[port.guest-two]
kind = \"vhost-user\"
socket = \"@/two\"
[port.nobody]
kind = \"vhost-user\"
socket = \"@/nobody\"
mode = \"client\"
[bridge.office]
ports = [\"guest-one\", \"guest-two\", \"nobody\"]
";

/// Returns the page as the browser has it after some polls, and the browser's messages.
fn load(fixture: &Fixture, url: &str) -> (String, String) {
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--enable-logging=stderr",
    ]);
    // Time in the page passes as fast as its requests are answered.
    browser.args(["--virtual-time-budget=5000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", fixture.path("browser").display()));
    if our_uid() == 0 {
        browser.arg("--no-sandbox");
    }
    let output = browser.arg(url).env("HOME", fixture.path(".")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

/// Returns whether the browser is there. Reports a skip if not.
fn has_browser(test: &str) -> bool {
    let has = Command::new("chromium").arg("--version").output().is_ok();
    if !has {
        skip(&format!("web::browser::{test}"), "the program chromium is not installed");
    }
    has
}

/// A fake switch: a port that has sent 1 Mbyte/s for two minutes, a tunnel, and a port that is down.
/// Its texts have code between backquotes.
struct Busy;

impl Source for Busy {
    fn ports(&self) -> Ports {
        let queue = Queue::default();
        let up =
            |name: &str| Port { name: name.to_owned(), link: Link::Up, queues: vec![queue.clone()], ..Port::default() };
        let reason = Some("set `queues` to 2".to_owned());
        let down = Port { link: Link::Down, reason, ..up("vm2") };
        Ports { ports: vec![up("vm1"), Port { tunnel: Some(Tunnel::default()), ..up("t1") }, down] }
    }

    fn history(&self) -> History {
        let zeros = |name: &str| PortHistory { name: name.to_owned(), rx_bytes: vec![0; 121], tx_bytes: vec![0; 121] };
        let vm1 = PortHistory { rx_bytes: (0..121).map(|second| second * 1_000_000).collect(), ..zeros("vm1") };
        History { times: (0..121).map(f64::from).collect(), ports: vec![zeros("t1"), vm1, zeros("vm2")] }
    }

    fn runtime(&self) -> Runtime {
        Runtime::default()
    }

    fn drops(&self) -> Drops {
        let row = DropCount {
            port: "vm1".to_owned(),
            reason: "too-big".to_owned(),
            count: 3,
            meaning: "It is longer than `mtu`.".to_owned(),
            remedy: "Raise `mtu` of the port.".to_owned(),
        };
        Drops { drops: vec![row] }
    }

    fn fdb(&self) -> Fdb {
        Fdb::default()
    }

    fn neighbours(&self) -> Neighbours {
        Neighbours::default()
    }

    fn status(&self) -> Status {
        Status { version: "9".to_owned(), uptime_s: 300.0, ports: 3, ports_up: 2, ..Status::default() }
    }

    fn events(&self, _since: u64) -> Events {
        Events::default()
    }

    fn follow_events(&self, _since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        Err(Refusal::new(ErrorCode::Busy, "the page follows no events"))
    }
}

#[test]
fn curves_begin_before_the_page_and_code_has_no_backquotes() {
    if !has_browser("curves_begin_before_the_page_and_code_has_no_backquotes") {
        return;
    }
    let fixture = Fixture::new();
    let server = ApiServer::bind(&fixture.path("api")).unwrap();
    let _handle = server.serve(Arc::new(Busy)).unwrap();
    let web = Web::start(&fixture, &[]);
    let (page, log) = load(&fixture, &format!("http://{}/", web.address));
    assert!(!log.contains("CONSOLE"), "the page has errors: {log}");
    let curve = page.split("data-key=\"vm1\"").find_map(|row| row.split("class=\"rx\" d=\"").nth(1)).unwrap();
    let curve = curve.split('"').next().unwrap();
    assert!(curve.matches(['M', 'L']).count() >= 115, "{curve}");
    assert!(page.contains("last two minutes, maximum 8.00 M bit/s"), "{page}");
    for part in ["set <code>queues</code> to 2", "longer than <code>mtu</code>. ", "Raise <code>mtu</code> of"] {
        assert!(page.contains(part), "{part} is not in the page:\n{page}");
    }
    // What stands in tags is no text.
    assert!(page.split('<').filter_map(|part| part.split_once('>')).all(|(_, text)| !text.contains('`')), "{page}");
    web.stop();
}

#[test]
fn the_page_shows_the_switch() {
    if !has_browser("the_page_shows_the_switch") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    let guest = |name: &str| Guest::connect(&fixture.path(name), &GuestOptions::default()).unwrap();
    let _guests = (guest("one"), guest("two"));
    let web = Web::start(&fixture, &[]);
    let url = format!("http://{}/", web.address);

    let (page, log) = load(&fixture, &url);
    assert!(!log.contains("CONSOLE"), "the page has errors: {log}");
    for part in [
        ">live</p>",
        ">guest-one<",
        ">guest-two<",
        ">office</h3>",
        // The reason stands on the edge to the port.
        "<li data-key=\"nobody\" class=\"down\"",
        "/nobody",
        "No packet was dropped.",
        ">guest-one-rx</th>",
        "unexplained",
        // Without events, this section is hidden.
        "<section id=\"events\" aria-labelledby=\"events-title\">",
    ] {
        assert!(page.contains(part), "{part} is not in the page:\n{page}\n{log}");
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    // Answers of the switch are kept for a moment.
    let page = wait_until("the page says that the switch is gone", || {
        let (page, _) = load(&fixture, &url);
        if page.contains(">switch gone</p>") { Ok(page) } else { Err(page) }
    });
    assert!(page.contains("no switch listens on api"), "{page}");
    web.stop();
}
