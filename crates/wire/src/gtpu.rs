//! GTP-U, 3GPP TS 29.281 section 5: IP packets in UDP.
//!
//! ```text
//! | flags 1: VVVT.ESN | type 1 | length 2 (behind these 8 bytes) | TEID 4 |
//!     with E, S or N:    | sequence number 2 | N-PDU number 1 | next extension 1 |
//! extension: | length 1 (in 4 bytes, all of it) | content | next extension 1 |
//! ```

use az::SaturatingAs;

use crate::WireError;
use crate::field::{cleared, put, u16_at, u32_at};

/// UDP port of the receiver.
pub const PORT: u16 = 2152;

/// Length of a header without optional fields, the minimum.
pub const MIN_LEN: usize = 8;

/// Length of a header with optional fields, without extensions.
pub const LONG_LEN: usize = 12;

/// Maximum number of extensions.
pub const MAX_EXTENSIONS: usize = 8;

/// The information element that an echo response must carry, and whose value is ignored (section
/// 7.2.2).
pub const RECOVERY: [u8; 2] = [14, 0];

const FLAGS: usize = 0;
const TYPE: usize = 1;
const LENGTH: usize = 2;
const TEID: usize = 4;
const SEQUENCE: usize = 8;
const NEXT_EXTENSION: usize = 11;

const VERSION: u8 = 0xe0;
const VERSION_1: u8 = 0x20;
/// The flag that tells GTP from GTP', the protocol of charging.
const T: u8 = 0x10;
/// The flags of the optional fields: extension, sequence number, N-PDU number.
const E: u8 = 0x04;
const S: u8 = 0x02;
const N: u8 = 0x01;

/// Unit of an extension's length.
const UNIT: usize = 4;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Question whether the other end lives.
    pub const ECHO_REQUEST: Self = Self(1);
    /// Answer to an echo request.
    pub const ECHO_RESPONSE: Self = Self(2);
    /// A packet of the tunnel.
    pub const PACKET: Self = Self(255);
}

/// Type of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionType(pub u8);

impl ExtensionType {
    /// End of the chain.
    pub const NONE: Self = Self(0);
    /// PDU session container of 5G: the flow's quality of service (TS 38.415).
    pub const PDU_SESSION: Self = Self(0x85);

    /// Returns whether an end of the tunnel that does not know the extension must drop the packet
    /// (section 5.2.1).
    #[must_use]
    pub fn is_required(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// View of a header. Bytes behind the extensions are ignored and need not be the whole message.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
    header_len: usize,
}

impl<B: AsRef<[u8]>> Header<B> {
    /// Creates a view of the header at the beginning of `bytes`, with all its extensions.
    ///
    /// # Errors
    /// - [`WireError::Truncated`] if the header with its extensions is longer than `bytes`.
    /// - [`WireError::BadVersion`] if the version is not 1.
    /// - [`WireError::BadFlags`] for a message of GTP'.
    /// - [`WireError::BadLength`] if the length does not cover the optional fields and the
    ///   extensions, or if an extension's length is 0.
    /// - [`WireError::TooManyExtensions`] if there are more than [`MAX_EXTENSIONS`].
    pub fn new_checked(bytes: B) -> Result<Self, WireError> {
        if bytes.as_ref().len() < MIN_LEN {
            return Err(WireError::Truncated);
        }
        let mut header = Self { bytes, header_len: MIN_LEN };
        let flags = header.flags();
        if flags & VERSION != VERSION_1 {
            return Err(WireError::BadVersion);
        }
        if flags & T == 0 {
            return Err(WireError::BadFlags);
        }
        if flags & (E | S | N) != 0 {
            header.header_len = header.long_len()?;
        }
        Ok(header)
    }

    /// Returns the length of a header with optional fields, after checking all extensions.
    fn long_len(&self) -> Result<usize, WireError> {
        let message_len = MIN_LEN + usize::from(self.length());
        if message_len < LONG_LEN {
            return Err(WireError::BadLength);
        }
        let visible = self.bytes.as_ref();
        if visible.len() < LONG_LEN {
            return Err(WireError::Truncated);
        }
        let mut len = LONG_LEN;
        let mut next = self.first_extension();
        for _ in 0..MAX_EXTENSIONS {
            if next == ExtensionType::NONE {
                return Ok(len);
            }
            if len >= message_len {
                return Err(WireError::BadLength);
            }
            let extension_len = usize::from(*visible.get(len).ok_or(WireError::Truncated)?) * UNIT;
            len += extension_len;
            if extension_len == 0 || len > message_len {
                return Err(WireError::BadLength);
            }
            next = ExtensionType(*visible.get(len - 1).ok_or(WireError::Truncated)?);
        }
        if next == ExtensionType::NONE { Ok(len) } else { Err(WireError::TooManyExtensions) }
    }

