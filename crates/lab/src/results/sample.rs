//! One trial, as a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The results of one trial. Reports and comparisons know nothing more about scenarios.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The scenario: `pvp`, `vm2vm`, `loop`, or an experiment's name.
    pub scenario: String,
    /// The round, from 1: each one runs all variants of all cells once, one after the other.
    pub round: u32,
    /// The thing that is compared: a switch, a kernel, a width. The variants of one cell are shown
    /// together.
    pub variant: String,
    /// The cell, by axis: `size` = `64`, `ring` = `packed`.
    pub cell: BTreeMap<String, String>,
    /// Metrics, by a name that ends in the unit: `mpps`, `gbit_per_s`, `switch_cycles_per_packet`,
    /// `loss_ratio`, `latency_p99_us`.
    pub metrics: BTreeMap<String, f64>,
    /// The switch's cycles per packet by phase or node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cycles: BTreeMap<String, f64>,
    /// Latencies, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The reason why the trial is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// The metric that marks, as 1, a search that found no load too high: its other metrics are those
/// of the greatest load tried.
pub(crate) const AT_LEAST: &str = "at_least";

/// Metrics that are bounds of a search.
pub(crate) const BOUNDS: [&str; 2] = ["mpps", "gbit_per_s"];

impl Sample {
    /// Returns whether it is of a search that finished without a load that was too high: its
    /// metrics are bounds, and do not take part in comparisons.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.metrics.contains_key(AT_LEAST)
    }
}

/// A histogram of latencies: numbers of packets, by the upper end of each step in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Steps as `[nanoseconds, packets]`, ascending.
    pub steps: Vec<(u64, u64)>,
}
