//! A noisy neighbour: a thread that fills caches, and shows by numbers in its memory how much of it
//! was touched.
//!
//! The neighbour walks over its memory, cache line by cache line, and increments a number in each
//! line. At the end, the numbers show how often each line was touched. The processor time of a
//! round shows which cache held the lines.
//!
//! The neighbour's CPU decides what it disturbs. A CPU of its own on the worker's NUMA node is
//! preferred. There the neighbour shares the last-level cache and the memory with the switch, as a
//! VM's neighbour does. On a machine with two CPUs, it can only run on the generator's CPU, because
//! the other one is the worker's. Then the kernel schedules both threads in slices. The neighbour
//! takes processor time, and evicts cache lines that the generator needs in its next slice. The
//! packets per second of such a trial say nothing about caches. The worker's cycles per packet do,
//! because the worker is alone on its CPU, but only for the first packets of a slice.
//!
//! Latencies need another way, because a slice lasts milliseconds: there the neighbour and the
//! generator are one thread, and take turns ([`NeighbourTurns`]).

pub mod resctrl;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use straightline_report::statistics::{median, percentile};

use crate::machine::{are_apart, share_core, usable_cpus};

pub use turns::NeighbourTurns;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Number of lines between two checks of the stop flag.
const STRIDE: usize = 1024;

/// Least number of lines that are timed together, so that the cost of the system call is
/// negligible.
const TIMED: usize = 1 << 16;

/// The most memory of a neighbour, in bytes.
const MOST: usize = 1 << 30;

/// Number of times that are kept; later times overwrite the first ones.
const KEPT: usize = 4096;

/// A line, with the number of its touches.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Line(u64);

/// A running neighbour.
#[derive(Debug)]
pub struct Neighbour {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<anyhow::Result<Proof>>>,
    task: Pid,
}

/// The work that a neighbour has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Number of distinct lines that were touched. A footprint of `n` bytes has `n / 64` lines.
    pub lines: usize,
    /// Number of complete rounds over all lines.
    pub rounds: u64,
    /// Nanoseconds of processor time per line: the median of all rounds. `None` if the neighbour
    /// hardly ran.
    pub ns_per_line: Option<f64>,
    /// The third quartile of these times, divided by the first: near 1 if all rounds took the same
    /// time.
    pub spread_ratio: Option<f64>,
}

impl Neighbour {
    /// Starts a neighbour with this many bytes of memory on this CPU. When this function returns,
    /// all of the memory was touched once.
    ///
    /// # Errors
    /// The memory is smaller than a cache line or larger than a gibibyte, or this process may not
    /// use the CPU.
    pub fn start(bytes: usize, cpu: usize) -> anyhow::Result<Neighbour> {
        ensure!((LINE..=MOST).contains(&bytes), "a neighbour of {bytes} bytes is not possible: use {LINE} to {MOST}");
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let thread = {
            let stop = Arc::clone(&stop);
            let rounds = Arc::clone(&rounds);
            let work = move || {
                let pinned = pin(cpu).map(|()| gettid());
                let is_pinned = pinned.is_ok();
                // The caller of `start` waits for this message.
                let _ = tell.send(pinned);
                if is_pinned { work(bytes / LINE, &stop, &rounds) } else { Err(anyhow::anyhow!("it is not pinned")) }
            };
            std::thread::Builder::new().name("neighbour".to_owned()).spawn(work)?
        };
        let task = told.recv().context("the neighbour has ended")??;
        let neighbour = Neighbour { stop, rounds, thread: Some(thread), task };
        while neighbour.rounds() == 0 && !neighbour.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(neighbour)
    }

    /// Returns the kernel's id of the thread.
    pub fn task(&self) -> u32 {
        self.task.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the number of complete rounds so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the neighbour.
    ///
    /// # Errors
    /// The numbers in the lines differ from what the neighbour should have written.
    pub fn stop(mut self) -> anyhow::Result<Proof> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it has already ended")?;
        thread.join().map_err(|_| anyhow::anyhow!("the neighbour's thread panicked"))?
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is not needed any more.
            let _ = thread.join();
        }
    }
}

