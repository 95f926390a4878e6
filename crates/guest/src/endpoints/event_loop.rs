//! The event loop of driver-side guests. Every endpoint takes its turns here.
//!
//! ```text
//! until the stop, the deadline, an endpoint's end or an error:
//!     a round: 256 times
//!         each endpoint takes a turn; after a turn that moved nothing it wakes its backends
//!         after many turns in a row that moved nothing, the thread yields
//!     every 20 ms: each endpoint wakes its backends and checks its connections
//!     the caller's own step after a round
//! ```
//!
//! The loop is compiled anew for each type of endpoint. The reflector is called directly. Endpoints
//! of several types share a thread as `dyn Endpoint`, at the cost of one indirect call per turn.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use az::SaturatingAs;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use straightline_graph::clock::cycles;

use super::port::Endpoint;

/// Number of turns of a round. The clock and the stop flag are read between rounds only.
const TURNS: u32 = 256;

/// Empty turns in a row after which the thread yields: there may be fewer CPUs than threads.
const IDLE_TURNS: u32 = 4096;

/// Empty turns in a row after which the thread yields if a backend is known to run on this CPU.
const SHARED_IDLE_TURNS: u32 = 4;

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

/// Settings of an event loop. It runs on the calling thread. By default it runs until an endpoint
/// is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventLoop<'a> {
    /// The CPU that the thread is pinned to while the loop runs.
    pub cpu: Option<usize>,
    /// True if a backend runs on the same CPU. The thread then yields as soon as nothing arrives.
    pub shares_cpu: bool,
    /// A flag that ends the loop as soon as it is set.
    pub stop: Option<&'a AtomicBool>,
    /// The time at which the loop ends. It takes at least one round of turns.
    pub deadline: Option<Instant>,
}

/// The reason why an event loop ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// An endpoint is over, or the caller's step ended the loop.
    Over,
    /// [`EventLoop::deadline`] has passed.
    Deadline,
    /// [`EventLoop::stop`] is set.
    Stopped,
}

/// The times of a round of turns.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// A time before the first turn. So the turns have found all packets that came until then, even
    /// if the thread was descheduled meanwhile.
    pub began: Instant,
    /// A time after the last turn.
    pub ended: Instant,
}

impl EventLoop<'_> {
    /// Lets the endpoints take turns, in their order, until the loop ends.
    ///
    /// Returns the work of each endpoint. Also returns the reason of the end: an error if an
    /// endpoint failed or if there is no such CPU.
    pub fn run<E: Endpoint + ?Sized>(&self, endpoints: &mut [&mut E]) -> (Vec<Work>, anyhow::Result<LoopEnd>) {
        self.run_with(endpoints, |_, _| Ok(ControlFlow::Continue(())))
    }

    /// Runs as [`Self::run`] does, and calls `after_round` after each round of turns. `after_round`
    /// can end the loop.
    pub fn run_with<E: Endpoint + ?Sized>(
        &self,
        endpoints: &mut [&mut E],
        after_round: impl FnMut(&mut [&mut E], Round) -> anyhow::Result<ControlFlow<()>>,
    ) -> (Vec<Work>, anyhow::Result<LoopEnd>) {
        let mut work = vec![Work::default(); endpoints.len()];
        let pinned = self.cpu.map(Pinned::to).transpose();
        let ended = pinned.and_then(|_pinned| self.rounds(endpoints, &mut work, after_round));
        (work, ended)
    }

    fn rounds<E: Endpoint + ?Sized>(
        &self,
        endpoints: &mut [&mut E],
        work: &mut [Work],
        mut after_round: impl FnMut(&mut [&mut E], Round) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<LoopEnd> {
        let mut idle = 0;
        let mut now = Instant::now();
        let mut looked = now;
        loop {
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Ok(LoopEnd::Stopped);
            }
            let began = now;
            self.turns(endpoints, work, &mut idle)?;
            now = Instant::now();
            if now.saturating_duration_since(looked) > LOOK {
                looked = now;
                for endpoint in endpoints.iter_mut() {
                    // One backend may sleep while another one keeps this thread busy.
                    endpoint.wake();
                    endpoint.check()?;
                }
            }
            let is_over = after_round(endpoints, Round { began, ended: now })?.is_break();
            if is_over || endpoints.iter().any(|endpoint| endpoint.is_over()) {
                return Ok(LoopEnd::Over);
            }
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(LoopEnd::Deadline);
            }
        }
    }

    /// Runs a round of turns. A turn begins when the turn before it ends.
    #[inline]
    fn turns<E: Endpoint + ?Sized>(
        &self,
        endpoints: &mut [&mut E],
        work: &mut [Work],
        idle: &mut u32,
    ) -> anyhow::Result<()> {
        let rests_after = if self.shares_cpu { SHARED_IDLE_TURNS } else { IDLE_TURNS };
        let mut clock = cycles();
        for _ in 0..TURNS {
            let mut is_empty = true;
            for (endpoint, work) in endpoints.iter_mut().zip(work.iter_mut()) {
                let moved = endpoint.turn(clock)?;
                if moved == 0 {
                    endpoint.wake();
                    clock = cycles();
                } else {
                    is_empty = false;
                    let now = cycles();
                    if let Some(took) = work.note(clock, now, moved) {
                        endpoint.worked(took);
                    }
                    clock = now;
                }
            }
            if !is_empty {
                *idle = 0;
                continue;
            }
            *idle += 1;
            if *idle >= rests_after {
                *idle = 0;
                std::thread::yield_now();
                clock = cycles();
            }
        }
        Ok(())
    }
}

