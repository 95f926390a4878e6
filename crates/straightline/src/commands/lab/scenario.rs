//! `straightline lab pvp`, `vm2vm` and `patch-external`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use straightline_guest::endpoints::Interface;
use straightline_lab::folder::Writer;
use straightline_lab::guests::forward::{Mode, Touch};
use straightline_lab::machine;
use straightline_lab::rounds::Record;
use straightline_lab::scenarios;
use straightline_lab::testbed::{Loads, Scenario, TestbedOptions};
use straightline_lab::traffic::Sizes;
use straightline_lab::traffic::generator::Rate;
use straightline_lab::trial::Length;
use straightline_report::results::{Environment, Sample};

use super::progress::Progress;
use super::{Noisy, Ports, RingKind, seconds, stop_on_signals, time, usage};
use crate::output;

/// The default number of rounds of single trials. The median of 5 is robust against one disturbed
/// round. A search makes many trials itself.
const ROUNDS: u32 = 5;

#[derive(Debug, Args)]
pub(crate) struct Pvp {
    /// Socket of the switch under test, given four times in the order physical, virtual, virtual,
    /// physical. The switch must connect the first two, and the last two. With --interface, given
    /// twice, for the virtual ports. Default: a Straightline switch in this process
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// Interface on which the generator sends and receives, such as `af-xdp:eth1`; given twice. The
    /// kinds are `tap`, `af-packet`, `af-xdp`. The physical ports of the switch are at the other
    /// ends of the wires
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) interface: Vec<Interface>,
    /// Interface of our switch at the other end of a wire; given twice, in the order of
    /// --interface. Default: the peers of veth interfaces, with the same kinds
    #[arg(long, value_name = "KIND:NAME", requires = "interface", conflicts_with = "backend")]
    pub(crate) switch_interface: Vec<Interface>,
    /// Forward mode of the guest: `io`, `mac`, `macswap`, `5tswap`, `csum`, `noisy`
    #[arg(long, value_name = "MODE", default_value = "io")]
    pub(crate) mode: Mode,
    /// Bytes of each packet that the guest reads in addition: `none`, `header`, `read` (all bytes)
    #[arg(long, value_name = "POLICY", default_value = "none")]
    pub(crate) touch: Touch,
    #[command(flatten)]
    pub(crate) noisy: Noisy,
    /// Pin our switch to this CPU; default: a CPU of another core, if there is one
    #[arg(long, value_name = "N", conflicts_with = "backend")]
    pub(crate) switch_cpu: Option<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Vm2Vm {
    /// Socket of the switch under test, given twice; default: a Straightline switch in this process
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// Pin our switch to this CPU; default: a CPU of another core, if there is one
    #[arg(long, value_name = "N", conflicts_with = "backend")]
    pub(crate) switch_cpu: Option<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PatchExternal {
    /// Socket on which a backend listens. Two ports are used: those of the backends, then those of
    /// the interfaces. The switch must forward between the two
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// Interface whose other end is a port of the switch, such as `af-xdp:eth1`; the kinds are
    /// `tap`, `af-packet`, `af-xdp`
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) interface: Vec<Interface>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Send as fast as the ports accept packets, and measure what returns (MRR); this is the
    /// default
    #[arg(long)]
    pub(crate) max: bool,
    /// Sending rate of all ports together, such as `1mpps` or `5gbit`
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    /// Search the highest rate without loss (NDR)
    #[arg(long)]
    pub(crate) ndr: bool,
    /// Search the highest rate with a loss of at most PERCENT (PDR)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) pdr: Option<f64>,
    /// Measure the latency of single packets, and the latencies at 10, 50 and 90 % of the PDR. The
    /// PDR is searched first (0.5 % loss, unless --pdr sets another loss)
    #[arg(long)]
    pub(crate) latency: bool,
    /// Soak: hold a load for S seconds. The load is --rate, or else 90 % of the NDR
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) soak: Option<Duration>,
    /// Frame lengths without the frame check sequence: `64`, with weights `60:7,566:4`,
    /// `uniform:64-1518`, or `imix` (`60:7,566:4,1514:1`); may be repeated to measure each
    #[arg(long, value_name = "SIZES", default_value = "64")]
    pub(crate) size: Vec<Sizes>,
    /// Ring layout; may be repeated to measure each
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: Vec<RingKind>,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// Random seed for frame lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Measured seconds of each trial; default: 1, but 0.3 or 0.1 for trials at a rate if the
    /// machine would disturb most trials of 1 second
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// Seconds of unmeasured traffic before each trial; default: 0.5 on new connections, otherwise
    /// 0.1
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) warm_up: Option<Duration>,
    /// Number of rounds; each round measures everything once; default: 5, or 1 with a search or a
    /// soak
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Pin the generator and the guest to this CPU; default: the first CPU that this process may
    /// use
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// Name of the switch in results; default: `straightline` for the switch in this process,
    /// `backend` for others
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// New folder for samples, for `lab report` and `lab compare`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print samples instead of a table, each as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn pvp(args: &Pvp) -> anyhow::Result<()> {
    let options = TestbedOptions {
        interfaces: args.interface.clone(),
        switch_interfaces: args.switch_interface.clone(),
        mode: args.mode,
        touch: args.touch,
        noise: args.noisy.noise(),
        switch_cpu: args.switch_cpu,
        ..options(Scenario::Pvp, &args.backend, &args.common)
    };
    execute(&args.common, options)
}

