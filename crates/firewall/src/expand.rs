//! Rules as tests of columns: an address range and a port range for each test.

use straightline_classify::{Column, Rule as ColumnRule};
use straightline_wire::{EtherType, IpProtocol};

use crate::definitions::Definitions;
use crate::pattern::Pattern;
use crate::ranges::{Ranges, includes, merge};
use crate::rule::{EtherTypes, Peer, Rule, Service};
use crate::words::SCTP;

/// The remote address: the source of a packet to the port, the destination of a packet from the port.
pub(crate) const REMOTE: [Column; 4] = Column::IP_DST;

/// 1 if the packet came from a port with `trusted`, else 0.
pub(crate) const TRUSTED_SENDER: Column = Column::Reg0;

/// The column that says whether the packet is a message of a form that needs a rule.
pub(crate) const NEEDS_RULE: Column = Column::Reg1;

/// Ranges of columns, all of which a packet must be in.
pub(crate) type Tests = Vec<(Column, u32, u32)>;

/// A rule as tests: a packet matches if it passes one of `services`, and its remote address is one of
/// `remotes`.
#[derive(Clone, Debug)]
pub(crate) struct Expanded {
    /// Each begins with a test of the EtherType.
    pub(crate) services: Vec<Tests>,
    pub(crate) remotes: Ranges,
}

/// A rule names a group or a set that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownSet(pub(crate) String);

impl Expanded {
    /// Expands a rule.
    pub(crate) fn new(rule: &Rule, definitions: &Definitions) -> Result<Self, UnknownSet> {
        Ok(Self { services: services(&rule.service), remotes: remotes(rule, definitions)? })
    }

    /// Returns the number of rules of [`Self::rules`].
    pub(crate) fn count_rules(&self) -> usize {
        let ranges: usize = self.remotes.v6.iter().map(|range| v6_tests(*range).len()).sum();
        let v6 = ranges + self.remotes.patterns.len();
        let count = |service| {
            if is_of(service, EtherType::IPV4) {
                self.remotes.v4.len()
            } else if is_of(service, EtherType::IPV6) {
                v6
            } else {
                1
            }
        };
        self.services.iter().map(count).sum()
    }

    /// Returns the rules of the classifier, all with this result.
    pub(crate) fn rules(&self, result: u32) -> Vec<ColumnRule> {
        let v6: Vec<Tests> = self.remotes.v6.iter().flat_map(|range| v6_tests(*range)).collect();
        let mut rules = Vec::new();
        for service in &self.services {
            let base = service.iter().fold(ColumnRule::new(0, result), add);
            if is_of(service, EtherType::IPV4) {
                let ranges = self.remotes.v4.iter();
                rules.extend(ranges.map(|&(low, high)| base.clone().range(REMOTE[3], low, high)));
            } else if is_of(service, EtherType::IPV6) {
                rules.extend(v6.iter().map(|tests| tests.iter().fold(base.clone(), add)));
                rules.extend(self.remotes.patterns.iter().map(|pattern| add_pattern(base.clone(), *pattern)));
            } else {
                rules.push(base);
            }
        }
        rules
    }

    /// Returns whether each packet that matches another rule matches this one. It may say no although it
    /// is so.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.services.iter().all(|service| {
            let has_service = self.services.iter().any(|own| has_tests(own, service));
            has_service
                && if is_of(service, EtherType::IPV4) {
                    includes(&self.remotes.v4, &other.remotes.v4)
                } else if is_of(service, EtherType::IPV6) {
                    self.remotes.includes_v6(&other.remotes)
                } else {
                    true
                }
        })
    }

    /// Returns whether no packet matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.services.iter().all(|service| {
            is_of(service, EtherType::IPV4) && self.remotes.v4.is_empty()
                || is_of(service, EtherType::IPV6) && self.remotes.is_empty_v6()
        })
    }
}

fn add(rule: ColumnRule, &(column, low, high): &(Column, u32, u32)) -> ColumnRule {
    rule.range(column, low, high)
}

