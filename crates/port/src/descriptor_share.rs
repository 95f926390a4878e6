//! Descriptors that peers may have this process keep.
//!
//! All ports take theirs from one pool, because the limit (`RLIMIT_NOFILE`) is the process's. Each
//! port has a reserve, which nobody else can use up. A frontend may have more than its port's
//! reserve as long as it leaves at least as many free. So one greedy frontend takes half of what is
//! free at most, two take a third each, and the reserve of a new port is free in any case.

use std::sync::{Mutex, MutexGuard};

use straightline_packet::IgnorePoison;

/// The pool of this process.
static POOL: Mutex<Pool> = Mutex::new(Pool { limit: u64::MAX, taken: 0 });

#[derive(Debug)]
struct Pool {
    limit: u64,
    /// The reserves of all ports, and what frontends have beyond them. Reserves may exceed the
    /// limit.
    taken: u64,
}

impl Pool {
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }

    /// Returns how many of the `wanted` descriptors a port may have that has `before` of them.
    fn admit(&self, before: u64, wanted: u64) -> u64 {
        let fair = self.free().saturating_add(before) / 2;
        wanted.min(fair.max(before))
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().ignore_poison()
}

/// Limits the descriptors that the ports of this process keep. There is no limit before.
pub fn set_descriptor_limit(limit: u64) {
    pool().limit = limit;
}

/// Returns the descriptors that the ports of this process have, or that are reserved for them.
pub fn descriptors_taken() -> u64 {
    pool().taken
}

/// Returns the descriptors that no port has, and that are reserved for none.
pub fn descriptors_free() -> u64 {
    pool().free()
}

/// The descriptors of one port. Dropping the value gives them back.
#[derive(Debug)]
pub(crate) struct DescriptorShare {
    reserve: u64,
    /// Descriptors beyond the reserve.
    more: u64,
}

impl DescriptorShare {
    /// Reserves descriptors.
    pub(crate) fn new(reserve: u64) -> Self {
        let mut pool = pool();
        pool.taken = pool.taken.saturating_add(reserve);
        DescriptorShare { reserve, more: 0 }
    }

    /// Makes the share as large as `wanted`, or as large as it may be. Returns its size, which is
    /// never less than the reserve.
    pub(crate) fn resize(&mut self, wanted: u64) -> u64 {
        let mut pool = pool();
        let more = pool.admit(self.more, wanted.saturating_sub(self.reserve));
        pool.taken = pool.taken.saturating_sub(self.more).saturating_add(more);
        self.more = more;
        self.reserve.saturating_add(more)
    }
}

impl Drop for DescriptorShare {
    fn drop(&mut self) {
        let mut pool = pool();
        pool.taken = pool.taken.saturating_sub(self.reserve.saturating_add(self.more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_more_than_a_reserve_leaves_as_many_free() {
        let mut pool = Pool { limit: 100, taken: 40 };
        assert_eq!(pool.admit(0, 20), 20);
        assert_eq!(pool.admit(0, 1000), 30, "half of what is free");
        pool.taken += 30;
        assert_eq!(pool.admit(30, 1000), 30, "asking again gives no more");
        assert_eq!(pool.admit(0, 1000), 15, "the next one gets half of the rest");
        pool.taken += 30;
        assert_eq!(pool.admit(30, 1000), 30, "nothing is taken away");
        assert_eq!(pool.admit(30, 7), 7);
        pool.taken += 30;
        assert_eq!((pool.free(), pool.admit(0, 1), pool.admit(30, 31)), (0, 0, 30), "reserves exceed the limit");
    }
}
