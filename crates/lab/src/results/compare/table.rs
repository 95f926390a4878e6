//! A comparison for people, in a terminal of 100 columns.

use std::fmt;

use super::{Comparison, MetricComparison, Side};
use crate::results::SeriesKey;
use crate::statistics::FEWEST;

/// How wide a place, or a title, may be before its figures come in the line below: with them, a line is of 100 columns.
const PLACE: usize = 34;

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.environment {
            writeln!(to, "warning: the environments differ in {}:", difference.field)?;
            writeln!(to, "    A: {}\n    B: {}", shortened(&difference.first), shortened(&difference.second))?;
        }
        let mut titles: Vec<(&str, &str)> = Vec::new();
        for figure in &self.figures {
            let title = (figure.place.scenario.as_str(), figure.metric.as_str());
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        for (scenario, metric) in titles {
            let of_title = |figure: &&MetricComparison| figure.place.scenario == scenario && figure.metric == metric;
            let figures: Vec<&MetricComparison> = self.figures.iter().filter(of_title).collect();
            let title = format!("{scenario}, {metric}");
            let names = figures.iter().map(|figure| name(&figure.place)).chain([title.clone()]);
            let width = names.map(|name| name.chars().count()).max().unwrap_or(0).min(PLACE);
            writeln!(to)?;
            first_column(to, &title, width)?;
            writeln!(to, " {:>13} {:>13} {:>7}  {:15}  B is", "A", "B", "B/A", "95 % of B/A")?;
            for figure in figures {
                row(to, figure, width)?;
            }
        }
        for (folder, places) in [("A", &self.only_first), ("B", &self.only_second)] {
            for place in places {
                writeln!(to, "only in {folder}: {}, {}", place.scenario, name(place))?;
            }
        }
        notes(to, &self.figures)
    }
}

fn row(to: &mut fmt::Formatter<'_>, figure: &MetricComparison, width: usize) -> fmt::Result {
    first_column(to, &name(&figure.place), width)?;
    write!(to, " {:>13} {:>13}", side(&figure.first), side(&figure.second))?;
    let (ratio, interval) = match figure.ratio {
        Some(ratio) => (
            format!("{:.3}", ratio.value),
            ratio.interval.map_or_else(|| "-".to_owned(), |i| format!("{:.3} to {:.3}", i.low, i.high)),
        ),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let verdict = figure.verdict.map_or_else(String::new, |verdict| verdict.to_string());
    let line = format!(" {ratio:>7}  {interval:15}  {verdict}");
    writeln!(to, "{}", line.trim_end())
}

fn first_column(to: &mut fmt::Formatter<'_>, text: &str, width: usize) -> fmt::Result {
    if text.chars().count() > width { write!(to, "{text}\n{:width$}", "") } else { write!(to, "{text:width$}") }
}

/// What has to be known to read the table, where it is so.
fn notes(to: &mut fmt::Formatter<'_>, figures: &[MetricComparison]) -> fmt::Result {
    let sides = || figures.iter().flat_map(|figure| [&figure.first, &figure.second]);
    if figures.is_empty() {
        writeln!(to, "nothing that both have")?;
    } else {
        writeln!(to, "\nMedians, with the number of samples; taken one folder after the other, not in turn.")?;
    }
    if figures.iter().any(|figure| figure.change.is_some() && figure.verdict.is_some()) {
        writeln!(to, "Where there is no B/A, as a sample is 0, their difference is judged.")?;
    }
    if sides().any(|side| side.invalid > 0) {
        writeln!(to, "!: some trials of this place did not count and are left out.")?;
    }
    if sides().any(|side| side.estimate.samples < FEWEST) {
        writeln!(to, "Of fewer than {FEWEST} samples there is no interval of 95 %, and no verdict.")?;
    }
    Ok(())
}

/// The cell and what was measured in it.
fn name(place: &SeriesKey) -> String {
    let mut parts: Vec<String> = place.cell.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    parts.push(place.variant.clone());
    parts.join(" ")
}

fn side(side: &Side) -> String {
    let mark = if side.invalid > 0 { "!" } else { "" };
    format!("{} ({}){mark}", figure(side.estimate.median), side.estimate.samples)
}

/// With four digits, or all before the point of thousands.
fn figure(value: f64) -> String {
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

/// Lists of flags are long.
fn shortened(text: &str) -> String {
    const MOST: usize = 93;
    if text.chars().count() <= MOST {
        return if text.is_empty() { "nothing else".to_owned() } else { text.to_owned() };
    }
    let short: String = text.chars().take(MOST - 4).collect();
    format!("{short} ...")
}
