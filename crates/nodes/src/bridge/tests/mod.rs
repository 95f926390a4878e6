//! The node beside models that decide on each frame by itself.

mod model;
mod plain;
mod vlans;

use std::sync::{Arc, Mutex};

use straightline_graph::{EpollWaiter, Graph, Idle, Port, Worker};
use straightline_packet::{Arena, Drops, Rcu, Settings, Turn};

use super::*;

/// A port that receives its frames in one batch, each with its port.
#[derive(Debug, Default)]
struct Source(Mutex<Vec<(u16, Vec<u8>)>>);

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        for (port, frame) in self.0.lock().unwrap().drain(..) {
            into.push(turn.accept_owned(PortIndex(port), &frame).expect("a free slot"));
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that keeps the frames that it gets.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<Vec<u8>>>);

impl Port for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        self.0.lock().unwrap().extend(batch.ids().iter().map(|&id| turn.head(id).to_vec()));
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A worker with a bridge.
struct Rig {
    worker: Worker,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
}

impl Rig {
    fn new(ports: &[BridgePort]) -> Self {
        Self::with(ports, false)
    }

    /// With loop protection.
    fn protected(ports: &[BridgePort]) -> Self {
        Self::with(ports, true)
    }

    fn with(ports: &[BridgePort], loop_protection: bool) -> Self {
        let taken: Vec<_> = ports.iter().map(|_| Arc::<Taken>::default()).collect();
        let rules = BridgeRules {
            limit: 64,
            ageing: 300,
            statics: Vec::new(),
            loop_protection,
            ports: ports.to_vec(),
            snooping: false,
        };
        let table = BridgeTable::new("lan", &rules, std::collections::HashMap::new());
        let mut graph = Graph::new();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        for (&edge, port) in edges.iter().zip(ports) {
            if let Some(form) = port.rules.vlans.as_ref().and_then(PortVlans::form) {
                graph.form(Box::new(form), &[edge]);
            }
        }
        let bridge = graph.node("bridge", Box::new(table.node(1)), &edges);
        let source = Arc::<Source>::default();
        graph.input(Arc::clone(&source) as _, bridge);
        let drops: Vec<Arc<Drops>> = ports.iter().map(|_| Arc::default()).collect();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        Rig { worker: Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin), source, taken, drops }
    }

    /// Has the bridge forward a batch. Returns the frames that each port gets.
    fn forward(&mut self, frames: Vec<(u16, Vec<u8>)>) -> Vec<Vec<Vec<u8>>> {
        *self.source.0.lock().unwrap() = frames;
        self.worker.turn();
        self.taken.iter().map(|port| std::mem::take(&mut *port.0.lock().unwrap())).collect()
    }

    /// Returns the number of all drops.
    fn dropped(&self) -> u64 {
        self.drops.iter().flat_map(|drops| drops.nonzero()).map(|(_, count)| count).sum()
    }

    /// Returns the number of a port's drops for a reason.
    fn dropped_as(&self, port: usize, reason: Reason) -> u64 {
        self.drops[port].nonzero().filter(|(found, _)| *found == reason).map(|(_, count)| count).sum()
    }
}
