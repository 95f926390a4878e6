//! A mirror: every packet continues, and a copy of it goes to a port that watches.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};

/// Sends each packet along edge 0, where it continues, and along a second edge, to the output of
/// the mirror port.
///
/// Both edges carry the same packet: nothing is copied here. The output of the mirror port copies
/// bytes into its guest's buffers as for any delivery, and leaves the packet as it is. It segments
/// the packet, or completes its checksum, only for its own guest.
///
/// The builder of the graph, not the mirror, decides when the mirror port's output runs:
///
/// * Right after the mirror, the guest of the mirror port sees the packet as it was here.
/// * After outputs that wait (`full = "wait"`), the guest sees each packet once, even if the packet
///   passed here several times. The packet's head then has the changes that later nodes made.
#[derive(Clone, Debug)]
pub struct Mirror {
    copy: usize,
}

impl Mirror {
    /// Creates a mirror whose edge `copy` leads to the mirror port.
    pub fn new(copy: usize) -> Self {
        Mirror { copy }
    }
}

impl Node for Mirror {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        next.extend(0, batch.ids());
        next.extend(self.copy, batch.ids());
    }

    fn changes_packets(&self) -> bool {
        false
    }
}
