//! The form of messages that a port may send without a rule: ARP, neighbour discovery, IGMP and MLD.
//!
//! Nobody has allowed these messages, so they must not carry what a rule denies. A message passes if it
//! has the form that hosts give it, and is no longer than its own fields say.
//!
//! Only the beginning of a frame is read: what is visible of it. Lengths are compared with that of the
//! whole frame.

use std::net::Ipv6Addr;

use straightline_wire::{EtherType, IpProtocol, WireError, arp, igmp, ipv4, ipv6, mld, ndp, vlan};

/// Bytes behind the header of the shortest Ethernet frame. Shorter messages may be padded to them.
const PADDED: usize = 46;

/// Most bytes of the options of neighbour discovery, and of those with a signature (RFC 3971).
const MOST_OPTIONS: usize = 128;
const MOST_SIGNED: usize = 1280;

/// Options of neighbour discovery: parameters and signature of SEND, and the nonce (RFC 3971, 5; RFC 7527).
const SIGNING: [u8; 2] = [11, 12];
const NONCE: u8 = 14;
/// Bytes of an option with a MAC address, and of one with a nonce.
const SHORT_OPTION: usize = 8;

/// Messages of multicast router discovery (RFC 4286): an announcement, a question, and the end.
const ROUTER_V4: [u8; 3] = [0x30, 0x31, 0x32];
const ROUTER_V6: [u8; 3] = [151, 152, 153];
const ROUTER_ANNOUNCEMENT_LEN: usize = 8;
const ROUTER_LEN: usize = 4;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The first solicited-node address; the last 24 bits are those of the address asked for (RFC 4291, 2.7.1).
const SOLICITED_NODE: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);

/// A kind of messages, each with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// ARP.
    Arp,
    /// Neighbour discovery of IPv6.
    Discovery,
    /// Messages of multicast groups: IGMP and MLD, with the discovery of multicast routers.
    Groups,
}

/// The part of a message in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    /// Others answer it. So whoever sends questions decides how many answers they send.
    Question,
    /// Others may have asked for it.
    Answer,
    /// Neither.
    Other,
}

/// The form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageForm {
    /// It is what hosts send.
    Right,
    /// It is what hosts send, to one address that is not link-local. So it could lead beyond the link.
    ToOne {
        /// The address.
        to: Ipv6Addr,
        /// It has at most one MAC address and a nonce as options.
        is_short: bool,
    },
    /// No host sends such a message, or it is longer than its fields say.
    Wrong,
}

impl MessageKind {
    /// Returns the kind of an IP packet of this protocol, with this type of ICMP.
    #[must_use]
    pub fn of_ip(protocol: IpProtocol, icmp_type: u8) -> Option<Self> {
        match (protocol, icmp_type) {
            (IpProtocol::IGMP, _) => Some(Self::Groups),
            (IpProtocol::ICMPV6, 133..=137) => Some(Self::Discovery),
            (IpProtocol::ICMPV6, 130..=132 | 143 | 151..=153) => Some(Self::Groups),
            _ => None,
        }
    }

    /// Returns what a message of this kind is to others. `icmp_type` is that of ICMPv6. The frame begins with
    /// `head`, and may have priority tags.
    #[must_use]
    pub fn role(self, icmp_type: u8, head: &[u8]) -> MessageRole {
        let packet = || vlan::skip_priority(head).ok().and_then(|(ether_type, at)| Some((ether_type, head.get(at..)?)));
        match (self, icmp_type) {
            (Self::Arp, _) => match packet().and_then(|(_, packet)| arp::Header::new_checked(packet).ok()) {
                Some(message) if message.operation() == arp::Operation::REQUEST => MessageRole::Question,
                Some(message) if message.operation() == arp::Operation::REPLY => MessageRole::Answer,
                _ => MessageRole::Other,
            },
            (Self::Discovery, 135) | (Self::Groups, 130) => MessageRole::Question,
            (Self::Discovery, 136) | (Self::Groups, 131 | 143) => MessageRole::Answer,
            (Self::Groups, 0) => {
                packet().and_then(|(ether_type, packet)| igmp_role(ether_type, packet)).unwrap_or(MessageRole::Other)
            }
            _ => MessageRole::Other,
        }
    }

