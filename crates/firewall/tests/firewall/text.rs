//! The text of rules and flows.

use proptest::prelude::*;
use straightline_firewall::{Action, Direction, EtherTypes, Flow, Peer, Prefix, Rule, Service, parse_rule};

/// Services with these ports.
pub(crate) fn service(ports: impl Strategy<Value = u16> + Clone + 'static) -> impl Strategy<Value = Service> {
    let range = (ports.clone(), ports).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let ports = || proptest::collection::vec(range.clone(), 0..4);
    let icmp = |types: &[u8]| {
        let kind = prop_oneof![3 => proptest::sample::select(types.to_vec()), 1 => any::<u8>()];
        proptest::option::of((kind, proptest::option::weighted(0.3, 0..3_u8)))
    };
    let words = ["lldp", "802.1x", "mpls", "pppoe", "llc", "vlan", "0x88b5"];
    let ether_type = proptest::sample::select(words.to_vec()).prop_map(|word| {
        let rule = parse_rule(Direction::In, &format!("ethertype {word}")).expect(word);
        rule.service
    });
    let protocol = prop_oneof![Just(47_u8), 200..203_u8].prop_map(Service::Protocol);
    prop_oneof![
        2 => Just(Service::Any),
        4 => ports().prop_map(Service::Tcp),
        3 => ports().prop_map(Service::Udp),
        1 => ports().prop_map(Service::Sctp),
        2 => icmp(&[0, 3, 8]).prop_map(Service::Icmp),
        2 => icmp(&[128, 129]).prop_map(Service::Icmp6),
        1 => protocol,
        1 => ether_type,
    ]
}

