//! Samples in the order in which a report shows them: by scenario, cell and variant, with the
//! metrics of each.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::Metric;
use super::summary::{Summary, Trial, VariantResult, plausible};
use crate::results::Sample;

/// An axis on which cells differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    /// The values on the axis. Values that begin with a number are sorted by it; others are in
    /// their order of appearance.
    pub(super) values: Vec<&'a str>,
}

/// The trials of one cell.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    /// The cell: the index of its value on each axis.
    pub(super) at: Vec<usize>,
    /// The valid trials, by variant.
    pub(super) trials: Vec<Vec<&'a Sample>>,
    /// The number of all trials, by variant, including trials that are not valid.
    pub(super) tried: Vec<usize>,
    /// The trials, by variant, that are not valid because they found only a lower bound of the
    /// result.
    pub(super) least: Vec<Vec<&'a Sample>>,
}

/// Everything that was measured under one name.
#[derive(Debug)]
pub(super) struct Scenario<'a> {
    pub(super) name: &'a str,
    /// The variants, in their order of appearance. All others are compared with the first one.
    pub(super) variants: Vec<&'a str>,
    pub(super) axes: Vec<Axis<'a>>,
    /// The axes with the same value in all cells.
    pub(super) fixed: Vec<(&'a str, &'a str)>,
    pub(super) cells: Vec<Cell<'a>>,
    /// The metrics, each with its results by cell and variant.
    pub(super) metrics: Vec<(Metric, Vec<Vec<Option<VariantResult>>>)>,
    /// The numbers of valid trials, and of all.
    pub(super) trials: (usize, usize),
}

/// Cells that differ only on the axes of one plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Panel<'a> {
    /// The axes and values that all cells of the panel share.
    pub(super) common: Vec<(&'a str, &'a str)>,
    /// The cell for each value of the horizontal axis, in each row. Without a horizontal axis, a
    /// row has one cell.
    pub(super) rows: Rows,
}

/// Cells by row and column.
type Rows = Vec<Vec<Option<usize>>>;

/// The value that stands for cells without this axis.
const NONE: &str = "–";

impl<'a> Scenario<'a> {
    /// Returns all scenarios, in their order of appearance.
    pub(super) fn all(samples: &'a [Sample]) -> Vec<Self> {
        let names = distinct(samples.iter().map(|sample| sample.scenario.as_str()));
        names.into_iter().map(|name| Scenario::new(name, samples)).collect()
    }

    fn new(name: &'a str, samples: &'a [Sample]) -> Self {
        let samples: Vec<&Sample> = samples.iter().filter(|sample| sample.scenario == name).collect();
        let variants = distinct(samples.iter().map(|sample| sample.variant.as_str()));
        let (mut axes, mut fixed) = (Vec::new(), Vec::new());
        for axis in distinct(samples.iter().flat_map(|sample| sample.cell.keys().map(String::as_str))) {
            let mut values = distinct(samples.iter().map(|sample| value(sample, axis)));
            if let [only] = values[..] {
                fixed.push((axis, only));
            } else {
                // A stable sort: values without a number stay at the end, in their order of
                // appearance.
                values.sort_by(|a, b| leading(a).total_cmp(&leading(b)));
                axes.push(Axis { name: axis, values });
            }
        }
        let mut cells: BTreeMap<Vec<usize>, Cell> = BTreeMap::new();
        for sample in &samples {
            let place = |axis: &Axis| axis.values.iter().position(|&known| known == value(sample, axis.name));
            let at: Vec<usize> = axes.iter().map(|axis| place(axis).unwrap_or(0)).collect();
            let empty = || Cell {
                at: at.clone(),
                trials: vec![Vec::new(); variants.len()],
                tried: vec![0; variants.len()],
                least: vec![Vec::new(); variants.len()],
            };
            let cell = cells.entry(at.clone()).or_insert_with(empty);
            let Some(variant) = variants.iter().position(|&known| known == sample.variant) else { continue };
            cell.tried[variant] += 1;
            if sample.is_valid() {
                cell.trials[variant].push(sample);
            } else if sample.is_at_least() {
                cell.least[variant].push(sample);
            }
        }
        let cells = cells.into_values().collect();
        let count = samples.iter().filter(|sample| sample.is_valid()).count();
        let mut scenario =
            Scenario { name, variants, axes, fixed, cells, metrics: Vec::new(), trials: (count, samples.len()) };
        // Metrics that only invalid trials have are left out, unless there are no other metrics.
        let has_metrics = samples.iter().filter(|sample| count == 0 || sample.is_valid());
        let names = has_metrics.flat_map(|sample| sample.metrics.keys().map(String::as_str));
        let mut metrics: Vec<Metric> = names.collect::<BTreeSet<&str>>().into_iter().map(Metric::new).collect();
        metrics.sort_by(|a, b| a.order().cmp(&b.order()));
        scenario.metrics = metrics
            .into_iter()
            .map(|metric| {
                let outcomes = scenario.outcomes(|sample| sample.metrics.get(&metric.name).copied());
                (metric, outcomes)
            })
            .collect();
        scenario
    }

