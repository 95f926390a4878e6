//! The limit of a Linux guest: its packets wait, and TCP runs at the rate without a loss.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Port, Switch};
use crate::traffic::{self, Transfer};

/// Bytes a second of the limit, and of its burst.
const PER_SECOND: u128 = 12_500_000;
const BURST: u128 = 64 << 10;

/// Bytes of a packet that makes a debt, with the headers of its segments.
const LONGEST: u128 = 70_000;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("uml_rate_in_waits", &[Need::Uml(2)], waits).beside_others()]
}

fn waits(lab: &Lab) -> Result<()> {
    let text = Switch::port_sections(lab, &[Port::new("a"), Port::new("b")])?;
    let limited = "[port.a]\nrate-in = \"100 Mbit/s\"\nburst = \"64 KiB\"\n";
    let text = text.replacen("[port.a]\n", limited, 1) + "\n[patch.p]\nports = [\"a\", \"b\"]\n";
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    traffic::reach(&mut one, &two.ip())?;
    let rate = |switch: &Switch| switch.port("a")?.rate_in.context("port a has no limit");
    let mut file = Transfer::prepare(&mut one, &mut two, "10.77.0.2", 9000, 16)?;
    let begin = Instant::now();
    let before = rate(&switch)?;
    file.send(&mut one)?;
    file.finish(&mut one, &mut two)?;
    let after = rate(&switch)?;
    let passed = u128::from(after.passed_bytes - before.passed_bytes);
    let most = BURST + LONGEST + PER_SECOND * begin.elapsed().as_micros() / 1_000_000;
    say!("  {passed} bytes passed, at most {most} may; packets waited {} times", after.wait_count);
    ensure!(passed >= 16 << 20, "only {passed} bytes of a file of 16 MiB were counted");
    ensure!(passed <= most, "{passed} bytes passed, and {most} at most may: {after:?}");
    ensure!(after.wait_count > before.wait_count && after.dropped == 0, "packets should wait, not drop: {after:?}");
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}
