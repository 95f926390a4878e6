//! Most packets: TCP and UDP from one station to another, without options of IP and in one piece. Their
//! facts lie at fixed places.

use straightline_conntrack::{Ends, Key, Segment, Side, Transport};
use straightline_packet::{Checksum, Offload, PacketId, Packets};
use straightline_wire::tcp::Flags;
use straightline_wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, tcp, udp};

/// Version and header length of an IPv4 header without options.
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;

/// The key and the facts of a packet of a connection.
pub(super) type Plain = (Key, Transport);

/// Returns the key and the facts of a packet at a port, if it is such a packet. `sender` is the side
/// that has sent it. [`Facts::of`](super::facts::Facts::of) says the same of it.
///
/// A SYN is none: its options are read.
#[inline]
pub(super) fn plain(packets: &Packets<'_>, id: PacketId, port: u16, sender: Side) -> Option<Plain> {
    const L3: usize = ethernet::LEN;
    let head = packets.head(id);
    let front = head.first_chunk::<{ L3 + ipv4::MIN_LEN + udp::LEN }>()?;
    // To one station.
    if front[0] & 1 != 0 {
        return None;
    }
    let vlan = packets.vlan(id).map_or(0, |vlan| vlan.id.get());
    let left = (packets.len(id) as usize).checked_sub(L3)?;
    let Offload { checksum, gso } = packets.offload(id);
    let partial = match checksum {
        Checksum::Partial { start, offset } => Some(usize::from(start) + usize::from(offset)),
        Checksum::Complete | Checksum::Verified => None,
    };
    let is_at = |l4: usize| gso.is_none_or(|gso| usize::from(gso.l4) == l4 && gso.outer.is_none());
    match EtherType(half(front, 12)) {
        EtherType::IPV4 if front[L3] == IPV4_WITHOUT_OPTIONS => {
            const L4: usize = L3 + ipv4::MIN_LEN;
            let total = usize::from(half(front, L3 + 2));
            let is_fragment = half(front, L3 + 6) & 0x3fff != 0;
            let src = four(front, L3 + 12);
            let dst = four(front, L3 + 16);
            // Classes D and E, and the broadcast address; no source at all.
            if is_fragment || !is_at(L4) || total > left || dst[0] >= 224 || src == [0; 4] {
                return None;
            }
            let protocol = IpProtocol(front[L3 + 9]);
            let transport = transport(head, L4, (L3 + total).checked_sub(L4)?, protocol, partial)?;
            let ports = [half(front, L4), half(front, L4 + 2)];
            Some((Key::v4(port, vlan, protocol, ends(sender, src, dst, ports)), transport))
        }
        EtherType::IPV6 => {
            const L4: usize = L3 + ipv6::LEN;
            let front = head.first_chunk::<{ L4 + udp::LEN }>()?;
            let payload = usize::from(half(front, L3 + 4));
            let src = sixteen(front, L3 + 8);
            let dst = sixteen(front, L3 + 24);
            if front[L3] >> 4 != 6 || !is_at(L4) || ipv6::LEN + payload > left || dst[0] == 0xff || src == [0; 16] {
                return None;
            }
            let protocol = IpProtocol(front[L3 + 6]);
            let transport = transport(head, L4, payload, protocol, partial)?;
            let ports = [half(front, L4), half(front, L4 + 2)];
            Some((Key::v6(port, vlan, protocol, ends(sender, src, dst, ports)), transport))
        }
        _ => None,
    }
}

/// Returns the facts of a transport header with `len` bytes from its begin to the end of the packet.
/// `partial` is the field of a checksum that is left to others: that of this header.
#[inline]
fn transport(head: &[u8], l4: usize, len: usize, protocol: IpProtocol, partial: Option<usize>) -> Option<Transport> {
    match protocol {
        IpProtocol::TCP => {
            let header = head.get(l4..)?.first_chunk::<{ tcp::MIN_LEN }>()?;
            let flags = header[13];
            let header_len = usize::from(header[12] >> 4) * 4;
            let is_good = header_len >= tcp::MIN_LEN && head.len() >= l4 + header_len;
            if !is_good || flags & Flags::SYN.0 != 0 || partial.is_some_and(|field| field != l4 + tcp::CHECKSUM) {
                return None;
            }
            let len = u32::try_from(len.checked_sub(header_len)?).ok()?;
            let seq = u32::from_be_bytes(four(header, 4));
            let ack = u32::from_be_bytes(four(header, 8));
            Some(Transport::Tcp(Segment { flags, seq, ack, window: half(header, 14), len, scale: None }))
        }
        IpProtocol::UDP if len >= udp::LEN && partial.is_none_or(|field| field == l4 + udp::CHECKSUM) => {
            Some(Transport::Other)
        }
        _ => None,
    }
}

#[inline]
fn ends<A>(sender: Side, src: A, dst: A, [src_port, dst_port]: [u16; 2]) -> Ends<A> {
    match sender {
        Side::Local => Ends { local: src, remote: dst, local_port: src_port, remote_port: dst_port },
        Side::Remote => Ends { local: dst, remote: src, local_port: dst_port, remote_port: src_port },
    }
}

#[inline]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn four<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

#[inline]
fn sixteen<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 16] {
    std::array::from_fn(|nth| bytes[at + nth])
}
