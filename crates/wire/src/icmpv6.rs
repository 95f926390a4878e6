//! ICMP for IPv6, RFC 4443: the messages that an underlay answers, sends and honours. The messages
//! of neighbour discovery are in [`ndp`](crate::ndp).
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | fields, 4 bytes by type | body |
//! echo:                          | identifier 2 | sequence number 2 |
//! packet too big:                | MTU 4                            |
//! ```

use std::net::Ipv6Addr;

use crate::field::{cleared, put, u16_at, u32_at};
use crate::{IpProtocol, WireError, checksum};

/// Length of the header, in bytes.
pub const LEN: usize = 8;

/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 2;

const TYPE: usize = 0;
const CODE: usize = 1;
const IDENT: usize = 4;
const SEQUENCE: usize = 6;
const MTU: usize = 4;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// A packet is longer than the next hop takes.
    pub const TOO_BIG: Self = Self(2);
    /// Request to send the body back.
    pub const ECHO_REQUEST: Self = Self(128);
    /// Answer to an echo request.
    pub const ECHO_REPLY: Self = Self(129);

    /// Returns whether this is the type of an error message (RFC 4443 section 2.1).
    #[must_use]
    pub fn is_error(self) -> bool {
        self.0 < 128
    }
}

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. The checksum is not verified: it
    /// covers the pseudo-header and the body as well.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 8 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < LEN { Err(WireError::Truncated) } else { Ok(Self { bytes }) }
    }

    /// Returns the type.
    #[must_use]
    pub fn message_type(&self) -> Type {
        Type(self.bytes.as_ref()[TYPE])
    }

    /// The code, whose meaning depends on the type.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.bytes.as_ref()[CODE]
    }

    /// Returns the checksum, as written in the header.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), CHECKSUM)
    }

    /// Returns the identifier of an echo message.
    #[must_use]
    pub fn ident(&self) -> u16 {
        u16_at(self.bytes.as_ref(), IDENT)
    }

    /// Returns the sequence number of an echo message.
    #[must_use]
    pub fn sequence(&self) -> u16 {
        u16_at(self.bytes.as_ref(), SEQUENCE)
    }

    /// Returns the MTU of the next hop in a message that a packet is too big.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        u32_at(self.bytes.as_ref(), MTU)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the type, and changes the checksum by the difference. The body stays as it is: an echo
    /// request becomes its reply.
    pub fn replace_type(&mut self, message_type: Type) {
        let old = u16_at(self.bytes.as_ref(), TYPE);
        self.bytes.as_mut()[TYPE] = message_type.0;
        let checksum = checksum::replace(self.checksum(), old, u16_at(self.bytes.as_ref(), TYPE));
        self.set_checksum(checksum);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.bytes.as_mut(), CHECKSUM, &checksum.to_be_bytes());
    }
}

/// Computes the checksum of `message`, a whole ICMPv6 message, and writes it. The message may be one
/// of neighbour discovery.
///
/// # Errors
/// [`WireError::Truncated`] if the message has no checksum field; [`WireError::BadLength`] if it is
/// longer than 2^32 bytes.
pub fn fill_checksum(message: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<(), WireError> {
    let len = u32::try_from(message.len()).map_err(|_| WireError::BadLength)?;
    message.get_mut(CHECKSUM..CHECKSUM + 2).ok_or(WireError::Truncated)?.fill(0);
    let pseudo = checksum::pseudo_header_v6(src, dst, IpProtocol::ICMPV6, len);
    let checksum = !checksum::add(pseudo, checksum::sum(message));
    put(message, CHECKSUM, &checksum.to_be_bytes());
    Ok(())
}

/// Values of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Request to send the body back.
    EchoRequest {
        /// The identifier.
        ident: u16,
        /// The sequence number.
        sequence: u16,
    },
    /// Answer to a request.
    EchoReply {
        /// The identifier.
        ident: u16,
        /// The sequence number.
        sequence: u16,
    },
    /// A packet is longer than the next hop takes. The body is its beginning: as much as fits 1280
    /// bytes together with all headers.
    TooBig {
        /// Bytes of the longest IP packet that the next hop takes.
        mtu: u32,
    },
}

