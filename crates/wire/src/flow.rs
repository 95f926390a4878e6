//! Hash of a frame's flow. Spreading frames over queues by this hash keeps each flow in order.

use crate::field::{get, u32_at};
use crate::geometry::locate;
use crate::{IpProtocol, IpVersion};

/// Odd multiplier with set bits spread over its whole length (from the digits of the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash over the fields that all frames of a flow share. These are both MAC addresses
/// and, if present, both IP addresses, the protocol, and the ports of TCP and UDP. `head` is the
/// beginning of the frame with its headers.
///
/// - The hash of a fragment covers its addresses and its protocol alone, because only the first
///   fragment has ports.
/// - The two directions of a connection have different hashes.
/// - There is no seed. A sender can choose flows that share a queue. This harms the sender itself
///   and the other flows of that queue.
#[must_use]
pub fn flow_hash(head: &[u8]) -> u32 {
    let Some(addresses) = head.first_chunk::<12>() else { return 0 };
    let mut hash = mix(FACTOR, u64::from_le_bytes(get(addresses, 0)));
    hash = mix(hash, u32_at(addresses, 8).into());
    if let Ok(layers) = locate(head) {
        // Both addresses are adjacent: at 12 in IPv4 (RFC 791, 3.1), at 8 in IPv6 (RFC 8200, 3).
        let (at, len) = match layers.version {
            IpVersion::V4 => (usize::from(layers.l3) + 12, 8),
            IpVersion::V6 => (usize::from(layers.l3) + 8, 32),
        };
        for word in head[at..at + len].chunks_exact(8) {
            hash = mix(hash, u64::from_le_bytes(get(word, 0)));
        }
        let has_ports = matches!(layers.protocol, IpProtocol::TCP | IpProtocol::UDP) && !layers.fragment;
        let ports = if has_ports { u32_at(head, layers.l4.into()) } else { 0 };
        hash = mix(hash, u64::from(ports) << 8 | u64::from(layers.protocol.0));
    }
    // One more round, so that every bit of the last word affects every bit of the result.
    let [a, b, c, d, ..] = mix(hash, FACTOR.rotate_left(32)).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Mixes a word into the hash: multiplies, then XORs the two halves of the product. Every input bit
/// affects many bits of the result.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
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
            for queues in [2_u64, 3, 4, 7, 127] {
                // Queues are chosen by the upper bits of the hash, and by lower bits.
                for fraction in [true, false] {
                    let mut counts = vec![0_i64; usize::try_from(queues).unwrap()];
                    for n in 0..flows {
                        let hash = u64::from(flow_hash(&make(n)));
                        let at = if fraction { (hash * queues) >> 32 } else { (hash >> 22) % queues };
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
