//! Segmentation: splits an unsegmented packet into its GSO segments (TSO, USO).
//!
//! Headers are made anew for each segment. The payload is read in place, part by part, from the
//! packet's head and body. These fields differ between segments; all others are copied:
//!
//! | header | fields |
//! |---|---|
//! | IPv4 | total length, identification (counts up), header checksum |
//! | IPv6 | payload length |
//! | TCP | sequence number, flags (FIN and PSH: last segment; CWR: first segment), checksum |
//! | UDP | length, checksum |
//!
//! The transport checksum stays partial: its field gets the pseudo header's sum of the segment. The
//! destination's port finishes the checksum in the copy, or the receiver takes it as it is.
//!
//! Header sums are computed from the fields, without a pass over the bytes of each header:
//!
//! ```text
//! once:               sums of all header words that do not change     (CommonFields)
//! for each segment:   these sums plus the words that do change        (SegmentFields)
//! ```
//!
//! RFC 1624 updates a checksum for one field in the same way.
//!
//! The outer headers of a tunnel differ in the last segment only: see `outer.rs`.

mod outer;

use std::ops::Range;

use straightline_wire::checksum;

use crate::slot::SLOT_DATA;
use crate::{Checksum, Gso, GsoKind, HEADROOM, MIN_HEADROOM, MemorySegment, Outer};
use outer::rewrite;

/// Length of the longest headers that can be made anew: the longest head that was pulled up, with
/// prepended headers that fill its headroom.
pub const MAX_HEADERS: usize = SLOT_DATA - MIN_HEADROOM;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// One GSO segment: its headers, and the range of the packet's bytes that is its payload.
#[derive(Debug)]
pub struct GsoSegment {
    bytes: [u8; HEADROOM + MAX_HEADERS],
    headers: u16,
    payload: Range<u32>,
    checksum: Checksum,
    /// Sum of the transport header, with the pseudo header's sum in the checksum field; not folded.
    transport_sum: u32,
}

impl Default for GsoSegment {
    fn default() -> Self {
        GsoSegment {
            bytes: [0; HEADROOM + MAX_HEADERS],
            headers: 0,
            payload: 0..0,
            checksum: Checksum::Complete,
            transport_sum: 0,
        }
    }
}

impl GsoSegment {
    /// Returns the headers with `N` bytes in front of them.
    pub(crate) fn front<const N: usize>(&self) -> &[u8] {
        const { assert!(N <= HEADROOM) };
        &self.bytes[HEADROOM - N..HEADROOM + usize::from(self.headers)]
    }

    /// Copies `headers` of `len` bytes, and returns the copy to be changed.
    pub(crate) fn begin(&mut self, len: u16, headers: &[u8]) -> &mut [u8] {
        self.headers = len;
        let bytes = &mut self.bytes[HEADROOM..HEADROOM + usize::from(len)];
        bytes.copy_from_slice(headers);
        bytes
    }

    /// Returns the sum of the transport header and the pseudo header, not folded.
    pub(crate) fn transport_sum(&self) -> u32 {
        self.transport_sum
    }

    /// Returns the `N` bytes in front of the headers, for the destination's header.
    pub fn prefix_mut<const N: usize>(&mut self) -> &mut [u8; N] {
        const { assert!(N <= HEADROOM) };
        (&mut self.bytes[HEADROOM - N..HEADROOM]).try_into().expect("the range has N bytes")
    }

    /// Returns the headers.
    pub fn headers(&self) -> &[u8] {
        &self.bytes[HEADROOM..HEADROOM + usize::from(self.headers)]
    }

    /// Returns the payload, as a range of the unsegmented packet's bytes.
    pub fn payload(&self) -> Range<u32> {
        self.payload.clone()
    }

    /// Returns the length of the segment in bytes, headers included.
    pub fn len(&self) -> u32 {
        u32::from(self.headers) + (self.payload.end - self.payload.start)
    }

    /// Returns whether the segment has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what is left to do for the checksum.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }
}

/// Sums of the header words that all GSO segments share, and the first values of the fields that
/// differ.
#[derive(Clone, Copy, Debug, Default)]
struct CommonFields {
    /// Sum of the IPv4 header without length, identification and checksum.
    network: u16,
    /// Sum of the pseudo header without the length.
    pseudo: u16,
    /// Sum of the TCP header without sequence number, flags (with the byte before them) and
    /// checksum; or sum of the UDP ports.
    transport: u16,
    /// First IPv4 identification.
    id: u16,
    /// First TCP sequence number.
    seq: u32,
    /// TCP flags of the packet, behind the byte before them, which has the header's length.
    flags: [u8; 2],
}

