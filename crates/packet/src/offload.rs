//! Work that a packet's sender left to others: a checksum to finish, GSO segments to make.

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is left to do. The receiver has to verify the checksum.
    #[default]
    Complete,
    /// The field at `start + offset` holds the sum of the pseudo header. The bytes from `start` to
    /// the packet's end are still to be added. Start and field were checked to lie within the head
    /// (virtio 1.2, 5.1.6.2: NEEDS_CSUM).
    Partial {
        /// Bytes from the beginning of the packet to the first byte that is summed.
        start: u16,
        /// Bytes from `start` to the 16-bit field.
        offset: u16,
    },
    /// The checksum was verified. The packet's bytes are in memory of the switch, or were summed
    /// during delivery.
    Verified,
}

/// The kind of segmentation that a packet needs (virtio 1.2, 5.1.6: `gso_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal size over IPv4 (USO).
    Udp4,
    /// UDP datagrams of equal size over IPv6 (USO).
    Udp6,
}

/// Offset of the checksum in a TCP header.
pub(crate) const TCP_CHECKSUM: u16 = 16;
/// Offset of the checksum in a UDP header.
pub(crate) const UDP_CHECKSUM: u16 = 6;

impl GsoKind {
    const ALL: [GsoKind; 4] = [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6];

    /// Returns whether the packet is TCP; otherwise it is UDP.
    #[inline]
    pub fn is_tcp(self) -> bool {
        matches!(self, GsoKind::Tcp4 | GsoKind::Tcp6)
    }

    /// Returns whether the packet is IPv4; otherwise it is IPv6.
    #[inline]
    pub fn is_v4(self) -> bool {
        matches!(self, GsoKind::Tcp4 | GsoKind::Udp4)
    }

    /// Returns the offset of the checksum in the transport header.
    #[inline]
    pub fn checksum_offset(self) -> u16 {
        if self.is_tcp() { TCP_CHECKSUM } else { UDP_CHECKSUM }
    }
}

/// A set of kinds: those that a receiver takes unsegmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GsoKinds(u8);

impl GsoKinds {
    /// No kind.
    pub const NONE: GsoKinds = GsoKinds(0);
    /// TCP over IPv4 and IPv6.
    pub const TCP: GsoKinds = GsoKinds(1 << GsoKind::Tcp4 as u8 | 1 << GsoKind::Tcp6 as u8);
    /// UDP over IPv4 and IPv6.
    pub const UDP: GsoKinds = GsoKinds(1 << GsoKind::Udp4 as u8 | 1 << GsoKind::Udp6 as u8);

    /// Returns the kinds for which `takes` is true.
    #[inline]
    pub fn of(takes: impl Fn(GsoKind) -> bool) -> Self {
        GsoKinds(GsoKind::ALL.iter().map(|&kind| u8::from(takes(kind)) << kind as u8).sum())
    }

    /// Returns whether the set has this kind.
    #[inline]
    pub fn contains(self, kind: GsoKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Returns whether both sets have a kind in common.
    #[inline]
    pub fn intersects(self, other: GsoKinds) -> bool {
        self.0 & other.0 != 0
    }
}

/// Generic segmentation offload: the parameters for splitting an unsegmented packet into GSO
/// segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Kind of the headers.
    pub kind: GsoKind,
    /// True if the TCP stream has congestion marks: CWR belongs to the first segment only (RFC
    /// 3168, 6.1.2).
    pub ecn: bool,
    /// Payload bytes of each segment but the last. It is never 0.
    pub size: u16,
    /// Offset of the network header in the packet.
    pub l3: u16,
    /// Offset of the transport header in the packet.
    pub l4: u16,
    /// Bytes of headers, from the beginning of the packet to the transport payload. All lie within
    /// the head.
    pub header_len: u16,
    /// Headers of a tunnel in front of the packet's own. No receiver takes such a packet
    /// unsegmented.
    pub outer: Option<Outer>,
}

/// The outer headers of a packet that is still to be segmented: those of a tunnel around the headers
/// that [`Gso`] points to. Each segment gets them with lengths and checksums of its own:
///
/// | header | fields |
/// |---|---|
/// | IPv4 | total length, header checksum |
/// | IPv6 | payload length |
/// | UDP | length, checksum |
/// | GRE | checksum |
/// | GTP-U | length |
///
/// The IPv4 identification stays as it is: a tunnel sends 0 and "don't fragment" (RFC 6864, 4.1).
/// All offsets count from the beginning of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Offset of the outer network header. Its first four bits tell IPv4 from IPv6.
    pub l3: u16,
    /// Checksum behind the outer network header.
    pub checksum: OuterChecksum,
    /// Offset of a GTP-U header, which has a length of its own (3GPP TS 29.281, 5.1).
    pub gtpu: Option<u16>,
}

/// The checksum that an outer header has over the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterChecksum {
    /// There is neither a checksum nor a UDP header.
    None,
    /// The UDP header at `l4` has a length, and 0 in place of a checksum.
    UdpZero {
        /// Offset of the UDP header.
        l4: u16,
    },
    /// The UDP header at `l4` has a length and a checksum.
    Udp {
        /// Offset of the UDP header.
        l4: u16,
    },
    /// The GRE header at `at` has a checksum.
    Gre {
        /// Offset of the GRE header.
        at: u16,
    },
}

impl Outer {
    /// Returns the outer headers with `n` more bytes in front of them. `None` where an offset
    /// overflows.
    pub(crate) fn behind(self, n: u16) -> Option<Outer> {
        self.moved(|at| at.checked_add(n))
    }

    /// Returns the outer headers without the first `n` bytes of the packet. `None` where the outer
    /// network header begins within these bytes.
    pub(crate) fn without(self, n: u16) -> Option<Outer> {
        self.moved(|at| at.checked_sub(n))
    }

    fn moved(self, offset: impl Fn(u16) -> Option<u16>) -> Option<Outer> {
        let checksum = match self.checksum {
            OuterChecksum::None => OuterChecksum::None,
            OuterChecksum::UdpZero { l4 } => OuterChecksum::UdpZero { l4: offset(l4)? },
            OuterChecksum::Udp { l4 } => OuterChecksum::Udp { l4: offset(l4)? },
            OuterChecksum::Gre { at } => OuterChecksum::Gre { at: offset(at)? },
        };
        let gtpu = match self.gtpu {
            Some(at) => Some(offset(at)?),
            None => None,
        };
        Some(Outer { l3: offset(self.l3)?, checksum, gtpu })
    }
}

/// All work that is left to do for a packet. It was checked against the packet when the packet came
/// in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Segmentation to be done; `None` if the packet is a single segment.
    pub gso: Option<Gso>,
}

impl Offload {
    /// Returns whether nothing is left to be done, and the checksum is not known to be right.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Offload { checksum: Checksum::Complete, gso: None })
    }
}
