//! Geneve, RFC 8926 section 3.4: Ethernet frames in UDP, with options.
//!
//! ```text
//! | VV, length of options 6 bits (in 4 bytes) | flags 1: OC...... | protocol 2 | VNI 3 | reserved 1 |
//! option: | class 2 | type 1 (highest bit: critical) | ..., length of data 5 bits (in 4 bytes) | data |
//! ```

use crate::field::{cleared, put, put_u24, u16_at, u24_at};
use crate::{EtherType, WireError};

/// UDP port of the receiver.
pub const PORT: u16 = 6081;

/// Length of a header without options, the minimum.
pub const MIN_LEN: usize = 8;

/// Length of all options that fit, the maximum.
pub const MAX_OPTIONS: usize = 63 * UNIT;

/// Largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;

const VERSION_LEN: usize = 0;
const FLAGS: usize = 1;
const PROTOCOL: usize = 2;
const VNI: usize = 4;

const VERSION: u8 = 0xc0;
const OPTIONS_LEN: u8 = 0x3f;
/// The flag of a message about the tunnel itself.
const O: u8 = 0x80;
/// The flag of a header with a critical option.
const C: u8 = 0x40;

/// Unit of length fields, and the length of an option's own header.
const UNIT: usize = 4;

/// View of a header. Bytes behind the options are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. Reserved fields are ignored. The
    /// options lie within `bytes`; their own lengths are not checked, see
    /// [`options`](Self::options).
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header with its options is longer than `bytes`;
    /// [`WireError::BadVersion`] if the version is not 0.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let header = Self { bytes };
        let visible = header.bytes.as_ref();
        if visible.len() < MIN_LEN {
            return Err(WireError::Truncated);
        }
        if visible[VERSION_LEN] & VERSION != 0 {
            return Err(WireError::BadVersion);
        }
        if visible.len() < header.header_len() { Err(WireError::Truncated) } else { Ok(header) }
    }

    /// Returns the length of the header with its options, 8 to 260 bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        MIN_LEN + usize::from(self.bytes.as_ref()[VERSION_LEN] & OPTIONS_LEN) * UNIT
    }

    /// Returns whether this is a message about the tunnel itself. A receiver must not pass its
    /// payload on.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.bytes.as_ref()[FLAGS] & O != 0
    }

    /// Returns whether the sender says that an option is critical. A receiver that does not know
    /// all critical options must drop the packet.
    #[must_use]
    pub fn has_critical(&self) -> bool {
        self.bytes.as_ref()[FLAGS] & C != 0
    }

    /// Protocol behind the header. [`EtherType::ETHERNET`] is an Ethernet frame.
    #[must_use]
    pub fn protocol(&self) -> EtherType {
        EtherType(u16_at(self.bytes.as_ref(), PROTOCOL))
    }

    /// Returns the network identifier, below 2^24.
    #[must_use]
    pub fn vni(&self) -> u32 {
        u24_at(self.bytes.as_ref(), VNI)
    }

    /// Returns the options, in their order.
    pub fn options(&self) -> GeneveOptions<'_> {
        GeneveOptions { rest: self.option_bytes() }
    }

    /// Returns the bytes of all options.
    #[must_use]
    pub fn option_bytes(&self) -> &[u8] {
        &self.bytes.as_ref()[MIN_LEN..self.header_len()]
    }
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// Namespace of the type.
    pub class: u16,
    /// Type of the option. Its highest bit says that the option is critical.
    pub option_type: u8,
    /// The data, a multiple of 4 bytes.
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// Returns whether a receiver that does not know the option must drop the packet.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.option_type & 0x80 != 0
    }
}

/// Iterator over the options of a header.
///
/// It ends after the first error, [`WireError::BadLength`]: an option is longer than the bytes left.
#[derive(Clone, Debug)]
pub struct GeneveOptions<'a> {
    rest: &'a [u8],
}

