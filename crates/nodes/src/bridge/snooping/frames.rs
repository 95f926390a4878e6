//! Frames for tests: messages about groups, and packets to groups.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use straightline_wire::{EtherType, IpProtocol, MacAddr, checksum, ethernet, igmp, ipv4, ipv6, mld, pim};

pub(super) const HOST_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Option that asks routers to look at a packet (RFC 2113).
const ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];

fn link(group: IpAddr) -> Vec<u8> {
    let (dst, ether_type) = match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            (MacAddr([1, 0, 0x5e, b & 0x7f, c, d]), EtherType::IPV4)
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            (MacAddr([0x33, 0x33, a, b, c, d]), EtherType::IPV6)
        }
    };
    let mut bytes = vec![0; ethernet::LEN];
    ethernet::Repr { dst, src: MacAddr([2, 0, 0, 0, 0, 1]), ether_type }.emit(&mut bytes).unwrap();
    bytes
}

/// Returns a packet of IPv4, with a router alert if it is a message of IGMP.
pub(super) fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let options = if protocol == IpProtocol::IGMP { &ALERT_V4[..] } else { &[] };
    let repr = ipv4::Repr {
        tos: 0xc0,
        payload_len: u16::try_from(payload.len()).unwrap(),
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 1,
        protocol,
        src,
        dst,
    };
    let mut header = vec![0; ipv4::MIN_LEN];
    repr.emit(&mut header).unwrap();
    let words = u8::try_from(header.len() + options.len()).unwrap() / 4;
    header[0] = 0x40 | words;
    header.extend(options);
    let total = u16::try_from(header.len() + payload.len()).unwrap();
    let mut view = ipv4::Header::new_checked(&mut header).unwrap();
    view.set_total_len(total);
    view.fill_checksum();
    [link(dst.into()), header, payload.to_vec()].concat()
}

/// Returns a packet of IPv6. `between` are the extension headers in front of the payload.
pub(super) fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, between: &[u8], payload: &[u8]) -> Vec<u8> {
    let payload_len = u16::try_from(between.len() + payload.len()).unwrap();
    let repr = ipv6::Repr { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit: 1, src, dst };
    let mut header = [0; ipv6::LEN];
    repr.emit(&mut header).unwrap();
    [&link(dst.into())[..], &header, between, payload].concat()
}

/// Returns a message of IGMP from a host.
pub(super) fn igmp(dst: Ipv4Addr, message: igmp::Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.message_len()];
    message.emit(&mut bytes).unwrap();
    v4(HOST_V4, dst, IpProtocol::IGMP, &bytes)
}

/// Returns a message of MLD from this address, with a router alert.
pub(super) fn mld_from(src: Ipv6Addr, dst: Ipv6Addr, message: mld::Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.message_len()];
    message.emit(&mut bytes, src, dst).unwrap();
    v6(src, dst, IpProtocol::HOP_BY_HOP, &mld::ROUTER_ALERT, &bytes)
}

/// Returns a message of MLD from a host.
pub(super) fn mld(dst: Ipv6Addr, message: mld::Repr<'_>) -> Vec<u8> {
    mld_from(HOST_V6, dst, message)
}

/// Returns a general query of IGMP, version 2, with a response time in tenths of a second.
pub(super) fn query(max_response: u8) -> Vec<u8> {
    let version = igmp::QueryVersion::V2 { max_response };
    igmp(igmp::ALL_HOSTS, igmp::Repr::Query { group: Ipv4Addr::UNSPECIFIED, version })
}

/// Returns a general query of MLD, version 1, with a response time in milliseconds.
pub(super) fn query_v6(max_response: u16) -> Vec<u8> {
    let version = mld::QueryVersion::V1 { max_response };
    mld(mld::ALL_NODES, mld::Repr::Query { group: Ipv6Addr::UNSPECIFIED, version })
}

/// Returns a hello of PIM.
pub(super) fn hello() -> Vec<u8> {
    let mut bytes = [0; pim::LEN];
    pim::emit_hello(&mut bytes, 0).unwrap();
    v4(HOST_V4, pim::ALL_ROUTERS_V4, IpProtocol::PIM, &bytes)
}

/// Returns a hello of PIM over IPv6.
pub(super) fn hello_v6() -> Vec<u8> {
    let mut bytes = [0; pim::LEN];
    let pseudo = checksum::pseudo_header_v6(HOST_V6, pim::ALL_ROUTERS_V6, IpProtocol::PIM, 4);
    pim::emit_hello(&mut bytes, pseudo).unwrap();
    v6(HOST_V6, pim::ALL_ROUTERS_V6, IpProtocol::PIM, &[], &bytes)
}

/// Returns a packet of UDP to a group.
pub(super) fn udp(group: IpAddr) -> Vec<u8> {
    let payload = [0, 9, 0, 9, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    match group {
        IpAddr::V4(group) => v4(HOST_V4, group, IpProtocol::UDP, &payload),
        IpAddr::V6(group) => v6(HOST_V6, group, IpProtocol::UDP, &[], &payload),
    }
}
