//! The patch: a cross-connect of two ports. Packets of each port go out at the other.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets, PortIndex};

/// A cross-connect of two ports. Edge 0 leads to the first port, edge 1 to the other.
#[derive(Debug)]
pub struct Patch {
    first: PortIndex,
}

impl Patch {
    /// Creates a patch whose first port is `first`.
    pub fn new(first: PortIndex) -> Self {
        Patch { first }
    }
}

impl Node for Patch {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        // Packets of one port are consecutive, because they were received together.
        for run in batch.ids().chunk_by(|&a, &b| packets.port(a) == packets.port(b)) {
            next.extend(usize::from(packets.port(run[0]) == self.first), run);
        }
    }
}
