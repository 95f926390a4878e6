//! The headers of a packet as rules see them: those that OvS's `flow_extract` finds.
//!
//! A header that is not whole does not exist, and its fields are 0. Lengths in headers are compared
//! with the packet's length, as OvS does: an IPv4 packet that claims to be longer than its frame has
//! no fields of IP. One VLAN tag is a tag; a frame with two has the type of the second tag. In contrast
//! to OvS, several priority tags (VID 0) are stepped over.
//!
//! Only the head is read. [`Headers::is_cut`] says that a header may lie behind it.

use straightline_packet::{PacketId, Packets};
use straightline_wire::{EtherType, IpProtocol, WireError, ethernet, vlan};

/// Type of frames that have a length in place of a type, and no SNAP header that says one.
const NO_TYPE: u16 = 0x05ff;
/// Least value that is a type and no length.
const LEAST_TYPE: u16 = 0x0600;
/// An LLC header of SNAP with the organisation 0: a type follows (IEEE 802, 10.3).
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];

/// Bit of a tag that says that there is one, in place of the drop eligible indicator.
pub(crate) const TAG_PRESENT: u16 = 0x1000;

/// Bits of a tag that are its VID.
pub(crate) const VID: u16 = 0x0fff;

/// Bit of each fragment.
pub(crate) const ANY_FRAGMENT: u8 = 1;
/// Bit of each fragment but the first.
pub(crate) const LATER_FRAGMENT: u8 = 2;

/// Extension headers of IPv6 (RFC 8200, 4.1; RFC 4302).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

const SCTP: u8 = 132;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// The network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Network {
    #[default]
    None,
    Ipv4,
    Ipv6,
    /// ARP or RARP for Ethernet and IPv4.
    Arp,
}

/// The transport header. Later fragments have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    #[default]
    None,
    Tcp,
    /// TCP whose header has a length that is not possible. As in OvS, it has no fields, but its checksum
    /// follows the addresses.
    DamagedTcp,
    Udp,
    Sctp,
    Icmp4,
    Icmp6,
}

/// The headers of a packet: what they are, and their places in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// The first tag of the frame with [`TAG_PRESENT`]; 0 if there is none.
    pub(crate) tag: u16,
    /// The number of tags before the type.
    pub(crate) tags: u8,
    /// There are more priority tags than receivers agree on, so nothing is known of what is behind them.
    pub(crate) is_hidden: bool,
    pub(crate) ether_type: u16,
    pub(crate) network: Network,
    /// Offset of the network header, if there is one.
    pub(crate) l3: u16,
    /// IP protocol, or operation of ARP.
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) label: u32,
    /// Bits: [`ANY_FRAGMENT`], [`LATER_FRAGMENT`].
    pub(crate) fragment: u8,
    pub(crate) transport: Transport,
    /// Offset of the transport header, if there is one.
    pub(crate) l4: u16,
    /// Offset of the end of the transport part, if there is a transport header.
    pub(crate) end: u16,
    /// A neighbour solicitation or advertisement with its target.
    pub(crate) is_discovery: bool,
    /// Offsets of the source and the target link-layer address of neighbour discovery; 0 for none.
    pub(crate) link_addresses: [u16; 2],
    /// A routing header names further hops, so the checksum is for another destination address.
    pub(crate) is_routed: bool,
    /// The head ends before a header does that the packet may have.
    pub(crate) is_cut: bool,
    /// The chain of extension headers does not end in the packet.
    pub(crate) is_broken: bool,
    /// First fragment without its whole transport header: the checksum cannot be changed.
    pub(crate) is_split: bool,
}

impl Headers {
    /// Parses the headers of a packet. Bytes are pulled up from its body if headers lie there.
    pub(crate) fn of(packets: &mut Packets<'_>, id: PacketId) -> Self {
        let len = packets.len(id);
        let headers = Headers::parse(packets.head(id), len);
        let most = (len as usize).min(packets.max_head(id));
        if headers.is_cut && most > packets.head(id).len() && packets.pull_up(id, most) {
            return Headers::parse(packets.head(id), len);
        }
        headers
    }

    /// Parses the headers of a frame of `len` bytes that begins with `head`.
    pub(crate) fn parse(head: &[u8], len: u32) -> Self {
        let mut headers = Headers::default();
        let mut reader = Reader { head, at: 12, end: len as usize, is_cut: false };
        headers.link(&mut reader);
        headers.is_cut = reader.is_cut;
        headers
    }

