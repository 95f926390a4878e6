//! The settings of underlays and tunnels, as plain values that were checked.

use std::net::IpAddr;

use straightline_wire::MacAddr;

/// An address of an underlay, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
}

/// The settings of an underlay: `[underlay.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayConfig {
    /// The name.
    pub name: String,
    /// Our addresses.
    pub addresses: Vec<Address>,
    /// The routers of other networks, at most one for each IP version.
    pub gateways: Vec<IpAddr>,
    /// The VLAN of all packets (802.1Q), or none.
    pub vlan: Option<u16>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Our MAC address. `None`: that of the port's interface, see [`Underlay::set_mac`].
    ///
    /// [`Underlay::set_mac`]: crate::Underlay::set_mac
    pub mac: Option<MacAddr>,
    /// Next hops whose MAC addresses are fixed.
    pub neighbours: Vec<(IpAddr, MacAddr)>,
    /// The belief in ICMP errors about packets that are too long.
    pub path_mtu: PathMtuErrors,
}

/// The belief in ICMP errors that tell the MTU of the way to a remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMtuErrors {
    /// They lower the MTU down to what leaves 1280 bytes inside the tunnel.
    #[default]
    UsableInside,
    /// They lower the MTU down to this number of bytes of the outer IP packet.
    Least(u16),
    /// No error is believed.
    Off,
}

/// The settings of a tunnel port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The port's name.
    pub name: String,
    /// The encapsulation with its keys.
    pub kind: TunnelKind,
    /// Our address.
    pub local: IpAddr,
    /// The addresses of the other ends, at least one. Only VXLAN, Geneve and VXLAN-GPE have
    /// several.
    pub remotes: Vec<IpAddr>,
    /// Stations whose remote is fixed, if there are several remotes. All others are learned.
    pub stations: Vec<(MacAddr, IpAddr)>,
    /// The most stations that are known, if there are several remotes. Those of `stations` count.
    pub limit: usize,
    /// Bytes of the longest inner IP packet.
    pub mtu: u16,
    /// True if outer checksums of received packets are verified.
    pub verify: bool,
    /// True if packets without outer checksum are accepted over IPv6 as well (RFC 6935).
    pub zero_checksum: bool,
    /// The fixed source port (UDP). `None`: by the flow's hash, from 49152 on.
    pub source_port: Option<u16>,
    /// Our MAC address on the Ethernet face of a kind that carries IP.
    pub mac: Option<MacAddr>,
}

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

impl TunnelConfig {
    /// The value of `limit` if the file has none.
    pub const DEFAULT_LIMIT: u32 = 4096;
}

impl TunnelKind {
    /// The most bytes of options of Geneve: with them, the headers of a packet over IPv6 with a VLAN
    /// tag are the longest of all kinds.
    pub const MAX_OPTIONS: usize = 36;

    /// Returns the word for the kind in the file and in the API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::L2tpv3 { .. } => "l2tpv3",
            Self::Vxlan { .. } => "vxlan",
            Self::Geneve { .. } => "geneve",
            Self::Gre { .. } => "gre",
            Self::Nvgre { .. } => "nvgre",
            Self::VxlanGpe { .. } => "vxlan-gpe",
            Self::Gtpu { .. } => "gtpu",
            Self::MplsUdp { .. } => "mpls-udp",
        }
    }

    /// Returns whether the tunnel carries IP packets instead of Ethernet frames.
    #[must_use]
    pub fn carries_ip(&self) -> bool {
        match self {
            Self::Gre { ip, .. } | Self::VxlanGpe { ip, .. } => *ip,
            Self::Gtpu { .. } | Self::MplsUdp { .. } => true,
            Self::L2tpv3 { .. } | Self::Vxlan { .. } | Self::Geneve { .. } | Self::Nvgre { .. } => false,
        }
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

    /// Returns the bytes of the outer IP packet in front of what the tunnel carries.
    fn ip_overhead(&self, is_ipv6: bool) -> u16 {
        let ip = if is_ipv6 { 40 } else { 20 };
        let options = |options: &Vec<u8>| u16::try_from(options.len()).unwrap_or(u16::MAX / 2);
        let kind = match self {
            Self::L2tpv3 { over, peer_cookie, l2spec, .. } => {
                let carrier = match over {
                    L2tpOver::Ip => 0,
                    // The UDP header, then flags and version (RFC 3931, 4.1.2.1).
                    L2tpOver::Udp { .. } => 12,
                };
                carrier + 4 + u16::from(peer_cookie.len) + if *l2spec { 4 } else { 0 }
            }
            Self::Vxlan { .. } | Self::VxlanGpe { .. } | Self::Gtpu { .. } => 16,
            Self::Geneve { options: bytes, .. } => 16 + options(bytes),
            Self::Gre { key, checksum, .. } => 4 + if key.is_some() { 4 } else { 0 } + if *checksum { 4 } else { 0 },
            Self::Nvgre { .. } => 8,
            Self::MplsUdp { .. } => 12,
        };
        ip + kind
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
