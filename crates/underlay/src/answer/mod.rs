//! Answers to packets for the underlay itself: ARP, neighbour discovery, echo, ICMP errors.
//!
//! A packet becomes its own answer in place and goes back to the station that sent it, so nothing
//! is looked up and no slot is taken. Everything here is off the path of tunnels' packets.

pub(crate) mod echo;

mod gtpu;
mod icmp;
mod nd;

use std::net::{IpAddr, Ipv4Addr};

use az::SaturatingAs;
use straightline_graph::SharedLimit;
use straightline_packet::{Checksum, Offload, PacketId, Packets, Reason};
use straightline_wire::{EtherType, IpProtocol, MacAddr, WireError, arp, checksum, ethernet, ipv4, ipv6, vlan};

use crate::Underlay;
use crate::underlay::neighbours::is_station;
use straightline_wire::messages::{self, Link, Message};

/// The end of a packet for the underlay itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The packet is the answer now: it goes back to the underlay.
    Reply,
    /// The underlay has used the packet, and it goes nowhere.
    Used,
    /// The packet is dropped.
    Drop(Reason),
}

/// The Ethernet header of a received packet, and the place of its IP header.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// Our MAC address.
    own: MacAddr,
    /// The station that has sent the packet.
    from: MacAddr,
    /// True if the packet was sent to our MAC address, and not to a group.
    is_unicast: bool,
    l3: usize,
}

/// The IP header of a received packet without options and extension headers.
#[derive(Clone, Copy, Debug)]
struct Ip {
    src: IpAddr,
    dst: IpAddr,
    hop_limit: u8,
    protocol: IpProtocol,
    /// True if the packet was sent to one of our addresses, and not to a group.
    is_for_us: bool,
    /// The place of the transport header.
    l4: usize,
    /// Bytes from the transport header to the end.
    len: u16,
}

impl Ip {
    /// Returns the sum of the pseudo-header.
    fn pseudo_sum(&self) -> u16 {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_header_v4(src, dst, self.protocol, self.len),
            (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_header_v6(src, dst, self.protocol, self.len.into()),
            _ => 0,
        }
    }

    /// Removes bytes behind the packet, which are padding. Checks the checksum of the message, whose
    /// field is at `field`, with `pseudo` added. A sender in this machine may have left it to be
    /// finished.
    fn check(&self, packets: &mut Packets<'_>, id: PacketId, field: usize, pseudo: u16) -> Result<(), Reason> {
        let end = self.l4 + usize::from(self.len);
        if !packets.truncate(id, end.saturating_as::<u32>()) {
            return Err(Reason::NotOurs);
        }
        let is_right = match packets.offload(id).checksum {
            Checksum::Verified => true,
            Checksum::Partial { start, offset } => usize::from(start) == self.l4 && usize::from(offset) == field,
            Checksum::Complete => checksum::add(packets.sum_from(id, self.l4), pseudo) == 0xffff,
        };
        if is_right { Ok(()) } else { Err(Reason::TunnelChecksum) }
    }
}

impl Underlay {
    /// Answers a packet that no tunnel takes, in place.
    pub(crate) fn answer(&self, packets: &mut Packets<'_>, id: PacketId) -> Answered {
        self.try_answer(packets, id).unwrap_or_else(Answered::Drop)
    }

