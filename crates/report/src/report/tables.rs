//! Values as tables, for the page and for Markdown alike.

use super::model::{Outcomes, Scenario, VariantResult};
use super::text::count;
use crate::results::{MemoryBounds, Reasons, Sample};
use crate::statistics::{Effect, Estimate, Metric, Outcome, counts, number};

/// A table of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<Entry>>,
}

/// An entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) text: String,
    /// The outcome of a comparison, which the page shows as a colour.
    pub(super) outcome: Option<Outcome>,
}

impl<T: Into<String>> From<T> for Entry {
    fn from(text: T) -> Self {
        Entry { text: text.into(), outcome: None }
    }
}

/// The text of an empty cell.
pub(super) const NOTHING: &str = "–";

impl Table {
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Table { head: head.map(str::to_owned).into(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: impl IntoIterator<Item = impl Into<Entry>>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }
}

/// Returns the finding of a scenario: a row for each variant that is compared, with the smallest and
/// the largest ratio of its headline metric, and the number of cells with each outcome. Without a
/// comparison it has the medians. `None` if no trial has a metric.
pub(super) fn finding(scenario: &Scenario<'_>) -> Option<Table> {
    let (metric, outcomes) = scenario.metrics.first()?;
    let (first, others) = scenario.variants.split_first()?;
    let title = metric.title();
    if others.is_empty() {
        let mut table = Table::new(["variant", &title, "cells"]);
        let results: Vec<&VariantResult> = outcomes.iter().filter_map(|results| results[0].as_ref()).collect();
        let by_value = |a: &&&VariantResult, b: &&&VariantResult| a.estimate.median.total_cmp(&b.estimate.median);
        let text = |of: &&VariantResult| match results[..] {
            [_, _, ..] if !of.is_at_least => number(of.estimate.median),
            _ => median(of),
        };
        let ends = [results.iter().min_by(by_value), results.iter().max_by(by_value)].map(|end| end.map(text));
        table.push([(*first).to_owned(), range(ends), results.len().to_string()]);
        return Some(table);
    }
    let mut table = Table::new(["variant", &format!("{title}: ratio to {}", scenario.reference()), "cells"]);
    for (variant, name) in scenario.variants.iter().enumerate() {
        let effects: Vec<Option<Effect>> = scenario.effects(outcomes, variant).collect();
        // The first one of each of its cells.
        if effects.is_empty() {
            continue;
        }
        let outcome = |effect: &Option<Effect>| effect.map_or(Outcome::Unclear, |of| of.outcome(metric.better));
        let outcomes: Vec<Outcome> = effects.iter().map(outcome).collect();
        let by_value = |a: &&Effect, b: &&Effect| a.value().total_cmp(&b.value());
        let known = || effects.iter().flatten();
        let text = |of: &Effect| of.shown() + if effects.len() == 1 { of.brackets() } else { String::new() }.as_str();
        let ends = [known().min_by(by_value), known().max_by(by_value)].map(|end| end.map(text));
        // A colour tells what is so in all cells.
        let all = outcomes.first().copied().filter(|first| outcomes.iter().all(|outcome| outcome == first));
        let ratio = Entry { text: range(ends), outcome: all };
        table.push([(*name).into(), ratio, counts(&outcomes).into()]);
    }
    Some(table)
}

/// Metrics that say how many bytes a switch has moved.
const MOVED: [&str; 2] = ["gbit_per_s", "payload_gbit_per_s"];

/// Returns the greatest throughput of each variant of a scenario, as a share of what this machine can
/// copy within the last cache level and in memory. `None` if the scenario has no throughput in bits.
pub(super) fn shares(scenario: &Scenario<'_>, bounds: &MemoryBounds) -> Option<Table> {
    let measured = |name: &&str| scenario.metrics.iter().find(|(metric, _)| metric.name == **name);
    let (metric, outcomes) = MOVED.iter().find_map(measured)?;
    let levels = &bounds.levels[bounds.levels.len().saturating_sub(2)..];
    let mut table = Table::new(["variant", &format!("{}, greatest cell", metric.title())]);
    table
        .head
        .extend(levels.iter().map(|level| format!("of a copy in {} ({:.1} GB/s)", level.name, level.copy_gb_per_s)));
    for (variant, name) in scenario.variants.iter().enumerate() {
        let medians = outcomes.iter().filter_map(|results| Some(results[variant].as_ref()?.estimate.median));
        let Some(most) = medians.reduce(f64::max) else { continue };
        let share = levels.iter().map(|level| format!("{:.0} %", most / 8.0 / level.copy_gb_per_s * 100.0));
        table.push([(*name).to_owned(), number(most)].into_iter().chain(share));
    }
    Some(table)
}

/// The words that explain [`shares`].
pub(super) const SHARES: &str = "The machine's bound is a copy from one half of a buffer to the other, on one CPU. Each byte of a frame that arrives \
     counts once, however often the switch copies it.";

/// Formats the two ends of a range.
fn range(ends: [Option<String>; 2]) -> String {
    match ends {
        [Some(low), Some(high)] if low == high => low,
        [Some(low), Some(high)] => format!("{low} to {high}"),
        _ => NOTHING.to_owned(),
    }
}

/// Returns a metric as a row for each cell and a column for each variant: the median of the first
/// variant, and the effects of the others.
pub(super) fn by_variant(scenario: &Scenario<'_>, metric: &Metric, outcomes: &Outcomes) -> Table {
    let mut table = Table::default();
    table.head.extend(scenario.axes.iter().map(|axis| axis.name.to_owned()));
    table.head.extend(scenario.variants.iter().map(|&variant| variant.to_owned()));
    for (cell, results) in outcomes.iter().enumerate() {
        let entry = |(variant, result): (usize, &Option<VariantResult>)| match result {
            None if scenario.cells[cell].tried[variant] == 0 => Entry::default(),
            None => NOTHING.into(),
            Some(VariantResult { effect: Some(effect), .. }) => Entry {
                text: format!("{}{}", effect.shown(), effect.brackets()),
                outcome: Some(effect.outcome(metric.better)),
            },
            // Without a comparison, all that is known is the median.
            Some(result) => median(result).into(),
        };
        let place = scenario.place(cell).map(|(_, value)| value.into());
        table.rows.push(place.chain(results.iter().enumerate().map(entry)).collect());
    }
    table
}

/// Returns a metric as a row for each cell and variant, with medians and effects.
pub(super) fn by_cell(scenario: &Scenario<'_>, metric: &Metric, outcomes: &Outcomes) -> Table {
    let mut table = Table::default();
    table.head.extend(scenario.axes.iter().map(|axis| axis.name.to_owned()));
    table.head.extend(["variant".to_owned(), format!("{} [95 %]", metric.title()), "trials".to_owned()]);
    if scenario.is_compared() {
        table.head.extend([
            format!("ratio to {} [{} %]", scenario.reference(), scenario.looks.percent()),
            "outcome".to_owned(),
        ]);
    }
    for (cell, results) in outcomes.iter().enumerate() {
        for (variant, name) in scenario.variants.iter().enumerate() {
            let result = results[variant].as_ref();
            let Some(result) = result else {
                // Without any valid trial, the row says so. Otherwise the trials have no such metric.
                if scenario.cells[cell].tried[variant] > 0 && scenario.cells[cell].trials[variant].is_empty() {
                    let place = scenario.place(cell).map(|(_, value)| value);
                    let empty = [*name, "no valid trial", "0"];
                    let rest = if scenario.is_compared() { &[NOTHING, NOTHING][..] } else { &[] };
                    table.push(place.chain(empty).chain(rest.iter().copied()));
                }
                continue;
            };
            let mut row: Vec<Entry> = scenario.place(cell).map(|(_, value)| value.into()).collect();
            row.extend([(*name).into(), median(result).into(), result.estimate.samples.to_string().into()]);
            if scenario.is_compared() {
                row.extend(match &result.effect {
                    Some(effect) => [
                        format!("{}{}", effect.shown(), effect.brackets()).into(),
                        effect.outcome(metric.better).words().into(),
                    ],
                    None => {
                        [if variant == scenario.cells[cell].first() { "1" } else { NOTHING }.into(), NOTHING.into()]
                    }
                });
            }
            table.rows.push(row);
        }
    }
    table
}

/// Formats the median of a result, with its interval. For a search that found no load too high, the
/// greatest load tried is a lower bound.
pub(super) fn median(result: &VariantResult) -> String {
    if result.is_at_least {
        return format!("at least {}", number(result.estimate.median));
    }
    with_interval(&result.estimate)
}

/// Formats a median with its interval.
pub(super) fn with_interval(estimate: &Estimate) -> String {
    match estimate.interval {
        Some(within) => format!("{} [{}, {}]", number(estimate.median), number(within.low), number(within.high)),
        None => number(estimate.median),
    }
}

/// Returns the reasons of trials that are not valid, each with the number of trials.
pub(super) fn invalid(samples: &[Sample]) -> Table {
    let mut reasons = Reasons::default();
    for sample in samples {
        if let Some(reason) = sample.validity.reason() {
            reasons.add((sample.scenario.as_str(), sample.variant.as_str()), reason);
        }
    }
    let mut table = Table::new(["scenario", "variant", "trials", "reason"]);
    for ((scenario, variant), reason, trials) in reasons.all() {
        table.push([scenario, variant, &count(trials, "trial"), &reason]);
    }
    table
}
