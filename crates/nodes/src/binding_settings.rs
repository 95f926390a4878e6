//! The settings of a bridge's bindings.

use std::net::IpAddr;

use straightline_packet::PortIndex;
use straightline_wire::{MacAddr, VlanId};

/// The settings of a bridge's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingSettings {
    /// The number of bindings that are heard.
    pub limit: usize,
    /// Seconds after which a station is asked whether it still has its address. They are fewer than those
    /// after which the bridge forgets it.
    pub ageing: u32,
    /// The MAC address from which the bridge asks.
    pub own: MacAddr,
    /// The bridge has VLANs.
    pub has_vlans: bool,
    /// The bindings of the configuration.
    pub statics: Vec<(VlanId, IpAddr, MacAddr)>,
    /// The ports of the bridge.
    pub ports: Vec<BindingPort>,
}

/// A port of a bridge, as far as bindings need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingPort {
    /// The port.
    pub index: PortIndex,
    /// The IP addresses of its packets are checked.
    pub is_checked: bool,
    /// Answers of DHCP from it are believed.
    pub is_trusted: bool,
    /// It is a tunnel.
    pub is_tunnel: bool,
    /// The bridge learns the sources of its frames.
    pub learns: bool,
}
