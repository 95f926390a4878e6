//! VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe, section 3): VXLAN whose header names the protocol inside.
//!
//! ```text
//! | flags 1: ..VVIPBO | reserved 2 | next protocol 1 | VNI 3 | reserved 1 |
//! ```

use crate::WireError;
use crate::field::{cleared, put_u24, u24_at};

/// UDP port of the receiver.
pub const PORT: u16 = 4790;

/// Length of the header, in bytes.
pub const LEN: usize = 8;

/// Largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;

const FLAGS: usize = 0;
const NEXT_PROTOCOL: usize = 3;
const VNI: usize = 4;

const VERSION: u8 = 0x30;
/// The flag of a valid network identifier.
const I: u8 = 0x08;
/// The flag of a valid next protocol.
const P: u8 = 0x04;
/// The flag of a message about the tunnel itself.
const O: u8 = 0x01;

/// Protocol behind the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextProtocol(pub u8);

impl NextProtocol {
    /// IPv4.
    pub const IPV4: Self = Self(1);
    /// IPv6.
    pub const IPV6: Self = Self(2);
    /// Ethernet.
    pub const ETHERNET: Self = Self(3);
}

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. Reserved fields are ignored.
    ///
    /// # Errors
    /// - [`WireError::Truncated`] if there are fewer than 8 bytes.
    /// - [`WireError::BadVersion`] if the version is not 0.
    /// - [`WireError::BadFlags`] if the I flag is clear: the network identifier is then not valid.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let visible = bytes.as_ref();
        if visible.len() < LEN {
            return Err(WireError::Truncated);
        }
        if visible[FLAGS] & VERSION != 0 {
            return Err(WireError::BadVersion);
        }
        if visible[FLAGS] & I == 0 { Err(WireError::BadFlags) } else { Ok(Self { bytes }) }
    }

    /// Returns whether this is a message about the tunnel itself. A receiver must not pass its
    /// payload on.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.bytes.as_ref()[FLAGS] & O != 0
    }

    /// Returns the protocol behind the header. It is Ethernet if the P flag is clear: the sender
    /// then speaks VXLAN.
    #[must_use]
    pub fn next_protocol(&self) -> NextProtocol {
        let bytes = self.bytes.as_ref();
        if bytes[FLAGS] & P == 0 { NextProtocol::ETHERNET } else { NextProtocol(bytes[NEXT_PROTOCOL]) }
    }

    /// Returns the network identifier, below 2^24.
    #[must_use]
    pub fn vni(&self) -> u32 {
        u24_at(self.bytes.as_ref(), VNI)
    }
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Protocol behind the header.
    pub next_protocol: NextProtocol,
    /// Network identifier, at most [`MAX_VNI`].
    pub vni: u32,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self { next_protocol: header.next_protocol(), vni: header.vni() }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 8 bytes; [`WireError::BadValue`]
    /// if the network identifier is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let bytes = cleared(buffer, LEN)?;
        bytes[FLAGS] = I | P;
        bytes[NEXT_PROTOCOL] = self.next_protocol.0;
        put_u24(bytes, VNI, self.vni)?;
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 8] = [0x0c, 0, 0, 3, 0x12, 0x34, 0x56, 0];
    const REPR: Repr = Repr { next_protocol: NextProtocol::ETHERNET, vni: 0x12_3456 };

    fn with_flags(flags: u8) -> Result<Header<[u8; 8]>, WireError> {
        let mut bytes = BYTES;
        (bytes[0], bytes[3]) = (flags, 1);
        Header::new_checked(bytes)
    }

    #[test]
    fn fields_stand_where_they_should() {
        let mut built = [0xee; 9];
        assert_eq!(REPR.emit(&mut built), Ok(8));
        assert_eq!((&built[..8], built[8]), (&BYTES[..], 0xee));
        assert_eq!(Repr::parse(&Header::new_checked(&BYTES).unwrap()), REPR);
    }

    #[test]
    fn flags_give_the_other_fields_their_meaning() {
        assert_eq!(with_flags(0x0c).unwrap().next_protocol(), NextProtocol::IPV4);
        assert_eq!(with_flags(0x08).unwrap().next_protocol(), NextProtocol::ETHERNET);
        assert!(!with_flags(0xce).unwrap().is_control() && with_flags(0x0d).unwrap().is_control());
    }

    #[test]
    fn lies_and_values_out_of_range_are_refused() {
        assert_eq!(with_flags(0x04).err(), Some(WireError::BadFlags));
        for version in [0x10, 0x20, 0x30] {
            assert_eq!(with_flags(0x0c | version).err(), Some(WireError::BadVersion));
        }
        assert_eq!(Header::new_checked(&BYTES[..7]).err(), Some(WireError::Truncated));
        assert_eq!(Repr { vni: MAX_VNI + 1, ..REPR }.emit(&mut [0; 8]), Err(WireError::BadValue));
        assert_eq!(REPR.emit(&mut [0; 7]), Err(WireError::BufferTooSmall));
    }
}
