//! ICMP errors about packets that are too long: those of routers, and forged ones.

use std::sync::Arc;

use straightline_packet::PortIndex;
use straightline_wire::{EtherType, MacAddr, checksum, udp, vxlan};

use super::*;
use crate::headers::reference;
use crate::testing::{MAC, Station, config, ip};
use crate::{L2tpOver, PathMtuErrors, Tunnel, TunnelConfig, TunnelKind, UnderlayConfig};
use straightline_wire::messages::{self, Link, Message};

const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xbb]);
const US: &str = "192.0.2.1";
const FAR: &str = "198.51.100.1";
const US6: &str = "2001:db8::1";
const FAR6: &str = "2001:db8:1::1";

fn link() -> Link {
    Link { src: ROUTER, dst: MAC, vlan: None }
}

fn v4(text: &str) -> std::net::Ipv4Addr {
    text.parse().expect("an address")
}

fn v6(text: &str) -> std::net::Ipv6Addr {
    text.parse().expect("an address")
}

/// Returns an error of a router about a packet of `len` bytes from `src` to `dst`. It quotes `rest`
/// behind the IP header.
pub(in crate::answer) fn too_big4(
    src: &str,
    dst: &str,
    (protocol, rest): (IpProtocol, &[u8]),
    len: usize,
    mtu: u16,
) -> Vec<u8> {
    let mut quoted = [&[0; 20], rest].concat();
    messages::v4(v4(src), v4(dst), protocol, len - 20).and_then(|repr| repr.emit(&mut quoted)).expect("a header");
    let mut icmp = [0; 8];
    let repr = icmpv4::Repr::FragmentationNeeded { mtu };
    repr.emit(&mut icmp, checksum::sum(&quoted)).expect("a header");
    let mut message = Message::begin(link(), EtherType::IPV4).expect("a header");
    let router = v4("203.0.113.1");
    let own = v4("192.0.2.1");
    let ip = messages::v4(router, own, IpProtocol::ICMP, 8 + quoted.len()).expect("a header");
    message.append(|bytes| ip.emit(bytes)).expect("space");
    message.append_bytes(&icmp).expect("space");
    message.append_bytes(&quoted).expect("space");
    message.bytes().to_vec()
}

/// Does the same for a packet of L2TPv3 over IPv6.
pub(in crate::answer) fn too_big6(src: &str, dst: &str, rest: &[u8], len: usize, mtu: u32) -> Vec<u8> {
    let mut quoted = [&[0; 40], rest].concat();
    let repr = messages::v6(v6(src), v6(dst), IpProtocol::L2TP, len - 40).expect("a header");
    repr.emit(&mut quoted).expect("space");
    let router = v6("2001:db8:ffff::1");
    let own = v6("2001:db8::1");
    let pseudo_len = u32::try_from(8 + quoted.len()).expect("a length");
    let pseudo = checksum::pseudo_header_v6(router, own, IpProtocol::ICMPV6, pseudo_len);
    let mut icmp = [0; 8];
    let repr = icmpv6::Repr::TooBig { mtu };
    repr.emit(&mut icmp, checksum::add(pseudo, checksum::sum(&quoted))).expect("a header");
    let mut message = Message::begin(link(), EtherType::IPV6).expect("a header");
    let ip = messages::v6(router, own, IpProtocol::ICMPV6, 8 + quoted.len()).expect("a header");
    message.append(|bytes| ip.emit(bytes)).expect("space");
    message.append_bytes(&icmp).expect("space");
    message.append_bytes(&quoted).expect("space");
    message.bytes().to_vec()
}

/// The beginnings of packets of [`tunnels`]: GRE with a key, then L2TPv3 with a cookie.
pub(in crate::answer) const KEYED: [u8; 8] = [0x20, 0, 0x65, 0x58, 0, 0, 0, 7];
pub(in crate::answer) const SESSION: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8];

/// Adds two tunnels to far remotes.
pub(in crate::answer) fn tunnels(station: &Station) -> [Arc<Tunnel>; 2] {
    let keyed = TunnelKind::Gre { key: Some(7), checksum: false, ip: false };
    let session = reference::l2tpv3(L2tpOver::Ip, &[1, 2, 3, 4, 5, 6, 7, 8], false);
    [add(station, 1, keyed, US, FAR), add(station, 2, session, US6, FAR6)]
}

/// Adds a tunnel of this kind between these addresses.
fn add(station: &Station, port: u16, kind: TunnelKind, local: &str, remote: &str) -> Arc<Tunnel> {
    let config = TunnelConfig { local: ip(local), remotes: vec![ip(remote)], ..reference::tunnel(kind, true) };
    Tunnel::new(config, Arc::clone(&station.underlay), PortIndex(port), Arc::default())
}

