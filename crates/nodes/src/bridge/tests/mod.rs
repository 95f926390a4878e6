//! The node beside models that decide on each frame by itself.

mod loops;
mod model;
mod plain;
pub(crate) mod storms;
mod vlans;

use std::sync::{Arc, Mutex};

use straightline_graph::{Graph, Port};
use straightline_packet::{Arena, Drops, HEAD, Rcu, Settings, Turn};

use straightline_wire::MacAddr;

use super::*;

/// A port that receives its frames in one batch, each with its port. A frame of a tunnel with several
/// networks begins with the VLAN of its network.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) frames: Mutex<Vec<(u16, Vec<u8>)>>,
    tunnels: Vec<u16>,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        for (port, mut frame) in self.frames.lock().unwrap().drain(..) {
            let rest = if self.tunnels.contains(&port) { frame.split_off(2) } else { Vec::new() };
            let bytes = if rest.is_empty() { &frame } else { &rest };
            // A frame that is longer than a head is put together.
            let (front, last) = bytes.split_at(bytes.len().saturating_sub(HEAD));
            let id = turn.accept_owned(PortIndex(port), last).expect("a free slot");
            turn.prepend(id, front).expect("enough headroom");
            if !rest.is_empty() {
                let vlan = VlanId::new(u16::from_be_bytes([frame[0], frame[1]]));
                turn.packets().set_vlan(id, vlan.map(|id| PacketVlan { id, pcp: 0, dei: false }));
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

/// A port that keeps the frames that it gets. A tunnel with several networks puts the VLAN of the
/// network in front.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) frames: Mutex<Vec<Vec<u8>>>,
    is_tunnel: bool,
}

impl Port for Taken {
    fn name(&self) -> &'static str {
        "taken"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        for &id in batch.ids() {
            let vlan = turn.packets().vlan(id).filter(|_| self.is_tunnel);
            let network = vlan.map_or_else(Vec::new, |vlan| vlan.id.get().to_be_bytes().to_vec());
            self.frames.lock().unwrap().push([&network, turn.head(id)].concat());
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A bridge, and a time in seconds that stands still unless a test moves it.
struct Rig {
    now: u32,
    graph: Graph,
    arena: Arena,
    table: BridgeTable,
    source: Arc<Source>,
    taken: Vec<Arc<Taken>>,
    drops: Vec<Arc<Drops>>,
}

impl Rig {
    fn new(ports: &[BridgePort]) -> Self {
        Self::with(ports, false, &[])
    }

    /// With so many static stations, in a VLAN that no port has, that the bridge prefetches.
    fn crowded(ports: &[BridgePort]) -> Self {
        let vlan = VlanId::MAX;
        let mac = |n: u64| MacAddr::from_u64(0x0200_ff00_0000 | n);
        let statics: Vec<_> = (0..9000).map(|n| (vlan, mac(n), ports[0].index)).collect();
        Self::with(ports, false, &statics)
    }

    /// With loop protection.
    fn protected(ports: &[BridgePort]) -> Self {
        Self::with(ports, true, &[])
    }

    fn with(ports: &[BridgePort], loop_protection: bool, statics: &[(VlanId, MacAddr, PortIndex)]) -> Self {
        let is_tunnel = |port: &BridgePort| port.rules.vlans.as_ref().is_some_and(PortVlans::are_networks);
        let taken = |port| Arc::new(Taken { is_tunnel: is_tunnel(port), ..Taken::default() });
        let taken: Vec<_> = ports.iter().map(taken).collect();
        let rules = BridgeRules {
            api_stations: 0,
            bindings: None,
            limit: 1024,
            ageing: 300,
            statics: statics.to_vec(),
            loop_protection,
            ports: ports.to_vec(),
            snooping: false,
            flows: false,
        };
        let table = BridgeTable::new("lan", &rules, std::collections::HashMap::new());
        assert_eq!(table.fdb().has_many(), statics.len() >= 9000);
        let mut graph = Graph::new();
        let edges: Vec<_> = taken.iter().map(|port| graph.output(Arc::clone(port) as _, false)).collect();
        for (&edge, port) in edges.iter().zip(ports) {
            if let Some(form) = port.rules.vlans.as_ref().and_then(PortVlans::form) {
                graph.form(Box::new(form), &[edge]);
            }
        }
        let bridge = graph.node("bridge", Box::new(table.node(1)), &edges);
        let tunnels = ports.iter().filter(|port| is_tunnel(port)).map(|port| port.index.0).collect();
        let source = Arc::new(Source { tunnels, ..Source::default() });
        graph.input(Arc::clone(&source) as _, bridge);
        let drops: Vec<Arc<Drops>> = ports.iter().map(|_| Arc::default()).collect();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        Rig { now: 100, graph, arena, table, source, taken, drops }
    }

    /// Has the bridge forward a batch. Returns the frames that each port gets.
    fn forward(&mut self, frames: Vec<(u16, Vec<u8>)>) -> Vec<Vec<Vec<u8>>> {
        *self.source.frames.lock().unwrap() = frames;
        let graph = &mut self.graph;
        self.arena.set_now(self.now);
        self.arena.turn(|turn| graph.run(turn));
        self.arena.begin_round();
        self.taken.iter().map(|port| std::mem::take(&mut *port.frames.lock().unwrap())).collect()
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
