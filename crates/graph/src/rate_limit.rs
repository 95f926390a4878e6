//! Limits of events in a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of events in a second. Any worker counts.
///
/// It is a token bucket that gets its tokens at the begin of each second.
#[derive(Debug)]
pub struct RateLimit {
    per_second: u32,
    burst: u32,
    left: Left,
}

/// A limit of events in a second for each of many senders, below one for all of them.
///
/// Senders share a fixed number of counters, so no stranger makes the table grow. Whoever picks the
/// counter of a sender does so by a seeded hash if strangers choose the senders' addresses.
#[derive(Debug)]
pub struct SharedLimit {
    each: u32,
    senders: Box<[Left]>,
    all: RateLimit,
}

/// Bits 0 to 31: the events that are left. Bits 32 to 63: their second.
#[derive(Debug)]
struct Left(AtomicU64);

impl RateLimit {
    /// Returns a limit of `most` events in a second.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self::bursting(most, most)
    }

    /// Returns a limit of `per_second` events in a second, and of `burst` events at once after a pause.
    #[must_use]
    pub fn bursting(per_second: u32, burst: u32) -> Self {
        RateLimit { per_second, burst, left: Left::new(burst) }
    }

    /// Counts an event in the second `now`. Returns `false` if it is beyond the limit. A worker
    /// whose clock is behind counts for the latest second.
    pub fn take(&self, now: u32) -> bool {
        self.left.take(self.per_second, self.burst, now)
    }

    /// Takes back an event that was counted.
    pub fn give_back(&self) {
        let burst = u64::from(self.burst);
        let give = |word: u64| (word & u64::from(u32::MAX) < burst).then(|| word + 1);
        // A full bucket stays as it is.
        let _ = self.left.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
    }
}

impl SharedLimit {
    /// Returns a limit of `each` events in a second for a sender and `all` events for all senders,
    /// with this number of counters.
    #[must_use]
    pub fn new(counters: usize, each: u32, all: u32) -> Self {
        let senders = (0..counters).map(|_| Left::new(each)).collect();
        SharedLimit { each, senders, all: RateLimit::new(all) }
    }

    /// Counts an event of a sender in the second `now`. Returns `false` if it exceeds the sender's
    /// limit or the limit of all. An event that exceeds the sender's limit is not counted for all.
    ///
    /// `sender` picks the counter: senders whose numbers differ by a multiple of the number of
    /// counters share one.
    pub fn take(&self, sender: u64, now: u32) -> bool {
        let counters = self.senders.len() as u64;
        let at = sender.checked_rem(counters).and_then(|at| usize::try_from(at).ok());
        let of_sender = at.and_then(|at| self.senders.get(at));
        of_sender.is_some_and(|left| left.take(self.each, self.each, now)) && self.all.take(now)
    }
}

impl Left {
    fn new(most: u32) -> Self {
        Left(AtomicU64::new(u64::from(most)))
    }

    fn take(&self, per_second: u32, burst: u32, now: u32) -> bool {
        let take = |word: u64| {
            let second = word >> 32;
            let left = word & u64::from(u32::MAX);
            let Some(passed) = u64::from(now).checked_sub(second).filter(|passed| *passed > 0) else {
                return (left > 0).then(|| word - 1);
            };
            let left = passed.saturating_mul(per_second.into()).saturating_add(left).min(burst.into());
            let word = u64::from(now) << 32 | left;
            (left > 0).then(|| word - 1)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_limit_wait_for_the_next_second() {
        let limit = RateLimit::new(2);
        let taken = |now| (0..4).filter(|_| limit.take(now)).count();
        assert_eq!((taken(0), taken(0), taken(7), taken(7)), (2, 0, 2, 0));
        assert_eq!((taken(6), taken(u32::MAX)), (0, 2), "no second begins again");
    }

    #[test]
    fn a_burst_comes_back_slowly() {
        let limit = RateLimit::bursting(200, 400);
        let taken = |now| (0..1000).filter(|_| limit.take(now)).count();
        assert_eq!((taken(5), taken(5), taken(6), taken(7)), (400, 0, 200, 200));
        assert_eq!((taken(8), taken(10), taken(100), taken(99)), (200, 400, 400, 0));
        limit.give_back();
        assert_eq!(taken(100), 1);
        let full = RateLimit::bursting(2, 2);
        full.give_back();
        assert_eq!((0..9).filter(|_| full.take(0)).count(), 2);
        assert!(!RateLimit::bursting(0, 0).take(u32::MAX));
    }

    #[test]
    fn one_sender_leaves_the_others_theirs() {
        let limit = SharedLimit::new(8, 3, 5);
        let taken = |sender, now| (0..10).filter(|_| limit.take(sender, now)).count();
        assert_eq!((taken(1, 0), taken(1, 0), taken(2, 0), taken(3, 0)), (3, 0, 2, 0));
        assert_eq!((taken(u64::MAX, 1), taken(7, 1)), (3, 0), "they share a counter");
        assert_eq!(taken(6, 1), 2);
    }
}
