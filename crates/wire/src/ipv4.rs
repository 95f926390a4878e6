//! IPv4, RFC 791 section 3.1.

use std::net::Ipv4Addr;

use crate::field::{cleared, get, put, u16_at};
use crate::{IpProtocol, WireError, checksum};

/// Length of a header without options, the minimum.
pub const MIN_LEN: usize = 20;

/// Length of a header with all options that fit, the maximum.
pub const MAX_LEN: usize = 60;

const VERSION_IHL: usize = 0;
const TOS: usize = 1;
const TOTAL_LEN: usize = 2;
const IDENT: usize = 4;
const FRAGMENT: usize = 6;
const TTL: usize = 8;
const PROTOCOL: usize = 9;
const CHECKSUM: usize = 10;
const SRC: usize = 12;
const DST: usize = 16;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// View of a header. Bytes behind the header are ignored and need not be the whole packet.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. The checksum is not verified; see
    /// [`checksum_ok`](Self::checksum_ok).
    ///
    /// # Errors
    /// - [`WireError::Truncated`] if the header with its options is longer than `bytes`.
    /// - [`WireError::BadVersion`] if the version is not 4.
    /// - [`WireError::BadHeaderLength`] if the header length is below 20.
    /// - [`WireError::BadLength`] if the total length does not cover the header.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let header = Self { bytes };
        let available = header.bytes.as_ref().len();
        if available < MIN_LEN {
            return Err(WireError::Truncated);
        }
        if header.bytes.as_ref()[VERSION_IHL] >> 4 != 4 {
            return Err(WireError::BadVersion);
        }
        let len = header.header_len();
        if len < MIN_LEN {
            return Err(WireError::BadHeaderLength);
        }
        if len > available {
            return Err(WireError::Truncated);
        }
        if usize::from(header.total_len()) < len {
            return Err(WireError::BadLength);
        }
        Ok(header)
    }

    /// Returns the length of the header with its options, 20 to 60 bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes.as_ref()[VERSION_IHL] & 0x0f) * 4
    }

    /// Returns the type of service: DSCP and ECN (RFC 2474, RFC 3168).
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.bytes.as_ref()[TOS]
    }

    /// Returns the length of the packet, header included.
    #[must_use]
    pub fn total_len(&self) -> u16 {
        u16_at(self.bytes.as_ref(), TOTAL_LEN)
    }

    /// Returns the identification, which all fragments of a packet share.
    #[must_use]
    pub fn ident(&self) -> u16 {
        u16_at(self.bytes.as_ref(), IDENT)
    }

    /// Returns whether the packet must not be fragmented.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.bytes.as_ref(), FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Returns whether this is a fragment, but not the last one.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        u16_at(self.bytes.as_ref(), FRAGMENT) & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of this fragment's payload in the payload of the whole packet, in units
    /// of 8 bytes.
    #[must_use]
    pub fn fragment_offset(&self) -> u16 {
        u16_at(self.bytes.as_ref(), FRAGMENT) & FRAGMENT_OFFSET
    }

    /// Returns whether this is a fragment: the first, the last or one in between.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        u16_at(self.bytes.as_ref(), FRAGMENT) & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Returns the time to live, in hops.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.bytes.as_ref()[TTL]
    }

    /// Protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.bytes.as_ref()[PROTOCOL])
    }

    /// Returns the checksum, as written in the header.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), CHECKSUM)
    }

    /// Returns whether the checksum is right.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        checksum::sum(&self.bytes.as_ref()[..self.header_len()]) == 0xffff
    }

    /// The source address.
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(get(self.bytes.as_ref(), SRC))
    }

    /// The destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(get(self.bytes.as_ref(), DST))
    }

    /// Returns the options with their padding. Most packets have none.
    #[must_use]
    pub fn options(&self) -> &[u8] {
        &self.bytes.as_ref()[MIN_LEN..self.header_len()]
    }

    /// Returns the sum of the pseudo-header for a transport header and body of `len` bytes.
    #[must_use]
    pub fn pseudo_header_sum(&self, len: u16) -> u16 {
        checksum::pseudo_header_v4(self.src(), self.dst(), self.protocol(), len)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Header<T> {
    /// Sets the total length.
    pub fn set_total_len(&mut self, len: u16) {
        put(self.bytes.as_mut(), TOTAL_LEN, &len.to_be_bytes());
    }

    /// Sets the identification.
    pub fn set_ident(&mut self, ident: u16) {
        put(self.bytes.as_mut(), IDENT, &ident.to_be_bytes());
    }

    /// Sets the type of service.
    pub fn set_tos(&mut self, tos: u8) {
        self.bytes.as_mut()[TOS] = tos;
    }

    /// Sets the type of service, and changes the checksum by the difference. A wrong checksum stays
    /// wrong.
    pub fn replace_tos(&mut self, tos: u8) {
        let old = u16_at(self.bytes.as_ref(), VERSION_IHL);
        self.set_tos(tos);
        let checksum = checksum::replace(self.checksum(), old, u16_at(self.bytes.as_ref(), VERSION_IHL));
        put(self.bytes.as_mut(), CHECKSUM, &checksum.to_be_bytes());
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.bytes.as_mut()[TTL] = ttl;
    }

    /// Sets the source address.
    pub fn set_src(&mut self, address: Ipv4Addr) {
        put(self.bytes.as_mut(), SRC, &address.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, address: Ipv4Addr) {
        put(self.bytes.as_mut(), DST, &address.octets());
    }

    /// Computes the checksum and writes it. Call it after all other fields are set.
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        let bytes = self.bytes.as_mut();
        put(bytes, CHECKSUM, &[0, 0]);
        let checksum = !checksum::sum(&bytes[..len]);
        put(bytes, CHECKSUM, &checksum.to_be_bytes());
    }
}

/// Values of a header without options. The checksum is not among them, because it follows from the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Type of service.
    pub tos: u8,
    /// Length of the payload behind the header.
    pub payload_len: u16,
    /// The identification.
    pub ident: u16,
    /// True if the packet must not be fragmented.
    pub dont_fragment: bool,
    /// True if more fragments follow.
    pub more_fragments: bool,
    /// Offset of this fragment, in units of 8 bytes, below 8192.
    pub fragment_offset: u16,
    /// The time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
}

