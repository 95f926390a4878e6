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

/// Upper limit of trials until the counts of one agree. On a busy machine every trial may be
/// invalid.
const ATTEMPTS: usize = 10;

/// Compares the counts of a trial without warm-up, so that testpmd's counters begin with the first
/// packet.
///
/// A valid trial must agree at the first attempt. In an invalid trial the generator was
/// descheduled. It has then sent fewer packets than planned, but it has counted them. The trial is
/// repeated only if the generator was away so long that it missed received packets.
fn testpmd(lab: &Lab) -> Result<()> {
    let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
    for ring in ["split", "packed"] {
        for load in [&["--rate", "20kpps"][..], &["--max"]] {
            say!("  {ring}, {}", load.join(" "));
            let mut attempts = 0..ATTEMPTS;
            loop {
                attempts.next().with_context(|| format!("the counts of {ATTEMPTS} trials do not agree"))?;
                testpmd.command("clear port stats all", "cleared")?;
                testpmd.command("start", "io packet forwarding")?;
                let sample = measure(lab, ring, load)?;
                testpmd.command("stop", "Done.")?;
                match (agree(&sample, testpmd.stats()?), sample.validity.reason()) {
                    (Ok(()), _) => break,
                    (Err(error), None) => return Err(error),
                    (Err(error), Some(why)) => say!("    {why}; {error:#}"),
                }
            }
        }
    }
    testpmd.quit()
}

/// Asserts that the generator's and testpmd's counts agree within 0.1 %.
fn agree(sample: &Sample, stats: [PortStats; 2]) -> Result<()> {
    let metric = |name: &str| sample.metrics.get(name).copied().with_context(|| format!("no {name}: {sample:?}"));
    // A refused packet found no free descriptor, so it was never in a ring.
    let sent = metric("sent")? - metric("refused")?;
    let came = metric("sent")? - metric("lost")?;
    for (ours, theirs) in
        [(sent, stats[0].rx_packets + stats[1].rx_packets), (came, stats[0].tx_packets + stats[1].tx_packets)]
    {
        let theirs = f64::from(u32::try_from(theirs)?);
        ensure!(
            (ours - theirs).abs() <= ours / 1000.0,
            "testpmd counts {stats:?}, but the generator counts {sample:?}"
        );
    }
    ensure!(came > 0.0 && metric("corrupt")? == 0.0 && metric("duplicates")? == 0.0, "{sample:?}");
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
