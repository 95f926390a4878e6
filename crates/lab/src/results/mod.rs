//! Results: samples as they were taken, stored with their environment.

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
