//! Switches that polled: each is started for one comparison, and reports its cycles.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use straightline_lab::machine::hertz;

use super::options::{CompareCell, Size};
use crate::lab::Lab;
use crate::measure::{self, Candidate, SwitchKind, SwitchPort};
use crate::net::Namespace;
use crate::ovs::{self, Ovs};
use crate::proc::{self, Proc};
use crate::testpmd::Testpmd;

/// A running switch.
pub(crate) enum RunningSwitch<'lab> {
    Testpmd(Testpmd),
    Ovs(Ovs<'lab>),
    Ours(OurRun<'lab>),
}

/// A running switch of ours, and its work when the measurement began.
pub(crate) struct OurRun<'lab> {
    proc: Proc,
    lab: &'lab Lab<'lab>,
    program: PathBuf,
    before: Work,
}

impl<'lab> RunningSwitch<'lab> {
    /// Starts a switch between the sockets `a` and `b`.
    pub(super) fn start(lab: &'lab Lab<'_>, switch: &Candidate, cell: &CompareCell) -> Result<Self> {
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
            SwitchKind::Ours(ours) => Ok(Self::Ours(OurRun::new(ours.start(lab, "spin")?, lab, &ours.program))),
            SwitchKind::OvsSleeping
            | SwitchKind::RteVhost
            | SwitchKind::Kernel
            | SwitchKind::Tbf
            | SwitchKind::OwnDevice
            | SwitchKind::Copy(_) => {
                bail!(
                    "{} is not a switch between two sockets: use `cargo xtask linux` or `compare devices`",
                    switch.name
                )
            }
        }
    }

    /// Starts a switch that joins the two ports of each pair, in a namespace if there is one.
    pub(crate) fn start_between(
        lab: &'lab Lab<'_>,
        namespace: Option<&Namespace>,
        switch: &Candidate,
        pairs: &[[SwitchPort; 2]],
    ) -> Result<Self> {
        let within = |program: &Path| namespace.map_or_else(|| Command::new(program), |it| it.command(program));
        match &switch.kind {
            SwitchKind::Testpmd => {
                // testpmd connects each two devices.
                let device = |(number, port): (usize, &SwitchPort)| match port {
                    SwitchPort::Socket(name) => {
                        format!("net_vhost{number},iface={},queues=1", lab.socket(name).display())
                    }
                    SwitchPort::Tap(name) => format!("net_tap{number},iface={name}"),
                    SwitchPort::AfXdp(name) => format!("net_af_xdp{number},iface={name}"),
                };
                let devices: Vec<String> = pairs.iter().flatten().enumerate().map(device).collect();
                let args = ["--total-num-mbufs=16384", "--record-core-cycles", "--no-flush-rx"].map(str::to_owned);
                let command = within(Path::new("stdbuf"));
                Ok(Self::Testpmd(Testpmd::spawn_by(command, lab, "switch", &devices, &args, 0)?))
            }
            SwitchKind::Ovs => {
                let command = namespace.map_or_else(ovs::program, |it| it.command(ovs::PROGRAM));
                Ok(Self::Ovs(Ovs::start_between(lab, command, pairs)?))
            }
            SwitchKind::Ours(ours) => {
                let proc = ours.start_between(lab, within(&ours.program), "spin", pairs)?;
                Ok(Self::Ours(OurRun::new(proc, lab, &ours.program)))
            }
            _ => bail!("{} cannot join these ports", switch.name),
        }
    }

    /// Starts forwarding, which only testpmd needs, and counts cycles from now on.
    pub(crate) fn go(&mut self) -> Result<()> {
        match self {
            Self::Testpmd(testpmd) => testpmd.command("start", "io packet forwarding").map(drop),
            Self::Ovs(ovs) => ovs.clear_performance(),
            Self::Ours(ours) => {
                ours.before = ours.work()?;
                Ok(())
            }
        }
    }

    /// Returns the cycles per packet since [`Self::go`]. Each switch counts only the cycles of turns
    /// that found packets. testpmd stops forwarding.
    pub(crate) fn cycles(&mut self) -> Result<Option<f64>> {
        match self {
            Self::Testpmd(testpmd) => testpmd_cycles(testpmd),
            Self::Ovs(ovs) => ovs_cycles(ovs),
            Self::Ours(ours) => Ok(ours.work()?.since(ours.before).cycles_per_packet()),
        }
    }

    /// Ends the switch.
    pub(crate) fn end(self) -> Result<()> {
        match self {
            Self::Testpmd(testpmd) => testpmd.quit(),
            Self::Ovs(_) => Ok(()),
            Self::Ours(ours) => ours.end(),
        }
    }
}

impl<'lab> OurRun<'lab> {
    /// Follows a switch that has started.
    pub(crate) fn new(proc: Proc, lab: &'lab Lab<'_>, program: &Path) -> Self {
        Self { proc, lab, program: program.to_owned(), before: Work::default() }
    }

    /// Ends the switch.
    pub(crate) fn end(self) -> Result<()> {
        measure::end(self.proc)
    }

    /// Asks the switch for its work so far.
    pub(crate) fn work(&self) -> Result<Work> {
        let runtime: Runtime = self.ask("runtime")?;
        let ports: Ports = self.ask("ports")?;
        Ok(Work::of(&runtime, &ports))
    }

    /// Asks the switch through its command line.
    fn ask<T: for<'a> Deserialize<'a>>(&self, what: &str) -> Result<T> {
        let mut command = Command::new(&self.program);
        command.args([what, "--json", "--api"]).arg(self.lab.socket("api"));
        let (code, out, err) = proc::run(&mut command)?;
        if code != Some(0) {
            bail!("`straightline {what}` ended with {code:?}: {err}");
        }
        serde_json::from_str(&out).with_context(|| format!("`straightline {what} --json` wrote {out}"))
    }
}

/// Stops testpmd, which was started with `--record-core-cycles`, and returns its cycles per packet.
pub(crate) fn testpmd_cycles(testpmd: &mut Testpmd) -> Result<Option<f64>> {
    let text = testpmd.command("stop", "Done.")?;
    Ok(number_behind(&text, "CPU cycles/packet="))
}

/// Returns the cycles per packet of Open vSwitch.
pub(crate) fn ovs_cycles(ovs: &Ovs<'_>) -> Result<Option<f64>> {
    Ok(perf_show(&ovs.performance()?))
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

/// The work of our switch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Seconds of turns that found packets.
    pub(crate) busy_s: f64,
    received: f64,
}

impl Work {
    fn of(runtime: &Runtime, ports: &Ports) -> Self {
        let queues = ports.ports.iter().flat_map(|port| &port.queues);
        Self {
            busy_s: runtime.workers.iter().map(|worker| worker.busy_s).sum(),
            received: queues.map(|queue| queue.rx.packets).sum(),
        }
    }

    /// Returns the difference to an earlier state.
    pub(crate) fn since(self, then: Self) -> Self {
        Self { busy_s: self.busy_s - then.busy_s, received: self.received - then.received }
    }

    fn cycles_per_packet(self) -> Option<f64> {
        (self.received > 0.0).then(|| self.busy_s * hertz() / self.received)
    }
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
