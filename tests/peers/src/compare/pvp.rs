//! `peers pvp`: compares switches between physical ports and a guest that forwards (physical, virtual,
//! physical), in rounds.
//!
//! ```text
//! generator - p0 - switch - a - guest - b - switch - p1 - generator
//! ```
//!
//! The physical ports are vhost-user sockets of the generator, or wires: veth pairs with AF_XDP at
//! both ends.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use straightline_lab::rounds::Measured;
use straightline_report::results::Sample;

use super::guests::output_of;
use super::options::{Size, name};
use super::switches::RunningSwitch;
use super::table;
use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{self, Candidate, CommonOptions, Peers, SwitchKind, SwitchPort, TrialPlan, require, secs};
use crate::net::{self, Namespace};

const ABOUT: &str = "\
Compare switches between physical ports and a guest, in rounds: a generator sends numbered packets by two
ports, and a guest between them forwards with mode mac. Each packet passes the switch twice. Generator and
guest take turns on one CPU, and the switch has another one. The table has the rate of packets that came
back, median, smallest and largest; the cycles of the switch for one passage of a packet; and the ratios
of each binary of ours to the other switches. Wires need root, testpmd and OvS need root and huge pages of
2 MiB (vm.nr_hugepages=1024). Run nothing else on the machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  testpmd       DPDK's testpmd, mode io: net_vhost, and net_af_xdp at wires
  ovs           Open vSwitch with DPDK: dpdkvhostuser, and afxdp at wires; a flow for each direction
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of the vhost-user
                ports, of the AF_XDP ports, of the patches: 'two=target/release/straightline copies=2
                port.packed=false'
Default: testpmd, ovs, and target/release/straightline as ours";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("testpmd", SwitchKind::Testpmd), ("ovs", SwitchKind::Ovs)];
    const DEFAULT: &'static [&'static str] = &["testpmd", "ovs", "ours=target/release/straightline"];
    const ROUNDS: &'static str = "6";
}

/// The kind of both physical ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Physical {
    /// vhost-user sockets, at which the generator is a guest too
    Sockets,
    /// veth pairs in a namespace: AF_XDP of the switch at one end, AF_XDP of the generator at the
    /// other
    Wires,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Load {
    /// As much as the ports take
    Max,
    /// The highest rate without loss (NDR), searched
    Ndr,
}

/// The axes of a trial besides the switch: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PvpCell {
    physical: Physical,
    load: Load,
    size: Size,
}

impl measure::Cell for PvpCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [("physical", name(&self.physical)), ("load", name(&self.load)), ("size", self.size.to_string())];
        axes.map(|(axis, value)| (axis.to_owned(), value)).into()
    }
}

impl fmt::Display for PvpCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {} B", name(&self.physical), name(&self.load), self.size)
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare switches between physical ports and a guest (`cargo xtask compare pvp`)")]
#[command(long_about = ABOUT, after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare pvp [OPTION...]")]
pub(crate) struct PvpOptions {
    #[command(flatten)]
    common: CommonOptions<Switches>,
    /// Physical ports
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',', default_value = "sockets,wires")]
    physical: Vec<Physical>,
    /// Kinds of load
    #[arg(long = "load", value_name = "LOAD,...", value_enum, value_delimiter = ',', default_value = "max,ndr")]
    loads: Vec<Load>,
    /// Frame lengths without frame check sequence, up to 1518; also `imix`
    #[arg(
        long = "size",
        value_name = "SIZE,...",
        value_parser = size,
        value_delimiter = ',',
        default_value = "64,512,1518,imix"
    )]
    sizes: Vec<Size>,
    /// Length of a trial in seconds; default: 0.3, but 0.1 for each of the many trials of a search
    #[arg(long, value_name = "S", value_parser = |text: &str| secs(text, 60.0))]
    secs: Option<f64>,
    /// Straightline binary that contains the generator and the guest
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/straightline")]
    program: PathBuf,
}

