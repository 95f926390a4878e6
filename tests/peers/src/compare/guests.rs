//! Traffic sources: `lab loop` or `lab patch-external` in a separate process, or testpmd with two
//! virtio-user ports.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use straightline_report::results::{Sample, Validity};

use super::options::{CompareCell, Load, Options, Size, TrafficSource};
use super::switches::{RunningSwitch, large_buffers};
use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::proc::{self, PATIENCE, Proc};
use crate::testpmd::Testpmd;

/// A guest's measurements. `straightline lab loop --json` prints the fields that are not skipped.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GuestReport {
    /// Million packets received a second, by both ports together.
    pub(crate) mpps: f64,
    /// Gigabits of their frames a second.
    pub(crate) gbit_per_s: f64,
    /// Cycles of the guest itself for a packet.
    #[serde(default)]
    pub(crate) guest_cycles_per_packet: Option<f64>,
    /// Packets that never came back.
    #[serde(default)]
    pub(crate) lost: Option<u64>,
    /// Other results of a search, by metric.
    #[serde(skip)]
    pub(crate) found: BTreeMap<String, f64>,
    /// Whether the rate is valid, or only a lower bound.
    #[serde(skip)]
    pub(crate) validity: Validity,
}

impl GuestReport {
    /// Returns a report with rates only.
    fn of(mpps: f64, gbit_per_s: f64) -> GuestReport {
        let guest_cycles_per_packet = None;
        let lost = None;
        let found = BTreeMap::new();
        GuestReport { mpps, gbit_per_s, guest_cycles_per_packet, lost, found, validity: Validity::Valid }
    }
}

/// Time before a trial is measured.
const WARM_UP: Duration = Duration::from_secs(1);
const WARM: [&str; 2] = ["--warm-up", "1"];

/// Time limit of a search.
const SEARCH: Duration = Duration::from_secs(1800);

/// Loads a switch that is running, and returns the guest's measurements.
pub(super) fn measure(
    lab: &Lab,
    options: &Options,
    switch: &mut RunningSwitch<'_>,
    copies_nothing: bool,
    cell: &CompareCell,
) -> Result<GuestReport> {
    match cell.guest {
        TrafficSource::Own => own(lab, options, switch, copies_nothing, cell),
        TrafficSource::Generator if copies_nothing => {
            bail!("this switch copies no bytes, but the generator checks the bytes it receives: use --guest own")
        }
        TrafficSource::Generator if cell.load == Load::Search => search(lab, options, switch, cell),
        TrafficSource::Generator => generator(lab, options, switch, cell),
        TrafficSource::Testpmd => testpmd(lab, options, switch, cell),
    }
}

/// Runs `straightline lab loop`, which checks itself that the trial is valid.
fn own(
    lab: &Lab,
    options: &Options,
    switch: &mut RunningSwitch<'_>,
    copies_nothing: bool,
    cell: &CompareCell,
) -> Result<GuestReport> {
    switch.go()?;
    let mut command = ours(lab, options, cell, "loop")?;
    command
        .args(["--secs", &options.time().as_secs_f64().to_string()])
        .args(WARM)
        .args(["--load", if cell.load == Load::Loop { "loop" } else { "flood" }]);
    // The buffers are so large that rings of 1024 would exceed the caches of a machine.
    let bursts = if cell.size == Size::Segments { 2 } else { options.bursts };
    command.args(["--bursts", &bursts.to_string()]);
    match cell.size {
        Size::Bytes(len) => command.args(["--size", &len.to_string()]),
        Size::Imix => command.args(["--size", "imix"]),
        Size::Segments => command.args(["--segments", "--queue-size", "256"]),
    };
    command.args(copies_nothing.then_some("--no-verify"));
    let out = output_of(lab, command, limit(options))?;
    serde_json::from_str(&out).with_context(|| format!("the guest wrote {out}"))
}

/// Runs `straightline lab patch-external --max`: it fills the rings, checks each packet, and checks
/// itself that the trial is valid.
fn generator(lab: &Lab, options: &Options, switch: &mut RunningSwitch<'_>, cell: &CompareCell) -> Result<GuestReport> {
    switch.go()?;
    let mut command = ours(lab, options, cell, "patch-external")?;
    command.args(["--secs", &options.time().as_secs_f64().to_string()]).args(WARM).args([
        "--max",
        "--rounds",
        "1",
        "--size",
        &cell.size.to_string(),
    ]);
    let out = output_of(lab, command, limit(options))?;
    let line: Sample = serde_json::from_str(&out).with_context(|| format!("the generator wrote {out}"))?;
    line.validity.clone().demand()?;
    rates(&line)
}

