//! The graph of one worker: inputs, nodes and outputs, in the order in which they run.

use std::fmt;
use std::sync::Arc;

use straightline_packet::{Batch, MAX_BATCH, PacketId, PortIndex, Served, Step, StepKind, Turn};
use straightline_port::Port;

use crate::clock::cycles;
use crate::watchdog::Names;
use crate::{Next, Node, NodeStats};

/// Largest number of packets received from one input in one turn.
const BURST: usize = 64;

/// A node or output of a graph, as the end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIndex(usize);

/// A node or output, and the packets that wait for it. It has cache lines of its own, because the
/// graphs of several workers are allocated one after the other.
#[repr(align(128))]
pub(crate) struct Entry {
    action: Action,
    edges: Vec<usize>,
    pub(crate) pending: Batch,
    stats: Arc<NodeStats>,
    /// Identity that the watchdog sees while the entry runs.
    served: Served,
}

struct Input {
    port: Arc<dyn Port>,
    to: usize,
    stats: Arc<NodeStats>,
    served: Served,
}

/// The action of a graph entry on its packets.
enum Action {
    /// A node forwards packets along its edges. It gets the turn's packets only.
    Node(Box<dyn Node>),
    /// A port delivers packets. It gets the whole turn, because delivery borrows buffers until the
    /// turn ends.
    Output { port: Arc<dyn Port>, wait: bool },
    /// A port delivers copies. The graph skips packets that stay in their source's ring.
    CopyOutput { port: Arc<dyn Port> },
}

/// An output for which packets wait in their source's ring while it has no free buffers.
struct WaitingOutput {
    port: Arc<dyn Port>,
    served: Served,
}

/// Inputs, nodes and outputs of one worker.
///
/// A graph is built from its end: the ends of a node's edges exist before the node. So a graph
/// cannot have a loop.
pub struct Graph {
    /// Nodes and outputs, in the order in which they were added. They run in the opposite order.
    entries: Vec<Entry>,
    /// The entries for which packets wait.
    ready: Ready,
    inputs: Vec<Input>,
    waiting: Vec<WaitingOutput>,
    end: Arc<NodeStats>,
    /// Index of the input that comes first in the next turn. It changes from turn to turn, so that
    /// no input is always the last when free slots are scarce.
    turn_first: usize,
    /// Statistics of an earlier graph's nodes, for new nodes of the same name.
    earlier: Vec<Arc<NodeStats>>,
    /// Names of the ports and nodes, for the watchdog.
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
    /// Creates an empty graph.
    pub fn new() -> Self {
        Self::continuing(Vec::new())
    }

    /// Creates an empty graph whose nodes continue the statistics in `earlier` that have their
    /// names.
    pub fn continuing(earlier: Vec<Arc<NodeStats>>) -> Self {
        let mut graph = Graph {
            entries: Vec::new(),
            ready: Ready::default(),
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
            // Each entry of `earlier` is used once, because nodes may share a name.
            Some(at) => self.earlier.remove(at),
            None => Arc::new(NodeStats { name, ..NodeStats::default() }),
        }
    }

    /// Adds a node. Its edges lead to the entries in `edges`, and count from 0 in their order.
    pub fn node(&mut self, name: impl Into<String>, node: Box<dyn Node>, edges: &[NodeIndex]) -> NodeIndex {
        let name = name.into();
        let served = self.name(None, &name);
        self.entry(name, Action::Node(node), edges, served)
    }

    fn entry(&mut self, name: String, action: Action, edges: &[NodeIndex], served: Served) -> NodeIndex {
        let edges = edges.iter().map(|e| e.0).collect();
        let stats = self.stats_for(name);
        self.entries.push(Entry { action, edges, pending: Batch::new(), stats, served });
        self.ready.0.resize(self.entries.len().div_ceil(WORD), 0);
        NodeIndex(self.entries.len() - 1)
    }

