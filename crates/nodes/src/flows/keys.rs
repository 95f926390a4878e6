//! The keys of packets: the columns that a table's rules test, and no others.

use straightline_classify::{Column, Keys};
use straightline_packet::{MAX_BATCH, PacketId, Packets};

use super::fields::tag_of;
use super::state::State;
use crate::headers::{ANY_FRAGMENT, Headers, Network, Transport};

/// The packets whose keys are wanted, with what is known about them by their index.
pub(super) struct Group<'a, 't> {
    pub(super) packets: &'a Packets<'t>,
    pub(super) ids: &'a [PacketId],
    pub(super) headers: &'a [Headers; MAX_BATCH],
    pub(super) states: &'a [State; MAX_BATCH],
    pub(super) has_vlans: bool,
}

/// Returns whether a column is read from a packet's headers.
pub(super) fn needs_headers(column: Column) -> bool {
    use Column::{Conjunction, ConnectionState, ConnectionZone, InPort, Mark};
    let is_register = Column::REGISTERS.contains(&column);
    !is_register && !matches!(column, InPort | Mark | Conjunction | ConnectionState | ConnectionZone)
}

/// Fills these columns with the keys of a group.
pub(super) fn fill(keys: &mut Keys, columns: &[Column], group: &Group<'_, '_>) {
    keys.set_len(group.ids.len());
    for &column in columns {
        group.fill(column, keys.column_mut(column));
    }
}

impl Group<'_, '_> {
    fn fill(&self, column: Column, values: &mut [u32; MAX_BATCH]) {
        match column {
            Column::InPort => self.each_state(values, |state| state.lookup_port.into()),
            Column::Mark => self.each(values, |id, _| self.packets.mark_of(id)),
            Column::Conjunction => self.each_state(values, |state| state.conjunction),
            Column::ConnectionState => self.each_state(values, |state| state.facts.connection.into()),
            Column::ConnectionZone => self.each_state(values, |state| state.facts.zone.into()),
            Column::Vlan => self.each(values, |id, headers| tag_of(self.packets, id, headers, self.has_vlans).into()),
            Column::EthDstHigh => self.each(values, |id, _| self.half(id, 0)),
            Column::EthDstLow => self.each(values, |id, _| self.word(id, 2)),
            Column::EthSrcHigh => self.each(values, |id, _| self.half(id, 6)),
            Column::EthSrcLow => self.each(values, |id, _| self.word(id, 8)),
            Column::EtherType => self.each(values, |_, headers| headers.ether_type.into()),
            Column::IpSrc0 => self.ipv6(values, 8),
            Column::IpSrc1 => self.ipv6(values, 12),
            Column::IpSrc2 => self.ipv6(values, 16),
            Column::IpSrc3 => self.address(values, [12, 20, 14]),
            Column::IpDst0 => self.ipv6(values, 24),
            Column::IpDst1 => self.ipv6(values, 28),
            Column::IpDst2 => self.ipv6(values, 32),
            Column::IpDst3 => self.address(values, [16, 36, 24]),
            Column::Protocol => self.each(values, |_, headers| headers.protocol.into()),
            Column::Tos => self.each(values, |_, headers| headers.tos.into()),
            Column::Ttl => self.each(values, |_, headers| headers.ttl.into()),
            Column::FlowLabel => self.each(values, |_, headers| headers.label),
            Column::Fragment => self.each(values, |_, headers| headers.fragment.into()),
            Column::SrcPort => self.transport(values, has_ports, |id, l4| self.half(id, l4)),
            Column::DstPort => self.transport(values, has_ports, |id, l4| self.half(id, l4 + 2)),
            Column::TcpFlags => self.each(values, |id, headers| match headers.transport {
                Transport::Tcp => self.half(id, usize::from(headers.l4) + 12) & 0xfff,
                _ => 0,
            }),
            Column::IcmpType => self.transport(values, is_icmp, |id, l4| self.half(id, l4) >> 8),
            Column::IcmpCode => self.transport(values, is_icmp, |id, l4| self.half(id, l4) & 0xff),
            Column::ShaHigh => self.link_address(values, 8, 0, |id, at| self.half(id, at)),
            Column::ShaLow => self.link_address(values, 8, 0, |id, at| self.word(id, at + 2)),
            Column::ThaHigh => self.link_address(values, 18, 1, |id, at| self.half(id, at)),
            Column::ThaLow => self.link_address(values, 18, 1, |id, at| self.word(id, at + 2)),
            Column::NdTarget0 => self.target(values, 8),
            Column::NdTarget1 => self.target(values, 12),
            Column::NdTarget2 => self.target(values, 16),
            Column::NdTarget3 => self.target(values, 20),
            Column::Reg0 => self.register(values, 0),
            Column::Reg1 => self.register(values, 1),
            Column::Reg2 => self.register(values, 2),
            Column::Reg3 => self.register(values, 3),
            Column::Reg4 => self.register(values, 4),
            Column::Reg5 => self.register(values, 5),
            Column::Reg6 => self.register(values, 6),
            Column::Reg7 => self.register(values, 7),
        }
    }

