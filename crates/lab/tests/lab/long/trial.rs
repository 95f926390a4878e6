//! Real trials of the generator, and what makes them invalid.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};
use straightline_config::{PatchConfig, WhenFull};
use straightline_guest::GuestOptions;
use straightline_guest::endpoints::{PortOptions, VhostPort};
use straightline_lab::traffic::generator::{Generator, Rate, StreamSpec};
use straightline_lab::trial::{self, Plan};
use straightline_testing::{Rig, patch, rig};

const TIME: Duration = Duration::from_millis(300);

const PLAN: Plan = Plan { burst: 1, warm_up: Duration::ZERO, cpu: None, limit_mpps: None, counted: None };

/// Trials in which one is valid: a busy machine may take the CPU in some.
const TRIALS: usize = 10;

/// A generator whose first port sends this stream, and whose last one sends it in the other direction.
fn generator(rig: &Rig, numbers: &[usize], text: &str) -> Generator<VhostPort> {
    let sockets: Vec<_> = numbers.iter().map(|&number| rig.socket(number).clone()).collect();
    let options = PortOptions { queue_size: 256, longest: 9018, ..PortOptions::default() };
    let ports = VhostPort::connect_all(&sockets, &options).expect("ports");
    numbers.iter().for_each(|&number| rig.wait_up(number));
    let spec: StreamSpec = text.parse().expect(text);
    let specs = [vec![spec.clone()], vec![spec.reversed()]];
    Generator::new(ports.into_iter().zip(specs).collect(), 1).expect("a generator")
}

#[test]
fn a_rate_is_kept_and_nothing_is_lost() {
    let Some(_cpus) = super::cpus() else { return };
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut generator = generator(&rig, &[0, 1], "size=imix");
    let mut trial = || trial::run(&mut generator, &mut [], &PLAN, Rate::Pps(20_000.0), TIME);
    let outcome = (0..TRIALS).map(|_| trial()).find(|outcome| outcome.validity.is_valid()).expect("one is valid");
    let measured = outcome.measured.expect("it was made");
    assert!(measured.meant.expect("a rate").abs_diff(6000) <= 10, "{measured:?}");
    assert_eq!((measured.total().lost(), measured.total().corrupt), (0, 0), "{measured:?}");
}

#[test]
fn a_switch_that_drops_all_makes_the_trial_invalid() {
    let Some(_cpus) = super::cpus() else { return };
    let strict = rig(2, |config| config.patches.push(patch(0, 1)));
    let outcome = trial::run(&mut generator(&strict, &[0, 1], "size=2000"), &mut [], &PLAN, Rate::Max, TIME);
    let why = outcome.validity.reason().expect("nothing comes");
    assert!(why.contains("nothing has returned"), "{why}");
}

#[test]
fn a_switch_that_takes_nothing_any_more_makes_the_trial_invalid() {
    let Some(_cpus) = super::cpus() else { return };
    // The port waits for buffers of a guest that takes no packets out of its ring.
    let waiting = rig(2, |config| config.patches.push(PatchConfig { full: WhenFull::Wait, ..patch(0, 1) }));
    let _guest = waiting.guest(1, &GuestOptions::default());
    waiting.wait_up(1);
    let outcome = trial::run(&mut generator(&waiting, &[0], "size=64"), &mut [], &PLAN, Rate::Max, TIME);
    assert!(outcome.measured.as_ref().is_some_and(|measured| measured.total().sent > 0), "{outcome:?}");
    let why = outcome.validity.reason().expect("it stands still");
    assert!(why.contains("went silent"), "{why}");
}

#[test]
fn cpus_are_watched_before_trials() {
    let Some(_cpus) = super::cpus() else { return };
    let ours = sched_getaffinity(None).expect("our CPUs");
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| ours.is_set(cpu)).expect("one of them");
    let length = trial::length(&[cpu]).expect("it is ours");
    assert!(length.watched >= Duration::from_secs(2), "{length:?}");
    assert!([1000, 300, 100].contains(&length.time.as_millis()), "{length:?}");
}
