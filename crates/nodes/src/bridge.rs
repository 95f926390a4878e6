//! A learning bridge: stations are remembered by the port where they were heard; what is for nobody known goes to
//! everybody else (IEEE 802.1Q, 8.6 to 8.8).

use std::sync::Arc;

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason};
use straightline_wire::MacAddr;

use crate::Fdb;

/// 01:80:c2:00:00:00 to 0f: for the nearest bridge alone (IEEE 802.1Q, table 8-1).
const LINK_LOCAL: u64 = 0x0180_c200_0000;

/// One edge for each of its ports, in their order.
#[derive(Debug)]
pub struct Bridge {
    ports: Vec<PortIndex>,
    /// The edge of each port of the switch; `NONE` for those of others.
    edges: Vec<usize>,
    fdb: Arc<Fdb>,
    /// How many workers have the table, each with a bridge of its own.
    workers: u32,
    /// Frames since this one last looked for what has aged.
    batches: u32,
}

const NONE: usize = usize::MAX;

/// Where a frame goes.
enum Decision {
    Edge(usize),
    Flood,
    Drop(Reason),
}

impl Bridge {
    /// A bridge of `ports`, whose stations are kept in `fdb`.
    pub fn new(ports: Vec<PortIndex>, fdb: Arc<Fdb>) -> Self {
        let size = ports.iter().map(|p| p.index() + 1).max().unwrap_or(0);
        let mut edges = vec![NONE; size];
        for (edge, port) in ports.iter().enumerate() {
            edges[port.index()] = edge;
        }
        Bridge { ports, edges, fdb, workers: 1, batches: 0 }
    }

    /// The same where this many workers have the table: they look for what has aged by turns, for one at a time can.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        Bridge { workers, ..self }
    }

    /// Decides on a frame from `port`: by its first 12 bytes, and by who was heard where.
    fn decide(&self, head: &[u8], port: PortIndex, now: u32) -> Decision {
        let Some((addresses, _)) = head.split_first_chunk::<12>() else { return Decision::Drop(Reason::Runt) };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        let (to, from) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        if from.is_multicast() || from.as_u64() == 0 {
            return Decision::Drop(Reason::BadSource);
        }
        self.fdb.learn(from, port, now);
        if to.is_multicast() {
            let local = to.as_u64() & !0xf == LINK_LOCAL;
            return if local { Decision::Drop(Reason::LinkLocal) } else { Decision::Flood };
        }
        match self.fdb.lookup(to, now) {
            Some(known) if known == port => Decision::Drop(Reason::SamePort),
            Some(known) => match self.edges.get(known.index()) {
                Some(&edge) if edge != NONE => Decision::Edge(edge),
                _ => Decision::Flood,
            },
            None => Decision::Flood,
        }
    }

    /// To every port but the one that it came from: a guest never sees its own frame again.
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
