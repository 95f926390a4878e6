//! The bounds that this machine's memory sets: latency and bandwidth of each cache level and of
//! memory, and the time that a line takes from core to core.
//!
//! - **Latency**: each line of a buffer names the next one, in random order. No processor guesses it,
//!   so each load waits for the one before.
//! - **Read**: the switch's own sums, over the buffer again and again. In the nearest levels, the
//!   additions may be the bound, and not the loads.
//! - **Copy**: the C library's `memcpy`, from one half of the buffer to the other. The bytes count
//!   once.
//! - **Line**: two threads on two CPUs add to one word in turn. A round trip moves its line twice, as
//!   a ring entry that a guest fills and a switch takes.
//! - **Touched**: reading and writing memory that another CPU has read or written (`touched.rs`).
//!
//! The smallest of several rounds counts: whatever else runs on the machine makes it slower, and never
//! faster. Buffers have pages of 4 KiB, so the latency of large ones includes the page tables.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use straightline_packet::Level;
use straightline_report::random::Random;
use straightline_report::results::{LevelBounds, LineBounds, MemoryBounds};
use straightline_simd::{Sum, sum};

use super::cpus::{Topology, usable_cpus};
use super::touched::{SIZES, touched_bounds};
use super::turns::{pin, take_turns};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Rounds of each figure.
const ROUNDS: usize = 5;

/// The largest buffer. Memory is measured with four times the last cache level, if this is less.
const LARGEST: usize = 512 << 20;

/// Hand-overs of a line in one round.
const HAND_OVERS: u64 = 20_000;

/// Measures the bounds from this CPU, for about `secs` seconds a figure. `show` is told what is
/// measured.
///
/// # Errors
/// The process may not run on the CPU, or the machine does not tell its caches.
pub fn memory_bounds(cpu: usize, secs: f64, show: &mut dyn FnMut(&str)) -> anyhow::Result<MemoryBounds> {
    ensure!(secs > 0.0 && secs <= 60.0, "{secs} seconds a figure are not possible: use more than 0, at most 60");
    let time = Duration::from_secs_f64(secs / ROUNDS as f64);
    let before = sched_getaffinity(None).context("cannot read the CPU affinity of this thread")?;
    let others: Vec<usize> = usable_cpus()?.into_iter().filter(|&other| other != cpu).collect();
    pin(cpu)?;
    let measured = on_this_cpu(cpu, &others, time, show);
    sched_setaffinity(None, &before).context("cannot set the CPU affinity back")?;
    measured
}

fn on_this_cpu(
    cpu: usize,
    others: &[usize],
    time: Duration,
    show: &mut dyn FnMut(&str),
) -> anyhow::Result<MemoryBounds> {
    let mut levels = Vec::new();
    for Cache { name, bytes } in caches(cpu)? {
        show(&format!("{name}, {} KiB", bytes >> 10));
        // Half of a level, because other data is in it too.
        levels.push(level_bounds(&name, bytes, bytes / 2, time));
    }
    let last = levels.last().map_or(0, |level| level.bytes);
    let bytes = (4 * last).clamp(64 << 20, LARGEST);
    show(&format!("memory, {} MiB", bytes >> 20));
    levels.push(level_bounds("memory", bytes, bytes, time));
    let mut missing = Vec::new();
    if bytes < 4 * last {
        missing.push(format!("the buffer of {} MiB may partly be in the last cache level", bytes >> 20));
    }
    let topology = Topology::here();
    let mut lines = Vec::new();
    for &other in others {
        show(&format!("a line from CPU {cpu} to CPU {other} and back"));
        let round_trip_ns = round_trip_ns(other, HAND_OVERS)?;
        lines.push(LineBounds { cpu: other, place: place(&topology, cpu, other).to_owned(), round_trip_ns });
    }
    let mut touched = Vec::new();
    if let Some(&other) = others.first() {
        for bytes in SIZES {
            show(&format!("{} KiB that CPU {other} has touched", bytes >> 10));
            touched.extend(touched_bounds(other, bytes)?);
        }
    }
    if lines.is_empty() {
        missing.push("the way of a line: this process may run on one CPU only".to_owned());
    }
    if topology.nodes().len() < 2 {
        missing.push("memory of another NUMA node: this machine has one node".to_owned());
    }
    Ok(MemoryBounds { cpu, levels, lines, touched, missing })
}
fn level_bounds(name: &str, bytes: usize, buffer: usize, time: Duration) -> LevelBounds {
    LevelBounds {
        name: name.to_owned(),
        bytes,
        latency_ns: latency_ns(buffer, time),
        read_gb_per_s: read_gb_per_s(buffer, time),
        copy_gb_per_s: copy_gb_per_s(buffer, time),
    }
}

