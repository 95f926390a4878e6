//! The answer to `ping`, and the lines of its stream.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The arguments of the request `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PingRequest {
    /// The name of the underlay that sends the echo requests.
    pub underlay: String,
    /// The address to which they go.
    pub address: IpAddr,
    /// The number of echo requests.
    #[serde(default = "PingRequest::default_count")]
    pub count: u32,
    /// Milliseconds from one request to the next.
    #[serde(default = "PingRequest::default_ms")]
    pub interval_ms: u32,
    /// Milliseconds that a reply may take.
    #[serde(default = "PingRequest::default_ms")]
    pub timeout_ms: u32,
}

impl PingRequest {
    fn default_count() -> u32 {
        4
    }

    fn default_ms() -> u32 {
        1000
    }
}

/// The answer to `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ping {
    /// The underlay that sends the echo requests.
    pub underlay: String,
    /// The address of the underlay from which they come.
    pub source: String,
    /// The address to which they go.
    pub address: String,
    /// The next hop to that address.
    pub next_hop: String,
}

/// A line of a ping's stream: the end of an echo request. Its kind is the field `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PingLine {
    /// The reply has come.
    Reply {
        /// The number of the request, from 1.
        seq: u32,
        /// Milliseconds from the request to the reply.
        time_ms: f64,
    },
    /// No reply has come in time.
    NoReply {
        /// The number of the request.
        seq: u32,
    },
    /// The request was not sent: the next hop has not told its MAC address in time.
    NextHopUnknown {
        /// The number of the request.
        seq: u32,
        /// The next hop.
        next_hop: String,
    },
    /// No further request can be sent, for example after a reload. This is the last line.
    Failed {
        /// The reason in words.
        error: String,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}
