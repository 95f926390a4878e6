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
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_switch::api;
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::vhost_user::FrontendClient;

/// Time limit of a test. Only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Sends as many packets as the window allows, and receives once.
    fn step(&mut self, from: &mut Guest, to: &mut Guest) {
        while self.sent < self.last().max(self.floor) + WINDOW && from.send(&NetHeader::default(), &frame(self.sent)) {
            self.sent += 1;
        }
        from.flush();
        if self.receive(to) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
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
    let end = Instant::now() + PATIENCE;
    while !switch.was_killed() {
        assert!(Instant::now() < end, "{what}: the switch was not killed");
        traffic.step(&mut a.guest, &mut b.guest);
    }
    drop(switch);
    let mut switch = Switch::start(dir.path(), None);
    b.again();
    a.again();

    // The new switch must wake a driver that waits for a call which the killed switch did not send.
    let call = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
    b.guest.client().set_vring_call(Ring::Receive as u16, Some(call.as_fd())).expect("its call");
    rustix::io::read(&call, &mut [0; 8]).expect("the call was sent");

    traffic.floor = traffic.sent;
    while traffic.last() < traffic.floor + 1000 {
        assert!(Instant::now() < end, "{what}: traffic does not go on after {}", traffic.last());
        assert!(!switch.was_killed(), "{what}: killed again");
        traffic.step(&mut a.guest, &mut b.guest);
    }
    // From here on the receiver does not offer used buffers again. Every receive buffer must come
    // back with a packet, and every transmit buffer must be free once all packets are sent.
    b.guest.withhold(true);
    let ring = usize::from(options.ring_size);
    let buffers = options.buffer_len.checked_div(split).map_or(ring, |parts| ring / parts as usize);
    let mut sent = 0;
    let mut free = 0;
    while (b.guest.kept(), free) != (ring, ring) {
        assert!(Instant::now() < end, "{what}: {} receive and {free} transmit buffers of {ring}", b.guest.kept());
        if sent < 2 * buffers && a.guest.send(&NetHeader::default(), &frame(traffic.sent)) {
            traffic.sent += 1;
            sent += 1;
        }
        a.guest.flush();
        traffic.receive(&mut b.guest);
        // Looking for a free buffer also takes back the used buffers.
        a.guest.next_buffer();
        free = a.guest.spare();
    }
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
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = switch.0.try_wait().expect("its state") {
            break status;
        }
        assert!(Instant::now() < end, "the switch goes on without its worker");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(["a", "b", "api"].iter().all(|name| !dir.path().join(name).exists()), "sockets are left behind");
}

/// Returns the reason that `ports` shows for port a.
fn reason(folder: &Path) -> String {
    let ports: api::Ports = api::ask(&folder.join("api")).expect("an answer");
    ports.ports[0].reason.clone().unwrap_or_default()
}

#[test]
fn a_port_whose_thread_ends_by_a_panic_refuses_whoever_comes() {
    let (dir, _switch) = with_panic("port-left:1");
    drop(Guest::connect(&dir.path().join("a"), &GuestOptions::default()).expect("a guest"));
    let end = Instant::now() + PATIENCE;
    while !reason(dir.path()).contains("only a restart brings it back: a bug of the switch: the fail point port-left") {
        assert!(Instant::now() < end, "{}", reason(dir.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
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
    let end = Instant::now() + PATIENCE;
    while !reason(dir.path()).contains("a bug of the switch: the fail point port-message") {
        assert!(Instant::now() < end, "{}", reason(dir.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
    // The other port was not affected, and the next frontend at this port is served.
    let [mut a, mut b] =
        ["a", "b"].map(|name| Guest::connect(&dir.path().join(name), &GuestOptions::default()).unwrap());
    let mut traffic = Traffic::default();
    while traffic.last() < 100 {
        assert!(Instant::now() < end && !switch.was_killed(), "no traffic");
        traffic.step(&mut a, &mut b);
    }
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
