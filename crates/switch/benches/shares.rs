//! The shares of a worker: how long a paced port waits beside ports that send without pause, and which
//! part of the worker's time each of those has, on one thread.
//!
//! `cargo bench -p straightline-switch --bench shares [WORD...]` prints a row for each set of senders.
//! Each sends to a guest of its own by a patch, to many by a bridge, to a tap, or into a VXLAN tunnel of one
//! remote or many, and
//! has packets in its ring at all times. A paced guest sends one packet of 64 bytes at a time, which comes
//! at any moment of a turn. Taps need a network namespace: without root their rows are skipped.
//!
//! - `p50`, `p99`: the paced packet's delay in microseconds, from its arrival in the ring to its delivery.
//! - `turn`: the median of a turn in microseconds.
//! - `cycles`: the cycles of a turn for each packet of the first sender, the median.
//! - `time`: the part of the worker's time that each sender has in relation to the first: its packets
//!   times the cycles of one of them alone, divided by its weight.
//!
//! With `--test` it runs each row for a few turns and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, ensure};
use az::SaturatingAs;
use straightline_fdb::Fdb;
use straightline_graph::clock::{cycles, hertz};
use straightline_graph::{EpollWaiter, Graph, Idle, Node, NodeIndex, Null, Port, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, Patch};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, TapOffloads, TapRequest};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::host::Host;
use straightline_underlay::{
    Address, Encap, Gather, Tunnel, TunnelConfig, TunnelKind, Underlay, UnderlayConfig, UnderlayOutput,
};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;

/// The packets of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Frames of so many bytes.
    Frames(usize),
    /// Frames of 1514 bytes in so many descriptors.
    Chains(u16),
    /// TCP packets of 64 KiB for a guest that takes them.
    Whole,
    /// TCP packets of 64 KiB for a guest that takes none, with segments of so many bytes.
    Cut(u16),
}

/// The way of a sender's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A patch to a guest.
    Guest,
    /// Broadcasts in a bridge with so many guests.
    Flood(u16),
    /// A patch to a tap of this machine.
    Tap,
    /// A patch into a VXLAN tunnel. A guest is the next hop.
    Tunnel,
    /// Broadcasts into a VXLAN tunnel with so many remotes, whose wire takes packets and does nothing.
    Remotes(u16),
}

/// A sender: its packets, their way, and its weight.
type Sender = (Kind, Way, u16);

const SMALL: Kind = Kind::Frames(64);
const FULL: Kind = Kind::Frames(1514);
const CUT: Kind = Kind::Cut(1448);
/// The header of VXLAN takes 50 bytes.
const CUT_IN_TUNNEL: Kind = Kind::Cut(1398);

