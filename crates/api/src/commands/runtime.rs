//! The answer to `runtime`.

use std::collections::BTreeMap;

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
    /// The counters at the last `clear-runtime`. The others are those since the start, because
    /// metrics must not go back.
    #[serde(default)]
    pub cleared: Option<Cleared>,
}

/// The counters at a `clear-runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cleared {
    /// Seconds since then.
    pub ago_s: f64,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The nodes.
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
    /// The number of times that the worker fell asleep.
    #[serde(default)]
    pub sleeps: u64,
    /// True if the worker sleeps now.
    #[serde(default)]
    pub is_asleep: bool,
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
    /// The largest number of packets in a call, since the start or the last `clear-runtime`.
    #[serde(default)]
    pub most_packets: u64,
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
            most_packets: 0,
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

impl Worker {
    /// Returns the seconds since the worker's start, or those that the difference covers.
    fn seconds(&self) -> f64 {
        self.busy_s + self.empty_poll_s + self.idle_s + self.unexplained_s
    }

    /// Returns the use of the time after `before`. All of it, if this worker was made anew since.
    fn after(&self, before: Option<&Worker>) -> Self {
        let before = before.filter(|before| before.cpu == self.cpu && before.turns <= self.turns);
        let Some(before) = before else { return self.clone() };
        // The unexplained time is a difference of clocks: it may go back a little.
        let seconds = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            cpu: self.cpu,
            busy_s: seconds(self.busy_s, before.busy_s),
            empty_poll_s: seconds(self.empty_poll_s, before.empty_poll_s),
            idle_s: seconds(self.idle_s, before.idle_s),
            unexplained_s: seconds(self.unexplained_s, before.unexplained_s),
            turns: self.turns - before.turns,
            sleeps: self.sleeps.saturating_sub(before.sleeps),
            is_asleep: self.is_asleep,
            bodies_copied_bytes: self.bodies_copied_bytes.saturating_sub(before.bodies_copied_bytes),
            bodies_delivered_bytes: self.bodies_delivered_bytes.saturating_sub(before.bodies_delivered_bytes),
        }
    }
}

impl Runtime {
    /// Returns the time and the calls after those of `workers` and `nodes`.
    fn after(&self, workers: &[Worker], nodes: &[Node]) -> Self {
        // Nodes may share a name, and each keeps its order among them.
        let mut seen: BTreeMap<(&str, Option<usize>), usize> = BTreeMap::new();
        let rest = |node: &'_ Node, nth: usize| {
            let same = nodes.iter().filter(|old| old.name == node.name && old.worker == node.worker).nth(nth);
            let same = same.filter(|old| old.calls <= node.calls);
            let [calls, packets, cycles] = same.map_or([0; 3], |old| [old.calls, old.packets, old.cycles]);
            let part = |now: u64, before: u64| now.saturating_sub(before);
            let rest =
                Node::new(&node.name, part(node.calls, calls), part(node.packets, packets), part(node.cycles, cycles));
            Node { worker: node.worker, most_packets: node.most_packets, ..rest }
        };
        let mut of_nodes = Vec::new();
        for node in &self.nodes {
            let nth = seen.entry((&node.name, node.worker)).or_default();
            of_nodes.push(rest(node, *nth));
            *nth += 1;
        }
        let of_workers = self.workers.iter().enumerate().map(|(at, worker)| worker.after(workers.get(at)));
        Self { workers: of_workers.collect(), nodes: of_nodes, cleared: None }
    }

    /// Returns the time and the calls after an earlier answer.
    #[must_use]
    pub fn after_answer(&self, before: &Self) -> Self {
        self.after(&before.workers, &before.nodes)
    }

    /// Returns the time and the calls since the last `clear-runtime`, or since the start.
    #[must_use]
    pub fn since_cleared(&self) -> Self {
        self.cleared.as_ref().map_or_else(|| self.clone(), |cleared| self.after(&cleared.workers, &cleared.nodes))
    }
}

/// Renders the answer to `runtime`: the workers' time, then the nodes.
#[must_use]
pub fn text(runtime: &Runtime) -> String {
    let since = runtime.cleared.as_ref().map_or_else(String::new, |cleared| {
        format!("since `straightline runtime --clear`, {:.0} s ago\n\n", cleared.ago_s)
    });
    let runtime = &runtime.since_cleared();
    let mut workers = Grid::new(&[
        "<worker",
        "<state",
        ">time",
        ">busy",
        ">empty poll",
        ">idle",
        ">unexplained",
        ">turns",
        ">turns/s",
        ">sleeps",
    ]);
    for worker in &runtime.workers {
        let total = worker.seconds();
        let share = |seconds: f64| format!("{:.1} %", if total > 0.0 { 100.0 * seconds / total } else { 0.0 });
        workers.row([
            worker.cpu.map_or_else(|| "unpinned".to_owned(), |cpu| format!("CPU {cpu}")),
            if worker.is_asleep { "asleep" } else { "awake" }.to_owned(),
            format!("{total:.2} s"),
            share(worker.busy_s),
            share(worker.empty_poll_s),
            share(worker.idle_s),
            share(worker.unexplained_s),
            count(worker.turns),
            per_second(worker.turns, total),
            count(worker.sleeps),
        ]);
    }
    let mut nodes =
        Grid::new(&["<node", ">calls", ">packets", ">packets/s", ">packets/call", ">most", ">cycles/packet"]);
    for node in &runtime.nodes {
        let vector = format!("{:.2}", node.packets_per_call);
        let cycles = format!("{:.1}", node.cycles_per_packet);
        // There are several workers only where each has a CPU.
        let cpu = node.worker.and_then(|worker| runtime.workers.get(worker)?.cpu).filter(|_| runtime.workers.len() > 1);
        let name = cpu.map_or_else(|| node.name.clone(), |cpu| format!("{} on CPU {cpu}", node.name));
        let seconds = node.worker.and_then(|worker| runtime.workers.get(worker)).map_or(0.0, Worker::seconds);
        let rate = per_second(node.packets, seconds);
        let most = count(node.most_packets);
        nodes.row([name, count(node.calls), count(node.packets), rate, vector, most, cycles]);
    }
    let end = if runtime.nodes.iter().any(|node| node.name == "turn-end") { TURN_END } else { "" };
    format!("{since}{}{}\n{}{end}", workers.render(""), bodies(&runtime.workers), nodes.render(""))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown as a whole number"
)]
fn per_second(number: u64, seconds: f64) -> String {
    if seconds > 0.0 { count((number as f64 / seconds) as u64) } else { "-".to_owned() }
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
