//! The nodes of bindings: one in front of the bridge, and the way of the bridge's own packets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use straightline_fdb::{Binding, Claim, Fdb, IpKey, Station};
use straightline_graph::{Next, Node, Port};
use straightline_packet::{Batch, PacketId, PacketVlan, Packets, PortIndex, Reason, Turn};
use straightline_wire::messages::{Link, arp_request, solicitation};
use straightline_wire::{
    EtherType, IpProtocol, MacAddr, Question, VlanId, WireError, arp, dhcp, dhcpv6, ethernet, ipv4, ipv6, ndp, udp,
    vlan,
};

use super::table::{BindingTable, Shared, count};
use crate::binding_settings::{BindingPort, BindingSettings};
use crate::bridge::{BridgeTable, Rules, is_no_station};
use crate::source_check::link_local;

/// The hop limit of neighbour discovery: no router has forwarded the packet (RFC 4861, 11.2).
const ND_HOP_LIMIT: u8 = 255;

/// The node in front of a bridge. Edge 0 leads to it.
#[derive(Debug)]
pub struct Neighbours {
    table: Shared,
    fdb: Arc<Fdb>,
    rules: Option<Arc<Rules>>,
    /// The ports by their index.
    ports: Vec<Option<BindingPort>>,
    own: u64,
}

/// The kind of a packet, and the place of its payload behind priority tags.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    sort: Sort,
    payload: usize,
}

/// The kinds of packets that the node looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Other,
    Arp,
    Neighbour,
    /// From a server to a client.
    Dhcp,
    /// To a server.
    DhcpQuestion,
    Dhcpv6,
}

impl Neighbours {
    /// Returns the node of a bridge's bindings.
    #[must_use]
    pub fn new(table: Arc<BindingTable>, bridge: &BridgeTable) -> Self {
        let BindingSettings { ports: settings, own, .. } = &table.settings;
        let size = settings.iter().map(|port| port.index.index() + 1).max().unwrap_or(0);
        let mut ports = vec![None; size];
        settings.iter().for_each(|port| ports[port.index.index()] = Some(*port));
        let own = own.as_u64();
        Neighbours { fdb: Arc::clone(bridge.fdb()), rules: bridge.rules(), ports, own, table }
    }

    /// Looks at a packet. Returns `false` if it ends here.
    #[cold]
    #[inline(never)]
    fn look(&self, packets: &mut Packets<'_>, id: PacketId, Sorted { sort, payload }: Sorted) -> bool {
        let from = packets.port(id);
        let Some(Some(port)) = self.ports.get(from.index()) else { return true };
        if sort == Sort::DhcpQuestion && !port.is_trusted && !port.is_tunnel && !is_of_sender(packets, id, payload) {
            packets.discard(id, Reason::Spoofed);
            return false;
        }
        let heard = match sort {
            Sort::Other => Ok(()),
            Sort::Arp if !port.is_tunnel => self.hear_arp(packets, id, payload),
            Sort::Neighbour if !port.is_tunnel => self.hear_neighbour(packets, id, payload),
            Sort::Dhcp if port.is_trusted => self.hear_dhcp(packets, id, payload),
            Sort::Dhcpv6 if port.is_trusted => self.hear_dhcpv6(packets, id, payload),
            _ => Ok(()),
        };
        if heard.is_err() {
            count(&self.table.counters.malformed);
        }
        // Packets for the bridge itself are answers to its questions.
        let is_own = packets.head(id).first_chunk().is_some_and(|mac| MacAddr(*mac).as_u64() == self.own);
        let is_question = matches!(sort, Sort::Arp | Sort::Neighbour) && !port.is_tunnel;
        let ends = is_own || is_question && self.answer(packets, id, from);
        if ends && port.learns {
            self.learn(packets, id, from);
        }
        !ends
    }

    /// Learns the sender of a frame that ends here, as the bridge would.
    fn learn(&self, packets: &Packets<'_>, id: PacketId, from: PortIndex) {
        let Ok(header) = ethernet::Header::new_checked(packets.head(id)) else { return };
        if !is_no_station(header.src().as_u64()) {
            // Without a place, the station is not known, and its frames are flooded.
            let _ = self.fdb.learn(Station::new(vlan_of(packets, id), header.src()), from, packets.now());
        }
    }

