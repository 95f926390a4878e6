use straightline_packet::{Arena, Gso, GsoKind, Offload, PortIndex, Rcu, Settings};
use straightline_testing::golden;
use straightline_wire::flow_hash;

use super::*;
use crate::L2tpOver;
use crate::headers::reference::{HOP, InnerHeaders, US, check, finish, kinds, l2tpv3, tunnel, underlay};

/// Puts headers on a packet, and finishes its checksum as a port does. Also checks that restoring
/// the outside gives the packet back.
fn put_on(headers: &Headers, packet: &[u8], checksum: Checksum) -> Vec<u8> {
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let offload = Offload { checksum, gso: None };
    let macs = *[HOP.0, US.0].concat().first_chunk().unwrap();
    arena.turn(|turn| {
        let id = turn.accept_owned(PortIndex(0), packet).unwrap();
        let packets = turn.packets();
        packets.set_offload(id, offload);
        let outside = packets.save_outside(id);
        headers.put_on(packets, id, &macs).unwrap();
        let mut sent = packets.head(id).to_vec();
        finish(&mut sent, packets.offload(id).checksum);
        packets.restore_outside(id, &outside);
        assert_eq!((packets.head(id), packets.offload(id)), (packet, offload));
        sent
    })
}

#[test]
fn headers_are_those_of_a_packet_that_is_built_whole() {
    for kind in kinds() {
        for (v4, vlan) in [(true, None), (true, Some(100)), (false, None), (false, Some(4094))] {
            let tunnel = tunnel(kind.clone(), v4);
            let headers = Headers::new(&underlay(vlan), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
            // The configuration's check knows the lengths before there are headers.
            assert_eq!(kind.overhead(!v4, vlan.is_some()), headers.overhead(), "{kind:?}");
            assert_eq!(kind.mtu_inside(1500, !v4), headers.mtu_inside(1500), "{kind:?}");
            for (len, tos) in [(0, 0), (1, 1), (2, 2), (17, 3), (60, 0xb9)] {
                let payload: Vec<u8> = (0..len).map(|at: u8| at.wrapping_mul(7).wrapping_add(3)).collect();
                for (inner_v4, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
                    let inner = InnerHeaders::new(inner_v4, tcp, tos);
                    let complete = inner.complete(&payload);
                    let sent = put_on(&headers, &complete, Checksum::Complete);
                    check(&tunnel, vlan, &sent, &complete, tos);
                    let removed = if tunnel.kind.carries_ip() { 14 } else { 0 };
                    assert_eq!(sent.len(), complete.len() + usize::from(headers.overhead()) - removed);
                    let sent = put_on(&headers, &inner.unfinished(&payload), inner.partial());
                    check(&tunnel, vlan, &sent, &complete, tos);
                }
            }
        }
    }
}

#[test]
fn a_quoted_packet_is_known_by_its_headers() {
    for v4 in [true, false] {
        let l4 = if v4 { 34 } else { 54 };
        let built = kinds().into_iter().map(|kind| {
            let tunnel = tunnel(kind.clone(), v4);
            (kind, Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap())
        });
        let built: Vec<_> = built.collect();
        for (at, (kind, headers)) in built.iter().enumerate() {
            for inner in [InnerHeaders::new(true, true, 0), InnerHeaders::new(false, false, 0)] {
                let sent = put_on(headers, &inner.complete(&[1; 60]), Checksum::Complete);
                let protocol = IpProtocol(sent[if v4 { 23 } else { 20 }]);
                let quoted = &sent[l4..];
                // Routers of IPv6 quote all headers.
                let least = if v4 { 8 } else { usize::from(headers.overhead()) - l4 };
                (least..quoted.len()).for_each(|len| assert!(headers.can_begin(protocol, &quoted[..len]), "{kind:?}"));
                (0..least).for_each(|len| assert!(!headers.can_begin(protocol, &quoted[..len])));
                assert!(!headers.can_begin(IpProtocol::TCP, quoted));
                for (other_at, (other, headers)) in built.iter().enumerate() {
                    // VXLAN-GPE that carries IP differs from the one of Ethernet in the inner type only.
                    let is_gpe = |kind: &TunnelKind| matches!(kind, TunnelKind::VxlanGpe { .. });
                    if !(is_gpe(kind) && is_gpe(other)) {
                        assert_eq!(headers.can_begin(protocol, quoted), at == other_at, "{kind:?} and {other:?}");
                    }
                }
            }
        }
    }
    // Ports below those of flows, another port of the other end, another network.
    let tunnel = tunnel(TunnelKind::Vxlan { vni: 5 }, true);
    let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
    let sent = put_on(&headers, &InnerHeaders::new(true, true, 0).complete(&[]), Checksum::Complete);
    for (byte, bit) in [(0, 0x80), (0, 0x40), (2, 1), (3, 1), (8, 8), (12, 1), (14, 1)] {
        let mut other = sent[34..].to_vec();
        other[byte] ^= bit;
        assert!(!headers.can_begin(IpProtocol::UDP, &other), "{byte}");
    }
    let fixed = TunnelConfig { source_port: Some(4789), ..tunnel };
    let headers = Headers::new(&underlay(None), &fixed, &fixed.kind, fixed.remotes[0]).unwrap();
    assert!(!headers.can_begin(IpProtocol::UDP, &sent[34..]));
}

#[test]
fn lengths_outside_follow_from_those_inside() {
    for (kind, v4) in kinds().into_iter().flat_map(|kind| [(kind.clone(), true), (kind, false)]) {
        let tunnel = tunnel(kind, v4);
        let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
        assert_eq!(headers.mtu_inside(headers.mtu_outside(1280)), 1280, "{tunnel:?}");
        let packet = InnerHeaders::new(true, true, 0).complete(&[1; 200]);
        let sent = put_on(&headers, &packet, Checksum::Complete);
        assert_eq!(usize::from(headers.ip_len(u32::try_from(packet.len()).unwrap())), sent.len() - 14);
    }
}

#[test]
fn a_checksum_may_be_anywhere() {
    let tunnel = tunnel(TunnelKind::Vxlan { vni: 5 }, true);
    let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
    let packet: Vec<u8> = (0..100).map(|at: u8| at.wrapping_mul(91).wrapping_add(17)).collect();
    for start in 0..40 {
        for offset in 0..20 {
            let state = Checksum::Partial { start, offset };
            let mut finished = packet.clone();
            finish(&mut finished, state);
            let sent = put_on(&headers, &packet, state);
            check(&tunnel, None, &sent, &finished, 0);
        }
    }
}

#[test]
fn a_tag_hides_no_congestion_mark() {
    let tunnel = tunnel(TunnelKind::Vxlan { vni: 5 }, false);
    let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
    let mut packet = InnerHeaders::new(true, true, 3).complete(&[]);
    packet.splice(12..12, [0x81, 0, 0, 9]);
    check(&tunnel, None, &put_on(&headers, &packet, Checksum::Complete), &packet, 3);
    // Too short for an IP header, or for a tag.
    for len in [14, 15, 17, 18, 19] {
        check(&tunnel, None, &put_on(&headers, &packet[..len], Checksum::Complete), &packet[..len], 0);
    }
}

/// A packet socket puts a tag back in front of a packet, in the space for headers.
#[test]
fn the_longest_headers_fit_behind_a_tag_that_was_put_back() {
    let options = [&[1, 2, 3, 8][..], &[5; 32]].concat();
    let tunnel = tunnel(TunnelKind::Geneve { vni: 1, options }, false);
    let headers = Headers::new(&underlay(Some(100)), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
    assert_eq!(usize::from(headers.overhead()), LONGEST);
    let inner = InnerHeaders::new(true, true, 0);
    let packet = inner.complete(&[7; 100]);
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    // With tags beyond the one of packet sockets, as nodes may prepend them.
    for (tags, is_gso, expected) in
        [(1, false, Ok(())), (1, true, Ok(())), (2, false, Err(Reason::NoHeadroom)), (2, true, Err(Reason::NoHeadroom))]
    {
        arena.turn(|turn| {
            let id = turn.accept_owned(PortIndex(0), &packet).unwrap();
            let gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 60, l3: 14, l4: 34, header_len: 54, outer: None };
            let offload = Offload { checksum: inner.partial(), gso: is_gso.then_some(gso) };
            turn.packets().set_offload(id, offload);
            for _ in 0..tags {
                let front = [&packet[..12], &[0x81, 0, 0, 5]].concat();
                turn.packets().strip(id, 12).unwrap();
                turn.packets().prepend(id, &front).unwrap();
            }
            let put = if is_gso { Headers::put_on_gso } else { Headers::put_on };
            assert_eq!(put(&headers, turn.packets(), id, &[2; 12]), expected);
            // The destination's own header is in front of all.
            *turn.front_mut::<12>(id) = [0xee; 12];
            assert!(turn.head(id).ends_with(&packet[14..]));
        });
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let config = tunnel(TunnelKind::Vxlan { vni: 5 }, true);
    let new = |config: &TunnelConfig, remote: &str| {
        Headers::new(&underlay(None), config, &config.kind, remote.parse().unwrap()).err()
    };
    assert_eq!(new(&config, "10.0.0.2"), None);
    assert_eq!(new(&config, "fd00::2"), Some(WireError::BadVersion));
    for kind in [
        TunnelKind::Vxlan { vni: 1 << 24 },
        TunnelKind::Nvgre { vsid: 1 << 24 },
        TunnelKind::Geneve { vni: 1 << 24, options: Vec::new() },
        TunnelKind::VxlanGpe { vni: 1 << 24, ip: true },
        TunnelKind::MplsUdp { label: 99, peer_label: 1 << 20 },
        TunnelKind::Geneve { vni: 1, options: vec![0; 80] },
    ] {
        assert!(new(&TunnelConfig { kind, ..config.clone() }, "10.0.0.2").is_some());
    }
}

/// Puts the headers of a kind on the inner frame of the golden frames, from the given UDP port.
fn on_golden(kind: TunnelKind, v4: bool, source_port: Option<u16>) -> Vec<u8> {
    let tunnel = TunnelConfig { source_port, ..tunnel(kind, v4) };
    let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
    put_on(&headers, golden::inner_frame(), Checksum::Complete)
}

#[test]
fn golden_frames_are_produced() {
    let keyed = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
    let over_udp = |cookie: &[u8], l2spec| match l2tpv3(L2tpOver::Udp { port: 1701 }, cookie, l2spec) {
        TunnelKind::L2tpv3 { over, session, cookie, previous_cookie, peer_cookie, l2spec, .. } => {
            let peer_session = 0x0102_0304;
            TunnelKind::L2tpv3 { over, session, peer_session, cookie, previous_cookie, peer_cookie, l2spec }
        }
        other => other,
    };
    let geneve = |options: &[u8]| TunnelKind::Geneve { vni: 0x12_3456, options: options.to_vec() };
    let gre = |key, checksum, ip| TunnelKind::Gre { key, checksum, ip };
    let vxlan = TunnelKind::Vxlan { vni: 0x12_3456 };
    let port = Some(50_000);
    let frames = [
        ("vxlan", vxlan.clone(), true, port),
        ("vxlan-gpe", TunnelKind::VxlanGpe { vni: 0x12_3456, ip: false }, true, port),
        ("geneve", geneve(&[]), true, port),
        ("geneve-option", geneve(&[1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef]), true, port),
        ("gre", gre(None, false, false), true, None),
        ("gre-key", gre(Some(0xcafe_0001), false, false), true, None),
        ("gre-checksum", gre(None, true, false), true, None),
        ("gre-ip", gre(None, false, true), true, None),
        // NVGRE is GRE with a key. Its lowest byte follows from the flow: see the next test.
        ("nvgre", gre(Some(0x1234_567f), false, false), true, None),
        ("gtpu", TunnelKind::Gtpu { teid: 1, peer_teid: 0x1122_3344 }, true, Some(2152)),
        ("mpls-udp", TunnelKind::MplsUdp { label: 99, peer_label: 0x1_2345 }, true, port),
        ("l2tpv3-ipv6", l2tpv3(L2tpOver::Ip, &keyed, false), false, None),
        ("vxlan-ipv6", vxlan.clone(), false, port),
        ("vxlan-checksum", vxlan, true, port),
        ("geneve-critical-ipv6", geneve(&[0xff, 1, 0x80, 0]), false, port),
        ("l2tpv3-udp", over_udp(&[0x88, 0x99, 0xaa, 0xbb], true), true, None),
        ("l2tpv3-udp-ipv6", over_udp(&keyed, false), false, None),
        ("vxlan-gpe-ip-ipv6", TunnelKind::VxlanGpe { vni: 0x12_3456, ip: true }, false, port),
    ];
    for (name, kind, v4, port) in frames {
        let expected = golden::frame(name).bytes;
        let mut made = on_golden(kind, v4, port);
        // Some frames over IPv4 have no UDP checksum. The tunnel always sends one.
        if v4 && expected[23] == 17 && expected[40..42] == [0, 0] {
            assert_ne!(made[40..42], [0, 0]);
            made[40..42].fill(0);
        }
        let mut expected = expected.to_vec();
        if !v4 {
            put_flow_label(&mut expected, golden::inner_frame());
        }
        assert_eq!(made, expected, "{name}");
    }
}

/// Gives an outer IPv6 header the flow label of the inner frame. The golden frames have 0 there,
/// which means that their sender has set none.
fn put_flow_label(frame: &mut [u8], inner: &[u8]) {
    assert_eq!(frame[15..18], [0; 3]);
    let label = flow_hash(inner) >> 12;
    frame[15..18].copy_from_slice(&label.to_be_bytes()[1..]);
}

/// RFC 6438: routers find the packets of a flow by addresses and flow label, whatever the kind.
#[test]
fn a_flow_has_one_label_over_ipv6() {
    let label = |sent: &[u8]| u32::from_be_bytes(*sent[14..].first_chunk().unwrap()) & 0xf_ffff;
    for kind in kinds() {
        for source_port in [None, Some(50_000)] {
            let tunnel = TunnelConfig { source_port, ..tunnel(kind.clone(), false) };
            let headers = Headers::new(&underlay(None), &tunnel, &tunnel.kind, tunnel.remotes[0]).unwrap();
            let inner = InnerHeaders::new(true, false, 0);
            let first = label(&put_on(&headers, &inner.complete(&[1; 40]), Checksum::Complete));
            let marked = InnerHeaders { tos: 3, ident: 9, ..inner };
            assert_eq!(label(&put_on(&headers, &marked.unfinished(&[2; 9]), inner.partial())), first, "{kind:?}");
            let labels: std::collections::HashSet<_> = (0..64_u8)
                .map(|port| {
                    let mut frame = inner.complete(&[1; 40]);
                    frame[usize::from(inner.l4()) + 1] = port;
                    label(&put_on(&headers, &frame, Checksum::Complete))
                })
                .collect();
            assert!(labels.len() > 60 && !labels.contains(&0), "{kind:?}: {labels:?}");
        }
    }
    assert_eq!((flow_label(0), flow_label(u32::MAX)), (1, 0xf_ffff), "0 means none");
}

#[test]
fn the_flow_of_nvgre_is_that_of_the_inner_packet() {
    let made = on_golden(TunnelKind::Nvgre { vsid: 0x12_3456 }, true, None);
    let mut expected = golden::frame("nvgre").bytes.to_vec();
    expected[41] = flow_hash(golden::inner_frame()).to_be_bytes()[3];
    assert_eq!(made, expected);
}
