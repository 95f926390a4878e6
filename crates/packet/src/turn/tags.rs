//! VLAN tags of packets, pushed and popped in front of the type (IEEE 802.1Q, 9.3).
//!
//! The addresses move by four bytes, and the offsets of the offload with them. No other byte moves.

use straightline_wire::vlan;

use super::headers::{MIN_HEAD, MIN_HEADROOM};
use super::{Packets, PrependError, StripError, narrow16};
use crate::{Checksum, Offload, PacketId};

/// Bytes of both addresses. The outermost tag is behind them.
const ADDRESSES: usize = vlan::OFFSET;

/// Offset of the type behind one tag. No checksum or header of the network layer begins before it.
const BEHIND_TAG: usize = ADDRESSES + vlan::LEN;

/// Bytes of the type, which no checksum covers.
const TYPE: usize = 2;

impl Packets<'_> {
    /// Puts a VLAN tag behind the addresses of a packet: its TPID and its control information, as on
    /// the wire. The offsets of the offload move with the bytes that they point to. A verified
    /// checksum stays verified, because a tag belongs to no checksum.
    ///
    /// # Errors
    /// The packet is unchanged. [`PrependError::NoHeadroom`] if fewer than [`MIN_HEADROOM`] bytes would
    /// stay free in front, or if the head is shorter than both addresses. [`PrependError::Offset`] if an
    /// offset would exceed 16 bits.
    #[inline]
    pub fn push_tag(&mut self, id: PacketId, tag: [u8; vlan::LEN]) -> Result<(), PrependError> {
        let slot = &mut self.slots[id.index()];
        let start = slot.start();
        if start < MIN_HEADROOM + vlan::LEN || slot.head_len() < ADDRESSES {
            return Err(PrependError::NoHeadroom);
        }
        if !is_complete(slot.offload) {
            slot.offload = with_tag(slot.offload).ok_or(PrependError::Offset)?;
        }
        let change = slot.change();
        let to = start - vlan::LEN;
        let mut front = [0; BEHIND_TAG];
        front[..ADDRESSES].copy_from_slice(&change.data[start..start + ADDRESSES]);
        front[ADDRESSES..].copy_from_slice(&tag);
        change.data[to..to + BEHIND_TAG].copy_from_slice(&front);
        *change.start = narrow16(to);
        *change.head += narrow16(vlan::LEN);
        Ok(())
    }

    /// Removes the four bytes behind the addresses of a packet: its outermost VLAN tag. The offsets of
    /// the offload move as in [`Self::push_tag`].
    ///
    /// # Errors
    /// The packet is unchanged. [`StripError::TooShort`] if it ends within the tag or right behind it.
    /// [`StripError::Checksum`] or [`StripError::Segmentation`] if the checksum or a header of the
    /// offload begins in front of the type: no driver means that.
    #[inline]
    pub fn pop_tag(&mut self, id: PacketId) -> Result<(), StripError> {
        let slot = &self.slots[id.index()];
        if slot.head_len() < MIN_HEAD + vlan::LEN && slot.body > 0 {
            let longest = self.max_head(id).min(slot.len() as usize);
            self.pull_up(id, longest.min(MIN_HEAD + vlan::LEN));
        }
        let slot = &mut self.slots[id.index()];
        if slot.head_len() < BEHIND_TAG + TYPE {
            return Err(StripError::TooShort);
        }
        if !is_complete(slot.offload) {
            slot.offload = without_tag(slot.offload)?;
        }
        let change = slot.change();
        let start = usize::from(*change.start);
        let mut addresses = [0; ADDRESSES];
        addresses.copy_from_slice(&change.data[start..start + ADDRESSES]);
        change.data[start + vlan::LEN..start + BEHIND_TAG].copy_from_slice(&addresses);
        *change.start += narrow16(vlan::LEN);
        *change.head -= narrow16(vlan::LEN);
        Ok(())
    }
}

/// Returns whether there is nothing to move: no offset in the offload.
#[inline]
fn is_complete(offload: Offload) -> bool {
    offload.gso.is_none() && !matches!(offload.checksum, Checksum::Partial { .. })
}

fn with_tag(offload: Offload) -> Option<Offload> {
    let moved = offload.behind(narrow16(vlan::LEN))?;
    Some(Offload { checksum: kept(offload, moved), ..moved })
}

fn without_tag(offload: Offload) -> Result<Offload, StripError> {
    let least = narrow16(BEHIND_TAG + TYPE);
    if matches!(offload.checksum, Checksum::Partial { start, .. } if start < least) {
        return Err(StripError::Checksum);
    }
    if offload.gso.is_some_and(|gso| gso.l3.min(gso.outer.map_or(gso.l3, |outer| outer.l3)) < least) {
        return Err(StripError::Segmentation);
    }
    let moved = offload.without(narrow16(vlan::LEN))?;
    Ok(Offload { checksum: kept(offload, moved), ..moved })
}

/// Returns the checksum's state after the change: a verified one stays so.
fn kept(before: Offload, after: Offload) -> Checksum {
    if before.checksum == Checksum::Verified { Checksum::Verified } else { after.checksum }
}
