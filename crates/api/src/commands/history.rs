//! The answer to `history`.

use serde::{Deserialize, Serialize};

/// The answer to `history`: the traffic of the last two minutes, as counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct History {
    /// The times at which the switch looked at its counters, about one each second, in seconds since
    /// the epoch, oldest first.
    pub times: Vec<f64>,
    /// The ports, by name.
    pub ports: Vec<PortHistory>,
}

/// The counters of a port at the last of the history's times. A port that is newer than the first of
/// them has fewer values. The counters of a port that was made anew begin again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortHistory {
    /// The port.
    pub name: String,
    /// Bytes that the switch had received from the port.
    pub rx_bytes: Vec<u64>,
    /// Bytes that the switch had delivered to the port.
    pub tx_bytes: Vec<u64>,
}
