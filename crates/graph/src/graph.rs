//! Nodes in the order in which packets meet them.

use std::fmt;
use std::sync::Arc;

use straightline_packet::{Batch, PortIndex, Served, Turn};
use straightline_port::Port;

use crate::clock::cycles;
use crate::watchdog::Names;
use crate::{Next, Node, NodeStats};

/// Most packets taken from one input in one turn.
const BURST: usize = 64;

/// A node, to be named as another's successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIndex(usize);

/// A node and what waits for it. On lines of its own: graphs of several workers are made one after the other.
#[repr(align(128))]
pub(crate) struct Entry {
    step: Step,
    edges: Vec<usize>,
    pub(crate) pending: Batch,
    stats: Arc<NodeStats>,
    /// The name that a watchdog sees while it runs.
    served: Served,
}

struct Input {
    port: Arc<dyn Port>,
    to: usize,
    stats: Arc<NodeStats>,
    served: Served,
}

/// What an entry of the graph does with its packets.
enum Step {
    /// A node sends them on. It gets the packets alone.
    Node(Box<dyn Node>),
    /// A port takes them, with the whole turn: delivery borrows buffers until the turn ends.
    Output { port: Arc<dyn Port>, wait: bool },
    /// A port takes copies. Packets that others have left in their ring are skipped.
    CopyOutput { port: Arc<dyn Port> },
}

/// Where packets that wait for room go.
struct WaitingOutput {
    port: Arc<dyn Port>,
    served: Served,
}

