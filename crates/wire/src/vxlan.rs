//! VXLAN, RFC 7348 section 5: Ethernet frames in UDP.
//!
//! ```text
//! | flags 1: ....I... | reserved 3 | VNI 3 | reserved 1 |
//! ```

use crate::WireError;
use crate::field::{cleared, put_u24, u24_at};

/// UDP port of the receiver.
pub const PORT: u16 = 4789;

/// Length of the header, in bytes.
pub const LEN: usize = 8;

/// Largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;

const FLAGS: usize = 0;
const VNI: usize = 4;

/// The flag of a valid network identifier.
const I: u8 = 0x08;

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. Reserved fields and the other flags
    /// are ignored, as RFC 7348 demands.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 8 bytes; [`WireError::BadFlags`] if the I
    /// flag is clear: the network identifier is then not valid.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let visible = bytes.as_ref();
        if visible.len() < LEN {
            return Err(WireError::Truncated);
        }
        if visible[FLAGS] & I == 0 { Err(WireError::BadFlags) } else { Ok(Self { bytes }) }
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
    /// Network identifier, at most [`MAX_VNI`].
    pub vni: u32,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self { vni: header.vni() }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 8 bytes; [`WireError::BadValue`]
    /// if the network identifier is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let bytes = cleared(buffer, LEN)?;
        bytes[FLAGS] = I;
        put_u24(bytes, VNI, self.vni)?;
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 8] = [8, 0, 0, 0, 0x12, 0x34, 0x56, 0];

    #[test]
    fn fields_stand_where_they_should() {
        let mut built = [0xee; 9];
        assert_eq!(Repr { vni: 0x12_3456 }.emit(&mut built), Ok(8));
        assert_eq!((&built[..8], built[8]), (&BYTES[..], 0xee));
        assert_eq!(Repr::parse(&Header::new_checked(&BYTES).unwrap()), Repr { vni: 0x12_3456 });
    }

    #[test]
    fn reserved_fields_are_ignored() {
        let header = Header::new_checked([0xff, 0xff, 0xff, 0xff, 0x12, 0x34, 0x56, 0xff]).unwrap();
        assert_eq!(header.vni(), 0x12_3456);
    }

    #[test]
    fn lies_and_values_out_of_range_are_refused() {
        let mut bytes = BYTES;
        bytes[0] = !I;
        assert_eq!(Header::new_checked(&bytes).err(), Some(WireError::BadFlags));
        assert_eq!(Header::new_checked(&BYTES[..7]).err(), Some(WireError::Truncated));
        assert_eq!(Repr { vni: MAX_VNI }.emit(&mut [0; 8]), Ok(8));
        assert_eq!(Repr { vni: MAX_VNI + 1 }.emit(&mut [0; 8]), Err(WireError::BadValue));
        assert_eq!(Repr { vni: 1 }.emit(&mut [0; 7]), Err(WireError::BufferTooSmall));
    }
}
