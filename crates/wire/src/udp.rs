//! UDP, RFC 768.

use crate::WireError;
use crate::field::{cleared, put, u16_at};

/// Length of the header, in bytes.
pub const LEN: usize = 8;

/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 6;

const SRC_PORT: usize = 0;
const DST_PORT: usize = 2;
const LENGTH: usize = 4;

/// View of a header. Bytes behind the header are ignored and need not be the whole datagram.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 8 bytes; [`WireError::BadLength`] if the
    /// length field is below 8.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < LEN {
            return Err(WireError::Truncated);
        }
        let header = Self { bytes };
        if usize::from(header.length()) < LEN { Err(WireError::BadLength) } else { Ok(header) }
    }

    /// The source port.
    #[must_use]
    pub fn src_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), SRC_PORT)
    }

    /// The destination port.
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.bytes.as_ref(), DST_PORT)
    }

    /// Returns the length of the datagram, header included.
    #[must_use]
    pub fn length(&self) -> u16 {
        u16_at(self.bytes.as_ref(), LENGTH)
    }

    /// Returns the checksum as written in the header. 0 means "no checksum".
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), CHECKSUM)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the source port.
    pub fn set_src_port(&mut self, port: u16) {
        put(self.bytes.as_mut(), SRC_PORT, &port.to_be_bytes());
    }

    /// Sets the destination port.
    pub fn set_dst_port(&mut self, port: u16) {
        put(self.bytes.as_mut(), DST_PORT, &port.to_be_bytes());
    }

    /// Sets the length.
    pub fn set_length(&mut self, length: u16) {
        put(self.bytes.as_mut(), LENGTH, &length.to_be_bytes());
    }

    /// Sets the checksum field to `checksum`; see [`checksum_of`].
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.bytes.as_mut(), CHECKSUM, &checksum.to_be_bytes());
    }
}

/// Returns the checksum for the sum of pseudo-header, header and body. It is the complement of the
/// sum, but 0xffff instead of 0, because 0 means "no checksum" (RFC 768).
#[must_use]
pub fn checksum_of(sum: u16) -> u16 {
    if sum == 0xffff { 0xffff } else { !sum }
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// Length of the payload behind the header.
    pub payload_len: u16,
    /// Checksum, as written in the header.
    pub checksum: u16,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self {
            src_port: header.src_port(),
            dst_port: header.dst_port(),
            payload_len: header.length().saturating_sub(8),
            checksum: header.checksum(),
        }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 8 bytes; [`WireError::BadValue`]
    /// if the payload is longer than 65 527 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let length = self.payload_len.checked_add(8).ok_or(WireError::BadValue)?;
        let mut header = Header { bytes: cleared(buffer, LEN)? };
        header.set_src_port(self.src_port);
        header.set_dst_port(self.dst_port);
        header.set_length(length);
        header.set_checksum(self.checksum);
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_they_should() {
        let bytes = [0x12, 0x34, 0x56, 0x78, 0, 9, 0xab, 0xcd, 0xee];
        let header = Header::new_checked(&bytes).unwrap();
        assert_eq!((header.src_port(), header.dst_port()), (0x1234, 0x5678));
        assert_eq!((header.length(), header.checksum()), (9, 0xabcd));
        let mut built = [0xee; 9];
        assert_eq!(Repr::parse(&header).emit(&mut built), Ok(8));
        assert_eq!(built, bytes);
    }

    #[test]
    fn lies_and_values_out_of_range_are_refused() {
        let bytes = [0, 1, 0, 2, 0, 7, 0, 0];
        assert_eq!(Header::new_checked(&bytes).err(), Some(WireError::BadLength));
        assert_eq!(Header::new_checked(&bytes[..7]).err(), Some(WireError::Truncated));
        let repr = Repr { src_port: 1, dst_port: 2, payload_len: 65_527, checksum: 0 };
        assert_eq!(repr.emit(&mut [0; 8]), Ok(8));
        assert_eq!(repr.emit(&mut [0; 7]), Err(WireError::BufferTooSmall));
        assert_eq!(Repr { payload_len: 65_528, ..repr }.emit(&mut [0; 8]), Err(WireError::BadValue));
    }

    #[test]
    fn a_checksum_is_never_zero() {
        assert_eq!(checksum_of(0xffff), 0xffff);
        assert_eq!(checksum_of(0), 0xffff);
        assert_eq!(checksum_of(0x1234), !0x1234);
    }
}
