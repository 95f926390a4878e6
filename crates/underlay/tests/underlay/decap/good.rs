//! Packets that leave their tunnels.

use straightline_packet::{Checksum, Offload, Reason};
use straightline_testing::golden;
use straightline_underlay::{Cookie, L2tpOver, TunnelKind, UnderlayConfig};
use straightline_wire::{MacAddr, checksum};

use super::rig::{
    End, Kind, OWN, Rig, inner_frame, inner_frame_of, inner_ip, inner_ip_of, ip, l2tpv3, outside, tunnel, underlay,
};

#[test]
fn a_packet_of_each_kind_leaves_its_tunnel() {
    for kind in Kind::all() {
        for v4 in [true, false] {
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let packet = kind.packet(v4, &kind.inner());
            let expected = End::Inside(0, kind.outcome(&kind.inner()), Offload::default());
            assert_eq!(rig.send(&packet), expected, "{kind:?}");
            // The last packet's tunnel is known now.
            assert_eq!(rig.send(&packet), expected, "{kind:?}");
            let len = u64::try_from(kind.outcome(&kind.inner()).len()).unwrap();
            let counters = rig.counters(0);
            assert_eq!((counters.rx.packets.get(), counters.rx.bytes.get()), (2, 2 * len));
        }
    }
}

#[test]
fn golden_frames_leave_their_tunnels() {
    let cookie = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
    let over_udp = L2tpOver::Udp { port: 1701 };
    let session = 0x0102_0304;
    let frames = [
        ("vxlan", TunnelKind::Vxlan { vni: 0x12_3456 }, true),
        ("vxlan-checksum", TunnelKind::Vxlan { vni: 0x12_3456 }, true),
        ("vxlan-ipv6", TunnelKind::Vxlan { vni: 0x12_3456 }, false),
        ("vxlan-gpe", TunnelKind::VxlanGpe { vni: 0x12_3456, ip: false }, true),
        ("vxlan-gpe-ip-ipv6", TunnelKind::VxlanGpe { vni: 0x12_3456, ip: true }, false),
        ("geneve", TunnelKind::Geneve { vni: 0x12_3456, options: Vec::new() }, true),
        ("geneve-option", TunnelKind::Geneve { vni: 0x12_3456, options: Vec::new() }, true),
        ("gre", TunnelKind::Gre { key: None, checksum: false, ip: false }, true),
        ("gre-key", TunnelKind::Gre { key: Some(0xcafe_0001), checksum: false, ip: false }, true),
        ("gre-checksum", TunnelKind::Gre { key: None, checksum: true, ip: false }, true),
        ("gre-full-ipv6", TunnelKind::Gre { key: Some(0xcafe_0001), checksum: false, ip: false }, false),
        ("gre-ip", TunnelKind::Gre { key: None, checksum: false, ip: true }, true),
        ("nvgre", TunnelKind::Nvgre { vsid: 0x12_3456 }, true),
        ("gtpu", TunnelKind::Gtpu { teid: 0x1122_3344, peer_teid: 1 }, true),
        ("gtpu-sequence", TunnelKind::Gtpu { teid: 0x1122_3344, peer_teid: 1 }, true),
        ("gtpu-extension", TunnelKind::Gtpu { teid: 0x1122_3344, peer_teid: 1 }, true),
        ("mpls-udp", TunnelKind::MplsUdp { label: 0x1_2345, peer_label: 1 }, true),
        ("l2tpv3-ipv6", l2tpv3(L2tpOver::Ip, u32::MAX, &cookie, false), false),
        ("l2tpv3-ipv4", l2tpv3(L2tpOver::Ip, session, &[], true), true),
        ("l2tpv3-udp", l2tpv3(over_udp, session, &[0x88, 0x99, 0xaa, 0xbb], true), true),
        ("l2tpv3-udp-ipv6", l2tpv3(over_udp, session, &cookie, false), false),
    ];
    for (name, kind, v4) in frames {
        let face = [&[0xff; 6], &[2, 0, 0, 0, 0, 0xfa, 8, 0][..], golden::inner_ip()].concat();
        let expected = if kind.carries_ip() { face } else { golden::inner_frame().to_vec() };
        let mut rig = Rig::new(vec![tunnel(kind, v4)]);
        assert_eq!(rig.send(golden::frame(name).bytes).inside(), expected, "{name}");
    }
}

