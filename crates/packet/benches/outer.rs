//! The cost of outer headers: a TCP packet of 64 KiB is segmented as it is, and in a tunnel.
//!
//! Run `cargo bench -p straightline-packet --bench outer [WORD...]`. Without `--bench` it segments
//! each packet once. All rows take turns, round by round. A row shows:
//!
//! | column | meaning |
//! |---|---|
//! | cycles | cycles per byte of payload, the least of all rounds |
//! | ratio | median of the rounds, relative to the first row of the same kind of checksum |
//!
//! Every packet on the wire has an MTU of 1500 bytes, so a tunnel has more and smaller segments.
//! That is part of its ratio. The rows `same size` have the segments of a tunnel without its
//! headers. Cycles are those of the frequency that `/proc/cpuinfo` shows.
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use straightline_packet::{
    Arena, BodyCursor, Checksum, Gso, GsoKind, GsoSegment, Offload, Outer, OuterChecksum, PortIndex, Segmenter,
    Settings, SourceQueueId,
};
use straightline_testing::memory::{Memory, arena, pattern};
use straightline_wire::frame::{self, Frame, Net, Transport};
use straightline_wire::tcp::Flags;
use straightline_wire::{IpProtocol, MacAddr, ipv4, ipv6};

const MTU: u16 = 1500;
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: u16 = 14 + 20 + 20;
/// Payload of the unsegmented packet.
const PAYLOAD: u16 = 65_000;
/// Unsegmented packets that take turns, so that their payload is not in the first-level cache.
const SOURCES: usize = 4;
/// Buffers of a receive ring.
const BUFFERS: usize = 256;
const BUFFER: usize = 2048;
/// Bytes of the virtio-net header.
const N: usize = 12;
const ROUNDS: usize = 1000;

/// One way to segment a packet.
struct Row {
    name: &'static str,
    /// Headers of the tunnel; none without a tunnel.
    front: Vec<u8>,
    outer: Option<Outer>,
    /// Payload of a segment.
    size: u16,
    finish: bool,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for finish in [true, false] {
        // The overhead is all between the outer Ethernet header and the inner network header.
        let plain = |name, overhead| Row {
            name,
            front: Vec::new(),
            outer: None,
            size: MTU - overhead - (HEADERS - 14),
            finish,
        };
        let tunnel = |name, v4, header, protocol, checksum| {
            let overhead = if v4 { 20 } else { 40 } + header + 14;
            let outer = Outer { l3: 14, checksum, gtpu: None };
            Row { front: front(v4, header, protocol), outer: Some(outer), ..plain(name, overhead) }
        };
        rows.push(plain("plain", 0));
        rows.push(plain("same size as VXLAN/4", 50));
        rows.push(tunnel("VXLAN/4", true, 16, IpProtocol::UDP, OuterChecksum::Udp { l4: 34 }));
        rows.push(tunnel("VXLAN/6", false, 16, IpProtocol::UDP, OuterChecksum::Udp { l4: 54 }));
        rows.push(plain("same size as L2TPv3/6", 66));
        rows.push(tunnel("L2TPv3/6", false, 12, IpProtocol(115), OuterChecksum::None));
        rows.push(tunnel("GRE/6 with checksum", false, 8, IpProtocol(47), OuterChecksum::Gre { at: 54 }));
    }
    rows
}

/// Returns the headers of a tunnel: Ethernet, IP, `header` bytes, and the inner Ethernet header is
/// the packet's own.
fn front(v4: bool, header: u16, protocol: IpProtocol) -> Vec<u8> {
    let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let mut network = vec![0; if v4 { 20 } else { 40 }];
    let (ether_type, emitted) = if v4 {
        let repr = ipv4::Repr {
            tos: 0,
            payload_len: 0,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
        };
        ([8, 0], repr.emit(&mut network))
    } else {
        let repr = ipv6::Repr {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header: protocol,
            hop_limit: 64,
            src: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
            dst: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
        };
        ([0x86, 0xdd], repr.emit(&mut network))
    };
    emitted.expect("enough space");
    let header: Vec<_> = (0..header).map(|at| at.to_le_bytes()[0]).collect();
    [&link[..], &ether_type, &network, &header].concat()
}

/// Returns an unsegmented packet.
fn packet() -> Vec<u8> {
    let frame = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 3]),
        dst: MacAddr([2, 0, 0, 0, 0, 4]),
        tags: [None, None],
        net: Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        transport: Transport::Tcp { src_port: 1000, dst_port: 2000, seq: 1, ack: 2, flags: Flags(0x18), window: 500 },
        payload_len: PAYLOAD,
    };
    let mut bytes = pattern(usize::from(HEADERS) + usize::from(PAYLOAD));
    frame.emit(&mut bytes, frame::Checksum::Partial).expect("enough space");
    bytes
}

