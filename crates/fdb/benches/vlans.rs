//! The cost of a lookup in a large table of many VLANs, beside a small one and the memory's bound.
//!
//! `cargo bench -p straightline-fdb --bench vlans`: 100 000 stations, drawn evenly from 4094 VLANs,
//! beside 100. All are looked up in a random order. The bound is the time of a load from a place of the
//! large table's size, at random and behind the load before, less that of a load from a small one.
//! Without `--bench` it does one round.
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

use std::hint::black_box;
use std::time::Instant;

use straightline_fdb::{Fdb, Station};
use straightline_packet::PortIndex;
use straightline_report::random::Random;
use straightline_report::statistics::{Pairing, median, ratio};
use straightline_testing::loads::Loads;
use straightline_wire::{MacAddr, VlanId};

const STATIONS: [usize; 2] = [100, 100_000];
const PORTS: u16 = 64;
const ROUNDS: u32 = 40;
/// Lookups of a round.
const COUNT: usize = 400_000;
/// Slots of each table: two and a half for each station, up to a power of two.
const SLOTS: [usize; 2] = [1 << 8, 1 << 18];

/// A table, and its stations in a random order.
struct Filled {
    table: Fdb,
    stations: Vec<(VlanId, MacAddr)>,
}

impl Filled {
    fn new(count: usize) -> Self {
        let mut random = Random::new(31);
        let vlans = u64::from(VlanId::MAX.get());
        let station = |_| {
            let vid = u16::try_from(1 + random.below(vlans)).ok().and_then(VlanId::new).unwrap_or_default();
            let [.., a, b, c, d, e] = random.next().to_be_bytes();
            (vid, MacAddr([2, a, b, c, d, e]))
        };
        let mut stations: Vec<_> = (0..count).map(station).collect();
        let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
        let table = Fdb::new(count, 300, &ports, &[]);
        for (&(vlan, mac), &port) in stations.iter().zip(ports.iter().cycle()) {
            table.learn(Station::new(vlan, mac), port, 1);
        }
        let is_known = |&(vlan, mac): &(VlanId, MacAddr)| table.lookup(Station::new(vlan, mac), 2).is_some();
        assert!(stations.iter().all(is_known), "each station has a place");
        random.shuffle(&mut stations);
        Filled { table, stations }
    }

    /// Returns the nanoseconds of a lookup.
    #[inline(never)]
    fn time(&self, from: usize) -> f64 {
        let stations = self.stations.iter().cycle().skip(from % self.stations.len()).take(COUNT);
        let began = Instant::now();
        for &(vlan, mac) in stations {
            black_box(self.table.lookup(Station::new(vlan, mac), 2));
        }
        began.elapsed().as_secs_f64() * 1e9 / COUNT as f64
    }
}

fn main() {
    let rounds = if std::env::args().any(|word| word == "--bench") { ROUNDS } else { 1 };
    let [few, many] = STATIONS.map(Filled::new);
    let [near, far] = SLOTS.map(Loads::new);
    let mut lookups = [Vec::new(), Vec::new()];
    let mut bounds = Vec::new();
    let mut sums = Vec::new();
    for round in 0..rounds {
        let from = round as usize * 7919;
        let times = [few.time(from), many.time(from)];
        let [near, far] = [&near, &far].map(|loads| loads.time(COUNT).as_secs_f64() * 1e9 / COUNT as f64);
        let bound = far - near;
        lookups[0].push((round, times[0]));
        lookups[1].push((round, times[1]));
        bounds.push(bound);
        sums.push((round, times[0] + bound));
    }
    for (samples, what) in lookups.iter().zip(["100 stations", "100 000 stations in 4094 VLANs"]) {
        let values: Vec<_> = samples.iter().map(|(_, time)| *time).collect();
        println!("{what}: {:.2} ns", median(&values).unwrap_or(f64::NAN));
    }
    println!("memory's bound, {} slots: {:.2} ns", SLOTS[1], median(&bounds).unwrap_or(f64::NAN));
    for (what, beside) in [("100 stations", &lookups[0]), ("100 stations and the bound", &sums)] {
        let Some(ratio) = ratio(&lookups[1], beside, Pairing::ByRound) else { continue };
        let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.2}, {:.2}]", all.low, all.high));
        println!("100 000 beside {what}: {:.2}{interval}", ratio.value);
    }
}
