//! A packet as groups see it: who speaks with whom, and by what.
//!
//! All of it is read from the head, which the guest cannot change any more.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;

use straightline_conntrack::{self as conntrack, Ends, Key, Segment, Side};
use straightline_packet::{Checksum, Offload, PacketId, Packets};
use straightline_wire::{EtherType, IpProtocol, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp, vlan};

use crate::headers::{ANY_FRAGMENT, Headers, LATER_FRAGMENT, Network, Transport, VID};

/// An address of IPv6, or one of IPv4 in its mapped form (RFC 4291, 2.5.5.2).
pub(crate) type Address = [u8; 16];

/// A packet as groups see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Facts {
    /// A packet of a connection, or the first one.
    Packet(Flow),
    /// A packet to many stations, or one of a protocol without answers. Rules decide about each one.
    Single(Flow),
    /// An ICMP error about a packet of this flow, which the receiver of the error has sent.
    Error { about: Flow, seq: Option<u32> },
    /// A fragment behind the first one.
    LaterFragment { flow: Flow, fragment: Fragment },
    /// A frame that is no IP packet.
    Frame(EtherType),
    /// No receiver can take it for a whole packet, or different receivers may see different packets.
    Damaged,
}

/// The two ends of a packet, and what it is. The source has sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) is_ipv6: bool,
    pub(crate) protocol: u8,
    pub(crate) vlan: u16,
    /// Time to live, or hop limit.
    pub(crate) hops: u8,
    pub(crate) src: Address,
    pub(crate) dst: Address,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// A query of ICMP, or its answer.
    pub(crate) query: Option<Query>,
    /// Type and code of ICMP.
    pub(crate) icmp: [u8; 2],
    pub(crate) tcp: Option<Segment>,
    /// The first fragment, if the packet is one.
    pub(crate) fragment: Option<Fragment>,
}

/// A query of ICMP that the packet asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Query {
    /// The packet is the question, not the answer.
    pub(crate) is_question: bool,
    /// Type of the question.
    pub(crate) request: u8,
    pub(crate) ident: u16,
}

/// The place of a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fragment {
    pub(crate) id: u32,
    /// Offset in bytes.
    pub(crate) offset: u16,
    pub(crate) len: u16,
    pub(crate) is_last: bool,
    /// Bytes of the first fragment up to the end of its transport header.
    pub(crate) header: u16,
}

pub(super) const SCTP: u8 = 132;
impl Fragment {
    /// Returns the fragment for the table of connections. `opener` is the number of a remote sender.
    pub(crate) fn noted(&self, sender: Side, opener: u16) -> conntrack::Fragment {
        conntrack::Fragment {
            sender,
            opener: if sender == Side::Remote { opener } else { 0 },
            offset: self.offset.into(),
            len: self.len.into(),
            is_last: self.is_last,
        }
    }
}

const FRAGMENT_HEADER: u8 = 44;
const SCTP_CHECKSUM: usize = 8;
/// Options by which a packet of IPv4 names further hops: its destination is not the last one (RFC 791,
/// 3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];
/// Type of frames that have a length in its place.
const LLC: u16 = 0x05ff;
/// Kind of the option that has the window scale.
const WINDOW_SCALE: u8 = 3;
/// Greatest window scale (RFC 7323, 2.3).
const MAX_SCALE: u8 = 14;
/// Queries of ICMP for IPv4, each with its answer (RFC 792, RFC 950).
const QUERIES_V4: [(u8, u8); 4] = [(8, 0), (13, 14), (15, 16), (17, 18)];
/// Errors of ICMP for IPv4 that quote a packet: unreachable, time exceeded, parameter problem.
const ERRORS_V4: [u8; 3] = [3, 11, 12];
const ECHO_V6: (u8, u8) = (128, 129);

impl Flow {
    /// Returns an address of the packet.
    pub(crate) fn address(&self, address: Address) -> IpAddr {
        if self.is_ipv6 {
            return Ipv6Addr::from(address).into();
        }
        let [.., a, b, c, d] = address;
        Ipv4Addr::new(a, b, c, d).into()
    }