/// The header fields in which one GSO segment differs from another, and its payload.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFields {
    /// Range of the unsegmented packet's bytes that is the payload.
    pub(crate) payload: Range<u32>,
    /// Sum of the transport header, with the pseudo header's sum in the checksum field; not folded.
    pub(crate) transport_sum: u32,
    /// Sum of the pseudo header, not folded.
    pseudo: u32,
    /// Length field of the IP header.
    network_len: u16,
    /// Length field of the UDP header.
    transport_len: u16,
    /// IPv4 identification.
    id: u16,
    /// IPv4 header checksum.
    network_sum: u16,
    /// TCP sequence number.
    seq: u32,
    /// TCP flags, behind the byte before them.
    flags: [u8; 2],
}

/// Memory in which the fields of headers are changed: memory of the switch, or the destination's
/// buffer.
pub(crate) trait HeaderWriter {
    fn put2(&mut self, at: u32, bytes: [u8; 2]);
    fn put4(&mut self, at: u32, bytes: [u8; 4]);
}

impl HeaderWriter for [u8] {
    #[inline]
    fn put2(&mut self, at: u32, bytes: [u8; 2]) {
        self[at as usize..][..2].copy_from_slice(&bytes);
    }

    #[inline]
    fn put4(&mut self, at: u32, bytes: [u8; 4]) {
        self[at as usize..][..4].copy_from_slice(&bytes);
    }
}

impl HeaderWriter for MemorySegment<'_> {
    #[inline(always)]
    fn put2(&mut self, at: u32, bytes: [u8; 2]) {
        MemorySegment::put2(*self, at, bytes);
    }

    #[inline(always)]
    fn put4(&mut self, at: u32, bytes: [u8; 4]) {
        MemorySegment::put4(*self, at, bytes);
    }
}

/// The segmentation of one packet, which yields its GSO segments one after the other.
#[derive(Clone, Debug)]
pub struct Segmenter {
    gso: Gso,
    /// Bytes of the unsegmented packet.
    total: u32,
    /// Offset of the next segment's payload.
    next: u32,
    /// Number of segments made so far, modulo 65536.
    index: u16,
    common: CommonFields,
}

impl Segmenter {
    /// Begins the segmentation of a packet of `total` bytes. The headers lie within the head. They
    /// were checked when the packet came in: `l3 + 20 (40) <= l4`, and a complete TCP or UDP header
    /// between `l4` and `header_len`. Returns `None` if the numbers do not fit each other.
    pub fn new(gso: Gso, total: u32) -> Option<Self> {
        let Gso { l3, l4, .. } = gso;
        // The length field of the IP header must be able to hold the packet's length. The field of
        // IPv4 counts its own header, the field of IPv6 does not. This also bounds the number of
        // segments to less than 65536.
        let (network, longest) = if gso.kind.is_v4() { (20, 65_535) } else { (40, 65_535 + 40) };
        let transport = if gso.kind.is_tcp() { 20 } else { 8 };
        let fits = l3.checked_add(network)? <= l4
            && l4.checked_add(transport)? <= gso.header_len
            && usize::from(gso.header_len) <= MAX_HEADERS
            // The sum of a header of odd length could not be added to the sum of the payload behind
            // it.
            && (gso.header_len - gso.l4).is_multiple_of(2)
            && u32::from(gso.header_len) <= total
            && total - u32::from(l3) <= longest
            && gso.size > 0
            && gso.outer.is_none_or(|outer| outer.precedes(&gso));
        let next = u32::from(gso.header_len);
        let index = 0;
        let common = CommonFields::default();
        let segmenter = fits.then_some(Segmenter { gso, total, next, index, common })?;
        // An outer header has the length of one segment. IPv6 allows 40 bytes more than this check.
        let fits_outer = gso.outer.is_none_or(|outer| segmenter.len_of(0) - u32::from(outer.l3) <= 65_535);
        fits_outer.then_some(segmenter)
    }

    /// Returns the number of GSO segments in all. A packet without payload is one segment.
    pub fn count(&self) -> u32 {
        (self.total - u32::from(self.gso.header_len)).div_ceil(u32::from(self.gso.size)).max(1)
    }

    /// Returns the number of GSO segments that are still to be made.
    pub fn left(&self) -> u32 {
        match self.index {
            0 => self.count(),
            _ => (self.total - self.next).div_ceil(u32::from(self.gso.size)),
        }
    }

    /// Returns the offset of the next segment's payload in the packet.
    pub(crate) fn position(&self) -> u32 {
        self.next
    }

