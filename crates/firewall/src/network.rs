//! Rules of the network itself, which come before those of groups.
//!
//! A port needs neighbours, an address and its multicast groups. These rules allow the messages for
//! that, and deny those by which a port could pass itself off as a router or a server of DHCP.
//! Hop limits keep them on the link: routers neither forward nor make such packets.

use straightline_classify::Column;
use straightline_wire::{EtherType, IpProtocol};

use crate::expand::{Expanded, NEEDS_RULE, REMOTE, TRUSTED_SENDER, Tests, exact, ip};
use crate::ranges::Ranges;
use crate::rule::Action;

/// A rule of the network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkRule {
    pub(crate) name: &'static str,
    pub(crate) action: Action,
    /// Its packets, in words.
    pub(crate) text: &'static str,
    pub(crate) tests: Expanded,
}

/// Hop limit of neighbour discovery (RFC 4861, 6.1).
const FROM_LINK: u32 = 255;

/// Hop limit of MLD (RFC 9777, 5) and IGMP (RFC 9776, 4).
const TO_LINK: u32 = 1;

/// Ports of DHCP: client and server (RFC 2131, 4.1; RFC 8415, 7.2).
const DHCP: (u32, u32) = (68, 67);
const DHCPV6: (u32, u32) = (546, 547);

/// First and last address of the groups of IPv4.
const GROUPS_V4: (u32, u32) = (0xe000_0000, 0xefff_ffff);

const ROUTER_SOLICITATION: (u32, u32) = (133, 133);
const ROUTER_ADVERTISEMENT: (u32, u32) = (134, 134);
const NEIGHBOURS: (u32, u32) = (135, 136);
const REDIRECT: (u32, u32) = (137, 137);

/// Returns the rules for packets to a port.
pub(crate) fn inbound(trusted: bool) -> Vec<NetworkRule> {
    let from_trusted = |mut tests: Tests| {
        tests.push(exact(TRUSTED_SENDER, 1));
        tests
    };
    let from_others = |mut tests: Tests| {
        tests.push(exact(TRUSTED_SENDER, 0));
        tests
    };
    let mut rules = vec![
        allow("arp", "ARP", vec![ether_type(EtherType::ARP)]),
        allow("neighbour-discovery", "neighbour solicitations and advertisements", vec![icmp6(NEIGHBOURS, FROM_LINK)]),
        allow(
            "router",
            "router advertisements and redirects from trusted ports",
            vec![from_trusted(icmp6(ROUTER_ADVERTISEMENT, FROM_LINK)), from_trusted(icmp6(REDIRECT, FROM_LINK))],
        ),
        deny(
            "no-router",
            "advertisements and redirects of routers from other ports",
            vec![
                with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), ROUTER_ADVERTISEMENT),
                with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), REDIRECT),
                from_others(with_type(ip(EtherType::IPV4, IpProtocol::ICMP), (5, 5))),
                from_others(with_type(ip(EtherType::IPV4, IpProtocol::ICMP), (9, 9))),
            ],
        ),
        allow(
            "dhcp",
            "answers of DHCP and DHCPv6 from trusted ports",
            vec![
                from_trusted(udp(EtherType::IPV4, Some(DHCP.1), DHCP.0)),
                from_trusted(udp(EtherType::IPV6, Some(DHCPV6.1), DHCPV6.0)),
            ],
        ),
        deny("no-dhcp-server", "answers of DHCP and DHCPv6 from other ports", dhcp_answers()),
        allow("multicast", "IGMP and MLD", vec![igmp(None), icmp6((130, 132), TO_LINK), icmp6((143, 143), TO_LINK)]),
    ];
    if trusted {
        rules.push(allow(
            "router",
            "router solicitations to trusted ports",
            vec![icmp6(ROUTER_SOLICITATION, FROM_LINK)],
        ));
        rules.push(allow(
            "dhcp-server",
            "requests of DHCP and DHCPv6 to trusted ports",
            vec![udp(EtherType::IPV4, None, DHCP.1), udp(EtherType::IPV6, None, DHCPV6.1)],
        ));
    } else {
        // Each Linux guest sends some to all others, and no guest has a use for them.
        rules.push(deny(
            "no-solicitation",
            "router solicitations, without trusted = true",
            vec![with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), ROUTER_SOLICITATION)],
        ));
    }
    rules
}

