//! The learning bridge (IEEE 802.1Q, 8.6 to 8.8). It learns the port of each station by the source
//! addresses of frames, and floods frames whose destination it does not know.

mod table;

use std::sync::Arc;

use straightline_fdb::Fdb;
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason};
use straightline_wire::{MacAddr, VlanId};
pub use table::{BridgeRules, BridgeTable};

/// First of the addresses 01:80:c2:00:00:00 to 0f, which are for the nearest bridge only (IEEE
/// 802.1Q, table 8-1).
const LINK_LOCAL: u64 = 0x0180_c200_0000;

/// A learning bridge. It has one edge for each of its ports, in their order.
#[derive(Debug)]
pub struct Bridge {
    ports: Vec<PortIndex>,
    /// Edge of each port, by the port's index; `NONE` for ports that are not of this bridge.
    edges: Vec<usize>,
    fdb: Arc<Fdb>,
    /// Number of workers that share the table. Each has a bridge of its own.
    workers: u32,
    /// Batches since this bridge last swept the table.
    batches: u32,
}

const NONE: usize = usize::MAX;

/// The VLAN of all stations.
const VLAN: VlanId = VlanId::DEFAULT;

/// The decision on a frame.
enum Decision {
    Edge(usize),
    Flood,
    Drop(Reason),
}

impl Bridge {
    /// Creates a bridge of `ports`, which learns stations in `fdb`.
    pub fn new(ports: Vec<PortIndex>, fdb: Arc<Fdb>) -> Self {
        let size = ports.iter().map(|p| p.index() + 1).max().unwrap_or(0);
        let mut edges = vec![NONE; size];
        for (edge, port) in ports.iter().enumerate() {
            edges[port.index()] = edge;
        }
        Bridge { ports, edges, fdb, workers: 1, batches: 0 }
    }

    /// Sets the number of workers that share the table. They sweep it in turns, because only one
    /// can sweep at a time.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        Bridge { workers, ..self }
    }

    /// Decides on a frame from `port`, by its addresses and the table, and learns its source.
    fn decide(&self, head: &[u8], port: PortIndex, now: u32) -> Decision {
        let Some((addresses, _)) = head.split_first_chunk::<12>() else { return Decision::Drop(Reason::Runt) };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        let to = MacAddr([d0, d1, d2, d3, d4, d5]);
        let from = MacAddr([s0, s1, s2, s3, s4, s5]);
        if from.is_multicast() || from.as_u64() == 0 {
            return Decision::Drop(Reason::BadSource);
        }
        self.fdb.learn(VLAN, from, port, now);
        if to.is_multicast() {
            let local = to.as_u64() & !0xf == LINK_LOCAL;
            return if local { Decision::Drop(Reason::LinkLocal) } else { Decision::Flood };
        }
        match self.fdb.lookup(VLAN, to, now) {
            Some(known) if known == port => Decision::Drop(Reason::SamePort),
            Some(known) => match self.edges.get(known.index()) {
                Some(&edge) if edge != NONE => Decision::Edge(edge),
                _ => Decision::Flood,
            },
            None => Decision::Flood,
        }
    }

    /// Sends a packet to every port except its own: a guest never gets its own frame back.
    fn flood(&self, from: PortIndex, id: PacketId, next: &mut Next<'_>) {
        for (edge, &port) in self.ports.iter().enumerate() {
            if port != from {
                next.push(edge, id);
            }
        }
    }
}

impl Node for Bridge {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let now = packets.now();
        self.batches += 1;
        if self.batches >= self.workers {
            self.batches = 0;
            self.fdb.sweep(now);
        }
        for &id in batch.ids() {
            let port = packets.port(id);
            match self.decide(packets.head(id), port, now) {
                Decision::Edge(edge) => next.push(edge, id),
                Decision::Flood => self.flood(port, id, next),
                Decision::Drop(reason) => packets.discard(id, reason),
            }
        }
    }
}
