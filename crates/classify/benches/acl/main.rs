//! Cycles of a lookup beside DPDK's `rte_acl`, in interleaved rounds: the same rules of 5-tuples, the
//! same keys, batches of 256, one CPU.
//!
//! Run `cargo bench -p straightline-classify --bench acl [-- KIND...] [COUNT...]`. Kinds are those of
//! [`SetKind`], counts are numbers of rules, `ipv6` is the family. `updates` measures changes of a
//! table. Without `--bench` it does one round of small sets. The peer is `dpdk-test-acl`; its column
//! stays empty without it, and for rules that it cannot compile.
//!
//! Cycles are those of the time-stamp counter.

#![expect(unsafe_code, reason = "the time-stamp counter has no safe function")]
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod peer;
mod updates;

use std::env;
use std::hint::black_box;

use peer::Peer;
use straightline_classify::workload::{self, Family, Locality, SetKind};
use straightline_classify::{
    BitVectors, Dead, Forest, Key, Keys, Linear, MAX_KEYS, NONE, Rules, Scan, Structure, compile, lookup_level,
};
use straightline_report::statistics::{Pairing, median, ratio};

/// Keys of a trace.
const TRACE: usize = 16384;

/// Name of the peer's column.
const PEER: &str = "rte_acl";

/// Rounds with `--bench`.
const ROUNDS: u32 = 7;

/// Most bytes of a structure of bit vectors.
const MOST_BYTES: usize = 64 << 20;

/// Most rules of a scanned list that is measured.
const MOST_SCANNED: usize = 1000;

fn main() {
    let asked: Vec<String> = env::args().skip(1).collect();
    let measures = asked.iter().any(|word| word == "--bench") && !asked.iter().any(|word| word == "--test");
    let rounds = if measures { ROUNDS } else { 1 };
    let words: Vec<&str> = asked.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let kinds: Vec<SetKind> = SetKind::ALL.into_iter().filter(|kind| words.contains(&kind.name())).collect();
    let counts: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let family = if words.contains(&"ipv6") { Family::V6 } else { Family::V4 };
    let is_updates_only = words == ["updates"];
    pin();
    if !is_updates_only {
        let kinds = if kinds.is_empty() { SetKind::ALL.to_vec() } else { kinds };
        let sizes: &[usize] = if measures { &[10, 64, 1000, 10_000] } else { &[10, 200] };
        let counts = if counts.is_empty() { sizes.to_vec() } else { counts };
        let peer = Peer::find().inspect_err(|why| println!("skipped rte_acl: {why}")).ok();
        println!(
            "| rules | count | rte_acl | scan | bits | forest | trains | worst | chosen/rte_acl | accesses | KiB |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|");
        for kind in kinds {
            for &count in &counts {
                row((kind, family, count), rounds, peer.as_ref());
            }
        }
    }
    if is_updates_only || words.is_empty() {
        updates::run(if measures { 10_000 } else { 300 });
    }
}

/// Keeps this process on the last CPU. The peer is told the same one.
fn pin() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu());
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        println!("not pinned: {error}");
    }
}

fn cpu() -> usize {
    static CPU: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CPU.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from) - 1)
}

/// The measurements of one structure or trace.
struct Series {
    name: &'static str,
    structure: Option<Box<dyn Structure>>,
    batches: Vec<Keys>,
    cycles: Vec<(u32, f64)>,
}

impl Series {
    fn new(name: &'static str, structure: Option<Box<dyn Structure>>, keys: &[Key]) -> Self {
        let batches = keys.chunks(MAX_KEYS).map(|some| some.iter().collect()).collect();
        Self { name, structure, batches, cycles: Vec::new() }
    }

    fn median(&self) -> Option<f64> {
        median(&self.cycles.iter().map(|(_, cycles)| *cycles).collect::<Vec<_>>())
    }

    fn text(&self) -> String {
        self.median().map_or_else(String::new, |cycles| format!("{cycles:.1}"))
    }
}

