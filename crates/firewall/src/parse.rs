//! Reads rules.

use crate::error::RuleError;
use crate::prefix::{Prefix, PrefixError};
use crate::rule::{Action, Direction, EtherTypes, Peer, Ports, Rule, Service, ether_types};
use crate::tokens::{Tokens, ether_type, number};
use crate::words::{ETHER_TYPES, ICMP_TYPES, ICMP6_TYPES, LENGTHS, OWN_RULES, is_name, names};

const PROTOCOLS: &str = "any, tcp, udp, sctp, icmp, icmp6, ip and ethertype";

/// Reads a rule of `in` or `out`:
///
/// ```text
/// [allow|deny] PROTOCOL [from|to PEER[,PEER…]] [stateless] [name NAME] [log]
///
/// PROTOCOL  any | tcp [PORTS] | udp [PORTS] | sctp [PORTS] | icmp [TYPE] | icmp6 [TYPE]
///           | ip NUMBER | ethertype NAME
/// PORTS     80 | 80,443 | 8000-8099
/// TYPE      echo-request | type 8 [code 0]
/// PEER      any | 10.0.0.5 | 10.0.0.0/8 | fd00::/64 | set:NAME | group:NAME
/// ```
///
/// # Errors
/// The text is no rule: the error names the word, and what would be right.
pub fn parse_rule(direction: Direction, text: &str) -> Result<Rule, RuleError> {
    let mut words = Tokens::new(text)?;
    let action = match words.peek() {
        Some("deny") => Action::Deny,
        _ => Action::Allow,
    };
    if matches!(words.peek(), Some("allow" | "deny")) {
        words.next();
    }
    let Some(protocol) = words.next() else {
        let example = format!("tcp 443 {} any", direction.preposition());
        return Err(RuleError::new("", format!("the rule is empty: write for example `{example}`")));
    };
    let service = parse_service(protocol, &mut words)?;
    let peers = parse_peers(direction, &service, &mut words)?;
    let mut rule = Rule { peers, action, ..Rule::allow(direction, service) };
    rule.stateless = words.take("stateless");
    if rule.stateless {
        check_stateless(&rule)?;
    }
    if words.take("name") {
        let name = words.require("a name")?;
        if !is_name(name) {
            return Err(RuleError::new(name, "is no valid name: use 1 to 32 of A-Z a-z 0-9 _ . -"));
        }
        rule.name = Some(name.to_owned());
    }
    rule.log = words.take("log");
    let preposition = direction.preposition();
    words.end(&format!("the order is protocol, ports, `{preposition}` with peers, `stateless`, `name NAME`, `log`"))?;
    Ok(rule)
}

/// Checks that the answers to packets of a rule without connections can be told from others.
fn check_stateless(rule: &Rule) -> Result<(), RuleError> {
    let problem = if rule.direction == Direction::Out {
        "belongs to rules of `in`: leave it out"
    } else if rule.action == Action::Deny {
        "belongs to rules that allow: leave it out"
    } else if !matches!(&rule.service, Service::Udp(ports) if !ports.is_empty()) {
        "needs `udp` with ports: write for example `udp 53 from any stateless`"
    } else {
        return Ok(());
    };
    Err(RuleError::new("stateless", problem))
}

fn parse_service(protocol: &str, words: &mut Tokens<'_>) -> Result<Service, RuleError> {
    Ok(match protocol {
        "any" => Service::Any,
        "tcp" => Service::Tcp(parse_ports(words)?),
        "udp" => Service::Udp(parse_ports(words)?),
        "sctp" => Service::Sctp(parse_ports(words)?),
        "icmp" => Service::Icmp(words.icmp(ICMP_TYPES)?),
        "icmp6" => Service::Icmp6(words.icmp(ICMP6_TYPES)?),
        "ip" => Service::of_protocol(number(words.require("a protocol's number, such as `47`")?, "protocol")?),
        "ethertype" => Service::EtherType(parse_ether_type(words.require("a name, such as `lldp`")?)?),
        "icmpv6" => return Err(RuleError::new(protocol, "is no protocol here: write `icmp6`")),
        "arp" => return Err(RuleError::new(protocol, OWN_RULES[2].1)),
        other => return Err(RuleError::new(other, format!("is no protocol: known are {PROTOCOLS}"))),
    })
}

