//! Policies beside a reference that tries one rule after the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use straightline_classify::{Keys, MAX_KEYS};
use straightline_firewall::{
    Definitions, Direction, EtherTypes, Flow, Group, Level, Origin, Pattern, Peer, Policies, Policy, PortGroups,
    Prefix, Rule, RuleIndex, Service, Set, shadowed_rules,
};

use crate::text::{peer, service};

/// Returns whether a rule matches a flow, as its text says it.
fn matches(rule: &Rule, flow: &Flow, definitions: &Definitions) -> bool {
    rule.direction == flow.direction && has_service(&rule.service, flow) && has_peer(rule, flow, definitions)
}

fn has_service(service: &Service, flow: &Flow) -> bool {
    let has_port = |ports: &[(u16, u16)]| {
        ports.is_empty() || ports.iter().any(|&(low, high)| low <= flow.port && flow.port <= high)
    };
    let has_type = |icmp: &Option<(u8, Option<u8>)>| {
        icmp.is_none_or(|(kind, code)| kind == flow.icmp.0 && code.is_none_or(|code| code == flow.icmp.1))
    };
    let is_ip = flow.remote.is_some();
    match service {
        Service::Any => is_ip,
        Service::Tcp(ports) => is_ip && flow.protocol == 6 && has_port(ports),
        Service::Udp(ports) => is_ip && flow.protocol == 17 && has_port(ports),
        Service::Sctp(ports) => is_ip && flow.protocol == 132 && has_port(ports),
        Service::Icmp(icmp) => flow.ether_type == 0x0800 && flow.protocol == 1 && has_type(icmp),
        Service::Icmp6(icmp) => flow.ether_type == 0x86dd && flow.protocol == 58 && has_type(icmp),
        Service::Protocol(number) => is_ip && flow.protocol == *number,
        Service::EtherType(EtherTypes::Number(number)) => flow.ether_type == *number,
        Service::EtherType(EtherTypes::Named(_, values)) => {
            values.iter().any(|&(low, high)| (low..=high).contains(&flow.ether_type))
        }
    }
}

fn has_peer(rule: &Rule, flow: &Flow, definitions: &Definitions) -> bool {
    let Some(remote) = flow.remote else { return true };
    rule.peers.is_empty()
        || rule.peers.iter().any(|peer| match peer {
            Peer::Any => true,
            Peer::Prefix(prefix) => is_in(remote, *prefix),
            Peer::Set(name) => is_in_set(remote, definitions.set(name).expect(name)),
            Peer::Group(name) => definitions.members[name].iter().any(|prefix| is_in(remote, *prefix)),
        })
}

fn is_in_set(address: IpAddr, set: &Set) -> bool {
    let has_pattern = |address| set.patterns.iter().any(|pattern| pattern.contains(address));
    set.prefixes.iter().any(|prefix| is_in(address, *prefix)) || matches!(address, IpAddr::V6(v6) if has_pattern(v6))
}

fn is_in(address: IpAddr, prefix: Prefix) -> bool {
    match (address, prefix.address()) {
        (IpAddr::V4(address), IpAddr::V4(first)) => {
            (address.to_bits() ^ first.to_bits()).leading_zeros() >= prefix.len().into()
        }
        (IpAddr::V6(address), IpAddr::V6(first)) => {
            (address.to_bits() ^ first.to_bits()).leading_zeros() >= prefix.len().into()
        }
        _ => false,
    }
}

/// Returns the origin of the first rule of the groups that matches.
fn reference(port: &PortGroups, flow: &Flow, definitions: &Definitions) -> Origin {
    for name in &port.groups {
        let group = definitions.group(name).expect(name);
        for (number, rule) in (1..).zip(group.rules(flow.direction)) {
            if matches(rule, flow, definitions) {
                return Origin::Group(name.clone(), number);
            }
        }
    }
    Origin::Default
}

/// Addresses that are near each other, so that prefixes of a few of them overlap.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let near_v4 = (0..4_u32, 0..4_u32, any::<u8>()).prop_map(|(net, sub, host)| {
        Ipv4Addr::from_bits(0x0a00_0000 | net << 20 | sub << 8 | u32::from(host & 7)).into()
    });
    let near_v6 = (0..3_u128, 0..3_u128, 0..4_u128, any::<u8>()).prop_map(|(net, sub, word, host)| {
        Ipv6Addr::from_bits(0xfd00 << 112 | net << 70 | sub << 33 | word << 30 | u128::from(host & 7)).into()
    });
    prop_oneof![4 => near_v4, 4 => near_v6, 1 => any::<IpAddr>()]
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    (addresses(), prop_oneof![Just(0_u8), 1..16_u8, any::<u8>()]).prop_map(|(address, open)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = most - open.min(most);
        let address = match address {
            IpAddr::V4(address) => {
                Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into()
            }
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into()
            }
        };
        Prefix::new(address, len).expect("no bits behind it")
    })
}

