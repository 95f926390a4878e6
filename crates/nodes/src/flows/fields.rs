//! Fields of packets, read and changed. Checksums stay right.
//!
//! A change of a header adjusts each checksum that covers it, by the words that differ (RFC 1624):
//!
//! | changed | IPv4 header checksum | transport checksum |
//! |---|---|---|
//! | addresses of IPv4 | adjusted | adjusted, as part of the pseudo header |
//! | addresses of IPv6 | | adjusted, unless a routing header names further hops |
//! | other fields of IPv4 | adjusted | |
//! | transport header | | adjusted |
//!
//! - **Partial checksums**: the field has the sum of the pseudo header. Addresses change that sum;
//!   the transport header is summed later. So it is with packets that are still to be segmented.
//! - **UDP without a checksum** stays so.
//! - **First fragments** have the checksum of the whole datagram, which changes with it. A first
//!   fragment that ends before the checksum is dropped. Later fragments have none.
//! - **SCTP** has a CRC over the whole packet, which is linear: only the number of the bytes behind the
//!   ports matters. A first fragment, whose datagram goes on elsewhere, is dropped.

use std::ops::Range;

use straightline_flow::{Field, Subfield};
use straightline_packet::{Checksum, PacketId, PacketVlan, Packets, Reason};
use straightline_wire::{EtherType, VlanId, checksum, crc32c};

use crate::bridge::{pop, push};
use crate::headers::{Headers, Network, TAG_PRESENT, Transport, VID};

/// Values of a packet that are not in its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Number of the port by which the packet came.
    pub(super) in_port: u16,
    pub(super) registers: [u32; 8],
    /// State of the packet's connection, as the last search for it has found; 0 before.
    pub(super) connection: u8,
    /// Zone of that search.
    pub(super) zone: u16,
}

impl Facts {
    /// Sets state and zone of the packet's connection.
    pub(super) fn set_connection(&mut self, state: u8, zone: u16) {
        self.connection = state;
        self.zone = zone;
    }
}

/// The part of a head that has a field.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    /// Bytes, at most 16.
    len: usize,
    /// Place of the field's lowest bit in these bytes, as a number in network order.
    shift: u8,
    cover: Cover,
}

/// The checksums that cover a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    None,
    /// That of the IPv4 header.
    Network,
    /// That of the IPv4 header, and the pseudo header.
    Ipv4Address,
    /// The pseudo header.
    Ipv6Address,
    /// That of the transport header.
    Transport,
}

/// Returns where a packet has a field in its bytes; `None` if it has none, or if the field is no
/// bytes.
fn place(headers: &Headers, field: Field) -> Option<Place> {
    let l3 = usize::from(headers.l3);
    let l4 = usize::from(headers.l4);
    let at = |at, len, cover| Some(Place { at, len, shift: 0, cover });
    let ports = matches!(headers.transport, Transport::Tcp | Transport::Udp | Transport::Sctp);
    let icmp = matches!(headers.transport, Transport::Icmp4 | Transport::Icmp6);
    let link_address = |which: usize| {
        let place = usize::from(headers.link_addresses[which]);
        if place == 0 { None } else { at(place, 6, Cover::Transport) }
    };
    match (field, headers.network) {
        (Field::EthDst, _) => at(0, 6, Cover::None),
        (Field::EthSrc, _) => at(6, 6, Cover::None),
        (Field::IpSrc, Network::Ipv4) => at(l3 + 12, 4, Cover::Ipv4Address),
        (Field::IpDst, Network::Ipv4) => at(l3 + 16, 4, Cover::Ipv4Address),
        (Field::IpTos, Network::Ipv4) => at(l3 + 1, 1, Cover::Network),
        (Field::IpTtl, Network::Ipv4) => at(l3 + 8, 1, Cover::Network),
        (Field::Ipv6Src, Network::Ipv6) => at(l3 + 8, 16, Cover::Ipv6Address),
        (Field::Ipv6Dst, Network::Ipv6) if headers.is_routed => at(l3 + 24, 16, Cover::None),
        (Field::Ipv6Dst, Network::Ipv6) => at(l3 + 24, 16, Cover::Ipv6Address),
        (Field::Ipv6Label, Network::Ipv6) => at(l3, 4, Cover::None),
        (Field::IpTos, Network::Ipv6) => Some(Place { at: l3, len: 2, shift: 4, cover: Cover::None }),
        (Field::IpTtl, Network::Ipv6) => at(l3 + 7, 1, Cover::None),
        (Field::ArpOp, Network::Arp) => at(l3 + 6, 2, Cover::None),
        (Field::ArpSha, Network::Arp) => at(l3 + 8, 6, Cover::None),
        (Field::ArpSpa, Network::Arp) => at(l3 + 14, 4, Cover::None),
        (Field::ArpTha, Network::Arp) => at(l3 + 18, 6, Cover::None),
        (Field::ArpTpa, Network::Arp) => at(l3 + 24, 4, Cover::None),
        (Field::TpSrc, _) if ports => at(l4, 2, Cover::Transport),
        (Field::TpDst, _) if ports => at(l4 + 2, 2, Cover::Transport),
        (Field::TcpFlags, _) if headers.transport == Transport::Tcp => at(l4 + 12, 2, Cover::Transport),
        (Field::IcmpType, _) if icmp => at(l4, 1, Cover::Transport),
        (Field::IcmpCode, _) if icmp => at(l4 + 1, 1, Cover::Transport),
        (Field::NdTarget, _) if headers.is_discovery => at(l4 + 8, 16, Cover::Transport),
        (Field::NdSll, _) => link_address(0),
        (Field::NdTll, _) => link_address(1),
        _ => None,
    }
}

