//! The cost of a packet in the table: to find its connection, to advance the state, to open one.
//!
//! `cargo bench -p straightline-conntrack [ROW...]`; words choose rows by their names. Without
//! `--bench` it does one round. Rows take turns, round by round. A row shows the median of its rounds in
//! nanoseconds a packet.
//!
//! | row | timed |
//! |---|---|
//! | `find` | batches of 256 packets of known connections, in a random order |
//! | `find+advance` | the same, and the state of each: data of one side, then acknowledgments of the other |
//! | `track` | the same in one call |
//! | `open` | a SYN of a new connection, in a table with free entries; and its end |
//! | `flood` | SYNs from random addresses to a port whose share is full: each evicts another |
//! | `flood of UDP` | the same with datagrams |
//! | `2 threads, …` | `find+advance` of two threads at once, each with a direction or with connections of its own |
//!
//! The last rows decide the design. Directions of a connection may come to different workers. With a
//! shared table, both change one entry (`both directions`). `own table` is the bound of a design in which
//! each worker has its own connections, and packets are handed over to it without a cost.
//!
//! On two cores of an AMD EPYC (family 25, model 17), at the commit that adds `Table::track`, with 1000
//! connections: 30 ns a packet with one thread, 31 with two tables, 42 with own connections of one table,
//! 76 with both directions of each connection on different threads. So sharing costs at most 45 ns a
//! packet, when both directions meet at once. Other designs must hand over a packet in less.
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use straightline_conntrack::{
    Direction, Ends, Entry, Key, Opened, Opening, PortShare, Secret, Segment, Settings, Side, Table, Tracked,
    Transport, Verdict,
};
use straightline_report::random::Random;
use straightline_report::statistics::median;
use straightline_wire::IpProtocol;
use straightline_wire::tcp::Flags;

const ROUNDS: u32 = 15;
const BATCH: usize = 256;
const PORTS: u16 = 8;
/// Packets of a round.
const COUNT: usize = 1 << 17;
const SIZES: [usize; 3] = [1000, 100_000, 1_000_000];
const SECRET: Secret =
    Secret([0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321, 0x5555_1234_aaaa_4321, 0x1357_9bdf_0246_8ace]);

fn share(connections: usize) -> PortShare {
    let connections = u32::try_from(connections).expect("a number of 32 bits");
    PortShare {
        connections,
        outbound_reserve: 0,
        each_opener: connections,
        openers: 1,
        by_protocol: false,
        half_open: connections,
        new_per_second: u32::MAX,
        fragments: 8,
    }
}

fn key(n: usize) -> Key {
    let n = u32::try_from(n).expect("a number of 32 bits");
    let port = u16::try_from(n % u32::from(PORTS)).expect("a port");
    let [_, a, b, c] = n.to_be_bytes();
    let ends = Ends { local: [10, 0, 0, 1], remote: [192, a, b, c], local_port: 40_000, remote_port: 443 };
    Key::v4(port, 1, IpProtocol::TCP, ends)
}

fn segment(flags: Flags, seq: u32, ack: u32, len: u32) -> Transport {
    Transport::Tcp(Segment { flags: flags.0, seq, ack, window: 60_000, len, scale: None })
}

fn open(table: &Table, key: &Key) -> Entry {
    let packet = segment(Flags::SYN, 0, 0, 0);
    let opening = Opening {
        direction: Direction::Outbound,
        opener: 0,
        is_trusted: false,
        generation: 1,
        rule: 1,
        packet: &packet,
        pickup: false,
    };
    match table.open(key, &opening, 0).expect("a place") {
        Opened::New(entry) | Opened::Known(entry) => entry,
    }
}

/// A table, and its connections in a random order.
struct Filled {
    table: Table,
    order: Vec<usize>,
    /// Bytes that each connection has sent so far.
    sent: u32,
}

impl Filled {
    fn new(count: usize, seed: u64) -> Self {
        // Some more places than connections: with all taken, one in some millions finds none.
        let each = (count / usize::from(PORTS) * 5 / 4).max(64);
        let ports: Vec<_> = (0..PORTS).map(|port| (port, share(each))).collect();
        let table = Table::new(Settings::default(), SECRET, &ports);
        let mut order: Vec<_> = (0..count).collect();
        for &n in &order {
            let key = key(n);
            let entry = open(&table, &key);
            let answer = segment(Flags::SYN.with(Flags::ACK), 0, 1, 0);
            assert!(matches!(table.advance(entry, Side::Remote, &answer, 0), Verdict::Pass(_)));
            assert!(matches!(table.advance(entry, Side::Local, &segment(Flags::ACK, 1, 1, 0), 0), Verdict::Pass(_)));
        }
        Random::new(seed).shuffle(&mut order);
        let mut filled = Filled { table, order, sent: 0 };
        filled.advance();
        filled
    }

