//! `straightline lab tunnel`

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use straightline_graph::Clock;
use straightline_lab::experiments::{self, Settings, TunnelChoice};
use straightline_lab::rounds::Record;
use straightline_lab::testbed::tunnel::Encapsulation;
use straightline_lab::trial::{Step, Watch};
use straightline_report::results::Sample;

use super::progress::Progress;
use super::{stop_on_signals, time};
use crate::output;

/// The default number of rounds: the fewest that give an interval.
const ROUNDS: u32 = 6;

/// The time after which no trial begins, unless the number of rounds is given. With the last trial,
/// the command ends within 90 s.
const LIMIT: Duration = Duration::from_secs(80);

const WARM_UP: Duration = Duration::from_millis(50);
const TIME: Duration = Duration::from_millis(200);

pub(crate) const HELP: &str = "\
Two guests send to one another through a switch, a wire and the switch again:

  A - t1 on nic0 - wire - nic1 with t2 - B

`plain` is the same without tunnels. The kinds take turns, round by round. Ratios are to `plain`,
and to the cheapest kind.

Examples:
  straightline lab tunnel
  straightline lab tunnel --kind l2tpv3,vxlan --json
  straightline lab tunnel --kind vxlan --many 256";

#[derive(Debug, Args)]
pub(crate) struct Tunnel {
    /// Kinds of tunnels, separated by commas; default: all
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<Encapsulation>,
    /// Use IPv4 between the two ends; default: IPv6
    #[arg(long)]
    pub(crate) ipv4: bool,
    /// Compare this many tunnels on one underlay with one tunnel there, instead of kinds with
    /// patches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) many: Option<u16>,
    /// Rate of the line in Gbit/s, in each direction, for the load at a fixed rate
    #[arg(long, value_name = "GBIT", default_value = "0.5", value_parser = gbit)]
    pub(crate) line: f64,
    /// Number of rounds; each round runs every kind once with each load. Default: 6, or as many as
    /// fit into 80 s
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Measured seconds of each trial; default: 0.2
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// Print one line of JSON for each kind, and one for `plain`
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn execute(args: &Tunnel) -> anyhow::Result<()> {
    let settings = Settings { warm_up: WARM_UP, time: args.secs.unwrap_or(TIME), ..Settings::new(true)? };
    stop_on_signals(&settings.stop)?;
    if let Some(warning) = settings.warning() {
        output::message("warning", &warning);
    }
    let mut choice = TunnelChoice { ipv4: args.ipv4, line: args.line * 1e9, ..TunnelChoice::default() };
    if !args.kind.is_empty() {
        choice.kinds.clone_from(&args.kind);
    }
    let plan =
        args.many.map_or_else(|| experiments::tunnel_plan(&choice), |many| experiments::many_plan(&choice, many));
    for what in &plan.left_out {
        output::message("note", &format_args!("not measured: {what}"));
    }
    let rounds = args.rounds.unwrap_or(ROUNDS);
    let clock = Clock::real();
    let limit = args.rounds.is_none().then(|| clock.now() + LIMIT);
    let mut watch = Limited {
        progress: Progress::new(plan.trials() * rounds as usize),
        settings: &settings,
        clock,
        limit,
        is_over: false,
    };
    let mut samples: Vec<Sample> = Vec::new();
    let outcome = plan.run(rounds, &settings, &mut watch, &mut |kept| {
        if let Record::Sample(sample) = kept {
            samples.push(sample.clone());
        }
        Ok(())
    });
    watch.progress.finish();
    let outcome = outcome?;
    let is_over = watch.is_over;
    // A trial that was interrupted takes no part in medians.
    let missing: Vec<String> = if let Some(many) = args.many {
        let reports = experiments::many_reports(&samples, many);
        print(args.json, &reports, experiments::many_table, serde_json::to_string)?;
        let lacks = |report: &&experiments::ManyReport| report.packets_1500.is_none() || report.packets_64.is_none();
        reports.iter().filter(lacks).map(|report| report.kind.clone()).collect()
    } else {
        let reports = experiments::tunnel_reports(&samples);
        print(args.json, &reports, experiments::tunnel_table, serde_json::to_string)?;
        let lacks = |report: &&experiments::TunnelReport| {
            let has_all =
                [&report.packets_1500, &report.segments_64k, &report.packets_64].iter().all(|load| load.is_some());
            !has_all || report.line.is_none()
        };
        reports.iter().filter(lacks).map(|report| report.kind.clone()).collect()
    };
    ensure!(
        !outcome.is_cut_short() || is_over,
        "stopped: {} of {} trials were made; the results above are computed from them",
        outcome.made,
        outcome.planned
    );
    ensure!(missing.is_empty(), "no valid trial with some load of {}; reasons are listed above", missing.join(", "));
    Ok(())
}

/// Prints the reports: as lines of JSON, or as a table.
fn print<R>(
    json: bool,
    reports: &[R],
    table: impl Fn(&[R]) -> String,
    line: impl Fn(&R) -> serde_json::Result<String>,
) -> anyhow::Result<()> {
    if !json {
        return output::answer(&table(reports));
    }
    let lines = reports.iter().map(|report| Ok(line(report)? + "\n")).collect::<serde_json::Result<String>>()?;
    output::answer(&lines)
}

/// Shows the progress, and ends the run when its time is over.
struct Limited<'s> {
    progress: Progress,
    settings: &'s Settings,
    clock: Clock,
    limit: Option<Instant>,
    is_over: bool,
}

impl Watch for Limited<'_> {
    fn begins(&mut self, step: &Step) {
        if self.limit.is_some_and(|limit| self.clock.now() >= limit) {
            // The trial that begins now ends at once, and is not kept.
            self.is_over = true;
            self.settings.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        } else {
            self.progress.begins(step);
        }
    }

    fn is_invalid(&mut self, step: &Step, why: &str) {
        self.progress.is_invalid(step, why);
    }
}

fn gbit(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1000.0).contains(rate));
    rate.ok_or_else(|| "use 0.001 to 1000 Gbit/s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trial that begins at the limit ends the run.
    #[test]
    fn no_trial_begins_when_the_time_is_over() {
        let Ok(settings) = Settings::new(true) else { return };
        let clock = Clock::moved();
        let limit = Some(clock.now() + LIMIT);
        let progress = Progress::new(1);
        let mut watch = Limited { progress, settings: &settings, clock: clock.clone(), limit, is_over: false };
        let step = Step { trial: 1, trials: 1, round: 1, what: "tunnel".to_owned() };
        let is_stopped = || settings.stop.load(std::sync::atomic::Ordering::Relaxed);
        clock.advance(LIMIT - Duration::from_nanos(1));
        watch.begins(&step);
        assert_eq!((watch.is_over, is_stopped()), (false, false));
        clock.advance(Duration::from_nanos(1));
        watch.begins(&step);
        assert_eq!((watch.is_over, is_stopped()), (true, true));
    }

    #[test]
    fn rates_of_a_line() {
        assert_eq!([gbit("1"), gbit("0.25")], [Ok(1.0), Ok(0.25)]);
        assert!(["0", "-1", "1001", "NaN", "x"].iter().all(|text| gbit(text).is_err()));
    }
}
