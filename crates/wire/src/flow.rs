//! Hash of a frame's flow. Spreading frames over queues by this hash keeps each flow in order.

use crate::field::{get, u32_at};
use crate::geometry::{Layers, locate};
use crate::{EtherType, IpProtocol, IpVersion};

/// Odd multipliers with set bits spread over their whole length (from the digits of pi).
const FACTORS: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89];

/// Returns a hash over the fields that all frames of a flow share. These are both IP addresses, the
/// protocol, and the ports of TCP and UDP. A frame without IP has the hash of both its MAC addresses.
/// `head` is the beginning of the frame with its headers.
///
/// - The hash of a fragment covers its addresses and its protocol alone, because only the first
///   fragment has ports.
/// - The two directions of a connection have different hashes.
/// - There is no seed. A sender can choose flows that share a queue. This harms the sender itself
///   and the other flows of that queue.
#[must_use]
#[inline]
pub fn flow_hash(head: &[u8]) -> u32 {
    plain_flow(head).map_or_else(|| flow_hash_of(head, locate(head).ok()), |flow| flow.hash)
}

/// The facts of a frame with plain headers: TCP or UDP, no tags, no fragment, no IP options or
/// extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainFlow {
    /// IPv4 or IPv6.
    pub network: EtherType,
    /// Type of service or traffic class.
    pub tos: u8,
    /// The [`flow_hash`].
    pub hash: u32,
}

/// Returns the facts of a frame with plain headers. It takes a third of the time that
/// [`flow_hash`] takes for other frames, for which it returns `None`.
#[must_use]
#[inline(always)]
pub fn plain_flow(head: &[u8]) -> Option<PlainFlow> {
    // Ethernet, IPv4, ports.
    if let Some(front) = head.first_chunk::<38>()
        && front[12..15] == [8, 0, 0x45]
    {
        let is_whole = u16::from_be_bytes([front[20], front[21]]) & 0x3fff == 0;
        return (is_whole && has_ports(front[23])).then(|| PlainFlow {
            network: EtherType::IPV4,
            tos: front[15],
            hash: hash_v4(&get(front, 26), u32_at(front, 34), front[23]),
        });
    }
    // Ethernet, IPv6, ports.
    if let Some(front) = head.first_chunk::<58>()
        && front[12..14] == [0x86, 0xdd]
        && front[14] >> 4 == 6
        && has_ports(front[20])
    {
        return Some(PlainFlow {
            network: EtherType::IPV6,
            tos: front[14] << 4 | front[15] >> 4,
            hash: hash_v6(&get(front, 22), u32_at(front, 54), front[20]),
        });
    }
    None
}

/// Returns the [`flow_hash`] of a frame whose headers have these offsets; `None` if it has no headers
/// of IP. For a frame with plain headers, call [`plain_flow`] first: it reads fewer fields, so
/// it also gives a hash to frames whose lengths are wrong.
#[must_use]
pub fn flow_hash_of(head: &[u8], layers: Option<Layers>) -> u32 {
    let Some(layers) = layers else {
        let Some(addresses) = head.first_chunk::<12>() else { return 0 };
        return mix(
            wide_mix(u64::from_le_bytes(get(addresses, 0)) ^ FACTORS[0], u64::from(u32_at(addresses, 8)) ^ FACTORS[1]),
            FACTORS[2],
        );
    };
    let ports = if has_ports(layers.protocol.0) && !layers.fragment { u32_at(head, layers.l4.into()) } else { 0 };
    // Both addresses are adjacent: at 12 in IPv4 (RFC 791, 3.1), at 8 in IPv6 (RFC 8200, 3).
    let l3 = usize::from(layers.l3);
    match layers.version {
        IpVersion::V4 => hash_v4(&get(head, l3 + 12), ports, layers.protocol.0),
        IpVersion::V6 => hash_v6(&get(head, l3 + 8), ports, layers.protocol.0),
    }
}

fn has_ports(protocol: u8) -> bool {
    matches!(IpProtocol(protocol), IpProtocol::TCP | IpProtocol::UDP)
}

#[inline(always)]
fn hash_v4(addresses: &[u8; 8], ports: u32, protocol: u8) -> u32 {
    let upper = u64::from(protocol) << 32 | u64::from(ports);
    mix(wide_mix(u64::from_le_bytes(*addresses) ^ FACTORS[0], upper ^ FACTORS[1]), FACTORS[2])
}