/// Runs the searches of `straightline lab patch-external`: the highest rate without loss, the
/// highest with 0.5 % loss, and latencies at fractions of that rate.
fn search(lab: &Lab, options: &Options, switch: &mut RunningSwitch<'_>, cell: &CompareCell) -> Result<GuestReport> {
    switch.go()?;
    let mut command = ours(lab, options, cell, "patch-external")?;
    // Without --secs, the search chooses the length of its trials.
    command.args(options.secs.map(|secs| format!("--secs={secs}")));
    command.args(["--ndr", "--pdr", "0.5", "--latency", "--rounds", "1", "--size", &cell.size.to_string()]);
    let out = output_of(lab, command, SEARCH)?;
    let lines: Vec<Sample> = out.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(out)?;
    found(&lines)
}

/// Returns the results of a search: the rate without loss, and the others by metric.
fn found(lines: &[Sample]) -> Result<GuestReport> {
    let line_of = |load: &str| lines.iter().find(|line| line.cell.get("load").is_some_and(|at| at == load));
    let bound = |load: &str| {
        let line = line_of(load).with_context(|| format!("the generator printed no result for {load}"))?;
        // If the switch takes the highest rate that the generator can send, that rate is a valid
        // lower bound.
        if !line.is_at_least() {
            line.validity.clone().demand()?;
        }
        anyhow::Ok(line)
    };
    let ndr = bound("ndr")?;
    let pdr = bound("pdr 0.5 %")?;
    let mut seen = rates(ndr)?;
    let mut note = |name: String, value: Option<&f64>| {
        seen.found.extend(value.map(|&value| (name, value)));
    };
    // Lower bounds and measured rates are different metrics.
    note(if pdr.is_at_least() { "pdr_least_mpps" } else { "pdr_mpps" }.to_owned(), pdr.metrics.get("mpps"));
    for percent in [0, 10, 50, 90] {
        let line = line_of(&format!("latency {percent} %")).filter(|line| line.is_valid());
        for quantile in ["p50", "p99"] {
            let value = line.and_then(|line| line.metrics.get(&format!("latency_{quantile}_us")));
            note(format!("at_{percent}_percent_latency_{quantile}_us"), value);
        }
    }
    seen.validity.clone_from(&ndr.validity);
    Ok(seen)
}

/// Returns the receive rates of a sample.
pub(crate) fn rates(line: &Sample) -> Result<GuestReport> {
    let needed = |name: &str| {
        line.metrics.get(name).copied().with_context(|| format!("the generator printed no metric {name}: {line:?}"))
    };
    let mpps = needed("mpps")?;
    let gbit_per_s = needed("gbit_per_s")?;
    Ok(GuestReport::of(mpps, gbit_per_s))
}

/// Returns a laboratory command at the switch's two sockets.
fn ours(lab: &Lab, options: &Options, cell: &CompareCell, name: &str) -> Result<Command> {
    let (cpu, _) = two_cpus()?;
    let mut command = Command::new(&options.program);
    command.args(["lab", name, "--json", "--backend"]).arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--ring", if cell.ring.packed { "packed" } else { "split" }]);
    command.args(["--mrg", if cell.ring.mergeable { "on" } else { "off" }, "--cpu", &cpu.to_string()]);
    command.args(cell.ring.in_order.then_some("--in-order"));
    command.args((!options.small_pages).then_some("--hugepages"));
    Ok(command)
}

/// Returns the time limit of a single trial.
fn limit(options: &Options) -> Duration {
    WARM_UP + options.time() + PATIENCE
}

/// Runs a laboratory command, and returns its standard output.
pub(crate) fn output_of(lab: &Lab, command: Command, limit: Duration) -> Result<String> {
    let mut guest = Proc::start("guest", command, &lab.log("guest"))?;
    let status = guest.wait_end_within(limit)?;
    // The last lines of output may still be in the pipe.
    std::thread::sleep(Duration::from_millis(50));
    let (out, err) = guest.texts();
    // Standard error also contains progress. If the error only says that no trial is valid, the
    // reason is in an earlier line.
    let error = err.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(err.trim());
    let why = || err.lines().find_map(|line| Some(line.split_once(" is not valid: ")?.1));
    let error = if error.starts_with("no valid trial") { why().unwrap_or(error) } else { error };
    ensure!(status.success(), "{error}");
    Ok(out)
}

