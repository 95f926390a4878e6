//! `straightline lab pvp`, `vm2vm` and `patch-external`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use straightline_lab::Sizes;
use straightline_lab::forward::{Mode, Touch};
use straightline_lab::generator::Rate;
use straightline_lab::results::{Environment, Sample, Writer};
use straightline_lab::scenario::{self, Loads, Options, Scenario, ScenarioRecord};
use straightline_lab::trial::Length;

use super::progress::Progress;
use super::{Noisy, Ports, RingKind, expect_backends, seconds, stop_on_signals, time, usage};
use crate::output;

/// Rounds of single trials: enough for a median that one bad moment does not move. A search makes many trials by itself.
const ROUNDS: u32 = 5;

#[derive(Debug, Args)]
pub(crate) struct Pvp {
    /// Where a switch's ports listen: physical, virtual, virtual, physical, the first two and the last two patched; default: a
    /// switch of ours, in this process
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// What the guest does with packets: `io`, `mac`, `macswap`, `5tswap`, `csum`, `noisy`
    #[arg(long, value_name = "MODE", default_value = "io")]
    pub(crate) mode: Mode,
    /// What it reads of each packet besides: `none`, `header`, `read` (all bytes)
    #[arg(long, value_name = "POLICY", default_value = "none")]
    pub(crate) touch: Touch,
    #[command(flatten)]
    pub(crate) noisy: Noisy,
    /// Runs our switch on this CPU; default: one of another core, where there is one
    #[arg(long, value_name = "N", conflicts_with = "backend")]
    pub(crate) switch_cpu: Option<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Vm2Vm {
    /// Where a switch's two ports listen; default: a switch of ours, in this process
    #[arg(long, value_name = "SOCKET")]
    pub(crate) backend: Vec<PathBuf>,
    /// Runs our switch on this CPU; default: one of another core, where there is one
    #[arg(long, value_name = "N", conflicts_with = "backend")]
    pub(crate) switch_cpu: Option<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PatchExternal {
    /// Where a backend listens; two of them, between which the switch hands on packets
    #[arg(long, value_name = "SOCKET", required = true)]
    pub(crate) backend: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Sends as much as there is room for, and counts what comes back (MRR); the default
    #[arg(long)]
    pub(crate) max: bool,
    /// Sends at this rate: `1mpps`, `5gbit`; all ports together
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<Rate>,
    /// Searches the highest rate without loss
    #[arg(long)]
    pub(crate) ndr: bool,
    /// Searches the highest rate with so many percent of loss
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) pdr: Option<f64>,
    /// Measures latencies of single packets now and then, and at 10, 50 and 90 % of the PDR, which is searched (0.5 %, unless
    /// --pdr says otherwise)
    #[arg(long)]
    pub(crate) latency: bool,
    /// Carries a load for so many seconds: that of --rate, or 90 % of the highest without loss
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) soak: Option<Duration>,
    /// Frame lengths without Ethernet checksum: `64`, with weights `64:7,570:4`, `uniform:64-1518`, or `imix`; given again, each
    /// is measured
    #[arg(long, value_name = "SIZES", default_value = "64")]
    pub(crate) size: Vec<Sizes>,
    /// The layout of the rings; given again, each is measured
    #[arg(long, value_name = "split|packed", default_value = "split")]
    pub(crate) ring: Vec<RingKind>,
    #[command(flatten)]
    pub(crate) ports: Ports,
    /// What mixed lengths are drawn by
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds that a trial is measured; default: 1, and at rates 0.3 or 0.1 where the machine would spoil most trials of a second
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// Seconds of packets before a trial that do not count; default: 0.5 on new connections, 0.1 later
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) warm_up: Option<Duration>,
    /// Rounds, in each of which all is measured once; default: 5, and 1 where something is searched or soaked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Runs the generator, and the guest, on this CPU; default: the first one that this process may use
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
    /// What the switch is called in results; default: `straightline` for ours, else `backend`
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A folder for samples, not used before, that `lab report` and `lab compare` read
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Prints samples, a line of JSON each, and no table
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn pvp(args: &Pvp) -> anyhow::Result<()> {
    let options = options(Scenario::Pvp, &args.backend, &args.common);
    let (mode, touch, switch_cpu) = (args.mode, args.touch, args.switch_cpu);
    execute(&args.common, Options { mode, touch, noise: args.noisy.noise(), switch_cpu, ..options })
}

