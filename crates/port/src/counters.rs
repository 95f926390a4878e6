//! Counters that one worker writes and any thread reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A number with one writer at a time (the worker that polls the queue, or holds its lock), unless
/// all writers use [`Self::add_shared`].
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
    pub(crate) fn take_back(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
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

/// The counters of a port's queue pairs. They are made when a pair is first used: a port may have a
/// hundred pairs, and most guests use one.
#[derive(Debug)]
pub(crate) struct PairCounters {
    made: Mutex<Vec<Arc<QueueCounters>>>,
    most: usize,
}

impl PairCounters {
    /// Creates the counters of a port with at most so many pairs.
    pub(crate) fn new(most: u16) -> Self {
        PairCounters { made: Mutex::default(), most: most.into() }
    }

    /// Returns the counters of a pair, or `None` if the port cannot have so many pairs.
    pub(crate) fn of_pair(&self, pair: usize) -> Option<Arc<QueueCounters>> {
        self.first(pair + 1).get(pair).cloned()
    }

    /// Returns the counters of the first pairs, `count` of them, or all that the port can have.
    pub(crate) fn first(&self, count: usize) -> Vec<Arc<QueueCounters>> {
        let count = count.min(self.most);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() < count {
            made.resize_with(count, Arc::default);
        }
        made[..count].to_vec()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_keeps_its_counters_and_only_used_pairs_have_some() {
        let pairs = PairCounters::new(127);
        let made = || pairs.made.lock().expect("no panic").len();
        pairs.of_pair(0).expect("a pair").rx.packets.add(1);
        assert_eq!((made(), pairs.first(1)[0].rx.packets.get()), (1, 1));
        pairs.of_pair(3).expect("a pair").rx.packets.add(3);
        let counts: Vec<_> = pairs.first(4).iter().map(|pair| pair.rx.packets.get()).collect();
        assert_eq!((made(), counts), (4, vec![1, 0, 0, 3]));
        assert!(pairs.of_pair(127).is_none());
        assert_eq!(pairs.first(1000).len(), 127);
    }
}
