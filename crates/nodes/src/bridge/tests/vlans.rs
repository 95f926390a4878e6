//! A bridge whose ports have rules, beside a model that moves bytes.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_wire::{EtherType, VlanSet};

use super::*;

fn id(vid: u16) -> VlanId {
    VlanId::new(vid).expect("a VLAN")
}

fn access(vid: u16) -> PortVlans {
    PortVlans::access(id(vid))
}

fn trunk(tpid: EtherType, vids: &[u16], native: Option<(u16, bool)>) -> PortVlans {
    let native = native.map(|(vid, is_tagged)| NativeVlan { id: id(vid), is_tagged });
    let all = vids.iter().map(|&vid| id(vid)).chain(native.map(|native| native.id));
    let vlans = Box::new(all.collect::<VlanSet>());
    PortVlans { role: VlanRole::Trunk { tpid, vlans, native }, priority: 3 }
}

/// The ports of the test: each kind, and for most a second one.
fn ports() -> Vec<BridgePort> {
    let customer = PortVlans { role: VlanRole::Customer(id(20)), priority: 5 };
    let vlans = [
        access(10),
        access(10),
        access(20),
        trunk(EtherType::VLAN, &[10, 20, 30], None),
        trunk(EtherType::VLAN, &[10, 20], Some((30, false))),
        trunk(EtherType::VLAN, &[20, 30], Some((10, true))),
        trunk(EtherType::SERVICE_VLAN, &[10, 20], None),
        customer,
    ];
    let mut ports: Vec<_> = (0..).zip(vlans).map(|(at, vlans)| of(at, vlans)).collect();
    ports[1].rules.isolated = true;
    ports[4].rules.isolated = true;
    ports[2].rules.takes_unknown = false;
    ports[5].rules.learns = false;
    ports
}

fn of(at: u16, vlans: PortVlans) -> BridgePort {
    BridgePort { index: PortIndex(at), rules: PortRules { vlans: Some(vlans), ..PortRules::default() } }
}

/// A frame in the bridge: its VLAN, the upper four bits of its tag, and its bytes without the tag.
type Inside = (u16, u16, Vec<u8>);

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The ingress filter, by IEEE 802.1Q, 6.9 and 8.6.2.
fn enter(port: &BridgePort, frame: &[u8]) -> Option<Inside> {
    let vlans = port.rules.vlans.as_ref()?;
    let stripped = || [&frame[..12], &frame[16..]].concat();
    let tpid = word(frame, 12);
    let is_tagged = [0x8100, 0x88a8].contains(&tpid);
    if is_tagged && frame.len() < 18 {
        return None;
    }
    let own = u16::from(vlans.priority) << 13;
    match &vlans.role {
        VlanRole::Customer(vid) => Some((vid.get(), own, frame.to_vec())),
        VlanRole::Access(vid) if !is_tagged => Some((vid.get(), own, frame.to_vec())),
        VlanRole::Access(vid) if tpid == 0x8100 && word(frame, 14) & 0xfff == 0 => {
            Some((vid.get(), word(frame, 14) & 0xf000, stripped()))
        }
        VlanRole::Access(_) => None,
        VlanRole::Trunk { tpid: own_tpid, native, .. } if tpid != own_tpid.0 => {
            Some((native.as_ref()?.id.get(), own, frame.to_vec()))
        }
        VlanRole::Trunk { vlans, native, .. } => {
            let tci = word(frame, 14);
            let vid = if tci & 0xfff == 0 { native.as_ref()?.id } else { VlanId::new(tci & 0xfff)? };
            vlans.contains(vid).then(|| (vid.get(), tci & 0xf000, stripped()))
        }
    }
}

