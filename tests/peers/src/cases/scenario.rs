//! `straightline lab patch-external` with a switch of others: what the generator says was sent, lost and came is what they
//! count.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use straightline_lab::results::Sample;

use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::Test;
use crate::testpmd::{PortStats, Testpmd};

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("scenario_testpmd", &[Need::Dpdk], testpmd)]
}

/// Trials until the counts of one agree, where none counts on a machine that has other things to do.
const ATTEMPTS: usize = 10;

/// All that is sent counts, from the first packet on, and testpmd's counters begin with it. A trial that counts has to agree
/// at once. One that does not, since the generator was kept from running, has sent fewer packets than were meant, but those are
/// counted; only where it was kept for so long that it missed what came is it made again.
fn testpmd(lab: &Lab) -> Result<()> {
    let mut testpmd = Testpmd::switch(lab, "testpmd", 1, false)?;
    for ring in ["split", "packed"] {
        for load in [&["--rate", "20kpps"][..], &["--max"]] {
            println!("  {ring}, {}", load.join(" "));
            let mut attempts = 0..ATTEMPTS;
            loop {
                attempts.next().with_context(|| format!("the counts of {ATTEMPTS} trials do not agree"))?;
                testpmd.command("clear port stats all", "cleared")?;
                testpmd.command("start", "io packet forwarding")?;
                let sample = measure(lab, ring, load)?;
                testpmd.command("stop", "Done.")?;
                match (agree(&sample, testpmd.stats()?), &sample.invalid) {
                    (Ok(()), _) => break,
                    (Err(error), None) => return Err(error),
                    (Err(error), Some(why)) => println!("    {why}; {error:#}"),
                }
            }
        }
    }
    testpmd.quit()
}

/// Within 0.1 %.
fn agree(sample: &Sample, stats: [PortStats; 2]) -> Result<()> {
    let figure = |name: &str| sample.metrics.get(name).copied().with_context(|| format!("no {name}: {sample:?}"));
    // What there was no room for was never in a ring.
    let sent = figure("sent")? - figure("refused")?;
    let came = figure("sent")? - figure("lost")?;
    for (ours, theirs) in
        [(sent, stats[0].rx_packets + stats[1].rx_packets), (came, stats[0].tx_packets + stats[1].tx_packets)]
    {
        let theirs = f64::from(u32::try_from(theirs)?);
        ensure!((ours - theirs).abs() <= ours / 1000.0, "testpmd counts {stats:?}, the generator {sample:?}");
    }
    ensure!(came > 0.0 && figure("corrupt")? == 0.0 && figure("duplicates")? == 0.0, "{sample:?}");
    Ok(())
}

/// One trial, as its line of JSON.
fn measure(lab: &Lab, ring: &str, load: &[&str]) -> Result<Sample> {
    let mut command = Command::new(&lab.machine.switch);
    command.args(["lab", "patch-external", "--backend"]).arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--ring", ring, "--rounds", "1", "--secs", "0.3", "--warm-up", "0", "--json"]).args(load);
    // Where the only trial does not count, that is an error, and its sample says why.
    let (_, out, err) = proc::run(&mut command, Duration::from_secs(60))?;
    serde_json::from_str(&out).with_context(|| format!("it wrote {out}{err}"))
}
