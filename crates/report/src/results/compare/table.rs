//! The comparison as a table, for a terminal of 100 columns.

use std::fmt;

use super::{Comparison, MetricComparison, Side};
use crate::results::SeriesKey;
use crate::statistics::{EQUAL, Effect};

/// The greatest width of a cell's name, or of a title, that still has its values on the same line.
/// A line has at most 100 columns.
const PLACE: usize = 34;

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.environment {
            writeln!(to, "warning: the environments differ in {}:", difference.field)?;
            writeln!(to, "    A: {}\n    B: {}", shortened(&difference.first), shortened(&difference.second))?;
        }
        let mut titles: Vec<(&str, &str)> = Vec::new();
        for compared in &self.metrics {
            let title = (compared.place.scenario.as_str(), compared.metric.as_str());
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        for (scenario, metric) in titles {
            let of_title =
                |compared: &&MetricComparison| compared.place.scenario == scenario && compared.metric == metric;
            let metrics: Vec<&MetricComparison> = self.metrics.iter().filter(of_title).collect();
            let title = format!("{scenario}, {metric}");
            let names = metrics.iter().map(|compared| name(&compared.place)).chain([title.clone()]);
            let width = names.map(|name| name.chars().count()).max().unwrap_or(0).min(PLACE);
            writeln!(to)?;
            first_column(to, &title, width)?;
            writeln!(
                to,
                " {:>13} {:>13} {:>7}  {:15}  B is",
                "A",
                "B",
                "B/A",
                format!("{} % of B/A", self.looks.percent())
            )?;
            for compared in metrics {
                row(to, compared, width)?;
            }
        }
        for (folder, places) in [("A", &self.only_first), ("B", &self.only_second)] {
            for place in places {
                writeln!(to, "only in {folder}: {}, {}", place.scenario, name(place))?;
            }
        }
        notes(to, &self.metrics)?;
        if !self.metrics.is_empty() {
            let equal = EQUAL * 100.0;
            writeln!(to, "Equal: the interval is within {equal:.0} % of 1. Unclear: it is not, and includes 1.")?;
        }
        let fewest = self.looks.fewest();
        let sides = || self.metrics.iter().flat_map(|compared| [&compared.first, &compared.second]);
        if sides().any(|side| side.estimate.samples < fewest) {
            writeln!(to, "With fewer than {fewest} samples there is no interval and no verdict.")?;
        }
        Ok(())
    }
}

fn row(to: &mut fmt::Formatter<'_>, compared: &MetricComparison, width: usize) -> fmt::Result {
    first_column(to, &name(&compared.place), width)?;
    write!(to, " {:>13} {:>13}", side(&compared.first), side(&compared.second))?;
    let ratio = match compared.effect() {
        Some(Effect::Ratio(ratio)) => format!("{:.3}", ratio.value),
        Some(Effect::AtLeast(ratio)) => format!(">{:.3}", ratio.value),
        Some(Effect::AtMost(ratio)) => format!("<{:.3}", ratio.value),
        Some(Effect::Change(change)) => format!("{:+.3}", change.value),
        None => "-".to_owned(),
    };
    let interval = compared.effect().and_then(|effect| effect.interval());
    let interval = interval.map_or_else(|| "-".to_owned(), |i| format!("{:.3} to {:.3}", i.low, i.high));
    let verdict = compared.verdict.map_or_else(String::new, |verdict| verdict.to_string());
    let line = format!(" {ratio:>7}  {interval:15}  {verdict}");
    writeln!(to, "{}", line.trim_end())
}

fn first_column(to: &mut fmt::Formatter<'_>, text: &str, width: usize) -> fmt::Result {
    if text.chars().count() > width { write!(to, "{text}\n{:width$}", "") } else { write!(to, "{text:width$}") }
}

/// Writes the notes that the table needs.
fn notes(to: &mut fmt::Formatter<'_>, metrics: &[MetricComparison]) -> fmt::Result {
    let sides = || metrics.iter().flat_map(|compared| [&compared.first, &compared.second]);
    if metrics.is_empty() {
        writeln!(to, "A and B have nothing in common")?;
    } else {
        writeln!(
            to,
            "\nMedians, with the number of samples; the folders were measured one after the other, not in \
         turn."
        )?;
    }
    if metrics.iter().any(|compared| compared.change.is_some() && compared.verdict.is_some()) {
        writeln!(
            to,
            "+ or - before B/A: a sample is 0, so this is the difference of B and A, and the verdict is about it."
        )?;
    }
    if sides().any(|side| side.is_at_least) {
        writeln!(to, "> before a value: at least, because searches found no load too high; <: at most.")?;
    }
    if sides().any(|side| side.invalid > 0) {
        writeln!(to, "!: some trials of this cell are not valid and are left out.")?;
    }
    Ok(())
}

/// Returns the cell and the variant.
fn name(place: &SeriesKey) -> String {
    let mut parts: Vec<String> = place.cell.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    parts.push(place.variant.clone());
    parts.join(" ")
}

fn side(side: &Side) -> String {
    let mark = if side.invalid > 0 { "!" } else { "" };
    let bound = if side.is_at_least { ">" } else { "" };
    format!("{bound}{} ({}){mark}", shown(side.estimate.median), side.estimate.samples)
}

/// Formats a value with four digits, or more if the integer part is longer.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e6 => format!("{value:.3e}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Shortens a text: lists of flags are long.
fn shortened(text: &str) -> String {
    const MOST: usize = 93;
    if text.chars().count() <= MOST {
        return if text.is_empty() { "nothing else".to_owned() } else { text.to_owned() };
    }
    let short: String = text.chars().take(MOST - 4).collect();
    format!("{short} ...")
}
