//! Searches, and the measurements that depend on their results.

use std::collections::BTreeMap;

use straightline_report::results::{Sample, Validity};

use super::run::Run;
use super::soak;
use crate::testbed::Testbed;
use crate::testbed::TestbedOptions;
use crate::testbed::TrialResult;
use crate::traffic::generator::Rate;
use crate::trial::search::{self, Found, Goal, GoalResult, Limits, Measured, Retries, Trial};
use crate::trial::validity::{Stopped, corrupted, search_result};

/// Upper bound of the search, as a multiple of the measured maximum throughput: a load without loss
/// is hardly greater.
const HEADROOM: f64 = 1.25;

/// Lower bound of the search, as a part of the measured maximum throughput.
const LEAST: f64 = 1e-3;

/// Number of trials that measure the maximum throughput. There are several, because a disturbance
/// of the machine may last longer than one trial.
const ATTEMPTS: usize = 3;

/// The loss allowed for a PDR if only latencies are measured: half a percent, as in FD.io's CSIT.
const PDR: f64 = 0.005;

/// Total time of the trials that decide on a load, as a number of trials (see [`Goal::ndr`]).
const DECIDE: u32 = 21;

/// A rate in packets per second at which each packet is alone in the switch.
const LONE: f64 = 1000.0;

/// Parts of the PDR at which latencies are measured, in percent.
const LATENCIES: [u32; 4] = [0, 10, 50, 90];

/// Counters that a search's sample keeps, summed over all trials: packets that came again, and
/// packets with wrong bytes.
pub(super) const FAULTS: [&str; 2] = ["duplicates", "corrupt"];
pub(super) type Faults = BTreeMap<&'static str, f64>;

/// The part of the NDR that a soak carries.
const CARRIED: f64 = 0.9;

/// Searches for the loads that the options ask for, and then measures latencies and soaks at these
/// loads.
pub(super) fn find(run: &mut Run<'_, '_, '_>, testbed: &mut Testbed<'_>) -> anyhow::Result<()> {
    let options = run.options;
    let goals = goals(run.options);
    let names = goals.iter().map(name).collect::<Vec<_>>().join(", ");
    let mut made = TrialLog::default();
    let most = match most(run, testbed, &mut made) {
        Ok(most) => most,
        Err(why) => {
            run.keep_trials(testbed, made.trials)?;
            let mut sample = spoilt(&made.faults);
            sample.validity = sample.validity.or_else(|| why);
            return run.keep(testbed, &names, sample);
        }
    };
    let place = run.place(testbed);
    let mut measure = |trial: Trial| made.trial(options, testbed, trial);
    let mut progress = |step: &search::Step<'_>| {
        let bound = |bound: Option<f64>| bound.map_or_else(|| "?".to_owned(), |pps| format!("{:.3}", pps / 1e6));
        let lower = bound(step.lower);
        let upper = bound(step.upper);
        run.says(&place, &format!("{}: {lower} to {upper} Mpps", step.goal));
    };
    let found = search::search(&goals, &Limits::new(most * LEAST, most), &mut measure, &mut progress)?;
    run.keep_trials(testbed, made.trials)?;
    for result in &found.results {
        let load = name(&result.goal);
        run.keep(testbed, &load, sample(result, &found, testbed.mean_len(), &made.faults))?;
    }
    if options.is_stopped() {
        return Ok(());
    }
    if let Some((pdr, is_least)) = carried(&found, "PDR").filter(|_| options.loads.latency) {
        remark(run, testbed, "latency", pdr, is_least);
        latencies(run, testbed, pdr)?;
    }
    match (options.loads.soak, options.loads.rate, carried(&found, "NDR")) {
        (Some(time), None, Some((ndr, is_least))) => {
            remark(run, testbed, "soak", ndr, is_least);
            soak::carry(run, testbed, Rate::Pps(CARRIED * ndr), time)
        }
        _ => Ok(()),
    }
}

/// Returns the highest load that the switch was found to carry, and whether it is only the greatest
/// load tried. An unfinished search has no such load, because its bounds may be far off.
fn carried(found: &Found, wanted: &str) -> Option<(f64, bool)> {
    let result = found.results.iter().find(|result| result.goal.name == wanted)?;
    let is_least = result.upper.is_none();
    let is_known = result.irregular.is_none() || (is_least && found.stopped.is_none());
    Some((result.lower.filter(|_| is_known)?, is_least))
}