/// Makes rounds over `lines` lines until `stop` is set.
fn work(lines: usize, stop: &AtomicBool, rounds: &AtomicU64) -> anyhow::Result<Proof> {
    let mut memory = vec![Line::default(); lines];
    let mut times: Vec<f64> = Vec::with_capacity(KEPT);
    // The first round makes the kernel allocate the memory.
    let mut touched = round(&mut memory, None);
    rounds.store(1, Ordering::Relaxed);
    let at_once = TIMED.div_ceil(lines);
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let from = processor_time();
        let before = touched;
        for _ in 0..at_once {
            let some = round(&mut memory, Some(stop));
            touched += some;
            if some < lines {
                break;
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        if touched - before == at_once * lines {
            let time = (processor_time() - from).as_secs_f64() * 1e9 / float(touched - before);
            if times.len() < KEPT {
                times.push(time)
            } else {
                times[at % KEPT] = time
            }
            at += 1;
        }
    }
    let rounds = rounds.load(Ordering::Relaxed);
    prove(&memory, rounds, touched, &times)
}

/// Increments the number in each line in turn. Returns the number of lines touched before a stop.
fn round(memory: &mut [Line], stop: Option<&AtomicBool>) -> usize {
    let mut touched = 0;
    for part in memory.chunks_mut(STRIDE) {
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            break;
        }
        part.iter_mut().for_each(|line| line.0 += 1);
        touched += part.len();
    }
    touched
}

/// Checks that the numbers in the lines result from `rounds` complete rounds and a part of another
/// round.
fn prove(memory: &[Line], rounds: u64, touched: usize, times: &[f64]) -> anyhow::Result<Proof> {
    let distinct = memory.iter().filter(|line| line.0 > 0).count();
    let sum: u64 = memory.iter().map(|line| line.0).sum();
    let is_even = memory.iter().all(|line| line.0 == rounds || line.0 == rounds + 1);
    ensure!(
        distinct == memory.len() && is_even && usize::try_from(sum)? == touched,
        "the neighbour touched {distinct} of {} lines, {sum} times in total; it should touch each line {rounds} or {rounds}+1 times",
        memory.len()
    );
    let spread = percentile(times, 75.0).zip(percentile(times, 25.0)).filter(|&(_, first)| first > 0.0);
    Ok(Proof {
        lines: distinct,
        rounds,
        ns_per_line: median(times),
        spread_ratio: spread.map(|(third, first)| third / first),
    })
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn pin(cpu: usize) -> anyhow::Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("the neighbour cannot run on CPU {cpu}"))
}

/// The CPU of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourCpu {
    /// A CPU that nothing else of the trial uses.
    Own(usize),
    /// The generator's CPU, because there is no third one.
    SharedWithGenerator(usize),
}

impl NeighbourCpu {
    /// Returns the best CPU for a neighbour, beside those of the worker and the generator.
    ///
    /// # Errors
    /// The CPUs of this process cannot be read.
    pub fn find(worker: usize, generator: usize) -> anyhow::Result<NeighbourCpu> {
        Ok(NeighbourCpu::among(usable_cpus()?, worker, generator, share_core, are_apart))
    }

    /// Prefers a core of its own on the worker's NUMA node; then the generator's core; then another
    /// node; then the worker's core.
    fn among(
        cpus: impl IntoIterator<Item = usize>,
        worker: usize,
        generator: usize,
        share_core: impl Fn(usize, usize) -> bool,
        are_apart: impl Fn(usize, usize) -> bool,
    ) -> NeighbourCpu {
        let others = cpus.into_iter().filter(|&cpu| cpu != worker && cpu != generator);
        // On another node the neighbour does not use the worker's last-level cache.
        let rank = |&cpu: &usize| (share_core(cpu, worker), are_apart(cpu, worker), share_core(cpu, generator));
        let other = others.min_by_key(rank);
        other.map_or(NeighbourCpu::SharedWithGenerator(generator), NeighbourCpu::Own)
    }