/// Returns the number in some bytes of a head; 0 if it has not all of them.
#[inline]
fn number(head: &[u8], at: usize, len: usize) -> u128 {
    let bytes = head.get(at..at + len).unwrap_or_default();
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// A packet with what is known about it.
pub(super) struct View<'a, 't> {
    pub(super) packets: &'a mut Packets<'t>,
    pub(super) id: PacketId,
    pub(super) headers: &'a mut Headers,
    pub(super) facts: &'a mut Facts,
    /// VLANs are facts of packets, because the bridge has VLANs.
    pub(super) has_vlans: bool,
}

impl View<'_, '_> {
    /// Returns the packet's tag with [`TAG_PRESENT`]; 0 if it has none.
    pub(super) fn tag(&self) -> u16 {
        tag_of(self.packets, self.id, self.headers, self.has_vlans)
    }

    /// Returns the value of a whole field; 0 if the packet does not have it. First fragments have their
    /// ports here, as in OvS. Searches do not see them.
    pub(super) fn read(&self, field: Field) -> u128 {
        let headers = &*self.headers;
        if let Some(register) = Field::REGISTERS.iter().position(|&register| register == field) {
            return self.facts.registers[register].into();
        }
        match field {
            Field::ConjId => 0,
            Field::PktMark => self.packets.mark_of(self.id).into(),
            Field::CtState => self.facts.connection.into(),
            Field::CtZone => self.facts.zone.into(),
            Field::InPort => self.facts.in_port.into(),
            Field::VlanTci => self.tag().into(),
            Field::EthType => headers.ether_type.into(),
            Field::IpProto if matches!(headers.network, Network::Ipv4 | Network::Ipv6) => headers.protocol.into(),
            Field::ArpOp if headers.network == Network::Arp => headers.protocol.into(),
            Field::IpFrag => headers.fragment.into(),
            Field::IpTos => headers.tos.into(),
            Field::IpTtl => headers.ttl.into(),
            Field::Ipv6Label => headers.label.into(),
            field => place(headers, field).map_or(0, |place| {
                number(self.packets.head(self.id), place.at, place.len) >> place.shift & field.greatest()
            }),
        }
    }

    /// Returns the bits of a subfield of a whole field.
    pub(super) fn read_bits(&self, from: Subfield) -> u128 {
        from.of(self.read(from.field))
    }

    /// Sets bits of a whole field. A packet without the field stays as it is.
    ///
    /// # Errors
    /// The reason to drop the packet: it has, or may have, the field where it cannot be changed.
    pub(super) fn write(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Reason> {
        if let Some(register) = Field::REGISTERS.iter().position(|&register| register == field) {
            let own = &mut self.facts.registers[register];
            *own = narrow(u128::from(*own) & !mask | value & mask);
            return Ok(());
        }
        match field {
            Field::InPort => {
                self.facts.in_port = narrow::<u16>(u128::from(self.facts.in_port) & !mask | value & mask);
                Ok(())
            }
            Field::PktMark => {
                let mark = u128::from(self.packets.mark_of(self.id)) & !mask | value & mask;
                self.packets.set_mark(self.id, narrow(mark));
                Ok(())
            }
            Field::VlanTci => self.write_tag(narrow(value), narrow(mask)),
            field => self.write_bytes(field, value, mask),
        }
    }

    fn write_bytes(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Reason> {
        let Some(place) = place(self.headers, field) else {
            // It may be behind the head.
            return if self.headers.is_cut { Err(Reason::FlowHeaders) } else { Ok(()) };
        };
        let Place { at, len, shift, cover } = place;
        let head = self.packets.head(self.id);
        if head.len() < at + len {
            return Err(Reason::FlowHeaders);
        }
        let before = number(head, at, len);
        let after = before & !(mask << shift) | (value & mask) << shift;
        if before == after {
            // A field behind which a chain of extension headers is broken was not parsed. Now it is known.
            if !matches!(field, Field::IcmpType | Field::IcmpCode) {
                self.note(field, narrow(after >> shift & field.greatest()));
            }
            return Ok(());
        }
        let is_address = matches!(cover, Cover::Ipv4Address | Cover::Ipv6Address);
        if is_address && (self.headers.is_split || self.headers.is_cut)
            || cover == Cover::Transport && self.headers.transport == Transport::Sctp && self.headers.fragment != 0
        {
            return Err(Reason::FlowHeaders);
        }
        let words = self.words(&place);
        let old = self.packets.sum_head(self.id, words.clone());
        let bytes = after.to_be_bytes();
        self.packets.head_mut(self.id)[at..at + len].copy_from_slice(&bytes[16 - len..]);
        let new = self.packets.sum_head(self.id, words);
        self.note(field, narrow(after >> shift & field.greatest()));
        if matches!(cover, Cover::Network | Cover::Ipv4Address) {
            self.adjust(usize::from(self.headers.l3) + 10, |sum| checksum::replace(sum, old, new));
        }
        match cover {
            Cover::Ipv4Address | Cover::Ipv6Address => self.adjust_transport(old, new, true),
            Cover::Transport if self.headers.transport == Transport::Sctp => {
                let difference = (before ^ after).to_be_bytes();
                self.adjust_sctp(&difference[16 - len..], at + len);
            }
            Cover::Transport => self.adjust_transport(old, new, false),
            Cover::None | Cover::Network => {}
        }
        Ok(())
    }

    /// Returns the bytes of the words that have a field: words count from the begin of the header that a
    /// checksum covers.
    fn words(&self, place: &Place) -> Range<usize> {
        let base: usize = match place.cover {
            Cover::None => return 0..0,
            Cover::Transport => self.headers.l4.into(),
            Cover::Network | Cover::Ipv4Address | Cover::Ipv6Address => self.headers.l3.into(),
        };
        let begin = place.at - base;
        base + begin / 2 * 2..base + (begin + place.len).next_multiple_of(2)
    }

    /// Notes a changed field in the parsed headers.
    fn note(&mut self, field: Field, value: u32) {
        let [.., byte] = value.to_be_bytes();
        match field {
            Field::IpTos => self.headers.tos = byte,
            Field::IpTtl => self.headers.ttl = byte,
            Field::Ipv6Label => self.headers.label = value,
            // Values above 255 are 0.
            Field::ArpOp => self.headers.protocol = u8::try_from(value).unwrap_or(0),
            // The message may have other fields now.
            Field::IcmpType | Field::IcmpCode => self.parse(),
            _ => {}
        }
    }

    /// Adjusts the transport checksum, if there is one, for words that have changed: in the pseudo
    /// header, or behind it.
    fn adjust_transport(&mut self, old: u16, new: u16, in_pseudo_header: bool) {
        let l4 = usize::from(self.headers.l4);
        let (at, has_pseudo_header) = match self.headers.transport {
            Transport::Tcp | Transport::DamagedTcp => (l4 + 16, true),
            Transport::Udp => (l4 + 6, true),
            Transport::Icmp6 => (l4 + 2, true),
            Transport::Icmp4 => (l4 + 2, false),
            Transport::None | Transport::Sctp => return,
        };
        if in_pseudo_header && !has_pseudo_header {
            return;
        }
        if let Checksum::Partial { start, offset } = self.packets.checksum(self.id)
            && usize::from(start) == l4
            && l4 + usize::from(offset) == at
        {
            if in_pseudo_header {
                self.adjust(at, |sum| checksum::add(checksum::add(sum, !old), new));
            }
            return;
        }
        let is_udp = self.headers.transport == Transport::Udp;
        self.adjust(at, |sum| match checksum::replace(sum, old, new) {
            // No checksum (RFC 768).
            _ if is_udp && sum == 0 => 0,
            0 if is_udp => 0xffff,
            adjusted => adjusted,
        });
    }

    /// Adjusts the checksum of SCTP for changed bits that end at `end`.
    fn adjust_sctp(&mut self, difference: &[u8], end: usize) {
        let behind = usize::from(self.headers.end).saturating_sub(end);
        let at = usize::from(self.headers.l4) + 8;
        if let Some(bytes) = self.packets.head_mut(self.id).get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *bytes = crc32c::changed(u32::from_le_bytes(*bytes), difference, behind).to_le_bytes();
        }
    }

    fn adjust(&mut self, at: usize, adjust: impl FnOnce(u16) -> u16) {
        if let Some(bytes) = self.packets.head_mut(self.id).get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *bytes = adjust(u16::from_be_bytes(*bytes)).to_be_bytes();
        }
    }

    /// Parses the headers again.
    pub(super) fn parse(&mut self) {
        *self.headers = Headers::of(self.packets, self.id);
    }

    /// Parses the headers again where a tag has come or gone. A broken chain of extension headers has no
    /// values but those that actions have set.
    fn parse_behind_tags(&mut self) {
        let Headers { tos, ttl, label, is_broken, .. } = *self.headers;
        self.parse();
        if is_broken && self.headers.is_broken {
            (self.headers.tos, self.headers.ttl, self.headers.label) = (tos, ttl, label);
        }
    }

    /// Subtracts 1 from the time to live. As in OvS, it is 0 in a damaged header.
    ///
    /// # Errors
    /// It has run out.
    pub(super) fn decrement_ttl(&mut self) -> Result<(), Reason> {
        if !matches!(EtherType(self.headers.ether_type), EtherType::IPV4 | EtherType::IPV6) {
            return Ok(());
        }
        if self.headers.ttl <= 1 {
            return Err(Reason::FlowTtl);
        }
        self.write(Field::IpTtl, u128::from(self.headers.ttl) - 1, 0xff)
    }

    /// Sets bits of the tag: see [`Action::SetField`](straightline_flow::Action::SetField).
    fn write_tag(&mut self, value: u16, mask: u16) -> Result<(), Reason> {
        let tag = self.tag();
        let after = tag & !mask | value & mask;
        // A tag that stays the same keeps its drop eligible indicator.
        if tag & TAG_PRESENT == 0 && mask & TAG_PRESENT == 0 || after == tag {
            return Ok(());
        }
        if after & TAG_PRESENT == 0 {
            return self.strip_tag();
        }
        if self.has_vlans {
            let before = self.packets.vlan(self.id);
            let id = VlanId::new(after & 0xfff).or(before.map(|vlan| vlan.id));
            let [pcp, _] = (after >> 5).to_be_bytes();
            let vlan = id.map(|id| PacketVlan { id, pcp, dei: false });
            self.packets.set_vlan(self.id, vlan);
            return Ok(());
        }
        if tag & TAG_PRESENT == 0 {
            self.push(EtherType::VLAN.0)?;
        }
        let [high, low] = (after & !TAG_PRESENT).to_be_bytes();
        if let Some(tag) = self.packets.head_mut(self.id).get_mut(14..16) {
            tag.copy_from_slice(&[high, low]);
        }
        let before = std::mem::replace(&mut self.headers.tag, after);
        // A priority tag is stepped over, and a tag of a VLAN is not.
        if (before & VID == 0) != (after & VID == 0) {
            self.parse_behind_tags();
        }
        Ok(())
    }

    /// Puts a tag before all others. In a bridge with VLANs, the tags of its ports follow from the VLAN
    /// of the packet.
    pub(super) fn push_tag(&mut self, tpid: u16) -> Result<(), Reason> {
        if self.has_vlans { Ok(()) } else { self.push(tpid) }
    }

    fn push(&mut self, tpid: u16) -> Result<(), Reason> {
        let [high, low] = tpid.to_be_bytes();
        push(self.packets, self.id, [high, low, 0, 0])?;
        self.parse_behind_tags();
        Ok(())
    }

    /// Removes the first tag, if there is one. In a bridge with VLANs, the tags of its ports follow from
    /// the VLAN of the packet.
    pub(super) fn strip_tag(&mut self) -> Result<(), Reason> {
        if self.has_vlans || self.headers.tag == 0 {
            return Ok(());
        }
        pop(self.packets, self.id, 1)?;
        self.parse_behind_tags();
        Ok(())
    }
}

/// Returns the tag of a packet with [`TAG_PRESENT`]; 0 if it has none.
#[inline]
pub(super) fn tag_of(packets: &Packets<'_>, id: PacketId, headers: &Headers, has_vlans: bool) -> u16 {
    if !has_vlans {
        return headers.tag;
    }
    packets.vlan(id).map_or(0, |vlan| u16::from(vlan.pcp) << 13 | TAG_PRESENT | vlan.id.get())
}

/// Returns a number whose upper bits are 0.
fn narrow<T: TryFrom<u128> + Default>(value: u128) -> T {
    T::try_from(value).unwrap_or_default()
}
