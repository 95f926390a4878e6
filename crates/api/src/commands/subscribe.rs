//! The request `subscribe`: the state of networks, then its changes.

use serde::{Deserialize, Serialize};

/// The arguments of the request `subscribe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SubscribeRequest {
    /// The owner whose entries stay for as long as this stream is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Seconds that its entries stay after the stream has ended.
    #[serde(default = "SubscribeRequest::default_stale")]
    pub stale_s: u32,
    /// Only these bridges are of interest; without names all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<String>,
}

impl SubscribeRequest {
    /// The longest time that entries stay, in seconds.
    pub const MOST_STALE: u32 = 86_400;

    fn default_stale() -> u32 {
        120
    }
}

impl Default for SubscribeRequest {
    fn default() -> Self {
        SubscribeRequest { owner: None, stale_s: Self::default_stale(), bridges: Vec::new() }
    }
}

/// The answer to `subscribe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Subscribed {
    /// A name of this run of the switch. After a restart it is another one, and all entries of owners
    /// are gone.
    pub instance: String,
    /// The number of the owner's remotes and stations from before.
    pub unconfirmed: u64,
}

/// A line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NetworkEvent {
    /// The whole state follows. What it does not have is gone.
    Begin,
    /// The whole state is complete. Changes follow.
    Synced,
    /// A station is behind a port: learned, or fixed by the file.
    Learned {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The address.
        mac: String,
        /// The port.
        port: String,
        /// The file has the station.
        #[serde(default, rename = "static", skip_serializing_if = "is_false")]
        is_static: bool,
        /// The port is a tunnel.
        #[serde(default, rename = "tunnel", skip_serializing_if = "is_false")]
        is_tunnel: bool,
        /// The port may send from certain MAC addresses only (`allowed-macs`).
        #[serde(default, rename = "checked", skip_serializing_if = "is_false")]
        is_checked: bool,
    },
    /// A station has moved to a port.
    Moved {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The address.
        mac: String,
        /// The port behind which it was.
        from: String,
        /// The port behind which it is.
        port: String,
        /// The port is a tunnel.
        #[serde(default, rename = "tunnel", skip_serializing_if = "is_false")]
        is_tunnel: bool,
        /// The port may send from certain MAC addresses only (`allowed-macs`).
        #[serde(default, rename = "checked", skip_serializing_if = "is_false")]
        is_checked: bool,
    },
    /// A station is not known any more.
    Aged {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The address.
        mac: String,
        /// The port behind which it was.
        port: String,
    },
    /// A frame with the address of an owner's station came in by another port. The station stays.
    Claimed {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The address.
        mac: String,
        /// The port by which the frame came in.
        port: String,
        /// The port may send from certain MAC addresses only (`allowed-macs`).
        #[serde(default, rename = "checked", skip_serializing_if = "is_false")]
        is_checked: bool,
    },
    /// An IP address belongs to a MAC address.
    Bound {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The IP address.
        ip: String,
        /// The MAC address.
        mac: String,
        /// The port behind which it is.
        port: String,
        /// `static`, `checked` or `dhcp`.
        source: String,
    },
    /// An IP address belongs to a MAC address no longer.
    Unbound {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
        /// The IP address.
        ip: String,
        /// The MAC address.
        mac: String,
        /// The port behind which it was.
        port: String,
    },
    /// The link of a port.
    Link {
        /// The port.
        port: String,
        /// Whether it is up.
        up: bool,
    },
    /// Another kind, from a switch of a newer version.
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
