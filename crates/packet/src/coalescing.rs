//! Coalescing (GRO): makes one unsegmented packet of consecutive TCP segments or UDP datagrams, for
//! a receiver that takes such packets. It is the inverse of [`Segmenter`](crate::Segmenter).
//!
//! Packets are coalesced only if segmentation would give back the same packets, except for an
//! identification without a meaning:
//!
//! - All have one size. The last one may be shorter.
//! - TCP segments follow each other without a gap.
//! - Their headers differ only in fields that follow from the position: IP length, IPv4
//!   identification and header checksum, sequence number, UDP length, checksum, and PSH in the last
//!   segment.
//!
//! A run ends with a segment that has PSH, and with a packet that is shorter. Segments with SYN,
//! FIN, RST, URG or CWR, fragments, and packets with IP options or extension headers are left
//! alone. So are datagrams without a checksum.
//!
//! Identifications count up, as segmentation makes them. Where "don't fragment" is set, they may
//! also be all the same: many systems send 0 then, and receivers ignore the field (RFC 6864, 4.2).
//! Linux's GRO has the same rule.
//!
//! # Checksums
//!
//! All packets of a run have the same kind of checksum:
//!
//! - *Partial*, from a guest that leaves the sum to others. The field was checked to hold the
//!   pseudo header's sum, so an error in the payload would be the sender's own.
//! - *Finished*, from a wire, or from a guest that computes it. It can be verified only while the
//!   bytes are copied, because no pass over them precedes the copy. The copy sums what it stores,
//!   packet by packet: see [`Turn::store_run`].
//!
//! The coalesced packet has a partial checksum, so its receiver trusts the bytes. One wrong
//! checksum must therefore undo the whole run. Its packets are then delivered singly, as they came,
//! and the receiver finds the error itself.
//!
//! A sender may rewrite a body while it is copied. The sum covers the stored bytes, so they either
//! match the checksum in the head, which the switch has copied before, or the run is undone. The
//! sender gains nothing: it could have sent the same bytes with the same checksum.

use straightline_simd::Sum;
use straightline_wire::geometry::{self, Layers};
use straightline_wire::{IpProtocol, IpVersion, checksum};

use crate::offload::{TCP_CHECKSUM, UDP_CHECKSUM};
use crate::segmentation::{fold, low16};
use crate::{Checksum, Gso, GsoKind, GsoKinds, GsoSegment, MAX_FRAME, Offload, PacketId, Turn};

const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;
const TCP_ECE: u8 = 0x40;

/// The most datagrams in a run, the limit of Linux (`UDP_GRO_CNT_MAX`). Without a limit, a flood of
/// small datagrams would become packets that are costly to segment.
const MAX_DATAGRAMS: u16 = 64;

/// Bytes of the shortest packet that another can follow: Ethernet, IPv4 and transport headers, and
/// the shortest payload (see [`Run::begin`]).
const SHORTEST_TCP: u32 = 14 + 20 + 20 + 20;
const SHORTEST_UDP: u32 = 14 + 20 + 8 + 8;

/// A run: consecutive packets that are delivered as one. It has the state to add packets, and the
/// headers of the coalesced packet.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    gso: Gso,
    /// The state of each packet's checksum.
    checksum: Checksum,
    /// Bytes of the coalesced packet so far.
    len: u32,
    /// Number of packets so far.
    count: u16,
    /// Sequence number that the next segment must have.
    seq: u32,
    /// IPv4 identification that the next packet must have.
    id: u16,
    /// Difference of two identifications: 1, or 0 if all are the same.
    id_step: u16,
    /// Sum of the IPv4 header without length, identification and checksum.
    network: u16,
    /// Sum of the pseudo header without the length.
    pseudo: u16,
    /// TCP flags of the last segment.
    flags: u8,
    /// True if no packet may follow: the last one had PSH or was shorter.
    is_ended: bool,
}

/// Returns the 16-bit word at an offset of a header.
fn word(of: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([of[at], of[at + 1]])
}

