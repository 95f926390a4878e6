//! Rules of groups, and their text.

use std::fmt;

use straightline_wire::IpProtocol;

use crate::prefix::Prefix;
use crate::words::{ETHER_TYPES, ICMP_TYPES, ICMP6_TYPES, SCTP, name_of};

/// Direction of a packet, as its port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the port: rules of `in`.
    In,
    /// From the port: rules of `out`.
    Out,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::In, Self::Out];

    /// Returns the key of a group in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }

    /// Returns the word in front of the peers of a rule.
    #[must_use]
    pub fn preposition(self) -> &'static str {
        match self {
            Self::In => "from",
            Self::Out => "to",
        }
    }
}

/// The decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The packet passes, and may begin a connection.
    Allow,
    /// The packet drops.
    Deny,
}

impl Action {
    /// Returns the word in a rule.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Destination ports as ranges, in the order of the text. Without a range, all ports.
pub type Ports = Vec<(u16, u16)>;

/// A type of ICMP or ICMPv6, with a code or with all of them. `None`: all types.
pub type IcmpType = Option<(u8, Option<u8>)>;

/// An EtherType in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtherTypes {
    /// A name, such as `lldp`, with its values.
    Named(&'static str, &'static [(u16, u16)]),
    /// A number.
    Number(u16),
}

/// The packets of a rule, apart from their peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// All of IPv4 and IPv6.
    Any,
    /// TCP.
    Tcp(Ports),
    /// UDP.
    Udp(Ports),
    /// SCTP.
    Sctp(Ports),
    /// ICMP of IPv4.
    Icmp(IcmpType),
    /// ICMPv6.
    Icmp6(IcmpType),
    /// Another protocol of IPv4 and IPv6.
    Protocol(u8),
    /// Frames that are neither IPv4 nor IPv6.
    EtherType(EtherTypes),
}

impl Service {
    /// Returns the service of an IP protocol's number.
    pub(crate) fn of_protocol(number: u8) -> Self {
        match IpProtocol(number) {
            IpProtocol::TCP => Self::Tcp(Ports::new()),
            IpProtocol::UDP => Self::Udp(Ports::new()),
            SCTP => Self::Sctp(Ports::new()),
            IpProtocol::ICMP => Self::Icmp(None),
            IpProtocol::ICMPV6 => Self::Icmp6(None),
            IpProtocol(other) => Self::Protocol(other),
        }
    }
}

/// The other end of a rule's packets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// Every address.
    Any,
    /// Addresses.
    Prefix(Prefix),
    /// The addresses of a set.
    Set(String),
    /// The addresses of the ports that have a group.
    Group(String),
}

/// A rule of a group. Its text reads back the same ([`parse_rule`](crate::parse_rule)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Direction of its packets.
    pub direction: Direction,
    /// Its decision.
    pub action: Action,
    /// Its packets.
    pub service: Service,
    /// Peers. Empty: every peer.
    pub peers: Vec<Peer>,
    /// Its packets begin no connections. Each passes by the rule, and so does each answer.
    pub stateless: bool,
    /// Its name.
    pub name: Option<String>,
    /// Whether its packets cause events.
    pub log: bool,
}

impl Rule {
    /// Returns a rule that allows a service with every peer.
    #[must_use]
    pub fn allow(direction: Direction, service: Service) -> Self {
        Self { direction, action: Action::Allow, service, peers: Vec::new(), stateless: false, name: None, log: false }
    }

    /// Returns the groups that the rule names.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.peers.iter().filter_map(|peer| if let Peer::Group(name) = peer { Some(&**name) } else { None })
    }

    /// Returns the sets that the rule names.
    pub fn sets(&self) -> impl Iterator<Item = &str> {
        self.peers.iter().filter_map(|peer| if let Peer::Set(name) = peer { Some(&**name) } else { None })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.action == Action::Deny {
            f.write_str("deny ")?;
        }
        write!(f, "{}", self.service)?;
        for (at, peer) in self.peers.iter().enumerate() {
            match at {
                0 => write!(f, " {} {peer}", self.direction.preposition())?,
                _ => write!(f, ",{peer}")?,
            }
        }
        if self.stateless {
            f.write_str(" stateless")?;
        }
        if let Some(name) = &self.name {
            write!(f, " name {name}")?;
        }
        if self.log { f.write_str(" log") } else { Ok(()) }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Tcp(ports) => write_ports(f, "tcp", ports),
            Self::Udp(ports) => write_ports(f, "udp", ports),
            Self::Sctp(ports) => write_ports(f, "sctp", ports),
            Self::Icmp(icmp) => write_icmp(f, "icmp", *icmp, ICMP_TYPES),
            Self::Icmp6(icmp) => write_icmp(f, "icmp6", *icmp, ICMP6_TYPES),
            Self::Protocol(number) => write!(f, "ip {number}"),
            Self::EtherType(EtherTypes::Named(name, _)) => write!(f, "ethertype {name}"),
            Self::EtherType(EtherTypes::Number(number)) => write!(f, "ethertype {number:#06x}"),
        }
    }
}

fn write_ports(f: &mut fmt::Formatter<'_>, protocol: &str, ports: &[(u16, u16)]) -> fmt::Result {
    f.write_str(protocol)?;
    for (at, (low, high)) in ports.iter().enumerate() {
        f.write_str(if at == 0 { " " } else { "," })?;
        write!(f, "{low}")?;
        if low != high {
            write!(f, "-{high}")?;
        }
    }
    Ok(())
}

fn write_icmp(f: &mut fmt::Formatter<'_>, protocol: &str, icmp: IcmpType, names: &[(&'static str, u8)]) -> fmt::Result {
    f.write_str(protocol)?;
    let Some((kind, code)) = icmp else { return Ok(()) };
    match name_of(names, &kind) {
        Some(name) => write!(f, " {name}")?,
        None => write!(f, " type {kind}")?,
    }
    code.map_or(Ok(()), |code| write!(f, " code {code}"))
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
            Self::Set(name) => write!(f, "set:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

/// Returns the named EtherTypes of a number, if it is the only value of its name.
pub(crate) fn ether_types(number: u16) -> EtherTypes {
    let is_it = |values: &&'static [(u16, u16)]| **values == [(number, number)];
    let named = ETHER_TYPES.iter().find(|(_, values)| is_it(values));
    named.map_or(EtherTypes::Number(number), |(name, values)| EtherTypes::Named(name, values))
}
