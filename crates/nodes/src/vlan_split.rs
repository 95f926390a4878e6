//! The split of a trunk: one VLAN of it goes another way than the others.

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};
use straightline_wire::{EtherType, VlanId, vlan};

/// Leads the frames of one VLAN along edge 1, and all others along edge 0. The frames keep their tags.
///
/// It stands in front of a bridge whose port an underlay shares. So the bridge sees no frame of the
/// underlay's VLAN.
#[derive(Clone, Copy, Debug)]
pub struct VlanSplit(VlanId);

impl VlanSplit {
    /// Returns the node that leads this VLAN along edge 1.
    #[must_use]
    pub fn new(vlan: VlanId) -> Self {
        VlanSplit(vlan)
    }

    #[inline]
    fn is_apart(self, head: &[u8]) -> bool {
        let tag = head.get(vlan::OFFSET..).and_then(|rest| vlan::Tag::parse(rest).ok());
        tag.is_some_and(|tag| tag.tpid == EtherType::VLAN && tag.vid == self.0.get())
    }
}

impl Node for VlanSplit {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            next.push(usize::from(self.is_apart(packets.head(id))), id);
        }
    }

    fn changes_packets(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_with_a_whole_tag_of_the_vlan_are_apart() {
        let split = VlanSplit::new(VlanId::new(30).unwrap());
        let is_apart = |rest: &[u8]| split.is_apart(&[&[2; 12][..], rest].concat());
        for rest in [&[0x81, 0, 0, 30, 8, 0][..], &[0x81, 0, 0xf0, 30, 8, 0], &[0x81, 0, 0, 30, 0x81, 0, 0, 10, 8, 0]] {
            assert!(is_apart(rest), "{rest:02x?}");
        }
        for rest in [
            &[][..],
            &[0x81, 0, 0],
            &[0x81, 0, 0, 0, 8, 0],
            &[0x81, 0, 0, 10, 0x81, 0, 0, 30, 8, 0],
            &[0x81, 0, 1, 30, 8, 0],
            &[0x88, 0xa8, 0, 30, 8, 0],
            &[8, 0, 0, 30],
        ] {
            assert!(!is_apart(rest), "{rest:02x?}");
        }
    }
}