const ROWS: [(&str, &[Sender]); 26] = [
    ("none", &[]),
    ("64 bytes", &[(SMALL, Way::Guest, 1)]),
    ("1514 bytes", &[(FULL, Way::Guest, 1)]),
    ("64 KiB", &[(Kind::Whole, Way::Guest, 1)]),
    ("64 KiB, cut", &[(CUT, Way::Guest, 1)]),
    ("64 KiB, cut to 200 bytes", &[(Kind::Cut(200), Way::Guest, 1)]),
    ("1514 bytes in 64 descriptors", &[(Kind::Chains(64), Way::Guest, 1)]),
    ("64 bytes beside 1514 in 8 descriptors", &[(SMALL, Way::Guest, 1), (Kind::Chains(8), Way::Guest, 1)]),
    ("64 bytes beside 1514 in 64 descriptors", &[(SMALL, Way::Guest, 1), (Kind::Chains(64), Way::Guest, 1)]),
    ("1514 bytes to 31 guests", &[(FULL, Way::Flood(31), 1)]),
    ("8 of 64 bytes", &[(SMALL, Way::Guest, 1); 8]),
    ("8 of 64 KiB", &[(Kind::Whole, Way::Guest, 1); 8]),
    ("64 bytes beside 64 KiB", &[(SMALL, Way::Guest, 1), (Kind::Whole, Way::Guest, 1)]),
    (
        "64 bytes, 1514 bytes, 64 KiB, cut",
        &[(SMALL, Way::Guest, 1), (FULL, Way::Guest, 1), (Kind::Whole, Way::Guest, 1), (CUT, Way::Guest, 1)],
    ),
    ("64 bytes, shares 1 and 2", &[(SMALL, Way::Guest, 1), (SMALL, Way::Guest, 2)]),
    ("64 KiB, shares 1 and 2", &[(Kind::Whole, Way::Guest, 1), (Kind::Whole, Way::Guest, 2)]),
    ("64 bytes to a tap", &[(SMALL, Way::Tap, 1)]),
    ("1514 bytes to a tap", &[(FULL, Way::Tap, 1)]),
    ("64 KiB to a tap", &[(Kind::Whole, Way::Tap, 1)]),
    ("64 KiB to a tap beside 64 bytes", &[(Kind::Whole, Way::Tap, 1), (SMALL, Way::Guest, 1)]),
    ("64 bytes into a tunnel", &[(SMALL, Way::Tunnel, 1)]),
    ("64 KiB into a tunnel, cut", &[(CUT_IN_TUNNEL, Way::Tunnel, 1)]),
    ("4 of 64 KiB into tunnels, cut", &[(CUT_IN_TUNNEL, Way::Tunnel, 1); 4]),
    ("64 bytes to 200 remotes", &[(SMALL, Way::Remotes(200), 1)]),
    ("1464 bytes to 200 remotes", &[(Kind::Frames(1464), Way::Remotes(200), 1)]),
    ("64 KiB into a tunnel beside 64 bytes", &[(CUT_IN_TUNNEL, Way::Tunnel, 1), (SMALL, Way::Guest, 1)]),
];

/// The number of taps so far.
static TAPS: AtomicU32 = AtomicU32::new(0);

/// Turns of a row.
const TURNS: usize = 20_000;

struct Scene {
    senders: Vec<Sender>,
    worker: Worker,
    /// For each sender and then for the paced one: its guest, those of its receivers, and its packet.
    pairs: Vec<(Guest, Vec<Guest>, NetHeader, Vec<u8>)>,
    drops: Vec<Arc<Drops>>,
    _ports: Vec<Box<dyn PortControl>>,
    _dir: tempfile::TempDir,
}

/// A graph that grows, and its ports.
struct Plan {
    graph: Graph,
    ports: Vec<Box<dyn PortControl>>,
    drops: Vec<Arc<Drops>>,
    rcu: Rcu,
    waiter: Arc<EpollWaiter>,
    devices: Arc<Devices>,
    dir: tempfile::TempDir,
}

impl Plan {
    /// Returns the next port's index and its drops.
    fn next(&mut self) -> anyhow::Result<(PortIndex, Arc<Drops>)> {
        let drops = Arc::<Drops>::default();
        self.drops.push(Arc::clone(&drops));
        Ok((PortIndex(u16::try_from(self.drops.len() - 1)?), drops))
    }

    fn socket(&self, index: PortIndex) -> PathBuf {
        self.dir.path().join(format!("p{}", index.0))
    }

    /// Returns a port for a guest.
    fn vhost_user(&mut self) -> anyhow::Result<(PortIndex, Arc<dyn Port>)> {
        let (index, drops) = self.next()?;
        let config = VhostUserConfig::new(format!("p{}", index.0), self.socket(index));
        let port = VhostUser::open(config, index, drops, &self.rcu, Arc::clone(&self.waiter))?;
        Ok((index, self.keep(Box::new(port))))
    }

    fn tap(&mut self) -> anyhow::Result<Arc<dyn Port>> {
        let (index, drops) = self.next()?;
        let request = TapRequest {
            // The row's own taps are there while one of its senders is measured alone.
            name: format!("tap{}", TAPS.fetch_add(1, Ordering::Relaxed)),
            queues: 1,
            mtu: 1500,
            mac: None,
            offloads: TapOffloads { csum: true, tso: true, uso: true },
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        };
        let request = DeviceRequest::Tap(request);
        let config = DevicePortConfig { name: format!("p{}", index.0), request, mtu: 1500, queues: 1 };
        let port = DevicePort::open(config, index, drops, &self.rcu, Arc::clone(&self.waiter), &self.devices)?;
        Ok(self.keep(Box::new(port)))
    }