    /// Returns a metric of all cells and variants.
    pub(super) fn outcomes(&self, metric: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Option<VariantResult>>> {
        self.estimated(metric, Summary::ratio)
    }

    /// Returns a metric of all cells and variants, without ratios. Computing ratios is most of the
    /// work.
    pub(super) fn alone(&self, metric: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Option<VariantResult>>> {
        self.estimated(metric, |_, _| None)
    }

    fn estimated(
        &self,
        metric: impl Fn(&Sample) -> Option<f64>,
        ratio: fn(&[Trial], &[Trial]) -> Option<Summary>,
    ) -> Vec<Vec<Option<VariantResult>>> {
        let values = |trials: &[&Sample]| -> Vec<Trial> {
            let values = trials.iter().filter_map(|sample| Some((sample.round, metric(sample)?)));
            values.filter(|trial| plausible(trial.1)).collect()
        };
        let outcome = |cell: &Cell| -> Vec<Option<VariantResult>> {
            let trials: Vec<Vec<Trial>> = cell.trials.iter().map(|trials| values(trials)).collect();
            let outcome = |(variant, of): (usize, &Vec<Trial>)| {
                let values: Vec<f64> = of.iter().map(|trial| trial.1).collect();
                let summary = Summary::of(&values)?;
                let ratio = if variant == 0 { None } else { ratio(of, &trials[0]) };
                Some(VariantResult { summary, ratio })
            };
            trials.iter().enumerate().map(outcome).collect()
        };
        self.cells.iter().map(outcome).collect()
    }

    /// Returns the horizontal axis of plots: sizes, or otherwise the axis with the most values.
    pub(super) fn across(&self) -> Option<usize> {
        let size = self.axes.iter().position(|axis| matches!(axis.name, "size" | "sizes" | "packet_size"));
        size.or_else(|| self.longest(None))
    }

    /// Returns the vertical axis of a map, beside `across`.
    pub(super) fn down(&self, across: usize) -> Option<usize> {
        self.longest(Some(across))
    }

    fn longest(&self, but: Option<usize>) -> Option<usize> {
        // If several axes have as many values, the first one is chosen. `max_by_key` would choose
        // the last one.
        let others = (0..self.axes.len()).filter(|&axis| Some(axis) != but).rev();
        others.max_by_key(|&axis| self.axes[axis].values.len())
    }

    /// Returns the cells as panels with these axes; each combination of values of the other axes is
    /// a panel.
    pub(super) fn panels(&self, across: Option<usize>, down: Option<usize>) -> Vec<Panel<'a>> {
        let len = |axis: Option<usize>| axis.map_or(1, |axis| self.axes[axis].values.len());
        let mut panels: BTreeMap<Vec<(usize, usize)>, Rows> = BTreeMap::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let others = cell.at.iter().copied().enumerate();
            let key = others.filter(|&(axis, _)| Some(axis) != across && Some(axis) != down).collect();
            let rows = panels.entry(key).or_insert_with(|| vec![vec![None; len(across)]; len(down)]);
            let place = |axis: Option<usize>| axis.map_or(0, |axis| cell.at[axis]);
            rows[place(down)][place(across)] = Some(index);
        }
        let common = |key: Vec<(usize, usize)>| {
            key.into_iter().map(|(axis, value)| (self.axes[axis].name, self.axes[axis].values[value])).collect()
        };
        panels.into_iter().map(|(key, rows)| Panel { common: common(key), rows }).collect()
    }
}

