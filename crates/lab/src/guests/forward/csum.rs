//! `csum`: checks the checksums of IPv4, TCP and UDP, counts wrong ones, and writes all of them
//! again.

use straightline_guest::endpoints::{Packet, Received};
use straightline_simd::Sum;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{IpProtocol, IpVersion, checksum, geometry, ipv4, ipv6, udp};

use super::engine::Mode;

/// Length of the longest frame that is examined.
const LONGEST: usize = 65_549;

/// A flag of the virtio-net header: the checksum field holds the pseudo-header's sum only (virtio
/// 1.2, 5.1.6.2).
const NEEDS_CSUM: u8 = 1;

pub(super) struct Csum {
    /// The frame, read once.
    frame: Box<[u8]>,
    bad_ip: u64,
    bad_l4: u64,
    finished: u64,
}

/// A field to write into a frame: offset and value.
type Field = Option<(usize, u16)>;

impl Csum {
    pub(super) fn new() -> Self {
        Csum { frame: vec![0; LONGEST].into_boxed_slice(), bad_ip: 0, bad_l4: 0, finished: 0 }
    }

    /// Returns both checksum fields with their correct values. If `partial` is set, the checksum of
    /// TCP or UDP is known to be unfinished.
    fn fields(&mut self, len: usize, packet: &Packet<'_>, partial: bool) -> Option<[Field; 2]> {
        let frame = &mut self.frame[..len];
        let layers = geometry::locate(frame).ok()?;
        let l3 = usize::from(layers.l3);
        let l4 = usize::from(layers.l4);
        let (ip, end) = match layers.version {
            IpVersion::V4 => {
                let header = &mut frame[l3..l4];
                let right = header_checksum(header);
                let is = u16::from_be_bytes([header[10], header[11]]);
                self.bad_ip += u64::from(!same(is, right));
                let total = ipv4::Header::new_checked(&frame[l3..]).ok()?.total_len();
                (Some((l3 + 10, right)), l3 + usize::from(total))
            }
            IpVersion::V6 => {
                let header = ipv6::Header::new_checked(&frame[l3..]).ok()?;
                (None, l3 + ipv6::LEN + usize::from(header.payload_len()))
            }
        };
        let l4_fields = layers.checksum().map(usize::from).filter(|_| l4 <= end && end <= len);
        let Some(at) = l4_fields else { return Some([ip, None]) };
        let is = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let over_udp = layers.protocol == IpProtocol::UDP;
        // RFC 768: over IPv4, 0 means that the packet has no checksum. Over IPv6 a checksum is
        // required (RFC 8200, 8.1).
        if over_udp && is == 0 && layers.version == IpVersion::V4 && !partial {
            return Some([ip, None]);
        }
        frame[at..at + 2].fill(0);
        let mut sum = Sum::new();
        straightline_simd::sum(packet.level(), &frame[l4..end], &mut sum);
        let length = u16::try_from(end - l4).ok()?;
        let pseudo = match layers.version {
            IpVersion::V4 => {
                let header = ipv4::Header::new_checked(&frame[l3..]).ok()?;
                checksum::pseudo_header_v4(header.src(), header.dst(), layers.protocol, length)
            }
            IpVersion::V6 => {
                let header = ipv6::Header::new_checked(&frame[l3..]).ok()?;
                checksum::pseudo_header_v6(header.src(), header.dst(), layers.protocol, length.into())
            }
        };
        let sum = checksum::add(sum.fold(), pseudo);
        let right = if over_udp { udp::checksum_of(sum) } else { !sum };
        self.bad_l4 += u64::from(!partial && !same(is, right));
        Some([ip, Some((at, right))])
    }
}

impl Mode for Csum {
    fn packet(&mut self, packet: &Packet<'_>, _to: usize) -> bool {
        let header = packet.header();
        let len = packet.len().min(LONGEST);
        packet.read(0, &mut self.frame[..len]);
        // A packet that the device will segment has no checksum yet.
        if header.gso_type != 0 {
            return true;
        }
        let partial = header.flags & NEEDS_CSUM != 0;
        let Some([ip, l4]) = self.fields(len, packet, partial) else { return true };
        for (at, right) in [ip, l4].into_iter().flatten() {
            packet.write(at, &right.to_be_bytes());
        }
        if partial && l4.is_some() {
            self.finished += 1;
            packet.set_header(&NetHeader::default());
        }
        true
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("wrong checksums of IPv4", self.bad_ip),
            ("wrong checksums of TCP or UDP", self.bad_l4),
            ("checksums finished", self.finished),
        ]
    }
}

/// Returns the correct checksum of an IPv4 header.
fn header_checksum(header: &[u8]) -> u16 {
    !checksum::add(checksum::sum(&header[..10]), checksum::sum(&header[12..]))
}

/// Returns whether two checksums are equal: there are two representations of 0 (RFC 1624, 1).
fn same(a: u16, b: u16) -> bool {
    let normalised = |n: u16| if n == 0xffff { 0 } else { n };
    normalised(a) == normalised(b)
}
