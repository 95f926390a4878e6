//! Latencies: counted in a fixed array during the trial, converted to a histogram afterwards.

use az::SaturatingAs;
use hdrhistogram::Histogram;

use straightline_report::results;

/// Number of steps of one cycle, before steps get wider. Each further power of two has half as many
/// steps. A wider step is narrower than 2 % of its latency.
const STEPS: usize = 128;
const BITS: u32 = STEPS.trailing_zeros();

/// The number of steps up to 2^48 cycles.
const ALL: usize = STEPS + (48 - BITS as usize) * (STEPS / 2);

/// Reported quantiles with the names of their metrics. One of this many packets may be slower than
/// the quantile. With fewer packets the quantile is unknown.
const QUANTILES: [(u32, &str); 6] = [
    (2, "latency_p50_us"),
    (10, "latency_p90_us"),
    (100, "latency_p99_us"),
    (1000, "latency_p99_9_us"),
    (10_000, "latency_p99_99_us"),
    (1_000_000, "latency_p99_9999_us"),
];

/// Number of packets by latency in cycles.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    counts: Box<[u64]>,
    least: u64,
    most: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies { counts: vec![0; ALL].into(), least: u64::MAX, most: 0 }
    }

    pub(crate) fn clear(&mut self) {
        *self = Latencies::new();
    }

    #[inline]
    pub(crate) fn note(&mut self, cycles: u64) {
        if let Some(count) = self.counts.get_mut(step(cycles)) {
            *count += 1;
            self.least = self.least.min(cycles);
            self.most = self.most.max(cycles);
        }
    }

    /// Returns the upper end of each step in nanoseconds, with the number of packets in the step.
    fn nanoseconds(&self, hertz: f64) -> impl Iterator<Item = (u64, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        // The last step ends at the slowest packet.
        used.map(move |(step, count)| (nanoseconds(end(step).min(self.most), hertz), *count))
    }

    /// Returns the latencies in the form of a sample.
    pub(crate) fn steps(&self, hertz: f64) -> results::Latency {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        for (end, count) in self.nanoseconds(hertz) {
            match steps.last_mut() {
                // Several cycles may fall into one nanosecond.
                Some(last) if last.0 == end => last.1 += count,
                _ => steps.push((end, count)),
            }
        }
        results::Latency { steps }
    }

    /// Returns the metrics of a sample, in microseconds. Quantiles that need more packets than came
    /// are left out. Without packets there are no metrics.
    pub(crate) fn metrics(&self, hertz: f64) -> Vec<(&'static str, f64)> {
        // The array has a lower precision than the three digits of the histogram. The histogram
        // grows as needed.
        let Ok(mut histogram) = Histogram::<u64>::new(3) else { return Vec::new() };
        for (end, count) in self.nanoseconds(hertz) {
            if histogram.record_n(end, count).is_err() {
                return Vec::new();
            }
        }
        if histogram.is_empty() {
            return Vec::new();
        }
        let mut metrics = vec![("latency_min_us", micros(nanoseconds(self.least, hertz)))];
        // A step of the histogram may end after the slowest packet.
        let most = nanoseconds(self.most, hertz);
        let known = QUANTILES.iter().filter(|(one_in, _)| histogram.len() >= u64::from(*one_in));
        metrics.extend(known.map(|&(one_in, name)| {
            let quantile = 1.0 - 1.0 / f64::from(one_in);
            (name, micros(histogram.value_at_quantile(quantile).min(most)))
        }));
        metrics.push(("latency_max_us", micros(most)));
        metrics
    }
}

/// Returns the index of the step for a number of cycles.
#[inline]
fn step(cycles: u64) -> usize {
    let octave = (u64::BITS - cycles.leading_zeros()).saturating_sub(BITS);
    if octave == 0 {
        return cycles.saturating_as::<usize>();
    }
    // The highest `BITS` bits select the step within a power of two. The first of these bits is
    // always set, so a power of two has half as many steps.
    let top = (cycles >> octave).saturating_as::<usize>();
    (octave as usize) * (STEPS / 2) + top
}

/// Returns the greatest number of cycles in a step.
fn end(step: usize) -> u64 {
    let wide = |n: usize| n.saturating_as::<u64>();
    if step < STEPS {
        return wide(step);
    }
    let octave = (step - STEPS / 2) / (STEPS / 2);
    let top = wide(step - octave * (STEPS / 2));
    ((top + 1) << octave) - 1
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "less than 2^52 cycles"
)]
fn nanoseconds(cycles: u64, hertz: f64) -> u64 {
    (cycles as f64 * 1e9 / hertz).round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a metric for display")]
fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_one_another_and_are_narrow() {
        let mut last = 0;
        for cycles in
            (0..2000).chain((11..48).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 1))]))
        {
            let at = step(cycles);
            assert!(at == last || at == last + 1 || cycles >= 2000, "{cycles}: {at} after {last}");
            assert!(at < ALL);
            assert!(end(at) >= cycles && (end(at) - cycles) * 60 <= cycles.max(1), "{cycles}: up to {}", end(at));
            assert_eq!(step(end(at)), at);
            assert_eq!(step(end(at) + 1), at + 1);
            last = at;
        }
        assert!(step((1 << 48) - 1) < ALL);
    }

    #[test]
    fn quantiles_are_those_of_the_packets() {
        let mut latencies = Latencies::new();
        assert!(latencies.metrics(1e9).is_empty() && latencies.steps(1e9).steps.is_empty());
        (1..=1_000_000).for_each(|cycles| latencies.note(cycles));
        let metrics = latencies.metrics(1e9);
        let metric = |name: &str| metrics.iter().find(|f| f.0 == name).expect(name).1;
        for (name, wanted) in [
            ("latency_p50_us", 500.0),
            ("latency_p90_us", 900.0),
            ("latency_p99_9_us", 999.0),
            ("latency_p99_9999_us", 999.999),
        ] {
            assert!((metric(name) / wanted - 1.0).abs() < 0.02, "{name}: {}", metric(name));
        }
        assert_eq!(
            (metric("latency_min_us").to_bits(), metric("latency_max_us").to_bits()),
            (0.001_f64.to_bits(), 1000.0_f64.to_bits())
        );
        let steps = latencies.steps(1e9).steps;
        assert_eq!(steps.iter().map(|s| s.1).sum::<u64>(), 1_000_000);
        assert_eq!(steps.last().expect("steps").0, 1_000_000);
        assert!(steps.is_sorted_by(|a, b| a.0 < b.0));
        latencies.clear();
        assert!(latencies.metrics(1e9).is_empty());
    }

    #[test]
    fn quantiles_want_as_many_packets_as_they_speak_of() {
        let names = |packets: u64| {
            let mut latencies = Latencies::new();
            (0..packets).for_each(|cycles| latencies.note(cycles));
            latencies.metrics(1e9).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["latency_min_us", "latency_max_us"]);
        assert_eq!(names(99), ["latency_min_us", "latency_p50_us", "latency_p90_us", "latency_max_us"]);
        assert_eq!(names(100)[3..], ["latency_p99_us", "latency_max_us"]);
        assert!(!names(999).contains(&"latency_p99_9_us") && names(1000).contains(&"latency_p99_9_us"));
        assert!(!names(999_999).contains(&"latency_p99_9999_us"));
    }
}
