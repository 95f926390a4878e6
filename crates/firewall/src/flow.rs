//! A flow in words, for explanations.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use straightline_classify::{Column, Key, Keys, MAX_KEYS};
use straightline_wire::{EtherType, IpProtocol};

use crate::error::RuleError;
use crate::expand::{REMOTE, TRUSTED_SENDER};
use crate::policy::{Policy, RuleIndex};
use crate::rule::{Direction, EtherTypes, Service, ether_types};
use crate::tokens::{Tokens, ether_type, number};
use crate::words::{ETHER_TYPES, ICMP_TYPES, ICMP6_TYPES, SCTP, names};

/// The first packet of a flow, as a port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Direction of the packet.
    pub direction: Direction,
    /// Its EtherType.
    pub ether_type: u16,
    /// The remote address. `None`: the frame is neither IPv4 nor IPv6.
    pub remote: Option<IpAddr>,
    /// IP protocol.
    pub protocol: u8,
    /// Source port of TCP, UDP and SCTP.
    pub source_port: u16,
    /// Destination port of TCP, UDP and SCTP.
    pub port: u16,
    /// Type and code of ICMP and ICMPv6.
    pub icmp: (u8, u8),
    /// Time to live, or hop limit.
    pub hops: u8,
    /// Whether the packet came from a port with `trusted`.
    pub from_trusted: bool,
}

/// The source port of a flow that names none.
const SOURCE_PORT: u16 = 50_000;

/// The hop limit of a flow whose protocol does not prescribe one.
const HOPS: u8 = 64;

impl Flow {
    /// Returns the key of the packet, with the columns that policies read.
    #[must_use]
    pub fn key(&self) -> Key {
        let mut key = Key::default();
        key.set(Column::EtherType, self.ether_type.into());
        match self.remote {
            None => {}
            Some(IpAddr::V4(address)) => key.set(REMOTE[3], address.to_bits()),
            Some(IpAddr::V6(address)) => {
                for (column, word) in REMOTE.into_iter().zip(address.octets().as_chunks().0) {
                    key.set(column, u32::from_be_bytes(*word));
                }
            }
        }
        for (column, value) in [
            (Column::Protocol, self.protocol.into()),
            (Column::SrcPort, self.source_port.into()),
            (Column::DstPort, self.port.into()),
            (Column::IcmpType, self.icmp.0.into()),
            (Column::IcmpCode, self.icmp.1.into()),
            (Column::Ttl, self.hops.into()),
            (TRUSTED_SENDER, u32::from(self.from_trusted)),
        ] {
            key.set(column, value);
        }
        key
    }
}

impl Flow {
    /// Returns the packet to the port that a UDP packet from it answers, if it is an answer.
    #[must_use]
    pub fn question(&self) -> Option<Self> {
        let may_answer = self.direction == Direction::Out && self.protocol == IpProtocol::UDP.0;
        let question = Flow { direction: Direction::In, source_port: self.port, port: self.source_port, ..*self };
        may_answer.then_some(question)
    }
}

impl Policy {
    /// Returns the rule that decides about a flow. About an answer, that may be the rule with `stateless`
    /// that allows its question.
    #[must_use]
    pub fn explain(&self, flow: &Flow) -> RuleIndex {
        let own = self.deciding(flow);
        let question = flow.question().filter(|_| self.has_stateless() && self.rule(own).yields_to_stateless());
        let allowed = question.map(|question| self.deciding(&question)).filter(|rule| self.rule(*rule).stateless);
        allowed.unwrap_or(own)
    }

    fn deciding(&self, flow: &Flow) -> RuleIndex {
        let keys: Keys = [&flow.key()].into_iter().collect();
        let mut verdicts = [RuleIndex::default(); MAX_KEYS];
        self.decide(flow.direction, &keys, &mut verdicts);
        verdicts[0]
    }
}

const KNOWN: &str = "write for example `tcp to 192.0.2.1 port 443` or `icmp echo-request from 10.0.0.1`";

impl FromStr for Flow {
    type Err = RuleError;

    /// Reads a flow: `to` is a flow from the port, `from` one to the port.
    ///
    /// ```text
    /// tcp|udp|sctp    to|from ADDRESS port NUMBER [source-port NUMBER] [trusted]
    /// icmp|icmp6 TYPE to|from ADDRESS [trusted]
    /// ip NUMBER       to|from ADDRESS [trusted]
    /// arp             to|from any
    /// ethertype NAME  to|from any
    /// ```
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut words = Tokens::new(text)?;
        let Some(protocol) = words.next() else {
            return Err(RuleError::new("", format!("the flow is empty: {KNOWN}")));
        };
        let packet = parse_packet(protocol, &mut words)?;
        let direction = match words.require("`to` or `from` and an address")? {
            "to" => Direction::Out,
            "from" => Direction::In,
            other => return Err(RuleError::new(other, format!("is neither `to` nor `from`: {KNOWN}"))),
        };
        let address = words.require("an address, such as `192.0.2.1`")?;
        let mut flow = Flow {
            direction,
            ether_type: 0,
            remote: None,
            protocol: 0,
            source_port: 0,
            port: 0,
            icmp: (0, 0),
            hops: 0,
            from_trusted: false,
        };
        match packet {
            Packet::Frame(ether_type) => {
                if address != "any" {
                    return Err(RuleError::new(
                        address,
                        "is an address, which such a frame does not have: write `any`",
                    ));
                }
                flow.ether_type = ether_type;
            }
            Packet::Ip(service) => flow.set_ip(&service, address, &mut words)?,
        }
        flow.from_trusted = words.take("trusted");
        words.end(KNOWN)?;
        Ok(flow)
    }
}