    /// Returns the form of a message of this kind: a frame of `len` bytes that begins with `head`. It may
    /// have priority tags.
    #[must_use]
    pub fn form(self, head: &[u8], len: usize) -> MessageForm {
        let Ok((ether_type, at)) = vlan::skip_priority(head) else { return MessageForm::Wrong };
        // What lies behind the visible bytes was not read.
        if head.len() > len {
            return MessageForm::Wrong;
        }
        let packet = &head[at..];
        let len = len - at;
        match (self, ether_type) {
            (Self::Arp, EtherType::ARP) => right((arp::LEN..=PADDED).contains(&len)),
            (Self::Discovery, EtherType::IPV6) => discovery(packet, len),
            (Self::Groups, EtherType::IPV4) => igmp(packet, len).map_or(MessageForm::Wrong, right),
            (Self::Groups, EtherType::IPV6) => mld(packet, len).map_or(MessageForm::Wrong, right),
            _ => MessageForm::Wrong,
        }
    }
}

/// Returns what a message of IGMP is to others.
fn igmp_role(ether_type: EtherType, packet: &[u8]) -> Option<MessageRole> {
    let ip = ipv4::Header::new_checked(packet).ok().filter(|_| ether_type == EtherType::IPV4)?;
    Some(match igmp::Type(*packet.get(ip.header_len())?) {
        igmp::Type::QUERY => MessageRole::Question,
        igmp::Type::REPORT_V1 | igmp::Type::REPORT_V2 | igmp::Type::REPORT_V3 => MessageRole::Answer,
        _ => MessageRole::Other,
    })
}

fn right(is_right: bool) -> MessageForm {
    if is_right { MessageForm::Right } else { MessageForm::Wrong }
}

/// Returns the form of neighbour discovery. It has no extension headers, and nothing behind the packet.
fn discovery(packet: &[u8], len: usize) -> MessageForm {
    let ip = ipv6::Header::new_checked(packet).ok();
    let Some(ip) = ip.filter(|ip| ip.next_header() == IpProtocol::ICMPV6) else { return MessageForm::Wrong };
    let message_len = usize::from(ip.payload_len());
    let message = packet.get(ipv6::LEN..).and_then(|bytes| ndp::Header::new_checked(bytes).ok());
    let Some(message) = message.filter(|_| len == ipv6::LEN + message_len) else { return MessageForm::Wrong };
    let Some(options) = message_len.checked_sub(message.kind().fixed_len()) else { return MessageForm::Wrong };
    let Some(found) = Options::of(message.options(message_len)) else { return MessageForm::Wrong };
    let most = if found.signs { MOST_SIGNED } else { MOST_OPTIONS };
    let to = ip.dst();
    let is_to_neighbours =
        [ALL_NODES, ALL_ROUTERS].contains(&to) || is_solicited_node(to) || to.is_unicast_link_local();
    if options > most || options % 8 != 0 || to.is_multicast() && !is_to_neighbours {
        MessageForm::Wrong
    } else if is_to_neighbours {
        MessageForm::Right
    } else {
        MessageForm::ToOne { to, is_short: found.is_short }
    }
}

/// The options of a message of neighbour discovery.
struct Options {
    /// One of them belongs to SEND.
    signs: bool,
    /// They are at most one MAC address and a nonce.
    is_short: bool,
}

impl Options {
    /// Returns what the options are, or `None` if one has a wrong length. Those that are not visible may
    /// be any.
    fn of(options: ndp::NdpOptions<'_>) -> Option<Self> {
        let mut found = Options { signs: false, is_short: true };
        let mut links = 0;
        let mut nonces = 0;
        for option in options {
            let option = match option {
                Ok(option) => option,
                Err(WireError::Truncated) => {
                    found.is_short = false;
                    break;
                }
                Err(_) => return None,
            };
            match option.option_type {
                ndp::OptionType::SOURCE_LINK_ADDRESS | ndp::OptionType::TARGET_LINK_ADDRESS => links += 1,
                ndp::OptionType(NONCE) => nonces += 1,
                ndp::OptionType(other) => {
                    found.signs |= SIGNING.contains(&other);
                    found.is_short = false;
                }
            }
            found.is_short &= option.len == SHORT_OPTION && links <= 1 && nonces <= 1;
        }
        Some(found)
    }
}

