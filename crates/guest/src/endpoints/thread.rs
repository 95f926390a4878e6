//! Runs several [`Endpoint`]s on one thread, turn by turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use straightline_graph::clock::cycles;

use super::port::Endpoint;

/// Number of turns between two checks of the clock and of the stop flag.
const TURNS: u32 = 256;

/// Empty turns in a row after which the thread yields: there may be fewer CPUs than threads.
const IDLE_TURNS: u32 = 4096;

/// Interval between two checks of the backends.
const LOOK: Duration = Duration::from_millis(20);

/// A turn of this many cycles or more was interrupted. It does not measure the cost of the
/// endpoint.
const INTERRUPTED: u64 = 1 << 18;

/// Counters of an endpoint's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of turns that moved packets and were not interrupted.
    pub turns: u64,
    /// Number of packets moved in these turns.
    pub packets: u64,
    /// Cycles of the time-stamp counter spent in these turns.
    pub cycles: u64,
    /// The time-stamp counter at the start of the first turn that moved packets, and at the end of
    /// the last one. Interrupted turns are included.
    pub span: Option<(u64, u64)>,
}

/// Lets the endpoints take turns, in their order, until `stop` is set. If `cpu` is set, the calling
/// thread is pinned to this CPU meanwhile.
///
/// Returns the work of each endpoint, and the result: an error if an endpoint failed or if there is
/// no such CPU.
pub fn drive(
    endpoints: &mut [&mut dyn Endpoint],
    cpu: Option<usize>,
    stop: &AtomicBool,
) -> (Vec<Work>, anyhow::Result<()>) {
    let mut work = vec![Work::default(); endpoints.len()];
    let ended = cpu.map(Pinned::to).transpose().and_then(|_pinned| go_on(endpoints, &mut work, stop));
    (work, ended)
}

fn go_on(endpoints: &mut [&mut dyn Endpoint], work: &mut [Work], stop: &AtomicBool) -> anyhow::Result<()> {
    let mut idle = 0;
    let mut looked = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..TURNS {
            let mut moved_any = false;
            let mut clock = cycles();
            for (endpoint, work) in endpoints.iter_mut().zip(work.iter_mut()) {
                let moved = endpoint.turn(clock)?;
                let now = cycles();
                if moved > 0 {
                    work.note(clock, now, moved);
                    moved_any = true;
                } else {
                    endpoint.wake();
                }
                clock = now;
            }
            idle = if moved_any { 0 } else { idle + 1 };
            if idle == IDLE_TURNS {
                idle = 0;
                std::thread::yield_now();
            }
        }
        if looked.elapsed() > LOOK {
            looked = Instant::now();
            for endpoint in endpoints.iter_mut() {
                // One backend may sleep while another one keeps this thread busy.
                endpoint.wake();
                endpoint.check()?;
            }
        }
    }
    Ok(())
}

impl Work {
    /// Returns the cycles per packet; `None` without packets.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a metric for display")]
    pub fn cycles_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.cycles as f64 / self.packets as f64)
    }

    /// Adds the work of a later run.
    pub fn add(&mut self, later: Work) {
        self.turns += later.turns;
        self.packets += later.packets;
        self.cycles += later.cycles;
        self.span = self.span.zip(later.span).map(|((first, _), (_, last))| (first, last)).or(self.span).or(later.span);
    }

    #[inline]
    fn note(&mut self, began: u64, ended: u64, moved: usize) {
        let took = ended.wrapping_sub(began);
        if took < INTERRUPTED {
            self.turns += 1;
            self.packets += u64::try_from(moved).unwrap_or(u64::MAX);
            self.cycles += took;
        }
        self.span = Some((self.span.map_or(began, |(first, _)| first), ended));
    }
}

/// An error: there is no such CPU, or this process may not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCpu(pub usize);

impl std::fmt::Display for NoCpu {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "there is no CPU {} for this process", self.0)
    }
}

impl std::error::Error for NoCpu {}

/// Pins the calling thread to one CPU as long as this value lives.
#[derive(Debug)]
pub struct Pinned(CpuSet);

impl Pinned {
    /// Pins the calling thread to this CPU.
    ///
    /// # Errors
    /// There is no such CPU, or this process may not use it.
    pub fn to(cpu: usize) -> anyhow::Result<Pinned> {
        ensure!(cpu < CpuSet::MAX_CPU, NoCpu(cpu));
        let before = sched_getaffinity(None).context("cannot read the CPU affinity of this thread")?;
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).context(NoCpu(cpu))?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The thread gets its former CPUs back. If these CPUs were taken away meanwhile, the thread
        // stays pinned.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anyhow::bail;

    use super::*;

    /// An endpoint that moves two packets in each third turn, and fails or stops in turn `last`.
    struct Counter {
        turns: u64,
        woken: u64,
        last: u64,
        stop: Arc<AtomicBool>,
        fails: bool,
    }

    impl Endpoint for Counter {
        fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
            self.turns += 1;
            if self.turns == self.last {
                if self.fails {
                    bail!("the backend said nonsense");
                }
                self.stop.store(true, Ordering::Relaxed);
            }
            Ok(if self.turns.is_multiple_of(3) { 2 } else { 0 })
        }

        fn wake(&mut self) {
            self.woken += 1;
        }
    }

    fn counter(stop: &Arc<AtomicBool>, last: u64, fails: bool) -> Counter {
        Counter { turns: 0, woken: 0, last, stop: Arc::clone(stop), fails }
    }

    #[test]
    fn all_have_their_turns_until_the_stop() {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut a, mut b) = (counter(&stop, u64::MAX, false), counter(&stop, 300, false));
        let (work, ended) = drive(&mut [&mut a, &mut b], None, &stop);
        ended.expect("no error");
        assert_eq!((a.turns, b.turns), (2 * u64::from(TURNS), 2 * u64::from(TURNS)));
        for (endpoint, work) in [(&a, work[0]), (&b, work[1])] {
            // A turn that the system has interrupted is not counted.
            assert!(work.turns <= endpoint.turns / 3 && work.packets == 2 * work.turns, "{work:?}");
            assert!(work.span.is_some_and(|(first, last)| last >= first));
            assert!(endpoint.woken >= endpoint.turns - endpoint.turns / 3);
        }
    }

    #[test]
    fn a_pinned_thread_gets_its_cpus_back() {
        let before = sched_getaffinity(None).expect("ours");
        let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).expect("we run on one");
        let pinned = Pinned::to(cpu).expect("it is ours");
        assert_eq!(sched_getaffinity(None).expect("ours").count(), 1);
        drop(pinned);
        assert!(sched_getaffinity(None).expect("ours") == before);
        assert!(Pinned::to(CpuSet::MAX_CPU).is_err());
    }

    #[test]
    fn an_error_ends_all_and_the_thread_is_as_it_was() {
        let stop = Arc::new(AtomicBool::new(false));
        let before = sched_getaffinity(None).expect("an affinity");
        let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).expect("a CPU");
        let (mut a, mut b) = (counter(&stop, 10, true), counter(&stop, u64::MAX, false));
        let (work, ended) = drive(&mut [&mut a, &mut b], Some(cpu), &stop);
        let error = ended.expect_err("it fails");
        assert!(work[0].turns <= 3 && work[1].turns <= 3);
        assert_eq!((error.to_string().as_str(), b.turns), ("the backend said nonsense", 9));
        assert_eq!(sched_getaffinity(None).expect("an affinity"), before);
        let error = drive(&mut [], Some(CpuSet::MAX_CPU), &stop).1.expect_err("no such CPU");
        assert!(error.to_string().contains("no CPU"));
    }
}
