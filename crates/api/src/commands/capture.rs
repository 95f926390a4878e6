//! The answer to `capture`. Binary records follow it, which the crate `straightline-capture` reads.

use serde::{Deserialize, Serialize};

/// The arguments of the request `capture`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaptureRequest {
    /// The names of the ports.
    pub ports: Vec<String>,
    /// True for packets that the ports receive.
    #[serde(default, rename = "in")]
    pub received: bool,
    /// True for packets that the ports deliver.
    #[serde(default, rename = "out")]
    pub delivered: bool,
    /// For packets that were dropped: the reason, or an empty text for all reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// The filter; without it all packets are captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The most bytes of a packet.
    pub snaplen: u32,
}

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
