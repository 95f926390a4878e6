//! `cargo xtask test`: runs all tests, and ends with one line of results.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::stress::{self, StressOptions};
use crate::times::{self, TestTimes};
use crate::{bugs, fuzz, install, package, rules, run};

/// Options of the command line.
#[derive(Debug, Default)]
pub(crate) struct TestOptions {
    /// Only what answers soon: format, rules, and the tests inside of crates, with lints of all that
    /// these build.
    pub(crate) quick: bool,
    /// All but what `quick` runs.
    pub(crate) rest: bool,
    pub(crate) long: bool,
    pub(crate) no_install: bool,
    pub(crate) list: bool,
    pub(crate) only: Option<String>,
    /// Repeats tests beside busy loops, in place of one run of all.
    pub(crate) stress: Option<StressOptions>,
}

/// Arguments that select the whole workspace, with the fail points at which tests crash a device.
pub(crate) const WORKSPACE: [&str; 3] =
    ["--workspace", "--features", "straightline-virtio/fail-points,straightline/fail-points"];

/// Arguments that leave the laboratory out of the program, and keep the features of all other crates. The example
/// depends on the program with its laboratory.
const WITHOUT_LABORATORY: [&str; 3] = ["--no-default-features", "--exclude", "macswap"];

/// Arguments that select the tests inside of crates: their unit and property tests.
const INSIDE: [&str; 2] = ["--lib", "--bins"];

/// Arguments that select the other tests of the workspace. They wait for processes, sockets and
/// timers most of the time, so twice as many as there are CPUs run at once.
const OUTSIDE: [&str; 2] = ["--test", "*"];

/// The environment variable with the number of tests that run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// The environment variable with the program that cargo starts tests with.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// Has libtest print the time of each test. Its option is not stable, so the tests alone are run with
/// the variable that allows it. Elsewhere than on x86-64 there are no times.
const WITH_TIMES: (&str, [&str; 3]) = ("env RUSTC_BOOTSTRAP=1", ["--", "-Zunstable-options", "--report-time"]);

/// Ends a test program that hangs, with all that it has started. In CI, all of them together take
/// three minutes.
const LIMIT: &str = "timeout --kill-after=10 600";

/// The most characters that the end shows of the panics of a failed test.
const MOST_WHY: usize = 600;

/// Arguments that build the switch as users get it.
pub(crate) const SWITCH: [&str; 4] = ["build", "--release", "-p", "straightline"];

/// Arguments that make the files of all crates that are published. The hostile rig, the peers and the fuzz
/// targets are not: they need the crate `testing`, which has no version. Without `--no-verify`, each would be
/// built once more.
const CRATES: &[&str] = &[
    "package",
    "--workspace",
    "--exclude",
    "hostile",
    "--exclude",
    "peers",
    "--exclude",
    "straightline-fuzz",
    "--no-verify",
    "--allow-dirty",
    "--quiet",
];

/// Results of the tests so far.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
    times: TestTimes,
    /// Names of tests that libtest reported as failed, until its line with their number.
    named: Vec<String>,
    /// Failed tests whose output libtest repeats now, with the messages of their panics.
    panics: Vec<(String, String)>,
    /// The last line was one of such a message.
    in_panic: bool,
    /// Tests that have run for a minute, and have no result yet.
    slow: Vec<String>,
    /// Tests of the current binary that reported a skip. libtest counts them as passed.
    reported: u64,
}