/// Notes that these tunnels have sent a packet of 1500 bytes.
fn send<'a>(tunnels: impl IntoIterator<Item = &'a Arc<Tunnel>>, now: u32) {
    tunnels.into_iter().for_each(|tunnel| tunnel.paths.fixed().get(0).unwrap().mtu.note_sent(1500, now));
}

/// Returns the MTU of the way that each tunnel has.
fn mtus<'a>(tunnels: impl IntoIterator<Item = &'a Arc<Tunnel>>, now: u32) -> Vec<u16> {
    let mtu = |tunnel: &Arc<Tunnel>| tunnel.paths.fixed().get(0).unwrap().mtu.get(tunnel.underlay.mtu(), now);
    tunnels.into_iter().map(mtu).collect()
}

/// Returns the headers of UDP and VXLAN that begin a packet.
fn vxlan(vni: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    let repr = udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_len: 1472, checksum: 0x1234 };
    repr.emit(&mut bytes).expect("a header");
    vxlan::Repr { vni }.emit(&mut bytes[8..]).expect("a header");
    bytes
}

#[track_caller]
fn refused(station: &mut Station, frame: &[u8], reason: Reason) {
    assert_eq!(station.receive(frame).0, Answered::Drop(reason));
}

#[track_caller]
fn believed(station: &mut Station, frame: &[u8]) {
    assert_eq!(station.receive(frame).0, Answered::Used);
}

#[test]
fn a_router_tells_what_fits() {
    let keyed = (IpProtocol::GRE, &KEYED[..]);
    for wrong in [
        too_big4("192.0.2.9", FAR, keyed, 1500, 1400),
        too_big4(US, "198.51.100.2", keyed, 1500, 1400),
        too_big4(US, FAR, (IpProtocol::UDP, &KEYED), 1500, 1400),
        too_big4(US, FAR, keyed, 1400, 1400),
        too_big4(US, FAR, keyed, 1500, 1500),
        // No packet of 576 bytes is too long for a router.
        too_big4(US, FAR, keyed, 576, 100),
        // Another key, other flags, and less than a router quotes.
        too_big4(US, FAR, (IpProtocol::GRE, &[0x20, 0, 0x65, 0x58, 0, 0, 0, 8]), 1500, 1400),
        too_big4(US, FAR, (IpProtocol::GRE, &[0, 0, 0x65, 0x58, 0, 0, 0, 7]), 1500, 1400),
        too_big4(US, FAR, (IpProtocol::GRE, &KEYED[..7]), 1500, 1400),
        too_big6("2001:db8::9", FAR6, &SESSION, 1500, 1400),
        too_big6(US6, "2001:db8:1::2", &SESSION, 1500, 1400),
        too_big6(US6, FAR6, &SESSION, 1500, 1279),
        too_big6(US6, FAR6, &SESSION, 1500, 70_000),
        // Another session, another cookie, and less than a router of IPv6 quotes.
        too_big6(US6, FAR6, &[0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8], 1500, 1400),
        too_big6(US6, FAR6, &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 9], 1500, 1400),
        too_big6(US6, FAR6, &SESSION[..11], 1500, 1400),
    ] {
        let mut station = Station::new(config());
        let tunnels = tunnels(&station);
        send(&tunnels, 0);
        refused(&mut station, &wrong, Reason::NotOurs);
        assert_eq!(mtus(&tunnels, 0), [1500, 1500]);
    }
    let mut station = Station::new(config());
    let tunnels = tunnels(&station);
    send(&tunnels, 0);
    let right = [too_big4(US, FAR, keyed, 1500, 1400), too_big6(US6, FAR6, &SESSION, 1500, 1350)];
    let mut damaged = right[0].clone();
    damaged[41] ^= 1;
    refused(&mut station, &damaged, Reason::TunnelChecksum);
    right.iter().for_each(|frame| believed(&mut station, frame));
    assert_eq!(mtus(&tunnels, 0), [1400, 1350]);
    assert_eq!(tunnels[0].status().path_mtus, [(ip(FAR), 1400)]);
    station.turn(600);
    assert_eq!(mtus(&tunnels, 600), [1500, 1500]);
    assert!(tunnels[0].status().path_mtus.is_empty());
    // A tunnel that has gone has no packets.
    drop(tunnels);
    station.turn(601);
    right.iter().for_each(|frame| refused(&mut station, frame, Reason::NotOurs));
}

