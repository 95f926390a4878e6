//! The outer headers of GSO segments: the headers of a tunnel, with lengths and checksums.
//!
//! Only the length of a segment decides about its outer headers. So they are made twice at most for
//! each packet: for the first segment, and for the last one if it is shorter. All segments between
//! them repeat the first one's.
//!
//! No byte of a payload is read. The outer checksum follows from the headers, because a checksum
//! makes the bytes that it covers sum to a known value ("local checksum offload"):
//!
//! ```text
//! outer:    pseudo header | UDP or GRE, tunnel, Ethernet | network header | transport header, payload |
//! summed:   as it is        as it is                       IPv4: 0          ~ the inner pseudo header
//!                                                          IPv6: as it is
//! ```
//!
//! 1. The inner transport checksum is the complement of everything else that it covers. So the bytes
//!    from the transport header to the end, with the inner pseudo header, sum to 0xffff, which is 0
//!    in one's complement.
//! 2. The inner IPv4 header sums to 0xffff by its own checksum. This is why identifications, which
//!    count up, do not show outside.
//! 3. Sequence numbers and flags of TCP lie behind the transport header's beginning, so (1) covers
//!    them.
//!
//! The outer checksum is right once the inner one is finished, by the copy or by a later receiver.

use std::ops::Range;

use straightline_simd::Sum;

use super::low16;
use crate::{Gso, Outer, OuterChecksum};

/// Bytes of an IPv4 header without options.
const IPV4: u16 = 20;
/// Bytes of an IPv6 header.
const IPV6: u16 = 40;
/// Bytes of a UDP header, and of a GRE header with a checksum (RFC 2784, 2).
const UDP: u16 = 8;
/// Bytes of a GTP-U header that its own length does not count.
const GTPU: u16 = 8;

impl Outer {
    /// Returns whether these headers are in order, in front of the headers that `gso` points to.
    /// The outer network header has the length of IPv4 here; [`rewrite`] knows its version.
    pub(crate) fn precedes(&self, gso: &Gso) -> bool {
        let ends_by = |at: u16, len: u16, limit: u16| at.checked_add(len).is_some_and(|end| end <= limit);
        let (l4, len) = self.checksum.at().map_or((gso.l3, 0), |l4| (l4, UDP));
        ends_by(self.l3, IPV4, l4)
            && ends_by(l4, len, gso.l3)
            // Headers are summed in words.
            && (gso.l3 - l4).is_multiple_of(2)
            && self.gtpu.is_none_or(|at| at >= l4 + len && ends_by(at, GTPU, gso.l3))
    }
}

impl OuterChecksum {
    /// Returns the offset of the UDP or GRE header.
    fn at(self) -> Option<u16> {
        match self {
            OuterChecksum::None => None,
            OuterChecksum::UdpZero { l4: at } | OuterChecksum::Udp { l4: at } | OuterChecksum::Gre { at } => Some(at),
        }
    }
}

/// Makes outer headers those of a segment of `len` bytes, headers included. `headers` are all
/// headers of the segment, and `pseudo` is the sum of the inner pseudo header without its length.
/// [`Outer::precedes`] has checked the offsets. Returns `false` if the outer network header is not
/// one of IP.
#[inline(never)]
pub(crate) fn rewrite(outer: Outer, gso: &Gso, pseudo: u16, len: u32, headers: &mut [u8]) -> bool {
    let behind = |at: u16| low16(len - u32::from(at)).to_be_bytes();
    let l4 = outer.checksum.at().unwrap_or(gso.l3);
    let Some(addresses) = rewrite_network(outer.l3, l4, behind, headers) else { return false };
    if let Some(at) = outer.gtpu {
        put(headers, at + 2, behind(at + GTPU));
    }
    let (field, mut sum) = match outer.checksum {
        OuterChecksum::None => return true,
        OuterChecksum::UdpZero { .. } | OuterChecksum::Udp { .. } => {
            put(headers, l4 + 4, behind(l4));
            // The pseudo header (RFC 768; RFC 8200, 8.1).
            let mut sum = Sum::new();
            sum.add_bytes(&headers[addresses]);
            sum.add_bytes(&[0, PROTOCOL_UDP]);
            sum.add_bytes(&behind(l4));
            (l4 + 6, sum)
        }
        OuterChecksum::Gre { .. } => (l4 + 4, Sum::new()),
    };
    put(headers, field, [0, 0]);
    if let OuterChecksum::UdpZero { .. } = outer.checksum {
        return true;
    }
    sum.add_bytes(&headers[range(l4, gso.l3)]);
    add_inner(gso, pseudo, len, headers, &mut sum);
    let value = match sum.finish() {
        // In UDP, 0 means "no checksum" (RFC 768).
        0 if matches!(outer.checksum, OuterChecksum::Udp { .. }) => 0xffff,
        value => value,
    };
    put(headers, field, value.to_be_bytes());
    true
}

/// Fills in the network header at `l3` for one segment. `behind` returns the number of the
/// segment's bytes from an offset on. Returns the range of the addresses, or `None` if there is no
/// header of IP that ends by `l4`.
fn rewrite_network(l3: u16, l4: u16, behind: impl Fn(u16) -> [u8; 2], headers: &mut [u8]) -> Option<Range<usize>> {
    let first = headers[usize::from(l3)];
    match first >> 4 {
        4 => {
            let end = l3 + 4 * u16::from(first & 0xf);
            if end < l3 + IPV4 || end > l4 {
                return None;
            }
            put(headers, l3 + 2, behind(l3));
            put(headers, l3 + 10, [0, 0]);
            let mut sum = Sum::new();
            sum.add_bytes(&headers[range(l3, end)]);
            put(headers, l3 + 10, sum.finish().to_be_bytes());
            Some(range(l3 + 12, l3 + 20))
        }
        6 if l3 + IPV6 <= l4 => {
            put(headers, l3 + 4, behind(l3 + IPV6));
            Some(range(l3 + 8, l3 + 40))
        }
        _ => None,
    }
}

/// Adds the inner packet to the outer checksum: see the head of this file.
fn add_inner(gso: &Gso, pseudo: u16, len: u32, headers: &[u8], sum: &mut Sum) {
    if !gso.kind.is_v4() {
        // Another segment may have written the length in `headers`.
        sum.add_bytes(&headers[range(gso.l3, gso.l3 + 4)]);
        sum.add_u16(low16(len - u32::from(gso.l3 + IPV6)));
        sum.add_bytes(&headers[range(gso.l3 + 6, gso.l4)]);
    }
    let mut inner = Sum::new();
    inner.add_u16(pseudo);
    inner.add_u32(len - u32::from(gso.l4));
    sum.add_u16(inner.finish());
}

/// The protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;

fn range(from: u16, to: u16) -> Range<usize> {
    usize::from(from)..usize::from(to)
}

fn put(headers: &mut [u8], at: u16, value: [u8; 2]) {
    headers[usize::from(at)..][..2].copy_from_slice(&value);
}
