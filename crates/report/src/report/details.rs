//! The folded part of the page: for each scenario, the cells of all metrics, cycles by phase, and
//! latencies by percentile.

use std::collections::BTreeMap;

use super::distribution::Distribution;
use super::html::{Page, capital};
use super::model::{Panel, Scenario, pairs_in_words, plausible};
use super::plots::{Curves, Layout};
use super::tables::{self, Entry, Table};
use super::text::count;
use crate::results::Sample;
use crate::statistics::number;

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

/// The number of phases with a column of their own; if there are more, the smallest ones are
/// combined.
const PHASES: usize = 7;

/// The most plots of latencies in a scenario. The CSV file has the percentiles of all trials.
const PLOTS: usize = 12;

/// Writes the folded part of a scenario.
pub(super) fn write(page: &mut Page, scenario: &Scenario<'_>) {
    let (counted, all) = scenario.trials;
    page.open_details(&format!("{}: cells and tables", scenario.name), Some(scenario.name));
    let mut facts = vec![count(scenario.cells.len(), "cell"), count(scenario.variants.len(), "variant")];
    facts.push(format!("{}, {counted} of them valid", count(all, "trial")));
    if !scenario.fixed.is_empty() {
        facts.push(format!("all cells have {}", pairs_in_words(scenario.fixed.iter().copied())));
    }
    page.note(&format!("{}.", capital(&facts.join("; "))));
    if scenario.is_compared() {
        page.note(&format!(
            "Columns: the median of {}, and the ratios of the others to it; with their intervals.",
            scenario.reference()
        ));
    }
    for (metric, outcomes) in &scenario.metrics {
        let results = || outcomes.iter().flatten().flatten();
        let Some(first) = results().next() else { continue };
        page.heading(&capital(&metric.title()));
        if results().count() > 1 && results().all(|result| result.estimate.median == first.estimate.median) {
            page.note(&format!("{} everywhere.", number(first.estimate.median)));
            continue;
        }
        page.table(&tables::by_variant(scenario, metric, outcomes), &metric.title());
    }
    phases(page, scenario);
    latencies(page, scenario);
    page.close_details();
}

/// Writes cycles by phase: a row for each cell and variant, and a column for each phase.
fn phases(page: &mut Page, scenario: &Scenario<'_>) {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let valid = || scenario.cells.iter().flat_map(|cell| cell.trials.iter().flatten());
    for (phase, cycles) in valid().flat_map(|sample| &sample.cycles) {
        *sums.entry(phase).or_default() += if plausible(*cycles) { cycles.abs() } else { 0.0 };
    }
    if sums.is_empty() {
        return;
    }
    let mut phases: Vec<&str> = sums.keys().copied().collect();
    phases.sort_by(|a, b| sums[b].total_cmp(&sums[a]));
    let (own, rest) = phases.split_at(if phases.len() > PHASES + 1 { PHASES } else { phases.len() });
    // If a trial does not have a phase, the phase took 0 cycles in it.
    let share_of = |sample: &Sample, phases: &[&str]| {
        let cycles = |phase: &&str| sample.cycles.get(*phase).copied().unwrap_or(0.0);
        (!sample.cycles.is_empty()).then(|| phases.iter().map(cycles).sum())
    };
    let mut names = own.to_vec();
    let mut columns: Vec<_> = own.iter().map(|&phase| scenario.medians(|sample| share_of(sample, &[phase]))).collect();
    if !rest.is_empty() {
        names.push("all others");
        columns.push(scenario.medians(|sample| share_of(sample, rest)));
    }
    names.push("sum");
    columns.push(scenario.medians(|sample| share_of(sample, &phases)));
    let mut table = Table::default();
    table.head.extend(scenario.axes.iter().map(|axis| axis.name.to_owned()));
    table.head.push("variant".to_owned());
    table.head.extend(names.iter().map(|&name| name.to_owned()));
    for cell in 0..scenario.cells.len() {
        for (variant, name) in scenario.variants.iter().enumerate() {
            let medians = || columns.iter().map(|column| column[cell][variant].map(|estimate| estimate.median));
            if medians().all(|median| median.is_none()) {
                continue;
            }
            let place = scenario.place(cell).map(|(_, value)| value).chain([*name]);
            let texts = medians().map(|median| median.map_or_else(String::new, number));
            table.rows.push(place.map(Entry::from).chain(texts.map(Entry::from)).collect());
        }
    }
    page.heading("Cycles by phase (cycles/packet)");
    page.note("The median of each phase, and the median of the trials' sums.");
    page.table(&table, "Cycles by phase");
}

