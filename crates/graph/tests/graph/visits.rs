//! Packets that many nodes decide about, and none lets pass, are charged to their input.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use straightline_graph::{EpollWaiter, Graph, Idle, Next, Node, Port, Worker};
use straightline_packet::{Arena, Batch, Drops, Packets, PortIndex, Rcu, Reason, Settings, Turn};

const PACKETS: usize = 200;

/// A port that receives a batch of packets whenever it is asked to.
#[derive(Debug, Default)]
struct Source {
    has_packets: AtomicBool,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn index(&self) -> Option<PortIndex> {
        Some(PortIndex(0))
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        if self.has_packets.swap(false, Ordering::Relaxed) {
            (0..PACKETS).for_each(|_| into.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("a free slot")));
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A node that drops all packets at a port, and counts them.
struct Deny {
    has_state: bool,
    seen: Arc<Mutex<usize>>,
}

impl Node for Deny {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, _next: &mut Next<'_>) {
        *self.seen.lock().unwrap() += batch.len();
        packets.drop_at(PortIndex(1), batch.ids(), Reason::Denied);
    }

    fn has_state(&self) -> bool {
        self.has_state
    }
}

/// A node that sends packets along all edges.
struct Flood;

impl Node for Flood {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        (0..next.edges()).for_each(|edge| next.extend(edge, batch.ids()));
    }
}

/// Sends a batch to this many nodes. Returns whether the source is in debt in the next turn.
fn makes_a_debt(nodes: usize, has_state: bool) -> bool {
    let mut graph = Graph::new();
    let seen = Arc::<Mutex<usize>>::default();
    let deny = |graph: &mut Graph| graph.node("deny", Box::new(Deny { has_state, seen: Arc::clone(&seen) }), &[]);
    let edges: Vec<_> = (0..nodes).map(|_| deny(&mut graph)).collect();
    let flood = graph.node("flood", Box::new(Flood), &edges);
    let source = Arc::new(Source::default());
    graph.input(Arc::clone(&source) as Arc<dyn Port>, flood);
    let drops: Vec<Arc<Drops>> = (0..2).map(|_| Arc::default()).collect();
    let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops);
    let waiter = Arc::new(EpollWaiter::new().unwrap());
    let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
    source.has_packets.store(true, Ordering::Relaxed);
    worker.turn();
    assert_eq!(*seen.lock().unwrap(), nodes * PACKETS);
    source.has_packets.store(true, Ordering::Relaxed);
    worker.turn();
    source.has_packets.load(Ordering::Relaxed)
}

#[test]
fn a_flood_that_all_ports_deny_makes_a_debt() {
    assert!(makes_a_debt(100, true));
    assert!(!makes_a_debt(3, true), "no more than each packet may need");
    assert!(!makes_a_debt(100, false), "nodes without state are cheap");
}
