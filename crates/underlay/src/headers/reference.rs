//! For tests: settings of tunnels, inner packets, and the reference implementation of the way out.

use std::net::IpAddr;

use straightline_packet::Checksum;
use straightline_wire::frame::{self, Frame, Net, Transport};
use straightline_wire::{MacAddr, checksum, ipv4, udp};

use crate::{Address, Cookie, L2tpOver, TunnelConfig, TunnelKind, UnderlayConfig};

pub(crate) const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const HOP: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

pub(crate) fn underlay(vlan: Option<u16>) -> UnderlayConfig {
    let addresses = [("10.0.0.1", 24), ("fd00::1", 64)].map(|(ip, prefix)| Address { ip: ip.parse().unwrap(), prefix });
    UnderlayConfig {
        vlan,
        mtu: 1600,
        mac: Some(US),
        neighbours: ["10.0.0.2", "fd00::2"].map(|ip| (ip.parse().unwrap(), HOP)).to_vec(),
        ..UnderlayConfig::new("wan", addresses.to_vec())
    }
}

pub(crate) fn tunnel(kind: TunnelKind, v4: bool) -> TunnelConfig {
    let (local, remote) = if v4 { ("10.0.0.1", "10.0.0.2") } else { ("fd00::1", "fd00::2") };
    TunnelConfig::new("t1", kind, local.parse().unwrap(), vec![remote.parse().unwrap()])
}

pub(crate) fn l2tpv3(over: L2tpOver, cookie: &[u8], l2spec: bool) -> TunnelKind {
    TunnelKind::L2tpv3 {
        over,
        session: 7,
        peer_session: 0xffff_ffff,
        cookie: Cookie::default(),
        previous_cookie: None,
        peer_cookie: Cookie::new(cookie).unwrap(),
        l2spec,
    }
}

pub(crate) fn kinds() -> Vec<TunnelKind> {
    vec![
        l2tpv3(L2tpOver::Ip, &[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77], false),
        l2tpv3(L2tpOver::Ip, &[], true),
        l2tpv3(L2tpOver::Udp { port: 1701 }, &[1, 2, 3, 4], true),
        TunnelKind::Vxlan { vni: 0x12_3456 },
        TunnelKind::Geneve { vni: 0x12_3456, options: vec![1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef] },
        TunnelKind::Geneve { vni: 1, options: [&[1, 2, 3, 8][..], &[5; 32]].concat() },
        TunnelKind::Gre { key: None, checksum: false, ip: false },
        TunnelKind::Gre { key: Some(0xcafe_0001), checksum: true, ip: false },
        TunnelKind::Gre { key: None, checksum: true, ip: true },
        TunnelKind::Nvgre { vsid: 0x12_3456 },
        TunnelKind::VxlanGpe { vni: 0x12_3456, ip: false },
        TunnelKind::VxlanGpe { vni: 0x12_3456, ip: true },
        TunnelKind::Gtpu { teid: 9, peer_teid: 0x1122_3344 },
        TunnelKind::MplsUdp { label: 99, peer_label: 0x1_2345 },
    ]
}

/// The headers of an inner UDP or TCP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InnerHeaders {
    pub(crate) v4: bool,
    pub(crate) tcp: bool,
    pub(crate) tos: u8,
    pub(crate) ident: u16,
    pub(crate) seq: u32,
    pub(crate) dst: MacAddr,
}

impl InnerHeaders {
    pub(crate) fn new(v4: bool, tcp: bool, tos: u8) -> Self {
        InnerHeaders { v4, tcp, tos, ident: 0xfffe, seq: 0xffff_ff00, dst: MacAddr([2, 0xaa, 0, 0, 0, 2]) }
    }

    /// Returns the offset of the transport header.
    pub(crate) fn l4(&self) -> u16 {
        if self.v4 { 34 } else { 54 }
    }

    /// Returns the length of all headers.
    pub(crate) fn len(&self) -> u16 {
        self.l4() + if self.tcp { 20 } else { 8 }
    }

    /// Returns the headers of the GSO segment that comes after `nth` others of `size` bytes.
    pub(crate) fn nth(&self, nth: u16, size: u16) -> Self {
        let seq = self.seq.wrapping_add(u32::from(nth) * u32::from(size));
        InnerHeaders { ident: self.ident.wrapping_add(nth), seq, ..*self }
    }

    /// Returns the state of a checksum that is not finished.
    pub(crate) fn partial(&self) -> Checksum {
        Checksum::Partial { start: self.l4(), offset: if self.tcp { 16 } else { 6 } }
    }

