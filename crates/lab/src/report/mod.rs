//! Results as a page to look at: plots, tables, and a sentence for what came out.
//!
//! A report is made of samples alone and knows of no scenario: which plots there are follows from the axes and figures
//! that the samples have. Its page is one file that asks nothing of a network and needs no script; beside it are the same in
//! Markdown, and all samples as CSV.
//!
//! ```
//! use straightline_lab::report::Report;
//! use straightline_lab::results::{Results, Sample};
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

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::results::Results;
use model::{Scenario, pairs_in_words};
use tables::{Finding, Table, finding};
use text::count;

/// Samples, ready to be shown.
#[derive(Debug)]
pub struct Report<'a> {
    title: String,
    results: &'a Results,
    scenarios: Vec<Scenario<'a>>,
}

/// What a report consists of.
const FILES: [&str; 3] = ["index.html", "report.md", "samples.csv"];

/// Makes a report of a folder of results, or of one with such folders in it, whose scenarios all come on one page. Returns the files that were written, into `out` or the folder itself.
pub fn of_folder(folder: &Path, out: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let results = Results::read(folder)?;
    let name = fs::canonicalize(folder).ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let title = name.unwrap_or_else(|| folder.display().to_string());
    let report = Report::new(&title, &results).with_context(|| folder.display().to_string())?;
    report.write(out.unwrap_or(folder))
}

impl<'a> Report<'a> {
    /// A report of at least one sample.
    pub fn new(title: &str, results: &'a Results) -> anyhow::Result<Self> {
        let samples = &results.samples;
        ensure!(!samples.is_empty(), "there are no samples: nothing was measured, or it ended before its first trial");
        Ok(Report { title: title.to_owned(), results, scenarios: Scenario::all(samples) })
    }

    /// As a page.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        markdown::report(self)
    }

    /// The samples as comma-separated values.
    pub fn csv(&self) -> String {
        csv::table(&self.results.samples)
    }

    /// Writes all three into a folder, which is made where there is none, and returns where they are.
    pub fn write(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut paths = Vec::new();
        for (name, text) in FILES.into_iter().zip([self.html(), self.markdown(), self.csv()]) {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// How much was measured, in a sentence.
    fn trials(&self) -> String {
        let invalid = self.results.samples.iter().filter(|sample| sample.invalid.is_some()).count();
        let what =
            format!("{} in {}", count(self.results.samples.len(), "trial"), count(self.scenarios.len(), "scenario"));
        match invalid {
            0 => format!("{what}; all of them count."),
            1 => format!("{what}; 1 of them does not count, for the reason below."),
            invalid => format!("{what}; {invalid} of them do not count, for the reasons below."),
        }
    }

    /// What came out for the first figure of each scenario.
    fn findings(&self) -> Vec<(&'a str, Finding)> {
        let of = |scenario: &Scenario<'a>| match scenario.metrics.first() {
            Some((metric, outcomes)) => finding(scenario, metric, outcomes),
            None => Finding { about: "no trial has a figure".to_owned(), lines: Vec::new() },
        };
        self.scenarios.iter().map(|scenario| (scenario.name, of(scenario))).collect()
    }

    /// Trials that do not count, and why.
    fn invalid(&self) -> Table {
        let mut table = Table::new(["scenario", "round", "cell", "variant", "reason"]);
        for sample in &self.results.samples {
            let Some(reason) = &sample.invalid else { continue };
            let cell = pairs_in_words(sample.cell.iter().map(|(axis, value)| (axis.as_str(), value.as_str())));
            let (scenario, variant) = (sample.scenario.clone(), sample.variant.clone());
            table.rows.push(vec![scenario, sample.round.to_string(), cell, variant, reason.clone()]);
        }
        table
    }

    /// The environment, by name.
    fn environment(&self) -> Table {
        let mut table = Table::new(["what", "value"]);
        table.rows.extend(self.results.environment.facts().into_iter().map(<[String; 2]>::into));
        table
    }
}
