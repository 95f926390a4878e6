//! Frames of the comparison, byte by byte. They do not come from our own crates, which read them.

use std::net::IpAddr;
use std::ops::Range;

use super::sequence;

/// Protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
const FRAGMENT_HEADER: u8 = 44;

/// Bytes in front of the IP header.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;

/// Station of the router, and of the guest at each port.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

/// The sender and the receiver of a packet, and its number: no two packets have all three in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PacketName {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) id: u16,
}

/// A TCP segment as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) ports: [u16; 2],
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
    pub(crate) len: u16,
}

impl Wire {
    /// Returns the segment with its checksum.
    pub(crate) fn bytes(&self, name: &PacketName) -> Vec<u8> {
        // A SYN always has options, as those of stations do. The kernel keeps the scale of an earlier
        // SYN if a later one has none at all; we read "no option" as "no scale" (RFC 7323, section 1.3).
        let options: &[u8] = match self.scale {
            Some(scale) => &[1, 3, 3, scale],
            None if self.flags & sequence::SYN != 0 => &[2, 4, 0x05, 0xb4],
            None => &[],
        };
        let [src, dst] = self.ports;
        let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.push(if options.is_empty() { 0x50 } else { 0x60 });
        bytes.push(self.flags);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(options);
        bytes.resize(bytes.len() + usize::from(self.len), 0x5a);
        with_checksum(name, TCP, bytes, 16)
    }
}

/// Returns a UDP datagram.
pub(crate) fn udp(name: &PacketName, [src, dst]: [u16; 2], len: u16) -> Vec<u8> {
    let mut bytes = [src, dst, len + 8, 0].map(u16::to_be_bytes).concat();
    bytes.resize(bytes.len() + usize::from(len), 0x5a);
    with_checksum(name, UDP, bytes, 6)
}

/// Returns an ICMP message: its type and code, the four bytes behind the checksum, and its body.
pub(crate) fn icmp(name: &PacketName, type_and_code: [u8; 2], rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let bytes = [&type_and_code[..], &[0, 0], &rest, body].concat();
    let protocol = if name.src.is_ipv4() { ICMP } else { ICMPV6 };
    with_checksum(name, protocol, bytes, 2)
}

/// Returns a frame with this payload of IP.
pub(crate) fn frame(name: &PacketName, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut frame = [ROUTER, GUEST].concat();
    match (name.src, name.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0x45, 0];
            header.extend((len + 20).to_be_bytes());
            header.extend(name.id.to_be_bytes());
            header.extend([0, 0, 64, protocol, 0, 0]);
            header.extend(src.octets());
            header.extend(dst.octets());
            set_header_sum(&mut header);
            frame.extend([8, 0]);
            frame.extend(header);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let [high, low] = name.id.to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60, 0, high, low]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(src.octets());
            frame.extend(dst.octets());
        }
        _ => unreachable!("both ends have addresses of one version"),
    }
    frame.extend(payload);
    frame
}

/// Returns the parts of a packet's payload as fragments. Their offsets are multiples of 8.
pub(super) fn fragments(whole: &[u8], parts: &[Range<usize>]) -> Vec<Vec<u8>> {
    let is_ipv4 = whole[12..14] == [8, 0];
    let front = ETHERNET + if is_ipv4 { IPV4 } else { IPV6 };
    let payload = &whole[front..];
    let part = |part: &Range<usize>| {
        let mut frame = whole[..front].to_vec();
        let offset = u16::try_from(part.start).unwrap_or(u16::MAX);
        let more = part.end < payload.len();
        let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
        if is_ipv4 {
            frame[16..18].copy_from_slice(&(len + 20).to_be_bytes());
            frame[20..22].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
            set_header_sum(&mut frame[ETHERNET..]);
        } else {
            let protocol = std::mem::replace(&mut frame[20], FRAGMENT_HEADER);
            frame[18..20].copy_from_slice(&(len + 8).to_be_bytes());
            frame.extend([protocol, 0]);
            frame.extend((offset | u16::from(more)).to_be_bytes());
            frame.extend([0, 0, whole[16], whole[17]]);
        }
        frame.extend(&payload[part.clone()]);
        frame
    };
    parts.iter().map(part).collect()
}

/// A packet that has arrived: its name, the part of the payload that it carries, and whether that is
/// the last part.
pub(super) fn read(frame: &[u8]) -> Option<(PacketName, Range<usize>, bool)> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    match half(12)? {
        0x0800 => {
            let address = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<4>()?));
            let name = PacketName { src: address(26)?, dst: address(30)?, id: half(18)? };
            let begin = usize::from(half(20)? & 0x1fff) * 8;
            let len = usize::from(half(16)?.checked_sub(20)?);
            Some((name, begin..begin + len, half(20)? & 0x2000 == 0))
        }
        0x86dd => {
            let address = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<16>()?));
            let name = PacketName { src: address(22)?, dst: address(38)?, id: half(16)? };
            let len = usize::from(half(18)?);
            if frame[20] != FRAGMENT_HEADER {
                return Some((name, 0..len, true));
            }
            let place = half(56)?;
            let begin = usize::from(place & 0xfff8);
            Some((name, begin..begin + len.checked_sub(8)?, place & 1 == 0))
        }
        _ => None,
    }
}

/// Returns the bytes with the checksum that stands at an offset.
fn with_checksum(name: &PacketName, protocol: u8, mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    let mut pseudo = Vec::new();
    if protocol != ICMP {
        for address in [name.src, name.dst] {
            match address {
                IpAddr::V4(address) => pseudo.extend(address.octets()),
                IpAddr::V6(address) => pseudo.extend(address.octets()),
            }
        }
        pseudo.extend([0, protocol]);
        pseudo.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    }
    pseudo.extend(&bytes);
    let sum = !sum(&pseudo);
    // UDP has no checksum of 0 (RFC 768).
    let sum = if sum == 0 && protocol == UDP { u16::MAX } else { sum };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn set_header_sum(header: &mut [u8]) {
    header[10..12].copy_from_slice(&[0, 0]);
    let sum = !sum(&header[..IPV4]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the sum of all words in one's complement (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_read_as_they_were_made() {
        for [src, dst] in [["10.0.0.1", "198.18.0.1"], ["fd00::1", "2001:db8::1"]] {
            let name = PacketName { src: src.parse().expect("good"), dst: dst.parse().expect("good"), id: 515 };
            let whole = frame(&name, UDP, &udp(&name, [7, 9], 92));
            assert_eq!(read(&whole), Some((name, 0..100, true)));
            let parts = fragments(&whole, &[0..40, 40..100]);
            assert_eq!(read(&parts[0]), Some((name, 0..40, false)));
            assert_eq!(read(&parts[1]), Some((name, 40..100, true)));
        }
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }
}
