//! Time in cycles of the time-stamp counter. The counter is cheap enough to be read before and
//! after every node.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the time-stamp counter. On other machines than x86-64, it returns nanoseconds.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction. It accesses no memory.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        u64::try_from(start().1.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the counter and the time, both read at the first call.
fn start() -> &'static (u64, Instant) {
    static START: OnceLock<(u64, Instant)> = OnceLock::new();
    #[cfg(target_arch = "x86_64")]
    return START.get_or_init(both);
    #[cfg(not(target_arch = "x86_64"))]
    START.get_or_init(|| (0, Instant::now()))
}

/// Returns the counter and the time of one moment. A thread may be descheduled between the two
/// reads. So the function tries three times, and takes the try whose reads were closest together.
fn both() -> (u64, Instant) {
    let once = || {
        let before = cycles();
        let time = Instant::now();
        let after = cycles();
        (after.wrapping_sub(before), before, time)
    };
    let (_, cycles, time) = [once(), once(), once()].into_iter().min().unwrap_or_else(once);
    (cycles, time)
}

/// Returns the number of cycles in a second, measured since the first call. The first call takes 10
/// ms.
pub fn hertz() -> f64 {
    let (cycles0, time0) = *start();
    let least = Duration::from_millis(10);
    if time0.elapsed() < least {
        std::thread::sleep(least);
    }
    let (now, time) = both();
    to_f64(now.wrapping_sub(cycles0)) / time.duration_since(time0).as_secs_f64()
}

/// Converts cycles to seconds.
pub fn seconds(cycles: u64) -> f64 {
    to_f64(cycles) / hertz()
}

/// Converts a reading of the counter to nanoseconds of a clock that all threads share.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^64")]
pub fn nanoseconds(cycles: u64) -> u64 {
    static FACTOR: OnceLock<f64> = OnceLock::new();
    let factor = *FACTOR.get_or_init(|| 1e9 / hertz());
    (to_f64(cycles.saturating_sub(start().0)) * factor) as u64
}

/// Returns the whole seconds of [`nanoseconds`]: the clock of [`Packets::now`], which all workers share.
///
/// [`Packets::now`]: straightline_packet::Packets::now
#[inline]
pub fn whole_seconds(cycles: u64) -> u32 {
    u32::try_from(nanoseconds(cycles) / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Converts a time to cycles.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^64")]
pub fn in_cycles(time: Duration, hertz: f64) -> u64 {
    (time.as_secs_f64() * hertz) as u64
}

#[expect(clippy::cast_precision_loss, reason = "a report needs no more than 52 bits")]
fn to_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_seconds() {
        // The time is the subject: seconds of the counter are the system's.
        // Each time lies between two readings of the counter, however long the thread is away.
        let bracket = || (cycles(), Instant::now(), cycles());
        let (before, began, after) = bracket();
        hertz();
        // The longer the time, the less matters a thread that is away between two readings in `hertz`.
        while began.elapsed() < Duration::from_millis(50) {}
        let (before_end, ended, after_end) = bracket();
        let real = (ended - began).as_secs_f64();
        let least = seconds(before_end - after);
        let most = seconds(after_end - before);
        assert!(least < 1.1 * real && 0.9 * real < most, "{real} is not between {least} and {most}");
    }
}
