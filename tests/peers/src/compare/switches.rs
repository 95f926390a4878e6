//! The switches, each started for one trial between the sockets `a` and `b`, and the cycles that
//! each reports.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use straightline_lab::machine::hertz;

use super::options::{CompareCell, Size};
use crate::lab::Lab;
use crate::measure::{self, Candidate, SwitchKind};
use crate::ovs::Ovs;
use crate::proc::{self, Proc};
use crate::testpmd::Testpmd;

/// A running switch.
pub(super) enum RunningSwitch<'lab> {
    Testpmd(Testpmd),
    Ovs(Ovs<'lab>),
    Ours { proc: Proc, lab: &'lab Lab<'lab>, program: &'lab Path },
}

impl<'lab> RunningSwitch<'lab> {
    pub(super) fn start(lab: &'lab Lab<'_>, switch: &'lab Candidate, cell: &CompareCell) -> Result<Self> {
        match &switch.kind {
            SwitchKind::Testpmd => {
                let mut args = vec!["--total-num-mbufs=16384".to_owned(), "--record-core-cycles".to_owned()];
                args.extend(large_buffers(cell).map(str::to_owned));
                let devices = ["a", "b"].map(|port| {
                    // testpmd passes packets for segmentation offload if the trial sends them.
                    let tso = u8::from(cell.size == Size::Segments);
                    format!("net_vhost{{}},iface={},queues=1,tso={tso}", lab.socket(port).display())
                });
                Ok(Self::Testpmd(Testpmd::spawn(lab, "switch", &devices, &args, 0)?))
            }
            SwitchKind::Ovs => {
                let mtu = if let Size::Bytes(len @ 1519..) = cell.size { len - 18 } else { 1500 };
                Ok(Self::Ovs(Ovs::start_with_mtu(lab, false, mtu)?))
            }
            SwitchKind::Ours(ours) => Ok(Self::Ours { proc: ours.start(lab, "spin")?, lab, program: &ours.program }),
            SwitchKind::OvsSleeping
            | SwitchKind::RteVhost
            | SwitchKind::Kernel
            | SwitchKind::OwnDevice
            | SwitchKind::Copy(_) => {
                bail!(
                    "{} is not a switch between two sockets: use `cargo xtask linux` or `compare devices`",
                    switch.name
                )
            }
        }
    }

    /// Starts forwarding. Only testpmd needs a command for that.
    pub(super) fn go(&mut self) -> Result<()> {
        if let Self::Testpmd(testpmd) = self {
            testpmd.command("start", "io packet forwarding")?;
        }
        Ok(())
    }

    /// Ends the switch, and returns its cycles per packet over the whole trial. Each switch counts
    /// only the cycles of turns that found packets.
    pub(super) fn cycles(self) -> Result<Option<f64>> {
        match self {
            Self::Testpmd(testpmd) => testpmd_cycles(testpmd),
            Self::Ovs(ovs) => ovs_cycles(&ovs),
            Self::Ours { proc, program, lab } => our_cycles(proc, lab, program),
        }
    }
}

/// Returns testpmd's option for frames that do not fit into its default buffers.
pub(super) fn large_buffers(cell: &CompareCell) -> Option<&'static str> {
    matches!(cell.size, Size::Bytes(2000..)).then_some("--mbuf-size=9600")
}

#[derive(Deserialize)]
struct Runtime {
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
struct Worker {
    busy_s: f64,
}

#[derive(Deserialize)]
struct Ports {
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Port {
    queues: Vec<Queue>,
}

#[derive(Deserialize)]
struct Queue {
    rx: Count,
}

#[derive(Deserialize)]
struct Count {
    packets: f64,
}

/// Returns the cycles per packet: busy time divided by received packets.
fn per_packet(runtime: &Runtime, ports: &Ports) -> Option<f64> {
    let busy: f64 = runtime.workers.iter().map(|worker| worker.busy_s).sum();
    let queues = ports.ports.iter().flat_map(|port| &port.queues);
    let packets: f64 = queues.map(|queue| queue.rx.packets).sum();
    (packets > 0.0).then(|| busy * hertz() / packets)
}

/// Ends testpmd, which was started with `--record-core-cycles`, and returns its cycles per packet.
pub(crate) fn testpmd_cycles(mut testpmd: Testpmd) -> Result<Option<f64>> {
    let text = testpmd.command("stop", "Done.")?;
    testpmd.quit()?;
    Ok(number_behind(&text, "CPU cycles/packet="))
}

/// Returns the cycles per packet of Open vSwitch.
pub(crate) fn ovs_cycles(ovs: &Ovs<'_>) -> Result<Option<f64>> {
    Ok(perf_show(&ovs.performance()?))
}

/// Ends our switch, and returns its cycles per packet.
pub(crate) fn our_cycles(switch: Proc, lab: &Lab, program: &Path) -> Result<Option<f64>> {
    let runtime: Runtime = ask(lab, program, "runtime")?;
    let ports: Ports = ask(lab, program, "ports")?;
    measure::end(switch)?;
    Ok(per_packet(&runtime, &ports))
}

/// Asks our switch through its command line.
fn ask<T: for<'a> Deserialize<'a>>(lab: &Lab, program: &Path, what: &str) -> Result<T> {
    let mut command = Command::new(program);
    command.args([what, "--json", "--api"]).arg(lab.socket("api"));
    let (code, out, err) = proc::run(&mut command, Duration::from_secs(10))?;
    if code != Some(0) {
        bail!("`straightline {what}` ended with {code:?}: {err}");
    }
    serde_json::from_str(&out).with_context(|| format!("`straightline {what} --json` wrote {out}"))
}

/// `Rx packets:   12345 (4961 Kpps, 232 cycles/pkt)`
fn perf_show(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with("Rx packets:"))?;
    let (before, _) = line.split_once("cycles/pkt")?;
    before.split_whitespace().next_back()?.parse().ok()
}

fn number_behind(text: &str, what: &str) -> Option<f64> {
    let (_, rest) = text.split_once(what)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_as_the_peers_tell_them() {
        let text = "  CPU cycles/packet=164.02 (total cycles=5 / total RX packets=1) at 2300 MHz Clock\n\nDone.";
        assert_eq!(number_behind(text, "CPU cycles/packet="), Some(164.02));
        assert_eq!(number_behind("Done.", "CPU cycles/packet="), None);
        let text =
            "  - Used TSC cycles:   21033  (97.6 %)\n  Rx packets:        2399607  (2381 Kpps, 848 cycles/pkt)\n";
        assert_eq!(perf_show(text), Some(848.0));
        assert_eq!(perf_show("  Rx packets:  0\n"), None);
    }
}