    /// Returns the facts of its transport header.
    pub(crate) fn transport(&self) -> conntrack::Transport {
        self.tcp.map_or(conntrack::Transport::Other, conntrack::Transport::Tcp)
    }

    /// Returns whether it is a packet of ICMP.
    pub(crate) fn is_icmp(&self) -> bool {
        let icmp = if self.is_ipv6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
        self.protocol == icmp.0
    }

    /// Returns the packet that this one answers, as far as rules see it.
    pub(super) fn answer(&self) -> Self {
        let Flow { src, dst, src_port, dst_port, query, .. } = *self;
        let icmp = query.map_or(self.icmp, |query| [query.request, 0]);
        Flow { src: dst, dst: src, src_port: dst_port, dst_port: src_port, icmp, ..*self }
    }

    /// Returns the key of a datagram in fragments, for the port of [`Self::key`]. Only the first fragment
    /// of IPv6 has the protocol.
    pub(crate) fn fragments_key(&self, port: u16, sender: Side, fragment: &Fragment) -> Key {
        let protocol = if self.is_ipv6 { FRAGMENT_HEADER } else { self.protocol };
        let flow = Flow { protocol, src_port: 0, dst_port: 0, query: None, ..*self };
        flow.key(port, sender).with_fragments(sender, fragment.id)
    }

    /// Returns the packet with the protocol and the ports of its connection, which a later fragment does not
    /// have. Of ICMP it is a question or its answer.
    pub(super) fn of_connection(&self, key: &Key, sender: Side, is_question: bool) -> Self {
        let protocol = key.protocol();
        let flow = Flow { protocol: protocol.0, ..*self };
        if !matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
            let is_sent = sender == Side::Local;
            let (src_port, dst_port) =
                if is_sent { (key.local_port(), key.remote_port()) } else { (key.remote_port(), key.local_port()) };
            return Flow { src_port, dst_port, ..flow };
        }
        let [_, request] = key.remote_port().to_be_bytes();
        let query = Query { is_question, request, ident: key.local_port() };
        Flow { query: Some(query), icmp: [request, 0], ..flow }
    }

    /// Returns a hash of both ends.
    pub(super) fn hash(&self) -> u32 {
        let [low, high] = halves(FixedState::default().hash_one((self.src, self.dst, self.dst_port, self.protocol)));
        low ^ high
    }

    /// Returns the key of its connection at a port, which has sent the packet (`Side::Local`) or gets it.
    #[inline]
    pub(crate) fn key(&self, port: u16, sender: Side) -> Key {
        let protocol = IpProtocol(self.protocol);
        let is_sent = sender == Side::Local;
        let (local, remote) = if is_sent { (self.src, self.dst) } else { (self.dst, self.src) };
        let (local_port, remote_port) =
            if is_sent { (self.src_port, self.dst_port) } else { (self.dst_port, self.src_port) };
        let key = if self.is_ipv6 {
            Key::v6(port, self.vlan, protocol, Ends { local, remote, local_port, remote_port })
        } else {
            let [local, remote] = [local, remote].map(|[.., a, b, c, d]| [a, b, c, d]);
            Key::v4(port, self.vlan, protocol, Ends { local, remote, local_port, remote_port })
        };
        match self.query {
            Some(Query { is_question, request, ident }) => {
                let asker = if is_question == is_sent { Side::Local } else { Side::Remote };
                key.with_query(asker, request, ident)
            }
            None => key,
        }
    }
}

impl Facts {
    /// Reads an IP packet whose headers were parsed, for flow tables: it may have a tag, and leave checksums
    /// and segments to others.
    pub(crate) fn parsed(head: &[u8], headers: &Headers, vlan: u16) -> Self {
        let is_ip = matches!(headers.network, Network::Ipv4 | Network::Ipv6);
        if is_ip && !headers.is_cut && !headers.is_split && !headers.is_broken {
            return Packet { head, headers, vlan }.facts();
        }
        if is_ip { Facts::Damaged } else { Facts::Frame(EtherType(headers.ether_type)) }
    }