    /// Returns the packet with its checksum finished.
    pub(crate) fn complete(&self, payload: &[u8]) -> Vec<u8> {
        self.packet(payload, frame::Checksum::Complete { payload_sum: checksum::sum(payload) })
    }

    /// Returns the packet with the pseudo header's sum in its checksum field.
    pub(crate) fn unfinished(&self, payload: &[u8]) -> Vec<u8> {
        self.packet(payload, frame::Checksum::Partial)
    }

    fn packet(&self, payload: &[u8], sum: frame::Checksum) -> Vec<u8> {
        let transport = if self.tcp {
            let flags = straightline_wire::tcp::Flags(16);
            Transport::Tcp { src_port: 1, dst_port: 2, seq: self.seq, ack: 4, flags, window: 5 }
        } else {
            Transport::Udp { src_port: 40_001, dst_port: 40_002 }
        };
        let net = if self.v4 {
            Net::v4("192.168.1.1".parse().unwrap(), "192.168.1.2".parse().unwrap())
        } else {
            Net::v6("fd01::1".parse().unwrap(), "fd01::2".parse().unwrap())
        };
        let src = MacAddr([2, 0xaa, 0, 0, 0, 1]);
        let payload_len = payload.len().try_into().unwrap();
        let frame = Frame { src, dst: self.dst, tags: [None, None], net, transport, payload_len };
        let mut bytes = vec![0; frame.headers_len()];
        frame.emit(&mut bytes, sum).unwrap();
        bytes.extend(payload);
        if self.v4 {
            let mut ip = ipv4::Header::new_checked(&mut bytes[14..]).unwrap();
            ip.set_tos(self.tos);
            ip.set_ident(self.ident);
            ip.fill_checksum();
        } else {
            (bytes[14], bytes[15]) = (0x60 | self.tos >> 4, self.tos << 4);
        }
        bytes
    }
}

