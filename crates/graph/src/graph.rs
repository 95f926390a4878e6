//! The graph of one worker: inputs, nodes and outputs, in the order in which they run.

mod action;
mod charge;
mod debts;
mod deficit;
mod enclosed;
mod forms;
mod inputs;
mod node;
mod policy;
mod rates;
mod rounds;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use charge::Visits;
use debts::Debts;
use deficit::{Load, ShareRound};
pub use forms::Form;
use forms::FormGroup;
use inputs::{Input, InputRate, Inputs, sum_of};
pub use node::{Departs, Next, Node};
use policy::OutputPolicy;
use straightline_packet::{
    Batch, InputRules, KeptPackets, MAX_BATCH, PacketId, PortIndex, Served, Step, StepKind, Turn,
};

use crate::clock::{cycles, hertz, in_cycles};
use crate::shares::{SendCost, TURN_TIME};
use crate::watchdog::Names;
use crate::{Meter, NodeStats, Port};

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
    /// Cost of a send, for an output that makes calls.
    send_cost: Option<SendCost>,
    /// True if packets can get from here to an output that makes calls.
    leads_to_calls: bool,
    /// True for an output that runs before a later node may change its packets.
    is_early: bool,
    /// True if packets can get from here to an output that runs early.
    leads_to_early: bool,
    /// True for a node that learns which of its packets go back to their ring.
    has_state: bool,
    /// True if the entry has a form or is enclosed. Most have neither, and look at this alone.
    is_special: bool,
    /// The form in which packets come here, as an index into the graph's forms.
    form: Option<usize>,
    /// The outputs behind the first of enclosed nodes, the own one first. Empty for others.
    behind: Vec<usize>,
    /// Decides which of an output's packets pass, and which of them go first. Most outputs have none.
    policy: Option<Box<OutputPolicy>>,
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
    /// The nodes and outputs for which packets wait.
    ready: Ready,
    /// The outputs for which packets wait, once all nodes have run.
    outputs: Ready,
    inputs: Inputs,
    waiting: Vec<WaitingOutput>,
    /// The nodes that may send packets in further rounds.
    rounds: Vec<usize>,
    /// The nodes that have run in this turn, among those that learn which packets go back. None if the
    /// graph has no such nodes.
    has_run: Option<Ready>,
    /// Visits of this turn's packets to these nodes.
    visits: Option<Box<Visits>>,
    /// Forms of packets. One is absent while its outputs run.
    forms: Vec<Option<Box<FormGroup>>>,
    /// Memory for the packets of enclosed nodes. It is absent while they run, and without such nodes.
    kept: Option<KeptPackets>,
    end: Arc<NodeStats>,
    /// Cycles of [`TURN_TIME`].
    turn_time: i64,
    debts: Debts,
    share_round: ShareRound,
    /// True if all packets of the last turn came from inputs that wait for their rate now.
    waits_only: bool,
    /// Packets of this turn that were left in their ring for the rate of their port.
    beyond_rates: usize,
    /// Statistics of an earlier graph's nodes, for new nodes of the same name. Nodes may share a
    /// name.
    earlier: HashMap<String, VecDeque<Arc<NodeStats>>>,
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
        let mut by_name: HashMap<String, VecDeque<_>> = HashMap::new();
        for stats in earlier {
            by_name.entry(stats.name.clone()).or_default().push_back(stats);
        }
        let turn_time = in_cycles(TURN_TIME, hertz()).try_into().unwrap_or(i64::MAX);
        let mut graph = Graph {
            entries: Vec::new(),
            ready: Ready::default(),
            outputs: Ready::default(),
            inputs: Inputs::default(),
            waiting: Vec::new(),
            rounds: Vec::new(),
            has_run: None,
            visits: None,
            forms: Vec::new(),
            kept: None,
            end: Arc::default(),
            turn_time,
            debts: Debts::new(turn_time, hertz()),
            share_round: ShareRound::default(),
            waits_only: false,
            beyond_rates: 0,
            earlier: by_name,
            names: Names::default(),
        };
        graph.end = graph.stats_for("turn-end".to_owned());
        graph
    }

    fn stats_for(&mut self, name: String) -> Arc<NodeStats> {
        let Some(known) = self.earlier.get_mut(&name) else {
            return Arc::new(NodeStats { name, ..NodeStats::default() });
        };
        // Each is used once, because nodes may share a name.
        let stats = known.pop_front();
        if known.is_empty() {
            self.earlier.remove(&name);
        }
        stats.unwrap_or_default()
    }

    /// Adds a node. Its edges lead to the entries in `edges`, and count from 0 in their order.
    pub fn node(&mut self, name: impl Into<String>, node: Box<dyn Node>, edges: &[NodeIndex]) -> NodeIndex {
        let name = name.into();
        let served = self.name(None, &name);
        let has_rounds = node.has_rounds();
        let has_state = node.has_state();
        let index = self.entry(name, Action::Node(node), edges, served);
        if has_state {
            self.entries[index.0].has_state = true;
            self.has_run.get_or_insert_default().cover(self.entries.len());
            self.visits.get_or_insert_default();
        }
        if has_rounds {
            self.rounds.push(index.0);
        }
        index
    }

    fn entry(&mut self, name: String, action: Action, edges: &[NodeIndex], served: Served) -> NodeIndex {
        let edges: Vec<_> = edges.iter().map(|e| e.0).collect();
        let stats = self.stats_for(name);
        let makes_calls = match &action {
            Action::Node(_) => false,
            Action::Output { port, .. } | Action::CopyOutput { port } => port.makes_calls(),
        };
        let leads_to_calls = makes_calls || edges.iter().any(|&edge| self.entries[edge].leads_to_calls);
        let send_cost = makes_calls.then(SendCost::default);
        self.mark_early(&edges);
        let leads_to_early = edges.iter().any(|&edge| self.entries[edge].leads_to_early);
        self.entries.push(Entry {
            action,
            edges,
            pending: Batch::new(),
            stats,
            served,
            send_cost,
            leads_to_calls,
            is_early: false,
            leads_to_early,
            has_state: false,
            is_special: false,
            form: None,
            behind: Vec::new(),
            policy: None,
        });
        self.ready.cover(self.entries.len());
        self.outputs.cover(self.entries.len());
        NodeIndex(self.entries.len() - 1)
    }

    /// Marks the outputs at the end of these edges that run before a node at the end of another one.
    /// The node may change the packets, and the output delivers them as they are now.
    fn mark_early(&mut self, edges: &[usize]) {
        let is_node = |edge: &usize| {
            let entry = &self.entries[*edge];
            matches!(entry.action, Action::Node(_)) && entry.behind.is_empty()
        };
        let Some(last_node) = edges.iter().copied().filter(is_node).min() else { return };
        for &edge in edges.iter().filter(|&&edge| edge > last_node) {
            let entry = &mut self.entries[edge];
            if !matches!(entry.action, Action::Node(_)) {
                (entry.is_early, entry.leads_to_early) = (true, true);
            }
        }
    }

    /// Records the name of a port or node for the watchdog, and returns its identity. A port
    /// without an index counts as a node.
    fn name(&mut self, port: Option<PortIndex>, name: &str) -> Served {
        let number = || Served::Node(self.names.len().try_into().unwrap_or(u16::MAX));
        let served = port.map_or_else(number, Served::Port);
        Arc::make_mut(&mut self.names).push((served, name.to_owned()));
        served
    }

    /// Returns the names of the ports and nodes, for the watchdog.
    pub(crate) fn names(&self) -> Names {
        Arc::clone(&self.names)
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
        self.input_with(port, to, 1, None);
    }

    /// Adds an input with a weight: its part of the worker's time in relation to other inputs, while all
    /// of them always have packets. 0 counts as 1.
    ///
    /// It may have a rate. If the port takes packets back, they wait in its rings. Otherwise those beyond
    /// the rate are dropped.
    pub fn input_with(&mut self, port: Arc<dyn Port>, to: NodeIndex, weight: u16, rate: Option<Meter>) {
        let stats = self.stats_for(format!("{}-rx", port.name()));
        let served = self.name(port.index(), port.name());
        // A packet that an output has delivered early cannot go back: it would be delivered again.
        let entry = &self.entries[to.0];
        let returns = port.takes_back() && !entry.leads_to_early;
        let shapes = rate.is_some() && port.takes_back();
        let rules = InputRules { returns, keeps_buffers: returns && entry.leads_to_calls || shapes };
        let rate = rate.map(|meter| Box::new(InputRate { meter, shapes, is_armed: true }));
        let mut input = Input::new(port, to.0, stats, served, rules, weight);
        input.rate = rate;
        self.inputs.add(input);
    }

    /// Returns the statistics of all inputs, nodes and outputs, in the order in which packets pass
    /// them, and of the turn's end.
    pub fn stats(&self) -> Vec<Arc<NodeStats>> {
        let inputs = self.inputs.all().iter().map(|i| &i.stats);
        let nodes = self.entries.iter().rev().map(|e| &e.stats);
        inputs.chain(nodes).chain([&self.end]).cloned().collect()
    }

    /// Does the work of one turn. Returns the number of packets that moved. A [`Worker`](crate::Worker)
    /// calls it in a loop.
    pub fn run(&mut self, turn: &mut Turn<'_>) -> usize {
        let mut at = cycles();
        let began = at;
        if self.debts.any {
            self.repay(turn, at);
        }
        let taken = self.receive(turn, &mut at);
        if taken == 0 {
            // Chains that were refused have no packet, but must be given back. So must those that wait for
            // the rate of their port.
            turn.end();
            return 0;
        }
        if let Some(has_run) = &mut self.has_run {
            has_run.clear();
        }
        self.run_nodes(turn, &mut at);
        self.charge(turn, taken);
        if self.debts.any {
            self.note_debts(at);
        }
        self.run_outputs(turn, &mut at);
        self.tell_returned(turn);
        if !self.rounds.is_empty() {
            self.run_rounds(turn, &mut at);
        }
        turn.end();
        if self.inputs.has_rates() {
            self.settle(turn, taken);
        }
        let now = cycles();
        self.end.count(taken, now.saturating_sub(at));
        self.share_round.learn(now.saturating_sub(began));
        (taken + self.beyond_rates).saturating_sub(turn.returned())
    }

    /// Receives from the inputs whose turn it is. Returns the number of packets.
    #[inline]
    fn receive(&mut self, turn: &mut Turn<'_>, at: &mut u64) -> usize {
        let mut taken = 0;
        self.share_round.begin(self.inputs.are_all_served());
        self.inputs.begin_turn(*at, turn.free_slots());
        let now = self.inputs.now;
        self.beyond_rates = 0;
        while turn.free_slots() > 0
            && let Some(input) = self.inputs.next(taken, &self.share_round)
        {
            let pending = &mut self.entries[input.to].pending;
            let had = pending.len();
            turn.serve(input.served);
            turn.begin_input(input.rules);
            let first = turn.accepted();
            let before = (turn.borrowed(), turn.gso_segments(), turn.descriptors());
            let fair = input.fair();
            input.port.receive(turn, pending, input.within_rate(fair));
            let mut got = pending.len() - had;
            let mut load = Load {
                packets: got,
                bytes: turn.borrowed() - before.0,
                segments: turn.gso_segments() - before.1,
                descriptors: turn.descriptors() - before.2,
            };
            // An input has more packets if it has as many as it might, or as the turn had space for.
            let mut most = if turn.free_slots() > 0 { fair } else { got };
            if input.deficit.is_exceeded_by(load) && input.rules.returns {
                self.beyond_rates += input.cut(turn, pending, had, &mut load);
                got = load.packets;
                most = got;
            }
            if let Some(rate) = &mut input.rate
                && got > 0
            {
                let left = rate.apply(turn, pending, had, now);
                got = pending.len() - had;
                if left > 0 {
                    self.beyond_rates += left;
                    load = Load { descriptors: load.descriptors, ..sum_of(turn, &pending.ids()[had..]) };
                }
            }
            input.deficit.charge(load, most, &mut self.share_round);
            input.note(got, first..turn.accepted());
            let mut now = cycles();
            let took = now.saturating_sub(*at);
            if turn.is_observed() {
                turn.observe_received(input.port.index(), &pending.ids()[had..]);
                let name = &input.stats.name;
                let seen = Step { name, kind: StepKind::Input, cycles: took, packets: got, ways: &|_| 1 };
                turn.observe_step(&seen, &pending.ids()[had..]);
                now = cycles();
            }
            if got > 0 {
                self.ready.add(input.to);
                input.stats.count(got, now.saturating_sub(*at));
                taken += got;
            } else {
                self.inputs.note_vain_look(took);
            }
            *at = now;
        }
        self.inputs.end_turn(taken);
        taken
    }

    /// Runs the nodes that have packets. `at` is the time at which the work before them ended.
    #[inline]
    fn run_nodes(&mut self, turn: &mut Turn<'_>, at: &mut u64) {
        // Edges lead to lower indexes. So from the last entry to the first, each runs once.
        while let Some(index) = self.ready.take_last() {
            let entry = &self.entries[index];
            if matches!(entry.action, Action::Node(_)) && (!entry.is_special || entry.behind.is_empty()) {
                self.run_node(turn, index, at);
            } else if entry.is_early {
                self.charge_sends(turn, index);
                self.run_late(turn, index, at);
            } else {
                self.outputs.add(index);
            }
        }
    }

    /// Runs a node.
    #[inline]
    fn run_node(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        // Edges lead to lower indexes.
        let (later, rest) = self.entries.split_at_mut(index);
        let entry = &mut rest[0];
        let Action::Node(node) = &mut entry.action else { return };
        turn.serve(entry.served);
        if let Some(has_run) = self.has_run.as_mut().filter(|_| entry.has_state) {
            has_run.add(index);
            if let Some(visits) = &mut self.visits {
                visits.add(&entry.pending);
            }
        }
        let mut next = Next { edges: &entry.edges, later: &mut *later, ready: &mut self.ready };
        node.process(turn.packets(), &entry.pending, &mut next);
        entry.check_annotations(turn);
        let mut now = cycles();
        if turn.is_observed() {
            entry.observe(turn, later, &entry.pending, now.saturating_sub(*at));
            now = cycles();
        }
        entry.stats.count(entry.pending.len(), now.saturating_sub(*at));
        *at = now;
        entry.pending.clear();
    }

    /// Tells the nodes that have run, and want to know it, which packets go back to their ring.
    #[inline]
    fn tell_returned(&mut self, turn: &mut Turn<'_>) {
        if let Some(has_run) = &self.has_run
            && let Some(departs) = turn.departs()
        {
            for index in has_run.iter() {
                if let Action::Node(node) = &mut self.entries[index].action {
                    node.note_returned(turn.packets(), &departs);
                }
            }
        }
    }

    /// Runs the outputs that have packets, and the enclosed nodes. `at` is the time at which the work
    /// before them ended.
    #[inline]
    fn run_outputs(&mut self, turn: &mut Turn<'_>, at: &mut u64) {
        while let Some(index) = self.outputs.take_last() {
            self.run_late(turn, index, at);
        }
    }

    /// Runs an output, or enclosed nodes, with packets in their form.
    #[inline]
    fn run_late(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        if self.entries[index].is_special {
            self.run_special(turn, index, at);
        } else {
            self.run_output(turn, index, at);
        }
    }

    #[cold]
    fn run_special(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        if self.entries[index].form.is_some() {
            self.run_form(turn, index, at);
        } else {
            self.run_enclosed_or_output(turn, index, at);
        }
    }

    /// Runs an output.
    #[inline]
    fn run_output(&mut self, turn: &mut Turn<'_>, index: usize, at: &mut u64) {
        let entry = &mut self.entries[index];
        turn.serve(entry.served);
        let sends = entry.send_cost.map(|_| entry.action.sends(turn, &entry.pending));
        let beyond = if entry.policy.is_some() { Some(entry.police(turn)) } else { None };
        // The packets of a copy output that leave their ring, if not all do.
        let mut departing = None;
        match &mut entry.action {
            Action::Node(_) => {}
            Action::Output { port, wait } => match &entry.policy {
                None => port.deliver(turn, &entry.pending, *wait),
                Some(policy) => policy.deliver(turn, &**port, &entry.pending, *wait),
            },
            Action::CopyOutput { port } => {
                departing = turn.departing(&entry.pending);
                let batch = departing.as_ref().unwrap_or(&entry.pending);
                if !batch.is_empty() {
                    port.deliver(turn, batch, false);
                }
            }
        }
        if let Some(beyond) = beyond {
            entry.settle_rate(turn, &beyond);
        }
        entry.check_annotations(turn);
        let mut now = cycles();
        let batch = departing.as_ref().unwrap_or(&entry.pending);
        if let (Some(cost), Some(sends)) = (&mut entry.send_cost, sends) {
            cost.learn(sends, now.saturating_sub(*at));
        }
        if turn.is_observed() {
            entry.observe(turn, &[], batch, now.saturating_sub(*at));
            now = cycles();
        }
        entry.stats.count(batch.len(), now.saturating_sub(*at));
        *at = now;
        entry.pending.clear();
    }

    /// Arms the kicks of every port, to wake the worker. Returns whether an input has packets
    /// already or an output has still to send some, and whether an output has free buffers again.
    ///
    /// An input that waits for its rate stays disarmed: a kick would change nothing.
    pub(crate) fn arm(&mut self, turn: &Turn<'_>) -> (bool, bool) {
        let still_sends = self.entries.iter().fold(false, |any, entry| match &entry.action {
            Action::Output { port, .. } | Action::CopyOutput { port } => {
                turn.serve(entry.served);
                port.send_waiting(turn) | any
            }
            Action::Node(_) => any,
        });
        // All ports are armed, even after one that has packets: each must know that the worker does
        // not poll.
        let packets = self.inputs.all_mut().iter_mut().fold(false, |any, input| {
            turn.serve(input.served);
            (input.arms() && input.port.arm(turn, false)) | any
        });
        let has_buffers = self.waiting.iter().fold(false, |any, output| {
            turn.serve(output.served);
            output.port.arm(turn, true) | any
        });
        (packets | still_sends, has_buffers)
    }

    /// Disarms the kicks of every port: the worker polls again.
    pub(crate) fn disarm(&mut self, turn: &Turn<'_>) {
        for input in self.inputs.all_mut() {
            turn.serve(input.served);
            if input.disarms() {
                input.port.disarm(turn, false);
            }
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
    /// Makes it long enough for `entries`.
    fn cover(&mut self, entries: usize) {
        self.0.resize(entries.div_ceil(WORD), 0);
    }

    /// Removes all entries.
    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns the indexes of the entries.
    #[inline]
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)))
                .take_while(|&word| word != 0)
                .map(move |word| at * WORD + word.trailing_zeros() as usize)
        })
    }

    #[inline]
    pub(crate) fn add(&mut self, index: usize) {
        self.0[index / WORD] |= 1 << (index % WORD);
    }

    /// Returns whether packets wait for this entry.
    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0[index / WORD] & 1 << (index % WORD) != 0
    }

    /// Removes an entry. Returns true if it was there, so packets waited for it.
    fn remove(&mut self, index: usize) -> bool {
        let had = self.contains(index);
        self.0[index / WORD] &= !(1 << (index % WORD));
        had
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
    /// Checks in debug builds that no packet has facts that were parsed from a former head.
    fn check_annotations(&self, turn: &Turn<'_>) {
        let is_fresh = |id: &PacketId| turn.is_annotation_fresh(*id);
        debug_assert!(self.pending.ids().iter().all(is_fresh), "{}: an annotation is stale", self.stats.name);
    }

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
        let packets = packets.try_into().unwrap_or(0);
        self.packets.add(packets);
        self.most.raise(packets);
        self.cycles.add(cycles);
    }
}
