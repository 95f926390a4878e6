//! The kinds of tunnel. Each has a file here, which says all that tells it from the others: the
//! header that it writes, the form and key by which its packets are found, and the parser.
//!
//! ```text
//! TunnelKind ─▶ Traits ─┬─▶ headers: built once for each remote
//!                       └─▶ lookup: form and key
//! packet ─▶ parse_in_ip, parse_in_udp ─▶ Parsed: form, key, payload
//! ```

mod geneve;
mod gre;
mod gtpu;
mod l2tpv3;
mod mpls_udp;
mod nvgre;
mod vxlan;
mod vxlan_gpe;

use straightline_packet::Reason;
use straightline_wire::{EtherType, IpProtocol, WireError, udp};

pub use l2tpv3::{Cookie, L2tpOver};

/// Hops of outer packets.
pub(crate) const TTL: u8 = 64;

/// Offset of the network identifier behind the beginning of UDP, in all kinds that may have several.
pub(crate) const VNI_BEHIND_UDP: usize = udp::LEN + 4;

/// Space for the longest header of a kind.
const MAX_LEN: usize = 64;

/// The kinds of tunnel, each with its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// `l2tpv3` (RFC 3931, RFC 4719; over IPv6 also RFC 8159).
    L2tpv3 {
        /// The carrier.
        over: L2tpOver,
        /// The session of packets that we receive.
        session: u32,
        /// The session of packets that we send.
        peer_session: u32,
        /// The cookie of packets that we receive.
        cookie: Cookie,
        /// A second cookie that is accepted while cookies roll over.
        previous_cookie: Option<Cookie>,
        /// The cookie of packets that we send.
        peer_cookie: Cookie,
        /// True if the default sublayer (4 bytes) precedes the frame.
        l2spec: bool,
    },
    /// `vxlan` (RFC 7348).
    Vxlan {
        /// The network identifier, 24 bits.
        vni: u32,
    },
    /// `geneve` (RFC 8926).
    Geneve {
        /// The network identifier, 24 bits.
        vni: u32,
        /// Options to send: at most [`TunnelKind::MAX_OPTIONS`] bytes, whole options.
        options: Vec<u8>,
    },
    /// `gre` (RFC 2784, 2890).
    Gre {
        /// The key of both directions.
        key: Option<u32>,
        /// True if packets are sent with a checksum.
        checksum: bool,
        /// True if IP packets are carried, false if Ethernet frames are.
        ip: bool,
    },
    /// `nvgre` (RFC 7637).
    Nvgre {
        /// The virtual subnet, 24 bits.
        vsid: u32,
    },
    /// `vxlan-gpe` (draft-ietf-nvo3-vxlan-gpe).
    VxlanGpe {
        /// The network identifier, 24 bits.
        vni: u32,
        /// True if IP packets are carried, false if Ethernet frames are.
        ip: bool,
    },
    /// `gtpu` (3GPP TS 29.281). It carries IP.
    Gtpu {
        /// The tunnel endpoint identifier of packets that we receive.
        teid: u32,
        /// The tunnel endpoint identifier of packets that we send.
        peer_teid: u32,
    },
    /// `mpls-udp` (RFC 7510). It carries IP.
    MplsUdp {
        /// The label of packets that we receive, 20 bits.
        label: u32,
        /// The label of packets that we send.
        peer_label: u32,
    },
}

/// A form of header on the wire, with its own key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    L2tpIp,
    L2tpUdp,
    Vxlan,
    VxlanGpe,
    Geneve,
    /// GRE without key; its key here is 0.
    Gre,
    GreKeyed,
    Nvgre,
    Gtpu,
    MplsUdp,
}

/// The traits of a tunnel: all that depends on its kind, and on that kind's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// The word for the kind in the file and in the API.
    pub(crate) word: &'static str,
    /// The form of headers, and the key of packets that the tunnel receives.
    pub(crate) form: Form,
    pub(crate) key: u32,
    /// That key in words.
    pub(crate) key_text: String,
    /// True if the tunnel carries IP packets instead of Ethernet frames.
    pub(crate) carries_ip: bool,
    pub(crate) carrier: Carrier,
    pub(crate) sealed: Sealed,
    /// The kind's own header, or the reason why a value does not fit it.
    pub(crate) header: Result<Vec<u8>, WireError>,
    /// The varying word, and its offset in `header`.
    pub(crate) varying: Option<(Varying, usize)>,
}

/// The protocol that carries a kind's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// IP, by this protocol number.
    Ip(IpProtocol),
    /// UDP to this port. Without a source port here and in the file, that follows from the flow.
    Udp { source: Option<u16>, port: u16 },
}

/// The word of a kind's header that differs between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Varying {
    /// The type of the inner packet: GRE that carries IP.
    EtherType,
    /// The number of the inner protocol: VXLAN-GPE that carries IP.
    NextProtocol,
    /// The length of the inner packet: GTP-U.
    Length,
    /// Eight bits of the flow's hash: NVGRE.
    FlowId,
}

