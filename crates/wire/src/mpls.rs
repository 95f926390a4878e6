//! MPLS label stacks, RFC 3032 section 2.1, and MPLS in UDP, RFC 7510.
//!
//! ```text
//! | label 20 bits, traffic class 3 bits, bottom of stack 1 bit, TTL 8 bits | ...
//! ```
//!
//! Nothing in the stack names the protocol behind it. For IP, the first four bits of the packet
//! give the version.

use crate::WireError;
use crate::field::{cleared, put, u32_at};

/// UDP port of the receiver.
pub const PORT: u16 = 6635;

/// Length of an entry, in bytes.
pub const LEN: usize = 4;

/// Largest label.
pub const MAX_LABEL: u32 = 0xf_ffff;

/// Smallest label that the protocol does not reserve (RFC 3032 section 2.1).
pub const MIN_LABEL: u32 = 16;

/// An entry of a label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Label, at most [`MAX_LABEL`].
    pub label: u32,
    /// Traffic class, 0 to 7 (RFC 5462).
    pub traffic_class: u8,
    /// True if no entry follows.
    pub is_bottom: bool,
    /// The time to live.
    pub ttl: u8,
}

impl Entry {
    /// Reads the entry at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than four bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < LEN {
            return Err(WireError::Truncated);
        }
        let word = u32_at(bytes, 0);
        let [_, _, low, ttl] = word.to_be_bytes();
        Ok(Self { label: word >> 12, traffic_class: low >> 1 & 7, is_bottom: low & 1 != 0, ttl })
    }

    /// Writes the entry to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than four bytes;
    /// [`WireError::BadValue`] if the label or the traffic class is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        if self.label > MAX_LABEL || self.traffic_class > 7 {
            return Err(WireError::BadValue);
        }
        let bytes = cleared(buffer, LEN)?;
        let low = u32::from(self.traffic_class) << 9 | u32::from(self.is_bottom) << 8 | u32::from(self.ttl);
        put(bytes, 0, &(self.label << 12 | low).to_be_bytes());
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry { label: 0x1_2345, traffic_class: 0, is_bottom: true, ttl: 64 };

    #[test]
    fn fields_stand_where_they_should() {
        let mut bytes = [0xee; 5];
        assert_eq!(ENTRY.emit(&mut bytes), Ok(4));
        assert_eq!(bytes, [0x12, 0x34, 0x51, 0x40, 0xee]);
        assert_eq!(Entry::parse(&bytes), Ok(ENTRY));
        let other = Entry { label: MAX_LABEL, traffic_class: 5, is_bottom: false, ttl: 1 };
        assert_eq!(other.emit(&mut bytes), Ok(4));
        assert_eq!(bytes[..4], [0xff, 0xff, 0xfa, 1]);
        assert_eq!(Entry::parse(&bytes), Ok(other));
    }

    #[test]
    fn truncated_entries_and_values_out_of_range_are_refused() {
        assert_eq!(Entry::parse(&[0; 3]), Err(WireError::Truncated));
        assert_eq!(ENTRY.emit(&mut [0; 3]), Err(WireError::BufferTooSmall));
        assert_eq!(Entry { label: MAX_LABEL + 1, ..ENTRY }.emit(&mut [0; 4]), Err(WireError::BadValue));
        assert_eq!(Entry { traffic_class: 8, ..ENTRY }.emit(&mut [0; 4]), Err(WireError::BadValue));
    }
}