#[test]
fn the_rest_of_the_golden_frames_is_dropped() {
    let frames = [
        ("geneve-critical-ipv6", TunnelKind::Geneve { vni: 0x12_3456, options: Vec::new() }, Reason::TunnelOption),
        ("mpls-udp-two-labels", TunnelKind::MplsUdp { label: 0x1_2345, peer_label: 1 }, Reason::TunnelHeader),
        ("vlan", TunnelKind::Vxlan { vni: 1 }, Reason::NotOurs),
        ("qinq", TunnelKind::Vxlan { vni: 1 }, Reason::NotOurs),
    ];
    for (name, kind, reason) in frames {
        let mut rig = Rig::new(vec![tunnel(kind, !name.ends_with("ipv6"))]);
        assert_eq!(rig.send(golden::frame(name).bytes), End::Dropped(0, reason), "{name}");
    }
}

/// A packet that is all of its fragments needs no others (RFC 6946).
#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    for kind in Kind::all() {
        let mut rig = Rig::new(vec![kind.config(false)]);
        let message = kind.behind_ip(false, &kind.inner());
        // Reserved fields are ignored (RFC 8200, 4.5).
        for (reserved, bits) in [(0, 0), (0xff, 6)] {
            let fragment = [&[kind.protocol, reserved, 0, bits, 0, 0, 0, 7], &message[..]].concat();
            let in_options = [&[44, 0, 1, 4, 0, 0, 0, 0], &fragment[..]].concat();
            let around_options =
                [&[60, reserved, 0, bits, 0, 0, 0, 7, kind.protocol, 0, 1, 4, 0, 0, 0, 0], &message[..]].concat();
            for (first, payload) in [(44, fragment), (60, in_options), (44, around_options)] {
                let end = rig.send(&outside(false, first, 0, &payload));
                assert_eq!(end.inside(), kind.outcome(&kind.inner()), "{kind:?}");
            }
        }
    }
}

/// Only a tunnel of GTP-U makes us an end of its paths (3GPP TS 29.281, 7.2).
#[test]
fn an_echo_request_of_gtpu_is_for_ends_of_gtpu() {
    let echo = golden::frame("gtpu-echo").bytes;
    let others = Kind::all().into_iter().filter(|kind| kind.port != 2152).map(|kind| kind.config(true)).collect();
    assert_eq!(Rig::new(others).send(echo), End::Dropped(0, Reason::NotOurs));
    let mut rig = Rig::new(vec![Kind::vxlan(7).config(true), Kind::gtpu(inner_ip().len()).config(false)]);
    assert!(matches!(rig.send(echo), End::Back(_)));
}

#[test]
fn padding_is_cut_off() {
    for kind in Kind::all() {
        for v4 in [true, false] {
            let mut rig = Rig::new(vec![kind.config(v4)]);
            for padding in [1, 2, 46, 300] {
                let packet = [kind.packet(v4, &kind.inner()), vec![0xee; padding]].concat();
                assert_eq!(rig.send(&packet).inside(), kind.outcome(&kind.inner()), "{kind:?}");
            }
        }
    }
    // The smallest frame that a NIC sends, with the smallest frame inside.
    let kind = Kind::gre(0, false, 0x6558, &[]);
    let inner = &inner_frame()[..14];
    let mut packet = kind.packet(true, inner);
    assert!(packet.len() < 60);
    packet.resize(60, 0);
    assert_eq!(Rig::new(vec![kind.config(true)]).send(&packet).inside(), inner);
}

/// A UDP header may end before its IP packet does, and a GTP-U message before its datagram.
#[test]
fn bytes_behind_the_message_are_cut_off() {
    for v4 in [true, false] {
        for kind in Kind::all().into_iter().filter(|kind| kind.protocol == 17) {
            let datagram = [kind.behind_ip(v4, &kind.inner()), vec![0xee; 9]].concat();
            let mut rig = Rig::new(vec![kind.config(v4)]);
            assert_eq!(rig.send(&outside(v4, 17, 0, &datagram)).inside(), kind.outcome(&kind.inner()), "{kind:?}");
        }
        let kind = Kind::gtpu(inner_ip().len());
        let packet = kind.packet(v4, &[inner_ip(), vec![0xee; 5]].concat());
        assert_eq!(Rig::new(vec![kind.config(v4)]).send(&packet).inside(), kind.outcome(&inner_ip()));
    }
}