/// Adds the tests of a pattern of remote addresses.
fn add_pattern(rule: ColumnRule, pattern: Pattern) -> ColumnRule {
    let words = REMOTE.into_iter().zip(pattern.words());
    words.fold(rule, |rule, (column, (bits, mask))| rule.masked(column, bits, mask))
}

/// Returns whether tests are for frames of one EtherType.
fn is_of(service: &Tests, ether_type: EtherType) -> bool {
    service.first() == Some(&exact(Column::EtherType, ether_type.0.into()))
}

/// Returns whether each packet that passes the tests `inner` passes the tests `outer`.
fn has_tests(outer: &Tests, inner: &Tests) -> bool {
    outer.iter().all(|&(column, low, high)| {
        let is_narrower = |test: &(Column, u32, u32)| test.0 == column && low <= test.1 && test.2 <= high;
        inner.iter().any(is_narrower)
    })
}

pub(crate) fn exact(column: Column, value: u32) -> (Column, u32, u32) {
    (column, value, value)
}

/// Returns tests for a protocol of an IP version.
pub(crate) fn ip(version: EtherType, protocol: IpProtocol) -> Tests {
    vec![exact(Column::EtherType, version.0.into()), exact(Column::Protocol, protocol.0.into())]
}

fn services(service: &Service) -> Vec<Tests> {
    let both = [EtherType::IPV4, EtherType::IPV6];
    match service {
        Service::Any => both.iter().map(|version| vec![exact(Column::EtherType, version.0.into())]).collect(),
        Service::Tcp(ports) => with_ports(IpProtocol::TCP, ports),
        Service::Udp(ports) => with_ports(IpProtocol::UDP, ports),
        Service::Sctp(ports) => with_ports(SCTP, ports),
        Service::Icmp(kind) => vec![icmp(EtherType::IPV4, IpProtocol::ICMP, *kind)],
        Service::Icmp6(kind) => vec![icmp(EtherType::IPV6, IpProtocol::ICMPV6, *kind)],
        Service::Protocol(number) => both.iter().map(|version| ip(*version, IpProtocol(*number))).collect(),
        Service::EtherType(EtherTypes::Number(number)) => vec![vec![exact(Column::EtherType, (*number).into())]],
        Service::EtherType(EtherTypes::Named(_, values)) => {
            values.iter().map(|&(low, high)| vec![(Column::EtherType, low.into(), high.into())]).collect()
        }
    }
}

fn with_ports(protocol: IpProtocol, ports: &[(u16, u16)]) -> Vec<Tests> {
    let mut ports = ports.to_vec();
    if ports.is_empty() {
        ports.push((0, u16::MAX));
    }
    merge(&mut ports, |high| high.checked_add(1));
    let mut services = Vec::new();
    for version in [EtherType::IPV4, EtherType::IPV6] {
        for &(low, high) in &ports {
            let mut tests = ip(version, protocol);
            if (low, high) != (0, u16::MAX) {
                tests.push((Column::DstPort, low.into(), high.into()));
            }
            services.push(tests);
        }
    }
    services
}

fn icmp(version: EtherType, protocol: IpProtocol, kind: Option<(u8, Option<u8>)>) -> Tests {
    let mut tests = ip(version, protocol);
    if let Some((kind, code)) = kind {
        tests.push(exact(Column::IcmpType, kind.into()));
        tests.extend(code.map(|code| exact(Column::IcmpCode, code.into())));
    }
    tests
}

fn remotes(rule: &Rule, definitions: &Definitions) -> Result<Ranges, UnknownSet> {
    if rule.peers.is_empty() || rule.peers.contains(&Peer::Any) {
        return Ok(Ranges::all());
    }
    let mut prefixes = Vec::new();
    let mut patterns = Vec::new();
    for peer in &rule.peers {
        match peer {
            Peer::Any => {}
            Peer::Prefix(prefix) => prefixes.push(*prefix),
            Peer::Set(name) => {
                let set = definitions.set(name).ok_or_else(|| UnknownSet(peer.to_string()))?;
                prefixes.extend(&set.prefixes);
                patterns.extend(&set.patterns);
            }
            Peer::Group(name) => {
                definitions.group(name).ok_or_else(|| UnknownSet(peer.to_string()))?;
                prefixes.extend(definitions.members.get(name).into_iter().flatten());
            }
        }
    }
    Ok(Ranges { patterns, ..prefixes.into_iter().collect() })
}

