//! The thread that finds events which have no place in control code: it compares what links, bridges
//! and next hops say now with what they said before.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use straightline_graph::{LinkEvent, PortControl, newest_link_note};
use straightline_port::socket_file;
use straightline_underlay::Underlay;

use crate::api::{EventKind, NeighbourState, OwnAddress, Source, since_epoch};
use crate::running::{Running, Snapshot};
use crate::sandbox;

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(100);

/// The shortest time between two notes that a port or remote has no place left for addresses.
const REFUSALS_PERIOD: Duration = Duration::from_secs(60);

/// Every so many looks, one asks the underlays too. Their tables are under a lock.
const LOOKS_PER_NEIGHBOURS: u64 = 5;

/// Every so many looks, one adds to the history of the traffic: once a second.
const LOOKS_PER_SAMPLE: u64 = 10;

/// The watcher's thread. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct WatcherThread {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatcherThread {
    /// Starts a thread that adds to the events of this switch.
    pub(crate) fn start(running: Arc<Running>) -> anyhow::Result<Self> {
        let (end, ended) = channel();
        let mut watcher = Watcher::new(running);
        let watch = move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                watcher.look();
            }
        };
        let thread = std::thread::Builder::new().name("events".to_owned()).spawn(watch);
        Ok(WatcherThread { end: Some(end), thread: Some(thread.context("cannot start the events' thread")?) })
    }
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the events' thread had panicked");
        }
    }
}

/// The state at the last look.
struct Watcher {
    running: Arc<Running>,
    looks: u64,
    /// The number of the last link note.
    note: u64,
    /// The number of moves of each bridge.
    moves: BTreeMap<String, u64>,
    /// The number of moves of each tunnel with several remotes.
    remote_moves: BTreeMap<String, u64>,
    /// The refused addresses of each port, and of each remote of a tunnel.
    refused: BTreeMap<(String, Option<String>), Refusals>,
    /// MAC address and state of each next hop, by underlay and address.
    neighbours: BTreeMap<(String, String), (Option<String>, NeighbourState)>,
    /// The underlays whose ports' links are up, each with the number of changes of that link.
    underlay_links: Vec<(Weak<Underlay>, u64)>,
    /// The stations that have addresses of ours too, by underlay and address.
    conflicts: BTreeMap<(String, String), String>,
    /// The MTUs that routers have told, by port and remote.
    path_mtus: BTreeMap<(String, IpAddr), u16>,
    refused_calls: u64,
    opener_runs: bool,
    maker_runs: bool,
}

/// The addresses that were not learned behind a port or remote, as far as they were told.
struct Refusals {
    told: u64,
    at: Instant,
}

impl Watcher {
    fn new(running: Arc<Running>) -> Self {
        Watcher {
            running,
            looks: 0,
            note: newest_link_note(),
            moves: BTreeMap::new(),
            remote_moves: BTreeMap::new(),
            refused: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            underlay_links: Vec::new(),
            conflicts: BTreeMap::new(),
            path_mtus: BTreeMap::new(),
            refused_calls: 0,
            opener_runs: true,
            maker_runs: true,
        }
    }

    fn look(&mut self) {
        let now = self.running.now();
        self.look_at_links(&now);
        self.look_at_bridges(&now);
        self.look_at_remotes(&now);
        if self.looks.is_multiple_of(LOOKS_PER_NEIGHBOURS) {
            self.look_at_shares(&now);
            if !now.underlays.underlays.is_empty() {
                self.look_at_underlay_links(&now);
                self.look_at_neighbours();
                self.look_at_paths(&now);
            }
        }
        if self.looks.is_multiple_of(LOOKS_PER_SAMPLE) {
            self.sample_traffic(&now);
        }
        self.look_at_process();
        self.running.events.add_due();
        self.looks += 1;
    }

    fn sample_traffic(&self, now: &Snapshot) {
        let bytes = |port: &Arc<dyn PortControl>| {
            port.counters().iter().fold([0_u64; 2], |[rx, tx], queue| {
                [rx.saturating_add(queue.rx.bytes.get()), tx.saturating_add(queue.tx.bytes.get())]
            })
        };
        let ports = now.config.ports.iter().zip(&now.ports);
        let ports = ports.map(|(config, port)| (config.name.as_str(), bytes(port)));
        let mut traffic = self.running.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.add(since_epoch(SystemTime::now()), ports);
    }

