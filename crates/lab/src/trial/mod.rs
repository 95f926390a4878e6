//! A trial: packets at a rate through a switch, and the validity of the result.
//!
//! The rules are:
//!
//! - Packets of the warm-up are ignored, and no counter of the switch is read during the
//!   measurement.
//! - The sent packets equal the planned packets within 0.1 %, and the time equals the planned time
//!   within 0.1 %. Otherwise the trial is invalid, with the reason.
//! - Counting begins only after a wait for packets that are still under way. No backend may leave
//!   packets in its rings.
//! - No checked packet came with other bytes than were sent.
//! - The generator's own limit is measured, and shown beside the result.
//! - No thread of the generator or of the switch waited for its CPU for more than 2 % of the time,
//!   and no hypervisor took one away for more than 2 %.
//!
//! If a port has no free buffer for a packet, the switch did not take the packet. It was planned,
//! and counts as lost. If the generator itself was too late for a packet, the packet was not sent
//! as planned.

mod disturbance;
mod length;
mod outcome;
mod progress;
pub mod search;
pub mod validity;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use straightline_graph::clock::cycles;
use straightline_guest::endpoints::{Endpoint, EventLoop, LoopEnd, TestPort, Work};

use crate::traffic::generator::{Echo, Generator, Load, Measured, Rate, StreamSpec, Timing};
use disturbance::Before;
pub use disturbance::Disturbance;
pub use length::{Length, length};
pub use outcome::TrialOutcome;
pub use progress::{Step, Watch};
use validity::Stopped;

/// After the last packet is sent, missing packets are lost if no packet comes for this time.
const QUIET: Duration = Duration::from_millis(50);

/// The longest time for packets to arrive after the last one was sent.
const DRAIN: Duration = Duration::from_secs(2);

/// Time and number of the runs that measure the generator by itself. There are several, because the
/// generator may be descheduled in one of them.
const ALONE: Duration = Duration::from_millis(40);
const TIMES: usize = 3;

/// The settings of trials, without the rate and the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Packets that each port sends together.
    pub burst: u32,
    /// Time of traffic before the measurement.
    pub warm_up: Duration,
    /// The CPU of the generator, and of the endpoints that take turns with it.
    pub cpu: Option<usize>,
    /// The generator's limit in million packets per second, if it was measured: [`limit`].
    pub limit_mpps: Option<f64>,
}

/// Makes a trial: the generator sends at this rate for this time, and `others`, such as guests that
/// forward, take turns with it. A failure, for example of a backend, makes the trial invalid, but
/// is not an error.
pub fn run<P: TestPort>(
    generator: &mut Generator<P>,
    others: &mut [&mut dyn Endpoint],
    plan: &Plan,
    rate: Rate,
    time: Duration,
) -> TrialOutcome {
    run_until(None, generator, others, plan, (rate, time))
}

/// Makes a trial as [`run`] does. The trial ends with the measurements so far when `stop` is set.
pub fn run_until<P: TestPort>(
    stop: Option<&AtomicBool>,
    generator: &mut Generator<P>,
    others: &mut [&mut dyn Endpoint],
    plan: &Plan,
    (rate, time): (Rate, Duration),
) -> TrialOutcome {
    let beyond = validity::beyond(plan.limit_mpps, rate, generator.mean_len());
    if !beyond.is_valid() {
        return TrialOutcome::never_began(plan, rate, beyond);
    }
    let load = Load { rate, burst: plan.burst };
    let timing = Timing { warm_up: plan.warm_up, time, quiet: QUIET, drain: DRAIN };
    let events = EventLoop { cpu: plan.cpu, stop, ..EventLoop::default() };
    let backends = generator.backends();
    let before = Before::read(&backends);
    let (measured, mut work, ended) = go(generator, others, load, &timing, &events);
    let disturbance = before.until(&Before::read(&backends));
    let [planned, lasted] = measured.seconds;
    let validity = match ended {
        Err(error) => validity::ended(&error, planned, lasted),
        Ok(()) => validity::measured(&measured, load, generator.mean_len()).or_else(|| disturbance.validity(planned)),
    };
    let others = work.split_off(work.len().min(1));
    let work = work.first().copied().unwrap_or_default();
    TrialOutcome { rate, measured: Some(measured), work, others, limit_mpps: plan.limit_mpps, disturbance, validity }
}

/// Returns the generator's limit for these streams, in million packets per second. The generator
/// sends into memory, and checks the packets that it finds there.
///
/// # Errors
/// A stream cannot be built, or there is no such CPU.
pub fn limit(streams: Vec<StreamSpec>, check_every: u32, cpu: Option<usize>) -> anyhow::Result<f64> {
    let mut generator = Generator::new(vec![(Echo::default(), streams)], check_every)?;
    let load = Load { rate: Rate::Max, burst: 1 };
    let timing = Timing { warm_up: ALONE / 10, time: ALONE, quiet: QUIET, drain: DRAIN };
    let events = EventLoop { cpu, ..EventLoop::default() };
    (0..TIMES).try_fold(0.0, |best: f64, _| {
        let (measured, _, ended) = go(&mut generator, &mut [], load, &timing, &events);
        ended.map(|()| best.max(outcome::mpps(measured.arrived[0], measured.seconds[1])))
    })
}