    /// Returns the CPU.
    pub fn cpu(self) -> usize {
        match self {
            NeighbourCpu::Own(cpu) | NeighbourCpu::SharedWithGenerator(cpu) => cpu,
        }
    }

    /// Returns the choice's name in a result's cell.
    pub fn as_str(self) -> &'static str {
        match self {
            NeighbourCpu::Own(_) => "own-cpu",
            NeighbourCpu::SharedWithGenerator(_) => "testers-cpu",
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric for display")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_cpu() -> usize {
        *usable_cpus().expect("our CPUs").first().expect("one of them")
    }

    #[test]
    fn what_it_touches_is_proven() {
        for bytes in [64, 16 << 10, (4 << 20) + 64 * 3] {
            let neighbour = Neighbour::start(bytes, some_cpu()).expect("a neighbour");
            assert!(neighbour.task() > 0);
            let upto = neighbour.rounds() + 3;
            straightline_testing::wait_until("three more rounds", || neighbour.rounds() >= upto);
            let proof = neighbour.stop().expect("a proof");
            assert_eq!(proof.lines, bytes / 64);
            assert!(proof.rounds >= upto, "{proof:?}");
        }
    }

    #[test]
    fn what_it_did_not_touch_is_found_out() {
        let mut memory = vec![Line(2); 9];
        let proof = prove(&memory, 2, 18, &[1.0, 4.0, 2.0, 8.0, 2.0]).expect("two rounds");
        assert_eq!((proof.ns_per_line, proof.spread_ratio), (Some(2.0), Some(2.0)));
        memory[0].0 = 3;
        let proof = prove(&memory, 2, 19, &[]).expect("and the part of another");
        assert_eq!((proof.ns_per_line, proof.spread_ratio), (None, None));
        for wrong in [0, 1, 4] {
            memory[5].0 = wrong;
            let error = prove(&memory, 2, 19, &[]).expect_err("a line that it left out, or touched too often");
            assert!(
                error.to_string().contains("of 9 lines") && error.to_string().contains("each line 2 or"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        for bytes in [0, 63, MOST + 1] {
            assert!(Neighbour::start(bytes, some_cpu()).expect_err("no such footprint").to_string().contains("64 to"));
        }
        let error = Neighbour::start(64, CpuSet::MAX_CPU).expect_err("no such CPU");
        assert!(error.to_string().contains("there is no CPU"), "{error}");
    }

    #[test]
    fn it_sits_alone_where_it_can() {
        let never = |_: usize, _: usize| false;
        assert_eq!(NeighbourCpu::among([0, 1, 2, 3], 1, 0, never, never), NeighbourCpu::Own(2));
        assert_eq!(NeighbourCpu::among([0, 1], 0, 1, never, never), NeighbourCpu::SharedWithGenerator(1));
        let pairs = |one: usize, other: usize| one / 2 == other / 2;
        assert_eq!(NeighbourCpu::among([0, 1, 2, 3, 4, 5], 2, 0, pairs, never), NeighbourCpu::Own(4));
        assert_eq!(NeighbourCpu::among([0, 1, 2, 3], 0, 2, pairs, never), NeighbourCpu::Own(3));
        assert_eq!(NeighbourCpu::among([0, 1, 2], 0, 2, pairs, never), NeighbourCpu::Own(1));
        // Two nodes, the even and the odd CPUs, each of two cores: 0 and 4, 2 and 6; 1 and 5, 3 and
        // 7.
        let core = |one: usize, other: usize| one % 4 == other % 4;
        let apart = |one: usize, other: usize| one % 2 != other % 2;
        assert_eq!(NeighbourCpu::among(0..8, 2, 0, core, apart), NeighbourCpu::Own(4));
        // On the worker's core, the neighbour would take more from the worker than cache.
        assert_eq!(NeighbourCpu::among([0, 1, 2, 6], 2, 0, core, apart), NeighbourCpu::Own(1));
        assert_eq!((NeighbourCpu::Own(2).cpu(), NeighbourCpu::SharedWithGenerator(1).as_str()), (2, "testers-cpu"));
    }
}
