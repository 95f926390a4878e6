//! A rate that several workers police together, packet by packet.

use std::sync::Mutex;

use az::SaturatingAs;
use straightline_packet::{IgnorePoison, PacketId, Packets};

use super::bucket::{RateLimits, TokenBucket};
use super::meter::{RateStats, cost};
use crate::clock::{cycles, nanoseconds};

/// A rate without members: each packet takes its tokens from the bucket itself. It takes a lock for
/// each packet, so it is for packets that are chosen one by one, such as by a meter of flow tables.
#[derive(Debug)]
pub struct Policer {
    bucket: Mutex<TokenBucket>,
    stats: RateStats,
}

impl Policer {
    /// Returns a policer with a full bucket.
    #[must_use]
    pub fn new(limits: RateLimits) -> Self {
        let bucket = Mutex::new(TokenBucket::new(limits, nanoseconds(cycles())));
        Policer { bucket, stats: RateStats::default() }
    }

    /// Takes the tokens of a packet, and returns true. Returns false if the packet is beyond the rate.
    pub fn admits(&self, packets: &Packets<'_>, id: PacketId) -> bool {
        let cost = cost(packets, id);
        let passes = {
            let mut bucket = self.bucket.lock().ignore_poison();
            bucket.refill(nanoseconds(cycles()));
            let passes = bucket.has_credit();
            if passes {
                bucket.take(cost);
            }
            passes
        };
        if passes {
            self.stats.bytes.add_shared(cost.bytes.saturating_as::<u64>());
            self.stats.packets.add_shared(cost.packets.saturating_as::<u64>());
        } else {
            self.stats.dropped.add_shared(1);
        }
        passes
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &RateStats {
        &self.stats
    }
}