/// Ports near each other.
fn ports() -> impl Strategy<Value = u16> + Clone {
    prop_oneof![4 => 1000..1020_u16, 1 => any::<u16>(), 1 => Just(0), 1 => Just(u16::MAX)]
}

fn rules(direction: Direction) -> impl Strategy<Value = Rule> {
    let peers = proptest::collection::vec(peer(prefixes(), &["a", "b", "c"], &["s", "t"]), 0..4);
    (service(ports()), peers, any::<bool>()).prop_map(move |(service, peers, denies)| {
        let is_frame = matches!(service, Service::EtherType(_));
        let mut rule = Rule::allow(direction, service);
        if !is_frame {
            rule.peers = peers;
        }
        if denies {
            rule.action = straightline_firewall::Action::Deny;
        }
        rule
    })
}

fn group(name: &'static str) -> impl Strategy<Value = Group> {
    let rules = |direction| proptest::collection::vec(rules(direction), 0..12);
    (rules(Direction::In), rules(Direction::Out)).prop_map(move |(inbound, outbound)| Group {
        name: name.to_owned(),
        inbound,
        outbound,
    })
}

/// Patterns of which most have some of the addresses.
fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    let mask = prop_oneof![any::<u128>(), (0..100_u32).prop_map(|shift| 0xff_u128 << shift), Just(u128::MAX >> 64)];
    let bits = addresses().prop_map(|address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    });
    proptest::collection::vec((bits, mask).prop_map(|(bits, mask)| Pattern::new(bits, mask)), 0..4)
}

fn definitions() -> impl Strategy<Value = Definitions> {
    let lists = || proptest::collection::vec(prefixes(), 0..12);
    let sets = ((lists(), patterns()), (lists(), patterns()));
    let members = (lists(), lists(), lists());
    (group("a"), group("b"), group("c"), sets, members).prop_map(|(a, b, c, (s, t), members)| {
        let set = |name: &str, (prefixes, patterns)| Set { name: name.to_owned(), prefixes, patterns };
        let mut definitions = Definitions::new([a, b, c], [set("s", s), set("t", t)]);
        let (a, b, c) = members;
        definitions.members = [("a", a), ("b", b), ("c", c)].map(|(name, list)| (name.to_owned(), list)).into();
        definitions
    })
}

/// Flows for which the rules of the network do not care.
fn flows() -> impl Strategy<Value = Flow> {
    let protocol = prop_oneof![Just(6_u8), Just(17), Just(132), Just(1), Just(58), Just(47), 200..203_u8];
    let icmp = (prop_oneof![Just(0_u8), Just(3), Just(8), Just(128), Just(129), 150..155_u8], 0..3_u8);
    let frame = prop_oneof![Just(0x88cc_u16), Just(0x88b5), Just(0x8864), Just(0x8848), 1..1500_u16];
    let direction = prop_oneof![Just(Direction::In), Just(Direction::Out)];
    let is_frame = proptest::bool::weighted(0.1);
    (direction, addresses(), protocol, ports(), icmp, frame, is_frame).prop_map(
        |(direction, remote, protocol, port, icmp, frame, is_frame)| {
            let is_icmp = protocol == 1 || protocol == 58;
            let has_ports = [6, 17, 132].contains(&protocol);
            let flow = Flow {
                direction,
                ether_type: if remote.is_ipv4() { 0x0800 } else { 0x86dd },
                remote: Some(remote),
                protocol,
                source_port: if has_ports { 4000 } else { 0 },
                port: if has_ports { port } else { 0 },
                icmp: if is_icmp { icmp } else { (0, 0) },
                hops: 64,
                from_trusted: false,
            };
            if !is_frame {
                return flow;
            }
            let none = Flow { remote: None, protocol: 0, source_port: 0, port: 0, icmp: (0, 0), hops: 0, ..flow };
            Flow { ether_type: frame, ..none }
        },
    )
}

