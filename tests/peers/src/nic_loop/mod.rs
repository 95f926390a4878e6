//! `peers nic-loop`: two Linux guests on one switch, whose packets leave by an interface and come back
//! by another one, in rounds.
//!
//! ```text
//! guest 1 - switch - AF_XDP - veth pair - AF_XDP - switch - guest 2
//! ```
//!
//! One worker does all of the switch's work. Guests leave checksums to it, and it makes them for the
//! wire.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `table` | medians, spreads, shares of the bound, ratios of a tunnel to plain |

mod options;
mod table;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use straightline_lab::machine::hertz;
use straightline_lab::rounds::Measured;

use crate::compare::OurRun;
use crate::devices::KernelSide;
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{Candidate, OurSwitch, SwitchKind, TrialPlan, require};
use crate::net::{self, Namespace};
use crate::traffic::{self, Iperf};
use crate::tunnels::{MTU, Path, Side, UNDERLAY_MTU, joined_port};
use options::LoopCell;
pub(crate) use options::Options;

/// The two ends of the veth pair.
const ENDS: [&str; 2] = ["v0", "v1"];

/// Bytes of payload of a TCP segment in a packet of [`MTU`], with time stamps.
const SEGMENT: f64 = 1448.0;

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    ensure!(rustix::process::geteuid().is_root(), "namespaces and AF_XDP need root: use sudo");
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the guests and one for the switch");
    }
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    require(&machine, Need::Uml(2), "`cargo xtask test` installs the packages for the guests")?;
    require(&machine, Need::Namespaces, "use another machine")?;
    let kernel = KernelSide::build(&common.cache)?;
    let rounds = common.rounds;
    let switches = &common.switches[..];
    let cells = LoopCell::ALL;
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "nic-loop", rounds, switches, cells: &cells, out, near };
    let done =
        plan.run_together(cells.len(), |switch, cells| trials(&machine, &kernel, options.secs, switch, cells))?;
    println!("{}", table::markdown(switches, &done.samples));
    Ok(done.judge())
}

/// Measures all paths of a switch.
fn trials(
    machine: &Machine,
    kernel: &KernelSide,
    secs: u32,
    switch: &Candidate,
    cells: &[LoopCell],
) -> Result<Vec<Measured>> {
    let lab = Lab::new(machine, "nic-loop")?;
    let namespace = Namespace::silent("loop")?;
    net::veth(ENDS.map(|end| (&namespace, end)), 1, UNDERLAY_MTU)?;
    match &switch.kind {
        SwitchKind::Kernel => cells.iter().map(|cell| bound(&lab, &namespace, kernel, f64::from(secs), cell)).collect(),
        SwitchKind::Ours(ours) => with_guests(&lab, &namespace, secs, ours, cells),
        _ => bail!("{} cannot loop packets of Linux guests", switch.name),
    }
}

/// Measures the kernel's side alone, on the worker's CPU: frames as long as those of the path, out of
/// one end and into the other one.
fn bound(lab: &Lab, namespace: &Namespace, kernel: &KernelSide, secs: f64, cell: &LoopCell) -> Result<Measured> {
    let args = ["xdp-loop", ENDS[0], ENDS[1], &cell.frame_len().to_string(), &secs.to_string()];
    let mut run = kernel.open(lab, namespace, two_cpus()?.1, &args)?;
    run.go()?;
    let report = run.end(Duration::from_secs_f64(secs))?;
    ensure!(report.packets > 0.0, "nothing came back");
    let gbit_per_s = report.mpps * SEGMENT * 8.0 / 1e3;
    let cycles = hertz() / (report.mpps * 1e6);
    let metrics = [("gbit_per_busy_s", gbit_per_s), ("cycles_per_frame", cycles)];
    Ok(Measured {
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        summary: format!("{gbit_per_s:.2} Gbit/s of payload, {cycles:.0} cycles a frame"),
        ..Measured::default()
    })
}

/// Sums of the runs of iperf3 on a path, with the work of the switch.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: f64,
    /// The sum of the rates of `runs` runs.
    gbit_per_s: f64,
    runs: f64,
    retransmits: f64,
    busy_s: f64,
    took_s: f64,
}

impl Moved {
    fn add(&mut self, iperf: &Iperf, busy_s: f64, took: Duration) {
        self.bytes += iperf.bytes;
        self.gbit_per_s += iperf.gbit_per_s;
        self.runs += 1.0;
        self.retransmits += iperf.retransmits;
        self.busy_s += busy_s;
        self.took_s += took.as_secs_f64();
    }

