//! Where packets end that have nowhere to go.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Reason, Turn};

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
    fn process(&mut self, turn: &mut Turn<'_>, batch: &Batch, _next: &mut Next<'_>) {
        for &id in batch.ids() {
            turn.discard(id, self.reason);
        }
    }
}
