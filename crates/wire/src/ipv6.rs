//! IPv6, RFC 8200: the fixed header, and the walk through extension headers.

use std::net::Ipv6Addr;

use crate::field::{cleared, get, put, u16_at, u32_at};
use crate::{IpProtocol, WireError, checksum};

/// Length of the fixed header, in bytes.
pub const LEN: usize = 40;

/// Maximum number of extension headers. RFC 8200 section 4.1 lists six that may precede the
/// transport header, one of them twice.
pub const MAX_EXTENSIONS: usize = 8;

const VERSION_CLASS_FLOW: usize = 0;
const PAYLOAD_LEN: usize = 4;
const NEXT_HEADER: usize = 6;
const HOP_LIMIT: usize = 7;
const SRC: usize = 8;
const DST: usize = 24;

const FLOW_LABEL: u32 = 0x000f_ffff;

/// View of the fixed header. Bytes behind it are ignored and need not be the whole packet.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 40 bytes; [`WireError::BadVersion`] if the
    /// version is not 6.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < LEN {
            return Err(WireError::Truncated);
        }
        if bytes.as_ref()[VERSION_CLASS_FLOW] >> 4 != 6 {
            return Err(WireError::BadVersion);
        }
        Ok(Self { bytes })
    }

    /// Returns the traffic class: DSCP and ECN.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        let [_, class, _, _] = (self.first_word() >> 4).to_be_bytes();
        class
    }

    /// The flow label, below 2^20.
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        self.first_word() & FLOW_LABEL
    }

    /// Returns the length of the payload, extension headers included.
    #[must_use]
    pub fn payload_len(&self) -> u16 {
        u16_at(self.bytes.as_ref(), PAYLOAD_LEN)
    }

    /// Returns the type of the next header: an extension header or the transport protocol.
    #[must_use]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.bytes.as_ref()[NEXT_HEADER])
    }

    /// The hop limit.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.bytes.as_ref()[HOP_LIMIT]
    }

    /// The source address.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(get(self.bytes.as_ref(), SRC))
    }

    /// The destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(get(self.bytes.as_ref(), DST))
    }

    /// Returns the sum of the pseudo-header for a transport header and body of `len` bytes. With a
    /// routing header, the sum must cover the final destination (RFC 8200 section 8.1), which this
    /// header does not contain.
    #[must_use]
    pub fn pseudo_header_sum(&self, protocol: IpProtocol, len: u32) -> u16 {
        checksum::pseudo_header_v6(self.src(), self.dst(), protocol, len)
    }

    fn first_word(&self) -> u32 {
        u32_at(self.bytes.as_ref(), VERSION_CLASS_FLOW)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the payload length.
    pub fn set_payload_len(&mut self, len: u16) {
        put(self.bytes.as_mut(), PAYLOAD_LEN, &len.to_be_bytes());
    }

    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        let word = self.first_word() & !(0xff << 20) | u32::from(class) << 20;
        put(self.bytes.as_mut(), VERSION_CLASS_FLOW, &word.to_be_bytes());
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.bytes.as_mut()[HOP_LIMIT] = hops;
    }

    /// Sets the source address.
    pub fn set_src(&mut self, address: Ipv6Addr) {
        put(self.bytes.as_mut(), SRC, &address.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, address: Ipv6Addr) {
        put(self.bytes.as_mut(), DST, &address.octets());
    }
}

/// Values of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The traffic class.
    pub traffic_class: u8,
    /// The flow label, below 2^20.
    pub flow_label: u32,
    /// Length of the payload, extension headers included.
    pub payload_len: u16,
    /// Type of the next header.
    pub next_header: IpProtocol,
    /// The hop limit.
    pub hop_limit: u8,
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self {
            traffic_class: header.traffic_class(),
            flow_label: header.flow_label(),
            payload_len: header.payload_len(),
            next_header: header.next_header(),
            hop_limit: header.hop_limit(),
            src: header.src(),
            dst: header.dst(),
        }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 40 bytes; [`WireError::BadValue`]
    /// if the flow label is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        if self.flow_label > FLOW_LABEL {
            return Err(WireError::BadValue);
        }
        let bytes = cleared(buffer, LEN)?;
        let first_word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        put(bytes, VERSION_CLASS_FLOW, &first_word.to_be_bytes());
        bytes[NEXT_HEADER] = self.next_header.0;
        let mut header = Header { bytes };
        header.set_payload_len(self.payload_len);
        header.set_hop_limit(self.hop_limit);
        header.set_src(self.src);
        header.set_dst(self.dst);
        Ok(LEN)
    }
}

