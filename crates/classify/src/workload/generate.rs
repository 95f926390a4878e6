//! Sets of rules of 5-tuples.

use std::collections::HashSet;

use super::parameters::{Parameters, PortClass};
use super::random::Random;
use crate::column::Column;
use crate::rule::{Rule, Rules};

/// The kind of a rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Each field is drawn by itself: prefixes of 8 to 32 bits, ports open, exact or in a range.
    Random,
    /// Access control list.
    Acl,
    /// Firewall.
    Firewall,
    /// IP chain.
    Chain,
}

impl SetKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Random, Self::Acl, Self::Firewall, Self::Chain];

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Acl => "acl",
            Self::Firewall => "firewall",
            Self::Chain => "chain",
        }
    }

    fn parameters(self) -> Parameters {
        let mut all = match self {
            Self::Acl => return Parameters::read(include_str!("../../parameters/acl.txt")),
            Self::Firewall => return Parameters::read(include_str!("../../parameters/firewall.txt")),
            Self::Chain => return Parameters::read(include_str!("../../parameters/chain.txt")),
            Self::Random => Parameters::default(),
        };
        let lengths = (8..=32).step_by(4);
        all.protocols = [(Some(6), 1), (Some(17), 1), (None, 1)].into();
        all.ports = [PortClass::Any, PortClass::Range, PortClass::Exact]
            .into_iter()
            .flat_map(|class| [((class, PortClass::Any), 1), ((PortClass::Any, class), 1), ((class, class), 1)])
            .collect();
        all.prefixes = lengths.clone().flat_map(|src| lengths.clone().map(move |dst| ((src, dst), 1))).collect();
        all
    }
}

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6. Prefixes are twice as long as those of IPv4, and those of 32 bits become 128.
    V6,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prefix {
    address: u128,
    bits: u32,
}

/// Draws prefixes for one side of the rules.
struct Addresses {
    family: Family,
    /// Prefixes of 16 bits in which all others lie; none means anywhere.
    networks: Vec<u32>,
    reuse: u32,
    known: Vec<Prefix>,
}

impl Addresses {
    fn new(family: Family, count: usize, reuse: u32, random: &mut Random) -> Self {
        Self { family, networks: (0..count).map(|_| random.within(0x0100, 0xdfff)).collect(), reuse, known: Vec::new() }
    }

    /// Returns a prefix of about `bits` bits, in terms of IPv4.
    fn draw(&mut self, bits: u32, random: &mut Random) -> Prefix {
        let bits = match self.family {
            Family::V4 => bits,
            Family::V6 if bits == 32 => 128,
            Family::V6 => bits * 2,
        };
        if random.percent(self.reuse) {
            // A few tries: a prefix of this length, of a rule before.
            for _ in 0..8 {
                if let Some(&prefix) = pick(&self.known, random).filter(|prefix| prefix.bits == bits) {
                    return prefix;
                }
            }
        }
        // The square makes the first networks more frequent than the last ones.
        let skewed = random.fraction() * random.fraction();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a short list"
        )]
        let network = self.networks.get((skewed * self.networks.len() as f64) as usize);
        let network = network.copied().unwrap_or_else(|| random.word() >> 16);
        let low = random.word() & 0xffff;
        let address = match self.family {
            Family::V4 => u128::from(network << 16 | low),
            Family::V6 => {
                let middle = u128::from(low) << 80 | u128::from(random.word() & 0xffff) << 64;
                u128::from(0x2001_0000 | network) << 96 | middle | u128::from(random.word())
            }
        };
        let prefix = Prefix { address: address & mask(self.family, bits), bits };
        self.known.push(prefix);
        prefix
    }
}

/// Returns the mask of a prefix.
fn mask(family: Family, bits: u32) -> u128 {
    let width = match family {
        Family::V4 => 32,
        Family::V6 => 128,
    };
    let all = u128::MAX >> (128 - width);
    all & u128::MAX.checked_shl(width - bits).unwrap_or(0)
}

fn pick<'a, T>(all: &'a [T], random: &mut Random) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(random.place(all.len())) }
}

