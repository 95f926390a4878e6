//! ICMP for IPv4, RFC 792: the messages that an underlay answers, sends and honours.
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | fields, 4 bytes by type | body |
//! echo:                          | identifier 2 | sequence number 2 |
//! fragmentation needed:          | 0 2          | next-hop MTU 2    |   (RFC 1191 section 4)
//! ```

use crate::field::{cleared, put, u16_at};
use crate::{WireError, checksum};

/// Length of the header, in bytes.
pub const LEN: usize = 8;

/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 2;

const TYPE: usize = 0;
const CODE: usize = 1;
const IDENT: usize = 4;
const SEQUENCE: usize = 6;
const MTU: usize = 6;

/// Code of [`Type::UNREACHABLE`]: the packet is too long for the next hop, and must not be
/// fragmented.
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Answer to an echo request.
    pub const ECHO_REPLY: Self = Self(0);
    /// A packet could not be delivered.
    pub const UNREACHABLE: Self = Self(3);
    /// Request to send the body back.
    pub const ECHO_REQUEST: Self = Self(8);
}

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. The checksum is not verified: it
    /// covers the body as well.
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

    /// Returns the MTU of the next hop in a message that fragmentation is needed. 0: the router
    /// knows nothing of RFC 1191.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        u16_at(self.bytes.as_ref(), MTU)
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
    /// A packet is too long for the next hop. The body is its beginning: the IP header and at least
    /// 8 bytes.
    FragmentationNeeded {
        /// Bytes of the longest IP packet that the next hop takes.
        mtu: u16,
    },
}

impl Repr {
    /// Reads the values from a view. `None` for messages of other types or codes.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Option<Self> {
        let ident = header.ident();
        let sequence = header.sequence();
        match (header.message_type(), header.code()) {
            (Type::ECHO_REQUEST, 0) => Some(Self::EchoRequest { ident, sequence }),
            (Type::ECHO_REPLY, 0) => Some(Self::EchoReply { ident, sequence }),
            (Type::UNREACHABLE, FRAGMENTATION_NEEDED) => Some(Self::FragmentationNeeded { mtu: header.mtu() }),
            _ => None,
        }
    }

    /// Writes the header, checksum included, to the beginning of `buffer` and returns its length.
    /// `body_sum` is the sum of the bytes behind the header.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 8 bytes.
    pub fn emit(&self, buffer: &mut [u8], body_sum: u16) -> Result<usize, WireError> {
        let bytes = cleared(buffer, LEN)?;
        let (message_type, code) = match *self {
            Self::EchoRequest { ident, sequence } | Self::EchoReply { ident, sequence } => {
                put(bytes, IDENT, &ident.to_be_bytes());
                put(bytes, SEQUENCE, &sequence.to_be_bytes());
                let is_request = matches!(self, Self::EchoRequest { .. });
                (if is_request { Type::ECHO_REQUEST } else { Type::ECHO_REPLY }, 0)
            }
            Self::FragmentationNeeded { mtu } => {
                put(bytes, MTU, &mtu.to_be_bytes());
                (Type::UNREACHABLE, FRAGMENTATION_NEEDED)
            }
        };
        put(bytes, TYPE, &[message_type.0, code]);
        let checksum = !checksum::add(checksum::sum(bytes), body_sum);
        put(bytes, CHECKSUM, &checksum.to_be_bytes());
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: [u8; 4] = [0xfe, 0xdc, 0xba, 0x98];

    fn message(repr: Repr) -> [u8; 12] {
        let mut bytes = [0xee; 12];
        assert_eq!(repr.emit(&mut bytes, checksum::sum(&BODY)), Ok(8));
        assert_eq!(bytes[8..], [0xee; 4]);
        bytes[8..].copy_from_slice(&BODY);
        assert_eq!(checksum::sum(&bytes), 0xffff);
        assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), Some(repr));
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let request = message(Repr::EchoRequest { ident: 0x0102, sequence: 0x0304 });
        assert_eq!((&request[..2], &request[4..8]), (&[8, 0][..], &[1, 2, 3, 4][..]));
        let needed = message(Repr::FragmentationNeeded { mtu: 1400 });
        assert_eq!((&needed[..2], &needed[4..8]), (&[3, 4][..], &[0, 0, 5, 0x78][..]));
    }

    #[test]
    fn a_request_becomes_its_reply() {
        let mut bytes = message(Repr::EchoRequest { ident: 0x0102, sequence: 0x0304 });
        Header::new_checked(&mut bytes).unwrap().replace_type(Type::ECHO_REPLY);
        assert_eq!(bytes, message(Repr::EchoReply { ident: 0x0102, sequence: 0x0304 }));
    }

    #[test]
    fn other_messages_and_truncated_headers_are_refused() {
        let bytes = message(Repr::EchoReply { ident: 1, sequence: 2 });
        assert_eq!(Header::new_checked(&bytes[..7]).err(), Some(WireError::Truncated));
        for (message_type, code) in [(0, 1), (8, 1), (3, 0), (3, 3), (5, 0), (11, 0)] {
            let mut bytes = bytes;
            bytes[..2].copy_from_slice(&[message_type, code]);
            assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), None);
        }
        assert_eq!(Repr::FragmentationNeeded { mtu: 1 }.emit(&mut [0; 7], 0), Err(WireError::BufferTooSmall));
    }
}