    /// Reads a packet, behind priority tags. Another tag is not one of its bridge.
    #[inline]
    pub(super) fn of(packets: &mut Packets<'_>, id: PacketId) -> Self {
        let headers = Headers::of(packets, id);
        let Offload { checksum, gso } = packets.offload(id);
        let is_finished = gso.is_none() && !matches!(checksum, Checksum::Partial { .. });
        let is_ip = matches!(EtherType(headers.ether_type), EtherType::IPV4 | EtherType::IPV6);
        // A priority tag names no VLAN: receivers take the packet for what is behind it.
        let has_vlan = headers.tag & VID != 0;
        // A checksum that is left to others could change the type of a frame.
        if headers.is_hidden || !is_finished && (!is_ip || has_vlan) {
            return Facts::Damaged;
        }
        if has_vlan {
            return Facts::Frame(EtherType::VLAN);
        }
        if usize::from(headers.l3) != ethernet::LEN + vlan::LEN * usize::from(headers.tags) {
            // An LLC frame may carry IP or ARP, but no guest sends it so.
            return Facts::Frame(EtherType(LLC));
        }
        if !is_ip {
            return Facts::Frame(EtherType(headers.ether_type));
        }
        let is_whole = matches!(headers.network, Network::Ipv4 | Network::Ipv6)
            && !headers.is_cut
            && !headers.is_split
            && !headers.is_broken;
        if !is_whole {
            return Facts::Damaged;
        }
        let vlan = packets.vlan(id).map_or(0, |vlan| vlan.id.get());
        let packet = Packet { head: packets.head(id), headers: &headers, vlan };
        let facts = packet.facts();
        // The bytes that were read must arrive unchanged, but for the checksum of the transport.
        let changes = match checksum {
            Checksum::Partial { start, offset } => packet.checksum() != Some(usize::from(start) + usize::from(offset)),
            Checksum::Complete | Checksum::Verified => false,
        };
        let is_other = gso.is_some_and(|gso| (gso.l3, gso.l4) != (headers.l3, headers.l4) || gso.outer.is_some());
        match facts {
            _ if changes || is_other => Facts::Damaged,
            // Each counts for the limit of messages.
            Facts::Packet(flow) if flow.protocol == IpProtocol::IGMP.0 => Facts::Single(flow),
            facts => facts,
        }
    }
}

/// A packet while it is read.
pub(super) struct Packet<'a> {
    pub(super) head: &'a [u8],
    pub(super) headers: &'a Headers,
    vlan: u16,
}

