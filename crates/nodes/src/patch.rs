//! A cross-connect of two ports: what comes in at one goes out at the other.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets, PortIndex};

/// Its first edge leads to the first port, its second to the other.
#[derive(Debug)]
pub struct Patch {
    first: PortIndex,
}

impl Patch {
    /// A patch whose first port is `first`.
    pub fn new(first: PortIndex) -> Self {
        Patch { first }
    }
}

impl Node for Patch {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        // Packets of one port stand together: they were taken together.
        for run in batch.ids().chunk_by(|&a, &b| packets.port(a) == packets.port(b)) {
            next.extend(usize::from(packets.port(run[0]) == self.first), run);
        }
    }
}
