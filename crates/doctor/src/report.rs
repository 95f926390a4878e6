//! Findings, and their text for a terminal of 80 columns.

use serde::{Deserialize, Serialize};

/// The column at which text is wrapped.
const WIDTH: usize = 80;

/// The column at which texts begin.
const INDENT: usize = 26;

/// The least number of unknown findings for one reason that are shown as one.
const LEAST_GROUP: usize = 3;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All is well.
    Pass,
    /// The check does not apply: there is nothing to look at.
    Skip,
    /// The facts are not known.
    Unknown,
    /// It works, but not as well as it could; or it may fail later.
    Warn,
    /// It does not work.
    Fail,
}

impl Verdict {
    /// Returns the word that a terminal shows.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Skip => "SKIP",
            Self::Unknown => "UNKNOWN",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }

    /// Returns the colour as the parameters of a terminal's escape sequence.
    fn colour(self) -> &'static str {
        match self {
            Self::Pass => "32",
            Self::Skip => "2",
            Self::Unknown => "36",
            Self::Warn => "33",
            Self::Fail => "1;31",
        }
    }
}

/// A result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check's name.
    pub name: String,
    /// The verdict.
    pub result: Verdict,
    /// The state in one phrase, with the port or worker that it is about.
    pub symptom: String,
    /// The reason or the consequence; empty if there is no more to say.
    pub detail: String,
    /// The remedy: a command, or the line to change; empty if nothing is wrong.
    pub fix: String,
}

/// The findings of all checks, in the checks' order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The findings: at least one for each check.
    pub checks: Vec<Finding>,
}

impl Report {
    /// Returns the number of findings with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|finding| finding.result == verdict).count()
    }

    /// Returns the exit code of the command: 1 if a check fails, or with `strict`, if one warns.
    #[must_use]
    pub fn exit_code(&self, strict: bool) -> u8 {
        let is_bad = |verdict| verdict == Verdict::Fail || strict && verdict == Verdict::Warn;
        u8::from(self.checks.iter().any(|finding| is_bad(finding.result)))
    }

    /// Renders the findings for a terminal of 80 columns: with `all`, also the checks that do not
    /// apply.
    #[must_use]
    pub fn text(&self, all: bool, colours: bool) -> String {
        let mut text = String::new();
        let grouped = if all { self.checks.clone() } else { self.grouped() };
        for finding in grouped.iter().filter(|finding| all || finding.result != Verdict::Skip) {
            let word = format!("{:<8}", finding.result.word());
            let word = if colours { format!("\x1b[{}m{word}\x1b[0m", finding.result.colour()) } else { word };
            text.push_str(&format!("{word} {:<16} ", finding.name));
            if matches!(finding.result, Verdict::Unknown | Verdict::Skip) {
                wrap(&mut text, &format!("{}: {}", finding.symptom, finding.detail), "", INDENT);
            } else {
                wrap(&mut text, &finding.symptom, "", INDENT);
                wrap(&mut text, &finding.detail, &" ".repeat(INDENT), INDENT);
            }
            let fix = if finding.fix.is_empty() { String::new() } else { format!("fix: {}", finding.fix) };
            wrap(&mut text, &fix, &" ".repeat(INDENT), INDENT + "fix: ".len());
        }
        let [pass, warn, fail, unknown, skip] =
            [Verdict::Pass, Verdict::Warn, Verdict::Fail, Verdict::Unknown, Verdict::Skip]
                .map(|verdict| self.count(verdict));
        text.push_str(&format!("\n{pass} passed, {warn} warnings, {fail} failed, {unknown} unknown"));
        if skip > 0 {
            let how = if all { "" } else { " (--all shows them)" };
            text.push_str(&format!(", {skip} do not apply{how}"));
        }
        text.push('\n');
        text
    }
}

impl Report {
    /// Returns the findings with one for all checks that do not know one fact, such as without a
    /// switch. It stands where the first of them would.
    fn grouped(&self) -> Vec<Finding> {
        let mut grouped: Vec<Finding> = Vec::new();
        let same = |a: &Finding, b: &Finding| {
            (a.result, b.result) == (Verdict::Unknown, Verdict::Unknown) && (&a.detail, &a.fix) == (&b.detail, &b.fix)
        };
        for (at, finding) in self.checks.iter().enumerate() {
            let alike: Vec<_> = self.checks.iter().filter(|other| same(other, finding)).collect();
            if alike.len() < LEAST_GROUP {
                grouped.push(finding.clone());
            } else if !self.checks[..at].iter().any(|other| same(other, finding)) {
                let mut names: Vec<_> = alike.iter().map(|finding| finding.name.as_str()).collect();
                names.dedup();
                let name = format!("{} checks", names.len());
                grouped.push(Finding { name, symptom: names.join(", "), ..finding.clone() });
            }
        }
        grouped
    }
}

