//! `peers memcpy`: DPDK's vhost library with different copies, under testpmd and Open vSwitch, in
//! rounds. `docs/experiments/memcpy.md` has the question.
//!
//! | file | holds |
//! |---|---|
//! | `copies` | the copies, and the header that puts each into the library |
//! | `source` | DPDK's source package |
//! | `library` | the libraries, built and checked |
//! | `disassembly` | the copy that a library has, by its instructions |
//! | `options` | the command line, and the axes of a trial |

mod copies;
mod disassembly;
mod library;
mod options;
mod source;

pub(crate) use copies::DpdkCopy;
pub(crate) use options::Options;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use straightline_lab::rounds::Measured;
use straightline_lab::rounds::table::{self, Row, fixed, ratio_to};
use straightline_report::results::Sample;

use crate::compare::{GuestReport, guest_output, ovs_cycles, rates, testpmd_cycles};
use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{self, Candidate, NO_VALID_TRIAL, SwitchKind, TrialPlan, require};
use crate::ovs::Ovs;
use crate::proc::PATIENCE;
use crate::testpmd::Testpmd;
use library::Library;
use options::{Host, MemcpyCell, Path as TrafficPath};

/// Builds and checks the libraries, then runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let libraries = library::make(&common.cache.join("dpdk"), &options.copies()?)?;
    for library in &libraries {
        eprintln!("{}: {}", library.copy.name(), library.proof);
    }
    if options.build {
        return Ok(true);
    }
    let machine = Machine { switch: options.program.clone(), cache: common.cache.clone(), long: false };
    let cells = options.cells();
    for (host, need) in [(Host::Testpmd, Need::Dpdk), (Host::Ovs, Need::Ovs)] {
        if cells.iter().any(|cell| cell.host == host) {
            require(&machine, need, "run as root with huge pages reserved, or leave one out by --host")?;
        }
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    ensure!(guest_cpu != switch_cpu, "this process may use one CPU only: the guest and the switch need one each");
    let rounds = common.rounds;
    let switches = &common.switches[..];
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "memcpy", rounds, switches, cells: &cells, out, near };
    let done = plan.run(|switch, cell| trial(&machine, &options, &libraries, switch, cell))?;
    println!("{}", markdown(switches, &cells, &done.samples));
    Ok(done.judge())
}

/// A switch with the library under test.
enum RunningHost<'lab> {
    Testpmd(Testpmd),
    Ovs(Ovs<'lab>),
}

impl<'lab> RunningHost<'lab> {
    fn start(lab: &'lab Lab<'_>, host: Host, ports: &[&str], library: &Path) -> Result<Self> {
        let folder = library.parent().context("the library is in no folder")?;
        let switch = match host {
            Host::Testpmd => {
                let devices =
                    ports.iter().map(|port| format!("net_vhost{{}},iface={},queues=1", lab.socket(port).display()));
                let args = ["--total-num-mbufs=16384", "--record-core-cycles"].map(str::to_owned);
                let mut command = Command::new("stdbuf");
                command.env("LD_LIBRARY_PATH", folder);
                let devices: Vec<String> = devices.collect();
                Self::Testpmd(Testpmd::spawn_by(command, lab, "switch", &devices, &args, 0)?)
            }
            Host::Ovs => Self::Ovs(Ovs::start_with_library(lab, ports, folder)?),
        };
        // The loader takes another library of this name if it does not like ours.
        let maps = fs::read_to_string(format!("/proc/{}/maps", switch.id()))?;
        let real = library.canonicalize()?;
        ensure!(
            maps.lines().any(|line| line.ends_with(&*real.to_string_lossy())),
            "{host:?} has not loaded {}",
            real.display()
        );
        Ok(switch)
    }

    fn id(&self) -> u32 {
        match self {
            Self::Testpmd(testpmd) => testpmd.id(),
            Self::Ovs(ovs) => ovs.id(),
        }
    }

    fn go(&mut self) -> Result<()> {
        if let Self::Testpmd(testpmd) = self {
            testpmd.command("start", "io packet forwarding")?;
        }
        Ok(())
    }

