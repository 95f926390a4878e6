//! A traced packet as text.

use super::grid::{Grid, count, printable, wrap};
use super::{INDENT, WIDTH};
use crate::{TraceAction, TracedPacket, TracedStep};

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
    let is = |wanted: &TraceAction| packet.steps.iter().any(|step| step.actions.contains(wanted));
    printable(&match parts.is_empty() {
        false => parts.join("; "),
        true if is(&TraceAction::Kept) => "kept until its next hop answers".to_owned(),
        true if is(&TraceAction::Taken) => "taken by a node".to_owned(),
        true => "neither delivered nor dropped".to_owned(),
    })
}
