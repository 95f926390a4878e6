//! The learning bridge (IEEE 802.1Q, 8.6 to 8.8). It learns the port of each station by the source
//! addresses of frames, and floods frames whose destination it does not know.

mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use straightline_fdb::{Fdb, Station};
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason};
use straightline_wire::VlanId;
pub use table::{BridgeRules, BridgeTable};

/// First of the addresses 01:80:c2:00:00:00 to 0f, which are for the nearest bridge only (IEEE
/// 802.1Q, table 8-1).
const LINK_LOCAL: u64 = 0x0180_c200_0000;

/// The bit of an address for a group of stations.
const GROUP: u64 = 1 << 40;

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
#[derive(Clone, Copy)]
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

    /// Decides on a frame from `port`, by its addresses and the table, and learns its source. The
    /// addresses are numbers ([`MacAddr::as_u64`](straightline_wire::MacAddr::as_u64)).
    #[inline]
    fn decide(&self, to: u64, from: u64, port: PortIndex, now: u32) -> Decision {
        if from & GROUP != 0 || from == 0 {
            return Decision::Drop(Reason::BadSource);
        }
        self.fdb.learn(Station::of_number(VLAN, from), port, now);
        if to & GROUP != 0 {
            return if to & !0xf == LINK_LOCAL { Decision::Drop(Reason::LinkLocal) } else { Decision::Flood };
        }
        match self.fdb.lookup(Station::of_number(VLAN, to), now) {
            Some(known) if known == port => Decision::Drop(Reason::SamePort),
            Some(known) => match self.edges.get(known.index()) {
                Some(&edge) if edge != NONE => Decision::Edge(edge),
                _ => Decision::Flood,
            },
            None => Decision::Flood,
        }
    }

    /// Sends a packet to every port except its own: a guest never gets its own frame back.
    #[inline(never)]
    fn flood(&self, from: PortIndex, id: PacketId, next: &mut Next<'_>) {
        for (edge, &port) in self.ports.iter().enumerate() {
            if port != from {
                next.push(edge, id);
            }
        }
    }
}

/// Returns destination and source as numbers. Two loads take less time than one for each byte.
#[inline]
fn numbers(addresses: &[u8; 12]) -> [u64; 2] {
    let number_at = |at: usize| addresses[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    [number_at(0) >> 16, number_at(4) & ((1 << 48) - 1)]
}

impl Node for Bridge {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let now = packets.now();
        self.batches += 1;
        if self.batches >= self.workers {
            self.batches = 0;
            self.fdb.sweep(now);
        }
        // Senders send to one station many times in a row. All frames of a row have one decision.
        let mut before = (0, 0, PortIndex(0));
        let mut decision = Decision::Drop(Reason::BadSource);
        for &id in batch.ids() {
            let port = packets.port(id);
            let Some([to, from]) = packets.head(id).first_chunk::<12>().map(numbers) else {
                packets.discard(id, Reason::Runt);
                continue;
            };
            if (to, from, port) != before {
                decision = self.decide(to, from, port, now);
                before = (to, from, port);
            }
            match decision {
                Decision::Edge(edge) => next.push(edge, id),
                Decision::Flood => self.flood(port, id, next),
                Decision::Drop(reason) => packets.discard(id, reason),
            }
        }
    }
}
