//! The rule for time: control code takes its time, and its waits, from a `Clock` that a test can move; a
//! test waits for an event.
//!
//! - Uses of the system's time ([`CALLS`]) are errors, with a hint at the right call.
//! - [`PRODUCTION`] and [`TESTS`] name the places that may use it, each with its reason.
//! - A comment above the statement is such a reason too: `// The time is the subject: REASON` in a test,
//!   and `// The system's time: REASON` outside.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::source;

/// The comment above a statement of a test that gives a reason.
const SUBJECT: &str = "The time is the subject: ";

/// The comment above a statement outside of tests that gives a reason.
const SYSTEM: &str = "The system's time: ";

/// The calls, each with the method of `Clock` that takes its place.
const CALLS: [(&str, &str); 9] = [
    ("sleep", "sleep"),
    ("Instant::now", "now"),
    ("SystemTime::now", "time_of_day"),
    ("elapsed", "since"),
    ("recv_timeout", "receive"),
    ("park_timeout", "park"),
    ("wait_timeout", "wait_while"),
    ("wait_timeout_while", "wait_while"),
    ("sleep_until", "sleep"),
];

/// Files and folders of code outside of tests that may use the system's time, each with the reason.
const PRODUCTION: [(&str, &str); 9] = [
    ("crates/doctor/src/gather/", "it compares the counters of a machine that runs"),
    ("crates/evpn/src/process/", "its time is tokio's, which a test moves"),
    ("crates/graph/src/clock/", "it is the clock"),
    ("crates/guest/src/", "embedded guests live in real time, as VMs do"),
    ("crates/lab/src/", "the laboratory measures time"),
    ("crates/straightline/src/commands/lab/", "it shows the progress of measurements"),
    ("crates/straightline/src/commands/runtime.rs", "a live view"),
    ("crates/top/src/", "a live view"),
    ("xtask/src/", "it lists the times of steps, and needs no clock of the switch"),
];

/// Files and folders of tests and benches that may use the system's time, each with the reason.
const TESTS: [(&str, &str); 7] = [
    ("crates/evpn/src/process/tests.rs", "its time is tokio's, which it moves"),
    ("crates/evpn/tests/gobgp/daemon.rs", "it is the one wait for questions that wait for an answer themselves"),
    ("crates/evpn/tests/gobgp/scale.rs", "a long run says how long each step takes"),
    ("crates/testing/src/loads.rs", "benches measure by it"),
    ("crates/testing/src/wait.rs", "it is the one wait of all tests"),
    ("tests/peers/src/proc.rs", "it is the one wait of cases with real peers, which a signal interrupts"),
    ("tests/peers/src/runner.rs", "it lists the times of cases"),
];

/// Folders of programs beside the tests that measure.
const MEASURES: [&str; 8] = [
    "tests/peers/src/compare/",
    "tests/peers/src/conntrack/",
    "tests/peers/src/devices/",
    "tests/peers/src/linux/",
    "tests/peers/src/measure/",
    "tests/peers/src/nic_loop/",
    "tests/peers/src/rates/",
    "tests/peers/src/tunnels/",
];

/// A use of the system's time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TimeUse {
    line: usize,
    /// Name of the call, and the method of `Clock` that takes its place.
    call: (&'static str, &'static str),
    is_test: bool,
    /// Whether it begins a loop by hand: the end of a wait is computed.
    is_loop: bool,
}

/// Returns the violations: uses that no place and no comment allows, and places that nothing needs.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut used = Vec::new();
    for (path, source) in sources {
        let all = all_uses(path, source);
        used.extend(all.iter().map(|found| (path.as_str(), found.is_test)));
        violations.extend(not_allowed(path, source, all).iter().map(|found| violation(path, found)));
    }
    violations.extend(unused_places(&used));
    violations
}

fn violation(path: &str, found: &TimeUse) -> String {
    let TimeUse { line, call: (call, method), is_test, is_loop } = found;
    let hint = match (is_loop, is_test) {
        (true, true) => "a loop by hand: wait by `straightline_testing::wait_until`".to_owned(),
        (false, true) => format!(
            "wait for an event by `straightline_testing::wait_until`, or move a `straightline_graph::Clock`; if the time \
             is the subject, say why above it: `// {SUBJECT}REASON`"
        ),
        (_, false) => format!(
            "take a `straightline_graph::Clock`, and use `Clock::{method}`; if this place needs the system's time, say \
             why above it: `// {SYSTEM}REASON`"
        ),
    };
    format!("{path}:{line}: `{call}` uses the system's time: {hint}")
}