/// The header with a checksum over itself and all that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// No header has one.
    Nothing,
    /// UDP, with the pseudo header.
    Udp,
    /// GRE.
    Gre,
}

/// The header of a kind, as its parser reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) form: Form,
    pub(crate) key: u32,
    /// Bytes of the header. In L2TPv3 the cookie follows, whose length only the tunnel knows.
    pub(crate) len: usize,
    pub(crate) carries: Carries,
    /// Bytes of the header and its payload, if the header tells them.
    pub(crate) message: Option<usize>,
    /// True if the header has a checksum of its own, as GRE may.
    pub(crate) has_checksum: bool,
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

/// A packet that is not for a tunnel's patch or bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is dropped.
    Drop(Reason),
    /// It is not a tunnel's: the underlay may answer it.
    Other,
    /// It is an echo request of GTP-U: the underlay may answer it if it has such a tunnel.
    GtpuEcho,
}

/// A refused packet in whose head something does not fit the rules of tunnels.
pub(crate) const BAD_HEADER: Refusal = Refusal::Drop(Reason::TunnelHeader);

/// A message about a tunnel itself. Its payload goes nowhere (RFC 8926, 3.4; the draft of VXLAN-GPE,
/// 3.1).
const CONTROL: Refusal = Refusal::Drop(Reason::TunnelControl);

/// Reads the header behind an IP header of this protocol.
#[inline]
pub(crate) fn parse_in_ip(protocol: IpProtocol, bytes: &[u8]) -> Result<Parsed, Refusal> {
    match protocol {
        IpProtocol::L2TP => l2tpv3::parse_in_ip(bytes),
        IpProtocol::GRE => gre::parse(bytes),
        _ => Err(Refusal::Other),
    }
}

/// Reads the header behind a UDP header to this port.
#[inline]
pub(crate) fn parse_in_udp(port: u16, bytes: &[u8]) -> Result<Parsed, Refusal> {
    match port {
        vxlan::PORT => vxlan::parse(bytes),
        geneve::PORT => geneve::parse(bytes),
        l2tpv3::PORT => l2tpv3::parse_in_udp(bytes),
        vxlan_gpe::PORT => vxlan_gpe::parse(bytes),
        gtpu::PORT => gtpu::parse(bytes),
        mpls_udp::PORT => mpls_udp::parse(bytes),
        _ => Err(Refusal::Other),
    }
}

impl Parsed {
    /// Returns a header of `len` bytes, with nothing special.
    #[inline]
    fn new(form: Form, key: u32, len: usize, carries: Carries) -> Self {
        Parsed { form, key, len, carries, message: None, has_checksum: false }
    }
}

impl Traits {
    /// Returns the traits of a kind in UDP that carries Ethernet, whose header `emit` writes.
    fn in_udp(
        word: &'static str,
        form: Form,
        key: u32,
        port: u16,
        emit: impl FnOnce(&mut [u8]) -> Result<usize, WireError>,
    ) -> Self {
        let carrier = Carrier::Udp { source: None, port };
        Traits { carrier, sealed: Sealed::Udp, ..Self::in_ip(word, form, key, IpProtocol::UDP, emit) }
    }

    /// Returns the traits of a kind directly in IP that carries Ethernet, whose header `emit`
    /// writes.
    fn in_ip(
        word: &'static str,
        form: Form,
        key: u32,
        protocol: IpProtocol,
        emit: impl FnOnce(&mut [u8]) -> Result<usize, WireError>,
    ) -> Self {
        let mut bytes = [0; MAX_LEN];
        Traits {
            word,
            form,
            key,
            key_text: word.to_owned(),
            carries_ip: false,
            carrier: Carrier::Ip(protocol),
            sealed: Sealed::Nothing,
            header: emit(&mut bytes).map(|len| bytes[..len].to_vec()),
            varying: None,
        }
    }

    /// Returns these traits with a key that an operator knows by this text.
    fn keyed(self, key_text: String) -> Self {
        Traits { key_text, ..self }
    }
}

impl TunnelKind {
    /// The most bytes of options of Geneve: with them, the headers of a packet over IPv6 with a VLAN
    /// tag are the longest of all kinds.
    pub const MAX_OPTIONS: usize = 36;

