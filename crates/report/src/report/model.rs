//! Samples in the order in which a report shows them: by scenario, cell and variant, with the
//! metrics of each.

use std::collections::{BTreeMap, BTreeSet};

use super::question::answer;
use crate::results::{BOUNDS, Sample};
use crate::statistics::{Effect, Estimate, Looks, Metric, Outcome, Pairing, estimate, is_size};

/// A value with the round in which it was measured.
type Trial = (u32, f64);

/// The result of a variant in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VariantResult {
    pub(super) estimate: Estimate,
    /// Whether the estimate is a lower bound, because a search found no load too high.
    pub(super) is_at_least: bool,
    /// The effect beside the first variant of the cell.
    pub(super) effect: Option<Effect>,
}

/// The results of a metric, by cell and variant.
pub(super) type Outcomes = Vec<Vec<Option<VariantResult>>>;

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

impl Cell<'_> {
    /// Returns the first variant that was tried here.
    pub(super) fn first(&self) -> usize {
        self.tried.iter().position(|&tried| tried > 0).unwrap_or(0)
    }

    /// Returns whether a variant was tried here, and is not the first one.
    pub(super) fn compares(&self, variant: usize) -> bool {
        self.tried[variant] > 0 && variant != self.first()
    }
}

/// Everything that was measured under one name.
#[derive(Debug)]
pub(super) struct Scenario<'a> {
    pub(super) name: &'a str,
    /// The variants, in their order of appearance. In each cell, the first one that was tried is what the
    /// others are compared with: cells may have different variants.
    pub(super) variants: Vec<&'a str>,
    pub(super) axes: Vec<Axis<'a>>,
    /// The axes with the same value in all cells.
    pub(super) fixed: Vec<(&'a str, &'a str)>,
    pub(super) cells: Vec<Cell<'a>>,
    /// The metrics, each with its results. The first metric is the headline of the scenario.
    pub(super) metrics: Vec<(Metric, Outcomes)>,
    /// The numbers of valid trials, and of all.
    pub(super) trials: (usize, usize),
    /// The looks of the run, which set the confidence of ratios.
    pub(super) looks: Looks,
}

/// Cells that differ only on one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Panel<'a> {
    /// The axes and values that all cells of the panel share.
    pub(super) common: Vec<(&'a str, &'a str)>,
    /// The cells, in the order of their values on the axis.
    pub(super) cells: Vec<usize>,
}

/// The value that stands for cells without this axis.
const NONE: &str = "–";

impl<'a> Scenario<'a> {
    /// Returns all scenarios, in their order of appearance.
    pub(super) fn all(samples: &'a [Sample], looks: Looks) -> Vec<Self> {
        let names = distinct(samples.iter().map(|sample| sample.scenario.as_str()));
        names.into_iter().map(|name| Scenario::new(name, samples, looks)).collect()
    }

    fn new(name: &'a str, samples: &'a [Sample], looks: Looks) -> Self {
        let samples: Vec<&Sample> = samples.iter().filter(|sample| sample.scenario == name).collect();
        let variants = distinct(samples.iter().map(|sample| sample.variant.as_str()));
        let mut axes = Vec::new();
        let mut fixed = Vec::new();
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
            Scenario { name, variants, axes, fixed, cells, metrics: Vec::new(), trials: (count, samples.len()), looks };
        // Metrics that only invalid trials have are left out, unless there are no other metrics.
        let has_metrics = samples.iter().filter(|sample| count == 0 || sample.is_valid());
        let names = has_metrics.flat_map(|sample| sample.metrics.keys().map(String::as_str));
        let names: BTreeSet<&str> = names.collect();
        let mut metrics: Vec<Metric> = names.into_iter().map(Metric::new).collect();
        let is_headline = |metric: &Metric| answer(name) == Some(metric.name.as_str());
        metrics.sort_by(|a, b| (!is_headline(a), a.order()).cmp(&(!is_headline(b), b.order())));
        scenario.metrics = metrics
            .into_iter()
            .map(|metric| {
                let outcomes = scenario.outcomes(&metric.name);
                (metric, outcomes)
            })
            .collect();
        scenario
    }

