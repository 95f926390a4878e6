//! The parser of filters. Its errors name the place and the words that would be right.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use straightline_wire::{EtherType, IpProtocol, MacAddr};

use super::facts::{SCTP, WITH_PORTS};
use super::{Condition, Expression, Family, Side, width};

/// The most conditions of a filter. Each costs time for each packet.
const MAX_CONDITIONS: usize = 64;

/// The most parentheses and negations around a condition.
const MAX_DEPTH: usize = 32;

/// Types behind the MAC addresses that have a word.
pub(super) const ETHER_TYPES: [(&str, EtherType); 4] =
    [("arp", EtherType::ARP), ("rarp", EtherType::RARP), ("ip", EtherType::IPV4), ("ip6", EtherType::IPV6)];

/// Protocols that have a word.
const PROTOCOLS: [(&str, IpProtocol); 8] = [
    ("icmp", IpProtocol::ICMP),
    ("icmp6", IpProtocol::ICMPV6),
    ("tcp", IpProtocol::TCP),
    ("udp", IpProtocol::UDP),
    ("sctp", SCTP),
    ("gre", IpProtocol::GRE),
    ("esp", IpProtocol(50)),
    ("ah", IpProtocol(51)),
];

/// Returns the word for a protocol, if it has one.
pub(super) fn protocol_name(protocol: IpProtocol) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == protocol).map(|(name, _)| *name)
}

/// An error in a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The place of the wrong word, in characters from 1.
    column: usize,
    message: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter, column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for FilterError {}

/// A word with its place.
#[derive(Clone, Copy)]
struct Word<'a> {
    column: usize,
    text: &'a str,
}

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser { words: words(text), at: 0, end: text.chars().count() + 1, depth: 0, conditions: 0 };
    let expression = parser.expression()?;
    match parser.next() {
        None => Ok(expression),
        Some(word) => Err(parser.wrong(word, "expected `and`, `or` or the end")),
    }
}

