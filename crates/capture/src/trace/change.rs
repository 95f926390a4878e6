//! The differences between a packet before a step and after it.

use straightline_wire::{EtherType, vlan};

use super::PacketHead;

/// A change of a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A VLAN tag was added in front of all others.
    TagPushed(u16),
    /// The first VLAN tag was removed.
    TagPopped(u16),
    /// So many bytes of headers were added, as by a tunnel.
    HeadersAdded(u32),
    /// So many bytes of headers were removed.
    HeadersRemoved(u32),
    /// The MAC addresses changed, and nothing else.
    AddressesChanged,
    /// Other bytes of the headers changed.
    HeadersChanged,
}

/// Returns what has changed between two heads of a packet.
#[must_use]
pub fn change(before: &PacketHead, after: &PacketHead) -> Option<Change> {
    if before == after {
        return None;
    }
    Some(match after.len.cast_signed().wrapping_sub(before.len.cast_signed()) {
        0 => {
            let behind = |head: &PacketHead| head.bytes().get(vlan::OFFSET..).map(<[u8]>::to_vec);
            let is_behind_same = behind(before) == behind(after);
            if is_behind_same { Change::AddressesChanged } else { Change::HeadersChanged }
        }
        4 => tag_between(before, after).map_or(Change::HeadersAdded(4), Change::TagPushed),
        -4 => tag_between(after, before).map_or(Change::HeadersRemoved(4), Change::TagPopped),
        added @ 1.. => Change::HeadersAdded(added.unsigned_abs()),
        removed => Change::HeadersRemoved(removed.unsigned_abs()),
    })
}

/// Returns the VLAN of the tag that `tagged` has beyond `other`, if that is the only difference.
fn tag_between(other: &PacketHead, tagged: &PacketHead) -> Option<u16> {
    let (addresses, rest) = tagged.bytes().split_at_checked(vlan::OFFSET)?;
    let (other_addresses, other_rest) = other.bytes().split_at_checked(vlan::OFFSET)?;
    let (tag, rest) = rest.split_at_checked(vlan::LEN)?;
    let tag = vlan::Tag::parse(tag).ok()?;
    let is_tag = tag.tpid.is_vlan() || tag.tpid == EtherType::SERVICE_VLAN;
    let count = rest.len().min(other_rest.len());
    (is_tag && addresses == other_addresses && rest[..count] == other_rest[..count]).then_some(tag.vid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8], len: usize) -> PacketHead {
        PacketHead::new(bytes, u32::try_from(len).unwrap())
    }

    #[test]
    fn changes_are_named() {
        let plain: Vec<u8> = (0..200).collect();
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0, 0x20, 7]);
        let short = head(&plain, 200);
        let long = head(&tagged, 204);
        assert_eq!(change(&short, &short), None);
        assert_eq!(change(&short, &long), Some(Change::TagPushed(7)));
        assert_eq!(change(&long, &short), Some(Change::TagPopped(7)));
        let mut other = tagged.clone();
        other[100] = 0;
        assert_eq!(change(&short, &head(&other, 204)), Some(Change::HeadersAdded(4)));
        assert_eq!(change(&head(&other, 204), &short), Some(Change::HeadersRemoved(4)));
        let mut outside = vec![9; 50];
        outside.extend(&plain);
        assert_eq!(change(&short, &head(&outside, 250)), Some(Change::HeadersAdded(50)));
        assert_eq!(change(&head(&outside, 250), &short), Some(Change::HeadersRemoved(50)));
        let mut turned = plain.clone();
        turned[3] = 99;
        assert_eq!(change(&short, &head(&turned, 200)), Some(Change::AddressesChanged));
        turned[30] = 99;
        assert_eq!(change(&short, &head(&turned, 200)), Some(Change::HeadersChanged));
        // Packets that are shorter than an Ethernet header.
        assert_eq!(change(&head(&[1; 3], 3), &head(&[1; 7], 7)), Some(Change::HeadersAdded(4)));
    }
}