/// Adds a note if the following loads are parts of the greatest load tried, because no load was too
/// high.
fn remark(run: &mut Run<'_, '_, '_>, testbed: &Testbed<'_>, load: &str, pps: f64, is_least: bool) {
    if is_least {
        let what =
            format!("loads are parts of {:.3} Mpps, the greatest load tried, because no load was too high", pps / 1e6);
        run.note(testbed, load, &what);
    }
}

/// The trials of a search or a soak.
#[derive(Default)]
pub(super) struct TrialLog {
    pub(super) trials: Vec<(Rate, Sample)>,
    pub(super) faults: Faults,
    /// Reasons why trials are not valid because of a backend.
    pub(super) failed: Vec<String>,
}

impl TrialLog {
    /// Makes a trial; returns an error if the search is to end.
    pub(super) fn trial(
        &mut self,
        options: &TestbedOptions,
        testbed: &mut Testbed<'_>,
        trial: Trial,
    ) -> anyhow::Result<Measured> {
        anyhow::ensure!(!options.is_stopped(), Stopped);
        let rate = rate(trial.load);
        let trial_result = testbed.trial(rate, trial.duration);
        self.note(rate, &trial_result);
        let TrialResult { sample: Sample { validity, .. }, sent, lost } = trial_result;
        // A stopped trial did not wait for its last packets, so its loss is not known.
        anyhow::ensure!(validity.is_valid() || !options.is_stopped(), Stopped);
        self.failed.extend(validity.reason().filter(|_| validity.is_spoilt_by_backend()).map(str::to_owned));
        Ok(Measured { sent, lost, validity })
    }

    /// Notes a trial, valid or not.
    pub(super) fn note(&mut self, rate: Rate, trial_result: &TrialResult) {
        for name in FAULTS {
            if let Some(count) = trial_result.sample.metrics.get(name) {
                *self.faults.entry(name).or_default() += count;
            }
        }
        self.trials.push((rate, trial_result.sample.clone()));
    }
}

/// Measures latencies of single packets, and at parts of the PDR.
fn latencies(run: &mut Run<'_, '_, '_>, testbed: &mut Testbed<'_>, pdr: f64) -> anyhow::Result<()> {
    let patience = usize::try_from(Retries::default().late)?;
    for percent in LATENCIES {
        if run.options.is_stopped() {
            break;
        }
        let load = format!("latency {percent} %");
        run.says(&run.place(testbed), &load);
        let pps = if percent == 0 { LONE.min(pdr) } else { pdr * f64::from(percent) / 100.0 };
        // The switch has carried this load before. So a late generator says nothing about the load,
        // and the trial is repeated.
        let rate = Rate::Pps(pps);
        let mut late = Vec::new();
        let sample = loop {
            let TrialResult { sample, sent, .. } = testbed.trial(rate, run.options.time);
            if !sample.validity.is_spoilt_by_load() || sent == 0 || late.len() >= patience || run.options.is_stopped() {
                break sample;
            }
            late.push((rate, sample));
        };
        run.keep_trials(testbed, late)?;
        run.keep(testbed, &load, sample)?;
    }
    Ok(())
}

/// Returns the greatest load of the search, after loading the switch at maximum rate.
fn most(run: &mut Run<'_, '_, '_>, testbed: &mut Testbed<'_>, made: &mut TrialLog) -> Result<f64, Validity> {
    let mut most = None::<f64>;
    let mut why = Validity::Valid;
    for _ in 0..ATTEMPTS {
        run.says(&run.place(testbed), "measuring the maximum throughput");
        let trial_result = testbed.trial(Rate::Max, run.options.time);
        made.note(Rate::Max, &trial_result);
        match trial_result.sample.metrics.get("offered_mpps") {
            Some(&offered) if trial_result.sample.is_valid() => {
                most = Some(greatest(offered, testbed.limit_mpps).max(most.unwrap_or(0.0)));
            }
            _ => {
                why = trial_result.sample.validity.or_else(|| Validity::SpoiltByBackend("nothing was sent".to_owned()))
            }
        }
        if run.options.is_stopped() {
            break;
        }
    }
    most.ok_or(why)
}

/// Returns the greatest load of a search, in packets per second.
fn greatest(offered_mpps: f64, limit_mpps: f64) -> f64 {
    (HEADROOM * offered_mpps).min(limit_mpps) * 1e6
}

