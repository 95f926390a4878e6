//! What the sender left for others to do: the checksum to finish, the segments to cut.

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is left to do; whether the checksum is right is the receiver's to find out.
    #[default]
    Complete,
    /// The field at `start + offset` holds the sum of the pseudo header; the rest, from `start` to the packet's
    /// end, is to be added. Both were checked to lie within the head (virtio 1.2, 5.1.6.2: NEEDS_CSUM).
    Partial {
        /// Bytes from the frame's beginning to where summing starts.
        start: u16,
        /// Bytes from there to the 16-bit field.
        offset: u16,
    },
    /// Summed and found right, in bytes that are ours or that were summed as they were delivered.
    Verified,
}

/// Which segmentation a packet waits for (virtio 1.2, 5.1.6: `gso_type`).
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

/// A packet that stands for several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Which headers its segments have.
    pub kind: GsoKind,
    /// The TCP stream has congestion marks: CWR belongs to the first segment only (RFC 3168, 6.1.2).
    pub ecn: bool,
    /// Payload bytes of each segment but the last; never 0.
    pub size: u16,
    /// Where the network header begins.
    pub l3: u16,
    /// Where the transport header begins.
    pub l4: u16,
    /// Bytes of headers, from the frame's beginning to the transport payload, all within the head.
    pub header_len: u16,
}

/// All that is left to do for a packet, as its sender said and as was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum's state.
    pub checksum: Checksum,
    /// The segments to be, if it is more than one packet.
    pub gso: Option<Gso>,
}

impl Offload {
    /// Whether nothing is left to be done, and nothing to be said of the checksum.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Offload { checksum: Checksum::Complete, gso: None })
    }
}
