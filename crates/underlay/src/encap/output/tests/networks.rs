//! A tunnel with several networks, beside a tunnel of each network alone.

use straightline_wire::IpProtocol;

use super::*;
use crate::Network;
use crate::tunnel::path_mtu::TooLong;

const VIDS: [u16; 3] = [10, 20, 4094];
const VNIS: [u32; 3] = [10_010, 0xff_ffff, 0];
/// The VLANs of the tunnel's networks, one without a network, and no VLAN.
const SENT_VIDS: [u16; 5] = [10, 20, 4094, 30, 0];

fn fact(vid: u16) -> Option<PacketVlan> {
    VlanId::new(vid).map(|id| PacketVlan { id, pcp: 5, dei: true })
}

fn networks() -> Vec<Network> {
    let pairs = VIDS.into_iter().zip(VNIS);
    pairs.map(|(vid, vni)| Network { vlan: VlanId::new(vid).unwrap(), vni }).collect()
}

/// The kinds that may have several networks.
fn with_vni() -> Vec<TunnelKind> {
    kinds().into_iter().filter(|kind| kind.vni().is_some() && !kind.carries_ip()).collect()
}

/// Settings with three remotes. Station 9 is behind another one in each network.
fn to_three(kind: TunnelKind) -> (UnderlayConfig, TunnelConfig) {
    let (underlay, config) = three_remotes();
    let station = MacAddr([2, 0xaa, 0, 0, 0, 9]);
    let places = networks().into_iter().zip(&config.remotes);
    let stations = places.map(|(network, remote)| (network.vlan, station, *remote)).collect();
    (underlay, TunnelConfig { kind, networks: networks(), stations, ..config })
}

/// The same tunnel as one of these networks alone.
fn alone(config: &TunnelConfig, network: Network) -> TunnelConfig {
    let own = config.stations.iter().filter(|(vlan, ..)| *vlan == network.vlan);
    let stations = own.map(|(_, mac, remote)| (VlanId::DEFAULT, *mac, *remote)).collect();
    TunnelConfig { kind: config.kind.with_vni(network.vni), networks: Vec::new(), stations, ..config.clone() }
}

/// Returns the offset of the outer IP header and that of UDP.
fn offsets(packet: &[u8]) -> (usize, usize) {
    let l3 = if packet[12] == 0x81 { 18 } else { 14 };
    (l3, l3 + if packet[l3] >> 4 == 4 { 20 } else { 40 })
}

/// Returns the network identifier of a packet.
fn vni(packet: &[u8]) -> u32 {
    let (_, l4) = offsets(packet);
    u32::from_be_bytes(*packet[l4 + 12..].first_chunk().unwrap()) >> 8
}

/// Sorts packets by their outer destination. Those of one destination stay in their order.
fn by_remote(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.sort_by_key(|packet| {
        let (l3, l4) = offsets(packet);
        let len = if l4 - l3 == 20 { 4 } else { 16 };
        packet[l4 - len..l4].to_vec()
    });
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Packets of a VLAN leave as a tunnel of this network alone sends them.
    #[test]
    fn each_network_sends_what_a_tunnel_of_it_alone_sends(
        sent in packets(),
        vids in prop::collection::vec(prop::sample::select(SENT_VIDS.to_vec()), 8),
        stations in prop::collection::vec(prop::sample::select(vec![8_u8, 9]), 8),
        kind in prop::sample::select(with_vni()),
        v4: bool,
        is_to_several: bool,
    ) {
        let (config, tunnel) = if is_to_several {
            to_three(kind)
        } else {
            (underlay(Some(7)), TunnelConfig { networks: networks(), ..tunnel(kind, v4) })
        };
        let mut sent: Vec<_> = sent.into_iter().zip(vids).collect();
        for ((packet, _), station) in sent.iter_mut().zip(stations) {
            packet.headers.dst = MacAddr([2, 0xaa, 0, 0, 0, station]);
        }
        let mut rig = Rig::new(config.clone(), vec![tunnel.clone()]);
        sent.iter().for_each(|(packet, vid)| rig.source.send_in(fact(*vid), &packet.bytes(), packet.offload()));
        rig.turn();
        let got = rig.wire.take();
        let mut all = 0;
        for network in networks() {
            let mut one = Rig::new(config.clone(), vec![alone(&tunnel, network)]);
            let own = sent.iter().filter(|(_, vid)| *vid == network.vlan.get());
            own.for_each(|(packet, _)| one.source.send(&packet.bytes(), packet.offload()));
            one.turn();
            let expected = one.wire.take();
            all += expected.len();
            let of_network: Vec<_> = got.iter().filter(|packet| vni(packet) == network.vni).cloned().collect();
            prop_assert_eq!(by_remote(of_network), by_remote(expected), "{:?}", network);
            // A packet that does not fit is dropped by both.
            prop_assert_eq!(rig.drops[2].count(Reason::TooBig) == 0, one.drops[2].count(Reason::TooBig) == 0);
        }
        prop_assert_eq!(got.len(), all);
        let others = sent.iter().filter(|(_, vid)| !VIDS.contains(vid)).count() as u64;
        prop_assert_eq!(rig.drops[2].count(Reason::VlanNotAllowed), others);
        prop_assert_eq!(rig.plain[1].vlans.lock().unwrap().len(), sent.len(), "other ports get all packets");
    }
}