    fn claim(&self, packets: &Packets<'_>, id: PacketId, ip: IpAddr, mac: MacAddr) {
        let key = IpKey { vlan: vlan_of(packets, id), ip };
        let port = packets.port(id);
        let is_checked = matches!(self.ports.get(port.index()), Some(Some(port)) if port.is_checked);
        let claim = Claim { key, mac, port, until: None, only_known: !is_checked };
        self.table.bindings.claim(claim, packets.now());
    }

    /// Hears the sender of an ARP message. The source check of a checked port has compared it with the
    /// port's addresses.
    fn hear_arp(&self, packets: &Packets<'_>, id: PacketId, payload: usize) -> Result<(), WireError> {
        let head = packets.head(id);
        let from = ethernet::Header::new_checked(head)?.src();
        let message = arp::Header::new_checked(head.get(payload..).unwrap_or_default())?;
        let is_right = message.hardware_type() == arp::ETHERNET && message.protocol_type() == EtherType::IPV4;
        let sender = message.sender_ip();
        if is_right && !sender.is_unspecified() && message.sender_mac() == from {
            self.claim(packets, id, sender.into(), from);
        }
        Ok(())
    }

    /// Hears the sender of a solicitation, and the target of an advertisement.
    fn hear_neighbour(&self, packets: &Packets<'_>, id: PacketId, payload: usize) -> Result<(), WireError> {
        let head = packets.head(id);
        let from = ethernet::Header::new_checked(head)?.src();
        let ip = ipv6::Header::new_checked(head.get(payload..).unwrap_or_default())?;
        let message = ndp::Header::new_checked(head.get(payload + ipv6::LEN..).unwrap_or_default())?;
        if ip.hop_limit() != ND_HOP_LIMIT {
            return Ok(());
        }
        let claimed = match message.kind() {
            ndp::Kind::NeighborSolicitation => Some(ip.src()),
            ndp::Kind::NeighborAdvertisement => message.target(),
            _ => None,
        };
        if let Some(claimed) = claimed.filter(|ip| !ip.is_unspecified() && !ip.is_multicast()) {
            self.claim(packets, id, claimed.into(), from);
        }
        Ok(())
    }

    /// Hears the answer of a DHCP server.
    fn hear_dhcp(&self, packets: &mut Packets<'_>, id: PacketId, payload: usize) -> Result<(), WireError> {
        let now = packets.now();
        let Some(message) = message(packets, id, payload)? else { return Ok(()) };
        let ack = dhcp::Ack::parse(message)?;
        if let Some(dhcp::Ack { mac, ip, lease: Some(lease) }) = ack {
            self.lease(packets, id, mac, ip.into(), now, lease);
        }
        Ok(())
    }

    /// Hears the reply of a DHCPv6 server, which goes to its client's MAC address.
    fn hear_dhcpv6(&self, packets: &mut Packets<'_>, id: PacketId, payload: usize) -> Result<(), WireError> {
        let now = packets.now();
        let client = ethernet::Header::new_checked(packets.head(id))?.dst();
        let vlan = vlan_of(packets, id);
        let Some(message) = message(packets, id, payload)? else { return Ok(()) };
        // The addresses are noted first, because the message is borrowed.
        let mut found = [None; 8];
        let mut places = found.iter_mut();
        let read = dhcpv6::leases(message, |lease| {
            if let Some(place) = places.next() {
                *place = Some(lease);
            }
        });
        for dhcpv6::Lease { ip, valid } in found.into_iter().flatten().filter(|_| client.is_unicast()) {
            if valid == 0 {
                self.table.bindings.release(IpKey { vlan, ip: ip.into() }, client);
            } else {
                self.lease(packets, id, client, ip.into(), now, valid);
            }
        }
        read
    }

    /// Binds an address that a server has given to a station of this bridge.
    fn lease(&self, packets: &Packets<'_>, id: PacketId, mac: MacAddr, ip: IpAddr, now: u32, seconds: u32) {
        let vlan = vlan_of(packets, id);
        let port = self.fdb.lookup(Station::new(vlan, mac), now);
        let is_local = |port: PortIndex| matches!(self.ports.get(port.index()), Some(Some(known)) if !known.is_tunnel);
        match port.filter(|port| is_local(*port) && *port != packets.port(id)) {
            Some(port) => {
                let until = Some(now.saturating_add(seconds).max(1));
                self.table.bindings.claim(Claim { key: IpKey { vlan, ip }, mac, port, until, only_known: false }, now);
            }
            None => count(&self.table.counters.unplaced),
        }
    }