    fn measured(&self) -> Result<Measured> {
        ensure!(self.busy_s > 0.0, "the worker had no packets");
        let gbit_per_s = self.gbit_per_s / self.runs;
        let gbit_per_busy_s = self.bytes * 8.0 / 1e9 / self.busy_s;
        let busy_percent = 100.0 * self.busy_s / self.took_s;
        let metrics = [
            ("gbit_per_s", gbit_per_s),
            ("gbit_per_busy_s", gbit_per_busy_s),
            ("worker_busy_percent", busy_percent),
            ("cycles_per_frame", self.busy_s * hertz() * SEGMENT / self.bytes),
            ("retransmits", self.retransmits),
        ];
        let summary = format!("{gbit_per_s:.2} Gbit/s, {gbit_per_busy_s:.2} for a second of the worker's");
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Measured { metrics, summary, ..Measured::default() })
    }
}

/// Boots two guests on a switch. The first one sends to the other by each path, in order and then in
/// the reverse order: so a drift of the machine meets all paths alike. The switch and the guests stay,
/// and the switch takes over another configuration each time.
fn with_guests(
    lab: &Lab,
    namespace: &Namespace,
    secs: u32,
    ours: &OurSwitch,
    cells: &[LoopCell],
) -> Result<Vec<Measured>> {
    let texts: Vec<String> = cells.iter().map(|cell| configuration(lab, ours, cell.path)).collect::<Result<_>>()?;
    let Some(first) = texts.first() else { return Ok(Vec::new()) };
    let proc = ours.run(lab, namespace.command(&ours.program), first)?;
    let switch = OurRun::new(proc, lab, &ours.program);
    let mut one = boot(lab, 1, "a")?;
    let mut two = boot(lab, 2, "b")?;
    for guest in [&mut one, &mut two] {
        guest.configure(MTU)?;
    }
    let address = two.ip();
    let mut moved = vec![Moved::default(); cells.len()];
    for at in (0..cells.len()).chain((0..cells.len()).rev()) {
        ours.reload(lab, &texts[at])?;
        traffic::reach(&mut one, &address)?;
        traffic::iperf3_server(&mut two)?;
        let before = switch.work()?;
        let began = Instant::now();
        let iperf = traffic::iperf3_client(&mut one, &address, secs, false)?;
        let took = began.elapsed();
        let work = switch.work()?.since(before);
        // A shorter time means that the guest's clock is wrong.
        ensure!(took >= Duration::from_secs(secs.into()), "iperf3 ended before its time: the guest's clock is fast");
        moved[at].add(&iperf, work.busy_s, took);
    }
    // Broken packets make the measurement invalid.
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.end()?;
    moved.iter().map(Moved::measured).collect()
}

/// Starts a guest on the CPU of both guests.
fn boot(lab: &Lab, number: u8, port: &str) -> Result<LinuxGuest> {
    let mut run = Command::new("taskset");
    run.args(["-c", &two_cpus()?.0.to_string(), "setarch"]);
    let device = format!("virtio_uml.device={}:1", lab.socket(port).display());
    LinuxGuest::start_with_devices(lab, number, run, &[device])
}

/// Returns the configuration in which packets take this path.
fn configuration(lab: &Lab, ours: &OurSwitch, path: Path) -> Result<String> {
    let mut ports = [joined_port("a", ENDS[0], Side::Near, path), joined_port("b", ENDS[1], Side::Far, path)];
    for port in &mut ports {
        // Guests leave checksums to the switch, and send no packets of 64 KiB.
        port.keys = vec![("offloads", "[\"csum\"]".to_owned())];
    }
    ours.joined(lab, "spin", two_cpus()?.1, &ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_path_make_one_result() {
        let iperf = |gbit_per_s, bytes| Iperf { gbit_per_s, bytes, retransmits: 2.0 };
        let mut moved = Moved::default();
        assert!(moved.measured().is_err());
        moved.add(&iperf(2.0, 5e8), 0.5, Duration::from_secs(2));
        moved.add(&iperf(4.0, 1e9), 1.0, Duration::from_secs(2));
        let measured = moved.measured().expect("a result");
        assert_eq!(measured.summary, "3.00 Gbit/s, 8.00 for a second of the worker's");
        let metric_of = |name: &str| measured.metrics[name];
        assert!(
            (metric_of("worker_busy_percent") - 37.5).abs() < 1e-9 && (metric_of("retransmits") - 4.0).abs() < 1e-9
        );
    }
}