/// Finishes the checksum of a packet, as a port does.
pub(crate) fn finish(packet: &mut [u8], state: Checksum) {
    if let Checksum::Partial { start, offset } = state {
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        let value = udp::checksum_of(checksum::sum(&packet[start..]));
        packet[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Checks a packet of a tunnel against the reference implementation. `inner` is the inner packet
/// with its checksum finished. The fields that follow from the flow are copied from `sent`: the source
/// port, the flow of NVGRE and the flow label of IPv6.
pub(crate) fn check(tunnel: &TunnelConfig, vlan: Option<u16>, sent: &[u8], inner: &[u8], tos: u8) {
    let l4 = 14 + vlan.map_or(0, |_| 4) + if tunnel.local.is_ipv4() { 20 } else { 40 };
    let port = [sent[l4], sent[l4 + 1]];
    let mut expected = reference(tunnel, vlan, inner, tos, port);
    if tunnel.local.is_ipv6() {
        let l3 = l4 - 40;
        let label = [sent[l3 + 1] & 0x0f, sent[l3 + 2], sent[l3 + 3]];
        assert_ne!(label, [0; 3], "no flow label");
        expected[l3 + 1] |= label[0];
        expected[l3 + 2..l3 + 4].copy_from_slice(&label[1..]);
    }
    if let TunnelKind::Nvgre { .. } = tunnel.kind {
        expected[l4 + 7] = sent[l4 + 7];
    }
    if let TunnelKind::Gre { checksum: true, .. } = tunnel.kind
        && sent[l4 + 4..l4 + 6] == [0, 0]
        && expected[l4 + 4..l4 + 6] == [0xff, 0xff]
    {
        // Both values mean 0 (RFC 1071). Only in UDP 0 means something else.
        expected[l4 + 4..l4 + 6].fill(0);
    }
    assert!(sent == expected, "{tunnel:?}:\nsent     {sent:02x?}\nexpected {expected:02x?}");
    let is_fixed = matches!(tunnel.kind, TunnelKind::L2tpv3 { .. }) || tunnel.source_port.is_some();
    if protocol(&tunnel.kind) == 17 && !is_fixed {
        assert!(u16::from_be_bytes(port) >= 49_152, "a port below the range of the flow: {port:?}");
    }
}

/// The reference implementation: builds the whole packet from fields, and sums all of its bytes.
/// `port` is the source port, where it follows from the flow.
pub(crate) fn reference(tunnel: &TunnelConfig, vlan: Option<u16>, packet: &[u8], tos: u8, port: [u8; 2]) -> Vec<u8> {
    let network = u16::from_be_bytes([packet[12], packet[13]]);
    let (src_port, dst_port, mut inside) = kind_header(tunnel, network, packet.len() - 14, port);
    inside.extend(if tunnel.kind.carries_ip() { &packet[14..] } else { packet });
    let protocol = protocol(&tunnel.kind);
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let addresses = [octets(tunnel.local), octets(tunnel.remotes[0])].concat();
    let be = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    if let TunnelKind::Gre { checksum: true, .. } = tunnel.kind {
        let value = udp::checksum_of(checksum::sum(&inside));
        inside[4..6].copy_from_slice(&value.to_be_bytes());
    }
    if protocol == 17 {
        let len = inside.len() + 8;
        inside = [&src_port[..], &dst_port.to_be_bytes(), &be(len), &[0, 0], &inside].concat();
        let pseudo = [&addresses[..], &[0, 17], &be(len), &inside].concat();
        let value = udp::checksum_of(checksum::sum(&pseudo));
        inside[6..8].copy_from_slice(&value.to_be_bytes());
    }
    let ip = if tunnel.local.is_ipv4() {
        let mut ip = vec![0x45, tos & 3];
        ip.extend(be(20 + inside.len()));
        ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        ip.extend(&addresses);
        let value = !checksum::sum(&ip);
        ip[10..12].copy_from_slice(&value.to_be_bytes());
        ip
    } else {
        [&[0x60, (tos & 3) << 4, 0, 0], &be(inside.len())[..], &[protocol, 64], &addresses].concat()
    };
    let mut sent = [HOP.0, US.0].concat();
    if let Some(vlan) = vlan {
        sent.extend([0x81, 0]);
        sent.extend(vlan.to_be_bytes());
    }
    sent.extend(if tunnel.local.is_ipv4() { [8, 0] } else { [0x86, 0xdd] });
    [sent, ip, inside].concat()
}

/// Returns the protocol behind the IP header.
fn protocol(kind: &TunnelKind) -> u8 {
    match kind {
        TunnelKind::L2tpv3 { over: L2tpOver::Ip, .. } => 115,
        TunnelKind::Gre { .. } | TunnelKind::Nvgre { .. } => 47,
        _ => 17,
    }
}

/// Returns the ports and the header of the kind, in front of an IP packet of `len` bytes.
pub(crate) fn kind_header(tunnel: &TunnelConfig, network: u16, len: usize, port: [u8; 2]) -> ([u8; 2], u16, Vec<u8>) {
    match &tunnel.kind {
        TunnelKind::L2tpv3 { over, peer_session, peer_cookie, l2spec, .. } => {
            let (version, dst_port): (&[u8], _) = match over {
                L2tpOver::Ip => (&[], 0),
                L2tpOver::Udp { port } => (&[0, 3, 0, 0], *port),
            };
            let sublayer = vec![0; if *l2spec { 4 } else { 0 }];
            let header = [version, &peer_session.to_be_bytes(), peer_cookie.as_bytes(), &sublayer].concat();
            (1701_u16.to_be_bytes(), dst_port, header)
        }
        TunnelKind::Vxlan { vni } => (port, 4789, [[8, 0, 0, 0], (vni << 8).to_be_bytes()].concat()),
        TunnelKind::Geneve { vni, options } => {
            let units = u8::try_from(options.len() / 4).unwrap();
            (port, 6081, [&[units, 0, 0x65, 0x58], &(vni << 8).to_be_bytes()[..], options].concat())
        }
        TunnelKind::Gre { key, checksum, ip } => {
            let protocol = if *ip { network } else { 0x6558 };
            let flags = if *checksum { 0x80 } else { 0 } | if key.is_some() { 0x20 } else { 0 };
            let mut header = vec![flags, 0];
            header.extend(protocol.to_be_bytes());
            header.extend(checksum.then_some([0; 4]).iter().flatten());
            header.extend(key.map(u32::to_be_bytes).iter().flatten());
            ([0; 2], 0, header)
        }
        // The lowest byte, the flow's, is that of the packet.
        TunnelKind::Nvgre { vsid } => ([0; 2], 0, [[0x20, 0, 0x65, 0x58], (vsid << 8).to_be_bytes()].concat()),
        TunnelKind::VxlanGpe { vni, ip } => {
            let next = match (ip, network) {
                (false, _) => 3,
                (true, 0x0800) => 1,
                (true, _) => 2,
            };
            (port, 4790, [[0xc, 0, 0, next], (vni << 8).to_be_bytes()].concat())
        }
        TunnelKind::Gtpu { peer_teid, .. } => {
            let len = u16::try_from(len).unwrap().to_be_bytes();
            (port, 2152, [&[0x30, 0xff], &len[..], &peer_teid.to_be_bytes()].concat())
        }
        TunnelKind::MplsUdp { peer_label, .. } => (port, 6635, (peer_label << 12 | 0x140).to_be_bytes().to_vec()),
    }
}
