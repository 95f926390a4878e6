//! The conditions under which packets have a field.

/// A condition under which packets have a field. A flow that tests or changes the field must have
/// the condition in its match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// Every packet has the field.
    None,
    /// The packet has a VLAN tag.
    Vlan,
    /// IPv4 or IPv6.
    Ip,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP or RARP.
    Arp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// TCP, UDP or SCTP.
    Ports,
    /// ICMP or ICMPv6.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// Neighbour solicitation or advertisement.
    Nd,
    /// Neighbour solicitation.
    NdSolicit,
    /// Neighbour advertisement.
    NdAdvert,
}

impl Prerequisite {
    /// Returns the words that meet the condition, for a message.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Vlan => "`dl_vlan=…` or `vlan_tci=0x1000/0x1000`",
            Self::Ip => "`ip` or `ipv6`",
            Self::Ipv4 => "`ip`, `tcp`, `udp`, `sctp` or `icmp`",
            Self::Ipv6 => "`ipv6`, `tcp6`, `udp6`, `sctp6` or `icmp6`",
            Self::Arp => "`arp` or `rarp`",
            Self::Tcp => "`tcp` or `tcp6`",
            Self::Udp => "`udp` or `udp6`",
            Self::Sctp => "`sctp` or `sctp6`",
            Self::Ports => "`tcp`, `udp`, `sctp`, `tcp6`, `udp6` or `sctp6`",
            Self::Icmp => "`icmp` or `icmp6`",
            Self::Icmpv6 => "`icmp6`",
            Self::Nd => "`icmp6,icmp_type=135` or `icmp6,icmp_type=136`",
            Self::NdSolicit => "`icmp6,icmp_type=135`",
            Self::NdAdvert => "`icmp6,icmp_type=136`",
        }
    }
}
