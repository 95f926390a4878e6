//! Results as a page: plots, tables, and sentences with the findings.
//!
//! A report is made from samples alone, and knows no scenario. The axes and metrics of the samples
//! determine the plots. The report's page is one file that needs no network and no script. The same
//! report is written as Markdown, and all samples as CSV.
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
mod distribution;
mod html;
mod markdown;
mod metric;
mod model;
mod plots;
mod section;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod text;

use anyhow::ensure;

use crate::results::Results;
use model::{Scenario, pairs_in_words};
use tables::{Finding, Table, finding};
use text::count;

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
        Ok(Report { title: title.to_owned(), results, scenarios: Scenario::all(samples) })
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

    /// Returns a sentence with the number of trials.
    fn trials(&self) -> String {
        let invalid = self.results.samples.iter().filter(|sample| !sample.is_valid()).count();
        let what =
            format!("{} in {}", count(self.results.samples.len(), "trial"), count(self.scenarios.len(), "scenario"));
        match invalid {
            0 => format!("{what}; all of them are valid."),
            1 => format!("{what}; 1 of them is not valid, for the reason below."),
            invalid => format!("{what}; {invalid} of them are not valid, for the reasons below."),
        }
    }

    /// Returns the findings for the first metric of each scenario.
    fn findings(&self) -> Vec<(&'a str, Finding)> {
        let of = |scenario: &Scenario<'a>| match scenario.metrics.first() {
            Some((metric, outcomes)) => finding(scenario, metric, outcomes),
            None => Finding { about: "no trial has a metric".to_owned(), lines: Vec::new() },
        };
        self.scenarios.iter().map(|scenario| (scenario.name, of(scenario))).collect()
    }

    /// Returns a table of the trials that are not valid, with the reasons.
    fn invalid(&self) -> Table {
        let mut table = Table::new(["scenario", "round", "cell", "variant", "reason"]);
        for sample in &self.results.samples {
            let Some(reason) = sample.validity.reason() else { continue };
            let cell = pairs_in_words(sample.cell.iter().map(|(axis, value)| (axis.as_str(), value.as_str())));
            let (scenario, variant) = (sample.scenario.clone(), sample.variant.clone());
            table.rows.push(vec![scenario, sample.round.to_string(), cell, variant, reason.to_owned()]);
        }
        table
    }

    /// Returns the environment, by name.
    fn environment(&self) -> Table {
        let mut table = Table::new(["what", "value"]);
        table.rows.extend(self.results.environment.facts().into_iter().map(<[String; 2]>::into));
        table
    }
}
