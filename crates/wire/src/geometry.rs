//! Offsets of a frame's headers: Ethernet, VLAN tags, IP and the transport header.

use crate::{EtherType, IpProtocol, IpVersion, WireError, ipv4, ipv6, tcp, udp, vlan};
use vlan::{MAX_TAGS, Tag};

/// Offsets of a frame's headers, in bytes from the beginning of the frame.
///
/// The range `..headers_len()` lies within the bytes given to [`locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Offset of the IP header: 14, 18 or 22. 0 for a packet without an Ethernet header.
    pub l3: u16,
    /// Version of the IP header. The Ethernet type and the header agree on it.
    pub version: IpVersion,
    /// Offset of the transport header, behind IPv4 options or IPv6 extension headers.
    pub l4: u16,
    /// Transport protocol. It may be any number; only the headers of TCP and UDP are checked.
    pub protocol: IpProtocol,
    /// Length of the transport header. TCP: with its options. UDP: 8. Other protocols and
    /// fragments: 0.
    pub l4_len: u16,
    /// True if the packet is a fragment. The bytes at `l4` are then not checked, because only the
    /// first fragment has a transport header.
    pub fragment: bool,
}

impl Layers {
    /// Returns the length of all headers, which is the offset of the body.
    #[must_use]
    pub fn headers_len(&self) -> u16 {
        // `locate` has checked that the sum is an offset within at most 65 535 bytes.
        self.l4 + self.l4_len
    }

    /// Returns the offset of the checksum of a TCP or UDP header; `None` for other protocols and
    /// for fragments.
    #[must_use]
    pub fn checksum(&self) -> Option<u16> {
        if self.fragment {
            return None;
        }
        // Both constants are below 20.
        match self.protocol {
            IpProtocol::TCP => Some(self.l4 + 16),
            IpProtocol::UDP => Some(self.l4 + 6),
            _ => None,
        }
    }
}

/// The layout of a frame: its tags, its type, and the offsets of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// VLAN tags, outer tag first.
    pub tags: [Option<Tag>; MAX_TAGS],
    /// Type behind the last tag. In a frame with more than two tags it is the type of the third.
    pub ether_type: EtherType,
    /// Offset of the payload: 14, 18 or 22.
    pub payload: u16,
    /// Offsets of the IP header and the transport header, as [`locate`] returns them, or the reason
    /// why there are none.
    pub layers: Result<Layers, WireError>,
}

impl Layout {
    /// Parses the headers at the beginning of a frame. `head` may be a part of the frame.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if `head` ends before the type is known. Errors of later headers are
    /// in [`Self::layers`].
    pub fn parse(head: &[u8]) -> Result<Self, WireError> {
        let head = first_bytes(head);
        let tags = vlan::skip(head)?;
        let layers = locate_at(head, tags.payload, tags.ether_type);
        let payload = u16::try_from(tags.payload).map_err(|_| WireError::Truncated)?;
        Ok(Layout { tags: tags.tags, ether_type: tags.ether_type, payload, layers })
    }
}

/// Returns the bytes that offsets of 16 bits can point to.
fn first_bytes(head: &[u8]) -> &[u8] {
    &head[..head.len().min(usize::from(u16::MAX))]
}

/// Finds the headers at the beginning of a frame: Ethernet, up to two VLAN tags, IPv4 with options
/// or IPv6 with extension headers, TCP with options or UDP.
///
/// `head` may be a part of the frame, but must hold these headers. Checksums are not verified.
/// Length fields are checked only as far as they concern the headers themselves.
///
/// # Errors
/// - [`WireError::NotIp`] for other Ethernet types, and for more than two tags.
/// - [`WireError::Truncated`] if `head` does not hold a header wholly. At most 65 535 bytes of
///   `head` are read.
/// - The errors of each header's check.
pub fn locate(head: &[u8]) -> Result<Layers, WireError> {
    let head = first_bytes(head);
    let tags = vlan::skip(head)?;
    locate_at(head, tags.payload, tags.ether_type)
}

/// Finds the headers at the beginning of an IP packet, as [`locate`] does in a frame. All offsets
/// count from the IP header.
///
/// # Errors
/// As [`locate`]: [`WireError::NotIp`] if the first four bits name neither IPv4 nor IPv6.
pub fn locate_ip(head: &[u8]) -> Result<Layers, WireError> {
    let head = first_bytes(head);
    let ether_type = match head.first().ok_or(WireError::Truncated)? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return Err(WireError::NotIp),
    };
    locate_at(head, 0, ether_type)
}

