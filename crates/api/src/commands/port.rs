//! The request `port`.

use serde::{Deserialize, Serialize};

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
    /// The groups of the port. None: all its packets pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}
