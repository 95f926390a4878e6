//! The virtio-net header: 12 bytes before every packet (virtio 1.2, 5.1.6), and their meaning once
//! checked.

use straightline_packet::{Checksum, Gso, GsoKind, GsoKinds, Offload, PacketId, Reason, Turn};
use straightline_wire::{IpProtocol, IpVersion, Layers, ethernet, vlan};

use crate::features as f;

/// Size of the header with VERSION_1 or mergeable buffers. VERSION_1 is required.
pub const LEN: usize = 12;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The most bytes of a packet in which headers are searched, if they do not end within the head.
const DEEPEST: u32 = 512;

/// Payload, options of TCP included, that each segment has of a TCP packet of many segments. Linux
/// sends no shorter ones (`tcp_min_snd_mss`).
const MIN_MSS: u32 = 48;

/// Bytes of a TCP header without options.
const TCP_HEADER: u32 = 20;

/// Segments at most of a UDP packet, or of a TCP packet with shorter segments (Linux:
/// `UDP_MAX_SEGMENTS`; 64 before 6.9).
const MAX_SHORT_SEGMENTS: u32 = 128;

/// The fields of a header, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// NEEDS_CSUM (1), DATA_VALID (2).
    pub flags: u8,
    /// 0, or the type of segmentation, with 0x80 for ECN.
    pub gso_type: u8,
    /// The sender's hint of the length of the headers. It is never trusted: the length is computed
    /// anew.
    pub hdr_len: u16,
    /// Payload bytes of a GSO segment.
    pub gso_size: u16,
    /// Offset at which the checksum starts.
    pub csum_start: u16,
    /// Offset of the checksum's field from `csum_start`.
    pub csum_offset: u16,
    /// The number of buffers that hold this packet, for a driver that merges buffers.
    pub num_buffers: u16,
}

impl NetHeader {
    /// Reads the fields.
    #[inline]
    pub fn parse(b: &[u8; LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        NetHeader {
            flags: b[0],
            gso_type: b[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: word(10),
        }
    }

    /// Writes the fields.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut b = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset, self.num_buffers];
        for (pair, word) in b[2..].chunks_exact_mut(2).zip(words) {
            pair.copy_from_slice(&word.to_le_bytes());
        }
        b
    }

    /// Returns whether a header from a driver requests any offload, by its flags or its type of
    /// segmentation.
    #[inline]
    pub fn requests_offload(b: &[u8; LEN]) -> bool {
        b[0] & NEEDS_CSUM != 0 || b[1] != GSO_NONE
    }

    /// Returns whether a header from a driver requests segmentation of any type.
    #[inline]
    pub fn requests_segmentation(b: &[u8; LEN]) -> bool {
        b[1] != GSO_NONE
    }

    /// Returns whether a header for a driver says that its device has verified the checksum.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.flags & (NEEDS_CSUM | DATA_VALID) == DATA_VALID
    }

    /// Checks the offloads that the header requests against the packet and the negotiated features.
    /// It may pull up bytes of the packet into its head, so that the head has all headers and the
    /// checksum's field.
    #[inline]
    pub fn check(&self, acked: u64, turn: &mut Turn<'_>, id: PacketId) -> Result<Offload, Reason> {
        if self.flags & NEEDS_CSUM == 0 && self.gso_type == GSO_NONE {
            return Ok(Offload::default());
        }
        let checksum = self.check_checksum(acked, turn, id)?;
        let gso = if self.gso_type == GSO_NONE { None } else { self.check_gso(acked, turn, id)? };
        Ok(Offload { checksum, gso })
    }

    #[inline]
    fn check_checksum(&self, acked: u64, turn: &mut Turn<'_>, id: PacketId) -> Result<Checksum, Reason> {
        // 5.1.6.2.1: segmentation requires the partial checksum, and both require the feature.
        if self.flags & NEEDS_CSUM == 0 || acked & f::VIRTIO_NET_F_CSUM == 0 {
            return Err(Reason::BadHeader);
        }
        let field_end = u32::from(self.csum_start) + u32::from(self.csum_offset) + 2;
        if usize::from(self.csum_start) < ethernet::LEN || field_end > turn.len(id) {
            return Err(Reason::ChecksumRange);
        }
        if field_end > DEEPEST || !turn.pull_up(id, field_end as usize) {
            return Err(Reason::ChecksumDepth);
        }
        // A sum over a tag would come after all decisions by its VLAN.
        if !vlan::is_behind_tags(turn.head(id), self.csum_start.into()) {
            return Err(Reason::ChecksumRange);
        }
        Ok(Checksum::Partial { start: self.csum_start, offset: self.csum_offset })
    }

