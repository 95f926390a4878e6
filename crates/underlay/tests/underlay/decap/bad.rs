//! Packets that no tunnel may take.

use straightline_graph::{Clock, PortControl};
use straightline_packet::{Checksum, Gso, GsoKind, Offload, Reason};
use straightline_underlay::{TunnelKind, TunnelPort};

use super::rig::{End, Kind, Rig, fill_ipv4_checksum, inner_frame, inner_frame_of, inner_ip, outside};

const IP_V4: usize = 14;

/// Changes an IPv4 packet, and makes its header's checksum right again.
fn changed(mut packet: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut packet);
    fill_ipv4_checksum(&mut packet[IP_V4..]);
    packet
}

#[test]
fn truncated_packets_are_dropped() {
    for kind in Kind::all() {
        for v4 in [true, false] {
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let packet = kind.packet(v4, &kind.inner());
            for len in 14..packet.len() {
                let end = rig.send(&packet[..len]);
                // A port lets through only what has an Ethernet header.
                assert_eq!(end, End::Dropped(0, Reason::TunnelHeader), "{kind:?} {v4} {len}");
            }
        }
    }
}

/// Each header is cut, and the lengths of the headers around it agree.
#[test]
fn truncated_messages_are_dropped() {
    for kind in Kind::all() {
        for v4 in [true, false] {
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let whole = kind.behind_ip(v4, &kind.inner());
            for len in 0..whole.len() {
                let mut message = whole[..len].to_vec();
                if kind.protocol == 17 && len >= 8 {
                    message = super::rig::udp(v4, kind.port, &message[8..]);
                } else if kind.protocol == 47 && len >= 6 && message[0] & 0x80 != 0 {
                    message[4..6].fill(0);
                    let sum = !straightline_wire::checksum::sum(&message);
                    message[4..6].copy_from_slice(&sum.to_be_bytes());
                }
                match rig.send(&outside(v4, kind.protocol, 0, &message)) {
                    // The rest of the inner packet is for its receiver to judge.
                    End::Inside(0, bytes, _) => assert!(kind.outcome(&kind.inner()).starts_with(&bytes)),
                    End::Dropped(_, Reason::TunnelHeader | Reason::Runt | Reason::TunnelCookie) => {}
                    other => panic!("{other:?} for {len} bytes of {kind:?}"),
                }
            }
        }
    }
}

#[test]
fn a_frame_inside_has_an_ethernet_header() {
    for kind in Kind::all().into_iter().filter(|kind| !kind.kind.carries_ip()) {
        let mut rig = Rig::new(vec![kind.config(true)]);
        for len in 0..14 {
            let end = rig.send(&kind.packet(true, &inner_frame()[..len]));
            assert_eq!(end, End::Dropped(1, Reason::Runt), "{kind:?} {len}");
        }
    }
}

#[test]
fn ip_inside_must_be_ip() {
    for kind in Kind::all().into_iter().filter(|kind| kind.kind.carries_ip()) {
        let mut rig = Rig::new(vec![kind.config(true)]);
        for version in (0..16).filter(|&version| version != 4) {
            let mut inner = inner_ip();
            inner[0] = version << 4;
            match rig.send(&kind.packet(true, &inner)) {
                // These headers do not name the version.
                End::Inside(0, ..) if version == 6 && [2152, 6635].contains(&kind.port) => {}
                end => assert_eq!(end, End::Dropped(1, Reason::TunnelHeader), "{kind:?} {version}"),
            }
        }
    }
}