#[test]
fn long_packets_and_long_headers_pass() {
    for kind in Kind::all().into_iter().filter(|kind| kind.port != 2152) {
        let inner = if kind.kind.carries_ip() { inner_ip_of(true, 0, 1400) } else { inner_frame_of(true, 0, 1400) };
        let packet = kind.packet(false, &inner);
        assert_eq!(Rig::new(vec![kind.config(false)]).send(&packet).inside(), kind.outcome(&inner), "{kind:?}");
    }
    // Geneve's longest header does not fit into the head of a packet that came in.
    let options: Vec<u8> = [&[1, 2, 3, 31][..], &[7; 124]].concat();
    let options = [&options[..], &[1, 2, 3, 30], &[7; 120]].concat();
    let kind = Kind::geneve(5, &options);
    let inner = inner_frame_of(false, 0, 1200);
    let mut config = underlay();
    config.vlan = Some(100);
    let mut packet = kind.packet(false, &inner);
    packet.splice(12..12, [0x81, 0, 0x60, 100]);
    assert_eq!(Rig::with(config, vec![kind.config(false)]).send(&packet).inside(), inner);
}

#[test]
fn only_packets_with_the_tag_of_the_underlay_are_ours() {
    let kind = Kind::vxlan(7);
    let plain = kind.packet(true, &inner_frame());
    let tagged = |vid: u8| {
        let mut packet = plain.clone();
        packet.splice(12..12, [0x81, 0, 0xe0, vid]);
        packet
    };
    let mut rig = Rig::with(UnderlayConfig { vlan: Some(100), ..underlay() }, vec![kind.config(true)]);
    assert_eq!(rig.send(&tagged(100)).inside(), inner_frame());
    assert_eq!(rig.send(&tagged(101)), End::Dropped(0, Reason::NotOurs));
    assert_eq!(rig.send(&plain), End::Dropped(0, Reason::NotOurs));
    let mut rig = Rig::new(vec![kind.config(true)]);
    assert_eq!(rig.send(&tagged(100)), End::Dropped(0, Reason::NotOurs));
}

#[test]
fn two_cookies_count_while_they_roll_over() {
    let new = [1, 2, 3, 4, 5, 6, 7, 8];
    let old = [9, 2, 3, 4, 5, 6, 7, 8];
    let mut config = Kind::keyed_l2tpv3(&new).config(false);
    let TunnelKind::L2tpv3 { previous_cookie, .. } = &mut config.kind else { panic!() };
    *previous_cookie = Cookie::new(&old);
    let mut rig = Rig::new(vec![config]);
    for cookie in [new, old] {
        let packet = Kind::keyed_l2tpv3(&cookie).packet(false, &inner_frame());
        assert_eq!(rig.send(&packet).inside(), inner_frame());
    }
    for at in 0..8 {
        let mut wrong = new;
        wrong[at] ^= 0x10;
        let packet = Kind::keyed_l2tpv3(&wrong).packet(false, &inner_frame());
        assert_eq!(rig.send(&packet), End::Dropped(1, Reason::TunnelCookie));
    }
}

