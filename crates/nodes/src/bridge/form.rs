//! The form of frames that leave a bridge by a trunk.

use straightline_graph::Form;
use straightline_packet::{PacketId, PacketVlan, Packets, PrependError, Reason};
use straightline_wire::{EtherType, VlanId, vlan};

/// The form of frames that leave by a trunk: with a tag for their VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagForm {
    tpid: EtherType,
    /// The VLAN whose frames get no tag.
    untagged: Option<VlanId>,
}

impl TagForm {
    /// Returns the form with tags of this kind, for frames of all VLANs but one.
    #[must_use]
    pub fn new(tpid: EtherType, untagged: Option<VlanId>) -> Self {
        TagForm { tpid, untagged }
    }

    /// Returns the tag that a frame in this VLAN gets.
    #[inline]
    pub(super) fn tag(self, vlan: PacketVlan) -> Option<[u8; vlan::LEN]> {
        if self.untagged == Some(vlan.id) {
            return None;
        }
        let [tpid_high, tpid_low] = self.tpid.0.to_be_bytes();
        let tci = u16::from(vlan.pcp) << 13 | u16::from(vlan.dei) << 12 | vlan.id.get();
        let [tci_high, tci_low] = tci.to_be_bytes();
        Some([tpid_high, tpid_low, tci_high, tci_low])
    }
}

/// Puts a tag on a frame.
#[inline]
pub(crate) fn push(packets: &mut Packets<'_>, id: PacketId, tag: [u8; vlan::LEN]) -> Result<(), Reason> {
    packets.push_tag(id, tag).map_err(|error| match error {
        PrependError::NoHeadroom => Reason::NoHeadroom,
        PrependError::Offset | PrependError::Outer => Reason::SegmentHeaders,
    })
}

impl Form for TagForm {
    #[inline]
    fn change(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Reason> {
        let Some(tag) = packets.vlan(id).and_then(|vlan| self.tag(vlan)) else { return Ok(()) };
        push(packets, id, tag)
    }

    #[inline]
    fn changes(&self, packets: &Packets<'_>, id: PacketId) -> bool {
        packets.vlan(id).is_some_and(|vlan| self.tag(vlan).is_some())
    }
}
