//! One scenario of the page: the plots that its samples allow, each with its table.

use std::collections::BTreeMap;

use super::distribution::Distribution;
use super::html::{self, Page};
use super::metric::Metric;
use super::model::{Panel, Scenario, pairs_in_words};
use super::plots::{Curves, Groups, Layout, Map, Stack, Stacks};
use super::summary::{Summary, VariantResult};
use super::tables::{self, Table, finding};
use super::text::{count, escape};
use crate::results::Sample;
use crate::statistics::Better;

/// Percentiles of the tables: their names, and the share of packets above them.
const PERCENTILES: [(&str, u32); 7] = [
    ("50 %", 2),
    ("90 %", 10),
    ("99 %", 100),
    ("99.9 %", 1_000),
    ("99.99 %", 10_000),
    ("99.999 %", 100_000),
    ("99.9999 %", 1_000_000),
];

/// The number of phases with a colour of their own; if there are more, the smallest ones are
/// combined.
const PHASES: usize = 7;

/// Writes a scenario's section.
pub(super) fn write(page: &mut Page, scenario: &Scenario<'_>) {
    let (counted, all) = scenario.trials;
    page.push(&format!("<h2 id=\"{}\">{}</h2>\n", page.anchor(scenario.name), escape(scenario.name)));
    let mut facts = vec![count(scenario.cells.len(), "cell"), count(scenario.variants.len(), "variant")];
    facts.push(format!("{}, {counted} of them valid", count(all, "trial")));
    if !scenario.fixed.is_empty() {
        facts.push(format!("all cells have {}", pairs_in_words(scenario.fixed.iter().copied())));
    }
    page.push(&format!("<p class=\"soft\">{}.</p>\n", escape(&facts.join("; "))));
    for (place, (metric, outcomes)) in scenario.metrics.iter().enumerate() {
        plots(page, scenario, metric, outcomes, place == 0);
    }
    cycles(page, scenario);
    latencies(page, scenario);
}

/// Plots one metric: bars by the horizontal axis, and a map if there are two axes.
fn plots(
    page: &mut Page,
    scenario: &Scenario<'_>,
    metric: &Metric,
    outcomes: &[Vec<Option<VariantResult>>],
    open: bool,
) {
    let all = || outcomes.iter().flatten().flatten();
    let Some(first) = all().next() else { return };
    if all().all(|outcome| outcome.summary.median == first.summary.median) && all().count() > 1 {
        let value = super::text::number(first.summary.median);
        page.push(&format!("<p>{}: {value} everywhere.</p>\n", escape(&metric.title())));
        return;
    }
    page.open_details(&metric.title(), open);
    if !(open && page.is_short()) {
        page.finding(&finding(scenario, metric, outcomes));
    }
    page.note(
        "Whiskers are 95 % intervals of the medians, which need at least six trials. × marks a place without a \
     valid trial.",
    );
    let across = scenario.across();
    let also: Vec<f64> = all().flat_map(|outcome| Groups::values(&outcome.summary)).collect();
    for panel in scenario.panels(across, None) {
        let cells: Vec<usize> = panel.rows.iter().flatten().copied().flatten().collect();
        let axis = across.map(|axis| &scenario.axes[axis]);
        let by = axis.map_or(String::new(), |axis| format!(" by {}", axis.name));
        let summary = |cell: usize| -> Vec<Option<Summary>> {
            (0..scenario.variants.len()).map(|variant| Some(outcomes[cell][variant].as_ref()?.summary)).collect()
        };
        // A cell that was never measured gets no mark. The mark says that all trials of a cell were
        // invalid.
        let measured = || panel.rows[0].iter().enumerate().filter_map(|(value, cell)| Some((value, (*cell)?)));
        let title = titled(scenario, &format!("{}{by}", metric.title()), &panel);
        let groups = Groups {
            id: page.id(),
            title: title.clone(),
            across: axis.map_or("", |axis| axis.name),
            up: metric.title(),
            groups: measured()
                .map(|(value, _)| axis.map_or_else(String::new, |axis| axis.values[value].to_owned()))
                .collect(),
            series: scenario.variants.clone(),
            summaries: measured().map(|(_, cell)| summary(cell)).collect(),
            also: also.clone(),
        };
        let axes: Vec<usize> = across.into_iter().collect();
        let table = tables::of_cells(scenario, metric, outcomes, &axes, &cells);
        page.figure(&title, Layout::ALL.map(|layout| groups.draw(layout)), &table);
    }
    maps(page, scenario, metric, outcomes);
    page.close_details();
}

