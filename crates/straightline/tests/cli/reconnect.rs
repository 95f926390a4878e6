//! Tests with frontends that connect again at the moment in which their connection ends, as Cloud
//! Hypervisor does. Such a frontend gives up for good if its new connection ends in the handshake.
//! So it must never reach the listener of a port that is about to end.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use straightline_testing::wait_until;

use super::run::Running;
use super::{Fixture, our_uid};

const PORTS: usize = 5;
const ROUNDS: usize = 10;

/// The request for features: number 1, version 1, no payload.
const GET_FEATURES: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Bytes of the answer: a header and 64 bits.
const ANSWER_BYTES: usize = 12 + 8;

/// A frontend that connects again without any pause.
struct Frontend {
    has_ended: Arc<AtomicBool>,
    handshakes: Arc<AtomicU32>,
    thread: JoinHandle<u32>,
}

impl Frontend {
    fn start(socket: PathBuf) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let handshakes = Arc::new(AtomicU32::new(0));
        let ended = Arc::clone(&has_ended);
        let done = Arc::clone(&handshakes);
        let thread = thread::spawn(move || {
            let mut broken = 0;
            while !ended.load(Ordering::Relaxed) {
                // The path is free, or nobody listens: try again.
                let Ok(mut stream) = UnixStream::connect(&socket) else { continue };
                if shake_hands(&mut stream).is_ok() {
                    done.fetch_add(1, Ordering::Relaxed);
                    // Until the connection ends.
                    let _ = stream.read(&mut [0]);
                } else {
                    broken += 1;
                }
            }
            broken
        });
        Self { has_ended, handshakes, thread }
    }

    fn wait_for_handshakes(&self, number: u32) {
        wait_until("the frontend comes to the port", || {
            let done = self.handshakes.load(Ordering::Relaxed);
            if done < number { Err(format!("{done} of {number} handshakes")) } else { Ok(()) }
        });
    }

    /// Ends the frontend, after the switch has ended. Returns the number of connections that ended
    /// in the handshake.
    fn broken(self) -> u32 {
        self.has_ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn shake_hands(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(&GET_FEATURES)?;
    stream.read_exact(&mut [0; ANSWER_BYTES])
}

/// Returns a configuration of ports. Another process makes the sockets of some if this user may give
/// them away.
fn config(queues: u32) -> String {
    let owner = if our_uid() == 0 { "owner = \"1\"\n" } else { "" };
    let port = |port| {
        let owner = if port % 2 == 0 { owner } else { "" };
        format!("[port.vm{port}]\nkind = \"vhost-user\"\nsocket = \"@/vm{port}\"\nqueues = {queues}\n{owner}")
    };
    let ports: String = (0..PORTS).map(port).collect();
    let names: Vec<_> = (0..PORTS).map(|port| format!("\"vm{port}\"")).collect();
    format!("[switch]\napi = \"@/api\"\n{ports}[bridge.lan]\nports = [{}]\n", names.join(", "))
}

fn frontends(folder: &Path) -> Vec<Frontend> {
    let all: Vec<_> = (0..PORTS).map(|port| Frontend::start(folder.join(format!("vm{port}")))).collect();
    all.iter().for_each(|frontend| frontend.wait_for_handshakes(1));
    all
}

/// Ends a switch again and again. Returns the number of connections that ended in the handshake.
fn broken_at(signal: &str) -> u32 {
    let mut broken = 0;
    for _ in 0..ROUNDS {
        let fixture = Fixture::new();
        fixture.write(&config(1));
        let running = Running::start(&fixture);
        let frontends = frontends(&fixture.path("."));
        running.signal(signal);
        running.finish();
        broken += frontends.into_iter().map(Frontend::broken).sum::<u32>();
    }
    broken
}

#[test]
fn a_switch_that_ends_takes_no_connection_more() {
    assert_eq!(broken_at("TERM"), 0);
}

#[test]
fn a_switch_that_is_killed_takes_no_connection_more() {
    assert_eq!(broken_at("KILL"), 0);
}

#[test]
fn a_port_that_a_reload_makes_anew_takes_no_connection_more() {
    let fixture = Fixture::new();
    fixture.write(&config(1));
    let running = Running::start(&fixture);
    let frontends = frontends(&fixture.path("."));
    for round in 0..u32::try_from(ROUNDS).unwrap() {
        fixture.write(&config(2 - round % 2));
        let reload = fixture.execute(&["reload", "--api", "api"]);
        assert!(reload.code == Some(0) && reload.out.contains("made anew"), "{reload:?}");
        frontends.iter().for_each(|frontend| frontend.wait_for_handshakes(2 + round));
    }
    running.signal("TERM");
    running.finish();
    assert_eq!(frontends.into_iter().map(Frontend::broken).sum::<u32>(), 0);
}

/// Waits until a program has closed its listener at `path`. It does so once the switch has answered,
/// and a frontend may be served before.
fn wait_until_closed(program: u32, path: &str) {
    let holds = || {
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let inodes: Vec<_> = lines
            .filter(|fields| fields.get(7).is_some_and(|bound| bound.ends_with(path)))
            .map(|fields| format!("socket:[{}]", fields[6]))
            .collect();
        let descriptors = fs::read_dir(format!("/proc/{program}/fd")).unwrap();
        let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| inodes.iter().any(|inode| target == Path::new(inode)))
    };
    wait_until("the program closes its listener", || !holds());
}

/// Has a program make the port of a frontend, and ends the switch or the program. Returns the number
/// of connections that ended in the handshake.
fn broken_at_program(ends: &str, signal: &str) -> u32 {
    let mut broken = 0;
    for _ in 0..ROUNDS {
        let fixture = Fixture::new();
        fixture.write(&config(1));
        let running = Running::start(&fixture);
        let args = ["port", "--api", "api", "--join", "lan", "--socket-path", "vm"];
        let mut program = fixture.command(&args).stderr(Stdio::null()).spawn().unwrap();
        let frontend = Frontend::start(fixture.path("vm"));
        frontend.wait_for_handshakes(1);
        wait_until_closed(program.id(), "vm");
        if ends == "switch" {
            running.signal(signal);
            running.finish();
            program.wait().unwrap();
        } else {
            let sent = Command::new("kill").args(["-s", signal, &program.id().to_string()]).status().unwrap();
            assert!(sent.success());
            program.wait().unwrap();
            running.signal("TERM");
            running.finish();
        }
        broken += frontend.broken();
    }
    broken
}

#[test]
fn a_port_of_a_program_takes_no_connection_more_when_the_switch_ends() {
    assert_eq!(broken_at_program("switch", "TERM"), 0);
}

#[test]
fn a_port_of_a_program_takes_no_connection_more_when_the_switch_is_killed() {
    assert_eq!(broken_at_program("switch", "KILL"), 0);
}

#[test]
fn a_port_of_a_program_takes_no_connection_more_when_the_program_ends() {
    assert_eq!(broken_at_program("program", "TERM"), 0);
}
