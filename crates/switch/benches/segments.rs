//! Large packets of 64 KiB from one guest's memory to another's, compared with the copy kernel
//! alone, round by round.
//!
//! `cargo bench -p straightline-switch --bench segments [WORD...]`; without `--bench`, one round of
//! each. One thread does everything. It sends a few large packets as one guest, runs the worker's
//! turns, and takes the arrived packets as the other guest. Only the worker's turns are timed.
//!
//! A cell has the smallest time of a large packet in nanoseconds. It also has two median ratios to
//! a plain copy in the same round: into one place, and into the same buffers. All three use many
//! places in turn, so that they find equally many lines in the caches. The lines are in the second
//! level or, with `far`, in the third. With `far`, another 2 MiB are read before each.

use std::env;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::Patch;
use straightline_packet::{Arena, Drops, Level, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_virtio::features as f;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_wire::MacAddr;
use straightline_wire::checksum;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;

/// Payload of a segment, with an MTU of 1500 bytes and the usual options of TCP.
const SIZE: u16 = 1448;
/// Segments of a large packet, and its payload: about the most that an IP packet has.
const PIECES: u16 = 45;
const PAYLOAD: u16 = PIECES * SIZE;
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: u16 = 14 + 20 + 20;
/// Large packets that the worker finds at once.
const BURST: usize = 4;
const ROUNDS: usize = 2000;
/// Places of 64 KiB that a plain copy uses in turn: as much memory as the buffers have.
const SPAN: usize = 7;
/// Bytes of headers in a buffer, virtio-net's included.
const FRONT: u32 = 12 + HEADERS as u32;

const BASIC: u64 = f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX;
const MERGE: u64 = BASIC | f::VIRTIO_NET_F_MRG_RXBUF;
const PACKED: u64 = MERGE | f::VIRTIO_F_RING_PACKED;
const SEND: u64 = BASIC | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
const TAKE: u64 = f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4;

/// The receiving guest's features and buffers.
struct Cell {
    name: &'static str,
    features: u64,
    buffer_len: u32,
    ring_size: u16,
    /// Bytes in each of a buffer's descriptors; 0: one descriptor.
    cut: u32,
    /// True if the sender does the segmentation.
    segments: bool,
    /// True if the sender also finishes the checksums of its segments.
    finished: bool,
}

const PLAIN: Cell =
    Cell { name: "", features: MERGE, buffer_len: 2048, ring_size: 256, cut: 0, segments: false, finished: false };
const FINISHED: Cell = Cell { segments: true, finished: true, ..PLAIN };

const CELLS: [Cell; 12] = [
    Cell { name: "cut-sums", ..PLAIN },
    Cell { name: "cut-sums-packed", features: PACKED, ..PLAIN },
    Cell { name: "cut-partial", features: MERGE | f::VIRTIO_NET_F_GUEST_CSUM, ..PLAIN },
    Cell { name: "whole-2048", features: MERGE | TAKE, ..PLAIN },
    Cell { name: "whole-2048-packed", features: PACKED | TAKE, ..PLAIN },
    Cell { name: "whole-4096", features: MERGE | TAKE, buffer_len: 4096, ring_size: 128, ..PLAIN },
    Cell { name: "whole-one", features: BASIC | TAKE, buffer_len: 65_600, ring_size: 8, ..PLAIN },
    Cell { name: "whole-17-parts", features: BASIC | TAKE, buffer_len: 65_600, ring_size: 128, cut: 4096, ..PLAIN },
    Cell { name: "pieces", features: MERGE | f::VIRTIO_NET_F_GUEST_CSUM, segments: true, ..PLAIN },
    Cell { name: "pieces-together", features: MERGE | TAKE, segments: true, ..PLAIN },
    Cell { name: "finished", features: MERGE | f::VIRTIO_NET_F_GUEST_CSUM, ..FINISHED },
    Cell { name: "finished-together", features: MERGE | TAKE, ..FINISHED },
];

fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = env::args().skip(1).collect();
    let measure = asked.iter().any(|word| word == "--bench") && !asked.iter().any(|word| word == "--test");
    let words: Vec<_> = asked.iter().filter(|word| !word.starts_with('-')).collect();
    let mut out = io::stdout().lock();
    writeln!(out, "{:>18} |  near: ns  of one  of buffers |   far: ns  of one  of buffers", "")?;
    for cell in CELLS.iter().filter(|cell| words.is_empty() || words.iter().any(|word| cell.name.contains(*word))) {
        write!(out, "{:>18}", cell.name)?;
        for far in [false, true] {
            let rows = Rig::new(cell, far)?.rows(if measure { ROUNDS } else { 1 })?;
            let least = rows.iter().map(|row| row[0]).fold(f64::MAX, f64::min);
            let ratio = |to: usize| median(rows.iter().map(|row| row[to] / row[0]));
            write!(out, " | {least:>9.0} {:>7.2} {:>11.2}", ratio(1), ratio(2))?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two guests, and a worker between them that this thread drives.
struct Rig {
    worker: Worker,
    /// The ports end when they are dropped.
    _ports: Vec<VhostUser>,
    source: Guest,
    sink: Guest,
    /// Packets in which a large packet is delivered.
    packets: usize,
    /// The headers of each packet of a burst, and the length of its body.
    sent: Vec<(Vec<u8>, u32)>,
    /// The bodies of each large packet: guest addresses and lengths.
    bodies: Vec<Vec<(u64, u32)>>,
    /// The places where the bodies of some bursts were stored: guest addresses and lengths.
    places: Vec<Vec<(u64, u32)>>,
    /// Memory that is read so that all other data stays only in the third-level cache.
    other: Vec<u64>,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(cell: &Cell, far: bool) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let drops: Vec<Arc<Drops>> = vec![Arc::default(), Arc::default()];
        let mut ports = Vec::new();
        for (n, drops) in (0..).zip(&drops) {
            let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
            let port = VhostUser::open(config, PortIndex(n), Arc::clone(drops), &rcu, Arc::clone(&waiter))?;
            ports.push(port);
        }
        let mut graph = Graph::new();
        let edges: Vec<_> = ports.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
        let node = graph.node("patch", Box::new(Patch::new(PortIndex(0))), &edges);
        ports.iter().for_each(|port| graph.input(port.for_worker(0), node));
        let arena = Arena::new(rcu.reader(), Settings::default(), drops);
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let Cell { features, buffer_len, ring_size, cut, segments, finished, .. } = *cell;
        let (len, size) = if segments { (2048, 64) } else { (65_600, 8) };
        let sends = GuestOptions { features: SEND, buffer_len: len, ring_size: size, ..GuestOptions::default() };
        let takes = GuestOptions { features, buffer_len, ring_size, receive_split: cut, ..GuestOptions::default() };
        let mut source = Guest::connect(&dir.path().join("p0"), &sends)?;
        let sink = Guest::connect(&dir.path().join("p1"), &takes)?;
        ensure!(sink.features() & features == features, "{}: some features were not negotiated", cell.name);
        let sent = if segments {
            let packet = |nth| Ok((front(Some(nth), finished)?, SIZE.into()));
            (0..PIECES).map(packet).collect::<anyhow::Result<_>>()?
        } else {
            vec![(front(None, false)?, PAYLOAD.into()); BURST]
        };
        let bodies =
            fill(&mut source, &sent)?.chunks(if segments { PIECES.into() } else { 1 }).map(<[_]>::to_vec).collect();
        let mut rig = Rig {
            worker,
            _ports: ports,
            source,
            sink,
            packets: if features & TAKE == TAKE { 1 } else { PIECES.into() },
            sent,
            bodies,
            places: Vec::new(),
            other: vec![1; if far { 256 << 10 } else { 0 }],
            _dir: dir,
        };
        rig.places = (0..64).map(|_| Ok(rig.delivered()?.1)).collect::<anyhow::Result<_>>()?;
        Ok(rig)
    }

    /// Sends a burst, and delivers it; returns the nanoseconds per large packet, and the places of
    /// the bodies.
    fn delivered(&mut self) -> anyhow::Result<(f64, Vec<(u64, u32)>)> {
        let level = self.source.level();
        let burst = self.bodies.len();
        for (front, body) in &self.sent {
            self.source.next_buffer().context("no buffer to send from")?.1.write(level, front);
            self.source.send_next(FRONT + body);
        }
        self.source.flush();
        let began = Instant::now();
        // A turn takes what its time allows.
        let mut took = 0;
        while took < self.sent.len() {
            took += self.worker.turn();
        }
        let time = began.elapsed();
        self.source.flush();
        let mut places = Vec::new();
        let memory = Arc::clone(self.sink.memory());
        let got = self.sink.receive(usize::MAX, |_, segments| {
            let first = segments.iter().take(1).map(|segment| segment.split_at(HEADERS.into()).1);
            let rest = first.chain(segments.iter().skip(1).copied());
            places.extend(rest.filter_map(|segment| Some((memory.guest_addr(segment)?, segment.len()))));
        });
        ensure!(got == burst * self.packets, "{got} packets arrived");
        let bytes: u64 = places.iter().map(|place| u64::from(place.1)).sum();
        ensure!(bytes == burst as u64 * u64::from(PAYLOAD), "{bytes} bytes arrived");
        Ok((time.as_secs_f64() * 1e9 / burst as f64, places))
    }

    /// Copies the same bodies with the kernel alone to these places; returns the nanoseconds per
    /// large packet.
    fn copied(&self, places: &[(u64, u32)]) -> anyhow::Result<f64> {
        let level = self.source.level();
        let burst = self.bodies.len();
        let memories = [self.source.memory(), self.sink.memory()];
        let mut hints = [0; 2];
        let mut took = Duration::ZERO;
        for (bodies, places) in self.bodies.iter().zip(places.chunks(places.len() / burst)) {
            let mut lists = [bodies.iter(), places.iter()];
            let mut next = |side: usize| {
                let &(at, len) = lists[side].next()?;
                memories[side].segment(at, len, &mut hints[side])
            };
            let began = Instant::now();
            let mut from = next(0).context("no body")?;
            let mut to = next(1).context("no place")?;
            loop {
                let n = to.copy_from(level, from, None);
                (from, to) = (from.split_at(n).1, to.split_at(n).1);
                let [more_from, more_to] =
                    [(0, from), (1, to)].map(|(side, rest)| if rest.is_empty() { next(side) } else { Some(rest) });
                let (Some(more_from), Some(more_to)) = (more_from, more_to) else { break };
                (from, to) = (more_from, more_to);
            }
            took += began.elapsed();
        }
        Ok(took.as_secs_f64() * 1e9 / burst as f64)
    }

    /// Returns nanoseconds per large packet, a row for each round: delivered, copied into one
    /// place, copied into the buffers.
    fn rows(&mut self, rounds: usize) -> anyhow::Result<Vec<[f64; 3]>> {
        let memory = Arc::clone(self.sink.memory());
        let area = self.sink.buffer(0).and_then(|first| memory.guest_addr(first)).context("no place")?;
        let mut rows = Vec::new();
        for round in 0..rounds {
            let mut row = [0.0; 3];
            for turn in 0..3 {
                std::hint::black_box(self.other.iter().step_by(8).sum::<u64>());
                match (round + turn) % 3 {
                    0 => row[0] = self.delivered()?.0,
                    1 => {
                        let nth = |n: usize| area + (((self.bodies.len() * round + n) % SPAN) << 16) as u64;
                        let places: Vec<_> = (0..self.bodies.len()).map(|n| (nth(n), PAYLOAD.into())).collect();
                        row[1] = self.copied(&places)?;
                    }
                    _ => {
                        let places = std::mem::take(&mut self.places[(round + 32) % 64]);
                        row[2] = self.copied(&places)?;
                        self.places[(round + 32) % 64] = places;
                    }
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Returns the bytes before the payload in a transmit buffer: of a large packet, or of one of its
/// segments, perhaps with a finished checksum.
fn front(segment: Option<u16>, finished: bool) -> anyhow::Result<Vec<u8>> {
    let nth = segment.unwrap_or(0);
    let last = segment.is_none_or(|nth| nth + 1 == PIECES);
    let headers = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        net: Net::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), ident: nth, ttl: 64 },
        transport: Transport::Tcp {
            src_port: 1000,
            dst_port: 2000,
            seq: u32::from(nth) * u32::from(SIZE),
            ack: 2,
            flags: Flags(if last { 0x18 } else { 0x10 }),
            window: 500,
        },
        payload_len: if segment.is_some() { SIZE } else { PAYLOAD },
    };
    let gso_size = if segment.is_some() { 0 } else { SIZE };
    let gso_type = u8::from(segment.is_none());
    let ask =
        NetHeader { flags: 1, gso_type, hdr_len: HEADERS, gso_size, csum_start: 34, csum_offset: 16, num_buffers: 0 };
    let mut bytes = ask.to_bytes().to_vec();
    bytes.resize(HEADER + usize::from(HEADERS), 0);
    if finished {
        bytes[..HEADER].fill(0);
        let payload: Vec<u8> = pattern(headers.payload_len.into()).collect();
        headers.emit(&mut bytes[HEADER..], Checksum::Complete { payload_sum: checksum::sum(&payload) })?;
    } else {
        headers.emit(&mut bytes[HEADER..], Checksum::Partial)?;
    }
    Ok(bytes)
}

/// Returns the payload of a packet. The period of the pattern is not a power of two.
fn pattern(len: usize) -> impl Iterator<Item = u8> {
    (0..251_u8).cycle().take(len)
}

/// Writes payload into all transmit buffers; returns the places of the bodies that will be sent.
fn fill(source: &mut Guest, sent: &[(Vec<u8>, u32)]) -> anyhow::Result<Vec<(u64, u32)>> {
    let memory = Arc::clone(source.memory());
    let mut bodies = Vec::new();
    for (buffer, (_, len)) in (0..).zip(sent) {
        let body = source.buffer(buffer).context("no such buffer")?.split_at(FRONT).1;
        body.write(Level::detect(), &pattern(*len as usize).collect::<Vec<_>>());
        bodies.push((memory.guest_addr(body).context("no such place")?, *len));
    }
    Ok(bodies)
}