/// Formats axes and values as in `size = 64, ring = split`.
pub(super) fn pairs_in_words<'s>(pairs: impl IntoIterator<Item = (&'s str, &'s str)>) -> String {
    let words: Vec<String> = pairs.into_iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
    words.join(", ")
}

fn value<'a>(sample: &'a Sample, axis: &str) -> &'a str {
    sample.cell.get(axis).map_or(NONE, String::as_str)
}

/// Returns each text once, in the order of appearance.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(*text)).collect()
}

/// Returns the number that a value begins with; infinity if there is none.
fn leading(text: &str) -> f64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let number = text[..end].parse().unwrap_or(f64::INFINITY);
    // `2 MiB` comes after `4 KiB`.
    match text[end..].trim_start().chars().next() {
        Some('k' | 'K') => number * 1024.0,
        Some('M') => number * 1024.0 * 1024.0,
        Some('G') => number * 1024.0 * 1024.0 * 1024.0,
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Validity;

    fn sample(variant: &str, size: &str, ring: &str, mpps: f64) -> Sample {
        let cell =
            [("size", size), ("ring", ring), ("mrg", "on")].map(|(axis, value)| (axis.to_owned(), value.to_owned()));
        let metrics = [("mpps".to_owned(), mpps)].into();
        Sample {
            scenario: "pvp".to_owned(),
            round: 1,
            variant: variant.to_owned(),
            cell: cell.into(),
            metrics,
            ..Sample::default()
        }
    }

    #[test]
    fn axes_are_what_cells_differ_on_and_sizes_are_in_order() {
        let samples =
            [sample("b", "1518", "split", 1.0), sample("a", "imix", "split", 3.0), sample("a", "64", "packed", 2.0)];
        let scenarios = Scenario::all(&samples);
        let [scenario] = &scenarios[..] else { panic!("{scenarios:?}") };
        assert_eq!(scenario.variants, ["b", "a"]);
        assert_eq!(scenario.fixed, [("mrg", "on")]);
        assert_eq!(scenario.axes[0], Axis { name: "ring", values: vec!["split", "packed"] });
        assert_eq!(scenario.axes[1], Axis { name: "size", values: vec!["64", "1518", "imix"] });
        assert_eq!(scenario.across(), Some(1));
        assert_eq!(scenario.down(1), Some(0));
        let panels = scenario.panels(Some(1), None);
        assert_eq!(panels.len(), 2);
        assert_eq!(panels[0].common, [("ring", "split")]);
        assert_eq!(panels[0].rows, [[None, Some(0), Some(1)]]);
    }

    #[test]
    fn invalid_trials_do_not_count() {
        let mut samples = vec![sample("a", "64", "split", 1.0), sample("a", "64", "split", 9.0)];
        samples[1].validity = Validity::SpoiltByBackend("drained late".to_owned());
        let scenario = &Scenario::all(&samples)[0];
        let outcome = scenario.metrics[0].1[0][0].expect("one counts");
        assert_eq!((outcome.summary.median, outcome.summary.n, scenario.trials), (1.0, 1, (1, 2)));
    }
}