/// Finds the headers from the IP header on, which begins at `l3`.
fn locate_at(head: &[u8], l3: usize, ether_type: EtherType) -> Result<Layers, WireError> {
    let packet = head.get(l3..).ok_or(WireError::Truncated)?;
    let (version, len, protocol, fragment) = match ether_type {
        EtherType::IPV4 => {
            let header = ipv4::Header::new_checked(packet)?;
            (IpVersion::V4, header.header_len(), header.protocol(), header.is_fragment())
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::new_checked(packet)?;
            let extensions = ipv6::skip_extensions(&packet[ipv6::LEN..], header.next_header())?;
            (IpVersion::V6, ipv6::LEN + extensions.len, extensions.protocol, extensions.fragment)
        }
        _ => return Err(WireError::NotIp),
    };
    let l4 = l3 + len;
    let transport = head.get(l4..).ok_or(WireError::Truncated)?;
    let l4_len = match protocol {
        _ if fragment => 0,
        IpProtocol::TCP => tcp::Header::new_checked(transport)?.header_len(),
        IpProtocol::UDP => {
            udp::Header::new_checked(transport)?;
            udp::LEN
        }
        _ => 0,
    };
    let offset = |at: usize| u16::try_from(at).map_err(|_| WireError::Truncated);
    Ok(Layers { l3: offset(l3)?, version, l4: offset(l4)?, protocol, l4_len: offset(l4_len)?, fragment })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame: two Ethernet addresses and `rest`.
    fn frame(rest: &[&[u8]]) -> Vec<u8> {
        [&[2; 12][..], &rest.concat()].concat()
    }

    const IPV4_UDP: [u8; 20] = [0x45, 0, 0, 36, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    const UDP: [u8; 8] = [0, 1, 0, 2, 0, 16, 0, 0];
    const TCP_24: [u8; 24] = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0];

    fn ipv6(next: u8) -> [u8; 40] {
        let mut bytes = [0; 40];
        (bytes[0], bytes[6]) = (0x60, next);
        bytes
    }

    #[test]
    fn udp_over_ipv4_with_and_without_tags() {
        let plain = frame(&[&[8, 0], &IPV4_UDP, &UDP]);
        let expected =
            Layers { l3: 14, version: IpVersion::V4, l4: 34, protocol: IpProtocol::UDP, l4_len: 8, fragment: false };
        assert_eq!(locate(&plain), Ok(expected));
        assert_eq!((expected.headers_len(), expected.checksum()), (42, Some(40)));
        for len in 0..plain.len() {
            assert_eq!(locate(&plain[..len]), Err(WireError::Truncated), "{len}");
        }

        let twice = frame(&[&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0], &IPV4_UDP, &UDP]);
        assert_eq!(locate(&twice), Ok(Layers { l3: 22, l4: 42, ..expected }));
        let thrice = frame(&[&[0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 2, 8, 0], &IPV4_UDP, &UDP]);
        assert_eq!(locate(&thrice), Err(WireError::NotIp));
    }

    #[test]
    fn options_and_extensions_are_stepped_over() {
        let mut with_options = IPV4_UDP;
        (with_options[0], with_options[9], with_options[3]) = (0x47, 6, 60);
        let v4 = frame(&[&[8, 0], &with_options, &[1; 8], &TCP_24]);
        let layers = locate(&v4).unwrap();
        assert_eq!((layers.l4, layers.protocol, layers.l4_len), (42, IpProtocol::TCP, 24));
        assert_eq!(layers.checksum(), Some(58));

        let v6 = frame(&[&[0x86, 0xdd], &ipv6(0), &[60, 0, 0, 0, 0, 0, 0, 0], &[6, 1], &[0; 14], &TCP_24]);
        let layers = locate(&v6).unwrap();
        assert_eq!((layers.version, layers.l3, layers.l4), (IpVersion::V6, 14, 14 + 40 + 8 + 16));
        assert_eq!(
            (layers.protocol, layers.l4_len, usize::from(layers.headers_len())),
            (IpProtocol::TCP, 24, v6.len())
        );
        for len in 0..v6.len() {
            assert_eq!(locate(&v6[..len]), Err(WireError::Truncated), "{len}");
        }
    }

    #[test]
    fn fragments_have_no_transport_header() {
        let mut part = IPV4_UDP;
        part[7] = 1;
        let layers = locate(&frame(&[&[8, 0], &part])).unwrap();
        assert!(layers.fragment);
        assert_eq!((layers.l4, layers.l4_len, layers.checksum()), (34, 0, None));

        let layers = locate(&frame(&[&[0x86, 0xdd], &ipv6(44), &[6, 0, 0, 8, 0, 0, 0, 1]])).unwrap();
        assert!(layers.fragment);
        assert_eq!((layers.l4, layers.protocol, layers.l4_len), (62, IpProtocol::TCP, 0));
    }

    #[test]
    fn other_protocols_are_named_only() {
        let mut icmp = IPV4_UDP;
        icmp[9] = 1;
        let layers = locate(&frame(&[&[8, 0], &icmp])).unwrap();
        assert_eq!((layers.protocol, layers.l4, layers.l4_len, layers.checksum()), (IpProtocol::ICMP, 34, 0, None));
        assert_eq!(locate(&frame(&[&[8, 6], &[0; 28]])), Err(WireError::NotIp));
        assert_eq!(locate(&frame(&[&[0x86, 0xdd], &IPV4_UDP, &[0; 40]])), Err(WireError::BadVersion));
    }

    #[test]
    fn an_ip_packet_has_the_headers_of_its_frame() {
        let tcp_v6 = [&ipv6(6)[..], &TCP_24].concat();
        for (ether_type, packet) in [([8, 0], [&IPV4_UDP[..], &UDP].concat()), ([0x86, 0xdd], tcp_v6)] {
            let framed = locate(&frame(&[&ether_type, &packet])).unwrap();
            assert_eq!(locate_ip(&packet), Ok(Layers { l3: 0, l4: framed.l4 - 14, ..framed }));
            for len in 0..packet.len() {
                assert_eq!(locate_ip(&packet[..len]), Err(WireError::Truncated), "{len}");
            }
        }
        assert_eq!(locate_ip(&[0x50; 60]), Err(WireError::NotIp));
    }

    #[test]
    fn a_long_head_is_no_trouble() {
        let mut long = frame(&[&[8, 0], &IPV4_UDP, &UDP]);
        long.resize(200_000, 0);
        assert_eq!(locate(&long).map(|layers| layers.l4), Ok(34));
    }
}
