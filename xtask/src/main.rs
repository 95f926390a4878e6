//! The project's development commands:
//!
//! | command | task |
//! |---|---|
//! | `cargo xtask test` | runs all tests; `--stress` repeats them beside busy loops |
//! | `cargo xtask fuzz` | runs the fuzz targets |
//! | `cargo xtask compare`, `cargo xtask linux` | measure switches side by side |
//! | `cargo xtask house` | checks the workspace rules |
//! | `cargo xtask deb`, `cargo xtask tarball` | build packages |
//! | `cargo xtask citations` | shows which sentences of specifications have code and tests |
//! | `cargo xtask bugs` | applies published bugs, and checks that tests find them |
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command-line program")]

mod bugs;
mod citations;
mod fuzz;
mod install;
mod package;
mod rules;
mod run;
mod source;
mod stress;
mod test;
mod times;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  test [--quick|--rest] [--long] [--only PATTERN] [--no-install] [--list]
        run all tests: format, rules, the workspace's own with clippy's lints, then the end-to-end tests with real
        guests; the end shows the steps and the slowest tests
        --quick         only format, rules, and the tests inside of crates (unit and property tests), with clippy's
                        lints of all that these build
        --rest          all but what --quick runs
        --long          larger transfers between the guests, more repetitions of every attack, `fuzz`, and `bugs`
        --only PATTERN  only the end-to-end tests whose name contains PATTERN
        --no-install    install nothing; tests whose programs are missing are skipped
        --list          list the end-to-end tests and exit
  test --stress [NAME] [--times N] [--quick|--rest] [--long] [--no-install]
        repeat tests N times (10) beside busy loops, twice as many as CPUs; each test that failed at least once is shown
        with its rate. A hang is a failure. Without NAME, all tests run but those with real peers
        NAME            only test programs whose path, and tests and end-to-end tests whose name contains NAME
        --quick, --rest only the tests inside of crates, or only those outside
  fuzz [TARGET] [--secs N]
        run the fuzz targets (or one of them), each for N seconds (60)
  compare [ARGUMENT...]
        compare switches side by side with the same guest; without an argument, list what can be compared
  compare pvp [ARGUMENT...]
        compare switches between physical ports and a guest that forwards: sockets, and wires with AF_XDP
  compare devices [ARGUMENT...]
        compare switches at a tap, and at AF_XDP over a veth pair
  compare nic-loop [ARGUMENT...]
        measure two Linux guests on one switch whose packets loop through AF_XDP, plain and in L2TPv3
  compare tunnels [ARGUMENT...]
        compare tunnels between two switches with a Linux guest each, over a veth pair
  compare rates [ARGUMENT...]
        measure limits of ports: shares, delays, TCP between Linux guests beside Open vSwitch and tbf
  compare flows [ARGUMENT...]
        compare flow tables with Open vSwitch's
  compare conntrack [ARGUMENT...]
        measure what the kernel's nf_conntrack and nftables cost a packet, beside a namespace that only forwards
  compare memcpy [ARGUMENT...]
        compare copies in DPDK's vhost library, which it builds from Debian's source
  linux [ARGUMENT...]
        compare switches between two Linux guests (User Mode Linux): iperf3, CPU time of the switch, round trips;
        without an argument, list what can be compared
  deb
        build the Debian package in target/debian
  tarball
        build the tarball for other distributions in target/dist
  house [--figures]
        check the workspace rules: imports, `unsafe`, doc comments, lines of Markdown, subjects of new commits
        --figures       list how often the code that each page of figures measures has changed since
  citations [--all]
        show which sentences of specifications (docs/citations) no code or no test cites; exits with 0 whatever it finds
        --all           every sentence, with the places that cite it
  bugs [PATTERN]
        apply each published bug (tests/hostile/bugs), or those whose name contains PATTERN, to a copy of the sources;
        its test must fail. Each bug needs a build, so this takes a while";

