//! The switch's cost per packet beside many ports that send nothing, on one thread.
//!
//! `cargo bench -p straightline-switch --bench idle_ports` prints cycles of the time-stamp counter
//! per packet: two guests of a bridge send to each other, and the same worker serves other ports.
//! Rounds of all rows alternate. `ratio` is the rate in relation to the two ports alone, by medians.
//! `idle` ports are in the same bridge and have no guest, `guests` have one, `others` are in no
//! bridge. Each guest is one station, or `16 stations` whose frames alternate. With `--test` it runs each row once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::Arc;

use straightline_fdb::Fdb;
use straightline_graph::clock::cycles;
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, Sink};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_virtio::net_header::NetHeader;

/// Packets that each guest sends between the worker's turns.
const BURST: usize = 64;

/// Frame lengths.
const SIZES: [usize; 2] = [60, 1514];

/// The ports beside the two that exchange packets: name, ports, guests at these ports, and whether
/// they are in the bridge.
const ROWS: [(&str, u16, bool, bool); 7] = [
    ("alone", 0, false, true),
    (MANY, 0, false, true),
    ("16 idle", 16, false, true),
    ("62 idle", 62, false, true),
    ("126 idle", 126, false, true),
    ("126 guests", 126, true, true),
    ("100 others", 100, false, false),
];

/// The row in which each guest is many stations, and their number.
const MANY: &str = "alone, 16 stations";
const STATIONS: u8 = 16;

struct Scene {
    stations: u8,
    worker: Worker,
    guests: Vec<Guest>,
    _idle: Vec<Guest>,
    _ports: Vec<VhostUser>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(others: u16, with_guests: bool, is_bridged: bool, stations: u8) -> anyhow::Result<Scene> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let count = 2 + others;
        let drops: Vec<Arc<Drops>> = (0..count).map(|_| Arc::default()).collect();
        let mut graph = Graph::new();
        let mut ports = Vec::new();
        for (n, drops) in (0..).zip(&drops) {
            let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
            ports.push(VhostUser::open(config, PortIndex(n), Arc::clone(drops), &rcu, Arc::clone(&waiter))?);
        }
        let (members, outside) = ports.split_at(if is_bridged { ports.len() } else { 2 });
        let indexes: Vec<_> = (0..).take(members.len()).map(PortIndex).collect();
        let edges: Vec<_> = members.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
        let fdb = Arc::new(Fdb::new(1024, 300, &indexes, &[]));
        let plain: Vec<_> = indexes.into_iter().map(BridgePort::plain).collect();
        let bridge = graph.node("bridge", Box::new(Bridge::new(&plain, fdb)), &edges);
        members.iter().for_each(|port| graph.input(port.for_worker(0), bridge));
        for port in outside {
            let nowhere = graph.node("nowhere", Box::new(Sink::new(Reason::NotConnected)), &[]);
            graph.input(port.for_worker(0), nowhere);
        }
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.change(drops, u32::try_from(members.len() - 1)?.max(1));
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let connect = |n: u16| Guest::connect(&dir.path().join(format!("p{n}")), &GuestOptions::default());
        let guests = (0..2).map(connect).collect::<Result<_, _>>()?;
        let idle = (2..if with_guests { count } else { 2 }).map(connect).collect::<Result<_, _>>()?;
        let mut scene = Scene { stations, worker, guests, _idle: idle, _ports: ports, _dir: dir };
        scene.learn();
        Ok(scene)
    }

    /// Makes the bridge learn both guests, by packets that are flooded.
    fn learn(&mut self) {
        for station in 0..self.stations {
            for (guest, frame) in self.guests.iter_mut().zip(frames(60, station)) {
                assert!(guest.send(&NetHeader::default(), &frame));
                guest.flush();
            }
        }
        // A flood may cost more than a turn's share. Then turns without packets follow.
        (0..1000).for_each(|_| _ = self.worker.turn());
        self.guests.iter_mut().for_each(|guest| _ = guest.receive(usize::MAX, |_, _| ()));
    }

    /// Runs one round; returns cycles per packet.
    fn round(&mut self, len: usize, bursts: usize) -> u64 {
        let mut spent = 0;
        let mut packets = 0;
        for _ in 0..bursts {
            for (at, guest) in self.guests.iter_mut().enumerate() {
                let of_stations: Vec<_> = (0..self.stations).map(|station| frames(len, station)).collect();
                for frames in of_stations.iter().cycle().take(BURST) {
                    assert!(guest.send(&NetHeader::default(), &frames[at]), "a ring of 256 has space");
                }
                guest.flush();
            }
            let mut arrived = 0;
            while arrived < 2 * BURST {
                // A turn without packets is no cost of packets: a busy worker has none.
                let mut before = cycles();
                while self.worker.turn() > 0 {
                    let now = cycles();
                    spent += now - before;
                    before = now;
                }
                self.guests.iter_mut().for_each(|guest| arrived += guest.receive(usize::MAX, |_, _| ()));
            }
            packets += arrived as u64;
        }
        spent / packets
    }
}

/// Returns the frames that one station of each guest sends to that of the other.
fn frames(len: usize, station: u8) -> [Vec<u8>; 2] {
    [(2, 1), (1, 2)].map(|(to, from)| {
        let mut frame = vec![0xa5; len];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, station, to, 2, 0, 0, 0, station, from, 0x88, 0xb5]);
        frame
    })
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let (rounds, bursts) = if is_test { (1, 2) } else { (41, 50) };
    let mut scenes = Vec::new();
    for (name, others, guests, is_bridged) in ROWS {
        let stations = if name == MANY { STATIONS } else { 1 };
        scenes.push((name, Scene::new(others, guests, is_bridged, stations)?));
    }
    let mut values = vec![[const { Vec::new() }; SIZES.len()]; scenes.len()];
    for _ in 0..rounds {
        for ((_, scene), values) in scenes.iter_mut().zip(&mut values) {
            for (&len, values) in SIZES.iter().zip(values) {
                values.push(scene.round(len, bursts));
            }
        }
    }
    if is_test {
        return Ok(());
    }
    println!("| ports beside | bytes | cycles | ratio |\n|---|---|---|---|");
    let mut alone = [0.0; SIZES.len()];
    for ((name, _), values) in scenes.iter().zip(&mut values) {
        for (nth, (len, values)) in SIZES.iter().zip(values).enumerate() {
            values.sort_unstable();
            let median = f64::from(u32::try_from(values[values.len() / 2])?);
            if *name == "alone" {
                alone[nth] = median;
            }
            println!("| {name} | {len} | {median:.0} | {:.2} |", alone[nth] / median);
        }
    }
    Ok(())
}
