//! The atomics of the table. Its test with loom brings others.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;
