//! Headers in front of packets: prepended, stripped, and put back as they were.
//!
//! A packet that is changed for one of its outputs is restored afterwards
//! ([`ChangedPackets`](crate::ChangedPackets)).
//!
//! The bytes of a packet stay where they are in its slot. Prepending and stripping move the place
//! where the head begins, and the offsets of its offload with it. So the cost of a header depends
//! on its own length only, not on the packet's.

use std::fmt;

use super::{Packets, narrow16};
use crate::slot::{HEADROOM, SLOT_DATA};
use crate::{Checksum, Gso, Offload, Outer, PacketId, PortIndex};

/// Bytes that stay free in front of a head, for the destination's virtio-net header: a port writes
/// it there, to store both together.
pub const MIN_HEADROOM: usize = 12;

/// Fewest bytes that [`Packets::strip`] leaves in the head of a longer packet. They suffice for the
/// Ethernet, IP and TCP headers that later nodes read. A head has 256 bytes. So a node may strip 128
/// bytes before anything is pulled up, and the headers of most tunnels are shorter.
pub(super) const MIN_HEAD: usize = 128;

/// Bytes at the front of a packet that [`Packets::save_outside`] copies.
const SAVED: usize = 16;

const _: () = assert!(MIN_HEADROOM < HEADROOM && SAVED >= MIN_HEADROOM);

/// The reason why bytes cannot be put in front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrependError {
    /// Fewer than [`MIN_HEADROOM`] bytes would stay free in front of the head.
    NoHeadroom,
    /// An offset of the packet's offload would exceed 16 bits.
    Offset,
    /// The packet is not to be segmented, or it has outer headers already, or the offsets of the
    /// outer headers are not in order in front of the packet's own headers. Only
    /// [`Packets::prepend_outer`] returns this.
    Outer,
}

/// The reason why bytes cannot be removed from the front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripError {
    /// The packet has fewer bytes.
    TooShort,
    /// The slot has no space to pull up as many bytes.
    TooDeep,
    /// The packet is still to be segmented, and its network header, or the outer one of a tunnel,
    /// begins within these bytes. Each of its segments needs headers of its own, so the headers
    /// cannot be removed before segmentation.
    Segmentation,
    /// A checksum is still to be finished. It starts within these bytes, and its field lies behind
    /// them, at least in part. Without these bytes the checksum cannot be finished.
    Checksum,
}

impl fmt::Display for PrependError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PrependError::NoHeadroom => "too little headroom in front of the packet",
            PrependError::Offset => "an offset of the packet's offload exceeds 16 bits",
            PrependError::Outer => {
                "outer headers need a packet without such headers that is to be segmented, and offsets in order"
            }
        })
    }
}

impl fmt::Display for StripError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StripError::TooShort => "the packet has fewer bytes than are to be stripped",
            StripError::TooDeep => "the slot has no space for the bytes to be stripped",
            StripError::Segmentation => "segmentation of the packet needs headers that are to be stripped",
            StripError::Checksum => "an unfinished checksum covers bytes that are to be stripped",
        })
    }
}

impl std::error::Error for PrependError {}
impl std::error::Error for StripError {}

/// The outside of a packet, saved by [`Packets::save_outside`]: where the packet begins, its first
/// 16 bytes, and its offload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    start: u16,
    offload: Offload,
    first: [u8; SAVED],
}