    /// Returns the length of the segment that comes after `nth` others. At least as many others
    /// must be left.
    #[inline]
    pub fn len_of(&self, nth: u32) -> u32 {
        let size = u32::from(self.gso.size);
        u32::from(self.gso.header_len) + size.min((self.total - self.next).saturating_sub(nth.saturating_mul(size)))
    }

    /// Returns the partial checksum of all segments: where summing starts, and where the field is.
    pub fn checksum(&self) -> Checksum {
        Checksum::Partial { start: self.gso.l4, offset: self.gso.kind.checksum_offset() }
    }

    /// Makes the next GSO segment of the packet with this `head`. The first call fills all of
    /// `segment`. Each later call needs the bytes of an earlier segment of the same packet there,
    /// and changes only the fields that differ. The bytes in front of the headers stay as they are.
    /// Returns `false` if there are no more segments.
    pub fn next(&mut self, head: &[u8], segment: &mut GsoSegment) -> bool {
        if !self.begin(head, segment) {
            return false;
        }
        let Some(fields) = self.next_fields() else { return false };
        let headers = &mut segment.bytes[HEADROOM..HEADROOM + usize::from(segment.headers)];
        fields.put(&self.gso, 0, headers);
        fields.put_pseudo(&self.gso, 0, headers);
        if let Some((outer, len)) = self.last_outer() {
            self.rewrite_outer(outer, len, headers);
        }
        segment.transport_sum = fields.transport_sum;
        segment.checksum = self.checksum();
        segment.payload = fields.payload;
        true
    }

    /// Copies the headers of the packet into `segment`, before the first segment is made. Outer
    /// headers become those of the first segment. Returns `false` if the head does not hold all
    /// headers.
    pub fn begin(&mut self, head: &[u8], segment: &mut GsoSegment) -> bool {
        if self.index > 0 {
            return true;
        }
        let Some(headers) = head.get(..usize::from(self.gso.header_len)) else { return false };
        let headers = segment.begin(self.gso.header_len, headers);
        self.common = CommonFields::of(&self.gso, headers);
        match self.gso.outer {
            Some(outer) => self.rewrite_outer(outer, self.len_of(0), headers),
            None => true,
        }
    }

    /// Returns the outer headers and the length of the last segment, once that is made. `None` if
    /// its outer headers are those of the first segment: there are none, or it is not shorter.
    #[inline]
    pub(crate) fn last_outer(&self) -> Option<(Outer, u32)> {
        let outer = self.gso.outer?;
        let header_len = u32::from(self.gso.header_len);
        let size = u32::from(self.gso.size);
        let payload = self.total - header_len;
        let is_shorter = payload > size && !payload.is_multiple_of(size);
        (is_shorter && self.left() == 0).then_some((outer, header_len + payload % size))
    }

    /// Makes the outer headers those of a segment of `len` bytes. Returns `false` if they are not
    /// headers of IP.
    pub(crate) fn rewrite_outer(&self, outer: Outer, len: u32, headers: &mut [u8]) -> bool {
        rewrite(outer, &self.gso, self.common.pseudo, len, headers)
    }

    /// Returns the fields of the next segment. `None` if there are no more segments.
    #[inline(always)]
    pub(crate) fn next_fields(&mut self) -> Option<SegmentFields> {
        let first = self.index == 0;
        if self.next >= self.total && !first {
            return None;
        }
        let gso = self.gso;
        let common = self.common;
        let end = (self.next + u32::from(gso.size)).min(self.total);
        let transport_len = u32::from(gso.header_len - gso.l4) + (end - self.next);
        let pseudo = u32::from(common.pseudo) + (transport_len >> 16) + (transport_len & 0xffff);
        let datagram = u32::from(gso.l4 - gso.l3) + transport_len;
        // Extension headers count as payload (RFC 8200, 3).
        let network_len = low16(if gso.kind.is_v4() { datagram } else { datagram - 40 });
        let id = common.id.wrapping_add(self.index);
        let network_sum = !fold([common.network.into(), network_len.into(), id.into()]);
        // The sequence number counts payload bytes.
        let seq = common.seq.wrapping_add(self.next - u32::from(gso.header_len));
        let flags = common.flags(first, end == self.total);
        let changed = if gso.kind.is_tcp() {
            (seq >> 16) + (seq & 0xffff) + u32::from(u16::from_be_bytes(flags))
        } else {
            transport_len & 0xffff
        };
        // A sum of a few words is far below 2^32.
        let transport_sum = u32::from(common.transport) + changed + pseudo;
        let payload = self.next..end;
        self.next = end;
        self.index = self.index.wrapping_add(1);
        let transport_len = low16(transport_len);
        Some(SegmentFields { payload, transport_sum, pseudo, network_len, transport_len, id, network_sum, seq, flags })
    }

