//! The ingress filter of a bridge with VLANs, as a node of its own, for nodes between it and the bridge.

use std::sync::Arc;

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};

use crate::bridge::{BridgeTable, Rules, pop};

/// Finds the VLAN of each frame that has come in, notes it beside the frame, and removes the frame's
/// tag (IEEE 802.1Q, 6.9 and 8.6.2). Frames that their port does not take are dropped.
///
/// A bridge does this itself. With this node, flow tables in front of the bridge see the VLAN, too:
/// [`Bridge::behind_vlan_in`](crate::Bridge::behind_vlan_in).
#[derive(Clone, Debug)]
pub struct VlanIn {
    rules: Arc<Rules>,
}

impl VlanIn {
    /// Returns the node for a bridge; `None` if the bridge has no VLANs.
    #[must_use]
    pub fn new(bridge: &BridgeTable) -> Option<Self> {
        bridge.rules().filter(|rules| rules.have_vlans()).map(|rules| VlanIn { rules })
    }
}

impl Node for VlanIn {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            let network = packets.vlan(id);
            let entered = self.rules.enter(packets.port(id), packets.head(id), network);
            let entered = entered.and_then(|(vlan, pops)| {
                packets.set_vlan(id, vlan);
                pop(packets, id, pops)
            });
            match entered {
                Ok(()) => next.push(0, id),
                Err(reason) => packets.discard(id, reason),
            }
        }
    }
}