/// Inputs, nodes and outputs of one worker.
///
/// It is built from the end: a node's successors exist before it does, so there is no way to build a loop.
pub struct Graph {
    /// The last built runs first; `entries` is kept in the order of running.
    entries: Vec<Entry>,
    inputs: Vec<Input>,
    waiting: Vec<WaitingOutput>,
    end: Arc<NodeStats>,
    /// The input that comes first in the next turn: none is always last where room is short.
    turn_first: usize,
    /// Of nodes that were there before, for those of the same name.
    earlier: Vec<Arc<NodeStats>>,
    /// Whom a watchdog may see it serve.
    names: Names,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.stats()).finish_non_exhaustive()
    }
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::continuing(Vec::new())
    }

    /// Nothing yet; nodes of the names in `earlier` will go on counting there.
    pub fn continuing(earlier: Vec<Arc<NodeStats>>) -> Self {
        let mut graph = Graph {
            entries: Vec::new(),
            inputs: Vec::new(),
            waiting: Vec::new(),
            end: Arc::default(),
            turn_first: 0,
            earlier,
            names: Names::new(),
        };
        graph.end = graph.stats_for("turn-end".to_owned());
        graph
    }

    fn stats_for(&mut self, name: String) -> Arc<NodeStats> {
        match self.earlier.iter().position(|known| known.name == name) {
            // Each but once: nodes may share a name.
            Some(at) => self.earlier.remove(at),
            None => Arc::new(NodeStats { name, ..NodeStats::default() }),
        }
    }

    /// Adds a node whose successors are there already; its edges count from 0 in the order given.
    pub fn node(&mut self, name: impl Into<String>, node: Box<dyn Node>, edges: &[NodeIndex]) -> NodeIndex {
        let name = name.into();
        let served = self.name(None, &name);
        self.entry(name, Step::Node(node), edges, served)
    }

    fn entry(&mut self, name: String, step: Step, edges: &[NodeIndex], served: Served) -> NodeIndex {
        let edges = edges.iter().map(|e| e.0).collect();
        let stats = self.stats_for(name);
        self.entries.push(Entry { step, edges, pending: Batch::new(), stats, served });
        NodeIndex(self.entries.len() - 1)
    }

    /// Names a port with a number, or anything else, for a watchdog.
    fn name(&mut self, port: Option<PortIndex>, name: &str) -> Served {
        let number = || Served::Node(self.names.len().try_into().unwrap_or(u16::MAX));
        let served = port.map_or_else(number, Served::Port);
        self.names.push((served, name.to_owned()));
        served
    }

    /// Whom a watchdog may see it serve.
    pub(crate) fn names(&self) -> Names {
        self.names.clone()
    }

    /// Adds the end of a way: delivery to `port`. With `wait`, what it has no room for stays in its source's ring.
    pub fn output(&mut self, port: Arc<dyn Port>, wait: bool) -> NodeIndex {
        let served = self.name(port.index(), port.name());
        if wait {
            self.waiting.push(WaitingOutput { port: Arc::clone(&port), served });
        }
        let name = format!("{}-tx", port.name());
        self.entry(name, Step::Output { port, wait }, &[], served)
    }

    /// Adds an output that delivers copies to `port`: packets that other outputs deliver as well. What the port has no
    /// buffers for is dropped there.
    ///
    /// A packet that stays in its source's ring is not copied: it passes again in a later turn. So that this is known
    /// when the copies are delivered, add this output before all outputs that wait. It then runs after them.
    pub fn copy_output(&mut self, port: Arc<dyn Port>) -> NodeIndex {
        let served = self.name(port.index(), port.name());
        let name = format!("{}-tx", port.name());
        self.entry(name, Step::CopyOutput { port }, &[], served)
    }

    /// Adds the start of a way: packets of `port` go to `to`.
    pub fn input(&mut self, port: Arc<dyn Port>, to: NodeIndex) {
        let stats = self.stats_for(format!("{}-rx", port.name()));
        let served = self.name(port.index(), port.name());
        self.inputs.push(Input { port, to: to.0, stats, served });
    }

    /// The figures of all inputs, nodes and outputs, in the order of a packet's way, and of the turn's end.
    pub fn stats(&self) -> Vec<Arc<NodeStats>> {
        let inputs = self.inputs.iter().map(|i| &i.stats);
        let nodes = self.entries.iter().rev().map(|e| &e.stats);
        inputs.chain(nodes).chain([&self.end]).cloned().collect()
    }

    /// One turn's work; returns how many packets were moved.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_>) -> usize {
        let mut at = cycles();
        let mut taken = 0;
        let count = self.inputs.len();
        let mut next_first = self.turn_first + 1;
        for step in 0..count {
            let index = (self.turn_first + step) % count;
            if turn.free_slots() == 0 {
                // Whoever finds no room comes first in the next turn.
                next_first = index;
                break;
            }
            let input = &mut self.inputs[index];
            let pending = &mut self.entries[input.to].pending;
            let had = pending.len();
            turn.serve(input.served);
            input.port.receive(turn, pending, BURST);
            let got = pending.len() - had;
            let now = cycles();
            if got > 0 {
                input.stats.count(got, now.saturating_sub(at));
                taken += got;
            }
            at = now;
        }
        self.turn_first = if next_first < count { next_first } else { 0 };
        if taken == 0 {
            // Chains without a packet in them (refused ones) are given back all the same.
            turn.end();
            return 0;
        }
        // Successors have lower indexes: running from the last to the first, each node runs once.
        for index in (0..self.entries.len()).rev() {
            let (later, rest) = self.entries.split_at_mut(index);
            let entry = &mut rest[0];
            if entry.pending.is_empty() {
                continue;
            }
            turn.serve(entry.served);
            match &mut entry.step {
                Step::Node(node) => {
                    let mut next = Next { edges: &entry.edges, later };
                    node.process(turn.packets(), &entry.pending, &mut next);
                }
                Step::Output { port, wait } => port.deliver(turn, &entry.pending, *wait),
                Step::CopyOutput { port } => match turn.departing(&entry.pending) {
                    None => port.deliver(turn, &entry.pending, false),
                    Some(departing) if departing.is_empty() => {}
                    Some(departing) => port.deliver(turn, &departing, false),
                },
            }
            let now = cycles();
            entry.stats.count(entry.pending.len(), now.saturating_sub(at));
            at = now;
            entry.pending.clear();
        }
        turn.end();
        self.end.count(taken, cycles().saturating_sub(at));
        taken.saturating_sub(turn.returned())
    }

    /// Asks every port to wake us. Whether one has packets already, and whether one has room again.
    pub(crate) fn arm(&self, turn: &Turn<'_>) -> (bool, bool) {
        // All are asked, also behind one that has something: each must know that we do not poll.
        let packets = self.inputs.iter().fold(false, |any, input| {
            turn.serve(input.served);
            input.port.arm(turn, false) | any
        });
        let room = self.waiting.iter().fold(false, |any, output| {
            turn.serve(output.served);
            output.port.arm(turn, true) | any
        });
        (packets, room)
    }

    pub(crate) fn disarm(&self, turn: &Turn<'_>) {
        for input in &self.inputs {
            turn.serve(input.served);
            input.port.disarm(turn, false);
        }
        for output in &self.waiting {
            turn.serve(output.served);
            output.port.disarm(turn, true);
        }
    }
}

impl NodeStats {
    #[inline]
    fn count(&self, packets: usize, cycles: u64) {
        self.calls.add(1);
        self.packets.add(packets.try_into().unwrap_or(0));
        self.cycles.add(cycles);
    }
}
