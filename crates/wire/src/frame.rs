//! Builder for the headers of a whole frame: Ethernet, tags, IP, UDP or TCP.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::ethernet::{self, EtherType, MacAddr};
use crate::{IpProtocol, WireError, checksum, ipv4, ipv6, tcp, udp, vlan};

/// Headers of a frame without lengths and checksums, which follow from the other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The source address.
    pub src: MacAddr,
    /// The destination address.
    pub dst: MacAddr,
    /// VLAN tags, outer tag first. An empty entry before a tag is skipped.
    pub tags: [Option<vlan::Tag>; vlan::MAX_TAGS],
    /// The network layer.
    pub net: Net,
    /// The transport layer.
    pub transport: Transport,
    /// Length in bytes of the body that will follow the headers.
    pub payload_len: u16,
}

/// Network layer of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// IPv4 without options, with "don't fragment" set.
    V4 {
        /// The source address.
        src: Ipv4Addr,
        /// The destination address.
        dst: Ipv4Addr,
        /// The identification.
        ident: u16,
        /// The time to live.
        ttl: u8,
    },
    /// IPv6 without extension headers.
    V6 {
        /// The source address.
        src: Ipv6Addr,
        /// The destination address.
        dst: Ipv6Addr,
        /// The flow label, below 2^20.
        flow_label: u32,
        /// The hop limit.
        hop_limit: u8,
    },
}

impl Net {
    /// Returns IPv4 with an identification of 0 and a time to live of 64.
    #[must_use]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self::V4 { src, dst, ident: 0, ttl: 64 }
    }

    /// Returns IPv6 with a flow label of 0 and a hop limit of 64.
    #[must_use]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self::V6 { src, dst, flow_label: 0, hop_limit: 64 }
    }
}

/// Transport layer of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp {
        /// The source port.
        src_port: u16,
        /// The destination port.
        dst_port: u16,
    },
    /// TCP without options.
    Tcp {
        /// The source port.
        src_port: u16,
        /// The destination port.
        dst_port: u16,
        /// The sequence number.
        seq: u32,
        /// The acknowledgement number.
        ack: u32,
        /// The control bits.
        flags: tcp::Flags,
        /// The window.
        window: u16,
    },
}

/// Content of the checksum field of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Zero. For UDP over IPv4 it means "no checksum".
    Zero,
    /// Sum of the pseudo-header, not complemented. virtio's `VIRTIO_NET_HDR_F_NEEDS_CSUM` expects
    /// this value when the other side completes the checksum (virtio 1.3 section 5.1.6.2.1).
    Partial,
    /// Complete checksum, computed from the sum of the body.
    Complete {
        /// Folded sum of the body, as the value of a big-endian word. The body's first byte is the
        /// high half of its first word.
        payload_sum: u16,
    },
}

impl Frame {
    /// Returns the length of all headers together, in bytes.
    #[must_use]
    pub fn headers_len(&self) -> usize {
        let net = match self.net {
            Net::V4 { .. } => ipv4::MIN_LEN,
            Net::V6 { .. } => ipv6::LEN,
        };
        ethernet::LEN + vlan::LEN * self.tags.iter().flatten().count() + net + self.transport.header_len()
    }

    /// Writes the headers to the beginning of `buffer` and returns their length.
    ///
    /// # Errors
    /// - [`WireError::BufferTooSmall`] if `buffer` is shorter than
    ///   [`headers_len`](Self::headers_len).
    /// - [`WireError::BadValue`] if the body is too long for a length field, or if a tag's value or
    ///   the flow label is out of range.
    ///
    /// After an error the content of `buffer` is unspecified.
    pub fn emit(&self, buffer: &mut [u8], checksum: Checksum) -> Result<usize, WireError> {
        let buffer = buffer.get_mut(..self.headers_len()).ok_or(WireError::BufferTooSmall)?;
        let l4_len = self.transport.len(self.payload_len)?;
        let l3 = self.emit_link(buffer)?;
        let (net_len, pseudo) = self.emit_net(&mut buffer[l3..], l4_len)?;
        let l4 = l3 + net_len;
        self.emit_transport(&mut buffer[l4..], pseudo, checksum)?;
        Ok(self.headers_len())
    }

    /// Writes Ethernet and the tags. Returns their length.
    fn emit_link(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let ether_type = match self.net {
            Net::V4 { .. } => EtherType::IPV4,
            Net::V6 { .. } => EtherType::IPV6,
        };
        ethernet::Repr { dst: self.dst, src: self.src, ether_type }.emit(buffer)?;
        let mut at = vlan::OFFSET;
        for tag in self.tags.iter().flatten() {
            at += tag.emit(&mut buffer[at..])?;
        }
        // Each tag has overwritten the type, which belongs behind the last tag.
        buffer[at..at + 2].copy_from_slice(&ether_type.0.to_be_bytes());
        Ok(at + 2)
    }

