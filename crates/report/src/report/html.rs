//! The page: one file that needs no network and no script. It is also well-formed XML, which the
//! tests use.
//!
//! The findings come first: for each scenario its question, and a table with a row for each variant.
//! The plots follow. Everything else is folded below.

use super::model::Scenario;
use super::plots::{STYLE as PLOTS, class};
use super::question::{names, question};
use super::tables::{self, Table};
use super::text::escape;
use super::{Report, details, section};
use crate::statistics::EQUAL;

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    pictures: usize,
    anchors: Vec<String>,
}

const STYLE: &str = include_str!("page.css");

impl Page {
    fn push(&mut self, html: &str) {
        self.text.push_str(html);
    }

    /// Returns an id for the next picture.
    pub(super) fn id(&mut self) -> String {
        self.pictures += 1;
        format!("p{}", self.pictures)
    }

    /// Returns the number of a scenario, for its anchors.
    fn anchor(&self, scenario: &str) -> usize {
        self.anchors.iter().position(|name| name == scenario).unwrap_or(0)
    }

    /// Returns whether the findings of several scenarios are listed on top.
    pub(super) fn has_list(&self) -> bool {
        self.anchors.len() > 1
    }

    pub(super) fn open_section(&mut self, scenario: &str) {
        let anchor = self.anchor(scenario);
        self.push(&format!("<section id=\"s{anchor}\">\n<h2>{}</h2>\n", escape(scenario)));
    }

    /// Ends a section, with a link to the folded tables.
    pub(super) fn close_section(&mut self, scenario: &str) {
        let anchor = self.anchor(scenario);
        self.push(&format!(
            "<p><a class=\"more\" href=\"#d{anchor}\">Cells and tables of {}</a></p>\n</section>\n",
            escape(scenario)
        ));
    }

    /// Opens a folded part. That of a scenario has an anchor.
    pub(super) fn open_details(&mut self, summary: &str, scenario: Option<&str>) {
        let anchor = scenario.map_or_else(String::new, |scenario| format!(" id=\"d{}\"", self.anchor(scenario)));
        self.push(&format!("<details{anchor}>\n<summary>{}</summary>\n", escape(summary)));
    }

    pub(super) fn close_details(&mut self) {
        self.push("</details>\n");
    }

    pub(super) fn heading(&mut self, title: &str) {
        self.push(&format!("<h3>{}</h3>\n", escape(title)));
    }

    /// Writes words that explain what is around them.
    pub(super) fn note(&mut self, words: &str) {
        if !words.is_empty() {
            self.push(&format!("<p class=\"soft\">{}</p>\n", escape(words)));
        }
    }

    /// Writes an experiment's question, and what its names mean.
    pub(super) fn question(&mut self, scenario: &str) {
        if let (Some(question), Some(names)) = (question(scenario), names(scenario)) {
            let question = escape(question);
            let names = escape(names);
            self.push(&format!("<p class=\"soft\"><strong>{question}</strong> {names}</p>\n"));
        }
    }

    /// Writes the finding of a scenario.
    pub(super) fn finding(&mut self, scenario: &Scenario<'_>) {
        match tables::finding(scenario) {
            Some(table) => self.words(&table, &format!("Finding of {}", scenario.name)),
            None => self.note("No trial has a metric."),
        }
    }

    /// Writes a picture in both layouts.
    pub(super) fn figure(&mut self, title: &str, pictures: [String; 2]) {
        self.push(&format!("<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n", escape(title), pictures.concat()));
    }

    /// Writes a table of values in a box that scrolls if it is too large.
    pub(super) fn table(&mut self, table: &Table, label: &str) {
        self.boxed("scroll", table, label);
    }

    /// Writes a table of words, whose lines may break.
    fn words(&mut self, table: &Table, label: &str) {
        self.boxed("scroll words", table, label);
    }

