//! The meaning of a metric's name: its unit, and which direction is better.

use crate::statistics::{Better, LIMIT};

/// A metric of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    /// The metric's name in samples.
    pub(super) name: String,
    /// Its label.
    pub(super) label: String,
    pub(super) unit: String,
    /// The better direction; none if unknown.
    pub(super) better: Option<Better>,
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
    pub(super) fn new(name: &str) -> Self {
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

    /// Returns the sort key. A name that is only a unit comes before longer names with this unit.
    pub(super) fn order(&self) -> (u8, bool, &str) {
        (self.rank, !ENDS.iter().any(|end| end.0 == self.name), &self.name)
    }

    /// Returns the metric's label, with the unit.
    pub(super) fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }

    /// Returns the word for a variant whose value is higher or lower.
    pub(super) fn says(&self, higher: bool) -> &'static str {
        let speed = self.rank <= 2;
        match (self.better, higher) {
            (None, true) => "higher",
            (None, false) => "lower",
            (Some(Better::More), true) | (Some(Better::Less), false) if speed => "faster",
            (Some(Better::More), true) | (Some(Better::Less), false) => "better",
            _ if speed => "slower",
            _ => "worse",
        }
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
            let (rank, says_more, name) = metric.order();
            (rank, says_more, name.to_owned())
        });
        assert_eq!(names, ["mpps", "offered_mpps", "gbit_per_s", "core_gbit_per_s", "generator_limit_mpps"]);
    }

    #[test]
    fn fewer_cycles_are_faster_and_less_loss_is_better() {
        assert_eq!(Metric::new("mpps").says(true), "faster");
        assert_eq!(Metric::new("switch_cycles_per_packet").says(true), "slower");
        assert_eq!(Metric::new("loss_ratio").says(false), "better");
        assert_eq!(Metric::new("odd").says(false), "lower");
        // The generator's limit is not a result of a trial, so it has no better direction.
        assert_eq!(Metric::new(LIMIT).says(true), "higher");
    }
}
