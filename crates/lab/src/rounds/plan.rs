//! Cells and their variants, for runs in which each visit is one trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;
use straightline_report::report::answer;
use straightline_report::results::{Sample, Validity, series};
use straightline_report::statistics::{Better, Effect, Looks, Outcome as Comparison, Pairing};

use super::run::{Keep, Outcome, Record, Rounds, Run, Trials, Visit, run};
use crate::trial::Watch;
use crate::trial::validity::of_error;

/// Trials of a visit at most. A trial that the load side has spoilt is made again, because one lacking
/// round would cost a short run its intervals. All of them are kept as samples, so that a variant with
/// many spoilt trials is seen.
const MOST_TRIALS: usize = 3;

/// Settings of all trials, which know whether to stop.
pub trait Stop {
    /// Returns whether the run is to end.
    fn is_stopped(&self) -> bool;
}

/// Results of one trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Metrics by name. A name ends in the unit (see [`Sample::metrics`]).
    pub metrics: BTreeMap<String, f64>,
    /// The switch's cycles per packet, by phase.
    pub cycles: BTreeMap<String, f64>,
    /// The ring layout, with other choices that change the features, and the names of the
    /// negotiated features.
    pub negotiated: Option<(&'static str, Vec<&'static str>)>,
    /// Name and version of another program that took part.
    pub peer: Option<(&'static str, String)>,
    /// Whether the trial is valid. A trial that a stop interrupted has metrics, but is not valid.
    pub validity: Validity,
    /// A line about the results, for those who watch; may be empty.
    pub summary: String,
}

impl Measured {
    /// Adds metrics.
    pub(crate) fn note<'a>(&mut self, values: impl IntoIterator<Item = (&'a str, f64)>) {
        self.metrics.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
}

type Trial<'t, S> = dyn Fn(&S) -> anyhow::Result<Measured> + 't;

/// A variant: one of the things that a cell compares.
pub struct Variant<'t, S> {
    /// Its name.
    pub name: String,
    trial: Box<Trial<'t, S>>,
}

impl<'t, S> Variant<'t, S> {
    /// Makes a variant that `trial` measures. If `trial` returns an error, the trial is not valid,
    /// for this reason.
    pub fn new(name: impl Into<String>, trial: impl Fn(&S) -> anyhow::Result<Measured> + 't) -> Self {
        Variant { name: name.into(), trial: Box::new(trial) }
    }

    /// Makes one trial of it.
    ///
    /// # Errors
    /// The trial is not valid.
    pub fn measure(&self, settings: &S) -> anyhow::Result<Measured> {
        (self.trial)(settings)
    }
}

impl<S> fmt::Debug for Variant<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A cell: a set of conditions under which all its variants are compared with one another.
#[derive(Debug)]
pub struct Cell<'t, S> {
    /// Values by axis.
    pub axes: BTreeMap<String, String>,
    /// The variants. All others are compared with the first one.
    pub variants: Vec<Variant<'t, S>>,
}

impl<'t, S> Cell<'t, S> {
    /// Makes a cell with these values on its axes.
    #[must_use]
    pub fn new<const N: usize>(
        axes: [(&str, &dyn fmt::Display); N],
        variants: impl IntoIterator<Item = Variant<'t, S>>,
    ) -> Self {
        let axes = axes.into_iter().map(|(axis, at)| (axis.to_owned(), at.to_string()));
        Cell { axes: axes.collect(), variants: variants.into_iter().collect() }
    }

    /// Returns the axes as text: `load=loop size=64`.
    #[must_use]
    pub fn label(&self) -> String {
        self.axes.iter().map(|(axis, at)| format!("{axis}={at}")).collect::<Vec<_>>().join(" ")
    }
}

/// A metric that the table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The metric's name in [`Measured::metrics`].
    pub metric: &'static str,
    /// Its title.
    pub title: &'static str,
}

impl Shown {
    /// The throughput.
    pub const MPPS: Shown = Shown { metric: "mpps", title: "Million packets per second" };

    /// The cost of a node that an experiment puts on the path.
    pub const NODE_CYCLES: Shown = Shown { metric: "node_cycles_per_packet", title: "Cycles of the node per packet" };

    /// The switch's cost.
    pub const SWITCH_CYCLES: Shown =
        Shown { metric: "switch_cycles_per_packet", title: "Cycles of the switch per packet" };
}

