//! The cost of finding a station: the table beside other designs.
//!
//! Run `cargo bench -p straightline-fdb --bench designs [WORD...]`. Without `--bench` it does one
//! round. Designs take turns, round by round. A cell shows the median of the rounds in nanoseconds,
//! and the ratio to `one word` with its interval of 95 %.
//!
//! | design | key | what tells stations apart |
//! |---|---|---|
//! | `one word` | MAC | a word of 64 bits has address and port; it knows no VLANs, and is the reference |
//! | `sequence` | VLAN, MAC | a word for the key and one for the port, under a number for each bucket |
//! | `dense` | VLAN, MAC | a word has the address, and indices of at most 256 VLANs and 256 ports |
//! | `table` | VLAN, MAC | the crate's table: the place of a word says a part of its key |
//!
//! A lookup of a known station, and of an unknown one, is what a bridge does for a destination. A
//! known station that is learned again is what it does for a source.
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod dense;
mod one_word;
mod sequence;

use std::env;
use std::hint::black_box;
use std::time::Instant;

use straightline_fdb::{Fdb, LearnOutcome, Station};
use straightline_packet::PortIndex;
use straightline_report::statistics::{Pairing, median, ratio};
use straightline_wire::{MacAddr, VlanId};

const STATIONS: [usize; 3] = [64, 4096, 100_000];
const PORTS: u16 = 64;
const VLANS: u64 = 16;
const ROUNDS: u32 = 40;
const AGEING: u32 = 300;

/// A station: a VLAN (12 bits) and a MAC address (48 bits).
pub(crate) type Key = u64;

/// A table of stations, as far as the bench needs it.
trait Design {
    fn new(limit: usize) -> Self;
    fn lookup(&self, key: Key, now: u32) -> Option<u16>;
    /// Learns a station. Returns whether it was known at this port already.
    fn learn(&self, key: Key, port: u16, now: u32) -> bool;

    /// Looks up a station that a frame names.
    #[inline]
    fn lookup_named(&self, vlan: VlanId, mac: MacAddr, now: u32) -> Option<u16> {
        self.lookup(key(vlan, mac), now)
    }

    /// Learns a station that a frame names.
    #[inline]
    fn learn_named(&self, vlan: VlanId, mac: MacAddr, port: u16, now: u32) -> bool {
        self.learn(key(vlan, mac), port, now)
    }
}

#[inline]
fn key(vlan: VlanId, mac: MacAddr) -> Key {
    u64::from(vlan.get()) << 48 | mac.as_u64()
}

impl Design for Fdb {
    fn new(limit: usize) -> Self {
        let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
        Fdb::new(limit, AGEING, &ports, &[])
    }

    fn lookup(&self, key: Key, now: u32) -> Option<u16> {
        let (vlan, mac) = station(key);
        self.lookup_named(vlan, mac, now)
    }

    fn learn(&self, key: Key, port: u16, now: u32) -> bool {
        let (vlan, mac) = station(key);
        self.learn_named(vlan, mac, port, now)
    }

    #[inline]
    fn lookup_named(&self, vlan: VlanId, mac: MacAddr, now: u32) -> Option<u16> {
        self.lookup(Station::new(vlan, mac), now).map(|port| port.0)
    }

    #[inline]
    fn learn_named(&self, vlan: VlanId, mac: MacAddr, port: u16, now: u32) -> bool {
        self.learn(Station::new(vlan, mac), PortIndex(port), now) == LearnOutcome::Known
    }
}

fn station(key: Key) -> (VlanId, MacAddr) {
    let [high, low, mac @ ..] = key.to_be_bytes();
    (VlanId::new(u16::from_be_bytes([high, low])).unwrap_or_default(), MacAddr(mac))
}

/// The work of a round.
#[derive(Clone, Copy, Debug)]
enum Job {
    Known,
    Unknown,
    Learn,
}

