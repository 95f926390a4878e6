//! Inputs that seldom have packets are served beside one that fills each turn by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use straightline_graph::{EpollWaiter, Graph, Idle, Next, Node, Port, Worker};
use straightline_packet::{Arena, Batch, Drops, Packets, PortIndex, Rcu, Reason, Settings, Turn};

/// More turns than an input without packets stays active.
const QUIET: usize = 1000;

/// A port that has this many packets, each with so many descriptors.
#[derive(Debug)]
struct Source {
    index: u16,
    packets: AtomicUsize,
    descriptors: u32,
}

impl Source {
    fn new(index: u16, packets: usize, descriptors: u32) -> Arc<Self> {
        Arc::new(Source { index, packets: packets.into(), descriptors })
    }

    fn packets(&self) -> usize {
        self.packets.load(Ordering::Relaxed)
    }
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn index(&self) -> Option<PortIndex> {
        Some(PortIndex(self.index))
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let had = into.len();
        while into.len() - had < max && turn.free_slots() > 0 && self.packets() > 0 {
            turn.count_descriptors(self.descriptors);
            into.push(turn.accept_owned(PortIndex(self.index), &[0; 60]).expect("a free slot"));
            self.packets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A node that drops all packets.
struct DropAll;

impl Node for DropAll {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, _next: &mut Next<'_>) {
        packets.drop_at(PortIndex(0), batch.ids(), Reason::Denied);
    }
}

/// Runs a worker whose first input always has packets of so many descriptors. Each of the `quiet`
/// others gets a packet once it is quiet. Checks that all of these pass.
fn quiet_inputs_are_served(max_packets: usize, descriptors: u32, quiet: u16) {
    let mut graph = Graph::new();
    let end = graph.node("end", Box::new(DropAll), &[]);
    let flood = Source::new(0, usize::MAX, descriptors);
    graph.input(Arc::clone(&flood) as Arc<dyn Port>, end);
    let others: Vec<_> = (1..=quiet).map(|index| Source::new(index, 0, 1)).collect();
    others.iter().for_each(|other| graph.input(Arc::clone(other) as Arc<dyn Port>, end));
    let drops: Vec<Arc<Drops>> = (0..=quiet).map(|_| Arc::default()).collect();
    let settings = Settings { max_packets, ..Settings::default() };
    let arena = Arena::new(Rcu::new().reader(), settings, drops);
    let waiter = Arc::new(EpollWaiter::new().unwrap());
    let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
    // It is in debt after packets of many descriptors, and then left out of some turns.
    let busy = (0..QUIET).filter(|_| worker.turn() > 0).count();
    assert!(busy > QUIET / 20, "{busy} turns with packets");
    others.iter().for_each(|other| other.packets.store(1, Ordering::Relaxed));
    let is_over = (0..QUIET * 100).any(|_| worker.turn() > 0 && others.iter().all(|other| other.packets() == 0));
    let waiting = others.iter().filter(|other| other.packets() > 0).count();
    assert!(is_over, "{waiting} of {quiet} packets still wait");
}

/// A guest may put a packet into so many small buffers that a few packets use up the turn's limit of
/// descriptors.
#[test]
fn quiet_inputs_are_served_beside_packets_of_many_descriptors() {
    quiet_inputs_are_served(256, 1024, 1);
    quiet_inputs_are_served(256, 1024, 30);
}

#[test]
fn quiet_inputs_are_served_in_small_turns() {
    quiet_inputs_are_served(16, 1, 1);
    quiet_inputs_are_served(16, 1, 30);
    quiet_inputs_are_served(1, 1, 30);
    quiet_inputs_are_served(256, 1, 30);
}