#[test]
fn unknown_keys_remotes_and_addresses() {
    for kind in Kind::all() {
        for v4 in [true, false] {
            let packet = kind.packet(v4, &kind.inner());
            // No tunnel of this underlay has the addresses, or the key.
            let mut config = kind.config(v4);
            config.remotes[0] = super::rig::ip(if v4 { "10.0.0.77" } else { "fd00::77" });
            assert_eq!(Rig::new(vec![config]).send(&packet), End::Dropped(0, Reason::TunnelUnknown));
            let mut config = kind.config(v4);
            match &mut config.kind {
                TunnelKind::L2tpv3 { session, .. } => *session ^= 1 << 30,
                TunnelKind::Vxlan { vni } | TunnelKind::Geneve { vni, .. } | TunnelKind::VxlanGpe { vni, .. } => {
                    *vni ^= 1 << 23;
                }
                TunnelKind::Gre { key, .. } => *key = Some(key.map_or(0, |key| key ^ 1)),
                TunnelKind::Nvgre { vsid } => *vsid ^= 1,
                TunnelKind::Gtpu { teid, .. } => *teid ^= 1 << 31,
                TunnelKind::MplsUdp { label, .. } => *label ^= 1,
            }
            assert_eq!(Rig::new(vec![config]).send(&packet), End::Dropped(0, Reason::TunnelUnknown), "{kind:?}");
        }
        // To an address that is not ours.
        let packet = changed(kind.packet(true, &kind.inner()), |packet| packet[33] = 99);
        assert_eq!(Rig::new(vec![kind.config(true)]).send(&packet), End::Dropped(0, Reason::NotOurs));
        assert_eq!(Rig::new(Vec::new()).send(&packet), End::Dropped(0, Reason::NotOurs));
        let packet = kind.packet(true, &kind.inner());
        assert_eq!(Rig::new(Vec::new()).send(&packet), End::Dropped(0, Reason::TunnelUnknown));
    }
}

#[test]
fn a_key_is_of_one_version_of_ip() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true)]);
    assert_eq!(rig.send(&kind.packet(false, &inner_frame())), End::Dropped(0, Reason::TunnelUnknown));
}

#[test]
fn cookies_are_compared_whole() {
    let kind = Kind::keyed_l2tpv3(&[1, 2, 3, 4]);
    let mut rig = Rig::new(vec![kind.config(false)]);
    for cookie in [&[1, 2, 3, 5][..], &[1, 2, 3, 0, 0, 0, 0, 4], &[]] {
        let end = rig.send(&Kind::keyed_l2tpv3(cookie).packet(false, &inner_frame()));
        assert_eq!(end, End::Dropped(1, Reason::TunnelCookie), "{cookie:?}");
    }
    // A cookie that the tunnel does not have is a part of the frame.
    let mut rig = Rig::new(vec![Kind::keyed_l2tpv3(&[]).config(false)]);
    let inner = [&[1, 2, 3, 4][..], &inner_frame()].concat();
    assert_eq!(rig.send(&kind.packet(false, &inner_frame())).inside(), inner);
}

/// Sends the packet of a kind with another header. Returns the end.
fn with_header(kind: &Kind, change: impl FnOnce(&mut Vec<u8>)) -> End {
    let mut sent = kind.clone();
    change(&mut sent.header);
    Rig::new(vec![kind.config(true)]).send(&sent.packet(true, &kind.inner()))
}

