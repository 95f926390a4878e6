//! Filters: small expressions that select packets, in the words of tcpdump.
//!
//! ```text
//! expression  = term { "or" term }
//! term        = factor { "and" factor }
//! factor      = "not" factor | "(" expression ")" | condition
//! condition   = "arp" | "rarp" | "ip" | "ip6"
//!             | "icmp" | "icmp6" | "tcp" | "udp" | "sctp" | "gre" | "esp" | "ah"
//!             | ["ip"|"ip6"|"arp"] ["src"|"dst"] "host" ADDRESS
//!             | ["ip"|"ip6"|"arp"] ["src"|"dst"] "net" ADDRESS["/" LENGTH]
//!             | ["tcp"|"udp"|"sctp"] ["src"|"dst"] "port" PORT
//!             | ["tcp"|"udp"|"sctp"] ["src"|"dst"] "portrange" PORT"-"PORT
//!             | "ether" ("src"|"dst"|"host") MAC | "ether" "proto" TYPE
//!             | ["ether"] ("broadcast"|"multicast")
//!             | ("ip"|"ip6") "proto" NUMBER
//!             | "vlan" [ID] | "less" LENGTH | "greater" LENGTH
//! ```
//!
//! One thing differs from tcpdump: conditions look behind up to two VLAN tags, whether the
//! expression has `vlan` or not. `vlan` itself is true for either tag.
//!
//! A filter sees the head of a packet only, which is enough for these headers.

mod facts;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use straightline_wire::{EtherType, IpProtocol, MacAddr};

pub(crate) use facts::Facts;
pub use parse::FilterError;

/// A filter.
///
/// ```
/// use straightline_capture::Filter;
/// let filter: Filter = "arp or tcp dst port 443".parse()?;
/// assert_eq!(filter.to_string(), "arp or tcp dst port 443");
/// let mut arp = [0; 60];
/// arp[12..14].copy_from_slice(&[8, 6]);
/// assert!(filter.selects(&arp, 60));
/// # Ok::<(), straightline_capture::FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Expression);

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    /// Any of several expressions.
    Or(Vec<Expression>),
    /// All of several expressions.
    And(Vec<Expression>),
    Not(Box<Expression>),
    Is(Condition),
}

/// A condition on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// The type behind the VLAN tags.
    EtherType(EtherType),
    /// The protocol of IPv4 or IPv6, behind extension headers.
    Protocol(Option<Family>, IpProtocol),
    Ether(Side, MacAddr),
    Broadcast,
    Multicast,
    Vlan(Option<u16>),
    /// An address whose first bits are these; all of them for a host.
    Address {
        family: Option<Family>,
        side: Side,
        address: IpAddr,
        bits: u8,
    },
    Ports {
        protocol: Option<IpProtocol>,
        side: Side,
        first: u16,
        last: u16,
    },
    /// At most so many bytes.
    Less(u32),
    /// At least so many bytes.
    Greater(u32),
}

/// The protocol whose header has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Arp,
}

/// The side of a packet that a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
}

impl Side {
    fn any<T>(self, source: T, destination: T, is: impl Fn(T) -> bool) -> bool {
        (self != Side::Destination && is(source)) || (self != Side::Source && is(destination))
    }
}

