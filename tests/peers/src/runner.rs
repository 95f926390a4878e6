//! Runs the tests, most of them side by side, and reports how each ended.
//!
//! Guests mostly wait: for their boot, for echoes, for time limits of the switch. So several tests
//! share the CPUs. Each has folders, sockets and namespaces of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde::Serialize;

use crate::lab::Lab;
use crate::machine::{Machine, Need};
use crate::proc;
use crate::say;

/// A test, with its requirements.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) needs: Vec<Need>,
    /// True if it may run beside other tests.
    beside: bool,
    body: Body,
}

type Body = Box<dyn Fn(&Lab) -> Result<()> + Send + Sync>;

impl Test {
    /// Returns a test with this name, which runs alone.
    pub(crate) fn new(name: &str, needs: &[Need], body: impl Fn(&Lab) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { name: name.to_owned(), needs: needs.to_vec(), beside: false, body: Box::new(body) }
    }

    /// Lets the test run beside others. It must not measure times, rates or CPU time, and nothing
    /// of it may have a fixed name outside of its folders and namespaces.
    pub(crate) fn beside_others(self) -> Self {
        Self { beside: true, ..self }
    }

    /// Returns how the test uses the CPUs.
    fn load(&self) -> Load {
        let is = |need: &Need| match need {
            Need::Dpdk | Need::RteVhost | Need::Ovs => Load::Polling,
            Need::Qemu => Load::Emulated,
            _ => Load::Light,
        };
        self.needs.iter().map(is).max().unwrap_or(Load::Light)
    }
}

/// How a test uses the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// It mostly waits.
    Light,
    /// It boots a guest under software emulation. One runs at a time as long as light ones wait.
    Emulated,
    /// A peer polls on a CPU, and takes huge pages. One runs at a time.
    Polling,
}

/// Lets all of these tests run beside others.
pub(crate) fn beside_others(tests: Vec<Test>) -> Vec<Test> {
    tests.into_iter().map(Test::beside_others).collect()
}

/// The results of the tests, for `--report`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TestReport {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<Remark>,
    pub(crate) skipped: Vec<Remark>,
    /// The time of each test that has run.
    pub(crate) seconds: Vec<(String, f64)>,
}

/// The name of a test, and the reason why it failed or was skipped.
#[derive(Debug, Serialize)]
pub(crate) struct Remark {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl TestReport {
    /// Returns the line with the numbers of results.
    pub(crate) fn summary(&self) -> String {
        let passed = self.passed.len();
        let failed = self.failed.len();
        let skipped = self.skipped.len();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    fn ended(&self) -> usize {
        self.passed.len() + self.failed.len() + self.skipped.len()
    }

    /// Prints the slowest tests.
    fn print_slowest(&self) {
        let mut seconds: Vec<&(String, f64)> = self.seconds.iter().collect();
        seconds.sort_by(|one, other| other.1.total_cmp(&one.1));
        println!("slowest tests:");
        for (name, seconds) in seconds.into_iter().take(SLOWEST) {
            println!("  {seconds:6.1} s  {name}");
        }
    }
}

/// Number of tests in the list of the slowest.
const SLOWEST: usize = 30;

/// Runs `tests`: first those that may run beside others, up to `jobs` at a time, then the rest. Each
/// prints its lines at its end.
pub(crate) fn run(machine: &Machine, tests: &[Test], jobs: usize) -> TestReport {
    // Asked once: what is free changes while tests run.
    let missing: BTreeMap<Need, String> =
        tests.iter().flat_map(|test| &test.needs).filter_map(|&need| Some((need, machine.missing(need)?))).collect();
    let (beside, alone): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|test| test.beside);
    let progress = Progress { total: tests.len(), report: Mutex::default() };
    for (tests, jobs) in [(beside, jobs), (alone, 1)] {
        let jobs = jobs.min(tests.len());
        let queue =
            Queue { state: Mutex::new(QueueState { waiting: tests, running: Vec::new() }), changed: Condvar::new() };
        std::thread::scope(|threads| {
            for _ in 0..jobs {
                threads.spawn(|| {
                    while let Some(test) = queue.take() {
                        progress.run(machine, test, &missing, jobs > 1);
                        queue.give_back(test);
                    }
                });
            }
        });
    }
    let report = progress.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.print_slowest();
    report
}

/// The tests that have not begun.
struct Queue<'t> {
    state: Mutex<QueueState<'t>>,
    changed: Condvar,
}

struct QueueState<'t> {
    waiting: Vec<&'t Test>,
    /// The loads of the tests that run.
    running: Vec<Load>,
}