#[test]
fn tunnels_with_close_keys_are_told_apart() {
    // Keys that differ in one bit; and the same key with another remote, address, version, kind.
    let mut kinds: Vec<_> = [0x10, 0x11, 0x80_0010, 0x90].map(Kind::vxlan).to_vec();
    kinds.push(Kind::geneve(0x10, &[]));
    kinds.push(Kind::gre(0x20, false, 0x6558, &[0, 0, 0, 0x10]));
    // The same header, but for the lowest byte of its key, as the next one's.
    kinds.push(Kind::gre(0x20, false, 0x6558, &[0, 0, 0x10, 0x77]));
    let nvgre = Kind { kind: TunnelKind::Nvgre { vsid: 0x10 }, ..Kind::gre(0x20, false, 0x6558, &[0, 0, 0x10, 0x78]) };
    kinds.push(nvgre);
    kinds.push(Kind::gre(0, false, 0x6558, &[]));
    let mut configs: Vec<_> = kinds.iter().map(|kind| kind.config(true)).collect();
    configs.extend(kinds.iter().map(|kind| kind.config(false)));
    let far = configs.len();
    let mut config = kinds[0].config(true);
    config.remotes = vec![ip("10.0.0.9")];
    configs.push(config);
    let mut config = kinds[0].config(true);
    config.local = ip("10.0.0.3");
    configs.push(config);
    let mut rig = Rig::new(configs);
    for _ in 0..2 {
        for (at, kind) in kinds.iter().enumerate() {
            for (v4, first) in [(true, 0), (false, kinds.len())] {
                let end = rig.send(&kind.packet(v4, &inner_frame()));
                assert_eq!(end, End::Inside(first + at, inner_frame(), Offload::default()), "{kind:?}");
            }
        }
        for (at, (byte, value)) in [(29, 9), (33, 3)].into_iter().enumerate() {
            let mut packet = kinds[0].packet(true, &inner_frame());
            packet[byte] = value;
            packet[40..42].fill(0);
            super::rig::fill_ipv4_checksum(&mut packet[14..]);
            assert_eq!(rig.send(&packet), End::Inside(far + at, inner_frame(), Offload::default()));
        }
    }
}

#[test]
fn a_batch_is_sorted_by_tunnels() {
    let kinds = [Kind::vxlan(1), Kind::vxlan(2), Kind::gre(0, false, 0x6558, &[])];
    let mut rig = Rig::new(kinds.iter().map(|kind| kind.config(true)).collect());
    let packets: Vec<_> =
        (0..120).map(|n| (kinds[n * n % 7 % 3].packet(true, &inner_frame()), Offload::default())).collect();
    let expected = |kind: usize| (0..120).filter(|n| n * n % 7 % 3 == kind).count();
    let ends = rig.send_all(packets);
    for at in 0..3 {
        let count = ends.iter().filter(|end| matches!(end, End::Inside(tunnel, ..) if *tunnel == at)).count();
        let counters = rig.counters(at);
        let bytes = u64::try_from(count * inner_frame().len()).unwrap();
        assert_eq!(count, expected(at));
        assert_eq!((counters.rx.packets.get(), counters.rx.bytes.get()), (u64::try_from(count).unwrap(), bytes));
    }
    assert_eq!(ends.len(), 120);
}

#[test]
fn a_tunnel_in_a_tunnel_leaves_one_of_them() {
    let outer = Kind::vxlan(1);
    let inner = Kind::vxlan(2);
    let mut rig = Rig::new(vec![outer.config(true), inner.config(true)]);
    let mut packet = inner.packet(true, &inner_frame());
    for _ in 0..12 {
        let end = rig.send(&outer.packet(true, &packet));
        assert_eq!(end.inside(), packet);
        packet = outer.packet(true, &packet);
    }
}

#[test]
fn extension_headers_are_stepped_over() {
    // Linux's "tunnel encapsulation limit" in destination options, padding, and a routing header
    // that has done its work.
    let limit = [4, 1, 4, 1, 1, 0];
    let chains: [(u8, Vec<u8>); 4] = [
        (60, [&[0, 0], &limit[..]].concat()),
        (0, [&[0, 0, 5, 2, 0, 0][..], &[0, 0]].concat()),
        (43, vec![0, 0, 4, 0, 0, 0, 0, 0]),
        (0, [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[43, 0], &limit, &[0, 1, 2, 0], &[0; 12]].concat()),
    ];
    for kind in Kind::all() {
        for (first, chain) in &chains {
            let mut chain = chain.clone();
            // The last header of the chain names the tunnel's protocol.
            let last = if chain.len() == 8 { 0 } else { 16 };
            chain[last] = kind.protocol;
            let packet = outside(false, *first, 0, &[chain, kind.behind_ip(false, &kind.inner())].concat());
            let mut rig = Rig::new(vec![kind.config(false)]);
            assert_eq!(rig.send(&packet).inside(), kind.outcome(&kind.inner()), "{kind:?} {first}");
        }
    }
}

#[test]
fn ipv4_options_are_stepped_over() {
    let kind = Kind::vxlan(3);
    let mut packet = kind.packet(true, &inner_frame());
    packet.splice(34..34, [1, 1, 1, 0, 0x94, 4, 0, 0]);
    packet[14] = 0x47;
    let len = u16::from_be_bytes([packet[16], packet[17]]) + 8;
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    super::rig::fill_ipv4_checksum(&mut packet[14..]);
    assert_eq!(Rig::new(vec![kind.config(true)]).send(&packet).inside(), inner_frame());
}

