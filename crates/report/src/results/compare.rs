//! Compares two folders of results.
//!
//! The folders were not measured in turn. So rounds with the same number are unrelated, and changes
//! of the machine between the runs are a part of each ratio. Therefore the differences between the
//! environments come first.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use serde::Serialize;

use super::{BOUNDS, Difference, Results, Sample, SeriesKey};
use crate::statistics::{Better, Change, Effect, Estimate, Looks, Outcome, Pairing, Ratio, Verdict, estimate};

/// A trial's round and value.
type Trial = (u32, f64);

/// The comparison of two folders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The differences of the environments.
    pub environment: Vec<Difference>,
    /// The looks of the run with more of them: the confidence of all ratios.
    pub looks: Looks,
    /// Each metric of each series that both folders have.
    #[serde(rename = "figures")]
    pub metrics: Vec<MetricComparison>,
    /// Series that only the first folder has, or for which only the first folder has valid trials.
    pub only_first: Vec<SeriesKey>,
    /// Series that only the second folder has, or for which only the second folder has valid
    /// trials.
    pub only_second: Vec<SeriesKey>,
}

/// One metric of one series, in both folders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The series.
    #[serde(flatten)]
    pub place: SeriesKey,
    /// The metric's name.
    pub metric: String,
    /// The first folder's samples.
    pub first: Side,
    /// The second folder's samples.
    pub second: Side,
    /// The ratio of the second folder's median to the first folder's. `None` if a sample is not
    /// above 0, or if both are only lower bounds.
    pub ratio: Option<Ratio>,
    /// The difference of the medians, second minus first, if there is no ratio. (Most losses are
    /// 0.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The verdict: whether the second folder is faster. `None` for metrics without a better
    /// direction.
    pub verdict: Option<Verdict>,
}

/// One folder's samples of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Their statistics.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Number of trials of this series that are left out, because they are not valid.
    pub invalid: usize,
    /// True if searches found only lower bounds in some trials. They count with these.
    #[serde(rename = "at_least", skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
}

impl Side {
    /// Returns a folder's samples of a metric, with its values. `None` if there is none.
    fn new(samples: &[&Sample], metric: &str) -> Option<(Side, Vec<Trial>)> {
        // Without the lower bounds, the median of the others would be too low.
        let counts = |sample: &Sample| sample.is_valid() || (BOUNDS.contains(&metric) && sample.is_at_least());
        let counted = || samples.iter().filter(|sample| counts(sample));
        let value = |sample: &&Sample| Some((sample.round, *sample.metrics.get(metric)?));
        let values: Vec<Trial> = counted().filter_map(value).collect();
        let estimate = estimate(&values.iter().map(|trial| trial.1).collect::<Vec<_>>())?;
        let is_at_least = counted().any(|sample| sample.is_at_least());
        Some((Side { estimate, invalid: samples.len() - counted().count(), is_at_least }, values))
    }
}

impl MetricComparison {
    /// Returns the effect of the second folder beside the first.
    fn effect(&self) -> Option<Effect> {
        let effect = self.ratio.map(Effect::Ratio).or_else(|| self.change.map(Effect::Change))?;
        effect.bounded(self.second.is_at_least, self.first.is_at_least)
    }

    fn verdict(&self, better: Better) -> Verdict {
        self.effect().map_or(Outcome::Unclear, |effect| effect.outcome(Some(better))).into()
    }
}

impl Comparison {
    /// Compares the second folder with the first, in these metrics. If no metrics are given,
    /// compares all.
    pub fn new(first: &Results, second: &Results, metrics: &[String]) -> Comparison {
        let environment = first.environment.differences(&second.environment);
        let looks = first.environment.looks.max(second.environment.looks);
        let mut comparison =
            Comparison { environment, looks, metrics: Vec::new(), only_first: Vec::new(), only_second: Vec::new() };
        let has_valid = |samples: &[&Sample]| samples.iter().any(|sample| is_counted(sample));
        let mut theirs: BTreeMap<SeriesKey, Vec<&Sample>> = second.places().into_iter().collect();
        theirs.retain(|_, samples| has_valid(samples));
        for (place, ours) in first.places() {
            if !has_valid(&ours) {
                continue;
            }
            match theirs.remove(&place) {
                Some(theirs) => comparison.judge(&place, &ours, &theirs, metrics),
                None => comparison.only_first.push(place),
            }
        }
        comparison.only_second = theirs.into_keys().collect();
        comparison
    }

