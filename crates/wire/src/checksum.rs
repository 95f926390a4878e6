//! The Internet checksum (RFC 1071) over headers and pseudo-headers.
//!
//! A *sum* is the folded one's complement sum, as the value of a big-endian word. A *checksum*, the
//! field of a header, is the complement of a sum. Bodies are summed elsewhere, in the pass that
//! copies them. Their sum is passed in as a `u16`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// Returns the sum of a header. An odd last byte counts as the high half of a word.
#[must_use]
pub fn sum(header: &[u8]) -> u16 {
    let (words, rest) = header.as_chunks::<2>();
    let words = words.iter().map(|word| u16::from_be_bytes(*word));
    let last = rest.first().map(|&byte| u16::from_be_bytes([byte, 0]));
    words.chain(last).fold(0, add)
}

/// Adds two sums, with end-around carry.
#[must_use]
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry `sum` is at most 0xfffe.
    sum + u16::from(carry)
}

/// Returns the checksum of bytes of which one word has changed, from the checksum before (RFC 1624
/// section 3). All bytes zero excepted, the result is the one that summing all bytes gives.
#[inline]
#[must_use]
pub fn replace(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Returns the sum of the pseudo-header of TCP (RFC 9293 section 3.1) or UDP (RFC 768) over IPv4.
/// `len` is the length of the transport header and the body.
#[must_use]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, len: u16) -> u16 {
    let addresses = add(sum(&src.octets()), sum(&dst.octets()));
    add(add(addresses, u16::from(protocol.0)), len)
}

/// Returns the sum of the pseudo-header over IPv6 (RFC 8200 section 8.1). `len` is the length of
/// the transport header and the body. `protocol` is the protocol of the transport header, even
/// behind extension headers.
#[must_use]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, len: u32) -> u16 {
    let addresses = add(sum(&src.octets()), sum(&dst.octets()));
    add(add(addresses, u16::from(protocol.0)), sum(&len.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn odd_empty_and_all_ones() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(sum(&[0xff; 60]), 0xffff);
        assert_eq!(add(0xffff, 0xffff), 0xffff);
        assert_eq!(add(0xffff, 1), 1);
    }

    #[test]
    fn a_replaced_word_gives_the_checksum_of_all_bytes() {
        // RFC 1624 section 4: the case in which the older rule gave 0xffff.
        assert_eq!(replace(0xdd2f, 0x5555, 0x3285), 0x0000);
        let mut bytes = [0x45, 0, 0xff, 0xff, 0x12, 0x34, 0, 1];
        for (old, new) in [(0xffff, 0), (0, 0xffff), (0xffff, 0x1234), (0x1234, 0x1234), (0x1234, 0xffff)] {
            bytes[2..4].copy_from_slice(&u16::to_be_bytes(old));
            let before = !sum(&bytes);
            bytes[2..4].copy_from_slice(&u16::to_be_bytes(new));
            assert_eq!(replace(before, old, new), !sum(&bytes), "{old:#x} {new:#x}");
        }
    }

    #[test]
    fn pseudo_headers_are_the_sums_of_their_bytes() {
        let a = Ipv4Addr::new(192, 168, 255, 1);
        let b = Ipv4Addr::new(10, 1, 2, 255);
        let bytes = [192, 168, 255, 1, 10, 1, 2, 255, 0, 17, 0xfe, 0xdc];
        assert_eq!(pseudo_header_v4(a, b, IpProtocol::UDP, 0xfedc), sum(&bytes));

        let a = "2001:db8::ffff:1".parse().unwrap();
        let b = "fe80::dead:beef".parse().unwrap();
        let (a, b): (Ipv6Addr, Ipv6Addr) = (a, b);
        let bytes = [&a.octets()[..], &b.octets(), &[0, 1, 0xfe, 0xdc, 0, 0, 0, 6]].concat();
        assert_eq!(pseudo_header_v6(a, b, IpProtocol::TCP, 0x1_fedc), sum(&bytes));
    }
}