enum Command {
    Test(test::TestOptions),
    Fuzz(fuzz::FuzzOptions),
    /// `compare` or `linux`, with its arguments.
    Measure(&'static str, Vec<String>),
    /// `deb` or `tarball`.
    Package(package::Builder),
    /// Whether the ages of figures are listed.
    House(bool),
    /// Whether every sentence is shown.
    Citations(bool),
    Bugs(Option<String>),
}

fn main() -> ExitCode {
    let command = match parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Test(options) => test::run(&options),
        Command::Fuzz(options) => run_fuzz(&options),
        Command::Measure(what, args) => measure(what, &args),
        Command::Package(build) => build().map(|_| true),
        Command::House(lists_figures) => run::root().and_then(|root| rules::pass(&root, lists_figures)),
        Command::Citations(all) => run::root().and_then(|root| citations::report(&root, all)).map(|()| true),
        Command::Bugs(pattern) => bugs::run(pattern.as_deref()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_fuzz(options: &fuzz::FuzzOptions) -> Result<bool> {
    let (passed, failed) = fuzz::run(options)?;
    for failure in &failed {
        println!("failed {failure}");
    }
    println!("{passed} targets passed, {} failed", failed.len());
    Ok(failed.is_empty())
}

/// Builds the switch, and runs the comparison in the end-to-end tests' program, which can start
/// peers and guests.
fn measure(what: &str, args: &[String]) -> Result<bool> {
    let root = run::root()?;
    if !args.is_empty() {
        run::must(run::cargo(&root).args(["build", "--release", "-p", "straightline"]))?;
    }
    let target = run::target(&root);
    let (what, args) = match args.split_first() {
        Some((first, rest)) if what == "compare" => match first.as_str() {
            "pvp" => ("pvp", rest),
            "devices" => ("devices", rest),
            "nic-loop" => ("nic-loop", rest),
            "tunnels" => ("tunnels", rest),
            "rates" => ("rates", rest),
            "flows" => ("flows", rest),
            "conntrack" => ("conntrack", rest),
            "memcpy" => ("memcpy", rest),
            _ => (what, args),
        },
        _ => (what, args),
    };
    let mut peers = run::cargo(&root);
    peers.args(["run", "--quiet", "-p", "peers", "--", what]);
    if ["compare", "pvp"].contains(&what) {
        // The program that contains the embedded guest.
        peers.arg("--program").arg(target.join("release/straightline"));
    }
    peers.arg("--cache").arg(target.join("peers")).args(args);
    if args.is_empty() && ["compare", "linux"].contains(&what) {
        peers.arg("--help");
    }
    run::passes(&mut peers)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Command> {
    let command = args.next().context("the command is missing")?;
    if command == "house" {
        let args: Vec<String> = args.collect();
        return match args.as_slice() {
            [] => Ok(Command::House(false)),
            [list] if list == "--figures" => Ok(Command::House(true)),
            _ => bail!("house takes --figures or no argument, and got {}", args.join(" ")),
        };
    }
    if command == "citations" {
        let args: Vec<String> = args.collect();
        return match args.as_slice() {
            [] => Ok(Command::Citations(false)),
            [all] if all == "--all" => Ok(Command::Citations(true)),
            _ => bail!("citations takes --all or no argument, and got {}", args.join(" ")),
        };
    }
    if command == "bugs" {
        let pattern = args.next();
        return match args.next() {
            None => Ok(Command::Bugs(pattern)),
            Some(arg) => bail!("bugs takes one pattern, and got {arg} as a second one"),
        };
    }
    if let Some(build) = package::builder(&command) {
        return match args.next() {
            None => Ok(Command::Package(build)),
            Some(arg) => bail!("{command} takes no argument, and got {arg}"),
        };
    }
    for what in ["compare", "linux"] {
        if command == what {
            return Ok(Command::Measure(what, args.collect()));
        }
    }
    if command == "fuzz" {
        return parse_fuzz(args).map(Command::Fuzz);
    }
    if command != "test" {
        bail!("unknown command {command}");
    }
    let mut options = test::TestOptions::default();
    let mut args = args.peekable();
    let mut times = None;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--stress" => {
                let name = args.next_if(|next| !next.starts_with('-'));
                options.stress = Some(stress::StressOptions { name, ..Default::default() });
            }
            "--times" => {
                let number = args.next().context("--times needs a number")?;
                times = Some(number.parse().with_context(|| format!("--times {number}: use a number from 1"))?);
            }
            "--quick" => options.quick = true,
            "--rest" => options.rest = true,
            "--long" => options.long = true,
            "--no-install" => options.no_install = true,
            "--list" => options.list = true,
            "--only" => options.only = Some(args.next().context("--only needs a pattern")?),
            other => bail!("unknown argument {other}"),
        }
    }
    if options.quick && options.rest {
        bail!("--quick and --rest are the two halves of all tests: leave both out to run both");
    }
    match (&mut options.stress, times) {
        (Some(stress), Some(times)) => stress.rounds = times,
        (None, Some(_)) => bail!("--times needs --stress, whose rounds it counts"),
        _ => {}
    }
    if options.stress.is_some() && (options.list || options.only.is_some()) {
        bail!("--stress takes no --list and no --only: put a part of the name behind --stress");
    }
    Ok(Command::Test(options))
}

fn parse_fuzz(mut args: impl Iterator<Item = String>) -> Result<fuzz::FuzzOptions> {
    let mut options = fuzz::FuzzOptions { target: None, secs: 60 };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--secs" => {
                let secs = args.next().context("--secs needs a number")?;
                options.secs = secs.parse().with_context(|| format!("--secs {secs}"))?;
            }
            target if options.target.is_none() && !target.starts_with('-') => options.target = Some(arg),
            other => bail!("unknown argument {other}"),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let parsed = |args: &[&str]| parse(args.iter().map(|arg| (*arg).to_owned()));
        let Ok(Command::Test(options)) = parsed(&["test", "--only", "uml", "--long"]) else {
            panic!("a good command line");
        };
        assert_eq!((options.only.as_deref(), options.long), (Some("uml"), true));
        let stress = |args: &[&str]| match parsed(&[&["test"], args].concat()) {
            Ok(Command::Test(options)) => options.stress.map(|stress| (stress.name, stress.rounds.get())),
            _ => panic!("a good command line: {args:?}"),
        };
        assert_eq!(stress(&["--long"]), None);
        assert_eq!(stress(&["--stress"]), Some((None, 10)));
        assert_eq!(stress(&["--stress", "evpn_migrate", "--times", "3"]), Some((Some("evpn_migrate".to_owned()), 3)));
        assert_eq!(stress(&["--times", "20", "--quick", "--stress"]), Some((None, 20)));
        assert!(matches!(parsed(&["house"]), Ok(Command::House(false))));
        assert!(matches!(parsed(&["house", "--figures"]), Ok(Command::House(true))));
        let Ok(Command::Fuzz(options)) = parsed(&["fuzz", "packet", "--secs", "9"]) else {
            panic!("a good command line");
        };
        assert_eq!((options.target.as_deref(), options.secs), (Some("packet"), 9));
        for bad in [&["fuzz", "--pocket"][..], &["fuzz", "--secs"], &["fuzz", "--secs", "x"], &["fuzz", "api", "api"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
        assert!(
            matches!(parsed(&["compare", "--switch", "ovs"]), Ok(Command::Measure("compare", args)) if args.len() == 2)
        );
        assert!(matches!(parsed(&["linux"]), Ok(Command::Measure("linux", args)) if args.is_empty()));
        assert!(matches!(parsed(&["deb"]), Ok(Command::Package(_))));
        assert!(matches!(parsed(&["citations"]), Ok(Command::Citations(false))));
        assert!(matches!(parsed(&["citations", "--all"]), Ok(Command::Citations(true))));
        assert!(matches!(parsed(&["bugs"]), Ok(Command::Bugs(None))));
        assert!(matches!(parsed(&["bugs", "CVE-2018"]), Ok(Command::Bugs(Some(pattern))) if pattern == "CVE-2018"));
        for bad in [
            &[][..],
            &["tset"],
            &["test", "--only"],
            &["test", "--fast"],
            &["test", "--quick", "--rest"],
            &["test", "--times", "3"],
            &["test", "--stress", "--times"],
            &["test", "--stress", "--times", "0"],
            &["test", "--stress", "--times", "x"],
            &["test", "--stress", "a", "b"],
            &["test", "--stress", "--only", "a"],
            &["house", "x"],
            &["deb", "x"],
            &["citations", "all"],
            &["citations", "--all", "x"],
            &["bugs", "a", "b"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
