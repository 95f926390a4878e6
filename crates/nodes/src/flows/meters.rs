//! Counters and meters of flows, which workers and control share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use straightline_flow::{FlowCount, Meter, MeterUnit};
use straightline_graph::{Limit, Policer, RateLimits, RateStats};

/// The counters of a flow, which workers add to. A clone counts into the same place.
#[derive(Clone, Debug, Default)]
pub struct FlowCounters(Arc<Counts>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Time of the last packet in seconds, and 1 more; 0 for none.
    used: AtomicU32,
}

impl FlowCounters {
    pub(super) fn add(&self, packets: u64, bytes: u64, now: u32) {
        let Counts { packets: all_packets, bytes: all_bytes, used } = &*self.0;
        all_packets.fetch_add(packets, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
        used.store(now.saturating_add(1), Ordering::Relaxed);
    }
}

/// A packet that is still to be segmented counts once. The time is the end of the second in which the
/// last packet came, on the clock of [`nanoseconds`](straightline_graph::clock::nanoseconds).
impl FlowCount for FlowCounters {
    fn packets(&self) -> u64 {
        self.0.packets.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn last_used(&self) -> Option<Duration> {
        let used = self.0.used.load(Ordering::Relaxed);
        (used > 0).then(|| Duration::from_secs(used.into()))
    }
}

/// The meters of a bridge, which control keeps. A meter that stays as it was keeps its tokens and its
/// counters.
#[derive(Clone, Debug, Default)]
pub struct FlowMeters(BTreeMap<u32, Metered>);

type Metered = (Meter, Arc<Policer>);

impl FlowMeters {
    /// Makes these the meters.
    pub fn replace(&mut self, meters: impl IntoIterator<Item = (u32, Meter)>) {
        let mut before = std::mem::take(&mut self.0);
        for (number, meter) in meters {
            let same = before.remove(&number).filter(|(known, _)| *known == meter);
            let policer = same.map_or_else(|| Arc::new(Policer::new(limits(meter))), |(_, policer)| policer);
            self.0.insert(number, (meter, policer));
        }
    }

    /// Returns the policer of a meter.
    pub(super) fn policer(&self, number: u32) -> Option<Arc<Policer>> {
        self.0.get(&number).map(|(_, policer)| Arc::clone(policer))
    }

    /// Returns whether these are the same meters.
    pub(super) fn is_same(&self, other: &FlowMeters) -> bool {
        let same = |((number, (_, one)), (other_number, (_, other))): ((&u32, &Metered), (&u32, &Metered))| {
            number == other_number && Arc::ptr_eq(one, other)
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }

    /// Returns the counters of a meter.
    #[must_use]
    pub fn stats(&self, number: u32) -> Option<&RateStats> {
        self.0.get(&number).map(|(_, policer)| policer.stats())
    }
}

/// Returns the limits of a meter. Without a burst, it is what a second brings.
fn limits(meter: Meter) -> RateLimits {
    let Meter { unit, rate, burst } = meter;
    let (each, is_bytes) = match unit {
        MeterUnit::Kilobits => (125, true),
        MeterUnit::Packets => (1, false),
    };
    let per_second = u64::from(rate) * each;
    let limit = Limit { per_second, burst: burst.map_or(per_second, |burst| u64::from(burst) * each) };
    if is_bytes {
        RateLimits { bytes: Some(limit), packets: None }
    } else {
        RateLimits { bytes: None, packets: Some(limit) }
    }
}
