//! The report as Markdown.

use super::Report;
use super::html::capital;
use super::model::pairs_in_words;
use super::question::{names, question};
use super::tables::{self, Table};
use crate::statistics::EQUAL;

/// Returns the entire report.
pub(super) fn report(report: &Report<'_>) -> String {
    let reasons = report.reasons();
    let reasons = if reasons.is_empty() { String::new() } else { format!(", {reasons}") };
    let mut text = format!("# {}\n\n{}{reasons}.\n\n", escape(&report.title), escape(&report.trials()));
    let comparisons = report.comparisons();
    if !comparisons.is_empty() {
        text.push_str(&format!("{}\n\n", escape(&comparisons)));
    }
    let equal = EQUAL * 100.0;
    text.push_str(&format!(
        "Values are medians; brackets show their 95 % intervals, and those of ratios, of {} %. Variants are equal if \
         the whole interval of their ratio is within {equal:.0} % of 1. Otherwise they are different if it excludes \
         1.\n\n",
        report.results.environment.looks.percent()
    ));
    for scenario in &report.scenarios {
        text.push_str(&format!("## {}\n\n", escape(scenario.name)));
        if let Some(question) = question(scenario.name) {
            let names = names(scenario.name).unwrap_or_default();
            text.push_str(&format!("{} {}\n\n", escape(question), escape(names)));
        }
        if !scenario.fixed.is_empty() {
            text.push_str(&format!("All cells have {}.\n\n", escape(&pairs_in_words(scenario.fixed.iter().copied()))));
        }
        if let Some(finding) = tables::finding(scenario) {
            table(&mut text, &finding);
        }
        if let Some(shares) = report.results.bounds.as_ref().and_then(|bounds| tables::shares(scenario, bounds)) {
            text.push_str(&format!("### Share of the machine's bound\n\n{}\n\n", escape(tables::SHARES)));
            table(&mut text, &shares);
        }
        for (metric, outcomes) in &scenario.metrics {
            text.push_str(&format!("### {}\n\n", escape(&capital(&metric.title()))));
            table(&mut text, &tables::by_cell(scenario, metric, outcomes));
        }
    }
    text.push_str("## Invalid trials\n\n");
    let invalid = tables::invalid(&report.results.samples);
    if invalid.rows.is_empty() {
        text.push_str("None.\n\n");
    } else {
        table(&mut text, &invalid);
    }
    text.push_str("## Environment\n\n");
    table(&mut text, &report.environment());
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn table(text: &mut String, table: &Table) {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&row(table.head.iter().map(|cell| escape(cell)).collect()));
    text.push_str(&format!("|{}\n", "---|".repeat(table.head.len())));
    for cells in &table.rows {
        text.push_str(&row(cells.iter().map(|cell| escape(&cell.text)).collect()));
    }
    text.push('\n');
}

/// Escapes text for Markdown, and for HTML in it.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_cell() {
        let mut text = String::new();
        let mut cells = Table::new(["a|b", "c"]);
        cells.push(["<b>\n", "`x`"]);
        table(&mut text, &cells);
        assert_eq!(text, "| a\\|b | c |\n|---|---|\n| &lt;b&gt;  | \\`x\\` |\n\n");
    }
}
