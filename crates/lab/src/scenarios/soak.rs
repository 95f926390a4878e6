//! A soak: a load over a long time.

use std::time::Duration;

use straightline_report::results::Sample;

use super::find::{FAULTS, TrialLog, gbit, spoilt};
use super::run::Run;
use crate::convert::float;
use crate::testbed::Testbed;
use crate::traffic::generator::Rate;
use crate::trial::search::{self, Soak, SoakGoal, Soaked, Trial};
use crate::trial::validity::soak_stopped;

/// At first, the trials of a soak are this many times as long as other trials.
const LONGER: u32 = 10;

/// Carries a load over a long time.
pub(super) fn carry(
    run: &mut Run<'_, '_, '_>,
    testbed: &mut Testbed<'_>,
    rate: Rate,
    time: Duration,
) -> anyhow::Result<()> {
    let load = format!("soak {} s", time.as_secs_f64());
    let Some(pps) = rate.pps(testbed.mean_len()) else {
        anyhow::bail!(
            "a soak at maximum rate is not possible: set a rate such as 1mpps, or no rate for 90 % of the NDR"
        );
    };
    let options = run.options;
    let place = run.place(testbed);
    let mut made = TrialLog::default();
    let mut goal = SoakGoal::new(pps, time);
    // A user who sets short trials has a reason: much longer trials would be disturbed.
    goal.trial = goal.trial.min(options.time * LONGER);
    goal.shortest = goal.shortest.min(options.time).min(goal.trial);
    let mut measure = |trial: Trial| made.trial(options, testbed, trial);
    run.says(&place, &load);
    let mut progress = |soaked: &Soaked| {
        let what = format!("{load} at {:.3} Mpps: {} of {} packets lost", pps / 1e6, soaked.lost, soaked.sent);
        run.says(&place, &what);
    };
    let soaked = search::soak(&goal, &mut measure, &mut progress)?;
    let sample = soak_sample(&soaked, time, testbed.mean_len(), &made);
    run.keep_trials(testbed, made.trials)?;
    if let Some(remark) = remark_on(&soaked.soak) {
        run.note(testbed, &load, remark);
    }
    if let Some(last) = made.failed.last() {
        let what = format!("{} trials were not valid because of a backend, the last one: {last}", made.failed.len());
        run.note(testbed, &load, &what);
    }
    run.keep(testbed, &load, sample)
}

fn remark_on(soak: &Soak) -> Option<&'static str> {
    match soak {
        Soak::TooMuchLost => Some("more than one packet of ten million was lost"),
        Soak::TooFew => Some("too few packets were sent to detect a loss of one of ten million: soak longer"),
        Soak::Carried | Soak::Stopped(_) => None,
    }
}

/// Makes the sample of a soak. It tells whether the load was carried to the end with no more loss
/// than allowed, if that is known. If a soak is interrupted in its first trial, the sample has the
/// metrics of that trial.
fn soak_sample(soaked: &Soaked, time: Duration, mean_len: f64, made: &TrialLog) -> Sample {
    let seconds = soaked.time.as_secs_f64();
    let sent = float(soaked.sent);
    let lost = float(soaked.lost);
    let mut sample = spoilt(&made.faults);
    if seconds > 0.0 && sent > 0.0 {
        let came = (sent - lost) / seconds / 1e6;
        let values = [
            ("mpps", came),
            ("gbit_per_s", gbit(came, mean_len)),
            ("offered_mpps", sent / seconds / 1e6),
            ("loss_ratio", lost / sent),
            ("sent", sent),
            ("lost", lost),
            ("secs", seconds),
            ("shortest_trial_secs", soaked.shortest.as_secs_f64()),
        ];
        sample.metrics.extend(values.map(|(name, value)| (name.to_owned(), value)));
    }
    if let Soak::Stopped(why) = &soaked.soak {
        if let Some((_, last)) = made.trials.last().filter(|_| seconds <= 0.0 && why.is_interrupted()) {
            let values = last.metrics.iter().filter(|(name, _)| !FAULTS.contains(&name.as_str()));
            sample.metrics.extend(values.map(|(name, value)| (name.clone(), *value)));
        }
        // Without a valid trial there is no time to report.
        let seconds = sample.metrics.get("secs").copied().unwrap_or(0.0);
        sample.validity = sample.validity.or_else(|| soak_stopped(why, seconds, time.as_secs_f64()));
    }
    sample.carried = match soaked.soak {
        // A repeated trial does not make up for a failed one.
        _ if !made.failed.is_empty() => Some(false),
        Soak::Carried => Some(true),
        Soak::TooMuchLost => Some(false),
        Soak::TooFew | Soak::Stopped(_) => None,
    };
    sample
}

