//! The switch's cost per packet without cache lines from other cores: guests and worker take turns
//! on one thread.
//!
//! `cargo bench -p straightline-switch --bench path` prints cycles of the time-stamp counter per
//! packet, for each node. They are medians over many short rounds, in which all rings and sizes
//! alternate. This is the cost of the instructions; the cost of lines that cross cores is only
//! visible on two cores. `-- "packed 60"` measures that row alone. With `--test` it runs each row
//! once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::Arc;

use az::SaturatingAs;
use straightline_graph::{EpollWaiter, Graph, Idle, NodeStats, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::Patch;
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{Dscp, DscpSet, checksum};

/// Packets that each guest sends between the worker's turns.
const BURST: usize = 32;

/// Number of bursts in a round. A round yields one value.
const BURSTS: usize = 100;

/// Frame lengths; 0: IMIX.
const SIZES: [usize; 6] = [60, 128, 256, 512, 1514, 0];

/// Two guests, a patch between them, and the worker.
struct Path {
    name: &'static str,
    worker: Worker,
    nodes: Vec<Arc<NodeStats>>,
    _ports: Vec<VhostUser>,
    guests: Vec<Guest>,
    _dir: tempfile::TempDir,
}

impl Path {
    fn new(name: &'static str, features: u64) -> anyhow::Result<Path> {
        Path::expediting(name, features, DscpSet::default())
    }

    fn expediting(name: &'static str, features: u64, classes: DscpSet) -> anyhow::Result<Path> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let drops: Vec<Arc<Drops>> = vec![Arc::default(), Arc::default()];
        let mut graph = Graph::new();
        let mut ports = Vec::new();
        for (n, name) in (0..).zip(["a", "b"]) {
            let config = VhostUserConfig::new(name, dir.path().join(name));
            let drops = Arc::clone(&drops[usize::from(n)]);
            ports.push(VhostUser::open(config, PortIndex(n), drops, &rcu, Arc::clone(&waiter))?);
        }
        let edges: Vec<_> = ports.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
        if !classes.is_empty() {
            edges.iter().for_each(|&output| graph.expedite(output, classes));
        }
        let patch = graph.node("patch", Box::new(Patch::new(PortIndex(0))), &edges);
        for port in &ports {
            graph.input(port.for_worker(0), patch);
        }
        let nodes = graph.stats();
        let arena = Arena::new(rcu.reader(), Settings::default(), drops);
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let options = GuestOptions { features, ..GuestOptions::default() };
        let guests =
            ["a", "b"].iter().map(|name| Guest::connect(&dir.path().join(name), &options)).collect::<Result<_, _>>()?;
        Ok(Path { name, worker, nodes, _ports: ports, guests, _dir: dir })
    }

    /// Passes one packet each way, so that later bursts begin within a cache line of descriptors.
    fn displaced(mut self) -> Path {
        let frame = frames(60).swap_remove(0);
        for guest in &mut self.guests {
            assert!(guest.send(&NetHeader::default(), &frame), "the ring is empty");
            guest.flush();
        }
        let mut arrived = 0;
        while arrived < 2 {
            while self.worker.turn() > 0 {}
            arrived += self.guests.iter_mut().map(|guest| guest.receive(usize::MAX, |_, _| ())).sum::<usize>();
        }
        self
    }

    /// Runs one round; returns cycles per packet of each kind of node: receive, patch, send, the
    /// end of turns.
    fn round(&mut self, size: usize, bursts: usize) -> [f64; 4] {
        let frames = frames(size);
        let before = self.cycles();
        let mut arrived = 0;
        for burst in 1..=bursts {
            for guest in &mut self.guests {
                for frame in &frames {
                    assert!(guest.send(&NetHeader::default(), frame), "a ring of 256 has space for {BURST} packets");
                }
                guest.flush();
            }
            // A turn may end without packets although some wait, if the one before took very long.
            while arrived < burst * 2 * BURST {
                while self.worker.turn() > 0 {}
                arrived += self.guests.iter_mut().map(|guest| guest.receive(usize::MAX, |_, _| ())).sum::<usize>();
            }
        }
        let after = self.cycles();
        let mut at = 0;
        after.map(|cycles| {
            let cycles = cycles - before[at];
            at += 1;
            float(cycles) / float(arrived.saturating_as::<u64>())
        })
    }

    fn cycles(&self) -> [u64; 4] {
        let cycles_of =
            |end: &str| self.nodes.iter().filter(|node| node.name.ends_with(end)).map(|n| n.cycles.get()).sum();
        [cycles_of("-rx"), cycles_of("patch"), cycles_of("-tx"), cycles_of("turn-end")]
    }
}

fn frames(size: usize) -> Vec<Vec<u8>> {
    let imix = straightline_wire::imix::order();
    (0..BURST)
        .map(|n| {
            let mut frame = vec![0xa5; if size == 0 { imix[n % imix.len()].into() } else { size }];
            // Datagrams of one flow that all have one identification, so they are not coalesced.
            frame[..16].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
            let datagram = u16::try_from(frame.len() - 14).expect("short");
            frame[16..18].copy_from_slice(&datagram.to_be_bytes());
            frame[18..24].copy_from_slice(&[0, 0, 0, 0, 64, 17]);
            frame[38..40].copy_from_slice(&(datagram - 20).to_be_bytes());
            let sum = checksum::sum(&frame[14..24]);
            let sum = !checksum::add(sum, checksum::sum(&frame[26..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "cycles of one round")]
fn float(n: u64) -> f64 {
    n as f64
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let (rounds, bursts) = if is_test { (1, 2) } else { (if wanted.is_some() { 1000 } else { 61 }, BURSTS) };
    let basic = f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX;
    let all = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
    let large = f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;
    let datagrams = f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;
    let packed = basic | f::VIRTIO_NET_F_MRG_RXBUF | f::VIRTIO_F_RING_PACKED;
    let mut paths = [
        Path::new("split", basic | f::VIRTIO_NET_F_MRG_RXBUF)?,
        Path::expediting("split, expedited", basic | f::VIRTIO_NET_F_MRG_RXBUF, Dscp::new(46).into_iter().collect())?,
        Path::new("split, not mergeable", basic)?,
        Path::new("split, checksum offload", all)?,
        Path::new("split, TSO taken", all | large)?,
        Path::new("split, TSO and USO taken", all | large | datagrams)?,
        Path::new("packed", packed)?,
        Path::new("packed, displaced", packed)?.displaced(),
    ];
    let is_wanted = |path: &Path, size: usize| wanted.as_ref().is_none_or(|it| *it == format!("{} {size}", path.name));
    let mut values = vec![Vec::new(); paths.len() * SIZES.len()];
    for _ in 0..rounds {
        for (path, values) in paths.iter_mut().zip(values.chunks_mut(SIZES.len())) {
            for (&size, values) in SIZES.iter().zip(values) {
                if is_wanted(path, size) {
                    values.push(path.round(size, bursts));
                }
            }
        }
    }
    if is_test {
        return Ok(());
    }
    println!("| ring | bytes | rx | patch | tx | turn-end | sum |\n|---|---|---|---|---|---|---|");
    for (path, values) in paths.iter().zip(values.chunks_mut(SIZES.len())) {
        for (size, values) in SIZES.iter().zip(values).filter(|(_, values)| !values.is_empty()) {
            let median = |at: usize| {
                let mut of: Vec<f64> = values.iter().map(|value| value[at]).collect();
                of.sort_by(f64::total_cmp);
                of[of.len() / 2]
            };
            let of = [0, 1, 2, 3].map(median);
            let size = if *size == 0 { "imix".to_owned() } else { size.to_string() };
            let sum: f64 = of.iter().sum();
            println!(
                "| {} | {size} | {:.1} | {:.1} | {:.1} | {:.1} | {sum:.1} |",
                path.name, of[0], of[1], of[2], of[3]
            );
        }
    }
    Ok(())
}