/// A cache level of a CPU.
#[derive(Debug, PartialEq, Eq)]
struct Cache {
    name: String,
    bytes: usize,
}

/// Returns the cache levels of a CPU that hold data, nearest first.
fn caches(cpu: usize) -> anyhow::Result<Vec<Cache>> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let entries = fs::read_dir(&folder).with_context(|| format!("{folder}: this machine does not tell its caches"))?;
    let read = |folder: &std::path::Path, file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let [level, kind, size] = ["level", "type", "size"].map(|file| read(&entry.path(), file).trim().to_owned());
        if let (Ok(level), Some(bytes), true) = (level.parse::<u8>(), bytes_of(&size), kind != "Instruction") {
            found.push((level, bytes));
        }
    }
    ensure!(!found.is_empty(), "{folder}: this machine does not tell its caches");
    found.sort_unstable();
    Ok(found.into_iter().map(|(level, bytes)| Cache { name: format!("L{level}"), bytes }).collect())
}

/// Returns the bytes of a size such as `32K`.
fn bytes_of(text: &str) -> Option<usize> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// A cache line whose first word is the index of another line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u32);

const _: () = assert!(size_of_val(&[Line(0); 2]) == 2 * LINE);

/// Returns lines that lead through all of them, in random order, and back to the first.
fn chain(lines: usize) -> Vec<Line> {
    let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap_or(u32::MAX)).collect();
    Random::new(lines as u64).shuffle(&mut order);
    let mut chain = vec![Line(0); order.len()];
    let behind = order.iter().cycle().skip(1);
    order.iter().zip(behind).for_each(|(&from, &to)| chain[from as usize] = Line(to));
    chain
}

fn latency_ns(buffer: usize, time: Duration) -> f64 {
    const STEPS: u32 = 10_000;
    let chain = chain(buffer / LINE);
    let mut at = 0;
    let mut run = |steps: u32| {
        for _ in 0..steps {
            at = chain[at as usize].0;
        }
        black_box(at);
    };
    // Each line is loaded once, so that it is where it belongs.
    run(u32::try_from(chain.len()).unwrap_or(u32::MAX));
    least(time, || {
        run(STEPS);
        f64::from(STEPS)
    })
}

fn read_gb_per_s(buffer: usize, time: Duration) -> f64 {
    let bytes = vec![1_u8; buffer];
    let level = Level::detect();
    1.0 / least(time, || {
        let mut total = Sum::new();
        sum(level, black_box(&bytes), &mut total);
        black_box(total.fold());
        buffer as f64
    })
}

fn copy_gb_per_s(buffer: usize, time: Duration) -> f64 {
    let mut bytes = vec![1_u8; buffer];
    let half = buffer / 2;
    1.0 / least(time, || {
        let (to, from) = black_box(&mut bytes[..]).split_at_mut(half);
        to[..half].copy_from_slice(&from[..half]);
        half as f64
    })
}

/// Runs `work` for this time in each of the rounds. It returns how much it has done. Returns the
/// least nanoseconds for one of these.
fn least(time: Duration, mut work: impl FnMut() -> f64) -> f64 {
    let mut round = || {
        let began = Instant::now();
        let mut done = 0.0;
        loop {
            done += work();
            let passed = began.elapsed();
            if passed >= time {
                return passed.as_secs_f64() * 1e9 / done;
            }
        }
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Returns the nanoseconds of a round trip of a line between this thread and one on another CPU.
fn round_trip_ns(other: usize, hand_overs: u64) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        // The time begins with the first turn, when the other thread runs.
        let mut began = None;
        take_turns(other, hand_overs, || _ = began.get_or_insert_with(Instant::now), || ())?;
        let took = began.map_or(Duration::ZERO, |began| began.elapsed());
        best = best.min(took.as_secs_f64() * 1e9 / hand_overs as f64);
    }
    Ok(best)
}

