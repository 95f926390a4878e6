//! The atomics of the sets, and the patience of their readers. Their test with loom brings others.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Number of tries of a reader.
pub(super) const TRIES: u32 = 4;
