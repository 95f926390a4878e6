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

/// One queue pair. Its rings may be served by two workers.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// What the switch receives from the guest.
    pub rx: RingCounters,
    /// What it delivers.
    pub tx: RingCounters,
}

/// One ring, whose lock is held while they are written. On lines of their own (two: the processor fetches lines in
/// pairs): another worker writes the neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RingCounters {
    /// Packets.
    pub packets: Counter,
    /// Bytes of them, without the virtio-net header.
    pub bytes: Counter,
    /// Notifications written to the guest.
    pub kicks_sent: Counter,
    /// Notifications sent once more because the guest's driver did not answer them; not counted among those sent.
    pub calls_repeated: Counter,
    /// Times that buffers were given back and the guest had asked not to be told, or another worker had told it of them.
    pub kicks_suppressed: Counter,
}