/// The cells of a run.
#[derive(Debug)]
pub struct Plan<'t, S> {
    /// The name of the experiment or of the comparison.
    pub name: &'static str,
    /// The metrics of the table, in their order.
    pub shown: Vec<Shown>,
    /// The cells, in the order of trials.
    pub cells: Vec<Cell<'t, S>>,
    /// Descriptions of what is not measured here, with the reasons.
    pub left_out: Vec<String>,
}

impl<S: Stop> Plan<'_, S> {
    /// Returns the number of trials in one round.
    #[must_use]
    pub fn trials(&self) -> usize {
        self.cells.iter().map(|cell| cell.variants.len()).sum()
    }

    /// Runs the plan in this number of rounds. The metric that answers the experiment's question decides
    /// whether a comparison is unclear. An experiment without a question uses the first shown metric.
    ///
    /// Passes each sample to `keep`, after the negotiated features and the programs that took part. So
    /// the results of a killed run have everything that belongs to their samples. A stop ends the run.
    /// An interrupted trial with metrics is kept as not valid, with its metrics so far. One without
    /// metrics is not kept. Neither counts as made.
    ///
    /// # Errors
    /// The errors of `keep`.
    pub fn run(
        &self,
        rounds: impl Into<Rounds>,
        settings: &S,
        watch: &mut dyn Watch,
        keep: &mut Keep<'_>,
    ) -> anyhow::Result<Outcome> {
        let made = vec![Vec::new(); self.cells.len()];
        run(&mut Planned { plan: self, settings, made }, rounds, watch, keep)
    }
}

impl<S> Plan<'_, S> {
    /// Keeps the cells that have these values on their axes. Of several values of one axis a cell
    /// needs any.
    ///
    /// # Errors
    /// No cell has them. The error has all axes with their values.
    pub fn keep(&mut self, wanted: &[(String, String)]) -> anyhow::Result<()> {
        let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (axis, value) in self.cells.iter().flat_map(|cell| &cell.axes) {
            let values = known.entry(axis.clone()).or_default();
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        self.cells.retain(|cell| {
            let has =
                |axis: &String| wanted.iter().any(|(other, value)| other == axis && cell.axes.get(axis) == Some(value));
            wanted.iter().all(|(axis, _)| has(axis))
        });
        let shown = |places: &[(String, String)]| {
            places.iter().map(|(axis, values)| format!("{axis}={values}")).collect::<Vec<_>>().join(", ")
        };
        let known: Vec<_> = known.into_iter().map(|(axis, values)| (axis, values.join("|"))).collect();
        ensure!(
            !self.cells.is_empty(),
            "{} has no cell with {}: its axes are {}",
            self.name,
            shown(wanted),
            shown(&known)
        );
        Ok(())
    }
}

/// A plan with the settings of its trials.
struct Planned<'p, 't, S> {
    plan: &'p Plan<'t, S>,
    settings: &'p S,
    /// The samples of each cell.
    made: Vec<Vec<Sample>>,
}

impl<S: Stop> Trials for Planned<'_, '_, S> {
    fn variants(&self) -> Vec<usize> {
        self.plan.cells.iter().map(|cell| cell.variants.len()).collect()
    }

    fn is_unclear(&self, cell: usize) -> bool {
        let shown = self.plan.shown.first().map(|shown| shown.metric);
        let Some(metric) = answer(self.plan.name).or(shown) else { return false };
        let values = |variant: &Variant<'_, S>| {
            series(self.made[cell].iter().filter(|sample| sample.variant == variant.name), metric)
        };
        let Some((first, others)) = self.plan.cells[cell].variants.split_first() else { return false };
        let first = values(first);
        others.iter().any(|other| {
            let ratio = Looks::Two.ratio(&values(other), &first, Pairing::ByRound);
            let outcome = ratio.map(|ratio| Effect::Ratio(ratio).outcome(Better::of(metric)));
            outcome.is_none_or(|outcome| outcome == Comparison::Unclear)
        })
    }

    fn is_stopped(&self) -> bool {
        self.settings.is_stopped()
    }

    fn visit(&mut self, visit: Visit, run: &mut Run<'_, '_>) -> anyhow::Result<bool> {
        let mut trials = 1;
        loop {
            let Some(validity) = self.trial(visit, run)? else { return Ok(false) };
            let is_stopped = self.is_stopped();
            if is_stopped || trials == MOST_TRIALS || !validity.is_spoilt_by_load() {
                // A valid trial had ended before the stop, so it counts as made.
                return Ok(!is_stopped || validity.is_valid());
            }
            trials += 1;
        }
    }
}

