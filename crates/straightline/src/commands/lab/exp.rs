//! `straightline lab exp`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{ArgGroup, Args};
use straightline_lab::exp::{self, ALL, Bound, Experiment, ExperimentRecord, Outcome, Settings};
use straightline_lab::results::{Environment, Writer};

use super::progress::Progress;
use super::{stop_on_signals, time};
use crate::output;

/// Rounds: enough for a median that one bad moment does not move; when it is to be quick, for an interval at all.
const ROUNDS: u32 = 11;
const QUICK_ROUNDS: u32 = 6;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["name", "all", "list"]))]
pub(crate) struct Exp {
    /// The experiment
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// All experiments, one after the other
    #[arg(long)]
    pub(crate) all: bool,
    /// Says which experiments there are
    #[arg(long)]
    pub(crate) list: bool,
    /// Fewer cells, fewer rounds and shorter trials: some two minutes for an experiment
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds, in each of which every variant of every cell comes once; default: 11, with --quick 6; an interval needs 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Seconds that a trial is measured; default: 1, with --quick 0.3
    #[arg(long, value_name = "S", value_parser = time)]
    pub(crate) secs: Option<Duration>,
    /// A folder for samples and tables, not used before; default: straightline-lab/NAME-DATE
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// A build of this program that copies nothing (BENCHMARKING.md), to be the bound of copies
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bound: Option<PathBuf>,
}

pub(crate) fn execute(args: &Exp) -> anyhow::Result<()> {
    if args.list {
        let lines = ALL.iter().map(|experiment| format!("{:<14}{}\n", experiment.name, experiment.question));
        return output::answer(&lines.collect::<String>());
    }
    let wanted: Vec<Experiment> = match &args.name {
        Some(name) => vec![*exp::find(name).with_context(|| {
            let known: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
            format!("there is no experiment {name:?}; there are {}", known.join(", "))
        })?],
        None => ALL.to_vec(),
    };
    let settings = settings(args)?;
    if let Some(warning) = settings.warning() {
        output::message("warning", &warning);
    }
    let date = Environment::detect().taken.replace(':', "");
    let name = if args.all { "all" } else { wanted.first().map_or("", |experiment| experiment.name) };
    let folder = args.out.clone().unwrap_or_else(|| Path::new("straightline-lab").join(format!("{name}-{date}")));
    let own = |experiment: &Experiment| if args.all { folder.join(experiment.name) } else { folder.clone() };
    // Nothing is measured where the last one would have no place.
    wanted.iter().try_for_each(|experiment| Writer::check(&own(experiment)))?;
    let mut without_valid_trial = Vec::new();
    for experiment in &wanted {
        let own = own(experiment);
        // When this one begins, not the first.
        let environment = Environment { used_cpus: settings.used_cpus(), ..Environment::detect() };
        let outcome = one(args, experiment, &settings, Writer::create(&own, environment)?)?;
        let (made, planned, shown) = (outcome.made, outcome.planned, own.display());
        ensure!(
            !outcome.is_cut_short(),
            "stopped: {made} of {planned} trials of {} were made; they are in {shown}, with what there is of the one that was \
             interrupted, and the table above is theirs",
            experiment.name
        );
        if outcome.invalid == made {
            without_valid_trial.push(experiment.name);
        }
    }
    ensure!(without_valid_trial.is_empty(), "no trial of {} counts; why stands above", without_valid_trial.join(", "));
    Ok(())
}

fn settings(args: &Exp) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(args.quick)?;
    if let Some(secs) = args.secs {
        settings.time = secs;
    }
    if let Some(program) = &args.bound {
        settings.bound = Some(Bound::new(program)?);
    }
    stop_on_signals(&settings.stop)?;
    Ok(settings)
}

/// One experiment, whose table is printed as soon as it is over.
fn one(args: &Exp, experiment: &Experiment, settings: &Settings, mut writer: Writer) -> anyhow::Result<Outcome> {
    let plan = (experiment.plan)(settings, args.quick);
    let rounds = args.rounds.unwrap_or(if args.quick { QUICK_ROUNDS } else { ROUNDS });
    let mut samples = Vec::new();
    let mut progress = Progress::new(plan.trials() * rounds as usize);
    let outcome = exp::run(&plan, rounds, settings, &mut progress, &mut |kept| match kept {
        ExperimentRecord::Negotiated(layout, features) => {
            writer.negotiated(&format!("straightline, {layout}"), features)
        }
        ExperimentRecord::Peer(name, version) => writer.peer(name, version),
        ExperimentRecord::Sample(sample) => {
            samples.push(sample.clone());
            writer.write(sample)
        }
    });
    progress.finish();
    let outcome = outcome?;
    let table = exp::markdown(&plan, &samples);
    let file = writer.folder().join("table.md");
    fs::write(&file, &table).with_context(|| format!("cannot write {}", file.display()))?;
    let shown = writer.folder().display();
    output::answer(&format!("# {}\n\n{table}Samples and this table: {shown}\n\n", experiment.name))?;
    Ok(outcome)
}
