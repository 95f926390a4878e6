//! Locks whose poison says nothing.

use std::sync::{LockResult, PoisonError};

/// Takes what a lock protects, even if a thread panicked while it held the lock. Each of our locks
/// protects data that is valid between any two statements, so its poison says nothing about it.
///
/// ```
/// use std::sync::Mutex;
///
/// use straightline_packet::IgnorePoison;
///
/// let names = Mutex::new(vec!["a"]);
/// names.lock().ignore_poison().push("b");
/// ```
pub trait IgnorePoison {
    /// The guard, or what else the call returns.
    type Guard;

    /// Returns the guard.
    fn ignore_poison(self) -> Self::Guard;
}

impl<T> IgnorePoison for LockResult<T> {
    type Guard = T;

    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
