//! The rate limit for log lines that a port's peer can cause.
//!
//! Each port has one limit for all such lines. A frontend that connects or errs in a loop fills
//! neither a disk nor the log of other ports. No more does the other end of a veth pair whose
//! carrier comes and goes. Lines that operators cause, and the trace of messages, are not limited.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

/// Lines that a port may log in a row.
const BURST: u32 = 20;

/// A port may log one more line after this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Suppressed lines are reported after this time without a line. An earlier report would take a
/// token from lines that say more.
const PAUSE: Duration = Duration::from_secs(5);

/// A token bucket: each line takes a token, and time adds them.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// Lines that may be logged now.
    tokens: u32,
    /// The time when the last token was added, or when the bucket was last found full.
    refilled: Instant,
    /// The time when a line was last asked for.
    last: Instant,
    /// Lines that were suppressed and not reported yet.
    suppressed: u64,
}

impl LogLimit {
    pub(crate) fn new(now: Instant) -> Self {
        LogLimit { tokens: BURST, refilled: now, last: now, suppressed: 0 }
    }

    /// Asks for one line. Returns the number of lines suppressed before it, or `None` if it is
    /// suppressed too.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        self.last = now;
        if self.tokens == 0 {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Returns the time from which suppressed lines are reported, or `None` if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.suppressed > 0).then(|| self.last + PAUSE)
    }

    /// Returns the number of suppressed lines at a pause. The report takes a token, of which a
    /// pause adds several.
    pub(crate) fn report(&mut self, now: Instant) -> Option<u64> {
        self.due().filter(|due| *due <= now).and_then(|_| self.admit(now))
    }

    fn refill(&mut self, now: Instant) {
        while self.tokens < BURST && now.saturating_duration_since(self.refilled) >= INTERVAL {
            self.tokens += 1;
            self.refilled += INTERVAL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
    }
}

/// The limit of a port, which its threads share.
#[derive(Debug)]
pub(crate) struct PortLogLimit {
    limit: Mutex<LogLimit>,
    clock: Clock,
}

impl PortLogLimit {
    pub(crate) fn new(clock: Clock) -> Self {
        PortLogLimit { limit: Mutex::new(LogLimit::new(clock.now())), clock }
    }

    /// Asks for one line, as [`LogLimit::admit`] does. The lock is released before the line is
    /// written.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.limit().admit(self.clock.now())
    }

    /// Returns the time from which [`Self::report`] has something to report.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.limit().due()
    }

    /// Returns the number of suppressed lines at a pause, when no later line reports them.
    pub(crate) fn report(&self) -> Option<u64> {
        self.limit().report(self.clock.now())
    }

    fn limit(&self) -> MutexGuard<'_, LogLimit> {
        self.limit.lock().ignore_poison()
    }
}

/// Logs a line that the peer of a port can cause, unless the port has logged too many.
macro_rules! log_limited {
    ($limit:expr, target: $target:expr, port = $port:expr, $level:expr, $text:expr) => {
        $crate::log_limit::log_limited!(@levels $limit, $target, $port, $level, $text,
            ERROR error, WARN warn, INFO info, DEBUG debug)
    };
    (@levels $limit:expr, $target:expr, $port:expr, $level:expr, $text:expr, $($LEVEL:ident $log:ident),+) => {
        match $level {
            // Lines of a disabled level take no token.
            $(tracing::Level::$LEVEL if tracing::enabled!(target: $target, tracing::Level::$LEVEL) => {
                match $limit.admit() {
                    Some(0) => tracing::$log!(target: $target, port = $port, "{}", $text),
                    Some(suppressed_before) => {
                        tracing::$log!(target: $target, port = $port, suppressed_before, "{}", $text);
                    }
                    None => {}
                }
            })+
            _ => {}
        }
    };
}
pub(crate) use log_limited;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a limit whose burst is used up, and the time.
    fn exhausted() -> (LogLimit, Instant) {
        let now = Clock::moved().now();
        let mut limit = LogLimit::new(now);
        for _ in 0..BURST {
            assert_eq!(limit.admit(now), Some(0));
        }
        (limit, now)
    }

    #[test]
    fn a_burst_is_followed_by_a_line_each_interval() {
        let (mut limit, now) = exhausted();
        assert_eq!(limit.due(), None, "nothing is suppressed yet");
        for ms in [0, 1, 999] {
            assert_eq!(limit.admit(now + Duration::from_millis(ms)), None);
        }
        assert_eq!(limit.admit(now + INTERVAL), Some(3), "the next line counts those before it");
        assert_eq!(limit.admit(now + INTERVAL), None);
        assert_eq!(limit.admit(now + 2 * INTERVAL), Some(1));
    }

    #[test]
    fn suppressed_lines_are_reported_once_at_a_pause() {
        let (mut limit, now) = exhausted();
        limit.admit(now);
        limit.admit(now);
        assert_eq!(limit.due(), Some(now + PAUSE));
        // A line would be admitted again after a second, but the next line would say more.
        assert_eq!(limit.report(now + INTERVAL), None);
        assert_eq!(limit.report(now + PAUSE), Some(2));
        assert_eq!((limit.due(), limit.report(now + 9 * PAUSE)), (None, None));
        // The report took one of the five tokens of the pause.
        let admitted = (0..9).filter(|_| limit.admit(now + PAUSE).is_some()).count();
        assert_eq!(admitted, 4);
    }

    #[test]
    fn a_long_pause_gives_one_burst_and_no_more() {
        let (mut limit, now) = exhausted();
        let later = now + 1000 * INTERVAL;
        let admitted = (0..1000).filter(|_| limit.admit(later).is_some()).count();
        assert_eq!(admitted, 20);
        // A clock reading from before the last one adds nothing.
        assert_eq!(limit.admit(now), None);
    }
}