    /// Returns the length of the header with its optional fields and extensions.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the type.
    #[must_use]
    pub fn message_type(&self) -> Type {
        Type(self.bytes.as_ref()[TYPE])
    }

    /// Returns the length of the message without its first 8 bytes.
    #[must_use]
    pub fn length(&self) -> u16 {
        u16_at(self.bytes.as_ref(), LENGTH)
    }

    /// Returns the tunnel endpoint identifier of the receiver; 0 in echo messages.
    #[must_use]
    pub fn teid(&self) -> u32 {
        u32_at(self.bytes.as_ref(), TEID)
    }

    /// Returns the sequence number, if there is one.
    #[must_use]
    pub fn sequence(&self) -> Option<u16> {
        (self.flags() & S != 0).then(|| u16_at(self.bytes.as_ref(), SEQUENCE))
    }

    /// Returns the types and the contents of the extensions, in their order.
    pub fn extensions(&self) -> Extensions<'_> {
        let rest = self.bytes.as_ref().get(LONG_LEN..self.header_len).unwrap_or_default();
        Extensions { rest, next: if rest.is_empty() { ExtensionType::NONE } else { self.first_extension() } }
    }

    fn flags(&self) -> u8 {
        self.bytes.as_ref()[FLAGS]
    }

    /// Returns the type of the first extension of a header with optional fields. The field has a
    /// meaning only with its flag.
    fn first_extension(&self) -> ExtensionType {
        if self.flags() & E == 0 { ExtensionType::NONE } else { ExtensionType(self.bytes.as_ref()[NEXT_EXTENSION]) }
    }
}

/// Iterator over the extensions of a header.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    /// The extensions left, all of them whole.
    rest: &'a [u8],
    next: ExtensionType,
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (ExtensionType, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let units = *self.rest.first()?;
        let (extension, rest) = self.rest.split_at_checked(usize::from(units) * UNIT)?;
        let [_, content @ .., next] = extension else { return None };
        let extension_type = self.next;
        (self.rest, self.next) = (rest, ExtensionType(*next));
        Some((extension_type, content))
    }
}

/// Values of a header without extensions and without N-PDU number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Type of the message.
    pub message_type: Type,
    /// Tunnel endpoint identifier of the receiver.
    pub teid: u32,
    /// The sequence number.
    pub sequence: Option<u16>,
    /// Length of the payload behind the header.
    pub payload_len: u16,
}