/// Returns the named places in which nothing uses the system's time, in tests or outside.
fn unused_places(used: &[(&str, bool)]) -> Vec<String> {
    let places = PRODUCTION.iter().map(|(place, _)| (*place, false));
    let places = places.chain(TESTS.iter().map(|(place, _)| (*place, true)));
    let places = places.chain(MEASURES.iter().map(|place| (*place, true)));
    let unused = places
        .filter(|(place, of_test)| !used.iter().any(|(path, is_test)| path.starts_with(place) && is_test == of_test));
    let text = |(place, _)| format!("xtask/src/rules/time.rs: nothing in {place} uses the system's time: remove it");
    unused.map(text).collect()
}

/// Returns the uses that neither a place nor a comment allows.
fn not_allowed(path: &str, source: &str, uses: Vec<TimeUse>) -> Vec<TimeUse> {
    let lines: Vec<&str> = source.lines().collect();
    let is_in = |place: &str| path.starts_with(place);
    let is_allowed = |found: &TimeUse| {
        if found.is_test {
            let mut places = TESTS.iter().map(|(place, _)| *place).chain(MEASURES);
            places.any(is_in) || has_reason(&lines, found.line, SUBJECT)
        } else {
            PRODUCTION.iter().any(|(place, _)| is_in(place)) || has_reason(&lines, found.line, SYSTEM)
        }
    };
    uses.into_iter().filter(|found| !is_allowed(found)).collect()
}

/// Returns whether a comment of this kind gives a reason for the statement in this line (from 1): it stands
/// in the same paragraph, above the line.
fn has_reason(lines: &[&str], line: usize, kind: &str) -> bool {
    let above = lines[..line].iter().rev().take_while(|line| !line.trim().is_empty());
    above.into_iter().any(|line| {
        let reason = line.split_once("//").and_then(|(_, comment)| comment.split_once(kind));
        reason.is_some_and(|(_, reason)| !reason.trim().is_empty())
    })
}

/// Returns all uses of the system's time. A bench measures, so it has none.
fn all_uses(path: &str, source: &str) -> Vec<TimeUse> {
    // Most files have none of the words.
    let is_candidate = CALLS.iter().any(|(call, _)| source.contains(call));
    if path.contains("/benches/") || !is_candidate {
        return Vec::new();
    }
    let code = source::code_only(source);
    let tests = source::test_items(&code);
    let mut uses = Vec::new();
    for Range { start, end } in words(&code) {
        let Some(call) = called(&code, start, end) else { continue };
        let line = 1 + code[..start].matches('\n').count();
        let is_test = is_test_file(path) || tests.iter().any(|item| item.contains(&start));
        let is_loop = call.0 == "Instant::now" && code[end..].trim_start_matches("()").trim_start().starts_with('+');
        uses.push(TimeUse { line, call, is_test, is_loop });
    }
    uses
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.starts_with("crates/testing/")
        || path.contains("/tests/")
        || path.ends_with("tests.rs")
}

/// Returns the words of code.
fn words(code: &str) -> Vec<Range<usize>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, c) in code.char_indices().filter(|(_, c)| is_part(*c)) {
        match words.last_mut() {
            Some(last) if last.end == at => last.end = at + c.len_utf8(),
            _ => words.push(at..at + c.len_utf8()),
        }
    }
    words
}

