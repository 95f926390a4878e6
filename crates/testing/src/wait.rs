//! The one wait of all tests: for an event, with one limit.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Limit of each wait. Only a failing test waits so long, so it allows for the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// First pause between two questions. There may be fewer CPUs than threads, so others must run.
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// Longest pause between two questions.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// An answer to the question whether an event has come: a `bool`, an `Option` or a `Result`.
pub trait Answer {
    /// Value of the event.
    type Value;

    /// Returns the value, or why it is not there yet.
    ///
    /// # Errors
    /// The event has not come.
    fn value(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Debug> Answer for Result<T, E> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.map_err(|why| format!(": {why:?}"))
    }
}

/// Asks again and again until the event has come, and returns its value. To show in the failure what
/// was there instead, answer with a `Result`.
///
/// # Panics
/// Panics with `what`, and with the last error, when [`PATIENCE`] is over.
#[track_caller]
pub fn wait_until<A: Answer>(what: &str, mut ask: impl FnMut() -> A) -> A::Value {
    let end = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask().value() {
            Ok(value) => return value,
            Err(why) => assert!(Instant::now() < end, "timed out before {what}{why}"),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
