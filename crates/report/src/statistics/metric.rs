//! The meaning of a metric's name: its unit, and which direction is better.

use super::Better;
use super::better::LIMIT;

/// A metric of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The metric's name in samples.
    pub name: String,
    /// Its label.
    pub label: String,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// The better direction; none if unknown.
    pub better: Option<Better>,
    rank: u8,
}

/// Ends of metric names, each with the quantity, its unit, and its rank in a report.
const ENDS: [(&str, &str, &str, u8); 15] = [
    ("mpps", "throughput", "Mpps", 0),
    ("gbit_per_s", "throughput", "Gbit/s", 1),
    ("packets_per_s", "throughput", "packets/s", 1),
    ("bit_per_s", "throughput", "bit/s", 1),
    ("cycles_per_packet", "cost", "cycles/packet", 2),
    ("cycles_per_byte", "cost", "cycles/byte", 2),
    ("cpu_s_per_gb", "CPU time", "s/GB", 3),
    ("ns", "", "ns", 3),
    ("us", "", "µs", 3),
    ("ms", "", "ms", 3),
    ("ratio", "", "ratio", 4),
    ("percent", "", "%", 4),
    ("secs", "", "s", 5),
    ("bytes", "", "bytes", 5),
    ("packets", "", "packets", 5),
];

impl Metric {
    /// Returns the metric of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let end = ENDS.iter().find_map(|end| {
            let start = name.strip_suffix(end.0)?;
            (start.is_empty() || start.ends_with('_')).then_some((start.trim_end_matches('_'), end))
        });
        let per = name.rsplit_once("_per_");
        let (start, noun, unit, rank) = match (end, per) {
            (Some((start, &(_, noun, unit, rank))), _) => (start, noun, unit.to_owned(), rank),
            (None, Some((what, each))) => (what, "", format!("per {}", words(each)), 5),
            (None, None) => (name, "", String::new(), 6),
        };
        let rank = if name == LIMIT { u8::MAX } else { rank };
        let label = match (words(start), noun) {
            (start, "") if start.is_empty() => words(name),
            (start, "") => start,
            (start, noun) if start.is_empty() => noun.to_owned(),
            (start, noun) => format!("{start} {noun}"),
        };
        Metric { name: name.to_owned(), label, unit, better: Better::of(name), rank }
    }

    /// Returns the sort key. A name that is only a unit comes before longer names with this unit, and the
    /// median of a distribution before its other values.
    pub fn order(&self) -> (u8, bool, bool, &str) {
        let is_unit = ENDS.iter().any(|end| end.0 == self.name);
        (self.rank, !is_unit, !self.name.contains("_p50_"), &self.name)
    }

    /// Returns the metric's label, with the unit.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_count() {
        let titles = [
            "mpps",
            "gbit_per_s",
            "switch_cycles_per_packet",
            "latency_p99_us",
            "loss_ratio",
            "switch_cpu_s_per_gb",
            "lines_per_packet",
            "odd",
        ]
        .map(|name| Metric::new(name).title());
        let expected = [
            "throughput (Mpps)",
            "throughput (Gbit/s)",
            "switch cost (cycles/packet)",
            "latency p99 (µs)",
            "loss (ratio)",
            "switch CPU time (s/GB)",
            "lines (per packet)",
            "odd",
        ];
        assert_eq!(titles, expected);
    }

    #[test]
    fn a_result_comes_before_what_it_could_have_been_at_most() {
        let mut names = ["generator_limit_mpps", "core_gbit_per_s", "offered_mpps", "gbit_per_s", "mpps"];
        names.sort_by_key(|name| {
            let metric = Metric::new(name);
            let (rank, says_more, _, name) = metric.order();
            (rank, says_more, name.to_owned())
        });
        assert_eq!(names, ["mpps", "offered_mpps", "gbit_per_s", "core_gbit_per_s", "generator_limit_mpps"]);
        assert!(Metric::new("latency_p50_us").order() < Metric::new("latency_max_us").order());
    }

    #[test]
    fn the_limit_of_a_generator_has_no_better_direction() {
        assert_eq!(Metric::new("mpps").better, Some(Better::More));
        assert_eq!(Metric::new(LIMIT).better, None);
    }
}