#[test]
fn absurd_headers_of_tunnels() {
    let header = End::Dropped(0, Reason::TunnelHeader);
    let option = End::Dropped(0, Reason::TunnelOption);
    let vxlan = Kind::vxlan(7);
    assert_eq!(with_header(&vxlan, |header| header[0] = 0xf7), header, "no I flag");
    assert_eq!(with_header(&vxlan, |header| header[0] = 0xff).inside(), inner_frame(), "other flags");

    let geneve = Kind::geneve(7, &[]);
    for (at, value) in [(0, 0x40), (0, 0xc0), (2, 0x08), (3, 0x59)] {
        assert_eq!(with_header(&geneve, |header| header[at] = value), header, "version, protocol");
    }
    // The flag alone drops nothing: the options decide for a receiver that reads them (RFC 8926, 3.4).
    assert_eq!(with_header(&geneve, |header| header[1] = 0x40).inside(), inner_frame(), "critical, it says");
    let geneve = Kind::geneve(7, &[1, 2, 3, 1, 0, 0, 0, 0]);
    assert_eq!(with_header(&geneve, |header| header[10] = 0x83), option, "critical, it is");
    assert_eq!(with_header(&geneve, |header| header[1] = 0x40).inside(), inner_frame(), "critical, it says");
    assert_eq!(with_header(&geneve, |header| header[11] = 2), header, "an option beyond the options");
    assert_eq!(with_header(&geneve, |header| header[0] = 63), header, "options beyond the packet");

    let gre = Kind::gre(0, false, 0x6558, &[]);
    for (at, value) in [(0, 0x40), (0, 0x08), (0, 0x04), (1, 1), (1, 7), (2, 0x66), (3, 0)] {
        assert_eq!(with_header(&gre, |header| header[at] = value), header, "flags, version, protocol");
    }
    // NVGRE has neither a checksum nor a sequence number (RFC 7637, 3.2).
    let nvgre = Kind::all().into_iter().find(|kind| matches!(kind.kind, TunnelKind::Nvgre { .. })).unwrap();
    for (flag, at) in [(0x80, 4), (0x10, 8)] {
        let end = with_header(&nvgre, |header| {
            header[0] |= flag;
            header.splice(at..at, [0; 4]);
        });
        assert_eq!(end, End::Dropped(0, Reason::TunnelUnknown), "flag {flag:#x} of NVGRE");
    }

    let gpe = Kind::all().into_iter().find(|kind| kind.port == 4790).unwrap();
    for (at, value) in [(0, 0x04), (0, 0x1c), (0, 0x2c), (0, 0x3c), (3, 4), (3, 0)] {
        assert_eq!(with_header(&gpe, |header| header[at] = value), header, "flags, version, protocol");
    }
    assert_eq!(with_header(&gpe, |header| header[..4].copy_from_slice(&[8, 0, 0, 9])).inside(), inner_frame());

    let gtpu = Kind::gtpu(inner_ip().len());
    for (at, value) in [(0, 0x50), (0, 0x20), (2, 0xff)] {
        assert_eq!(with_header(&gtpu, |header| header[at] = value), header, "version, GTP', length");
    }
    // An extension that must be known, one that need not, and a chain without end.
    let extended = |rest: &[u8]| {
        let mut kind = gtpu.clone();
        kind.header[0] |= 4;
        kind.header.extend(rest);
        kind.header[3] += u8::try_from(rest.len()).unwrap();
        Rig::new(vec![gtpu.config(true)]).send(&kind.packet(true, &inner_ip()))
    };
    assert_eq!(extended(&[0, 0, 0, 0xc0, 1, 0, 0, 0]), option);
    assert_eq!(extended(&[0, 0, 0, 0x40, 1, 0, 0, 0]).inside(), gtpu.outcome(&inner_ip()));
    assert_eq!(extended(&[0, 0, 0, 0x40, 0, 0, 0, 0]), header);

    let mpls = Kind::all().into_iter().find(|kind| kind.port == 6635).unwrap();
    assert_eq!(with_header(&mpls, |header| header[2] &= 0xfe), header, "not the bottom of the stack");

    let l2tp = Kind::all().into_iter().find(|kind| kind.port == 1701).unwrap();
    for value in [2, 4] {
        assert_eq!(with_header(&l2tp, |header| header[1] = value), header, "version");
    }
}

/// Messages about a tunnel itself have no packet for its inside. They go nowhere, even behind packets
/// of the same tunnel, whose headers the switch has by heart.
#[test]
fn control_messages_are_dropped() {
    let on_port = |port| Kind::all().into_iter().find(move |kind| kind.port == port).unwrap();
    let keyed = Kind::keyed_l2tpv3(&[]);
    let geneve = on_port(6081);
    let gpe = on_port(4790);
    let gtpu = on_port(2152);
    let l2tp = on_port(1701);
    // Each with the offset of a byte in the header and its value.
    let messages = [
        (&geneve, 1, 0x80, "OAM"),
        (&geneve, 1, 0xc0, "OAM with a critical option"),
        (&gpe, 0, 0x0d, "OAM"),
        (&gtpu, 1, 2, "an echo response that nobody asked for"),
        (&gtpu, 1, 26, "an error indication"),
        (&gtpu, 1, 31, "the extensions that the remote knows"),
        (&gtpu, 1, 254, "an end marker"),
        (&gtpu, 1, 77, "an unknown message"),
        (&l2tp, 0, 0x80, "a control message"),
        (&l2tp, 0, 0xc8, "a control message with length and sequence"),
    ];
    for v4 in [true, false] {
        for (kind, at, value, what) in messages {
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let inner = kind.inner();
            let mut control = kind.clone();
            control.header[at] = value;
            let control = control.packet(v4, &inner);
            for _ in 0..4 {
                assert_eq!(rig.send(&control), End::Dropped(0, Reason::TunnelControl), "{kind:?}: {what}");
                assert_eq!(rig.send(&kind.packet(v4, &inner)).inside(), kind.outcome(&inner));
            }
        }
        // Over IP, the session 0 is that of control messages (RFC 3931, 4.1.1.2).
        let mut control = keyed.clone();
        control.header.fill(0);
        let mut rig = Rig::new(vec![keyed.config(v4)]);
        assert_eq!(rig.send(&control.packet(v4, &inner_frame())), End::Dropped(0, Reason::TunnelControl));
    }
}