    /// A link that changes more often than its notes are kept has only its last changes told.
    fn look_at_links(&mut self, now: &Snapshot) {
        let newest = newest_link_note();
        if newest == self.note {
            return;
        }
        let ports = now.config.ports.iter().zip(&now.ports);
        let mut notes: Vec<_> = ports
            .flat_map(|(config, port)| port.history().notes.into_iter().map(|note| (note, config.name.clone())))
            .filter(|(note, _)| self.note < note.number && note.number <= newest)
            .collect();
        notes.sort_by_key(|(note, _)| note.number);
        self.note = newest;
        for (note, port) in notes {
            let source = format!("link {port}");
            let (message, kind) = match note.event {
                LinkEvent::Up => (format!("port {port:?}: link up"), EventKind::LinkUp { port }),
                LinkEvent::Down(reason) => {
                    (format!("port {port:?}: link down: {reason}"), EventKind::LinkDown { port, reason })
                }
                LinkEvent::Fault(reason) => {
                    (format!("port {port:?}: fault: {reason}"), EventKind::Fault { port, reason })
                }
            };
            self.running.events.add_limited(&source, note.time, kind, message);
        }
    }

    fn look_at_bridges(&mut self, now: &Snapshot) {
        self.moves.retain(|name, _| now.config.bridges.iter().any(|bridge| bridge.name == *name));
        for (config, fdb) in now.config.bridges.iter().zip(&now.fdbs) {
            let bridge = &config.name;
            // A bridge that is new under an old name counts from 0 again.
            let seen = self.moves.get(bridge).copied().filter(|seen| *seen <= fdb.moved()).unwrap_or(0);
            if fdb.moved() == seen {
                continue;
            }
            let (moves, count) = fdb.moves(seen);
            self.moves.insert(bridge.clone(), count);
            for moved in moves {
                let from = now.name(moved.from);
                let to = now.name(moved.to);
                let mac = moved.mac.to_string();
                let message = format!("bridge {bridge:?}: {mac} moved from port {from:?} to port {to:?}");
                let kind = EventKind::Moved { bridge: bridge.clone(), mac, from, to };
                self.running.events.add_limited(&format!("bridge {bridge}"), SystemTime::now(), kind, message);
            }
        }
    }

    fn look_at_remotes(&mut self, now: &Snapshot) {
        let tunnels: Vec<_> = now.underlays.tunnels.iter().flatten().collect();
        self.remote_moves.retain(|name, _| tunnels.iter().any(|tunnel| tunnel.config().name == *name));
        for tunnel in tunnels {
            let port = &tunnel.config().name;
            let seen = self.remote_moves.get(port).copied().unwrap_or(0);
            let (moves, count) = tunnel.moves(seen);
            if count != seen {
                self.remote_moves.insert(port.clone(), count);
            }
            for moved in moves {
                let mac = moved.mac.to_string();
                let from = moved.from.to_string();
                let to = moved.to.to_string();
                let message = format!("tunnel {port:?}: {mac} moved from remote {from} to remote {to}");
                let kind = EventKind::RemoteMoved { port: port.clone(), mac, from, to };
                self.running.events.add_limited(&format!("tunnel {port}"), SystemTime::now(), kind, message);
            }
        }
    }

    /// Tells which shares of tables are full. A share that is full may refuse thousands of addresses
    /// a second, so it is told once a period.
    fn look_at_shares(&mut self, now: &Snapshot) {
        let mut before = std::mem::take(&mut self.refused);
        for (port, remote, refused) in now.refused_addresses() {
            let key = (port, remote);
            let last = before.remove(&key);
            // A table that is new under an old name counts from 0 again.
            let told = last.as_ref().map_or(0, |last| last.told).min(refused);
            let is_due = last.as_ref().is_none_or(|last| last.at.elapsed() >= REFUSALS_PERIOD);
            if refused == told || !is_due {
                // The time of the last note still counts.
                self.refused.extend(last.map(|last| (key, Refusals { told, ..last })));
                continue;
            }
            let (port, remote) = key.clone();
            let behind = remote.as_ref().map_or_else(String::new, |remote| format!(" behind remote {remote}"));
            let message = format!(
                "port {port:?}: {refused} addresses{behind} were not learned so far, because its share is full: \
                 packets to them are flooded"
            );
            let kind = EventKind::NotLearned { port, remote, refused };
            self.running.events.add_limited(&format!("addresses {}", key.0), SystemTime::now(), kind, message);
            self.refused.insert(key, Refusals { told: refused, at: Instant::now() });
        }
    }

    /// Tells underlays that the links of their ports have come up, so that they probe and announce
    /// their addresses.
    fn look_at_underlay_links(&mut self, now: &Snapshot) {
        let mut links = Vec::new();
        for (config, underlay) in now.config.underlays.iter().zip(&now.underlays.underlays) {
            let Some(port) = now.config.port_index(&config.port).and_then(|at| now.ports.get(at)) else { continue };
            if !port.status().up {
                continue;
            }
            let changes = port.history().changes;
            let is_same =
                |(other, seen): &(Weak<Underlay>, u64)| other.as_ptr() == Arc::as_ptr(underlay) && *seen == changes;
            if !self.underlay_links.iter().any(is_same) {
                underlay.note_link_up();
            }
            links.push((Arc::downgrade(underlay), changes));
        }
        self.underlay_links = links;
    }