    /// Returns the nanoseconds a packet to find connections.
    fn find(&self) -> f64 {
        let mut time = Duration::ZERO;
        let mut found = [None; BATCH];
        for batch in self.order.chunks(BATCH).cycle().take(COUNT / BATCH) {
            let keys: Vec<_> = batch.iter().map(|n| key(*n)).collect();
            let began = Instant::now();
            self.table.find(&keys, 1, &mut found);
            time += began.elapsed();
            assert!(black_box(&found)[..keys.len()].iter().all(Option::is_some));
        }
        each(time, COUNT)
    }

    /// Returns the nanoseconds a packet to find connections and to advance them.
    fn advance(&mut self) -> f64 {
        let passes = (COUNT / self.order.len()).max(1);
        let mut time = Duration::ZERO;
        for _ in 0..passes {
            time += self.pass(Side::Local, &self.order[..], self.sent)
                + self.pass(Side::Remote, &self.order[..], self.sent);
            self.sent += 100;
        }
        each(time, passes * self.order.len() * 2)
    }

    /// Returns the nanoseconds a packet to find connections and to advance them, in one call.
    fn track(&mut self) -> f64 {
        let passes = (COUNT / self.order.len()).max(1);
        let mut time = Duration::ZERO;
        let mut tracked = [Tracked::Unknown; BATCH];
        for _ in 0..passes {
            for side in [Side::Local, Side::Remote] {
                let packet = Self::packet(side, self.sent);
                for batch in self.order.chunks(BATCH) {
                    let keys: Vec<_> = batch.iter().map(|n| key(*n)).collect();
                    let packets = vec![packet; batch.len()];
                    let began = Instant::now();
                    self.table.track(&keys, side, black_box(&packets), |_| 1, 1, &mut tracked);
                    time += began.elapsed();
                    let passes = |tracked: &&Tracked| matches!(tracked, Tracked::Known(Verdict::Pass(_)));
                    assert_eq!(tracked[..batch.len()].iter().filter(passes).count(), batch.len(), "each is valid");
                }
            }
            self.sent += 100;
        }
        each(time, passes * self.order.len() * 2)
    }

    /// Returns data of one side, or its acknowledgment by the other one.
    fn packet(side: Side, sent: u32) -> Transport {
        match side {
            Side::Local => segment(Flags::ACK, 1 + sent, 1, 100),
            Side::Remote => segment(Flags::ACK, 1, 101 + sent, 0),
        }
    }

    /// Sends a packet of each of these connections.
    fn pass(&self, side: Side, order: &[usize], sent: u32) -> Duration {
        let packet = Self::packet(side, sent);
        let mut found = [None; BATCH];
        let mut time = Duration::ZERO;
        for batch in order.chunks(BATCH) {
            let keys: Vec<_> = batch.iter().map(|n| key(*n)).collect();
            let packets = vec![packet; batch.len()];
            let mut passed = 0;
            let began = Instant::now();
            self.table.find(&keys, 1, &mut found);
            for (entry, packet) in found.iter().zip(black_box(&packets)) {
                if let Some(entry) = entry {
                    let verdict = self.table.advance(*entry, side, packet, 1);
                    passed += usize::from(matches!(verdict, Verdict::Pass(_)));
                }
            }
            time += began.elapsed();
            assert_eq!(passed, batch.len(), "each is valid");
        }
        time
    }
}

fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

/// Returns the nanoseconds a packet of two threads at once.
fn both(works: [&(dyn Fn() -> f64 + Sync); 2]) -> f64 {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let [first, second] = works.map(|work| {
            scope.spawn(|| {
                barrier.wait();
                work()
            })
        });
        f64::midpoint(first.join().expect("a thread"), second.join().expect("a thread"))
    })
}

/// Two threads, each with one direction of all connections. They do not wait for each other, so the
/// same packets come again: data that was sent already, and its acknowledgment.
fn directions(filled: &Filled) -> f64 {
    let passes = (COUNT / filled.order.len()).max(1);
    let work = |side: Side| {
        let sent = filled.sent - 100;
        let time: Duration = (0..passes).map(|_| filled.pass(side, &filled.order, sent)).sum();
        each(time, passes * filled.order.len())
    };
    both([&|| work(Side::Local), &|| work(Side::Remote)])
}

/// Two threads, each with half of the connections of one table.
fn halves(filled: &Filled) -> f64 {
    let (first, second) = filled.order.split_at(filled.order.len() / 2);
    let work = |order: &[usize]| both_sides(filled, order);
    both([&|| work(first), &|| work(second)])
}

/// Two threads, each with a table of its own.
fn own(filled: [&Filled; 2]) -> f64 {
    let [first, second] = filled;
    both([&|| both_sides(first, &first.order), &|| both_sides(second, &second.order)])
}

