//! A policy in two languages: rules of groups, and chains of nftables.

use std::fmt::Write as _;

use straightline_report::random::Random;

use super::sequence::{IN, PORTS, SIDES};

/// Rules in each direction.
const RULES: u64 = 12;

/// A rule.
struct PolicyRule {
    allows: bool,
    protocol: Protocol,
    /// Prefixes of other stations; all without any.
    peers: Vec<String>,
}

enum Protocol {
    Any,
    /// TCP or UDP, and destination ports; all without any.
    Ports(&'static str, Vec<(u16, u16)>),
    /// ICMP or ICMPv6, and a type; all without one.
    Icmp(&'static str, Option<u8>),
    Number(u8),
}

/// Rules of each direction.
pub(super) struct Policy([Vec<PolicyRule>; 2]);

impl Policy {
    /// Makes a policy. Its first rules are always the same: committed sequences rely on them.
    pub(super) fn random(random: &mut Random) -> Self {
        Policy(SIDES.map(|_| {
            let ports = |protocol| Protocol::Ports(protocol, vec![(7, 9)]);
            let fixed =
                [ports("tcp"), ports("udp"), Protocol::Icmp("icmp", Some(8)), Protocol::Icmp("icmp6", Some(128))];
            let fixed = fixed.map(|protocol| PolicyRule { allows: true, protocol, peers: Vec::new() });
            let others = (0..random.below(RULES)).map(|_| rule(random));
            fixed.into_iter().chain(others).collect()
        }))
    }

    /// Returns the rules of a direction, as a configuration has them.
    pub(super) fn of_group(&self, side: usize) -> Vec<String> {
        let word = if side == IN { "to" } else { "from" };
        self.0[side].iter().map(|rule| rule.in_words(word)).collect()
    }

    /// Returns the rules of a direction as lines of an nftables chain.
    pub(super) fn of_chain(&self, side: usize) -> String {
        let field = if side == IN { "daddr" } else { "saddr" };
        self.0[side].iter().map(|rule| rule.in_nftables(field)).collect()
    }
}

impl PolicyRule {
    fn in_words(&self, word: &str) -> String {
        let mut text = if self.allows { "allow " } else { "deny " }.to_owned();
        text += &match &self.protocol {
            Protocol::Any => "any".to_owned(),
            Protocol::Ports(protocol, ports) => format!("{protocol} {}", list(ports)),
            Protocol::Icmp(protocol, Some(number)) => format!("{protocol} type {number}"),
            Protocol::Icmp(protocol, None) => (*protocol).to_owned(),
            Protocol::Number(number) => format!("ip {number}"),
        };
        let peers = if self.peers.is_empty() { "any".to_owned() } else { self.peers.join(",") };
        format!("{} {word} {peers}", text.trim_end())
    }

    fn in_nftables(&self, field: &str) -> String {
        let protocol = match &self.protocol {
            Protocol::Any => String::new(),
            Protocol::Ports(protocol, ports) if ports.is_empty() => format!("meta l4proto {protocol}"),
            Protocol::Ports(protocol, ports) => format!("{protocol} dport {{ {} }}", list(ports)),
            Protocol::Icmp("icmp", Some(number)) => format!("icmp type {number}"),
            Protocol::Icmp("icmp", None) => "meta nfproto ipv4 meta l4proto icmp".to_owned(),
            Protocol::Icmp(_, Some(number)) => format!("icmpv6 type {number}"),
            Protocol::Icmp(_, None) => "meta nfproto ipv6 meta l4proto icmpv6".to_owned(),
            Protocol::Number(number) => format!("meta l4proto {number}"),
        };
        let verdict = if self.allows { "accept" } else { "drop" };
        if self.peers.is_empty() {
            return format!("{protocol} {verdict}\n");
        }
        let mut lines = String::new();
        for family in ["ip", "ip6"] {
            let is_of_family = |peer: &&String| peer.contains(':') == (family == "ip6");
            let peers: Vec<&str> = self.peers.iter().filter(is_of_family).map(String::as_str).collect();
            if !peers.is_empty() {
                // Writing into a string does not fail.
                let _ = writeln!(lines, "{family} {field} {{ {} }} {protocol} {verdict}", peers.join(", "));
            }
        }
        lines
    }
}

fn list(ports: &[(u16, u16)]) -> String {
    let port = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ports.iter().map(port).collect::<Vec<_>>().join(",")
}

fn rule(random: &mut Random) -> PolicyRule {
    let mut peers = Vec::new();
    for _ in 0..random.below(3) {
        // Stations differ in their last 16 bits only.
        let bits = random.below(5);
        let hosts = u16::MAX.checked_shr(u32::try_from(bits).unwrap_or(0)).unwrap_or(0);
        let number = u16::try_from(random.below(1 << 16)).unwrap_or(0) & !hosts;
        let [high, low] = number.to_be_bytes();
        if random.below(2) == 0 {
            peers.push(format!("198.18.{high}.{low}/{}", 16 + bits));
        } else {
            peers.push(format!("2001:db8::{number:x}/{}", 112 + bits));
        }
    }
    // An interval that overlaps another one is none of nftables' sets.
    peers.truncate(1 + usize::from(peers.len() > 1 && peers[0].contains(':') != peers[1].contains(':')));
    let protocol = match random.below(12) {
        0 => Protocol::Any,
        1 => Protocol::Icmp("icmp", None),
        2 => Protocol::Icmp("icmp6", None),
        3 => Protocol::Icmp("icmp", Some([0, 3, 13, 17][pick(random, 4)])),
        4 => Protocol::Number([50, 99][pick(random, 2)]),
        5 => Protocol::Ports("udp", Vec::new()),
        choice => {
            let port = PORTS[pick(random, PORTS.len())];
            let ports =
                if random.below(2) == 0 { vec![(port, port)] } else { vec![(port, port + 3), (port + 5, port + 5)] };
            Protocol::Ports(if choice < 9 { "tcp" } else { "udp" }, ports)
        }
    };
    if let Protocol::Icmp(protocol, _) = protocol {
        peers.retain(|peer| peer.contains(':') == (protocol == "icmp6"));
    }
    PolicyRule { allows: random.below(3) > 0, protocol, peers }
}

fn pick(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).unwrap_or(0)
}
