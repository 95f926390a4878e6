//! The answer to `capture`. Binary records follow it, which the crate `straightline-capture` reads.

use serde::{Deserialize, Serialize};

/// The answer to `capture`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Capture {
    /// The captured ports, in the order of the request. Records name them by their place here.
    pub interfaces: Vec<CaptureInterface>,
    /// The names of the drop reasons. Records name them by their place here.
    pub reasons: Vec<String>,
    /// The number of workers. The packets of one worker come in their order.
    pub workers: usize,
}

/// A captured port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaptureInterface {
    /// The port's name.
    pub name: String,
    /// The port's kind.
    pub kind: String,
}
