//! The checks: pure functions from facts to findings.
//!
//! A check looks at subjects, such as ports. It notes each subject that is well, and reports each
//! that is not or that it does not know. Only a check that knows all of its subjects passes.

mod bindings;
mod client_folder;
mod connection;
mod domain;
mod drift;
mod drops;
mod evpn;
mod frontend;
mod groups;
mod interface;
mod load;
mod machine;
mod moves;
mod process;
mod program;
mod querier;
mod rates;
mod socket;
mod tunnel;
mod vlans;
mod worker;

#[cfg(test)]
mod tests;

use crate::facts::{Fact, Facts, PortFacts, Unknown};
use crate::report::{Finding, Report, Verdict};

/// A check.
pub struct Check {
    /// The name in reports, which never changes.
    pub name: &'static str,
    /// The state that the check confirms when it passes, as a phrase.
    pub passes: &'static str,
    /// The reason why the check does not apply, where it finds nothing to look at.
    pub absent: &'static str,
    run: fn(&Facts, &mut CheckOutcome),
}

/// All checks, in the order of reports.
pub const CHECKS: &[Check] = &[
    socket::API,
    socket::CONFIGURATION,
    drift::DRIFT,
    socket::SOCKETS,
    socket::ACCESS,
    client_folder::CLIENT,
    socket::OWNER,
    socket::DENIALS,
    connection::LINKS,
    connection::SIDES,
    connection::RECONNECT,
    connection::GIVES_UP,
    connection::FLAPPING,
    drops::DROPS,
    rates::RATES,
    groups::GROUPS,
    moves::MOVES,
    bindings::BINDINGS,
    vlans::VLANS,
    querier::QUERIER,
    frontend::MEMORY,
    frontend::DRIVER,
    frontend::QUEUES,
    frontend::RING_SIZE,
    domain::MTU,
    domain::OFFLOADS,
    domain::LEARNING,
    interface::PRIVILEGES,
    process::PROGRAM,
    interface::MODE,
    tunnel::NEXT_HOPS,
    tunnel::ADDRESSES,
    tunnel::MTU,
    tunnel::PATH_MTU,
    evpn::PROCESS,
    evpn::SESSIONS,
    evpn::ROUTES,
    evpn::MTU,
    evpn::NEXT_HOPS,
    process::DESCRIPTORS,
    process::SANDBOX,
    process::REFUSED,
    load::SPINNING,
    worker::VCPUS,
    worker::SIBLINGS,
    worker::NODES,
    machine::QUOTA,
    machine::STEAL_TIME,
    machine::GOVERNOR,
];

/// Runs all checks.
#[must_use]
pub fn run(facts: &Facts) -> Report {
    Report { checks: CHECKS.iter().flat_map(|check| check.findings(facts)).collect() }
}

impl Check {
    /// Runs the check. Returns at least one finding.
    #[must_use]
    pub fn findings(&self, facts: &Facts) -> Vec<Finding> {
        let mut outcome = CheckOutcome { check: self.name, findings: Vec::new(), is_applied: false };
        (self.run)(facts, &mut outcome);
        if outcome.findings.is_empty() {
            if outcome.is_applied {
                outcome.add(Verdict::Pass, self.passes, "", "")
            } else {
                outcome.add(Verdict::Skip, "does not apply", self.absent, "")
            }
        }
        merge(outcome.findings)
    }
}

/// Merges findings that are unknown for the same reason, and those that say the same of several ports,
/// such as those of one VM.
fn merge(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<(Finding, usize)> = Vec::new();
    for finding in findings {
        let is_same = |other: &Finding| {
            (other.result, &other.detail, &other.fix) == (finding.result, &finding.detail, &finding.fix)
                && (other.result == Verdict::Unknown
                    || statement(other).is_some_and(|of| Some(of) == statement(&finding)))
        };
        match merged.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, more)) => *more += 1,
            None => merged.push((finding, 0)),
        }
    }
    let name_more = |(finding, more): (Finding, usize)| match (more, statement(&finding)) {
        (0, _) => finding,
        (more, Some(statement)) if finding.result != Verdict::Unknown => {
            let port = finding.symptom.trim_end_matches(statement).trim_end_matches(": ");
            Finding { symptom: format!("{port}, and {more} more: {statement}"), ..finding }
        }
        (more, _) => Finding { symptom: format!("{}, and {more} more", finding.symptom), ..finding },
    };
    merged.into_iter().map(name_more).collect()
}

/// Returns the part of a symptom that says something of its port.
fn statement(finding: &Finding) -> Option<&str> {
    finding.symptom.strip_prefix("port ")?.split_once(": ").map(|(_, statement)| statement)
}

/// The findings of a check so far.
#[derive(Debug)]
struct CheckOutcome {
    check: &'static str,
    findings: Vec<Finding>,
    /// The check has found a subject that is well.
    is_applied: bool,
}

impl CheckOutcome {
    /// Notes a subject that is well.
    fn pass(&mut self) {
        self.is_applied = true;
    }

    /// Reports a subject that could work better, or may fail later.
    fn warn(&mut self, symptom: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) {
        self.add(Verdict::Warn, symptom, detail, fix);
    }

    /// Reports a subject that does not work.
    fn fail(&mut self, symptom: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) {
        self.add(Verdict::Fail, symptom, detail, fix);
    }

    /// Reports that a subject is not known.
    fn unknown(&mut self, subject: impl Into<String>, unknown: &Unknown) {
        self.add(Verdict::Unknown, subject, &unknown.why, &unknown.fix);
    }

    /// Returns a fact about a subject, or reports that it is not known.
    fn known<'f, T>(&mut self, subject: impl Into<String>, fact: &'f Fact<T>) -> Option<&'f T> {
        match fact {
            Ok(fact) => Some(fact),
            Err(unknown) => {
                self.unknown(subject, unknown);
                None
            }
        }
    }

    fn add(&mut self, result: Verdict, symptom: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) {
        let symptom = symptom.into();
        let detail = detail.into();
        let fix = fix.into();
        self.findings.push(Finding { name: self.check.to_owned(), result, symptom, detail, fix });
    }
}

impl Facts {
    /// Returns the ports of a running switch, or reports that none runs.
    fn running_ports(&self, outcome: &mut CheckOutcome) -> &[PortFacts] {
        match outcome.known("the ports", &self.switch) {
            Some(_) => &self.ports,
            None => &[],
        }
    }
}

impl PortFacts {
    /// Returns the port as a subject of a report.
    fn subject(&self) -> String {
        format!("port {}", self.port.name)
    }
}
