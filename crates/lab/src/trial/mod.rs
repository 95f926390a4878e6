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
mod machine;
mod outcome;
mod progress;
pub mod search;
pub mod validity;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use straightline_guest::endpoints::{Endpoint, EventLoop, LoopEnd, TestPort, Work};

use crate::traffic::Counted;
use crate::traffic::generator::{Echo, Generator, Load, Measured, Rate, StreamSpec, Timing};
pub use disturbance::Disturbance;
pub use length::{Length, length};
use machine::{ThisMachine, TrialMachine};
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
    /// The packets that end the measurement in place of its time, if they do.
    pub counted: Option<Counted>,
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
    load: (Rate, Duration),
) -> TrialOutcome {
    run_on(&ThisMachine, stop, generator, others, plan, load)
}

/// Makes a trial as [`run_until`] does, on this machine.
fn run_on<P: TestPort>(
    machine: &impl TrialMachine,
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
    let timing = Timing { warm_up: plan.warm_up, time, quiet: QUIET, drain: DRAIN, counted: plan.counted };
    let events = EventLoop { cpu: plan.cpu, stop, ..EventLoop::default() };
    let backends = generator.backends();
    let before = machine.counters(&backends);
    let (measured, mut work, ended) = go(machine, generator, others, load, &timing, &events);
    let disturbance = before.until(&machine.counters(&backends));
    let [planned, lasted] = measured.seconds;
    let validity = match ended {
        Err(error) => validity::ended(&error, planned, lasted),
        Ok(()) => match plan.counted {
            Some(counted) => validity::came(&measured, counted, generator.mean_len()),
            None => validity::measured(&measured, load, generator.mean_len()).or_else(|| disturbance.validity(planned)),
        },
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
    limit_on(&ThisMachine, streams, check_every, cpu)
}

/// Returns the limit of [`limit`] on this machine.
fn limit_on(
    machine: &impl TrialMachine,
    streams: Vec<StreamSpec>,
    check_every: u32,
    cpu: Option<usize>,
) -> anyhow::Result<f64> {
    let mut generator = Generator::new(vec![(Echo::default(), streams)], check_every)?;
    let load = Load { rate: Rate::Max, burst: 1 };
    let timing = Timing { warm_up: ALONE / 10, time: ALONE, quiet: QUIET, drain: DRAIN, counted: None };
    let events = EventLoop { cpu, ..EventLoop::default() };
    (0..TIMES).try_fold(0.0, |best: f64, _| {
        let (measured, _, ended) = go(machine, &mut generator, &mut [], load, &timing, &events);
        ended.map(|()| best.max(outcome::mpps(measured.arrived[0], measured.seconds[1])))
    })
}

/// Runs turns until the generator is done and the others have no packets left that may still
/// arrive. A stop does not wait for packets under way, so these are lost. Returns the work of all
/// endpoints, the generator's first.
fn go<P: TestPort>(
    machine: &impl TrialMachine,
    generator: &mut Generator<P>,
    others: &mut [&mut dyn Endpoint],
    load: Load,
    timing: &Timing,
    events: &EventLoop<'_>,
) -> (Measured, Vec<Work>, anyhow::Result<()>) {
    generator.begin(load, timing, machine.cycles());
    let mut all = vec![Work::default(); 1 + others.len()];
    loop {
        let (work, ended) = {
            let mut endpoints: Vec<&mut dyn Endpoint> = vec![&mut *generator];
            endpoints.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Endpoint));
            machine.run(events, &mut endpoints)
        };
        all.iter_mut().zip(work).for_each(|(all, work)| all.add(work));
        let sending = ended.and_then(|end| {
            ensure!(end != LoopEnd::Stopped, Stopped);
            others.iter_mut().try_fold(false, |some, other| Ok(other.is_sending()? || some))
        });
        let is_sending = matches!(sending, Ok(true));
        if !is_sending || !generator.wait_on(machine.cycles()) {
            let mut measured = generator.measured();
            measured.not_taken |= is_sending && measured.total().lost() > 0;
            return (measured, all, sending.map(drop));
        }
    }
}

#[cfg(test)]
mod tests;
