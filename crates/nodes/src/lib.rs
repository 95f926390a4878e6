//! The nodes of the switch, one in each file.
//!
//! | node | does |
//! |---|---|
//! | [`Patch`] | sends the packets of one port to another |
//! | [`Bridge`] | learns addresses in an [`Fdb`](straightline_fdb::Fdb), forwards by them, and floods |
//! | [`Firewall`] | lets pass what the groups of a port allow, and the answers |
//! | [`Flows`] | sends packets by flow tables, in front of a bridge |
//! | [`Neighbours`] | learns which MAC address has an IP address, and answers questions for it, in front of a bridge |
//! | [`VlanIn`] | finds the VLAN of each frame, for nodes in front of a bridge with VLANs |
//! | [`SourceCheck`] | drops packets that claim addresses of other stations |
//! | [`SetDscp`] | marks IP packets with a class of service |
//! | [`VlanSplit`] | leads one VLAN of a trunk another way than to the trunk's bridge |
//! | [`Sink`] | drops all packets |
//!
//! Nodes see heads and never bodies. They read no clock, make no system call and allocate nothing
//! for a packet. They know neither ports nor rings: a packet has the index of the port that it came
//! from, and leaves along an edge.
//!
//! ```
//! use straightline_graph::Graph;
//! use straightline_nodes::Patch;
//! use straightline_packet::PortIndex;
//! use straightline_graph::Null;
//! use std::sync::Arc;
//!
//! let mut graph = Graph::new();
//! let (a, b) = (Arc::new(Null::new("a")), Arc::new(Null::new("b")));
//! let (to_a, to_b) = (graph.output(a, false), graph.output(b, false));
//! graph.node("patch.x", Box::new(Patch::new(PortIndex(0))), &[to_a, to_b]);
//! ```
#![forbid(unsafe_code)]

mod binding_settings;
mod bindings;
mod bridge;
mod dscp;
mod firewall;
mod flows;
mod headers;
mod mirror;
mod patch;
mod prefix;
mod sink;
mod source_check;
mod tickets;
mod vlan_in;
mod vlan_split;

pub use binding_settings::{BindingPort, BindingSettings};
pub use bindings::{BindingAgent, BindingOutputs, BindingTable, Neighbours};
pub use bridge::{
    Bridge, BridgePort, BridgeRules, BridgeTable, MacLimit, NativeVlan, PortRules, PortVlans, SnoopingTable,
    StormLimits, TagForm, VlanRole,
};
pub use dscp::SetDscp;
pub use firewall::{
    Decided, Firewall, FirewallControl, FirewallPort, FirewallRules, FirewallSettings, GuardedNetwork, MessageLimit,
    MessageSettings,
};
pub use flows::{
    FlowCompiler, FlowConnections, FlowControl, FlowCounters, FlowMeters, FlowPorts, FlowProgram, FlowSettings,
    FlowTable, Flows,
};
pub use mirror::Mirror;
pub use patch::Patch;
pub use prefix::{IpPrefix, MacPrefix};
pub use sink::Sink;
pub use source_check::{AllowedAddresses, SourceCheck};
pub use vlan_in::VlanIn;
pub use vlan_split::VlanSplit;
