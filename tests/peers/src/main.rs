//! End-to-end tests: a real switch process with real guests on its sockets.
//!
//! `cargo xtask test` installs the necessary packages and runs the tests. By hand:
//! `cargo run -p peers -- --switch target/release/straightline --only uml_patch`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command-line program")]

mod cases;
mod compare;
mod conntrack;
mod devices;
mod flows;
mod guest;
mod guest_pair;
mod initrd;
mod lab;
mod linux;
mod machine;
mod measure;
mod memcpy;
mod monitor;
mod net;
mod nic_loop;
mod ovs;
mod proc;
mod rates;
mod runner;
mod say;
mod seed;
mod switch;
mod testpmd;
mod traffic;
mod tunnels;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

/// Run end-to-end tests with real guests
#[derive(Debug, Parser)]
#[command(name = "peers", args_conflicts_with_subcommands = true, args_override_self = true)]
struct CommandLine {
    #[command(flatten)]
    tests: Options,
    #[command(subcommand)]
    comparison: Option<Comparison>,
}

#[derive(Debug, Args)]
struct Options {
    /// Switch under test
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/straightline")]
    switch: PathBuf,
    /// Folder for RAM disks, QEMU's kernel and logs
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    cache: PathBuf,
    /// Only the tests whose name contains PATTERN
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Run up to N tests at the same time; default: 5, or fewer if memory is short
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Make larger transfers
    #[arg(long)]
    long: bool,
    /// Write the results as JSON to FILE, in place of a summary
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// List the tests and exit
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Comparison {
    Compare(compare::Options),
    Pvp(compare::pvp::PvpOptions),
    Devices(devices::Options),
    Flows(flows::Options),
    Conntrack(conntrack::Options),
    NicLoop(nic_loop::Options),
    Tunnels(tunnels::Options),
    Rates(rates::Options),
    Linux(linux::Options),
    Memcpy(memcpy::Options),
}

fn main() -> ExitCode {
    let CommandLine { tests, comparison } = CommandLine::parse();
    let (who, done) = match comparison {
        None => ("peers", run(&tests)),
        Some(Comparison::Compare(options)) => ("compare", compare::run(options)),
        Some(Comparison::Pvp(options)) => ("compare pvp", compare::pvp::run(options)),
        Some(Comparison::Devices(options)) => ("compare devices", devices::run(options)),
        Some(Comparison::Flows(options)) => ("compare flows", flows::run(options)),
        Some(Comparison::Conntrack(options)) => ("compare conntrack", conntrack::run(options)),
        Some(Comparison::NicLoop(options)) => ("compare nic-loop", nic_loop::run(options)),
        Some(Comparison::Tunnels(options)) => ("compare tunnels", tunnels::run(options)),
        Some(Comparison::Rates(options)) => ("compare rates", rates::run(options)),
        Some(Comparison::Linux(options)) => ("linux", linux::run(options)),
        Some(Comparison::Memcpy(options)) => ("compare memcpy", memcpy::run(options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{who}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let mut tests = cases::all();
    if let Some(pattern) = &options.only {
        tests.retain(|test| test.name.contains(pattern));
    }
    if tests.is_empty() {
        bail!("no test has {:?} in its name", options.only.as_deref().unwrap_or_default());
    }
    if options.list {
        for test in &tests {
            println!("{}", test.name);
        }
        return Ok(true);
    }
    let switch = options.switch.canonicalize();
    let machine = machine::Machine {
        switch: switch
            .with_context(|| format!("no switch to test at {}: build it, or use --switch", options.switch.display()))?,
        cache: std::path::absolute(&options.cache)?,
        long: options.long,
    };
    proc::catch_interrupts()?;
    let jobs = options.jobs.map_or_else(machine::jobs, NonZero::get);
    let report = runner::run(&machine, &tests, jobs);
    if let Some(path) = &options.report {
        // The caller that asked for the report prints the summary itself.
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    } else {
        for remark in &report.skipped {
            println!("skipped {}: {}", remark.name, remark.why);
        }
        for remark in &report.failed {
            println!("failed {}: {}", remark.name, remark.why);
        }
        println!("{}", report.summary());
    }
    Ok(report.failed.is_empty() && !proc::interrupted())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(args: &[&str]) -> Result<Options> {
        Ok(CommandLine::try_parse_from([&["peers"], args].concat())?.tests)
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn arguments() {
        let options = parsed(&["--only", "uml", "--long", "--switch", "/x"]).expect("good");
        assert_eq!((options.only.as_deref(), options.long), (Some("uml"), true));
        assert_eq!(options.switch, PathBuf::from("/x"));
        assert_eq!(parsed(&["--jobs", "3"]).expect("good").jobs, NonZero::new(3));
        assert!(parsed(&["--jobs", "0"]).is_err());
        assert!(parsed(&["--only"]).is_err());
        assert!(parsed(&["--frobnicate"]).is_err());
    }

    #[test]
    fn names_are_unique_and_fit_a_shell() {
        let mut names: Vec<String> = cases::all().into_iter().map(|test| test.name).collect();
        assert!(names.iter().all(|n| { n.chars().all(|c| c.is_ascii_alphanumeric() || "_+".contains(c)) }));
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
