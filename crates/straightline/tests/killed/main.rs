//! Kills the switch at each step of giving buffers back, and starts it again. The guests continue,
//! no packet is corrupted, and no buffer is lost.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_switch::api;
use straightline_testing::{PATIENCE, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::vhost_user::FrontendClient;

/// Maximum number of packets in flight. After a kill, the receive ring may have to hold three sets:
/// packets that the kill left there, the same packets again, and new packets. The smallest case has
/// more receive buffers than three times this number, so no packet is dropped for lack of a buffer.
const WINDOW: u64 = 16;

/// Frame lengths, used in turn. Some frames fit into a slot, some have a body, and one is the
/// longest frame.
const LENGTHS: [usize; 5] = [60, 1514, 300, 60, 700];

struct Case {
    packed: bool,
    /// True if the guests listen and the switch connects; false for the opposite.
    client: bool,
    /// True if the guests keep the table of buffers in flight (inflight I/O tracking).
    inflight: bool,
    /// Bytes of a receive buffer in each descriptor; 0 means all.
    split: u32,
    /// Fail point at which the switch is killed, and the number of the visit.
    point: &'static str,
    count: u32,
}

#[test]
fn split_ring() {
    each(false, &["split-element", "split-index", "split-published"], 0);
}

#[test]
fn packed_ring() {
    each(true, &["packed-element", "packed-published"], 0);
}

#[test]
fn packed_ring_of_long_chains() {
    each(true, &["packed-left-out", "packed-element"], 512);
}

fn each(packed: bool, points: &[&'static str], split: u32) {
    for (n, point) in points.iter().enumerate() {
        // Kills early and late in a burst, in the first pass over the rings and in later ones. Both
        // rings reach these fail points.
        for (at, count) in [1, 2, 7, 300, 1111].into_iter().enumerate() {
            let client = (n + at) % 2 == 0;
            let inflight = at % 2 == 0;
            survive(&Case { packed, client, inflight, split, point, count });
        }
    }
}

/// Guest, with the socket that it shares with the switch.
struct Endpoint {
    guest: Guest,
    socket: PathBuf,
    listener: Option<UnixListener>,
}

impl Endpoint {
    fn new(socket: PathBuf, listener: Option<UnixListener>, options: &GuestOptions) -> Endpoint {
        let guest = match &listener {
            Some(listener) => Guest::accept(listener, options),
            None => Guest::connect(&socket, options),
        };
        Endpoint { guest: guest.expect("a guest"), socket, listener }
    }

    fn again(&mut self) {
        match &self.listener {
            Some(listener) => self.guest.accept_again(listener),
            None => self.guest.reconnect(&self.socket),
        }
        .expect("the guest finds the switch again");
    }
}

/// Numbers of the packets sent and of those that arrived.
#[derive(Default)]
struct Traffic {
    sent: u64,
    /// First number sent to the new switch. Packets before it may be lost with the old switch.
    floor: u64,
    arrived: BTreeSet<u64>,
}

impl Traffic {
    /// Sends as many packets as the window allows, and receives, as long as something arrives.
    fn step(&mut self, from: &mut Guest, to: &mut Guest) {
        for _ in 0..64 {
            while self.sent < self.last().max(self.floor) + WINDOW
                && from.send(&NetHeader::default(), &frame(self.sent))
            {
                self.sent += 1;
            }
            from.flush();
            if self.receive(to) == 0 {
                return;
            }
        }
    }

    /// Goes on until all numbers below `end` have arrived, or have been lost before a later one.
    fn run_until(&mut self, what: &str, end: u64, from: &mut Guest, to: &mut Guest, switch: &mut Switch) {
        wait_until(&format!("{what}: packet {} arrives", end - 1), || {
            assert!(!switch.was_killed(), "{what}: the switch was killed");
            self.step(from, to);
            if self.last() < end { Err(self.last()) } else { Ok(()) }
        });
    }

    fn receive(&mut self, to: &mut Guest) -> usize {
        let level = to.level();
        let Traffic { arrived, sent, .. } = self;
        to.receive(64, |_, segments| {
            let mut bytes = vec![0; segments.iter().map(|segment| segment.len() as usize).sum()];
            let mut at = 0;
            for segment in segments {
                at += segment.read(level, &mut bytes[at..]);
            }
            // The buffer has no frame: the killed switch had not yet written the packet's length.
            if bytes.is_empty() {
                return;
            }
            let number = bytes.get(14..22).map_or(u64::MAX, |n| u64::from_be_bytes(n.try_into().expect("8 bytes")));
            assert!(number < *sent, "a packet that was not sent: {number}");
            assert!(bytes == frame(number), "packet {number} is corrupted");
            arrived.insert(number);
        })
    }

    /// Returns the number after the highest that arrived.
    fn last(&self) -> u64 {
        self.arrived.last().map_or(0, |last| last + 1)
    }
}

/// Returns the frame of this number. Every byte follows from the number.
fn frame(number: u64) -> Vec<u8> {
    let len = LENGTHS[usize::try_from(number).expect("small") % LENGTHS.len()];
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.extend(number.to_be_bytes());
    let seed = number.to_le_bytes();
    bytes.extend((bytes.len()..len).map(|i| seed[i % 2].wrapping_mul(31).wrapping_add(i.to_le_bytes()[0])));
    bytes
}

fn survive(case: &Case) {
    let &Case { packed, client, inflight, split, point, count } = case;
    let what = format!("{point}:{count}, client {client}, inflight {inflight}, split {split}");
    let dir = tempfile::tempdir().expect("a folder");
    let sockets = ["a", "b"].map(|name| dir.path().join(name));
    let listeners = sockets.clone().map(|socket| client.then(|| UnixListener::bind(socket).expect("listen")));
    let mode = if client { "client" } else { "server" };
    let port = |name: &str, socket: &Path| {
        let socket = socket.display();
        format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{socket}\"\nmode = \"{mode}\"\n")
    };
    let patch = "[patch.p]\nports = [\"a\", \"b\"]\n";
    // No seccomp filter: with it the switch could not send the signal that kills it.
    let sandbox = "[switch]\nsandbox = [\"capabilities\", \"landlock\"]\n".to_owned();
    let config = sandbox + &port("a", &sockets[0]) + &port("b", &sockets[1]) + patch;
    fs::write(dir.path().join("switch.toml"), config).expect("the configuration");

    let mut switch = Switch::start(dir.path(), Some(&format!("{point}:{count}")));
    let layout = if packed { f::VIRTIO_F_RING_PACKED } else { 0 };
    let features = GuestOptions::default().features | layout;
    let options = GuestOptions { features, keep_inflight: inflight, receive_split: split, ..GuestOptions::default() };
    let [mut b, mut a] = {
        let [to_a, to_b] = listeners;
        let [at_a, at_b] = sockets;
        // The receiver connects first, so that every packet sent has a destination.
        [Endpoint::new(at_b, to_b, &options), Endpoint::new(at_a, to_a, &options)]
    };
    assert_eq!(a.guest.features() & f::VIRTIO_F_RING_PACKED, layout);

    let mut traffic = Traffic::default();
    wait_until(&format!("{what}: the switch is killed"), || {
        traffic.step(&mut a.guest, &mut b.guest);
        switch.was_killed()
    });
    drop(switch);
    let mut switch = Switch::start(dir.path(), None);
    b.again();
    a.again();

    // The new switch must wake a driver that waits for a call which the killed switch did not send.
    let call = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
    b.guest.client().set_vring_call(Ring::Receive as u16, Some(call.as_fd())).expect("its call");
    rustix::io::read(&call, &mut [0; 8]).expect("the call was sent");

    traffic.floor = traffic.sent;
    traffic.run_until(&what, traffic.floor + 1000, &mut a.guest, &mut b.guest, &mut switch);
    // From here on the receiver does not offer used buffers again. Every receive buffer must come
    // back with a packet, and every transmit buffer must be free once all packets are sent.
    b.guest.withhold(true);
    let ring = usize::from(options.ring_size);
    let buffers = options.buffer_len.checked_div(split).map_or(ring, |parts| ring / parts as usize);
    let mut sent = 0;
    wait_until(&format!("{what}: the guests have {ring} receive and transmit buffers"), || {
        if sent < 2 * buffers && a.guest.send(&NetHeader::default(), &frame(traffic.sent)) {
            traffic.sent += 1;
            sent += 1;
        }
        a.guest.flush();
        traffic.receive(&mut b.guest);
        // Looking for a free buffer also takes back the used buffers.
        a.guest.next_buffer();
        let found = (b.guest.kept(), a.guest.spare());
        if found == (ring, ring) { Ok(()) } else { Err(found) }
    });
    // Only packets that the killed switch held are lost.
    let lost = (0..traffic.floor).filter(|number| !traffic.arrived.contains(number)).count() as u64;
    assert!(lost <= WINDOW, "{what}: {lost} packets were lost");
    let after = (traffic.floor..traffic.floor + 1000).filter(|number| !traffic.arrived.contains(number)).count();
    assert_eq!(after, 0, "{what}: lost packets that were sent to the new switch");
}

/// Starts a switch with two ports and an API that panics at the fail point `at`.
fn with_panic(at: &str) -> (tempfile::TempDir, Switch) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let port = |name: &str| format!("[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{}\"\n", path(name));
    let config = format!("[switch]\napi = \"{}\"\n", path("api")) + &port("a") + &port("b");
    fs::write(dir.path().join("switch.toml"), config + "[patch.p]\nports = [\"a\", \"b\"]\n").expect("written");
    let switch = Switch::with(dir.path(), Some(("STRAIGHTLINE_PANIC", at)));
    (dir, switch)
}

