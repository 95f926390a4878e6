//! L2TPv3, RFC 3931: data messages over IP and over UDP, as static tunnels use them. Over IPv6 the
//! keyed tunnel of RFC 8159 has the same header, with a cookie of 8 bytes and no sublayer.
//!
//! ```text
//! over IP:                                      | session 4 | cookie 0, 4 or 8 | [sublayer 4] |
//! over UDP: | flags, version 2 | reserved 2     | session 4 | cookie 0, 4 or 8 | [sublayer 4] |
//! sublayer: | flags 1: .S...... | sequence number 3 |
//! ```
//!
//! The header says neither how long the cookie is nor whether there is a sublayer. Both ends agree
//! on both for each session, so a receiver looks for the session first.

use crate::WireError;
use crate::field::{cleared, put, put_u24, u16_at, u24_at, u32_at};

/// UDP port of the receiver. The sender's port is the same.
pub const PORT: u16 = 1701;

/// Session of the keyed tunnel over IPv6, in which the addresses name the session (RFC 8159 section
/// 3).
pub const KEYED_SESSION: u32 = 0xffff_ffff;

/// Length of the default sublayer, in bytes.
pub const SUBLAYER_LEN: usize = 4;

/// Length of the longest header: over UDP, with a cookie of 8 bytes and the sublayer.
pub const MAX_LEN: usize = 20;

const FLAGS_VERSION: usize = 0;

/// The flag of a control message (RFC 3931 section 3.2.1).
const CONTROL: u16 = 0x8000;
const VERSION: u16 = 0x000f;

/// The flag of a valid sequence number.
const S: u8 = 0x40;

/// The carrier of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// IP, protocol 115 (RFC 3931 section 4.1.1).
    Ip,
    /// UDP (RFC 3931 section 4.1.2).
    Udp,
}

impl Carrier {
    /// Returns the offset of the session.
    const fn session(self) -> usize {
        match self {
            Self::Ip => 0,
            Self::Udp => 4,
        }
    }

    /// Returns the length of a header without cookie and sublayer, which is the offset of the
    /// cookie.
    #[must_use]
    pub const fn fixed_len(self) -> usize {
        self.session() + 4
    }
}

/// View of a header. Bytes behind the header are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
    carrier: Carrier,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the header at the beginning of `bytes`. Reserved fields are ignored, as RFC
    /// 3931 demands.
    ///
    /// # Errors
    /// - [`WireError::Truncated`] if `bytes` ends before the session does.
    /// - [`WireError::BadVersion`] if the version is not 3. Version 2 is L2TPv2. Only UDP has it.
    /// - [`WireError::BadFlags`] for a control message: over UDP by its flag, over IP by the session
    ///   0.
    pub fn new_checked(bytes: T, carrier: Carrier) -> Result<Self, WireError> {
        if bytes.as_ref().len() < carrier.fixed_len() {
            return Err(WireError::Truncated);
        }
        let header = Self { bytes, carrier };
        if carrier == Carrier::Udp {
            let word = u16_at(header.bytes.as_ref(), FLAGS_VERSION);
            if word & VERSION != 3 {
                return Err(WireError::BadVersion);
            }
            if word & CONTROL != 0 {
                return Err(WireError::BadFlags);
            }
        }
        if header.session() == 0 { Err(WireError::BadFlags) } else { Ok(header) }
    }

    /// Returns the session, never 0.
    #[must_use]
    pub fn session(&self) -> u32 {
        u32_at(self.bytes.as_ref(), self.carrier.session())
    }

    /// Returns the cookie of a session whose cookie has `len` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the bytes end before the cookie does.
    pub fn cookie(&self, len: usize) -> Result<&[u8], WireError> {
        self.bytes.as_ref()[self.carrier.fixed_len()..].get(..len).ok_or(WireError::Truncated)
    }

    /// Returns the sublayer of a session whose cookie has `cookie_len` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the bytes end before the sublayer does.
    pub fn sublayer(&self, cookie_len: usize) -> Result<Sublayer, WireError> {
        let rest = &self.bytes.as_ref()[self.carrier.fixed_len()..];
        let sublayer = rest.get(cookie_len..).and_then(<[u8]>::first_chunk::<SUBLAYER_LEN>);
        let &[flags, sequence @ ..] = sublayer.ok_or(WireError::Truncated)?;
        let sequence = (flags & S != 0).then(|| u24_at(&sequence, 0));
        Ok(Sublayer { sequence })
    }
}

/// The default sublayer (RFC 3931 section 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sublayer {
    /// Sequence number, below 2^24. `None`: the sender does not count.
    pub sequence: Option<u32>,
}

/// Values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// The carrier.
    pub carrier: Carrier,
    /// The receiver's session, not 0.
    pub session: u32,
    /// Cookie: 0, 4 or 8 bytes.
    pub cookie: &'a [u8],
    /// The default sublayer, if the session has it.
    pub sublayer: Option<Sublayer>,
}

impl<'a> Repr<'a> {
    /// Reads the values from a view. The session has a cookie of `cookie_len` bytes, and the
    /// sublayer if `has_sublayer`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the bytes end before the cookie and the sublayer do.
    pub fn parse<T: AsRef<[u8]>>(
        header: &'a Header<T>,
        cookie_len: usize,
        has_sublayer: bool,
    ) -> Result<Self, WireError> {
        let sublayer = if has_sublayer { Some(header.sublayer(cookie_len)?) } else { None };
        let cookie = header.cookie(cookie_len)?;
        Ok(Self { carrier: header.carrier, session: header.session(), cookie, sublayer })
    }