fn maps(page: &mut Page, scenario: &Scenario<'_>, metric: &Metric, outcomes: &[Vec<Option<VariantResult>>]) {
    let Some(across) = scenario.across() else { return };
    let Some(down) = scenario.down(across) else { return };
    let (columns, rows) = (&scenario.axes[across], &scenario.axes[down]);
    for (variant, name) in scenario.variants.iter().enumerate().skip(1) {
        for panel in scenario.panels(Some(across), Some(down)) {
            let ratio = |cell: &Option<usize>| outcomes[(*cell)?][variant].as_ref()?.ratio;
            let ratios: Vec<Vec<Option<Summary>>> =
                panel.rows.iter().map(|row| row.iter().map(ratio).collect()).collect();
            if ratios.iter().flatten().flatten().next().is_none() {
                continue;
            }
            let what = format!("{}: ratio of {name} to {}", metric.title(), scenario.variants[0]);
            let title = titled(scenario, &what, &panel);
            let map = Map {
                id: page.id(),
                title: title.clone(),
                across: columns.name,
                down: rows.name,
                columns: &columns.values,
                rows: &rows.values,
                ratios: ratios.clone(),
                says: (metric.says(false), metric.says(true)),
                more: metric.better != Some(Better::Less),
            };
            let table = tables::of_map(rows.name, &columns.values, &rows.values, &ratios);
            page.figure(&title, Layout::ALL.map(|layout| map.draw(layout)), &table);
        }
    }
}

/// Plots cycles by phase, stacked.
fn cycles(page: &mut Page, scenario: &Scenario<'_>) {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let valid = || scenario.cells.iter().flat_map(|cell| cell.trials.iter().flatten());
    for (phase, cycles) in valid().flat_map(|sample| &sample.cycles) {
        *sums.entry(phase).or_default() += if super::summary::plausible(*cycles) { cycles.abs() } else { 0.0 };
    }
    if sums.is_empty() {
        return;
    }
    let mut phases: Vec<&str> = sums.keys().copied().collect();
    phases.sort_by(|a, b| sums[b].total_cmp(&sums[a]));
    let (own, rest) = phases.split_at(if phases.len() > PHASES + 1 { PHASES } else { phases.len() });
    // If a trial does not have a phase, the phase took 0 cycles in it.
    let of = |sample: &Sample, phases: &[&str]| {
        let cycles = |phase: &&str| sample.cycles.get(*phase).copied().unwrap_or(0.0);
        (!sample.cycles.is_empty()).then(|| phases.iter().map(cycles).sum())
    };
    let mut names = own.to_vec();
    let mut outcomes: Vec<_> = own.iter().map(|&phase| scenario.alone(|sample| of(sample, &[phase]))).collect();
    if !rest.is_empty() {
        names.push("all others");
        outcomes.push(scenario.alone(|sample| of(sample, rest)));
    }
    let sum = scenario.outcomes(|sample| of(sample, &phases));
    let metric = Metric::new("switch_cycles_per_packet");
    page.open_details("cycles by phase (cycles/packet)", true);
    page.finding(&finding(scenario, &metric, &sum));
    page.note("The values are medians of each phase; the end of a bar shows the median of the trials' sums.");
    let across = scenario.across();
    let median = |outcomes: &[Vec<Option<VariantResult>>], cell: usize, variant: usize| {
        outcomes[cell][variant].as_ref().map(|outcome| outcome.summary.median)
    };
    let height = |cell: usize, variant: usize| -> f64 {
        outcomes.iter().filter_map(|phase| median(phase, cell, variant)).map(|cycles| cycles.max(0.0)).sum()
    };
    let places =
        (0..scenario.cells.len()).flat_map(|cell| (0..scenario.variants.len()).map(move |variant| (cell, variant)));
    let also = places.map(|(cell, variant)| height(cell, variant)).fold(0.0, f64::max);
    for panel in scenario.panels(across, None) {
        let mut groups = Vec::new();
        let mut table = Table::default();
        table.head.extend(across.map(|axis| scenario.axes[axis].name.to_owned()));
        table.head.extend(["variant", "phase", "cycles/packet [95 %]", "trials"].map(str::to_owned));
        for (value, cell) in panel.rows[0].iter().enumerate() {
            let Some(cell) = *cell else { continue };
            let place = across.map(|axis| scenario.axes[axis].values[value]);
            let mut bars = Vec::new();
            for (variant, name) in scenario.variants.iter().enumerate() {
                let Some(total) = &sum[cell][variant] else { continue };
                let heights = outcomes.iter().map(|phase| median(phase, cell, variant).unwrap_or(0.0)).collect();
                bars.push((*name, heights, total.summary.median));
                let parts = names.iter().zip(&outcomes).map(|(name, phase)| (*name, &phase[cell][variant]));
                for (phase, outcome) in parts.chain([("sum", &sum[cell][variant])]) {
                    if outcome.as_ref().is_some_and(|outcome| outcome.summary.is_nothing()) {
                        continue;
                    }
                    let mut row: Vec<String> = place.map(str::to_owned).into_iter().collect();
                    row.extend([(*name).to_owned(), phase.to_owned()]);
                    row.extend(tables::summary(outcome.as_ref().map(|outcome| &outcome.summary)));
                    table.rows.push(row);
                }
            }
            if !bars.is_empty() {
                let name = across.map_or(String::new(), |axis| {
                    format!("{} {}", scenario.axes[axis].name, scenario.axes[axis].values[value])
                });
                groups.push(Stack { name, bars });
            }
        }
        if groups.is_empty() {
            continue;
        }
        let title = titled(scenario, "Cycles by phase", &panel);
        let stacks = Stacks {
            id: page.id(),
            title: title.clone(),
            across: "cycles/packet",
            phases: names.clone(),
            groups,
            also,
        };
        page.figure(&title, Layout::ALL.map(|layout| stacks.draw(layout)), &table);
    }
    page.close_details();
}