/// Returns whether a message of IGMP is of a known type, and as long as its fields say.
fn igmp(packet: &[u8], len: usize) -> Option<bool> {
    let ip = ipv4::Header::new_checked(packet).ok()?;
    // The only option is the router alert (RFC 2113).
    let is_plain = matches!(ip.options(), [] | [148, 4, 0, 0]) && !ip.more_fragments() && ip.fragment_offset() == 0;
    let total = usize::from(ip.total_len());
    let is_whole = len == total || (len <= PADDED && len > total);
    let message_len = total.checked_sub(ip.header_len())?;
    let visible = packet.get(ip.header_len()..)?;
    let visible = &visible[..visible.len().min(message_len)];
    let expected = match *visible.first()? {
        kind if kind == igmp::Type::QUERY.0 && message_len >= igmp::QUERY_V3_LEN => {
            igmp::QUERY_V3_LEN + 4 * usize::from(half(visible, 10)?)
        }
        kind if kind == igmp::Type::REPORT_V3.0 => {
            igmp::MIN_LEN + records_len::<4>(visible, igmp::MIN_LEN, message_len, half(visible, 6)?)?
        }
        kind if kind == ROUTER_V4[0] => ROUTER_ANNOUNCEMENT_LEN,
        kind if ROUTER_V4.contains(&kind) => ROUTER_LEN,
        kind => {
            let known = [igmp::Type::QUERY, igmp::Type::REPORT_V1, igmp::Type::REPORT_V2, igmp::Type::LEAVE];
            return Some(known.contains(&igmp::Type(kind)) && is_plain && is_whole && message_len == igmp::MIN_LEN);
        }
    };
    Some(is_plain && is_whole && message_len == expected)
}

/// Returns whether a message of MLD is of a known type, and as long as its fields say. Hop-by-hop options
/// of eight bytes, which have the router alert, may stand before it.
fn mld(packet: &[u8], len: usize) -> Option<bool> {
    let ip = ipv6::Header::new_checked(packet).ok()?;
    let payload = usize::from(ip.payload_len());
    let is_whole = len == ipv6::LEN + payload || (len <= PADDED && len > ipv6::LEN + payload);
    let options = match ip.next_header() {
        IpProtocol::ICMPV6 => 0,
        IpProtocol::HOP_BY_HOP => {
            let options: &[u8; 8] = packet.get(ipv6::LEN..)?.first_chunk()?;
            if options[..2] != [IpProtocol::ICMPV6.0, 0] || !has_only_alert(&options[2..]) {
                return Some(false);
            }
            options.len()
        }
        _ => return Some(false),
    };
    let message_len = payload.checked_sub(options)?;
    let visible = packet.get(ipv6::LEN + options..)?;
    let visible = &visible[..visible.len().min(message_len)];
    let expected = match *visible.first()? {
        130 if message_len >= mld::QUERY_V2_LEN => mld::QUERY_V2_LEN + 16 * usize::from(half(visible, 26)?),
        130..=132 => mld::V1_LEN,
        143 => mld::REPORT_LEN + records_len::<16>(visible, mld::REPORT_LEN, message_len, half(visible, 6)?)?,
        kind if kind == ROUTER_V6[0] => ROUTER_ANNOUNCEMENT_LEN,
        kind if ROUTER_V6.contains(&kind) => ROUTER_LEN,
        _ => return Some(false),
    };
    Some(is_whole && message_len == expected)
}

/// Returns whether options are the router alert of MLD (RFC 2711) and padding.
fn has_only_alert(options: &[u8]) -> bool {
    matches!(options, [5, 2, 0, 0, 1, 0] | [1, 0, 5, 2, 0, 0] | [5, 2, 0, 0, 0, 0] | [0, 0, 5, 2, 0, 0])
}

/// Returns the length of `count` records of a report, whose addresses have `N` bytes. They begin at `at`
/// in a message of `len` bytes. Auxiliary data makes a report wrong: nobody has defined any.
///
/// Records that are not visible have as many sources as the message has place for.
fn records_len<const N: usize>(visible: &[u8], at: usize, len: usize, count: u16) -> Option<usize> {
    let fixed = 4 + N;
    let mut end = at;
    for nth in 0..count {
        if end > len {
            return None;
        }
        let Some(record) = visible.get(end..).and_then(|rest| rest.first_chunk::<4>()) else {
            let sources = len.checked_sub(end + fixed * usize::from(count - nth))?;
            return (sources % N == 0).then_some(len - at);
        };
        let [_, auxiliary, sources @ ..] = *record;
        if auxiliary != 0 {
            return None;
        }
        end += fixed + N * usize::from(u16::from_be_bytes(sources));
    }
    Some(end - at)
}

fn is_solicited_node(address: Ipv6Addr) -> bool {
    (address.to_bits() ^ SOLICITED_NODE.to_bits()) >> 24 == 0
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