impl Repr {
    /// Reads the values from a view. `None` for messages of other types. The code of an error
    /// message is ignored (RFC 4443 section 3.2).
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Option<Self> {
        let ident = header.ident();
        let sequence = header.sequence();
        match (header.message_type(), header.code()) {
            (Type::ECHO_REQUEST, 0) => Some(Self::EchoRequest { ident, sequence }),
            (Type::ECHO_REPLY, 0) => Some(Self::EchoReply { ident, sequence }),
            (Type::TOO_BIG, _) => Some(Self::TooBig { mtu: header.mtu() }),
            _ => None,
        }
    }

    /// Writes the header, checksum included, to the beginning of `buffer` and returns its length.
    /// `other_sum` is the sum of the pseudo-header and of the bytes behind the header, added.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 8 bytes.
    pub fn emit(&self, buffer: &mut [u8], other_sum: u16) -> Result<usize, WireError> {
        let bytes = cleared(buffer, LEN)?;
        match *self {
            Self::EchoRequest { ident, sequence } | Self::EchoReply { ident, sequence } => {
                let is_request = matches!(self, Self::EchoRequest { .. });
                bytes[TYPE] = if is_request { Type::ECHO_REQUEST.0 } else { Type::ECHO_REPLY.0 };
                put(bytes, IDENT, &ident.to_be_bytes());
                put(bytes, SEQUENCE, &sequence.to_be_bytes());
            }
            Self::TooBig { mtu } => {
                bytes[TYPE] = Type::TOO_BIG.0;
                put(bytes, MTU, &mtu.to_be_bytes());
            }
        }
        let checksum = !checksum::add(checksum::sum(bytes), other_sum);
        put(bytes, CHECKSUM, &checksum.to_be_bytes());
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: [u8; 4] = [0xfe, 0xdc, 0xba, 0x98];
    const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    fn message(repr: Repr) -> [u8; 12] {
        let pseudo = checksum::pseudo_header_v6(SRC, DST, IpProtocol::ICMPV6, 12);
        let mut bytes = [0xee; 12];
        assert_eq!(repr.emit(&mut bytes, checksum::add(pseudo, checksum::sum(&BODY))), Ok(8));
        assert_eq!(bytes[8..], [0xee; 4]);
        bytes[8..].copy_from_slice(&BODY);
        assert_eq!(checksum::add(pseudo, checksum::sum(&bytes)), 0xffff);
        let mut again = bytes;
        fill_checksum(&mut again, SRC, DST).unwrap();
        assert_eq!(again, bytes);
        assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), Some(repr));
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let request = message(Repr::EchoRequest { ident: 0x0102, sequence: 0x0304 });
        assert_eq!((&request[..2], &request[4..8]), (&[128, 0][..], &[1, 2, 3, 4][..]));
        let too_big = message(Repr::TooBig { mtu: 0x0001_0400 });
        assert_eq!((&too_big[..2], &too_big[4..8]), (&[2, 0][..], &[0, 1, 4, 0][..]));
        assert!(Type::TOO_BIG.is_error() && !Type::ECHO_REPLY.is_error());
    }

    #[test]
    fn a_request_becomes_its_reply() {
        let mut bytes = message(Repr::EchoRequest { ident: 0x0102, sequence: 0x0304 });
        Header::new_checked(&mut bytes).unwrap().replace_type(Type::ECHO_REPLY);
        assert_eq!(bytes, message(Repr::EchoReply { ident: 0x0102, sequence: 0x0304 }));
    }

    #[test]
    fn other_messages_and_truncated_headers_are_refused() {
        let mut bytes = message(Repr::EchoReply { ident: 1, sequence: 2 });
        assert_eq!(Header::new_checked(&bytes[..7]).err(), Some(WireError::Truncated));
        assert_eq!(fill_checksum(&mut bytes[..3], SRC, DST), Err(WireError::Truncated));
        for (message_type, code) in [(128, 1), (129, 1), (1, 0), (3, 0), (135, 0)] {
            bytes[..2].copy_from_slice(&[message_type, code]);
            assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), None);
        }
        assert_eq!(Repr::TooBig { mtu: 1 }.emit(&mut [0; 7], 0), Err(WireError::BufferTooSmall));
    }
}
