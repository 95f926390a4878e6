//! Trials with packets of one length. One CPU has the switch, the other one the embedded guest (and
//! the source). The kernel's part of a packet's way is on the CPU that sends it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Deserialize;
use straightline_guest::{Guest, GuestOptions};
use straightline_lab::machine::hertz;
use straightline_lab::rounds::Measured;

use super::kernel_side::{KernelReport, KernelSide};
use super::options::{DeviceCell, Interface, Load, Size};
use crate::compare::RunningSwitch;
use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::measure::{Candidate, SwitchKind, SwitchPort};
use crate::net::{self, Namespace};
use crate::proc::{self, PATIENCE, Proc};

/// Time before a trial is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Names of the device ports' interfaces, by the guest's port. They are taps, or the ends of veth
/// pairs that the switch has.
const DEVICES: [&str; 2] = ["d0", "d1"];

/// The other ends of the veth pairs.
const FAR: [&str; 2] = ["f0", "f1"];

/// Bursts of 32 packets that a loop has under way, from each port. All packets together fit into
/// the queue of a tap (1000).
const BURSTS: &str = "14";

/// The rates of a trial.
struct Rates {
    mpps: f64,
    gbit_per_s: f64,
    /// Cycles of the switch for each packet that it receives; of the kernel's side, if there is no
    /// switch.
    cycles: Option<f64>,
    /// Nanoseconds a packet of the kernel's side in a loop: sending, receiving.
    halves: Option<[f64; 2]>,
}

