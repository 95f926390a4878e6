//! The header of a tunnel, behind the headers that carry it.

use straightline_packet::Reason;
use straightline_wire::{EtherType, IpProtocol, WireError, geneve, gre, gtpu, l2tpv3, mpls, udp, vxlan, vxlan_gpe};

use crate::config::Cookie;
use crate::decap::carrier::{BAD_HEADER, Carrier, Refusal};
use crate::tunnel::lookup::{Form, Key};

/// A message about a tunnel itself. Its payload goes nowhere (RFC 8926, 3.4; the draft of VXLAN-GPE,
/// 3.1).
const CONTROL: Refusal = Refusal::Drop(Reason::TunnelControl);

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

/// The payload of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// An Ethernet frame.
    Ethernet,
    /// An IP packet of this Ethernet type.
    Ip(EtherType),
    /// An IP packet whose first four bits tell its version.
    AnyIp,
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
            IpProtocol::L2TP => {
                let carried_by = l2tpv3::Carrier::Ip;
                let header = l2tpv3::Header::new_checked(bytes, carried_by).map_err(refuse_l2tp)?;
                let len = carried_by.fixed_len();
                Ok(Self::new(carrier, Form::L2tpIp, header.session(), len, Carries::Ethernet))
            }
            IpProtocol::GRE => Self::gre(bytes, carrier),
            _ => Err(Refusal::Other),
        }
    }

    /// Returns the header of `len` bytes that begins behind IP.
    #[inline]
    fn new(carrier: &Carrier, form: Form, key: u32, len: usize, carries: Carries) -> Self {
        let key = Key { ends: carrier.ends, form, key };
        TunnelHeader {
            key,
            payload: carrier.l4 + len,
            end: carrier.end,
            checked_end: carrier.end,
            carries,
            checksum: OuterChecksum::None,
        }
    }

    #[inline]
    fn in_udp(bytes: &[u8], carrier: &Carrier) -> Result<Self, Refusal> {
        let udp = udp::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
        let end = usize::from(udp.length());
        let rest = bytes.get(udp::LEN..end.min(bytes.len())).ok_or(BAD_HEADER)?;
        let (form, key, len, carries) = match udp.dst_port() {
            vxlan::PORT => {
                let header = vxlan::Header::new_checked(rest).map_err(|_| BAD_HEADER)?;
                (Form::Vxlan, header.vni(), vxlan::LEN, Carries::Ethernet)
            }
            geneve::PORT => {
                let header = geneve::Header::new_checked(rest).map_err(|_| BAD_HEADER)?;
                check_geneve(&header)?;
                (Form::Geneve, header.vni(), header.header_len(), Carries::Ethernet)
            }
            l2tpv3::PORT => {
                let carried_by = l2tpv3::Carrier::Udp;
                let header = l2tpv3::Header::new_checked(rest, carried_by).map_err(refuse_l2tp)?;
                (Form::L2tpUdp, header.session(), carried_by.fixed_len(), Carries::Ethernet)
            }
            vxlan_gpe::PORT => {
                let header = vxlan_gpe::Header::new_checked(rest).map_err(|_| BAD_HEADER)?;
                (Form::VxlanGpe, header.vni(), vxlan_gpe::LEN, carries_of_gpe(&header)?)
            }
            gtpu::PORT => return Self::gtpu(rest, carrier, end),
            mpls::PORT => {
                let entry = mpls::Entry::parse(rest).map_err(|_| BAD_HEADER)?;
                // A second label would name a tunnel in the tunnel.
                if !entry.is_bottom {
                    return Err(BAD_HEADER);
                }
                (Form::MplsUdp, entry.label, mpls::LEN, Carries::AnyIp)
            }
            _ => return Err(Refusal::Other),
        };
        Self::new(carrier, form, key, udp::LEN + len, carries).with_udp_len(carrier, end)
    }

    /// Sets the ends by the UDP header's length. Bytes behind it are padding.
    #[inline]
    fn with_udp_len(self, carrier: &Carrier, len: usize) -> Result<Self, Refusal> {
        let end = carrier.l4 + len;
        if end > carrier.end {
            return Err(BAD_HEADER);
        }
        Ok(TunnelHeader { end: self.end.min(end), checked_end: end, checksum: OuterChecksum::Udp, ..self })
    }

    fn gtpu(rest: &[u8], carrier: &Carrier, udp_len: usize) -> Result<Self, Refusal> {
        let header = gtpu::Header::new_checked(rest).map_err(|_| BAD_HEADER)?;
        match header.message_type() {
            gtpu::Type::PACKET => {}
            gtpu::Type::ECHO_REQUEST => return Err(Refusal::GtpuEcho),
            _ => return Err(CONTROL),
        }
        // 5G sends the flow's quality of service with each packet. We have one quality only.
        let is_known = |kind| kind == gtpu::ExtensionType::PDU_SESSION;
        if header.extensions().any(|(kind, _)| kind.is_required() && !is_known(kind)) {
            return Err(Refusal::Drop(Reason::TunnelOption));
        }
        let len = udp::LEN + header.header_len();
        let message = udp::LEN + gtpu::MIN_LEN + usize::from(header.length());
        if message > udp_len || message < len {
            return Err(BAD_HEADER);
        }
        let found = Self::new(carrier, Form::Gtpu, header.teid(), len, Carries::AnyIp);
        TunnelHeader { end: carrier.l4 + message, ..found }.with_udp_len(carrier, udp_len)
    }

    fn gre(bytes: &[u8], carrier: &Carrier) -> Result<Self, Refusal> {
        let header = gre::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
        let carries = match header.protocol() {
            EtherType::ETHERNET => Carries::Ethernet,
            ip @ (EtherType::IPV4 | EtherType::IPV6) => Carries::Ip(ip),
            _ => return Err(BAD_HEADER),
        };
        let (form, key) = header.key().map_or((Form::Gre, 0), |key| (Form::GreKeyed, key));
        let checksum = if header.checksum().is_some() { OuterChecksum::Gre } else { OuterChecksum::None };
        Ok(TunnelHeader { checksum, ..Self::new(carrier, form, key, header.header_len(), carries) })
    }

    /// Returns the key by which an NVGRE tunnel would be found, for the header behind `carrier`. That
    /// is the header of GRE with a key, without checksum and sequence number (RFC 7637, 3.2).
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