/// Runs testpmd. It does not judge its trials, so this function checks that the trial is valid.
fn testpmd(lab: &Lab, options: &Options, switch: &mut RunningSwitch<'_>, cell: &CompareCell) -> Result<GuestReport> {
    let Size::Bytes(len) = cell.size else {
        bail!("testpmd sends frames of one length: use --guest own for {}", cell.size)
    };
    let ring = &cell.ring;
    let devices = ["a", "b"].map(|port| {
        let mut device = format!("net_virtio_user{{}},path={},queue_size=1024", lab.socket(port).display());
        let arguments = [
            (ring.packed, ",packed_vq=1"),
            (!ring.mergeable, ",mrg_rxbuf=0"),
            (ring.in_order, ",in_order=1"),
            (ring.vectorized, ",vectorized=1"),
        ];
        device.extend(arguments.iter().filter(|(set, _)| *set).map(|(_, argument)| *argument));
        device
    });
    let mut args = vec![format!("--txpkts={len}"), "--total-num-mbufs=16384".to_owned()];
    args.push(format!("--txd={}", 1024));
    args.push(format!("--rxd={}", 1024));
    if cell.load == Load::Flood {
        args.push("--forward-mode=flowgen".to_owned());
    }
    args.extend(large_buffers(cell).map(str::to_owned));
    let mut guest = Testpmd::spawn(lab, "guest", &devices, &args, 1)?;
    guest.wait_links()?;
    // The switch needs time to see the rings of both ports.
    proc::pause(Duration::from_secs(1))?;
    switch.go()?;
    proc::pause(Duration::from_millis(500))?;
    match cell.load {
        Load::Loop => guest.command(&format!("start tx_first {}", options.bursts), "packet forwarding")?,
        Load::Flood | Load::Search => guest.command("start", "packet forwarding")?,
    };
    proc::pause(WARM_UP)?;
    guest.rates()?;
    proc::pause(options.time())?;
    let rates = guest.rates()?;
    guest.quit()?;
    let [(a, a_bits), (b, b_bits)] = rates;
    ensure!(
        a > 0.0 && b > 0.0 && a.min(b) >= 0.2 * a.max(b),
        "not a valid trial: the two ports received {a} and {b} packets a second, and the rates must be within a factor of 5"
    );
    let seen = (a_bits + b_bits) / 8.0 / (a + b);
    // flowgen sends 4 bytes less. If testpmd cannot send a length, it sends 64 bytes without an
    // error.
    ensure!((seen - f64::from(len)).abs() <= 8.0, "not a valid trial: received frames have {seen:.0} bytes, not {len}");
    Ok(GuestReport::of((a + b) / 1e6, (a_bits + b_bits) / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(load: &str, metrics: &[(&str, f64)], validity: Validity) -> Sample {
        Sample {
            cell: [("load".to_owned(), load.to_owned())].into(),
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            validity,
            ..Sample::default()
        }
    }

    #[test]
    fn what_a_search_found_is_taken_and_what_it_did_not_is_told() {
        let rates = [("mpps", 2.0), ("gbit_per_s", 1.0)];
        let least = [("mpps", 3.0), ("gbit_per_s", 1.5)];
        let bound = || Validity::LowerBound("nothing was too much".to_owned());
        let latency = [("latency_p50_us", 4.0), ("latency_p99_us", 9.0)];
        let lines = |ndr: Validity| {
            vec![
                line("ndr", &rates, ndr),
                line("pdr 0.5 %", &least, bound()),
                line("latency 50 %", &latency, Validity::Valid),
                line("latency 90 %", &latency, Validity::SpoiltByLoad("too late".to_owned())),
            ]
        };
        let seen = found(&lines(Validity::Valid)).expect("bounds");
        assert!((seen.mpps - 2.0).abs() < 1e-9, "{seen:?}");
        let names: Vec<&str> = seen.found.keys().map(String::as_str).collect();
        let at_50 = ["at_50_percent_latency_p50_us", "at_50_percent_latency_p99_us"];
        assert_eq!(names, [&at_50[..], &["pdr_least_mpps"]].concat());
        assert_eq!(seen.validity, Validity::Valid);
        let error = found(&lines(Validity::Interrupted("the search has not come to its end".to_owned())))
            .expect_err("no bound")
            .to_string();
        assert!(error.contains("not come to its end"), "{error}");
        let seen = found(&[line("ndr", &least, bound()), line("pdr 0.5 %", &least, bound())]).expect("a bound");
        assert_eq!(seen.validity, bound());
        assert!(found(&lines(Validity::Valid)[1..]).expect_err("no NDR").to_string().contains("no result for ndr"));
    }
}