    /// Answers a question that would be flooded. Returns `false` if it must go on.
    fn answer(&self, packets: &Packets<'_>, id: PacketId, from: PortIndex) -> bool {
        let head = packets.head(id);
        // A question to one station asks whether this one is still there.
        let is_flooded = head.first().is_some_and(|first| first & 1 != 0);
        let Some(question) = Question::of(head).filter(|_| is_flooded) else { return false };
        let fact = packets.vlan(id);
        let vlan = vlan_of(packets, id);
        let Some(known) = self.table.bindings.find(IpKey { vlan, ip: question.target() }) else { return false };
        if known.mac == question.by() {
            return false;
        }
        let port = known.port.or_else(|| self.fdb.lookup(Station::new(vlan, known.mac), packets.now()));
        let may_reach = |to: PortIndex| match &self.rules {
            Some(rules) => rules.may_leave(from, to, fact.map(|vlan| vlan.id)).is_ok(),
            None => true,
        };
        if port.is_some_and(|port| port == from || !may_reach(port)) {
            return false;
        }
        // Without this flag, a station would give up a router (RFC 4861, 7.2.5). It harms no host.
        let answer = question.answer(known.mac, ndp::Flags::ROUTER);
        let is_pushed = answer.is_ok_and(|answer| self.table.outbox.push(from, fact, answer.bytes()));
        let counters = &self.table.counters;
        count(if is_pushed { &counters.answered } else { &counters.unanswered });
        is_pushed
    }

    /// Returns the kind of a packet that may have priority tags.
    ///
    /// # Errors
    /// There are too many to tell.
    #[inline]
    fn sort(head: &[u8]) -> Result<Sorted, WireError> {
        let (ether_type, payload) = match vlan::skip_priority(head) {
            Err(WireError::TooManyTags) => return Err(WireError::TooManyTags),
            // What is cut is of no kind.
            skipped => skipped.unwrap_or((EtherType(0), ethernet::LEN)),
        };
        let sort = head.get(payload..).map_or(Sort::Other, |packet| Sort::of(ether_type, packet));
        Ok(Sorted { sort, payload })
    }
}

impl Sort {
    /// Returns the kind of a packet of this type.
    #[inline]
    fn of(ether_type: EtherType, packet: &[u8]) -> Self {
        let Some(front) = packet.first_chunk::<10>() else { return Sort::Other };
        match ether_type {
            EtherType::ARP => Sort::Arp,
            EtherType::IPV6 if front[6] == IpProtocol::ICMPV6.0 => {
                match packet.get(ipv6::LEN).map(|kind| ndp::Kind::of(*kind)) {
                    Some(Some(ndp::Kind::NeighborSolicitation | ndp::Kind::NeighborAdvertisement)) => Sort::Neighbour,
                    _ => Sort::Other,
                }
            }
            EtherType::IPV6 if front[6] == IpProtocol::UDP.0 => match packet.get(ipv6::LEN..ipv6::LEN + 4) {
                Some(&[2, 35, 2, 34]) => Sort::Dhcpv6,
                _ => Sort::Other,
            },
            EtherType::IPV4 if front[9] == IpProtocol::UDP.0 => {
                let at = usize::from(front[0] & 0xf) * 4;
                match packet.get(at..at + 4) {
                    Some(&[0, 67, 0, 68]) => Sort::Dhcp,
                    Some(&[_, _, 0, 67]) => Sort::DhcpQuestion,
                    _ => Sort::Other,
                }
            }
            _ => Sort::Other,
        }
    }
}

impl Node for Neighbours {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            let head = packets.head(id);
            let Ok(sorted) = Self::sort(head) else {
                packets.discard(id, Reason::Hidden);
                continue;
            };
            let is_own = head.first_chunk().is_some_and(|mac| MacAddr(*mac).as_u64() == self.own);
            if sorted.sort == Sort::Other && !is_own || self.look(packets, id, sorted) {
                next.push(0, id);
            }
        }
    }

    fn changes_packets(&self) -> bool {
        false
    }
}

/// Returns the VLAN of a packet in its bridge.
impl BindingTable {
    /// Returns whether an address is bound in the VLAN of a packet.
    pub(crate) fn has(&self, packets: &Packets<'_>, id: PacketId, ip: IpAddr) -> bool {
        self.bindings.find(IpKey { vlan: vlan_of(packets, id), ip }).is_some()
    }
}

/// Returns the VLAN of a packet; the default one in a bridge without VLANs.
fn vlan_of(packets: &Packets<'_>, id: PacketId) -> VlanId {
    packets.vlan(id).map_or(VlanId::DEFAULT, |vlan| vlan.id)
}