/// Tunnels of one header that carry something else than they are made for.
#[test]
fn ethernet_and_ip_are_not_confused() {
    for (ip, protocol) in [(true, 0x6558), (false, 0x0800), (false, 0x86dd)] {
        let kind = Kind::gre(0, ip, protocol, &[]);
        let end = Rig::new(vec![kind.config(true)]).send(&kind.packet(true, &inner_ip()));
        assert_eq!(end, End::Dropped(1, Reason::TunnelHeader), "{kind:?}");
    }
}

#[test]
fn fragments_are_dropped_and_counted() {
    for kind in Kind::all() {
        let mut rig = Rig::new(vec![kind.config(true), kind.config(false)]);
        for (high, low) in [(0x20, 0), (0, 1), (0x1f, 0xff), (0x60, 0)] {
            let packet = changed(kind.packet(true, &kind.inner()), |packet| {
                packet[20..22].copy_from_slice(&[high, low]);
            });
            assert_eq!(rig.send(&packet), End::Dropped(0, Reason::Fragment));
            let packet = changed(packet, |packet| packet[33] = 99);
            assert_eq!(rig.send(&packet), End::Dropped(0, Reason::NotOurs));
        }
        // First, last, and one in the middle. Two bits are reserved.
        for offset in [[0, 1], [0, 8], [1, 9], [0, 7]] {
            let fragment =
                [&[kind.protocol, 0], &offset[..], &[0, 0, 0, 7], &kind.behind_ip(false, &kind.inner())].concat();
            assert_eq!(rig.send(&outside(false, 44, 0, &fragment)), End::Dropped(0, Reason::Fragment));
            let behind = [&[44, 0, 1, 4, 0, 0, 0, 0], &fragment[..]].concat();
            assert_eq!(rig.send(&outside(false, 60, 0, &behind)), End::Dropped(0, Reason::Fragment));
            let mut other = outside(false, 44, 0, &fragment);
            other[53] = 99;
            assert_eq!(rig.send(&other), End::Dropped(0, Reason::NotOurs));
        }
    }
}

#[test]
fn absurd_headers_of_ip() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true), kind.config(false)]);
    let header = End::Dropped(0, Reason::TunnelHeader);
    let good = kind.packet(true, &inner_frame());
    for (at, value) in [(14, 0x65), (14, 0x44), (14, 0x4f), (16, 0xff), (17, 19)] {
        let mut packet = good.clone();
        packet[at] = value;
        if value != 0x44 {
            fill_ipv4_checksum(&mut packet[14..]);
        }
        assert_eq!(rig.send(&packet), header, "{at} {value}");
    }
    for bit in 0..160 {
        let mut packet = good.clone();
        packet[14 + bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(rig.send(&packet), End::Dropped(0, Reason::TunnelChecksum | Reason::TunnelHeader)), "{bit}");
    }
    let good = kind.packet(false, &inner_frame());
    for (at, value) in [(14, 0x40), (18, 0xff), (19, 0)] {
        let mut packet = good.clone();
        packet[at] = value;
        assert_eq!(rig.send(&packet), header, "{at} {value}");
    }
}