/// Returns the rules for packets from a port. `speaks`: the port's addresses are checked, or trusted.
pub(crate) fn outbound(trusted: bool, speaks: bool) -> Vec<NetworkRule> {
    let mut rules = Vec::new();
    if speaks {
        rules.push(allow("arp", "ARP", vec![ether_type(EtherType::ARP)]));
        rules.push(allow(
            "neighbour-discovery",
            "neighbour solicitations and advertisements",
            vec![icmp6(NEIGHBOURS, FROM_LINK)],
        ));
    }
    let all_routers = to_v6(icmp6(ROUTER_SOLICITATION, FROM_LINK), [0xff02_0000, 0, 0, 2]);
    rules.push(allow("router-solicitation", "router solicitations to all routers", vec![all_routers]));
    if trusted {
        rules.push(allow(
            "router",
            "router advertisements and redirects of a trusted port",
            vec![icmp6(ROUTER_ADVERTISEMENT, FROM_LINK), icmp6(REDIRECT, FROM_LINK)],
        ));
        rules.push(allow("dhcp-server", "answers of DHCP and DHCPv6 of a trusted port", dhcp_answers()));
        rules.push(allow("multicast-query", "queries of MLD of a trusted port", vec![icmp6((130, 130), TO_LINK)]));
    } else {
        rules.push(deny(
            "no-router",
            "advertisements and redirects of routers, without trusted = true",
            vec![
                with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), ROUTER_ADVERTISEMENT),
                with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), REDIRECT),
                with_type(ip(EtherType::IPV4, IpProtocol::ICMP), (5, 5)),
                with_type(ip(EtherType::IPV4, IpProtocol::ICMP), (9, 9)),
            ],
        ));
        rules.push(deny("no-dhcp-server", "answers of DHCP and DHCPv6, without trusted = true", dhcp_answers()));
    }
    let mut discover = udp(EtherType::IPV4, Some(DHCP.0), DHCP.1);
    discover.push(exact(REMOTE[3], u32::MAX));
    let solicit = to_v6(udp(EtherType::IPV6, Some(DHCPV6.0), DHCPV6.1), [0xff02_0000, 0, 0, 0x0001_0002]);
    rules.push(allow("dhcp", "requests of DHCP and DHCPv6 to all servers", vec![discover, solicit]));
    rules.push(allow(
        "multicast",
        "IGMP and MLD",
        vec![igmp(Some(GROUPS_V4)), to_groups(icmp6((131, 132), TO_LINK)), to_groups(icmp6((143, 143), TO_LINK))],
    ));
    // A message of another form passes by a rule of a group, if at all.
    for rule in rules.iter_mut().filter(|rule| rule.action == Action::Allow) {
        rule.tests.services.iter_mut().for_each(|tests| tests.push(exact(NEEDS_RULE, 0)));
    }
    rules
}

fn allow(name: &'static str, text: &'static str, services: Vec<Tests>) -> NetworkRule {
    NetworkRule { name, action: Action::Allow, text, tests: Expanded { services, remotes: Ranges::all() } }
}

fn deny(name: &'static str, text: &'static str, services: Vec<Tests>) -> NetworkRule {
    NetworkRule { action: Action::Deny, ..allow(name, text, services) }
}

fn ether_type(ether_type: EtherType) -> Tests {
    vec![exact(Column::EtherType, ether_type.0.into())]
}

fn with_type(mut tests: Tests, (low, high): (u32, u32)) -> Tests {
    tests.push((Column::IcmpType, low, high));
    tests
}

fn icmp6(types: (u32, u32), hops: u32) -> Tests {
    let mut tests = with_type(ip(EtherType::IPV6, IpProtocol::ICMPV6), types);
    tests.push(exact(Column::Ttl, hops));
    tests
}

fn igmp(groups: Option<(u32, u32)>) -> Tests {
    let mut tests = ip(EtherType::IPV4, IpProtocol::IGMP);
    tests.push(exact(Column::Ttl, TO_LINK));
    tests.extend(groups.map(|(low, high)| (REMOTE[3], low, high)));
    tests
}

fn udp(version: EtherType, source: Option<u32>, destination: u32) -> Tests {
    let mut tests = ip(version, IpProtocol::UDP);
    tests.extend(source.map(|port| exact(Column::SrcPort, port)));
    tests.push(exact(Column::DstPort, destination));
    tests
}

/// Returns tests for all that a client of DHCP may take for an answer.
fn dhcp_answers() -> Vec<Tests> {
    vec![udp(EtherType::IPV4, None, DHCP.0), udp(EtherType::IPV6, None, DHCPV6.0)]
}

fn to_v6(mut tests: Tests, words: [u32; 4]) -> Tests {
    tests.extend(REMOTE.into_iter().zip(words).map(|(column, word)| exact(column, word)));
    tests
}

fn to_groups(mut tests: Tests) -> Tests {
    tests.push((REMOTE[0], 0xff00_0000, u32::MAX));
    tests
}
