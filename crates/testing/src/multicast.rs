//! Packets to multicast groups of IPv4, and messages of IGMP.

use std::net::Ipv4Addr;

use straightline_wire::{EtherType, IpProtocol, MacAddr, ethernet, igmp, ipv4};

use crate::mac;

/// Returns a packet to a group, from the station that `mac(1)` names.
pub fn packet(group: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let [_, b, c, d] = group.octets();
    let dst = MacAddr([1, 0, 0x5e, b & 0x7f, c, d]);
    let link = ethernet::Repr { dst, src: mac(1), ether_type: EtherType::IPV4 };
    let repr = ipv4::Repr {
        tos: 0,
        payload_len: u16::try_from(payload.len()).expect("a short payload"),
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 1,
        protocol,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: group,
    };
    let mut headers = [0; ethernet::LEN + ipv4::MIN_LEN];
    link.emit(&mut headers).expect("space");
    repr.emit(&mut headers[ethernet::LEN..]).expect("space");
    [&headers, payload].concat()
}

/// Returns a datagram of UDP to a group.
pub fn data(group: Ipv4Addr) -> Vec<u8> {
    packet(group, IpProtocol::UDP, &[0, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4])
}

/// Returns a message of IGMP to a group.
pub fn message(group: Ipv4Addr, message: igmp::Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.message_len()];
    message.emit(&mut bytes).expect("space");
    packet(group, IpProtocol::IGMP, &bytes)
}

/// Returns a report of IGMPv2: a host has joined this group.
pub fn join(group: Ipv4Addr) -> Vec<u8> {
    message(group, igmp::Repr::ReportV2(group))
}

/// Returns a general query that hosts answer within a tenth of a second.
pub fn query() -> Vec<u8> {
    let version = igmp::QueryVersion::V2 { max_response: 1 };
    message(igmp::ALL_HOSTS, igmp::Repr::Query { group: Ipv4Addr::UNSPECIFIED, version })
}