pub(crate) fn vm2vm(args: &Vm2Vm) -> anyhow::Result<()> {
    let options = options(Scenario::Vm2Vm, &args.backend, &args.common);
    execute(&args.common, Options { switch_cpu: args.switch_cpu, ..options })
}

pub(crate) fn patch_external(args: &PatchExternal) -> anyhow::Result<()> {
    execute(&args.common, options(Scenario::PatchExternal, &args.backend, &args.common))
}

fn options(scenario: Scenario, backends: &[PathBuf], args: &Common) -> Options {
    match scenario {
        Scenario::PatchExternal => expect_backends(backends, &[2]),
        ours => expect_backends(backends, &[0, ours.ports()]),
    }
    let loads =
        Loads { max: args.max, rate: args.rate, ndr: args.ndr, pdr: args.pdr, latency: args.latency, soak: args.soak };
    let loads = if loads == Loads::default() { Loads { max: true, ..loads } } else { loads };
    let usual = if backends.is_empty() { "straightline" } else { "backend" };
    Options {
        backends: backends.to_vec(),
        name: args.name.clone().unwrap_or_else(|| usual.to_owned()),
        sizes: args.size.clone(),
        layouts: args.ring.iter().map(|&ring| ring.into()).collect(),
        ports: args.ports.options(),
        seed: args.seed,
        rounds: args.rounds.unwrap_or(if loads.searches() || loads.soak.is_some() { 1 } else { ROUNDS }),
        loads,
        warm_up: args.warm_up,
        cpu: args.cpu,
        ..Options::new(scenario)
    }
}

fn execute(args: &Common, mut options: Options) -> anyhow::Result<()> {
    // No folder is made for what cannot be: its name would be taken when it is put right.
    usage(options.check_usage());
    options.check()?;
    stop_on_signals(&options.stop)?;
    match args.secs {
        Some(secs) => options.time = secs,
        None if options.loads.are_paced() => options.time = length(&options)?,
        None => {}
    }
    let environment = Environment { used_cpus: options.used_cpus()?, ..Environment::detect() };
    let mut writer = args.out.as_deref().map(|folder| Writer::create(folder, environment)).transpose()?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut progress = Progress::new(0);
    let outcome = scenario::run(&options, &mut progress, &mut |kept| {
        match (kept, &mut writer) {
            (ScenarioRecord::Result(sample), writer) => {
                if let Some(writer) = writer {
                    writer.write(sample)?;
                }
                samples.push(sample.clone());
            }
            (ScenarioRecord::Trial(trial), Some(writer)) => writer.write_trial(trial)?,
            (ScenarioRecord::Trial(_), None) => {}
        }
        Ok(())
    });
    progress.finish();
    let outcome = outcome?;
    if let Some(writer) = &mut writer {
        for (layout, features) in &outcome.features {
            writer.negotiated(&format!("{}, {layout}", options.name), features)?;
        }
    }
    if args.json {
        let lines: Result<String, _> = samples.iter().map(|sample| Ok(serde_json::to_string(sample)? + "\n")).collect();
        output::answer(&lines.map_err(|error: serde_json::Error| error)?)?;
    } else if !samples.is_empty() {
        output::answer(&scenario::table(&samples))?;
    }
    outcome.notes.iter().for_each(|note| output::message("note", note));
    let [tasks, done] = outcome.tasks;
    ensure!(
        !outcome.is_cut_short(),
        "stopped: {done} of {tasks} parts were measured to their end; what there is of these, and of the one that was \
         interrupted, stands above"
    );
    if outcome.samples[0] + outcome.at_least == 0 {
        bail!("no trial counts; why stands above");
    }
    ensure!(
        outcome.not_carried == 0,
        "a load was not carried: more was lost than is allowed, or a backend failed, as stands above"
    );
    Ok(())
}

/// How long trials are where nobody says it.
fn length(options: &Options) -> anyhow::Result<Duration> {
    let Length { time, absences, watched } = options.length()?;
    if time < options.time {
        output::message(
            "note",
            &format!(
                "trials are {} s long: in {} s threads that poll were {absences} times kept from running for longer than can be \
                 caught up with, and would be in most trials of {} s; --secs says otherwise",
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
        Ok(Rate::Max) => Err("that is what --max does; a rate is such as 500kpps, 1.5mpps or 10gbit".to_owned()),
        rate => rate.map_err(|error| error.to_string()),
    }
}

/// As a part of all.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|&percent| percent > 0.0 && percent < 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "more than 0 and less than 100 percent".to_owned())
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
