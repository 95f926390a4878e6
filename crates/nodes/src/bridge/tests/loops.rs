//! Loops through two trunks, and a VM that claims the address of another station.
//!
//! ```text
//! red  (VLAN 10) ── 0 ┌────────┐ 2 ── trunk of 10 and 20 ──┐
//! blue (VLAN 20) ── 1 │ bridge │                           │ a cable, or a network
//!                     └────────┘ 3 ── trunk of 10 and 20 ──┘
//! ```

use straightline_wire::VlanSet;

use super::model::{access, id, of};
use super::*;

const RED: u16 = 0;
const BLUE: u16 = 1;
const TRUNKS: [u16; 2] = [2, 3];
const VIDS: [u16; 2] = [10, 20];
const ALL: [u8; 6] = [0xff; 6];
/// An address that nobody has.
const NOBODY: [u8; 6] = [2, 0, 0, 9, 9, 9];

/// Rounds after which a loop has surely not ended by itself.
const MANY: usize = 100;

fn ports() -> Vec<BridgePort> {
    let vlans: VlanSet = VIDS.into_iter().map(id).collect();
    let role = VlanRole::Trunk { tpid: straightline_wire::EtherType::VLAN, vlans: Box::new(vlans), native: None };
    let trunk = PortVlans { role, priority: 0 };
    vec![of(0, access(10)), of(1, access(20)), of(2, trunk.clone()), of(3, trunk)]
}

fn rig() -> Rig {
    Rig::protected(&ports())
}

/// Returns the address of a station.
fn address(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn frame(to: [u8; 6], from: u8) -> Vec<u8> {
    [&to[..], &address(from), &[0x88, 0xb5, 1, 2, 3, 4]].concat()
}

fn tagged(frame: &[u8], vid: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vid.to_be_bytes(), &frame[12..]].concat()
}

fn place(rig: &Rig, number: u8, vid: u16) -> Option<PortIndex> {
    rig.table.fdb().lookup(Station::new(id(vid), MacAddr(address(number))), rig.now)
}

/// Has each frame that leaves by a trunk come in by the other one, until none does. Returns the frames
/// that both access ports get, and the rounds.
fn run(rig: &mut Rig, mut flight: Vec<(u16, Vec<u8>)>) -> ([Vec<Vec<u8>>; 2], usize) {
    let mut got = [const { Vec::new() }; 2];
    for round in 0..MANY {
        if flight.is_empty() {
            return (got, round);
        }
        let mut out = vec![Vec::new(); 4];
        for batch in std::mem::take(&mut flight).chunks(64) {
            out.iter_mut().zip(rig.forward(batch.to_vec())).for_each(|(all, mut some)| all.append(&mut some));
        }
        let [first, second] = TRUNKS.map(|port| std::mem::take(&mut out[usize::from(port)]));
        flight.extend(first.into_iter().map(|frame| (TRUNKS[1], frame)));
        flight.extend(second.into_iter().map(|frame| (TRUNKS[0], frame)));
        got[0].append(&mut out[0]);
        got[1].append(&mut out[1]);
    }
    panic!("{} frames go round and round", flight.len());
}

#[test]
fn a_loop_between_two_trunks_ends() {
    for to in [ALL, NOBODY, [1, 0, 0x5e, 0, 0, 1]] {
        let mut rig = rig();
        let (_, rounds) = run(&mut rig, vec![(RED, frame(to, 1))]);
        assert!(rounds > 2, "it was a loop");
        assert_eq!(place(&rig, 1, 10), Some(PortIndex(RED)), "the VM keeps its address");
        // The next frames return once, and end there.
        for _ in 0..10 {
            let (got, rounds) = run(&mut rig, vec![(RED, frame(to, 1)), (BLUE, frame(to, 2))]);
            assert_eq!(got[0].len(), 0, "no frame returns to its sender");
            assert!(rounds <= 8, "{rounds}");
        }
        let (got, rounds) = run(&mut rig, vec![(RED, frame(to, 1)), (BLUE, frame(to, 2))]);
        assert_eq!((got, rounds), ([vec![], vec![]], 2));
    }
}

#[test]
fn a_loop_with_a_hundred_stations_ends() {
    let mut rig = rig();
    let floods = |to| (1..=100).map(move |number| (u16::from(number) % 2, frame(to, number)));
    run(&mut rig, floods(ALL).collect());
    for number in 1..=100 {
        let port = u16::from(number) % 2;
        assert_eq!(place(&rig, number, VIDS[usize::from(port)]), Some(PortIndex(port)), "station {number}");
    }
    let (_, rounds) = run(&mut rig, floods(NOBODY).collect());
    assert_eq!(rounds, 2);
    assert_eq!(rig.table.fdb().frozen(), 100);
}