fn parse_ports(words: &mut Tokens<'_>) -> Result<Ports, RuleError> {
    if !words.peek().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit() || first == ',')) {
        return Ok(Ports::new());
    }
    let list = words.list("a port, such as `443`")?;
    let mut ports = Ports::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let read = |text| number(text, "port").map_err(|error| RuleError::new(part, error.problem));
        let low = read(low)?;
        let high = read(high)?;
        if low > high {
            return Err(RuleError::new(part, format!("ends before it begins: write {high}-{low}")));
        }
        ports.push((low, high));
    }
    Ok(ports)
}

fn parse_ether_type(word: &str) -> Result<EtherTypes, RuleError> {
    if let Some((name, values)) = ETHER_TYPES.iter().find(|(name, _)| *name == word) {
        return Ok(EtherTypes::Named(name, values));
    }
    let known = names(ETHER_TYPES);
    let wrong = || RuleError::new(word, format!("is no EtherType: write one of {known}, or a number such as 0x88b5"));
    let number = ether_type(word).ok_or_else(wrong)?;
    if let Some((_, remedy)) = OWN_RULES.iter().find(|(own, _)| own.0 == number) {
        return Err(RuleError::new(word, *remedy));
    }
    if number <= LENGTHS.1 {
        return Err(RuleError::new(word, "is a length, and no EtherType: write `llc`"));
    }
    Ok(ether_types(number))
}

fn parse_peers(direction: Direction, service: &Service, words: &mut Tokens<'_>) -> Result<Vec<Peer>, RuleError> {
    let right = direction.preposition();
    let word = match words.peek() {
        Some(word @ ("from" | "to")) => word,
        _ => return Ok(Vec::new()),
    };
    if word != right {
        let key = direction.as_str();
        return Err(RuleError::new(word, format!("does not belong to rules of `{key}`: write `{right}`")));
    }
    words.next();
    let list = words.list("a peer, such as `any`, `10.0.0.0/8` or `group:web`")?;
    let peers: Vec<_> = list.split(',').map(|peer| parse_peer(service, peer)).collect::<Result<_, _>>()?;
    if peers.len() > 1 && peers.contains(&Peer::Any) {
        return Err(RuleError::new("any", "includes all others: write it alone, or leave it out"));
    }
    Ok(peers)
}

fn parse_peer(service: &Service, text: &str) -> Result<Peer, RuleError> {
    if text == "any" {
        return Ok(Peer::Any);
    }
    if matches!(service, Service::EtherType(_)) {
        return Err(RuleError::new(text, "is a peer, which EtherTypes do not have: leave it out"));
    }
    if let Some((kind, name)) = text.split_once(':')
        && ["set", "group", "domain"].contains(&kind)
    {
        // The place of egress by domain names.
        if kind == "domain" {
            return Err(RuleError::new(text, "is not possible yet: name addresses, or a set of them"));
        }
        if !is_name(name) {
            return Err(RuleError::new(text, format!("has no valid name: write for example `{kind}:office`")));
        }
        let name = name.to_owned();
        return Ok(if kind == "set" { Peer::Set(name) } else { Peer::Group(name) });
    }
    let prefix: Prefix = text.parse().map_err(|error| match error {
        PrefixError::Address => {
            RuleError::new(text, "is no peer: write `any`, an address, a prefix, `set:NAME` or `group:NAME`")
        }
        other => RuleError::new(text, other.to_string()),
    })?;
    match service {
        Service::Icmp(_) if prefix.address().is_ipv6() => Err(RuleError::new(text, "is IPv6: write `icmp6` for it")),
        Service::Icmp6(_) if prefix.address().is_ipv4() => Err(RuleError::new(text, "is IPv4: write `icmp` for it")),
        _ => Ok(Peer::Prefix(prefix)),
    }
}