#[inline(always)]
fn hash_v6(addresses: &[u8; 32], ports: u32, protocol: u8) -> u32 {
    let upper = u64::from(protocol) << 32 | u64::from(ports);
    let word = |at: usize| u64::from_le_bytes(get(addresses, at));
    let src = wide_mix(word(0) ^ FACTORS[0], word(8) ^ FACTORS[1]);
    let dst = wide_mix(word(16) ^ FACTORS[2], word(24) ^ FACTORS[3]);
    mix(wide_mix(src ^ upper, dst ^ FACTORS[1]), FACTORS[2])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MacAddr;
    use crate::frame::{Checksum, Frame, Net, Transport};
    use crate::tcp::Flags;

    fn frame(net: Net, transport: Transport) -> Vec<u8> {
        let src = MacAddr([2, 0, 0, 0, 0, 1]);
        let dst = MacAddr([2, 0, 0, 0, 0, 2]);
        let frame = Frame { src, dst, tags: [None, None], net, transport, payload_len: 0 };
        let mut bytes = vec![0; frame.headers_len()];
        frame.emit(&mut bytes, Checksum::Zero).unwrap();
        bytes
    }

    fn v4(last: u8) -> Net {
        Net::v4([10, 0, 0, 1].into(), [10, 0, 0, last].into())
    }

    fn udp(src_port: u16, dst_port: u16) -> Transport {
        Transport::Udp { src_port, dst_port }
    }

    #[test]
    fn a_flow_has_one_hash_whatever_else_differs() {
        let tcp = |seq, window| Transport::Tcp { src_port: 1, dst_port: 2, seq, ack: seq, flags: Flags(16), window };
        let first = flow_hash(&frame(v4(2), tcp(0, 500)));
        assert_eq!(first, flow_hash(&frame(v4(2), tcp(77_000, 1))));
        let mut longer = frame(v4(2), tcp(5, 6));
        longer.extend([9; 100]);
        assert_eq!(first, flow_hash(&longer));
        assert_ne!(first, flow_hash(&frame(v4(2), udp(1, 2))), "the protocol counts");
        assert_ne!(flow_hash(&frame(v4(2), udp(1, 2))), flow_hash(&frame(v4(2), udp(2, 1))));
    }

    /// Tags, options and extension headers make no other flow.
    #[test]
    fn a_flow_has_one_hash_in_any_headers() {
        let v6 = Net::v6([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into());
        for (net, transport) in [(v4(2), udp(1, 2)), (v6, udp(1, 2)), (v6, udp(3, 4))] {
            let plain = frame(net, transport);
            let hash = flow_hash(&plain);
            assert_eq!(plain_flow(&plain).map(|flow| flow.hash), Some(hash));
            let mut tagged = plain.clone();
            tagged.splice(12..12, [0x81, 0, 0, 5]);
            assert_eq!((plain_flow(&tagged), flow_hash(&tagged)), (None, hash));
            let mut longer = plain.clone();
            if net == v6 {
                longer[20] = 60;
                longer.splice(54..54, [17, 0, 0, 0, 0, 0, 0, 0]);
            } else {
                longer[14] = 0x46;
                longer.splice(34..34, [1; 4]);
            }
            assert_eq!((plain_flow(&longer), flow_hash(&longer)), (None, hash));
        }
    }

    #[test]
    fn fragments_stay_together() {
        let mut first = frame(v4(2), udp(1000, 2000));
        let mut later = frame(v4(2), udp(0x4141, 0x4242));
        // "More fragments" with offset 0, and an offset of 8 bytes.
        (first[20], first[21], later[20], later[21]) = (0x20, 0, 0, 1);
        assert_eq!(flow_hash(&first), flow_hash(&later));
    }

    #[test]
    fn what_is_not_ip_is_told_apart_by_its_addresses() {
        let mut arp = vec![2; 60];
        (arp[12], arp[13]) = (8, 6);
        let mut other = arp.clone();
        other[30] = 99;
        assert_eq!(flow_hash(&arp), flow_hash(&other));
        other[5] = 99;
        assert_ne!(flow_hash(&arp), flow_hash(&other));
        assert_eq!(flow_hash(&arp[..11]), 0);
    }

    /// Neighbouring flows spread evenly over any number of queues. The test sums the squares of the
    /// deviations. For a fair die this sum is a handful for each side; for a hash that follows its
    /// input it is hundreds of times larger.
    #[test]
    fn flows_spread() {
        let v6 = |n: u16| Net::v6([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, n].into());
        type Kind<'a> = &'a dyn Fn(u16) -> Vec<u8>;
        let ports: Kind<'_> = &|n| frame(v4(2), udp(1000 + n, 2000));
        let hosts: Kind<'_> = &|n| frame(v4(n.to_be_bytes()[1]), udp(1, 2));
        let six: Kind<'_> = &|n| frame(v6(n), udp(1, 2));
        for (make, flows) in [(ports, 4096_u16), (ports, 40), (hosts, 128), (six, 4096)] {
            for queues in [2_u64, 3, 4, 7, 127, 256] {
                // Queues are chosen by the upper bits of the hash, and by lower bits. NVGRE has the
                // lowest 8 bits of it.
                for choice in 0..3 {
                    let mut counts = vec![0_i64; usize::try_from(queues).unwrap()];
                    for n in 0..flows {
                        let hash = u64::from(flow_hash(&make(n)));
                        let at = match choice {
                            0 => (hash * queues) >> 32,
                            1 => (hash >> 18) % queues,
                            _ => (hash & 0xff) % queues,
                        };
                        counts[usize::try_from(at).unwrap()] += 1;
                    }
                    let flows = i64::from(flows);
                    let queues = i64::try_from(queues).unwrap();
                    let squares: i64 =
                        counts.iter().map(|n| (n * queues - flows).pow(2)).sum::<i64>() / (flows * queues);
                    assert!(squares < 2 * queues + 20, "{queues} queues: {counts:?}");
                }
            }
        }
    }
}