/// Runs the tests. Returns true if none failed.
pub(crate) fn run(options: &TestOptions) -> Result<bool> {
    if let Some(stress) = &options.stress {
        return stress::run(options, stress);
    }
    let root = run::root()?;
    let target = run::target(&root);
    let cache = target.join("peers");
    if options.list {
        run::must(cargo_peers(&root).arg("--list"))?;
        return Ok(true);
    }
    let mut tally = Tally::default();
    let mut built = false;
    if options.only.is_some() {
        install(options, &cache)?;
    } else {
        if options.rest {
            install(options, &cache)?;
        } else {
            // Packages are downloaded while the compiler works.
            let are_built = std::thread::scope(|threads| {
                let installing = threads.spawn(|| install(options, &cache));
                let built = checks(&root, &mut tally)?;
                installing.join().unwrap_or_else(|_| bail!("the installation panicked"))?;
                Ok::<_, anyhow::Error>(built)
            })?;
            if are_built {
                tests(&root, options, &INSIDE, &mut tally)?;
            }
        }
        if options.quick {
            return Ok(tally.end());
        }
        built = std::thread::scope(|threads| {
            // Beside the tests, which wait for timers most of the time. With a higher priority the builds
            // would make tests fail that measure. A build that fails here fails again where its result is
            // needed, and is reported there.
            threads.spawn(|| run::passes(run::idle_cargo(&root).args(SWITCH).arg("--quiet")));
            threads.spawn(|| package::cargo_deb(run::idle_cargo(&root), &target));
            let mut build = run::linting_cargo(&root);
            let built = run::passes(build.arg("test").args(WORKSPACE).args(["--all-targets", "--no-run"]))?;
            rest(&root, options, &mut tally)?;
            Ok::<_, anyhow::Error>(built)
        })?;
    }
    // The workspace's tests have built this program. Alone, cargo would build it again for other
    // features.
    let peers = if built { Command::new(target.join("debug/peers")) } else { cargo_peers(&root) };
    if let Err(error) = guests(options, &root, &target, &cache, peers, &mut tally) {
        tally.failed.push(format!("the end-to-end tests: {error:#}"));
    }
    if options.long && options.only.is_none() {
        match fuzz::run(&fuzz::LONG) {
            Ok((passed, failed)) => {
                tally.passed += passed;
                tally.failed.extend(failed);
            }
            Err(error) => tally.failed.push(format!("the fuzz targets: {error:#}")),
        }
    }
    if !options.long && options.only.is_none() {
        print_left_out(&root)?;
    }
    Ok(tally.end())
}

/// Prints the tests that a run without `--long` leaves out.
fn print_left_out(root: &Path) -> Result<()> {
    let targets = fuzz::names(root)?.len();
    let bugs = bugs::count(root)?;
    let secs = fuzz::LONG.secs;
    println!("\nonly with --long: {targets} fuzz targets of {secs} s each, {bugs} published bugs put back one by one,");
    println!("real trials of the laboratory, judgements of rates and times beside real peers,");
    println!("and the full length of transfers, attacks, models and stations");
    Ok(())
}

/// Checks the format and the workspace rules, then lints and builds the crates with the tests inside of them.
/// Returns whether these can run.
fn checks(root: &Path, tally: &mut Tally) -> Result<bool> {
    let mut check = |what: &str, passed: bool| {
        if passed { tally.passed += 1 } else { tally.failed.push(format!("{what} (see above)")) }
    };
    check("cargo fmt", run::passes(run::cargo(root).args(["fmt", "--all", "--check"]))?);
    check("the workspace rules", rules::pass(root, false)?);
    let mut build = run::linting_cargo(root);
    let built = run::passes(build.arg("test").args(WORKSPACE).args(INSIDE).args(["--no-run", "--quiet"]))?;
    check("lints and build of the tests inside of crates", built);
    // With the same selection, all third-party crates have the same features. So only the program is built again.
    let mut operators = run::linting_cargo(root);
    operators.arg("test").args(WORKSPACE).args(WITHOUT_LABORATORY).args(INSIDE).args(["--no-run", "--quiet"]);
    check("lints and build of the program without its laboratory", built && run::passes(&mut operators)?);
    Ok(built)
}

/// Lints, builds and runs the tests of the workspace that these arguments select.
fn tests(root: &Path, options: &TestOptions, selected: &[&str], tally: &mut Tally) -> Result<()> {
    let mut tests = run::linting_cargo(root);
    tests.args(["test", "--no-fail-fast"]).args(WORKSPACE).args(selected);
    let (runner, arguments) = WITH_TIMES;
    // Doc tests do not print their times.
    let has_runner = cfg!(target_arch = "x86_64") && std::env::var_os(RUNNER).is_none();
    if has_runner && selected != ["--doc"] {
        let runner = if options.long { runner.to_owned() } else { format!("{LIMIT} {runner}") };
        tests.env(RUNNER, runner).args(arguments);
    }
    if selected == OUTSIDE {
        set_outside_threads(&mut tests);
    }
    if options.long {
        tests.env("STRAIGHTLINE_LONG", "1");
    }
    let failed = tally.failed.len();
    let passed = run::passes_shown(&mut tests, |line| {
        let line = tally.times.see(line);
        tally.see(line, strict());
        Some(line)
    })?;
    // Other output may be mixed into the line of a test that has passed.
    let hung = std::mem::take(&mut tally.slow).into_iter().filter(|_| !passed);
    tally.failed.extend(hung.map(|test| format!("{test}: it did not end")));
    if !passed && tally.failed.len() == failed {
        tally
            .failed
            .push(format!("cargo test {}: the tests did not build, or have lints (see above)", selected.join(" ")));
    }
    Ok(())
}