    /// Returns the offsets and the kind of the packet's headers.
    pub(crate) fn gso(&self) -> Gso {
        self.gso
    }
}

impl SegmentFields {
    /// Writes these fields into headers that begin at `at`, without the transport checksum.
    #[inline(always)]
    pub(crate) fn put(&self, gso: &Gso, at: u32, headers: &mut (impl HeaderWriter + ?Sized)) {
        let ip = at + u32::from(gso.l3);
        let transport = at + u32::from(gso.l4);
        match gso.kind {
            GsoKind::Tcp4 | GsoKind::Udp4 => {
                headers.put4(ip + 2, pair(self.network_len, self.id));
                headers.put2(ip + 10, self.network_sum.to_be_bytes());
            }
            GsoKind::Tcp6 | GsoKind::Udp6 => headers.put2(ip + 4, self.network_len.to_be_bytes()),
        }
        match gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                headers.put4(transport + 4, self.seq.to_be_bytes());
                headers.put2(transport + 12, self.flags);
            }
            GsoKind::Udp4 | GsoKind::Udp6 => headers.put2(transport + 4, self.transport_len.to_be_bytes()),
        }
    }

    /// Writes the pseudo header's sum into the transport checksum field.
    #[inline(always)]
    pub(crate) fn put_pseudo(&self, gso: &Gso, at: u32, headers: &mut (impl HeaderWriter + ?Sized)) {
        headers.put2(
            at + u32::from(gso.l4) + u32::from(gso.kind.checksum_offset()),
            fold([self.pseudo, 0, 0]).to_be_bytes(),
        );
    }
}

/// Returns the bytes of two words, one behind the other.
fn pair(first: u16, second: u16) -> [u8; 4] {
    (u32::from(first) << 16 | u32::from(second)).to_be_bytes()
}

impl CommonFields {
    /// Sums the headers of an unsegmented packet. The pseudo header is defined in RFC 9293, 3.1,
    /// and RFC 8200, 8.1.
    fn of(gso: &Gso, headers: &[u8]) -> Self {
        let ip = &headers[usize::from(gso.l3)..];
        let transport = &headers[usize::from(gso.l4)..];
        let word = |of: &[u8], at: usize| u16::from_be_bytes([of[at], of[at + 1]]);
        let sum = |parts: [&[u8]; 3]| fold(parts.map(|part| u32::from(checksum::sum(part))));
        let mut common = CommonFields::default();
        let addresses = match gso.kind {
            GsoKind::Tcp4 | GsoKind::Udp4 => {
                common.id = word(ip, 4);
                common.network = sum([&ip[..2], &ip[6..10], &ip[12..usize::from(gso.l4 - gso.l3)]]);
                &ip[12..20]
            }
            GsoKind::Tcp6 | GsoKind::Udp6 => &ip[8..40],
        };
        let protocol = match gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                common.seq = u32::from(word(transport, 4)) << 16 | u32::from(word(transport, 6));
                common.flags = [transport[12], transport[13]];
                common.transport = sum([&transport[..4], &transport[8..12], &transport[14..16]]);
                common.transport = fold([common.transport.into(), checksum::sum(&transport[18..]).into(), 0]);
                6
            }
            GsoKind::Udp4 | GsoKind::Udp6 => {
                common.transport = checksum::sum(&transport[..4]);
                17
            }
        };
        common.pseudo = fold([checksum::sum(addresses).into(), protocol, 0]);
        common
    }

    /// Returns the flags of a segment. FIN and PSH belong to the last segment, CWR to the first
    /// (RFC 3168, 6.1.2).
    #[inline(always)]
    fn flags(&self, first: bool, last: bool) -> [u8; 2] {
        let [before, mut flags] = self.flags;
        if !last {
            flags &= !(TCP_FIN | TCP_PSH);
        }
        if !first {
            flags &= !TCP_CWR;
        }
        [before, flags]
    }
}

/// Returns the one's complement sum of three words or of three sums of words. The sum is 0 only if
/// all three are 0.
pub(crate) fn fold(words: [u32; 3]) -> u16 {
    // The sum of folded words is below 2^18: after the first step the carry is at most 3, after the
    // second it is 0.
    let sum: u32 = words.iter().sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    low16((sum & 0xffff) + (sum >> 16))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths of segments and folded sums fit 16 bits; a header field keeps the low 16 bits"
)]
pub(crate) fn low16(n: u32) -> u16 {
    n as u16
}
