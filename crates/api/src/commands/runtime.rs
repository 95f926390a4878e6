//! The answer to `runtime`.

use serde::{Deserialize, Serialize};

use crate::layout::{Grid, count};

/// The answer to `runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Runtime {
    /// The use of each worker's time.
    pub workers: Vec<Worker>,
    /// The nodes of all workers, in the order in which packets pass them.
    pub nodes: Vec<Node>,
}

/// The use of a worker's time. The four times add up to the time since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Worker {
    /// The CPU to which the worker is pinned; none if it is not pinned.
    pub cpu: Option<usize>,
    /// Seconds in turns that moved packets.
    pub busy_s: f64,
    /// Seconds in turns that found no packets.
    pub empty_poll_s: f64,
    /// Seconds asleep.
    pub idle_s: f64,
    /// Seconds that are in none of the other three times.
    pub unexplained_s: f64,
    /// The number of turns, empty ones included.
    pub turns: u64,
    /// Bytes of bodies that were copied; every copy counts.
    #[serde(default)]
    pub bodies_copied_bytes: u64,
    /// Bytes of bodies that were delivered. With one copy of each body, this equals the number of
    /// copied bytes.
    #[serde(default)]
    pub bodies_delivered_bytes: u64,
}

/// The counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// The name.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of packets that the node was given.
    pub packets: u64,
    /// The mean number of packets in a call; 0 without a call.
    pub packets_per_call: f64,
    /// The mean number of cycles for a packet; 0 without a packet.
    pub cycles_per_packet: f64,
    /// The number of cycles in these calls.
    #[serde(default)]
    pub cycles: u64,
    /// The node's worker, as an index into `workers`: each worker of a patch or bridge has nodes of
    /// its own. None for nodes that are gone.
    #[serde(default)]
    pub worker: Option<usize>,
}

impl Node {
    /// Computes the means. They are 0 where the divisor is 0, since JSON has no NaN.
    #[must_use]
    pub fn new(name: impl Into<String>, calls: u64, packets: u64, cycles: u64) -> Self {
        Self {
            name: name.into(),
            calls,
            packets,
            packets_per_call: ratio(packets, calls),
            cycles_per_packet: ratio(cycles, packets),
            cycles,
            worker: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean that people read needs no more than 53 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Renders the answer to `runtime`: the workers' time, then the nodes.
#[must_use]
pub fn text(runtime: &Runtime) -> String {
    let mut workers =
        Grid::new(&["<worker", ">busy", ">", ">empty poll", ">", ">idle", ">", ">unexplained", ">", ">turns"]);
    for worker in &runtime.workers {
        let total = worker.busy_s + worker.empty_poll_s + worker.idle_s + worker.unexplained_s;
        let time = |seconds: f64| {
            let percent = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
            [format!("{seconds:.2} s"), format!("{percent:.1} %")]
        };
        let name = worker.cpu.map_or_else(|| "unpinned".to_owned(), |cpu| format!("CPU {cpu}"));
        let [busy, busy_percent] = time(worker.busy_s);
        let [empty, empty_percent] = time(worker.empty_poll_s);
        let [idle, idle_percent] = time(worker.idle_s);
        let [lost, lost_percent] = time(worker.unexplained_s);
        let turns = count(worker.turns);
        workers.row([name, busy, busy_percent, empty, empty_percent, idle, idle_percent, lost, lost_percent, turns]);
    }
    let mut nodes = Grid::new(&["<node", ">calls", ">packets", ">packets/call", ">cycles/packet"]);
    for node in &runtime.nodes {
        let vector = format!("{:.2}", node.packets_per_call);
        let cycles = format!("{:.1}", node.cycles_per_packet);
        // There are several workers only where each has a CPU.
        let cpu = node.worker.and_then(|worker| runtime.workers.get(worker)?.cpu).filter(|_| runtime.workers.len() > 1);
        let name = cpu.map_or_else(|| node.name.clone(), |cpu| format!("{} on CPU {cpu}", node.name));
        nodes.row([name, count(node.calls), count(node.packets), vector, cycles]);
    }
    let end = if runtime.nodes.iter().any(|node| node.name == "turn-end") { TURN_END } else { "" };
    format!("{}{}\n{}{end}", workers.render(""), bodies(&runtime.workers), nodes.render(""))
}

/// The meaning of the last node.
const TURN_END: &str = "
turn-end is the work at the end of each turn: buffers go back to the rings they came from, and
guests are notified. Its packets are those of the turn.
";

/// Renders the number of times that a body is copied before it is delivered. The switch promises
/// one copy.
fn bodies(workers: &[Worker]) -> String {
    let sum = |bytes: fn(&Worker) -> u64| workers.iter().map(bytes).fold(0_u64, u64::saturating_add);
    let copied = sum(|worker| worker.bodies_copied_bytes);
    let delivered = sum(|worker| worker.bodies_delivered_bytes);
    if delivered == 0 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let times = copied as f64 / delivered as f64;
    format!("bodies: {} bytes delivered, {} copied ({times:.2} copies each)\n", count(delivered), count(copied))
}