    /// Returns the length of the header.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.carrier.fixed_len() + self.cookie.len() + if self.sublayer.is_some() { SUBLAYER_LEN } else { 0 }
    }

    /// Writes the header to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BadValue`] if the session is 0, the cookie does not have 0, 4 or 8 bytes, or the
    /// sequence number is out of range; [`WireError::BufferTooSmall`] if `buffer` is shorter than
    /// the header.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        if self.session == 0 || !matches!(self.cookie.len(), 0 | 4 | 8) {
            return Err(WireError::BadValue);
        }
        let len = self.header_len();
        let bytes = cleared(buffer, len)?;
        if self.carrier == Carrier::Udp {
            put(bytes, FLAGS_VERSION, &[0, 3]);
        }
        put(bytes, self.carrier.session(), &self.session.to_be_bytes());
        put(bytes, self.carrier.fixed_len(), self.cookie);
        if let Some(Sublayer { sequence: Some(sequence) }) = self.sublayer {
            let at = len - SUBLAYER_LEN;
            bytes[at] = S;
            put_u24(bytes, at + 1, sequence)?;
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: [u8; 8] = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
    const KEYED: Repr<'static> = Repr { carrier: Carrier::Ip, session: KEYED_SESSION, cookie: &COOKIE, sublayer: None };

    fn built(repr: &Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; MAX_LEN + 1];
        let len = repr.emit(&mut bytes).unwrap();
        assert_eq!((len, bytes[len]), (repr.header_len(), 0xee));
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let keyed = built(&KEYED);
        assert_eq!(keyed, [&[0xff; 4][..], &COOKIE].concat());
        let header = Header::new_checked(&keyed, Carrier::Ip).unwrap();
        assert_eq!(Repr::parse(&header, 8, false), Ok(KEYED));

        let sublayer = Some(Sublayer { sequence: Some(0x12_3456) });
        let over_udp = Repr { carrier: Carrier::Udp, session: 0x0102_0304, cookie: &COOKIE[..4], sublayer };
        let bytes = built(&over_udp);
        assert_eq!(bytes, [0, 3, 0, 0, 1, 2, 3, 4, 0, 0x11, 0x22, 0x33, 0x40, 0x12, 0x34, 0x56]);
        let header = Header::new_checked(&bytes, Carrier::Udp).unwrap();
        assert_eq!(Repr::parse(&header, 4, true), Ok(over_udp));

        let plain = Repr { carrier: Carrier::Ip, session: 7, cookie: &[], sublayer: Some(Sublayer::default()) };
        assert_eq!(built(&plain), [0, 0, 0, 7, 0, 0, 0, 0]);
    }

    #[test]
    fn reserved_fields_are_ignored() {
        let bytes = [0x7f, 0xf3, 0xff, 0xff, 0, 0, 0, 1, 0xbf, 0xff, 0xff, 0xff];
        let header = Header::new_checked(&bytes, Carrier::Udp).unwrap();
        assert_eq!((header.session(), header.sublayer(0)), (1, Ok(Sublayer { sequence: None })));
    }

    #[test]
    fn control_messages_and_other_versions_are_refused() {
        let check = |bytes: &[u8], carrier| Header::new_checked(bytes, carrier).err();
        assert_eq!(check(&[0, 0, 0, 0], Carrier::Ip), Some(WireError::BadFlags));
        assert_eq!(check(&[0xc8, 3, 0, 0, 0, 0, 0, 1], Carrier::Udp), Some(WireError::BadFlags));
        assert_eq!(check(&[0, 3, 0, 0, 0, 0, 0, 0], Carrier::Udp), Some(WireError::BadFlags));
        assert_eq!(check(&[0, 2, 0, 0, 0, 0, 0, 1], Carrier::Udp), Some(WireError::BadVersion));
        assert_eq!(check(&[0, 3, 0, 0, 0, 0, 0, 1], Carrier::Udp), None);
    }

    #[test]
    fn a_truncated_header_is_refused() {
        let bytes = built(&Repr { carrier: Carrier::Udp, sublayer: Some(Sublayer::default()), ..KEYED });
        assert_eq!(bytes.len(), MAX_LEN);
        for len in 0..bytes.len() {
            let parsed = Header::new_checked(&bytes[..len], Carrier::Udp)
                .and_then(|header| Repr::parse(&header, 8, true).map(|_| ()));
            assert_eq!(parsed, Err(WireError::Truncated), "{len}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let emit = |repr: Repr<'_>| repr.emit(&mut [0; MAX_LEN]);
        assert_eq!(emit(Repr { session: 0, ..KEYED }), Err(WireError::BadValue));
        for (len, result) in [(0, Ok(4)), (3, Err(WireError::BadValue)), (4, Ok(8)), (7, Err(WireError::BadValue))] {
            assert_eq!(emit(Repr { cookie: &COOKIE[..len], ..KEYED }), result, "{len}");
        }
        let sublayer = Some(Sublayer { sequence: Some(1 << 24) });
        assert_eq!(emit(Repr { sublayer, ..KEYED }), Err(WireError::BadValue));
        assert_eq!(KEYED.emit(&mut [0; 11]), Err(WireError::BufferTooSmall));
    }
}
