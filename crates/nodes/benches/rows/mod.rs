//! Rows of the benches of nodes: workers whose cycles per packet are compared with those of a bridge.

use std::collections::HashMap;
use std::sync::Arc;

use straightline_graph::{EpollWaiter, Graph, Idle, NodeIndex, NodeStats, Null, Worker};
use straightline_nodes::{BridgePort, BridgeRules, BridgeTable};
use straightline_packet::{Arena, Drops, PortIndex, RcuReader, Settings};
use straightline_report::statistics::{Pairing, median, ratio};
use straightline_wire::{MacAddr, VlanId};

/// Packets that a turn receives from an input, and the number of inputs.
pub(crate) const BURST: usize = 64;
pub(crate) const INPUTS: usize = 4;

/// Packets of a turn.
pub(crate) const BATCH: usize = BURST * INPUTS;

/// Ports of the bridge.
pub(crate) const PORTS: u16 = 4;

/// Returns the table of a bridge, which knows the station of all packets at its second port.
pub(crate) fn bridge(has_flows: bool) -> BridgeTable {
    let rules = BridgeRules {
        limit: 64,
        ageing: 300,
        api_stations: 0,
        bindings: None,
        statics: vec![(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, 2]), PortIndex(1))],
        loop_protection: true,
        ports: (0..PORTS).map(|port| BridgePort::plain(PortIndex(port))).collect(),
        snooping: false,
        flows: has_flows,
    };
    BridgeTable::new("lan", &rules, HashMap::new())
}

/// Adds an output for each port, which takes everything.
pub(crate) fn outputs(graph: &mut Graph) -> Vec<NodeIndex> {
    (0..PORTS).map(|port| graph.output(Arc::new(Null::new(format!("out{port}"))), false)).collect()
}

/// A row: a worker, and the cycles per packet of each round.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) worker: Worker,
    nodes: Vec<Arc<NodeStats>>,
    drops: Vec<Arc<Drops>>,
    values: Vec<(u32, f64)>,
}

impl Row {
    /// Creates the row of a graph with its inputs.
    pub(crate) fn new(name: impl Into<String>, graph: Graph, reader: RcuReader) -> Self {
        let nodes = graph.stats();
        let drops: Vec<Arc<Drops>> = (0..PORTS).map(|_| Arc::default()).collect();
        let arena = Arena::new(reader, Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().expect("an epoll instance"));
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Row { name: name.into(), worker, nodes, drops, values: Vec::new() }
    }

    /// Returns the packets that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.drops.iter().map(|drops| drops.total()).sum()
    }

    /// Measures a round of turns.
    pub(crate) fn round(&mut self, round: u32, turns: usize) {
        let before = self.cycles();
        // A turn leaves a quarter of its slots to inputs that do not always have packets.
        let mut packets = 0;
        while packets < turns * BATCH {
            packets += self.worker.turn();
        }
        self.values.push((round, float(self.cycles() - before) / float(packets as u64)));
    }

    /// Returns the cycles of all nodes and outputs: those of rounds are among the outputs'.
    fn cycles(&self) -> u64 {
        self.nodes.iter().filter(|node| !node.name.ends_with("-rx")).map(|node| node.cycles.get()).sum()
    }

    /// Returns the median of all rounds.
    pub(crate) fn median(&self) -> f64 {
        let values: Vec<_> = self.values.iter().map(|(_, cycles)| *cycles).collect();
        median(&values).unwrap_or(f64::NAN)
    }

    /// Returns the ratio to another row, with its interval.
    pub(crate) fn beside(&self, other: &Row) -> String {
        ratio(&self.values, &other.values, Pairing::ByRound).map_or_else(String::new, |ratio| {
            let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.2}, {:.2}]", all.low, all.high));
            format!("{:.2}{interval}", ratio.value)
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "cycles of one round")]
fn float(n: u64) -> f64 {
    n as f64
}
