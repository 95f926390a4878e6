//! Where packets end that have nowhere to go.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets, Reason};

/// Drops everything, for one reason.
#[derive(Debug)]
pub struct Sink {
    reason: Reason,
}

impl Sink {
    /// A sink that says why.
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
