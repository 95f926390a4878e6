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

/// Pause before each ping of a long run. The switch sleeps after some 50 microseconds, and for at most a
/// second at a time.
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
    is_idle(lab, &switch)?;
    wakes(lab, &switch, &mut one, &second, 5)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// Waits until the switch sleeps. In a long run, asserts that it uses less than 1 % of a CPU.
pub(super) fn is_idle(lab: &Lab, switch: &Switch) -> Result<()> {
    switch.wait_asleep()?;
    if !lab.machine.long {
        return Ok(());
    }
    // The time is the subject: CPU time in a time.
    let seconds = 5;
    let before = switch.cpu_ticks()?;
    proc::pause(Duration::from_secs(seconds))?;
    let ticks = switch.cpu_ticks()? - before;
    say!("  idle: {ticks} ticks of 10 ms in {seconds} s");
    ensure!(
        ticks < seconds,
        "the idle switch used {ticks} ticks of 10 ms in {seconds} s: fewer than {seconds} (1 % of a CPU) are expected"
    );
    Ok(())
}

/// Pings `count` times while the switch sleeps, and asserts that it wakes each time. In a long run, asserts
/// that it wakes soon.
pub(super) fn wakes(lab: &Lab, switch: &Switch, from: &mut LinuxGuest, to: &str, count: usize) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        if lab.machine.long {
            // The time is the subject: kicks wake the switch, and not the end of its sleep.
            proc::pause(PAUSE)?;
        } else {
            switch.wait_asleep()?;
        }
        let (_, text) = from.run(&format!("ping -c 1 -W 60 {to}"))?;
        let time = text.split_once(" time=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        times.push(time.with_context(|| format!("no answer after a pause: {text}"))?);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    say!("  pings to {to} while the switch sleeps: median {median} ms of {times:?}");
    ensure!(
        !lab.machine.long || median < 100.0,
        "the median of pings after a pause is {median} ms, not below 100 ms: kicks are lost: {times:?}"
    );
    Ok(())
}