    /// Checks that the comparison has all metrics that were asked for.
    ///
    /// # Errors
    /// The folders have no series in common, or no common series has a metric of a given name, or
    /// has any metric. The error lists what each folder has.
    pub fn check(&self, first: &Results, second: &Results, metrics: &[String]) -> anyhow::Result<()> {
        let places = |results: &Results| counted(results).map(SeriesKey::of).collect::<BTreeSet<_>>();
        let [ours, theirs] = [places(first), places(second)];
        let common: BTreeSet<&SeriesKey> = ours.intersection(&theirs).collect();
        if common.is_empty() {
            let scenarios = |places: &BTreeSet<SeriesKey>| {
                names(places.iter().map(|place| place.scenario.as_str()), "no valid trials")
            };
            bail!("A and B have no cell in common: A has {}; B has {}", scenarios(&ours), scenarios(&theirs));
        }
        let names_of = |results: &Results| {
            let samples = counted(results).filter(|&sample| common.contains(&SeriesKey::of(sample)));
            names(samples.flat_map(|sample| sample.metrics.keys().map(String::as_str)), "no metrics")
        };
        let names_of_both = || format!("A has {}; B has {}", names_of(first), names_of(second));
        for metric in metrics {
            let is_there = self.metrics.iter().any(|compared| &compared.metric == metric);
            ensure!(is_there, "A and B have no metric {metric:?} in a common cell: {}", names_of_both());
        }
        ensure!(!self.metrics.is_empty(), "A and B have no metric in a common cell: {}", names_of_both());
        Ok(())
    }

    fn judge(&mut self, place: &SeriesKey, first: &[&Sample], second: &[&Sample], metrics: &[String]) {
        let mut names: Vec<&String> = first.iter().flat_map(|sample| sample.metrics.keys()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| metrics.is_empty() || metrics.contains(name));
        for metric in names {
            let (Some((first, ours)), Some((second, theirs))) = (Side::new(first, metric), Side::new(second, metric))
            else {
                continue;
            };
            let are_bounds = first.is_at_least && second.is_at_least;
            let ratio = self.looks.ratio(&theirs, &ours, Pairing::Apart).filter(|_| !are_bounds);
            let has_change = ratio.is_none() && !are_bounds;
            let change = if has_change { self.looks.change(&theirs, &ours, Pairing::Apart) } else { None };
            let place = place.clone();
            let metric = metric.clone();
            let mut compared = MetricComparison { place, metric, first, second, ratio, change, verdict: None };
            compared.verdict = Better::of(&compared.metric).map(|better| compared.verdict(better));
            self.metrics.push(compared);
        }
    }
}

/// Returns the trials that count, at least in some metric.
fn counted(results: &Results) -> impl Iterator<Item = &Sample> {
    results.samples.iter().filter(|sample| is_counted(sample))
}

fn is_counted(sample: &Sample) -> bool {
    sample.is_valid() || sample.is_at_least()
}

