//! Results as a page: the finding and a forest plot of each scenario, and tables
//! below.
//!
//! A report is made from samples alone. It knows of a scenario only which metric answers its
//! question. The report's page is one file that needs no network and no script. The same report is
//! written as Markdown, all samples as CSV, and the plots as SVG files.
//!
//! ```
//! use straightline_report::report::Report;
//! use straightline_report::results::{Results, Sample};
//!
//! let sample = Sample { scenario: "pvp".to_owned(), metrics: [("mpps".to_owned(), 8.9)].into(), ..Sample::default() };
//! let results = Results { samples: vec![sample], ..Results::default() };
//! let report = Report::new("A first try", &results)?;
//! assert!(report.html().contains("A first try"));
//! # anyhow::Ok(())
//! ```

mod csv;
mod details;
mod distribution;
mod html;
mod markdown;
mod model;
mod plots;
mod question;
mod section;
mod tables;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use crate::results::Results;
use crate::statistics::{Outcome, counts};
use model::Scenario;
pub use question::answer;
use tables::Table;
use text::count;

/// The share of comparisons that may be unclear in a set that is good enough, in percent.
const UNCLEAR: u32 = 25;

/// Samples, prepared for a report.
#[derive(Debug)]
pub struct Report<'a> {
    title: String,
    results: &'a Results,
    scenarios: Vec<Scenario<'a>>,
}

impl<'a> Report<'a> {
    /// Makes a report of at least one sample.
    pub fn new(title: &str, results: &'a Results) -> anyhow::Result<Self> {
        let samples = &results.samples;
        ensure!(!samples.is_empty(), "there are no samples: the run ended before its first trial");
        Ok(Report { title: title.to_owned(), results, scenarios: Scenario::all(samples, results.environment.looks) })
    }

    /// Returns the page.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the report as Markdown.
    pub fn markdown(&self) -> String {
        markdown::report(self)
    }

    /// Returns the samples as comma-separated values.
    pub fn csv(&self) -> String {
        csv::table(&self.results.samples)
    }

    /// Returns the plots as SVG files: the name of each file, and its text. A scenario without any
    /// result has no plot.
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots: Vec<(String, String)> = Vec::new();
        for scenario in &self.scenarios {
            let Some(plot) = section::plot(scenario, String::new()) else { continue };
            let name = text::file_name(scenario.name);
            let names =
                std::iter::once(format!("{name}.svg")).chain((2..).map(|number| format!("{name}-{number}.svg")));
            let is_new = |name: &String| plots.iter().all(|known| known.0 != *name);
            let Some(name) = names.into_iter().find(is_new) else { continue };
            plots.push((name, plot.forest.file()));
        }
        plots
    }

    /// Returns a sentence with the number of trials, without its full stop.
    fn trials(&self) -> String {
        let trials = self.results.samples.len();
        let scenarios = self.scenarios.len();
        let rounds = count(self.rounds(), "round");
        let each = if scenarios == 1 { "" } else { " each" };
        let what = format!("{} in {}, {rounds}{each}", count(trials, "trial"), count(scenarios, "scenario"));
        match self.invalid() {
            0 => format!("{what}; all trials are valid"),
            1 => format!("{what}; 1 trial is not valid"),
            invalid => format!("{what}; {invalid} trials are not valid"),
        }
    }

    /// Returns sentences that count the comparisons by outcome, with the share of those that are
    /// unclear; empty without comparisons.
    pub fn comparisons(&self) -> String {
        let outcomes: Vec<Outcome> = self.scenarios.iter().flat_map(Scenario::comparisons).collect();
        let unclear = outcomes.iter().filter(|&&outcome| outcome == Outcome::Unclear).count();
        if outcomes.is_empty() {
            return String::new();
        }
        let percent = unclear as f64 * 100.0 / outcomes.len() as f64;
        let what = count(outcomes.len(), "comparison");
        format!("{what}: {}. Unclear are {percent:.0} %; the aim is at most {UNCLEAR} %.", counts(&outcomes))
    }

    /// Returns the words that lead to the list of trials that are not valid; empty without any.
    fn reasons(&self) -> &'static str {
        match self.invalid() {
            0 => "",
            1 => "for the reason below",
            _ => "for the reasons below",
        }
    }

    /// Returns the greatest number of rounds of a scenario.
    fn rounds(&self) -> usize {
        let mut rounds: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for sample in &self.results.samples {
            rounds.entry(&sample.scenario).or_default().insert(sample.round);
        }
        rounds.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    /// Returns the machine and the date as a sentence; empty if they are unknown.
    fn machine(&self) -> String {
        let environment = &self.results.environment;
        let date = environment.taken.split('T').next().unwrap_or_default();
        let cpus = format!("CPUs {}", environment.cpus);
        let place = [(&*environment.cpu, &*environment.cpu), (&*environment.cpus, &*cpus), (date, date)];
        let place: Vec<&str> = place.into_iter().filter(|part| !part.0.is_empty()).map(|part| part.1).collect();
        if place.is_empty() { String::new() } else { format!(" {}.", place.join(", ")) }
    }

    /// Returns the number of trials that are not valid.
    fn invalid(&self) -> usize {
        self.results.samples.iter().filter(|sample| !sample.is_valid()).count()
    }

    /// Returns the environment, by name.
    fn environment(&self) -> Table {
        let mut table = Table::new(["what", "value"]);
        self.results.environment.facts().into_iter().for_each(|fact| table.push(fact));
        table
    }
}
