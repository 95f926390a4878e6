//! The sink: the end of packets without a destination.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets, Reason};

/// A node that drops all packets for one reason.
#[derive(Debug)]
pub struct Sink {
    reason: Reason,
}

impl Sink {
    /// Creates a sink that drops packets for `reason`.
    pub fn new(reason: Reason) -> Self {
        Sink { reason }
    }
}

impl Node for Sink {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, _next: &mut Next<'_>) {
        for &id in batch.ids() {
            packets.discard(id, self.reason);
        }
    }
}