/// A packet without its addresses.
enum Packet {
    Frame(u16),
    Ip(Service),
}

fn parse_packet(protocol: &str, words: &mut Tokens<'_>) -> Result<Packet, RuleError> {
    let icmp = |protocol: &str, kind: Option<_>| {
        kind.ok_or_else(|| RuleError::new(protocol, "needs a type: add for example `echo-request` or `type 3 code 4`"))
    };
    Ok(Packet::Ip(match protocol {
        "arp" => return Ok(Packet::Frame(EtherType::ARP.0)),
        "ethertype" => {
            let word = words.require("a name, such as `lldp`")?;
            let named = ETHER_TYPES.iter().find(|(name, _)| *name == word).map(|(_, values)| values[0].1);
            let known = names(ETHER_TYPES);
            let wrong =
                || RuleError::new(word, format!("is no EtherType: write one of {known}, or a number such as 0x88b5"));
            return Ok(Packet::Frame(named.or_else(|| ether_type(word)).ok_or_else(wrong)?));
        }
        "tcp" => Service::Tcp(Vec::new()),
        "udp" => Service::Udp(Vec::new()),
        "sctp" => Service::Sctp(Vec::new()),
        "icmp" => Service::Icmp(Some(icmp(protocol, words.icmp(ICMP_TYPES)?)?)),
        "icmp6" => Service::Icmp6(Some(icmp(protocol, words.icmp(ICMP6_TYPES)?)?)),
        "ip" => {
            let word = words.require("a protocol's number, such as `47`")?;
            match Service::of_protocol(number(word, "protocol")?) {
                other @ Service::Protocol(_) => other,
                named => return Err(RuleError::new(word, format!("has a name: write `{named}`"))),
            }
        }
        other => return Err(RuleError::new(other, format!("is no protocol: {KNOWN}"))),
    }))
}

impl Flow {
    fn set_ip(&mut self, service: &Service, address: &str, words: &mut Tokens<'_>) -> Result<(), RuleError> {
        let remote: IpAddr =
            address.parse().map_err(|_| RuleError::new(address, "is no IP address: write for example 192.0.2.1"))?;
        self.remote = Some(remote);
        self.ether_type = if remote.is_ipv4() { EtherType::IPV4.0 } else { EtherType::IPV6.0 };
        self.hops = HOPS;
        match service {
            Service::Tcp(_) => self.set_ports(IpProtocol::TCP, words)?,
            Service::Udp(_) => self.set_ports(IpProtocol::UDP, words)?,
            Service::Sctp(_) => self.set_ports(SCTP, words)?,
            Service::Icmp(_) if remote.is_ipv6() => {
                return Err(RuleError::new(address, "is IPv6: write `icmp6` for it"));
            }
            Service::Icmp6(_) if remote.is_ipv4() => {
                return Err(RuleError::new(address, "is IPv4: write `icmp` for it"));
            }
            Service::Icmp(kind) => {
                self.protocol = IpProtocol::ICMP.0;
                self.set_icmp(*kind);
            }
            Service::Icmp6(kind) => {
                self.protocol = IpProtocol::ICMPV6.0;
                self.set_icmp(*kind);
                self.hops = match self.icmp.0 {
                    130..=132 | 143 => 1,
                    133..=137 => 255,
                    _ => HOPS,
                };
            }
            Service::Protocol(number) => {
                self.protocol = *number;
                if IpProtocol(*number) == IpProtocol::IGMP {
                    self.hops = 1;
                }
            }
            Service::Any | Service::EtherType(_) => {}
        }
        Ok(())
    }

    fn set_ports(&mut self, protocol: IpProtocol, words: &mut Tokens<'_>) -> Result<(), RuleError> {
        self.protocol = protocol.0;
        if !words.take("port") {
            let word = words.peek().unwrap_or_default();
            return Err(RuleError::new(
                word,
                "stands where the destination port must be: write for example `port 443`",
            ));
        }
        self.port = number(words.require("a number, such as `443`")?, "port")?;
        self.source_port = if words.take("source-port") {
            number(words.require("a number, such as `53`")?, "port")?
        } else {
            SOURCE_PORT
        };
        Ok(())
    }

    fn set_icmp(&mut self, kind: Option<(u8, Option<u8>)>) {
        let (kind, code) = kind.unwrap_or_default();
        self.icmp = (kind, code.unwrap_or(0));
    }
}

/// The text reads back the same, if the hop limit is the usual one.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preposition = self.direction.preposition();
        let Some(remote) = self.remote else {
            match ether_types(self.ether_type) {
                _ if self.ether_type == EtherType::ARP.0 => f.write_str("arp")?,
                EtherTypes::Named(name, _) => write!(f, "ethertype {name}")?,
                EtherTypes::Number(number) => write!(f, "ethertype {number:#06x}")?,
            }
            write!(f, " {preposition} any")?;
            return if self.from_trusted { f.write_str(" trusted") } else { Ok(()) };
        };
        let icmp = Some((self.icmp.0, Some(self.icmp.1)));
        match Service::of_protocol(self.protocol) {
            Service::Icmp(_) => write!(f, "{}", Service::Icmp(icmp))?,
            Service::Icmp6(_) => write!(f, "{}", Service::Icmp6(icmp))?,
            other => write!(f, "{other}")?,
        }
        write!(f, " {preposition} {remote}")?;
        if matches!(Service::of_protocol(self.protocol), Service::Tcp(_) | Service::Udp(_) | Service::Sctp(_)) {
            write!(f, " port {} source-port {}", self.port, self.source_port)?;
        }
        if self.from_trusted { f.write_str(" trusted") } else { Ok(()) }
    }
}