struct Bench {
    arena: Arena,
    sources: Vec<Memory>,
    buffers: Vec<Memory>,
    segment: Box<GsoSegment>,
    /// Number of packets so far.
    packets: usize,
}

impl Bench {
    /// Segments one packet. Returns the time of that and of all work that a tunnel adds.
    fn segment(&mut self, row: &Row) -> Duration {
        let Bench { arena, sources, buffers, segment, packets } = self;
        let source = &sources[*packets % SOURCES];
        let count = usize::from(PAYLOAD.div_ceil(row.size));
        let buffers = buffers.iter().cycle().skip(*packets * 50 % BUFFERS).take(count);
        *packets += 1;
        arena.turn(|turn| {
            let bytes = source.segment(0, usize::from(HEADERS) + usize::from(PAYLOAD));
            let id = turn.accept(PortIndex(0), SourceQueueId::NONE, bytes).expect("a free slot");
            let kind = GsoKind::Tcp4;
            let size = row.size;
            let gso = Gso { kind, ecn: false, size, l3: 14, l4: 34, header_len: HEADERS, outer: None };
            let checksum = Checksum::Partial { start: 34, offset: 16 };
            turn.set_offload(id, Offload { checksum, gso: Some(gso) });
            let mark = turn.mark();
            buffers.for_each(|buffer| turn.stage(buffer.segment(0, BUFFER)));
            let staged = mark..turn.mark();
            let began = Instant::now();
            let outside = turn.save_outside(id);
            if let Some(outer) = row.outer {
                turn.prepend_outer(id, &row.front, outer).expect("a good packet");
            }
            let gso = turn.offload(id).gso.expect("still to be segmented");
            let mut segmenter = Segmenter::new(gso, turn.len(id)).expect("good numbers");
            assert!(segmenter.begin(turn.head(id), segment), "good headers");
            *segment.prefix_mut::<N>() = [0; N];
            let mut cursor = BodyCursor::default();
            turn.store_gso_segments::<N>(id, &mut segmenter, segment, &mut cursor, staged, row.finish);
            turn.restore_outside(id, &outside);
            let took = began.elapsed();
            assert_eq!(black_box(segmenter.left()), 0, "all segments were stored");
            turn.unstage(mark);
            took
        })
    }
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let measure = asked.iter().any(|word| word == "--bench") && !asked.iter().any(|word| word == "--test");
    let words: Vec<_> = asked.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted =
        |row: &Row| words.is_empty() || row.name == "plain" || words.iter().any(|word| row.name.contains(*word));
    let rows: Vec<_> = rows().into_iter().filter(is_wanted).collect();
    let mut bench = Bench {
        arena: arena(Settings::default()),
        sources: (0..SOURCES).map(|_| Memory::new(&packet())).collect(),
        buffers: (0..BUFFERS).map(|_| Memory::new(&[0; BUFFER])).collect(),
        segment: Box::default(),
        packets: 0,
    };
    let mut times = vec![Vec::new(); rows.len()];
    let (rounds, packets) = if measure { (ROUNDS, 16) } else { (1, 1) };
    for round in 0..rounds {
        for turn in 0..rows.len() {
            // Odd rounds go backwards, so that each row follows each of its neighbours.
            let turn = if round % 2 == 0 { turn } else { rows.len() - 1 - turn };
            let nth = (turn + round / 2) % rows.len();
            let time: Duration = (0..packets).map(|_| bench.segment(&rows[nth])).sum();
            times[nth].push(time.as_secs_f64() / f64::from(packets));
        }
    }
    if !measure {
        return;
    }
    let hertz = hertz();
    println!("{:>22} {:>9} | cycles  ratio", "", "checksums");
    let mut base = 0;
    for (nth, row) in rows.iter().enumerate() {
        base = if row.name == "plain" { nth } else { base };
        let least = times[nth].iter().copied().fold(f64::MAX, f64::min);
        let mut ratios: Vec<_> = times[nth].iter().zip(&times[base]).map(|(time, base)| time / base).collect();
        ratios.sort_by(f64::total_cmp);
        let checksums = if row.finish { "finished" } else { "partial" };
        let cycles = least * hertz / f64::from(PAYLOAD);
        println!("{:>22} {checksums:>9} | {cycles:>6.4} {:>6.3}", row.name, ratios[ratios.len() / 2]);
    }
}

/// Returns the nominal frequency of a CPU.
fn hertz() -> f64 {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("cpu MHz"));
    line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok()).map_or(f64::NAN, |mhz| mhz * 1e6)
}