/// Returns a set of `count` rules of 5-tuples, no two with equal tests. Each has its place in the
/// list as its result. Priorities fall with the place, as in an access control list. A kind that
/// cannot have so many different rules gives fewer.
#[must_use]
pub fn rules(kind: SetKind, family: Family, count: usize, seed: u64) -> Rules {
    let parameters = kind.parameters();
    let mut random = Random::new(seed);
    let networks = (parameters.networks as usize * count).div_ceil(1000).max(4);
    let networks = if parameters.networks == 0 { 0 } else { networks };
    let mut sources = Addresses::new(family, networks, parameters.reuse_source, &mut random);
    let mut destinations = Addresses::new(family, networks, parameters.reuse_destination, &mut random);
    let mut seen = HashSet::new();
    let mut all = Vec::with_capacity(count);
    for _ in 0..count.saturating_mul(20) {
        if all.len() == count {
            break;
        }
        let place = u32::try_from(all.len()).expect("a list of rules is short");
        let mut rule = Rule::new(u32::MAX - place, place);
        let (source_bits, destination_bits) = random.weighted(&parameters.prefixes);
        let source = sources.draw(source_bits, &mut random);
        let destination = destinations.draw(destination_bits, &mut random);
        rule = with_address(rule, family, Side::Source, source);
        rule = with_address(rule, family, Side::Destination, destination);
        let protocol = random.weighted(&parameters.protocols);
        if let Some(protocol) = protocol {
            rule = rule.exact(Column::Protocol, protocol);
        }
        if protocol != Some(1) {
            let (source_class, destination_class) = random.weighted(&parameters.ports);
            let (low, high) = ports(source_class, &parameters, &mut random);
            rule = rule.range(Column::SrcPort, low, high);
            let (low, high) = ports(destination_class, &parameters, &mut random);
            rule = rule.range(Column::DstPort, low, high);
        }
        if seen.insert(rule.tests().to_vec()) {
            all.push(rule);
        }
    }
    all.into_iter().collect()
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

fn with_address(rule: Rule, family: Family, side: Side, prefix: Prefix) -> Rule {
    let Prefix { address, bits } = prefix;
    match (family, side) {
        // Without a test of the EtherType: the rules of a bench are those of its peer, 5-tuples.
        (Family::V4, Side::Source) => rule.word_prefix(Column::IpSrc3, v4(address), bits),
        (Family::V4, Side::Destination) => rule.word_prefix(Column::IpDst3, v4(address), bits),
        (Family::V6, Side::Source) => rule.ipv6_src(address.into(), bits),
        (Family::V6, Side::Destination) => rule.ipv6_dst(address.into(), bits),
    }
}

fn v4(address: u128) -> u32 {
    u32::try_from(address).expect("an address of IPv4")
}

/// Returns a range of ports of a class.
fn ports(class: PortClass, parameters: &Parameters, random: &mut Random) -> (u32, u32) {
    match class {
        PortClass::Any => (0, 0xffff),
        PortClass::High => (1024, 0xffff),
        PortClass::Low => (0, 1023),
        PortClass::Range => {
            let low = random.within(0, 0xfff0);
            (low, random.within(low, 0xffff))
        }
        // Half of the exact ports are those of well-known services.
        PortClass::Exact if !parameters.services.is_empty() && random.percent(50) => {
            let port = random.weighted(&parameters.services);
            (port, port)
        }
        PortClass::Exact => {
            let port = random.within(0, 0xffff);
            (port, port)
        }
    }
}

/// Returns the rules of the explosion of tuple space search: three that allow one value of one field
/// each, and one that denies. See L. Csikor and others, "Tuple Space Explosion" (CoNEXT 2019), and
/// arXiv 2011.09107.
#[must_use]
pub fn explosion() -> Rules {
    [
        Rule::new(4, 0).exact(Column::DstPort, 80),
        Rule::new(3, 1).word_prefix(Column::IpSrc3, 0x0a00_0001, 32),
        Rule::new(2, 2).exact(Column::SrcPort, 12345),
        Rule::new(1, 3),
    ]
    .into_iter()
    .collect()
}