    /// Returns a metric of all cells and variants, with its effects.
    fn outcomes(&self, metric: &str) -> Outcomes {
        let value = |sample: &Sample| sample.metrics.get(metric).copied();
        let outcome = |cell: &Cell| {
            // A search that found only a lower bound takes part: without it, the median of the
            // others would be too low.
            let has_bound = |variant: usize| BOUNDS.contains(&metric) && !cell.least[variant].is_empty();
            let trials = |variant: usize| {
                let least = if has_bound(variant) { &cell.least[variant][..] } else { &[] };
                values(cell.trials[variant].iter().chain(least), value)
            };
            let all: Vec<Vec<Trial>> = (0..cell.trials.len()).map(trials).collect();
            let first = cell.first();
            let result = |variant: usize| {
                let estimate = of_trials(&all[variant])?;
                let is_at_least = has_bound(variant);
                let effect = if variant == first { None } else { effect(&all[variant], &all[first], self.looks) };
                let effect = effect.and_then(|effect| effect.bounded(is_at_least, has_bound(first)));
                Some(VariantResult { estimate, is_at_least, effect })
            };
            (0..all.len()).map(result).collect()
        };
        self.cells.iter().map(outcome).collect()
    }

    /// Returns the medians of any value of all cells and variants, without effects. Computing
    /// effects is most of the work.
    pub(super) fn medians(&self, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Option<Estimate>>> {
        let medians = |cell: &Cell| cell.trials.iter().map(|trials| of_trials(&values(trials, &value))).collect();
        self.cells.iter().map(medians).collect()
    }

    /// Returns the axes on which cells differ, with the values of a cell.
    pub(super) fn place(&self, cell: usize) -> impl Iterator<Item = (&'a str, &'a str)> {
        let at = self.cells.get(cell).map_or(&[][..], |cell| &cell.at);
        self.axes.iter().zip(at).map(|(axis, &value)| (axis.name, axis.values[value]))
    }

    /// Returns whether there is a variant to compare with another one.
    pub(super) fn is_compared(&self) -> bool {
        self.variants.len() > 1
    }

    /// Returns the name of what the variants are compared with.
    pub(super) fn reference(&self) -> &'a str {
        let mut firsts = self.cells.iter().map(Cell::first);
        let first = firsts.next().unwrap_or(0);
        if firsts.all(|other| other == first) { self.variants[first] } else { "the first variant of the cell" }
    }

    /// Returns the outcomes of all comparisons that were tried: of the headline metric, or of the first one
    /// that a cell has. `noisy` has cells of cycles, and others of latencies.
    pub(super) fn comparisons(&self) -> Vec<Outcome> {
        let mut all = Vec::new();
        for (cell, tried) in self.cells.iter().enumerate() {
            let of_cell = self.metrics.iter().find(|(_, outcomes)| self.has(outcomes, cell));
            let Some((metric, outcomes)) = of_cell else { break };
            for variant in (0..self.variants.len()).filter(|&variant| tried.compares(variant)) {
                let effect = outcomes[cell][variant].and_then(|result| result.effect);
                all.push(effect.map_or(Outcome::Unclear, |effect| effect.outcome(metric.better)));
            }
        }
        all
    }

    /// Returns whether a cell has this metric. One without any result has all of them.
    pub(super) fn has(&self, outcomes: &Outcomes, cell: usize) -> bool {
        let is_known = |outcomes: &Outcomes| outcomes[cell].iter().any(Option::is_some);
        is_known(outcomes) || !self.metrics.iter().any(|(_, outcomes)| is_known(outcomes))
    }

