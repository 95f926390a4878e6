//! The outer checksum of a received packet: verified.
//!
//! A body lies in memory that another processor has written, so reading it is the costly part. Most
//! packets have a second checksum, the inner one of TCP or UDP, over all bytes from its header to
//! the packet's end. If it is right, these bytes sum to the complement of the inner pseudo header's
//! sum. So headers alone tell what the outer checksum must be, as for a packet on its way out (local
//! checksum offload):
//!
//! ```text
//! outer:    pseudo header | UDP or GRE, tunnel, Ethernet, IP | transport header, payload |
//! summed:   as it is        as it is                           ~ the inner pseudo header
//! ```
//!
//! If this sum is right, the outer checksum is right exactly if the inner one is. Whoever receives
//! the inner packet verifies that one: the guest, or the copy that coalesces packets. So a fault in
//! a body is found as for a packet without a tunnel, and no pass over the body precedes the copy. A
//! fault in a header, or in the outer checksum itself, is found here.
//!
//! If the sum is not right, or if there is no such inner checksum, all bytes are summed. So are those
//! of packets without a body.

use straightline_packet::{Checksum, PacketId, Packets, Reason};
use straightline_wire::checksum::add;
use straightline_wire::{EtherType, IpProtocol, ethernet, gre, ipv4, ipv6, udp};

use crate::Tunnel;
use crate::decap::found::Found;
use crate::decap::tunnel_header::OuterChecksum;
use crate::headers::inner::{fold_words, with_odd_field};
use crate::kind::Carries;

/// Verifies the outer checksum. The packet ends where its checked bytes do.
///
/// A peer on this machine, such as a guest, may have left a checksum unfinished:
/// - The outer one: the bytes come from the peer's memory, and nothing can have damaged them.
/// - The inner one: the outer one is complete, as if the inner one were finished. Finished, the
///   inner bytes from `start` on add up to the complement of their pseudo-header's sum, which the
///   inner field holds now. So the headers alone tell, unless the field is at an odd offset.
#[inline]
pub(crate) fn verify(packets: &Packets<'_>, id: PacketId, tunnel: &Tunnel, found: &Found) -> Result<(), Reason> {
    let field = match found.checksum {
        OuterChecksum::None => return Ok(()),
        OuterChecksum::Udp => udp::CHECKSUM,
        OuterChecksum::Gre => gre::CHECKSUM,
    };
    let head = packets.head(id);
    let is_udp = found.checksum == OuterChecksum::Udp;
    let pseudo_header = if is_udp { fold_words(found.addresses + (found.checked_end - found.l4) as u64) } else { 0 };
    let is_right = |sum: u16| add(sum, pseudo_header) == 0xffff;
    let sum = match packets.offload(id).checksum {
        Checksum::Partial { start, offset } if usize::from(start) == found.l4 && usize::from(offset) == field => {
            return Ok(());
        }
        // RFC 768: the sender made none. RFC 6936 names the conditions of doing so over IPv6.
        _ if is_udp && word_at(head, found.l4 + field) == Some(0) => {
            let is_allowed = found.is_v4 || tunnel.config.zero_checksum;
            return if is_allowed { Ok(()) } else { Err(Reason::TunnelChecksum) };
        }
        _ if !tunnel.config.verify => return Ok(()),
        // A switch at the other end of the pair has left GRE's checksum to its interface.
        _ if !is_udp && word_at(head, found.l4 + field) == Some(0) && tunnel.underlay.leaves_unfinished() => {
            return Ok(());
        }
        // The port has verified the outermost checksum.
        Checksum::Verified if is_udp => return Ok(()),
        Checksum::Partial { start, offset } if usize::from(start) >= found.payload => {
            let start = usize::from(start);
            let pseudo = word_at(head, start + usize::from(offset)).ok_or(Reason::TunnelChecksum)?;
            let inner = if offset.is_multiple_of(2) { !pseudo } else { with_odd_field(packets, id, start, pseudo) };
            let is_odd = (start - found.l4) % 2 == 1;
            add(packets.sum_head(id, found.l4..start), if is_odd { inner.swap_bytes() } else { inner })
        }
        _ if packets.body_len(id) == 0 => packets.sum_head(id, found.l4..head.len()),
        _ if sum_by_inner(packets, id, found).is_some_and(is_right) => return Ok(()),
        _ => packets.sum_from(id, found.l4),
    };
    if is_right(sum) { Ok(()) } else { Err(Reason::TunnelChecksum) }
}

/// Returns the sum of the bytes from the outer checksum's beginning to the packet's end, as it is if
/// the inner checksum is right. `None` if no inner checksum covers the last of these bytes.
#[inline]
fn sum_by_inner(packets: &Packets<'_>, id: PacketId, found: &Found) -> Option<u16> {
    let head = packets.head(id);
    let l3 = found.payload + if found.carries == Carries::Ethernet { ethernet::LEN } else { 0 };
    let packet = head.get(l3..)?;
    let is_v4 = packet.first()? >> 4 == 4;
    if found.carries == Carries::Ethernet {
        let ether_type = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        if word_at(head, l3 - 2)? != ether_type.0 {
            return None;
        }
    }
    let (protocol, l4, told_end, addresses) = if is_v4 {
        let header: &[u8; ipv4::MIN_LEN] = packet.first_chunk()?;
        let is_plain = header[0] == 0x45 && header[6] & 0x3f == 0 && header[7] == 0;
        let told_end = l3 + usize::from(word_at(header, 2)?);
        (if is_plain { header[9] } else { return None }, l3 + ipv4::MIN_LEN, told_end, l3 + 12)
    } else {
        let header: &[u8; ipv6::LEN] = packet.first_chunk()?;
        let l4 = l3 + ipv6::LEN;
        (if header[0] >> 4 == 6 { header[6] } else { return None }, l4, l4 + usize::from(word_at(header, 4)?), l3 + 8)
    };
    let len = told_end.checked_sub(l4)?;
    let has_checksum = match IpProtocol(protocol) {
        IpProtocol::TCP => true,
        IpProtocol::UDP => usize::from(word_at(head, l4 + 4)?) == len && word_at(head, l4 + udp::CHECKSUM)? != 0,
        _ => false,
    };
    if !has_checksum || told_end != found.checked_end || (l4 - found.l4) % 2 == 1 {
        return None;
    }
    // Both sums have the addresses, so they cancel out.
    let pseudo_header = add(protocol.into(), u16::try_from(len).ok()?);
    Some(add(packets.sum_head(id, found.l4..addresses), !pseudo_header))
}

#[inline]
fn word_at(head: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*head.get(at..)?.first_chunk()?))
}