    fn try_answer(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<Answered, Reason> {
        if packets.offload(id).gso.is_some() {
            return Err(Reason::NotOurs);
        }
        let (received, ether_type) = self.ethernet(packets.head(id))?;
        match ether_type {
            EtherType::ARP => self.answer_arp(packets, id, received),
            EtherType::IPV4 => self.answer_v4(packets, id, received),
            EtherType::IPV6 => self.answer_v6(packets, id, received),
            _ => Err(Reason::NotOurs),
        }
    }

    /// Reads the Ethernet header and the tag. The underlay has one VLAN or none.
    fn ethernet(&self, head: &[u8]) -> Result<(Received, EtherType), Reason> {
        let own = self.mac().ok_or(Reason::NotOurs)?;
        let header = ethernet::Header::new_checked(head).map_err(not_ours)?;
        let from = header.src();
        let dst = header.dst();
        if !is_station(from) || from == own || (dst.is_unicast() && dst != own) {
            return Err(Reason::NotOurs);
        }
        let tags = vlan::skip(head).map_err(not_ours)?;
        let vid = match tags.tags {
            [None, None] => None,
            [Some(tag), None] if tag.tpid == EtherType::VLAN => Some(tag.vid),
            _ => return Err(Reason::NotOurs),
        };
        if vid != self.config.vlan {
            return Err(Reason::NotOurs);
        }
        Ok((Received { own, from, is_unicast: dst == own, l3: tags.payload }, tags.ether_type))
    }

    fn answer_arp(&self, packets: &mut Packets<'_>, id: PacketId, received: Received) -> Result<Answered, Reason> {
        let header = arp::Header::new_checked(&packets.head(id)[received.l3..]).map_err(not_ours)?;
        if header.hardware_type() != arp::ETHERNET || header.protocol_type() != EtherType::IPV4 {
            return Err(Reason::NotOurs);
        }
        let message = arp::Repr::parse(&header);
        let arp::Repr { sender_mac, sender_ip, target_ip, .. } = message;
        if !is_station(sender_mac) || sender_mac == received.own {
            return Err(Reason::NotOurs);
        }
        // A station that claims our own address gets no answer, and is not believed.
        if self.is_own(sender_ip.into()) {
            if matches!(message.operation, arp::Operation::REQUEST | arp::Operation::REPLY) {
                self.note_claim(sender_ip.into(), sender_mac, packets.now());
            }
            return Err(Reason::NotOurs);
        }
        let is_for_us = self.is_own(target_ip.into());
        match message.operation {
            arp::Operation::REPLY if is_for_us && received.is_unicast && message.target_mac == received.own => {
                self.take_answer(sender_ip.into(), Some(sender_mac), received.from)
            }
            arp::Operation::REQUEST if is_for_us => {
                self.neighbours.announced(sender_ip.into(), sender_mac);
                let reply = messages::arp_reply(self.link(received, sender_mac), target_ip, sender_ip);
                self.reply(packets, id, reply, (&self.answers, self.sender(received.from)))
            }
            arp::Operation::REQUEST | arp::Operation::REPLY => {
                self.neighbours.announced(sender_ip.into(), sender_mac);
                Err(Reason::NotOurs)
            }
            _ => Err(Reason::NotOurs),
        }
    }

    fn answer_v4(&self, packets: &mut Packets<'_>, id: PacketId, received: Received) -> Result<Answered, Reason> {
        let header = ipv4::Header::new_checked(&packets.head(id)[received.l3..]).map_err(not_ours)?;
        let src = header.src();
        let dst = header.dst();
        let protocol = header.protocol();
        let is_for_us = received.is_unicast && self.is_own(dst.into());
        if !is_for_us || !self.is_host(src) || self.is_own(src.into()) {
            return Err(Reason::NotOurs);
        }
        if !header.checksum_ok() {
            return Err(Reason::TunnelChecksum);
        }
        if header.is_fragment() {
            return Err(Reason::Fragment);
        }
        // Options are for routers; a packet with a route of its own gets no answer.
        let end = received.l3 + usize::from(header.total_len());
        if header.header_len() != ipv4::MIN_LEN || end > packets.len(id) as usize {
            return Err(Reason::NotOurs);
        }
        let l4 = received.l3 + ipv4::MIN_LEN;
        let len = header.total_len() - 20;
        let hop_limit = header.ttl();
        let ip = Ip { src: src.into(), dst: dst.into(), hop_limit, protocol, is_for_us, l4, len };
        match protocol {
            IpProtocol::ICMP => self.answer_icmp(packets, id, received, ip),
            IpProtocol::UDP => self.answer_gtpu(packets, id, received, ip),
            _ => Err(Reason::NotOurs),
        }
    }

    fn answer_v6(&self, packets: &mut Packets<'_>, id: PacketId, received: Received) -> Result<Answered, Reason> {
        let head = packets.head(id);
        let header = ipv6::Header::new_checked(&head[received.l3..]).map_err(not_ours)?;
        let src = header.src();
        let dst = header.dst();
        let is_for_us = received.is_unicast && self.is_own(dst.into());
        if !(is_for_us || dst.is_multicast()) || src.is_multicast() || src.is_loopback() {
            return Err(Reason::NotOurs);
        }
        let l4 = received.l3 + ipv6::LEN;
        let extensions = ipv6::skip_extensions(&head[l4..], header.next_header()).map_err(not_ours)?;
        if extensions.fragment && is_for_us {
            return Err(Reason::Fragment);
        }
        let len = header.payload_len();
        let hop_limit = header.hop_limit();
        let protocol = extensions.protocol;
        if extensions.len > 0 || l4 + usize::from(len) > packets.len(id) as usize {
            return Err(Reason::NotOurs);
        }
        let ip = Ip { src: src.into(), dst: dst.into(), hop_limit, protocol, is_for_us, l4, len };
        match protocol {
            // Only neighbour discovery may say that another station has our address.
            _ if protocol != IpProtocol::ICMPV6 && self.is_own(ip.src) => Err(Reason::NotOurs),
            IpProtocol::ICMPV6 => self.answer_icmpv6(packets, id, received, ip),
            IpProtocol::UDP if is_for_us && !src.is_unspecified() => self.answer_gtpu(packets, id, received, ip),
            _ => Err(Reason::NotOurs),
        }
    }

    /// Takes an answer to one of our questions, and sends the packet that was kept for it.
    fn take_answer(&self, ip: IpAddr, mac: Option<MacAddr>, from: MacAddr) -> Result<Answered, Reason> {
        match self.neighbours.answered(ip, mac, from) {
            // The answer is counted for the packet that is lost.
            Some(kept) if !self.outbox.push(kept.bytes()) => Err(Reason::NoNeighbour),
            _ => Ok(Answered::Used),
        }
    }

    fn link(&self, received: Received, dst: MacAddr) -> Link {
        Link { src: received.own, dst, vlan: self.config.vlan }
    }

    /// Returns whether a single host may have this address (RFC 1122, 3.2.1.3). The first and the
    /// last address of our networks mean all stations there, unless the network has only two.
    pub(crate) fn is_host(&self, ip: Ipv4Addr) -> bool {
        let means_all =
            self.config.addresses.iter().filter(|own| own.prefix < 31 && own.contains(ip.into())).any(|own| {
                let host = u32::MAX.checked_shr(own.prefix.into()).unwrap_or(0);
                ip.to_bits() & host == 0 || ip.to_bits() & host == host
            });
        !(ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback() || means_all)
    }

    /// Replaces the whole packet by an answer, within the limit of its sender.
    fn reply(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        message: Result<Message, WireError>,
        limit: (&SharedLimit, u64),
    ) -> Result<Answered, Reason> {
        let message = message.map_err(not_ours)?;
        take(limit, packets.now())?;
        packets.set_offload(id, Offload::default());
        // A question is short. One that fills more than a slot is no question.
        packets.strip(id, packets.len(id) as usize).map_err(not_ours)?;
        packets.prepend(id, message.bytes()).map_err(not_ours)?;
        Ok(Answered::Reply)
    }
}

/// Counts an answer to this sender.
fn take((limit, sender): (&SharedLimit, u64), now: u32) -> Result<(), Reason> {
    if limit.take(sender, now) { Ok(()) } else { Err(Reason::AnswerLimit) }
}

/// Returns the reason of a packet that is not valid, or not for us.
fn not_ours<E>(_: E) -> Reason {
    Reason::NotOurs
}

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod smoltcp_tests;
#[cfg(test)]
mod tests;
