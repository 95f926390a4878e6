//! The facts of an inner packet on which its outer headers depend.

use straightline_packet::{PacketId, Packets};
use straightline_wire::ecn::{Ecn, encapsulate};
use straightline_wire::{EtherType, IpProtocol, checksum, flow_hash, udp, vlan};

/// The facts of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    /// The type of the packet, behind its tags.
    pub(crate) network: EtherType,
    /// The congestion mark of the outer header (RFC 6040). A packet that is not IP has none.
    pub(crate) ecn: Ecn,
    /// The hash of the packet's flow; 0 if it was not wanted.
    pub(crate) hash: u32,
}

/// Odd multipliers with set bits spread over their whole length (from the digits of pi).
const FACTORS: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89];

impl Inner {
    /// Reads the facts from the head of an Ethernet frame.
    ///
    /// TCP and UDP without tags, IP options and extension headers have a hash of their own, which
    /// takes a third of the time. All packets of such a flow have it.
    #[inline(always)]
    pub(crate) fn of(head: &[u8], wants_hash: bool) -> Self {
        // Ethernet, IPv4, ports.
        if let Some(front) = head.first_chunk::<38>()
            && front[12..15] == [8, 0, 0x45]
        {
            let is_whole = u16::from_be_bytes([front[20], front[21]]) & 0x3fff == 0;
            let hash = match wants_hash {
                false => 0,
                true if is_whole && has_ports(front[23]) => {
                    let both = wide_mix(word(front, 26) ^ FACTORS[0], u64::from(ports(front, 34)) ^ FACTORS[1]);
                    mix(both, FACTORS[2])
                }
                true => flow_hash(head),
            };
            return Inner { network: EtherType::IPV4, ecn: encapsulate(Ecn::of(front[15])), hash };
        }
        // Ethernet, IPv6, ports.
        if let Some(front) = head.first_chunk::<58>()
            && front[12..14] == [0x86, 0xdd]
            && front[14] >> 4 == 6
        {
            let hash = match wants_hash {
                false => 0,
                true if has_ports(front[20]) => {
                    let src = wide_mix(word(front, 22) ^ FACTORS[0], word(front, 30) ^ FACTORS[1]);
                    let dst = wide_mix(word(front, 38) ^ FACTORS[2], word(front, 46) ^ FACTORS[3]);
                    let both = wide_mix(src ^ u64::from(ports(front, 54)), dst ^ FACTORS[1]);
                    mix(both, FACTORS[2])
                }
                true => flow_hash(head),
            };
            return Inner { network: EtherType::IPV6, ecn: encapsulate(Ecn::of(front[15] >> 4)), hash };
        }
        Self::of_other(head, wants_hash)
    }

    #[cold]
    fn of_other(head: &[u8], wants_hash: bool) -> Self {
        let hash = if wants_hash { flow_hash(head) } else { 0 };
        let Ok(tags) = vlan::skip(head) else { return Inner { network: EtherType(0), ecn: Ecn::NotEct, hash } };
        let ecn = match head.get(tags.payload..tags.payload + 2) {
            Some(&[first, second]) => ecn_of(tags.ether_type, first, second),
            _ => Ecn::NotEct,
        };
        Inner { network: tags.ether_type, ecn, hash }
    }
}

#[inline]
fn has_ports(protocol: u8) -> bool {
    matches!(IpProtocol(protocol), IpProtocol::TCP | IpProtocol::UDP)
}

