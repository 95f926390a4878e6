//! The node beside a model that decides on each frame by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_graph::{EpollWaiter, Graph, Idle, Port, Worker};
use straightline_packet::{Arena, Drops, Rcu, Settings, Turn};

use super::*;

const PORTS: u16 = 3;

/// A frame: its port, its addresses, and its number among all.
type Sent = (u16, [u8; 6], [u8; 6], u8);

/// A port that receives its frames in one batch.
#[derive(Debug, Default)]
struct Source(Mutex<Vec<Sent>>);

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        for (port, to, from, number) in self.0.lock().unwrap().drain(..) {
            let frame = [&to[..], &from[..], &[0x88, 0xb5, number]].concat();
            into.push(turn.accept_owned(PortIndex(port), &frame).expect("a free slot"));
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that keeps the numbers of the frames that it gets.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<u8>>);

impl Port for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        self.0.lock().unwrap().extend(batch.ids().iter().map(|&id| turn.head(id)[14]));
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Returns the ports that the frame goes to, by the rules of a bridge.
fn model(stations: &mut HashMap<[u8; 6], u16>, &(port, to, from, _): &Sent) -> Vec<u16> {
    if from[0] & 1 != 0 || from == [0; 6] {
        return Vec::new();
    }
    stations.insert(from, port);
    match stations.get(&to) {
        Some(&known) if to[0] & 1 == 0 => (known != port).then_some(known).into_iter().collect(),
        _ if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 => Vec::new(),
        _ => (0..PORTS).filter(|&other| other != port).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Few addresses, so that frames come in rows, and stations move within one batch.
    #[test]
    fn it_decides_on_each_frame_as_if_it_were_the_only_one(
        batches in vec(vec((0..PORTS, 0..6_usize, 0..5_usize, 1..4_usize), 1..12), 1..6),
    ) {
        let addresses =
            [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 1, 1], [0; 6], [0xff; 6], [1, 0x80, 0xc2, 0, 0, 3]];
        let taken: Vec<_> = (0..PORTS).map(|_| Arc::<Taken>::default()).collect();
        let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
        let fdb = Arc::new(Fdb::new(64, 300, &ports, &[]));
        let mut graph = Graph::new();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        let bridge = graph.node("bridge", Box::new(Bridge::new(ports, fdb)), &edges);
        let source = Arc::<Source>::default();
        graph.input(Arc::clone(&source) as _, bridge);
        let drops: Vec<Arc<Drops>> = (0..PORTS).map(|_| Arc::default()).collect();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);

        let mut stations = HashMap::new();
        let mut dropped = 0;
        for batch in batches {
            let rows = batch.iter().flat_map(|&(port, to, from, count)| vec![(port, addresses[to], addresses[from]); count]);
            let frames: Vec<Sent> = rows.zip(0..).map(|((port, to, from), number)| (port, to, from, number)).collect();
            let mut expected = vec![Vec::new(); usize::from(PORTS)];
            for frame in &frames {
                let to = model(&mut stations, frame);
                dropped += u64::from(to.is_empty());
                to.into_iter().for_each(|port| expected[usize::from(port)].push(frame.3));
            }
            *source.0.lock().unwrap() = frames;
            worker.turn();
            let got: Vec<Vec<u8>> = taken.iter().map(|port| std::mem::take(&mut *port.0.lock().unwrap())).collect();
            prop_assert_eq!(got, expected);
            let counted: u64 = drops.iter().flat_map(|drops| drops.nonzero()).map(|(_, count)| count).sum();
            prop_assert_eq!(counted, dropped, "each drop is counted once");
        }
    }
}
