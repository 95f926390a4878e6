//! Bindings of IP and MAC addresses in a bridge, and answers to questions for them (RFC 9161).
//!
//! ```text
//!  ports ─▶ (VLAN in) ─▶ Neighbours ─▶ bridge          questions that are answered end here
//!                            │
//!                            └──▶ outbox ─▶ agent ─▶ output of the port that has asked
//! ```
//!
//! - **Learning.** ARP and neighbour discovery are believed from ports with a source check of IP
//!   addresses only, because their claims were compared before. Answers of DHCP are believed from
//!   `trusted` ports.
//! - **Answers.** A question that would be flooded, for an address that is bound, is answered to the port
//!   that asks. All others go on: unknown addresses, one's own, those of stations behind the same port,
//!   probes for duplicates (RFC 5227, RFC 4862), and questions that come by a tunnel: the far end answers
//!   for its own.
//! - **Questions.** Before a binding goes because it was not heard, its station is asked. The bridge asks
//!   from an address of its own, and takes the answer out.
//!
//! Packets of other kinds pay for a look at their type.

mod node;
mod outbox;
mod table;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use straightline_packet::PortIndex;
use straightline_wire::{MacAddr, VlanId};

pub use node::{BindingAgent, BindingOutputs, Neighbours};
pub use table::BindingTable;

/// The settings of a bridge's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingSettings {
    /// The number of bindings that are heard.
    pub limit: usize,
    /// Seconds after which a station is asked whether it still has its address.
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
}