impl Work {
    /// Returns the cycles per packet; `None` without packets.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a metric for display")]
    pub fn cycles_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.cycles as f64 / self.packets as f64)
    }

    /// Returns the packets per turn; `None` without turns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a metric for display")]
    pub fn packets_per_turn(&self) -> Option<f64> {
        (self.turns > 0).then(|| self.packets as f64 / self.turns as f64)
    }

    /// Adds the work of a later run.
    pub fn add(&mut self, later: Work) {
        self.turns += later.turns;
        self.packets += later.packets;
        self.cycles += later.cycles;
        self.span = self.span.zip(later.span).map(|((first, _), (_, last))| (first, last)).or(self.span).or(later.span);
    }

    /// Notes a turn that moved packets. Returns its cycles, unless it was interrupted.
    #[inline]
    fn note(&mut self, began: u64, ended: u64, moved: usize) -> Option<u64> {
        self.span = Some((self.span.map_or(began, |(first, _)| first), ended));
        let took = ended.wrapping_sub(began);
        if took >= INTERRUPTED {
            return None;
        }
        self.turns += 1;
        self.packets += moved.saturating_as::<u64>();
        self.cycles += took;
        Some(took)
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

    /// An endpoint that moves two packets in each third turn. In turn `last` it fails, is over, or
    /// sets the stop flag.
    struct Counter {
        turns: u64,
        woken: u64,
        worked: u64,
        last: u64,
        at_last: AtLast,
    }

    enum AtLast {
        Fails,
        IsOver,
        Stops(Arc<AtomicBool>),
    }

    impl Counter {
        fn new(last: u64, at_last: AtLast) -> Counter {
            Counter { turns: 0, woken: 0, worked: 0, last, at_last }
        }

        fn endless() -> Counter {
            Counter::new(u64::MAX, AtLast::IsOver)
        }
    }

    impl Endpoint for Counter {
        fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
            self.turns += 1;
            match &self.at_last {
                AtLast::Fails if self.turns == self.last => bail!("the backend said nonsense"),
                AtLast::Stops(stop) if self.turns == self.last => stop.store(true, Ordering::Relaxed),
                _ => {}
            }
            Ok(if self.turns.is_multiple_of(3) { 2 } else { 0 })
        }

        fn worked(&mut self, _cycles: u64) {
            self.worked += 1;
        }

        fn wake(&mut self) {
            self.woken += 1;
        }

        fn is_over(&self) -> bool {
            matches!(self.at_last, AtLast::IsOver) && self.turns >= self.last
        }
    }

    const TWO_ROUNDS: u64 = 2 * TURNS as u64;

    #[test]
    fn all_have_their_turns_until_the_stop() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut a = Counter::endless();
        let mut b = Counter::new(300, AtLast::Stops(Arc::clone(&stop)));
        let events = EventLoop { stop: Some(&stop), ..EventLoop::default() };
        let (work, ended) = events.run(&mut [&mut a, &mut b]);
        assert_eq!(ended.expect("no error"), LoopEnd::Stopped);
        assert_eq!((a.turns, b.turns), (TWO_ROUNDS, TWO_ROUNDS));
        for (endpoint, work) in [(&a, work[0]), (&b, work[1])] {
            // A turn that the system has interrupted is not counted.
            assert!(work.turns <= endpoint.turns / 3 && work.packets == 2 * work.turns, "{work:?}");
            assert_eq!(endpoint.worked, work.turns);
            assert!(work.span.is_some_and(|(first, last)| last >= first));
            assert!(endpoint.woken >= endpoint.turns - endpoint.turns / 3);
        }
        // The flag is still set: no turn is taken.
        assert_eq!(events.run(&mut [&mut a]).1.expect("no error"), LoopEnd::Stopped);
        assert_eq!(a.turns, TWO_ROUNDS);
    }

    #[test]
    fn endpoints_of_several_types_end_when_one_is_over() {
        struct Silent;
        impl Endpoint for Silent {
            fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
                Ok(0)
            }
        }
        for shares_cpu in [false, true] {
            let mut counter = Counter::new(300, AtLast::IsOver);
            let endpoints: &mut [&mut dyn Endpoint] = &mut [&mut Silent, &mut counter];
            let (work, ended) = EventLoop { shares_cpu, ..EventLoop::default() }.run(endpoints);
            assert_eq!(ended.expect("no error"), LoopEnd::Over);
            assert_eq!((counter.turns, work[0]), (TWO_ROUNDS, Work::default()));
        }
    }

    #[test]
    fn a_deadline_ends_the_loop_after_a_round() {
        let mut counter = Counter::endless();
        // The time is the subject: the loop compares its deadline with the system's.
        let events = EventLoop { deadline: Some(Instant::now()), ..EventLoop::default() };
        assert_eq!(events.run(&mut [&mut counter]).1.expect("no error"), LoopEnd::Deadline);
        assert_eq!(counter.turns, u64::from(TURNS));
    }

    #[test]
    fn the_step_after_a_round_sees_the_endpoints_and_ends_the_loop() {
        let mut counter = Counter::endless();
        let mut rounds = Vec::new();
        let (_, ended) = EventLoop::default().run_with(&mut [&mut counter], |endpoints, round| {
            rounds.push(round);
            let is_over = endpoints[0].turns == TWO_ROUNDS;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!((ended.expect("no error"), counter.turns, rounds.len()), (LoopEnd::Over, TWO_ROUNDS, 2));
        assert!(rounds[0].began <= rounds[0].ended && rounds[0].ended <= rounds[1].began, "{rounds:?}");
        let (_, ended) = EventLoop::default().run_with(&mut [&mut counter], |_, _| bail!("it is enough"));
        assert_eq!(ended.expect_err("it fails").to_string(), "it is enough");
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
        let before = sched_getaffinity(None).expect("an affinity");
        let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).expect("a CPU");
        let mut a = Counter::new(10, AtLast::Fails);
        let mut b = Counter::endless();
        let (work, ended) = EventLoop { cpu: Some(cpu), ..EventLoop::default() }.run(&mut [&mut a, &mut b]);
        let error = ended.expect_err("it fails");
        assert!(work[0].turns <= 3 && work[1].turns <= 3);
        assert_eq!((error.to_string().as_str(), b.turns), ("the backend said nonsense", 9));
        assert_eq!(sched_getaffinity(None).expect("an affinity"), before);
        let elsewhere = EventLoop { cpu: Some(CpuSet::MAX_CPU), ..EventLoop::default() };
        let error = elsewhere.run::<Counter>(&mut []).1.expect_err("no such CPU");
        assert!(error.to_string().contains("no CPU"));
    }
}