pub(crate) fn vm2vm(args: &Vm2Vm) -> anyhow::Result<()> {
    let options = options(Scenario::Vm2Vm, &args.backend, &args.common);
    execute(&args.common, TestbedOptions { switch_cpu: args.switch_cpu, ..options })
}

pub(crate) fn patch_external(args: &PatchExternal) -> anyhow::Result<()> {
    let options = options(Scenario::PatchExternal, &args.backend, &args.common);
    execute(&args.common, TestbedOptions { interfaces: args.interface.clone(), ..options })
}

fn options(scenario: Scenario, backends: &[PathBuf], args: &Common) -> TestbedOptions {
    let loads =
        Loads { max: args.max, rate: args.rate, ndr: args.ndr, pdr: args.pdr, latency: args.latency, soak: args.soak };
    let loads = if loads == Loads::default() { Loads { max: true, ..loads } } else { loads };
    let usual = TestbedOptions { backends: backends.to_vec(), ..TestbedOptions::new(scenario) };
    let name = if usual.is_ours() { "straightline" } else { "backend" };
    TestbedOptions {
        name: args.name.clone().unwrap_or_else(|| name.to_owned()),
        sizes: args.size.clone(),
        layouts: args.ring.iter().map(|&ring| ring.into()).collect(),
        ports: args.ports.options(),
        seed: args.seed,
        rounds: args.rounds.unwrap_or(if loads.searches() || loads.soak.is_some() { 1 } else { ROUNDS }),
        loads,
        warm_up: args.warm_up,
        cpu: args.cpu,
        ..usual
    }
}

fn execute(args: &Common, mut options: TestbedOptions) -> anyhow::Result<()> {
    // All options are checked before the folder is created. Otherwise the name would be taken when
    // the user corrects the options and tries again.
    usage(options.check_usage());
    options.check()?;
    stop_on_signals(&options.stop)?;
    match args.secs {
        Some(secs) => options.time = secs,
        None if options.loads.are_paced() => options.time = length(&options)?,
        None => {}
    }
    let environment = Environment { used_cpus: options.used_cpus()?, ..machine::environment() };
    let mut writer = args.out.as_deref().map(|folder| Writer::create(folder, environment)).transpose()?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut progress = Progress::new(0);
    let outcome = scenarios::run(&options, &mut progress, &mut |kept| {
        if let Record::Sample(sample) = kept {
            samples.push(sample.clone());
        }
        match (kept, &mut writer) {
            (_, None) => Ok(()),
            (Record::Sample(sample), Some(writer)) => writer.write(sample),
            (Record::Trial(trial), Some(writer)) => writer.write_trial(trial),
            (Record::Negotiated(layout, features), Some(writer)) => {
                writer.negotiated(&format!("{}, {layout}", options.name), features)
            }
            (Record::Peer(name, version), Some(writer)) => writer.peer(name, version),
        }
    });
    progress.finish();
    let outcome = outcome?;
    if args.json {
        let lines: Result<String, _> = samples.iter().map(|sample| Ok(serde_json::to_string(sample)? + "\n")).collect();
        output::answer(&lines.map_err(|error: serde_json::Error| error)?)?;
    } else if !samples.is_empty() {
        output::answer(&scenarios::table(&samples))?;
    }
    outcome.notes.iter().for_each(|note| output::message("note", note));
    let tasks = outcome.planned;
    let done = outcome.made;
    ensure!(
        !outcome.is_cut_short(),
        "stopped: {done} of {tasks} parts were measured to the end; their values and those of the interrupted part \
         are printed above"
    );
    if outcome.valid + outcome.at_least == 0 {
        bail!("no valid trial; reasons are listed above");
    }
    ensure!(
        outcome.not_carried == 0,
        "the switch did not carry a load: too many packets were lost or a backend failed; details are above"
    );
    Ok(())
}

/// Returns the length of trials if the user did not set it.
fn length(options: &TestbedOptions) -> anyhow::Result<Duration> {
    let Length { time, absences, watched } = options.length()?;
    if time < options.time {
        output::message(
            "note",
            &format!(
                "trials take {} s: in {} s, polling threads were descheduled {absences} times for longer than the \
                 generator can catch up with. This would disturb most trials of {} s; set --secs to override it",
                time.as_secs_f64(),
                watched.as_secs(),
                options.time.as_secs_f64()
            ),
        );
    }
    Ok(time)
}

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate::Max) => Err("use --max for the maximum; a rate is for example 500kpps, 1.5mpps or 10gbit".to_owned()),
        rate => rate.map_err(|error| error.to_string()),
    }
}

/// Parses a percentage; returns it as a fraction of 1.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|&percent| percent > 0.0 && percent < 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "use more than 0 and less than 100 percent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_percentages() {
        assert_eq!(rate("1Mpps"), Ok(Rate::Pps(1e6)));
        assert!(rate("max").expect_err("no rate").contains("--max"));
        assert!(rate("fast").expect_err("no rate").contains("10gbit"));
        assert_eq!(percent("0.5"), Ok(0.005));
        assert!(["0", "100", "-1", "x", "NaN"].iter().all(|text| percent(text).is_err()));
    }
}
