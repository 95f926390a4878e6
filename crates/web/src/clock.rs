//! The clock by which a server tells the age of an answer. A test has one that it moves. What waits, such
//! as a connection for its client, has tokio's clock.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Tells the time.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Instant + Send + Sync>);

impl Clock {
    pub(crate) fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Instant {
        (self.0)()
    }
}

impl Default for Clock {
    /// Returns the system's clock.
    fn default() -> Self {
        // The system's time: this is the clock of a server that no test moves.
        Self::new(Instant::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// A time that a test moves.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct MovedTime {
    begun: Instant,
    passed: std::sync::Mutex<std::time::Duration>,
}

#[cfg(test)]
impl MovedTime {
    /// Returns a time that stands still, and the clock that shows it.
    pub(crate) fn new() -> (Arc<Self>, Clock) {
        // The time is the subject: a moved clock begins at the present time.
        let time = Arc::new(Self { begun: Instant::now(), passed: std::sync::Mutex::default() });
        let shown = Arc::clone(&time);
        (time, Clock::new(move || shown.now()))
    }

    pub(crate) fn now(&self) -> Instant {
        self.begun + *self.passed.lock().expect("no panic")
    }

    pub(crate) fn advance(&self, by: std::time::Duration) {
        *self.passed.lock().expect("no panic") += by;
    }
}
