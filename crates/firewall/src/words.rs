//! Words for protocols, types of ICMP and EtherTypes.

use straightline_wire::{EtherType, IpProtocol};

/// SCTP (RFC 9260).
pub(crate) const SCTP: IpProtocol = IpProtocol(132);

/// Types of ICMP (RFC 792, RFC 1256).
pub(crate) const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];

/// Types of ICMPv6 (RFC 4443, RFC 4861, RFC 2710, RFC 9777).
pub(crate) const ICMP6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("listener-query", 130),
    ("listener-report", 131),
    ("listener-done", 132),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
    ("redirect", 137),
    ("listener-report-v2", 143),
];

/// Values that are no EtherTypes but lengths of frames with LLC (IEEE 802.3). No such frame has the length
/// 0, which stands for an EtherType that is not known.
pub(crate) const LENGTHS: (u16, u16) = (1, 0x05ff);

/// EtherTypes with a name, each with all its values.
pub(crate) const ETHER_TYPES: &[(&str, &[(u16, u16)])] = &[
    ("lldp", &[(0x88cc, 0x88cc)]),
    ("802.1x", &[(0x888e, 0x888e)]),
    ("mpls", &[(0x8847, 0x8848)]),
    ("pppoe", &[(0x8863, 0x8864)]),
    ("llc", &[LENGTHS]),
    ("vlan", &[(0x8100, 0x8100), (0x88a8, 0x88a8), (0x9100, 0x9100)]),
];

/// EtherTypes that rules of other words decide, each with the remedy.
pub(crate) const OWN_RULES: &[(EtherType, &str)] = &[
    (EtherType::IPV4, "is IPv4: write `any`, or a protocol"),
    (EtherType::IPV6, "is IPv6: write `any`, or a protocol"),
    (EtherType::ARP, "is ARP: it passes with `source-check` of the port, or with `trusted`"),
];

/// Returns the name of a value in a list.
pub(crate) fn name_of<T: PartialEq>(list: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    list.iter().find(|(_, known)| known == value).map(|(name, _)| *name)
}

/// Returns the names of a list, for a message.
pub(crate) fn names<T>(list: &[(&'static str, T)]) -> String {
    list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Returns whether a text may name a group, a set or a rule.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=32).contains(&text.len()) && text.bytes().all(is_allowed)
}