/// Runs a trial.
pub(super) fn trial(
    lab: &Lab,
    kernel: &KernelSide,
    time: Duration,
    switch: &Candidate,
    cell: &DeviceCell,
) -> Result<Measured> {
    let place = Place::new(lab, kernel, time, cell)?;
    let rates = match &switch.kind {
        SwitchKind::Kernel => place.bound()?,
        _ => place.switched(switch)?,
    };
    let Rates { mpps, gbit_per_s, cycles, halves } = rates;
    let metrics = [
        ("mpps", Some(mpps)),
        ("gbit_per_s", Some(gbit_per_s)),
        ("switch_cycles_per_packet", cycles),
        ("send_ns", halves.map(|[send, _]| send)),
        ("receive_ns", halves.map(|[_, receive]| receive)),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"));
    Ok(Measured { metrics, summary: format!("{mpps:.3} Mpps, {gbit_per_s:.2} Gbit/s{cycles}"), ..Measured::default() })
}

/// The namespace of a trial, and what is measured there.
struct Place<'a> {
    lab: &'a Lab<'a>,
    kernel: &'a KernelSide,
    time: Duration,
    cell: &'a DeviceCell,
    namespace: Namespace,
    /// The CPUs of the load and of the switch.
    cpus: [u32; 2],
    /// The interfaces at which packets come out: the taps themselves, or the other ends of the
    /// pairs.
    outside: [&'static str; 2],
}

impl<'a> Place<'a> {
    fn new(lab: &'a Lab<'a>, kernel: &'a KernelSide, time: Duration, cell: &'a DeviceCell) -> Result<Self> {
        let namespace = Namespace::silent("devices")?;
        let (guest_cpu, switch_cpu) = two_cpus()?;
        let tap = cell.interface == Interface::Tap;
        if !tap {
            for (device, far) in DEVICES.iter().zip(FAR).take(if cell.load == Load::Loop { 2 } else { 1 }) {
                net::veth([(&namespace, device), (&namespace, far)], 1, 1500)?;
            }
        }
        let outside = if tap { DEVICES } else { FAR };
        Ok(Self { lab, kernel, time, cell, namespace, cpus: [guest_cpu, switch_cpu], outside })
    }

    /// The number of ports that the guest and the switch have.
    fn ports(&self) -> &'static [&'static str] {
        if self.cell.load == Load::Loop { &["a", "b"] } else { &["a"] }
    }

    /// The arguments of the other end.
    fn other_end(&self) -> Vec<&'static str> {
        let [one, other] = self.outside;
        match self.cell.load {
            Load::Loop => vec!["redirect", one, other, other, one],
            _ => vec!["drop", one],
        }
    }

    /// Measures the kernel's side alone, on the CPU of the switch.
    fn bound(&self) -> Result<Rates> {
        let kind = if self.cell.interface == Interface::Tap { "tap" } else { "xdp" };
        let len = self.cell.size.to_string();
        let secs = self.time.as_secs_f64().to_string();
        let [device, other] = DEVICES;
        let out = format!("{kind}-out");
        let both = format!("{kind}-loop");
        let args = match self.cell.load {
            Load::Out => vec![out.as_str(), device, &len, &secs],
            Load::Loop => vec![both.as_str(), device, other, &len, &secs],
            Load::In => return self.bound_in(),
            Load::Iperf(_) => bail!("the bound has no guest"),
        };
        let mut run = self.kernel.open(self.lab, &self.namespace, self.cpus[1], &args)?;
        let mut end = self.kernel.other_end(self.lab, &self.namespace, &self.other_end())?;
        let before = end.arrived()?;
        run.go()?;
        proc::pause(self.time / 2)?;
        // A tap disappears at the end.
        ensure!(end.arrived()?.rates_since(before).0 > 0.0, "nothing arrived at the other end");
        let report = run.end(self.time)?;
        let KernelReport { mpps, gbit_per_s, out_ns, in_ns, .. } = report;
        // In a loop, a switch receives each packet twice: from the guest, and from the interface.
        let (received, halves) = match self.cell.load {
            Load::Loop => (2.0, Some([out_ns, in_ns])),
            _ => (1.0, None),
        };
        Ok(Rates { mpps, gbit_per_s, cycles: Some((out_ns + in_ns) / received * hertz() / 1e9), halves })
    }

    /// Measures the kernel's side alone while packets arrive.
    fn bound_in(&self) -> Result<Rates> {
        let whole = self.time + 2 * WARM_UP;
        let secs = whole.as_secs_f64().to_string();
        let args = ["xdp-in", DEVICES[0], &secs];
        let mut run = self.kernel.open(self.lab, &self.namespace, self.cpus[1], &args)?;
        run.go()?;
        self.source(self.time)?;
        let report = run.end(whole)?;
        self.received(report.packets, Some(report.in_ns * hertz() / 1e9))
    }

    /// Sends packets into the outer interface, on the guest's CPU.
    fn source(&self, time: Duration) -> Result<()> {
        let len = self.cell.size.to_string();
        let secs = time.as_secs_f64().to_string();
        let args = ["packet-out", self.outside[0], &len, &secs];
        let mut source = self.kernel.open(self.lab, &self.namespace, self.cpus[0], &args)?;
        source.go()?;
        let sent = source.end(time)?;
        ensure!(sent.packets > 0.0, "the source sent nothing");
        // The last packets are still under way.
        proc::pause(Duration::from_millis(50))
    }

    /// Returns the rates for packets that were received in the measured time.
    fn received(&self, packets: f64, cycles: Option<f64>) -> Result<Rates> {
        let Size::Bytes(len) = self.cell.size else { bail!("packets that come in have one length") };
        ensure!(packets > 0.0, "nothing was received");
        let mpps = packets / 1e6 / self.time.as_secs_f64();
        Ok(Rates { mpps, gbit_per_s: mpps * f64::from(len) * 8.0 / 1e3, cycles, halves: None })
    }

    /// Measures a switch.
    fn switched(&self, switch: &Candidate) -> Result<Rates> {
        let mut running = self.start(switch)?;
        let mut rates = match self.cell.load {
            Load::Out => self.measure_out(&mut running)?,
            Load::In => self.measure_in(&mut running)?,
            Load::Loop => self.measure_loop(&mut running)?,
            Load::Iperf(_) => bail!("this load has packets only"),
        };
        rates.cycles = running.cycles()?;
        running.end()?;
        Ok(rates)
    }

    fn start(&self, switch: &Candidate) -> Result<RunningSwitch<'a>> {
        let pairs = self.ports().iter().zip(DEVICES);
        let pairs: Vec<[SwitchPort; 2]> =
            pairs.map(|(port, device)| [SwitchPort::Socket(port), self.cell.interface.port(device)]).collect();
        let running = RunningSwitch::start_between(self.lab, Some(&self.namespace), switch, &pairs)?;
        if self.cell.interface == Interface::Tap {
            for device in DEVICES.iter().take(self.ports().len()) {
                let up = || Ok(self.namespace.sh(&format!("ip link set {device} up txqueuelen 1000")).ok());
                proc::until(&format!("{device} exists"), up)?;
            }
        }
        Ok(running)
    }

    /// The guest sends as fast as it can. The interface counts.
    fn measure_out(&self, switch: &mut RunningSwitch<'_>) -> Result<Rates> {
        let mut end = self.kernel.other_end(self.lab, &self.namespace, &self.other_end())?;
        switch.go()?;
        let secs = (WARM_UP + self.time + WARM_UP).as_secs_f64() + 1.0;
        let mut command = self.guest("guest");
        command.args(["--mode", "txonly", "--size", &self.cell.size.to_string(), "--secs", &secs.to_string()]);
        let mut guest = Proc::start("guest", command, &self.lab.log("guest"))?;
        let first = end.arrived()?;
        proc::until("packets arrive", || {
            ensure!(guest.ended()?.is_none(), "{}", guest.texts().1.trim());
            Ok((end.arrived()? != first && end.arrived()?.rates_since(first).0 > 0.0).then_some(()))
        })?;
        proc::pause(WARM_UP)?;
        let before = end.arrived()?;
        proc::pause(self.time)?;
        let (mpps, gbit_per_s) = end.arrived()?.rates_since(before);
        let (Size::Bytes(len), seen) = (self.cell.size, gbit_per_s * 1e3 / 8.0 / mpps) else {
            bail!("packets that go out have one length")
        };
        // A tap counts the Ethernet header only in some kernels.
        ensure!((seen - f64::from(len)).abs() <= 14.0, "not a valid trial: packets have {seen:.0} bytes, not {len}");
        Ok(Rates { mpps, gbit_per_s, cycles: None, halves: None })
    }

    /// A source sends as fast as it can. The guest counts.
    fn measure_in(&self, switch: &mut RunningSwitch<'_>) -> Result<Rates> {
        switch.go()?;
        let guest = Receiver::start(&self.lab.socket("a"), self.cpus[0])?;
        // A switch may need some time until its ports are up.
        proc::until("packets arrive", || {
            self.source(WARM_UP / 2)?;
            Ok((guest.received() > 0).then_some(()))
        })?;
        let before = guest.received();
        self.source(self.time)?;
        let packets = guest.end()? - before;
        self.received(f64::from(packets), None)
    }

    /// The guest sends what it receives.
    fn measure_loop(&self, switch: &mut RunningSwitch<'_>) -> Result<Rates> {
        let _end = self.kernel.other_end(self.lab, &self.namespace, &self.other_end())?;
        switch.go()?;
        let mut command = self.guest("loop");
        command.args(["--secs", &self.time.as_secs_f64().to_string()]);
        command.args(["--warm-up", &WARM_UP.as_secs_f64().to_string(), "--json"]);
        match self.cell.size {
            Size::Bytes(len) => command.args(["--size", &len.to_string(), "--bursts", BURSTS]),
            _ => command.args(["--segments", "--queue-size", "256", "--bursts", "2"]),
        };
        let mut guest = Proc::start("guest", command, &self.lab.log("guest"))?;
        let status = guest.wait_end_within(WARM_UP + self.time + PATIENCE)?;
        // The last lines of output may still be in the pipe.
        std::thread::sleep(Duration::from_millis(50));
        let (out, err) = guest.texts();
        ensure!(status.success(), "{}", err.trim());
        let report: LoopReport = serde_json::from_str(&out).with_context(|| format!("the guest wrote {out}"))?;
        Ok(Rates { mpps: report.mpps, gbit_per_s: report.gbit_per_s, cycles: None, halves: None })
    }

    /// Returns a laboratory command with the guest's ports, on the guest's CPU.
    fn guest(&self, name: &str) -> Command {
        let mut command = Command::new(&self.lab.machine.switch);
        command.args(["lab", name, "--hugepages", "--cpu", &self.cpus[0].to_string()]);
        for port in self.ports() {
            command.arg("--backend").arg(self.lab.socket(port));
        }
        command
    }
}