impl<'t> Queue<'t> {
    /// Takes the next test from the end, where the slow ones are, or returns `None` if there is none.
    /// A heavy test comes first: together they take the longest.
    fn take(&self) -> Option<&'t Test> {
        let mut state = self.lock();
        while !state.waiting.is_empty() && !proc::interrupted() {
            let last = |load| state.waiting.iter().rposition(|test| test.load() == load);
            let light = last(Load::Light);
            let is_free = |load| !state.running.contains(&load);
            let polling = last(Load::Polling).filter(|_| is_free(Load::Polling));
            // Several guests under emulation only share the CPUs, but that is better than a pause.
            let emulated = last(Load::Emulated).filter(|_| is_free(Load::Emulated) || light.is_none());
            if let Some(next) = polling.or(emulated).or(light) {
                let test = state.waiting.remove(next);
                state.running.push(test.load());
                return Some(test);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Notes the end of a test.
    fn give_back(&self, test: &Test) {
        let mut state = self.lock();
        if let Some(at) = state.running.iter().position(|load| *load == test.load()) {
            state.running.swap_remove(at);
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<'t>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results so far.
struct Progress {
    total: usize,
    report: Mutex<TestReport>,
}

impl Progress {
    /// Runs a test, and prints its lines and its result. The lines are `kept` until its end if other
    /// tests run at the same time.
    fn run(&self, machine: &Machine, test: &Test, missing: &BTreeMap<Need, String>, kept: bool) {
        let name = test.name.clone();
        if let Some(why) = test.needs.iter().find_map(|need| missing.get(need)) {
            let mut report = self.lock();
            println!("{}  skipped: {why}", self.head(&report, &name));
            report.skipped.push(Remark { name, why: why.clone() });
            return;
        }
        let began = Instant::now();
        let (result, lines) = if kept {
            say::keep(|| run_one(machine, test))
        } else {
            print!("{}", self.head(&self.lock(), &name));
            (run_one(machine, test), String::new())
        };
        let seconds = began.elapsed().as_secs_f64();
        let mut report = self.lock();
        let head = if kept { self.head(&report, &name) + &lines } else { lines };
        match result {
            Ok(()) => {
                println!("{head}  passed in {seconds:.1} s");
                report.passed.push(name.clone());
            }
            Err((error, tails)) => {
                let why = format!("{error:#}");
                println!("{head}{tails}  FAILED after {seconds:.1} s: {why}");
                report.failed.push(Remark { name: name.clone(), why });
            }
        }
        report.seconds.push((name, seconds));
    }

    /// Returns the first line of a test's output, with its number.
    fn head(&self, report: &TestReport, name: &str) -> String {
        format!("[{}/{}] {name}\n", report.ended() + 1, self.total)
    }

    fn lock(&self) -> MutexGuard<'_, TestReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Upper bound of the lines of each log in the report of a failure.
const LINES: usize = 1000;

fn run_one(machine: &Machine, test: &Test) -> Result<(), (anyhow::Error, String)> {
    let lab = Lab::new(machine, &test.name).map_err(|error| (error, String::new()))?;
    // A panic unwinds through the guards, which end all processes of the test. The next test runs
    // as usual.
    let result = catch_unwind(AssertUnwindSafe(|| (test.body)(&lab))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!("panic: {}", said.unwrap_or("without a message")))
    });
    result.map_err(|error| (error, lab.tails(LINES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use anyhow::ensure;

    #[test]
    fn each_end_is_reported_and_the_rest_still_runs() {
        let cache = tempfile::tempdir().expect("a folder");
        let machine = Machine { switch: PathBuf::from("/nonexistent"), cache: cache.path().to_owned(), long: false };
        let tests = [
            Test::new("bad", &[], |lab| {
                std::fs::write(lab.log("note"), "a line of its log\n")?;
                Err(anyhow!("it is bad"))
            }),
            Test::new("worse", &[], |_| panic!("number {}", 7)),
            Test::new("no_kernel", &[Need::Qemu], |_| Ok(())),
            Test::new("good", &[], |_| Ok(())),
        ];
        let report = run(&machine, &tests, 1);
        assert_eq!(report.summary(), "1 passed, 2 failed, 1 skipped");
        assert_eq!(report.passed, ["good"]);
        // The last test begins first.
        assert_eq!(report.failed[0].why, "panic: number 7");
        assert_eq!(report.failed[1].why, "it is bad");
        assert_eq!(report.skipped[0].name, "no_kernel");
        assert!(!report.skipped[0].why.is_empty());
        assert_eq!(report.seconds.len(), 3);
    }

    #[test]
    fn tests_that_may_meet_and_the_others_do_not() {
        let cache = tempfile::tempdir().expect("a folder");
        let machine = Machine { switch: PathBuf::from("/nonexistent"), cache: cache.path().to_owned(), long: false };
        let running = Arc::new(AtomicUsize::new(0));
        let begun = Arc::new(AtomicUsize::new(0));
        let mut tests = Vec::new();
        for name in ["one", "other"] {
            let begun = Arc::clone(&begun);
            let body = move |_: &Lab| {
                begun.fetch_add(1, Ordering::SeqCst);
                let both = || Ok((begun.load(Ordering::SeqCst) == 2).then_some(()));
                proc::until("the other test begins", both)
            };
            tests.push(Test::new(name, &[], body).beside_others());
        }
        for name in ["alone", "alone_too"] {
            let running = Arc::clone(&running);
            let body = move |_: &Lab| {
                ensure!(running.fetch_add(1, Ordering::SeqCst) == 0, "another test runs");
                // The time is the subject: another test that ran beside this one would begin now.
                std::thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            tests.push(Test::new(name, &[], body));
        }
        assert_eq!(run(&machine, &tests, 2).summary(), "4 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn heavy_tests_are_mixed_with_light_ones() {
        let test = |name, needs: &[Need]| Test::new(name, needs, |_| Ok(()));
        let tests = [
            test("light", &[]),
            test("polling", &[Need::Dpdk]),
            test("emulated", &[Need::Qemu]),
            test("polling_too", &[Need::Uml(1), Need::Ovs]),
            test("emulated_too", &[Need::Qemu]),
        ];
        let state = Mutex::new(QueueState { waiting: tests.iter().collect(), running: Vec::new() });
        let queue = Queue { state, changed: Condvar::new() };
        let take = || queue.take().map(|test| test.name.as_str());
        assert_eq!(take(), Some("polling_too"));
        assert_eq!(take(), Some("emulated_too"));
        assert_eq!(take(), Some("light"));
        assert_eq!(take(), Some("emulated"));
        queue.give_back(&tests[3]);
        assert_eq!(take(), Some("polling"));
        assert_eq!(take(), None);
    }
}