/// Plots latencies by percentile: a curve for each variant, or, if there is only one, for each
/// value of the horizontal axis.
fn latencies(page: &mut Page, scenario: &Scenario<'_>) {
    let together = |cell: usize, variant: usize| {
        Distribution::of(scenario.cells[cell].trials[variant].iter().filter_map(|sample| sample.latency.as_ref()))
    };
    let cells = 0..scenario.cells.len();
    let distributions: Vec<Vec<Option<Distribution>>> =
        cells.map(|cell| (0..scenario.variants.len()).map(|variant| together(cell, variant)).collect()).collect();
    let known = || distributions.iter().flatten().flatten();
    let Some(least) = known().map(Distribution::least).min() else { return };
    let range = (least, known().map(Distribution::most).max().unwrap_or(least));
    page.open_details("latency by percentile", true);
    page.note(
        "Curves combine the packets of all trials, and end at the last packet. The table has the percentiles for \
         which a trial has enough packets.",
    );
    let alone = scenario.variants.len() == 1;
    let across = if alone { scenario.across() } else { None };
    let percentiles = PERCENTILES.map(|(name, one_in)| {
        let microseconds = |sample: &Sample| {
            let ns = Distribution::of(&sample.latency)?.above(one_in)? as f64;
            Some(ns / 1e3)
        };
        (name, one_in, scenario.alone(microseconds))
    });
    for panel in scenario.panels(across, None) {
        let mut series = Vec::new();
        let mut table = Table::new(["percentile", "of", "µs, median of trials [95 %]", "trials", "µs, all packets"]);
        let mut curves = Vec::new();
        for (place, cell) in panel.rows[0].iter().enumerate() {
            let Some(cell) = *cell else { continue };
            for (variant, name) in scenario.variants.iter().enumerate() {
                let name = across.map_or(*name, |axis| scenario.axes[axis].values[place]);
                curves.push((name, cell, variant));
                series.push((name, distributions[cell][variant].as_ref()));
            }
        }
        if series.iter().all(|series| series.1.is_none()) {
            continue;
        }
        for (percentile, one_in, outcomes) in &percentiles {
            for &(name, cell, variant) in &curves {
                let all = distributions[cell][variant].as_ref().and_then(|all| all.above(*one_in));
                let (Some(outcome), Some(all)) = (&outcomes[cell][variant], all) else { continue };
                let [median, trials] = tables::summary(Some(&outcome.summary));
                table.rows.push(vec![(*percentile).to_owned(), name.to_owned(), median, trials, microseconds(all)]);
            }
        }
        for &(name, cell, variant) in &curves {
            let Some(all) = &distributions[cell][variant] else { continue };
            let packets = format!("{} packets", all.packets());
            let trials = scenario.cells[cell].trials[variant].iter().filter(|sample| sample.latency.is_some()).count();
            table.rows.push(vec![
                "most".to_owned(),
                name.to_owned(),
                packets,
                trials.to_string(),
                microseconds(all.most()),
            ]);
        }
        let by = across.map_or(String::new(), |axis| format!(" and {}", scenario.axes[axis].name));
        let title = titled(scenario, &format!("Latency by percentile{by}"), &panel);
        let plot = Curves { id: page.id(), title: title.clone(), series, range };
        page.figure(&title, Layout::ALL.map(|layout| plot.draw(layout)), &table);
    }
    page.close_details();
}

fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    super::text::number(us)
}

fn titled(scenario: &Scenario<'_>, what: &str, panel: &Panel<'_>) -> String {
    let place =
        if panel.common.is_empty() { scenario.name.to_owned() } else { pairs_in_words(panel.common.iter().copied()) };
    html::capital(&format!("{what}; {place}"))
}
