//! The times that steps and tests took, for the end of a run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps that took less are not listed.
const SHORTEST: Duration = Duration::from_secs(2);

/// The number of tests that are listed.
const SLOWEST: usize = 30;

/// The steps that have ended: when they began, how long they took, and their command.
static STEPS: Mutex<Vec<(Instant, Duration, String)>> = Mutex::new(Vec::new());

/// Notes a step that ends now.
pub(crate) fn note_step(began: Instant, words: String) {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    steps.push((began, began.elapsed(), words));
}

/// Prints the steps in the order in which they began. Some ran at the same time.
pub(crate) fn print_steps() {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    steps.sort_by_key(|(began, ..)| *began);
    let Some((first, ..)) = steps.first().cloned() else { return };
    println!("\nsteps: when they began, and their seconds (some ran at the same time)");
    for (began, took, words) in steps.iter().filter(|(_, took, _)| *took >= SHORTEST) {
        let at = began.duration_since(first).as_secs();
        let words: String = words.chars().take(100).collect();
        println!("{at:6} {:7.1}  {words}", took.as_secs_f64());
    }
}

/// The times of tests.
#[derive(Debug, Default)]
pub(crate) struct TestTimes {
    times: Vec<(f64, String)>,
}

impl TestTimes {
    /// Notes a line of libtest. Returns the line without libtest's time: libtest appends
    /// `<1.234s>` to the results of tests, by its option `--report-time`.
    pub(crate) fn see<'a>(&mut self, line: &'a str) -> &'a str {
        let Some((result, time)) = line.rsplit_once(" <") else { return line };
        let Some(secs) = time.strip_suffix("s>").and_then(|secs| secs.parse::<f64>().ok()) else { return line };
        if let Some((name, _)) = result.strip_prefix("test ").and_then(|test| test.rsplit_once(" ... ")) {
            self.times.push((secs, name.to_owned()));
        }
        result
    }

    /// Prints the slowest tests.
    pub(crate) fn print(&mut self) {
        self.times.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        if self.times.is_empty() {
            return;
        }
        println!("\nthe slowest tests of the workspace, in seconds");
        for (secs, name) in self.times.iter().take(SLOWEST) {
            println!("{secs:7.1}  {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_from_the_lines_of_tests() {
        let mut times = TestTimes::default();
        assert_eq!(times.see("test x::y ... ok <1.250s>"), "test x::y ... ok");
        assert_eq!(times.see("test x::z ... FAILED <0.001s>"), "test x::z ... FAILED");
        for other in ["test x::w ... ignored", "thread 'x' panicked at <a>", "test src/lib.rs - (line 3) ... ok"] {
            assert_eq!(times.see(other), other);
        }
        assert_eq!(times.times, [(1.25, "x::y".to_owned()), (0.001, "x::z".to_owned())]);
    }
}
