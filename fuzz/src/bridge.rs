//! A bridge in a graph of its own: frames come in by its ports, and leave by others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use straightline_graph::{Graph, Port};
use straightline_nodes::{BridgePort, BridgeRules, BridgeTable, PortVlans, SnoopingTable};
use straightline_packet::{Arena, Batch, Checksum, Drops, Level, Offload, PortIndex, Rcu, RcuCell, Settings, Turn};
use straightline_virtio::memory::GuestMemory;

use crate::END;
use crate::packets::{accept, guest_memory};

/// The most frames of a batch.
pub(crate) const MOST_FRAMES: usize = 16;

/// Bytes of the longest frame.
pub(crate) const LONGEST_FRAME: usize = END as usize / MOST_FRAMES;

/// A frame that comes in.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Index of its port.
    pub port: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Lengths of its first memory segments.
    pub splits: [u16; 3],
    /// Start and offset of a checksum that is left to others.
    pub checksum: Option<(u16, u16)>,
}

/// A frame that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Start and offset of a checksum that is left to others.
    pub checksum: Option<(u16, u16)>,
}

/// All ports, as far as they receive.
#[derive(Debug)]
struct Source {
    memory: RcuCell<GuestMemory>,
    frames: Mutex<Vec<Sent>>,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        let memory = self.memory.load(turn).expect("published");
        for (place, sent) in self.frames.lock().expect("no panic").drain(..).enumerate() {
            let at = (place * LONGEST_FRAME) as u64;
            let id = accept(turn, memory, at, sent.bytes.len(), sent.splits).expect("a free slot");
            turn.packets().set_port(id, index(sent.port));
            if let Some((start, offset)) = sent.checksum {
                turn.set_offload(id, Offload { checksum: Checksum::Partial { start, offset }, gso: None });
            }
            into.push(id);
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
struct Taken(Mutex<Vec<Got>>);

impl Port for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        let mut taken = self.0.lock().expect("no panic");
        for &id in batch.ids() {
            let mut bytes = turn.head(id).to_vec();
            for segment in turn.body(id) {
                let at = bytes.len();
                bytes.resize(at + segment.len() as usize, 0);
                segment.read(Level::Scalar, &mut bytes[at..]);
            }
            assert_eq!(bytes.len(), turn.len(id) as usize);
            let checksum = match turn.checksum(id) {
                Checksum::Partial { start, offset } => Some((start, offset)),
                _ => None,
            };
            taken.push(Got { bytes, checksum });
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// The graph, and everything at its ends.
pub(crate) struct BridgeRig {
    graph: Graph,
    arena: Arena,
    memory: GuestMemory,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
}

impl BridgeRig {
    /// Makes a bridge of these ports, whose indexes count from 0.
    #[must_use]
    pub(crate) fn new(ports: &[BridgePort], snooping: bool) -> Self {
        let rcu = Rcu::new();
        let memory = RcuCell::new(&rcu);
        memory.swap(Some(Box::new(guest_memory())));
        let source = Arc::new(Source { memory, frames: Mutex::default() });
        let taken: Vec<_> = ports.iter().map(|_| Arc::<Taken>::default()).collect();
        let rules = BridgeRules {
            limit: 256,
            ageing: 300,
            api_stations: 0,
            bindings: None,
            statics: Vec::new(),
            loop_protection: false,
            ports: ports.to_vec(),
            snooping,
            flows: false,
        };
        let mut bridge = BridgeTable::new("lan", &rules, HashMap::new()).node(1);
        if snooping {
            bridge = bridge.snooped_by(&SnoopingTable::new(ports.iter().map(|port| port.index).collect()));
        }
        let mut graph = Graph::new();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        for (&edge, port) in edges.iter().zip(ports) {
            if let Some(form) = port.rules.vlans.as_ref().and_then(PortVlans::form) {
                graph.form(Box::new(form), &[edge]);
            }
        }
        let bridge = graph.node("bridge", Box::new(bridge), &edges);
        graph.input(Arc::clone(&source) as _, bridge);
        let drops: Vec<Arc<Drops>> = ports.iter().map(|_| Arc::default()).collect();
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        BridgeRig { graph, arena, memory: guest_memory(), source, taken, drops }
    }

    /// Sets the second of the worker's clock.
    pub(crate) fn set_now(&mut self, second: u32) {
        self.arena.set_now(second);
    }

    /// Has the bridge forward a batch. Returns the frames that each port gets.
    pub(crate) fn forward(&mut self, frames: Vec<Sent>) -> Vec<Vec<Got>> {
        for (place, sent) in frames.iter().enumerate() {
            let mut bytes = &sent.bytes[..];
            let len = bytes.len() as u32;
            self.memory.segments((place * LONGEST_FRAME) as u64, len, &mut 0, |segment| {
                bytes = &bytes[segment.write(Level::Scalar, bytes)..];
            });
        }
        *self.source.frames.lock().expect("no panic") = frames;
        self.arena.turn(|turn| self.graph.run(turn));
        self.taken.iter().map(|port| std::mem::take(&mut *port.0.lock().expect("no panic"))).collect()
    }

    /// Returns the number of all drops.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.drops.iter().flat_map(|drops| drops.nonzero()).map(|(_, count)| count).sum()
    }
}

fn index(port: usize) -> PortIndex {
    PortIndex(u16::try_from(port).expect("few ports"))
}