    /// Records the name of a port or node for the watchdog, and returns its identity. A port
    /// without an index counts as a node.
    fn name(&mut self, port: Option<PortIndex>, name: &str) -> Served {
        let number = || Served::Node(self.names.len().try_into().unwrap_or(u16::MAX));
        let served = port.map_or_else(number, Served::Port);
        self.names.push((served, name.to_owned()));
        served
    }

    /// Returns the names of the ports and nodes, for the watchdog.
    pub(crate) fn names(&self) -> Names {
        self.names.clone()
    }

    /// Adds an output, which delivers packets to `port`. With `wait`, packets for which the port
    /// has no free buffers stay in their source's ring.
    pub fn output(&mut self, port: Arc<dyn Port>, wait: bool) -> NodeIndex {
        let served = self.name(port.index(), port.name());
        if wait {
            self.waiting.push(WaitingOutput { port: Arc::clone(&port), served });
        }
        let name = format!("{}-tx", port.name());
        self.entry(name, Action::Output { port, wait }, &[], served)
    }

    /// Adds an output that delivers copies to `port`: packets that other outputs deliver as well.
    /// The output drops packets for which the port has no free buffers.
    ///
    /// A packet that stays in its source's ring is not copied, because it passes again in a later
    /// turn. The output must know which packets stay. So add it before all outputs that wait: it
    /// then runs after them.
    pub fn copy_output(&mut self, port: Arc<dyn Port>) -> NodeIndex {
        let served = self.name(port.index(), port.name());
        let name = format!("{}-tx", port.name());
        self.entry(name, Action::CopyOutput { port }, &[], served)
    }

    /// Adds an input: packets received from `port` go to `to`.
    pub fn input(&mut self, port: Arc<dyn Port>, to: NodeIndex) {
        let stats = self.stats_for(format!("{}-rx", port.name()));
        let served = self.name(port.index(), port.name());
        self.inputs.push(Input { port, to: to.0, stats, served });
    }

    /// Returns the statistics of all inputs, nodes and outputs, in the order in which packets pass
    /// them, and of the turn's end.
    pub fn stats(&self) -> Vec<Arc<NodeStats>> {
        let inputs = self.inputs.iter().map(|i| &i.stats);
        let nodes = self.entries.iter().rev().map(|e| &e.stats);
        inputs.chain(nodes).chain([&self.end]).cloned().collect()
    }

    /// Does the work of one turn. Returns the number of packets that moved. A [`Worker`](crate::Worker)
    /// calls it in a loop.
    pub fn run(&mut self, turn: &mut Turn<'_>) -> usize {
        let mut at = cycles();
        let mut taken = 0;
        let count = self.inputs.len();
        let mut next_first = self.turn_first + 1;
        for step in 0..count {
            let index = (self.turn_first + step) % count;
            if turn.free_slots() == 0 {
                // An input that finds no free slots comes first in the next turn.
                next_first = index;
                break;
            }
            let input = &mut self.inputs[index];
            let pending = &mut self.entries[input.to].pending;
            let had = pending.len();
            turn.serve(input.served);
            input.port.receive(turn, pending, BURST);
            let got = pending.len() - had;
            let mut now = cycles();
            if turn.is_observed() {
                turn.observe_received(input.port.index(), &pending.ids()[had..]);
                let (name, took) = (&input.stats.name, now.saturating_sub(at));
                let seen = Step { name, kind: StepKind::Input, cycles: took, packets: got, ways: &|_| 1 };
                turn.observe_step(&seen, &pending.ids()[had..]);
                now = cycles();
            }
            if got > 0 {
                self.ready.add(input.to);
                input.stats.count(got, now.saturating_sub(at));
                taken += got;
            }
            at = now;
        }
        self.turn_first = if next_first < count { next_first } else { 0 };
        if taken == 0 {
            // Chains that were refused have no packet, but must be given back.
            turn.end();
            return 0;
        }
        // Edges lead to lower indexes. So from the last entry to the first, each runs once.
        while let Some(index) = self.ready.take_last() {
            let (later, rest) = self.entries.split_at_mut(index);
            let entry = &mut rest[0];
            turn.serve(entry.served);
            // The packets of a copy output that leave their ring, if not all do.
            let mut departing = None;
            match &mut entry.action {
                Action::Node(node) => {
                    let mut next = Next { edges: &entry.edges, later: &mut *later, ready: &mut self.ready };
                    node.process(turn.packets(), &entry.pending, &mut next);
                }
                Action::Output { port, wait } => port.deliver(turn, &entry.pending, *wait),
                Action::CopyOutput { port } => {
                    departing = turn.departing(&entry.pending);
                    let batch = departing.as_ref().unwrap_or(&entry.pending);
                    if !batch.is_empty() {
                        port.deliver(turn, batch, false);
                    }
                }
            }
            let mut now = cycles();
            let batch = departing.as_ref().unwrap_or(&entry.pending);
            if turn.is_observed() {
                entry.observe(turn, later, batch, now.saturating_sub(at));
                now = cycles();
            }
            let packets = batch.len();
            entry.stats.count(packets, now.saturating_sub(at));
            at = now;
            entry.pending.clear();
        }
        turn.end();
        self.end.count(taken, cycles().saturating_sub(at));
        taken.saturating_sub(turn.returned())
    }