fn both_sides(filled: &Filled, order: &[usize]) -> f64 {
    let passes = (COUNT / order.len() / 2).max(1);
    let sides = |_| filled.pass(Side::Local, order, filled.sent) + filled.pass(Side::Remote, order, filled.sent);
    let time: Duration = (0..passes).map(sides).sum();
    each(time, passes * order.len() * 2)
}

/// Returns the nanoseconds to open a connection, in a table for `count` connections.
fn opens(table: &Table, count: usize, random: &mut Random) -> f64 {
    let count = count.min(COUNT);
    let first = usize::try_from(random.below(1 << 22)).expect("a number");
    let keys: Vec<_> = (first..first + count).map(key).collect();
    let mut entries = Vec::with_capacity(count);
    let began = Instant::now();
    for key in &keys {
        entries.push(open(table, key));
    }
    let time = began.elapsed();
    assert!(entries.into_iter().all(|entry| table.end(entry)));
    each(time, count)
}

/// Returns the nanoseconds of a SYN or datagram from a random address, to a port whose share is full.
fn flood(table: &Table, protocol: IpProtocol, random: &mut Random) -> f64 {
    let packet = if protocol == IpProtocol::TCP { segment(Flags::SYN, 0, 0, 0) } else { Transport::Other };
    let opening = Opening {
        direction: Direction::Inbound,
        opener: 0,
        is_trusted: false,
        generation: 1,
        rule: 1,
        packet: &packet,
        pickup: false,
    };
    let mut time = Duration::ZERO;
    let mut found = [None; BATCH];
    for _ in 0..COUNT / BATCH {
        let keys: Vec<_> = (0..BATCH)
            .map(|_| {
                let [a, b, c, d, e, f, ..] = random.next().to_be_bytes();
                let ends = Ends {
                    local: [10, 0, 0, 1],
                    remote: [a, b, c, d],
                    local_port: 80,
                    remote_port: u16::from_be_bytes([e, f]),
                };
                Key::v4(0, 1, protocol, ends)
            })
            .collect();
        let began = Instant::now();
        table.find(&keys, 1, &mut found);
        for (key, found) in keys.iter().zip(&found) {
            if found.is_none() {
                let _ = black_box(table.open(key, &opening, 1));
            }
        }
        time += began.elapsed();
    }
    each(time, COUNT)
}

struct Row {
    name: String,
    times: Vec<f64>,
}

impl Row {
    fn add(rows: &mut Vec<Self>, name: String, chosen: &[String], measure: impl FnOnce() -> f64) {
        if !chosen.is_empty() && !chosen.contains(&name) {
            return;
        }
        let time = measure();
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.times.push(time),
            None => rows.push(Row { name, times: vec![time] }),
        }
    }
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let is_bench = words.iter().any(|word| word == "--bench");
    let chosen: Vec<_> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
    let rounds = if is_bench { ROUNDS } else { 1 };
    let sizes = if is_bench { &SIZES[..] } else { &SIZES[..1] };
    let mut random = Random::new(9);
    let mut rows = Vec::new();
    let mut filled: Vec<_> = sizes.iter().map(|size| [Filled::new(*size, 1), Filled::new(*size, 2)]).collect();
    let ports: Vec<_> = (0..PORTS).map(|port| (port, share(COUNT / usize::from(PORTS) + 64))).collect();
    let empty = Table::new(Settings::default(), SECRET, &ports);
    let full = Table::new(Settings::default(), SECRET, &[(0, share(10_000))]);
    let of_udp = Table::new(Settings::default(), SECRET, &[(0, share(10_000))]);
    for _ in 0..rounds {
        for (size, [first, second]) in sizes.iter().zip(&mut filled) {
            Row::add(&mut rows, format!("find, {size}"), &chosen, || first.find());
            Row::add(&mut rows, format!("find+advance, {size}"), &chosen, || first.advance());
            Row::add(&mut rows, format!("track, {size}"), &chosen, || first.track());
            Row::add(&mut rows, format!("2 threads, both directions, {size}"), &chosen, || directions(first));
            Row::add(&mut rows, format!("2 threads, own connections, {size}"), &chosen, || halves(first));
            Row::add(&mut rows, format!("2 threads, own table, {size}"), &chosen, || own([first, second]));
        }
        Row::add(&mut rows, "open, 1000".into(), &chosen, || opens(&empty, 1000, &mut random));
        Row::add(&mut rows, format!("open, {COUNT}"), &chosen, || opens(&empty, COUNT, &mut random));
        Row::add(&mut rows, "flood, share of 10000".into(), &chosen, || flood(&full, IpProtocol::TCP, &mut random));
        Row::add(&mut rows, "flood of UDP, share of 10000".into(), &chosen, || {
            flood(&of_udp, IpProtocol::UDP, &mut random)
        });
    }
    for row in rows {
        println!("{:40} {:8.2} ns", row.name, median(&row.times).unwrap_or(f64::NAN));
    }
}
