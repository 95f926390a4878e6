//! Cutting a packet into the segments that it stands for (TSO, USO): headers are made anew for each piece, the payload
//! is read in place, again and again from the same body.
//!
//! What changes from piece to piece: the IP length, the IPv4 identification and header checksum, the TCP sequence
//! number and flags, the UDP length. The transport checksum's field gets the piece's pseudo-header sum and is left
//! partial, to be finished by whoever delivers or to be passed on.

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
}

impl Default for Piece {
    fn default() -> Self {
        Piece { bytes: [0; HEADROOM + MAX_HEADERS], headers: 0, payload: 0..0, checksum: Checksum::Complete }
    }
}

impl Piece {
    /// Its headers with `N` bytes in front of them.
    pub(crate) fn front_mut<const N: usize>(&mut self) -> &mut [u8] {
        const { assert!(N <= HEADROOM) };
        &mut self.bytes[HEADROOM - N..HEADROOM + usize::from(self.headers)]
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

/// A plan of all pieces of one packet.
#[derive(Clone, Debug)]
pub struct Segmenter {
    gso: Gso,
    total: u32,
    next: u32,
    index: u16,
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
            && u32::from(gso.header_len) <= total
            && total - u32::from(l3) <= longest
            && gso.size > 0;
        fits.then_some(Segmenter { gso, total, next: u32::from(gso.header_len), index: 0 })
    }

    /// How many pieces there are in all; a packet without payload is one.
    pub fn count(&self) -> u32 {
        (self.total - u32::from(self.gso.header_len)).div_ceil(u32::from(self.gso.size)).max(1)
    }

    /// Makes the next piece; `head` is the packet's head. `false` when all are done.
    pub fn next(&mut self, head: &[u8], piece: &mut Piece) -> bool {
        let headers = usize::from(self.gso.header_len);
        let first = self.index == 0;
        if (self.next >= self.total && !first) || head.len() < headers {
            return false;
        }
        let end = (self.next + u32::from(self.gso.size)).min(self.total);
        let last = end == self.total;
        piece.headers = self.gso.header_len;
        piece.payload = self.next..end;
        let bytes = &mut piece.bytes[HEADROOM..HEADROOM + headers];
        bytes.copy_from_slice(&head[..headers]);
        let sent = self.next - u32::from(self.gso.header_len);
        let payload = end - self.next;
        let offset = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                self.tcp(&mut bytes[usize::from(self.gso.l4)..], sent, first, last);
                16
            }
            GsoKind::Udp4 | GsoKind::Udp6 => {
                let len = low16(u32::from(self.gso.header_len - self.gso.l4) + payload);
                bytes[usize::from(self.gso.l4) + 4..][..2].copy_from_slice(&len.to_be_bytes());
                6
            }
        };
        let pseudo = self.network(bytes, payload);
        bytes[usize::from(self.gso.l4 + offset)..][..2].copy_from_slice(&pseudo.to_be_bytes());
        piece.checksum = Checksum::Partial { start: self.gso.l4, offset };
        self.next = end;
        self.index = self.index.wrapping_add(1);
        true
    }

    /// The sequence number goes on with the payload; FIN and PSH belong to the last segment, CWR to the first
    /// (RFC 3168, 6.1.2).
    fn tcp(&self, tcp: &mut [u8], sent: u32, first: bool, last: bool) {
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(sent);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if !first {
            tcp[13] &= !TCP_CWR;
        }
    }

    /// Sets the network header's length (and, for IPv4, identification and checksum); returns the folded sum of the
    /// pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
    fn network(&self, bytes: &mut [u8], payload: u32) -> u16 {
        let (l3, l4) = (usize::from(self.gso.l3), usize::from(self.gso.l4));
        let transport_len = u32::from(self.gso.header_len - self.gso.l4) + payload;
        let protocol = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => 6,
            GsoKind::Udp4 | GsoKind::Udp6 => 17,
        };
        let addresses = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Udp4 => {
                let ip = &mut bytes[l3..l4];
                let len = low16(u32::from(self.gso.l4 - self.gso.l3) + transport_len);
                ip[2..4].copy_from_slice(&len.to_be_bytes());
                let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(self.index);
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[10..12].fill(0);
                let sum = !checksum::sum(ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                12..20
            }
            GsoKind::Tcp6 | GsoKind::Udp6 => {
                let ip = &mut bytes[l3..l4];
                // Extension headers count as payload (RFC 8200, 3).
                let len = low16(u32::from(self.gso.l4 - self.gso.l3) - 40 + transport_len);
                ip[4..6].copy_from_slice(&len.to_be_bytes());
                8..40
            }
        };
        let addresses = &bytes[l3 + addresses.start..l3 + addresses.end];
        pseudo_sum(addresses, protocol, transport_len)
    }
}

/// The folded sum of addresses, protocol and transport length.
fn pseudo_sum(addresses: &[u8], protocol: u32, len: u32) -> u16 {
    let words = addresses.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum = words.sum::<u32>() + protocol + (len >> 16) + (len & 0xffff);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    low16(sum)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths of pieces and folded sums fit 16 bits; what a header of 16 bits cannot say is cut"
)]
fn low16(n: u32) -> u16 {
    n as u16
}
