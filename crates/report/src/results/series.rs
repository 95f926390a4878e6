//! The samples of a run, and their series.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Environment, MemoryBounds, Sample};

/// A folder of results that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The environment of the samples.
    pub environment: Environment,
    /// The samples in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// The bounds of the machine's memory, if they were measured.
    pub bounds: Option<MemoryBounds>,
}

/// The key of a series. Samples with the same key differ only by chance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeriesKey {
    /// The scenario of the sample.
    pub scenario: String,
    /// The cell of the sample.
    pub cell: BTreeMap<String, String>,
    /// The variant of the sample.
    pub variant: String,
}

impl SeriesKey {
    /// Returns the key of a sample.
    pub fn of(sample: &Sample) -> SeriesKey {
        SeriesKey { scenario: sample.scenario.clone(), cell: sample.cell.clone(), variant: sample.variant.clone() }
    }
}

impl Results {
    /// Returns samples by series, in the order in which each series first appears.
    pub fn places(&self) -> Vec<(SeriesKey, Vec<&Sample>)> {
        let mut places: Vec<(SeriesKey, Vec<&Sample>)> = Vec::new();
        let mut known = BTreeMap::new();
        for sample in &self.samples {
            let at = *known.entry(SeriesKey::of(sample)).or_insert_with_key(|place| {
                places.push((place.clone(), Vec::new()));
                places.len() - 1
            });
            places[at].1.push(sample);
        }
        places
    }
}

/// Returns the values of a metric, each with its round, in the form that `statistics` uses. Samples
/// that are not valid, or do not have the metric, are left out.
pub fn series<'a>(samples: impl IntoIterator<Item = &'a Sample>, metric: &str) -> Vec<(u32, f64)> {
    let valid = samples.into_iter().filter(|sample| sample.is_valid());
    valid.filter_map(|sample| Some((sample.round, *sample.metrics.get(metric)?))).collect()
}
