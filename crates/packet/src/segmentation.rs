//! Cutting a packet into the segments that it stands for (TSO, USO): headers are made anew for each segment, the payload
//! is read in place, again and again from the same body.
//!
//! What changes from segment to segment: the IP length, the IPv4 identification and header checksum, the TCP sequence
//! number and flags, the UDP length. The transport checksum's field gets the segment's pseudo-header sum and is left
//! partial, to be finished by whoever delivers or to be passed on. What does not change is summed once, for the first
//! segment; the sums of a segment's headers are made of that and of what changes (as RFC 1624 does it for one field).

use std::ops::Range;

use straightline_wire::checksum;

use crate::{Checksum, Gso, GsoKind, HEADROOM, MemorySegment, slot::HEAD_MAX};

/// The longest headers that can be made anew: what a head can hold.
pub const MAX_HEADERS: usize = HEAD_MAX;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// One segment: its headers, and which bytes of the packet are its payload.
#[derive(Debug)]
pub struct GsoSegment {
    bytes: [u8; HEADROOM + MAX_HEADERS],
    headers: u16,
    payload: Range<u32>,
    checksum: Checksum,
    /// The sum of its transport header, with the pseudo header's sum in the checksum's field; not folded.
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
    /// Its headers with `N` bytes in front of them.
    pub(crate) fn front<const N: usize>(&self) -> &[u8] {
        const { assert!(N <= HEADROOM) };
        &self.bytes[HEADROOM - N..HEADROOM + usize::from(self.headers)]
    }

    /// Makes it one of these headers, and returns them, to be changed.
    pub(crate) fn begin(&mut self, len: u16, headers: &[u8]) -> &mut [u8] {
        self.headers = len;
        let bytes = &mut self.bytes[HEADROOM..HEADROOM + usize::from(len)];
        bytes.copy_from_slice(headers);
        bytes
    }

    /// The sum of its transport header and of the pseudo header.
    pub(crate) fn transport_sum(&self) -> u32 {
        self.transport_sum
    }

    /// The `N` bytes in front of its headers, for a header that the destination wants there.
    pub fn prefix_mut<const N: usize>(&mut self) -> &mut [u8; N] {
        const { assert!(N <= HEADROOM) };
        (&mut self.bytes[HEADROOM - N..HEADROOM]).try_into().expect("the range has N bytes")
    }

    /// Its headers.
    pub fn headers(&self) -> &[u8] {
        &self.bytes[HEADROOM..HEADROOM + usize::from(self.headers)]
    }

    /// Its payload, as places in the packet that is cut.
    pub fn payload(&self) -> Range<u32> {
        self.payload.clone()
    }

    /// Bytes of the whole frame.
    pub fn len(&self) -> u32 {
        u32::from(self.headers) + (self.payload.end - self.payload.start)
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is left to do for its checksum.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }
}

/// What the headers of all segments have in common: sums of what does not change, and what changes as it begins.
#[derive(Clone, Copy, Debug, Default)]
struct CommonFields {
    /// Of an IPv4 header, without its length, identification and checksum.
    network: u16,
    /// Of the pseudo header, without its length.
    pseudo: u16,
    /// Of a TCP header without its sequence number, flags (with the byte before them) and checksum; of a UDP header, its
    /// ports.
    transport: u16,
    id: u16,
    seq: u32,
    /// With the byte before them, which has the header's length.
    flags: [u8; 2],
}

/// What the headers of one segment say, where those of another say something else.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFields {
    /// Which bytes of the packet are its payload.
    pub(crate) payload: Range<u32>,
    /// The sum of its transport header, with the pseudo header's sum in the checksum's field; not folded.
    pub(crate) transport_sum: u32,
    /// The pseudo header's sum, not folded.
    pseudo: u32,
    /// As the IP header says it, and as UDP's does.
    network_len: u16,
    transport_len: u16,
    id: u16,
    network_sum: u16,
    seq: u32,
    flags: [u8; 2],
}

/// Where headers are changed: in memory of ours, or already in the buffer that they are for.
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

