//! The testbed of tunnels: A - t1@left - wire - right@t2 - B. All four ends are vhost-user ports of
//! one switch or of two, and the wire is a thread that passes frames between two guests. Strangers
//! send frames of their own on the wire.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use straightline_config::{Config, Machine};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{self, Link};
use straightline_switch::{StartOptions, Switch};
use straightline_virtio::net_header::NetHeader;

use crate::{arrived, pause, send, wait_for_threads, wait_turns, wait_until};

/// The IPv4 addresses of the two ends.
pub const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// The IPv6 addresses of the two ends.
pub const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

/// Reasons of drops that underlays cause by themselves: they ask for their neighbours before all rings of
/// the wire run and have buffers, and tell stations about their addresses that need not know.
pub const OWN_DROPS: [&str; 4] = ["link-down", "ring-disabled", "no-buffer", "not-ours"];

/// Most frames of strangers that wait for the wire.
const MOST_WAITING: usize = 256;

/// An end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end at A.
    Left,
    /// The end at B.
    Right,
}

/// Frames that strangers send, each to an end of the wire.
type Strange = VecDeque<(End, Vec<u8>)>;

/// A switch with two underlays that a wire connects.
pub struct Net {
    /// The switch, or that of the left end.
    pub switch: Switch,
    /// The switch of the right end, if it is another one.
    far: Option<Switch>,
    /// The guest A.
    pub a: Guest,
    /// The guest B.
    pub b: Guest,
    wire: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// The number of times that the wire has passed on what both ends had sent.
    rounds: Arc<AtomicU64>,
    /// The wire loses all frames while this is set.
    pub cut: Arc<AtomicBool>,
    /// Frames that passed the wire from one end to the other.
    pub seen: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Frames that strangers send to an end.
    strange: Arc<Mutex<Strange>>,
    /// The folder of the sockets.
    pub dir: tempfile::TempDir,
}

/// Returns the configuration of a switch whose tunnels have these keys at the left and right end.
pub fn text(dir: &std::path::Path, ends: [&str; 2], left: &str, right: &str) -> String {
    let mut text = String::new();
    for port in ["a", "left", "right", "b"] {
        let socket = dir.join(port);
        // The headers of tunnels need room: packets inside have 1500 bytes.
        let mtu = if matches!(port, "left" | "right") { 1600 } else { 1500 };
        writeln!(text, "[port.{port}]\nkind = \"vhost-user\"\nsocket = {socket:?}\nmtu = {mtu}").expect("text");
    }
    for (name, ip) in [("left", 1), ("right", 2)] {
        let addresses = format!("\"192.0.2.{ip}/24\", \"2001:db8::{ip}/64\"");
        writeln!(text, "[underlay.{name}]\nport = {name:?}\naddress = [{addresses}]").expect("text");
    }
    for (name, underlay, remote, keys) in [("t1", "left", ends[1], left), ("t2", "right", ends[0], right)] {
        writeln!(text, "[port.{name}]\nunderlay = {underlay:?}\nremote = {remote:?}\nmtu = 1500\n{keys}")
            .expect("text");
    }
    text += "[patch.one]\nports = [\"a\", \"t1\"]\n[patch.two]\nports = [\"t2\", \"b\"]\n";
    text
}

/// Reads a configuration, which must be right and without warnings.
pub fn config(text: &str) -> Config {
    let loaded = Config::parse("f.toml", text, &Machine::this()).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(loaded.warnings.is_empty(), "{:?}\n{text}", loaded.warnings);
    loaded.config
}

impl Net {
    /// Starts a switch whose tunnels have these keys at the left and right end.
    pub fn start(ends: [&str; 2], left: &str, right: &str) -> Net {
        let net = Self::start_cut(ends, left, right);
        net.cut.store(false, Ordering::Relaxed);
        net
    }

    /// Starts with a wire that loses all frames.
    pub fn start_cut(ends: [&str; 2], left: &str, right: &str) -> Net {
        let dir = tempfile::tempdir().expect("a folder");
        let text = text(dir.path(), ends, left, right);
        Self::with_text(dir, &text)
    }