/// End of a walk through extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// Protocol behind the extension headers. It may be one that the walk does not know, such as
    /// ESP.
    pub protocol: IpProtocol,
    /// Length of all extension headers together, in bytes.
    pub len: usize,
    /// True if the walk ended at a fragment header. `protocol` is then the fragment header's Next
    /// Header; only in the first fragment does that protocol begin behind it. An atomic fragment
    /// (RFC 6946) counts as a fragment.
    pub fragment: bool,
}

/// Length of a fragment header, in bytes.
pub const FRAGMENT_LEN: usize = 8;

/// Returns the offset of a fragment in its packet, in units of 8 bytes, read from its fragment
/// header (RFC 8200, 4.5). The first fragment has offset 0.
///
/// # Errors
/// [`WireError::Truncated`] if there are fewer than 8 bytes.
pub fn fragment_offset(header: &[u8]) -> Result<u16, WireError> {
    if header.len() < FRAGMENT_LEN { Err(WireError::Truncated) } else { Ok(u16_at(header, 2) >> 3) }
}

/// Returns whether the packet of this fragment header is whole: it is the first fragment, and no
/// other follows (RFC 6946).
///
/// # Errors
/// [`WireError::Truncated`] if there are fewer than 8 bytes.
pub fn is_atomic_fragment(header: &[u8]) -> Result<bool, WireError> {
    const MORE: u8 = 1;
    Ok(fragment_offset(header)? == 0 && header[3] & MORE == 0)
}