/// A plan of all segments of one packet.
#[derive(Clone, Debug)]
pub struct Segmenter {
    gso: Gso,
    total: u32,
    next: u32,
    index: u16,
    common: CommonFields,
}

impl Segmenter {
    /// Cuts a packet of `total` bytes. Its headers lie within the head and were checked when the packet came in:
    /// `l3 + 20 (40) <= l4`, and a whole TCP or UDP header between `l4` and `header_len`. `None` where the numbers do
    /// not fit.
    pub fn new(gso: Gso, total: u32) -> Option<Self> {
        let Gso { l3, l4, .. } = gso;
        // What the length field of the IP header cannot say is no packet: IPv4's counts its own header, IPv6's does
        // not. That also bounds the segments: there are less than 65536.
        let (network, longest) =
            if matches!(gso.kind, GsoKind::Tcp4 | GsoKind::Udp4) { (20, 65_535) } else { (40, 65_535 + 40) };
        let transport = if matches!(gso.kind, GsoKind::Tcp4 | GsoKind::Tcp6) { 20 } else { 8 };
        let fits = l3.checked_add(network)? <= l4
            && l4.checked_add(transport)? <= gso.header_len
            && usize::from(gso.header_len) <= MAX_HEADERS
            // Sums of headers of an odd length could not be added to that of what follows.
            && (gso.header_len - gso.l4).is_multiple_of(2)
            && u32::from(gso.header_len) <= total
            && total - u32::from(l3) <= longest
            && gso.size > 0;
        let (next, index, common) = (u32::from(gso.header_len), 0, CommonFields::default());
        fits.then_some(Segmenter { gso, total, next, index, common })
    }

    /// How many segments there are in all; a packet without payload is one.
    pub fn count(&self) -> u32 {
        (self.total - u32::from(self.gso.header_len)).div_ceil(u32::from(self.gso.size)).max(1)
    }

    /// How many are still to be made.
    pub fn left(&self) -> u32 {
        match self.index {
            0 => self.count(),
            _ => (self.total - self.next).div_ceil(u32::from(self.gso.size)),
        }
    }

    /// Where in the packet the payload of the next segment begins.
    pub(crate) fn position(&self) -> u32 {
        self.next
    }

    /// Bytes of the frame that comes after `nth` others; there are as many left.
    #[inline]
    pub fn len_of(&self, nth: u32) -> u32 {
        let size = u32::from(self.gso.size);
        u32::from(self.gso.header_len) + size.min((self.total - self.next).saturating_sub(nth.saturating_mul(size)))
    }

    /// Where the checksum's field is.
    pub fn checksum(&self) -> Checksum {
        Checksum::Partial { start: self.gso.l4, offset: low16(checksum_offset(self.gso.kind)) }
    }

    /// Makes the next segment. The first one makes all of `segment`; each further one needs the bytes of a segment of this packet,
    /// of which it makes anew what may differ, but for those in front of the headers. `head` is the packet's head. `false`
    /// when all are done.
    pub fn next(&mut self, head: &[u8], segment: &mut GsoSegment) -> bool {
        if !self.begin(head, segment) {
            return false;
        }
        let Some(fields) = self.next_fields() else { return false };
        let headers = &mut segment.bytes[HEADROOM..HEADROOM + usize::from(segment.headers)];
        fields.put(&self.gso, 0, headers);
        fields.put_pseudo(&self.gso, 0, headers);
        segment.transport_sum = fields.transport_sum;
        segment.checksum = self.checksum();
        segment.payload = fields.payload;
        true
    }

    /// Before the first segment, gives `segment` the headers of the packet. `false` where they are not all in its head.
    pub fn begin(&mut self, head: &[u8], segment: &mut GsoSegment) -> bool {
        if self.index == 0 {
            let Some(headers) = head.get(..usize::from(self.gso.header_len)) else { return false };
            self.common = CommonFields::of(&self.gso, segment.begin(self.gso.header_len, headers));
        }
        true
    }