impl Repr {
    /// Reads the values from a view. Extensions are left out and do not count as payload.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        let message_len = MIN_LEN + usize::from(header.length());
        Self {
            message_type: header.message_type(),
            teid: header.teid(),
            sequence: header.sequence(),
            payload_len: message_len.saturating_sub(header.header_len).saturating_as::<u16>(),
        }
    }

    /// Returns the length of the header.
    #[must_use]
    pub fn header_len(&self) -> usize {
        if self.sequence.is_some() { LONG_LEN } else { MIN_LEN }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than the header;
    /// [`WireError::BadValue`] if the payload is too long for the length field.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let (flags, optional_len) = if self.sequence.is_some() { (S, 4) } else { (0, 0) };
        let length = self.payload_len.checked_add(optional_len).ok_or(WireError::BadValue)?;
        let bytes = cleared(buffer, self.header_len())?;
        put(bytes, FLAGS, &[VERSION_1 | T | flags, self.message_type.0]);
        put(bytes, LENGTH, &length.to_be_bytes());
        put(bytes, TEID, &self.teid.to_be_bytes());
        if let Some(sequence) = self.sequence {
            put(bytes, SEQUENCE, &sequence.to_be_bytes());
        }
        Ok(self.header_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr { message_type: Type::PACKET, teid: 0x1122_3344, sequence: Some(7), payload_len: 0x40 };

    /// Returns a header with the E flag, of a message with `payload` bytes behind `extensions`.
    fn extended(first: u8, extensions: &[u8], payload: u16) -> Vec<u8> {
        let length = u16::try_from(4 + extensions.len()).unwrap() + payload;
        let [high, low] = length.to_be_bytes();
        [&[0x34, 255, high, low, 0, 0, 0, 1, 0, 0, 0, first][..], extensions].concat()
    }

    fn error(bytes: &[u8]) -> Option<WireError> {
        Header::new_checked(bytes).err()
    }

    #[test]
    fn fields_stand_where_they_should() {
        let mut bytes = [0xee; 13];
        assert_eq!(REPR.emit(&mut bytes), Ok(12));
        assert_eq!(bytes, [0x32, 255, 0, 0x44, 0x11, 0x22, 0x33, 0x44, 0, 7, 0, 0, 0xee]);
        assert_eq!(Repr::parse(&Header::new_checked(&bytes).unwrap()), REPR);

        let plain = Repr { sequence: None, ..REPR };
        assert_eq!(plain.emit(&mut bytes), Ok(8));
        assert_eq!(bytes[..9], [0x30, 255, 0, 0x40, 0x11, 0x22, 0x33, 0x44, 0]);
        let header = Header::new_checked(&bytes[..8]).unwrap();
        assert_eq!((Repr::parse(&header), header.extensions().count()), (plain, 0));
    }

    #[test]
    fn a_chain_of_extensions_is_walked_through() {
        let extensions = [1, 0xaa, 0xbb, 0x40, 2, 1, 2, 3, 4, 5, 6, 0];
        let bytes = extended(0x85, &extensions, 100);
        let header = Header::new_checked(&bytes).unwrap();
        assert_eq!((header.header_len(), Repr::parse(&header).payload_len), (24, 100));
        let found: Vec<_> = header.extensions().collect();
        let second = ExtensionType(0x40);
        assert_eq!(found, [(ExtensionType::PDU_SESSION, &[0xaa, 0xbb][..]), (second, &[1, 2, 3, 4, 5, 6])]);
        assert!(ExtensionType::PDU_SESSION.is_required() && !second.is_required());
        for len in 0..bytes.len() {
            assert_eq!(error(&bytes[..len]), Some(WireError::Truncated), "{len}");
        }
    }

    #[test]
    fn the_next_extension_has_a_meaning_only_with_its_flag() {
        for (flags, sequence) in [(0x31, None), (0x32, Some(0x0102)), (0x33, Some(0x0102))] {
            let bytes = [flags, 255, 0, 4, 0, 0, 0, 1, 1, 2, 3, 0x85];
            let header = Header::new_checked(&bytes).unwrap();
            assert_eq!((header.header_len(), header.sequence(), header.extensions().count()), (12, sequence, 0));
        }
        let ended = extended(0, &[], 0);
        assert_eq!(Header::new_checked(&ended).unwrap().header_len(), 12);
    }

    #[test]
    fn lies_are_refused() {
        assert_eq!(error(&[0x50, 255, 0, 0, 0, 0, 0, 1]), Some(WireError::BadVersion));
        assert_eq!(error(&[0x20, 255, 0, 0, 0, 0, 0, 1]), Some(WireError::BadFlags));
        assert_eq!(error(&[0x38, 255, 0, 0, 0, 0, 0, 1]), None, "the spare bit is ignored");
        assert_eq!(error(&[0x32, 255, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0]), Some(WireError::BadLength));

        let extension = [1, 0, 0, 0];
        let mut beyond = extended(0x85, &extension, 0);
        beyond[3] = 7;
        assert_eq!(error(&beyond), Some(WireError::BadLength), "the message ends within the extension");
        beyond[3] = 4;
        assert_eq!(error(&beyond), Some(WireError::BadLength), "the message ends before the extension");
        assert_eq!(error(&extended(0x85, &[0, 0, 0, 0], 100)), Some(WireError::BadLength), "a length of 0");

        let most = [[1, 0, 0, 0x85].repeat(MAX_EXTENSIONS - 1), extension.to_vec()].concat();
        assert_eq!(error(&extended(0x85, &most, 0)), None);
        let many = [[1, 0, 0, 0x85].repeat(MAX_EXTENSIONS), extension.to_vec()].concat();
        assert_eq!(error(&extended(0x85, &many, 0)), Some(WireError::TooManyExtensions));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let emit = |repr: Repr| repr.emit(&mut [0; 12]);
        assert_eq!(emit(Repr { payload_len: 65_531, ..REPR }), Ok(12));
        assert_eq!(emit(Repr { payload_len: 65_532, ..REPR }), Err(WireError::BadValue));
        assert_eq!(REPR.emit(&mut [0; 11]), Err(WireError::BufferTooSmall));
    }
}