    fn keep(&mut self, port: Box<dyn PortControl>) -> Arc<dyn Port> {
        let served = port.for_worker(0);
        self.ports.push(port);
        served
    }

    /// Returns the node of a tunnel to so many hosts behind this port.
    fn tunnel(&mut self, (wire, port): (PortIndex, Arc<dyn Port>), hosts: u16) -> anyhow::Result<NodeIndex> {
        let (index, drops) = self.next()?;
        let local = IpAddr::from([10, 0, 0, 1]);
        let host = |number: u16| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0001 + u32::from(number)));
        let remotes: Vec<_> = (1..=hosts).map(host).collect();
        let config = UnderlayConfig {
            mac: Some(MacAddr([2, 0, 0, 0, 0, 3])),
            neighbours: remotes.iter().map(|&remote| (remote, MacAddr([2, 0, 0, 0, 0, 4]))).collect(),
            ..UnderlayConfig::new("wan", vec![Address { ip: local, prefix: 16 }])
        };
        let underlay = Underlay::new(config, wire);
        let gather = Arc::<Gather>::default();
        let output = UnderlayOutput::new(Arc::clone(&underlay), port, Arc::clone(&gather));
        let output = self.graph.output(Arc::new(output), false);
        let config =
            TunnelConfig { mtu: 1450, ..TunnelConfig::new("tunnel", TunnelKind::Vxlan { vni: 1 }, local, remotes) };
        let tunnel = Tunnel::new(config, underlay, index, drops);
        Ok(self.graph.node("encap", Box::new(Encap::new(gather, tunnel)), &[output]))
    }
}

impl Scene {
    fn new(senders: &[Sender]) -> anyhow::Result<Self> {
        let mut plan = Plan {
            graph: Graph::new(),
            ports: Vec::new(),
            drops: Vec::new(),
            rcu: Rcu::new(),
            waiter: Arc::new(EpollWaiter::new()?),
            devices: Devices::direct()?,
            dir: tempfile::tempdir()?,
        };
        let mut pairs = Vec::new();
        for &(kind, way, weight) in senders.iter().chain([&(SMALL, Way::Guest, 1)]) {
            let (first, sender) = plan.vhost_user()?;
            let guests = match way {
                Way::Guest | Way::Tunnel => 1,
                Way::Flood(guests) => guests,
                Way::Tap | Way::Remotes(_) => 0,
            };
            let takers = (0..guests).map(|_| plan.vhost_user()).collect::<Result<Vec<_>, _>>()?;
            let mut edges = vec![plan.graph.output(Arc::clone(&sender), false)];
            match (way, takers.first()) {
                (Way::Tap, _) => {
                    let tap = plan.tap()?;
                    edges.push(plan.graph.output(tap, false));
                }
                (Way::Tunnel, Some((wire, port))) => edges.push(plan.tunnel((*wire, Arc::clone(port)), 1)?),
                (Way::Remotes(hosts), _) => {
                    let (wire, _) = plan.next()?;
                    edges.push(plan.tunnel((wire, Arc::new(Null::new("wire"))), hosts)?);
                }
                _ => edges.extend(takers.iter().map(|(_, port)| plan.graph.output(Arc::clone(port), false))),
            }
            let node: Box<dyn Node> = if let Way::Flood(_) = way {
                let indexes: Vec<_> = std::iter::once(first).chain(takers.iter().map(|(index, _)| *index)).collect();
                let fdb = Arc::new(Fdb::new(1024, 300, &indexes, &[]));
                let members: Vec<_> = indexes.into_iter().map(BridgePort::plain).collect();
                Box::new(Bridge::new(&members, fdb))
            } else {
                Box::new(Patch::new(first))
            };
            let node = plan.graph.node("way", node, &edges);
            plan.graph.input_with(sender, node, weight, None);
            let [sends, takes] = kind.options();
            let connect = |index, options| Guest::connect(&plan.socket(index), options);
            let takers = takers.iter().map(|(index, _)| connect(*index, &takes)).collect::<Result<_, _>>()?;
            let (header, mut frame) = kind.packet()?;
            if let Way::Flood(_) | Way::Remotes(_) = way {
                frame[..6].fill(0xff);
            }
            pairs.push((connect(first, &sends)?, takers, header, frame));
        }
        let Plan { graph, ports, drops, rcu, waiter, dir, .. } = plan;
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.change(drops.clone(), 31);
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        Ok(Scene { senders: senders.to_vec(), worker, pairs, drops, _ports: ports, _dir: dir })
    }