    /// Checks the segmentation that the header requests. Returns `None` for a packet of one segment:
    /// it is as it will be sent, and kernels refuse to segment it.
    fn check_gso(&self, acked: u64, turn: &mut Turn<'_>, id: PacketId) -> Result<Option<Gso>, Reason> {
        let ecn = self.gso_type & GSO_ECN != 0;
        let (feature, protocol, version) = match self.gso_type & !GSO_ECN {
            GSO_TCPV4 => (f::VIRTIO_NET_F_HOST_TSO4, IpProtocol::TCP, Some(IpVersion::V4)),
            GSO_TCPV6 => (f::VIRTIO_NET_F_HOST_TSO6, IpProtocol::TCP, Some(IpVersion::V6)),
            GSO_UDP_L4 if !ecn => (f::VIRTIO_NET_F_HOST_USO, IpProtocol::UDP, None),
            _ => return Err(Reason::BadHeader),
        };
        if acked & feature == 0 || (ecn && acked & f::VIRTIO_NET_F_HOST_ECN == 0) {
            return Err(Reason::BadHeader);
        }
        if self.gso_size == 0 {
            return Err(Reason::SegmentSize);
        }
        let layers = locate(turn, id).ok_or(Reason::SegmentHeaders)?;
        // The checksum must be that of the transport header, which segmentation rewrites.
        let field = layers.checksum().filter(|&at| {
            layers.l4 == self.csum_start && u32::from(at) == u32::from(self.csum_start) + u32::from(self.csum_offset)
        });
        if layers.protocol != protocol || version.is_some_and(|v| v != layers.version) || field.is_none() {
            return Err(Reason::SegmentHeaders);
        }
        let kind = match (protocol, layers.version) {
            (IpProtocol::TCP, IpVersion::V4) => GsoKind::Tcp4,
            (IpProtocol::TCP, IpVersion::V6) => GsoKind::Tcp6,
            (_, IpVersion::V4) => GsoKind::Udp4,
            (_, IpVersion::V6) => GsoKind::Udp6,
        };
        let segments = turn.len(id).saturating_sub(layers.headers_len().into()).div_ceil(self.gso_size.into());
        if !is_sent(self.gso_size, segments, layers) {
            return Err(Reason::SegmentSize);
        }
        let header_len = layers.headers_len();
        if turn.len(id) <= u32::from(header_len) + u32::from(self.gso_size) {
            return Ok(None);
        }
        turn.count_gso_segments(segments);
        Ok(Some(Gso { kind, ecn, size: self.gso_size, l3: layers.l3, l4: layers.l4, header_len, outer: None }))
    }

    /// Returns the header for the receiver of a packet, built from checked fields.
    #[inline]
    pub fn for_receiver(offload: Offload, num_buffers: u16) -> Self {
        let mut header = NetHeader { num_buffers, ..NetHeader::default() };
        match offload.checksum {
            Checksum::Complete => {}
            Checksum::Verified => header.flags = DATA_VALID,
            Checksum::Partial { start, offset } => {
                header.flags = NEEDS_CSUM;
                (header.csum_start, header.csum_offset) = (start, offset);
            }
        }
        if let Some(gso) = offload.gso {
            header.gso_type = match gso.kind {
                GsoKind::Tcp4 => GSO_TCPV4,
                GsoKind::Tcp6 => GSO_TCPV6,
                GsoKind::Udp4 | GsoKind::Udp6 => GSO_UDP_L4,
            } | if gso.ecn { GSO_ECN } else { 0 };
            (header.gso_size, header.hdr_len) = (gso.size, gso.header_len);
        }
        header
    }
}

/// The offloads that a receiver's driver accepts, from the features that it negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    acked: u64,
}

impl Receiver {
    /// Creates a receiver that negotiated these features.
    pub fn new(acked: u64) -> Self {
        Receiver { acked }
    }

    /// Returns whether the driver accepts partial checksums.
    #[inline]
    pub fn takes_partial(self) -> bool {
        self.has(f::VIRTIO_NET_F_GUEST_CSUM)
    }

    /// Returns the kinds of unsegmented packets that the driver accepts.
    #[inline]
    pub fn kinds(self) -> GsoKinds {
        GsoKinds::of(|kind| self.has(feature(kind) | f::VIRTIO_NET_F_GUEST_CSUM))
    }

    /// Returns whether the driver accepts this unsegmented packet. The header has no place for outer
    /// headers, so no driver accepts a packet with them.
    #[inline]
    pub fn takes(self, gso: Gso) -> bool {
        let ecn = if gso.ecn { f::VIRTIO_NET_F_GUEST_ECN } else { 0 };
        gso.outer.is_none() && self.has(feature(gso.kind) | ecn | f::VIRTIO_NET_F_GUEST_CSUM)
    }

    #[inline]
    fn has(self, features: u64) -> bool {
        self.acked & features == features
    }
}

/// Returns the feature of a driver that accepts unsegmented packets of this kind.
#[inline]
fn feature(kind: GsoKind) -> u64 {
    match kind {
        GsoKind::Tcp4 => f::VIRTIO_NET_F_GUEST_TSO4,
        GsoKind::Tcp6 => f::VIRTIO_NET_F_GUEST_TSO6,
        GsoKind::Udp4 => f::VIRTIO_NET_F_GUEST_USO4,
        GsoKind::Udp6 => f::VIRTIO_NET_F_GUEST_USO6,
    }
}

/// Returns whether a real sender makes segments of this size, and so many of one packet. Others would
/// only multiply our work.
///
/// A router's GRO coalesces TCP segments of any size, but not many of them.
fn is_sent(size: u16, segments: u32, layers: Layers) -> bool {
    if size < layers.l4_len {
        return false;
    }
    let options = u32::from(layers.l4_len).saturating_sub(TCP_HEADER);
    let is_long = layers.protocol == IpProtocol::TCP && u32::from(size) + options >= MIN_MSS;
    is_long || segments <= MAX_SHORT_SEGMENTS
}

/// Locates the headers, and pulls up as many bytes as they need.
fn locate(turn: &mut Turn<'_>, id: PacketId) -> Option<Layers> {
    if let Ok(layers) = turn.layout(id).and_then(|layout| layout.layers) {
        return Some(layers);
    }
    let deeper = turn.len(id).min(DEEPEST) as usize;
    turn.pull_up(id, deeper);
    turn.layout(id).and_then(|layout| layout.layers).ok()
}

#[cfg(test)]
mod tests;
