//! The questions that the graph asks its outputs.

use straightline_packet::{Batch, PacketId, Turn};

use super::Action;
use crate::Port;

impl Action {
    /// Returns the output's port, or `None` for a node.
    #[inline]
    pub(super) fn port(&self) -> Option<&dyn Port> {
        match self {
            Action::Node(_) => None,
            Action::Output { port, .. } | Action::CopyOutput { port } => Some(&**port),
        }
    }

    /// Returns the number of packets that the output delivers of a batch.
    #[inline]
    pub(super) fn deliveries(&self, batch: &Batch) -> usize {
        self.port().map_or(0, |port| port.deliveries(batch))
    }

    pub(super) fn for_each_delivery(&self, batch: &Batch, each: &mut dyn FnMut(PacketId)) {
        if let Some(port) = self.port() {
            port.for_each_delivery(batch, each);
        }
    }

    /// Returns the number of sends that a packet takes.
    pub(super) fn sends_of(&self, turn: &Turn<'_>, id: PacketId) -> u32 {
        let port = self.port().filter(|_| turn.is_gso(id));
        port.map_or(1, |port| port.sends(turn, id))
    }

    /// Returns the number of sends that all deliveries of a batch take.
    pub(super) fn sends(&self, turn: &Turn<'_>, batch: &Batch) -> u64 {
        if turn.gso_segments() == 0 {
            return self.deliveries(batch) as u64;
        }
        let mut sends = 0;
        self.for_each_delivery(batch, &mut |id| sends += u64::from(self.sends_of(turn, id)));
        sends
    }
}
