//! Runs the tests one at a time, and reports how each ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde::Serialize;

use crate::lab::Lab;
use crate::machine::{Machine, Need};
use crate::proc;

/// A test, with its requirements.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) body: Body,
}

type Body = Box<dyn Fn(&Lab) -> Result<()>>;

impl Test {
    /// Returns a test with this name.
    pub(crate) fn new(name: &str, needs: &[Need], body: impl Fn(&Lab) -> Result<()> + 'static) -> Self {
        Self { name: name.to_owned(), needs: needs.to_vec(), body: Box::new(body) }
    }
}

/// The results of the tests, for `--report`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TestReport {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<Remark>,
    pub(crate) skipped: Vec<Remark>,
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
}

/// Runs `tests` in order.
pub(crate) fn run(machine: &Machine, tests: &[Test]) -> TestReport {
    let mut report = TestReport::default();
    for (at, test) in (1..).zip(tests) {
        let name = test.name.clone();
        println!("[{at}/{}] {name}", tests.len());
        if let Some(why) = test.needs.iter().find_map(|need| machine.missing(*need)) {
            println!("  skipped: {why}");
            report.skipped.push(Remark { name, why });
            continue;
        }
        let began = Instant::now();
        let result = run_one(machine, test);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("  passed in {seconds:.1} s");
                report.passed.push(name);
            }
            Err((error, tails)) => {
                let why = format!("{error:#}");
                println!("{tails}  FAILED after {seconds:.1} s: {why}");
                report.failed.push(Remark { name, why });
            }
        }
        if proc::interrupted() {
            break;
        }
    }
    report
}

fn run_one(machine: &Machine, test: &Test) -> Result<(), (anyhow::Error, String)> {
    let lab = Lab::new(machine, &test.name).map_err(|error| (error, String::new()))?;
    // A panic unwinds through the guards, which end all processes of the test. The next test runs
    // as usual.
    let result = catch_unwind(AssertUnwindSafe(|| (test.body)(&lab))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!("panic: {}", said.unwrap_or("without a message")))
    });
    result.map_err(|error| (error, lab.tails(40)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
        let report = run(&machine, &tests);
        assert_eq!(report.summary(), "1 passed, 2 failed, 1 skipped");
        assert_eq!(report.passed, ["good"]);
        assert_eq!(report.failed[0].why, "it is bad");
        assert_eq!(report.failed[1].why, "panic: number 7");
        assert_eq!(report.skipped[0].name, "no_kernel");
        assert!(!report.skipped[0].why.is_empty());
    }
}
