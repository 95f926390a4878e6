//! The facts of a packet that filters look at, read from its head once.

use std::net::IpAddr;

use straightline_wire::{
    EtherType, IpProtocol, MacAddr, arp, ethernet, geneve, ipv4, ipv6, udp, vlan, vxlan, vxlan_gpe,
};

use super::Family;

/// The protocols whose headers begin with two ports.
pub(super) const WITH_PORTS: [IpProtocol; 3] = [IpProtocol::TCP, IpProtocol::UDP, SCTP];
pub(super) const SCTP: IpProtocol = IpProtocol(132);

/// The facts of a packet. A fact is absent if the head is too short for it, or wrong.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) len: u32,
    /// Source and destination.
    pub(crate) macs: Option<(MacAddr, MacAddr)>,
    /// The VLANs of the tags, outer tag first.
    pub(crate) vlans: [Option<u16>; vlan::MAX_TAGS],
    /// The type behind the tags.
    pub(crate) ether_type: Option<EtherType>,
    pub(super) family: Option<Family>,
    /// Source and destination of the IP header, or sender and target of ARP.
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    pub(crate) protocol: Option<IpProtocol>,
    /// Source and destination port. Only the first fragment of a packet has them.
    pub(crate) ports: Option<(u16, u16)>,
    /// The kind of a tunnel's header, by the destination port, and its network identifier.
    pub(crate) network: Option<(&'static str, u32)>,
}

impl Facts {
    /// Reads the facts of a packet of `len` bytes.
    pub(crate) fn of(head: &[u8], len: u32) -> Self {
        let mut facts = Facts { len, ..Facts::default() };
        let mac = |at: usize| head.get(at..at + 6)?.first_chunk().map(|&mac| MacAddr(mac));
        facts.macs = mac(6).zip(mac(0));
        // Several priority tags are as good as the last of them.
        let priority_tags = vlan::skip_priority(head).map_or(0, |(_, payload)| payload - ethernet::LEN);
        let head = head.get(priority_tags.saturating_sub(vlan::LEN)..).unwrap_or_default();
        let Ok(tags) = vlan::skip(head) else { return facts };
        facts.vlans = tags.tags.map(|tag| tag.map(|tag| tag.vid));
        facts.ether_type = Some(tags.ether_type);
        let packet = head.get(tags.payload..).unwrap_or_default();
        match tags.ether_type {
            EtherType::IPV4 => facts.read_ipv4(packet),
            EtherType::IPV6 => facts.read_ipv6(packet),
            EtherType::ARP | EtherType::RARP => facts.read_arp(packet, tags.ether_type),
            _ => {}
        }
        facts
    }

    fn read_ipv4(&mut self, packet: &[u8]) {
        let Ok(header) = ipv4::Header::new_checked(packet) else { return };
        self.family = Some(Family::V4);
        self.addresses = Some((header.src().into(), header.dst().into()));
        self.protocol = Some(header.protocol());
        if header.fragment_offset() == 0 {
            self.read_ports(packet.get(header.header_len()..));
        }
    }

    fn read_ipv6(&mut self, packet: &[u8]) {
        let Ok(header) = ipv6::Header::new_checked(packet) else { return };
        self.family = Some(Family::V6);
        self.addresses = Some((header.src().into(), header.dst().into()));
        let rest = packet.get(ipv6::LEN..).unwrap_or_default();
        let Ok(extensions) = ipv6::skip_extensions(rest, header.next_header()) else { return };
        self.protocol = Some(extensions.protocol);
        let fragment = extensions.len.checked_sub(ipv6::FRAGMENT_LEN).filter(|_| extensions.fragment);
        let is_first = fragment.is_none_or(|at| {
            let header = rest.get(at..).unwrap_or_default();
            ipv6::fragment_offset(header) == Ok(0)
        });
        if is_first {
            self.read_ports(rest.get(extensions.len..));
        }
    }

    fn read_arp(&mut self, packet: &[u8], ether_type: EtherType) {
        let Ok(header) = arp::Header::new_checked(packet) else { return };
        self.family = (ether_type == EtherType::ARP).then_some(Family::Arp);
        self.addresses = Some((header.sender_ip().into(), header.target_ip().into()));
    }

    fn read_ports(&mut self, transport: Option<&[u8]>) {
        if self.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol)) {
            let ports = transport.and_then(|bytes| bytes.first_chunk());
            self.ports = ports.map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
        }
        if self.protocol == Some(IpProtocol::UDP)
            && let Some((_, to)) = self.ports
        {
            self.network = transport.and_then(|bytes| network(to, bytes.get(udp::LEN..)?));
        }
    }
}

/// Returns the kind and the network identifier of the header behind a UDP header to this port.
fn network(port: u16, header: &[u8]) -> Option<(&'static str, u32)> {
    match port {
        vxlan::PORT => Some(("VXLAN", vxlan::Header::new_checked(header).ok()?.vni())),
        vxlan_gpe::PORT => Some(("VXLAN-GPE", vxlan_gpe::Header::new_checked(header).ok()?.vni())),
        geneve::PORT => Some(("Geneve", geneve::Header::new_checked(header).ok()?.vni())),
        _ => None,
    }
}