impl Filter {
    /// Returns whether the filter selects a packet of `len` bytes that begins with `head`.
    #[must_use]
    pub fn selects(&self, head: &[u8], len: u32) -> bool {
        self.0.holds(&Facts::of(head, len))
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(Filter)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Expression {
    fn holds(&self, facts: &Facts) -> bool {
        match self {
            Expression::Or(all) => all.iter().any(|one| one.holds(facts)),
            Expression::And(all) => all.iter().all(|one| one.holds(facts)),
            Expression::Not(inner) => !inner.holds(facts),
            Expression::Is(condition) => condition.holds(facts),
        }
    }
}

impl Condition {
    fn holds(&self, facts: &Facts) -> bool {
        match *self {
            Condition::EtherType(ether_type) => facts.ether_type == Some(ether_type),
            Condition::Protocol(family, protocol) => {
                facts.protocol == Some(protocol) && family.is_none_or(|family| facts.family == Some(family))
            }
            Condition::Ether(side, mac) => {
                facts.macs.is_some_and(|(src, dst)| side.any(src, dst, |address| address == mac))
            }
            Condition::Broadcast => facts.macs.is_some_and(|(_, dst)| dst == MacAddr::BROADCAST),
            Condition::Multicast => facts.macs.is_some_and(|(_, dst)| dst.is_multicast()),
            Condition::Vlan(None) => facts.vlans[0].is_some(),
            Condition::Vlan(id) => facts.vlans.contains(&id),
            Condition::Address { family, side, address, bits } => {
                let is_family = family.is_none_or(|family| facts.family == Some(family));
                let matches = |other: IpAddr| begins_with(other, address, bits);
                is_family && facts.addresses.is_some_and(|(src, dst)| side.any(src, dst, matches))
            }
            Condition::Ports { protocol, side, first, last } => {
                let is_protocol = protocol.is_none_or(|protocol| facts.protocol == Some(protocol));
                let matches = |port: u16| (first..=last).contains(&port);
                is_protocol && facts.ports.is_some_and(|(src, dst)| side.any(src, dst, matches))
            }
            Condition::Less(most) => facts.len <= most,
            Condition::Greater(least) => facts.len >= least,
        }
    }
}

/// Returns whether two addresses are of one version and agree in their first `bits` bits.
fn begins_with(address: IpAddr, wanted: IpAddr, bits: u8) -> bool {
    let agree = |differing: u128, width: u32| u32::from(bits) == 0 || differing >> (width - u32::from(bits)) == 0;
    match (address, wanted) {
        (IpAddr::V4(a), IpAddr::V4(b)) => agree((a.to_bits() ^ b.to_bits()).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => agree(a.to_bits() ^ b.to_bits(), 128),
        _ => false,
    }
}

/// Returns the width of an address in bits.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, all: &[Expression], word: &str| {
            for (at, one) in all.iter().enumerate() {
                let word = if at > 0 { word } else { "" };
                match one {
                    Expression::Or(_) | Expression::And(_) => write!(f, "{word}({one})")?,
                    _ => write!(f, "{word}{one}")?,
                }
            }
            Ok(())
        };
        match self {
            Expression::Or(all) => list(f, all, " or "),
            Expression::And(all) => list(f, all, " and "),
            Expression::Not(inner) => match **inner {
                Expression::Or(_) | Expression::And(_) => write!(f, "not ({inner})"),
                _ => write!(f, "not {inner}"),
            },
            Expression::Is(condition) => condition.fmt(f),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: Side| match side {
            Side::Source => "src ",
            Side::Destination => "dst ",
            Side::Either => "",
        };
        match *self {
            Condition::EtherType(ether_type) => match parse::ETHER_TYPES.iter().find(|(_, known)| *known == ether_type)
            {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "ether proto {:#06x}", ether_type.0),
            },
            Condition::Protocol(None, protocol) => match parse::protocol_name(protocol) {
                Some(name) => f.write_str(name),
                None => write!(f, "(ip proto {0} or ip6 proto {0})", protocol.0),
            },
            Condition::Protocol(Some(family), protocol) => write!(f, "{} proto {}", family.name(), protocol.0),
            Condition::Ether(Side::Either, mac) => write!(f, "ether host {mac}"),
            Condition::Ether(which, mac) => write!(f, "ether {}{mac}", side(which)),
            Condition::Broadcast => f.write_str("broadcast"),
            Condition::Multicast => f.write_str("multicast"),
            Condition::Vlan(None) => f.write_str("vlan"),
            Condition::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Condition::Address { family, side: which, address, bits } => {
                if let Some(family) = family {
                    write!(f, "{} ", family.name())?;
                }
                if bits == width(address) {
                    write!(f, "{}host {address}", side(which))
                } else {
                    write!(f, "{}net {address}/{bits}", side(which))
                }
            }
            Condition::Ports { protocol, side: which, first, last } => {
                if let Some(name) = protocol.and_then(parse::protocol_name) {
                    write!(f, "{name} ")?;
                }
                if first == last {
                    write!(f, "{}port {first}", side(which))
                } else {
                    write!(f, "{}portrange {first}-{last}", side(which))
                }
            }
            Condition::Less(len) => write!(f, "less {len}"),
            Condition::Greater(len) => write!(f, "greater {len}"),
        }
    }
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Family::V4 => "ip",
            Family::V6 => "ip6",
            Family::Arp => "arp",
        }
    }
}