/// Plots latencies by percentile: a curve for each variant, or, if there is only one, for each
/// value of an axis.
fn latencies(page: &mut Page, scenario: &Scenario<'_>) {
    let together = |cell: usize, variant: usize| {
        Distribution::of(scenario.cells[cell].trials[variant].iter().filter_map(|sample| sample.latency.as_ref()))
    };
    let cells = 0..scenario.cells.len();
    let distributions: Vec<Vec<Option<Distribution>>> =
        cells.map(|cell| (0..scenario.variants.len()).map(|variant| together(cell, variant)).collect()).collect();
    if distributions.iter().flatten().flatten().next().is_none() {
        return;
    }
    page.heading("Latency by percentile");
    page.note(
        "Curves combine the packets of all trials, and end at the last packet. The table has the percentiles for \
         which a trial has enough packets.",
    );
    let across = if scenario.is_compared() { None } else { scenario.across() };
    let percentiles = PERCENTILES.map(|(name, one_in)| {
        let microseconds = |sample: &Sample| {
            let ns = Distribution::of(&sample.latency)?.above(one_in)? as f64;
            Some(ns / 1e3)
        };
        (name, one_in, scenario.medians(microseconds))
    });
    let panels = scenario.panels(across);
    let has_packets = |panel: &&Panel| panel.cells.iter().any(|&cell| distributions[cell].iter().any(Option::is_some));
    for panel in panels.iter().filter(has_packets).take(PLOTS) {
        let curves = panel.cells.iter().flat_map(|&cell| {
            let variants = scenario.variants.iter().enumerate();
            variants.map(move |(variant, name)| {
                let of_cell = across.map(|axis| scenario.axes[axis].values[scenario.cells[cell].at[axis]]);
                (of_cell.unwrap_or(name), cell, variant)
            })
        });
        let curves: Vec<(&str, usize, usize)> = curves.collect();
        let mut table = Table::new(["percentile", "of", "µs, median of trials [95 %]", "trials", "µs, all packets"]);
        for (percentile, one_in, medians) in &percentiles {
            for &(name, cell, variant) in &curves {
                let all = distributions[cell][variant].as_ref().and_then(|all| all.above(*one_in));
                let (Some(median), Some(all)) = (&medians[cell][variant], all) else { continue };
                let trials = median.samples.to_string();
                table.push([*percentile, name, &tables::with_interval(median), &trials, &microseconds(all)]);
            }
        }
        for &(name, cell, variant) in &curves {
            let Some(all) = &distributions[cell][variant] else { continue };
            let trials = scenario.cells[cell].trials[variant].iter().filter(|sample| sample.latency.is_some()).count();
            let packets = format!("{} packets", all.packets());
            table.push(["most", name, &packets, &trials.to_string(), &microseconds(all.most())]);
        }
        let by = across.map_or(String::new(), |axis| format!(" and {}", scenario.axes[axis].name));
        let title = titled(scenario, &format!("Latency by percentile{by}"), panel);
        let series = curves.iter().map(|&(name, cell, variant)| (name, distributions[cell][variant].as_ref()));
        let plot = Curves { id: page.id(), title: title.clone(), series: series.collect() };
        page.figure(&title, Layout::ALL.map(|layout| plot.draw(layout)));
        page.table(&table, &title);
    }
    let left_out = panels.iter().filter(has_packets).count().saturating_sub(PLOTS);
    if left_out > 0 {
        page.note(&format!("{} left out; the CSV file has the percentiles.", count(left_out, "more plot")));
    }
}

fn microseconds(ns: u64) -> String {
    number(ns as f64 / 1e3)
}

fn titled(scenario: &Scenario<'_>, what: &str, panel: &Panel<'_>) -> String {
    let place =
        if panel.common.is_empty() { scenario.name.to_owned() } else { pairs_in_words(panel.common.iter().copied()) };
    capital(&format!("{what}; {place}"))
}