    fn link(&mut self, reader: &mut Reader<'_>) {
        let Some(mut ether_type) = reader.word(0) else { return };
        if EtherType(ether_type).is_vlan()
            && let (Some(tag), Some(inner)) = (reader.word(2), reader.word(4))
        {
            self.tag = tag | TAG_PRESENT;
            self.tags = 1;
            ether_type = inner;
            reader.at += 4;
            if tag & VID == 0 && EtherType(inner).is_vlan() {
                ether_type = self.priority_tags(reader).unwrap_or(inner);
            }
        }
        reader.at += 2;
        if ether_type < LEAST_TYPE {
            ether_type = NO_TYPE;
            if let Some(snap) = reader.get::<8>(0)
                && snap[..6] == SNAP
                && u16::from_be_bytes([snap[6], snap[7]]) >= LEAST_TYPE
            {
                ether_type = u16::from_be_bytes([snap[6], snap[7]]);
                reader.at += 8;
            }
        }
        self.ether_type = ether_type;
        let Ok(l3) = u16::try_from(reader.at) else { return };
        self.l3 = l3;
        match EtherType(ether_type) {
            EtherType::IPV4 => self.ipv4(reader),
            EtherType::IPV6 => self.ipv6(reader),
            EtherType::ARP | EtherType::RARP => self.arp(reader),
            _ => {}
        }
    }

    /// Steps over further priority tags. Returns the type behind them, if it is known.
    #[cold]
    fn priority_tags(&mut self, reader: &mut Reader<'_>) -> Option<u16> {
        match vlan::skip_priority(reader.head) {
            Ok((ether_type, payload)) => {
                reader.at = payload - 2;
                self.tags = u8::try_from((payload - ethernet::LEN) / vlan::LEN).ok()?;
                return Some(ether_type.0);
            }
            Err(WireError::TooManyTags) => self.is_hidden = true,
            // The rest of them may lie behind the head.
            Err(_) => reader.is_cut |= reader.head.len() < reader.end,
        }
        None
    }

    fn arp(&mut self, reader: &mut Reader<'_>) {
        let Some(front) = reader.get::<28>(0) else { return };
        // Ethernet and IPv4 (RFC 826).
        if front[..6] == [0, 1, 8, 0, 6, 4] {
            self.network = Network::Arp;
            self.protocol = if front[6] == 0 { front[7] } else { 0 };
        }
    }

    fn ipv4(&mut self, reader: &mut Reader<'_>) {
        let Some(front) = reader.get::<20>(0) else { return };
        let header = usize::from(front[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([front[2], front[3]]));
        let size = reader.left();
        if header < 20 || header > size || total > size || total < header {
            return;
        }
        self.network = Network::Ipv4;
        self.protocol = front[9];
        self.tos = front[1];
        self.ttl = front[8];
        let flags = u16::from_be_bytes([front[6], front[7]]);
        if flags & 0x3fff != 0 {
            self.fragment = if flags & 0x1fff == 0 { ANY_FRAGMENT } else { ANY_FRAGMENT | LATER_FRAGMENT };
        }
        reader.end = reader.at + total;
        reader.at += header;
        self.transport(reader);
    }

    fn ipv6(&mut self, reader: &mut Reader<'_>) {
        let Some(front) = reader.get::<40>(0) else { return };
        let payload = usize::from(u16::from_be_bytes([front[4], front[5]]));
        if payload + 40 > reader.left() {
            return;
        }
        self.network = Network::Ipv6;
        reader.end = reader.at + 40 + payload;
        reader.at += 40;
        let Some(protocol) = self.extensions(reader, front[6]) else {
            self.is_broken = true;
            return;
        };
        self.protocol = protocol;
        self.tos = front[0] << 4 | front[1] >> 4;
        self.ttl = front[7];
        self.label = u32::from_be_bytes([0, front[1] & 0x0f, front[2], front[3]]);
        self.transport(reader);
    }

    /// Skips extension headers. Returns the protocol behind them; `None` if one is not whole.
    fn extensions(&mut self, reader: &mut Reader<'_>, first: u8) -> Option<u8> {
        let mut protocol = first;
        loop {
            let len = match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => 8 * (usize::from(reader.get::<8>(0)?[1]) + 1),
                AUTHENTICATION => 4 * (usize::from(reader.get::<8>(0)?[1]) + 2),
                FRAGMENT => 8,
                _ => return Some(protocol),
            };
            let front = reader.get::<8>(0)?;
            if len > reader.left() {
                return None;
            }
            if protocol == ROUTING && front[3] > 0 {
                self.is_routed = true;
            }
            if protocol == FRAGMENT {
                let place = u16::from_be_bytes([front[2], front[3]]);
                if place & 0xfff8 != 0 {
                    self.fragment = ANY_FRAGMENT | LATER_FRAGMENT;
                    return Some(FRAGMENT);
                }
                if place != 0 {
                    self.fragment = ANY_FRAGMENT;
                }
            }
            protocol = front[0];
            reader.at += len;
        }
    }