/// Returns whether the identification of an IPv4 packet has no meaning: "don't fragment" is set.
fn may_be_fixed(ip: &[u8]) -> bool {
    ip[6] & 0x40 != 0
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
    /// Begins a run with one packet of `len` bytes, for a receiver that takes packets of `kinds`.
    /// `None` if no other packet can follow it.
    pub fn begin(head: &[u8], len: u32, offload: Offload, kinds: GsoKinds) -> Option<Run> {
        let layers = geometry::locate(head).ok()?;
        let Layers { l3, l4, version, l4_len, protocol, .. } = layers;
        let kind = match (version, protocol) {
            (IpVersion::V4, IpProtocol::TCP) if l4 == l3 + 20 => GsoKind::Tcp4,
            (IpVersion::V6, IpProtocol::TCP) if l4 == l3 + 40 => GsoKind::Tcp6,
            (IpVersion::V4, IpProtocol::UDP) if l4 == l3 + 20 => GsoKind::Udp4,
            (IpVersion::V6, IpProtocol::UDP) if l4 == l3 + 40 => GsoKind::Udp6,
            _ => return None,
        };
        let at = Checksum::Partial { start: l4, offset: kind.checksum_offset() };
        if layers.fragment || !kinds.contains(kind) || (is_partial(offload.checksum) && offload.checksum != at) {
            return None;
        }
        let payload = len.checked_sub(layers.headers_len().into())?;
        let size = u16::try_from(payload).ok()?;
        let ip = &head[usize::from(l3)..usize::from(l4)];
        let transport = &head[usize::from(l4)..];
        // "Don't fragment" is the only flag of IPv4 that may be set.
        let is_unfragmented = !kind.is_v4() || word(ip, 6) & !0x4000 == 0;
        let is_plain = !kind.is_tcp() || (transport[13] & !TCP_ECE == TCP_ACK && transport[12] & 0x0f == 0);
        // A segment size that `NetHeader::check` refuses from a guest must not be sent to a guest
        // either.
        if !is_unfragmented || !is_plain || size < l4_len {
            return None;
        }
        let gso = Gso { kind, ecn: false, size, l3, l4, header_len: layers.headers_len(), outer: None };
        let addresses = if kind.is_v4() { &ip[12..20] } else { &ip[8..40] };
        let pseudo = fold([checksum::sum(addresses).into(), protocol.0.into(), 0]);
        let (seq, flags) =
            if kind.is_tcp() { (sequence(transport).wrapping_add(payload), transport[13]) } else { (0, 0) };
        let (id, network) = if kind.is_v4() {
            let [front, middle, addresses] = [&ip[..2], &ip[6..10], &ip[12..]].map(|part| checksum::sum(part).into());
            (word(ip, 4), fold([front, middle, addresses]))
        } else {
            (0, 0)
        };
        let checksum = offload.checksum;
        let run = Run { gso, checksum, len, count: 1, seq, id, id_step: 1, network, pseudo, flags, is_ended: false };
        run.matches_length(head, len, id).then_some(Run { id: id.wrapping_add(1), ..run })
    }

    /// Returns whether `head` has the lengths and checksums that the run's next packet must have,
    /// and this identification. That packet has `len` bytes. A finished checksum is verified later.
    #[inline]
    fn matches_length(&self, head: &[u8], len: u32, id: u16) -> bool {
        let l3 = usize::from(self.gso.l3);
        let l4 = usize::from(self.gso.l4);
        let transport = len - u32::from(self.gso.l4);
        let network = if self.gso.kind.is_v4() {
            let told = word(head, l3 + 2);
            u32::from(told) == len - u32::from(self.gso.l3)
                && word(head, l3 + 4) == id
                && word(head, l3 + 10) == !fold([self.network.into(), told.into(), id.into()])
        } else {
            u32::from(word(head, l3 + 4)) == transport
        };
        let field = word(head, l4 + usize::from(self.gso.kind.checksum_offset()));
        let is_tcp = self.gso.kind.is_tcp();
        network
            && (is_tcp || u32::from(word(head, l4 + 4)) == transport)
            // In UDP, 0 means "no checksum" (RFC 768).
            && if is_partial(self.checksum) { field == self.transport_sum(len) } else { is_tcp || field != 0 }
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
        let headers = usize::from(header_len);
        let (Some(first), Some(head)) = (first.get(..headers), head.get(..headers)) else { return false };
        let Some(payload @ 1..) = len.checked_sub(header_len.into()) else { return false };
        // The length field of the IP header must be able to hold the length. The field of IPv4
        // counts its own header. And no port accepts a longer frame, not even from a guest that
        // forwards received packets.
        let longest = MAX_FRAME.min(65_535 + u32::from(if kind.is_v4() { l3 } else { l4 }));
        if self.is_ended
            || offload != (Offload { checksum: self.checksum, gso: None })
            || payload > size.into()
            || self.len + payload > longest
        {
            return false;
        }
        let l3 = usize::from(l3);
        let l4 = usize::from(l4);
        let same = HeaderPair { first, head };
        // The second packet tells whether identifications count up.
        let is_fixed = self.count == 1 && kind.is_v4() && same.at::<2>(l3 + 4) && may_be_fixed(&head[l3..]);
        let (id, id_step) = if is_fixed { (word(head, l3 + 4), 0) } else { (self.id, self.id_step) };
        let network = if kind.is_v4() {
            same.at::<2>(l3) && same.at::<4>(l3 + 6) && same.at::<8>(l3 + 12)
        } else {
            same.at::<4>(l3) && same.at::<34>(l3 + 6)
        };
        let is_next = same.at::<14>(0)
            && first[14..l3] == head[14..l3]
            && network
            && same.at::<4>(l4)
            && (!kind.is_tcp() || self.is_next_segment(same, l4))
            && self.matches_length(head, len, id);
        if !is_next {
            return false;
        }
        if kind.is_tcp() {
            self.flags = head[l4 + 13];
        }
        self.count += 1;
        self.len += payload;
        self.seq = self.seq.wrapping_add(payload);
        (self.id, self.id_step) = (id.wrapping_add(id_step), id_step);
        self.is_ended =
            payload < u32::from(size) || self.flags & TCP_PSH != 0 || (!kind.is_tcp() && self.count == MAX_DATAGRAMS);
        true
    }

    /// Returns whether the TCP header at `l4`, behind the ports, is that of the next segment.
    #[inline]
    fn is_next_segment(&self, same: HeaderPair<'_>, l4: usize) -> bool {
        let HeaderPair { first, head } = same;
        // Behind the checksum: the urgent pointer, and options, which mostly are time stamps or
        // none.
        let rest = match head.len() - l4 {
            20 => same.at::<2>(l4 + 18),
            32 => same.at::<14>(l4 + 18),
            _ => first[l4 + 18..] == head[l4 + 18..],
        };
        rest && sequence(&head[l4..]) == self.seq
            && same.at::<5>(l4 + 8)
            && head[l4 + 13] & !TCP_PSH == first[l4 + 13]
            && same.at::<2>(l4 + 14)
    }

    /// Makes the headers of the coalesced packet. `first` is the head of the first packet.
    pub fn headers(&self, first: &[u8], segment: &mut GsoSegment) {
        let Gso { kind, l3, l4, header_len, .. } = self.gso;
        let transport = low16(self.len - u32::from(l4)).to_be_bytes();
        let datagram = low16(self.len - u32::from(l3)).to_be_bytes();
        let l3 = usize::from(l3);
        let l4 = usize::from(l4);
        let bytes = segment.begin(header_len, &first[..usize::from(header_len)]);
        if kind.is_v4() {
            bytes[l3 + 2..l3 + 4].copy_from_slice(&datagram);
            bytes[l3 + 10..l3 + 12].fill(0);
            let sum = !checksum::sum(&bytes[l3..l4]);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[l3 + 4..l3 + 6].copy_from_slice(&transport);
        }
        if kind.is_tcp() {
            bytes[l4 + 13] = self.flags;
        } else {
            bytes[l4 + 4..l4 + 6].copy_from_slice(&transport);
        }
        let field = l4 + usize::from(kind.checksum_offset());
        bytes[field..field + 2].copy_from_slice(&self.transport_sum(self.len).to_be_bytes());
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
        let checksum = Checksum::Partial { start: self.gso.l4, offset: self.gso.kind.checksum_offset() };
        Offload { checksum, gso: Some(self.gso) }
    }

    /// Returns whether the packets have finished checksums, which are verified in the copy.
    pub(crate) fn is_finished(&self) -> bool {
        !is_partial(self.checksum)
    }

    /// Returns the sum of the pseudo header and the transport header of one packet of the run. With
    /// the payload added, it must fold to 0xffff.
    #[inline]
    pub(crate) fn header_sum(&self, head: &[u8], len: u32) -> Sum {
        let Gso { l4, header_len, .. } = self.gso;
        let mut sum = Sum::new();
        sum.add_u16(self.transport_sum(len));
        sum.add_bytes(&head[usize::from(l4)..usize::from(header_len)]);
        sum
    }
}