    fn boxed(&mut self, kind: &str, table: &Table, label: &str) {
        let label = escape(label);
        self.push(&format!("<div class=\"{kind}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n<table>\n"));
        let head: String = table.head.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
        self.push(&format!("<thead><tr>{head}</tr></thead>\n<tbody>\n"));
        for row in &table.rows {
            self.push("<tr>");
            for entry in row {
                match entry.outcome {
                    Some(outcome) => self.push(&format!("<td class=\"{}\">", class(Some(outcome)))),
                    None => self.push("<td>"),
                }
                self.push(&escape(&entry.text));
                self.push("</td>");
            }
            self.push("</tr>\n");
        }
        self.push("</tbody>\n</table>\n</div>\n");
    }
}

/// Returns the entire page.
pub(super) fn page(report: &Report<'_>) -> String {
    let anchors = report.scenarios.iter().map(|scenario| scenario.name.to_owned()).collect();
    let mut page = Page { anchors, ..Page::default() };
    let title = escape(&report.title);
    page.push(&format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}{PLOTS}</style>\n</head>\n<body>\n<h1>Results: {title}</h1>\n"
    ));
    let reasons = match report.reasons() {
        "" => String::new(),
        reasons => format!(", <a href=\"#invalid\">{reasons}</a>"),
    };
    let trials = escape(&report.trials());
    let machine = escape(&report.machine());
    page.push(&format!("<p class=\"soft\">{trials}{reasons}.{machine}</p>\n"));
    page.note(&report.comparisons());
    page.note(&how_to_read(report));
    if page.has_list() {
        page.push("<h2>Findings</h2>\n<ul class=\"findings\">\n");
        for (number, scenario) in report.scenarios.iter().enumerate() {
            let name = escape(scenario.name);
            page.push(&format!("<li><a href=\"#s{number}\">{name}</a> <div>"));
            page.question(scenario.name);
            page.finding(scenario);
            page.push("</div></li>\n");
        }
        page.push("</ul>\n");
    }
    page.push("<div class=\"sections\">\n");
    for scenario in &report.scenarios {
        section::write(&mut page, scenario, report.results.bounds.as_ref());
    }
    page.push("</div>\n<h2>Data</h2>\n");
    page.push(
        "<p class=\"soft\">The same report is available as <a href=\"report.md\">Markdown</a>, and all samples as <a \
         href=\"samples.csv\">CSV</a>.</p>\n",
    );
    for scenario in &report.scenarios {
        details::write(&mut page, scenario);
    }
    let invalid = tables::invalid(&report.results.samples);
    if !invalid.rows.is_empty() {
        page.push(&format!("<details id=\"invalid\">\n<summary>Invalid trials: {}</summary>\n", report.invalid()));
        page.words(&invalid, "Invalid trials");
        page.close_details();
    }
    page.open_details("Environment", None);
    page.words(&report.environment(), "Environment");
    page.close_details();
    page.push("</body>\n</html>\n");
    page.text
}

/// Returns how to read findings, with the number of comparisons that differ by chance.
fn how_to_read(report: &Report<'_>) -> String {
    let comparisons: usize = report.scenarios.iter().map(|scenario| scenario.comparisons().len()).sum();
    let chance = match comparisons {
        0 => return String::new(),
        1..30 => "Of twenty comparisons of equal variants, about one is called different by chance.".to_owned(),
        all => format!(
            "If all variants were equal, some {} of the {all} comparisons would still be called different by chance.",
            (all + 10) / 20
        ),
    };
    let percent = report.results.environment.looks.percent();
    let equal = EQUAL * 100.0;
    format!(
        "How to read: a cell is one setting, such as a size and a ring layout. In each cell a variant has a ratio to \
         another one, and a {percent} % interval in brackets. They are equal if the whole interval is within {equal:.0} % \
         of 1. Otherwise the variant is better (blue) or worse (orange) if the interval excludes 1; of cycles, fewer are \
         better. All else is unclear. For several cells, the smallest and the largest ratio are shown. \
         {chance}"
    )
}

/// Returns the text with a capital at its start.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