    /// Starts a switch of two workers for each end. The vhost-user ports have several queue pairs.
    pub fn start_with_workers(ends: [&str; 2], keys: &str, options: &GuestOptions) -> Net {
        let dir = tempfile::tempdir().expect("a folder");
        let queues = format!("kind = \"vhost-user\"\nqueues = {}", options.queue_pairs);
        let text = text(dir.path(), ends, keys, keys).replace("kind = \"vhost-user\"", &queues);
        let both = config(&format!("[switch]\nworkers = [0, 1]\n{text}"));
        let end = |ports: [&str; 3]| {
            let mut config = both.clone();
            config.ports.retain(|port| ports.contains(&&*port.name));
            config.underlays.retain(|underlay| ports.contains(&&*underlay.port));
            config.patches.retain(|patch| ports.contains(&&*patch.ports[0]));
            Switch::start(&config).expect("a switch")
        };
        let net = Self::connect(dir, end(["a", "left", "t1"]), Some(end(["b", "right", "t2"])), options, |_| true);
        net.cut.store(false, Ordering::Relaxed);
        net
    }

    /// Starts a configuration with the ports `a`, `b`, `left` and `right`, and a wire that loses all
    /// frames.
    pub fn with_text(dir: tempfile::TempDir, text: &str) -> Net {
        Self::keeping(dir, text, |_| true)
    }

    /// Starts as [`Net::with_text`] does, with a switch that has this clock.
    pub fn by(clock: &Clock, dir: tempfile::TempDir, text: &str) -> Net {
        let options = StartOptions { clock: clock.clone(), ..StartOptions::default() };
        let switch = Switch::start_by(&config(text), options).expect("a switch");
        wait_for_threads(clock);
        Self::connect(dir, switch, None, &GuestOptions::default(), |_| true)
    }

    /// Starts as [`Net::with_text`] does. The net keeps only some of the frames that pass the wire.
    pub fn keeping(dir: tempfile::TempDir, text: &str, keeps: fn(&[u8]) -> bool) -> Net {
        let switch = Switch::start(&config(text)).expect("a switch");
        Self::connect(dir, switch, None, &GuestOptions::default(), keeps)
    }

