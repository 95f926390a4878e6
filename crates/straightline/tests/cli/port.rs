//! Tests of `straightline port` and `straightline link`, with guests.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::wait_until;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::vhost_user::Message;

use super::run::Running;
use super::{Finished, Fixture};

const CONFIG: &str = "\
[switch]
api = \"@/api\"
[port.vm1]
kind = \"vhost-user\"
socket = \"@/vm1\"
[bridge.lan]
ports = [\"vm1\"]
";

fn started() -> (Fixture, Running) {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    (fixture, running)
}

fn ports(fixture: &Fixture) -> Vec<serde_json::Value> {
    let done = fixture.execute(&["ports", "--json", "--api", "api"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    json["ports"].as_array().unwrap().clone()
}

fn names(fixture: &Fixture) -> Vec<String> {
    ports(fixture).iter().map(|port| port["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the switch has these ports.
fn wait_for_names(fixture: &Fixture, expected: &[&str]) {
    wait_until(&format!("the ports are {expected:?}"), || {
        let names = names(fixture);
        if names == expected { Ok(()) } else { Err(names) }
    });
}

/// Running `straightline port`. It is killed if the test fails.
struct Backend(Option<Child>);

impl Backend {
    fn start(fixture: &Fixture, args: &[&str], stdin: Stdio) -> Backend {
        let mut command = fixture.command(&[&["port", "--api", "api", "--join", "lan", "--name", "q"], args].concat());
        let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let backend = Backend(Some(child));
        wait_for_names(fixture, &["vm1", "q"]);
        backend
    }

    fn signal(&self, name: &str) {
        let pid = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn finish(mut self) -> Finished {
        Finished::new(&self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a packet from `from`, and waits until it arrives at `to`.
fn exchange(from: &mut Guest, to: &mut Guest) {
    let mut frame = [0x55; 300];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    wait_until("the packet is sent", || {
        from.flush();
        from.send(&NetHeader::default(), &frame)
    });
    from.flush();
    wait_until("the packet arrives", || to.receive(1, |_, _| ()) == 1);
}

fn guest(path: &std::path::Path) -> Guest {
    Guest::connect(path, &GuestOptions::default()).unwrap()
}

// Cites vhost-user-conventions-3, vhost-user-conventions-4, vhost-user-conventions-5.
#[test]
fn a_port_comes_with_its_program_and_goes_with_it() {
    let (fixture, running) = started();
    let mut vm1 = guest(&fixture.path("vm1"));
    for signal in ["TERM", "INT", "KILL"] {
        let backend = Backend::start(&fixture, &["--socket-path", "q.sock"], Stdio::null());
        let mut added = guest(&fixture.path("q.sock"));
        fixture.wait_for_link("q");
        exchange(&mut added, &mut vm1);
        exchange(&mut vm1, &mut added);
        // The port is not in the configuration, so a reload does not change it.
        let reload = fixture.execute(&["reload", "--api", "api"]);
        assert_eq!(reload.out, "nothing changed\n", "{reload:?}");
        exchange(&mut added, &mut vm1);
        backend.signal(signal);
        let done = backend.finish();
        if signal == "KILL" {
            wait_for_names(&fixture, &["vm1"]);
        } else {
            assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "", ""), "{signal}");
            assert_eq!(names(&fixture), ["vm1"], "the port goes with its program");
            assert!(!fixture.path("q.sock").exists());
        }
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

// Cites vhost-user-conventions-6.
#[test]
fn a_connection_that_is_handed_over_is_served_until_it_ends() {
    let (fixture, _running) = started();
    let mut vm1 = guest(&fixture.path("vm1"));
    let listener = UnixListener::bind(fixture.path("theirs")).unwrap();
    for leaves in [true, false] {
        let path = fixture.path("theirs");
        let connecting = std::thread::spawn(move || guest(&path));
        let stream = OwnedFd::from(listener.accept().unwrap().0);
        let backend = Backend::start(&fixture, &["--fd", "0"], Stdio::from(stream));
        let mut added = connecting.join().unwrap();
        exchange(&mut added, &mut vm1);
        exchange(&mut vm1, &mut added);
        if leaves {
            drop(added);
        } else {
            // After an invalid message the switch closes the connection, and the frontend notices.
            let nonsense = Message { request: 1, flags: 0xff, payload: Vec::new() };
            added.client().send_raw(&nonsense, &[]).unwrap();
        }
        let done = backend.finish();
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        assert_eq!(names(&fixture), ["vm1"]);
    }
}

// Cites vhost-user-conventions-6.
#[test]
fn a_socket_that_listens_is_handed_over() {
    let (fixture, _running) = started();
    let mut vm1 = guest(&fixture.path("vm1"));
    let listener = UnixListener::bind(fixture.path("theirs")).unwrap();
    let backend = Backend::start(&fixture, &["--fd", "0"], Stdio::from(OwnedFd::from(listener)));
    for _ in 0..2 {
        // The guest leaves and connects again.
        let mut added = guest(&fixture.path("theirs"));
        exchange(&mut added, &mut vm1);
    }
    backend.signal("TERM");
    assert_eq!(backend.finish().code, Some(0));
    assert!(fixture.path("theirs").exists(), "the inherited socket's file is not removed");
}

// Cites vhost-user-conventions-2, vhost-user-conventions-5.
#[test]
fn it_fails_early_with_a_message() {
    let (fixture, running) = started();
    let fails = |args: &[&str], part: &str| {
        let done = fixture.command(&[&["port"], args].concat()).stdin(Stdio::null()).output().unwrap();
        let done = Finished::new(&done);
        assert!(done.code == Some(1) && done.err.contains(part), "{args:?}: {done:?}");
        assert_eq!(names(&fixture), ["vm1"]);
        assert!(!fixture.path("q").exists());
    };
    fails(&["--socket-path", "q", "--join", "none", "--api", "api"], "no such bridge; bridges are lan");
    fails(&["--socket-path", "q", "--join", "lan", "--name", "vm1", "--api", "api"], "a port of this name already");
    fails(&["--socket-path", "q", "--join", "lan", "--name", "a b", "--api", "api"], "not a valid name");
    fails(&["--socket-path", "q", "--join", "lan", "--api", "nowhere"], "no switch listens on nowhere");
    fails(&["--socket-path", "vm1", "--join", "lan", "--api", "api"], "a live process listens there already");
    fails(&["--fd", "0", "--join", "lan", "--api", "api"], "connected: not a socket");
    fails(&["--fd", "99", "--join", "lan", "--api", "api"], "no such descriptor");
    for args in [&["--join", "lan"][..], &["--socket-path", "q"], &["--socket-path", "q", "--fd", "3", "--join", "lan"]]
    {
        assert_eq!(fixture.execute(&[&["port"], args].concat()).code, Some(2), "{args:?}");
    }
    let datagrams = UnixDatagram::pair().unwrap();
    for (socket, part) in [
        (OwnedFd::from(UnixDatagram::unbound().unwrap()), "the socket is neither listening nor connected"),
        (OwnedFd::from(datagrams.0), "fd 0: cannot serve it: not a Unix stream socket\n"),
    ] {
        let mut command = fixture.command(&["port", "--fd", "0", "--join", "lan", "--api", "api"]);
        let done = Finished::new(&command.stdin(socket).output().unwrap());
        assert!(done.code == Some(1) && done.err.contains(part), "{done:?}");
    }
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn it_ends_with_the_switch() {
    let (fixture, running) = started();
    let backend = Backend::start(&fixture, &["--socket-path", "q.sock"], Stdio::null());
    running.signal("TERM");
    assert_eq!(running.finish().code, Some(0));
    let done = backend.finish();
    assert!(done.code == Some(1) && done.err.contains("the switch has ended"), "{done:?}");
}

// Cites vhost-user-conventions-7.
#[test]
fn capabilities_are_what_qemu_expects() {
    let done = Fixture::new().execute(&["port", "--print-capabilities"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&done.out).unwrap(), serde_json::json!({"type": "net"}));
    let dist = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/50-straightline-net.json");
    let described: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(dist).unwrap()).unwrap();
    assert_eq!(described["type"], "net");
    assert!(described["binary"].as_str().unwrap().starts_with('/') && described["description"].is_string());
}

// Cites vhost-user-conventions-8.
#[test]
fn beside_print_capabilities_all_else_is_ignored() {
    let fixture = Fixture::new();
    let alone = fixture.execute(&["port", "--print-capabilities"]);
    assert_eq!(alone.code, Some(0), "{alone:?}");
    for (before, after) in [
        (&[][..], &["--socket-path", "q"][..]),
        (&["--fd", "3"], &[]),
        (&["--socket-path", "q", "--fd", "3"], &["--join", "lan"]),
        (&["--join", "lan", "--name", "a b"], &["--api", "nowhere"]),
        (&["--fd", "three"], &["--read-only", "rest"]),
    ] {
        let done = fixture.execute(&[&["port"], before, &["--print-capabilities"], after].concat());
        assert_eq!((done.code, &done.out, done.err.as_str()), (Some(0), &alone.out, ""), "{before:?} {after:?}");
        assert!(!fixture.path("q").exists());
    }
    // No other command has the option.
    assert_eq!(fixture.execute(&["ports", "--print-capabilities"]).code, Some(2));
}

#[test]
fn an_administrator_takes_a_link_down() {
    let (fixture, _running) = started();
    let mut vm1 = guest(&fixture.path("vm1"));
    let _backend = Backend::start(&fixture, &["--socket-path", "q.sock"], Stdio::null());
    let mut added = guest(&fixture.path("q.sock"));
    exchange(&mut added, &mut vm1);
    let done = fixture.execute(&["link", "vm1", "down", "--api", "api"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    let vm1_port = || ports(&fixture)[0].clone();
    let dropped = || vm1_port()["drops"]["set-down"].as_u64().unwrap_or(0);
    assert_eq!((&vm1_port()["link"], &vm1_port()["reason"]), (&"down".into(), &"set down by the administrator".into()));
    let header = NetHeader::default();
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 7], &[0; 48]].concat();
    for guest in [&mut added, &mut vm1] {
        // The command takes effect soon, not at once.
        let before = dropped();
        wait_until("packets to and from it are dropped", || {
            guest.flush();
            guest.send(&header, &frame);
            guest.flush();
            dropped() > before
        });
    }
    let unknown = fixture.execute(&["link", "vm9", "down", "--api", "api"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("ports are vm1, q"), "{unknown:?}");
    assert_eq!(fixture.execute(&["link", "vm1", "sideways"]).code, Some(2));
    // A port that a reload creates anew stays down.
    fixture.write(&CONFIG.replace("[bridge.lan]", "mtu = 2000\n[bridge.lan]"));
    assert_eq!(fixture.execute(&["reload", "--api", "api"]).code, Some(0));
    assert_eq!(vm1_port()["reason"], "set down by the administrator");
    let mut vm1 = guest(&fixture.path("vm1"));
    assert_eq!(fixture.execute(&["link", "vm1", "up", "--api", "api"]).code, Some(0));
    fixture.wait_for_link("vm1");
    wait_until("the command is in effect", || {
        added.flush();
        added.send(&header, &frame);
        added.flush();
        vm1.receive(1, |_, _| ()) == 1
    });
    exchange(&mut vm1, &mut added);
}