    /// Returns the effects of a variant by cell; `None` without results of both. Only cells count that
    /// compare it, and that have this metric.
    pub(super) fn effects<'o>(
        &'o self,
        outcomes: &'o Outcomes,
        variant: usize,
    ) -> impl Iterator<Item = Option<Effect>> + 'o {
        let cells =
            (0..self.cells.len()).filter(move |&cell| self.cells[cell].compares(variant) && self.has(outcomes, cell));
        cells.map(move |cell| outcomes[cell][variant].and_then(|result| result.effect))
    }

    /// Returns the axis of the curves in a plot: sizes, or otherwise the axis with the most values.
    pub(super) fn across(&self) -> Option<usize> {
        let size = self.axes.iter().position(|axis| is_size(axis.name));
        // If several axes have as many values, the first one is chosen. `max_by_key` would choose
        // the last one.
        size.or_else(|| (0..self.axes.len()).rev().max_by_key(|&axis| self.axes[axis].values.len()))
    }

    /// Returns the cells as panels: those that differ only on the axis `across`.
    pub(super) fn panels(&self, across: Option<usize>) -> Vec<Panel<'a>> {
        let mut panels: BTreeMap<Vec<(usize, usize)>, Vec<usize>> = BTreeMap::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let others = cell.at.iter().copied().enumerate().filter(|&(axis, _)| Some(axis) != across);
            panels.entry(others.collect()).or_default().push(index);
        }
        let common = |key: Vec<(usize, usize)>| {
            key.into_iter().map(|(axis, value)| (self.axes[axis].name, self.axes[axis].values[value])).collect()
        };
        panels.into_iter().map(|(key, cells)| Panel { common: common(key), cells }).collect()
    }
}

/// Returns the values of trials that can be drawn. Files may contain any value.
fn values<'s>(trials: impl IntoIterator<Item = &'s &'s Sample>, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Trial> {
    let values = trials.into_iter().filter_map(|sample| Some((sample.round, value(sample)?)));
    values.filter(|trial| plausible(trial.1)).collect()
}

/// Returns whether a value can be drawn and used in computations.
pub(super) fn plausible(value: f64) -> bool {
    value == 0.0 || (1e-30..1e30).contains(&value.abs())
}

fn of_trials(trials: &[Trial]) -> Option<Estimate> {
    estimate(&trials.iter().map(|trial| trial.1).collect::<Vec<_>>())
}

