//! Requests with their arguments.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Command, ErrorCode, Refusal, Request};

/// The arguments of the request `events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventsRequest {
    /// Only events with higher numbers are of interest.
    #[serde(default)]
    pub since: u64,
    /// True for a stream: the kept events and each further one, until the client leaves.
    #[serde(default)]
    pub follow: bool,
}

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

/// The arguments of the request `trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceRequest {
    /// The names of the ports. Packets that they receive are traced.
    pub ports: Vec<String>,
    /// The number of packets.
    pub count: u32,
    /// The filter; without it all packets are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

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

/// The arguments of the request `link`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
#[cfg_attr(feature = "command-line", command(after_help = "Example:\n  straightline link vm1 down"))]
pub struct LinkRequest {
    /// The port's name.
    #[cfg_attr(feature = "command-line", arg(value_name = "PORT", help = "Name of the port"))]
    pub port: String,
    /// False sets the link down; true allows it to be up again.
    #[cfg_attr(feature = "command-line", arg(value_name = "up|down", help = "State of the link"))]
    #[cfg_attr(feature = "command-line", arg(action = clap::ArgAction::Set, value_parser = link_state()))]
    pub up: bool,
}

/// Returns a parser that takes `up` or `down`.
#[cfg(feature = "command-line")]
fn link_state() -> impl clap::builder::TypedValueParser<Value = bool> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(["up", "down"]).map(|state| state == "up")
}

/// The arguments of the request `port`. Its socket comes with the request as a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortRequest {
    /// The port's name.
    pub name: String,
    /// The bridge that the port joins.
    pub join: String,
    /// The name of the socket in answers.
    pub socket: String,
    /// Whether the client made this socket for this port alone. The switch then shuts a socket that
    /// listens down before the port's connection ends, so that no frontend connects again in vain.
    #[serde(default)]
    pub is_own: bool,
}

impl PingRequest {
    fn default_count() -> u32 {
        4
    }

    fn default_ms() -> u32 {
        1000
    }
}

impl Request {
    /// Reads a request line.
    ///
    /// # Errors
    /// The line is not a request. The error says what would be right.
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Word {
            cmd: String,
        }
        let bad = |error: String| Refusal::new(ErrorCode::BadRequest, error);
        let Word { cmd } = serde_json::from_slice(line)
            .map_err(|error| bad(format!("not a request: {error}; write for example {{\"cmd\":\"ports\"}}")))?;
        let command: Command =
            cmd.parse().map_err(|error: String| Refusal::new(ErrorCode::UnknownCommand, error).about(&cmd))?;
        serde_json::from_slice(line)
            .map_err(|error| bad(format!("{cmd}: {error}; {}", command.arguments())).about(&cmd))
    }
}
