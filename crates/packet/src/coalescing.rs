//! Coalescing (GRO): makes one unsegmented packet of consecutive TCP segments, for a receiver that
//! takes such packets. It is the inverse of [`Segmenter`](crate::Segmenter).
//!
//! Segments are coalesced only if segmentation would give back the same segments:
//!
//! - All have one size. The last one may be shorter.
//! - They follow each other without a gap.
//! - Their headers differ only in fields that follow from the position: IP length, IPv4
//!   identification and header checksum, sequence number, checksum, and PSH in the last one.
//!
//! A packet ends with a segment that has PSH or is shorter. Segments with SYN, FIN, RST, URG or
//! CWR, fragments, and segments with IP options or extension headers are left alone. Linux's GRO
//! asks for less: it accepts identifications that do not count up if "don't fragment" is set, IPv4
//! options, and windows that differ.
//!
//! Only segments with partial checksums are coalesced. Their field was checked to hold the pseudo
//! header's sum, so an error in the payload would be the sender's own. A finished checksum could be
//! verified only after all bytes were copied. Coalescing comes earlier and would remove a wrong
//! checksum, so the receiver could not detect the error.

use straightline_wire::geometry::{self, Layers};
use straightline_wire::{IpProtocol, IpVersion, checksum};

use crate::segmentation::{fold, low16};
use crate::{Checksum, Gso, GsoKind, GsoSegment, MAX_FRAME, Offload, PacketId, Turn};

const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;
const TCP_ECE: u8 = 0x40;

/// Offset of the checksum in a TCP header.
const CHECKSUM: u16 = 16;

/// A run: consecutive packets that are delivered as one. It has the state to add packets, and the
/// headers of the coalesced packet.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    gso: Gso,
    /// Bytes of the coalesced packet so far.
    len: u32,
    /// Sequence number that the next segment must have.
    seq: u32,
    /// IPv4 identification that the next segment must have.
    id: u16,
    /// Sum of the IPv4 header without length, identification and checksum.
    network: u16,
    /// Sum of the pseudo header without the length.
    pseudo: u16,
    /// TCP flags of the last segment.
    flags: u8,
    /// True if no segment may follow: the last one had PSH or was shorter.
    is_ended: bool,
}

/// Returns the 16-bit word at an offset of a header.
fn word(of: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([of[at], of[at + 1]])
}

fn sequence(tcp: &[u8]) -> u32 {
    u32::from(word(tcp, 4)) << 16 | u32::from(word(tcp, 6))
}

/// The headers of two packets, which have the same length.
#[derive(Clone, Copy)]
struct HeaderPair<'a> {
    first: &'a [u8],
    head: &'a [u8],
}

impl HeaderPair<'_> {
    /// Returns whether both have the same `N` bytes at offset `at`.
    #[inline]
    fn at<const N: usize>(self, at: usize) -> bool {
        self.first[at..at + N] == self.head[at..at + N]
    }
}

impl Run {
    /// Begins a run with one packet of `len` bytes. `None` if no other packet can follow it.
    pub fn begin(head: &[u8], len: u32, offload: Offload) -> Option<Run> {
        let Checksum::Partial { start, offset: CHECKSUM } = offload.checksum else { return None };
        let layers = geometry::locate(head).ok()?;
        let Layers { l3, l4, version, l4_len, .. } = layers;
        let kind = match version {
            IpVersion::V4 if l4 == l3 + 20 => GsoKind::Tcp4,
            IpVersion::V6 if l4 == l3 + 40 => GsoKind::Tcp6,
            _ => return None,
        };
        // Other protocols may have fewer bytes than a TCP header.
        if layers.protocol != IpProtocol::TCP || layers.fragment || start != l4 {
            return None;
        }
        let payload = len.checked_sub(layers.headers_len().into())?;
        let size = u16::try_from(payload).ok()?;
        let (ip, tcp) = (&head[usize::from(l3)..usize::from(l4)], &head[usize::from(l4)..]);
        // "Don't fragment" is the only flag of IPv4 that may be set.
        let is_unfragmented = kind == GsoKind::Tcp6 || word(ip, 6) & !0x4000 == 0;
        let is_plain = tcp[13] & !TCP_ECE == TCP_ACK && tcp[12] & 0x0f == 0;
        // A segment size that `NetHeader::check` refuses from a guest must not be sent to a guest
        // either.
        if !is_unfragmented || !is_plain || size < l4_len {
            return None;
        }
        let gso = Gso { kind, ecn: false, size, l3, l4, header_len: layers.headers_len() };
        let addresses = if kind == GsoKind::Tcp4 { &ip[12..20] } else { &ip[8..40] };
        let pseudo = fold([checksum::sum(addresses).into(), 6, 0]);
        let seq = sequence(tcp).wrapping_add(payload);
        let (id, network) = match kind {
            GsoKind::Tcp4 => {
                let [front, middle, addresses] =
                    [&ip[..2], &ip[6..10], &ip[12..]].map(|part| checksum::sum(part).into());
                (word(ip, 4), fold([front, middle, addresses]))
            }
            _ => (0, 0),
        };
        let run = Run { gso, len, seq, id, network, pseudo, flags: tcp[13], is_ended: false };
        run.matches_length(head, len).then_some(Run { id: id.wrapping_add(1), ..run })
    }

    /// Returns whether `head` has the identification, lengths and checksums that the run's next
    /// packet must have. That packet has `len` bytes.
    #[inline]
    fn matches_length(&self, head: &[u8], len: u32) -> bool {
        let (l3, l4) = (usize::from(self.gso.l3), usize::from(self.gso.l4));
        let network = match self.gso.kind {
            GsoKind::Tcp4 => {
                let told = word(head, l3 + 2);
                u32::from(told) == len - u32::from(self.gso.l3)
                    && word(head, l3 + 4) == self.id
                    && word(head, l3 + 10) == !fold([self.network.into(), told.into(), self.id.into()])
            }
            _ => u32::from(word(head, l3 + 4)) == len - u32::from(self.gso.l4),
        };
        network && word(head, l4 + 16) == self.transport_sum(len)
    }