/// Stations in the order in which they are looked up, and as many that no table knows.
struct Stations {
    known: Vec<(Key, u16)>,
    unknown: Vec<(Key, u16)>,
}

impl Stations {
    fn new(count: usize) -> Self {
        // Addresses of virtual machines count upwards. Others seem to be random.
        let mut random = 1_u64;
        let mut keys: Vec<Key> = (0..2 * count as u64)
            .map(|n| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let mac = if n % 2 == 0 { 0x0200_0000_0000 | n } else { random >> 16 & !(1 << 40) };
                (random % VLANS + 1) << 48 | mac
            })
            .collect();
        for at in (1..keys.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            keys.swap(at, usize::try_from(random >> 33).unwrap_or(0) % (at + 1));
        }
        // Each port has as many stations, so that its share suffices.
        let mut stations: Vec<_> = keys.into_iter().zip((0..PORTS).cycle()).collect();
        let unknown = stations.split_off(count);
        Stations { known: stations, unknown }
    }

    fn fill<D: Design>(&self) -> D {
        let table = D::new(self.known.len());
        for &(key, port) in &self.known {
            table.learn(key, port, 1);
        }
        for &(key, port) in &self.known {
            assert_eq!(table.lookup(key, 2), Some(port), "{key:x}");
        }
        assert!(self.unknown.iter().all(|&(key, _)| table.lookup(key, 2).is_none()));
        table
    }
}

/// Returns the nanoseconds of one call.
#[inline(never)]
fn time<D: Design>(table: &D, job: Job, stations: &Stations, from: usize) -> f64 {
    let keys = if matches!(job, Job::Unknown) { &stations.unknown } else { &stations.known };
    let count = 20_000;
    let named: Vec<_> = keys.iter().map(|&(key, port)| (station(key), port)).collect();
    let keys = named.iter().cycle().skip(from % named.len()).take(count);
    let began = Instant::now();
    match job {
        Job::Known | Job::Unknown => {
            for &((vlan, mac), _) in keys {
                black_box(table.lookup_named(vlan, mac, 2));
            }
        }
        Job::Learn => {
            for &((vlan, mac), port) in keys {
                black_box(table.learn_named(vlan, mac, port, 1));
            }
        }
    }
    began.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let asked: Vec<String> = env::args().skip(1).collect();
    let rounds = if asked.iter().any(|word| word == "--bench") { ROUNDS } else { 1 };
    println!("{:>8} {:>8} | one word | sequence | dense | table", "stations", "job");
    for count in STATIONS {
        let stations = Stations::new(count);
        let one_word: one_word::Table = stations.fill();
        let sequence: sequence::Table = stations.fill();
        let dense: dense::Table = stations.fill();
        let table: Fdb = stations.fill();
        for job in [Job::Known, Job::Unknown, Job::Learn] {
            let mut samples: [Vec<(u32, f64)>; 4] = Default::default();
            for round in 0..rounds {
                let from = round as usize * 7919;
                for turn in 0..4 {
                    let which = (turn + round as usize) % 4;
                    let time = match which {
                        0 => time(&one_word, job, &stations, from),
                        1 => time(&sequence, job, &stations, from),
                        2 => time(&dense, job, &stations, from),
                        _ => time(&table, job, &stations, from),
                    };
                    samples[which].push((round, time));
                }
            }
            print!("{count:>8} {:>8}", format!("{job:?}").to_lowercase());
            for times in &samples {
                let values: Vec<_> = times.iter().map(|&(_, time)| time).collect();
                print!(" | {:.1}", median(&values).unwrap_or(f64::NAN));
                if let Some(ratio) = ratio(times, &samples[0], Pairing::ByRound) {
                    print!(" {:.2}", ratio.value);
                    ratio.interval.iter().for_each(|all| print!(" [{:.2}, {:.2}]", all.low, all.high));
                }
            }
            println!();
        }
    }
}
