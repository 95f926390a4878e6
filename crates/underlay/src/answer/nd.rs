//! Neighbour discovery (RFC 4861): solicitations are answered, advertisements are taken.

use std::net::{IpAddr, Ipv6Addr};

use straightline_packet::{PacketId, Packets, Reason};
use straightline_wire::{MacAddr, ndp};

use super::{Answered, Ip, Received, not_ours};
use crate::Underlay;
use crate::underlay::neighbours::is_station;
use straightline_wire::messages::{self, ALL_NODES, ND_HOP_LIMIT};

impl Underlay {
    /// Answers a solicitation for one of our addresses. The message's checksum is right.
    pub(super) fn answer_solicitation(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let (target, mac) = read(packets, id, ip, ndp::OptionType::SOURCE_LINK_ADDRESS)?;
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return Err(Reason::NotOurs) };
        let is_probe = src.is_unspecified();
        if !is_probe {
            self.neighbours.announced(ip.src, mac.unwrap_or(received.from));
        }
        // The destination is the target or its group (RFC 4861, 7.1.1). A probe for a duplicate
        // goes to the group, and names no address.
        let to_group = dst == messages::solicited_node(target);
        if !self.is_own(target.into()) || !(dst == target || to_group) {
            return Err(Reason::NotOurs);
        }
        if is_probe && (!to_group || mac.is_some()) {
            return Err(Reason::NotOurs);
        }
        let (dst, to) =
            if is_probe { (ALL_NODES, messages::group_mac(ALL_NODES)) } else { (src, mac.unwrap_or(received.from)) };
        let reply = messages::advertisement(self.link(received, to), target, dst, !is_probe);
        self.reply(packets, id, reply, (&self.answers, self.sender(received.from)))
    }

    /// Takes an advertisement. The message's checksum is right.
    pub(super) fn take_advertisement(
        &self,
        packets: &Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let (target, mac) = read(packets, id, ip, ndp::OptionType::TARGET_LINK_ADDRESS)?;
        let header = ndp::Header::new_checked(&packets.head(id)[ip.l4..]).map_err(not_ours)?;
        let is_solicited = header.flags().contains(ndp::Flags::SOLICITED);
        if self.is_own(target.into()) {
            // No advertisement to a group answers a question (RFC 4861, 7.1.2).
            if ip.is_for_us || !is_solicited {
                self.note_claim(target.into(), mac.unwrap_or(received.from), packets.now());
            }
            return Err(Reason::NotOurs);
        }
        if self.is_own(ip.src) {
            return Err(Reason::NotOurs);
        }
        if is_solicited && ip.is_for_us {
            return self.take_answer(target.into(), mac, received.from);
        }
        self.neighbours.announced(target.into(), mac.unwrap_or(received.from));
        Err(Reason::NotOurs)
    }

    /// Takes a solicitation from an address of ours: its sender has the address too. The message's
    /// checksum is right.
    pub(super) fn take_claim(
        &self,
        packets: &Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let (_, mac) = read(packets, id, ip, ndp::OptionType::SOURCE_LINK_ADDRESS)?;
        self.note_claim(ip.src, mac.unwrap_or(received.from), packets.now());
        Err(Reason::NotOurs)
    }
}

/// Reads the target of a message, and the MAC address that an option of this type announces. All
/// of the message lies in the head, else it is not valid.
fn read(
    packets: &Packets<'_>,
    id: PacketId,
    ip: Ip,
    link_address: ndp::OptionType,
) -> Result<(Ipv6Addr, Option<MacAddr>), Reason> {
    // The code is 0 (RFC 4861, 7.1). No router has forwarded the message.
    let bytes = packets.head(id).get(ip.l4..ip.l4 + usize::from(ip.len));
    let bytes = bytes.filter(|bytes| bytes.get(1) == Some(&0)).ok_or(Reason::NotOurs)?;
    if ip.hop_limit != ND_HOP_LIMIT {
        return Err(Reason::NotOurs);
    }
    let header = ndp::Header::new_checked(bytes).map_err(not_ours)?;
    let target = header.target().filter(|target| !target.is_multicast()).ok_or(Reason::NotOurs)?;
    let mut mac = None;
    for option in header.options(bytes.len()) {
        let option = option.map_err(not_ours)?;
        if option.option_type == link_address {
            let announced = option.link_address().map_err(not_ours)?;
            mac = Some(announced.filter(|&mac| is_station(mac)).ok_or(Reason::NotOurs)?);
        }
    }
    Ok((target, mac))
}
