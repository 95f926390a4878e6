//! Bytes behind a packet: removed.

use super::{Packets, narrow, narrow16};
use crate::{Checksum, Offload, PacketId};

impl Packets<'_> {
    /// Shortens the packet to its first `len` bytes. The bytes behind them may be padding: an
    /// Ethernet frame has at least 60 bytes. A packet that is not longer stays as it is.
    ///
    /// Returns `false`, and leaves the packet as it is, if a header or the checksum field that its
    /// offload names lies behind `len`, at least in part.
    #[inline]
    pub fn truncate(&mut self, id: PacketId, len: u32) -> bool {
        len >= self.len(id) || self.shorten(id, len)
    }

    /// Shortens a packet that is longer.
    #[inline(never)]
    fn shorten(&mut self, id: PacketId, len: u32) -> bool {
        let slot = &mut self.slots[id.index()];
        if len < slot.offload.least_len() {
            return false;
        }
        let head = narrow(slot.head_len());
        if len <= head {
            *slot.change().head = narrow16(len as usize);
            slot.body = 0;
            slot.count = 0;
            return true;
        }
        slot.body = len - head;
        let first = slot.first as usize;
        let mut rest = slot.body;
        for (count, segment) in (1..=slot.count).zip(&mut self.segments[first..]) {
            if segment.len() >= rest {
                *segment = segment.split_at(rest).0;
                slot.count = count;
                break;
            }
            rest -= segment.len();
        }
        true
    }
}

impl Offload {
    /// Returns the length of the shortest packet that has all headers and fields that are named
    /// here.
    fn least_len(&self) -> u32 {
        let checksum = match self.checksum {
            Checksum::Partial { start, offset } => u32::from(start) + u32::from(offset) + 2,
            Checksum::Complete | Checksum::Verified => 0,
        };
        checksum.max(self.gso.map_or(0, |gso| gso.header_len.into()))
    }
}
