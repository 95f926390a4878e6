//! Timers of control code: limits of events, the age of a link, clients of the API.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use straightline_graph::Clock;
use straightline_guest::GuestOptions;
use straightline_switch::api::{ApiServer, Event, EventKind};
use straightline_testing::{PATIENCE, Rig, patch, rig_by, wait_until};

/// The time between two looks of the switch for events.
const LOOK: Duration = Duration::from_millis(100);

fn patched() -> Rig {
    rig_by(2, &Clock::moved(), |config| config.patches.push(patch(0, 1)))
}

/// Returns the events about the link of port 0.
fn links(rig: &Rig) -> Vec<Event> {
    let is_link = |event: &Event| match &event.kind {
        EventKind::LinkUp { port } | EventKind::LinkDown { port, .. } => port == "p0",
        _ => false,
    };
    rig.switch.source().events(0).events.into_iter().filter(is_link).collect()
}

/// A source may cause twenty events at once, and one more each second. The last one is always told, with
/// the number of those that it replaces.
#[test]
fn a_link_that_comes_and_goes_has_its_last_event_told_later() {
    let rig = patched();
    let _guest = rig.guest(0, &GuestOptions::default());
    rig.wait_up(0);
    rig.clock.advance(LOOK);
    assert_eq!(links(&rig).len(), 1);
    for _ in 0..5 {
        for up in [false, true, false, true, false, true] {
            rig.switch.set_link("p0", up).expect("a port");
        }
        rig.clock.advance(LOOK);
    }
    assert_eq!(links(&rig).len(), 20, "a burst");
    rig.clock.advance(Duration::from_secs(1));
    let links = links(&rig);
    let last = links.last().expect("an event");
    assert_eq!((links.len(), &last.kind, last.skipped), (21, &EventKind::LinkUp { port: "p0".to_owned() }, 10));
}

#[test]
fn the_age_of_a_link_and_of_the_switch_is_that_of_the_clock() {
    let rig = patched();
    rig.clock.advance(Duration::from_secs(50));
    let _guest = rig.guest(0, &GuestOptions::default());
    rig.wait_up(0);
    rig.clock.advance(Duration::from_secs(7));
    let close = |seconds: f64, expected: f64| (seconds - expected).abs() < 1e-6;
    let port = rig.port(0);
    assert!(close(port.link_since_s, 7.0), "{port:?}");
    assert!(close(rig.switch.source().status().uptime_s, 57.0));
}

#[test]
fn a_client_that_says_nothing_is_disconnected_after_a_second() {
    let rig = patched();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("api");
    let server = ApiServer::bind(&path).expect("a socket").with_clock(rig.clock.clone());
    let _handle = server.serve(rig.switch.source()).expect("a thread");
    let connect = || {
        let stream = UnixStream::connect(&path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    };
    let ask = |stream: &mut UnixStream| {
        stream.write_all(b"{\"cmd\":\"status\"}\n").expect("a request");
        stream.read(&mut [0; 1 << 16]).expect("an answer")
    };
    let mut silent = connect();
    let mut other = connect();
    // The server takes clients in their order, so it has both.
    assert!(ask(&mut other) > 0);
    rig.clock.advance(Duration::from_millis(999));
    // An answer begins the time again.
    assert!(ask(&mut other) > 0);
    // The thread of the silent one may have begun late. The other one stays, because it says something.
    silent.set_nonblocking(true).expect("a socket");
    wait_until("the silent client is disconnected", || {
        rig.clock.advance(Duration::from_millis(1));
        assert!(ask(&mut other) > 0);
        silent.read(&mut [0; 10]).map(|read| assert_eq!(read, 0))
    });
}