/// Walks through the extension headers at the beginning of `bytes`, which follow the fixed header:
/// hop-by-hop options, routing, destination options, fragment. `first` is the fixed header's Next
/// Header.
///
/// # Errors
/// - [`WireError::Truncated`] if an extension header ends behind `bytes`.
/// - [`WireError::BadExtension`] for hop-by-hop options behind another header (RFC 8200 section
///   4.1).
/// - [`WireError::TooManyExtensions`] if there are more than [`MAX_EXTENSIONS`].
pub fn skip_extensions(bytes: &[u8], first: IpProtocol) -> Result<Extensions, WireError> {
    let mut protocol = first;
    let mut len = 0;
    for count in 0..=MAX_EXTENSIONS {
        let fragment = match protocol {
            IpProtocol::HOP_BY_HOP if count > 0 => return Err(WireError::BadExtension),
            IpProtocol::FRAGMENT => true,
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS => false,
            _ => {
                return Ok(Extensions { protocol, len, fragment: false });
            }
        };
        if count == MAX_EXTENSIONS {
            break;
        }
        let Some(&[next, units]) = bytes.get(len..).and_then(|rest| rest.first_chunk()) else {
            return Err(WireError::Truncated);
        };
        // RFC 8200 sections 4.3, 4.4 and 4.6: the length is in units of 8 bytes and does not count
        // the first 8. A fragment header has a fixed length, and this byte is reserved (section
        // 4.5).
        len += if fragment { 8 } else { (usize::from(units) + 1) * 8 };
        protocol = IpProtocol(next);
        if len > bytes.len() {
            return Err(WireError::Truncated);
        }
        if fragment {
            return Ok(Extensions { protocol, len, fragment: true });
        }
    }
    Err(WireError::TooManyExtensions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        traffic_class: 0xb8,
        flow_label: 0xf_1234,
        payload_len: 1000,
        next_header: IpProtocol::TCP,
        hop_limit: 64,
        src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
    };

    #[test]
    fn fields_stand_where_they_should() {
        let mut bytes = [0xee; 41];
        assert_eq!(REPR.emit(&mut bytes), Ok(40));
        assert_eq!(bytes[..8], [0x6b, 0x8f, 0x12, 0x34, 0x03, 0xe8, 6, 64]);
        assert_eq!(bytes[8..12], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(bytes[38..], [0, 2, 0xee]);
        assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), REPR);
        for traffic_class in [0, 0xff, 3] {
            Header::new_checked(&mut bytes).unwrap().set_traffic_class(traffic_class);
            assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), Repr { traffic_class, ..REPR });
        }
    }

    #[test]
    fn lies_and_values_out_of_range_are_refused() {
        let mut bytes = [0; 40];
        REPR.emit(&mut bytes).unwrap();
        assert_eq!(Header::new_checked(&bytes[..39]).err(), Some(WireError::Truncated));
        bytes[0] = 0x4b;
        assert_eq!(Header::new_checked(&bytes).err(), Some(WireError::BadVersion));
        assert_eq!(Repr { flow_label: 1 << 20, ..REPR }.emit(&mut bytes), Err(WireError::BadValue));
        assert_eq!(REPR.emit(&mut bytes[..39]), Err(WireError::BufferTooSmall));
    }

    /// Returns an extension header of 8 bytes and `units` times 8 bytes more.
    fn extension(next: IpProtocol, units: u8) -> Vec<u8> {
        let mut bytes = vec![0; 8 + 8 * usize::from(units)];
        bytes[..2].copy_from_slice(&[next.0, units]);
        bytes
    }

    #[test]
    fn extensions_are_walked_through() {
        let none = skip_extensions(&[], IpProtocol::TCP).unwrap();
        assert_eq!(none, Extensions { protocol: IpProtocol::TCP, len: 0, fragment: false });

        let three = [
            extension(IpProtocol::ROUTING, 0),
            extension(IpProtocol::DESTINATION_OPTIONS, 2),
            extension(IpProtocol::UDP, 1),
        ]
        .concat();
        let walked = skip_extensions(&three, IpProtocol::HOP_BY_HOP).unwrap();
        assert_eq!(walked, Extensions { protocol: IpProtocol::UDP, len: 48, fragment: false });
        for len in 0..three.len() {
            assert_eq!(skip_extensions(&three[..len], IpProtocol::HOP_BY_HOP), Err(WireError::Truncated), "{len}");
        }
    }

    #[test]
    fn a_fragment_header_ends_the_walk() {
        // The second byte of a fragment header is reserved. It is not a length.
        let bytes = [extension(IpProtocol::FRAGMENT, 1), vec![60, 0xff, 0, 1, 0, 0, 0, 9]].concat();
        let walked = skip_extensions(&bytes, IpProtocol::HOP_BY_HOP).unwrap();
        assert_eq!(fragment_offset(&bytes[walked.len - FRAGMENT_LEN..]), Ok(0));
        assert_eq!(fragment_offset(&[60, 0xff, 0xff, 0xf9, 0, 0, 0, 9]), Ok(0x1fff));
        assert_eq!(fragment_offset(&[60, 0xff, 0, 9, 0, 0, 0]), Err(WireError::Truncated));
        // Two bits are reserved.
        for (bits, is_atomic) in [(0, true), (6, true), (1, false), (7, false), (8, false), (9, false)] {
            assert_eq!(is_atomic_fragment(&[60, 0xff, 0, bits, 0, 0, 0, 9]), Ok(is_atomic), "{bits}");
        }
        assert_eq!(is_atomic_fragment(&[60, 0xff, 1, 0, 0, 0, 0, 9]), Ok(false));
        assert_eq!(is_atomic_fragment(&[60, 0, 0, 0, 0, 0, 0]), Err(WireError::Truncated));
        assert_eq!(walked, Extensions { protocol: IpProtocol::DESTINATION_OPTIONS, len: 24, fragment: true });
        assert_eq!(skip_extensions(&bytes[..23], IpProtocol::HOP_BY_HOP), Err(WireError::Truncated));
    }

    #[test]
    fn walks_that_are_refused() {
        let late = [extension(IpProtocol::HOP_BY_HOP, 0), extension(IpProtocol::TCP, 0)].concat();
        assert_eq!(skip_extensions(&late, IpProtocol::ROUTING), Err(WireError::BadExtension));

        let many = extension(IpProtocol::ROUTING, 0).repeat(MAX_EXTENSIONS);
        assert_eq!(skip_extensions(&many, IpProtocol::ROUTING), Err(WireError::TooManyExtensions));
        let most = [&many[..8 * (MAX_EXTENSIONS - 1)], &extension(IpProtocol::TCP, 0)].concat();
        assert_eq!(skip_extensions(&most, IpProtocol::ROUTING).map(|walked| walked.len), Ok(64));
    }
}
