//! Tests of the sandbox as the command line enters it: by default, and with real traffic.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use straightline_guest::{Guest, GuestOptions, Sequence, Stream};
use straightline_testing::wait_until;

use super::run::{CONFIG, Running};
use super::{Fixture, has_root};

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
    let status = fixture.ask("status");
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
    let mut source = guest("vm1");
    let mut sink = guest("vm2");
    let mac = |n| format!("02:00:00:00:00:0{n}").parse().unwrap();
    let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[60, 1514]).unwrap();
    let mut seen = Sequence::default();
    wait_until("all packets have arrived", || {
        while stream.sent() < 1000 && stream.sent() - seen.packets < 64 && stream.send(&mut source) {}
        source.flush();
        let level = sink.level();
        while sink.receive(64, |_, segments| seen.note(level, segments)) > 0 {}
        if seen.packets < 1000 { Err(format!("{} of {}", seen.packets, stream.sent())) } else { Ok(()) }
    });
    assert_eq!(seen.lost(stream.sent()), 0);
}

/// Sets far more call eventfds than the number of completed requests that the kernel keeps
/// (`graph/src/signal.rs`). Each new eventfd is signalled once.
fn notifications(fixture: &Fixture) {
    let mut guest = Guest::connect(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    for _ in 0..1000 {
        guest.client().set_vring_call(0, Some(call.as_fd())).unwrap();
    }
    let mut signalled = 0;
    wait_until("each eventfd is signalled", || {
        let mut value = [0; 8];
        if rustix::io::read(&call, &mut value).is_ok() {
            signalled += u64::from_ne_bytes(value);
        }
        if signalled < 1000 { Err(signalled) } else { Ok(()) }
    });
    assert_eq!(signalled, 1000);
}

/// Saves and loads the device state over a pipe, as QEMU does.
fn device_state(fixture: &Fixture) {
    let mut guest = Guest::prepare(&fixture.path("vm1"), &GuestOptions::default()).unwrap();
    let state = guest.client().save_state().unwrap();
    guest.client().load_state(&state).unwrap();
}

/// Returns the entry of the process that makes sockets in `status`.
fn maker(fixture: &Fixture) -> Value {
    let status = fixture.ask("status");
    let all = status["privileges"].as_array().unwrap();
    all.iter().find(|process| process["process"] == "sockets").unwrap_or_else(|| panic!("{status}")).clone()
}

fn capabilities(pid: u64) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap().to_owned()
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

/// Sockets for other users are made by another process. The switch has no capability, and no system
/// call that changes owners or permission bits.
#[test]
fn the_switch_keeps_no_right_to_give_files_away() {
    if !has_root("the_switch_keeps_no_right_to_give_files_away", "only root can change the owner of a socket") {
        return;
    }
    let fixture = Fixture::new();
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let first = CONFIG.replace("[port.vm2]", "owner = \"1\"\n[port.vm2]");
    // The socket of a killed switch does not prevent the next start.
    for signal in ["KILL", "TERM"] {
        fixture.write(&first);
        let running = Running::start(&fixture);
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            assert_eq!(of_process(&running, field), "0000000000000000", "{field}");
        }
        let maker = maker(&fixture);
        assert_eq!(maker["capabilities"], serde_json::json!(["CAP_CHOWN", "CAP_FOWNER"]));
        for field in ["seccomp", "landlock", "running"] {
            assert_eq!(maker[field], true, "{maker}");
        }
        assert_eq!(capabilities(maker["pid"].as_u64().unwrap()), "0000000000000009");
        let ours = (0, 0, 0o600);
        let theirs = (1, 0, 0o600);
        assert_eq!((owner(&fixture.path("vm1")), owner(&fixture.path("vm2"))), (theirs, ours));
        exchange(&fixture);
        exchange(&fixture);

        // Reloads: an owner for a port that had none, a port with another owner, one made anew.
        let link = |state: &str| assert_eq!(fixture.execute(&["link", "vm1", state, "--api", "api"]).code, Some(0));
        link("down");
        link("up");
        assert_eq!(owner(&fixture.path("vm1")), theirs);
        let port = "[port.vm3]\nkind = \"vhost-user\"\nsocket = \"@/vm3\"\nowner = \"2\"\ngroup = \"3\"\n[port.vm2]";
        let second = first.replace("[port.vm2]", port).replace("owner = \"1\"", "owner = \"1\"\nqueues = 2");
        let second = format!("{second}\n[bridge.other]\nports = [\"vm3\"]\n");
        fixture.write(&second);
        let reload = fixture.execute(&["reload", "--api", "api"]);
        assert_eq!(reload.code, Some(0), "{reload:?}");
        assert_eq!((owner(&fixture.path("vm1")), owner(&fixture.path("vm3"))), (theirs, (2, 3, 0o660)));
        fixture.write(&second.replace("owner = \"2\"", "perms = \"0666\"").replace("owner = \"1\"", ""));
        assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(0));
        assert_eq!((owner(&fixture.path("vm1")), owner(&fixture.path("vm3"))), (ours, (0, 3, 0o666)));
        exchange(&fixture);

        assert_eq!(fixture.ask("status")["refused_calls"], 0);
        running.signal(signal);
        let done = running.finish();
        assert!(!done.err.contains("refused"), "{done:?}");
        wait_until("all sockets are gone", || {
            let left: Vec<_> = ["vm1", "vm2", "vm3"].into_iter().filter(|name| fixture.path(name).exists()).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

/// The folder belongs to another user. Root can enter it only by its privileges. They stay with the
/// process that makes the sockets there.
#[test]
fn folders_of_other_users_take_a_right() {
    if !has_root("folders_of_other_users_take_a_right", "only root can change the owner of a folder") {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("theirs")).unwrap();
    fs::set_permissions(fixture.path("theirs"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(fixture.path("theirs"), Some(1), Some(1)).unwrap();
    let config = CONFIG.replace("@/vm1", "@/theirs/vm1");
    fixture.write(&config);
    let running = Running::start(&fixture);
    // CAP_DAC_OVERRIDE.
    assert_eq!(of_process(&running, "CapEff"), "0000000000000002");
    running.signal("TERM");
    let done = running.finish();
    assert!(done.err.contains("capabilities in force, kept: CAP_DAC_OVERRIDE"), "{done:?}");

    fixture.write(&config.replace("[port.vm2]", "owner = \"1\"\n[port.vm2]"));
    let running = Running::start(&fixture);
    assert_eq!(of_process(&running, "CapEff"), "0000000000000000");
    assert_eq!(capabilities(maker(&fixture)["pid"].as_u64().unwrap()), "000000000000000b");
    assert_eq!(owner(&fixture.path("theirs/vm1")), (1, 0, 0o600));
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    assert!(!fixture.path("theirs/vm1").exists(), "the socket is left");
}

/// The API's sockets are made by the same process, and so are all sockets after a file that only
/// gave those away.
#[test]
fn the_api_is_for_a_group_without_a_right_of_the_switch() {
    if !has_root("the_api_is_for_a_group_without_a_right_of_the_switch", "only root can change a group") {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(&CONFIG.replace("[switch]", "[switch]\napi-group = \"7\""));
    let running = Running::start(&fixture);
    assert_eq!(of_process(&running, "CapEff"), "0000000000000000");
    assert_eq!(owner(&fixture.path("api")), (0, 7, 0o660));
    assert_eq!(fixture.ask("status")["refused_calls"], 0);
    // The process is killed: its sockets stay, others cannot be made.
    let pid = maker(&fixture)["pid"].as_u64().unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    wait_until("the process has ended", || maker(&fixture)["running"] == false);
    fixture.wait_for_event("the end of the process is an event", |event| {
        event["kind"] == "sockets-ended" && event["pid"] == pid
    });
    exchange(&fixture);
    let text = fixture.execute(&["status", "--api", "api"]).out;
    assert!(text.contains("has ended; its sockets stay open, restart the switch to make others"), "{text}");
    let config = CONFIG.replace("[switch]", "[switch]\napi-group = \"7\"").replace("@/vm1", "@/vm4");
    fixture.write(&config);
    let reload = fixture.execute(&["reload", "--api", "api"]);
    assert!(reload.err.contains("the process has ended; restart the switch"), "{reload:?}");
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn it_is_switched_off_by_name() {
    let fixture = Fixture::new();
    for (list, seccomp) in [("", "0"), ("\"landlock\"", "0"), ("\"seccomp\"", "2")] {
        fixture.write(&CONFIG.replace("[switch]", &format!("[switch]\nsandbox = [{list}]")));
        let running = Running::start(&fixture);
        assert_eq!(of_process(&running, "Seccomp"), seccomp, "{list}");
        let names: Vec<String> = serde_json::from_value(fixture.ask("status")["sandbox"].clone()).unwrap();
        assert_eq!(names.join(" "), list.trim_matches('"'));
        running.signal("TERM");
        assert_eq!(running.finish().code, Some(0));
    }
}
