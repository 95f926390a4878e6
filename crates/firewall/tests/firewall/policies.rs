//! Policies of many ports, the rules of the network, profiles, and hidden rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use straightline_firewall::{
    Definitions, Direction, Flow, Group, Level, NAT64_LENGTHS, Policies, Policy, PolicyError, PortGroups, Prefix, Set,
    known_sets, profiles, shadowed_rules,
};

fn port(groups: &[&str]) -> PortGroups {
    PortGroups { groups: groups.iter().map(|name| (*name).to_owned()).collect(), ..PortGroups::default() }
}

fn group(name: &str, inbound: &[&str], outbound: &[&str]) -> Group {
    Group::parse(name, inbound, outbound).expect("valid rules")
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

fn policy(port: &PortGroups, definitions: &Definitions) -> Policy {
    Policy::compile(port, definitions, Level::detect()).expect("known names")
}

/// Returns the label of the rule that decides about a flow, with `-` in front if it denies.
fn decides(policy: &Policy, flow: &str) -> String {
    let flow: Flow = flow.parse().expect(flow);
    let rule = policy.rule(policy.explain(&flow));
    assert_eq!(rule.direction, flow.direction);
    let sign = if rule.allows() { "" } else { "-" };
    sign.to_owned() + &rule.label()
}

fn check(policy: &Policy, rows: &[(&str, &str)]) {
    for (flow, rule) in rows {
        assert_eq!(decides(policy, flow), *rule, "{flow}");
    }
}

#[test]
fn the_first_group_decides_and_what_no_rule_allows_is_denied() {
    let web = group("web", &["tcp 80,443 from any", "any from group:web"], &["udp 53 to 10.0.0.2"]);
    let admin = group("admin", &["deny tcp 80 from 10.0.0.0/8 name inside log", "tcp 22,80 from set:office"], &[]);
    let office = Set {
        name: "office".to_owned(),
        prefixes: vec![prefix("192.0.2.0/24"), prefix("2001:db8::/32")],
        patterns: vec![],
    };
    let mut definitions = Definitions::new([web, admin], [office]);
    definitions.members.insert("web".to_owned(), vec![prefix("10.0.0.7"), prefix("fd00::7")]);
    let both = policy(&port(&["admin", "web"]), &definitions);
    check(
        &both,
        &[
            ("tcp from 10.1.1.1 port 80", "-admin:inside"),
            ("tcp from 192.0.2.1 port 22", "admin:in:2"),
            ("tcp from 2001:db8::1 port 80", "admin:in:2"),
            ("tcp from 198.51.100.1 port 80", "web:in:1"),
            ("tcp from 198.51.100.1 port 22", "-default"),
            ("udp from fd00::7 port 9", "web:in:2"),
            ("udp from fd00::8 port 9", "-default"),
            ("udp to 10.0.0.2 port 53", "web:out:1"),
            ("tcp to 10.0.0.2 port 53", "-default"),
            ("ethertype lldp from any", "-default"),
        ],
    );
    let rule = both.rules().iter().find(|rule| rule.name.as_deref() == Some("inside")).expect("the rule");
    assert!(rule.log && !rule.begins_connections());
    assert_eq!(rule.to_string(), "rule 1 of \"in\" in group \"admin\": deny tcp 80 from 10.0.0.0/8 name inside log");
    check(&policy(&port(&["web", "admin"]), &definitions), &[("tcp from 10.1.1.1 port 80", "web:in:1")]);
    check(&policy(&port(&[]), &definitions), &[("tcp from 10.1.1.1 port 80", "-default")]);
}

#[test]
fn a_network_works_without_rules_of_groups() {
    let definitions = Definitions::new([group("all", &["any"], &["any"]), group("none", &[], &[])], []);
    let checked = |groups: &[&str]| PortGroups { source_check: true, ..port(groups) };
    let none = policy(&checked(&["none"]), &definitions);
    check(
        &none,
        &[
            ("arp to any", "arp"),
            ("arp from any", "arp"),
            ("icmp6 neighbour-solicitation to fd00::1", "neighbour-discovery"),
            ("icmp6 neighbour-advertisement from fd00::1", "neighbour-discovery"),
            ("icmp6 router-solicitation to ff02::2", "router-solicitation"),
            ("icmp6 router-solicitation to fd00::1", "-default"),
            ("icmp6 router-solicitation from fe80::1", "-no-solicitation"),
            ("icmp6 router-advertisement from fe80::1 trusted", "router"),
            ("icmp6 router-advertisement from fe80::1", "-no-router"),
            ("icmp6 redirect from fe80::1 trusted", "router"),
            ("udp to 255.255.255.255 port 67 source-port 68", "dhcp"),
            ("udp to 10.0.0.1 port 67 source-port 68", "-default"),
            ("udp to ff02::1:2 port 547 source-port 546", "dhcp"),
            ("udp from 10.0.0.1 port 68 source-port 67 trusted", "dhcp"),
            ("udp from 10.0.0.1 port 68 source-port 67", "-no-dhcp-server"),
            ("udp from fe80::1 port 546 source-port 547 trusted", "dhcp"),
            ("icmp6 listener-report-v2 to ff02::16", "multicast"),
            ("icmp6 listener-report-v2 to fd00::1", "-default"),
            ("icmp6 listener-query from fe80::1", "multicast"),
            ("ip 2 to 224.0.0.22", "multicast"),
            ("ip 2 to 10.0.0.1", "-default"),
            ("icmp echo-request to 10.0.0.1", "-default"),
        ],
    );
    // No rule of a group allows what a router or a server of DHCP says.
    check(
        &policy(&checked(&["all"]), &definitions),
        &[
            ("icmp6 router-advertisement to ff02::1", "-no-router"),
            ("icmp redirect to 10.0.0.1", "-no-router"),
            ("icmp redirect from 10.0.0.1", "-no-router"),
            ("icmp redirect from 10.0.0.1 trusted", "all:in:1"),
            ("icmp6 router-solicitation from fe80::1", "-no-solicitation"),
            ("icmp6 router-solicitation from fe80::1 trusted", "-no-solicitation"),
            ("udp to 10.0.0.1 port 68 source-port 67", "-no-dhcp-server"),
            ("udp to 10.0.0.1 port 68 source-port 9", "-no-dhcp-server"),
            ("udp to fe80::1 port 546 source-port 547", "-no-dhcp-server"),
            ("udp from 10.0.0.1 port 68 source-port 67", "-no-dhcp-server"),
            ("udp to 10.0.0.1 port 67 source-port 68", "all:out:1"),
        ],
    );
    let trusted = policy(&PortGroups { trusted: true, ..port(&["none"]) }, &definitions);
    check(
        &trusted,
        &[
            ("arp to any", "arp"),
            ("icmp6 router-advertisement to ff02::1", "router"),
            ("icmp6 router-solicitation from fe80::7", "router"),
            ("icmp6 listener-query to ff02::1", "multicast-query"),
            ("udp to 10.0.0.7 port 68 source-port 67", "dhcp-server"),
            ("udp from 0.0.0.0 port 67 source-port 68", "dhcp-server"),
            ("udp from fe80::7 port 547 source-port 546", "dhcp-server"),
        ],
    );
    // Without a check of sources, a port cannot pass itself off as another one.
    let unchecked = policy(&port(&["all"]), &definitions);
    check(&unchecked, &[("arp to any", "-default"), ("arp from any", "arp")]);
    // Neighbour discovery from beyond the link is none.
    let far = Flow { hops: 64, ..("icmp6 neighbour-solicitation from fd00::1".parse().expect("a flow")) };
    assert_eq!(none.rule(none.explain(&far)).label(), "default");
}

#[test]
fn messages_of_neighbours_need_checked_addresses() {
    let definitions = Definitions::new([group("none", &[], &[])], []);
    let unchecked = policy(&port(&["none"]), &definitions);
    check(&unchecked, &[("icmp6 neighbour-advertisement to fd00::1", "-default")]);
}

#[test]
fn profiles_mean_what_the_documents_say() {
    let definitions = Definitions::default();
    let policy = |name: &str| policy(&port(&[name]), &definitions);
    check(
        &policy("public"),
        &[("tcp from 192.0.2.1 port 22", "public:in:1"), ("tcp to 10.0.0.1 port 22", "public:out:1")],
    );
    check(
        &policy("private"),
        &[
            ("tcp to 198.51.100.1 port 443", "private:out:5"),
            ("tcp to 2001:db8::1 port 443", "private:out:5"),
            ("tcp to 10.0.0.1 port 443", "-private:private"),
            ("tcp to 172.31.255.255 port 443", "-private:private"),
            ("tcp to 172.32.0.0 port 443", "private:out:5"),
            ("tcp to 100.64.0.1 port 443", "-private:private"),
            ("tcp to 169.254.169.254 port 80", "-private:metadata"),
            ("tcp to fd00:ec2::254 port 80", "-private:metadata"),
            ("tcp to fe80::1 port 80", "-private:private"),
            ("tcp to ::ffff:10.0.0.1 port 80", "-private:private"),
            ("tcp to 64:ff9b::10.0.0.1 port 80", "-private:private"),
            ("tcp to 64:ff9b::198.51.100.1 port 80", "private:out:5"),
            ("tcp to 2002:a00:1::1 port 80", "-private:private"),
            ("tcp to 2002:c633:6401::1 port 80", "private:out:5"),
            ("udp to 224.0.0.251 port 5353", "-private:multicast"),
            ("udp to ff02::fb port 5353", "-private:multicast"),
            ("tcp from 198.51.100.1 port 443", "-default"),
        ],
    );
    check(
        &policy("host-only"),
        &[
            ("tcp to 10.0.0.1 port 443", "host-only:out:2"),
            ("tcp to 169.254.169.254 port 80", "-host-only:metadata"),
            ("tcp to 198.51.100.1 port 443", "-default"),
            ("tcp from fd00::1 port 22", "host-only:in:1"),
            ("tcp from 198.51.100.1 port 22", "-default"),
        ],
    );
    assert_eq!(profiles().iter().map(|profile| &*profile.name).collect::<Vec<_>>(), ["public", "private", "host-only"]);
    assert_eq!(known_sets().iter().map(|set| &*set.name).collect::<Vec<_>>(), ["private", "metadata", "tunnelled"]);
}

/// The forms in which an IPv6 address carries an IPv4 address: the prefix, the length, and what is behind
/// the address.
fn forms(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b] = [v4.to_bits() >> 16, v4.to_bits() & 0xffff];
    let texts = [
        format!("::{v4}"),
        format!("::ffff:{v4}"),
        format!("::ffff:0:{v4}"),
        format!("64:ff9b::{v4}"),
        format!("2002:{a:x}:{b:x}::1"),
        format!("2002:{a:x}:{b:x}:7::{v4}"),
        format!("fe80::5efe:{v4}"),
        format!("fd00:1::200:5efe:{v4}"),
        format!("fc00::5efe:{v4}"),
    ];
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

#[test]
fn no_form_of_an_address_leads_to_the_metadata() {
    let definitions = Definitions::default();
    let [host_only, private] = ["host-only", "private"].map(|name| policy(&port(&[name]), &definitions));
    let denied = |address: IpAddr| {
        for policy in [&host_only, &private] {
            let decision = decides(policy, &format!("tcp to {address} port 80"));
            assert!(decision.ends_with(":metadata") && decision.starts_with('-'), "{address}: {decision}");
        }
    };
    let v4 = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.1", "100.100.100.200"];
    let others = ["168.63.129.16", "192.0.0.192"];
    for text in v4.into_iter().chain(others) {
        let v4: Ipv4Addr = text.parse().expect(text);
        denied(v4.into());
        forms(v4).into_iter().for_each(|form| denied(form.into()));
        denied(format!("2001:db8::5efe:{v4}").parse().expect("an address"));
        // A translator of the network itself, of any length.
        denied(format!("64:ff9b:1::{v4}").parse().expect("an address"));
    }
    for text in [
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fe80::a9fe:a9fe",
        "fd00:c1::a9fe:a9fe",
        "fd00:a9fe:a9fe::1",
        "fd00:42::42",
        "2001:0:a:b::1",
    ] {
        denied(text.parse().expect(text));
    }
    // Other addresses are what they were: those of IPv4 that the host alone has, too.
    check(
        &host_only,
        &[
            ("tcp to 10.0.0.1 port 443", "host-only:out:2"),
            ("tcp to 64:ff9b::10.0.0.1 port 443", "host-only:out:2"),
            ("tcp to 100.100.100.201 port 443", "host-only:out:2"),
            ("tcp to fe80::1 port 443", "host-only:out:2"),
            ("tcp to 2001:db8::5efe:10.0.0.1 port 443", "-default"),
            ("tcp from 2001:db8::5efe:10.0.0.1 port 443", "-default"),
            ("tcp from 2001::1 port 443", "-default"),
            ("tcp from ::ffff:0:192.0.2.1 port 443", "-default"),
        ],
    );
    check(
        &private,
        &[
            ("tcp to 2001:db8::5efe:10.0.0.1 port 443", "-private:tunnelled"),
            ("tcp to 2001:db8::200:5efe:10.0.0.1 port 443", "-private:tunnelled"),
            ("tcp to 2001:db8::5efe:192.0.2.1 port 443", "private:out:5"),
            ("tcp to ::ffff:0:10.0.0.1 port 443", "-private:private"),
        ],
    );
}

/// Translators leave out bits 64 to 71 and what is behind the address.
#[test]
fn a_translator_of_the_network_leads_to_no_metadata() {
    let host = 0x2001_0db8_0064_1700_u128 << 64;
    for len in NAT64_LENGTHS {
        let mask = u128::MAX << (128 - u32::from(len));
        let nat64 = Prefix::new(Ipv6Addr::from_bits(host & mask).into(), len).expect("a prefix");
        let definitions = Definitions::default().with_nat64(&[nat64]);
        let [host_only, private] = ["host-only", "private"].map(|name| policy(&port(&[name]), &definitions));
        let carrying = |v4: Ipv4Addr, rest: u64| {
            let bits = u128::from(v4.to_bits()) << (96 - len);
            let low = bits & u128::from(u64::MAX);
            let rest = u128::from(rest) & (0xff << 56 | 0xff_ffff);
            let placed = if len == 96 { bits } else { bits ^ low | low >> 8 | rest };
            Ipv6Addr::from_bits(host & mask | placed)
        };
        for rest in [0, u64::MAX, 0x0200_0000_0012_3456] {
            let decision = |policy: &Policy, v4: [u8; 4]| {
                decides(policy, &format!("tcp to {} port 80", carrying(v4.into(), rest)))
            };
            for v4 in [[169, 254, 169, 254], [169, 254, 1, 1], [100, 100, 100, 200], [168, 63, 129, 16]] {
                assert_eq!(decision(&host_only, v4), "-host-only:metadata", "{len} {rest:x}");
                assert_eq!(decision(&private, v4), "-private:metadata", "{len} {rest:x}");
            }
            assert_eq!(decision(&host_only, [172, 16, 0, 1]), "host-only:out:2", "{len} {rest:x}");
            assert_eq!(decision(&private, [172, 16, 0, 1]), "-private:private", "{len} {rest:x}");
            assert_eq!(decision(&private, [192, 0, 2, 1]), "private:out:5", "{len} {rest:x}");
        }
    }
    // A prefix of RFC 8215 that the network names leads to public addresses, too.
    let own = Definitions::default().with_nat64(&[prefix("64:ff9b:1::/96")]);
    check(
        &policy(&port(&["private"]), &own),
        &[
            ("tcp to 64:ff9b:1::192.0.2.1 port 80", "private:out:5"),
            ("tcp to 64:ff9b:1::10.0.0.1 port 80", "-private:private"),
            ("tcp to 64:ff9b:1::169.254.169.254 port 80", "-private:metadata"),
        ],
    );
}

#[test]
fn equal_ports_share_a_policy_and_a_change_compiles_few() {
    let groups = (0..10).map(|n| {
        let from_next = format!("any from group:g{}", (n + 1) % 10);
        group(&format!("g{n}"), &["tcp 80,443 from any", &from_next], &["any"])
    });
    let mut policies = Policies::new(Definitions::new(groups, []), Level::detect());
    let port_of = |n: usize| port(&[&format!("g{}", n % 10)]);
    for n in 0..10 {
        policies.set_members(&format!("g{n}"), vec![prefix(&format!("10.0.{n}.0/24"))]);
    }
    let before: Vec<_> = (0..1000).map(|n| policies.get(&port_of(n)).expect("known names")).collect();
    assert!((0..1000).all(|n| Arc::ptr_eq(&before[n], &before[n % 10])));
    assert!(!policies.set_members("g4", vec![prefix("10.0.4.0/24"), prefix("10.0.4.0/24")]), "the same");
    assert!(policies.set_members("g4", vec![prefix("10.0.4.0/24"), prefix("10.1.0.1")]));
    let after: Vec<_> = (0..10).map(|n| policies.get(&port_of(n)).expect("known names")).collect();
    let changed: Vec<_> = (0..10).filter(|n| !Arc::ptr_eq(&before[*n], &after[*n])).collect();
    assert_eq!(changed, [3], "the group that names g4");
    check(&before[3], &[("udp from 10.1.0.1 port 9", "-default")]);
    check(&after[3], &[("udp from 10.1.0.1 port 9", "g3:in:2")]);
    assert_eq!(before[3].rules(), after[3].rules(), "indices stay");

    let mut definitions = policies.definitions().clone();
    definitions.groups.insert("g7".to_owned(), group("g7", &[], &[]));
    policies.replace(definitions);
    let replaced: Vec<_> = (0..10).map(|n| policies.get(&port_of(n)).expect("known names")).collect();
    let changed: Vec<_> = (0..10).filter(|n| !Arc::ptr_eq(&after[*n], &replaced[*n])).collect();
    assert_eq!(changed, [7]);
    let kept = Arc::downgrade(&after[1]);
    drop((before, after, replaced));
    policies.forget_unused();
    assert!(kept.upgrade().is_none(), "nobody has it");
}

#[test]
fn unknown_names_and_too_many_rules_are_errors() {
    let mut definitions =
        Definitions::new([group("a", &["any from set:s"], &[]), group("b", &["any from group:c"], &[])], []);
    let error = |port: &PortGroups, definitions: &Definitions| {
        Policy::compile(port, definitions, Level::detect()).expect_err("an error").to_string()
    };
    assert_eq!(error(&port(&["x"]), &definitions), "group \"x\" does not exist");
    assert!(error(&port(&["a"]), &definitions).contains("\"any from set:s\" of group \"a\" names set:s"));
    assert!(error(&port(&["b"]), &definitions).contains("names group:c"));
    assert!(shadowed_rules(&port(&["b"]), &definitions).is_err());
    let every_other = (0..100_000_u32).map(|n| Prefix::exact(std::net::Ipv4Addr::from_bits(2 * n).into()));
    definitions
        .sets
        .insert("s".to_owned(), Set { name: "s".to_owned(), prefixes: every_other.collect(), patterns: vec![] });
    let too_many = Policy::compile(&port(&["a"]), &definitions, Level::detect()).expect_err("an error");
    assert_eq!(too_many, PolicyError::TooMany(vec!["a".to_owned()]));
}

#[test]
fn hidden_rules_are_found() {
    let rules = [
        "tcp 1000-2000 from 10.0.0.0/8",
        "tcp 1500,1600 from 10.1.0.0/16,10.2.0.1",
        "tcp 1500 from 10.1.0.0/16,fd00::1",
        "udp from group:empty",
        "icmp from any",
        "deny icmp echo-request from 10.0.0.0/8",
        "ethertype lldp",
        "ethertype 0x88cc",
        "icmp6 type 134",
    ];
    let groups = [group("a", &rules, &["any", "tcp 80"]), group("empty", &[], &[])];
    let shadowed = shadowed_rules(&port(&["a"]), &Definitions::new(groups, [])).expect("known names");
    let found: Vec<_> =
        shadowed.iter().map(|found| (found.rule.label(), found.by.as_ref().map(|by| by.label()))).collect();
    let hidden = |rule: &str, by: &str| (rule.to_owned(), Some(by.to_owned()));
    assert_eq!(
        found,
        [
            hidden("a:in:2", "a:in:1"),
            ("a:in:4".to_owned(), None),
            hidden("a:in:6", "a:in:5"),
            hidden("a:in:8", "a:in:7"),
            hidden("a:in:9", "no-router"),
            hidden("a:out:2", "a:out:1"),
        ]
    );
    assert!(shadowed.iter().all(|found| found.rule.direction == Direction::In || found.rule.label() == "a:out:2"));
}

/// An answer passes by the rule of its question: its peers and ports hold, and rules before it.
#[test]
fn answers_of_a_rule_without_connections() {
    let inbound = ["deny udp 53 from 10.0.0.0/8", "udp 53 from 192.0.2.0/24,10.0.0.1 stateless", "udp 123 from any"];
    let group = Group::parse("dns", &inbound, &["tcp 443 to any"]).expect("rules");
    let definitions = Definitions::new([group], []);
    let port = PortGroups { groups: vec!["dns".to_owned()], ..PortGroups::default() };
    let policy = Policy::compile(&port, &definitions, Level::detect()).expect("known groups");
    let rule = |flow: &str| policy.rule(policy.explain(&flow.parse().expect(flow)));
    assert!(policy.has_stateless());
    assert!(rule("udp from 192.0.2.9 port 53").stateless && !rule("udp from 192.0.2.9 port 53").begins_connections());
    assert!(rule("udp from 192.0.2.9 port 123").begins_connections());
    assert_eq!(rule("udp to 192.0.2.9 port 4000 source-port 53").text, inbound[1]);
    for denied in [
        "udp to 192.0.2.9 port 4000 source-port 54",
        "udp to 198.51.100.1 port 4000 source-port 53",
        "udp to 10.0.0.1 port 4000 source-port 53",
        "udp to 192.0.2.9 port 4000 source-port 123",
        "tcp to 192.0.2.9 port 4000 source-port 53",
    ] {
        assert!(!rule(denied).allows(), "{denied}");
    }
}

/// `stateless` replaces the default of `out`, and no rule that denies: neither one of the network.
#[test]
fn a_rule_without_connections_passes_no_rule_of_out_by() {
    let inbound = ["udp 53 from any stateless"];
    let outbound = ["deny udp to 10.0.0.0/8", "udp to 192.0.2.0/24"];
    let group = Group::parse("dns", &inbound, &outbound).expect("rules");
    let definitions = Definitions::new([group], []);
    let port = PortGroups { groups: vec!["dns".to_owned()], ..PortGroups::default() };
    let policy = Policy::compile(&port, &definitions, Level::detect()).expect("known groups");
    for (remote, port, decides) in [
        ("192.0.2.9", 4000, inbound[0]),
        ("198.51.100.1", 4000, inbound[0]),
        ("10.0.0.1", 4000, outbound[0]),
        ("192.0.2.9", 68, "answers of DHCP and DHCPv6, without trusted = true"),
        ("198.51.100.1", 68, "answers of DHCP and DHCPv6, without trusted = true"),
        ("2001:db8::1", 546, "answers of DHCP and DHCPv6, without trusted = true"),
    ] {
        let answer = format!("udp to {remote} port {port} source-port 53").parse().expect("a flow");
        assert_eq!(policy.rule(policy.explain(&answer)).text, decides, "{answer}");
    }
}