/// Sets the number of tests outside of crates that run at once, unless the caller has set one.
pub(crate) fn set_outside_threads(tests: &mut Command) {
    if std::env::var_os(THREADS).is_none() {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        tests.env(THREADS, (2 * cpus).to_string());
    }
}

/// Returns the arguments of cargo that select the test programs of both halves, or of the half that the options name.
pub(crate) fn selection(options: &TestOptions) -> Vec<&'static str> {
    let mut selected = Vec::new();
    if !options.rest {
        selected.extend(INSIDE);
    }
    if !options.quick {
        selected.extend(OUTSIDE);
    }
    selected
}

/// Runs the tests outside of crates, and all that needs no switch as users get it.
fn rest(root: &Path, options: &TestOptions, tally: &mut Tally) -> Result<()> {
    tests(root, options, &OUTSIDE, tally)?;
    tests(root, options, &["--doc"], tally)?;
    benches(root, tally)?;
    if options.long && !bugs::run(None)? {
        tally.failed.push("bugs: at least one published bug was not found (see above)".to_owned());
    }
    match run::passes(run::cargo(root).args(CRATES)) {
        Ok(true) => tally.passed += 1,
        Ok(false) => tally.failed.push("cargo package: a crate could not be published".to_owned()),
        Err(error) => tally.failed.push(format!("cargo package: {error:#}")),
    }
    Ok(())
}

/// Installs what the tests need, unless the options forbid it.
pub(crate) fn install(options: &TestOptions, cache: &Path) -> Result<()> {
    if options.no_install {
        println!("--no-install: tests whose programs are missing are skipped");
        return Ok(());
    }
    install::install(cache)
}

/// Returns a command that builds the end-to-end tests' program if needed, and runs it.
fn cargo_peers(root: &Path) -> Command {
    let mut cargo = run::cargo(root);
    cargo.args(["run", "--quiet", "-p", "peers", "--"]);
    cargo
}

/// Runs each bench of the workspace once, to test its behaviour and not its speed. Without
/// `--bench` on the command line, criterion runs each function once, and our own benches run one
/// round of each. They are built like the tests.
fn benches(root: &Path, tally: &mut Tally) -> Result<()> {
    let mut benches = run::linting_cargo(root);
    benches.args(["test", "--no-fail-fast"]).args(WORKSPACE).args(["--bench", "*"]);
    let mut skips = Vec::new();
    let passed = run::passes_shown(&mut benches, |line| {
        skips.extend(line.strip_prefix("skipped ").map(str::to_owned));
        // Criterion prints two lines for each of some thousand functions.
        (!line.is_empty() && line != "Success" && !line.starts_with("Testing ")).then_some(line)
    })?;
    if passed {
        tally.passed += 1;
    } else {
        tally.failed.push("cargo test --bench '*': a bench failed, or did not build".to_owned());
    }
    skips.into_iter().for_each(|skip| tally.skip(skip, strict()));
    Ok(())
}

/// Returns true if no test may be skipped: a machine for continuous integration has to run them
/// all.
fn strict() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true") && rustix::process::geteuid().is_root()
}

/// Builds the switch as users get it, and runs the end-to-end tests against it.
fn guests(
    options: &TestOptions,
    root: &Path,
    target: &Path,
    cache: &Path,
    mut peers: Command,
    tally: &mut Tally,
) -> Result<()> {
    run::must(run::cargo(root).args(SWITCH))?;
    let switch = target.join("release/straightline");
    check_kernels(&switch, tally);
    if let Err(error) = package::deb() {
        tally.failed.push(format!("the Debian package: {error:#}"));
    }
    match package::tarball() {
        Ok(_) => tally.passed += 1,
        Err(error) => tally.failed.push(format!("the tarball: {error:#}")),
    }
    let report = cache.join("report.json");
    fs::create_dir_all(cache)?;
    if report.exists() {
        fs::remove_file(&report)?;
    }
    peers.current_dir(root).arg("--switch").arg(&switch).arg("--cache").arg(cache).arg("--report").arg(&report);
    if options.long {
        peers.arg("--long");
    }
    if let Some(pattern) = &options.only {
        peers.args(["--only", pattern]);
    }
    let passed = run::passes(&mut peers)?;
    let text = fs::read_to_string(&report)
        .with_context(|| format!("the end-to-end tests wrote no report to {}", report.display()))?;
    let report: EndToEndReport =
        serde_json::from_str(&text).context("cannot parse the report of the end-to-end tests")?;
    let no_failure = report.failed.is_empty();
    tally.add(report, strict());
    if passed != no_failure {
        bail!("interrupted");
    }
    Ok(())
}