#[test]
fn a_worker_that_panics_ends_the_process_with_an_error() {
    let (dir, mut switch) = with_panic("split-published:1");
    let [mut a, _b] = ["a", "b"].map(|name| Guest::connect(&dir.path().join(name), &GuestOptions::default()).unwrap());
    assert!(a.send(&NetHeader::default(), &frame(0)));
    a.flush();
    let status = wait_until("the switch ends with its worker", || switch.0.try_wait().expect("its state"));
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(["a", "b", "api"].iter().all(|name| !dir.path().join(name).exists()), "sockets are left behind");
}

/// Waits until the reason that `ports` shows for port a has these words.
fn wait_for_reason(folder: &Path, words: &str) {
    wait_until(&format!("the reason is that {words}"), || {
        let ports: api::Ports = api::ask(&folder.join("api")).expect("an answer");
        let reason = ports.ports[0].reason.clone().unwrap_or_default();
        if reason.contains(words) { Ok(()) } else { Err(reason) }
    });
}

#[test]
fn a_port_whose_thread_ends_by_a_panic_refuses_whoever_comes() {
    let (dir, _switch) = with_panic("port-left:1");
    drop(Guest::connect(&dir.path().join("a"), &GuestOptions::default()).expect("a guest"));
    let words = "only a restart brings it back: a bug of the switch: the fail point port-left";
    wait_for_reason(dir.path(), words);
    assert!(FrontendClient::connect(dir.path().join("a")).is_err(), "nobody would answer");
    FrontendClient::connect(dir.path().join("b")).expect("connect").get_features().expect("the other one serves");
}