    /// Returns the sum of the pseudo header of a packet of `len` bytes.
    fn transport_sum(&self, len: u32) -> u16 {
        let transport = len - u32::from(self.gso.l4);
        fold([self.pseudo.into(), transport >> 16, transport & 0xffff])
    }

    /// Adds a packet if it is the next one of the run. `first` is the head of the run's first
    /// packet. Returns whether the packet was added.
    pub fn join(&mut self, first: &[u8], head: &[u8], len: u32, offload: Offload) -> bool {
        let Gso { kind, size, l3, l4, header_len, .. } = self.gso;
        let alike = Offload { checksum: Checksum::Partial { start: l4, offset: CHECKSUM }, gso: None };
        let headers = usize::from(header_len);
        let (Some(first), Some(head)) = (first.get(..headers), head.get(..headers)) else { return false };
        let Some(payload @ 1..) = len.checked_sub(header_len.into()) else { return false };
        // The length field of the IP header must be able to hold the length. The field of IPv4
        // counts its own header. And no port accepts a longer frame, not even from a guest that
        // forwards received packets.
        let longest = MAX_FRAME.min(65_535 + u32::from(if kind == GsoKind::Tcp4 { l3 } else { l4 }));
        if self.is_ended || offload != alike || payload > size.into() || self.len + payload > longest {
            return false;
        }
        let (l3, l4) = (usize::from(l3), usize::from(l4));
        let same = HeaderPair { first, head };
        let network = match kind {
            GsoKind::Tcp4 => same.at::<2>(l3) && same.at::<4>(l3 + 6) && same.at::<8>(l3 + 12),
            _ => same.at::<4>(l3) && same.at::<34>(l3 + 6),
        };
        let flags = head[l4 + 13];
        let transport = same.at::<4>(l4)
            && sequence(&head[l4..]) == self.seq
            && same.at::<5>(l4 + 8)
            && flags & !TCP_PSH == first[l4 + 13]
            && same.at::<2>(l4 + 14);
        // Behind the checksum: the urgent pointer, and options, which mostly are time stamps or
        // none.
        let rest = match headers - l4 {
            20 => same.at::<2>(l4 + 18),
            32 => same.at::<14>(l4 + 18),
            _ => first[l4 + 18..] == head[l4 + 18..],
        };
        if !same.at::<14>(0)
            || first[14..l3] != head[14..l3]
            || !network
            || !rest
            || !transport
            || !self.matches_length(head, len)
        {
            return false;
        }
        self.len += payload;
        self.seq = self.seq.wrapping_add(payload);
        self.id = self.id.wrapping_add(1);
        self.flags = flags;
        self.is_ended = payload < u32::from(size) || flags & TCP_PSH != 0;
        true
    }

    /// Makes the headers of the coalesced packet. `first` is the head of the first packet.
    pub fn headers(&self, first: &[u8], segment: &mut GsoSegment) {
        let Gso { kind, l3, l4, header_len, .. } = self.gso;
        let (l3, l4) = (usize::from(l3), usize::from(l4));
        let bytes = segment.begin(header_len, &first[..usize::from(header_len)]);
        match kind {
            GsoKind::Tcp4 => {
                bytes[l3 + 2..l3 + 4].copy_from_slice(&low16(self.len - u32::from(self.gso.l3)).to_be_bytes());
                bytes[l3 + 10..l3 + 12].fill(0);
                let sum = !checksum::sum(&bytes[l3..l4]);
                bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
            }
            _ => bytes[l3 + 4..l3 + 6].copy_from_slice(&low16(self.len - u32::from(self.gso.l4)).to_be_bytes()),
        }
        bytes[l4 + 13] = self.flags;
        bytes[l4 + 16..l4 + 18].copy_from_slice(&self.transport_sum(self.len).to_be_bytes());
    }

    /// Returns the length of the coalesced packet.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the run has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how the coalesced packet is to be segmented.
    pub fn gso(&self) -> Gso {
        self.gso
    }

    /// Returns what is left to do for the coalesced packet.
    pub fn offload(&self) -> Offload {
        let checksum = Checksum::Partial { start: self.gso.l4, offset: CHECKSUM };
        Offload { checksum, gso: Some(self.gso) }
    }
}

impl Turn<'_> {
    /// Coalesces packets, from the first on. Returns the run and the number of its packets, or
    /// `None` if the second packet cannot follow the first. In most cases these two packets decide.
    #[inline]
    pub fn coalesce(&self, ids: &[PacketId]) -> Option<(Run, usize)> {
        let &[first, second, ..] = ids else { return None };
        let offload = self.offload(first);
        if offload.checksum == Checksum::Complete
            || offload.gso.is_some()
            || offload != self.offload(second)
            || self.len(second) > self.len(first)
        {
            return None;
        }
        self.coalesce_all(ids)
    }

    #[inline(never)]
    fn coalesce_all(&self, ids: &[PacketId]) -> Option<(Run, usize)> {
        let (&first, others) = ids.split_first()?;
        let head = self.head(first);
        let mut run = Run::begin(head, self.len(first), self.offload(first))?;
        let (port, source) = (self.port(first), self.source(first));
        let mut joins = |id: PacketId| {
            self.port(id) == port
                && self.source(id) == source
                && run.join(head, self.head(id), self.len(id), self.offload(id))
        };
        let joined = others.iter().take_while(|&&id| joins(id)).count();
        (joined > 0).then_some((run, joined + 1))
    }
}
