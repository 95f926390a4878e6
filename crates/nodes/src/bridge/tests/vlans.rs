//! A bridge whose ports have rules, beside a model.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_graph::Clock;
use straightline_wire::VlanSet;

use super::model::{access, enter, id, leave, model, of, trunk};
use super::*;

/// A tunnel with a network for each of these VLANs. A frame of it has its VLAN in front, in two bytes.
fn networks(vids: &[u16], keeps_tags: bool) -> PortVlans {
    let vlans = Box::new(vids.iter().map(|&vid| id(vid)).collect::<VlanSet>());
    PortVlans { role: VlanRole::Networks { vlans, keeps_tags }, priority: 2 }
}

/// A trunk of tags of this kind. Those of the other kind may be inside of the frames of its native VLAN.
fn nesting(tpid: EtherType, vids: &[u16], native: u16) -> PortVlans {
    let mut vlans = trunk(tpid, vids, Some((native, false)));
    if let VlanRole::Trunk { native: Some(native), .. } = &mut vlans.role {
        native.has_nested_tags = true;
    }
    vlans
}

/// The ports of the model, two tunnels with several networks, and two trunks with nested tags.
fn ports() -> Vec<BridgePort> {
    let others = [
        networks(&[10, 20], false),
        networks(&[20, 30], true),
        nesting(EtherType::VLAN, &[20], 10),
        nesting(EtherType::SERVICE_VLAN, &[30], 20),
    ];
    let mut ports = super::model::ports();
    ports.extend((8..).zip(others).map(|(at, vlans)| of(at, vlans)));
    ports
}

fn tag() -> impl Strategy<Value = Vec<u8>> {
    let tpid = prop_oneof![8 => Just(0x8100_u16), 4 => Just(0x88a8), 1 => Just(0x9100)];
    let vid =
        prop_oneof![6 => prop::sample::select(vec![10_u16, 20, 30]), 1 => Just(0), 1 => Just(4095), 1 => Just(11)];
    (tpid, vid, 0..16_u16)
        .prop_map(|(tpid, vid, upper)| [tpid.to_be_bytes(), (upper << 12 | vid).to_be_bytes()].concat())
}