/// Lists each name once.
fn names<'a>(names: impl Iterator<Item = &'a str>, none: &str) -> String {
    let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
    if names.is_empty() { none.to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Validity;

    fn died() -> Validity {
        Validity::SpoiltByBackend("it died".to_owned())
    }

    fn sample(round: u32, size: &str, metrics: &[(&str, f64)]) -> Sample {
        Sample {
            scenario: "pvp".into(),
            round,
            variant: "switch".into(),
            cell: BTreeMap::from([("size".into(), size.into())]),
            metrics: metrics.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            ..Sample::default()
        }
    }

    fn results(size: &str, factor: f64) -> Results {
        let values = [4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.8, 4.0];
        let samples = (1..).zip(values).map(|(round, mpps)| {
            sample(round, size, &[("mpps", mpps * factor), ("cycles_per_packet", 800.0 / mpps / factor), ("lost", 0.0)])
        });
        Results { samples: samples.collect(), ..Results::default() }
    }

    fn verdicts(comparison: &Comparison) -> Vec<(&str, Option<Verdict>)> {
        comparison.metrics.iter().map(|compared| (compared.metric.as_str(), compared.verdict)).collect()
    }

    #[test]
    fn what_is_faster_is_so_in_every_unit() {
        use Verdict::{Equal, Faster, Slower, Unclear};
        let all = |first: &Results, second: &Results| Comparison::new(first, second, &[]);
        let slow = results("64", 1.0);
        let fast = results("64", 1.5);
        for (one, other, verdict) in [(&slow, &fast, Faster), (&fast, &slow, Slower), (&slow, &slow, Unclear)] {
            let comparison = all(one, other);
            // A metric with a sample that is not above 0 has no ratio.
            let expected = [("cycles_per_packet", Some(verdict)), ("lost", Some(Equal)), ("mpps", Some(verdict))];
            assert_eq!(verdicts(&comparison), expected);
            assert_eq!(comparison.metrics[1].ratio, None);
        }
        assert_eq!(Comparison::new(&slow, &fast, &["mpps".into()]).metrics.len(), 1);
    }

    #[test]
    fn loss_where_there_was_none_is_seen() {
        let with_loss = |lost: &[f64]| {
            let mut results = results("64", 1.0);
            for (sample, &lost) in results.samples.iter_mut().zip(lost) {
                sample.metrics = [("loss_ratio".to_owned(), lost)].into();
            }
            results
        };
        let none = with_loss(&[0.0; 8]);
        let half = with_loss(&[0.5; 8]);
        let some = with_loss(&[0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.2, 0.0]);
        for (one, other, verdict) in [
            (&none, &half, Verdict::Slower),
            (&half, &none, Verdict::Faster),
            (&some, &half, Verdict::Slower),
            (&none, &some, Verdict::Unclear),
            (&none, &none, Verdict::Equal),
        ] {
            let comparison = Comparison::new(one, other, &[]);
            assert_eq!(verdicts(&comparison), [("loss_ratio", Some(verdict))], "{comparison:?}");
        }
        let table = Comparison::new(&none, &half, &[]).to_string();
        assert!(table.contains("the verdict is about it"), "{table}");
        assert!(table.contains("  +0.500  0.500 to 0.500  "), "{table}");
    }

    #[test]
    fn places_of_one_folder_alone_and_trials_that_do_not_count_are_said() {
        let mut first = results("64", 1.0);
        let mut second = results("64", 1.0);
        first.samples.extend(results("128", 1.0).samples);
        second.samples.extend(results("256", 1.0).samples);
        first.samples[0].validity = died();
        // A series without valid trials counts as missing.
        second.samples.extend(results("128", 1.0).samples);
        second.samples.iter_mut().filter(|s| s.cell["size"] == "128").for_each(|s| s.validity = died());
        let comparison = Comparison::new(&first, &second, &["mpps".into()]);
        assert_eq!(comparison.only_first.iter().map(|place| &place.cell["size"]).collect::<Vec<_>>(), ["128"]);
        assert_eq!(comparison.only_second.iter().map(|place| &place.cell["size"]).collect::<Vec<_>>(), ["256"]);
        let [compared] = &comparison.metrics[..] else { panic!("{comparison:?}") };
        assert_eq!((compared.first.estimate.samples, compared.first.invalid, compared.second.invalid), (7, 1, 0));
    }

    #[test]
    fn a_lower_bound_is_never_slower_than_a_value_and_tells_nothing_beside_another() {
        use Verdict::{Faster, Slower, Unclear};
        let bounds = |factor: f64| {
            let mut results = results("64", factor);
            results.samples[0].validity = Validity::LowerBound("no load is too high".to_owned());
            results
        };
        for (first, second, verdict, cell) in [
            (results("64", 1.0), bounds(1.5), Faster, " >1.500  1."),
            (results("64", 1.5), bounds(1.0), Unclear, " >0.667  0."),
            (bounds(1.5), results("64", 1.0), Slower, " <0.667  0."),
            (bounds(1.0), results("64", 1.5), Unclear, " <1.500  1."),
            (bounds(1.0), bounds(1.5), Unclear, "       -  -  "),
        ] {
            let comparison = Comparison::new(&first, &second, &["mpps".into()]);
            assert_eq!(verdicts(&comparison), [("mpps", Some(verdict))], "{comparison:?}");
            assert!(comparison.to_string().contains(cell), "{cell}: {comparison}");
            let sides = [comparison.metrics[0].first, comparison.metrics[0].second];
            for (side, results) in sides.into_iter().zip([&first, &second]) {
                assert_eq!((side.estimate.samples, side.invalid), (8, 0), "all trials count");
                assert_eq!(side.is_at_least, !results.samples[0].is_valid());
            }
        }
        // Other metrics of these trials are not those of the greatest load.
        let cycles = Comparison::new(&results("64", 1.0), &bounds(1.5), &["cycles_per_packet".into()]);
        assert_eq!((cycles.metrics[0].second.estimate.samples, cycles.metrics[0].second.invalid), (7, 1));
        let table = Comparison::new(&results("64", 1.0), &bounds(1.5), &[]).to_string();
        assert!(table.contains(">6.000 (8)") && table.contains("> before a value: at least"), "{table}");
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let check = |first: &Results, second: &Results, metrics: &[&str]| {
            let metrics: Vec<String> = metrics.iter().map(|&metric| metric.to_owned()).collect();
            let checked = Comparison::new(first, second, &metrics).check(first, second, &metrics);
            checked.err().map(|error| error.to_string())
        };
        let one = results("64", 1.0);
        let mut other = results("64", 1.0);
        assert_eq!(check(&one, &other, &[]), None);
        assert_eq!(check(&one, &other, &["mpps", "lost"]), None);
        let typo = check(&one, &other, &["mpps", "mmps"]).expect("no such figure");
        assert!(typo.contains("\"mmps\"") && typo.contains("A has cycles_per_packet, lost, mpps; B has "), "{typo}");
        // Metrics of other series do not matter.
        other.samples.iter_mut().for_each(|sample| sample.metrics.retain(|name, _| name == "lost"));
        other.samples.extend(results("128", 1.0).samples);
        let one_sided = check(&one, &other, &["mpps"]).expect("only one has it");
        assert!(one_sided.ends_with("A has cycles_per_packet, lost, mpps; B has lost"), "{one_sided}");
        other.samples.iter_mut().for_each(|sample| sample.metrics.retain(|name, _| name != "lost"));
        assert!(check(&one, &other, &[]).expect("nothing").ends_with("; B has no metrics"));

        let mut elsewhere = results("128", 1.0);
        let none = check(&one, &elsewhere, &["mpps"]).expect("no place");
        assert_eq!(none, "A and B have no cell in common: A has pvp; B has pvp");
        elsewhere.samples.iter_mut().for_each(|sample| sample.validity = died());
        assert!(check(&one, &elsewhere, &[]).expect("no place").ends_with("B has no valid trials"));
    }

    #[test]
    fn a_table_has_room_in_a_terminal() {
        let mut first = results("64", 12_345.678);
        let mut second = results("64", 0.98 * 12_345.678);
        first.environment.flags = (0..100).map(|n| format!("flag{n}")).collect();
        for results in [&mut first, &mut second] {
            let mut few = sample(1, "1518", &[("mpps", 0.000_012_3), ("lost", 1e9)]);
            few.cell.extend(["ring", "buffer", "header"].map(|axis| (axis.to_owned(), "a-long-value".to_owned())));
            results.samples.push(few);
            results.samples[1].validity = died();
        }
        second.samples.extend(results("128", 1.0).samples);
        let table = Comparison::new(&first, &second, &[]).to_string();
        for part in [
            "differ in flags",
            "pvp, cycles_per_packet",
            "size=64 switch",
            "only in B: pvp, size=128 switch",
            "some trials of this cell are not valid",
            "fewer than 6 samples",
            "1.2e-5 (1)",
            "1.000e9 (1)",
        ] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    }
}
