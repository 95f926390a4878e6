//! `straightline lab patch-external` with testpmd as the switch: testpmd's counts confirm the
//! generator's counts of sent, lost and received packets.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use straightline_report::results::Sample;

use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::Test;
use crate::say::say;
use crate::testpmd::{PortStats, Testpmd};

pub(super) fn tests() -> Vec<Test> {
    // It measures at full load.
    vec![Test::new("scenario_testpmd", &[Need::Dpdk], testpmd)]
}

/// Compares the counts of a trial without warm-up, so that testpmd's counters begin with the first
/// packet.
///
/// On a busy machine, neither program may run during a trial: then no packet comes back, and the next
/// trial counts. A trial of a long run must be valid.
fn testpmd(lab: &Lab) -> Result<()> {
    let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
    for ring in ["split", "packed"] {
        for load in [&["--rate", "20kpps"][..], &["--max"]] {
            say!("  {ring}, {}", load.join(" "));
            proc::until("the packets of a trial come back", || {
                testpmd.command("clear port stats all", "cleared")?;
                testpmd.command("start", "io packet forwarding")?;
                let sample = measure(lab, ring, load)?;
                testpmd.command("stop", "Done.")?;
                let stats = testpmd.stats()?;
                let came = counts_are_right(&sample, stats)?;
                if lab.machine.long {
                    if let Some(why) = sample.validity.reason() {
                        say!("    {why}");
                        return Ok(None);
                    }
                    agree(&sample, stats)?;
                }
                Ok((came > 0.0).then_some(()))
            })?;
        }
    }
    testpmd.quit()
}

fn metric(sample: &Sample, name: &str) -> Result<f64> {
    sample.metrics.get(name).copied().with_context(|| format!("no {name}: {sample:?}"))
}

/// Returns the packets that entered a ring, and those that came back. A refused packet found no free
/// descriptor, so it was never in a ring.
fn passed(sample: &Sample) -> Result<[f64; 2]> {
    let sent = metric(sample, "sent")?;
    Ok([sent - metric(sample, "refused")?, sent - metric(sample, "lost")?])
}

/// Returns the packets that testpmd has received and sent.
fn of_both_ports(stats: [PortStats; 2]) -> Result<[f64; 2]> {
    let sums = [stats[0].rx_packets + stats[1].rx_packets, stats[0].tx_packets + stats[1].tx_packets];
    Ok([f64::from(u32::try_from(sums[0])?), f64::from(u32::try_from(sums[1])?)])
}

/// Asserts that testpmd has received no more packets than were sent, that no more came back than it has
/// sent, and that they were right. Returns the number of those that came back.
fn counts_are_right(sample: &Sample, stats: [PortStats; 2]) -> Result<f64> {
    let [sent, came] = passed(sample)?;
    let [received, returned] = of_both_ports(stats)?;
    ensure!(received <= sent && came <= returned, "testpmd counts {stats:?}, but the generator counts {sample:?}");
    ensure!(metric(sample, "corrupt")? == 0.0 && metric(sample, "duplicates")? == 0.0, "{sample:?}");
    Ok(came)
}

/// Asserts that the generator's and testpmd's counts agree within 0.1 %.
fn agree(sample: &Sample, stats: [PortStats; 2]) -> Result<()> {
    for (ours, theirs) in passed(sample)?.into_iter().zip(of_both_ports(stats)?) {
        ensure!(
            (ours - theirs).abs() <= ours / 1000.0,
            "testpmd counts {stats:?}, but the generator counts {sample:?}"
        );
    }
    Ok(())
}

/// Runs one trial, and returns its line of JSON.
fn measure(lab: &Lab, ring: &str, load: &[&str]) -> Result<Sample> {
    let mut command = Command::new(&lab.machine.switch);
    command.args(["lab", "patch-external", "--backend"]).arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--ring", ring, "--rounds", "1", "--secs", "0.3", "--warm-up", "0", "--json"]).args(load);
    // If the only trial is invalid, the command fails; the sample contains the reason.
    let (_, out, err) = proc::run(&mut command)?;
    serde_json::from_str(&out).with_context(|| format!("`lab patch-external` wrote no sample: {out}{err}"))
}
