//! Limits of events in a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of events in a second. Any worker counts.
#[derive(Debug)]
pub struct RateLimit {
    most: u32,
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
        RateLimit { most, left: Left::new(most) }
    }

    /// Counts an event in the second `now`. Returns `false` if it is beyond the limit. A worker
    /// whose clock is behind counts for the latest second.
    pub fn take(&self, now: u32) -> bool {
        self.left.take(self.most, now)
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
        of_sender.is_some_and(|left| left.take(self.each, now)) && self.all.take(now)
    }
}

impl Left {
    fn new(most: u32) -> Self {
        Left(AtomicU64::new(u64::from(most)))
    }

    fn take(&self, most: u32, now: u32) -> bool {
        let begun = u64::from(now) << 32 | u64::from(most);
        let take = |word: u64| {
            let word = if word >> 32 < begun >> 32 { begun } else { word };
            (word & u64::from(u32::MAX) != 0).then(|| word - 1)
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
    fn one_sender_leaves_the_others_theirs() {
        let limit = SharedLimit::new(8, 3, 5);
        let taken = |sender, now| (0..10).filter(|_| limit.take(sender, now)).count();
        assert_eq!((taken(1, 0), taken(1, 0), taken(2, 0), taken(3, 0)), (3, 0, 2, 0));
        assert_eq!((taken(u64::MAX, 1), taken(7, 1)), (3, 0), "they share a counter");
        assert_eq!(taken(6, 1), 2);
    }
}
