//! The time that a port's notifications take in the kernel.
//!
//! A signal of an eventfd wakes everybody who watches it. A frontend can watch its eventfd a hundred
//! thousand times, and then each signal takes milliseconds, in which the worker serves nobody else.
//! So notifications that take too long again and again are left to the helper thread
//! (`call_helper`).
//!
//! The measurement costs little. Usually it is two readings of the time-stamp counter for a
//! notification, which is one for a burst. These readings contain the time for which the kernel did
//! not run the worker. So a long call only raises a suspicion: the calls that follow are measured in
//! CPU time of the thread, which costs two system calls more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use az::SaturatingAs;
use rustix::time::{ClockId, clock_gettime};
use straightline_graph::clock::{cycles, hertz, in_cycles};

/// The time that a notification may take.
const LIMIT: Duration = Duration::from_micros(50);

/// The debt of a port after the first long call: so many calls are measured in CPU time.
const SUSPECT: u32 = 64;

/// The debt from which on the helper notifies. Four calls of more than 3 ms are enough, or 200 of 50
/// µs in a row.
const SLOW: u32 = 256;

/// The most that one call adds to the debt.
const MOST: u32 = 64;

/// The cost of one port's notifications, as a debt. A call adds its time in units of [`LIMIT`], and
/// a shorter call subtracts one. So calls that cost more than two limits on average reach the
/// helper, whatever their order.
#[derive(Debug)]
pub(crate) struct CallCost {
    debt: AtomicU32,
    /// True from the time when the debt is [`SLOW`] until it is paid.
    is_slow: AtomicBool,
    /// Cycles of [`LIMIT`].
    limit: u64,
}

impl CallCost {
    /// Returns the cost of a port that has not notified yet. The first call in a process may take 10
    /// ms.
    pub(crate) fn new() -> Self {
        static LIMIT_CYCLES: OnceLock<u64> = OnceLock::new();
        let limit = *LIMIT_CYCLES.get_or_init(|| in_cycles(LIMIT, hertz()));
        CallCost { debt: AtomicU32::new(0), is_slow: AtomicBool::new(false), limit }
    }

    /// Returns whether the helper is to notify.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Forgives a new frontend most of the debt. The rest is forgiven when its calls are short.
    pub(crate) fn forgive(&self) {
        if self.is_slow.swap(false, Ordering::Relaxed) {
            self.debt.store(SLOW - 1, Ordering::Relaxed);
        }
    }

    /// Makes a call, and measures it.
    #[inline]
    pub(crate) fn measure<T>(&self, call: impl FnOnce() -> T) -> T {
        if self.debt.load(Ordering::Relaxed) > 0 {
            return self.measure_closely(call);
        }
        let began = cycles();
        let done = call();
        if cycles().saturating_sub(began) > self.limit {
            self.debt.store(SUSPECT, Ordering::Relaxed);
        }
        done
    }

    /// Makes a call, and measures its CPU time. The helper's calls may also wait.
    #[cold]
    pub(crate) fn measure_closely<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = cpu_time();
        let done = call();
        self.note(cpu_time().saturating_sub(began));
        done
    }

    /// Adds a call to the debt. Several threads may do so at once, and one of the calls may be lost.
    fn note(&self, took: Duration) {
        let times = (took.as_nanos() / LIMIT.as_nanos()).saturating_as::<u32>().min(MOST);
        let debt = self.debt.load(Ordering::Relaxed);
        let debt = if times == 0 { debt.saturating_sub(1) } else { (debt + times).min(SLOW) };
        self.debt.store(debt, Ordering::Relaxed);
        if debt == SLOW {
            self.is_slow.store(true, Ordering::Relaxed);
        } else if debt == 0 {
            self.is_slow.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use straightline_testing::wait_until;

    use super::*;

    /// Returns after how many calls of these times, again and again, the helper notifies.
    fn calls_until_slow(times: &[Duration]) -> Option<usize> {
        let cost = CallCost::new();
        cost.debt.store(SUSPECT, Ordering::Relaxed);
        (1..=10_000).find(|&n| {
            cost.note(times[(n - 1) % times.len()]);
            cost.is_slow()
        })
    }

    #[test]
    fn calls_that_take_too_long_again_and_again_are_slow() {
        let short = Duration::from_micros(2);
        let long = Duration::from_millis(5);
        assert_eq!(calls_until_slow(&[long]), Some(3));
        assert_eq!(calls_until_slow(&[Duration::from_micros(60)]), Some(192));
        assert_eq!(calls_until_slow(&[short]), None);
        // One long call among many short ones, as after an interrupt.
        let rare: Vec<_> = std::iter::once(long).chain([short; 99]).collect();
        assert_eq!(calls_until_slow(&rare), None);
        // Short calls between long ones hide nothing.
        assert!(calls_until_slow(&[long, short, short, short]).is_some());
    }

    #[test]
    fn short_calls_pay_the_debt_and_a_new_frontend_keeps_little_of_it() {
        let cost = CallCost::new();
        let short = Duration::from_micros(2);
        let long = Duration::from_millis(5);
        (0..100).for_each(|_| cost.note(long));
        assert!(cost.is_slow());
        (1..SLOW).for_each(|_| cost.note(short));
        assert!(cost.is_slow(), "one is missing");
        cost.note(short);
        assert!(!cost.is_slow());
        (0..100).for_each(|_| cost.note(long));
        cost.forgive();
        assert!(!cost.is_slow());
        cost.note(long);
        assert!(cost.is_slow(), "a frontend that connects again is known");
    }

    #[test]
    fn waiting_is_no_cost() {
        let cost = CallCost::new();
        // The time is the subject: it passes without CPU time.
        let waits = || std::thread::sleep(Duration::from_millis(1));
        cost.measure(waits);
        assert_eq!(cost.debt.load(Ordering::Relaxed), SUSPECT);
        // Where a hypervisor takes the CPU away, its time may count as ours, so one call may be long.
        wait_until("calls that wait pay the debt", || {
            cost.measure(waits);
            if cost.debt.load(Ordering::Relaxed) < SUSPECT { Ok(()) } else { Err(format!("{cost:?}")) }
        });
    }
}
