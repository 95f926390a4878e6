//! The parts that version 3 of IGMP (RFC 3376) and version 2 of MLD (RFC 3810) share: records of a
//! report, and numbers with an exponent.
//!
//! ```text
//! record: | type 1 | length of auxiliary data 1 (in 4 bytes) | number of sources 2 | group | sources | auxiliary data |
//! ```
//!
//! An address has `N` bytes: 4 in IGMP, 16 in MLD.

use crate::WireError;
use crate::field::{cleared, get, put, u16_at};

/// Length of a record without its group, in bytes.
const FIXED: usize = 4;

/// Unit of the length of auxiliary data.
const UNIT: usize = 4;

/// Type of a record (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordType(pub u8);

impl RecordType {
    /// The listener wants packets of the named sources.
    pub const IS_INCLUDE: Self = Self(1);
    /// The listener wants packets of all sources but the named ones.
    pub const IS_EXCLUDE: Self = Self(2);
    /// From now on the listener wants packets of the named sources.
    pub const TO_INCLUDE: Self = Self(3);
    /// From now on the listener wants packets of all sources but the named ones.
    pub const TO_EXCLUDE: Self = Self(4);
    /// The listener wants packets of the named sources in addition.
    pub const ALLOW: Self = Self(5);
    /// The listener wants no more packets of the named sources.
    pub const BLOCK: Self = Self(6);
}

/// A record of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord<'a, const N: usize> {
    /// Type of the record. Receivers ignore records of types that they do not know.
    pub record_type: RecordType,
    /// Address of the group.
    pub group: [u8; N],
    /// Addresses of the named sources.
    pub sources: &'a [[u8; N]],
}

impl<const N: usize> GroupRecord<'_, N> {
    /// Returns the length of the record without auxiliary data.
    #[must_use]
    pub fn record_len(&self) -> usize {
        FIXED + N * (1 + self.sources.len())
    }

    /// Writes the record, without auxiliary data, to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than the record; [`WireError::BadValue`] if
    /// there are more than 65 535 sources.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let count = u16::try_from(self.sources.len()).map_err(|_| WireError::BadValue)?;
        let bytes = cleared(buffer, self.record_len())?;
        bytes[0] = self.record_type.0;
        put(bytes, 2, &count.to_be_bytes());
        put(bytes, FIXED, &self.group);
        put(bytes, FIXED + N, self.sources.as_flattened());
        Ok(self.record_len())
    }
}

/// Iterator over the records of a report.
///
/// It ends after the first error, [`WireError::BadLength`]: a record is longer than the bytes left.
#[derive(Clone, Debug)]
pub struct GroupRecords<'a, const N: usize> {
    rest: &'a [u8],
    /// The number of records that the report announces and that were not read.
    left: u16,
}

impl<'a, const N: usize> GroupRecords<'a, N> {
    /// Returns the first `count` records in `bytes`, without a report's header before them.
    #[must_use]
    pub fn new(bytes: &'a [u8], count: u16) -> Self {
        Self { rest: bytes, left: count }
    }

    fn read(&mut self) -> Result<GroupRecord<'a, N>, WireError> {
        let (fixed, rest) = self.rest.split_at_checked(FIXED + N).ok_or(WireError::BadLength)?;
        let sources = usize::from(u16_at(fixed, 2)) * N;
        let (sources, rest) = rest.split_at_checked(sources).ok_or(WireError::BadLength)?;
        let (_, rest) = rest.split_at_checked(usize::from(fixed[1]) * UNIT).ok_or(WireError::BadLength)?;
        self.rest = rest;
        let sources = sources.as_chunks().0;
        Ok(GroupRecord { record_type: RecordType(fixed[0]), group: get(fixed, FIXED), sources })
    }
}

impl<'a, const N: usize> Iterator for GroupRecords<'a, N> {
    type Item = Result<GroupRecord<'a, N>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let record = self.read();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

/// Returns the value of a code of 8 bits (RFC 3376, 4.1.1 and 4.1.7): a number below 128, or a mantissa
/// of 4 bits with an exponent. The largest value is 31 744.
#[must_use]
pub fn code8(code: u8) -> u16 {
    if code < 0x80 {
        return code.into();
    }
    u16::from(code & 0x0f | 0x10) << ((code >> 4 & 7) + 3)
}

/// Returns the value of a code of 16 bits (RFC 3810, 5.1.3): a number below 32 768, or a mantissa of 12
/// bits with an exponent. The largest value is 8 387 584.
#[must_use]
pub fn code16(code: u16) -> u32 {
    if code < 0x8000 {
        return code.into();
    }
    u32::from(code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_grow_and_have_no_gap() {
        assert_eq!([0, 1, 0x7f, 0x80, 0x81, 0xff].map(code8), [0, 1, 127, 128, 136, 31_744]);
        assert!((0..255).all(|code| code8(code) < code8(code + 1)));
        assert_eq!([0, 0x7fff, 0x8000, 0x8001, 0xffff].map(code16), [0, 0x7fff, 0x8000, 0x8008, 8_387_584]);
        assert!((0..u16::MAX).all(|code| code16(code) < code16(code + 1)));
    }

    #[test]
    fn records_are_read_with_their_sources() {
        let sources = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let record = GroupRecord { record_type: RecordType::ALLOW, group: [239, 1, 2, 3], sources: &sources };
        let mut bytes = [0xee; 17];
        assert_eq!(record.emit(&mut bytes), Ok(16));
        assert_eq!(bytes, [5, 0, 0, 2, 239, 1, 2, 3, 10, 0, 0, 1, 10, 0, 0, 2, 0xee]);
        assert_eq!(record.emit(&mut bytes[..15]), Err(WireError::BufferTooSmall));
        let many = vec![[0; 4]; 65_536];
        assert_eq!(GroupRecord { sources: &many, ..record }.emit(&mut [0; 32]), Err(WireError::BadValue));
        // The first record has four bytes of auxiliary data.
        let with_data = [&[2, 1, 0, 0, 224, 1, 1, 1][..], &[0xff; 4], &bytes[..16]].concat();
        let first = GroupRecord { record_type: RecordType::IS_EXCLUDE, group: [224, 1, 1, 1], sources: &[] };
        let read = |count| GroupRecords::new(&with_data, count).collect::<Vec<_>>();
        assert_eq!(read(2), [Ok(first), Ok(record)]);
        assert_eq!(read(1), [Ok(first)]);
        assert_eq!(read(3), [Ok(first), Ok(record), Err(WireError::BadLength)]);
        for len in 0..with_data.len() {
            assert!(GroupRecords::<4>::new(&with_data[..len], 2).any(|record| record.is_err()), "{len}");
        }
    }
}