    /// Connects guests and a wire that loses all frames. The wire joins queue pairs of the same
    /// number.
    fn connect(
        dir: tempfile::TempDir,
        switch: Switch,
        far: Option<Switch>,
        options: &GuestOptions,
        keeps: fn(&[u8]) -> bool,
    ) -> Net {
        let guest = |port: &str| Guest::connect(&dir.path().join(port), options).expect("a guest");
        let a = guest("a");
        let b = guest("b");
        let mut ends = [guest("left"), guest("right")];
        let stop = Arc::<AtomicBool>::default();
        let rounds = Arc::<AtomicU64>::default();
        let cut = Arc::new(AtomicBool::new(true));
        let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let strange: Arc<Mutex<Strange>> = Arc::default();
        let wire = {
            let stop = Arc::clone(&stop);
            let rounds = Arc::clone(&rounds);
            let cut = Arc::clone(&cut);
            let seen = Arc::clone(&seen);
            let strange = Arc::clone(&strange);
            let pairs = usize::from(options.queue_pairs);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for (from, pair) in (0..2).flat_map(|from| (0..pairs).map(move |pair| (from, pair))) {
                        for (header, frame) in arrived(&mut ends[from].pairs()[pair]) {
                            if cut.load(Ordering::Relaxed) {
                                continue;
                            }
                            let to = &mut ends[1 - from].pairs()[pair];
                            wait_until("the wire has a free buffer", || {
                                // Only a flush takes used buffers back.
                                let is_sent = to.send(&header, &frame);
                                to.flush();
                                is_sent
                            });
                            if keeps(&frame) {
                                seen.lock().expect("the frames").push(frame);
                            }
                        }
                    }
                    pass_strange(&mut strange.lock().expect("the frames"), &mut ends);
                    rounds.fetch_add(1, Ordering::Release);
                    pause();
                }
            })
        };
        Net { switch, far, a, b, wire: Some(wire), stop, rounds, cut, seen, strange, dir }
    }

    /// Sends a frame of a stranger to an end of the wire, as fast as that end takes frames. It does
    /// not wait until the frame has arrived.
    pub fn inject(&self, end: End, frame: Vec<u8>) {
        let waiting = || self.strange.lock().expect("the frames");
        wait_until("the wire takes a stranger's frame", || waiting().len() < MOST_WAITING);
        waiting().push_back((end, frame));
    }

    /// Waits until both ends have all frames of strangers.
    pub fn all_injected(&self) {
        wait_until("the frames of strangers are on the wire", || self.strange.lock().expect("the frames").is_empty());
    }

    /// Waits until all packets that guests and strangers had sent before the call have passed the wire
    /// and arrived, or were dropped.
    pub fn settle(&self) {
        self.all_injected();
        self.wait_turns();
        let rounds = || self.rounds.load(Ordering::Acquire);
        let before = rounds();
        // One round may have been under way at the call.
        wait_until("the wire has passed on all packets", || rounds() >= before + 2);
        self.wait_turns();
    }

    /// Waits until each worker has ended a turn that began after the call.
    fn wait_turns(&self) {
        self.a.kick_anyway();
        self.b.kick_anyway();
        self.switches().for_each(wait_turns);
    }

    /// Returns the switch, or the switches of both ends.
    pub fn switches(&self) -> impl Iterator<Item = &Switch> {
        [Some(&self.switch), self.far.as_ref()].into_iter().flatten()
    }

    /// Returns the state and the counters of a port.
    pub fn port(&self, name: &str) -> api::Port {
        let mut ports = self.switches().flat_map(|switch| switch.source().ports().ports);
        ports.find(|port| port.name == name).expect("the port")
    }

    /// Waits until both tunnels are up.
    pub fn wait_up(&self) {
        wait_until("the tunnels are up", || ["t1", "t2"].iter().all(|name| self.port(name).link == Link::Up));
    }

    /// Returns the counters, the next hops and the frames on the wire in words.
    pub fn state(&self) -> String {
        state(&self.switch, &self.seen)
    }

    /// Returns the drops of all ports by reason.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        self.switch.source().drops().drops.into_iter().map(|drop| (drop.reason, drop.count)).collect()
    }

    /// Waits for a frame at B.
    pub fn take_at_b(&mut self) -> Vec<u8> {
        wait_until("a frame has arrived at B", || {
            arrived(&mut self.b).pop().ok_or_else(|| state(&self.switch, &self.seen))
        })
        .1
    }

    /// Sends a frame in each direction and checks that it arrives unchanged.
    pub fn exchange(&mut self, frame: &[u8]) {
        for (from, to) in [("a", "b"), ("b", "a")] {
            let (one, other) = if from == "a" { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
            send(one, frame);
            let got = wait_until(&format!("the frame from {from} has arrived at {to}"), || {
                let got = arrived(other);
                if got.is_empty() { Err(state(&self.switch, &self.seen)) } else { Ok(got) }
            });
            assert_eq!((got.len(), got[0].1.as_slice()), (1, frame), "from {from} to {to}");
        }
    }
}

/// Returns the counters and the next hops of a switch, and the frames on the wire, in words.
fn state(switch: &Switch, seen: &Mutex<Vec<Vec<u8>>>) -> String {
    let source = switch.source();
    let ports = api::table::ports(&source.ports()) + &api::table::neighbours(&source.neighbours());
    seen.lock().expect("the frames").iter().fold(ports, |text, frame| format!("{text}{frame:02x?}\n"))
}

/// Passes frames of strangers as long as the ends have free buffers for them. The frames of the ends
/// themselves never wait for those of strangers.
fn pass_strange(waiting: &mut Strange, ends: &mut [Guest; 2]) {
    while let Some((end, frame)) = waiting.front() {
        if !ends[*end as usize].send(&NetHeader::default(), frame) {
            break;
        }
        waiting.pop_front();
    }
    ends.iter_mut().for_each(|end| end.flush());
}

impl Drop for Net {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(wire) = self.wire.take() {
            let ended = wire.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the wire's thread");
        }
    }
}
