//! Cutting a packet into the segments that it stands for (TSO, USO): headers are made anew for each piece, the payload
//! is read in place, again and again from the same body.
//!
//! What changes from piece to piece: the IP length, the IPv4 identification and header checksum, the TCP sequence
//! number and flags, the UDP length. The transport checksum's field gets the piece's pseudo-header sum and is left
//! partial, to be finished by whoever delivers or to be passed on. What does not change is summed once, for the first
//! piece; the sums of a piece's headers are made of that and of what changes (as RFC 1624 does it for one field).

use std::ops::Range;

use straightline_wire::checksum;

use crate::{Checksum, Gso, GsoKind, HEADROOM, slot::HEAD_MAX};

/// The longest headers that can be made anew: what a head can hold.
pub const MAX_HEADERS: usize = HEAD_MAX;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// One segment: its headers, and which bytes of the packet are its payload.
#[derive(Debug)]
pub struct Piece {
    bytes: [u8; HEADROOM + MAX_HEADERS],
    headers: u16,
    payload: Range<u32>,
    checksum: Checksum,
    /// The sum of its transport header, with the pseudo header's sum in the checksum's field.
    transport_sum: u16,
}

impl Default for Piece {
    fn default() -> Self {
        Piece {
            bytes: [0; HEADROOM + MAX_HEADERS],
            headers: 0,
            payload: 0..0,
            checksum: Checksum::Complete,
            transport_sum: 0,
        }
    }
}

impl Piece {
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
    pub(crate) fn transport_sum(&self) -> u16 {
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

/// What the headers of all pieces have in common: sums of what does not change, and what changes as it begins.
#[derive(Clone, Copy, Debug, Default)]
struct Common {
    /// Of an IPv4 header, without its length, identification and checksum.
    network: u16,
    /// Of the pseudo header, without its length.
    pseudo: u16,
    /// Of a TCP header without its sequence number, flags and checksum; of a UDP header, its ports.
    transport: u16,
    id: u16,
    seq: u32,
    flags: u8,
}

/// A plan of all pieces of one packet.
#[derive(Clone, Debug)]
pub struct Segmenter {
    gso: Gso,
    total: u32,
    next: u32,
    index: u16,
    common: Common,
}

impl Segmenter {
    /// Cuts a packet of `total` bytes. Its headers lie within the head and were checked when the packet came in:
    /// `l3 + 20 (40) <= l4`, and a whole TCP or UDP header between `l4` and `header_len`. `None` where the numbers do
    /// not fit.
    pub fn new(gso: Gso, total: u32) -> Option<Self> {
        let Gso { l3, l4, .. } = gso;
        // What the length field of the IP header cannot say is no packet: IPv4's counts its own header, IPv6's does
        // not. That also bounds the pieces: there are less than 65536.
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
        let (next, index, common) = (u32::from(gso.header_len), 0, Common::default());
        fits.then_some(Segmenter { gso, total, next, index, common })
    }

    /// How many pieces there are in all; a packet without payload is one.
    pub fn count(&self) -> u32 {
        (self.total - u32::from(self.gso.header_len)).div_ceil(u32::from(self.gso.size)).max(1)
    }

    /// Makes the next piece out of the one before, which is to be as it was made, but for the bytes in front of its
    /// headers; `head` is the packet's head. `false` when all are done.
    pub fn next(&mut self, head: &[u8], piece: &mut Piece) -> bool {
        let headers = usize::from(self.gso.header_len);
        let first = self.index == 0;
        if (self.next >= self.total && !first) || head.len() < headers {
            return false;
        }
        let end = (self.next + u32::from(self.gso.size)).min(self.total);
        let last = end == self.total;
        debug_assert!(first || piece.payload.end == self.next, "this is not the piece before");
        piece.headers = self.gso.header_len;
        piece.payload = self.next..end;
        let bytes = &mut piece.bytes[HEADROOM..HEADROOM + headers];
        if first {
            bytes.copy_from_slice(&head[..headers]);
            self.common = Common::of(&self.gso, bytes);
        }
        let payload = end - self.next;
        let transport_len = u32::from(self.gso.header_len - self.gso.l4) + payload;
        self.network(bytes, transport_len);
        let pseudo = fold([self.common.pseudo.into(), transport_len >> 16, transport_len & 0xffff]);
        let transport = &mut bytes[usize::from(self.gso.l4)..];
        let (changed, offset) = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => (self.tcp(transport, first, last), 16),
            GsoKind::Udp4 | GsoKind::Udp6 => {
                transport[4..6].copy_from_slice(&low16(transport_len).to_be_bytes());
                (low16(transport_len), 6)
            }
        };
        transport[usize::from(offset)..][..2].copy_from_slice(&pseudo.to_be_bytes());
        piece.transport_sum = fold([self.common.transport.into(), changed.into(), pseudo.into()]);
        piece.checksum = Checksum::Partial { start: self.gso.l4, offset };
        self.next = end;
        self.index = self.index.wrapping_add(1);
        true
    }

    /// The sequence number goes on with the payload; FIN and PSH belong to the last segment, CWR to the first
    /// (RFC 3168, 6.1.2). Returns the sum of what changes.
    fn tcp(&self, tcp: &mut [u8], first: bool, last: bool) -> u16 {
        let seq = self.common.seq.wrapping_add(self.next - u32::from(self.gso.header_len));
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        let mut flags = self.common.flags;
        if !last {
            flags &= !(TCP_FIN | TCP_PSH);
        }
        if !first {
            flags &= !TCP_CWR;
        }
        tcp[13] = flags;
        fold([seq >> 16, seq & 0xffff, flags.into()])
    }

    /// Sets the network header's length and, for IPv4, identification and checksum.
    fn network(&self, bytes: &mut [u8], transport_len: u32) {
        let (l3, l4) = (usize::from(self.gso.l3), usize::from(self.gso.l4));
        let ip = &mut bytes[l3..l4];
        let whole = u32::from(self.gso.l4 - self.gso.l3) + transport_len;
        match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Udp4 => {
                let (len, id) = (low16(whole), self.common.id.wrapping_add(self.index));
                let sum = !fold([self.common.network.into(), len.into(), id.into()]);
                ip[2..4].copy_from_slice(&len.to_be_bytes());
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            // Extension headers count as payload (RFC 8200, 3).
            GsoKind::Tcp6 | GsoKind::Udp6 => ip[4..6].copy_from_slice(&low16(whole - 40).to_be_bytes()),
        }
    }
}

impl Common {
    /// Of the headers of a packet that is to be cut. The pseudo header is that of RFC 9293, 3.1, and RFC 8200, 8.1.
    fn of(gso: &Gso, headers: &[u8]) -> Self {
        let (ip, transport) = (&headers[usize::from(gso.l3)..], &headers[usize::from(gso.l4)..]);
        let word = |of: &[u8], at: usize| u16::from_be_bytes([of[at], of[at + 1]]);
        let sum = |parts: [&[u8]; 3]| fold(parts.map(|part| u32::from(checksum::sum(part))));
        let mut common = Common::default();
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
                common.flags = transport[13];
                common.transport = sum([&transport[..4], &transport[8..13], &transport[14..16]]);
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
    reason = "lengths of pieces and folded sums fit 16 bits; what a header of 16 bits cannot say is cut"
)]
pub(crate) fn low16(n: u32) -> u16 {
    n as u16
}