#[test]
fn absurd_extension_headers() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(false)]);
    let message = kind.behind_ip(false, &inner_frame());
    let mut send = |first: u8, chain: &[u8]| rig.send(&outside(false, first, 0, &[chain, &message].concat())).reason();
    // Options that must be known, by each of the two highest bits.
    for option in [0x40, 0x80, 0xc2] {
        assert_eq!(send(60, &[17, 0, option, 4, 0, 0, 0, 0]), Reason::TunnelOption);
        assert_eq!(send(0, &[17, 0, option, 4, 0, 0, 0, 0]), Reason::TunnelOption);
    }
    assert_eq!(send(60, &[17, 0, 1, 5, 0, 0, 0, 0]), Reason::TunnelHeader, "an option beyond its header");
    assert_eq!(send(60, &[17, 0, 0, 0, 0, 0, 0, 1]), Reason::TunnelHeader, "an option without length");
    assert_eq!(send(43, &[17, 0, 4, 1, 0, 0, 0, 0]), Reason::NotOurs, "not the final destination");
    assert_eq!(send(60, &[17, 0xff, 1, 4, 0, 0, 0, 0]), Reason::TunnelHeader, "longer than the packet");
    assert_eq!(send(60, &[0, 0, 1, 4, 0, 0, 0, 0]), Reason::TunnelHeader, "hop-by-hop options behind others");
    // Behind the header of a packet that is not fragmented.
    let atomic = |next: u8, behind: &[u8]| [&[next, 0, 0, 0, 0, 0, 0, 7], behind].concat();
    assert_eq!(send(44, &atomic(60, &[17, 0, 0x40, 4, 0, 0, 0, 0])), Reason::TunnelOption);
    assert_eq!(send(44, &atomic(44, &[17, 0, 0, 0, 0, 0, 0, 7])), Reason::TunnelHeader, "two of them");
    assert_eq!(send(44, &atomic(0, &[17, 0, 1, 4, 0, 0, 0, 0])), Reason::TunnelHeader, "hop-by-hop options");
    let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    assert_eq!(send(60, &endless), Reason::TunnelHeader);
}

#[test]
fn lengths_of_udp_are_checked() {
    for v4 in [true, false] {
        let kind = Kind::vxlan(7);
        let mut rig = Rig::new(vec![kind.config(v4)]);
        let packet = kind.packet(v4, &inner_frame());
        let at = if v4 { 38 } else { 58 };
        let len = u16::from_be_bytes([packet[at], packet[at + 1]]);
        for wrong in [0, 7, len + 1, u16::MAX] {
            let mut packet = packet.clone();
            packet[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(rig.send(&packet), End::Dropped(0, Reason::TunnelHeader));
        }
        // The header of the tunnel does not fit, or the inner frame's does not.
        for (wrong, expected) in [(8, End::Dropped(0, Reason::TunnelHeader)), (17, End::Dropped(1, Reason::Runt))] {
            let mut packet = packet.clone();
            packet[at..at + 2].copy_from_slice(&u16::to_be_bytes(wrong));
            assert_eq!(rig.send(&packet), expected);
        }
    }
}

#[test]
fn other_protocols_are_not_ours() {
    let mut rig = Rig::new(vec![Kind::vxlan(7).config(true)]);
    for (protocol, payload) in [(6, vec![0; 20]), (17, super::rig::udp(true, 4788, &[8; 60])), (132, vec![0; 60])] {
        assert_eq!(rig.send(&outside(true, protocol, 0, &payload)), End::Dropped(0, Reason::NotOurs));
    }
}

#[test]
fn packets_of_a_tunnel_that_is_set_down_are_dropped() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let port = TunnelPort::new(rig.tunnels[0].clone(), Clock::real());
    port.set_link(false);
    assert_eq!(rig.send(&kind.packet(true, &inner_frame())), End::Dropped(1, Reason::SetDown));
    port.set_link(true);
    assert_eq!(rig.send(&kind.packet(true, &inner_frame())).inside(), inner_frame());
    assert_eq!(rig.counters(0).rx.packets.get(), 1);
}

#[test]
fn packets_longer_than_the_mtu_of_the_tunnel_are_dropped() {
    let kind = Kind::vxlan(7);
    let mut config = kind.config(true);
    config.mtu = 500;
    let mut rig = Rig::new(vec![config]);
    // Headers of IPv4 and UDP inside, and a VLAN tag more than the MTU.
    let longest = inner_frame_of(true, 0, 500 - 28 + 4);
    assert_eq!(rig.send(&kind.packet(true, &longest)).inside(), longest);
    let longer = inner_frame_of(true, 0, 500 - 28 + 5);
    assert_eq!(rig.send(&kind.packet(true, &longer)), End::Dropped(1, Reason::TooBig));
}

/// A guest may leave datagrams of one size together (USO), but not those of a tunnel.
#[test]
fn unsegmented_datagrams_are_dropped() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let gso = Gso { kind: GsoKind::Udp4, ecn: false, size: 100, l3: 14, l4: 34, header_len: 42, outer: None };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: Some(gso) };
    let packet = kind.packet(true, &inner_frame_of(true, 0, 300));
    assert_eq!(rig.send_unfinished(&packet, offload), End::Dropped(1, Reason::TunnelCoalesced));
}
