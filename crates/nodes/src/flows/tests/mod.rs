//! The node beside a model that runs the actions of one packet after the other.

mod cases;
mod control;
mod ct;
mod generate;
mod model;
mod offload;

use std::sync::Arc;
use std::time::Duration;

use straightline_flow::{Flow, FlowCommand, FlowMod, FlowTables, Owner, PortNumber};
use straightline_graph::{EpollWaiter, Graph, Idle, Worker};
use straightline_packet::{Arena, Drops, Settings};
pub(super) use straightline_testing::ports::Carried;
use straightline_testing::ports::{Source, Taken};

use super::*;

/// Ports of the tests; their numbers in flows count from 1.
pub(super) const PORTS: u16 = 4;

/// Most connections of the tests' bridge.
pub(super) const MOST_CONNECTIONS: u32 = 64;

/// A worker with the node. Its last edge leads to an output, too, in place of the bridge.
pub(super) struct Rig {
    worker: Worker,
    tables: Arc<FlowTable>,
    pub(super) flows: FlowTables<FlowCounters>,
    pub(super) compiler: FlowCompiler,
    pub(super) meters: FlowMeters,
    has_connections: bool,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_rules(None)
    }

    /// With rules of the bridge's ports.
    pub(super) fn with_rules(rules: Option<Arc<Rules>>) -> Self {
        let rcu = Rcu::new();
        let tables = Arc::new(FlowTable::new(&rcu));
        let mut graph = Graph::new();
        let taken: Vec<Arc<Taken>> = (0..=PORTS).map(|_| Arc::default()).collect();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        let ports = (0..PORTS).map(PortIndex).collect();
        let flows = graph.node("flows", Box::new(Flows::with(ports, rules, &tables)), &edges);
        let source = Arc::new(Source::default());
        graph.input(Arc::clone(&source) as _, flows);
        let drops: Vec<Arc<Drops>> = (0..PORTS).map(|_| Arc::default()).collect();
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Rig {
            worker,
            tables,
            flows: FlowTables::default(),
            compiler: FlowCompiler::default(),
            meters: FlowMeters::default(),
            has_connections: false,
            source,
            taken,
            drops,
        }
    }

    /// Publishes flows. Returns their counters.
    pub(super) fn publish(&mut self, flows: &[Flow]) -> Vec<FlowCounters> {
        let requests: Vec<_> = flows.iter().map(|flow| (0, add(flow))).collect();
        self.flows.replace(&requests, Owner::Api, Duration::ZERO).expect("flows that are possible");
        self.show();
        let counters = |flow: &Flow| self.flows.get(&flow.key).map(|entry| entry.counters.clone()).unwrap_or_default();
        flows.iter().map(counters).collect()
    }

    /// Publishes the flows as they are now.
    pub(super) fn show(&mut self) {
        let ports = (0..PORTS).map(|port| (PortNumber(port + 1), PortIndex(port))).collect();
        self.meters.replace(self.flows.meters().map(|(number, meter, _)| (number, meter)));
        if self.flows.search_connections() && !self.has_connections {
            self.has_connections = true;
            let settings = FlowConnections { most: MOST_CONNECTIONS, tracking: Default::default() };
            self.compiler.set_connections(Some(Arc::new(super::ct::new_table(settings, PORTS.into()))));
        }
        self.tables.publish(self.compiler.compile(&self.flows, ports, &self.meters));
    }

    /// Has the node send a batch. Returns the packets that each port gets, and then those that the
    /// bridge gets.
    pub(super) fn send(&mut self, packets: Vec<Carried>) -> Vec<Vec<Carried>> {
        self.source.send(packets);
        // An input that has had its share is left out for some turns.
        while self.source.waits() {
            self.worker.turn();
        }
        self.taken.iter().map(|port| port.take()).collect()
    }

    /// Returns the drops so far by reason, sorted.
    pub(super) fn dropped(&self) -> Vec<(&'static str, u64)> {
        let mut all = std::collections::BTreeMap::new();
        for (reason, count) in self.drops.iter().flat_map(|drops| drops.nonzero()) {
            *all.entry(reason.name()).or_insert(0) += count;
        }
        all.into_iter().collect()
    }
}

/// Returns the request that adds a flow.
pub(super) fn add(flow: &Flow) -> FlowMod {
    FlowMod {
        command: FlowCommand::Add,
        table: Some(flow.key.table),
        priority: flow.key.priority,
        condition: flow.key.condition.clone(),
        cookie: None,
        cookie_filter: (0, 0),
        out_port: None,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        check_overlap: false,
        reset_counts: false,
        actions: flow.actions.clone(),
    }
}
