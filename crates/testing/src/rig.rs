//! A switch with guests, and a pair of guests whose traffic nothing else may disturb.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use straightline_config::{BridgeConfig, Config, PatchConfig, PortConfig, VhostUserConfig, WhenFull};
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions, Pair, Sequence, Stream};
use straightline_switch::api::{EventKind, Link, Port};
use straightline_switch::{StartOptions, Switch};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;

use crate::{Answer, wait_until};

/// The features that every guest here negotiates.
pub const BASIC: u64 = f::VIRTIO_F_VERSION_1;

/// The largest possible frames.
pub const ANY_LEN: u16 = 65_532;

/// A switch in a folder of its own.
pub struct Rig {
    /// The running switch.
    pub switch: Switch,
    /// The clock of the switch.
    pub clock: Clock,
    sockets: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

/// Ports `p0`, `p1`, ...; `connect` connects them.
pub fn rig(ports: usize, connect: impl FnOnce(&mut Config)) -> Rig {
    rig_by(ports, &Clock::real(), connect)
}

/// A rig as [`rig`] makes it, whose control code has this clock.
pub fn rig_by(ports: usize, clock: &Clock, connect: impl FnOnce(&mut Config)) -> Rig {
    let dir = tempfile::tempdir().expect("a folder");
    let sockets: Vec<_> = (0..ports).map(|n| dir.path().join(format!("p{n}"))).collect();
    let mut config = Config {
        ports: sockets.iter().enumerate().map(|(n, s)| PortConfig::vhost_user(format!("p{n}"), s)).collect(),
        ..Config::default()
    };
    connect(&mut config);
    let options = StartOptions { clock: clock.clone(), ..StartOptions::default() };
    let switch = Switch::start_by(&config, options).expect("a switch");
    wait_for_threads(clock);
    Rig { switch, clock: clock.clone(), sockets, _dir: dir }
}

/// Waits until the threads of a switch that look again and again wait by its clock. From then on, each
/// move of the clock waits for their looks.
pub(crate) fn wait_for_threads(clock: &Clock) {
    wait_until("the switch waits by its clock", || ["events", "watchdog"].iter().all(|thread| clock.waits(thread)));
}

/// A patch between two ports.
pub fn patch(a: usize, b: usize) -> PatchConfig {
    PatchConfig { name: format!("{a}-{b}"), ports: [format!("p{a}"), format!("p{b}")], full: WhenFull::Drop }
}

/// A bridge of all ports from 0 to `n`.
pub fn bridge(n: usize) -> BridgeConfig {
    BridgeConfig { limit: 64, ..BridgeConfig::new("lan", (0..n).map(|p| format!("p{p}")).collect()) }
}

/// The configuration of a vhost-user port.
pub fn vhost_user(port: &mut PortConfig) -> &mut VhostUserConfig {
    port.kind.as_vhost_user_mut().expect("a vhost-user port")
}

impl Rig {
    /// Returns the socket of a port.
    pub fn socket(&self, port: usize) -> &PathBuf {
        &self.sockets[port]
    }

    /// Moves the clock, and waits until each worker has begun a turn by the new time: packets that are
    /// sent from then on have it.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
        let turns = || self.switch.source().runtime().workers.into_iter().map(|worker| worker.turns);
        let before: Vec<_> = turns().collect();
        // The next turn may have begun before.
        wait_until("the workers have begun a turn", || turns().zip(&before).all(|(now, before)| now >= before + 2));
    }

    /// Connects a guest at a port.
    pub fn guest(&self, port: usize, options: &GuestOptions) -> Guest {
        Guest::connect(self.socket(port), options).expect("a guest")
    }

    /// Returns the state and the counters of a port.
    pub fn port(&self, port: usize) -> Port {
        self.switch.source().ports().ports.swap_remove(port)
    }

    /// Returns the number of packets that a port has dropped for `reason`.
    pub fn drops(&self, port: usize, reason: &str) -> u64 {
        self.port(port).drops.get(reason).copied().unwrap_or(0)
    }

    /// Waits until the port has counted `n` drops for `reason`.
    pub fn wait_drops(&self, port: usize, reason: &str, n: u64) {
        wait_until(&format!("there are {n} drops as {reason}"), || {
            let now = self.port(port);
            if now.drops.get(reason).is_some_and(|count| *count >= n) { Ok(()) } else { Err(Box::new(now)) }
        });
        assert_eq!(self.drops(port, reason), n, "{reason}");
    }