#[test]
fn a_port_whose_thread_panics_leaves_its_frontend_and_serves_the_next() {
    let (dir, mut switch) = with_panic("port-message:1");
    let mut first = FrontendClient::connect(dir.path().join("a")).expect("connect");
    first.set_timeout(Some(PATIENCE)).expect("a timeout");
    let refused = first.get_features().expect_err("nobody is there to answer").to_string();
    assert!(refused.contains("closed the connection"), "the frontend was left waiting: {refused}");
    wait_for_reason(dir.path(), "a bug of the switch: the fail point port-message");
    // The other port was not affected, and the next frontend at this port is served.
    let [mut a, mut b] =
        ["a", "b"].map(|name| Guest::connect(&dir.path().join(name), &GuestOptions::default()).unwrap());
    Traffic::default().run_until("the next frontend", 100, &mut a, &mut b, &mut switch);
}

struct Switch(Child);

impl Switch {
    fn start(folder: &Path, kill: Option<&str>) -> Switch {
        Switch::with(folder, kill.map(|at| ("STRAIGHTLINE_KILL", at)))
    }

    fn with(folder: &Path, variable: Option<(&str, &str)>) -> Switch {
        let mut command = Command::new(env!("CARGO_BIN_EXE_straightline"));
        command.args(["run", "switch.toml"]).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env_remove("STRAIGHTLINE_KILL").env_remove("STRAIGHTLINE_PANIC").envs(variable);
        let mut switch = Switch(command.spawn().expect("the switch"));
        let stdout = switch.0.stdout.take().expect("its output");
        let ready = BufReader::new(stdout).lines().any(|line| line.is_ok_and(|line| line == "ready"));
        assert!(ready, "the switch did not get ready");
        switch
    }

    /// Returns whether the switch has ended. It must have ended by SIGKILL.
    fn was_killed(&mut self) -> bool {
        let ended = self.0.try_wait().expect("its state");
        if let Some(status) = ended {
            assert_eq!(status.signal(), Some(9), "{status}");
        }
        ended.is_some()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