/// Splits an expression into words. Parentheses, `!`, `&&` and `||` are words of their own.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut begin = 0;
    let mut column = 1;
    let mut rest = text.char_indices().peekable();
    while let Some((at, char)) = rest.next() {
        let mut len = char.len_utf8();
        let is_double = (char == '&' || char == '|') && rest.next_if(|(_, next)| *next == char).is_some();
        let alone = is_double || matches!(char, '(' | ')' | '!');
        if is_double {
            len = 2;
        }
        if alone || char.is_whitespace() {
            if begin < at {
                let before = &text[begin..at];
                words.push(Word { column: column - before.chars().count(), text: before });
            }
            if alone {
                words.push(Word { column, text: &text[at..at + len] });
            }
            begin = at + len;
        }
        column += if is_double { 2 } else { 1 };
    }
    if begin < text.len() {
        let last = &text[begin..];
        words.push(Word { column: column - last.chars().count(), text: last });
    }
    words
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    at: usize,
    /// The column behind the last character.
    end: usize,
    depth: usize,
    conditions: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| word.text)
    }

    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.at).copied();
        self.at += usize::from(word.is_some());
        word
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, words: &[&str]) -> bool {
        let is = self.peek().is_some_and(|word| words.contains(&word));
        self.at += usize::from(is);
        is
    }

    fn wrong(&self, word: Word<'_>, expected: &str) -> FilterError {
        FilterError { column: word.column, message: format!("{expected}, found `{}`", word.text) }
    }

    fn at_end(&self, expected: &str) -> FilterError {
        FilterError { column: self.end, message: format!("{expected}, found the end") }
    }

    /// Takes a value.
    fn value<T: FromStr>(&mut self, expected: &str) -> Result<(Word<'a>, T), FilterError> {
        let word = self.next().ok_or_else(|| self.at_end(expected))?;
        let value = word.text.parse().map_err(|_| self.wrong(word, expected))?;
        Ok((word, value))
    }

    fn expression(&mut self) -> Result<Expression, FilterError> {
        let mut all = vec![self.term()?];
        while self.take(&["or", "||"]) {
            all.push(self.term()?);
        }
        Ok(one_or(all, Expression::Or))
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        let mut all = vec![self.factor()?];
        while self.take(&["and", "&&"]) {
            all.push(self.factor()?);
        }
        Ok(one_or(all, Expression::And))
    }

    fn factor(&mut self) -> Result<Expression, FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let word = self.words.get(self.at).copied();
            let expected = format!("expected at most {MAX_DEPTH} parentheses and `not` around a condition");
            return Err(word.map_or_else(|| self.at_end(&expected), |word| self.wrong(word, &expected)));
        }
        let factor = if self.take(&["not", "!"]) {
            Expression::Not(Box::new(self.factor()?))
        } else if self.take(&["("]) {
            let inner = self.expression()?;
            match self.next() {
                Some(Word { text: ")", .. }) => inner,
                Some(word) => return Err(self.wrong(word, "expected `and`, `or` or `)`")),
                None => return Err(self.at_end("expected `)`")),
            }
        } else {
            Expression::Is(self.condition()?)
        };
        self.depth -= 1;
        Ok(factor)
    }

    fn condition(&mut self) -> Result<Condition, FilterError> {
        const EXPECTED: &str = "expected a condition such as `arp`, `tcp port 80`, `ip host 10.0.0.1` or `vlan 7`";
        let word = self.next().ok_or_else(|| self.at_end(EXPECTED))?;
        self.conditions += 1;
        if self.conditions > MAX_CONDITIONS {
            return Err(self.wrong(word, &format!("expected at most {MAX_CONDITIONS} conditions")));
        }
        match word.text {
            "ether" => return self.ether(),
            "broadcast" => return Ok(Condition::Broadcast),
            "multicast" => return Ok(Condition::Multicast),
            "vlan" => return self.vlan(),
            "less" => return Ok(Condition::Less(self.value("expected a length in bytes")?.1)),
            "greater" => return Ok(Condition::Greater(self.value("expected a length in bytes")?.1)),
            "src" | "dst" | "host" | "net" | "port" | "portrange" => {
                self.at -= 1;
                return self.sided(None, None);
            }
            _ => {}
        }
        let family = match word.text {
            "ip" => Some(Family::V4),
            "ip6" => Some(Family::V6),
            "arp" => Some(Family::Arp),
            _ => None,
        };
        let has_side = matches!(self.peek(), Some("src" | "dst" | "host" | "net" | "port" | "portrange"));
        if let Some(family) = family {
            if has_side {
                return self.sided(Some(family), None);
            }
            if family != Family::Arp && self.take(&["proto"]) {
                return Ok(Condition::Protocol(Some(family), self.protocol()?));
            }
        }
        if let Some((_, ether_type)) = ETHER_TYPES.iter().find(|(name, _)| *name == word.text) {
            return Ok(Condition::EtherType(*ether_type));
        }
        let Some((_, protocol)) = PROTOCOLS.iter().find(|(name, _)| *name == word.text) else {
            return Err(self.wrong(word, EXPECTED));
        };
        if has_side && WITH_PORTS.contains(protocol) {
            return self.sided(None, Some(*protocol));
        }
        Ok(Condition::Protocol(None, *protocol))
    }

    /// Reads a condition on hosts or ports, from the side on.
    fn sided(&mut self, family: Option<Family>, protocol: Option<IpProtocol>) -> Result<Condition, FilterError> {
        let side = self.side();
        let expected = match (family, protocol) {
            (Some(_), _) => "expected `host` or `net`",
            (None, Some(_)) => "expected `port` or `portrange`",
            (None, None) => "expected `host`, `net`, `port` or `portrange`",
        };
        let word = self.next().ok_or_else(|| self.at_end(expected))?;
        match word.text {
            "host" if protocol.is_none() => {
                let (word, address): (_, IpAddr) = self.value("expected an IP address, such as 10.0.0.1 or fd00::1")?;
                self.address(word, family, side, address, width(address))
            }
            "net" if protocol.is_none() => self.net(family, side),
            "port" if family.is_none() => {
                let port = self.value("expected a port, 0 to 65535")?.1;
                Ok(Condition::Ports { protocol, side, first: port, last: port })
            }
            "portrange" if family.is_none() => {
                const RANGE: &str = "expected two ports in order, such as 8000-8080";
                let word = self.next().ok_or_else(|| self.at_end(RANGE))?;
                let ports =
                    word.text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
                let (first, last) =
                    ports.filter(|(first, last)| first <= last).ok_or_else(|| self.wrong(word, RANGE))?;
                Ok(Condition::Ports { protocol, side, first, last })
            }
            _ => Err(self.wrong(word, expected)),
        }
    }

    fn side(&mut self) -> Side {
        match self.peek() {
            _ if self.take(&["src"]) => Side::Source,
            _ if self.take(&["dst"]) => Side::Destination,
            _ => Side::Either,
        }
    }

    fn net(&mut self, family: Option<Family>, side: Side) -> Result<Condition, FilterError> {
        const NET: &str = "expected a network, such as 10.0.0.0/8 or fd00::/16";
        let word = self.next().ok_or_else(|| self.at_end(NET))?;
        let (address, bits) = word.text.split_once('/').map_or((word.text, None), |(text, bits)| (text, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| self.wrong(word, NET))?;
        let bits = bits.map_or(Ok(width(address)), |bits| bits.parse().map_err(|_| self.wrong(word, NET)))?;
        if bits > width(address) {
            return Err(self.wrong(word, &format!("expected a length of at most {} bits", width(address))));
        }
        self.address(word, family, side, address, bits)
    }

    fn address(
        &self,
        word: Word<'_>,
        family: Option<Family>,
        side: Side,
        address: IpAddr,
        bits: u8,
    ) -> Result<Condition, FilterError> {
        match family {
            Some(Family::V6) if address.is_ipv4() => Err(self.wrong(word, "expected an IPv6 address behind `ip6`")),
            Some(Family::V4 | Family::Arp) if address.is_ipv6() => {
                Err(self.wrong(word, "expected an IPv4 address; use `ip6` for IPv6"))
            }
            _ => Ok(Condition::Address { family, side, address, bits }),
        }
    }

    fn ether(&mut self) -> Result<Condition, FilterError> {
        const EXPECTED: &str = "expected `host`, `src`, `dst`, `proto`, `broadcast` or `multicast`";
        let word = self.next().ok_or_else(|| self.at_end(EXPECTED))?;
        let side = match word.text {
            "broadcast" => return Ok(Condition::Broadcast),
            "multicast" => return Ok(Condition::Multicast),
            "proto" => return self.ether_type(),
            "host" => Side::Either,
            "src" => Side::Source,
            "dst" => Side::Destination,
            _ => return Err(self.wrong(word, EXPECTED)),
        };
        // tcpdump takes "ether src host" as well.
        if side != Side::Either {
            self.take(&["host"]);
        }
        Ok(Condition::Ether(side, self.value::<MacAddr>("expected a MAC address, such as 52:54:00:00:00:01")?.1))
    }

    fn ether_type(&mut self) -> Result<Condition, FilterError> {
        const EXPECTED: &str = "expected an Ethernet type: a number such as 0x88cc, or arp, rarp, ip or ip6";
        let word = self.next().ok_or_else(|| self.at_end(EXPECTED))?;
        let name = unescaped(word.text);
        let named = ETHER_TYPES.iter().find(|(known, _)| *known == name).map(|(_, ether_type)| *ether_type);
        let number = || match word.text.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok(),
            None => word.text.parse().ok(),
        };
        let ether_type = named.or_else(|| number().map(EtherType));
        ether_type.map(Condition::EtherType).ok_or_else(|| self.wrong(word, EXPECTED))
    }

    fn protocol(&mut self) -> Result<IpProtocol, FilterError> {
        const EXPECTED: &str = "expected a protocol: 0 to 255, or a word such as tcp";
        let word = self.next().ok_or_else(|| self.at_end(EXPECTED))?;
        let name = unescaped(word.text);
        let named = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, protocol)| *protocol);
        named.or_else(|| word.text.parse().ok().map(IpProtocol)).ok_or_else(|| self.wrong(word, EXPECTED))
    }

    fn vlan(&mut self) -> Result<Condition, FilterError> {
        let is_number = self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        if !is_number {
            return Ok(Condition::Vlan(None));
        }
        const EXPECTED: &str = "expected a VLAN, 0 to 4095";
        let (word, id) = self.value::<u16>(EXPECTED)?;
        if id > 0xfff { Err(self.wrong(word, EXPECTED)) } else { Ok(Condition::Vlan(Some(id))) }
    }
}

/// Removes the backslash that tcpdump wants in front of a word in place of a number.
fn unescaped(word: &str) -> &str {
    word.strip_prefix('\\').unwrap_or(word)
}

/// Returns the only expression, or all of them in one.
fn one_or(mut all: Vec<Expression>, several: fn(Vec<Expression>) -> Expression) -> Expression {
    match all.len() {
        1 => all.remove(0),
        _ => several(all),
    }
}
