//! One trial, as a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one trial came to. Reports and comparisons know of scenarios no more than this says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// What was measured: `pvp`, `vm2vm`, `loop`, or an experiment's name.
    pub scenario: String,
    /// The round, from 1: in each one all variants of all cells come once, one after the other.
    pub round: u32,
    /// What is compared: a switch, a kernel, a width. Of one cell all variants belong beside one another.
    pub variant: String,
    /// Where it was measured, by axis: `size` = `64`, `ring` = `packed`.
    pub cell: BTreeMap<String, String>,
    /// Figures, by a name that ends in the unit: `mpps`, `gbit_per_s`, `switch_cycles_per_packet`, `loss_ratio`,
    /// `latency_p99_us`.
    pub metrics: BTreeMap<String, f64>,
    /// The switch's cycles for a packet by phase or node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cycles: BTreeMap<String, f64>,
    /// Latencies, where they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Why the trial does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// The figure of a search that says, as 1, that its others are only the most that could be tried, and none of it was too much.
pub(crate) const AT_LEAST: &str = "at_least";

/// Figures of which a search finds bounds.
pub(crate) const BOUNDS: [&str; 2] = ["mpps", "gbit_per_s"];

impl Sample {
    /// Whether it is of a search that came to its end and found nothing too much: its figures are bounds, and do not count where
    /// figures are compared.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.metrics.contains_key(AT_LEAST)
    }
}

/// A histogram of latencies: counts of packets, by the upper end of each step in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// `[nanoseconds, packets]`, ascending.
    pub steps: Vec<(u64, u64)>,
}
