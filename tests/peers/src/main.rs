//! End-to-end tests: a real switch process with real guests on its sockets.
//!
//! `cargo xtask test` installs the necessary packages and runs the tests. By hand:
//! `cargo run -p peers -- --switch target/release/straightline --only uml_patch`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command-line program")]

mod cases;
mod compare;
mod devices;
mod guest;
mod guest_pair;
mod initrd;
mod lab;
mod linux;
mod machine;
mod measure;
mod net;
mod ovs;
mod proc;
mod runner;
mod say;
mod switch;
mod testpmd;
mod traffic;
mod tunnels;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str =
    "usage: peers [--switch PROGRAM] [--cache FOLDER] [--only PATTERN] [--jobs N] [--long] [--report FILE] [--list]

  --switch PROGRAM  the switch under test (target/release/straightline)
  --cache FOLDER    folder for RAM disks, QEMU's kernel and logs (target/peers)
  --only PATTERN    only the tests whose name contains PATTERN
  --jobs N          run up to N tests at the same time (5, or fewer if memory is short)
  --long            larger transfers
  --report FILE     write the results as JSON to FILE, in place of a summary
  --list            list the tests and exit

       peers compare ...  compare switches side by side: see `cargo xtask compare`
       peers devices ...  compare switches at device ports: see `cargo xtask compare devices`
       peers tunnels ...  compare tunnels between two switches: see `cargo xtask compare tunnels`
       peers linux ...    compare switches between two Linux guests: see `cargo xtask linux`";

struct Options {
    switch: PathBuf,
    cache: PathBuf,
    only: Option<String>,
    jobs: Option<NonZero<usize>>,
    long: bool,
    report: Option<PathBuf>,
    list: bool,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("compare").is_some() {
        return answer("compare", compare::run(args), compare::USAGE);
    }
    if args.next_if_eq("devices").is_some() {
        return answer("compare devices", devices::run(args), devices::USAGE);
    }
    if args.next_if_eq("tunnels").is_some() {
        return answer("compare tunnels", tunnels::run(args), tunnels::USAGE);
    }
    if args.next_if_eq("linux").is_some() {
        return answer("linux", linux::run(args), linux::USAGE);
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn answer(command: &str, done: Result<bool>, usage: &str) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{command}: {error:#}\n{usage}");
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

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        switch: PathBuf::from("target/release/straightline"),
        cache: PathBuf::from("target/peers"),
        only: None,
        jobs: None,
        long: false,
        report: None,
        list: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--switch" => options.switch = value()?.into(),
            "--cache" => options.cache = value()?.into(),
            "--only" => options.only = Some(value()?),
            "--jobs" => {
                let jobs = value()?;
                let number = jobs.parse();
                options.jobs = Some(number.with_context(|| format!("--jobs {jobs}: use a number of at least 1"))?);
            }
            "--report" => options.report = Some(value()?.into()),
            "--long" => options.long = true,
            "--list" => options.list = true,
            other => bail!("unknown argument {other}"),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options> {
        parse(args.iter().map(|arg| (*arg).to_owned()))
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