/// Packets that only a trusted port may send.
fn claims() -> impl Strategy<Value = Flow> {
    let texts = [
        "icmp6 router-advertisement to ff02::1",
        "icmp6 redirect to fe80::1",
        "icmp redirect to 10.0.0.1",
        "icmp router-advertisement to 10.0.0.1",
        "udp to 10.0.0.1 port 68 source-port 67",
        "udp to fd00::1 port 546 source-port 547",
    ];
    let flow = proptest::sample::select(texts.to_vec()).prop_map(|text| text.parse::<Flow>().expect(text));
    (flow, any::<bool>(), any::<u8>(), any::<u8>(), any::<u16>(), addresses()).prop_map(
        |(flow, inbound, hops, code, source_port, remote)| {
            let direction = if inbound { Direction::In } else { Direction::Out };
            let remote = flow.remote.map(|own| if own.is_ipv4() == remote.is_ipv4() { remote } else { own });
            let source_port = if flow.port == 0 { 0 } else { source_port };
            let code = if flow.port == 0 { code } else { 0 };
            Flow { direction, hops, source_port, remote, icmp: (flow.icmp.0, code), ..flow }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No rule of a group passes a port off as a router or a server of DHCP.
    #[test]
    fn groups_allow_no_claims(
        definitions in definitions(),
        groups in proptest::sample::subsequence(vec!["a", "b", "c", "public"], 1..=4).prop_shuffle(),
        source_check in any::<bool>(),
        claims in proptest::collection::vec(claims(), 1..50),
    ) {
        let groups: Vec<_> = groups.into_iter().map(str::to_owned).collect();
        let port = PortGroups { groups, source_check, trusted: false };
        let policy = Policy::compile(&port, &definitions, Level::detect()).expect("known names");
        for claim in &claims {
            let rule = policy.rule(policy.explain(claim));
            prop_assert!(rule.origin == Origin::Network && !rule.allows(), "{} {}", claim, rule);
        }
    }

    /// Each flow of a batch gets the rule that the reference finds.
    #[test]
    fn decides_as_the_first_rule_that_matches(
        definitions in definitions(),
        groups in proptest::sample::subsequence(vec!["a", "b", "c", "private"], 1..=4).prop_shuffle(),
        flows in proptest::collection::vec(flows(), 1..=MAX_KEYS),
    ) {
        let groups: Vec<_> = groups.into_iter().map(str::to_owned).collect();
        let port = PortGroups { groups, ..PortGroups::default() };
        let policy = Policy::compile(&port, &definitions, Level::detect()).expect("known names");
        for direction in Direction::BOTH {
            let own: Vec<_> = flows.iter().filter(|flow| flow.direction == direction).collect();
            let own_keys: Vec<_> = own.iter().map(|flow| flow.key()).collect();
            let keys: Keys = own_keys.iter().collect();
            let mut verdicts = [RuleIndex(u32::MAX); MAX_KEYS];
            policy.decide(direction, &keys, &mut verdicts);
            for (flow, verdict) in own.iter().zip(verdicts) {
                let rule = policy.rule(verdict);
                prop_assert_eq!(&rule.origin, &reference(&port, flow, &definitions), "{}", flow);
                prop_assert_eq!(rule.direction, direction);
                prop_assert_eq!(policy.explain(flow), verdict);
            }
        }
        // A rule that is hidden decides about nothing.
        let shadowed = shadowed_rules(&port, &definitions).expect("known names");
        for flow in &flows {
            let decides = policy.rule(policy.explain(flow));
            prop_assert!(shadowed.iter().all(|hidden| hidden.rule != *decides), "{} {}", flow, decides);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Policies that stay over changes of groups, sets and members are those of the new definitions.
    #[test]
    fn policies_follow_their_definitions(
        old in definitions(),
        other in definitions(),
        changed in proptest::collection::vec(proptest::bool::weighted(0.3), 8),
        flows in proptest::collection::vec(flows(), 100),
    ) {
        let ports = [&["a"][..], &["b"], &["c"], &["a", "b"], &["c", "private"], &["public"]].map(|groups| PortGroups {
            groups: groups.iter().map(|name| (*name).to_owned()).collect(),
            ..PortGroups::default()
        });
        let mut new = old.clone();
        for (name, changed) in ["a", "b", "c"].into_iter().zip(&changed) {
            if *changed {
                new.groups.insert(name.to_owned(), other.groups[name].clone());
            }
        }
        for (name, changed) in ["s", "t"].into_iter().zip(&changed[3..]) {
            if *changed {
                new.sets.insert(name.to_owned(), other.sets[name].clone());
            }
        }
        if changed[7] {
            new.members.insert("a".to_owned(), other.members["a"].clone());
        }
        let mut policies = Policies::new(old, Level::detect());
        let before: Vec<_> = ports.iter().map(|port| policies.get(port).expect("known names")).collect();
        policies.replace(new.clone());
        for (name, changed) in ["b", "c"].into_iter().zip(&changed[5..]) {
            if *changed {
                policies.set_members(name, other.members[name].clone());
                new.members.insert(name.to_owned(), other.members[name].clone());
            }
        }
        for (port, before) in ports.iter().zip(&before) {
            let policy = policies.get(port).expect("known names");
            let fresh = Policy::compile(port, &new, Level::detect()).expect("known names");
            prop_assert_eq!(policy.rules(), fresh.rules());
            for flow in &flows {
                prop_assert_eq!(policy.explain(flow), fresh.explain(flow), "{}", flow);
            }
            if !changed.contains(&true) {
                prop_assert!(Arc::ptr_eq(&policy, before), "nothing has changed");
            }
        }
    }
}
