//! The rate at which each test failed.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::Outcome;

/// Results of the rounds so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    rounds: u32,
    /// Tests that passed, in all rounds together.
    pub(super) passed: u64,
    /// Tests that failed, in all rounds together.
    pub(super) failed: u64,
    /// The number of rounds in which a test of a program failed.
    failures: BTreeMap<(String, String), u32>,
    skipped: BTreeSet<String>,
}

impl Rates {
    /// Adds the outcome of a program in this round. Returns a text for each test that failed for the first
    /// time.
    pub(super) fn add(&mut self, program: &str, outcome: Outcome) -> Vec<String> {
        self.passed += outcome.passed;
        self.failed += u64::try_from(outcome.failed.len()).unwrap_or(u64::MAX);
        self.skipped.extend(outcome.skipped);
        let mut new = Vec::new();
        let mut seen = BTreeSet::new();
        for (test, why) in outcome.failed {
            let key = (program.to_owned(), test);
            if !seen.insert(key.clone()) {
                continue;
            }
            if !self.failures.contains_key(&key) {
                let indented: Vec<String> = why.lines().map(|line| format!("    {line}")).collect();
                new.push(format!("failed {}\n{}", title(&key), indented.join("\n")).trim_end().to_owned());
            }
            *self.failures.entry(key).or_default() += 1;
        }
        new
    }

    /// Ends the round.
    pub(super) fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// Returns the end of a run: what was skipped, and each test that failed, the most frequent first.
    pub(super) fn summary(&self, loops: usize, seconds: u64) -> String {
        let mut text = String::from("\n");
        for skip in &self.skipped {
            text += &format!("skipped {skip}\n");
        }
        let mut failures: Vec<(&(String, String), &u32)> = self.failures.iter().collect();
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (key, count) in failures {
            text += &format!("failed {count} of {}: {}\n", self.rounds, title(key));
        }
        let tests = self.failures.len();
        text + &format!("{} rounds beside {loops} busy loops in {seconds} s: {tests} tests failed\n", self.rounds)
    }
}

/// Returns the name of a test with its program.
fn title((program, test): &(String, String)) -> String {
    if test.is_empty() { program.clone() } else { format!("{program} {test}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: u64, failed: &[&str]) -> Outcome {
        let failed = failed.iter().map(|name| ((*name).to_owned(), "line\nother".to_owned())).collect();
        Outcome { passed, failed, skipped: vec!["x: no QEMU".to_owned()] }
    }

    #[test]
    fn each_test_has_its_rate() {
        let mut rates = Rates::default();
        let mut shown = Vec::new();
        for failed in [&["a", "b"][..], &["a"], &[], &["a"]] {
            shown.extend(rates.add("crates/x/src/lib.rs", outcome(5, failed)));
            rates.add("crates/y/src/lib.rs", outcome(2, &[]));
            rates.end_round();
        }
        // The message of a failure is shown once.
        let first = ["a", "b"].map(|test| format!("failed crates/x/src/lib.rs {test}\n    line\n    other"));
        assert_eq!(shown, first);
        assert_eq!((rates.passed, rates.failed), (28, 4));
        let summary = rates.summary(4, 60);
        assert_eq!(
            summary,
            "\nskipped x: no QEMU\nfailed 3 of 4: crates/x/src/lib.rs a\nfailed 1 of 4: crates/x/src/lib.rs b\n\
             4 rounds beside 4 busy loops in 60 s: 2 tests failed\n"
        );
    }

    #[test]
    fn a_program_may_fail_as_a_whole() {
        let mut rates = Rates::default();
        rates.add("crates/x/src/lib.rs", outcome(0, &["", ""]));
        rates.end_round();
        assert_eq!(rates.failed, 2);
        assert!(rates.summary(1, 1).contains("failed 1 of 1: crates/x/src/lib.rs\n"));
    }
}