impl PvpOptions {
    /// Returns the rows of the table. Those with the same physical ports follow one another.
    fn cells(&self) -> Vec<PvpCell> {
        let mut cells = Vec::new();
        for &physical in &self.physical {
            for &load in &self.loads {
                cells.extend(self.sizes.iter().map(|&size| PvpCell { physical, load, size }));
            }
        }
        cells
    }
}

/// Parses a frame length that passes all ports.
fn size(text: &str) -> Result<Size, String> {
    match super::options::size(text) {
        Ok(size @ (Size::Bytes(..=LONGEST) | Size::Imix)) => Ok(size),
        _ => Err(format!("use 60 to {LONGEST} or imix")),
    }
}

/// The longest frame, without its frame check sequence.
const LONGEST: u32 = 1518;

/// The MTU of the wires, which is more than the longest frame needs.
const WIRE_MTU: u32 = 1600;

/// The ends of the wires: those of the switch, and those of the generator.
const NEAR: [&str; 2] = ["d0", "d1"];
const FAR: [&str; 2] = ["f0", "f1"];

/// Time limit of a trial or a search.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(mut options: PvpOptions) -> Result<bool> {
    options.common.check()?;
    options.common.identify_copying("the generator checks the bytes that it receives")?;
    let program = options.program.canonicalize();
    options.program = program.with_context(|| {
        format!("no program for the generator at {}: build it, or use --program", options.program.display())
    })?;
    let common = &options.common;
    let machine = Machine { switch: options.program.clone(), cache: common.cache.clone(), long: false };
    let has_kind = |kind| common.switches.iter().any(|switch| switch.kind == kind);
    let without = "leave testpmd and ovs out, or run as root with huge pages reserved";
    if has_kind(SwitchKind::Testpmd) {
        require(&machine, Need::Dpdk, without)?;
    }
    if has_kind(SwitchKind::Ovs) {
        require(&machine, Need::Ovs, without)?;
    }
    if options.physical.contains(&Physical::Wires) {
        require(&machine, Need::Namespaces, "use --physical sockets")?;
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the generator and one for the switch");
    }
    let rounds = common.rounds;
    let switches = &common.switches[..];
    let cells = options.cells();
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "pvp", rounds, switches, cells: &cells, out, near };
    // Each switch starts once a round for each kind of physical ports.
    let together = options.loads.len() * options.sizes.len();
    let done = plan.run_together(together, |switch, cells| trials(&machine, &options, switch, cells))?;
    println!("{}", table::with_ratios("physical, load, frame", switches, &cells, &done.samples));
    Ok(done.judge())
}

/// Runs the trials of a switch with the same physical ports.
fn trials(machine: &Machine, options: &PvpOptions, switch: &Candidate, cells: &[PvpCell]) -> Result<Vec<Measured>> {
    let lab = Lab::new(machine, "pvp")?;
    let has_wires = cells.iter().any(|cell| cell.physical == Physical::Wires);
    let namespace = if has_wires { Some(wires()?) } else { None };
    let [first, last] = if has_wires { NEAR.map(SwitchPort::AfXdp) } else { ["p0", "p1"].map(SwitchPort::Socket) };
    let pairs = [[first, SwitchPort::Socket("a")], [SwitchPort::Socket("b"), last]];
    let mut running = RunningSwitch::start_between(&lab, namespace.as_ref(), switch, &pairs)?;
    let mut measured = Vec::new();
    for cell in cells {
        let trial = trial(&lab, options, namespace.as_ref(), &mut running, cell);
        measured.push(trial.unwrap_or_else(|error| measure::invalid(&error)));
    }
    running.end()?;
    Ok(measured)
}

/// Makes a namespace with two wires.
fn wires() -> Result<Namespace> {
    let namespace = Namespace::silent("pvp")?;
    for (near, far) in NEAR.into_iter().zip(FAR) {
        net::veth([(&namespace, near), (&namespace, far)], 1, WIRE_MTU)?;
    }
    Ok(namespace)
}