    /// What the next segment says; `None` when all are done.
    #[inline(always)]
    pub(crate) fn next_fields(&mut self) -> Option<SegmentFields> {
        let first = self.index == 0;
        if self.next >= self.total && !first {
            return None;
        }
        let (gso, common) = (self.gso, self.common);
        let end = (self.next + u32::from(gso.size)).min(self.total);
        let transport_len = u32::from(gso.header_len - gso.l4) + (end - self.next);
        let pseudo = u32::from(common.pseudo) + (transport_len >> 16) + (transport_len & 0xffff);
        let datagram = u32::from(gso.l4 - gso.l3) + transport_len;
        // Extension headers count as payload (RFC 8200, 3).
        let network_len = low16(if self.is_v4() { datagram } else { datagram - 40 });
        let id = common.id.wrapping_add(self.index);
        let network_sum = !fold([common.network.into(), network_len.into(), id.into()]);
        // The sequence number goes on with the payload.
        let seq = common.seq.wrapping_add(self.next - u32::from(gso.header_len));
        let flags = common.flags(first, end == self.total);
        let changed = match self.is_tcp() {
            true => (seq >> 16) + (seq & 0xffff) + u32::from(u16::from_be_bytes(flags)),
            false => transport_len & 0xffff,
        };
        // A few words: far from what 32 bits hold.
        let transport_sum = u32::from(common.transport) + changed + pseudo;
        let payload = self.next..end;
        self.next = end;
        self.index = self.index.wrapping_add(1);
        let transport_len = low16(transport_len);
        Some(SegmentFields { payload, transport_sum, pseudo, network_len, transport_len, id, network_sum, seq, flags })
    }

    fn is_tcp(&self) -> bool {
        matches!(self.gso.kind, GsoKind::Tcp4 | GsoKind::Tcp6)
    }

    fn is_v4(&self) -> bool {
        matches!(self.gso.kind, GsoKind::Tcp4 | GsoKind::Udp4)
    }

    /// What has to be known of the packet to change its headers where they are.
    pub(crate) fn gso(&self) -> Gso {
        self.gso
    }
}

impl SegmentFields {
    /// Changes headers that begin at `at`, but for the checksum's field.
    #[inline(always)]
    pub(crate) fn put(&self, gso: &Gso, at: u32, headers: &mut (impl HeaderWriter + ?Sized)) {
        let (ip, transport) = (at + u32::from(gso.l3), at + u32::from(gso.l4));
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

    /// The checksum's field gets the pseudo header's sum.
    #[inline(always)]
    pub(crate) fn put_pseudo(&self, gso: &Gso, at: u32, headers: &mut (impl HeaderWriter + ?Sized)) {
        headers.put2(at + u32::from(gso.l4) + checksum_offset(gso.kind), fold([self.pseudo, 0, 0]).to_be_bytes());
    }
}

/// Where in a transport header the checksum is.
fn checksum_offset(kind: GsoKind) -> u32 {
    if matches!(kind, GsoKind::Tcp4 | GsoKind::Tcp6) { 16 } else { 6 }
}

/// Two words, one after the other.
fn pair(first: u16, second: u16) -> [u8; 4] {
    (u32::from(first) << 16 | u32::from(second)).to_be_bytes()
}

impl CommonFields {
    /// Of the headers of a packet that is to be cut. The pseudo header is that of RFC 9293, 3.1, and RFC 8200, 8.1.
    fn of(gso: &Gso, headers: &[u8]) -> Self {
        let (ip, transport) = (&headers[usize::from(gso.l3)..], &headers[usize::from(gso.l4)..]);
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

    /// FIN and PSH belong to the last segment, CWR to the first (RFC 3168, 6.1.2).
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

/// The one's complement sum of three words or sums of words. It is 0 only where all are.
pub(crate) fn fold(words: [u32; 3]) -> u16 {
    // Below 2^18, so that after the first step the carry is at most 3, and after the second there is none.
    let sum: u32 = words.iter().sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    low16((sum & 0xffff) + (sum >> 16))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths of segments and folded sums fit 16 bits; what a header of 16 bits cannot say is cut"
)]
pub(crate) fn low16(n: u32) -> u16 {
    n as u16
}
