//! Tests of the sandbox as the command line enters it: by default, and with real traffic.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use straightline_guest::{Guest, GuestOptions, Sequence, Stream};

use super::run::{CONFIG, Running};
use super::{Fixture, has_root};

fn status(fixture: &Fixture) -> Value {
    serde_json::from_str(&fixture.execute(&["status", "--json", "--api", "api"]).out).unwrap()
}

fn of_process(running: &Running, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    value.unwrap_or_else(|| panic!("{field} in {status}")).to_owned()
}

/// Two guests connect, exchange packets, leave and connect again. The sandbox refuses no call that
/// this needs.
#[test]
fn guests_exchange_packets_through_a_switch_in_the_sandbox() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    for (field, expected) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000")] {
        assert_eq!(of_process(&running, field), expected, "{field}");
    }
    for _ in 0..2 {
        exchange(&fixture);
    }
    notifications(&fixture);
    device_state(&fixture);
    let status = status(&fixture);
    assert_eq!(status["sandbox"], serde_json::json!(["capabilities", "landlock", "seccomp"]));
    assert_eq!(status["refused_calls"], 0);
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!done.err.contains("refused"), "{done:?}");
    assert!(!fixture.path("vm1").exists(), "the socket is left");
}

pub(super) fn exchange(fixture: &Fixture) {
    let guest = |name| Guest::connect(&fixture.path(name), &GuestOptions::default()).unwrap();
    let (mut source, mut sink) = (guest("vm1"), guest("vm2"));
    let mac = |n| format!("02:00:00:00:00:0{n}").parse().unwrap();
    let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[60, 1514]).unwrap();
    let mut seen = Sequence::default();
    let end = Instant::now() + Duration::from_secs(20);
    while seen.packets < 1000 {
        assert!(Instant::now() < end, "{} of {} have arrived", seen.packets, stream.sent());
        while stream.sent() < 1000 && stream.sent() - seen.packets < 64 && stream.send(&mut source) {}
        source.flush();
        let level = sink.level();
        if sink.receive(64, |_, segments| seen.note(level, segments)) == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    assert_eq!(seen.lost(stream.sent()), 0);
}

/// Sets far more call eventfds than the number of completed requests that the kernel keeps
/// (`port/src/signal.rs`). Each new eventfd is signalled once.
fn notifications(fixture: &Fixture) {
    let mut guest = Guest::connect(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let call = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for _ in 0..1000 {
        guest.client().set_vring_call(0, Some(call.as_fd())).unwrap();
    }
    let mut value = [0; 8];
    rustix::io::read(&call, &mut value).unwrap();
    assert_eq!(u64::from_ne_bytes(value), 1000);
}

/// Saves and loads the device state over a pipe, as QEMU does.
fn device_state(fixture: &Fixture) {
    let mut guest = Guest::prepare(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let state = guest.client().save_state().unwrap();
    guest.client().load_state(&state).unwrap();
}

/// The socket of a killed switch, owned by another user, does not prevent the next start.
#[test]
fn the_rights_that_an_owner_takes_are_kept() {
    if !has_root("the_rights_that_an_owner_takes_are_kept", "only root can change the owner of a socket") {
        return;
    }
    let fixture = Fixture::new();
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.write(&CONFIG.replace("[port.vm2]", "owner = \"1\"\n[port.vm2]"));
    for signal in ["KILL", "TERM"] {
        let running = Running::start(&fixture);
        // CAP_CHOWN and CAP_FOWNER.
        assert_eq!(of_process(&running, "CapEff"), "0000000000000009");
        running.signal(signal);
        running.finish();
    }
    assert!(!fixture.path("vm1").exists(), "the socket is left");

    // The folder belongs to another user. Root can enter it only by its privileges.
    std::os::unix::fs::chown(fixture.path("."), Some(1), Some(1)).unwrap();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    // CAP_DAC_OVERRIDE.
    assert_eq!(of_process(&running, "CapEff"), "0000000000000002");
    running.signal("TERM");
    let done = running.finish();
    assert!(done.err.contains("capabilities in force, kept: CAP_DAC_OVERRIDE"), "{done:?}");
}

#[test]
fn it_is_switched_off_by_name() {
    let fixture = Fixture::new();
    for (list, seccomp) in [("", "0"), ("\"landlock\"", "0"), ("\"seccomp\"", "2")] {
        fixture.write(&CONFIG.replace("[switch]", &format!("[switch]\nsandbox = [{list}]")));
        let running = Running::start(&fixture);
        assert_eq!(of_process(&running, "Seccomp"), seccomp, "{list}");
        let names: Vec<String> = serde_json::from_value(status(&fixture)["sandbox"].clone()).unwrap();
        assert_eq!(names.join(" "), list.trim_matches('"'));
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    }
}