/// Returns tests that together accept the IPv6 addresses of a range.
fn v6_tests((mut low, high): (u128, u128)) -> Vec<Tests> {
    let mut all = Vec::new();
    loop {
        // Within one word, a range is a test.
        if low >> 32 == high >> 32 {
            all.push(words(low, high));
            return all;
        }
        // The largest prefix that begins here and does not exceed the range.
        let mut bits = low.trailing_zeros();
        while bits > 0 && last_of(low, bits) > high {
            bits -= 1;
        }
        let last = last_of(low, bits);
        all.push(words(low, last));
        if last == high {
            return all;
        }
        low = last + 1;
    }
}

/// Returns the last address of the prefix that leaves this number of low bits open.
fn last_of(low: u128, bits: u32) -> u128 {
    low | u128::MAX.checked_shr(128 - bits).unwrap_or(0)
}

/// Returns a test of each word, from that of one address to that of another. Only one word differs
/// partly, and all words behind it are open.
#[expect(clippy::cast_possible_truncation, reason = "one word of four")]
fn words(low: u128, high: u128) -> Tests {
    let shifts = [96, 64, 32, 0];
    let tests =
        REMOTE.into_iter().zip(shifts).map(|(column, shift)| (column, (low >> shift) as u32, (high >> shift) as u32));
    tests.filter(|(_, low, high)| (*low, *high) != (0, u32::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the first and the last address that tests accept, if only the last words are open.
    fn ends(tests: &Tests) -> (u128, u128) {
        REMOTE.iter().fold((0, 0), |(first, last), column| {
            let (_, low, high) = tests.iter().find(|test| test.0 == *column).copied().unwrap_or((*column, 0, u32::MAX));
            (first << 32 | u128::from(low), last << 32 | u128::from(high))
        })
    }

    proptest! {
        /// The tests of a range accept its addresses, each once, and no others.
        #[test]
        fn tests_of_a_range_are_side_by_side(one: u128, other: u128, open in 0..128_u32) {
            let other = if open % 2 == 0 { other } else { one ^ other >> open };
            let range = (one.min(other), one.max(other));
            let parts: Vec<_> = v6_tests(range).iter().map(ends).collect();
            prop_assert_eq!((parts[0].0, parts[parts.len() - 1].1), range);
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
            for (low, high) in parts {
                // Behind the first word that differs, all words are open.
                let shift = (low ^ high).checked_ilog2().map_or(0, |bit| bit / 32 * 32);
                let rest = 1_u128.checked_shl(shift).map_or(0, |bit| bit - 1);
                prop_assert_eq!((low & rest, high & rest), (0, rest));
            }
        }
    }

    #[test]
    fn a_range_of_ipv6_is_few_tests() {
        let base = 0xfd00_u128 << 112;
        assert_eq!(v6_tests((0, u128::MAX)), [Tests::new()]);
        let neighbours = v6_tests((base + 5, base + 9));
        assert_eq!(neighbours.len(), 1);
        assert_eq!(neighbours[0][3], (REMOTE[3], 5, 9));
        assert_eq!(v6_tests((base, base + ((1 << 64) - 1))).len(), 1);
        // ::5 to ::1:0:3 of a prefix: to the end of the word, then four addresses.
        let across = v6_tests((base + (1 << 32) - 2, base + (1 << 32) + 3));
        assert_eq!(across.len(), 2);
        assert_eq!(across[1][3], (REMOTE[3], 0, 3));
        assert_eq!(v6_tests((1, u128::MAX)).len(), 128);
    }
}
