//! The inside of a tunnel that carries IP.
//!
//! Such a tunnel carries neither ARP nor neighbour discovery. It answers questions itself, with the
//! address of its Ethernet face: all far addresses are behind it. So such a tunnel belongs into a
//! patch. In a bridge it would also answer for the addresses of the bridge's other stations.

use straightline_wire::{EtherType, ethernet};

/// Returns whether the packet is IPv4 or IPv6, without a tag.
#[inline]
pub(crate) fn is_ip(head: &[u8]) -> bool {
    let ether_type = ethernet::Header::new_checked(head).ok().map(|header| header.ether_type());
    let version = head.get(ethernet::LEN).map(|first| first >> 4);
    matches!((ether_type, version), (Some(EtherType::IPV4), Some(4)) | (Some(EtherType::IPV6), Some(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ip_without_a_tag_is_ip() {
        let packet = |ether_type: [u8; 2], first: u8| [&[0; 12][..], &ether_type, &[first]].concat();
        assert!(is_ip(&packet([8, 0], 0x45)));
        assert!(is_ip(&packet([0x86, 0xdd], 0x60)));
        for (ether_type, first) in [([8, 0], 0x60), ([0x86, 0xdd], 0x45), ([0x81, 0], 0x45), ([8, 6], 0x45)] {
            assert!(!is_ip(&packet(ether_type, first)));
        }
        for len in 0..15 {
            assert!(!is_ip(&packet([8, 0], 0x45)[..len]));
        }
    }
}