impl Packets<'_> {
    /// Puts `bytes` in front of the packet. The offsets of its offload move with the bytes that
    /// they point to.
    ///
    /// At least [`MIN_HEADROOM`] bytes stay free in front of the head. On an error the packet is
    /// unchanged.
    ///
    /// - A checksum that is [`Checksum::Verified`] becomes [`Checksum::Complete`]. A receiver takes
    ///   "verified" for the outermost transport header, which may be a new one.
    /// - A packet that is still to be segmented repeats `bytes` unchanged in front of each segment.
    ///   That is right for headers without lengths and checksums, such as Ethernet. For others there
    ///   is [`Self::prepend_outer`].
    #[inline]
    pub fn prepend(&mut self, id: PacketId, bytes: &[u8]) -> Result<(), PrependError> {
        self.put_in_front(id, bytes, None)
    }

    /// Puts the last `len` of `bytes` in front of the packet, as [`Self::prepend`] does. All of
    /// `bytes` are copied if there is space in the headroom: a copy of constant length takes less
    /// time.
    ///
    /// # Panics
    /// If `len` is greater than `N`.
    #[inline(always)]
    pub fn prepend_last<const N: usize>(
        &mut self,
        id: PacketId,
        bytes: &[u8; N],
        len: usize,
    ) -> Result<(), PrependError> {
        let slot = &mut self.slots[id.index()];
        let start = slot.start();
        if slot.offload.gso.is_some() || start < N || start - len < MIN_HEADROOM {
            return self.prepend(id, &bytes[N - len..]);
        }
        slot.offload.checksum = slot.offload.checksum.behind(narrow16(len)).ok_or(PrependError::Offset)?;
        let change = slot.change();
        change.data[start - N..start].copy_from_slice(bytes);
        *change.start = narrow16(start - len);
        *change.head += narrow16(len);
        Ok(())
    }

    /// Puts the headers of a tunnel in front of a packet that is still to be segmented, as
    /// [`Self::prepend`] does. Each segment gets lengths and checksums of its own in them.
    ///
    /// The offsets of `outer` count from the first of `bytes`. The values of the fields that
    /// segmentation fills do not matter. On an error the packet is unchanged.
    pub fn prepend_outer(&mut self, id: PacketId, bytes: &[u8], outer: Outer) -> Result<(), PrependError> {
        self.put_in_front(id, bytes, Some(outer))
    }

    /// Puts `bytes` in front of the packet, with the outer headers that they have.
    #[inline]
    fn put_in_front(&mut self, id: PacketId, bytes: &[u8], outer: Option<Outer>) -> Result<(), PrependError> {
        let slot = &mut self.slots[id.index()];
        let start = slot.start();
        let new_start = start.checked_sub(bytes.len()).filter(|&new_start| new_start >= MIN_HEADROOM);
        let new_start = new_start.ok_or(PrependError::NoHeadroom)?;
        let n = narrow16(bytes.len());
        if slot.offload.gso.is_none() && outer.is_none() {
            // Most packets: nothing else changes.
            slot.offload.checksum = slot.offload.checksum.behind(n).ok_or(PrependError::Offset)?;
        } else {
            slot.offload = slot.offload.behind(n).ok_or(PrependError::Offset)?.with_outer(outer)?;
        }
        let change = slot.change();
        change.data[new_start..start].copy_from_slice(bytes);
        *change.start = narrow16(new_start);
        *change.head += n;
        Ok(())
    }

    /// Makes the segments of a TCP packet smaller: `size` bytes of payload at most, and at least 1.
    /// A tunnel makes them fit its underlay. Datagrams keep their size, because segmentation must
    /// not change where they end. So does a packet that is a single segment.
    #[inline]
    pub fn set_gso_size(&mut self, id: PacketId, size: u16) {
        if let Some(gso) = &mut self.slots[id.index()].offload.gso
            && gso.kind.is_tcp()
        {
            gso.size = gso.size.min(size).max(1);
        }
    }

    /// Removes the first `n` bytes of the packet. The offsets of its offload move with the bytes
    /// that they point to.
    ///
    /// Bytes are pulled up from the body where the head is shorter than `n`, or where less than 128
    /// bytes of it would be left. On an error the packet is unchanged.
    ///
    /// - A checksum whose start and field both lie within the removed bytes is gone with them: the
    ///   packet becomes [`Checksum::Complete`]. An example is the UDP header of a tunnel whose
    ///   sender left the checksum to be finished.
    /// - [`Checksum::Verified`] becomes [`Checksum::Complete`]: the verified checksum may belong to
    ///   a removed header, and the next header's checksum has not been verified.
    /// - A packet that must still be segmented by a removed header is refused. A packet whose
    ///   checksum starts within the removed bytes and ends behind them is refused, too.
    #[inline]
    pub fn strip(&mut self, id: PacketId, n: usize) -> Result<(), StripError> {
        let slot = &mut self.slots[id.index()];
        let left = if slot.body == 0 { 0 } else { MIN_HEAD };
        if n + left <= slot.head_len() && slot.offload.gso.is_none() {
            // Most packets: nothing is pulled up.
            let n = narrow16(n);
            slot.offload.checksum = slot.offload.checksum.without(n).ok_or(StripError::Checksum)?;
            let change = slot.change();
            *change.start += n;
            *change.head -= n;
            return Ok(());
        }
        self.strip_any(id, n)
    }

    /// Strips as [`Self::strip`] does, whatever the packet.
    #[inline(never)]
    fn strip_any(&mut self, id: PacketId, n: usize) -> Result<(), StripError> {
        let slot = &self.slots[id.index()];
        let len = slot.len() as usize;
        let head = slot.head_len();
        if n > len {
            return Err(StripError::TooShort);
        }
        let longest = self.max_head(id);
        if n > longest {
            return Err(StripError::TooDeep);
        }
        let offload = slot.offload.without(narrow16(n))?;
        let wanted = len.min(longest).min(n + MIN_HEAD);
        if head < wanted {
            self.pull_up(id, wanted);
        }
        let slot = &mut self.slots[id.index()];
        slot.offload = offload;
        let change = slot.change();
        *change.start += narrow16(n);
        *change.head -= narrow16(n);
        Ok(())
    }

    /// Returns the longest head that [`Self::pull_up`] can make, if the packet is long enough: at
    /// least 512 bytes, minus the stripped bytes.
    #[inline]
    pub fn max_head(&self, id: PacketId) -> usize {
        SLOT_DATA - self.slots[id.index()].start()
    }

    /// Saves the outside of a packet: where it begins, its first 16 bytes, and its offload.
    ///
    /// Until [`Self::restore_outside`], the caller may prepend to the packet, deliver it and pull
    /// bytes up. It may strip at most 16 of the bytes that the packet has now. Delivery writes the
    /// destination's virtio-net header in front of the packet, and so over stripped bytes. That is
    /// why the first 16 bytes are saved.
    #[inline(always)]
    pub fn save_outside(&self, id: PacketId) -> Outside {
        let slot = &self.slots[id.index()];
        let mut first = [0; SAVED];
        let at = first_bytes(slot.start());
        first.copy_from_slice(&slot.data()[at..at + SAVED]);
        Outside { start: narrow16(slot.start()), offload: slot.offload, first }
    }

    /// Restores the outside of the packet from which `outside` was saved. The bytes behind the
    /// first 16 stay as they are now.
    ///
    /// Bytes that were pulled up since stay in the head: they are no longer in the body.
    #[inline]
    pub fn restore_outside(&mut self, id: PacketId, outside: &Outside) {
        let slot = &mut self.slots[id.index()];
        // The end of the head moves only when bytes are pulled up.
        slot.offload = outside.offload;
        let change = slot.change();
        let end = *change.start + *change.head;
        debug_assert!(outside.start <= end, "the outside of another packet");
        *change.start = outside.start;
        *change.head = end - outside.start;
        let at = first_bytes(outside.start.into());
        change.data[at..at + SAVED].copy_from_slice(&outside.first);
    }

    /// Sets the port that the packet came from, for later nodes and for the drop counters. A
    /// tunnel, for instance, sets itself for the packets that leave it. The source queue stays the
    /// same.
    ///
    /// The packet leaves the bridge of its former port. So it is in no VLAN any more, and its
    /// connection, that of the outer packet, is forgotten. Its mark stays.
    #[inline]
    pub fn set_port(&mut self, id: PacketId, port: PortIndex) {
        let slot = &mut self.slots[id.index()];
        slot.port = port;
        slot.facts.vlan = None;
        slot.facts.connection = 0;
    }
}