    fn cycles(self) -> Result<Option<f64>> {
        match self {
            Self::Testpmd(mut testpmd) => {
                let cycles = testpmd_cycles(&mut testpmd)?;
                testpmd.quit()?;
                Ok(cycles)
            }
            Self::Ovs(ovs) => ovs_cycles(&ovs),
        }
    }
}

fn trial(
    machine: &Machine,
    options: &Options,
    libraries: &[Library],
    switch: &Candidate,
    cell: &MemcpyCell,
) -> Result<Measured> {
    let SwitchKind::Copy(copy) = switch.kind else { bail!("{} is no copy of DPDK's vhost library", switch.name) };
    let library = libraries.iter().find(|library| library.copy == copy).context("the library was not built")?;
    let lab = Lab::new(machine, "memcpy")?;
    let ports = cell.path.ports();
    let mut host = RunningHost::start(&lab, cell.host, ports, &library.path)?;
    host.go()?;
    let seen = measure(&lab, options, cell)?;
    let cycles = host.cycles()?;
    let metrics = [
        ("mpps", Some(seen.mpps)),
        ("gbit_per_s", Some(seen.gbit_per_s)),
        ("guest_cycles_per_packet", seen.guest_cycles_per_packet),
        ("switch_cycles_per_packet", cycles),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"));
    Ok(Measured { metrics, summary: format!("{:.3} Mpps{cycles}", seen.mpps), ..Measured::default() })
}

/// Runs our generator and guest at the switch. Both check that the trial is valid, and that the
/// packets arrive unchanged.
fn measure(lab: &Lab, options: &Options, cell: &MemcpyCell) -> Result<GuestReport> {
    let (cpu, _) = two_cpus()?;
    let mut command = Command::new(&options.program);
    command.arg("lab").arg(cell.path.command()).arg("--json");
    for port in cell.path.ports() {
        command.arg("--backend").arg(lab.socket(port));
    }
    let secs = options.secs.to_string();
    let size = cell.size.to_string();
    command.args(["--ring", "split", "--mrg", "on", "--hugepages", "--cpu", &cpu.to_string()]);
    command.args(["--warm-up", "1", "--secs", &secs, "--size", &size]);
    let limit = Duration::from_secs_f64(options.secs) + PATIENCE;
    match cell.path {
        TrafficPath::Loop => {
            command.args(["--load", "loop", "--bursts", "16"]);
            let out = guest_output(lab, command, limit)?;
            serde_json::from_str(&out).with_context(|| format!("the guest wrote {out}"))
        }
        TrafficPath::Pvp => {
            command.args(["--mode", "mac", "--max", "--rounds", "1"]);
            let out = guest_output(lab, command, limit)?;
            let line: Sample = serde_json::from_str(&out).with_context(|| format!("the generator wrote {out}"))?;
            line.validity.clone().demand()?;
            rates(&line)
        }
    }
}

/// Returns a table with a row for each combination that was tried, and a column for each copy.
fn markdown(switches: &[Candidate], cells: &[MemcpyCell], samples: &[Sample]) -> String {
    let names = || switches.iter().map(|switch| switch.name.as_str());
    let mut rows = Vec::new();
    for cell in cells {
        let Some(row) = Row::new(samples, &measure::Cell::axes(cell), names()) else { continue };
        for (metric, title, digits) in [("mpps", "Mpps", 2), ("switch_cycles_per_packet", "cycles", 0)] {
            let all = row.series(metric);
            let show = |(at, own): (usize, &table::Series)| {
                let ratio = all.first().filter(|_| at > 0).and_then(|first| ratio_to(own, first, 2));
                let ratio = ratio.map_or_else(String::new, |ratio| format!(" x{ratio}"));
                table::spread(own, fixed(digits)).map_or_else(|| NO_VALID_TRIAL.to_owned(), |own| own + &ratio)
            };
            rows.push(
                [cell.to_string(), title.to_owned()].into_iter().chain(all.iter().enumerate().map(show)).collect(),
            );
        }
    }
    let head: Vec<&str> = ["switch, path, frame", "metric"].into_iter().chain(names()).collect();
    format!(
        "Medians (smallest-largest), ratio of medians to the first copy [95 % interval, from six rounds on]. Mpps are \
         received by both ends together; cycles are those of the switch for a packet that it receives.\n\n{}",
        table::markdown(&head, &rows)
    )
}