impl Repr {
    /// Reads the values from a view. Options are left out and do not count as payload.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        let header_len = u16::from(header.bytes.as_ref()[VERSION_IHL] & 0x0f) * 4;
        Self {
            tos: header.tos(),
            payload_len: header.total_len().saturating_sub(header_len),
            ident: header.ident(),
            dont_fragment: header.dont_fragment(),
            more_fragments: header.more_fragments(),
            fragment_offset: header.fragment_offset(),
            ttl: header.ttl(),
            protocol: header.protocol(),
            src: header.src(),
            dst: header.dst(),
        }
    }

    /// Writes a header of 20 bytes, checksum included, to the beginning of `buffer` and returns its
    /// length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 20 bytes; [`WireError::BadValue`]
    /// if the payload is longer than 65 515 bytes or the fragment offset is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let total_len = self.payload_len.checked_add(20).ok_or(WireError::BadValue)?;
        if self.fragment_offset > FRAGMENT_OFFSET {
            return Err(WireError::BadValue);
        }
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let fragment =
            flag(self.dont_fragment, DONT_FRAGMENT) | flag(self.more_fragments, MORE_FRAGMENTS) | self.fragment_offset;
        let bytes = cleared(buffer, MIN_LEN)?;
        bytes[VERSION_IHL] = 0x45;
        bytes[PROTOCOL] = self.protocol.0;
        put(bytes, FRAGMENT, &fragment.to_be_bytes());
        let mut header = Header { bytes };
        header.set_tos(self.tos);
        header.set_total_len(total_len);
        header.set_ident(self.ident);
        header.set_ttl(self.ttl);
        header.set_src(self.src);
        header.set_dst(self.dst);
        header.fill_checksum();
        Ok(MIN_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a known checksum, 0xb861.
    const KNOWN: [u8; 20] =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

    #[test]
    fn fields_stand_where_they_should() {
        let header = Header::new_checked(&KNOWN).unwrap();
        assert_eq!((header.header_len(), header.total_len(), header.ident()), (20, 115, 0));
        assert!(header.dont_fragment() && !header.is_fragment());
        assert_eq!((header.ttl(), header.protocol()), (64, IpProtocol::UDP));
        assert_eq!((header.src(), header.dst()), (Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199)));
        assert_eq!(header.checksum(), 0xb861);
        assert!(header.checksum_ok());
        assert!(header.options().is_empty());
    }

    #[test]
    fn the_checksum_is_computed() {
        let mut bytes = KNOWN;
        let mut header = Header::new_checked(&mut bytes).unwrap();
        header.set_ident(7);
        assert!(!header.checksum_ok());
        header.set_ident(0);
        header.fill_checksum();
        assert_eq!(bytes, KNOWN);
        let mut built = [0xee; 20];
        Repr::parse(&Header::new_checked(&KNOWN).unwrap()).emit(&mut built).unwrap();
        assert_eq!(built, KNOWN);
    }

    #[test]
    fn a_replaced_type_of_service_keeps_the_checksum_right_or_wrong() {
        for tos in [0, 1, 3, 0xb8, 0xff] {
            let mut bytes = KNOWN;
            let mut header = Header::new_checked(&mut bytes).unwrap();
            header.replace_tos(tos);
            assert!(header.checksum_ok() && header.tos() == tos);
            header.set_ttl(1);
            header.replace_tos(7);
            assert!(!header.checksum_ok());
        }
    }

    #[test]
    fn lies_are_refused() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = KNOWN;
            bytes[at] = byte;
            Header::new_checked(bytes).err()
        };
        assert_eq!(changed(0, 0x65), Some(WireError::BadVersion));
        assert_eq!(changed(0, 0x44), Some(WireError::BadHeaderLength));
        assert_eq!(changed(0, 0x46), Some(WireError::Truncated));
        assert_eq!(changed(3, 19), Some(WireError::BadLength));
        assert_eq!(changed(3, 20), None);
        assert_eq!(Header::new_checked(&KNOWN[..19]).err(), Some(WireError::Truncated));
    }

    #[test]
    fn options_count_in_header_and_checksum() {
        let mut bytes = [0u8; 24];
        bytes[..20].copy_from_slice(&KNOWN);
        bytes[0] = 0x46;
        bytes[20..].copy_from_slice(&[1, 1, 1, 0]);
        let mut header = Header::new_checked(&mut bytes).unwrap();
        header.fill_checksum();
        assert!(header.checksum_ok());
        assert_eq!(header.options(), [1, 1, 1, 0]);
        assert_eq!(Repr::parse(&header).payload_len, 115 - 24);
        bytes[22] = 0;
        assert!(!Header::new_checked(&bytes).unwrap().checksum_ok());
    }

    #[test]
    fn fragments_are_seen() {
        for (high, low, fragment) in [(0x20, 0, true), (0, 1, true), (0x1f, 0xff, true), (0x40, 0, false)] {
            let mut bytes = KNOWN;
            bytes[6..8].copy_from_slice(&[high, low]);
            assert_eq!(Header::new_checked(bytes).unwrap().is_fragment(), fragment);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let repr = Repr::parse(&Header::new_checked(&KNOWN).unwrap());
        assert_eq!(Repr { payload_len: 65_515, ..repr }.emit(&mut [0; 20]), Ok(20));
        assert_eq!(Repr { payload_len: 65_516, ..repr }.emit(&mut [0; 20]), Err(WireError::BadValue));
        assert_eq!(Repr { fragment_offset: 0x2000, ..repr }.emit(&mut [0; 20]), Err(WireError::BadValue));
        assert_eq!(repr.emit(&mut [0; 19]), Err(WireError::BufferTooSmall));
    }
}
