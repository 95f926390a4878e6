//! The port by which packets of the underlay's own enter the graph: requests for MAC addresses,
//! kept packets, ICMP errors. It also does what is due once a second.

use std::sync::Arc;

use straightline_graph::{Next, Node, Port};
use straightline_packet::{Batch, PacketId, Packets, PortIndex, Reason, Turn};
use straightline_wire::MacAddr;

use crate::Underlay;

/// The input for packets of the underlay's own. Each worker that serves the underlay has one.
#[derive(Debug)]
pub struct Agent {
    underlay: Arc<Underlay>,
    /// The underlay's port, which knows the MAC address of its interface.
    port: Arc<dyn Port>,
    name: String,
}

impl Agent {
    pub(crate) fn new(underlay: Arc<Underlay>, port: Arc<dyn Port>) -> Self {
        let name = format!("{}-agent", underlay.config().name);
        Agent { underlay, port, name }
    }

    /// Does the work of a second.
    #[cold]
    fn tick(&self, turn: &mut Turn<'_>) {
        if let Some(mac) = self.port.mac(turn) {
            self.underlay.set_mac(MacAddr(mac));
        }
        self.underlay.set_interface_mtu(self.port.mtu(turn));
        self.underlay.set_leaves_unfinished(self.port.leaves_unfinished(turn));
        let given_up = self.underlay.tick(turn.now());
        turn.packets().count_drops(self.underlay.port, Reason::NoNeighbour, u64::try_from(given_up).unwrap_or(0));
    }
}

impl Port for Agent {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let outbox = &self.underlay.outbox;
        let own = self.underlay.port;
        let before = into.len();
        if self.underlay.begins_second(turn.now()) {
            // Packets that wait leave their places to the questions of the second.
            outbox.drain(own, turn, into, max);
            self.tick(turn);
        }
        outbox.drain(own, turn, into, max - (into.len() - before));
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, for_buffers: bool) -> bool {
        !for_buffers && !self.underlay.outbox.is_empty()
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Leads the agent's packets on: edge 0 to the underlay, and one edge for each tunnel, to the
/// tunnel's patch or bridge.
#[derive(Debug)]
pub struct OwnPackets {
    underlay: PortIndex,
    tunnels: Vec<PortIndex>,
}

impl OwnPackets {
    /// Returns the node for the port of an underlay and for these tunnels, whose edges follow edge
    /// 0 in this order.
    #[must_use]
    pub fn new(underlay: PortIndex, tunnels: Vec<PortIndex>) -> Self {
        OwnPackets { underlay, tunnels }
    }

    fn edge(&self, packets: &Packets<'_>, id: PacketId) -> Option<usize> {
        let port = packets.port(id);
        if port == self.underlay {
            return Some(0);
        }
        self.tunnels.iter().position(|&tunnel| tunnel == port).map(|at| at + 1)
    }
}

impl Node for OwnPackets {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            match self.edge(packets, id) {
                Some(edge) => next.push(edge, id),
                // A reload has removed the tunnel. Its packet must not go anywhere else.
                None => packets.discard(id, Reason::NotConnected),
            }
        }
    }
}
