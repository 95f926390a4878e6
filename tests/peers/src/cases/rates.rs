//! Limits of Linux guests. Packets of a guest wait, and TCP runs at the rate without a loss. Packets to a
//! guest drop, but not those of an expedited class.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use straightline_guest::{Guest, GuestOptions, Stream, guest_mac};
use straightline_wire::MacAddr;

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
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
    vec![
        Test::new("uml_rate_in_waits", &[Need::Uml(2)], waits).beside_others(),
        Test::new("uml_expedited", &[Need::Uml(2)], expedited).beside_others(),
    ]
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
    // The time is the subject: a rate is bytes in a time.
    let begin = Instant::now();
    let before = rate(&switch)?;
    file.send(&mut one)?;
    file.finish(&mut one, &mut two)?;
    let after = rate(&switch)?;
    let passed = u128::from(after.passed_bytes - before.passed_bytes);
    // The time is read last, so a pause only raises the bound.
    let most = BURST + LONGEST + PER_SECOND * begin.elapsed().as_micros() / 1_000_000;
    say!("  {passed} bytes passed, at most {most} may; packets waited {} times", after.wait_count);
    ensure!(passed >= 16 << 20, "only {passed} bytes of a file of 16 MiB were counted");
    ensure!(passed <= most, "{passed} bytes passed, and {most} at most may: {after:?}");
    ensure!(after.dropped == 0, "packets should wait, not drop: {after:?}");
    // On a busy machine, guests may be slower than the limit.
    ensure!(!lab.machine.long || after.wait_count > before.wait_count, "no packet has waited: {after:?}");
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// A guest floods another one with three times the rate of that one. Echoes of a third guest, which the
/// switch marks, all pass. In a long run, most are lost without `expedited`.
fn expedited(lab: &Lab) -> Result<()> {
    const ECHOES: u32 = 100;
    let keys = [("a", "dscp = \"ef\""), ("b", "rate-out = \"20 Mbit/s\""), ("c", "rate-in = \"60 Mbit/s\"")];
    let text = Switch::port_sections(lab, &keys.map(|(port, _)| Port::new(port)))?;
    let text = keys.iter().fold(text, |text, (port, keys)| {
        let title = format!("[port.{port}]\n");
        text.replacen(&title, &format!("{title}{keys}\n"), 1)
    });
    let plain = text + "\n[bridge.lan]\nports = [\"a\", \"b\", \"c\"]\n";
    let expedited = plain.replacen("[port.b]\n", "[port.b]\nexpedited = [\"ef\"]\n", 1);
    let mut switch = Switch::spawn_with(lab, &[], &expedited)?;
    switch.wait_ready()?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    traffic::reach(&mut one, &two.ip())?;
    let to: MacAddr = two.mac().parse().ok().context("the MAC address of guest 2")?;
    let dropped = |switch: &Switch| Ok::<_, anyhow::Error>(switch.port("b")?.drops.get("rate").copied().unwrap_or(0));
    let mut flooder = Guest::connect(&lab.socket("c"), &GuestOptions::default())?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&mut flooder, to, &stop));
        let result = (|| {
            let exceeds = |switch: &Switch| {
                let began = dropped(switch)?;
                let what = "the flood exceeds the rate, and loses 1000 packets";
                proc::until(what, || Ok((dropped(switch)? > began + 1000).then_some(())))
            };
            // It does so before the echoes and after them.
            exceeds(&switch)?;
            traffic::ping(&mut one, &two.ip(), ECHOES, 56)?;
            exceeds(&switch)?;
            if !lab.machine.long {
                return Ok(());
            }
            switch.reload(&plain)?;
            let times = traffic::round_trips(&mut one, &two.ip(), ECHOES)?;
            say!("  {} of {ECHOES} echoes passed that are like the flood", times.len());
            ensure!(times.len() < 90, "{} of {ECHOES} echoes passed without being expedited", times.len());
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        flood.join().map_err(|_| anyhow::anyhow!("the flood has panicked"))??;
        result
    })?;
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
}

/// Sends frames of the full length without pause. The limit of the port holds them up.
fn flood(guest: &mut Guest, to: MacAddr, stop: &AtomicBool) -> Result<()> {
    let mut stream = Stream::prepare(guest, guest_mac(3, 0), to, &[1514])?;
    while !stop.load(Ordering::Relaxed) {
        let sends = stream.send(guest);
        guest.flush();
        if !sends {
            proc::pause(Duration::from_micros(200))?;
        }
    }
    Ok(())
}
