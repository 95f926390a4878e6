//! Real trials, which take time and need CPUs of their own: only `STRAIGHTLINE_LONG=1`
//! (`cargo xtask test --long`) makes them. All else in this program ends by packets or by events.
//!
//! A trial that the load side has spoilt is made again by the runs themselves. So each variant has some
//! rounds for a valid trial, whatever its other trials were spoilt by.

mod experiments;
mod reflector;
mod scenarios;
mod trial;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a trial runs: trials side by side would take each other's CPUs, and few would be valid.
static CPUS: Mutex<()> = Mutex::new(());

/// Returns a guard of the CPUs in a long run; `None` in others.
fn cpus() -> Option<MutexGuard<'static, ()>> {
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    is_long.then(|| CPUS.lock().unwrap_or_else(PoisonError::into_inner))
}