/// Checks that the kernels are inlined into the loops that are compiled for an instruction set. A
/// function that is not inlined is compiled without the instruction set, and each load in it
/// becomes a call: correct, but slow.
fn check_kernels(switch: &Path, tally: &mut Tally) {
    let symbols = match run::output(Command::new("nm").arg("--demangle=rust").arg(switch)) {
        Ok(symbols) => symbols,
        Err(error) => return tally.skip(format!("the check that kernels are inlined: {error:#}"), strict()),
    };
    let called: Vec<_> = symbols.lines().filter(|line| is_access(line)).collect();
    if !has_names(&symbols) {
        let why = "the switch's program has no symbols; build it without stripping";
        tally.failed.push(format!("the check that kernels are inlined: {why}"));
    } else if called.is_empty() {
        tally.passed += 1;
    } else {
        let called = called.join(", ");
        tally.failed.push(format!("the check that kernels are inlined: these are called as functions: {called}"));
    }
}

/// Returns whether `nm` listed any function of ours. For a program without symbols it lists
/// nothing, and succeeds.
fn has_names(symbols: &str) -> bool {
    symbols.contains("straightline_port::")
}

/// Returns whether a line of `nm` is a kernel's load or store as a function of its own.
fn is_access(line: &str) -> bool {
    line.contains(" as straightline_simd::vector::Vector>::") || line.contains("straightline_simd::arch::avx512::")
}

/// The file that `peers --report` writes.
#[derive(Deserialize)]
pub(crate) struct EndToEndReport {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<Remark>,
    pub(crate) skipped: Vec<Remark>,
}

/// A case, with the reason why it failed or did not run.
#[derive(Deserialize)]
pub(crate) struct Remark {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Tally {
    /// Prints where the time went, and the results. Returns true if no test failed.
    fn end(mut self) -> bool {
        times::print_steps();
        self.times.print();
        for skip in &self.skipped {
            println!("skipped {skip}");
        }
        for failure in &self.failed {
            println!("failed {failure}");
        }
        let failed = self.failed.len();
        let skipped = self.skipped.len();
        println!("{} passed, {failed} failed, {skipped} skipped", self.passed);
        failed == 0
    }