impl<'a> GeneveOptions<'a> {
    /// Returns the options in `bytes`, without a header before them.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for GeneveOptions<'a> {
    type Item = Result<GeneveOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let Some((&[class_high, class_low, option_type, units], behind)) = rest.split_first_chunk() else {
            return Some(Err(WireError::BadLength));
        };
        let Some((data, behind)) = behind.split_at_checked(usize::from(units & 0x1f) * UNIT) else {
            return Some(Err(WireError::BadLength));
        };
        self.rest = behind;
        Some(Ok(GeneveOption { class: u16::from_be_bytes([class_high, class_low]), option_type, data }))
    }
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Protocol behind the header.
    pub protocol: EtherType,
    /// Network identifier, at most [`MAX_VNI`].
    pub vni: u32,
    /// Whole options, at most [`MAX_OPTIONS`] bytes. The header's flag of critical options follows
    /// from them.
    pub options: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads the values from a view.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &'a Header<T>) -> Self {
        Self { protocol: header.protocol(), vni: header.vni(), options: header.option_bytes() }
    }

    /// Returns the length of the header with its options.
    #[must_use]
    pub fn header_len(&self) -> usize {
        MIN_LEN + self.options.len()
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// - [`WireError::BufferTooSmall`] if `buffer` is shorter than the header.
    /// - [`WireError::BadLength`] if the last option is longer than the bytes left for it.
    /// - [`WireError::BadValue`] if the network identifier is out of range, or the options are too
    ///   long.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let mut has_critical = false;
        for option in GeneveOptions::new(self.options) {
            has_critical |= option?.is_critical();
        }
        // Whole options have a length that is a multiple of the unit.
        let units = u8::try_from(self.options.len() / UNIT).map_err(|_| WireError::BadValue)?;
        if units > OPTIONS_LEN {
            return Err(WireError::BadValue);
        }
        let bytes = cleared(buffer, self.header_len())?;
        bytes[VERSION_LEN] = units;
        bytes[FLAGS] = if has_critical { C } else { 0 };
        put(bytes, PROTOCOL, &self.protocol.0.to_be_bytes());
        put_u24(bytes, VNI, self.vni)?;
        put(bytes, MIN_LEN, self.options);
        Ok(self.header_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: [u8; 8] = [1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef];
    const REPR: Repr<'static> = Repr { protocol: EtherType::ETHERNET, vni: 0x12_3456, options: &OPTION };

    fn built(repr: &Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; MIN_LEN + MAX_OPTIONS + 1];
        let len = repr.emit(&mut bytes).unwrap();
        assert_eq!((len, bytes[len]), (repr.header_len(), 0xee));
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let bytes = built(&REPR);
        assert_eq!(bytes, [&[2, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0][..], &OPTION].concat());
        let header = Header::new_checked(&bytes).unwrap();
        assert_eq!(Repr::parse(&header), REPR);
        let option = GeneveOption { class: 0x0102, option_type: 3, data: &OPTION[4..] };
        assert_eq!(header.options().collect::<Vec<_>>(), [Ok(option)]);
        assert!(!header.is_control() && !header.has_critical() && !option.is_critical());
        assert_eq!(built(&Repr { options: &[], ..REPR })[..4], [0, 0, 0x65, 0x58]);
    }

    #[test]
    fn a_critical_option_sets_the_flag() {
        let options = [&OPTION[..], &[0xff, 0xff, 0x80, 0]].concat();
        let bytes = built(&Repr { options: &options, ..REPR });
        assert_eq!(bytes[..2], [3, C]);
        let header = Header::new_checked(&bytes).unwrap();
        assert!(header.has_critical() && !header.is_control());
        assert_eq!(header.options().filter(|option| option.unwrap().is_critical()).count(), 1);
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let mut bytes = built(&REPR);
        (bytes[1], bytes[7]) = (0xbf, 0xff);
        bytes[11] |= 0xe0;
        let header = Header::new_checked(&bytes).unwrap();
        assert!(header.is_control() && !header.has_critical());
        assert_eq!(header.options().map(|option| option.unwrap().data.len()).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn lies_are_refused() {
        let bytes = built(&REPR);
        for len in 0..bytes.len() {
            assert_eq!(Header::new_checked(&bytes[..len]).err(), Some(WireError::Truncated), "{len}");
        }
        for version in [0x40, 0x80, 0xc0] {
            let mut bytes = bytes.clone();
            bytes[0] |= version;
            assert_eq!(Header::new_checked(&bytes).err(), Some(WireError::BadVersion));
        }
        // The option claims 8 bytes of data; there are 4.
        let mut long = bytes.clone();
        long[11] = 2;
        let header = Header::new_checked(&long).unwrap();
        assert_eq!(header.options().collect::<Vec<_>>(), [Err(WireError::BadLength)]);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let emit = |repr: Repr<'_>| repr.emit(&mut [0; MIN_LEN + MAX_OPTIONS]);
        assert_eq!(emit(Repr { vni: MAX_VNI + 1, ..REPR }), Err(WireError::BadValue));
        for len in [1, 3, 4, 5, 7] {
            assert_eq!(emit(Repr { options: &OPTION[..len], ..REPR }), Err(WireError::BadLength), "{len}");
        }
        let many = [0; MAX_OPTIONS + UNIT];
        assert_eq!(emit(Repr { options: &many[..MAX_OPTIONS], ..REPR }), Ok(MIN_LEN + MAX_OPTIONS));
        assert_eq!(emit(Repr { options: &many, ..REPR }), Err(WireError::BadValue));
        assert_eq!(emit(Repr { options: &[0; 1024], ..REPR }), Err(WireError::BadValue));
        assert_eq!(REPR.emit(&mut [0; 15]), Err(WireError::BufferTooSmall));
    }
}
