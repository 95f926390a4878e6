//! The frames of `golden.pcap`, which this project's code did not make. `README.md` describes them.

/// A frame with its headers.
#[derive(Clone, Debug)]
pub struct GoldenFrame {
    /// Name, as in `README.md`.
    pub name: &'static str,
    /// The whole frame.
    pub bytes: &'static [u8],
    /// Offset of the tunnel's own header, behind IP or UDP.
    pub header: usize,
    /// Offset of the inner packet.
    pub inner: usize,
}

impl GoldenFrame {
    /// Returns the inner packet.
    pub fn inner(&self) -> &'static [u8] {
        &self.bytes[self.inner..]
    }
}

/// Name of each frame, offset of the tunnel's header, and its length.
const FRAMES: [(&str, usize, usize); 26] = [
    ("vxlan", 42, 8),
    ("vxlan-gpe", 42, 8),
    ("geneve", 42, 8),
    ("geneve-option", 42, 16),
    ("gre", 34, 4),
    ("gre-key", 34, 8),
    ("gre-checksum", 34, 8),
    ("gre-ip", 34, 4),
    ("nvgre", 34, 8),
    ("gtpu", 42, 8),
    ("gtpu-sequence", 42, 12),
    ("mpls-udp", 42, 4),
    ("l2tpv3-ipv6", 54, 12),
    ("vlan", 12, 4),
    ("qinq", 12, 8),
    ("vxlan-ipv6", 62, 8),
    ("vxlan-checksum", 42, 8),
    ("geneve-critical-ipv6", 62, 12),
    ("gre-full-ipv6", 54, 16),
    ("l2tpv3-udp", 42, 16),
    ("l2tpv3-udp-ipv6", 62, 16),
    ("l2tpv3-ipv4", 34, 8),
    ("gtpu-extension", 42, 16),
    ("gtpu-echo", 42, 12),
    ("mpls-udp-two-labels", 42, 8),
    ("vxlan-gpe-ip-ipv6", 62, 8),
];

/// Lengths of the header of a pcap file and of the header of a record.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Returns all frames, in their order.
pub fn frames() -> Vec<GoldenFrame> {
    let mut rest: &'static [u8] = &include_bytes!("golden.pcap")[FILE_HEADER..];
    let frames = FRAMES.map(|(name, header, len)| {
        let (record, behind) = rest.split_at(RECORD_HEADER);
        let captured = u32::from_le_bytes(record[8..12].try_into().expect("four bytes"));
        let (bytes, behind) = behind.split_at(captured.try_into().expect("a short frame"));
        rest = behind;
        GoldenFrame { name, bytes, header, inner: header + len }
    });
    assert!(rest.is_empty(), "a name for each frame");
    frames.to_vec()
}

/// Returns the frame of this name.
pub fn frame(name: &str) -> GoldenFrame {
    frames().into_iter().find(|frame| frame.name == name).unwrap_or_else(|| panic!("no frame {name}"))
}

/// Returns the Ethernet frame inside all tunnels that carry Ethernet.
pub fn inner_frame() -> &'static [u8] {
    frame("vxlan").inner()
}

/// Returns the IP packet inside all tunnels that carry IP. It is also inside the Ethernet frame.
pub fn inner_ip() -> &'static [u8] {
    &inner_frame()[14..]
}