#[test]
fn a_sender_is_told_in_its_vlan() {
    let tunnel = TunnelConfig { networks: networks(), mtu: 1400, ..vxlan() };
    let mut rig = Rig::new(underlay(None), vec![tunnel]);
    let long = InnerHeaders::new(true, false, 0).complete(&[1; 1450]);
    for vid in VIDS {
        rig.source.send_in(fact(vid), &long, NOTHING);
    }
    rig.turn();
    rig.worker.turn();
    assert_eq!(rig.dropped(0), [(Reason::TooBig, 3)]);
    assert_eq!(*rig.inside.vlans.lock().unwrap(), VIDS.map(fact));
    // A tunnel of one network leaves the VLAN to the bridge.
    let mut one = Rig::new(underlay(None), vec![TunnelConfig { mtu: 1400, ..vxlan() }]);
    one.source.send_in(fact(10), &long, NOTHING);
    one.turn();
    one.worker.turn();
    assert_eq!(*one.inside.vlans.lock().unwrap(), [None]);
    // The errors have no tag, as all frames of the tunnel's networks.
    assert!(rig.inside.take().iter().all(|error| error[12..14] == [8, 0]));
}

/// An ICMP error quotes a packet with the identifier of its network.
#[test]
fn an_error_about_a_packet_of_any_network_is_believed() {
    let tunnel = TunnelConfig { networks: networks(), mtu: 9000, ..vxlan() };
    let ends = (tunnel.local, tunnel.remotes[0]);
    for (vid, own) in VIDS.into_iter().zip(VNIS) {
        let mut rig = Rig::new(underlay(None), vec![tunnel.clone()]);
        rig.source.send_in(fact(vid), &InnerHeaders::new(true, false, 0).complete(&[1; 1400]), NOTHING);
        rig.turn();
        let sent = rig.wire.take().remove(0);
        assert_eq!(vni(&sent), own);
        let len = u32::try_from(sent.len()).unwrap() - 14;
        let lower = |quoted: &[u8]| {
            rig.tunnels[0].lower_path_mtu(ends, (IpProtocol::UDP, quoted), TooLong { len, mtu: 1450 }, 0)
        };
        let mut forged = sent[34..].to_vec();
        forged[12..15].copy_from_slice(&[1, 2, 3]);
        assert!(!lower(&forged), "no network has this identifier");
        assert!(lower(&sent[34..]), "{vid}");
    }
}

#[test]
fn a_tunnel_that_drops_tags_sends_none() {
    let tunnel = TunnelConfig { drops_tags: true, ..vxlan() };
    let mut rig = Rig::new(underlay(None), vec![tunnel]);
    let plain = packet_to(1);
    let with = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
    assert_eq!(rig.send(&plain, NOTHING).len(), 1);
    for tags in [&[0x81, 0, 0xa0, 0][..], &[0x88, 0xa8, 0, 0], &[0x81, 0, 0, 0, 0x88, 0xa8, 0, 0]] {
        assert_eq!(rig.send(&with(tags), NOTHING).len(), 1, "a priority is no VLAN: {tags:x?}");
    }
    for tags in [&[0x81, 0, 0, 5][..], &[0x81, 0, 1, 0], &[0x88, 0xa8, 0, 5], &[0x81, 0, 0, 0, 0x81, 0, 0, 5]] {
        assert!(rig.send(&with(tags), NOTHING).is_empty(), "{tags:x?}");
        assert!(rig.send(&with(tags)[..12 + tags.len()], NOTHING).is_empty(), "{tags:x?}, cut");
    }
    assert!(rig.send(&with(&[0x81, 0, 0, 0].repeat(5)), NOTHING).is_empty(), "too many may hide another one");
    assert_eq!(rig.dropped(0), [(Reason::VlanNotAllowed, 9)]);
    assert_eq!(rig.plain[1].take().len(), 13, "other ports get them");
}