    /// Runs so many turns.
    fn run(&mut self, turns: usize) -> anyhow::Result<Outcome> {
        let (paced, senders) = self.pairs.split_last_mut().context("the paced one")?;
        let mut outcome = Outcome { sent: vec![0; senders.len()], ..Outcome::default() };
        let mut waited = None;
        let mut last = 0;
        for turn in 0..turns {
            for ((guest, _, header, frame), (kind, ..)) in senders.iter_mut().zip(&self.senders) {
                guest.flush();
                while kind.send(guest, header, frame) {}
                guest.flush();
            }
            if waited.is_none() {
                // It came at a moment of the last turn: at each of them alike.
                waited = Some(last - last * (turn as u64 % 16) / 16);
                ensure!(paced.0.send(&paced.2, &paced.3), "a free buffer");
                paced.0.flush();
            }
            let before = cycles();
            self.worker.turn();
            last = cycles() - before;
            outcome.turns.push(last);
            waited = waited.map(|waited| waited + last);
            if paced.1[0].receive(usize::MAX, |_, _| ()) > 0 {
                outcome.delays.extend(waited.take());
                paced.0.flush();
            }
            for (guest, receivers, _, _) in &mut *senders {
                receivers.iter_mut().for_each(|receiver| _ = receiver.receive(usize::MAX, |_, _| ()));
                guest.flush();
            }
            let taken = senders.iter().zip(&self.senders).map(|((guest, ..), (kind, ..))| kind.taken(guest));
            let taken: Vec<_> = taken.collect();
            for (sent, taken) in outcome.sent.iter_mut().zip(&taken) {
                *sent += taken;
            }
            let first = taken.first().copied().unwrap_or(0);
            outcome.costs.extend(last.checked_div(first));
        }
        let drops: Vec<_> = self.drops.iter().flat_map(|drops| drops.nonzero()).collect();
        ensure!(drops.is_empty(), "no packet is dropped: {drops:?}");
        Ok(outcome)
    }
}

#[derive(Default)]
struct Outcome {
    /// Cycles of each turn.
    turns: Vec<u64>,
    /// The delays of the paced packets in cycles.
    delays: Vec<u64>,
    /// Packets of each sender that were taken.
    sent: Vec<u64>,
    /// Cycles of a packet of the first sender in each turn that took some.
    costs: Vec<u64>,
}

impl Kind {
    fn options(self) -> [GuestOptions; 2] {
        let basic = f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX;
        let takes = match self {
            Kind::Frames(_) => return [GuestOptions::default(), GuestOptions::default()],
            Kind::Chains(_) => {
                return [GuestOptions { ring_size: 1024, ..GuestOptions::default() }, GuestOptions::default()];
            }
            Kind::Whole => f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4,
            Kind::Cut(_) => 0,
        };
        let sends = GuestOptions {
            features: basic | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4,
            buffer_len: 65_600,
            ring_size: 64,
            ..GuestOptions::default()
        };
        let takes = GuestOptions {
            features: basic | f::VIRTIO_NET_F_MRG_RXBUF | takes,
            ring_size: 1024,
            ..GuestOptions::default()
        };
        [sends, takes]
    }

