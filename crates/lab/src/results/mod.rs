//! What trials came to: samples as they were taken, kept with what they were taken on.

pub mod compare;
mod environment;
mod folder;
mod sample;
mod together;

pub use compare::Comparison;
pub use environment::{Difference, Environment, FORMAT};
pub use folder::{Results, SeriesKey, Writer, series};
pub(crate) use sample::{AT_LEAST, BOUNDS};
pub use sample::{Latency, Sample};