/// The result of `straightline lab loop --json`.
#[derive(Deserialize)]
struct LoopReport {
    mpps: f64,
    gbit_per_s: f64,
}

/// A guest that only receives. It sleeps between two looks at its ring, and so leaves its CPU to the
/// source.
struct Receiver {
    state: Arc<ReceiverState>,
    thread: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct ReceiverState {
    received: AtomicU32,
    over: AtomicBool,
}

impl Receiver {
    fn start(socket: &Path, cpu: u32) -> Result<Self> {
        let options = GuestOptions { ring_size: 1024, ..GuestOptions::default() };
        let mut guest = Guest::connect(socket, &options)?;
        let state = Arc::new(ReceiverState::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let mut cpus = CpuSet::new();
            cpus.set(usize::try_from(cpu)?);
            sched_setaffinity(None, &cpus)?;
            while !shared.over.load(Ordering::Relaxed) {
                let pair = guest.pairs().first_mut().context("the guest has no queue pair")?;
                let received = u32::try_from(pair.receive(1024, |_, _| ()))?;
                shared.received.fetch_add(received, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
            }
            Ok(())
        });
        Ok(Self { state, thread })
    }

    /// Returns the number of packets so far.
    fn received(&self) -> u32 {
        self.state.received.load(Ordering::Relaxed)
    }

    /// Ends the guest, and returns the number of its packets.
    fn end(self) -> Result<u32> {
        self.state.over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the guest's thread panicked"))??;
        Ok(self.state.received.load(Ordering::Relaxed))
    }
}
