//! GRE, RFC 2784 and RFC 2890, and its use as NVGRE, RFC 7637.
//!
//! ```text
//! | flags and version 2: C.KS.........VVV | protocol 2 | [checksum 2, reserved 2] | [key 4] | [sequence number 4] |
//! NVGRE: key = | VSID 3 | flow 1 |
//! ```

use crate::field::{cleared, put, u16_at, u32_at};
use crate::{EtherType, WireError};

/// Length of a header without optional fields, the minimum.
pub const MIN_LEN: usize = 4;

/// Length of a header with all optional fields, the maximum.
pub const MAX_LEN: usize = 16;

/// Length of a header of NVGRE: a key, and no other optional field.
pub const NVGRE_LEN: usize = 8;

/// Offset of the checksum in a header that has one.
pub const CHECKSUM: usize = 4;

/// Largest virtual subnet of NVGRE.
pub const MAX_VSID: u32 = 0xff_ffff;

const FLAGS: usize = 0;
const PROTOCOL: usize = 2;

/// The flags of the optional fields: checksum, key and sequence number.
const C: u16 = 0x8000;
const K: u16 = 0x2000;
const S: u16 = 0x1000;

const VERSION: u16 = 0x0007;

/// Bits of RFC 1701: routing, strict source route, and the highest bit of the recursion control. A
/// receiver that does not implement them must refuse them (RFC 2784 section 2.3).
const FORBIDDEN: u16 = 0x4c00;

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. The checksum is not verified: it
    /// covers the payload as well. Bits that RFC 2784 lets a receiver ignore are ignored.
    ///
    /// # Errors
    /// - [`WireError::Truncated`] if the header with its optional fields is longer than `bytes`.
    /// - [`WireError::BadVersion`] if the version is not 0. Version 1 is PPTP.
    /// - [`WireError::BadFlags`] if a bit is set that RFC 2784 makes a receiver refuse.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let header = Self { bytes };
        let available = header.bytes.as_ref().len();
        if available < MIN_LEN {
            return Err(WireError::Truncated);
        }
        if header.flags() & VERSION != 0 {
            return Err(WireError::BadVersion);
        }
        if header.flags() & FORBIDDEN != 0 {
            return Err(WireError::BadFlags);
        }
        if available < header.header_len() { Err(WireError::Truncated) } else { Ok(header) }
    }

    /// Returns the length of the header with its optional fields: 4, 8, 12 or 16 bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.len_of(C) + self.len_of(K) + self.len_of(S)
    }

    /// Protocol behind the header. [`EtherType::ETHERNET`] is an Ethernet frame.
    #[must_use]
    pub fn protocol(&self) -> EtherType {
        EtherType(u16_at(self.bytes.as_ref(), PROTOCOL))
    }

    /// Returns the checksum of header and payload, if there is one.
    #[must_use]
    pub fn checksum(&self) -> Option<u16> {
        (self.flags() & C != 0).then(|| u16_at(self.bytes.as_ref(), CHECKSUM))
    }

    /// Returns the key, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<u32> {
        (self.flags() & K != 0).then(|| u32_at(self.bytes.as_ref(), MIN_LEN + self.len_of(C)))
    }

    /// Returns the sequence number, if there is one.
    #[must_use]
    pub fn sequence(&self) -> Option<u32> {
        (self.flags() & S != 0).then(|| u32_at(self.bytes.as_ref(), MIN_LEN + self.len_of(C) + self.len_of(K)))
    }

    fn flags(&self) -> u16 {
        u16_at(self.bytes.as_ref(), FLAGS)
    }

    /// Returns the length of the optional field of a flag.
    fn len_of(&self, flag: u16) -> usize {
        if self.flags() & flag != 0 { 4 } else { 0 }
    }
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Protocol behind the header.
    pub protocol: EtherType,
    /// Checksum, as written in the header.
    pub checksum: Option<u16>,
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
}

