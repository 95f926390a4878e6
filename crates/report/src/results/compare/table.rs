//! The comparison as a table, for a terminal of 100 columns.

use std::fmt;

use super::{Comparison, MetricComparison, Side};
use crate::results::SeriesKey;
use crate::statistics::{CellAxes, Effect, Effects, FEWEST, Metric, finding};

/// The columns of a terminal.
const COLUMNS: usize = 100;

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
            wrapped(to, &format!("{}.", sentence(metric, &metrics)))?;
            first_column(to, &title, width)?;
            writeln!(to, " {:>13} {:>13} {:>7}  {:15}  B is", "A", "B", "B/A", "95 % of B/A")?;
            for compared in metrics {
                row(to, compared, width)?;
            }
        }
        for (folder, places) in [("A", &self.only_first), ("B", &self.only_second)] {
            for place in places {
                writeln!(to, "only in {folder}: {}, {}", place.scenario, name(place))?;
            }
        }
        notes(to, &self.metrics)
    }
}

/// Returns the finding for these cells, as reports have it. Cells are named by the axes on which
/// they differ.
fn sentence(metric: &str, metrics: &[&MetricComparison]) -> String {
    let axes = |compared: &MetricComparison| {
        let mut axes = compared.place.cell.clone();
        axes.insert("variant".to_owned(), compared.place.variant.clone());
        axes
    };
    let all: Vec<_> = metrics.iter().map(|compared| axes(compared)).collect();
    let cell = |compared: &MetricComparison| {
        let axes = axes(compared);
        let differs = |axis: &String, value: &String| all.iter().any(|other| other.get(axis) != Some(value));
        let own = axes.iter().filter(|(axis, value)| differs(axis, value));
        own.map(|(axis, value)| (axis.clone(), value.clone())).collect::<CellAxes>()
    };
    let cells = metrics.iter().map(|compared| (cell(compared), compared.effect())).collect();
    finding(&Metric::new(metric), &[Effects { name: "B".to_owned(), cells }], "A").to_string()
}

/// Writes words in lines that fit into a terminal.
fn wrapped(to: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            writeln!(to)?;
            column = 0;
        }
        write!(to, "{}{word}", if column > 0 { " " } else { "" })?;
        column += width + usize::from(column > 0);
    }
    writeln!(to)
}

fn row(to: &mut fmt::Formatter<'_>, compared: &MetricComparison, width: usize) -> fmt::Result {
    first_column(to, &name(&compared.place), width)?;
    write!(to, " {:>13} {:>13}", side(&compared.first), side(&compared.second))?;
    let sign = match compared.effect() {
        Some(Effect::AtLeast(_)) => ">",
        Some(Effect::AtMost(_)) => "<",
        _ => "",
    };
    let (ratio, interval) = match compared.ratio {
        Some(ratio) => (
            format!("{sign}{:.3}", ratio.value),
            ratio.interval.map_or_else(|| "-".to_owned(), |i| format!("{:.3} to {:.3}", i.low, i.high)),
        ),
        None => ("-".to_owned(), "-".to_owned()),
    };
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
        writeln!(to, "Where B/A is missing because a sample is 0, the verdict is about the difference of A and B.")?;
    }
    if sides().any(|side| side.is_at_least) {
        writeln!(to, "> before a value: at least, because searches found no load too high; <: at most.")?;
    }
    if sides().any(|side| side.invalid > 0) {
        writeln!(to, "!: some trials of this cell are not valid and are left out.")?;
    }
    if sides().any(|side| side.estimate.samples < FEWEST) {
        writeln!(to, "With fewer than {FEWEST} samples there is no interval of 95 % and no verdict.")?;
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