/// Returns whether a checksum was left to others. A checksum that was verified is finished too.
#[inline]
fn is_partial(checksum: Checksum) -> bool {
    matches!(checksum, Checksum::Partial { .. })
}

/// Returns whether two packets with finished checksums may belong to one run. The answer `false` is
/// certain, `true` is not.
///
/// All packets with finished checksums come here, also those that can never be coalesced. So this
/// check is cheaper than [`Run::begin`], and it looks at the fields that differ most often.
#[inline]
fn may_follow(first: &[u8], second: &[u8], kinds: GsoKinds) -> bool {
    /// Bytes of the headers as far as the checksum of TCP, without VLAN tags.
    const V4: usize = 14 + 20 + 16;
    const V6: usize = 14 + 40 + 16;
    let (tcp, l4) = match first.get(12..14) {
        Some([0x08, 0x00]) => {
            let (Some(a), Some(b)) = (first.first_chunk::<V4>(), second.first_chunk::<V4>()) else { return true };
            // The identification; addresses and ports.
            let step = word(b, 18).wrapping_sub(word(a, 18));
            let is_next = step == 1 || (step == 0 && may_be_fixed(&a[14..]));
            if !is_next || a[26..38] != b[26..38] {
                return false;
            }
            match a[23] {
                6 => (GsoKind::Tcp4, 34),
                17 => return kinds.contains(GsoKind::Udp4),
                _ => return false,
            }
        }
        Some([0x86, 0xdd]) => {
            let (Some(a), Some(b)) = (first.first_chunk::<V6>(), second.first_chunk::<V6>()) else { return true };
            if a[22..58] != b[22..58] {
                return false;
            }
            match a[20] {
                6 => (GsoKind::Tcp6, 54),
                17 => return kinds.contains(GsoKind::Udp6),
                _ => return false,
            }
        }
        // Tags.
        Some([0x81, 0x00] | [0x88, 0xa8]) => return true,
        _ => return false,
    };
    // Acknowledgement, flags, window.
    let a = &first[l4..];
    let b = &second[l4..];
    kinds.contains(tcp) && a[8..12] == b[8..12] && a[13] & !TCP_ECE == TCP_ACK && a[14..16] == b[14..16]
}

