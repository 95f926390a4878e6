//! A bridge without rules.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PORTS: u16 = 3;

/// A frame: its port, its addresses, and its number among all.
type Sent = (u16, [u8; 6], [u8; 6], u8);

/// Returns the ports that the frame goes to, by the rules of a bridge.
fn model(stations: &mut HashMap<[u8; 6], u16>, &(port, to, from, _): &Sent) -> Vec<u16> {
    if from[0] & 1 != 0 || from == [0; 6] {
        return Vec::new();
    }
    stations.insert(from, port);
    match stations.get(&to) {
        Some(&known) if to[0] & 1 == 0 => (known != port).then_some(known).into_iter().collect(),
        _ if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 => Vec::new(),
        _ => (0..PORTS).filter(|&other| other != port).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Few addresses, so that frames come in rows, and stations move within one batch.
    #[test]
    fn it_decides_on_each_frame_as_if_it_were_the_only_one(
        batches in vec(vec((0..PORTS, 0..6_usize, 0..5_usize, 1..4_usize), 1..12), 1..6),
    ) {
        let addresses =
            [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 1, 1], [0; 6], [0xff; 6], [1, 0x80, 0xc2, 0, 0, 3]];
        let ports: Vec<_> = (0..PORTS).map(|port| BridgePort::plain(PortIndex(port))).collect();
        let mut rig = Rig::new(&ports);
        let mut stations = HashMap::new();
        let mut dropped = 0;
        for batch in batches {
            let rows = batch.iter().flat_map(|&(port, to, from, count)| vec![(port, addresses[to], addresses[from]); count]);
            let frames: Vec<Sent> = rows.zip(0..).map(|((port, to, from), number)| (port, to, from, number)).collect();
            let mut expected = vec![Vec::new(); usize::from(PORTS)];
            for frame in &frames {
                let to = model(&mut stations, frame);
                dropped += u64::from(to.is_empty());
                to.into_iter().for_each(|port| expected[usize::from(port)].push(frame.3));
            }
            let bytes = |(port, to, from, number): Sent| (port, [&to[..], &from[..], &[0x88, 0xb5, number]].concat());
            let got = rig.forward(frames.into_iter().map(bytes).collect());
            let got: Vec<Vec<u8>> = got.into_iter().map(|port| port.iter().map(|frame| frame[14]).collect()).collect();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(rig.dropped(), dropped, "each drop is counted once");
        }
    }
}

#[test]
fn floods_of_a_port_to_which_a_station_moves_again_and_again_pause() {
    let ports: Vec<_> = (0..PORTS).map(|port| BridgePort::plain(PortIndex(port))).collect();
    let mut rig = Rig::protected(&ports);
    let frame = |from: u8| [&[0xff; 6], &[2, 0, 0, 0, 0, from][..], &[0x88, 0xb5, 0]].concat();
    let all = || frame(1);
    let moves = (0..20).map(|n| (n % 2, all())).collect();
    rig.forward(moves);
    // Port 1 neither floods nor is flooded to.
    let got = rig.forward(vec![(0, all()), (1, frame(3)), (2, frame(2))]);
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
    assert!(rig.dropped_as(1, Reason::Loop) > 1);
    assert_eq!(rig.dropped_as(0, Reason::Loop), 0);
}
