//! A packet that an interface has received, in the memory of its port.

use az::SaturatingAs;
use straightline_packet::{PacketId, Turn};
use straightline_virtio::net_header::NetHeader;

use crate::endpoints::Received;

/// A packet of the present turn: its head is in a slot, and its body where the port received it.
pub(super) struct TurnPacket<'a, 't> {
    pub(super) turn: &'a Turn<'t>,
    pub(super) id: PacketId,
}

impl Received for TurnPacket<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.turn.len(self.id) as usize
    }

    fn header(&self) -> NetHeader {
        NetHeader::for_receiver(self.turn.offload(self.id), 1)
    }

    #[inline]
    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let head = self.turn.head(self.id);
        let part = head.get(offset..).unwrap_or_default();
        let mut done = part.len().min(bytes.len());
        bytes[..done].copy_from_slice(&part[..done]);
        let mut skip = offset.saturating_sub(head.len()).saturating_as::<u32>();
        for segment in self.turn.body(self.id) {
            if done == bytes.len() {
                break;
            }
            let rest = segment.split_at(skip).1;
            skip -= segment.len() - rest.len();
            done += rest.read(self.turn.level(), &mut bytes[done..]);
        }
        done
    }
}
