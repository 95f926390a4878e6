//! Strategies for the values of headers.
#![expect(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "each test binary uses a part")]

use proptest::prelude::*;
use straightline_wire::frame::{Frame, Net, Transport};
use straightline_wire::{EtherType, MacAddr, tcp, vlan};

pub fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

pub fn tag() -> impl Strategy<Value = vlan::Tag> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::SERVICE_VLAN)];
    (tpid, 0u8..8, any::<bool>(), 0u16..4096).prop_map(|(tpid, pcp, dei, vid)| vlan::Tag { tpid, pcp, dei, vid })
}

/// Strategy for no tag, one tag or two tags, without a gap before the second.
pub fn tags() -> impl Strategy<Value = [Option<vlan::Tag>; 2]> {
    (0..3, tag(), tag()).prop_map(|(count, outer, inner)| [(count > 0).then_some(outer), (count > 1).then_some(inner)])
}

pub fn net() -> impl Strategy<Value = Net> {
    let v4 = any::<([u8; 4], [u8; 4], u16, u8)>().prop_map(|(src, dst, ident, ttl)| Net::V4 {
        src: src.into(),
        dst: dst.into(),
        ident,
        ttl,
    });
    let v6 = (any::<([u8; 16], [u8; 16], u8)>(), 0u32..1 << 20).prop_map(|((src, dst, hop_limit), flow_label)| {
        Net::V6 { src: src.into(), dst: dst.into(), flow_label, hop_limit }
    });
    prop_oneof![v4, v6]
}

pub fn transport() -> impl Strategy<Value = Transport> {
    let udp = any::<(u16, u16)>().prop_map(|(src_port, dst_port)| Transport::Udp { src_port, dst_port });
    let tcp = any::<(u16, u16, u32, u32, u8, u16)>().prop_map(|(src_port, dst_port, seq, ack, flags, window)| {
        Transport::Tcp { src_port, dst_port, seq, ack, flags: tcp::Flags(flags), window }
    });
    prop_oneof![udp, tcp]
}

/// Strategy for a frame and its body.
pub fn frame() -> impl Strategy<Value = (Frame, Vec<u8>)> {
    (mac(), mac(), tags(), net(), transport(), prop::collection::vec(any::<u8>(), 0..100)).prop_map(
        |(src, dst, tags, net, transport, body)| {
            let payload_len = u16::try_from(body.len()).expect("below 100");
            (Frame { src, dst, tags, net, transport, payload_len }, body)
        },
    )
}
