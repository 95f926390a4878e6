//! `straightline lab exp`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{ArgGroup, Args};
use straightline_lab::experiments::{self, ALL, Bound, Experiment, Plan, Settings};
use straightline_lab::folder::Writer;
use straightline_lab::machine;
use straightline_lab::rounds::{Outcome, Record, Rounds};
use straightline_report::report::Report;
use straightline_report::results::{Environment, Results};

use super::progress::Progress;
use super::{stop_on_signals, time};
use crate::output;

/// The default number of rounds. A median of 11 values is robust against one disturbed round.
/// `--quick` uses the fewest rounds that give an interval.
const ROUNDS: u32 = 11;
const QUICK_ROUNDS: u32 = 6;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["name", "all", "list"]))]
pub(crate) struct Exp {
    /// Name of the experiment
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run all experiments, one after the other
    #[arg(long)]
    pub(crate) all: bool,
    /// List the experiments
    #[arg(long)]
    pub(crate) list: bool,
    /// Run fewer cells, fewer rounds and shorter trials: at most some two minutes for each experiment
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run only cells with this value on this axis, such as size=1514; of several values of one axis,
    /// any
    #[arg(long = "cell", value_name = "AXIS=VALUE", value_parser = place, conflicts_with_all = ["all", "list"])]
    pub(crate) cells: Vec<(String, String)>,
    /// Number of rounds; each round runs every variant of every cell once. Default: 11, with
    /// --quick 6; an interval needs at least 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Number of rounds of cells in which a comparison is unclear after the others, at least --rounds.
    /// Intervals of ratios are then of 97.5 %, and need at least 7 rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) most_rounds: Option<u32>,
    /// Measured seconds of each trial; default: 1, with --quick 0.3
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// Use only trials before and after which a line's round trip between the CPUs takes at most this
    /// many nanoseconds: a hypervisor may move CPUs apart, and `lab machine` shows the round trip
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) near: Option<u32>,
    /// New folder for samples and tables; default: straightline-lab/NAME-DATE
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Build of this program that copies nothing (BENCHMARKING.md), measured as the upper bound for
    /// copies
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bound: Option<PathBuf>,
}

pub(crate) fn execute(args: &Exp) -> anyhow::Result<()> {
    if args.list {
        let lines = ALL.iter().map(|experiment| format!("{:<14}{}\n", experiment.name, experiment.question));
        return output::answer(&lines.collect::<String>());
    }
    let wanted: Vec<Experiment> = match &args.name {
        Some(name) => vec![*experiments::find(name).with_context(|| {
            let known: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
            format!("there is no experiment {name:?}; the experiments are {}", known.join(", "))
        })?],
        None => ALL.to_vec(),
    };
    let rounds = rounds(args)?;
    let settings = settings(args)?;
    if let Some(warning) = settings.warning() {
        output::message("warning", &warning);
    }
    let date = machine::environment().taken.replace(':', "");
    let name = if args.all { "all" } else { wanted.first().map_or("", |experiment| experiment.name) };
    let folder = args.out.clone().unwrap_or_else(|| Path::new("straightline-lab").join(format!("{name}-{date}")));
    let own = |experiment: &Experiment| if args.all { folder.join(experiment.name) } else { folder.clone() };
    // Check all folders first. Otherwise the run could measure for a long time and then fail to
    // write the last experiment's results.
    wanted.iter().try_for_each(|experiment| Writer::check(&own(experiment)))?;
    let mut without_valid_trial = Vec::new();
    for experiment in &wanted {
        let own = own(experiment);
        // A cell that does not exist leaves no folder behind.
        let mut plan = (experiment.plan)(&settings, args.quick);
        plan.keep(&args.cells)?;
        // The environment at the start of this experiment, not at the start of the first
        // experiment.
        let environment =
            Environment { used_cpus: settings.used_cpus(), looks: rounds.looks(), ..machine::environment() };
        let outcome = one(args, &plan, &settings, Writer::create(&own, environment)?)?;
        let made = outcome.made;
        let planned = outcome.planned;
        let shown = own.display();
        ensure!(
            !outcome.is_cut_short(),
            "stopped: {made} of {planned} trials of {} were made. They are in {shown}, with the partial values of \
             the interrupted one; the table above is computed from them",
            experiment.name
        );
        if outcome.valid == 0 {
            without_valid_trial.push(experiment.name);
        }
    }
    ensure!(
        without_valid_trial.is_empty(),
        "no valid trial of {}; reasons are listed above",
        without_valid_trial.join(", ")
    );
    Ok(())
}