    /// Sends a packet, unless the ring is full.
    fn send(self, guest: &mut Guest, header: &NetHeader, frame: &[u8]) -> bool {
        let Kind::Chains(descriptors) = self else { return guest.send(header, frame) };
        // A header without offloads is all zero.
        let bytes = [&[0; 12], frame].concat();
        let parts: Vec<_> = bytes.chunks(bytes.len().div_ceil(descriptors.into())).collect();
        guest.send_chain(&parts, false)
    }

    /// Returns the number of packets that a turn has taken from a ring that was full.
    fn taken(self, guest: &Guest) -> u64 {
        let buffers = if let Kind::Chains(descriptors) = self { descriptors.into() } else { 1 };
        (guest.spare() / buffers) as u64
    }

    fn packet(self) -> anyhow::Result<(NetHeader, Vec<u8>)> {
        let size = match self {
            Kind::Chains(_) => return FULL.packet(),
            Kind::Frames(len) => {
                let mut frame = vec![0xa5; len];
                frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
                return Ok((NetHeader::default(), frame));
            }
            Kind::Whole => 1448,
            Kind::Cut(size) => size,
        };
        let payload = 65_000;
        let headers = Frame {
            src: MacAddr([2, 0, 0, 0, 0, 1]),
            dst: MacAddr([2, 0, 0, 0, 0, 2]),
            tags: [None, None],
            net: Net::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), ident: 1, ttl: 64 },
            transport: Transport::Tcp {
                src_port: 1000,
                dst_port: 2000,
                seq: 1,
                ack: 2,
                flags: Flags(0x10),
                window: 500,
            },
            payload_len: payload,
        };
        let mut frame = vec![0; 54 + usize::from(payload)];
        headers.emit(&mut frame, Checksum::Partial)?;
        let header = NetHeader {
            flags: 1,
            gso_type: 1,
            hdr_len: 54,
            gso_size: size,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 0,
        };
        Ok((header, frame))
    }
}

/// Returns the value below which this part of all values lies.
fn quantile(values: &mut [u64], part: f64) -> u64 {
    values.sort_unstable();
    values.get((part * values.len() as f64).saturating_as::<usize>()).copied().unwrap_or(0)
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let turns = if is_test { 20 } else { TURNS };
    let us = |cycles: u64| cycles as f64 / hertz() * 1e6;
    if !is_test {
        println!("| senders | p50 | p99 | turn | cycles | time |\n|---|---|---|---|---|---|");
    }
    let has_taps = Host::new("rows with taps").is_some();
    let alone = |(kind, way)| -> anyhow::Result<f64> {
        Ok(quantile(&mut Scene::new(&[(kind, way, 1)])?.run(turns)?.costs, 0.5) as f64)
    };
    for (name, senders) in
        ROWS.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)))
    {
        if !has_taps && senders.iter().any(|(_, way, _)| *way == Way::Tap) {
            continue;
        }
        let mut scene = Scene::new(senders)?;
        scene.run(turns / 10)?;
        let mut outcome = scene.run(turns)?;
        // A test has few turns, and one of them may take so long that others pay for it.
        let delays = outcome.delays.len();
        ensure!(is_test || delays > turns / 4, "{name}: {delays} paced packets of {turns} turns");
        let mut known: Vec<((Kind, Way), f64)> = Vec::new();
        let mut times = Vec::new();
        for (&(kind, way, weight), &sent) in scene.senders.iter().zip(&outcome.sent) {
            let cost = match known.iter().find(|(other, _)| *other == (kind, way)) {
                Some((_, cost)) => *cost,
                None => alone((kind, way))?,
            };
            known.push(((kind, way), cost));
            times.push(cost * sent as f64 / f64::from(weight));
        }
        if is_test {
            continue;
        }
        let times: Vec<_> = times.iter().map(|time| format!("{:.2}", time / times[0])).collect();
        let [p50, p99] = [0.5, 0.99].map(|part| us(quantile(&mut outcome.delays, part)));
        let turn = us(quantile(&mut outcome.turns, 0.5));
        let cost = quantile(&mut outcome.costs, 0.5);
        println!("| {name} | {p50:.1} | {p99:.1} | {turn:.1} | {cost} | {} |", times.join(", "));
    }
    Ok(())
}