    /// Waits until the port is down for a reason with these words in it.
    pub fn wait_down(&self, port: usize, words: &str) {
        let down = wait_until(&format!("the port is down because of {words}"), || {
            let now = Box::new(self.port(port));
            let is_it = now.link == Link::Down && now.reason.as_deref().is_some_and(|why| why.contains(words));
            if is_it { Ok(now) } else { Err(Box::new(now)) }
        });
        assert!(down.cause.is_some() && down.remedy.is_some(), "a reason without a remedy: {down:?}");
    }

    /// Waits until the link of a port is up.
    pub fn wait_up(&self, port: usize) {
        wait_until("the link is up", || {
            let now = self.port(port);
            if now.link == Link::Up { Ok(()) } else { Err(Box::new(now)) }
        });
    }

    /// Checks that no port has dropped a packet.
    pub fn no_drops(&self) {
        let drops = self.switch.source().drops().drops;
        assert!(drops.is_empty(), "{drops:?}");
    }
}

/// Waits for an event of this kind of the switch.
pub fn wait_event(switch: &Switch, what: &str, is_so: impl Fn(&EventKind) -> bool) {
    let source = switch.source();
    wait_until(what, || source.events(0).events.iter().any(|event| is_so(&event.kind)));
}

/// Moves a clock in such steps until the event has come, and returns its value. For an effect of a timer
/// that another thread begins, so that nobody knows when it ends.
#[track_caller]
pub fn wait_moving<A: Answer>(clock: &Clock, step: Duration, what: &str, mut ask: impl FnMut() -> A) -> A::Value {
    wait_until(what, || {
        clock.advance(step);
        ask()
    })
}

/// Waits until each worker has ended a turn that began after the call. By then the switch has handled
/// all packets that its guests had sent before: it has delivered or dropped them, or left them in their
/// ring.
pub fn wait_turns(switch: &Switch) {
    let source = switch.source();
    let turns = || source.runtime().workers.into_iter().map(|worker| worker.turns).collect::<Vec<_>>();
    let before = turns();
    wait_until("each worker has ended another turn", || {
        // One turn may have been under way at the call. A worker that sleeps wakes once a second.
        turns().iter().zip(&before).all(|(now, before)| *now >= before + 2)
    });
}

/// Waits until all workers have handled what guests had sent before the call, and sleep.
pub fn wait_asleep(switch: &Switch) {
    wait_turns(switch);
    let source = switch.source();
    wait_until("all workers sleep", || {
        let workers = source.runtime().workers;
        if workers.iter().all(|worker| worker.is_asleep) { Ok(()) } else { Err(workers) }
    });
}

/// Lets other threads run: there may be fewer CPUs than threads.
pub fn pause() {
    // The time is the subject: no event tells that others have run.
    std::thread::sleep(Duration::from_micros(50));
}

/// Waits until the driver has all buffers of its transmit ring back.
pub fn wait_all_back(pair: &mut Pair) {
    wait_until("the guest has its buffers back", || {
        pair.flush();
        pair.spare() == 256
    });
}

/// Returns everything that has arrived.
pub fn arrived(pair: &mut Pair) -> Vec<(NetHeader, Vec<u8>)> {
    let level = pair.level();
    let mut packets = Vec::new();
    pair.receive(usize::MAX, |header, parts| {
        let mut bytes = Vec::new();
        for part in parts {
            let at = bytes.len();
            bytes.resize(at + part.len() as usize, 0);
            part.read(level, &mut bytes[at..]);
        }
        packets.push((*header, bytes));
    });
    packets
}

/// Waits for `n` packets.
pub fn take(guest: &mut Guest, n: usize) -> Vec<(NetHeader, Vec<u8>)> {
    let mut packets = Vec::new();
    wait_until("all packets have arrived", || {
        packets.extend(arrived(guest));
        packets.len() >= n
    });
    assert_eq!(packets.len(), n);
    packets
}

/// Checks that no packet of those that were sent before the call arrives here.
pub fn nothing(switch: &Switch, guest: &mut Guest) {
    nothing_at(switch, [guest]);
}

/// Checks that no packet of those that were sent before the call arrives at any of these guests.
pub fn nothing_at<'g>(switch: &Switch, guests: impl IntoIterator<Item = &'g mut Guest>) {
    let guests: Vec<_> = guests.into_iter().collect();
    // The kicks only wake workers, which need not sleep for a second.
    guests.iter().for_each(|guest| guest.kick_anyway());
    wait_turns(switch);
    guests.into_iter().for_each(has_nothing);
}