fn trial(
    lab: &Lab,
    options: &PvpOptions,
    namespace: Option<&Namespace>,
    switch: &mut RunningSwitch<'_>,
    cell: &PvpCell,
) -> Result<Measured> {
    switch.go()?;
    let program = &options.program;
    let mut command = namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
    command.args(["lab", "pvp", "--json", "--mode", "mac", "--hugepages", "--rounds", "1"]);
    command.args(["--cpu", &two_cpus()?.0.to_string(), "--size", &cell.size.to_string()]);
    let (load, secs) = match cell.load {
        Load::Max => ("--max", 0.3),
        Load::Ndr => ("--ndr", 0.1),
    };
    command.args([load, "--secs", &options.secs.unwrap_or(secs).to_string()]);
    let sockets = match cell.physical {
        Physical::Sockets => &["p0", "a", "b", "p1"][..],
        Physical::Wires => {
            command.args(FAR.map(|end| format!("--interface=af-xdp:{end}")));
            &["a", "b"]
        }
    };
    for socket in sockets {
        command.arg("--backend").arg(lab.socket(socket));
    }
    let out = output_of(lab, command, LIMIT);
    // testpmd must stop, also after a failure.
    let cycles = switch.cycles()?;
    measured(&out?, cycles)
}

/// Returns the results in the generator's output.
fn measured(out: &str, cycles: Option<f64>) -> Result<Measured> {
    let line: Sample = serde_json::from_str(out).with_context(|| format!("the generator wrote {out}"))?;
    if !line.is_at_least() {
        line.validity.clone().demand()?;
    }
    let mut metrics = line.metrics;
    let mpps = metrics.get("mpps").copied().context("the generator printed no rate")?;
    ensure!(mpps > 0.0, "no packet came back");
    metrics.extend(cycles.map(|cycles| ("switch_cycles_per_packet".to_owned(), cycles)));
    let least = if line.validity.is_lower_bound() { "at least " } else { "" };
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a passage"));
    let summary = format!("{least}{mpps:.3} Mpps{cycles}");
    Ok(Measured { metrics, summary, validity: line.validity, ..Measured::default() })
}

#[cfg(test)]
mod tests {
    use straightline_report::results::Validity;

    use super::*;

    fn args(line: &str) -> Result<PvpOptions> {
        let options: PvpOptions = measure::parsed(line)?;
        options.common.check()?;
        Ok(options)
    }

    #[test]
    fn command_lines() {
        let rows = |options: &PvpOptions| options.cells().iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = args("").expect("a good command line");
        assert_eq!((all.common.rounds, all.common.switches.len(), rows(&all).len()), (6, 3, 16));
        let some = args("--switch|ovs|--physical|wires|--size|64,imix|--load|ndr").expect("a good command line");
        assert_eq!(rows(&some), ["wires ndr 64 B", "wires ndr imix B"]);
        for bad in ["--physical|cables", "--load|pdr", "--size|1519", "--size|segments", "--secs|0", "--switch|rte"] {
            assert!(args(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bound_is_kept_as_one_and_nothing_is_no_result() {
        let line = |mpps: f64, validity: Validity| {
            let metrics = [("mpps".to_owned(), mpps)].into();
            serde_json::to_string(&Sample { metrics, validity, ..Sample::default() }).expect("JSON")
        };
        let found = measured(&line(2.0, Validity::Valid), Some(150.0)).expect("a rate");
        assert_eq!(found.summary, "2.000 Mpps, 150 cycles a passage");
        assert!((found.metrics["switch_cycles_per_packet"] - 150.0).abs() < 1e-9, "{found:?}");
        let bound = Validity::LowerBound("nothing was too much".to_owned());
        let found = measured(&line(2.0, bound.clone()), None).expect("a bound");
        assert_eq!((found.summary.as_str(), found.validity), ("at least 2.000 Mpps", bound));
        assert!(measured(&line(0.0, Validity::Valid), None).is_err());
        assert!(measured(&line(2.0, Validity::SpoiltByBackend("it died".to_owned())), None).is_err());
    }
}