#[test]
fn a_forged_error_leaves_1280_bytes_inside() {
    let mut station = Station::new(config());
    let tunnels = tunnels(&station);
    send(&tunnels, 0);
    // The smallest error: it quotes what any stranger knows.
    believed(&mut station, &too_big4(US, FAR, (IpProtocol::GRE, &KEYED), 1500, 68));
    believed(&mut station, &too_big6(US6, FAR6, &SESSION, 1500, 1280));
    assert_eq!(tunnels.each_ref().map(|tunnel| tunnel.status().mtu_inside), [1280; 2]);
    assert_eq!(mtus(&tunnels, 0), [1280 + 42, 1280 + 66]);
}

#[test]
fn an_error_is_about_a_packet_of_the_last_seconds() {
    let mut station = Station::new(config());
    let tunnels = tunnels(&station);
    let error = |len| too_big4(US, FAR, (IpProtocol::GRE, &KEYED), len, 1400);
    refused(&mut station, &error(1500), Reason::NotOurs);
    tunnels[0].paths.fixed().get(0).unwrap().mtu.note_sent(1450, 0);
    refused(&mut station, &error(1451), Reason::NotOurs);
    station.turn(8);
    refused(&mut station, &error(1450), Reason::NotOurs);
    tunnels[0].paths.fixed().get(0).unwrap().mtu.note_sent(1450, 8);
    station.turn(11);
    believed(&mut station, &error(1450));
    assert_eq!(mtus(&tunnels, 11), [1400, 1500]);
}

#[test]
fn an_error_counts_for_the_tunnel_that_has_sent_the_packet() {
    let mut station = Station::new(config());
    let tunnels: Vec<_> = (1..4).map(|vni| add(&station, 1, TunnelKind::Vxlan { vni }, US, FAR)).collect();
    send(&tunnels, 0);
    // The quote has the key of the second one.
    believed(&mut station, &too_big4(US, FAR, (IpProtocol::UDP, &vxlan(2)), 1500, 1400));
    assert_eq!(mtus(&tunnels, 0), [1500, 1400, 1500]);
    station.turn(8);
    send(&tunnels[..1], 8);
    // It has no key, and one of them has sent such a packet.
    believed(&mut station, &too_big4(US, FAR, (IpProtocol::UDP, &vxlan(9)[..8]), 1500, 1450));
    assert_eq!(mtus(&tunnels, 8), [1450, 1400, 1500]);
}

#[test]
fn the_configuration_bounds_the_belief_in_errors() {
    for (path_mtu, mtu) in
        [(PathMtuErrors::Off, 1500), (PathMtuErrors::Least(1492), 1492), (PathMtuErrors::Least(576), 600)]
    {
        let mut station = Station::new(UnderlayConfig { path_mtu, ..config() });
        let tunnels = tunnels(&station);
        send(&tunnels, 0);
        let answered = station.receive(&too_big4(US, FAR, (IpProtocol::GRE, &KEYED), 1500, 600)).0;
        assert_eq!((answered == Answered::Used, mtus(&tunnels, 0)[0]), (mtu < 1500, mtu));
    }
}

/// An error costs as much with 500 tunnels as with one. The number of tunnels that are looked at is
/// counted.
#[test]
fn only_the_tunnels_to_the_remote_are_looked_at() {
    let mut station = Station::new(config());
    let kind = TunnelKind::Gre { key: Some(7), checksum: false, ip: false };
    let remote = |n: u16| format!("198.51.{}.{}", 100 + n / 250, 1 + n % 250);
    let tunnels: Vec<_> = (0..500).map(|n| add(&station, n + 1, kind.clone(), US, &remote(n))).collect();
    send(&tunnels, 0);
    let src = ip(US);
    let dst = ip(&remote(77));
    let quoted = |dst| Quoted { src, dst, protocol: IpProtocol::GRE, len: 1500, rest: &KEYED };
    let looked_at = |dst| station.underlay.lower_path_mtus(&quoted(dst), 1400, 0);
    assert_eq!(looked_at(ip("192.0.2.9")), Lowered { tunnels: 0, looked_at: 0 });
    assert_eq!(looked_at(dst), Lowered { tunnels: 1, looked_at: 1 });
    assert_eq!(mtus([&tunnels[76], &tunnels[77], &tunnels[78]], 0), [1500, 1400, 1500]);
    // One stranger is heard 20 times in a second, and leaves others their part.
    let forged = too_big4(US, FAR, (IpProtocol::GRE, &[0; 8]), 1500, 1300);
    (0..20).for_each(|_| refused(&mut station, &forged, Reason::NotOurs));
    (0..9).for_each(|_| refused(&mut station, &forged, Reason::AnswerLimit));
    station.turn(1);
    refused(&mut station, &forged, Reason::NotOurs);
}
