//! The report as Markdown.

use super::Report;
use super::html::capital;
use super::model::pairs_in_words;
use super::tables::{self, Table};

/// Returns the entire report.
pub(super) fn report(report: &Report<'_>) -> String {
    let mut text = format!("# {}\n\n{}\n\n", escape(&report.title), escape(&report.trials()));
    for (scenario, finding) in report.findings() {
        text.push_str(&format!("- {}: {}\n", escape(scenario), escape(&finding.about)));
        for line in &finding.lines {
            text.push_str(&format!("  - {}\n", escape(line)));
        }
    }
    text.push('\n');
    text.push_str(
        "Values are medians; brackets show their 95 % intervals. Variants are called different only if the interval \
         of their ratio excludes 1.\n\n",
    );
    for scenario in &report.scenarios {
        text.push_str(&format!("## {}\n\n", escape(scenario.name)));
        if !scenario.fixed.is_empty() {
            text.push_str(&format!("All cells have {}.\n\n", escape(&pairs_in_words(scenario.fixed.iter().copied()))));
        }
        let axes: Vec<usize> = (0..scenario.axes.len()).collect();
        let cells: Vec<usize> = (0..scenario.cells.len()).collect();
        for (metric, outcomes) in &scenario.metrics {
            text.push_str(&format!("### {}\n\n", escape(&capital(&metric.title()))));
            table(&mut text, &tables::of_cells(scenario, metric, outcomes, &axes, &cells));
        }
    }
    text.push_str("## Invalid trials\n\n");
    let invalid = report.invalid();
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
    let row = |cells: &[String]| -> String {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    text.push_str(&row(&table.head));
    text.push_str(&format!("|{}\n", "---|".repeat(table.head.len())));
    for cells in &table.rows {
        text.push_str(&row(cells));
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
        cells.rows.push(vec!["<b>\n".to_owned(), "`x`".to_owned()]);
        table(&mut text, &cells);
        assert_eq!(text, "| a\\|b | c |\n|---|---|\n| &lt;b&gt;  | \\`x\\` |\n\n");
    }
}
