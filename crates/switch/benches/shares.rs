//! The shares of a worker: how long a paced port waits beside ports that send without pause, and which
//! part of the worker's time each of those has, on one thread.
//!
//! `cargo bench -p straightline-switch --bench shares [WORD...]` prints a row for each set of senders.
//! Each sends to a guest of its own by a patch, and has packets in its ring at all times. A paced guest
//! sends one packet of 64 bytes at a time, which comes at any moment of a turn.
//!
//! - `p50`, `p99`: the paced packet's delay in microseconds, from its arrival in the ring to its delivery.
//! - `turn`: the median of a turn in microseconds.
//! - `cycles`: the cycles of a turn for each packet of the first sender, the median.
//! - `time`: the part of the worker's time that each sender has in relation to the first: its packets
//!   times the cycles of one of them alone, divided by its weight.
//!
//! With `--test` it runs each row for a few turns and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::Arc;

use anyhow::{Context, ensure};
use az::SaturatingAs;
use straightline_fdb::Fdb;
use straightline_graph::clock::{cycles, hertz};
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, Patch};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
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
    /// TCP packets of 64 KiB for a guest that takes them.
    Whole,
    /// TCP packets of 64 KiB for a guest that takes none, with segments of so many bytes.
    Cut(u16),
    /// Broadcasts of 1514 bytes in a bridge with so many receivers.
    Flood(u16),
}

/// A sender, and its weight.
type Sender = (Kind, u16);

const SMALL: Kind = Kind::Frames(64);
const FULL: Kind = Kind::Frames(1514);
const CUT: Kind = Kind::Cut(1448);

const ROWS: [(&str, &[Sender]); 13] = [
    ("none", &[]),
    ("64 bytes", &[(SMALL, 1)]),
    ("1514 bytes", &[(FULL, 1)]),
    ("64 KiB", &[(Kind::Whole, 1)]),
    ("64 KiB, cut", &[(CUT, 1)]),
    ("64 KiB, cut to 100 bytes", &[(Kind::Cut(100), 1)]),
    ("1514 bytes to 31 guests", &[(Kind::Flood(31), 1)]),
    ("8 of 64 bytes", &[(SMALL, 1); 8]),
    ("8 of 64 KiB", &[(Kind::Whole, 1); 8]),
    ("64 bytes beside 64 KiB", &[(SMALL, 1), (Kind::Whole, 1)]),
    ("64 bytes, 1514 bytes, 64 KiB, cut", &[(SMALL, 1), (FULL, 1), (Kind::Whole, 1), (CUT, 1)]),
    ("64 bytes, shares 1 and 2", &[(SMALL, 1), (SMALL, 2)]),
    ("64 KiB, shares 1 and 2", &[(Kind::Whole, 1), (Kind::Whole, 2)]),
];

/// Turns of a row.
const TURNS: usize = 20_000;

struct Scene {
    senders: Vec<Sender>,
    worker: Worker,
    /// For each sender and then for the paced one: its guest, those of its receivers, and its packet.
    pairs: Vec<(Guest, Vec<Guest>, NetHeader, Vec<u8>)>,
    _ports: Vec<VhostUser>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(senders: &[Sender]) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let mut graph = Graph::new();
        let mut ports = Vec::new();
        let mut drops: Vec<Arc<Drops>> = Vec::new();
        let mut pairs = Vec::new();
        for &(kind, weight) in senders.iter().chain([&(SMALL, 1)]) {
            let first = PortIndex(u16::try_from(ports.len())?);
            let receivers = if let Kind::Flood(receivers) = kind { receivers } else { 1 };
            for at in first.0..=first.0 + receivers {
                drops.push(Arc::default());
                let config = VhostUserConfig::new(format!("p{at}"), dir.path().join(format!("p{at}")));
                let own = Arc::clone(&drops[usize::from(at)]);
                ports.push(VhostUser::open(config, PortIndex(at), own, &rcu, Arc::clone(&waiter))?);
            }
            let members = &ports[first.index()..];
            let edges: Vec<_> = members.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
            let node = if receivers > 1 {
                let indexes: Vec<_> = (first.0..=first.0 + receivers).map(PortIndex).collect();
                let fdb = Arc::new(Fdb::new(1024, 300, &indexes, &[]));
                let members: Vec<_> = indexes.into_iter().map(BridgePort::plain).collect();
                graph.node("bridge", Box::new(Bridge::new(&members, fdb)), &edges)
            } else {
                graph.node("patch", Box::new(Patch::new(first)), &edges)
            };
            graph.input_with(members[0].for_worker(0), node, weight, None);
            let [sends, takes] = kind.options();
            let connect = |at: u16, options| Guest::connect(&dir.path().join(format!("p{at}")), options);
            let (header, frame) = kind.packet()?;
            let takers = (1..=receivers).map(|nth| connect(first.0 + nth, &takes)).collect::<Result<_, _>>()?;
            pairs.push((connect(first.0, &sends)?, takers, header, frame));
        }
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.change(drops, 31);
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        Ok(Scene { senders: senders.to_vec(), worker, pairs, _ports: ports, _dir: dir })
    }

    /// Runs so many turns.
    fn run(&mut self, turns: usize) -> anyhow::Result<Outcome> {
        let (paced, senders) = self.pairs.split_last_mut().context("the paced one")?;
        let mut outcome = Outcome { sent: vec![0; senders.len()], ..Outcome::default() };
        let mut waited = None;
        let mut last = 0;
        for turn in 0..turns {
            for (guest, _, header, frame) in &mut *senders {
                guest.flush();
                while guest.send(header, frame) {}
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
            for (sent, (guest, ..)) in outcome.sent.iter_mut().zip(&*senders) {
                *sent += guest.spare() as u64;
            }
            let first = senders.first().map_or(0, |(guest, ..)| guest.spare() as u64);
            outcome.costs.extend(last.checked_div(first));
        }
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
            Kind::Frames(_) | Kind::Flood(_) => return [GuestOptions::default(), GuestOptions::default()],
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

    fn packet(self) -> anyhow::Result<(NetHeader, Vec<u8>)> {
        let size = match self {
            Kind::Frames(len) => {
                let mut frame = vec![0xa5; len];
                frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
                return Ok((NetHeader::default(), frame));
            }
            Kind::Flood(_) => {
                let mut frame = Kind::Frames(1514).packet()?;
                frame.1[..6].fill(0xff);
                return Ok(frame);
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
    let alone =
        |kind| -> anyhow::Result<f64> { Ok(quantile(&mut Scene::new(&[(kind, 1)])?.run(turns)?.costs, 0.5) as f64) };
    for (name, senders) in
        ROWS.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)))
    {
        let mut scene = Scene::new(senders)?;
        scene.run(turns / 10)?;
        let mut outcome = scene.run(turns)?;
        ensure!(outcome.delays.len() > turns / 4, "{name}: {} paced packets of {turns} turns", outcome.delays.len());
        let mut known: Vec<(Kind, f64)> = Vec::new();
        let mut times = Vec::new();
        for (&(kind, weight), &sent) in scene.senders.iter().zip(&outcome.sent) {
            let cost = match known.iter().find(|(other, _)| *other == kind) {
                Some((_, cost)) => *cost,
                None => alone(kind)?,
            };
            known.push((kind, cost));
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