/// Returns where the saved bytes begin, for a packet that begins at `start`. A packet in the last
/// bytes of its slot is shorter than the saved bytes; then bytes in front of it are saved, too.
#[inline]
fn first_bytes(start: usize) -> usize {
    start.min(SLOT_DATA - SAVED)
}

impl Checksum {
    /// Returns the state for the packet with `n` more bytes in front of it. `None` where an offset
    /// overflows.
    #[inline]
    fn behind(self, n: u16) -> Option<Checksum> {
        let Checksum::Partial { start, offset } = self else { return Some(Checksum::Complete) };
        let start = start.checked_add(n)?;
        // The field, too, must be within reach of 16 bits.
        start.checked_add(offset)?;
        Some(Checksum::Partial { start, offset })
    }

    /// Returns the state for the packet without its first `n` bytes. `None` if the checksum starts
    /// within these bytes and ends behind them.
    #[inline]
    fn without(self, n: u16) -> Option<Checksum> {
        match self {
            Checksum::Partial { start, offset } if start >= n => Some(Checksum::Partial { start: start - n, offset }),
            Checksum::Partial { start, offset } if u32::from(start) + u32::from(offset) + 2 > n.into() => None,
            Checksum::Partial { .. } | Checksum::Complete | Checksum::Verified => Some(Checksum::Complete),
        }
    }
}

impl Offload {
    /// Returns what is left to do for the packet with `n` more bytes in front of it. `None` where
    /// an offset overflows.
    #[inline]
    pub(super) fn behind(self, n: u16) -> Option<Offload> {
        let checksum = self.checksum.behind(n)?;
        let gso = match self.gso {
            Some(gso) => Some(Gso {
                l3: gso.l3.checked_add(n)?,
                l4: gso.l4.checked_add(n)?,
                header_len: gso.header_len.checked_add(n)?,
                outer: match gso.outer {
                    Some(outer) => Some(outer.behind(n)?),
                    None => None,
                },
                ..gso
            }),
            None => None,
        };
        Some(Offload { checksum, gso })
    }

    /// Returns what is left to do for the packet with these outer headers.
    #[inline]
    fn with_outer(self, outer: Option<Outer>) -> Result<Offload, PrependError> {
        match (self.gso, outer) {
            (_, None) => Ok(self),
            (Some(gso), Some(headers)) if gso.outer.is_none() && headers.precedes(&gso) => {
                Ok(Offload { gso: Some(Gso { outer, ..gso }), ..self })
            }
            _ => Err(PrependError::Outer),
        }
    }

    /// Returns what is left to do for the packet without its first `n` bytes.
    #[inline]
    pub(super) fn without(self, n: u16) -> Result<Offload, StripError> {
        let checksum = self.checksum.without(n).ok_or(StripError::Checksum)?;
        let gso = match self.gso {
            Some(gso) if gso.l3 < n => return Err(StripError::Segmentation),
            // The other headers are behind the network header.
            Some(gso) => Some(Gso {
                l3: gso.l3 - n,
                l4: gso.l4.saturating_sub(n),
                header_len: gso.header_len.saturating_sub(n),
                outer: match gso.outer {
                    Some(outer) => Some(outer.without(n).ok_or(StripError::Segmentation)?),
                    None => None,
                },
                ..gso
            }),
            None => None,
        };
        Ok(Offload { checksum, gso })
    }
}