/// Checks that no packet has arrived here. An event must have shown that none is under way.
pub fn has_nothing(guest: &mut Guest) {
    assert_eq!(arrived(guest), []);
}

/// Sends a frame, and waits for a free buffer before.
pub fn send(guest: &mut Guest, frame: &[u8]) {
    wait_until("a transmit buffer is free", || {
        guest.flush();
        guest.send(&NetHeader::default(), frame)
    });
    guest.flush();
}

/// Returns a unicast address that ends in `n`.
pub fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// The broadcast address.
pub const BROADCAST: MacAddr = MacAddr([255; 6]);

/// Bytes without a period, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

/// A frame of `len` bytes of an unknown protocol.
pub fn frame(dst: MacAddr, src: MacAddr, len: usize, seed: u64) -> Vec<u8> {
    let mut frame = noise(seed, len);
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    // Local experimental (IEEE 802, 9.2.3).
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Two guests whose traffic must go on whatever others do.
pub struct Victims {
    thread: JoinHandle<(u64, Sequence)>,
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    /// Longest time between two arrivals since it was last set to 0, in microseconds.
    longest_gap: Arc<AtomicU64>,
}

impl Victims {
    /// Starts numbered packets from a guest at port `from` to one at port `to`, with fewer under
    /// way than a ring holds.
    pub fn start(rig: &Rig, from: usize, to: usize) -> Victims {
        Self::between(rig.guest(from, &GuestOptions::default()), rig.guest(to, &GuestOptions::default()))
    }

    /// Starts numbered packets from one guest to another, like [`Victims::start`].
    pub fn between(mut source: Guest, mut sink: Guest) -> Victims {
        let mut stream = Stream::prepare(&mut source, mac(0xe0), mac(0xe1), &[60, 1514, 566]).expect("a stream");
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let longest_gap = Arc::new(AtomicU64::new(0));
        let thread = {
            let stop = Arc::clone(&stop);
            let arrived = Arc::clone(&arrived);
            let longest_gap = Arc::clone(&longest_gap);
            std::thread::spawn(move || {
                let mut seen = Sequence::default();
                // The time is the subject: the gaps between arrivals are measured.
                let mut last_arrival = Instant::now();
                let mut turn = |may_send: bool| {
                    while may_send && stream.sent() - seen.packets < 128 && stream.send(&mut source) {}
                    source.flush();
                    let level = sink.level();
                    let received = sink.receive(64, |_, parts| seen.note(level, parts));
                    let gap = last_arrival.elapsed();
                    longest_gap.fetch_max(gap.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
                    if received > 0 {
                        last_arrival = Instant::now();
                    }
                    arrived.store(seen.packets, Ordering::Relaxed);
                    (received, stream.sent())
                };
                while !stop.load(Ordering::Relaxed) {
                    if turn(true).0 == 0 {
                        pause();
                    }
                }
                let sent = wait_until("all packets of the victims have arrived", || {
                    let (_, sent) = turn(false);
                    let missing = sent - arrived.load(Ordering::Relaxed).min(sent);
                    if missing == 0 { Ok(sent) } else { Err(format!("{missing} of {sent} are missing")) }
                });
                (sent, seen)
            })
        };
        let victims = Victims { thread, stop, arrived, longest_gap };
        victims.go_on();
        victims
    }

    /// Waits until packets that the guests send from now on have arrived.
    pub fn go_on(&self) {
        let now = self.arrived.load(Ordering::Relaxed);
        wait_until("the victims' traffic goes on", || self.arrived.load(Ordering::Relaxed) > now + 256);
    }

    /// Runs `f`. Returns its result and the longest time between two arrivals meanwhile.
    pub fn longest_gap<T>(&self, f: impl FnOnce() -> T) -> (T, Duration) {
        self.longest_gap.store(0, Ordering::Relaxed);
        let result = f();
        // An arrival ends the last gap.
        self.go_on();
        (result, Duration::from_micros(self.longest_gap.load(Ordering::Relaxed)))
    }

    /// Ends the traffic, and checks that no packet was lost or came late.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, seen) = self.thread.join().expect("the victims' thread");
        assert!(sent > 256);
        assert_eq!(seen.lost(sent), 0, "of {sent}");
        assert_eq!((seen.packets, seen.late), (sent, 0), "of {sent}");
    }
}