/// Measures a set of rules, and prints its row.
fn row((kind, family, count): (SetKind, Family, usize), rounds: u32, peer: Option<&Peer>) {
    let level = lookup_level();
    let rules = workload::rules(kind, family, count, 1);
    let trace = workload::trace(&rules, Locality::None, TRACE, 2);
    let trains = workload::trace(&rules, Locality::Trains, TRACE, 2);
    let chosen = compile(&rules, level);
    let worst = worst_keys(&*chosen, &rules, &trace);
    let statistics = chosen.statistics();
    let scan = (count <= MOST_SCANNED).then(|| Box::new(Scan::new(&rules, level)) as Box<dyn Structure>);
    let bits = BitVectors::new(&rules, level, MOST_BYTES).map(|bits| Box::new(bits) as Box<dyn Structure>);
    let mut all = [
        Series::new(PEER, None, &trace),
        Series::new("scan", scan, &trace),
        Series::new("bits", bits, &trace),
        Series::new("forest", Some(Box::new(Forest::new(&rules, level))), &trace),
        Series::new("chosen", Some(compile(&rules, level)), &trace),
        Series::new("trains", Some(compile(&rules, level)), &trains),
        Series::new("worst", Some(chosen), &worst),
    ];
    check(&rules, &all);
    let files = peer.map(|peer| peer.write(&rules, family, &trace));
    for round in 0..rounds {
        for turn in 0..all.len() {
            // Each round begins with another one.
            let at = (turn + round as usize) % all.len();
            let series = &mut all[at];
            if let Some(structure) = &series.structure {
                series.cycles.push((round, cycles(&**structure, &series.batches)));
            } else if let Some((peer, files)) = peer.zip(files.as_ref()).filter(|_| series.name == PEER) {
                series.cycles.extend(peer.run(files, trace.len(), cpu()).map(|cycles| (round, cycles)));
            }
        }
    }
    if let Some(files) = &files {
        println!("{}", files.last_line());
    }
    let get = |name: &str| all.iter().find(|series| series.name == name).expect("a series of this row");
    let against = ratio(&get("chosen").cycles, &get(PEER).cycles, Pairing::ByRound).map_or_else(String::new, |ratio| {
        let interval = ratio.interval.map_or_else(String::new, |at| format!(" [{:.2}, {:.2}]", at.low, at.high));
        format!("{:.2}{interval}", ratio.value)
    });
    let worst = get("worst").median().zip(get("chosen").median()).map_or(0.0, |(worst, mean)| worst / mean);
    println!(
        "| {} | {count} | {} | {} | {} | {} | {} | {worst:.2} | {against} | {} | {} |",
        kind.name(),
        get(PEER).text(),
        get("scan").text(),
        get("bits").text(),
        get("forest").text(),
        get("trains").text(),
        statistics.accesses,
        statistics.bytes.div_ceil(1024),
    );
}

/// Returns a trace of the hundredth of all keys that takes the most reads, again and again.
fn worst_keys(structure: &dyn Structure, rules: &Rules, trace: &[Key]) -> Vec<Key> {
    let mut keys = trace.to_vec();
    keys.extend(workload::trace(rules, Locality::None, TRACE, 3));
    keys.extend(workload::misses(TRACE, 4));
    keys.sort_by_cached_key(|key| std::cmp::Reverse(structure.accesses(key)));
    keys.truncate(keys.len() / 100);
    keys.iter().copied().cycle().take(TRACE).collect()
}

/// Compares the first batch of each series with the linear list.
fn check(rules: &Rules, all: &[Series]) {
    let linear = Linear::new(rules);
    for series in all {
        let (Some(structure), Some(keys)) = (&series.structure, series.batches.first()) else { continue };
        let mut best = [NONE; MAX_KEYS];
        structure.lookup(keys, &Dead::default(), &mut best);
        for (at, &rank) in best.iter().enumerate().take(keys.len()) {
            assert_eq!(rank, linear.find(&keys.key(at), &Dead::default()), "{}", series.name);
        }
    }
}

/// Returns the mean of the cycles of a key, over a few passes.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn cycles(structure: &dyn Structure, batches: &[Keys]) -> f64 {
    let mut best = [NONE; MAX_KEYS];
    let keys: usize = batches.iter().map(Keys::len).sum();
    let dead = Dead::default();
    let passes = 40;
    // A first pass warms the caches, as the first iterations of the peer do.
    for batch in batches {
        structure.lookup(black_box(batch), &dead, &mut best);
    }
    let begin = ticks();
    for _ in 0..passes {
        for batch in batches {
            structure.lookup(black_box(batch), &dead, &mut best);
            black_box(&best);
        }
    }
    (ticks() - begin) as f64 / (keys * passes) as f64
}

/// Returns the time-stamp counter; elsewhere nanoseconds.
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a counter, and every x86-64 has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    {
        static BEGIN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        u64::try_from(BEGIN.elapsed().as_nanos()).expect("a run of fewer than 500 years")
    }
}
