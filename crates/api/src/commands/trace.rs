//! The answer to `trace`, and the lines of its stream.

use serde::{Deserialize, Serialize};

use crate::layout::{Grid, INDENT, WIDTH, count, printable, wrap};

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
    /// A rule of a port's groups decided about it, or had allowed its connection.
    Decided {
        /// The port.
        port: String,
        /// Whether the rule allows it. Its connection may still refuse it.
        allowed: bool,
        /// The rule, with its group.
        rule: String,
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

/// Columns that an action has at least, next to long names.
const LEAST: usize = 30;

/// Renders a traced packet as a block. `number` is its number in the trace, `start` the time in
/// seconds since the epoch at which the trace began.
#[must_use]
pub fn traced_packet(packet: &TracedPacket, number: u64, start: f64) -> String {
    let TracedPacket { port, worker, skipped, .. } = packet;
    let since = (packet.time - start).max(0.0);
    let mut text = wrap("", &format!("packet {number}: from {port}, worker {worker}, after {since:.6} s"), WIDTH);
    let gso = packet.gso_size.map_or_else(String::new, |size| format!(", to be segmented: {size} bytes each"));
    text += &wrap(INDENT, &format!("{}{gso}", packet.packet), WIDTH);
    if *skipped > 0 {
        text += &wrap(INDENT, &format!("{} packets before it came too fast to be traced", count(*skipped)), WIDTH);
    }
    text += &steps(&packet.steps);
    if packet.more_steps > 0 {
        text += &wrap(INDENT, &format!("and {} further steps", count(packet.more_steps)), WIDTH);
    }
    text + &wrap(&format!("{INDENT}=> "), &end(packet), WIDTH)
}

fn steps(steps: &[TracedStep]) -> String {
    let mut grid = Grid::new(&["<node", ">cycles/pkt", ">batch", "<action"]);
    let longest = steps.iter().map(|step| step.node.chars().count()).max().unwrap_or(0);
    let used = INDENT.len() + longest.max(4) + "  cycles/pkt  batch  ".len();
    let width = WIDTH.saturating_sub(used).max(LEAST);
    for step in steps {
        let cycles = step.cycles / u64::from(step.packets.max(1));
        let mut cells = [step.node.clone(), count(cycles), step.packets.to_string()];
        let actions: Vec<_> = step.actions.iter().map(action).collect();
        let lines = actions.iter().flat_map(|action| {
            let lines: Vec<_> = wrap("", action, width).lines().map(str::to_owned).collect();
            lines
        });
        let mut lines = lines.peekable();
        if lines.peek().is_none() {
            let [node, cycles, packets] = std::mem::take(&mut cells);
            grid.row([node, cycles, packets, "passed on".to_owned()]);
        }
        for line in lines {
            let [node, cycles, packets] = std::mem::take(&mut cells);
            grid.row([node, cycles, packets, line]);
        }
    }
    grid.render(INDENT)
}

fn action(action: &TraceAction) -> String {
    match action {
        TraceAction::Received { port } => format!("received by {port}"),
        TraceAction::Delivered { port } => format!("delivered by {port}"),
        TraceAction::Dropped { port, reason } => format!("dropped: {reason}, counted by {port}"),
        TraceAction::Segmented { port, segments } => format!("segmented by {port}: {segments} segments"),
        TraceAction::Decided { port, allowed, rule } => {
            format!("{} at {port}, {rule}", if *allowed { "allowed" } else { "denied" })
        }
        TraceAction::Copied { copies } => format!("sent {copies} ways"),
        TraceAction::TagPushed { vlan } => format!("tag of VLAN {vlan} added"),
        TraceAction::TagPopped { vlan } => format!("tag of VLAN {vlan} removed"),
        TraceAction::HeadersAdded { bytes, packet } => format!("headers added ({bytes} bytes): {packet}"),
        TraceAction::HeadersRemoved { bytes, packet } => format!("headers removed ({bytes} bytes): {packet}"),
        TraceAction::AddressesChanged { packet } => format!("MAC addresses changed: {packet}"),
        TraceAction::HeadersChanged { packet } => format!("headers changed: {packet}"),
        TraceAction::Waits => "no free buffer: waits in its ring".to_owned(),
        TraceAction::Kept => "kept until its next hop answers".to_owned(),
        TraceAction::Taken => "taken by the node".to_owned(),
        TraceAction::Other => "another action, of a newer switch".to_owned(),
    }
}

/// Returns what became of a packet.
fn end(packet: &TracedPacket) -> String {
    if packet.waits {
        return "waits in its ring, and comes again later".to_owned();
    }
    let delivered = (!packet.delivered.is_empty()).then(|| format!("delivered by {}", packet.delivered.join(", ")));
    let dropped = packet.dropped.iter().map(|drop| format!("dropped: {} ({})", drop.reason, drop.port));
    let parts: Vec<_> = delivered.into_iter().chain(dropped).collect();
    let has_action = |wanted: &TraceAction| packet.steps.iter().any(|step| step.actions.contains(wanted));
    printable(&match parts.is_empty() {
        false => parts.join("; "),
        true if has_action(&TraceAction::Kept) => "kept until its next hop answers".to_owned(),
        true if has_action(&TraceAction::Taken) => "taken by a node".to_owned(),
        true => "neither delivered nor dropped".to_owned(),
    })
}