/// Runs turns until the generator is done and the others have no packets left that may still
/// arrive. A stop does not wait for packets under way, so these are lost. Returns the work of all
/// endpoints, the generator's first.
fn go<P: TestPort>(
    generator: &mut Generator<P>,
    others: &mut [&mut dyn Endpoint],
    load: Load,
    timing: &Timing,
    events: &EventLoop<'_>,
) -> (Measured, Vec<Work>, anyhow::Result<()>) {
    generator.begin(load, timing, cycles());
    let mut all = vec![Work::default(); 1 + others.len()];
    loop {
        let (work, ended) = {
            let mut endpoints: Vec<&mut dyn Endpoint> = vec![&mut *generator];
            endpoints.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Endpoint));
            events.run(&mut endpoints)
        };
        all.iter_mut().zip(work).for_each(|(all, work)| all.add(work));
        let sending = ended.and_then(|end| {
            ensure!(end != LoopEnd::Stopped, Stopped);
            others.iter_mut().try_fold(false, |some, other| Ok(other.is_sending()? || some))
        });
        let is_sending = matches!(sending, Ok(true));
        if !is_sending || !generator.wait_on(cycles()) {
            let mut measured = generator.measured();
            measured.not_taken |= is_sending && measured.total().lost() > 0;
            return (measured, all, sending.map(drop));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use straightline_guest::endpoints::Receiver;
    use straightline_virtio::net_header::NetHeader;

    use super::*;

    fn plan() -> Plan {
        Plan { burst: 1, warm_up: Duration::from_millis(1), cpu: None, limit_mpps: None }
    }

    fn generator(texts: &[&str]) -> Generator<Echo> {
        let specs = texts.iter().map(|text| text.parse().expect(text)).collect();
        Generator::new(vec![(Echo::default(), specs)], 1).expect("a generator")
    }

    #[test]
    fn a_trial_through_nothing_comes_to_what_was_sent() {
        let mut generator = generator(&["size=imix,dst-port=step:1-9"]);
        let outcome = run(&mut generator, &mut [], &plan(), Rate::Pps(10_000.0), Duration::from_millis(50));
        let counters = outcome.measured.as_ref().expect("it was made").total();
        // Punctuality depends on the machine; the test checks that everything returned.
        assert_eq!((counters.lost(), counters.corrupt, counters.duplicates), (0, 0, 0));
        let mut again = run(&mut generator, &mut [], &plan(), Rate::Max, Duration::from_millis(10));
        again.limit_mpps = Some(9.0);
        let sample = again.sample();
        assert!(sample.metrics["mpps"] > 0.0 && sample.metrics["loss_ratio"].abs() < f64::EPSILON, "{sample:?}");
        assert!(sample.metrics["latency_max_us"] > 0.0, "{sample:?}");
        assert!(!sample.latency.expect("latencies").steps.is_empty());
    }

    /// An [`Echo`] that holds frames back. In total, no more frames return than `lets` allows.
    struct Held<F> {
        echo: Echo,
        came: usize,
        lets: F,
        /// True if the port reports frames that it still holds.
        tells: bool,
    }

    impl<F: Fn() -> usize + Send> Held<F> {
        fn generator(lets: F, tells: bool) -> Generator<Self> {
            let port = Self { echo: Echo::default(), came: 0, lets, tells };
            Generator::new(vec![(port, vec!["size=64".parse().expect("a stream")])], 1).expect("a generator")
        }
    }

    impl<F: Fn() -> usize + Send> TestPort for Held<F> {
        fn free_buffers(&mut self) -> usize {
            self.echo.free_buffers()
        }

        fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
            self.echo.send(template, header, frame, patches)
        }

        fn flush(&mut self) -> anyhow::Result<()> {
            self.echo.flush()
        }

        fn is_sending(&mut self) -> anyhow::Result<bool> {
            Ok(self.tells && self.echo.free_buffers() < Echo::default().free_buffers())
        }

        fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
            let count = self.echo.receive(most.min((self.lets)() - self.came), each)?;
            self.came += count;
            Ok(count)
        }
    }

    /// Everything that is sent returns once the gate is open.
    fn gate(open: &AtomicBool) -> impl Fn() -> usize + Send {
        || if open.load(Ordering::Relaxed) { usize::MAX } else { 0 }
    }

    #[test]
    fn what_a_guest_has_not_handed_on_yet_is_not_lost() {
        /// A port whose backend takes nothing until the first call of `is_sending`.
        struct Guest<'a>(&'a AtomicBool);
        impl Endpoint for Guest<'_> {
            fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
                Ok(0)
            }

            fn is_sending(&mut self) -> anyhow::Result<bool> {
                Ok(!self.0.swap(true, Ordering::Relaxed))
            }
        }
        let open = AtomicBool::new(false);
        let mut generator = Held::generator(gate(&open), false);
        let plan = Plan { warm_up: Duration::ZERO, ..plan() };
        let time = Duration::from_millis(10);
        let outcome = run(&mut generator, &mut [&mut Guest(&open)], &plan, Rate::Pps(10_000.0), time);
        let counters = outcome.measured.as_ref().expect("it was made").total();
        assert!(counters.sent > 0 && counters.lost() == 0, "{outcome:?}");
    }

    #[test]
    fn a_rate_beyond_the_limit_says_what_would_work() {
        let plan = Plan { limit_mpps: Some(2.0), ..plan() };
        let outcome = run(&mut generator(&[""]), &mut [], &plan, Rate::Pps(3e6), Duration::from_millis(50));
        let why = outcome.validity.reason().expect("invalid");
        assert!(why.contains("3.000 Mpps") && why.contains("2.000"), "{why}");
        assert!(outcome.validity.is_spoilt_by_load() && outcome.sample().validity == outcome.validity, "{outcome:?}");
    }

    #[test]
    fn a_backend_that_goes_makes_it_invalid() {
        struct Broken;
        impl Endpoint for Broken {
            fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
                anyhow::bail!("/tmp/x: the backend has closed the connection")
            }
        }
        let outcome = run(&mut generator(&[""]), &mut [&mut Broken], &plan(), Rate::Max, Duration::from_secs(600));
        let why = outcome.validity.reason().expect("invalid");
        assert!(why.contains("closed the connection") && outcome.validity.is_spoilt_by_backend(), "{outcome:?}");
    }

    /// Shorter than usual.
    const SHORT: Timing = Timing {
        warm_up: Duration::ZERO,
        time: Duration::from_millis(10),
        quiet: Duration::from_millis(1),
        drain: Duration::from_millis(20),
    };

    #[test]
    fn a_backend_that_takes_nothing_any_more_has_gone_silent() {
        let mut generator = Held::generator(|| 10, true);
        let load = Load { rate: Rate::Max, burst: 1 };
        let (measured, _, ended) = go(&mut generator, &mut [], load, &SHORT, &EventLoop::default());
        ended.expect("nobody says that anything is wrong");
        assert_eq!((measured.total().received, measured.still_coming), (10, false), "{measured:?}");
        let validity = validity::measured(&measured, load, 64.0);
        assert!(validity.reason().is_some_and(|why| why.contains("went silent")), "{validity:?}");
    }

    #[test]
    fn a_guest_whose_backend_takes_nothing_any_more_is_seen() {
        struct Guest;
        impl Endpoint for Guest {
            fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
                Ok(0)
            }

            fn is_sending(&mut self) -> anyhow::Result<bool> {
                Ok(true)
            }
        }
        // The generator's packets are taken and disappear; or they arrive, whatever else a guest
        // sends.
        let closed = AtomicBool::new(false);
        let open = AtomicBool::new(true);
        for (open, is_silent) in [(&closed, true), (&open, false)] {
            let mut generator = Held::generator(gate(open), false);
            let load = Load { rate: Rate::Max, burst: 1 };
            let (measured, _, ended) = go(&mut generator, &mut [&mut Guest], load, &SHORT, &EventLoop::default());
            ended.expect("nobody says that anything is wrong");
            assert!(measured.total().sent > 0, "{measured:?}");
            assert_eq!(measured.not_taken, is_silent, "{measured:?}");
        }
    }

    #[test]
    fn an_interrupted_trial_has_what_was_measured_so_far() {
        struct Later<'a>(&'a AtomicBool, u64);
        impl Endpoint for Later<'_> {
            fn turn(&mut self, _: u64) -> anyhow::Result<usize> {
                self.1 += 1;
                self.0.store(self.1 > 100_000, Ordering::Relaxed);
                Ok(0)
            }
        }
        let flag = AtomicBool::new(false);
        let others: &mut [&mut dyn Endpoint] = &mut [&mut Later(&flag, 0)];
        let plan = Plan { warm_up: Duration::ZERO, ..plan() };
        let load = (Rate::Max, Duration::from_secs(600));
        let outcome = run_until(Some(&flag), &mut generator(&[""]), others, &plan, load);
        let why = outcome.validity.reason().expect("it has not come to its end");
        assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 600.0 s"), "{why}");
        assert!(outcome.validity.is_interrupted());
        let sample = outcome.sample();
        assert!(sample.metrics["mpps"] > 0.0 && sample.metrics["secs"] > 0.0, "{sample:?}");
        assert!(outcome.to_string().contains("not a valid trial: interrupted"), "{outcome}");
    }

    #[test]
    fn the_limit_is_a_figure() {
        let limit = limit(vec!["size=64".parse().expect("a stream")], 1, None).expect("a limit");
        assert!(limit > 0.0 && limit.is_finite(), "{limit}");
        assert!(super::limit(vec!["size=20".parse().expect("a stream")], 1, None).is_err());
    }
}
