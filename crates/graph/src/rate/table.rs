//! The control half of a rate: its bucket and its counters, which live across reloads.

use std::sync::Arc;

use straightline_api::EventKind;

use super::{Meter, RateBucket, RateLimits, RateStats};
use crate::clock::{cycles, nanoseconds};
use crate::{NodeControl, RefusalNotes, TableEvent, TableView, Told};

/// The owner of a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateOwner {
    /// A port, in the direction of this key: `rate-in` or `rate-out`.
    Port {
        /// The name of the port.
        port: String,
        /// The key.
        key: &'static str,
    },
    /// A bucket that several ports share. Each of them has counters of its own.
    Shared,
}

/// The control half of a rate.
#[derive(Debug)]
pub struct RateTable {
    owner: RateOwner,
    bucket: Arc<RateBucket>,
    /// True if the bucket belongs to another table.
    is_member: bool,
    stats: Arc<RateStats>,
    told: Told<RefusalNotes>,
}

impl RateTable {
    /// Returns a rate with a bucket of its own, which is full.
    #[must_use]
    pub fn new(owner: RateOwner, limits: RateLimits) -> Self {
        let bucket = Arc::new(RateBucket::new(limits, nanoseconds(cycles())));
        RateTable { owner, bucket, is_member: false, stats: Arc::default(), told: Told::default() }
    }

    /// Returns the rate of a port that uses the bucket of `shared`.
    #[must_use]
    pub fn member(owner: RateOwner, shared: &RateTable) -> Self {
        let bucket = Arc::clone(&shared.bucket);
        RateTable { owner, bucket, is_member: true, stats: Arc::default(), told: Told::default() }
    }

    /// Returns a meter for a worker's graph.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter::new(Arc::clone(&self.bucket), Arc::clone(&self.stats))
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> RateLimits {
        self.bucket.limits()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &RateStats {
        &self.stats
    }
}

impl NodeControl for RateTable {
    /// Takes over tokens, debts and counters.
    fn commit(&self, before: &dyn NodeControl) {
        let Some(before) = before.downcast::<Self>() else { return };
        if !self.is_member && !before.is_member {
            self.bucket.continue_from(&before.bucket, nanoseconds(cycles()));
        }
        self.stats.continue_from(&before.stats);
        self.told.take_over(&before.told);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        if self.owner == RateOwner::Shared {
            return vec![("members", self.bucket.members())];
        }
        let RateStats { bytes, packets, waits, waited, dropped } = &*self.stats;
        vec![
            ("bytes", bytes.get()),
            ("packets", packets.get()),
            ("waits", waits.get()),
            ("waited_ms", waited.get() / 1_000_000),
            ("dropped", dropped.get()),
        ]
    }

    /// Tells once a minute that the rate holds packets up.
    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        let RateOwner::Port { port, key } = &self.owner else { return Vec::new() };
        let waits = self.stats.waits.get();
        let dropped = self.stats.dropped.get();
        self.told.news(|told| {
            told.news_as(view, [(port.clone(), None, waits + dropped)], |port, _, _| {
                let message = if dropped > 0 {
                    format!("port {port:?}: {dropped} packets beyond its {key} were dropped so far")
                } else {
                    format!("port {port:?}: packets have waited {waits} times for its {key} so far")
                };
                let source = format!("rate {port}");
                let key = (*key).to_owned();
                TableEvent { source, kind: EventKind::RateReached { port, key, waits, dropped }, message }
            })
        })
    }
}
