//! The table of results: medians, spreads, shares of the bound and ratios, as Markdown.

use straightline_lab::rounds::table::{self, Row, Series, fixed, ratio_to, spread};
use straightline_report::results::Sample;

use super::options::LoopCell;
use crate::measure::{Candidate, Cell as _, SwitchKind};

/// Metrics in the table: name, title, digits.
const SHOWN: [(&str, &str, usize); 5] = [
    ("gbit_per_s", "iperf3, Gbit/s", 2),
    ("worker_busy_percent", "worker busy, % of the time", 0),
    (PER_BUSY, "Gbit for a second of the worker's time", 2),
    ("cycles_per_frame", "cycles a frame", 0),
    ("retransmits", "retransmits", 0),
];

/// The metric of which the bound has a value too.
const PER_BUSY: &str = "gbit_per_busy_s";

/// Returns a table with rows for the metrics of each path, and a column for each switch.
pub(super) fn markdown(switches: &[Candidate], samples: &[Sample]) -> String {
    let names: Vec<&str> = switches.iter().map(|switch| switch.name.as_str()).collect();
    let series = |cell: &LoopCell, metric: &str| -> Vec<Series> {
        let row = Row::new(samples, &cell.axes(), names.iter().copied());
        row.map_or_else(|| vec![Series::new(); names.len()], |row| row.series(metric))
    };
    let bound = switches.iter().position(|switch| switch.kind == SwitchKind::Kernel);
    let first = switches.iter().position(|switch| matches!(switch.kind, SwitchKind::Ours(_)));
    let mut rows = Vec::new();
    for cell in LoopCell::ALL {
        let mut add = |title: &str, columns: Vec<Option<String>>| {
            let columns = columns.into_iter().map(Option::unwrap_or_default);
            rows.push([cell.to_string(), title.to_owned()].into_iter().chain(columns).collect::<Vec<_>>());
        };
        for (metric, title, digits) in SHOWN {
            add(title, series(&cell, metric).iter().map(|own| spread(own, fixed(digits))).collect());
        }
        let per_busy = series(&cell, PER_BUSY);
        for (title, other) in [("share of the bound", bound), ("ratio to the first switch", first)] {
            let Some(other) = other else { continue };
            add(title, ratios(&per_busy, other));
        }
    }
    let [plain, tunnel] = LoopCell::ALL;
    for (metric, title) in [("gbit_per_s", "iperf3"), (PER_BUSY, "for a second of the worker's time")] {
        let pairs = series(&tunnel, metric).into_iter().zip(series(&plain, metric));
        let columns = pairs.map(|(own, other)| ratio_to(&own, &other, 3).unwrap_or_default());
        let begin = [format!("{tunnel} / {plain}"), title.to_owned()];
        rows.push(begin.into_iter().chain(columns).collect());
    }
    let head: Vec<&str> = ["path", "metric"].into_iter().chain(names.iter().copied()).collect();
    format!(
        "Medians (smallest-largest); ratios of the medians [95 % interval, from six rounds on]; shares and ratios of \
         switches are of what a second of the worker's time moves.\n\n{}",
        table::markdown(&head, &rows)
    )
}

/// Returns the ratio of each switch to another one.
fn ratios(all: &[Series], other: usize) -> Vec<Option<String>> {
    let ratio = |(at, own): (usize, &Series)| if at == other { None } else { ratio_to(own, &all[other], 2) };
    all.iter().enumerate().map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_shares_of_the_bound_and_ratios_of_the_tunnel() {
        let read = |name: &str| Candidate::read(name, &[("bound", SwitchKind::Kernel)]).expect("a switch");
        let switches = [read("bound"), read("scalar=bin/s"), read("avx2=bin/s")];
        let sample = |round, cell: LoopCell, variant: &str, metrics: &[(&str, f64)]| Sample {
            round,
            variant: variant.to_owned(),
            cell: cell.axes(),
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Sample::default()
        };
        let [plain, tunnel] = LoopCell::ALL;
        let samples: Vec<Sample> = (1..=6)
            .flat_map(|round| {
                [
                    sample(round, plain, "bound", &[(PER_BUSY, 10.0)]),
                    sample(round, plain, "scalar", &[(PER_BUSY, 4.0), ("gbit_per_s", 3.0)]),
                    sample(round, plain, "avx2", &[(PER_BUSY, 5.0), ("gbit_per_s", 4.0)]),
                    sample(round, tunnel, "avx2", &[(PER_BUSY, 4.5), ("gbit_per_s", 3.8)]),
                ]
            })
            .collect();
        let text = markdown(&switches, &samples);
        for row in [
            "| path | metric | bound | scalar | avx2 |\n",
            "| plain | iperf3, Gbit/s |  | 3.00 (3.00-3.00) | 4.00 (4.00-4.00) |\n",
            "| plain | share of the bound |  | 0.40 [0.40, 0.40] | 0.50 [0.50, 0.50] |\n",
            "| plain | ratio to the first switch | 2.50 [2.50, 2.50] |  | 1.25 [1.25, 1.25] |\n",
            "| l2tpv3 | Gbit for a second of the worker's time |  |  | 4.50 (4.50-4.50) |\n",
            "| l2tpv3 / plain | iperf3 |  |  | 0.950 [0.950, 0.950] |\n",
            "| l2tpv3 / plain | for a second of the worker's time |  |  | 0.900 [0.900, 0.900] |\n",
        ] {
            assert!(text.contains(row), "{row} in {text}");
        }
    }
}