    fn transport(&mut self, reader: &mut Reader<'_>) {
        if self.fragment & LATER_FRAGMENT != 0 {
            return;
        }
        let is_v4 = self.network == Network::Ipv4;
        let (kind, least) = match self.protocol {
            protocol if protocol == IpProtocol::TCP.0 => (Transport::Tcp, 20),
            protocol if protocol == IpProtocol::UDP.0 => (Transport::Udp, 8),
            SCTP => (Transport::Sctp, 12),
            protocol if protocol == IpProtocol::ICMP.0 && is_v4 => (Transport::Icmp4, 8),
            protocol if protocol == IpProtocol::ICMPV6.0 && !is_v4 => (Transport::Icmp6, 8),
            _ => return,
        };
        if reader.left() < least {
            self.is_split = self.fragment != 0;
            return;
        }
        if !reader.has(least) {
            return;
        }
        let Ok(l4) = u16::try_from(reader.at) else { return };
        self.transport = kind;
        if kind == Transport::Tcp {
            let len = reader.get::<1>(12).map_or(0, |[offset]| usize::from(offset >> 4) * 4);
            if len < least || len > reader.left() {
                self.transport = Transport::DamagedTcp;
            }
        }
        self.l4 = l4;
        self.end = u16::try_from(reader.end).unwrap_or(u16::MAX);
        if kind == Transport::Icmp6 {
            self.discovery(reader);
        }
    }

    /// Finds the addresses of neighbour discovery (RFC 4861, 4.3, 4.4 and 4.6). A second option of a
    /// kind makes the message invalid.
    fn discovery(&mut self, reader: &mut Reader<'_>) {
        let Some([NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT, 0]) = reader.get(0) else { return };
        if !reader.has(24) {
            return;
        }
        self.is_discovery = true;
        reader.at += 24;
        while let Some([kind, eights]) = reader.get::<8>(0).map(|option| [option[0], option[1]]) {
            let len = usize::from(eights) * 8;
            if len == 0 || len > reader.left() {
                return;
            }
            if let (SOURCE_LINK_ADDRESS | TARGET_LINK_ADDRESS, 8) = (kind, len) {
                let place = &mut self.link_addresses[usize::from(kind == TARGET_LINK_ADDRESS)];
                if *place != 0 {
                    self.is_discovery = false;
                    self.link_addresses = [0; 2];
                    return;
                }
                *place = u16::try_from(reader.at + 2).unwrap_or(0);
            }
            reader.at += len;
        }
    }
}

/// A place in a packet, of which only the head can be read.
struct Reader<'a> {
    head: &'a [u8],
    at: usize,
    /// End of the packet, or of the IP packet in it.
    end: usize,
    /// Bytes were wanted that the packet has, and the head does not.
    is_cut: bool,
}

impl Reader<'_> {
    /// Returns the number of bytes of the packet from here on.
    fn left(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// Returns whether the head has this many bytes from here on.
    fn has(&mut self, bytes: usize) -> bool {
        if self.left() < bytes {
            return false;
        }
        let is_there = self.head.len() >= self.at + bytes;
        self.is_cut |= !is_there;
        is_there
    }

    /// Returns bytes `skip` bytes from here.
    fn get<const N: usize>(&mut self, skip: usize) -> Option<[u8; N]> {
        if !self.has(skip + N) {
            return None;
        }
        self.head.get(self.at + skip..)?.first_chunk().copied()
    }

    fn word(&mut self, skip: usize) -> Option<u16> {
        self.get(skip).map(u16::from_be_bytes)
    }
}
