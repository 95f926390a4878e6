//! The outcome of one run of a test program, read from the output of libtest (or libtest-mimic).

use crate::test::{EndToEndReport, Remark};

/// The most lines of a failure that are shown.
const MOST_LINES: usize = 20;

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Exit(i32),
    Signal(i32),
    /// It did not end within this number of seconds.
    Hung(u32),
}

/// The results of the tests of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: u64,
    /// Tests that failed, each with the end of its message. The name is empty for a failure of the whole
    /// program.
    pub(super) failed: Vec<(String, String)>,
    /// Tests that did not run, with the reason.
    pub(super) skipped: Vec<String>,
}

/// Reads the output of a test program.
pub(super) fn read(out: &str, err: &str, ending: &Ending) -> Outcome {
    let mut outcome = Outcome::default();
    let mut unfinished: Vec<&str> = Vec::new();
    let mut named: Vec<&str> = Vec::new();
    let mut is_complete = false;
    for line in out.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            is_complete = true;
            outcome.passed += count(result, " passed");
            let failed = count(result, " failed");
            let nameless = failed.saturating_sub(u64::try_from(named.len()).unwrap_or(u64::MAX));
            // Other output may be mixed into the only line with the name of a test.
            outcome.failed.extend((0..nameless).map(|_| (String::new(), "a test failed without its name".to_owned())));
        } else if let Some(skip) = line.strip_prefix("skipped ") {
            outcome.skipped.push(skip.to_owned());
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" has been running for over 60 seconds") {
                unfinished.push(name);
            } else if let Some((name, result)) = test.split_once(" ... ") {
                unfinished.retain(|slow| *slow != name);
                if result == "FAILED" {
                    named.push(name);
                }
            }
        } else if let Some(name) = line.strip_prefix("    ").filter(|name| is_listed(out, name)) {
            // libtest lists the failed tests at its end, where nothing is mixed into its lines.
            if !named.contains(&name) {
                named.push(name);
            }
        }
    }
    outcome.passed = outcome.passed.saturating_sub(u64::try_from(outcome.skipped.len()).unwrap_or(u64::MAX));
    let failed = named.into_iter().map(|name| (name.to_owned(), message(out, name)));
    outcome.failed.splice(0..0, failed);
    if !is_complete {
        unfinished_tests(&mut outcome, &unfinished, err, ending);
    } else if outcome.failed.is_empty() && *ending != Ending::Exit(0) {
        outcome.failed.push((String::new(), format!("all tests passed, and then the program {}", text(ending))));
    }
    outcome
}

/// Adds the failures of a program that did not come to its end.
fn unfinished_tests(outcome: &mut Outcome, unfinished: &[&str], err: &str, ending: &Ending) {
    let why = format!("the program {}", text(ending));
    outcome.failed.extend(unfinished.iter().map(|name| ((*name).to_owned(), format!("still running when {why}"))));
    if unfinished.is_empty() {
        let tail = tail(err);
        let why = if tail.is_empty() { why } else { format!("{why}; the end of its errors:\n{tail}") };
        outcome.failed.push((String::new(), why));
    }
}

/// Returns the outcome of cases with real peers.
pub(super) fn of_cases(report: EndToEndReport) -> Outcome {
    let failed = report.failed.into_iter().map(|Remark { name, why }| (name, why));
    let skipped = report.skipped.into_iter().map(|Remark { name, why }| format!("{name}: {why}"));
    Outcome {
        passed: u64::try_from(report.passed.len()).unwrap_or(u64::MAX),
        failed: failed.collect(),
        skipped: skipped.collect(),
    }
}