/// Adds `words` to `text`, wrapped at [`WIDTH`] with `indent` before each line but the first, which
/// `first` precedes. Nothing is added for no words.
fn wrap(text: &mut String, words: &str, first: &str, indent: usize) {
    if words.is_empty() {
        return;
    }
    text.push_str(first);
    let mut column = INDENT;
    let mut is_first = true;
    for word in words.split_whitespace() {
        // Text that comes from other programs must not steer the terminal.
        let word: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let length = word.chars().count();
        if !is_first && column + 1 + length > WIDTH {
            text.push_str(&format!("\n{}", " ".repeat(indent)));
            column = indent;
        } else if !is_first {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += length;
        is_first = false;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(result: Verdict) -> Finding {
        let [name, symptom, detail] = ["api", "no switch answers", ""].map(str::to_owned);
        Finding { name, result, symptom, detail, fix: "straightline run \x1b[2Jswitch.toml".to_owned() }
    }

    #[test]
    fn exit_codes() {
        let report = |verdicts: &[Verdict]| Report { checks: verdicts.iter().map(|&one| finding(one)).collect() };
        for (verdicts, strict, code) in [
            (&[Verdict::Pass, Verdict::Unknown][..], true, 0),
            (&[Verdict::Pass, Verdict::Warn], false, 0),
            (&[Verdict::Pass, Verdict::Warn], true, 1),
            (&[Verdict::Fail, Verdict::Pass], false, 1),
        ] {
            assert_eq!(report(verdicts).exit_code(strict), code, "{verdicts:?} {strict}");
        }
    }

    #[test]
    fn text_fits_the_terminal_and_cannot_steer_it() {
        let mut long = finding(Verdict::Fail);
        long.detail = "word ".repeat(40);
        let report = Report { checks: vec![finding(Verdict::Pass), long] };
        let text = report.text(false, false);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.starts_with("PASS     api              no switch answers\n"), "{text}");
        assert!(text.contains(&format!("\n{}fix: straightline run ?[2Jswitch.toml\n", " ".repeat(INDENT))), "{text}");
        assert!(text.ends_with("\n1 passed, 0 warnings, 1 failed, 0 unknown\n"), "{text}");
        assert!(!text.contains('\x1b') && report.text(false, true).starts_with("\x1b[32mPASS    \x1b[0m api"));
    }

    #[test]
    fn checks_that_do_not_know_one_fact_are_shown_once() {
        let unknown = |name: &str, symptom: &str, detail: &str| {
            let [name, symptom, detail] = [name, symptom, detail].map(str::to_owned);
            Finding { name, result: Verdict::Unknown, symptom, detail, fix: String::new() }
        };
        let checks = vec![
            unknown("drift", "the file", "no switch answers"),
            unknown("governor", "CPU 0", "no governor is visible"),
            unknown("links", "the ports", "no switch answers"),
            finding(Verdict::Pass),
            unknown("moves", "the bridges", "no switch answers"),
        ];
        let report = Report { checks };
        let start =
            "UNKNOWN  3 checks         drift, links, moves: no switch answers\nUNKNOWN  governor         CPU 0: no";
        let text = report.text(false, false);
        assert!(text.starts_with(start) && text.ends_with("\n1 passed, 0 warnings, 0 failed, 4 unknown\n"), "{text}");
        assert!(report.text(true, false).contains("UNKNOWN  links            the ports: no switch answers\n"));
    }

    #[test]
    fn what_does_not_apply_is_hidden_and_counted() {
        let skipped = Finding { name: "tunnel-mtu".to_owned(), ..finding(Verdict::Skip) };
        let report = Report { checks: vec![finding(Verdict::Pass), skipped] };
        let text = report.text(false, false);
        assert!(!text.contains("tunnel-mtu"), "{text}");
        assert!(text.ends_with("0 failed, 0 unknown, 1 do not apply (--all shows them)\n"), "{text}");
        let text = report.text(true, false);
        assert!(text.contains("\nSKIP     tunnel-mtu       no switch answers"), "{text}");
        assert!(text.ends_with("0 unknown, 1 do not apply\n"), "{text}");
    }

    #[test]
    fn the_json_has_the_fields_that_scripts_read() {
        let json = serde_json::to_value(Report { checks: vec![finding(Verdict::Unknown)] }).unwrap();
        assert_eq!(json["checks"][0]["result"], "unknown");
        let keys: Vec<_> = json["checks"][0].as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["detail", "fix", "name", "result", "symptom"]);
    }
}
