//! Values as tables, for the page and for Markdown alike.

use std::cmp::Ordering;

use super::metric::Metric;
use super::model::Scenario;
use super::plots::short;
use super::summary::{Summary, VariantResult};
use super::text::{count, number};
use crate::results::{BOUNDS, Sample};
use crate::statistics::{Better, median};

/// A table of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The text of an empty cell.
pub(super) const NOTHING: &str = "–";

impl Table {
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Table { head: head.map(str::to_owned).into(), rows: Vec::new() }
    }
}

/// Returns a metric of these cells by variant, with its ratio to the first variant's.
pub(super) fn of_cells(
    scenario: &Scenario<'_>,
    metric: &Metric,
    outcomes: &[Vec<Option<VariantResult>>],
    axes: &[usize],
    cells: &[usize],
) -> Table {
    let mut table = Table::default();
    table.head.extend(axes.iter().map(|&axis| scenario.axes[axis].name.to_owned()));
    table.head.extend(["variant".to_owned(), format!("{} [95 %]", metric.title()), "trials".to_owned()]);
    let compared = scenario.variants.len() > 1;
    if compared {
        table.head.extend([format!("ratio to {} [95 %]", scenario.variants[0]), "verdict".to_owned()]);
    }
    for &cell in cells {
        for (variant, name) in scenario.variants.iter().enumerate() {
            if scenario.cells[cell].tried[variant] == 0 {
                continue;
            }
            let place = axes.iter().map(|&axis| scenario.axes[axis].values[scenario.cells[cell].at[axis]].to_owned());
            let outcome = outcomes[cell][variant].as_ref();
            if outcome.is_none() && !scenario.cells[cell].trials[variant].is_empty() {
                // The variant's trials are valid, but do not have this metric.
                continue;
            }
            let mut row: Vec<String> = place.collect();
            row.push((*name).to_owned());
            let [shown, trials] = summary(outcome.map(|outcome| &outcome.summary));
            let least = || at_least(&scenario.cells[cell].least[variant], &metric.name);
            let least = if outcome.is_none() { least() } else { None };
            row.extend([least.unwrap_or(shown), trials]);
            if compared {
                row.extend(ratio(metric, variant, outcome));
            }
            table.rows.push(row);
        }
    }
    table
}

/// For a search that found no load too high, returns the greatest load tried. The result is at
/// least this load.
fn at_least(samples: &[&Sample], metric: &str) -> Option<String> {
    let values = BOUNDS.contains(&metric).then(|| samples.iter().filter_map(|sample| sample.metrics.get(metric)));
    let least = median(&values?.copied().collect::<Vec<_>>())?;
    Some(format!("at least {}", number(least)))
}

/// Returns a median with its interval, and the number of its trials.
pub(super) fn summary(summary: Option<&Summary>) -> [String; 2] {
    let Some(summary) = summary else { return ["no valid trial".to_owned(), "0".to_owned()] };
    [with_interval(summary, number), summary.n.to_string()]
}

/// Returns a ratio with its interval, and the verdict.
pub(super) fn ratio(metric: &Metric, variant: usize, outcome: Option<&VariantResult>) -> [String; 2] {
    let Some(ratio) = outcome.and_then(|outcome| outcome.ratio.as_ref()) else {
        return [if variant == 0 { "1" } else { NOTHING }, NOTHING].map(str::to_owned);
    };
    let verdict = ratio.verdict().map_or("cannot tell", |order| metric.says(order.is_gt()));
    [with_interval(ratio, short), verdict.to_owned()]
}

fn with_interval(summary: &Summary, number: fn(f64) -> String) -> String {
    match summary.interval {
        Some((low, high)) => format!("{} [{}, {}]", number(summary.median), number(low), number(high)),
        None => number(summary.median),
    }
}

/// Returns ratios by two axes, as a map shows them.
pub(super) fn of_map(down: &str, columns: &[&str], rows: &[&str], ratios: &[Vec<Option<Summary>>]) -> Table {
    let mut table = Table::default();
    table.head.push(down.to_owned());
    table.head.extend(columns.iter().map(|&column| column.to_owned()));
    for (row, ratios) in rows.iter().zip(ratios) {
        let texts =
            ratios.iter().map(|ratio| ratio.as_ref().map_or(NOTHING.to_owned(), |ratio| with_interval(ratio, short)));
        table.rows.push([(*row).to_owned()].into_iter().chain(texts).collect());
    }
    table
}

/// The finding for one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The metric, and the variant with which the others are compared.
    pub(super) about: String,
    /// A line for each variant but the first.
    pub(super) lines: Vec<String>,
}

/// Returns the finding for one metric.
pub(super) fn finding(scenario: &Scenario<'_>, metric: &Metric, outcomes: &[Vec<Option<VariantResult>>]) -> Finding {
    let cells = count(scenario.cells.len(), "cell");
    let title = metric.title();
    let (first, others) = scenario.variants.split_first().map_or(("", &[][..]), |(first, others)| (*first, others));
    if others.is_empty() {
        let medians = outcomes.iter().flatten().flatten().map(|outcome| outcome.summary.median);
        let what = spread(medians, number).unwrap_or_else(|| "no valid trial".to_owned());
        return Finding {
            about: format!("{title} of {first} in {cells}: {what}; nothing to compare it with"),
            lines: Vec::new(),
        };
    }
    let lines = others.iter().enumerate().map(|(variant, name)| {
        let ratios: Vec<Summary> = outcomes.iter().filter_map(|cell| cell[variant + 1].as_ref()?.ratio).collect();
        format!("{name}: {}", compared(metric, &ratios))
    });
    Finding { about: format!("{title} in {cells}, against {first}"), lines: lines.collect() }
}

/// Returns the verdict on the ratios of one variant, one for each cell.
fn compared(metric: &Metric, ratios: &[Summary]) -> String {
    match ratios {
        [] => "no cell has valid trials of both".to_owned(),
        [ratio] => {
            let verdict = ratio.verdict().map_or("no verdict", |order| metric.says(order.is_gt()));
            let few = if ratio.interval.is_none() { ", too few trials for an interval" } else { "" };
            format!("{verdict} (ratio {}{few})", with_interval(ratio, short))
        }
        ratios => {
            let of = |verdict: Option<Ordering>| ratios.iter().filter(move |ratio| ratio.verdict() == verdict);
            // The better direction comes first, if it is known.
            let mut orders = [Ordering::Greater, Ordering::Less];
            if metric.better == Some(Better::Less) {
                orders.reverse();
            }
            let told = orders.into_iter().filter_map(|order| {
                let spread = spread(of(Some(order)).map(|ratio| ratio.median), short)?;
                Some(format!("{} in {} (ratio {spread})", metric.says(order.is_gt()), of(Some(order)).count()))
            });
            let few = of(None).filter(|ratio| ratio.interval.is_none()).count();
            let why = if few == 0 { String::new() } else { format!(" ({few} with too few trials for an interval)") };
            let untold = of(None).count();
            let untold = (untold > 0).then(|| format!("no verdict in {untold}{why}"));
            told.chain(untold).collect::<Vec<String>>().join(", ")
        }
    }
}

/// Formats one value as `1.2`, and different values as `1.1 to 1.4`.
fn spread(values: impl Iterator<Item = f64>, name: fn(f64) -> String) -> Option<String> {
    let values: Vec<f64> = values.collect();
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    let (low, high) = (name(low), name(high));
    Some(if low == high { low } else { format!("{low} to {high}") })
}
