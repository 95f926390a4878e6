//! Forged ICMP errors that say a packet of a tunnel was too long for the path (RFC 1191). Their
//! sender is on the underlay's network, and sees none of the tunnel's packets.

use std::net::Ipv4Addr;

use straightline_switch::api::{EventKind, PathMtu};
use straightline_testing::{BROADCAST, frame, mac, send, take, wait_event, wait_until};
use straightline_wire::{EtherType, IpProtocol, checksum, ethernet, icmpv4, ipv4, udp, vxlan};

use crate::network::{ATTACKERS_IP, LEFT, LEFT_IP, Network, QUIET_IP, STRANGER};

/// Bytes of the outer IP packet around the longest frame of the victims and of the guests here.
const SENT: u16 = 1514 + 36;

/// Bytes of the outer IP packet around an inner one of 1280 bytes.
const LEAST: u16 = 1280 + 14 + 36;

/// Returns the smallest error of a router: 56 bytes about a packet of `len` bytes from t1 to this
/// remote.
fn too_big(remote: Ipv4Addr, len: u16, mtu: u16) -> Vec<u8> {
    let ip = |src, dst, protocol, payload_len| ipv4::Repr {
        tos: 0,
        payload_len,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol,
        src,
        dst,
    };
    let mut quoted = [0; 28];
    ip(LEFT_IP, remote, IpProtocol::UDP, len - 20).emit(&mut quoted).expect("a header");
    let header = udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_len: len - 28, checksum: 0x1234 };
    header.emit(&mut quoted[20..]).expect("a header");
    let mut bytes = vec![0; 14 + 20 + 8];
    let router = Ipv4Addr::new(203, 0, 113, 9);
    ethernet::Repr { dst: LEFT, src: STRANGER, ether_type: EtherType::IPV4 }.emit(&mut bytes).expect("a header");
    ip(router, LEFT_IP, IpProtocol::ICMP, 8 + 28).emit(&mut bytes[14..]).expect("a header");
    let error = icmpv4::Repr::FragmentationNeeded { mtu };
    error.emit(&mut bytes[34..], checksum::sum(&quoted)).expect("a header");
    bytes.extend(quoted);
    bytes
}

#[test]
fn an_error_about_no_packet_of_ours_is_not_believed() {
    let scene = Network::new();
    // The victims' longest packets are shorter. So are those that every stranger may guess.
    for len in [SENT + 1, 1600, 9000] {
        scene.inject(too_big(QUIET_IP, len, 1280));
    }
    // The attacker's machine is behind this remote, and nothing was sent there.
    scene.inject(too_big(ATTACKERS_IP, SENT, 1280));
    for _ in 0..2000 {
        scene.inject(too_big(QUIET_IP, 1600, 576));
    }
    scene.go_on();
    wait_until("a limit", || scene.drops("left", "answer-limit") > 0);
    let tunnel = scene.port("t1").tunnel.expect("a tunnel");
    assert_eq!((tunnel.mtu_inside, tunnel.path_mtus), (1600 - 50, Vec::new()));
    scene.end();
}

#[test]
fn an_error_takes_no_more_than_to_1280_bytes_inside() {
    let mut scene = Network::new();
    let near = mac(0x41);
    let far = mac(0x42);
    send(&mut scene.net.b, &frame(BROADCAST, far, 60, 1));
    take(&mut scene.net.a, 1);
    let long = frame(far, near, 1514, 2);
    send(&mut scene.net.a, &long);
    assert_eq!(take(&mut scene.net.b, 1)[0].1, long);
    scene.inject(too_big(ATTACKERS_IP, SENT, 68));
    let lowered = [PathMtu { remote: ATTACKERS_IP.to_string(), mtu: LEAST }];
    wait_until("the MTU falls", || scene.port("t1").tunnel.is_some_and(|tunnel| tunnel.path_mtus == lowered));
    // The longest packet that inner IPv6 sends without knowledge of the path still passes.
    let least = frame(far, near, 14 + 1280, 3);
    send(&mut scene.net.a, &least);
    assert_eq!(take(&mut scene.net.b, 1)[0].1, least);
    send(&mut scene.net.a, &long);
    wait_until("a longer one drops", || scene.drops("t1", "too-big") == 1);
    let is_told = |kind: &EventKind| matches!(kind, EventKind::PathMtu { mtu: Some(LEAST), .. });
    wait_event(&scene.net.switch, "an event", is_told);
    scene.go_on();
    scene.end();
}
