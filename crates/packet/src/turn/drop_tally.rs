//! Drops of a batch that may have to be done again.

use az::SaturatingAs;

use super::Packets;
use crate::{PacketId, PortIndex, Reason};

/// Packets that a port has dropped from a batch, and has not counted yet, because the batch may have
/// to be done again. [`Packets::forget_notes`] then takes their notes back.
#[derive(Debug)]
pub struct DropTally([u32; Reason::ALL.len()]);

impl Default for DropTally {
    fn default() -> Self {
        DropTally([0; Reason::ALL.len()])
    }
}

impl DropTally {
    /// Drops packets, as [`Packets::drop_at`] does.
    pub fn drop_at(&mut self, packets: &mut Packets<'_>, port: PortIndex, ids: &[PacketId], reason: Reason) {
        self.0[reason as usize] += ids.len().saturating_as::<u32>();
        packets.note_dropped(port, ids, reason);
    }

    /// Drops the last `segments` segments of a packet.
    pub fn drop_segments_at(
        &mut self,
        packets: &mut Packets<'_>,
        port: PortIndex,
        id: PacketId,
        reason: Reason,
        segments: u32,
    ) {
        self.0[reason as usize] += segments;
        packets.note_dropped(port, &[id], reason);
    }

    /// Counts the packets for the port.
    pub fn count(&self, packets: &Packets<'_>, port: PortIndex) {
        for (&reason, &n) in Reason::ALL.iter().zip(&self.0) {
            if n > 0 {
                packets.count_drops(port, reason, n.into());
            }
        }
    }
}
