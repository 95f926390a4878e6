//! The length of trials. The longer a trial is, the likelier it is that another thread runs on one
//! of its CPUs meanwhile.

use std::thread;
use std::time::Duration;

use straightline_graph::clock::{cycles, hertz};
use straightline_guest::endpoints::Pinned;

use super::validity::TOLERANCE;
use crate::convert::seconds;
use crate::traffic::generator::CATCH_UP;

/// Possible lengths of trials. The first one at which most trials are undisturbed is used, or else
/// the last one.
const LENGTHS: [Duration; 3] = [Duration::from_secs(1), Duration::from_millis(300), Duration::from_millis(100)];

/// The shortest time for which CPUs are watched. A pause at its end makes it longer.
const WATCHED: Duration = Duration::from_secs(2);

/// The distance between the start times of the simulated trials.
const STEP: Duration = Duration::from_millis(50);

/// A pause, in which a polling thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Absence {
    /// Time since the start of the watch.
    at: Duration,
    lasted: Duration,
}

/// The length of trials, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Measured time of a trial.
    pub time: Duration,
    /// How often a thread was descheduled for so long that it could not catch up.
    pub absences: usize,
    /// The time of the watch. It is longer than planned if a thread was descheduled at the end.
    pub watched: Duration,
}

/// Watches these CPUs for two seconds, with a thread on each that polls as in a trial. Returns the
/// length for trials on these CPUs.
///
/// # Errors
/// There is no such CPU.
pub fn length(cpus: &[usize]) -> anyhow::Result<Length> {
    let mut absences = Vec::new();
    let mut watched = Duration::ZERO;
    thread::scope(|threads| {
        let watching: Vec<_> = cpus.iter().map(|&cpu| threads.spawn(move || watch(cpu))).collect();
        watching.into_iter().try_for_each(|thread| {
            let (seen, time) = thread.join().map_err(|_| {
                anyhow::anyhow!("a thread that watches a CPU for pauses has panicked, which is a bug in the laboratory")
            })??;
            absences.extend(seen);
            watched = watched.max(time);
            anyhow::Ok(())
        })
    })?;
    Ok(Length { time: longest(&absences, watched), absences: absences.len(), watched })
}

/// Returns the pauses on a CPU, and the time for which it was watched.
fn watch(cpu: usize) -> anyhow::Result<(Vec<Absence>, Duration)> {
    let _pinned = Pinned::to(cpu)?;
    Ok(absences(cycles, hertz()))
}

/// Returns the pauses between readings of a counter of this frequency, and the time that was watched.
fn absences(mut counter: impl FnMut() -> u64, hertz: f64) -> (Vec<Absence>, Duration) {
    let time = |cycles: u64| Duration::from_secs_f64(seconds(cycles, hertz));
    let mut absences = Vec::new();
    let began = counter();
    let mut before = began;
    while time(before - began) < WATCHED {
        let now = counter();
        let lasted = time(now.saturating_sub(before));
        if lasted > CATCH_UP {
            absences.push(Absence { at: time(before - began), lasted });
        }
        before = before.max(now);
    }
    (absences, time(before - began))
}

fn longest(absences: &[Absence], watched: Duration) -> Duration {
    let is_spoilt = |from: Duration, length: Duration| {
        let is_within = |absence: &&Absence| absence.at < from + length && from < absence.at + absence.lasted;
        let within = absences.iter().filter(is_within);
        within.map(|absence| absence.lasted.saturating_sub(CATCH_UP)).sum::<Duration>() > length.mul_f64(TOLERANCE)
    };
    let is_left_alone = |length: &Duration| {
        let begins = || (0..).map(|n| STEP * n).take_while(|&from| from + *length <= watched);
        2 * begins().filter(|&from| is_spoilt(from, *length)).count() < begins().count()
    };
    LENGTHS.into_iter().find(is_left_alone).unwrap_or(LENGTHS[LENGTHS.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_as_long_as_most_are_left_alone() {
        let millis = Duration::from_millis;
        let longest = |absences: &[Absence]| longest(absences, WATCHED);
        let each = |step: u64, lasted: u64| -> Vec<Absence> {
            (0..2000 / step).map(|n| Absence { at: millis(n * step + step / 2), lasted: millis(lasted) }).collect()
        };
        assert_eq!(longest(&[]), millis(1000));
        // A pause of nearly the time that can be caught up with does not disturb a long trial.
        assert_eq!(longest(&each(1000, 2)), millis(1000));
        assert_eq!(longest(&each(1000, 5)), millis(300));
        assert_eq!(longest(&each(300, 5)), millis(100));
        assert_eq!(longest(&each(50, 5)), millis(100));
        // Once, at the beginning.
        assert_eq!(longest(&[Absence { at: millis(20), lasted: millis(100) }]), millis(1000));
    }

    #[test]
    fn a_pause_at_the_end_is_a_part_of_the_watch() {
        let millis = Duration::from_millis;
        let absence = Absence { at: millis(1500), lasted: millis(2500) };
        // The CPU was away for most of the four seconds, but for a quarter of the planned two.
        assert_eq!(longest(&[absence], millis(4000)), millis(100));
        assert_eq!(longest(&[Absence { lasted: millis(500), ..absence }], millis(2000)), millis(1000));
    }

    /// A counter of a megahertz, read in each 100 microseconds.
    #[test]
    fn pauses_are_those_that_nobody_can_catch_up_with() {
        let millis = Duration::from_millis;
        let mut now = 5_000_000;
        let mut left = vec![(1_600_000, 1001), (1_500_000, 3000), (500_000, 1000)];
        let counter = || {
            now += 100;
            if let Some(&(at, lasts)) = left.last()
                && now >= 5_000_000 + at
            {
                left.pop();
                now += lasts - 100;
            }
            now
        };
        let (pauses, watched) = absences(counter, 1e6);
        let lasted: Vec<_> = pauses.iter().map(|pause| pause.lasted).collect();
        assert_eq!(lasted, [millis(3), Duration::from_micros(1001)], "a millisecond is caught up with");
        assert!((1400..1500).contains(&pauses[0].at.as_millis()), "{pauses:?}");
        assert!(watched >= WATCHED && watched < WATCHED + millis(1), "{watched:?}");
        // A pause at the end is watched to its end.
        let mut readings = [0, 1_999_900, 9_000_000].into_iter();
        let (pauses, watched) = absences(|| readings.next().expect("no reading after the end"), 1e6);
        assert_eq!((pauses.len(), watched), (2, Duration::from_secs(9)));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(length(&[rustix::thread::CpuSet::MAX_CPU]).is_err());
    }
}
