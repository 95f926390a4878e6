//! Disturbances of a trial: other programs that run on its CPUs, a hypervisor that takes them away, and
//! interrupts.
//!
//! The kernel counts, for each thread, the time for which it could run but another one had the CPU
//! (`/proc/PID/task/TID/schedstat`). Of each CPU, it counts the time of a hypervisor and of
//! interrupts (`/proc/stat`, proc(5)).

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::param::clock_ticks_per_second;
use straightline_report::results::Validity;

use crate::convert::float;

/// A thread takes part in a trial if it has run, or waited to run, for this part of its time.
const BUSY: f64 = 0.2;

/// The part of a trial for which its threads may wait for a CPU, and for which a CPU may be taken
/// away. On a virtual machine with little else to do, threads waited for 1 to 2 % of the time, for the
/// kernel's threads among others. A comparison calls two rates equal within 2 %.
const WAITED: f64 = 0.02;
const STOLEN: f64 = 0.02;

/// Seconds below which a trial is not judged: one slice of another thread takes milliseconds.
const JUDGED: f64 = 0.1;

/// The counters at a moment.
#[derive(Debug)]
pub(super) struct Counters {
    at: Instant,
    threads: HashMap<Thread, Times>,
    cpus: HashMap<usize, [u64; 2]>,
}

/// A process and its thread.
type Thread = (u32, u32);

/// Nanoseconds for which a thread has run, and has waited for a CPU.
type Times = [u64; 2];

/// The parts of a trial's time for which something else had the CPUs. Each is the largest of all
/// threads or CPUs; `None` if the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// A thread of the trial waited for a CPU.
    pub waited: Option<f64>,
    /// A hypervisor had a CPU.
    pub stolen: Option<f64>,
    /// A CPU served interrupts.
    pub interrupted: Option<f64>,
}

impl Counters {
    /// Reads the counters of all threads of this process and of these others, and of all CPUs.
    pub(super) fn read(others: &[u32]) -> Counters {
        let mut processes = others.to_vec();
        processes.push(std::process::id());
        processes.sort_unstable();
        processes.dedup();
        let threads = processes.into_iter().flat_map(threads).collect();
        let cpus = cpus(&fs::read_to_string("/proc/stat").unwrap_or_default());
        Counters { at: Instant::now(), threads, cpus }
    }

    /// Returns what has disturbed the time until `after`.
    pub(super) fn until(&self, after: &Counters) -> Disturbance {
        let seconds = after.at.duration_since(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return Disturbance::default();
        }
        let part = |[ran, waited]: Times, [ran_before, waited_before]: Times| {
            let [ran, waited] =
                [(ran, ran_before), (waited, waited_before)].map(|(now, then)| now.saturating_sub(then));
            let [ran, waited] = [ran, waited].map(|nanoseconds| float(nanoseconds) / 1e9 / seconds);
            (ran + waited >= BUSY).then_some(waited)
        };
        let threads = after.threads.iter();
        let threads = threads.filter_map(|(thread, &times)| part(times, self.threads.get(thread).copied()?));
        #[expect(clippy::cast_precision_loss, reason = "it is 100")]
        let ticks = clock_ticks_per_second() as f64 * seconds;
        let of_cpus = |which: usize| {
            let parts = after.cpus.iter().filter_map(|(cpu, now)| {
                let before = self.cpus.get(cpu)?;
                Some(float(now[which].saturating_sub(before[which])) / ticks)
            });
            parts.reduce(f64::max)
        };
        Disturbance { waited: threads.reduce(f64::max), stolen: of_cpus(0), interrupted: of_cpus(1) }
    }
}

impl Disturbance {
    /// Returns the parts with their names in samples.
    pub(super) fn metrics(self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("cpu_waited_ratio", self.waited),
            ("cpu_stolen_ratio", self.stolen),
            ("cpu_interrupted_ratio", self.interrupted),
        ];
        all.into_iter().filter_map(|(name, part)| Some((name, part?)))
    }

    /// Returns the validity of a trial of so many planned seconds.
    pub(super) fn validity(self, planned: f64) -> Validity {
        if planned < JUDGED {
            return Validity::Valid;
        }
        let percent = |part: Option<f64>, limit: f64| part.filter(|&part| part > limit).map(|part| 100.0 * part);
        if let Some(waited) = percent(self.waited, WAITED) {
            return Validity::SpoiltByLoad(format!(
                "a thread of the trial waited for its CPU for {waited:.1} % of the time: another program runs there"
            ));
        }
        if let Some(stolen) = percent(self.stolen, STOLEN) {
            return Validity::SpoiltByLoad(format!(
                "a hypervisor took a CPU away for {stolen:.1} % of the time: use a machine with CPUs of its own"
            ));
        }
        Validity::Valid
    }
}

/// Returns the times of a process's threads. A process of another user may hide them.
fn threads(process: u32) -> Vec<(Thread, Times)> {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let thread = entry.file_name().to_str()?.parse().ok()?;
        Some(((process, thread), times(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?))
    };
    entries.filter_map(read).collect()
}

