//! The work of a switch between two readings of its counters, by phase.

use std::collections::BTreeMap;

use straightline_switch::api::{Node, Runtime};

use crate::convert::float;
use crate::trial::validity;

/// Returns the switch's cycles per packet between two readings of its counters, by phase. Phases
/// are receiving (`rx`), each kind of node, delivering (`tx`), the end of turns (`turn-end`).
///
/// # Errors
/// The switch has received no packet between the readings.
pub fn phases(before: &Runtime, after: &Runtime) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut cycles: BTreeMap<String, f64> = BTreeMap::new();
    let mut received = 0.0;
    for node in spent(before, after) {
        let phase = phase(node.name);
        if phase == "rx" {
            received += node.packets;
        }
        *cycles.entry(phase.to_owned()).or_default() += node.cycles;
    }
    validity::counted(received).demand()?;
    cycles.values_mut().for_each(|cycles| *cycles /= received);
    Ok(cycles)
}

/// The work of a node between two readings of its counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent<'a> {
    pub(crate) name: &'a str,
    pub(crate) calls: f64,
    pub(crate) packets: f64,
    pub(crate) cycles: f64,
}

/// Returns the work of each node of a switch between two readings of its counters.
pub(crate) fn spent<'a>(before: &Runtime, after: &'a Runtime) -> impl Iterator<Item = Spent<'a>> {
    let total = |node: &Node| (float(node.calls), float(node.packets), node.cycles_per_packet * float(node.packets));
    after.nodes.iter().map(move |node| {
        let old = before.nodes.iter().find(|old| (&old.name, old.worker) == (&node.name, node.worker));
        let (calls, packets, cycles) = total(node);
        let (old_calls, old_packets, old_cycles) = old.map_or((0.0, 0.0, 0.0), total);
        let calls = calls - old_calls;
        let packets = packets - old_packets;
        let cycles = cycles - old_cycles;
        Spent { name: &node.name, calls, packets, cycles }
    })
}

/// Returns the number of packets per call between two readings: for receiving, for each kind of
/// node, and for delivering.
pub(crate) fn vectors(before: &Runtime, after: &Runtime) -> impl Iterator<Item = (String, f64)> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for node in after.nodes.iter().filter(|node| node.name != "turn-end") {
        let old = before.nodes.iter().find(|old| (&old.name, old.worker) == (&node.name, node.worker));
        let (packets, calls) = old.map_or((0, 0), |old| (old.packets, old.calls));
        let sum = sums.entry(phase(&node.name)).or_default();
        *sum = (sum.0 + node.packets.saturating_sub(packets), sum.1 + node.calls.saturating_sub(calls));
    }
    let sums = sums.into_iter().filter(|(_, (_, calls))| *calls > 0);
    sums.map(|(phase, (packets, calls))| (phase.to_owned(), float(packets) / float(calls)))
}

/// Returns the phase of a node with this name.
pub(crate) fn phase(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((_, "rx")) => "rx",
        Some((_, "tx")) => "tx",
        // The name of a patch, a bridge or a node is its kind, a point, and its own name, as in
        // `patch.a`.
        _ => name.split('.').next().unwrap_or(name),
    }
}