/// Refuses a message of L2TPv3. The session 0 is that of control messages (RFC 3931, 4.1.1).
#[cold]
fn refuse_l2tp(error: WireError) -> Refusal {
    if error == WireError::BadFlags { CONTROL } else { BAD_HEADER }
}

/// Checks that the packet is for the tunnel's inside, and that no option must be known: we know
/// none. The options themselves tell, so the header's flag of critical ones adds nothing (RFC 8926,
/// 3.4).
#[inline]
fn check_geneve(header: &geneve::Header<&[u8]>) -> Result<(), Refusal> {
    if header.is_control() {
        return Err(CONTROL);
    }
    if header.protocol() != EtherType::ETHERNET {
        return Err(BAD_HEADER);
    }
    for option in header.options() {
        if option.map_err(|_| BAD_HEADER)?.is_critical() {
            return Err(Refusal::Drop(Reason::TunnelOption));
        }
    }
    Ok(())
}

fn carries_of_gpe(header: &vxlan_gpe::Header<&[u8]>) -> Result<Carries, Refusal> {
    match header.next_protocol() {
        _ if header.is_control() => Err(CONTROL),
        vxlan_gpe::NextProtocol::ETHERNET => Ok(Carries::Ethernet),
        vxlan_gpe::NextProtocol::IPV4 => Ok(Carries::Ip(EtherType::IPV4)),
        vxlan_gpe::NextProtocol::IPV6 => Ok(Carries::Ip(EtherType::IPV6)),
        _ => Err(BAD_HEADER),
    }
}