    fn look_at_neighbours(&mut self) {
        let mut neighbours = BTreeMap::new();
        let answer = self.running.neighbours();
        self.look_at_addresses(answer.addresses);
        for next_hop in answer.neighbours {
            let key = (next_hop.underlay, next_hop.ip);
            let state = (next_hop.mac, next_hop.state);
            // A new next hop is asked at first.
            let before = self.neighbours.remove(&key).unwrap_or((None, NeighbourState::Asked));
            let is_news = state != before && state.1 != NeighbourState::Static;
            neighbours.insert(key.clone(), state.clone());
            if is_news {
                let ((underlay, ip), (mac, state)) = (key, state);
                let is = match (state, &mac) {
                    (NeighbourState::Reachable, Some(mac)) => format!("is reachable at {mac}"),
                    (NeighbourState::Unanswered, _) => "does not answer".to_owned(),
                    _ => "is asked for its MAC address".to_owned(),
                };
                let message = format!("underlay {underlay:?}: next hop {ip} {is}");
                let source = format!("underlay {underlay}");
                let kind = EventKind::Neighbour { underlay, ip, mac, state };
                self.running.events.add_limited(&source, SystemTime::now(), kind, message);
            }
        }
        self.neighbours = neighbours;
    }

    /// A stranger can forge conflicts, so each address has a budget of its own.
    fn look_at_addresses(&mut self, addresses: Vec<OwnAddress>) {
        let mut before = std::mem::take(&mut self.conflicts);
        for OwnAddress { underlay, ip, conflict: mac, .. } in addresses {
            let key = (underlay.clone(), ip.clone());
            let is_news = before.remove(&key) != mac;
            if let Some(mac) = &mac {
                self.conflicts.insert(key, mac.clone());
            }
            if is_news {
                let message = match &mac {
                    Some(mac) => format!("underlay {underlay:?}: another station, {mac}, has our address {ip} too"),
                    None => format!("underlay {underlay:?}: no other station has our address {ip} any more"),
                };
                let source = format!("address {underlay} {ip}");
                let kind = EventKind::AddressConflict { underlay, ip, mac };
                self.running.events.add_limited(&source, SystemTime::now(), kind, message);
            }
        }
    }

    /// A stranger can forge what routers tell, so each tunnel has a budget of its own.
    fn look_at_paths(&mut self, now: &Snapshot) {
        let mut path_mtus = BTreeMap::new();
        for (config, tunnel) in now.config.ports.iter().zip(&now.underlays.tunnels) {
            for (remote, mtu) in tunnel.iter().flat_map(|tunnel| tunnel.path_mtus()) {
                path_mtus.insert((config.name.clone(), remote), mtu);
            }
        }
        let before = std::mem::take(&mut self.path_mtus);
        let forgotten = before.keys().filter(|key| !path_mtus.contains_key(*key)).map(|key| (key, None));
        let told = path_mtus.iter().filter(|(key, mtu)| before.get(*key) != Some(*mtu));
        for ((port, remote), mtu) in forgotten.chain(told.map(|(key, &mtu)| (key, Some(mtu)))) {
            let says = match mtu {
                Some(mtu) => format!("a router says that the path to {remote} carries packets of {mtu} bytes"),
                None => format!("what a router said about the path to {remote} is forgotten"),
            };
            let message = format!("port {port:?}: {says}");
            let kind = EventKind::PathMtu { port: port.clone(), remote: remote.to_string(), mtu };
            self.running.events.add_limited(&format!("path {port}"), SystemTime::now(), kind, message);
        }
        self.path_mtus = path_mtus;
    }

    fn look_at_process(&mut self) {
        let count = sandbox::refused_calls();
        if count != self.refused_calls {
            self.refused_calls = count;
            let message = format!("the sandbox has refused {count} system calls since the start; the log names them");
            let kind = EventKind::RefusedCall { count };
            self.running.events.add_limited("sandbox", SystemTime::now(), kind, message);
        }
        if self.opener_runs
            && let Some((pid, false)) = self.running.opener()
        {
            self.opener_runs = false;
            let message = format!(
                "the opener process {pid} has ended: interfaces that are gone cannot be opened until a restart"
            );
            self.running.events.add(EventKind::OpenerEnded { pid }, message);
        }
        if self.maker_runs
            && let Some((process, false)) = socket_file::maker_process()
        {
            self.maker_runs = false;
            let pid = process.pid;
            let message = format!(
                "the process {pid} that makes sockets has ended: no port can be added or made anew until a restart"
            );
            self.running.events.add(EventKind::SocketsEnded { pid }, message);
        }
    }
}
