//! Results: samples as they were taken, with their environment.

mod bounds;
pub mod compare;
mod environment;
mod reasons;
mod sample;
mod series;
mod validity;

pub use bounds::{LevelBounds, LineBounds, MemoryBounds, TouchedBounds};
pub use compare::Comparison;
pub use environment::{Difference, Environment, FORMAT};
pub use reasons::Reasons;
pub use sample::{BOUNDS, Latency, Sample};
pub use series::{Results, SeriesKey, series};
pub use validity::{NotValid, Validity};