/// Parses `schedstat` of a thread: the nanoseconds that it ran and waited, and the number of slices.
fn times(text: &str) -> Option<Times> {
    let mut fields = text.split_whitespace().map(str::parse);
    Some([fields.next()?.ok()?, fields.next()?.ok()?])
}

/// Parses `/proc/stat`: of each CPU, the ticks of a hypervisor and of interrupts.
fn cpus(text: &str) -> HashMap<usize, [u64; 2]> {
    let of_line = |line: &str| {
        // The first line is the sum of all.
        let of_one = line.strip_prefix("cpu").filter(|rest| !rest.starts_with(' '))?;
        let mut fields = of_one.split_whitespace();
        let cpu = fields.next()?.parse().ok()?;
        // user nice system idle iowait irq softirq steal
        let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        Some((cpu, [*ticks.get(7)?, ticks.get(5)? + ticks.get(6)?]))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
impl Counters {
    /// Makes the counters of a kernel that tells nothing.
    pub(super) fn unknown() -> Counters {
        Counters { at: straightline_graph::Clock::moved().now(), threads: HashMap::new(), cpus: HashMap::new() }
    }

    /// Makes the counters before and after a second, in which threads have run and waited for these
    /// milliseconds, and a hypervisor had a CPU for these ticks.
    pub(super) fn of_a_second(threads: &[[u64; 2]], stolen: u64) -> [Counters; 2] {
        let at = straightline_graph::Clock::moved().now();
        let numbered = |times: &[Times]| (0..).zip(times.iter().copied()).map(|(n, times)| ((1, n), times)).collect();
        let zero = vec![[0, 0]; threads.len()];
        let times: Vec<_> = threads.iter().map(|times| times.map(|milliseconds| milliseconds * 1_000_000)).collect();
        let before = Counters { at, threads: numbered(&zero), cpus: HashMap::from([(0, [0, 0])]) };
        let cpus = HashMap::from([(0, [stolen, 5])]);
        let after = Counters { at: at + std::time::Duration::from_secs(1), threads: numbered(&times), cpus };
        [before, after]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_parsed() {
        assert_eq!(times("1234 567 8\n"), Some([1234, 567]));
        assert_eq!(times("0"), None);
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu12 10 0 0 0 0 1 2 3 0 0\nintr 5\n";
        assert_eq!(cpus(text), HashMap::from([(0, [8, 13]), (12, [3, 3])]));
        assert!(!threads(std::process::id()).is_empty(), "this machine's kernel tells them");
    }

    fn second(threads: &[[u64; 2]], stolen: u64) -> Disturbance {
        let [before, after] = Counters::of_a_second(threads, stolen);
        before.until(&after)
    }

    #[test]
    fn a_thread_that_waits_spoils_the_trial() {
        let quiet = second(&[[995, 5], [990, 8]], 0);
        assert_eq!(quiet, Disturbance { waited: Some(0.008), stolen: Some(0.0), interrupted: Some(0.05) });
        assert_eq!(quiet.validity(1.0), Validity::Valid);
        let beside_a_compiler = second(&[[995, 5], [500, 480]], 0).validity(1.0);
        assert!(beside_a_compiler.is_spoilt_by_load(), "{beside_a_compiler:?}");
        assert!(beside_a_compiler.reason().is_some_and(|why| why.contains("48.0 %")), "{beside_a_compiler:?}");
    }

    /// Each limit by its last value that is kept, and the next one.
    #[test]
    fn limits_are_exact() {
        let valid = |threads: &[[u64; 2]], stolen, planned| second(threads, stolen).validity(planned).is_valid();
        assert_eq!([20, 21].map(|waited| valid(&[[970, waited]], 0, 1.0)), [true, false]);
        // There are 100 ticks a second.
        assert_eq!([2, 3].map(|stolen| valid(&[[970, 0]], stolen, 1.0)), [true, false]);
        // A thread takes part from a fifth of the time on.
        assert_eq!([[149, 50], [150, 50]].map(|thread| valid(&[thread], 0, 1.0)), [true, false]);
        assert_eq!([0.099, 0.1].map(|planned| valid(&[[500, 480]], 0, planned)), [true, false]);
    }

    #[test]
    fn a_trial_of_some_milliseconds_is_not_judged() {
        let busy = second(&[[500, 480]], 0);
        assert_eq!((busy.validity(0.05), busy.metrics().count()), (Validity::Valid, 3));
    }

    #[test]
    fn threads_with_little_to_do_do_not_count() {
        assert_eq!(second(&[[995, 0], [5, 50]], 0).validity(1.0), Validity::Valid);
    }

    #[test]
    fn a_hypervisor_spoils_the_trial() {
        assert_eq!(second(&[[995, 0]], 1).validity(1.0), Validity::Valid);
        let stolen = second(&[[995, 0]], 10).validity(1.0);
        assert!(stolen.is_spoilt_by_load() && stolen.reason().is_some_and(|why| why.contains("10.0 %")), "{stolen:?}");
    }

    #[test]
    fn what_the_kernel_does_not_tell_spoils_nothing() {
        assert_eq!(Disturbance::default().validity(1.0), Validity::Valid);
        assert_eq!(Disturbance::default().metrics().count(), 0);
    }
}
