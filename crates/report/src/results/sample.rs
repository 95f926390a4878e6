//! One trial, as a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The results of one trial. Reports and comparisons know scenarios only by their samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The scenario: `pvp`, `vm2vm`, `loop`, or an experiment's name.
    pub scenario: String,
    /// The round, from 1. Each round runs all variants of all cells once, one after the other.
    pub round: u32,
    /// The variant, which is compared with others: a switch, a kernel, a width. The variants of one
    /// cell are shown together.
    pub variant: String,
    /// The cell, by axis: `size` = `64`, `ring` = `packed`.
    pub cell: BTreeMap<String, String>,
    /// Metrics by name. A name ends in the unit: `mpps`, `gbit_per_s`, `switch_cycles_per_packet`,
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

/// The metric that marks, with the value 1, a search that found no load too high. The sample's
/// other metrics are then those of the greatest load tried.
pub const AT_LEAST: &str = "at_least";

/// The metrics that are bounds of a search.
pub const BOUNDS: [&str; 2] = ["mpps", "gbit_per_s"];

impl Sample {
    /// Returns whether the sample is of a search that finished without finding a load too high.
    /// Then its metrics are lower bounds, and take no part in comparisons.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.metrics.contains_key(AT_LEAST)
    }
}

/// A histogram of latencies: the number of packets in each step, with the step's upper end in
/// nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Steps as `[nanoseconds, packets]`, ascending.
    pub steps: Vec<(u64, u64)>,
}