/// The VLANs of the networks of frames in a row.
fn networks_of_run() -> impl Strategy<Value = Vec<u16>> {
    vec(prop_oneof![8 => prop::sample::select(vec![10_u16, 20, 30]), 1 => Just(0), 1 => Just(11)], 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_port_gets_what_the_model_says(
        batches in vec(
            vec((0..12_usize, 0..22_u8, 0..4_u8, vec(tag(), 0..4), 1..3_usize, networks_of_run()), 1..12), 1..6,
        ),
        is_crowded in any::<bool>(),
    ) {
        let ports = ports();
        let mut rig = if is_crowded { Rig::crowded(&ports) } else { Rig::new(&ports) };
        let mut stations = HashMap::new();
        let mut dropped = 0;
        for batch in batches {
            let rows = batch.iter().flat_map(|(port, to, from, tags, count, networks)| {
                let to = match *to {
                    ..4 => [2, 0, 0, 0, 0, *to],
                    4 => [3, 0, 0, 0, 0, 4],
                    5 => [0xff; 6],
                    reserved => [0x01, 0x80, 0xc2, 0, 0, reserved - 6],
                };
                let frame = [&to[..], &[2, 0, 0, 0, 0, *from], &tags.concat(), &[0x88, 0xb5]].concat();
                // The frames of a run differ in their network alone.
                let with = |vid: &u16| match port {
                    8 | 9 => [&vid.to_be_bytes()[..], &frame].concat(),
                    _ => frame.clone(),
                };
                networks.iter().take(*count).map(|vid| (*port, with(vid))).collect::<Vec<_>>()
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
fn a_frame_that_ends_within_a_tag_drops_behind_one_that_is_whole() {
    let mut rig = Rig::new(&ports());
    let whole = frame(ALL, 1, &[0x81, 0, 0, 10]);
    let rows = (16..20).flat_map(|cut| [(7, whole.clone()), (7, whole[..cut].to_vec())]);
    assert_eq!(rig.forward(rows.collect())[3].len(), 4 + 2);
    assert_eq!(rig.dropped_as(7, Reason::Runt), 2);
}

#[test]
fn providers_carry_the_protocols_of_customers_bridges() {
    let mut rig = Rig::new(&ports());
    // Port 7 is a customer of VLAN 20, port 6 a trunk of the provider, port 2 an access port.
    for last in 0..16 {
        let to = [0x01, 0x80, 0xc2, 0, 0, last];
        let is_carried = [0x00, 0x0b, 0x0c, 0x0d, 0x0f].contains(&last);
        let tagged = frame(to, 1, &[0x88, 0xa8, 0, 20]);
        assert_eq!(rig.forward(vec![(6, tagged)])[7], vec![frame(to, 1, &[]); is_carried.into()], "{last:#x}");
        let tagged = frame(to, 2, &[0x88, 0xa8, 0xa0, 20]);
        assert_eq!(rig.forward(vec![(7, frame(to, 2, &[]))])[6], vec![tagged; is_carried.into()], "{last:#x}");
        assert!(rig.forward(vec![(2, frame(to, 3, &[]))]).concat().is_empty());
    }
    assert_eq!([2, 6, 7].map(|port| rig.dropped_as(port, Reason::LinkLocal)), [16, 11, 11]);
}

#[test]
fn a_vlan_without_another_port_says_so() {
    let mut rig = Rig::new(&[of(0, access(10)), of(1, access(20))]);
    rig.forward(vec![(0, frame(ALL, 1, &[])), (1, frame(ALL, 2, &[0x81, 0, 0, 20]))]);
    assert_eq!(rig.dropped_as(0, Reason::NoReceiver), 1);
    assert_eq!(rig.dropped_as(1, Reason::VlanNotAllowed), 1);
}

/// The next switch takes the first tag of a frame for its VLAN (VLAN hopping).
#[test]
fn a_frame_without_a_tag_of_its_vlan_begins_with_no_tag() {
    let customer = PortVlans { role: VlanRole::Customer(id(10)), priority: 0 };
    let ports = [
        trunk(EtherType::VLAN, &[10], None),
        customer,
        access(10),
        trunk(EtherType::VLAN, &[20], Some((10, false))),
        trunk(EtherType::VLAN, &[20], Some((10, true))),
        nesting(EtherType::VLAN, &[20], 10),
        nesting(EtherType::SERVICE_VLAN, &[20], 10),
        networks(&[10], false),
    ];
    let ports: Vec<_> = (0..).zip(ports).map(|(at, vlans)| of(at, vlans)).collect();
    let mut rig = Rig::new(&ports);
    // Each station is known, so that frames go to one port, too.
    for port in 1..8_u8 {
        let network: &[u8] = if port == 7 { &[0, 10] } else { &[] };
        let tag: &[u8] = match port {
            4 => &[0x81, 0, 0, 10],
            _ => &[],
        };
        rig.forward(vec![(port.into(), [network, &frame(ALL, 0x20 + port, tag)].concat())]);
    }
    let outer = [0x81, 0, 0, 10];
    for (kind, takers) in [([0x81, 0], vec![1, 4, 6, 7]), ([0x88, 0xa8], vec![1, 4, 5, 7]), ([0x91, 0], vec![1, 4, 7])]
    {
        let inner = [kind[0], kind[1], 0, 20];
        // By a trunk with both tags, and by the customer with its own tag.
        for (from, tags) in [(0, [outer, inner].concat()), (1, inner.to_vec())] {
            let got = rig.forward(vec![(from, frame(ALL, 0x20 + u8::try_from(from).unwrap(), &tags))]);
            let others: Vec<_> = takers.iter().copied().chain([0]).filter(|&port| port != usize::from(from)).collect();
            for (port, frames) in got.iter().enumerate() {
                assert_eq!(frames.len(), usize::from(others.contains(&port)), "{kind:x?} from {from} to {port}");
            }
            for to in (2..8).filter(|to| *to != usize::from(from)) {
                let station = [2, 0, 0, 0, 0, 0x20 + u8::try_from(to).unwrap()];
                let before = rig.dropped_as(from.into(), Reason::NestedTag);
                let sent = frame(station, 0x20 + u8::try_from(from).unwrap(), &tags);
                let got = rig.forward(vec![(from, sent.clone()), (from, sent)]);
                let is_taken = takers.contains(&to);
                assert_eq!(got[to].len(), if is_taken { 2 } else { 0 }, "{kind:x?} from {from} to {to} alone");
                let dropped = rig.dropped_as(from.into(), Reason::NestedTag) - before;
                assert_eq!(dropped, if is_taken { 0 } else { 2 }, "{kind:x?} from {from} to {to} alone");
            }
        }
    }
    // Frames of one row differ behind the tag that goes.
    let station = [2, 0, 0, 0, 0, 0x22];
    let [plain, nested] =
        [vec![], vec![0x81, 0, 0, 20]].map(|inner: Vec<u8>| frame(station, 0x20, &[&outer[..], &inner].concat()));
    let got = rig.forward(vec![(0, plain.clone()), (0, nested.clone()), (0, plain), (0, nested)]);
    assert_eq!(got[2], vec![frame(station, 0x20, &[]); 2]);
}

#[test]
fn an_access_port_takes_priority_tags_off() {
    let ports = [access(10), access(10), trunk(EtherType::VLAN, &[10], None)];
    let ports: Vec<_> = (0..).zip(ports).map(|(at, vlans)| of(at, vlans)).collect();
    let mut rig = Rig::new(&ports);
    let stack = [0x88, 0xa8, 0xe0, 0, 0x81, 0, 0x20, 0].repeat(3);
    rig.forward(vec![(1, frame(ALL, 2, &[]))]);
    for count in 1..=4 {
        for to in [ALL, [2, 0, 0, 0, 0, 2]] {
            let sent = frame(to, 1, &stack[..4 * count]);
            let got = rig.forward(vec![(0, sent.clone()), (0, sent)]);
            assert_eq!(got[1], vec![frame(to, 1, &[]); 2], "{count} tags");
            let tagged = vec![frame(to, 1, &[0x81, 0, 0xe0, 10]); 2];
            assert_eq!(got[2], if to == ALL { tagged } else { vec![] }, "{count} tags: the priority of the first");
        }
        let hidden = [&stack[..4 * count], &[0x81, 0, 0, 20]].concat();
        assert!(rig.forward(vec![(0, frame(ALL, 1, &hidden))]).concat().is_empty(), "{count} tags");
        let mut cut = frame(ALL, 1, &stack[..4 * count]);
        cut.truncate(12 + 4 * count);
        rig.forward(vec![(0, cut)]);
    }
    assert_eq!(rig.dropped_as(0, Reason::VlanNotAllowed), 4, "the tag behind them is that of a VLAN");
    assert_eq!(rig.dropped_as(0, Reason::Runt), 4);
    assert!(rig.forward(vec![(0, frame(ALL, 1, &stack[..20]))]).concat().is_empty());
    assert_eq!(rig.dropped_as(0, Reason::Hidden), 1);
    // Frames of one row differ behind the first tag.
    let [one, two, nested] = [&stack[..4], &stack[..8], &[stack[..4].to_vec(), vec![0x81, 0, 0, 20]].concat()];
    for rows in [[two, nested, one, one], [one, one, nested, two], [one, two, one, nested], [nested, one, two, one]] {
        for to in [ALL, [2, 0, 0, 0, 0, 2]] {
            let got = rig.forward(rows.map(|tags| (0, frame(to, 1, tags))).to_vec());
            assert_eq!(got[1], vec![frame(to, 1, &[]); 3]);
        }
    }
}

/// In its native VLAN, a trunk takes them off as an access port does. A tag of a VLAN behind them is inside of
/// the frame.
#[test]
fn a_trunk_takes_priority_tags_off_in_its_native_vlan() {
    let customer = PortVlans { role: VlanRole::Customer(id(10)), priority: 0 };
    let ports =
        [trunk(EtherType::VLAN, &[20], Some((10, false))), access(10), customer, trunk(EtherType::VLAN, &[10], None)];
    let ports: Vec<_> = (0..).zip(ports).map(|(at, vlans)| of(at, vlans)).collect();
    let mut rig = Rig::new(&ports);
    rig.forward(vec![(1, frame(ALL, 2, &[]))]);
    let kinds = [[0x88, 0xa8, 0xe0, 0], [0x81, 0, 0xe0, 0]];
    for (first, count) in (0..2).flat_map(|first| (1..=4).map(move |count| (first, count))) {
        let stack: Vec<u8> = kinds.into_iter().cycle().skip(first).take(count).flatten().collect();
        for to in [ALL, [2, 0, 0, 0, 0, 2]] {
            let sent = frame(to, 1, &stack);
            let got = rig.forward(vec![(0, sent.clone()), (0, sent)]);
            assert_eq!(got[1], vec![frame(to, 1, &[]); 2], "{stack:x?}");
            let tagged = vec![frame(to, 1, &[0x81, 0, 0xe0, 10]); 2];
            assert_eq!(got[3], if to == ALL { tagged } else { vec![] }, "{stack:x?}: the priority of the first");
        }
        let nested = frame(ALL, 1, &[&stack[..], &[0x81, 0, 0, 20]].concat());
        let got = rig.forward(vec![(0, nested)]);
        assert_eq!(got[2], [frame(ALL, 1, &[0x81, 0, 0, 20])], "{stack:x?}");
        assert!(got[1].is_empty(), "{stack:x?}");
    }
    assert!(rig.forward(vec![(0, frame(ALL, 1, &kinds[0].repeat(5)))]).concat().is_empty());
    assert_eq!(rig.dropped_as(0, Reason::Hidden), 1);
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
    let clock = Clock::real();
    let began = clock.now();
    let mut rig = Rig::new(&ports);
    let sent = |to: [u8; 6]| (0..20).map(move |_| (0, frame(to, 1, &[])));
    for (to, limit) in [(ALL, 3), ([1, 0, 0x5e, 0, 0, 1], 2), ([2, 9, 9, 9, 9, 9], 1)] {
        let before = rig.dropped_as(0, Reason::Storm);
        let passed = rig.forward(sent(to).collect())[1].len();
        // The bucket is full at first, and fills while the test runs.
        let most = limit * (2 + usize::try_from(clock.since(began).as_secs()).unwrap());
        assert!((limit..=most).contains(&passed), "{passed} of {limit}");
        assert_eq!(rig.dropped_as(0, Reason::Storm) - before, 20 - passed as u64);
    }
    // A known station is no storm.
    rig.forward(vec![(1, frame([2, 0, 0, 0, 0, 1], 9, &[]))]);
    assert_eq!(rig.forward(vec![(0, frame([2, 0, 0, 0, 0, 9], 1, &[]))])[1].len(), 1);
}
