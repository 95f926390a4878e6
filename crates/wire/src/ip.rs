//! Types that IPv4 and IPv6 share.

/// Version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4, RFC 791.
    V4,
    /// IPv6, RFC 8200.
    V6,
}

/// Protocol number in an IP packet: the Protocol field of IPv4, the Next Header field of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options, an extension header.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// IGMP.
    pub const IGMP: Self = Self(2);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 routing header, an extension header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header, an extension header.
    pub const FRAGMENT: Self = Self(44);
    /// GRE.
    pub const GRE: Self = Self(47);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6 destination options, an extension header.
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// PIM.
    pub const PIM: Self = Self(103);
    /// L2TPv3.
    pub const L2TP: Self = Self(115);
}
