//! Latencies of one or several trials as percentiles.

use crate::results::Latency;

/// Packets by latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    /// Latencies in nanoseconds, each with the number of packets that took no longer. Both ascend.
    steps: Vec<(u64, u128)>,
    total: u128,
}

/// The greatest number of nines that is shown. Six nines are one packet in a million.
pub(super) const NINES: f64 = 6.0;

impl Distribution {
    /// Combines the packets of all these trials; `None` without packets.
    pub(super) fn of<'a>(latencies: impl IntoIterator<Item = &'a Latency>) -> Option<Self> {
        let mut steps: Vec<(u64, u64)> =
            latencies.into_iter().flat_map(|latency| latency.steps.iter().copied()).collect();
        steps.retain(|step| step.1 > 0);
        steps.sort_unstable();
        let mut merged: Vec<(u64, u128)> = Vec::with_capacity(steps.len());
        let mut total = 0;
        for (ns, packets) in steps {
            total += u128::from(packets);
            match merged.last_mut() {
                Some(last) if last.0 == ns => last.1 = total,
                _ => merged.push((ns, total)),
            }
        }
        (total > 0).then_some(Distribution { steps: merged, total })
    }

    pub(super) fn packets(&self) -> u128 {
        self.total
    }

    pub(super) fn least(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.0)
    }

    pub(super) fn most(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.0)
    }

    /// Returns the latency that only this share of the packets exceeds; `None` if there are too few
    /// packets. For example, a share of one in a thousand needs a thousand packets.
    pub(super) fn above(&self, one_in: u32) -> Option<u64> {
        let one_in = u128::from(one_in);
        if self.total < one_in {
            return None;
        }
        let rank = self.total - self.total / one_in;
        self.steps.iter().find(|step| step.1 >= rank).map(|step| step.0)
    }

    /// Returns the points of a step curve: number of nines, and nanoseconds. The curve ends at the
    /// slowest packet.
    pub(super) fn curve(&self) -> Vec<(f64, u64)> {
        let mut curve = Vec::with_capacity(2 * self.steps.len());
        let mut from = 0.0;
        let end = nines(1, self.total);
        for &(ns, until) in &self.steps {
            curve.push((from, ns));
            let to = if until < self.total { nines(self.total - until, self.total) } else { end };
            curve.push((to, ns));
            if to >= NINES {
                break;
            }
            from = to;
        }
        curve
    }
}

/// Returns the number of nines if `left` of `all` packets are slower: one in a thousand is three
/// nines.
fn nines(left: u128, all: u128) -> f64 {
    let ratio = all as f64 / left as f64;
    ratio.log10().clamp(0.0, NINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_packets_together() {
        let first = Latency { steps: vec![(1000, 500), (2000, 490), (9000, 10)] };
        let second = Latency { steps: vec![(2000, 999), (50_000, 1)] };
        let both = Distribution::of([&first, &second]).expect("packets");
        assert_eq!((both.packets(), both.least(), both.most()), (2000, 1000, 50_000));
        let percentiles = [2, 10, 100, 1000, 10_000].map(|one_in| both.above(one_in));
        assert_eq!(percentiles, [Some(2000), Some(2000), Some(2000), Some(9000), None]);
        let curve = both.curve();
        assert_eq!(curve.first(), Some(&(0.0, 1000)));
        let last = curve.last().expect("points");
        assert!((last.0 - 2000_f64.log10()).abs() < 1e-9 && last.1 == 50_000, "{curve:?}");
    }

    #[test]
    fn no_packets_are_no_distribution_and_any_counts_are_held() {
        assert_eq!(Distribution::of([&Latency::default(), &Latency { steps: vec![(5, 0)] }]), None);
        let full = Latency { steps: vec![(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 1)] };
        let all = Distribution::of([&full, &full]).expect("packets");
        assert_eq!((all.least(), all.most(), all.above(2)), (0, u64::MAX, Some(u64::MAX)));
        assert!(all.curve().iter().all(|point| (0.0..=NINES).contains(&point.0)));
    }
}