fn text(ending: &Ending) -> String {
    match ending {
        Ending::Exit(code) => format!("ended with {code}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
        Ending::Hung(seconds) => format!("did not end within {seconds} s"),
    }
}

/// Returns the number before a word in the line of results.
fn count(result: &str, word: &str) -> u64 {
    let number = result.split(word).next().and_then(|before| before.split_whitespace().next_back());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns whether a test is in libtest's list of failed tests, the last paragraph below `failures:`.
fn is_listed(out: &str, name: &str) -> bool {
    let Some((_, list)) = out.rsplit_once("\nfailures:\n") else { return false };
    list.lines().take_while(|line| line.starts_with("    ")).any(|line| &line[4..] == name)
}

/// Returns the end of the output of a failed test, without the backtrace.
fn message(out: &str, name: &str) -> String {
    let heads = [format!("---- {name} stdout ----\n"), format!("---- {name} ----\n")];
    let Some((_, section)) = heads.iter().find_map(|head| out.split_once(head)) else { return String::new() };
    let is_end = |line: &&str| {
        let is_head = line.starts_with("---- ") && line.ends_with(" ----");
        // Errors of `anyhow` have backtraces of their own, with a capital.
        is_head || *line == "failures:" || line.trim().eq_ignore_ascii_case("stack backtrace:")
    };
    let lines: Vec<&str> = section.lines().take_while(|line| !is_end(line)).collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.starts_with("note: ")).collect();
    tail(&lines.join("\n"))
}

/// Returns the last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(MOST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
running 3 tests
test a::one ... ok
test a::two ... ok
test a::three ... ignored, takes an hour

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

";

    const BAD: &str = "
running 4 tests
test a::one ... ok
test a::mixed ... some output of a thread
FAILED
test a::bad ... FAILED
test a::two ... ok

failures:

---- a::bad stdout ----
before

thread 'a::bad' (7) panicked at src/a.rs:3:5:
assertion `left == right` failed
  left: 1
 right: 2
stack backtrace:
   0: a::bad
note: run with `RUST_BACKTRACE=full` for a longer one

---- a::mixed stdout ----

thread 'a::mixed' (8) panicked at src/a.rs:9:5:
timed out before the frame
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    a::bad
    a::mixed

test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s
";

    fn names(outcome: &Outcome) -> Vec<&str> {
        outcome.failed.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_good_run_has_passed_tests_only() {
        let outcome = read(GOOD, "a warning", &Ending::Exit(0));
        assert_eq!(outcome, Outcome { passed: 2, ..Outcome::default() });
    }

    #[test]
    fn failed_tests_have_the_end_of_their_panic() {
        let outcome = read(BAD, "", &Ending::Exit(101));
        assert_eq!(outcome.passed, 2);
        assert_eq!(names(&outcome), ["a::bad", "a::mixed"]);
        let expected = "before\n\nthread 'a::bad' (7) panicked at src/a.rs:3:5:\nassertion `left == right` failed\n  \
                        left: 1\n right: 2";
        assert_eq!(outcome.failed[0].1, expected);
        assert!(outcome.failed[1].1.ends_with("timed out before the frame"), "{outcome:?}");
        let capital = BAD.replace("stack backtrace:", "\n    Stack backtrace:");
        assert_eq!(read(&capital, "", &Ending::Exit(101)).failed[0].1, expected);
        let long = BAD.replace("before\n", &"line\n".repeat(100));
        assert_eq!(read(&long, "", &Ending::Exit(101)).failed[0].1.lines().count(), MOST_LINES);
    }

    #[test]
    fn another_harness_has_other_headings() {
        let out = "running 1 test\ntest switched_off ... FAILED\n\nfailures:\n\n---- switched_off ----\nno sandbox\n\n\
                   failures:\n    switched_off\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        let outcome = read(out, "", &Ending::Exit(101));
        assert_eq!(outcome.failed, [("switched_off".to_owned(), "no sandbox".to_owned())]);
    }

    #[test]
    fn a_failure_without_a_name_counts() {
        let outcome = read("test result: FAILED. 3 passed; 1 failed; 0 ignored", "", &Ending::Exit(101));
        assert_eq!((outcome.passed, names(&outcome)), (3, vec![""]));
    }

    #[test]
    fn a_test_that_skips_did_not_pass() {
        let out =
            "test a::b ... skipped b: no XDP\nskipped c: it needs two CPUs\nok\ntest result: ok. 2 passed; 0 failed";
        let outcome = read(out, "", &Ending::Exit(0));
        assert_eq!((outcome.passed, outcome.skipped.as_slice()), (1, &["c: it needs two CPUs".to_owned()][..]));
    }

    #[test]
    fn a_program_that_hangs_names_its_slow_tests() {
        let out = "test a ... ok\ntest b has been running for over 60 seconds\ntest c has been running for over 60 \
                   seconds\ntest c ... ok\n";
        let outcome = read(out, "", &Ending::Hung(600));
        let why = "still running when the program did not end within 600 s";
        assert_eq!(outcome.failed, [("b".to_owned(), why.to_owned())]);
        let outcome = read("test a ... ok\n", "", &Ending::Hung(600));
        assert_eq!(outcome.failed, [(String::new(), "the program did not end within 600 s".to_owned())]);
    }

    #[test]
    fn a_program_that_crashes_has_failed() {
        let outcome = read("test a ... FAILED\n", "memory allocation failed\n", &Ending::Signal(6));
        assert_eq!(names(&outcome), ["a", ""]);
        let why = "the program was ended by signal 6; the end of its errors:\nmemory allocation failed";
        assert_eq!(outcome.failed[1].1, why);
        let outcome = read(GOOD, "", &Ending::Signal(11));
        let why = "all tests passed, and then the program was ended by signal 11";
        assert_eq!(outcome.failed, [(String::new(), why.to_owned())]);
    }

    #[test]
    fn cases_with_real_peers_have_a_report() {
        let text = r#"{"passed":["x"],"failed":[{"name":"y","why":"late"}],"skipped":[{"name":"z","why":"no qemu"}]}"#;
        let outcome = of_cases(serde_json::from_str(text).expect("a report"));
        let failed = vec![("y".to_owned(), "late".to_owned())];
        assert_eq!(outcome, Outcome { passed: 1, failed, skipped: vec!["z: no qemu".to_owned()] });
    }
}