#[cfg(test)]
mod tests {
    use straightline_report::results::Validity;

    use super::*;
    use crate::testbed::TrialResult;

    fn interrupted() -> Validity {
        Validity::Interrupted("interrupted".to_owned())
    }

    fn beyond() -> Validity {
        Validity::SpoiltByLoad("beyond".to_owned())
    }

    /// A soak with no valid trial.
    fn none(soak: Soak) -> Soaked {
        Soaked { sent: 0, lost: 0, time: Duration::ZERO, shortest: Duration::from_secs(10), soak }
    }

    #[test]
    fn whether_a_soak_was_carried_is_a_figure() {
        let outcome_of = |soak: Soak| {
            let soaked = Soaked { sent: 50_000_000, lost: 5, time: Duration::from_secs(50), ..none(soak) };
            let sample = soak_sample(&soaked, Duration::from_secs(60), 64.0, &TrialLog::default());
            assert!((0.99..1.0).contains(&sample.metrics["mpps"]), "{sample:?}");
            (sample.carried, sample.validity)
        };
        assert_eq!(outcome_of(Soak::Carried), (Some(true), Validity::Valid));
        assert_eq!(outcome_of(Soak::TooMuchLost), (Some(false), Validity::Valid));
        assert_eq!(outcome_of(Soak::TooFew), (None, Validity::Valid));
        let why = "interrupted, after 50.0 of 60.0 s".to_owned();
        assert_eq!(outcome_of(Soak::Stopped(interrupted())), (None, Validity::Interrupted(why)));
        let sample = soak_sample(&none(Soak::Stopped(beyond())), Duration::from_secs(60), 64.0, &TrialLog::default());
        assert_eq!((sample.metrics.len(), sample.validity), (0, beyond()));
    }

    #[test]
    fn a_soak_in_which_a_backend_failed_is_not_carried() {
        let made = TrialLog { failed: vec!["it closed the connection".to_owned()], ..TrialLog::default() };
        let outcome_of = |soak: Soak| {
            let soaked = Soaked { sent: 50_000_000, time: Duration::from_secs(50), ..none(soak) };
            let carried = |made| soak_sample(&soaked, Duration::from_secs(60), 64.0, made).carried;
            [&made, &TrialLog::default()].map(|made| carried(made) == Some(false))
        };
        assert_eq!(outcome_of(Soak::Carried), [true, false]);
        assert_eq!(outcome_of(Soak::TooFew), [true, false]);
        assert_eq!(outcome_of(Soak::Stopped(interrupted())), [true, false]);
        assert_eq!(outcome_of(Soak::TooMuchLost), [true, true]);
    }

    #[test]
    fn a_soak_that_is_interrupted_in_its_first_trial_has_the_figures_of_that() {
        let mut made = TrialLog::default();
        let mut takes = |values: [(&str, f64); 3], why: &str| {
            let metrics = values.map(|(name, value)| (name.to_owned(), value)).into();
            let sample = Sample { metrics, validity: interrupted().because(why), ..Sample::default() };
            made.note(Rate::Pps(1e6), &TrialResult { sample, sent: 0, lost: 0 });
        };
        takes([("mpps", 0.5), ("secs", 10.1), ("duplicates", 1.0)], "it lasted too long");
        takes([("mpps", 0.9), ("secs", 3.21), ("duplicates", 2.0)], "interrupted, after 3.2 of 10.0 s");
        let outcome_of = |why: Validity| {
            let soaked = none(Soak::Stopped(why));
            let sample = soak_sample(&soaked, Duration::from_secs(60), 64.0, &made);
            let metric = |name: &str| sample.metrics.get(name).copied();
            ([metric("mpps"), metric("duplicates")], sample.validity.clone())
        };
        let cut = interrupted().because("interrupted, after 3.2 of 60.0 s");
        assert_eq!(outcome_of(interrupted()), ([Some(0.9), Some(3.0)], cut));
        assert_eq!(outcome_of(beyond()), ([None, Some(3.0)], beyond()));
    }
}
