//! Packets that are still to be segmented or checksummed, and a reference check of delivered ones.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::tcp::Flags;

/// NEEDS_CSUM (virtio 1.2, 5.1.6).
pub const NEEDS_CSUM: u8 = 1;
/// Segmentation of TCP over IPv4 (virtio 1.2, 5.1.6).
pub const TCPV4: u8 = 1;
/// Segmentation of TCP over IPv6.
pub const TCPV6: u8 = 4;
/// Segmentation of UDP.
pub const UDP_L4: u8 = 5;

/// The protocols of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Tcp4, Kind::Tcp6, Kind::Udp4, Kind::Udp6];

    /// Returns true for TCP.
    pub fn is_tcp(self) -> bool {
        matches!(self, Kind::Tcp4 | Kind::Tcp6)
    }

    /// Returns `gso_type` of the virtio-net header.
    pub fn gso_type(self) -> u8 {
        match self {
            Kind::Tcp4 => TCPV4,
            Kind::Tcp6 => TCPV6,
            Kind::Udp4 | Kind::Udp6 => UDP_L4,
        }
    }
}

/// A frame with `payload` and its virtio-net header. The transport checksum is left to others.
pub fn partial(kind: Kind, dst: MacAddr, src: MacAddr, payload: &[u8]) -> (NetHeader, Vec<u8>) {
    let net = match kind {
        Kind::Tcp4 | Kind::Udp4 => Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        Kind::Tcp6 | Kind::Udp6 => Net::v6([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()),
    };
    let src_port = 1000;
    let dst_port = 2000;
    let transport = if kind.is_tcp() {
        Transport::Tcp { src_port, dst_port, seq: 0xffff_fff0, ack: 77, flags: Flags(0x18), window: 500 }
    } else {
        Transport::Udp { src_port, dst_port }
    };
    let payload_len = u16::try_from(payload.len()).expect("an IP packet");
    let headers = Frame { src, dst, tags: [None, None], net, transport, payload_len };
    let mut frame = vec![0; headers.headers_len()];
    headers.emit(&mut frame, Checksum::Partial).expect("headers");
    let l4 = if matches!(kind, Kind::Tcp4 | Kind::Udp4) { 34 } else { 54 };
    let hdr_len = u16::try_from(frame.len()).expect("short");
    frame.extend_from_slice(payload);
    let csum_offset = if kind.is_tcp() { 16 } else { 6 };
    (NetHeader { flags: NEEDS_CSUM, csum_start: l4, csum_offset, hdr_len, ..NetHeader::default() }, frame)
}

/// Finishes a partial checksum, which `header` describes. Returns the header for the finished frame.
pub fn finish(header: NetHeader, frame: &mut [u8]) -> NetHeader {
    let start = usize::from(header.csum_start);
    let field = start + usize::from(header.csum_offset);
    let sum = match !plain_sum(&frame[start..]) {
        // 0 means none (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    NetHeader::default()
}

/// Such a frame that is to be segmented into segments of `gso_size`.
pub fn segmented(kind: Kind, dst: MacAddr, src: MacAddr, payload: &[u8], gso_size: u16) -> (NetHeader, Vec<u8>) {
    let (header, frame) = partial(kind, dst, src, payload);
    (NetHeader { gso_type: kind.gso_type(), gso_size, ..header }, frame)
}

/// Returns such a frame of TCP over IPv4, with `payload_len` bytes of payload.
pub fn tcp4(dst: MacAddr, src: MacAddr, payload_len: usize, gso_size: u16) -> (NetHeader, Vec<u8>) {
    segmented(Kind::Tcp4, dst, src, &crate::noise(3, payload_len), gso_size)
}

/// Returns a frame's payload, after checking that lengths agree and checksums are right. With
/// `is_partial`, the transport checksum must be the sum of the pseudo header.
pub fn check(frame: &[u8], is_partial: bool) -> Parsed {
    let sliced = SlicedPacket::from_ethernet(frame).expect("headers");
    let transport = sliced.transport.expect("TCP or UDP");
    let (told, payload, seq, flags) = match &transport {
        TransportSlice::Tcp(tcp) => {
            let flags = tcp.slice()[13];
            (tcp.checksum(), tcp.payload().to_vec(), tcp.sequence_number(), flags)
        }
        TransportSlice::Udp(udp) => {
            assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
            (udp.checksum(), udp.payload().to_vec(), 0, 0)
        }
        other => panic!("{other:?}"),
    };
    let (whole, ident) = match sliced.net.expect("IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            assert_eq!(usize::from(header.total_len()), frame.len() - 14);
            let src = header.source();
            let dst = header.destination();
            let rest = (&src[..], &dst[..], header.protocol().0, ip.payload().payload);
            (sum_of(rest.0, rest.1, rest.2, rest.3), header.identification())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            assert_eq!(usize::from(header.payload_length()), frame.len() - 54);
            let src = header.source();
            let dst = header.destination();
            (sum_of(&src, &dst, header.next_header().0, ip.payload().payload), 0)
        }
        other => panic!("{other:?}"),
    };
    if is_partial {
        assert_eq!(told, whole.pseudo, "the field holds the sum of the pseudo header");
    } else {
        assert_eq!(whole.all, 0xffff, "the sum over everything, the checksum included");
        assert_ne!(told, 0, "0 means none (RFC 768)");
    }
    Parsed { payload, seq, flags, ident }
}

/// Parts of a frame that a test compares.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The payload of TCP or UDP.
    pub payload: Vec<u8>,
    /// The sequence number of TCP, and 0 for UDP.
    pub seq: u32,
    /// The flags of TCP, and 0 for UDP.
    pub flags: u8,
    /// The identification of IPv4, and 0 for IPv6.
    pub ident: u16,
}

struct Sums {
    pseudo: u16,
    all: u16,
}

/// The ones' complement sum of RFC 1071, computed word by word.
fn sum_of(src: &[u8], dst: &[u8], protocol: u8, transport: &[u8]) -> Sums {
    let len = u32::try_from(transport.len()).expect("short");
    let mut pseudo = [src, dst].concat();
    pseudo.extend(len.to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    let all = [&pseudo[..], transport].concat();
    Sums { pseudo: plain_sum(&pseudo), all: plain_sum(&all) }
}

fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}