/// Returns a load rounded down to whole packets: the greatest load may be the generator's limit.
fn rate(load: f64) -> Rate {
    Rate::Pps(load.floor())
}

fn goals(options: &TestbedOptions) -> Vec<Goal> {
    let loads = &options.loads;
    let timed = |goal: Goal| Goal {
        initial_trial: options.time,
        final_trial: options.time,
        duration_sum: options.time * DECIDE,
        ..goal
    };
    let ndr = loads.ndr || (loads.soak.is_some() && loads.rate.is_none());
    let pdr = loads.pdr.or(loads.latency.then_some(PDR));
    ndr.then(Goal::ndr).into_iter().chain(pdr.map(Goal::pdr)).map(timed).collect()
}

/// Returns the name of a goal as a load.
fn name(goal: &Goal) -> String {
    match goal.loss_ratio {
        ratio if ratio > 0.0 => format!("pdr {} %", percent(ratio)),
        _ => "ndr".to_owned(),
    }
}

/// Returns a loss ratio in percent, as the user has written it. Digits are limited, because a
/// hundred times 0.07 is slightly more than 7.
fn percent(ratio: f64) -> f64 {
    let digits = format!("{:.9e}", ratio * 100.0);
    digits.parse().unwrap_or(ratio * 100.0)
}

/// Makes a sample with the faults of its trials. A wrong copy in any trial makes the sample
/// invalid, even if this trial was repeated.
pub(super) fn spoilt(faults: &Faults) -> Sample {
    let metrics = faults.iter().map(|(name, &count)| ((*name).to_owned(), count)).collect();
    Sample { metrics, validity: corrupted(faults.get("corrupt").copied().unwrap_or(0.0)), ..Sample::default() }
}