#[test]
fn the_last_hop_may_be_the_last() {
    for v4 in [true, false] {
        let kind = Kind::vxlan(3);
        let mut rig = Rig::new(vec![kind.config(v4)]);
        let mut packet = kind.packet(v4, &inner_frame());
        let at = if v4 { 22 } else { 21 };
        for (ttl, expected) in [(1, None), (255, None), (0, Some(Reason::TunnelHeader))] {
            packet[at] = ttl;
            if v4 {
                super::rig::fill_ipv4_checksum(&mut packet[14..]);
            }
            match (rig.send(&packet), expected) {
                (End::Inside(_, bytes, _), None) => assert_eq!(bytes, inner_frame()),
                (end, expected) => assert_eq!(Some(end.reason()), expected),
            }
        }
    }
}

/// All combinations of RFC 6040, figure 4, for each kind, IPv4 and IPv6 outside and inside.
#[test]
fn congestion_marks_go_to_the_inner_packet() {
    const NOT: u8 = 0;
    const ECT1: u8 = 1;
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    let table = [
        (NOT, [(NOT, Some(NOT)), (ECT0, Some(NOT)), (ECT1, Some(NOT)), (CE, None)]),
        (ECT0, [(NOT, Some(ECT0)), (ECT0, Some(ECT0)), (ECT1, Some(ECT1)), (CE, Some(CE))]),
        (ECT1, [(NOT, Some(ECT1)), (ECT0, Some(ECT1)), (ECT1, Some(ECT1)), (CE, Some(CE))]),
        (CE, [(NOT, Some(CE)), (ECT0, Some(CE)), (ECT1, Some(CE)), (CE, Some(CE))]),
    ];
    const DSCP: u8 = 0xb8;
    for (kind, v4, inner_v4) in Kind::all()
        .into_iter()
        .flat_map(|kind| [(true, true), (true, false), (false, true)].map(|(a, b)| (kind.clone(), a, b)))
    {
        let is_ip = kind.kind.carries_ip();
        // These headers name IPv4, or have the length of the IPv4 packet.
        if is_ip && !inner_v4 && kind.port != 6635 {
            continue;
        }
        let inner =
            |ecn| if is_ip { inner_ip_of(inner_v4, DSCP | ecn, 36) } else { inner_frame_of(inner_v4, DSCP | ecn, 36) };
        let mut rig = Rig::new(vec![kind.config(v4)]);
        for (before, row) in table {
            for (outer, after) in row {
                let packet = outside(v4, kind.protocol, 0x28 | outer, &kind.behind_ip(v4, &inner(before)));
                let end = rig.send(&packet);
                match after {
                    Some(after) => assert_eq!(end.inside(), kind.outcome(&inner(after)), "{kind:?} {before} {outer}"),
                    None => assert_eq!(end, End::Dropped(1, Reason::TunnelEcn), "{kind:?} {before} {outer}"),
                }
            }
        }
    }
}

#[test]
fn a_mark_reaches_packets_behind_tags_and_leaves_others_alone() {
    let kind = Kind::vxlan(9);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let mut send = |inner: &[u8]| rig.send(&outside(true, 17, 3, &kind.behind_ip(true, inner)));
    let tagged = |ecn| {
        let mut frame = inner_frame_of(true, ecn, 36);
        frame.splice(12..12, [0x88, 0xa8, 0, 200, 0x81, 0, 0, 100]);
        frame
    };
    assert_eq!(send(&tagged(2)).inside(), tagged(3));
    assert_eq!(send(&tagged(0)), End::Dropped(1, Reason::TunnelEcn));
    let priority = |ecn| {
        let mut frame = tagged(ecn);
        frame.splice(12..12, [0x81, 0, 0, 0].repeat(4));
        frame
    };
    assert_eq!(send(&priority(2)).inside(), priority(3));
    assert_eq!(send(&priority(0)), End::Dropped(1, Reason::TunnelEcn));
    // ARP, a frame of 14 bytes, and IP that is none.
    for frame in [[&inner_frame()[..12], &[8, 6], &[1; 28]].concat(), inner_frame()[..14].to_vec(), {
        let mut frame = inner_frame();
        frame[14] = 0x55;
        frame
    }] {
        assert_eq!(send(&frame).inside(), frame);
    }
}

