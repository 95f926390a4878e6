//! A node that drops packets beyond a rate: the rate of a tunnel, which is no input or output itself.

use straightline_packet::{Batch, Packets, PortIndex, Reason};

use crate::clock::{cycles, nanoseconds};
use crate::{Meter, Next, Node};

/// A node that drops packets beyond a rate, and sends the others along its edge 0.
#[derive(Debug)]
pub struct Police {
    meter: Meter,
    /// The port that the packets come from or go to; it counts the drops.
    port: PortIndex,
}

impl Police {
    /// Returns the node for packets from or to `port`.
    #[must_use]
    pub fn new(meter: Meter, port: PortIndex) -> Self {
        Police { meter, port }
    }
}

impl Node for Police {
    fn changes_packets(&self) -> bool {
        false
    }

    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        let mut passing = batch.clone();
        let beyond = self.meter.police(packets, &mut passing, nanoseconds(cycles()));
        self.meter.settle_all();
        self.meter.count_dropped(beyond.len());
        packets.drop_at(self.port, beyond.ids(), Reason::Rate);
        next.extend(0, passing.ids());
    }
}