fn rounds(args: &Exp) -> anyhow::Result<Rounds> {
    let first = args.rounds.unwrap_or(if args.quick { QUICK_ROUNDS } else { ROUNDS });
    let most = args.most_rounds.unwrap_or(first);
    ensure!(most >= first, "--most-rounds {most} is less than the {first} rounds of all cells: use at least {first}");
    Ok(Rounds { first, most })
}

fn settings(args: &Exp) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(args.quick)?;
    if let Some(secs) = args.secs {
        settings.time = secs;
    }
    settings.near_ns = args.near.map(f64::from);
    if let Some(program) = &args.bound {
        settings.bound = Some(Bound::new(program)?);
    }
    stop_on_signals(&settings.stop)?;
    Ok(settings)
}

/// Parses a value on an axis.
fn place(text: &str) -> Result<(String, String), String> {
    let (axis, value) = text.split_once('=').ok_or_else(|| format!("`{text}` has no value: use AXIS=VALUE"))?;
    Ok((axis.to_owned(), value.to_owned()))
}

/// Runs one experiment and prints its table as soon as it ends.
fn one(args: &Exp, plan: &Plan, settings: &Settings, mut writer: Writer) -> anyhow::Result<Outcome> {
    let rounds = rounds(args)?;
    let mut samples = Vec::new();
    let mut progress = Progress::new(plan.trials() * rounds.first as usize);
    let outcome = plan.run(rounds, settings, &mut progress, &mut |kept| match kept {
        Record::Negotiated(layout, features) => writer.negotiated(&format!("straightline, {layout}"), features),
        Record::Peer(name, version) => writer.peer(name, version),
        Record::Sample(sample) => {
            samples.push(sample.clone());
            writer.write(sample)
        }
        Record::Trial(trial) => writer.write_trial(trial),
    });
    progress.finish();
    let outcome = outcome?;
    let mut table = experiments::markdown(plan, &samples, rounds.looks());
    let environment = Environment { looks: rounds.looks(), ..Environment::default() };
    if let Ok(report) = Report::new(plan.name, &Results { environment, samples, bounds: None }) {
        table += &format!("{}\n", report.comparisons());
    }
    let file = writer.folder().join("table.md");
    fs::write(&file, &table).with_context(|| format!("cannot write {}", file.display()))?;
    let shown = writer.folder().display();
    output::answer(&format!("# {}\n\n{table}Samples and this table: {shown}\n\n", plan.name))?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn further_rounds_come_after_the_first_ones() {
        let parsed = |args: &[&str]| {
            let command = Exp::augment_args(Command::new("exp"));
            let matches = command.get_matches_from(["exp", "width"].iter().chain(args));
            rounds(&Exp::from_arg_matches(&matches).expect("a command line"))
        };
        assert_eq!(parsed(&[]).expect("possible"), Rounds::from(ROUNDS));
        assert_eq!(parsed(&["--quick"]).expect("possible"), Rounds::from(QUICK_ROUNDS));
        let more = parsed(&["--rounds", "7", "--most-rounds", "20"]).expect("possible");
        assert_eq!(more, Rounds { first: 7, most: 20 });
        let error = parsed(&["--most-rounds", "10"]).expect_err("fewer").to_string();
        assert!(error.contains("use at least 11"), "{error}");
    }
}
