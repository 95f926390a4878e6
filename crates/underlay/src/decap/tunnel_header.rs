//! The header of a tunnel, behind the headers that carry it.

use straightline_packet::Reason;
use straightline_wire::{IpProtocol, gre, l2tpv3, udp};

use crate::Cookie;
use crate::decap::carrier::Carrier;
use crate::kind::{self, BAD_HEADER, Carries, Form, Parsed, Refusal};
use crate::tunnel::lookup::Key;

/// The header of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelHeader {
    pub(crate) key: Key,
    /// Offset of the first byte behind the header. In L2TPv3 the cookie follows, whose length only
    /// the tunnel knows.
    pub(crate) payload: usize,
    /// Offset of the payload's end.
    pub(crate) end: usize,
    /// Offset of the end of the bytes that the outer checksum covers.
    pub(crate) checked_end: usize,
    pub(crate) carries: Carries,
    pub(crate) checksum: OuterChecksum,
}

/// The checksum around a tunnel's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OuterChecksum {
    /// There is none.
    None,
    /// The UDP header has it, or 0.
    Udp,
    /// The GRE header has it.
    Gre,
}

impl TunnelHeader {
    /// Reads the header behind `carrier`, in the head of a packet.
    #[inline]
    pub(crate) fn parse(head: &[u8], carrier: &Carrier) -> Result<Self, Refusal> {
        let bytes = head.get(carrier.l4..carrier.end.min(head.len())).ok_or(BAD_HEADER)?;
        match carrier.protocol {
            IpProtocol::UDP => Self::in_udp(bytes, carrier),
            protocol => Ok(Self::new(carrier, 0, &kind::parse_in_ip(protocol, bytes)?)),
        }
    }

    /// Returns the header that begins `at` bytes behind IP.
    #[inline]
    fn new(carrier: &Carrier, at: usize, parsed: &Parsed) -> Self {
        TunnelHeader {
            key: Key { ends: carrier.ends, form: parsed.form, key: parsed.key },
            payload: carrier.l4 + at + parsed.len,
            end: carrier.end,
            checked_end: carrier.end,
            carries: parsed.carries,
            checksum: if parsed.has_checksum { OuterChecksum::Gre } else { OuterChecksum::None },
        }
    }

    /// Reads a header in UDP. Bytes behind the length in the UDP header are padding.
    #[inline]
    fn in_udp(bytes: &[u8], carrier: &Carrier) -> Result<Self, Refusal> {
        let udp = udp::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
        let len = usize::from(udp.length());
        let rest = bytes.get(udp::LEN..len.min(bytes.len())).ok_or(BAD_HEADER)?;
        let parsed = kind::parse_in_udp(udp.dst_port(), rest)?;
        let message = parsed.message.map_or(len, |message| udp::LEN + message);
        let checked_end = carrier.l4 + len;
        if message > len || checked_end > carrier.end {
            return Err(BAD_HEADER);
        }
        let end = carrier.l4 + message;
        Ok(TunnelHeader { end, checked_end, checksum: OuterChecksum::Udp, ..Self::new(carrier, udp::LEN, &parsed) })
    }

    /// Returns the key of an NVGRE tunnel, read from the header behind `carrier`. `None` unless this is
    /// a GRE header with a key, without checksum and sequence number (RFC 7637, 3.2).
    pub(crate) fn as_nvgre(&self, carrier: &Carrier) -> Option<Key> {
        let has_key_only = self.payload - carrier.l4 == gre::NVGRE_LEN;
        let is_nvgre = self.key.form == Form::GreKeyed && self.carries == Carries::Ethernet && has_key_only;
        is_nvgre.then(|| Key { form: Form::Nvgre, key: gre::NvgreKey::from_key(self.key.key).vsid, ..self.key })
    }

    /// Steps over the cookie, if it is one of `cookies`, and over the sublayer.
    #[inline]
    pub(crate) fn behind_cookie(
        self,
        head: &[u8],
        cookies: [Option<&Cookie>; 2],
        sublayer: bool,
    ) -> Result<Self, Reason> {
        let visible = head.get(self.payload..self.end.min(head.len())).unwrap_or_default();
        let len = cookies[0].map_or(0, |cookie| cookie.as_bytes().len());
        let received = visible.get(..len).ok_or(Reason::TunnelHeader)?;
        // The length of a cookie is the tunnel's, so another length matches nothing.
        if !cookies.into_iter().flatten().any(|cookie| cookie.as_bytes() == received) {
            return Err(Reason::TunnelCookie);
        }
        let payload = self.payload + len + if sublayer { l2tpv3::SUBLAYER_LEN } else { 0 };
        if payload > self.end { Err(Reason::TunnelHeader) } else { Ok(TunnelHeader { payload, ..self }) }
    }
}