/// Both trunks lead to one network, and the stations are there. A flood comes in by both, and what leaves by
/// a trunk comes back by the other one.
#[test]
fn a_loop_with_stations_behind_the_trunks_ends() {
    for to in [ALL, NOBODY] {
        let mut rig = rig();
        let floods = || {
            let numbers = 1..=100_u8;
            numbers
                .flat_map(|number| TRUNKS.map(|port| (port, tagged(&frame(to, number), VIDS[usize::from(number % 2)]))))
        };
        run(&mut rig, floods().collect());
        let (got, rounds) = run(&mut rig, floods().collect());
        assert_eq!(rounds, 1, "nothing leaves by the other trunk");
        assert_eq!(got.map(|frames| frames.len()), [50, 50], "each VM gets each flood once");
        // A station that the loop has not frozen crosses the bridge as before.
        let answer = frame(address(2), 200);
        let out = rig.forward(vec![(RED, answer.clone())]);
        assert_eq!(out.iter().map(Vec::len).sum::<usize>(), 1, "station 2 is known");
    }
}

/// Stations of the configuration do not move. Their frames come back by several ports in turn.
#[test]
fn a_loop_with_static_stations_ends() {
    let statics: Vec<_> = (1..=100).map(|number| (id(10), MacAddr(address(number)), PortIndex(RED))).collect();
    let mut rig = Rig::with(&ports(), true, &statics);
    let floods = || (1..=100).map(|number| (RED, frame(ALL, number))).collect::<Vec<_>>();
    run(&mut rig, floods());
    let (_, rounds) = run(&mut rig, floods());
    assert_eq!(rounds, 2);
}

/// A VM claims the address of a station behind a trunk, a hundred times a second, before the station was
/// ever heard.
#[test]
fn a_vm_that_claims_an_address_cuts_nobody_off() {
    let mut rig = rig();
    let broadcast = |vid, number| (TRUNKS[0], tagged(&frame(ALL, number), vid));
    for second in 0..40 {
        for _ in 0..100 {
            let out = rig.forward(vec![(RED, frame(NOBODY, 7)), broadcast(10, 7)]);
            assert!(second == 0 || out[0] == Vec::<Vec<u8>>::new(), "the attacker gets no floods");
            let out = rig.forward(vec![(BLUE, frame(ALL, 20)), broadcast(20, 21)]);
            let to_blue = vec![frame(ALL, 21)];
            let from_blue = vec![tagged(&frame(ALL, 20), 20)];
            assert_eq!(out[1], to_blue, "second {second}");
            assert_eq!(out[2], from_blue, "second {second}");
        }
        assert_eq!(place(&rig, 7, 10), Some(PortIndex(TRUNKS[0])), "second {second}");
        rig.now += 1;
    }
    assert_eq!(rig.table.fdb().frozen(), 1);
    assert!(rig.dropped_as(usize::from(RED), Reason::Loop) > 3900);
    assert_eq!(rig.dropped_as(usize::from(TRUNKS[0]), Reason::Loop), 0);
    assert_eq!(rig.dropped_as(usize::from(BLUE), Reason::Loop), 0);
    // When the attack has ended, a single move passes at once.
    rig.now += 10;
    let out = rig.forward(vec![(RED, frame(ALL, 7))]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(place(&rig, 7, 10), Some(PortIndex(RED)));
}

/// Two VMs have an address frozen before its station is heard. Behind which trunk it is, and whether that
/// learns, frames of it pass.
#[test]
fn a_trunk_that_learns_nothing_refuses_no_station_of_its_own() {
    for learns in [true, false] {
        let mut ports = ports();
        ports[1] = of(BLUE, access(10));
        ports[2].rules.learns = learns;
        let mut rig = Rig::protected(&ports);
        for _ in 0..20 {
            rig.forward(vec![(RED, frame(NOBODY, 7)), (BLUE, frame(NOBODY, 7))]);
        }
        assert_eq!(place(&rig, 7, 10), Some(PortIndex(RED)));
        let answer = [&address(8)[..], &frame(ALL, 7)[6..]].concat();
        rig.forward(vec![(TRUNKS[1], tagged(&frame(NOBODY, 8), 10))]);
        let out = rig.forward(vec![(TRUNKS[0], tagged(&answer, 10))]);
        assert_eq!(out[3].len(), 1, "learns: {learns}");
        assert_eq!(rig.dropped_as(usize::from(TRUNKS[0]), Reason::Loop), 0);
    }
}