impl<S: Stop> Planned<'_, '_, S> {
    /// Makes a trial of a visit, and keeps its sample. Returns its validity; `None` if a stop has
    /// ended it without metrics.
    fn trial(&mut self, visit: Visit, run: &mut Run<'_, '_>) -> anyhow::Result<Option<Validity>> {
        let cell = &self.plan.cells[visit.cell];
        let variant = &cell.variants[visit.variant];
        run.begins(format!("{} {} {}", self.plan.name, cell.label(), variant.name));
        let result = variant.measure(self.settings);
        let is_stopped = self.is_stopped();
        let measured = match result {
            Ok(measured) => measured,
            // The stop has caused this error, so the error is not reported.
            Err(_) if is_stopped => return Ok(None),
            Err(error) => Measured { validity: of_error(&error), ..Measured::default() },
        };
        if let Some((layout, features)) = &measured.negotiated {
            run.record(Record::Negotiated(layout, features))?;
        }
        if let Some((name, version)) = &measured.peer {
            run.record(Record::Peer(name, version))?;
        }
        let sample = Sample {
            scenario: self.plan.name.to_owned(),
            round: visit.round,
            variant: variant.name.clone(),
            cell: cell.axes.clone(),
            metrics: measured.metrics,
            cycles: measured.cycles,
            validity: measured.validity,
            ..Sample::default()
        };
        run.keep(&sample, &measured.summary)?;
        let validity = sample.validity.clone();
        self.made[visit.cell].push(sample);
        Ok(Some(validity))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::trial::Step;

    #[derive(Default)]
    struct Seen(Vec<String>);

    impl Watch for Seen {
        fn begins(&mut self, step: &Step) {
            self.0.push(format!("{}/{} {} {}", step.trial, step.trials, step.round, step.what));
        }

        fn is_invalid(&mut self, step: &Step, why: &str) {
            self.0.push(format!("{}: {why}", step.trial));
        }
    }

    #[derive(Default)]
    struct Settings {
        stop: AtomicBool,
    }

    impl Stop for Settings {
        fn is_stopped(&self) -> bool {
            self.stop.load(Ordering::Relaxed)
        }
    }

    /// Makes a plan of two cells with two variants each. Variant `b` of the second cell fails in
    /// its first trial. Trial number `last` sets the stop, and is not valid for the reason `says`.
    fn fake(last: usize, says: Option<&'static str>) -> (Plan<'static, Settings>, Rc<RefCell<usize>>) {
        let made = Rc::new(RefCell::new(0));
        let variant = |name: &str, at: usize| {
            let made = Rc::clone(&made);
            let is_peer = name == "b";
            let fails = name == "b" && at == 1;
            Variant::new(name, move |settings: &Settings| {
                *made.borrow_mut() += 1;
                let made = *made.borrow();
                if made == last {
                    settings.stop.store(true, Ordering::Relaxed);
                }
                anyhow::ensure!(!fails || made > 4, "the backend refused");
                let value = f64::from(u32::try_from(made)?);
                Ok(Measured {
                    metrics: BTreeMap::from([("mpps".to_owned(), value)]),
                    negotiated: Some(("split", vec!["version-1"])),
                    peer: is_peer.then(|| ("bound", "0.1.0".to_owned())),
                    validity: match says {
                        Some(why) if made == last => Validity::Interrupted(why.to_owned()),
                        _ => Validity::Valid,
                    },
                    ..Measured::default()
                })
            })
        };
        let cell = |at: usize| Cell::new([("size", &(64 * at))], [variant("a", at), variant("b", at)]);
        let cells = vec![cell(0), cell(1)];
        (Plan { name: "fake", shown: vec![Shown::MPPS], cells, left_out: Vec::new() }, Rc::clone(&made))
    }

    #[test]
    fn rounds_are_interleaved_and_what_fails_is_kept_with_its_reason() {
        let (plan, _) = fake(usize::MAX, None);
        let mut seen = Seen::default();
        let mut samples = Vec::new();
        let mut negotiated = 0;
        let mut peers = 0;
        let outcome = plan.run(2, &Settings::default(), &mut seen, &mut |kept| {
            match kept {
                Record::Negotiated(layout, features) => {
                    assert_eq!((layout, features), ("split", &["version-1"][..]));
                    negotiated += 1;
                }
                Record::Peer(name, version) => {
                    assert_eq!((name, version), ("bound", "0.1.0"));
                    peers += 1;
                }
                Record::Sample(sample) => samples.push(sample.clone()),
                Record::Trial(_) => panic!("there is no search"),
            }
            // Features come before their sample: a run that ends here has both.
            let said = samples.iter().filter(|sample| sample.is_valid()).count();
            assert!(negotiated >= said, "{samples:?}");
            Ok(())
        });
        let outcome = outcome.expect("no error");
        assert!(!outcome.is_cut_short());
        let all = Outcome { planned: 8, made: 8, valid: 7, invalid: 1, ..Outcome::default() };
        assert_eq!((outcome, negotiated, peers), (all, 7, 3));
        let order: Vec<_> = samples.iter().map(|s| (s.round, s.cell["size"].as_str(), s.variant.as_str())).collect();
        let round =
            |n, [one, other]: [&'static str; 2]| [(n, "0", one), (n, "0", other), (n, "64", one), (n, "64", other)];
        assert_eq!(order, [round(1, ["a", "b"]), round(2, ["b", "a"])].concat());
        assert_eq!(samples[3].validity.reason(), Some("the backend refused"));
        assert!(samples[3].metrics.is_empty() && samples.iter().all(|sample| sample.scenario == "fake"));
        assert_eq!((samples[7].metrics["mpps"], samples[7].validity.reason()), (8.0, None));
        assert_eq!(seen.0[3..5], ["4/8 1 fake size=64 b", "4: the backend refused"]);
    }

    /// A trial that a backend has spoilt is not made again, since that would hide what it did.
    #[test]
    fn trials_that_the_load_side_has_spoilt_are_made_again() {
        let spoilt = |by: fn(String) -> Validity, first: usize| {
            let made = RefCell::new(0);
            Variant::new("a", move |_: &Settings| {
                let before = made.replace_with(|made| *made + 1);
                let validity = if before < first { by("spoilt".to_owned()) } else { Validity::Valid };
                Ok(Measured { validity, ..Measured::default() })
            })
        };
        let samples = |by, first| {
            let cells = vec![Cell::new([], [spoilt(by, first)])];
            let plan = Plan { name: "fake", shown: vec![Shown::MPPS], cells, left_out: Vec::new() };
            let mut samples = Vec::new();
            let outcome = plan.run(2, &Settings::default(), &mut Seen::default(), &mut |kept| {
                if let Record::Sample(sample) = kept {
                    samples.push((sample.round, sample.is_valid()));
                }
                Ok(())
            });
            let outcome = outcome.expect("no error");
            assert_eq!((outcome.planned, outcome.made), (2, 2));
            assert_eq!(outcome.valid + outcome.invalid, samples.len());
            samples
        };
        assert_eq!(samples(Validity::SpoiltByLoad, 2), [(1, false), (1, false), (1, true), (2, true)]);
        let all_spoilt = [(1, false), (1, false), (1, false), (2, false), (2, true)];
        assert_eq!(samples(Validity::SpoiltByLoad, 4), all_spoilt);
        assert_eq!(samples(Validity::SpoiltByBackend, 1), [(1, false), (2, true)]);
    }

    #[test]
    fn only_cells_that_are_unclear_have_further_rounds() {
        // Values of the second variant by round: far off, equal, and sometimes higher, sometimes lower.
        let cell = |name: &str, second: fn(u32) -> f64| {
            let rounds = RefCell::new(0);
            let value = |value: f64| {
                let metrics = BTreeMap::from([("mpps".to_owned(), value)]);
                Ok(Measured { metrics, ..Measured::default() })
            };
            let first = Variant::new("first", move |_: &Settings| value(1.0));
            let second = Variant::new("second", move |_: &Settings| {
                let round = rounds.replace_with(|round| *round + 1);
                value(second(round))
            });
            Cell::new([("name", &name)], [first, second])
        };
        let cells = || {
            vec![
                cell("faster", |_| 2.0),
                cell("equal", |_| 1.01),
                cell("unclear", |round| if round % 2 == 0 { 0.5 } else { 1.5 }),
            ]
        };
        let plan = |cells| Plan { name: "fake", shown: vec![Shown::MPPS], cells, left_out: Vec::new() };
        let run = |rounds: Rounds| {
            let mut made = BTreeMap::<String, Vec<u32>>::new();
            let outcome = plan(cells()).run(rounds, &Settings::default(), &mut Seen::default(), &mut |kept| {
                if let Record::Sample(sample) = kept
                    && sample.variant == "second"
                {
                    made.entry(sample.cell["name"].clone()).or_default().push(sample.round);
                }
                Ok(())
            });
            let outcome = outcome.expect("no error");
            assert!(!outcome.is_cut_short(), "{outcome:?}");
            (made.into_values().map(|rounds| rounds.len()).collect::<Vec<_>>(), outcome.planned)
        };
        // In the order of names: equal, faster, unclear.
        assert_eq!(run(Rounds { first: 7, most: 12 }), (vec![7, 7, 12], 2 * (7 + 7 + 12)));
        assert_eq!(run(7.into()), (vec![7; 3], 2 * 21));
        // With fewer rounds, there is no interval, so nothing is clear.
        assert_eq!(run(Rounds { first: 6, most: 8 }).0, [8; 3]);
        assert_eq!((Rounds { first: 7, most: 12 }.looks(), Rounds::from(7).looks()), (Looks::Two, Looks::One));
    }

    #[test]
    fn cells_are_chosen_by_their_axes() {
        let kept = |wanted: &[(&str, &str)]| {
            let mut plan = fake(usize::MAX, None).0;
            let cells = [[1, 64], [2, 64], [1, 128], [2, 128]];
            plan.cells = cells.map(|[ring, size]| Cell::new([("ring", &ring), ("size", &size)], [])).into();
            let wanted: Vec<_> = wanted.iter().map(|&(axis, value)| (axis.to_owned(), value.to_owned())).collect();
            plan.keep(&wanted).map(|()| plan.cells.iter().map(Cell::label).collect::<Vec<_>>())
        };
        assert_eq!(kept(&[]).expect("all").len(), 4);
        assert_eq!(kept(&[("size", "64")]).expect("two"), ["ring=1 size=64", "ring=2 size=64"]);
        let some = kept(&[("size", "64"), ("ring", "2"), ("size", "128")]);
        assert_eq!(some.expect("two"), ["ring=2 size=64", "ring=2 size=128"]);
        let none = kept(&[("size", "64"), ("colour", "red")]).expect_err("there is no such axis").to_string();
        assert_eq!(none, "fake has no cell with size=64, colour=red: its axes are ring=1|2, size=64|128");
    }

    #[test]
    fn a_stop_ends_it_with_what_there_is() {
        // Three cases: the stop interrupts a trial with metrics; the stop comes after the trial's
        // end; the stop interrupts a trial without metrics.
        let interrupted = Some("interrupted, after 0.1 of 1.0 s");
        for (last, says, made, kept) in [(3, interrupted, 2, 3), (3, None, 3, 3), (4, None, 3, 3)] {
            let (plan, begun) = fake(last, says);
            let mut samples = Vec::new();
            let outcome = plan.run(2, &Settings::default(), &mut Seen::default(), &mut |kept| {
                samples.extend(if let Record::Sample(sample) = kept { Some(sample.clone()) } else { None });
                Ok(())
            });
            let expected = Outcome { planned: 8, made, valid: made, invalid: kept - made, ..Outcome::default() };
            assert_eq!(outcome.expect("no error"), expected);
            assert_eq!((samples.len(), *begun.borrow()), (kept, last));
            assert_eq!((samples[2].metrics["mpps"], samples[2].validity.reason()), (3.0, says));
        }
    }

    #[test]
    fn who_cannot_keep_a_sample_ends_it() {
        let (plan, made) = fake(usize::MAX, None);
        let error = plan.run(1, &Settings::default(), &mut Seen::default(), &mut |_| anyhow::bail!("the disk is full"));
        assert_eq!((error.expect_err("full").to_string().as_str(), *made.borrow()), ("the disk is full", 1));
    }
}