impl Turn<'_> {
    /// Coalesces packets, from the first on, for a receiver that takes packets of `kinds`. Returns
    /// the run and the number of its packets, or `None` if the second packet cannot follow the
    /// first. In most cases these two packets decide.
    #[inline]
    pub fn coalesce(&self, ids: &[PacketId], kinds: GsoKinds) -> Option<(Run, usize)> {
        let &[first, second, ..] = ids else { return None };
        if self.may_coalesce(first, second, kinds) { self.coalesce_all(ids, kinds) } else { None }
    }

    /// Returns whether the cheap checks allow that `second` follows `first`.
    #[inline]
    fn may_coalesce(&self, first: PacketId, second: PacketId, kinds: GsoKinds) -> bool {
        let shortest = if kinds.intersects(GsoKinds::UDP) { SHORTEST_UDP } else { SHORTEST_TCP };
        let len = self.len(first);
        if len < shortest || self.len(second) > len {
            return false;
        }
        let offload = self.offload(first);
        let other = self.offload(second);
        if offload.is_nothing() {
            return other.is_nothing() && may_follow(self.head(first), self.head(second), kinds);
        }
        let is_taken = match offload.checksum {
            Checksum::Partial { offset: TCP_CHECKSUM, .. } => kinds.intersects(GsoKinds::TCP),
            Checksum::Partial { offset: UDP_CHECKSUM, .. } => kinds.intersects(GsoKinds::UDP),
            Checksum::Partial { .. } => false,
            Checksum::Complete | Checksum::Verified => may_follow(self.head(first), self.head(second), kinds),
        };
        is_taken && offload.gso.is_none() && offload == other
    }

    #[inline(never)]
    fn coalesce_all(&self, ids: &[PacketId], kinds: GsoKinds) -> Option<(Run, usize)> {
        let (&first, others) = ids.split_first()?;
        let head = self.head(first);
        let mut run = Run::begin(head, self.len(first), self.offload(first), kinds)?;
        let port = self.port(first);
        let source = self.source(first);
        let mut joins = |id: PacketId| {
            self.port(id) == port
                && self.source(id) == source
                && run.join(head, self.head(id), self.len(id), self.offload(id))
        };
        let joined = others.iter().take_while(|&&id| joins(id)).count();
        (joined > 0).then_some((run, joined + 1))
    }
}