impl Packet<'_> {
    fn facts(&self) -> Facts {
        let headers = self.headers;
        let version = self.head.get(usize::from(headers.l3)).map_or(0, |first| first >> 4);
        let expected = if headers.network == Network::Ipv4 { 4 } else { 6 };
        if version != expected {
            return Facts::Damaged;
        }
        let Some(mut flow) = self.ends() else { return Facts::Damaged };
        let is_many = self.head[0] & 1 == 1 || is_many(&flow);
        // The last destination is another one.
        if headers.is_routed || self.has_source_route() {
            return Facts::Damaged;
        }
        if headers.fragment & ANY_FRAGMENT != 0 {
            let Some((mut fragment, begin)) = self.fragment() else { return Facts::Damaged };
            if headers.fragment & LATER_FRAGMENT != 0 {
                return Facts::LaterFragment { flow, fragment };
            }
            fragment.header = self.end_of_transport().saturating_sub(begin);
            flow.fragment = Some(fragment);
        }
        let l4 = usize::from(headers.l4);
        match headers.transport {
            Transport::Tcp => match self.segment() {
                Some(segment) => flow.tcp = Some(segment),
                None => return Facts::Damaged,
            },
            Transport::Udp | Transport::Sctp => {}
            Transport::Icmp4 | Transport::Icmp6 => return self.icmp(flow, is_many),
            // Nobody takes it for a segment.
            Transport::DamagedTcp => return Facts::Damaged,
            Transport::None => {
                let needs_header =
                    [IpProtocol::TCP.0, IpProtocol::UDP.0, SCTP, IpProtocol::ICMP.0, IpProtocol::ICMPV6.0];
                if needs_header.contains(&headers.protocol) {
                    return Facts::Damaged;
                }
                return if is_many { Facts::Single(flow) } else { Facts::Packet(flow) };
            }
        }
        flow.src_port = self.half(l4);
        flow.dst_port = self.half(l4 + 2);
        if is_many { Facts::Single(flow) } else { Facts::Packet(flow) }
    }

    /// Returns the addresses and the protocol.
    fn ends(&self) -> Option<Flow> {
        let headers = self.headers;
        let l3 = usize::from(headers.l3);
        let vlan = self.vlan;
        let protocol = headers.protocol;
        let (is_ipv6, src, dst) = match headers.network {
            Network::Ipv4 => (false, mapped(self.head, l3 + 12)?, mapped(self.head, l3 + 16)?),
            _ => (true, *self.head.get(l3 + 8..)?.first_chunk()?, *self.head.get(l3 + 24..)?.first_chunk()?),
        };
        Some(Flow { is_ipv6, protocol, vlan, hops: headers.ttl, src, dst, ..Flow::default() })
    }

    /// Returns whether the options of IPv4 name further hops, or cannot be read.
    fn has_source_route(&self) -> bool {
        if self.headers.network != Network::Ipv4 {
            return false;
        }
        let l3 = usize::from(self.headers.l3);
        let header = self.head.get(l3..).and_then(|rest| ipv4::Header::new_checked(rest).ok());
        let Some(header) = header else { return true };
        let mut options = header.options();
        loop {
            match *options {
                [] | [0, ..] => return false,
                [1, ..] => options = &options[1..],
                [kind, len, ..] if len >= 2 && !SOURCE_ROUTES.contains(&kind) => {
                    match options.get(usize::from(len)..) {
                        Some(rest) => options = rest,
                        None => return true,
                    }
                }
                _ => return true,
            }
        }
    }

    /// Returns the place of a fragment, and where its bytes begin.
    fn fragment(&self) -> Option<(Fragment, u16)> {
        let l3 = usize::from(self.headers.l3);
        if self.headers.network == Network::Ipv4 {
            let header = ipv4::Header::new_checked(self.head.get(l3..)?).ok()?;
            let header_len = u16::try_from(header.header_len()).ok()?;
            let len = header.total_len().checked_sub(header_len)?;
            let place = Fragment {
                id: header.ident().into(),
                offset: header.fragment_offset().checked_mul(8)?,
                len,
                is_last: !header.more_fragments(),
                header: 0,
            };
            return Some((place, self.headers.l3 + header_len));
        }
        let header = ipv6::Header::new_checked(self.head.get(l3..)?).ok()?;
        let end = l3 + ipv6::LEN + usize::from(header.payload_len());
        let mut at = l3 + ipv6::LEN;
        let mut next = header.next_header();
        loop {
            let walked = ipv6::skip_extensions(self.head.get(at..)?, next).ok()?;
            at += walked.len;
            if walked.fragment {
                let front = self.head.get(at - ipv6::FRAGMENT_LEN..)?.first_chunk::<8>()?;
                let place = u16::from_be_bytes([front[2], front[3]]);
                let id = u32::from_be_bytes([front[4], front[5], front[6], front[7]]);
                let len = u16::try_from(end.checked_sub(at)?).ok()?;
                let place = Fragment { id, offset: place & 0xfff8, len, is_last: place & 1 == 0, header: 0 };
                return Some((place, u16::try_from(at).ok()?));
            }
            if walked.len == 0 {
                return None;
            }
            next = walked.protocol;
        }
    }

    /// Returns the end of the transport header. It is whole.
    fn end_of_transport(&self) -> u16 {
        let len = match self.headers.transport {
            Transport::Tcp => {
                let offset = self.head.get(usize::from(self.headers.l4) + 12).copied().unwrap_or(u8::MAX);
                u16::from(offset >> 4) * 4
            }
            Transport::Udp | Transport::Icmp4 | Transport::Icmp6 => 8,
            Transport::Sctp => 12,
            Transport::None | Transport::DamagedTcp => return 0,
        };
        self.headers.l4.saturating_add(len)
    }

    /// Returns the TCP segment.
    fn segment(&self) -> Option<Segment> {
        let l4 = usize::from(self.headers.l4);
        let header = tcp::Header::new_checked(self.head.get(l4..)?).ok()?;
        let len = self.end()?.checked_sub(l4 + header.header_len())?;
        // Later fragments have as much as fits.
        let behind = if self.headers.fragment & ANY_FRAGMENT == 0 { 0 } else { usize::from(u16::MAX) };
        let flags = header.flags();
        let scale = if flags.contains(tcp::Flags::SYN) { scale(header.options()) } else { None };
        Some(Segment {
            flags: flags.0,
            seq: header.seq(),
            ack: header.ack(),
            window: header.window(),
            len: u32::try_from(len + behind).ok()?,
            scale,
        })
    }

    /// Returns the end of the IP packet in the frame.
    pub(super) fn end(&self) -> Option<usize> {
        let l3 = usize::from(self.headers.l3);
        let len = if self.headers.network == Network::Ipv4 {
            self.half(l3 + 2).into()
        } else {
            ipv6::LEN + usize::from(self.half(l3 + 4))
        };
        Some(l3 + len)
    }

    fn icmp(&self, mut flow: Flow, is_many: bool) -> Facts {
        let l4 = usize::from(self.headers.l4);
        let Some(&[icmp_type, code]) = self.head.get(l4..).and_then(|rest| rest.first_chunk()) else {
            return Facts::Damaged;
        };
        flow.icmp = [icmp_type, code];
        let is_error = if flow.is_ipv6 { icmpv6::Type(icmp_type).is_error() } else { ERRORS_V4.contains(&icmp_type) };
        if is_error {
            // The answer to a fragment quotes one, too; nobody sends errors in fragments.
            return if flow.fragment.is_some() { Facts::Damaged } else { self.error(flow) };
        }
        let Some(query) = query(flow.is_ipv6, icmp_type, self.half(l4 + 4)) else { return Facts::Single(flow) };
        flow.query = Some(query);
        if is_many { Facts::Single(flow) } else { Facts::Packet(flow) }
    }

    /// Returns the place of the transport's checksum, which its sender may leave to be finished.
    fn checksum(&self) -> Option<usize> {
        let offset = match self.headers.transport {
            Transport::Tcp => tcp::CHECKSUM,
            Transport::Udp => udp::CHECKSUM,
            Transport::Sctp => SCTP_CHECKSUM,
            Transport::Icmp4 | Transport::Icmp6 => icmpv4::CHECKSUM,
            Transport::None | Transport::DamagedTcp => return None,
        };
        Some(usize::from(self.headers.l4) + offset)
    }

    fn half(&self, at: usize) -> u16 {
        self.head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the halves")]
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Returns the query that a message of this type asks or answers.
pub(super) fn query(is_ipv6: bool, icmp_type: u8, ident: u16) -> Option<Query> {
    let queries = if is_ipv6 { &[ECHO_V6][..] } else { &QUERIES_V4[..] };
    let &(request, _) = queries.iter().find(|(question, answer)| [*question, *answer].contains(&icmp_type))?;
    Some(Query { is_question: request == icmp_type, request, ident })
}

/// Returns the IPv4 address at an offset in its mapped form.
pub(super) fn mapped(bytes: &[u8], at: usize) -> Option<Address> {
    let octets: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
    Some(Ipv4Addr::from(octets).to_ipv6_mapped().octets())
}

/// Returns whether the destination is many stations, or the source is none that could answer.
fn is_many(flow: &Flow) -> bool {
    if flow.is_ipv6 {
        return flow.dst[0] == 0xff || flow.src == [0; 16];
    }
    let [.., a, b, c, d] = flow.dst;
    a & 0xf0 == 0xe0 || [a, b, c, d] == [255; 4] || flow.src[12..] == [0; 4]
}

/// Returns the window scale among the options of a SYN.
fn scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [0, ..] | [] => return None,
            [1, ..] => options = &options[1..],
            [WINDOW_SCALE, 3, scale, ..] => return Some(scale.min(MAX_SCALE)),
            [_, len, ..] if len >= 2 => options = options.get(usize::from(len)..)?,
            _ => return None,
        }
    }
}
