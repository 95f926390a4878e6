//! A limit of events in a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of events in a second. Any worker counts.
#[derive(Debug)]
pub(crate) struct RateLimit {
    most: u32,
    /// Bits 0 to 31: the events that are left. Bits 32 to 63: their second.
    left: AtomicU64,
}

impl RateLimit {
    /// Returns a limit of `most` events in a second.
    pub(crate) fn new(most: u32) -> Self {
        RateLimit { most, left: AtomicU64::new(u64::from(most)) }
    }

    /// Counts an event in the second `now`. Returns `false` if it is beyond the limit. A worker
    /// whose clock is behind counts for the latest second.
    pub(crate) fn take(&self, now: u32) -> bool {
        let begun = u64::from(now) << 32 | u64::from(self.most);
        let take = |word: u64| {
            let word = if word >> 32 < begun >> 32 { begun } else { word };
            (word & u64::from(u32::MAX) != 0).then(|| word - 1)
        };
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
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
}
