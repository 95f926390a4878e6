//! Counters that one worker writes and any thread reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that counts up. It has one writer at a time: the worker that polls the queue, or that
/// holds its lock. Several writers must all use [`Self::add_shared`].
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Must not be called by two writers at once: an atomic addition costs a worker more
    /// than a load and a store.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds `n`. Several writers may call it at once, so it costs more than [`Self::add`].
    #[inline]
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts an amount that was added too early. Must not be called by two writers at once.
    pub fn take_back(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Raises the value to `n` if it is lower. Must not be called by two writers at once.
    #[inline]
    pub fn raise(&self, n: u64) {
        if self.0.load(Ordering::Relaxed) < n {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    /// Sets the value to 0. If the writer raises it at the same time, either may be lost.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns the value as last written.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one queue pair. Its rings may be served by two workers.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets that the switch receives from the guest.
    pub rx: RingCounters,
    /// Packets that the switch delivers to the guest.
    pub tx: RingCounters,
}

/// The counters of one ring, written with the ring's lock held. They have two cache lines of their
/// own, because another worker writes the neighbours, and the processor fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RingCounters {
    /// Packets.
    pub packets: Counter,
    /// Their bytes, without the virtio-net header.
    pub bytes: Counter,
    /// Notifications written to the guest.
    pub calls_sent: Counter,
    /// Notifications sent again because the guest's driver did not answer them. The number of sent
    /// notifications does not include them.
    pub calls_repeated: Counter,
    /// Times that buffers were given back without a notification: the guest had asked for none, or
    /// another worker had sent it.
    pub calls_suppressed: Counter,
}