fn sample(result: &GoalResult, found: &Found, mean_len: f64, faults: &Faults) -> Sample {
    let mpps = |pps: Option<f64>| pps.map(|pps| pps / 1e6);
    let throughput = mpps(result.throughput);
    let values = [
        ("mpps", throughput),
        ("gbit_per_s", throughput.map(|mpps| gbit(mpps, mean_len))),
        ("lower_mpps", mpps(result.lower)),
        ("upper_mpps", mpps(result.upper)),
        ("trials", u32::try_from(found.trials).ok().map(f64::from)),
    ];
    let mut sample = spoilt(faults);
    sample.metrics.extend(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    // A search with wrong copies has no valid result.
    sample.validity = sample.validity.or_else(|| {
        let has_bounds = [result.lower, result.upper].map(|bound| bound.is_some());
        search_result(result.irregular.as_deref(), found.stopped.as_ref(), has_bounds)
    });
    sample
}

pub(super) fn gbit(mpps: f64, mean_len: f64) -> f64 {
    mpps * mean_len * 8.0 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::validity::beyond;

    /// Searches with a switch that takes `most` packets per second. All trials from number `last`
    /// on are invalid.
    fn found(most: f64, last: usize) -> Found {
        let mut trials = 0;
        let mut measure = |Trial { load, duration }: Trial| {
            trials += 1;
            let silent = || Validity::SpoiltByBackend("the backend was silent".to_owned());
            let validity = if trials >= last { silent() } else { Validity::Valid };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of packets")]
            let count = |pps: f64| (pps.max(0.0) * duration.as_secs_f64()) as u64;
            Ok(Measured { sent: count(load), lost: count(load - most), validity })
        };
        search::search(&[Goal::ndr()], &Limits::new(1e4, 1e7), &mut measure, &mut |_| {}).expect("a goal")
    }

    #[test]
    fn goals_are_named_as_they_were_asked_for() {
        for (ratio, said) in [
            (0.07, "pdr 7 %"),
            (0.14, "pdr 14 %"),
            (0.29, "pdr 29 %"),
            (0.55, "pdr 55 %"),
            (0.005, "pdr 0.5 %"),
            (1e-9, "pdr 0.0000001 %"),
            (0.0, "ndr"),
        ] {
            assert_eq!(name(&Goal::pdr(ratio)), said);
        }
    }

    #[test]
    fn what_is_no_regular_result_does_not_count() {
        let parts = |found: &Found| carried(found, "NDR").map(|(pps, is_least)| (pps.round(), is_least));
        let judged = |found: &Found| {
            let sample = sample(&found.results[0], found, 64.0, &Faults::new());
            assert!(found.results[0].lower.is_some() && sample.metrics["mpps"] > 0.0, "{sample:?}");
            sample.validity
        };
        let whole = found(1.2e6, usize::MAX);
        assert_eq!(judged(&whole), Validity::Valid);
        assert!(parts(&whole).is_some_and(|(pps, is_least)| !is_least && pps <= 1.2e6), "{:?}", parts(&whole));
        // The switch takes everything, so its limit remains unknown.
        let all = found(1e9, usize::MAX);
        assert_eq!(parts(&all), Some((1e7, true)));
        let validity = judged(&all);
        let why = validity.reason().expect("no upper bound");
        let at_least = |found: &Found| sample(&found.results[0], found, 64.0, &Faults::new()).is_at_least();
        assert!(why.contains("no load up to 10000000 packets a second is too high"), "{why}");
        assert_eq!([&whole, &all, &found(1e9, 7)].map(at_least), [false, true, false]);
        let corrupt = sample(&all.results[0], &all, 64.0, &Faults::from([("corrupt", 1.0)]));
        let why = corrupt.validity.reason().expect("invalid");
        assert!(corrupt.validity.is_spoilt_by_backend() && why.contains("other bytes"), "{why}");
        // The search is stopped when there is a lower bound already.
        let cut = found(1.2e6, whole.trials);
        assert_eq!(parts(&cut), None);
        let validity = judged(&cut);
        let why = validity.reason().expect("it was stopped");
        assert!(
            validity.is_spoilt_by_backend() && why.contains("did not finish") && why.contains("the backend was silent"),
            "{why}"
        );
    }

    #[test]
    fn the_greatest_load_is_not_more_than_the_generator_makes() {
        for limit_mpps in [0.001_234_5, 0.001_234_567_8, 0.012_345_999, 0.002_000_000_1, 0.003] {
            let load = rate(greatest(1.0, limit_mpps));
            assert_eq!(beyond(Some(limit_mpps), load, 64.0), Validity::Valid, "{load} of {limit_mpps}");
        }
    }

    #[test]
    fn a_wrong_copy_in_any_trial_makes_the_search_invalid() {
        let mut measure =
            |trial: Trial| Ok(Measured { sent: 1_000_000, lost: u64::from(trial.load > 1e6), ..Measured::default() });
        let found = search::search(&[Goal::ndr()], &Limits::new(1e4, 1e7), &mut measure, &mut |_| {}).expect("a goal");
        let validity_with = |corrupt: f64| {
            let faults = Faults::from([("duplicates", 3.0), ("corrupt", corrupt)]);
            let sample = sample(&found.results[0], &found, 64.0, &faults);
            assert!(sample.metrics["mpps"] > 0.0 && sample.metrics["duplicates"] > 2.0, "{sample:?}");
            sample.validity
        };
        assert_eq!(validity_with(0.0), Validity::Valid);
        let wrong = validity_with(2.0);
        let why = wrong.reason().expect("invalid");
        assert!(why.contains("2 of the checked packets came with other bytes"), "{why}");
    }

    #[test]
    fn whatever_trial_was_made_is_noted() {
        let mut made = TrialLog::default();
        let failed = |why: &str| Validity::SpoiltByBackend(why.to_owned());
        let trial_result = |values: &[(&str, f64)], validity: Validity| {
            let metrics = values.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            TrialResult { sample: Sample { metrics, validity, ..Sample::default() }, sent: 9, lost: 0 }
        };
        // The reason may be that there was no backend.
        made.note(Rate::Max, &trial_result(&[], failed("nobody listens")));
        assert!(made.faults.is_empty());
        made.note(Rate::Max, &trial_result(&[("duplicates", 2.0), ("corrupt", 1.0)], failed("wrong")));
        made.note(
            Rate::Pps(5e5),
            &trial_result(&[("duplicates", 1.0), ("corrupt", 0.0), ("sent", 9.0)], Validity::Valid),
        );
        assert_eq!(made.faults, Faults::from([("duplicates", 3.0), ("corrupt", 1.0)]));
        let rates: Vec<_> = made.trials.iter().map(|(rate, _)| rate.to_string()).collect();
        assert_eq!(rates, ["max", "max", "500kpps"]);
        let validity = spoilt(&made.faults).validity;
        let why = validity.reason().expect("invalid");
        assert!(why.contains("1 of the checked packets came with other bytes"), "{why}");
    }
}
