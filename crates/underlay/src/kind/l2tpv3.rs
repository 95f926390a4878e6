//! L2TPv3 (RFC 3931, RFC 4719; over IPv6 also RFC 8159), in IP and in UDP.

use straightline_wire::{IpProtocol, WireError, l2tpv3};

use super::{BAD_HEADER, CONTROL, Carrier, Carries, Form, Parsed, Refusal, Traits};

pub(super) const PORT: u16 = l2tpv3::PORT;

/// A cookie of L2TPv3: 0, 4 or 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cookie {
    bytes: [u8; 8],
    len: u8,
}

impl Cookie {
    /// Returns the cookie of these bytes, or `None` if there are not 0, 4 or 8 of them.
    #[must_use]
    pub fn new(cookie: &[u8]) -> Option<Self> {
        if !matches!(cookie.len(), 0 | 4 | 8) {
            return None;
        }
        let mut bytes = [0; 8];
        bytes[..cookie.len()].copy_from_slice(cookie);
        Some(Cookie { bytes, len: u8::try_from(cookie.len()).ok()? })
    }

    /// Returns its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The carrier of L2TPv3 (`over`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L2tpOver {
    /// IP protocol 115. Over IPv6 with the session 0xffffffff, this is the keyed tunnel (RFC 8159).
    Ip,
    /// UDP with fixed ports.
    Udp {
        /// The remote's port; 1701 if the file names none.
        port: u16,
    },
}

pub(super) fn traits(over: L2tpOver, session: u32, peer_session: u32, peer_cookie: &Cookie, l2spec: bool) -> Traits {
    let repr = |carrier| l2tpv3::Repr {
        carrier,
        session: peer_session,
        cookie: peer_cookie.as_bytes(),
        sublayer: l2spec.then_some(l2tpv3::Sublayer { sequence: None }),
    };
    let traits = match over {
        L2tpOver::Ip => {
            let repr = repr(l2tpv3::Carrier::Ip);
            Traits::in_ip("l2tpv3", Form::L2tpIp, session, IpProtocol::L2TP, |to| repr.emit(to))
        }
        L2tpOver::Udp { port } => {
            let repr = repr(l2tpv3::Carrier::Udp);
            // The ports of a session stay the same (RFC 3931, 4.1.2.1).
            let carrier = Carrier::Udp { source: Some(PORT), port };
            Traits { carrier, ..Traits::in_udp("l2tpv3", Form::L2tpUdp, session, port, |to| repr.emit(to)) }
        }
    };
    traits.keyed(format!("session {session:#x}"))
}

#[inline]
pub(super) fn parse_in_ip(bytes: &[u8]) -> Result<Parsed, Refusal> {
    parse(bytes, Form::L2tpIp, l2tpv3::Carrier::Ip)
}

#[inline]
pub(super) fn parse_in_udp(bytes: &[u8]) -> Result<Parsed, Refusal> {
    parse(bytes, Form::L2tpUdp, l2tpv3::Carrier::Udp)
}

#[inline]
fn parse(bytes: &[u8], form: Form, carried_by: l2tpv3::Carrier) -> Result<Parsed, Refusal> {
    let header = l2tpv3::Header::new_checked(bytes, carried_by).map_err(refuse)?;
    Ok(Parsed::new(form, header.session(), carried_by.fixed_len(), Carries::Ethernet))
}

/// Refuses a message of L2TPv3. The session 0 is that of control messages (RFC 3931, 4.1.1).
#[cold]
fn refuse(error: WireError) -> Refusal {
    if error == WireError::BadFlags { CONTROL } else { BAD_HEADER }
}
