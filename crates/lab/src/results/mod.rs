//! What trials came to: samples as they were taken, kept with what they were taken on.

mod sample;

pub use sample::{Latency, Sample};
