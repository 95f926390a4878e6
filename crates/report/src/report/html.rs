//! The page: one file that needs no network. It is also well-formed XML, which the tests use.

use super::Report;
use super::section;
use super::tables::{Finding, Table};
use super::text::{count, escape};

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    pictures: usize,
    anchors: Vec<String>,
}

const STYLE: &str = include_str!("page.css");

impl Page {
    pub(super) fn push(&mut self, html: &str) {
        self.text.push_str(html);
    }

    /// Returns an id for the next picture.
    pub(super) fn id(&mut self) -> String {
        self.pictures += 1;
        format!("p{}", self.pictures)
    }

    /// Returns the anchor of a scenario.
    pub(super) fn anchor(&self, scenario: &str) -> String {
        let place = self.anchors.iter().position(|name| name == scenario).unwrap_or(0);
        format!("s{place}")
    }

    pub(super) fn open_details(&mut self, summary: &str, open: bool) {
        let open = if open { " open=\"open\"" } else { "" };
        self.push(&format!("<details{open}>\n<summary>{}</summary>\n", escape(&capital(summary))));
    }

    /// Writes a sentence that explains the following plots.
    pub(super) fn note(&mut self, sentence: &str) {
        self.push(&format!("<p class=\"soft\">{}</p>\n", escape(sentence)));
    }

    /// Returns whether the page has only one scenario. Then the findings are just above it and are
    /// not repeated.
    pub(super) fn is_short(&self) -> bool {
        self.anchors.len() == 1
    }

    pub(super) fn close_details(&mut self) {
        self.push("</details>\n");
    }

    /// Writes the findings, after a link to the scenario's section.
    fn linked(&mut self, scenario: &str, finding: &Finding) {
        let link = format!("<a href=\"#{}\">{}</a>: ", self.anchor(scenario), escape(scenario));
        self.push(&format!("<li>{link}{}", escape(&finding.about)));
        self.lines(finding);
        self.push("</li>\n");
    }

    pub(super) fn finding(&mut self, finding: &Finding) {
        self.push(&format!("<p>{}</p>\n", escape(&capital(&finding.about))));
        self.lines(finding);
    }

    fn lines(&mut self, finding: &Finding) {
        if finding.lines.is_empty() {
            return;
        }
        let lines: String = finding.lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
        self.push(&format!("<ul>\n{lines}</ul>\n"));
    }

    /// Writes a picture in both layouts, with a table of the same values.
    pub(super) fn figure(&mut self, title: &str, pictures: [String; 2], table: &Table) {
        self.push("<figure>\n");
        self.push(&format!("<figcaption>{}</figcaption>\n", escape(title)));
        self.push("<div class=\"beside\">\n<div>\n");
        for picture in pictures {
            self.push(&picture);
        }
        self.push("</div>\n");
        self.table(table, &format!("Table: {title}"));
        self.push("</div>\n</figure>\n");
    }

    /// Writes a table in a box that scrolls if it is too large.
    pub(super) fn table(&mut self, table: &Table, label: &str) {
        let label = escape(label);
        self.push(&format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n<table>\n"));
        self.rows(table);
        self.push("</table>\n</div>\n");
    }

    fn rows(&mut self, table: &Table) {
        let cells = |cells: &[String], tag: &str| -> String {
            cells.iter().map(|cell| format!("<{tag}>{}</{}>", escape(cell), &tag[..2])).collect()
        };
        self.push(&format!("<thead><tr>{}</tr></thead>\n<tbody>\n", cells(&table.head, "th scope=\"col\"")));
        for row in &table.rows {
            self.push(&format!("<tr>{}</tr>\n", cells(row, "td")));
        }
        self.push("</tbody>\n");
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
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    ));
    page.push(&format!("<p>{}</p>\n", escape(&report.trials())));
    page.push("<ul>\n");
    for (scenario, finding) in report.findings() {
        page.linked(scenario, &finding);
    }
    page.push("</ul>\n");
    page.push(
        "<p class=\"soft\">Values are medians. Variants are called different only if the 95 % interval of their \
         ratio excludes 1; of twenty such comparisons of equal variants, about one is called different by chance. \
         The same report is available as <a href=\"report.md\">Markdown</a>, and all samples as <a \
         href=\"samples.csv\">CSV</a>.</p>\n",
    );
    for scenario in &report.scenarios {
        section::write(&mut page, scenario);
    }
    let invalid = report.invalid();
    page.push("<h2>Invalid trials</h2>\n");
    if invalid.rows.is_empty() {
        page.push("<p>None.</p>\n");
    } else {
        page.push(&format!("<p>{}.</p>\n", count(invalid.rows.len(), "trial")));
        page.push("<table class=\"open\">\n");
        page.rows(&invalid);
        page.push("</table>\n");
    }
    page.push("<h2>Environment</h2>\n");
    page.push("<table class=\"open\">\n");
    page.rows(&report.environment());
    page.push("</table>\n");
    page.push("</body>\n</html>\n");
    page.text
}

/// Returns the sentence with a capital at its start.
pub(super) fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
