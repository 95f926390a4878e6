//! `cargo xtask test --stress`: repeats tests beside busy loops, and says how often each failed.
//!
//! The test programs are built once and then started directly, round after round. A test that waits
//! for time in place of an event fails sooner or later, because its threads get a CPU late.

mod outcome;
mod programs;
mod rates;

use std::fs::{self, File};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::test::{self, EndToEndReport, TestOptions};
use crate::{package, run};

use outcome::{Ending, Outcome};
use programs::{Built, Program};
use rates::Rates;

/// The rounds of a run that names no number.
const ROUNDS: u32 = 10;

/// Seconds after which a test program of the workspace hangs. Without busy loops, all of them together
/// take three minutes.
const LIMIT: u32 = 600;

/// Seconds after which a round of cases with real peers hangs.
const PEERS_LIMIT: u32 = 1800;

/// Name of the end-to-end tests' program in failures.
const PEERS: &str = "peers";

/// Options of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StressOptions {
    /// A part of the path of a test program, or of the name of a test or case.
    pub(crate) name: Option<String>,
    pub(crate) rounds: NonZero<u32>,
}

impl Default for StressOptions {
    fn default() -> Self {
        Self { name: None, rounds: NonZero::new(ROUNDS).unwrap_or(NonZero::<u32>::MIN) }
    }
}

/// Builds the tests, and repeats them. Returns true if none failed in any round.
pub(crate) fn run(options: &TestOptions, stress: &StressOptions) -> Result<bool> {
    let root = run::root()?;
    let target = run::target(&root);
    let name = stress.name.as_deref();
    let built = programs::build(&root, &test::selection(options))?;
    let programs = programs::select(&built.programs, name)?;
    let peers = match name {
        Some(name) => peers(options, &root, &target, &built, name)?,
        None => None,
    };
    let tests: usize = programs.iter().map(|program| program.tests).sum();
    let cases = peers.as_ref().map_or(0, |peers| peers.cases);
    ensure!(tests + cases > 0, "no test program, test or case has {:?} in its name", name.unwrap_or_default());

    let folder = target.join("stress");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let rounds = stress.rounds.get();
    let loops = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
    println!("{tests} tests in {} programs, {cases} cases with real peers: {rounds} rounds", programs.len());
    println!("beside {loops} busy loops; the output of programs that fail is in {}", folder.display());
    let mut rates = Rates::default();
    let began = Instant::now();
    beside(loops, || {
        for round in 1..=rounds {
            let before = rates.clone();
            let began = Instant::now();
            for program in &programs {
                let outcome = program_once(program, &folder, round)?;
                print_new(&rates.add(&program.name, outcome));
            }
            if let Some(peers) = &peers {
                let outcome = peers.once(&root, &target, &folder, round)?;
                print_new(&rates.add(PEERS, outcome));
            }
            rates.end_round();
            let passed = rates.passed - before.passed;
            let failed = rates.failed - before.failed;
            let seconds = began.elapsed().as_secs();
            println!("round {round} of {rounds}: {passed} passed, {failed} failed in {seconds} s");
        }
        Ok::<_, anyhow::Error>(())
    })?;
    print!("{}", rates.summary(loops, began.elapsed().as_secs()));
    Ok(rates.failed == 0)
}

/// Prints failures of tests that had not failed before.
fn print_new(failures: &[String]) {
    for failure in failures {
        println!("{failure}");
    }
}

/// Does the work while this number of threads keeps the CPUs busy.
fn beside<T>(loops: usize, work: impl FnOnce() -> T) -> T {
    /// Ends the loops, also after a panic.
    struct Stop<'f>(&'f AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stop = Stop(&ends);
        for _ in 0..loops {
            // No hint for a spinning loop: it would leave a hyperthread to its neighbour.
            threads.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::black_box(());
                }
            });
        }
        work()
    })
}

/// Runs a test program once.
fn program_once(program: &Program, folder: &Path, round: u32) -> Result<Outcome> {
    let mut command = limited(LIMIT, &program.path);
    command.args(&program.filter).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    if !program.is_inside {
        test::set_outside_threads(&mut command);
    }
    let log = Log::new(folder, &program.name, round);
    let ending = log.run(&mut command, LIMIT)?;
    let outcome = outcome::read(&log.out()?, &log.err()?, &ending);
    log.end(&outcome)?;
    Ok(outcome)
}

/// Returns a command that ends a program, with all that it has started, after this number of seconds.
fn limited(seconds: u32, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(seconds.to_string()).arg(program);
    command
}

/// The files with the output of a program in one round. A program that ended may leave processes that
/// still have its output: the end of a pipe would have to wait for them.
struct Log {
    out: PathBuf,
    err: PathBuf,
}

