//! Whole packets that a switch sends itself: questions for MAC addresses, answers to such questions,
//! probes and announcements of addresses. Others, such as errors of ICMP, begin as [`Message`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{EtherType, IpProtocol, MacAddr, WireError, arp, ethernet, icmpv6, ipv4, ipv6, ndp, vlan};

/// Bytes of the longest message.
pub const MOST: usize = 256;

/// The hop limit of neighbour discovery: no router has forwarded the packet (RFC 4861, 11.2).
pub const ND_HOP_LIMIT: u8 = 255;

/// The hop limit, or time to live, of all other packets.
pub const HOP_LIMIT: u8 = 64;

/// The group of all stations (RFC 4291, 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A packet under construction.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: [u8; MOST],
    len: usize,
}

/// The Ethernet header of a message.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The source.
    pub src: MacAddr,
    /// The destination.
    pub dst: MacAddr,
    /// The VLAN of the tag, if it has one.
    pub vlan: Option<u16>,
}

impl Message {
    /// Returns the packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns a packet without any bytes.
    #[must_use]
    pub fn empty() -> Self {
        Message { bytes: [0; MOST], len: 0 }
    }

    /// Begins a packet with its Ethernet header and tag.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
    pub fn begin(link: Link, ether_type: EtherType) -> Result<Self, WireError> {
        let mut message = Message::empty();
        let first = if link.vlan.is_some() { EtherType::VLAN } else { ether_type };
        message.append(|bytes| ethernet::Repr { dst: link.dst, src: link.src, ether_type: first }.emit(bytes))?;
        if let Some(vid) = link.vlan {
            // The type of the Ethernet header is the first half of the tag.
            message.len -= 2;
            message.append(|bytes| vlan::Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid }.emit(bytes))?;
            message.append_bytes(&ether_type.0.to_be_bytes())?;
        }
        Ok(message)
    }

    /// Appends what `emit` writes.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
    pub fn append(&mut self, emit: impl FnOnce(&mut [u8]) -> Result<usize, WireError>) -> Result<(), WireError> {
        self.len += emit(&mut self.bytes[self.len..])?;
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let space = self.bytes.get_mut(self.len..self.len + bytes.len()).ok_or(WireError::BufferTooSmall)?;
        space.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Returns the number of bytes for which there is space.
    #[must_use]
    pub fn space(&self) -> usize {
        MOST - self.len
    }
}

/// Returns an ARP request for `target`. All stations are asked, if `link` names none.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn arp_request(link: Link, own: Ipv4Addr, target: Ipv4Addr) -> Result<Message, WireError> {
    let repr = arp::Repr {
        operation: arp::Operation::REQUEST,
        sender_mac: link.src,
        sender_ip: own,
        target_mac: MacAddr::default(),
        target_ip: target,
    };
    arp_message(link, repr)
}

/// Returns an ARP reply to a station.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn arp_reply(link: Link, own: Ipv4Addr, target: Ipv4Addr) -> Result<Message, WireError> {
    let repr = arp::Repr {
        operation: arp::Operation::REPLY,
        sender_mac: link.src,
        sender_ip: own,
        target_mac: link.dst,
        target_ip: target,
    };
    arp_message(link, repr)
}

fn arp_message(link: Link, repr: arp::Repr) -> Result<Message, WireError> {
    let mut message = Message::begin(link, EtherType::ARP)?;
    message.append(|bytes| repr.emit(bytes))?;
    Ok(message)
}

/// Returns a neighbour solicitation for `target`, to it alone or to its group.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn solicitation(link: Link, own: Ipv6Addr, target: Ipv6Addr, to_group: bool) -> Result<Message, WireError> {
    let repr = ndp::Repr {
        kind: ndp::Kind::NeighborSolicitation,
        flags: ndp::Flags::NONE,
        target,
        link_address: Some((ndp::OptionType::SOURCE_LINK_ADDRESS, link.src)),
    };
    nd_message(link, own, if to_group { solicited_node(target) } else { target }, repr)
}

/// Returns a probe for another station that has our address `own` (RFC 4862, 5.4.2). It names no
/// address of the sender.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn probe(link: Link, own: Ipv6Addr) -> Result<Message, WireError> {
    let repr =
        ndp::Repr { kind: ndp::Kind::NeighborSolicitation, flags: ndp::Flags::NONE, target: own, link_address: None };
    nd_message(link, Ipv6Addr::UNSPECIFIED, solicited_node(own), repr)
}

/// Returns a neighbour advertisement of the address `own`.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn advertisement(link: Link, own: Ipv6Addr, dst: Ipv6Addr, is_solicited: bool) -> Result<Message, WireError> {
    let flags = if is_solicited { ndp::Flags::SOLICITED } else { ndp::Flags::NONE };
    advertisement_with(link, own, dst, flags)
}

/// Returns a neighbour advertisement of the address `own`, with these flags and `OVERRIDE`.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn advertisement_with(link: Link, own: Ipv6Addr, dst: Ipv6Addr, flags: ndp::Flags) -> Result<Message, WireError> {
    let repr = ndp::Repr {
        kind: ndp::Kind::NeighborAdvertisement,
        flags: ndp::Flags::OVERRIDE.with(flags),
        target: own,
        link_address: Some((ndp::OptionType::TARGET_LINK_ADDRESS, link.src)),
    };
    nd_message(link, own, dst, repr)
}

fn nd_message(link: Link, src: Ipv6Addr, dst: Ipv6Addr, repr: ndp::Repr) -> Result<Message, WireError> {
    let mut bytes = [0; 64];
    let len = repr.emit(&mut bytes)?;
    let bytes = bytes.get_mut(..len).ok_or(WireError::BufferTooSmall)?;
    icmpv6::fill_checksum(bytes, src, dst)?;
    let mut message = Message::begin(link, EtherType::IPV6)?;
    let ip = ipv6::Repr { hop_limit: ND_HOP_LIMIT, ..v6(src, dst, IpProtocol::ICMPV6, len)? };
    message.append(|space| ip.emit(space))?;
    message.append_bytes(bytes)?;
    Ok(message)
}

/// Returns the IPv6 header of a packet with `len` bytes behind it.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, len: usize) -> Result<ipv6::Repr, WireError> {
    let payload_len = u16::try_from(len).map_err(|_| WireError::BadLength)?;
    Ok(ipv6::Repr { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit: HOP_LIMIT, src, dst })
}

/// Returns the IPv4 header of a packet with `len` bytes behind it, which must not be fragmented.
///
/// # Errors
/// [`WireError::BufferTooSmall`] if the message is longer than [`MOST`] bytes.
pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, len: usize) -> Result<ipv4::Repr, WireError> {
    Ok(ipv4::Repr {
        tos: 0,
        payload_len: u16::try_from(len).map_err(|_| WireError::BadLength)?,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: HOP_LIMIT,
        protocol,
        src,
        dst,
    })
}

/// Returns the group that a solicitation for this address is sent to (RFC 4291, 2.7.1).
#[must_use]
pub fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | ip.to_bits() & 0xff_ffff)
}

/// Returns the MAC address of an IPv6 group (RFC 2464, 7).
#[must_use]
pub fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// Returns the MAC address by which all stations are asked for `ip`.
#[must_use]
pub fn everybody(ip: IpAddr) -> MacAddr {
    match ip {
        IpAddr::V4(_) => MacAddr::BROADCAST,
        IpAddr::V6(ip) => group_mac(solicited_node(ip)),
    }
}