impl Repr {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self {
            protocol: header.protocol(),
            checksum: header.checksum(),
            key: header.key(),
            sequence: header.sequence(),
        }
    }

    /// Returns the length of the header with its optional fields.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let fields = [self.checksum.is_some(), self.key.is_some(), self.sequence.is_some()];
        MIN_LEN + 4 * fields.into_iter().filter(|&is_there| is_there).count()
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than the header.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let bytes = cleared(buffer, self.header_len())?;
        let mut flags = 0;
        let mut at = MIN_LEN;
        if let Some(checksum) = self.checksum {
            put(bytes, at, &checksum.to_be_bytes());
            (flags, at) = (flags | C, at + 4);
        }
        if let Some(key) = self.key {
            put(bytes, at, &key.to_be_bytes());
            (flags, at) = (flags | K, at + 4);
        }
        if let Some(sequence) = self.sequence {
            put(bytes, at, &sequence.to_be_bytes());
            (flags, at) = (flags | S, at + 4);
        }
        put(bytes, FLAGS, &flags.to_be_bytes());
        put(bytes, PROTOCOL, &self.protocol.0.to_be_bytes());
        Ok(at)
    }
}

/// The key of an NVGRE header (RFC 7637 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvgreKey {
    /// Virtual subnet, at most [`MAX_VSID`].
    pub vsid: u32,
    /// Number that is the same for all packets of a flow.
    pub flow: u8,
}

impl NvgreKey {
    /// Reads the values from the header's key.
    #[must_use]
    pub fn from_key(key: u32) -> Self {
        let [.., flow] = key.to_be_bytes();
        Self { vsid: key >> 8, flow }
    }

    /// Returns the header's key.
    ///
    /// # Errors
    /// [`WireError::BadValue`] if the virtual subnet is out of range.
    pub fn to_key(self) -> Result<u32, WireError> {
        if self.vsid > MAX_VSID { Err(WireError::BadValue) } else { Ok(self.vsid << 8 | u32::from(self.flow)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Repr = Repr {
        protocol: EtherType::ETHERNET,
        checksum: Some(0x90e1),
        key: Some(0xcafe_0001),
        sequence: Some(0x0102_0304),
    };

    fn built(repr: Repr) -> Vec<u8> {
        let mut bytes = vec![0xee; MAX_LEN + 1];
        let len = repr.emit(&mut bytes).unwrap();
        assert_eq!((len, bytes[len]), (repr.header_len(), 0xee));
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let bytes = built(FULL);
        assert_eq!(bytes[..8], [0xb0, 0, 0x65, 0x58, 0x90, 0xe1, 0, 0]);
        assert_eq!(bytes[8..], [0xca, 0xfe, 0, 1, 1, 2, 3, 4]);
        assert_eq!(built(Repr { checksum: None, sequence: None, ..FULL }), [0x20, 0, 0x65, 0x58, 0xca, 0xfe, 0, 1]);
        assert_eq!(built(Repr { checksum: None, key: None, sequence: None, ..FULL }), [0, 0, 0x65, 0x58]);
    }

    #[test]
    fn every_set_of_fields_is_read_back() {
        for set in 0..8 {
            let repr = Repr {
                protocol: EtherType::IPV4,
                checksum: FULL.checksum.filter(|_| set & 1 != 0),
                key: FULL.key.filter(|_| set & 2 != 0),
                sequence: FULL.sequence.filter(|_| set & 4 != 0),
            };
            let bytes = built(repr);
            assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), repr);
            for len in 0..bytes.len() {
                assert_eq!(Header::new_checked(&bytes[..len]).err(), Some(WireError::Truncated), "{set} {len}");
            }
            assert_eq!(repr.emit(&mut vec![0; bytes.len() - 1]), Err(WireError::BufferTooSmall));
        }
    }

    /// RFC 2784 section 2.3: bits 1, 4 and 5 are refused (2 and 3 are of RFC 2890), 6 to 12 ignored.
    #[test]
    fn each_bit_is_refused_or_ignored() {
        for bit in 0..16 {
            let flags: u16 = 0x8000 >> bit;
            let bytes = [&flags.to_be_bytes()[..], &[0; 14]].concat();
            let expected = match bit {
                1 | 4 | 5 => Some(WireError::BadFlags),
                13..16 => Some(WireError::BadVersion),
                _ => None,
            };
            assert_eq!(Header::new_checked(&bytes).err(), expected, "{bit}");
        }
    }

    #[test]
    fn nvgre_divides_the_key() {
        let key = NvgreKey { vsid: 0x12_3456, flow: 0x7f };
        assert_eq!((key.to_key(), NvgreKey::from_key(0x1234_567f)), (Ok(0x1234_567f), key));
        assert_eq!(NvgreKey { vsid: MAX_VSID + 1, flow: 0 }.to_key(), Err(WireError::BadValue));
    }
}
