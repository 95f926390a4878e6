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

/// Flags of TCP, the lowest bit first.
pub(crate) const TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// States of a connection, the lowest bit of [`Field::CtState`](crate::Field::CtState) first.
pub(crate) const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Kinds of fragments: name, value and mask of [`Field::IpFrag`](crate::Field::IpFrag).
pub(crate) const FRAGMENTS: [(&str, u8, u8); 5] =
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 2, 2), ("not_later", 0, 2)];

/// Short forms of matches: EtherType and IP protocol.
pub(crate) const SHORT_FORMS: [(&str, u16, Option<u8>); 13] = [
    ("ip", IPV4, None),
    ("icmp", IPV4, Some(ICMP)),
    ("tcp", IPV4, Some(TCP)),
    ("udp", IPV4, Some(UDP)),
    ("sctp", IPV4, Some(SCTP)),
    ("ipv6", IPV6, None),
    ("ip6", IPV6, None),
    ("icmp6", IPV6, Some(ICMPV6)),
    ("tcp6", IPV6, Some(TCP)),
    ("udp6", IPV6, Some(UDP)),
    ("sctp6", IPV6, Some(SCTP)),
    ("arp", ARP, None),
    ("rarp", RARP, None),
];

/// Greatest number of a meter.
pub const MAX_METER: u32 = 65_535;
