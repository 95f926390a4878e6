//! What the rcu is made of; its test with loom has others.

pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Lets time pass for somebody who was asked `tries` times.
pub(super) fn pause(tries: u32) {
    match tries {
        0..200 => std::hint::spin_loop(),
        200..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