    /// Writes the IP header. Returns its length and the sum of the pseudo-header.
    fn emit_net(&self, buffer: &mut [u8], l4_len: u16) -> Result<(usize, u16), WireError> {
        let protocol = self.transport.protocol();
        match self.net {
            Net::V4 { src, dst, ident, ttl } => {
                let repr = ipv4::Repr {
                    tos: 0,
                    payload_len: l4_len,
                    ident,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    ttl,
                    protocol,
                    src,
                    dst,
                };
                Ok((repr.emit(buffer)?, checksum::pseudo_header_v4(src, dst, protocol, l4_len)))
            }
            Net::V6 { src, dst, flow_label, hop_limit } => {
                let repr = ipv6::Repr {
                    traffic_class: 0,
                    flow_label,
                    payload_len: l4_len,
                    next_header: protocol,
                    hop_limit,
                    src,
                    dst,
                };
                Ok((repr.emit(buffer)?, checksum::pseudo_header_v6(src, dst, protocol, l4_len.into())))
            }
        }
    }

    fn emit_transport(&self, buffer: &mut [u8], pseudo: u16, checksum: Checksum) -> Result<(), WireError> {
        self.transport.emit(buffer, self.payload_len, 0)?;
        let field = match checksum {
            Checksum::Zero => 0,
            Checksum::Partial => pseudo,
            Checksum::Complete { payload_sum } => {
                // The headers have an even length, so the body begins with the high half of a word,
                // as its sum supposes.
                let sum = checksum::add(checksum::add(pseudo, checksum::sum(buffer)), payload_sum);
                match self.transport {
                    Transport::Udp { .. } => udp::checksum_of(sum),
                    Transport::Tcp { .. } => !sum,
                }
            }
        };
        self.transport.emit(buffer, self.payload_len, field)?;
        Ok(())
    }
}

impl Transport {
    fn protocol(&self) -> IpProtocol {
        match self {
            Self::Udp { .. } => IpProtocol::UDP,
            Self::Tcp { .. } => IpProtocol::TCP,
        }
    }

    fn header_len(&self) -> usize {
        match self {
            Self::Udp { .. } => udp::LEN,
            Self::Tcp { .. } => tcp::MIN_LEN,
        }
    }

    /// The length of header and body.
    fn len(&self, payload_len: u16) -> Result<u16, WireError> {
        let header = u16::try_from(self.header_len()).map_err(|_| WireError::BadValue)?;
        payload_len.checked_add(header).ok_or(WireError::BadValue)
    }

    fn emit(&self, buffer: &mut [u8], payload_len: u16, checksum: u16) -> Result<usize, WireError> {
        match *self {
            Self::Udp { src_port, dst_port } => udp::Repr { src_port, dst_port, payload_len, checksum }.emit(buffer),
            Self::Tcp { src_port, dst_port, seq, ack, flags, window } => {
                tcp::Repr { src_port, dst_port, seq, ack, flags, window, checksum, urgent: 0 }.emit(buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        net: Net::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2), ident: 0, ttl: 64 },
        transport: Transport::Udp { src_port: 1, dst_port: 2 },
        payload_len: 4,
    };

    #[test]
    fn the_kinds_of_checksum() {
        let field = |checksum| {
            let mut bytes = [0; 42];
            FRAME.emit(&mut bytes, checksum).unwrap();
            u16::from_be_bytes([bytes[40], bytes[41]])
        };
        let pseudo = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 12;
        assert_eq!(field(Checksum::Zero), 0);
        assert_eq!(field(Checksum::Partial), pseudo);
        let headers = pseudo + 1 + 2 + 12;
        assert_eq!(field(Checksum::Complete { payload_sum: 0x1234 }), !(headers + 0x1234));
        // A sum of all ones: UDP has 0xffff where the complement is 0.
        assert_eq!(field(Checksum::Complete { payload_sum: 0xffff - headers }), 0xffff);
    }

    #[test]
    fn a_gap_between_tags_is_closed() {
        let tag = vlan::Tag { tpid: EtherType::VLAN, pcp: 1, dei: false, vid: 5 };
        let mut first = [0; 46];
        let mut second = [0; 46];
        assert_eq!(Frame { tags: [Some(tag), None], ..FRAME }.emit(&mut first, Checksum::Zero), Ok(46));
        assert_eq!(Frame { tags: [None, Some(tag)], ..FRAME }.emit(&mut second, Checksum::Zero), Ok(46));
        assert_eq!(first, second);
        assert_eq!(first[12..18], [0x81, 0, 0x20, 5, 8, 0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(FRAME.emit(&mut [0; 41], Checksum::Zero), Err(WireError::BufferTooSmall));
        let emit = |frame: Frame| frame.emit(&mut [0; 100], Checksum::Partial);
        assert_eq!(emit(Frame { payload_len: 65_535 - 28, ..FRAME }), Ok(42));
        assert_eq!(emit(Frame { payload_len: 65_535 - 27, ..FRAME }), Err(WireError::BadValue));
        assert_eq!(emit(Frame { payload_len: 65_535, ..FRAME }), Err(WireError::BadValue));
        let bad = vlan::Tag { tpid: EtherType::VLAN, pcp: 8, dei: false, vid: 5 };
        assert_eq!(emit(Frame { tags: [Some(bad), None], ..FRAME }), Err(WireError::BadValue));
    }
}
