//! `5tswap`: swaps the addresses of Ethernet and of IP, and the ports of TCP and UDP. No checksum
//! changes, because a sum does not depend on the order of its words (RFC 1071, 2).

use straightline_guest::endpoints::{Packet, Received};
use straightline_wire::{IpVersion, geometry, ipv4, ipv6};

use super::engine::Mode;

/// Number of bytes that hold Ethernet, two tags, IPv6 with some extension headers, and TCP.
const HEADERS: usize = 128;

pub(super) struct FiveTupleSwap;

impl Mode for FiveTupleSwap {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>, _to: usize) -> bool {
        let mut bytes = [0; HEADERS];
        let len = packet.read(0, &mut bytes);
        let head = &mut bytes[..len];
        let end = swap(head);
        packet.write(0, &head[..end]);
        true
    }
}

/// Swaps the fields that a frame's headers have. Returns the end of the last changed field.
fn swap(head: &mut [u8]) -> usize {
    let Some(addresses) = head.first_chunk_mut::<12>() else { return 0 };
    addresses.rotate_left(6);
    let Ok(layers) = geometry::locate(head) else { return 12 };
    let l3 = usize::from(layers.l3);
    let l4 = usize::from(layers.l4);
    let addresses = match layers.version {
        IpVersion::V4 => l3 + ipv4::MIN_LEN - 8..l3 + ipv4::MIN_LEN,
        IpVersion::V6 => l3 + ipv6::LEN - 32..l3 + ipv6::LEN,
    };
    let end = addresses.end;
    let half = addresses.len() / 2;
    head[addresses].rotate_left(half);
    // Swaps the ports of TCP and UDP. Only a packet's first fragment has ports, and `locate` does
    // not tell it from other fragments.
    if layers.l4_len == 0 {
        return end;
    }
    head[l4..l4 + 4].rotate_left(2);
    l4 + 4
}
