//! Packets that the receiver does not take whole.

use straightline_packet::{BodyPlace, Checksum, Offload, PacketId, Reason, Segmenter};
use straightline_virtio::net_header::{LEN, NetHeader};
use straightline_virtio::ring::Device;

use super::{Filling, HEADER, Refused, Sum, mark};

impl<R: Device> Filling<'_, '_, R> {
    /// Delivers a packet that the receiver does not take whole, segment by segment.
    #[inline(never)]
    pub(super) fn cut(&mut self, id: PacketId, mut plan: Segmenter, sum: &mut Sum) -> Result<(), Refused> {
        let finish = !self.link.receiver.takes_partial();
        // A ring whose every buffer is free and too few for this packet will never have more: waiting would be for ever.
        let patient = self.wait && !self.buffers.all_free();
        let (mut packets, mut bytes, mut body, mut taken) = (0, 0, 0, 0);
        let mut done = 0;
        let mut from = BodyPlace::default();
        while plan.next(self.turn.head(id), self.piece) {
            let len = self.piece.len();
            let (to, chains) = match self.reserve(len) {
                Ok(reserved) => reserved,
                Err(Refused::Dropped(Reason::NoBuffer)) if patient => {
                    self.buffers.untake(taken);
                    return Err(Refused::Dropped(Reason::NoBuffer));
                }
                Err(Refused::Dropped(reason)) => {
                    // There will not be room for the others either.
                    sum.drops[reason as usize] += plan.count() - done;
                    break;
                }
                Err(broken) => {
                    // Of a packet that is dropped no piece is delivered.
                    self.buffers.untake(taken);
                    return Err(broken);
                }
            };
            let checksum = if finish { Checksum::Complete } else { self.piece.checksum() };
            *self.piece.prefix_mut::<LEN>() =
                NetHeader::for_receiver(Offload { checksum, gso: None }, chains).to_bytes();
            body += u64::from(self.turn.store_piece::<LEN>(id, self.piece, &mut from, to.clone(), finish));
            if let Some(log) = &self.link.log {
                mark(&log.after_writes(), &self.link.memory, self.turn.staged_at(to), len + HEADER);
            }
            packets += 1;
            done += 1;
            bytes += u64::from(len);
            taken += chains;
        }
        sum.packets += packets;
        sum.bytes += bytes;
        sum.body += body;
        Ok(())
    }
}