/// Returns the 8 bytes at an offset.
#[inline]
fn word<const N: usize>(front: &[u8; N], at: usize) -> u64 {
    front[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns both ports.
#[inline]
fn ports<const N: usize>(front: &[u8; N], at: usize) -> u32 {
    front[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Multiplies and XORs the halves of the product: each bit of the words affects many of the result.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
#[inline]
fn wide_mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Returns the upper half of [`wide_mix`].
#[inline]
fn mix(a: u64, b: u64) -> u32 {
    (wide_mix(a, b) >> 32) as u32
}

/// Returns the congestion mark of a packet with these first two bytes.
fn ecn_of(network: EtherType, first: u8, second: u8) -> Ecn {
    match network {
        EtherType::IPV4 if first >> 4 == 4 => encapsulate(Ecn::of(second)),
        EtherType::IPV6 if first >> 4 == 6 => encapsulate(Ecn::of(second >> 4)),
        _ => Ecn::NotEct,
    }
}

/// Returns the sum of a packet as it will be once its partial checksum is finished. The bytes from
/// `start` on are not read: with the finished checksum they sum to the complement of the pseudo
/// header's sum, which the field holds until then (local checksum offload).
///
/// The sum is that of words in the machine's byte order, and not folded.
#[inline(always)]
pub(crate) fn finished_sum(packets: &Packets<'_>, id: PacketId, start: u16, offset: u16) -> u64 {
    let head = packets.head(id);
    // Headers without tags, options and extensions. A sum of constant length takes half the time.
    let front = match start {
        20 => head.first_chunk::<20>().map(sum_of),
        34 => head.first_chunk::<34>().map(sum_of),
        40 => head.first_chunk::<40>().map(sum_of),
        54 => head.first_chunk::<54>().map(sum_of),
        _ => None,
    };
    let field = usize::from(start) + usize::from(offset);
    match (front, head.get(field..field + 2)) {
        (Some(front), Some(&[high, low])) if offset.is_multiple_of(2) => {
            front + u64::from(!u16::from_ne_bytes([high, low]))
        }
        _ => finished_sum_of_any(packets, id, start.into(), offset.into()),
    }
}

/// Returns the sum of an even number of bytes, not folded.
#[inline(always)]
fn sum_of<const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(N.is_multiple_of(2)) };
    let (words, rest) = bytes.as_chunks::<4>();
    let last = rest.first_chunk().map_or(0, |&word| u16::from_ne_bytes(word));
    words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum::<u64>() + u64::from(last)
}

/// Does what [`finished_sum`] does, for any offsets.
#[inline(never)]
fn finished_sum_of_any(packets: &Packets<'_>, id: PacketId, start: usize, offset: usize) -> u64 {
    let field = packets.head(id).get(start + offset..start + offset + 2);
    let pseudo = field.map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
    let behind = if offset.is_multiple_of(2) { !pseudo } else { with_odd_field(packets, id, start, pseudo) };
    // Words of the outer sum begin at even offsets.
    let behind = if start.is_multiple_of(2) { behind } else { behind.swap_bytes() };
    checksum::add(packets.sum_head(id, 0..start), behind).to_be().into()
}

/// Returns the sum of the bytes from `start` on, once a checksum at an odd offset is finished. No
/// protocol has such a field, but a guest may ask for it. The value does not cancel out against the
/// other bytes then, so these are summed.
#[cold]
pub(crate) fn with_odd_field(packets: &Packets<'_>, id: PacketId, start: usize, pseudo: u16) -> u16 {
    let sum = packets.sum_from(id, start);
    // Subtracting a value is adding its complement. The bytes of the field are in different words.
    let change = checksum::add(!pseudo, udp::checksum_of(sum));
    checksum::add(sum, change.swap_bytes())
}

/// Folds a sum of words of 16 or 32 bits to 16 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "two folds leave 17 bits, the third 16")]
pub(crate) fn fold_words(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::reference::InnerHeaders;

    /// Sums the squares of the deviations from an even spread: a handful for each of `queues`.
    fn unevenness(hashes: &[u32], queues: usize, queue: impl Fn(u32) -> usize) -> usize {
        let mut counts = vec![0_usize; queues];
        hashes.iter().for_each(|&hash| counts[queue(hash)] += 1);
        counts.iter().map(|n| (n * queues).abs_diff(hashes.len()).pow(2)).sum::<usize>() / (hashes.len() * queues)
    }

    #[test]
    fn neighbouring_flows_spread() {
        for v4 in [true, false] {
            let headers = InnerHeaders::new(v4, false, 0);
            let l4 = usize::from(headers.l4());
            let address = if v4 { 33 } else { 53 };
            let mut packet = headers.complete(&[1; 8]);
            let mut hashes = Vec::new();
            for port in 0..4096_u16 {
                packet[l4..l4 + 2].copy_from_slice(&(1000 + port).to_be_bytes());
                hashes.push(Inner::of(&packet, true).hash);
            }
            for last in 0..=255 {
                packet[address] = last;
                hashes.push(Inner::of(&packet, true).hash);
            }
            for queues in [2, 3, 4, 7, 127] {
                assert!(unevenness(&hashes, queues, |hash| (hash >> 18) as usize % queues) < 2 * queues + 20);
                assert!(unevenness(&hashes, queues, |hash| (hash as usize * queues) >> 32) < 2 * queues + 20);
            }
            assert!(unevenness(&hashes, 256, |hash| hash as usize & 0xff) < 2 * 256 + 20, "the flow of NVGRE");
        }
    }

    #[test]
    fn a_flow_has_one_hash_whatever_else_differs() {
        for (v4, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
            let headers = InnerHeaders::new(v4, tcp, 0);
            let hash = Inner::of(&headers.complete(&[1; 8]), true).hash;
            let other = InnerHeaders { tos: 3, ident: 9, seq: 8, ..headers };
            assert_eq!(Inner::of(&other.complete(&[2; 99]), true).hash, hash);
            assert_eq!(Inner::of(&other.complete(&[]), false).hash, 0);
        }
        let mut first = InnerHeaders::new(true, false, 0).complete(&[1; 8]);
        let mut later = InnerHeaders::new(true, false, 0).complete(&[2; 8]);
        (first[20], first[21], later[20], later[21]) = (0x20, 0, 0, 1);
        (later[34], later[36]) = (7, 7);
        assert_eq!(Inner::of(&first, true), Inner::of(&later, true), "fragments");
    }
}
