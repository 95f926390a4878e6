//! One trial, as a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Validity;

/// The results of one trial. Reports and comparisons know scenarios only by their samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
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
    pub cycles: BTreeMap<String, f64>,
    /// Latencies, if they were measured.
    pub latency: Option<Latency>,
    /// The result of a soak, if it is known: whether the load was carried to the end.
    pub carried: Option<bool>,
    /// Whether the trial is valid. A line has it as `validity`, and its reason as `invalid`.
    pub validity: Validity,
}

/// A sample as a line of a file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    scenario: String,
    round: u32,
    variant: String,
    cell: BTreeMap<String, String>,
    metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cycles: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carried: Option<bool>,
    /// The word. Older versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validity: Option<String>,
    /// The reason, if the trial is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invalid: Option<String>,
}

/// Metrics of older versions: of a search that found no load too high, and of a soak, 1 if its load
/// was carried and 0 if not.
const OLD_AT_LEAST: &str = "at_least";
const OLD_CARRIED: &str = "carried";

impl TryFrom<Line> for Sample {
    type Error = String;

    fn try_from(line: Line) -> Result<Sample, String> {
        let Line { scenario, round, variant, cell, mut metrics, cycles, latency, mut carried, validity, invalid } =
            line;
        let validity = match validity {
            Some(word) => Validity::of_word(&word, invalid)?,
            None => {
                let is_lower_bound = metrics.remove(OLD_AT_LEAST).is_some();
                carried = carried.or(metrics.remove(OLD_CARRIED).map(|carried| carried >= 0.5));
                Validity::of_reason(invalid, is_lower_bound)
            }
        };
        Ok(Sample { scenario, round, variant, cell, metrics, cycles, latency, carried, validity })
    }
}

impl From<Sample> for Line {
    fn from(sample: Sample) -> Line {
        let Sample { scenario, round, variant, cell, metrics, cycles, latency, carried, validity } = sample;
        let word = Some(validity.word().to_owned());
        let invalid = validity.reason().map(str::to_owned);
        Line { scenario, round, variant, cell, metrics, cycles, latency, carried, validity: word, invalid }
    }
}

/// The metrics that are bounds of a search.
pub const BOUNDS: [&str; 2] = ["mpps", "gbit_per_s"];

impl Sample {
    /// Returns whether the trial is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.validity.is_valid()
    }

    /// Returns whether the sample is of a search that finished without finding a load too high.
    /// Then its rates are lower bounds.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.validity.is_lower_bound()
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
