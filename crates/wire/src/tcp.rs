//! TCP header, RFC 9293 section 3.1. The state machine is not part of this crate.

use crate::WireError;
use crate::field::{cleared, put, u16_at, u32_at};

/// Length of a header without options, the minimum.
pub const MIN_LEN: usize = 20;

/// Length of a header with all options that fit, the maximum.
pub const MAX_LEN: usize = 60;

/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 16;

const SRC_PORT: usize = 0;
const DST_PORT: usize = 2;
const SEQ: usize = 4;
const ACK: usize = 8;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
const URGENT: usize = 18;

/// The control bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these flags with `flags` set.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Returns these flags with `flags` cleared.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

/// View of a header. Bytes behind the header are ignored and need not be the whole segment.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header with its options is longer than `bytes`;
    /// [`WireError::BadHeaderLength`] if the header length is below 20.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let header = Self { bytes };
        let available = header.bytes.as_ref().len();
        if available < MIN_LEN {
            return Err(WireError::Truncated);
        }
        let len = header.header_len();
        if len < MIN_LEN {
            return Err(WireError::BadHeaderLength);
        }
        if len > available { Err(WireError::Truncated) } else { Ok(header) }
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

    /// Returns the sequence number of the first byte of the body.
    #[must_use]
    pub fn seq(&self) -> u32 {
        u32_at(self.bytes.as_ref(), SEQ)
    }

    /// The acknowledgement number.
    #[must_use]
    pub fn ack(&self) -> u32 {
        u32_at(self.bytes.as_ref(), ACK)
    }

    /// Returns the length of the header with its options, 20 to 60 bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes.as_ref()[DATA_OFFSET] >> 4) * 4
    }

    /// The control bits.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.bytes.as_ref()[FLAGS])
    }

    /// Returns the window, unscaled.
    #[must_use]
    pub fn window(&self) -> u16 {
        u16_at(self.bytes.as_ref(), WINDOW)
    }

    /// Checksum, as written in the header.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes.as_ref(), CHECKSUM)
    }

    /// The urgent pointer.
    #[must_use]
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes.as_ref(), URGENT)
    }

    /// Returns the options with their padding.
    #[must_use]
    pub fn options(&self) -> &[u8] {
        &self.bytes.as_ref()[MIN_LEN..self.header_len()]
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

    /// Sets the sequence number.
    pub fn set_seq(&mut self, seq: u32) {
        put(self.bytes.as_mut(), SEQ, &seq.to_be_bytes());
    }

    /// Sets the acknowledgement number.
    pub fn set_ack(&mut self, ack: u32) {
        put(self.bytes.as_mut(), ACK, &ack.to_be_bytes());
    }

    /// Sets the control bits.
    pub fn set_flags(&mut self, flags: Flags) {
        self.bytes.as_mut()[FLAGS] = flags.0;
    }

    /// Sets the window.
    pub fn set_window(&mut self, window: u16) {
        put(self.bytes.as_mut(), WINDOW, &window.to_be_bytes());
    }

    /// Sets the checksum field to `checksum`.
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.bytes.as_mut(), CHECKSUM, &checksum.to_be_bytes());
    }

    /// Sets the urgent pointer.
    pub fn set_urgent(&mut self, urgent: u16) {
        put(self.bytes.as_mut(), URGENT, &urgent.to_be_bytes());
    }
}

/// Values of a header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// The control bits.
    pub flags: Flags,
    /// The window.
    pub window: u16,
    /// Checksum, as written in the header.
    pub checksum: u16,
    /// The urgent pointer.
    pub urgent: u16,
}

impl Repr {
    /// Reads the values from a view. Options are left out.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self {
            src_port: header.src_port(),
            dst_port: header.dst_port(),
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            window: header.window(),
            checksum: header.checksum(),
            urgent: header.urgent(),
        }
    }

    /// Writes a header of 20 bytes to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 20 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let bytes = cleared(buffer, MIN_LEN)?;
        bytes[DATA_OFFSET] = 5 << 4;
        let mut header = Header { bytes };
        header.set_src_port(self.src_port);
        header.set_dst_port(self.dst_port);
        header.set_seq(self.seq);
        header.set_ack(self.ack);
        header.set_flags(self.flags);
        header.set_window(self.window);
        header.set_checksum(self.checksum);
        header.set_urgent(self.urgent);
        Ok(MIN_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const KNOWN: [u8; 24] = [
        0x12, 0x34, 0x56, 0x78, 0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4,
        0x60, 0x18, 0xc1, 0xc2, 0xd1, 0xd2, 0xe1, 0xe2, 1, 1, 1, 0,
    ];

    #[test]
    fn fields_stand_where_they_should() {
        let header = Header::new_checked(&KNOWN).unwrap();
        assert_eq!((header.src_port(), header.dst_port()), (0x1234, 0x5678));
        assert_eq!((header.seq(), header.ack()), (0xa1a2_a3a4, 0xb1b2_b3b4));
        assert_eq!(header.flags(), Flags::PSH.with(Flags::ACK));
        assert_eq!((header.window(), header.checksum(), header.urgent()), (0xc1c2, 0xd1d2, 0xe1e2));
        assert_eq!((header.header_len(), header.options()), (24, &[1, 1, 1, 0][..]));
    }

    #[test]
    fn a_built_header_has_no_options() {
        let mut built = [0xee; 21];
        assert_eq!(Repr::parse(&Header::new_checked(&KNOWN).unwrap()).emit(&mut built), Ok(20));
        let mut expected = KNOWN;
        expected[12] = 0x50;
        assert_eq!(built[..20], expected[..20]);
        assert_eq!(built[20], 0xee);
    }

    #[test]
    fn lies_are_refused() {
        for len in 0..24 {
            assert_eq!(Header::new_checked(&KNOWN[..len]).err(), Some(WireError::Truncated), "{len}");
        }
        let mut short = KNOWN;
        short[12] = 0x40;
        assert_eq!(Header::new_checked(short).err(), Some(WireError::BadHeaderLength));
    }

    #[test]
    fn flags_are_sets() {
        let flags = Flags::FIN.with(Flags::PSH).with(Flags::ACK);
        assert!(flags.contains(Flags::FIN.with(Flags::ACK)) && !flags.contains(Flags::FIN.with(Flags::SYN)));
        assert_eq!(flags.without(Flags::FIN.with(Flags::PSH).with(Flags::CWR)), Flags::ACK);
    }
}