/// The inner checksum stays to be finished, and the mark is no part of it.
#[test]
fn an_unfinished_inner_checksum_stays() {
    let kind = Kind::keyed_l2tpv3(&[1; 8]);
    let mut rig = Rig::new(vec![kind.config(false)]);
    let inner = inner_frame_of(true, 2, 36);
    let packet = outside(false, 115, 3, &kind.behind_ip(false, &inner));
    let start = u16::try_from(packet.len() - inner.len() + 34).unwrap();
    let offload = Offload { checksum: Checksum::Partial { start, offset: 6 }, gso: None };
    let expected = Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: None };
    assert_eq!(rig.send_unfinished(&packet, offload), End::Inside(0, inner_frame_of(true, 3, 36), expected));
}

#[test]
fn a_tunnel_with_several_remotes_takes_packets_of_all() {
    let kind = Kind::vxlan(9);
    let mut config = kind.config(true);
    config.remotes = ["10.0.0.7", "10.0.0.1", "10.0.0.8"].map(ip).to_vec();
    let mut rig = Rig::new(vec![config]);
    for (remote, expected) in [(1, None), (7, None), (8, None), (9, Some(Reason::TunnelUnknown))] {
        let mut packet = kind.packet(true, &inner_frame());
        packet[29] = remote;
        packet[40..42].fill(0);
        super::rig::fill_ipv4_checksum(&mut packet[14..]);
        match (rig.send(&packet), expected) {
            (End::Inside(0, bytes, _), None) => assert_eq!(bytes, inner_frame()),
            (end, expected) => assert_eq!(Some(end.reason()), expected),
        }
    }
}

#[test]
fn the_checksum_of_the_inner_header_is_right_after_a_mark() {
    let kind = Kind::gtpu(inner_ip().len());
    let mut rig = Rig::new(vec![kind.config(true)]);
    let packet = outside(true, 17, 3, &kind.behind_ip(true, &inner_ip_of(true, 1, 36)));
    let bytes = rig.send(&packet).inside();
    assert_eq!((bytes[15] & 3, checksum::sum(&bytes[14..34])), (3, 0xffff));
}

#[test]
fn frames_for_others_are_not_ours() {
    let kind = Kind::vxlan(9);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let packet = kind.packet(true, &inner_frame());
    for mac in [MacAddr([2, 0, 0, 0, 0, 9]), MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr::default()] {
        let other = [&mac.0, &packet[6..]].concat();
        assert_eq!(rig.send(&other), End::Dropped(0, Reason::NotOurs), "{mac}");
    }
    // Until our address is known, no frame is ours.
    let mut rig = Rig::with(UnderlayConfig { mac: None, ..underlay() }, vec![kind.config(true)]);
    for mac in [OWN, MacAddr::default(), MacAddr::BROADCAST] {
        assert_eq!(rig.send(&[&mac.0, &packet[6..]].concat()), End::Dropped(0, Reason::NotOurs));
    }
}

/// A packet like the one before it takes a short cut. Each bit of its headers has the same effect
/// there as in a packet that is read field by field.
#[test]
fn each_bit_counts_after_a_packet_of_the_same_headers() {
    let other = Kind::vxlan(0xff_ffff);
    for kind in Kind::all() {
        for v4 in [true, false] {
            let mut rig = Rig::new(vec![kind.config(v4), other.config(v4)]);
            let inner = kind.inner();
            let other = other.packet(v4, &inner_frame());
            let packet = kind.packet(v4, &inner);
            for bit in 0..8 * (packet.len() - inner.len()) {
                let mut changed = packet.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                if v4 && (14..34).contains(&(bit / 8)) && changed[14] == 0x45 {
                    super::rig::fill_ipv4_checksum(&mut changed[14..]);
                }
                rig.send(&packet);
                rig.send(&packet);
                let behind_same = rig.send(&changed);
                rig.send(&other);
                rig.send(&other);
                assert_eq!(behind_same, rig.send(&changed), "{kind:?}, bit {bit}");
            }
        }
    }
}