/// Returns the call of the system's time that the word from `start` to `end` names.
fn called(code: &str, start: usize, end: usize) -> Option<(&'static str, &'static str)> {
    let word = &code[start..end];
    let before = &code[..start];
    let is_called = code[end..].starts_with('(');
    let is_method = before.ends_with('.');
    let is_it = |call: &str| match word {
        "now" => call.split_once("::").is_some_and(|(of, now)| now == word && before.ends_with(&format!("{of}::"))),
        // `Clock` and others have methods of this name, and a file may have a function of its own.
        "sleep" | "sleep_until" => {
            let is_own = code.contains(&format!("fn {word}("));
            let is_path = ["thread::", "time::"].iter().any(|of| before.ends_with(of));
            call == word && is_called && !is_method && (is_path || !is_own && !before.ends_with("::"))
        }
        "elapsed" => call == word && is_method && is_called,
        _ => call == word && is_called && !before.ends_with("fn "),
    };
    CALLS.into_iter().find(|(call, _)| is_it(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(path: &str, source: &str) -> Vec<TimeUse> {
        not_allowed(path, source, all_uses(path, source))
    }

    fn lines_of(path: &str, source: &str) -> Vec<usize> {
        uses(path, source).iter().map(|found| found.line).collect()
    }

    #[test]
    fn uses_are_found_in_code() {
        for code in [
            "std::thread::sleep(time);",
            "thread::sleep(time);",
            "use std::thread::sleep; sleep(time);",
            "tokio::time::sleep(time).await;",
            "tokio::time::sleep_until(then).await;",
            "let now = Instant::now();",
            "let now = std::time::Instant::now();",
            "let now = x.unwrap_or_else(Instant::now);",
            "let now = SystemTime::now();",
            "let took = began.elapsed();",
            "let took = self.began\n    .elapsed();",
            "queue.recv_timeout(time);",
            "thread::park_timeout(time);",
            "condvar.wait_timeout(guard, time);",
            "condvar.wait_timeout_while(guard, time, |_| true);",
        ] {
            assert_eq!(lines_of("crates/x/src/a.rs", code).len(), 1, "{code}");
        }
        for other in [
            "clock.sleep(time);",
            "self.sleep(now, longest);",
            "Own::sleep(time);",
            "pub fn sleep(&self, time: Duration) {}",
            "fn sleep(flag: &AtomicBool) {} fn f() { sleep(&flag); }",
            "let now = clock.now();",
            "let now = Footprint::now();",
            "let time = clock.since(began);",
            "fn recv_timeout(time: Duration) {}",
            "let elapsed = 1;",
            "// thread::sleep(time)",
            "let s = \"Instant::now()\";",
            "sleeps(port);",
        ] {
            assert!(lines_of("crates/x/src/a.rs", other).is_empty(), "{other}");
        }
        assert!(lines_of("crates/x/benches/a.rs", "Instant::now()").is_empty());
    }

    #[test]
    fn a_comment_gives_a_reason() {
        const TEST: &str = "crates/x/tests/a.rs";
        const OTHER: &str = "crates/x/src/a.rs";
        for (kind, path, other) in [(SUBJECT, TEST, OTHER), (SYSTEM, OTHER, TEST)] {
            let reason = format!("// {kind}a pause of the driver.\n");
            let both = format!("{reason}let x = 1;\nthread::sleep(x);\nthread::sleep(x);\n");
            assert!(lines_of(path, &both).is_empty());
            assert!(lines_of(path, &format!("/{reason}thread::sleep(x);\n")).is_empty());
            // Each kind of code has its own comment.
            assert_eq!(lines_of(other, &both), [3, 4]);
            // It ends with its paragraph, and it has to say something.
            assert_eq!(lines_of(path, &format!("{both}\nthread::sleep(x);\n")), [6]);
            assert_eq!(lines_of(path, &format!("// {kind}\nthread::sleep(x);\n")), [2]);
            assert_eq!(lines_of(path, &format!("thread::sleep(x);\n{reason}")), [1]);
        }
    }

    #[test]
    fn hints_lead_to_the_right_call() {
        let hint = |path: &str, code: &str| {
            let found = uses(path, code);
            violation(path, &found[0])
        };
        let found = hint("crates/x/src/a.rs", "\nqueue.recv_timeout(time);");
        assert!(found.starts_with("crates/x/src/a.rs:2: `recv_timeout` uses the system's time: "), "{found}");
        assert!(found.contains("`Clock::receive`") && found.contains(SYSTEM), "{found}");
        let found = hint("crates/x/src/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { thread::sleep(x) }\n}");
        assert!(found.contains("wait_until") && found.contains(SUBJECT), "{found}");
        let found = hint("crates/x/tests/a.rs", "let end = Instant::now() + LIMIT;");
        assert!(found.contains("a loop by hand"), "{found}");
    }

    #[test]
    fn each_use_without_a_reason_is_a_violation() {
        let sources =
            BTreeMap::from([("crates/x/src/a.rs".to_owned(), "Instant::now();\nInstant::now();\n".to_owned())]);
        // These sources lack the named places.
        let found: Vec<_> = check(&sources).into_iter().filter(|violation| !violation.contains("remove it")).collect();
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_place_that_nothing_needs_is_a_violation() {
        let sources = BTreeMap::from([("crates/graph/src/clock/mod.rs".to_owned(), "Instant::now()".to_owned())]);
        let found = check(&sources);
        assert_eq!(found.len(), PRODUCTION.len() + TESTS.len() + MEASURES.len() - 1, "{found:?}");
        assert!(found.iter().all(|violation| !violation.contains("graph/src/clock")), "{found:?}");
    }
}