    /// Arms the kicks of every port, to wake the worker. Returns whether an input has packets
    /// already or an output has still to send some, and whether an output has free buffers again.
    pub(crate) fn arm(&self, turn: &Turn<'_>) -> (bool, bool) {
        let still_sends = self.entries.iter().fold(false, |any, entry| match &entry.action {
            Action::Output { port, .. } | Action::CopyOutput { port } => {
                turn.serve(entry.served);
                port.send_waiting(turn) | any
            }
            Action::Node(_) => any,
        });
        // All ports are armed, even after one that has packets: each must know that the worker does
        // not poll.
        let packets = self.inputs.iter().fold(false, |any, input| {
            turn.serve(input.served);
            input.port.arm(turn, false) | any
        });
        let has_buffers = self.waiting.iter().fold(false, |any, output| {
            turn.serve(output.served);
            output.port.arm(turn, true) | any
        });
        (packets | still_sends, has_buffers)
    }

    /// Disarms the kicks of every port: the worker polls again.
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

/// The entries for which packets wait, by their indexes. With many tunnels, a graph has hundreds of
/// entries, and few of them have packets. So a turn does not look at each.
#[derive(Debug, Default)]
pub(crate) struct Ready(Vec<usize>);

/// Bits of a word of [`Ready`].
const WORD: usize = usize::BITS as usize;

impl Ready {
    #[inline]
    pub(crate) fn add(&mut self, index: usize) {
        self.0[index / WORD] |= 1 << (index % WORD);
    }

    /// Removes the last entry, and returns its index.
    #[inline]
    fn take_last(&mut self) -> Option<usize> {
        let (at, word) = self.0.iter_mut().enumerate().rev().find(|(_, word)| **word != 0)?;
        let bit = word.ilog2() as usize;
        *word &= !(1 << bit);
        Some(at * WORD + bit)
    }
}

impl Entry {
    /// Shows the observers of the turn what the entry has done with a batch. `later` are the entries
    /// that its edges lead to.
    #[cold]
    fn observe(&self, turn: &mut Turn<'_>, later: &[Entry], batch: &Batch, cycles: u64) {
        let kind = match &self.action {
            Action::Node(_) => {
                turn.observe_notes();
                StepKind::Node
            }
            Action::Output { port, .. } | Action::CopyOutput { port } => {
                if !port.observes_deliveries() && !batch.is_empty() {
                    turn.observe_delivery(port.index(), batch.ids());
                }
                StepKind::Output
            }
        };
        // Counted once for all packets: a bridge may lead to hundreds of entries.
        let mut sent = [0_usize; MAX_BATCH];
        for entry in self.edges.iter().filter_map(|&edge| later.get(edge)) {
            entry.pending.ids().iter().for_each(|id| sent[id.index()] += 1);
        }
        let ways = |id: PacketId| sent[id.index()];
        let step = Step { name: &self.stats.name, kind, cycles, packets: batch.len(), ways: &ways };
        turn.observe_step(&step, batch.ids());
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
