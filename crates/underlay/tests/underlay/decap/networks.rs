//! A tunnel with several networks, beside a tunnel of each network alone.

use std::collections::HashMap;

use proptest::prelude::*;
use straightline_packet::{Offload, PacketVlan, Reason};
use straightline_testing::golden;
use straightline_underlay::{Network, TunnelConfig, TunnelKind};
use straightline_wire::VlanId;

use super::rig::{End, Kind, Rig, inner_frame, inner_frame_of, ip, tunnel};

/// The networks of the tunnel: VLAN and identifier.
const NETWORKS: [(u16, u32); 3] = [(10, 10_010), (20, 0xff_ffff), (4094, 0)];

fn fact(vid: u16) -> Option<PacketVlan> {
    VlanId::new(vid).map(|id| PacketVlan { id, pcp: 0, dei: false })
}

fn networks() -> Vec<Network> {
    NETWORKS.map(|(vid, vni)| Network { vlan: VlanId::new(vid).unwrap(), vni }).to_vec()
}

/// Returns the packets of a kind's network.
fn kinds(vni: u32) -> [Kind; 3] {
    let mut gpe = Kind::all().into_iter().find(|kind| kind.port == 4790).unwrap();
    gpe.kind = TunnelKind::VxlanGpe { vni, ip: false };
    gpe.header[4..].copy_from_slice(&(vni << 8).to_be_bytes());
    [Kind::vxlan(vni), Kind::geneve(vni, &[1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef]), gpe]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Packets of a network leave as by a tunnel of this network alone, and with its VLAN.
    #[test]
    fn each_network_receives_what_a_tunnel_of_it_alone_receives(
        kind in 0..3_usize,
        v4: bool,
        packets in prop::collection::vec((0..4_usize, any::<bool>(), any::<u8>(), 0..600_usize, 0..8_u8, 1..4_usize), 1..20),
    ) {
        let several = TunnelConfig { networks: networks(), ..tunnel(kinds(10_010)[kind].kind.clone(), v4) };
        let mut rig = Rig::new(vec![several]);
        let mut alone: HashMap<_, _> = networks().iter().map(|network| {
            (network.vni, Rig::new(vec![tunnel(kinds(network.vni)[kind].kind.clone(), v4)]))
        }).collect();
        for (network, inner_v4, tos, len, damage, count) in packets {
            // The last one is of no network of the tunnel.
            let (vid, vni) = NETWORKS.get(network).copied().unwrap_or((0, 77));
            let mut packet = kinds(vni)[kind].packet(v4, &inner_frame_of(inner_v4, tos, len));
            // Some packets are damaged, behind the headers.
            if damage == 0 {
                *packet.last_mut().unwrap() ^= 1;
            }
            for _ in 0..count {
                let end = rig.send(&packet);
                let vlans = rig.take_vlans();
                match alone.get_mut(&vni) {
                    Some(alone) => prop_assert_eq!(&end, &alone.send(&packet)),
                    None => prop_assert_eq!(&end, &End::Dropped(0, Reason::TunnelUnknown)),
                }
                let expected = if matches!(end, End::Inside(..)) { vec![fact(vid)] } else { Vec::new() };
                prop_assert_eq!(vlans, expected);
            }
        }
    }
}

#[test]
fn a_golden_frame_leaves_by_its_network() {
    for (name, kind, v4) in [
        ("vxlan", TunnelKind::Vxlan { vni: 1 }, true),
        ("vxlan-ipv6", TunnelKind::Vxlan { vni: 1 }, false),
        ("vxlan-gpe", TunnelKind::VxlanGpe { vni: 1, ip: false }, true),
        ("geneve-option", TunnelKind::Geneve { vni: 1, options: Vec::new() }, true),
    ] {
        let networks = [(10, 1), (30, 0x12_3456)].map(|(vid, vni)| Network { vlan: VlanId::new(vid).unwrap(), vni });
        let mut rig = Rig::new(vec![TunnelConfig { networks: networks.to_vec(), ..tunnel(kind, v4) }]);
        assert_eq!(rig.send(golden::frame(name).bytes).inside(), golden::inner_frame(), "{name}");
        assert_eq!(rig.take_vlans(), [fact(30)], "{name}");
    }
}

