//! The synchronization primitives of the RCU. Its test with loom brings others.

pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Lets time pass before the next look at a reader, by spinning, yielding or sleeping after ever
/// more `tries`.
pub(super) fn pause(tries: u32) {
    match tries {
        0..200 => std::hint::spin_loop(),
        200..1000 => std::thread::yield_now(),
        // The system's time: readers end their turns by themselves, and nobody moves a clock for them.
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