    #[inline]
    fn each(&self, values: &mut [u32; MAX_BATCH], read: impl Fn(PacketId, &Headers) -> u32) {
        for (value, &id) in values.iter_mut().zip(self.ids) {
            *value = read(id, &self.headers[id.index()]);
        }
    }

    #[inline]
    fn each_state(&self, values: &mut [u32; MAX_BATCH], read: impl Fn(&State) -> u32) {
        for (value, &id) in values.iter_mut().zip(self.ids) {
            *value = read(&self.states[id.index()]);
        }
    }

    fn register(&self, values: &mut [u32; MAX_BATCH], register: usize) {
        self.each_state(values, |state| state.facts.registers[register]);
    }

    /// Fills a word of an IPv6 address, which lies at this offset of the header.
    fn ipv6(&self, values: &mut [u32; MAX_BATCH], offset: usize) {
        self.each(values, |id, headers| match headers.network {
            Network::Ipv6 => self.word(id, usize::from(headers.l3) + offset),
            _ => 0,
        });
    }

    /// Fills the last word of an address, which lies at these offsets of the headers of IPv4, IPv6 and
    /// ARP.
    fn address(&self, values: &mut [u32; MAX_BATCH], [ipv4, ipv6, arp]: [usize; 3]) {
        self.each(values, |id, headers| {
            let offset = match headers.network {
                Network::Ipv4 => ipv4,
                Network::Ipv6 => ipv6,
                Network::Arp => arp,
                Network::None => return 0,
            };
            self.word(id, usize::from(headers.l3) + offset)
        });
    }

    /// Fills a field of transport headers, which fragments do not have.
    #[inline]
    fn transport(
        &self,
        values: &mut [u32; MAX_BATCH],
        has: impl Fn(Transport) -> bool,
        read: impl Fn(PacketId, usize) -> u32,
    ) {
        self.each(values, |id, headers| {
            let is_there = has(headers.transport) && headers.fragment & ANY_FRAGMENT == 0;
            if is_there { read(id, headers.l4.into()) } else { 0 }
        });
    }

    /// Fills a part of a MAC address: of ARP at this offset, or of neighbour discovery.
    fn link_address(
        &self,
        values: &mut [u32; MAX_BATCH],
        arp: usize,
        option: usize,
        read: impl Fn(PacketId, usize) -> u32,
    ) {
        self.each(values, |id, headers| {
            let at = match headers.network {
                Network::Arp => usize::from(headers.l3) + arp,
                _ => headers.link_addresses[option].into(),
            };
            if at == 0 { 0 } else { read(id, at) }
        });
    }

    fn target(&self, values: &mut [u32; MAX_BATCH], offset: usize) {
        self.each(
            values,
            |id, headers| {
                if headers.is_discovery { self.word(id, usize::from(headers.l4) + offset) } else { 0 }
            },
        );
    }

    #[inline]
    fn half(&self, id: PacketId, at: usize) -> u32 {
        let bytes = self.packets.head(id).get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes).into())
    }

    #[inline]
    fn word(&self, id: PacketId, at: usize) -> u32 {
        let bytes = self.packets.head(id).get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }
}

fn has_ports(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Udp | Transport::Sctp)
}

fn is_icmp(transport: Transport) -> bool {
    matches!(transport, Transport::Icmp4 | Transport::Icmp6)
}