/// Peers of these names.
pub(crate) fn peer(
    prefixes: impl Strategy<Value = Prefix> + 'static,
    groups: &[&'static str],
    sets: &[&'static str],
) -> impl Strategy<Value = Peer> {
    let name = |names: &[&'static str]| proptest::sample::select(names.to_vec());
    prop_oneof![
        4 => prefixes.prop_map(Peer::Prefix),
        1 => name(groups).prop_map(|name| Peer::Group(name.to_owned())),
        1 => name(sets).prop_map(|name| Peer::Set(name.to_owned())),
    ]
}

fn prefix_of(service: &Service) -> Option<bool> {
    match service {
        Service::Icmp(_) => Some(true),
        Service::Icmp6(_) => Some(false),
        _ => None,
    }
}

proptest! {
    /// The text of a rule reads back the same.
    #[test]
    fn rules_read_back(
        service in service(any::<u16>()),
        addresses in proptest::collection::vec(any::<std::net::IpAddr>(), 0..4),
        names in proptest::option::of("[A-Za-z0-9_.-]{1,32}"),
        log in any::<bool>(),
        denies in any::<bool>(),
        outbound in any::<bool>(),
        stateless in any::<bool>(),
    ) {
        let direction = if outbound { Direction::Out } else { Direction::In };
        let is_frame = matches!(service, Service::EtherType(_));
        let wanted = prefix_of(&service);
        let mut rule = Rule::allow(direction, service);
        let addresses = addresses.into_iter().filter(|address| wanted.is_none_or(|v4| v4 == address.is_ipv4()));
        if !is_frame {
            rule.peers = addresses.map(|address| Peer::Prefix(Prefix::exact(address))).collect();
            rule.peers.push(Peer::Group("web".to_owned()));
            rule.peers.push(Peer::Set("log".to_owned()));
        }
        rule.name = names;
        rule.log = log;
        rule.action = if denies { Action::Deny } else { Action::Allow };
        let has_ports = matches!(&rule.service, Service::Udp(ports) if !ports.is_empty());
        rule.stateless = stateless && !denies && !outbound && has_ports;
        let text = rule.to_string();
        prop_assert_eq!(parse_rule(direction, &text).map_err(|error| error.to_string()), Ok(rule), "{}", text);
    }

    /// No text panics.
    #[test]
    fn any_text_is_a_rule_or_an_error(text in "((allow|deny|tcp|udp|icmp|icmp6|ip|ethertype|type|from|to|any|set:|group:|,|-|[0-9]{1,6}|name|log|[a-z:./é]{1,4}) ?){0,12}") {
        let _ = parse_rule(Direction::In, &text);
        let _ = text.parse::<Flow>();
    }
}

#[test]
fn texts_of_rules() {
    let same = [
        "any from any",
        "tcp 80,443 from any",
        "tcp 22,8000-8099 from 10.0.0.0/8",
        "any from group:web",
        "icmp echo-request from any",
        "icmp6 type 200 code 3",
        "sctp 36412",
        "ip 47 from 192.0.2.1,fd00::/64,set:office",
        "deny tcp 25 from any name no-spam log",
        "ethertype lldp",
        "ethertype 0x88b5 name test",
        "deny any",
        "udp 53 from any stateless",
        "udp 53,5353 from 10.0.0.0/8 stateless name dns log",
    ];
    for text in same {
        assert_eq!(parse_rule(Direction::In, text).expect(text).to_string(), text);
    }
    let also = [
        ("allow tcp 80, 443 to any", "tcp 80,443 to any"),
        ("ip 6", "tcp"),
        ("ip 58", "icmp6"),
        ("icmp type 8", "icmp echo-request"),
        ("icmp6 type 128", "icmp6 echo-request"),
        ("ethertype 0x88cc", "ethertype lldp"),
        ("udp 53 to 10.0.0.2/32", "udp 53 to 10.0.0.2"),
        ("  deny\ttcp  to ::/0 , 0.0.0.0/0", "deny tcp to ::/0,0.0.0.0/0"),
    ];
    for (text, written) in also {
        assert_eq!(parse_rule(Direction::Out, text).expect(text).to_string(), written);
    }
    let Service::EtherType(EtherTypes::Named(name, _)) =
        parse_rule(Direction::In, "ethertype llc").expect("llc").service
    else {
        panic!("llc is a name");
    };
    assert_eq!(name, "llc");
}

#[test]
fn mistakes_name_the_word_and_the_remedy() {
    let wrong = |text: &str, parts: &[&str]| {
        let error = parse_rule(Direction::In, text).expect_err(text).to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: no {part:?} in {error}");
        }
    };
    wrong("", &["the rule is empty: write for example `tcp 443 from any`"]);
    wrong("allow", &["the rule is empty"]);
    wrong("tpc 80", &["`tpc` is no protocol: known are any, tcp"]);
    wrong("icmpv6", &["write `icmp6`"]);
    wrong("arp", &["`source-check`"]);
    wrong("tcp 80-", &["`80-` is no port: write a number from 0 to 65535"]);
    wrong("tcp 70000", &["`70000` is no port"]);
    wrong("tcp 90-80", &["`90-80` ends before it begins: write 80-90"]);
    wrong("tcp http", &["`http` is unknown here"]);
    wrong("tcp 80 to any", &["`to` does not belong to rules of `in`: write `from`"]);
    wrong("tcp 80 from", &["`from` is followed by nothing: add a peer"]);
    wrong("tcp 80 from office", &["`office` is no peer", "set:NAME"]);
    wrong("tcp 80 from 10.1.0.0/8", &["write 10.0.0.0/8"]);
    wrong("tcp 80 from 10.0.0.0/33", &["0 to 32"]);
    wrong("tcp 80 from set:", &["`set:office`"]);
    wrong("tcp 443 from domain:example.com", &["`domain:example.com` is not possible yet"]);
    wrong("tcp 80 from any,10.0.0.0/8", &["includes all others"]);
    wrong("tcp 80 name a b", &["`b` is unknown here"]);
    wrong("tcp 80 name a/b", &["no valid name"]);
    wrong("tcp 53 from any stateless", &["`stateless` needs `udp` with ports"]);
    wrong("udp from any stateless", &["`stateless` needs `udp` with ports"]);
    wrong("deny udp 53 stateless", &["`stateless` belongs to rules that allow"]);
    let error = parse_rule(Direction::Out, "udp 53 to any stateless").expect_err("a rule of `out`").to_string();
    assert!(error.contains("belongs to rules of `in`"), "{error}");
    wrong("tcp log 80", &["`80` is unknown here: the order is"]);
    wrong("icmp 8", &["write `type 8`"]);
    wrong("icmp ping", &["`ping` is no type", "echo-request"]);
    wrong("icmp type 256", &["0 to 255"]);
    wrong("icmp from fd00::1", &["`fd00::1` is IPv6: write `icmp6`"]);
    wrong("icmp6 from 10.0.0.1", &["write `icmp`"]);
    wrong("ip gre", &["`gre` is no protocol: write a number from 0 to 255"]);
    wrong("ethertype 0x0800", &["is IPv4: write `any`"]);
    wrong("ethertype 0x0806", &["is ARP"]);
    wrong("ethertype 0x0100", &["write `llc`"]);
    wrong("ethertype 34525", &["is no EtherType", "lldp"]);
    wrong("ethertype lldp from 10.0.0.1", &["EtherTypes do not have"]);
    wrong(&"x".repeat(10_000), &["8192"]);
}

#[test]
fn flows() {
    let same = [
        "tcp to 192.0.2.1 port 443 source-port 50000",
        "udp from fd00::1 port 53 source-port 53 trusted",
        "icmp echo-request code 0 to 192.0.2.1",
        "icmp6 router-advertisement code 0 from fe80::1 trusted",
        "ip 47 to 192.0.2.1",
        "arp to any",
        "ethertype lldp from any",
        "ethertype 0x88b5 to any",
    ];
    for text in same {
        assert_eq!(text.parse::<Flow>().expect(text).to_string(), text);
    }
    let wrong = |text: &str, part: &str| {
        let error = text.parse::<Flow>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    };
    wrong("", "the flow is empty");
    wrong("tcp", "`tcp` is followed by nothing");
    wrong("tcp 192.0.2.1", "neither `to` nor `from`");
    wrong("tcp to 192.0.2.1", "`port 443`");
    wrong("tcp to here port 1", "no IP address");
    wrong("icmp to 192.0.2.1", "needs a type");
    wrong("icmp echo-request to fd00::1", "icmp6");
    wrong("ethertype lldp to 10.0.0.1", "write `any`");
    wrong("ip 6 to 10.0.0.1", "`6` has a name: write `tcp`");
    wrong("tcp to 192.0.2.1 port 443 now", "`now` is unknown here");
}