/// A tunnel of one network leaves no VLAN, also behind one with several.
#[test]
fn a_tunnel_of_one_network_has_no_vlan() {
    let several = TunnelConfig { networks: networks(), ..tunnel(TunnelKind::Vxlan { vni: 1 }, true) };
    let mut rig = Rig::new(vec![several, tunnel(TunnelKind::Vxlan { vni: 5 }, true)]);
    for _ in 0..3 {
        for (at, vni, vlan) in [(0, 10_010, fact(10)), (1, 5, None), (0, 0, fact(4094))] {
            let end = rig.send(&Kind::vxlan(vni).packet(true, &inner_frame()));
            assert_eq!(end, End::Inside(at, inner_frame(), Offload::default()));
            assert_eq!(rig.take_vlans(), [vlan]);
        }
    }
}

/// One address may be behind another remote in each network.
#[test]
fn stations_are_learned_in_their_network() {
    let remotes = vec![ip("10.0.0.1"), ip("10.0.0.9")];
    let config = TunnelConfig { networks: networks(), remotes, ..tunnel(TunnelKind::Vxlan { vni: 1 }, true) };
    let mut rig = Rig::new(vec![config]);
    let from = |remote: u8, vni| {
        let mut packet = Kind::vxlan(vni).packet(true, &inner_frame());
        packet[29] = remote;
        super::rig::fill_ipv4_checksum(&mut packet[14..34]);
        // Without an outer checksum, which the address would change.
        packet[40..42].fill(0);
        packet
    };
    assert_eq!(rig.send(&from(1, 10_010)).inside(), inner_frame());
    assert_eq!(rig.send(&from(9, 0)).inside(), inner_frame());
    let mut stations: Vec<_> =
        rig.tunnels[0].stations(0).iter().map(|station| (station.vlan.get(), station.remote)).collect();
    stations.sort();
    assert_eq!(stations, [(10, ip("10.0.0.1")), (4094, ip("10.0.0.9"))]);
    assert_eq!(rig.tunnels[0].moves(0).1, 0);
}

/// RFC 7348, 6.1: frames with an inner tag are discarded, unless configured otherwise.
#[test]
fn frames_with_a_tag_drop_if_the_tunnel_drops_them() {
    let frame = inner_frame();
    let with = |tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
    for kind in kinds(7) {
        for drops_tags in [false, true] {
            let remotes = vec![ip("10.0.0.1"), ip("10.0.0.9")];
            let config = TunnelConfig { drops_tags, remotes, ..tunnel(kind.kind.clone(), true) };
            let mut rig = Rig::new(vec![config]);
            for tags in [
                &[0x81, 0, 0, 5][..],
                &[0x88, 0xa8, 0x10, 1],
                &[0x81, 0, 0x0f, 0xff],
                &[0x81, 0, 0, 0, 0x81, 0, 0, 5],
                &[0x81, 0, 0, 0].repeat(5),
            ] {
                let tagged = with(tags);
                let end = rig.send(&kind.packet(true, &tagged));
                if drops_tags {
                    assert_eq!(end, End::Dropped(1, Reason::VlanNotAllowed), "{kind:?}");
                } else {
                    assert_eq!(end.inside(), tagged, "{kind:?}");
                }
            }
            assert_eq!(rig.tunnels[0].stations(0).len(), usize::from(!drops_tags), "a dropped frame tells no station");
            for untagged in [
                frame.clone(),
                with(&[0x81, 0, 0xe0, 0]),
                with(&[0x88, 0xa8, 0x10, 0]),
                with(&[0x81, 0, 0, 0, 0x88, 0xa8, 0, 0]),
            ] {
                assert_eq!(rig.send(&kind.packet(true, &untagged)).inside(), untagged, "{kind:?}");
            }
        }
    }
}