/// Returns the nanoseconds of a round trip of a line between two CPUs, in about a millisecond. A
/// hypervisor may move a virtual CPU, so this differs from one moment to the next.
///
/// # Errors
/// The process may not run on one of the CPUs, or they are one.
pub fn line_round_trip_ns([one, other]: [usize; 2]) -> anyhow::Result<f64> {
    ensure!(one != other, "CPU {one} hands nothing over to itself");
    let before = sched_getaffinity(None).context("cannot read the CPU affinity of this thread")?;
    pin(one)?;
    let measured = round_trip_ns(other, HAND_OVERS / 20);
    sched_setaffinity(None, &before).context("cannot set the CPU affinity back")?;
    measured
}

fn place(topology: &Topology, cpu: usize, other: usize) -> &'static str {
    if topology.share_core(cpu, other) {
        "the same core"
    } else if topology.are_apart(cpu, other) {
        "another node"
    } else {
        "another core"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_through_all_lines() {
        for lines in [1, 2, 3, 512] {
            let chain = chain(lines);
            let mut seen = vec![false; lines];
            let mut at = 0;
            for _ in 0..lines {
                assert!(!std::mem::replace(&mut seen[at], true), "{lines} lines, again {at}");
                at = chain[at].0 as usize;
            }
            assert_eq!(at, 0, "it is a circle");
        }
    }

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        let sizes = ["32K", "1024K", "2M", "512", "K", "3x", ""].map(bytes_of);
        assert_eq!(sizes, [Some(32 << 10), Some(1 << 20), Some(2 << 20), Some(512), None, None, None]);
    }

    #[test]
    fn a_line_needs_time_between_two_cpus() {
        let cpus = usable_cpus().expect("an affinity");
        assert!(line_round_trip_ns([cpus[0]; 2]).is_err());
        if let &[one, other, ..] = &cpus[..] {
            assert!(line_round_trip_ns([one, other]).expect("two CPUs") > 0.0);
        }
        assert_eq!(usable_cpus().expect("an affinity"), cpus);
    }

    #[test]
    fn a_machine_has_bounds_and_says_which_it_cannot_show() {
        let cpu = usable_cpus().expect("an affinity")[0];
        let mut shown = Vec::new();
        let bounds = memory_bounds(cpu, 0.005, &mut |what| shown.push(what.to_owned()));
        let Ok(bounds) = bounds else { return assert!(caches(cpu).is_err(), "{bounds:?}") };
        assert_eq!(bounds.levels.last().map(|level| level.name.as_str()), Some("memory"));
        assert_eq!(shown.len(), bounds.levels.len() + bounds.lines.len() + bounds.touched.len() / 3);
        assert_eq!(bounds.touched.len(), if bounds.lines.is_empty() { 0 } else { 9 });
        assert!(bounds.touched.iter().all(|line| line.read_ns > 0.0 && line.write_ns > 0.0), "{:?}", bounds.touched);
        for level in &bounds.levels {
            let figures = [level.latency_ns, level.read_gb_per_s, level.copy_gb_per_s];
            assert!(figures.iter().all(|figure| figure.is_finite() && *figure > 0.0), "{level:?}");
        }
        assert!(bounds.lines.iter().all(|line| line.round_trip_ns > 0.0 && line.cpu != cpu), "{:?}", bounds.lines);
        assert!(bounds.to_string().contains("memory"), "{bounds}");
        let json = serde_json::to_string(&bounds).expect("JSON");
        // The last digits of a number may differ.
        let read = serde_json::from_str::<MemoryBounds>(&json).expect("what was written");
        assert_eq!(read.to_string(), bounds.to_string());
        assert!(memory_bounds(100_000, 0.005, &mut |_| ()).is_err());
    }
}