/// The frame as it leaves by a port.
fn leave(port: &BridgePort, (vid, upper, bytes): &Inside) -> Vec<u8> {
    match &port.rules.vlans.as_ref().expect("all have VLANs").role {
        VlanRole::Trunk { tpid, native, .. }
            if native.as_ref().is_none_or(|native| native.is_tagged || native.id.get() != *vid) =>
        {
            let tag = [tpid.0.to_be_bytes(), (upper | vid).to_be_bytes()].concat();
            [&bytes[..12], &tag, &bytes[12..]].concat()
        }
        _ => bytes.clone(),
    }
}

/// Returns the ports that a frame goes to, and learns its source.
fn model(
    ports: &[BridgePort],
    stations: &mut HashMap<(u16, Vec<u8>), usize>,
    from: usize,
    inside: &Inside,
) -> Vec<usize> {
    let (vid, _, bytes) = inside;
    let source = bytes[6..12].to_vec();
    if source[0] & 1 != 0 {
        return Vec::new();
    }
    if ports[from].rules.learns {
        stations.insert((*vid, source), from);
    }
    let to = bytes[..6].to_vec();
    let is_group = to[0] & 1 != 0;
    let may = |port: usize| port != from && !(ports[from].rules.isolated && ports[port].rules.isolated);
    if let Some(&known) = stations.get(&(*vid, to)).filter(|_| !is_group) {
        return [known].into_iter().filter(|&port| may(port)).collect();
    }
    let is_in = |port: &usize| ports[*port].rules.vlans.as_ref().is_some_and(|vlans| vlans.contains(id(*vid)));
    let takes = |port: &usize| is_group || ports[*port].rules.takes_unknown;
    (0..ports.len()).filter(|&port| may(port)).filter(is_in).filter(takes).collect()
}

