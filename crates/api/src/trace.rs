//! The answer to `trace`, and the lines of its stream.

use serde::{Deserialize, Serialize};

/// The answer to `trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trace {
    /// The traced ports, in the order of the request.
    pub ports: Vec<String>,
}

/// A line of a trace's stream. Its kind is the field `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TraceLine {
    /// A packet with its way.
    Packet(Box<TracedPacket>),
    /// A traced port has gone, or is there again.
    Port {
        /// The port.
        port: String,
        /// Whether the switch has the port now.
        is_present: bool,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// A packet with its way through the switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedPacket {
    /// The time in seconds since the epoch at which the packet came.
    pub time: f64,
    /// The port that received it.
    pub port: String,
    /// The worker, as in the answer to `runtime`.
    pub worker: usize,
    /// The packet as it came, in words.
    pub packet: String,
    /// Its length in bytes, as it came.
    pub length: u32,
    /// The payload of each segment in bytes, if the packet is still to be segmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso_size: Option<u16>,
    /// The packets before this one that the trace was for, but which came too fast.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// The steps, in their order.
    pub steps: Vec<TracedStep>,
    /// The number of further steps, which were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_steps: u64,
    /// The ports that have delivered the packet.
    pub delivered: Vec<String>,
    /// The ports that count a drop of the packet.
    pub dropped: Vec<TracedDrop>,
    /// True if the packet waits in its ring for a free buffer. It comes again later.
    #[serde(default)]
    pub waits: bool,
}

/// A drop on a packet's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedDrop {
    /// The port that counts it.
    pub port: String,
    /// The reason, as in the answer to `drops`.
    pub reason: String,
}

/// A step on a packet's way: an input, a node or an output of the worker's graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedStep {
    /// The name, as in the answer to `runtime`.
    pub node: String,
    /// Cycles of the step for all packets that it had together.
    pub cycles: u64,
    /// The number of these packets.
    pub packets: u16,
    /// The actions on the packet, in their order.
    pub actions: Vec<TraceAction>,
}

/// An action on a packet in a step. Its kind is the field `action`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum TraceAction {
    /// A port received it.
    Received {
        /// The port.
        port: String,
    },
    /// A port delivered it to its peer. A tunnel's port gives it to the underlay.
    Delivered {
        /// The port.
        port: String,
    },
    /// It was dropped.
    Dropped {
        /// The port that counts it.
        port: String,
        /// The reason, as in the answer to `drops`.
        reason: String,
    },
    /// A port delivered it in segments.
    Segmented {
        /// The port.
        port: String,
        /// The number of segments.
        segments: u32,
    },
    /// A node sent it to several further steps.
    Copied {
        /// The number of steps.
        copies: u16,
    },
    /// A VLAN tag was added.
    TagPushed {
        /// The VLAN.
        vlan: u16,
    },
    /// A VLAN tag was removed.
    TagPopped {
        /// The VLAN.
        vlan: u16,
    },
    /// Headers were added, as by a tunnel.
    HeadersAdded {
        /// The bytes of the headers.
        bytes: u32,
        /// The packet with them, in words.
        packet: String,
    },
    /// Headers were removed.
    HeadersRemoved {
        /// The bytes of the headers.
        bytes: u32,
        /// The packet without them, in words.
        packet: String,
    },
    /// The MAC addresses were changed.
    AddressesChanged {
        /// The packet with them, in words.
        packet: String,
    },
    /// Other bytes of the headers were changed.
    HeadersChanged {
        /// The packet with them, in words.
        packet: String,
    },
    /// It stays in its ring, because the port has no free buffer.
    Waits,
    /// The switch keeps it until its next hop has answered.
    Kept,
    /// The node has taken it, for example to answer it.
    Taken,
    /// An action that this version does not know.
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}