    /// Returns all that depends on the kind and its keys.
    pub(crate) fn traits(&self) -> Traits {
        match self {
            Self::L2tpv3 { over, session, peer_session, peer_cookie, l2spec, .. } => {
                l2tpv3::traits(*over, *session, *peer_session, peer_cookie, *l2spec)
            }
            Self::Vxlan { vni } => vxlan::traits(*vni),
            Self::Geneve { vni, options } => geneve::traits(*vni, options),
            Self::Gre { key, checksum, ip } => gre::traits(*key, *checksum, *ip),
            Self::Nvgre { vsid } => nvgre::traits(*vsid),
            Self::VxlanGpe { vni, ip } => vxlan_gpe::traits(*vni, *ip),
            Self::Gtpu { teid, peer_teid } => gtpu::traits(*teid, *peer_teid),
            Self::MplsUdp { label, peer_label } => mpls_udp::traits(*label, *peer_label),
        }
    }

    /// Returns the network identifier of a kind that may have several.
    #[must_use]
    pub fn vni(&self) -> Option<u32> {
        match self {
            Self::Vxlan { vni } | Self::Geneve { vni, .. } | Self::VxlanGpe { vni, .. } => Some(*vni),
            Self::L2tpv3 { .. } | Self::Gre { .. } | Self::Nvgre { .. } | Self::Gtpu { .. } | Self::MplsUdp { .. } => {
                None
            }
        }
    }

    /// Returns the kind with another network identifier. A kind without one stays as it is.
    #[must_use]
    pub fn with_vni(&self, vni: u32) -> Self {
        match self.clone() {
            Self::Vxlan { .. } => Self::Vxlan { vni },
            Self::Geneve { options, .. } => Self::Geneve { vni, options },
            Self::VxlanGpe { ip, .. } => Self::VxlanGpe { vni, ip },
            other => other,
        }
    }

    /// Returns the word for the kind in the file and in the API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.traits().word
    }

    /// Returns whether the tunnel carries IP packets instead of Ethernet frames.
    #[must_use]
    pub fn carries_ip(&self) -> bool {
        self.traits().carries_ip
    }

    /// Returns the key of packets that the tunnel receives, in words: `vni 100`.
    #[must_use]
    pub fn describe_key(&self) -> String {
        self.traits().key_text
    }

    /// Returns whether received packets of two tunnels with the same addresses look the same.
    #[must_use]
    pub fn is_same_on_the_wire(&self, other: &Self) -> bool {
        let own = self.traits();
        let other = other.traits();
        (own.form, own.key) == (other.form, other.key)
            || nvgre::is_keyed_gre(&own, &other)
            || nvgre::is_keyed_gre(&other, &own)
    }

    /// Returns the bytes of all headers in front of what the tunnel carries, the outer Ethernet
    /// header included.
    #[must_use]
    pub fn overhead(&self, is_ipv6: bool, has_vlan: bool) -> u16 {
        let ethernet = if has_vlan { 18 } else { 14 };
        ethernet + self.ip_overhead(is_ipv6)
    }

    /// Returns the bytes of the longest inner IP packet, without a VLAN tag, in outer IP packets of
    /// at most `mtu` bytes.
    #[must_use]
    pub fn mtu_inside(&self, mtu: u16, is_ipv6: bool) -> u16 {
        let inner_ethernet = if self.carries_ip() { 0 } else { 14 };
        mtu.saturating_sub(self.ip_overhead(is_ipv6) + inner_ethernet)
    }

    /// Returns the bytes of the outer IP packet in front of what the tunnel carries. A header with a
    /// value that does not fit it leaves no room.
    fn ip_overhead(&self, is_ipv6: bool) -> u16 {
        let ip = if is_ipv6 { 40 } else { 20 };
        let traits = self.traits();
        let carrier = match traits.carrier {
            Carrier::Ip(_) => 0,
            Carrier::Udp { .. } => udp::LEN,
        };
        let header = traits.header.ok().and_then(|header| u16::try_from(carrier + header.len()).ok());
        ip + header.unwrap_or(u16::MAX / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_headers_and_the_usual_ones() {
        let vxlan = TunnelKind::Vxlan { vni: 1 };
        assert_eq!((vxlan.overhead(false, false), vxlan.mtu_inside(1500, false)), (50, 1450));
        let keyed = TunnelKind::L2tpv3 {
            over: L2tpOver::Ip,
            session: u32::MAX,
            peer_session: u32::MAX,
            cookie: Cookie::default(),
            previous_cookie: None,
            peer_cookie: Cookie::new(&[0; 8]).unwrap(),
            l2spec: false,
        };
        assert_eq!((keyed.overhead(true, false), keyed.mtu_inside(1500, true)), (66, 1434));
        let geneve = TunnelKind::Geneve { vni: 1, options: vec![0; TunnelKind::MAX_OPTIONS] };
        assert_eq!(geneve.overhead(true, true), 110);
        let gtpu = TunnelKind::Gtpu { teid: 1, peer_teid: 1 };
        assert_eq!((gtpu.overhead(false, false), gtpu.mtu_inside(1500, false)), (50, 1464));
        assert_eq!(TunnelKind::Gre { key: Some(1), checksum: true, ip: true }.mtu_inside(1500, false), 1468);
    }
}
