//! Counters that one worker writes and anybody reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number with one writer at a time (the worker that polls the queue, or holds its lock).
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Not for two writers at once: an atomic addition costs a worker more than a load and a store.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes back what was added too early. Not for two writers at once.
    pub(crate) fn take_back(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// The value as last written.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One queue pair. `rx` is what the switch receives from the guest, `tx` what it delivers.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets received.
    pub rx_packets: Counter,
    /// Bytes of them, without the virtio-net header.
    pub rx_bytes: Counter,
    /// Packets delivered.
    pub tx_packets: Counter,
    /// Bytes of them.
    pub tx_bytes: Counter,
    /// Notifications written to the guest.
    pub kicks_sent: Counter,
    /// Times that buffers were given back and the guest had asked not to be told.
    pub kicks_suppressed: Counter,
}