    /// Counts a line of libtest's output, or a line `skipped WHAT: WHY` of a test.
    fn see(&mut self, line: &str, strict: bool) {
        if let Some(result) = line.strip_prefix("test result: ") {
            let count = |what: &str| {
                let before = result.split(what).next()?;
                before.split_whitespace().next_back()?.parse::<u64>().ok()
            };
            self.passed += count(" passed").unwrap_or(0).saturating_sub(std::mem::take(&mut self.reported));
            let failed = count(" failed").unwrap_or(0);
            // A failed test may have no line of its own if its output is mixed into that line.
            let mut named = std::mem::take(&mut self.named);
            for (test, why) in std::mem::take(&mut self.panics).into_iter().filter(|(_, why)| !why.is_empty()) {
                if let Some(name) = named.iter_mut().find(|name| **name == test) {
                    *name += ": ";
                    *name += why.trim_end();
                }
            }
            let unnamed = usize::try_from(failed).unwrap_or(usize::MAX).saturating_sub(named.len());
            self.failed.extend(named);
            self.failed.extend(std::iter::repeat_n("a test of the workspace".to_owned(), unnamed));
        } else if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.panics.push((test.to_owned(), String::new()));
            self.in_panic = false;
        } else if let Some(skip) = line.strip_prefix("skipped ") {
            self.reported += 1;
            self.skip(skip.to_owned(), strict);
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" has been running for over 60 seconds") {
                self.slow.push(name.to_owned());
            } else if let Some((name, _)) = test.split_once(" ... ") {
                self.slow.retain(|slow| slow != name);
            }
            if let Some(name) = test.strip_suffix(" ... FAILED") {
                self.named.push(name.to_owned());
            } else if let Some((name, rest)) = test.split_once(" ... ignored") {
                let why = rest.strip_prefix(", ").unwrap_or("marked as ignored");
                self.skipped.push(format!("{name}: {why}"));
            }
        } else {
            self.see_panic(line);
        }
    }

    /// Keeps the message of a panic that libtest repeats at the end, because a log may be cut before it.
    fn see_panic(&mut self, line: &str) {
        let Some((_, why)) = self.panics.last_mut() else { return };
        if line.contains(" panicked at ") {
            self.in_panic = true;
        } else if line == "stack backtrace:" || line.starts_with("note: ") || line.is_empty() {
            self.in_panic = false;
        }
        if self.in_panic && why.len() < MOST_WHY {
            why.extend(line.chars().take(MOST_WHY - why.len()));
            why.push(' ');
        }
    }

    fn add(&mut self, report: EndToEndReport, strict: bool) {
        let text = |remark: Remark| format!("{}: {}", remark.name, remark.why);
        self.passed += u64::try_from(report.passed.len()).unwrap_or(u64::MAX);
        self.failed.extend(report.failed.into_iter().map(text));
        report.skipped.into_iter().for_each(|remark| self.skip(text(remark), strict));
    }

    fn skip(&mut self, skip: String, strict: bool) {
        if strict {
            self.failed.push(format!("{skip} (CI may not skip it)"));
        } else {
            self.skipped.push(skip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 4 tests
test a::good ... ok
test a::bad ... FAILED
test a::slow ... ignored, takes an hour
test a::other ... ignored

failures:

---- a::bad stdout ----
some output

thread 'a::bad' (7) panicked at src/a.rs:3:5:
assertion `left == right` failed
  left: 1
 right: 2
stack backtrace:
   0: a::bad

failures:
    a::bad

test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test crates/x/src/lib.rs - (line 3) ... ok

test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn libtest_output_is_counted() {
        let mut tally = Tally::default();
        OUTPUT.lines().for_each(|line| tally.see(line, false));
        assert_eq!(tally.passed, 13);
        let why = "thread 'a::bad' (7) panicked at src/a.rs:3:5: assertion `left == right` failed   left: 1  right: 2";
        let other = "a test of the workspace";
        assert_eq!(tally.failed, [&format!("a::bad: {why}"), other, other]);
        assert_eq!(tally.skipped, ["a::slow: takes an hour", "a::other: marked as ignored"]);
    }

    #[test]
    fn a_test_that_reports_a_skip_did_not_pass() {
        let lines = ["test a::b ... ", "skipped b: it needs two CPUs", "ok", "test result: ok. 3 passed; 0 failed"];
        for (strict, failed, skipped) in [(false, 0, 1), (true, 1, 0)] {
            let mut tally = Tally::default();
            lines.iter().for_each(|line| tally.see(line, strict));
            assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (2, failed, skipped));
        }
    }

    #[test]
    fn a_test_that_hangs_is_named() {
        let mut tally = Tally::default();
        for line in ["a", "b"].map(|test| format!("test {test} has been running for over 60 seconds")) {
            tally.see(&line, false);
        }
        tally.see("test a ... ok", false);
        assert_eq!(tally.slow, ["b"]);
    }

    #[test]
    fn a_load_that_is_called_is_found() {
        let name = "straightline_simd::arch::x86_64::Avx2Vector as straightline_simd::vector::Vector";
        assert!(is_access(&format!("000000000000fd20 t <{name}>::load4")));
        assert!(!is_access("000000000000edd0 t straightline_simd::run::with_avx2"));
        assert!(has_names("000000000000edd0 t straightline_port::vhost_user::deliver::deliver\n") && !has_names(""));
    }

    #[test]
    fn a_skip_is_a_failure_where_nothing_may_be_skipped() {
        let text = r#"{"passed":["x"],"failed":[{"name":"y","why":"late"}],"skipped":[{"name":"z","why":"no qemu"}]}"#;
        for (strict, failed, skipped) in [(false, 1, 1), (true, 2, 0)] {
            let mut tally = Tally::default();
            tally.add(serde_json::from_str(text).expect("a report"), strict);
            assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, failed, skipped));
            assert!(tally.failed[0].contains("late"));
        }
    }
}