impl Log {
    fn new(folder: &Path, name: &str, round: u32) -> Self {
        let name = name.replace('/', "-");
        Self { out: folder.join(format!("{name}.{round}.out")), err: folder.join(format!("{name}.{round}.err")) }
    }

    /// Runs the program to its end.
    fn run(&self, command: &mut Command, limit: u32) -> Result<Ending> {
        let create = |path: &Path| File::create(path).with_context(|| format!("cannot create {}", path.display()));
        command.stdin(Stdio::null()).stdout(create(&self.out)?).stderr(create(&self.err)?);
        let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
        Ok(ending(status, limit))
    }

    fn out(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.out)?).into_owned())
    }

    fn err(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.err)?).into_owned())
    }

    /// Removes the files if nothing failed.
    fn end(&self, outcome: &Outcome) -> Result<()> {
        if outcome.failed.is_empty() {
            fs::remove_file(&self.out)?;
            fs::remove_file(&self.err)?;
        }
        Ok(())
    }
}

/// Returns how a program ended that `timeout` has run.
fn ending(status: ExitStatus, limit: u32) -> Ending {
    match (status.code(), status.signal()) {
        // `timeout` ended the program, or had to kill it.
        (Some(124 | 137), _) => Ending::Hung(limit),
        (Some(code), _) if code > 128 => Ending::Signal(code - 128),
        (Some(code), _) => Ending::Exit(code),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    }
}

/// The cases with real peers that the name selects.
struct Peers {
    program: PathBuf,
    name: String,
    cases: usize,
}

/// Builds what the cases need whose name contains `name`, or returns `None` if there is no such case.
fn peers(options: &TestOptions, root: &Path, target: &Path, built: &Built, name: &str) -> Result<Option<Peers>> {
    let program = built.peers.clone().context("cargo has not built the program of the end-to-end tests")?;
    let Ok(list) = run::output(Command::new(&program).args(["--list", "--only", name])) else { return Ok(None) };
    let cases: Vec<&str> = list.lines().collect();
    test::install(options, &target.join("peers"))?;
    run::must(run::cargo(root).args(test::SWITCH))?;
    // The names of cases that install the package begin so.
    if cases.iter().any(|case| case.starts_with("package")) {
        package::deb()?;
    }
    Ok(Some(Peers { program, name: name.to_owned(), cases: cases.len() }))
}

impl Peers {
    /// Runs the cases once.
    fn once(&self, root: &Path, target: &Path, folder: &Path, round: u32) -> Result<Outcome> {
        let report = folder.join("report.json");
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut command = limited(PEERS_LIMIT, &self.program);
        command.args(["--only", &self.name, "--switch"]).arg(target.join("release/straightline"));
        command.arg("--cache").arg(target.join("peers")).arg("--report").arg(&report).current_dir(root);
        let log = Log::new(folder, PEERS, round);
        let ending = log.run(&mut command, PEERS_LIMIT)?;
        let outcome = match fs::read_to_string(&report) {
            Ok(text) => {
                let report: EndToEndReport = serde_json::from_str(&text).context("cannot parse the report of peers")?;
                outcome::of_cases(report)
            }
            Err(_) => outcome::read("", &log.err()?, &ending),
        };
        log.end(&outcome)?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> Ending {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::new(folder.path(), "crates/a/src/lib.rs", 1);
        let mut command = limited(1, Path::new("sh"));
        log.run(command.args(["-c", script]), 1).expect("it starts")
    }

    #[test]
    fn endings_of_programs_are_told_apart() {
        assert_eq!(ended("exit 0"), Ending::Exit(0));
        assert_eq!(ended("exit 101"), Ending::Exit(101));
        assert_eq!(ended("kill -ABRT $$"), Ending::Signal(6));
        assert_eq!(ended("sleep 3600"), Ending::Hung(1));
    }

    #[test]
    fn output_is_complete_although_a_process_still_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Log::new(folder.path(), "crates/a/src/lib.rs", 1);
        let mut command = limited(LIMIT, Path::new("sh"));
        log.run(command.args(["-c", "sleep 3600 & echo $!; echo late >&2"]), LIMIT).expect("it starts");
        let left = log.out().expect("a file");
        run::must(Command::new("kill").arg(left.trim())).expect("the process is there");
        assert_eq!(log.err().expect("a file"), "late\n");
        log.end(&Outcome::default()).expect("the files are removed");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn busy_loops_end_with_the_work() {
        assert_eq!(beside(3, || 7), 7);
        let panicked = std::panic::catch_unwind(|| beside(3, || panic!("the work failed")));
        assert!(panicked.is_err());
    }
}