/// Returns the effect beside another variant. Values are paired by round, because a disturbance of
/// a round affects both.
fn effect(of: &[Trial], to: &[Trial], looks: Looks) -> Option<Effect> {
    let ratio = looks.ratio(of, to, Pairing::ByRound).map(Effect::Ratio);
    ratio.or_else(|| looks.change(of, to, Pairing::ByRound).map(Effect::Change))
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
        let scenarios = Scenario::all(&samples, Looks::One);
        let [scenario] = &scenarios[..] else { panic!("{scenarios:?}") };
        assert_eq!(scenario.variants, ["b", "a"]);
        assert_eq!(scenario.fixed, [("mrg", "on")]);
        assert_eq!(scenario.axes[0], Axis { name: "ring", values: vec!["split", "packed"] });
        assert_eq!(scenario.axes[1], Axis { name: "size", values: vec!["64", "1518", "imix"] });
        assert_eq!(scenario.across(), Some(1));
        let panels = scenario.panels(Some(1));
        assert_eq!(panels.len(), 2);
        assert_eq!(panels[0].common, [("ring", "split")]);
        assert_eq!(panels[0].cells, [0, 1]);
    }

    #[test]
    fn invalid_trials_do_not_count() {
        let mut samples = vec![sample("a", "64", "split", 1.0), sample("a", "64", "split", 9.0)];
        samples[1].validity = Validity::SpoiltByBackend("drained late".to_owned());
        let scenario = &Scenario::all(&samples, Looks::One)[0];
        let outcome = scenario.metrics[0].1[0][0].expect("one counts");
        assert_eq!((outcome.estimate.median, outcome.estimate.samples, scenario.trials), (1.0, 1, (1, 2)));
    }

    /// Returns six rounds of two variants; `bound` says which of them found only a lower bound.
    fn rounds(of: f64, to: f64, bound: [bool; 2]) -> Vec<Sample> {
        let round = |round: u32| {
            let both = [("to", to, bound[0]), ("of", of, bound[1])];
            both.map(|(variant, mpps, is_bound)| {
                let mut sample = sample(variant, "64", "split", mpps + 0.001 * f64::from(round));
                sample.round = round;
                if is_bound {
                    sample.validity = Validity::LowerBound("no load is too high".to_owned());
                }
                sample
            })
        };
        (1..=6).flat_map(round).collect()
    }

    #[test]
    fn lower_bounds_take_part_in_ratios() {
        let shown = |of: f64, to: f64, bound: [bool; 2]| {
            let samples = rounds(of, to, bound);
            let scenario = &Scenario::all(&samples, Looks::One)[0];
            let (metric, outcomes) = &scenario.metrics[0];
            let effects: Vec<_> = scenario.effects(outcomes, 1).collect();
            let [effect] = effects[..] else { panic!("one cell: {effects:?}") };
            effect.map(|effect| (effect.shown(), effect.outcome(metric.better)))
        };
        assert_eq!(shown(3.0, 2.0, [false, true]), Some(("at least 1.50".to_owned(), Outcome::Better)));
        assert_eq!(shown(2.0, 3.0, [true, false]), Some(("at most 0.67".to_owned(), Outcome::Worse)));
        assert_eq!(shown(2.0, 3.0, [false, true]).map(|shown| shown.1), Some(Outcome::Unclear));
        assert_eq!(shown(2.0, 3.0, [true, true]), None);
    }

    /// `width` has cells with registers to compare, and others with alignments.
    #[test]
    fn cells_with_other_variants_compare_with_their_own_first_one() {
        let mut samples = rounds(3.0, 2.0, [false, false]);
        for mut sample in rounds(1.0, 2.0, [false, false]) {
            sample.variant = format!("other {}", sample.variant);
            sample.cell.insert("size".to_owned(), "1514".to_owned());
            samples.push(sample);
        }
        let scenario = &Scenario::all(&samples, Looks::One)[0];
        assert_eq!(scenario.variants, ["to", "of", "other to", "other of"]);
        assert_eq!(scenario.comparisons(), [Outcome::Better, Outcome::Worse]);
        assert_eq!(scenario.reference(), "the first variant of the cell");
        let (_, outcomes) = &scenario.metrics[0];
        let effects = |variant| scenario.effects(outcomes, variant).flatten().map(|of| of.shown()).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(effects), [vec![], vec!["1.50".to_owned()], vec![], vec!["0.50".to_owned()]]);
        // A cell without the headline metric counts by another one.
        for sample in samples.iter_mut().filter(|sample| sample.cell["size"] == "1514") {
            let mpps = sample.metrics.remove("mpps").expect("a rate");
            sample.metrics =
                [("latency_max_us", 1.0), ("latency_p50_us", mpps)].map(|(name, of)| (name.to_owned(), of)).into();
        }
        let scenario = &Scenario::all(&samples, Looks::One)[0];
        assert_eq!(scenario.comparisons(), [Outcome::Better, Outcome::Better]);
        let (_, outcomes) = &scenario.metrics[0];
        assert_eq!([1, 3].map(|variant| scenario.effects(outcomes, variant).count()), [1, 0]);
    }

    #[test]
    fn the_headline_answers_the_question_of_an_experiment() {
        let mut samples = rounds(1.0, 2.0, [false, false]);
        for sample in &mut samples {
            sample.metrics.insert("switch_cycles_per_packet".to_owned(), 1.0);
        }
        assert_eq!(Scenario::all(&samples, Looks::One)[0].metrics[0].0.name, "mpps");
        samples.iter_mut().for_each(|sample| sample.scenario = "memcpy".to_owned());
        assert_eq!(Scenario::all(&samples, Looks::One)[0].metrics[0].0.name, "switch_cycles_per_packet");
    }
}