fn tag() -> impl Strategy<Value = Vec<u8>> {
    let tpid = prop_oneof![4 => Just(0x8100_u16), 1 => Just(0x88a8)];
    let vid =
        prop_oneof![6 => prop::sample::select(vec![10_u16, 20, 30]), 1 => Just(0), 1 => Just(4095), 1 => Just(11)];
    (tpid, vid, 0..16_u16)
        .prop_map(|(tpid, vid, upper)| [tpid.to_be_bytes(), (upper << 12 | vid).to_be_bytes()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_port_gets_what_the_model_says(
        batches in vec(vec((0..8_usize, 0..6_u8, 0..4_u8, vec(tag(), 0..4), 1..3_usize), 1..12), 1..6),
    ) {
        let ports = ports();
        let mut rig = Rig::new(&ports);
        let mut stations = HashMap::new();
        let mut dropped = 0;
        for batch in batches {
            let rows = batch.iter().flat_map(|(port, to, from, tags, count)| {
                let to = if *to == 5 { [0xff; 6] } else { [2 | u8::from(*to == 4), 0, 0, 0, 0, *to] };
                let frame = [&to[..], &[2, 0, 0, 0, 0, *from], &tags.concat(), &[0x88, 0xb5]].concat();
                vec![(*port, frame); *count]
            });
            let frames: Vec<_> = rows.zip(0..).map(|((port, mut frame), number): (_, u8)| {
                frame.push(number);
                (port, frame)
            }).collect();
            let mut expected = vec![Vec::new(); ports.len()];
            for (port, frame) in &frames {
                let inside = enter(&ports[*port], frame);
                let to = inside.as_ref().map_or_else(Vec::new, |inside| model(&ports, &mut stations, *port, inside));
                dropped += u64::from(to.is_empty());
                for to in to {
                    expected[to].push(leave(&ports[to], inside.as_ref().expect("it goes somewhere")));
                }
            }
            let index = |port: usize| u16::try_from(port).expect("few ports");
            let sent = frames.iter().map(|(port, frame)| (index(*port), frame.clone())).collect();
            prop_assert_eq!(rig.forward(sent), expected);
            prop_assert_eq!(rig.dropped(), dropped, "each drop is counted once");
        }
    }
}

fn frame(to: [u8; 6], from: u8, tags: &[u8]) -> Vec<u8> {
    [&to[..], &[2, 0, 0, 0, 0, from], tags, &[0x88, 0xb5, 1, 2, 3, 4]].concat()
}

const ALL: [u8; 6] = [0xff; 6];

#[test]
fn a_frame_that_ends_within_a_tag_drops() {
    let mut rig = Rig::new(&ports());
    for cut in 14..18 {
        let mut cut_frame = frame(ALL, 1, &[0x81, 0, 0, 10]);
        cut_frame.truncate(cut);
        assert!(rig.forward(vec![(3, cut_frame)]).concat().is_empty(), "{cut} bytes");
    }
    assert_eq!(rig.dropped_as(3, Reason::Runt), 4);
}

#[test]
fn a_vlan_without_another_port_says_so() {
    let mut rig = Rig::new(&[of(0, access(10)), of(1, access(20))]);
    rig.forward(vec![(0, frame(ALL, 1, &[])), (1, frame(ALL, 2, &[0x81, 0, 0, 20]))]);
    assert_eq!(rig.dropped_as(0, Reason::NoReceiver), 1);
    assert_eq!(rig.dropped_as(1, Reason::VlanNotAllowed), 1);
}

#[test]
fn isolated_ports_reach_only_others() {
    let mut ports: Vec<_> = (0..3).map(|port| BridgePort::plain(PortIndex(port))).collect();
    ports[0].rules.isolated = true;
    ports[1].rules.isolated = true;
    let mut rig = Rig::new(&ports);
    let got = rig.forward(vec![(0, frame(ALL, 1, &[])), (1, frame([2, 0, 0, 0, 0, 1], 2, &[]))]);
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(rig.dropped_as(1, Reason::Isolated), 1);
    let got = rig.forward(vec![(2, frame([2, 0, 0, 0, 0, 1], 3, &[]))]);
    assert_eq!(got[0].len(), 1);
}

#[test]
fn a_port_has_no_more_stations_than_its_limit() {
    let mut ports: Vec<_> = (0..2).map(|port| BridgePort::plain(PortIndex(port))).collect();
    ports[0].rules.mac_limit = Some(MacLimit { most: 2, drops: true });
    ports[1].rules.mac_limit = Some(MacLimit { most: 2, drops: false });
    let mut rig = Rig::new(&ports);
    let sent = |port: u8| (1..=4).map(move |from| (port.into(), frame(ALL, 10 * port + from, &[])));
    let got = rig.forward(sent(0).chain(sent(1)).collect());
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
    assert_eq!(rig.dropped_as(0, Reason::MacLimit), 2);
    // Those that are known go on passing.
    assert_eq!(rig.forward(vec![(0, frame(ALL, 2, &[]))])[1].len(), 1);
}

#[test]
fn a_storm_is_limited_for_each_crowd() {
    let mut ports: Vec<_> = (0..2).map(|port| BridgePort::plain(PortIndex(port))).collect();
    ports[0].rules.storm = StormLimits { broadcast: Some(3), multicast: Some(2), unknown: Some(1) };
    let mut rig = Rig::new(&ports);
    let sent = |to: [u8; 6]| (0..5).map(move |_| (0, frame(to, 1, &[])));
    let all = sent(ALL).chain(sent([1, 0, 0x5e, 0, 0, 1])).chain(sent([2, 9, 9, 9, 9, 9]));
    // All frames of a batch come in the same second.
    let got = rig.forward(all.collect());
    assert_eq!(got[1].len(), 3 + 2 + 1);
    assert_eq!(rig.dropped_as(0, Reason::Storm), 2 + 3 + 4);
    // A known station is no storm.
    rig.forward(vec![(1, frame([2, 0, 0, 0, 0, 1], 9, &[]))]);
    assert_eq!(rig.forward(vec![(0, frame([2, 0, 0, 0, 0, 9], 1, &[]))])[1].len(), 1);
}
