//! The CPU time of an idle switch, and the latency of the first packet after a pause.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Join, Port, Switch};
use crate::traffic;

/// Pause before each ping. The switch sleeps after some 50 microseconds, and for at most a second
/// at a time.
const PAUSE: Duration = Duration::from_millis(1300);

pub(super) fn tests() -> Vec<Test> {
    // It measures CPU time and round trips.
    vec![Test::new("uml_idle_sleeps_and_wakes", &[Need::Uml(2)], sleeps_and_wakes)]
}

fn sleeps_and_wakes(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &[Port::new("a"), Port::new("b")], Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    // The guests have no IPv6, so they send nothing by themselves.
    is_idle(&switch, Duration::from_secs(5))?;
    wakes(&mut one, &second, 5)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// Asserts that the switch uses less than 1 % of a CPU for this time.
pub(super) fn is_idle(switch: &Switch, time: Duration) -> Result<()> {
    let before = switch.cpu_ticks()?;
    proc::pause(time)?;
    let ticks = switch.cpu_ticks()? - before;
    let seconds = time.as_secs();
    say!("  idle: {ticks} ticks of 10 ms in {seconds} s");
    ensure!(
        ticks < seconds,
        "the idle switch used {ticks} ticks of 10 ms in {seconds} s: fewer than {seconds} (1 % of a CPU) are expected"
    );
    Ok(())
}

/// Pings `count` times after pauses, and asserts that the switch wakes each time.
pub(super) fn wakes(from: &mut LinuxGuest, to: &str, count: usize) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        proc::pause(PAUSE)?;
        let (_, text) = from.run(&format!("ping -c 1 -W 2 {to}"))?;
        let time = text.split_once(" time=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        times.push(time.with_context(|| format!("no answer after a pause: {text}"))?);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    say!("  pings to {to} after pauses of {PAUSE:?}: median {median} ms of {times:?}");
    // The printed median is information. The test only checks that the kick woke the worker, and
    // not the end of its sleep.
    ensure!(
        median < 100.0,
        "the median of pings after a pause is {median} ms, not below 100 ms: kicks are lost: {times:?}"
    );
    Ok(())
}