/// Returns whether a question to a DHCP server names the station that has sent it, or is that of a relay. One
/// that names another station would get an address for that one. One that cannot be read is no question.
fn is_of_sender(packets: &mut Packets<'_>, id: PacketId, payload: usize) -> bool {
    let Ok(sender) = ethernet::Header::new_checked(packets.head(id)).map(|header| header.src()) else { return false };
    match message(packets, id, payload).and_then(|message| message.map(dhcp::client).transpose()) {
        Ok(Some(client)) => client.is_none_or(|client| client == sender),
        Ok(None) | Err(_) => false,
    }
}

/// Returns the visible part of the message in a UDP packet, whose IP header is at `payload`; `None` if it is
/// a fragment.
fn message<'p>(packets: &'p mut Packets<'_>, id: PacketId, payload: usize) -> Result<Option<&'p [u8]>, WireError> {
    let len = packets.len(id) as usize;
    packets.pull_up(id, len.min(packets.max_head(id)));
    let packet = packets.head(id).get(payload..).unwrap_or_default();
    let at = if packet.first().is_some_and(|first| first >> 4 == 4) {
        let header = ipv4::Header::new_checked(packet)?;
        if header.is_fragment() {
            return Ok(None);
        }
        header.header_len()
    } else {
        ipv6::Header::new_checked(packet)?;
        ipv6::LEN
    };
    let datagram = packet.get(at..).unwrap_or_default();
    let end = usize::from(udp::Header::new_checked(datagram)?.length()).min(datagram.len());
    Ok(Some(datagram.get(udp::LEN..end).unwrap_or_default()))
}

/// The input for packets of the bridge's own. Each worker that serves the bridge has one.
#[derive(Debug)]
pub struct BindingAgent {
    table: Shared,
    name: String,
}

impl BindingAgent {
    /// Returns the input of a bridge's bindings.
    #[must_use]
    pub fn new(table: Arc<BindingTable>, bridge: &str) -> Self {
        BindingAgent { table, name: format!("{bridge}-bindings") }
    }

    /// Asks the stations that were not heard for a long time, among a part of all.
    #[cold]
    pub(super) fn ask(&self, now: u32) {
        let goes_on = self.table.bindings.tick(now, |binding| self.ask_station(binding));
        self.table.goes_on.store(goes_on, Ordering::Relaxed);
    }

    fn ask_station(&self, binding: &Binding) {
        let own = self.table.settings.own;
        let Some(port) = binding.port else { return };
        let link = Link { src: own, dst: binding.mac, vlan: None };
        let question = match binding.key.ip {
            // A probe (RFC 5227, 1.1): it claims no address, and whoever has it answers.
            IpAddr::V4(ip) => arp_request(link, std::net::Ipv4Addr::UNSPECIFIED, ip),
            IpAddr::V6(ip) => solicitation(link, source(own), ip, false),
        };
        let vlan = PacketVlan { id: binding.key.vlan, pcp: 0, dei: false };
        // A bridge without VLANs has no facts.
        let vlan = (binding.key.vlan != VlanId::DEFAULT || self.table.settings.has_vlans).then_some(vlan);
        if let Ok(question) = question {
            self.table.outbox.push(port, vlan, question.bytes());
        }
    }
}

/// Returns the address from which the bridge asks by neighbour discovery.
fn source(own: MacAddr) -> Ipv6Addr {
    link_local(own)
}

impl Port for BindingAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let before = into.len();
        if self.table.begins_second(turn.now()) || self.table.goes_on.load(Ordering::Relaxed) {
            // Answers that wait leave their places to the questions of the second.
            self.table.outbox.drain(turn, into, max);
            self.ask(turn.now());
        }
        self.table.outbox.drain(turn, into, max - (into.len() - before));
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, for_buffers: bool) -> bool {
        !for_buffers && (!self.table.outbox.is_empty() || self.table.goes_on.load(Ordering::Relaxed))
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Leads the bridge's own packets to the outputs of its ports, which are its edges.
#[derive(Debug)]
pub struct BindingOutputs {
    ports: Vec<PortIndex>,
}

impl BindingOutputs {
    /// Returns the node for these ports, in the order of its edges.
    #[must_use]
    pub fn new(ports: Vec<PortIndex>) -> Self {
        BindingOutputs { ports }
    }
}

impl Node for BindingOutputs {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            match self.ports.iter().position(|port| *port == packets.port(id)) {
                Some(edge) => next.push(edge, id),
                None => packets.discard(id, Reason::NotConnected),
            }
        }
    }
}
