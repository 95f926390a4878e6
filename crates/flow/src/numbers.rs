//! Numbers of protocols.

/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub(crate) const ARP: u16 = 0x0806;
/// EtherType of RARP.
pub(crate) const RARP: u16 = 0x8035;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

/// IP protocol of ICMP.
pub(crate) const ICMP: u8 = 1;
/// IP protocol of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol of UDP.
pub(crate) const UDP: u8 = 17;
/// IP protocol of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;
/// IP protocol of SCTP.
pub(crate) const SCTP: u8 = 132;

/// Type of a neighbour solicitation.
pub(crate) const SOLICITATION: u8 = 135;
/// Type of a neighbour advertisement.
pub(crate) const ADVERTISEMENT: u8 = 136;
