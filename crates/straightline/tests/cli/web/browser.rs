//! The page in headless Chromium, against a running switch.

use std::process::Command;

use straightline_guest::{Guest, GuestOptions};

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

#[test]
fn the_page_shows_the_switch() {
    if Command::new("chromium").arg("--version").output().is_err() {
        skip("web::browser::the_page_shows_the_switch", "the program chromium is not installed");
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
    let (page, _) = load(&fixture, &url);
    assert!(page.contains(">switch gone</p>") && page.contains("no switch listens on api"), "{page}");
    web.stop();
}
