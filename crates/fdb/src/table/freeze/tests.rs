//! Freezes beside a model that remembers all ports of a series.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use straightline_packet::PortIndex;
use straightline_wire::{MacAddr, VlanId};

use super::*;
use crate::table::{FdbSpace, OwnOutcome};

const PORTS: u16 = 6;
const AGEING: u32 = 30;

/// Ports 0 and 1 are ordinary, 2 to 4 are uplinks, and the source check of 5 allows all addresses.
struct Ranks;

impl PlaceRanks<PortIndex> for Ranks {
    fn rank(&self, _station: Station, port: PortIndex) -> PlaceRank {
        rank(port.0)
    }

    fn uplink_bit(&self, port: PortIndex) -> u16 {
        if rank(port.0) == PlaceRank::Uplink { 1 << port.0 } else { 0 }
    }
}

fn rank(port: u16) -> PlaceRank {
    match port {
        2..=4 => PlaceRank::Uplink,
        5 => PlaceRank::Checked,
        _ => PlaceRank::Ordinary,
    }
}

fn station(number: u8) -> Station {
    Station::new(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, number]))
}

fn fresh() -> Fdb {
    let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
    let fixed = [(VlanId::DEFAULT, station(0).mac(), PortIndex(0))];
    let space = FdbSpace { owned: 1, ports: usize::from(PORTS) };
    let fdb = Fdb::with_space(1000, AGEING, &ports, &fixed, space).with_freezes(Arc::new(Ranks));
    assert_eq!(fdb.set_owned(station(1), PortIndex(1)), OwnOutcome::Owned);
    fdb
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    File,
    Owner,
    Learned,
}

/// A station of the model.
#[derive(Clone, Debug)]
struct Known {
    at: u16,
    origin: Origin,
    seen: u32,
    /// The ports of the series, the first one in front.
    ports: Vec<u16>,
    window: u32,
    moves: u32,
    frozen: Option<Frozen>,
}

#[derive(Clone, Debug)]
struct Frozen {
    since: u32,
    is_by_rank: bool,
    uplinks: BTreeSet<u16>,
}

impl Known {
    fn new(at: u16, origin: Origin, seen: u32) -> Self {
        Known { at, origin, seen, ports: Vec::new(), window: 0, moves: 0, frozen: None }
    }

    fn forget_moves(&mut self) {
        *self = Known::new(self.at, self.origin, self.seen);
    }

    fn freeze(&mut self, now: u32, is_by_rank: bool, ports: &[u16]) {
        let uplinks = ports.iter().copied().filter(|port| rank(*port) == PlaceRank::Uplink && *port != self.at);
        self.frozen = Some(Frozen { since: now, is_by_rank, uplinks: uplinks.collect() });
    }

    /// Begins a window or a series.
    fn begin(&mut self, from: u16, now: u32) {
        if self.ports.is_empty() || now - self.window >= 20 {
            self.ports = vec![from];
            (self.window, self.moves) = (now, 0);
        } else if now - self.window >= 10 {
            (self.window, self.moves) = (now, 0);
        }
    }

    /// Returns whether a frame from elsewhere is refused.
    fn refuses(&mut self, port: u16, now: u32) -> bool {
        let Some(frozen) = &mut self.frozen else { return false };
        let is_silent = frozen.is_by_rank && now - self.seen >= 10;
        if now - frozen.since >= 10 || is_silent {
            self.forget_moves();
            return false;
        }
        frozen.since = now;
        frozen.uplinks.extend(Some(port).filter(|port| rank(*port) == PlaceRank::Uplink));
        true
    }

    fn learn(&mut self, port: u16, now: u32) -> LearnOutcome {
        if self.origin != Origin::Learned {
            return self.learn_fixed(port, now);
        }
        let from = self.at;
        if from == port {
            if self.frozen.as_ref().is_some_and(|frozen| now - frozen.since >= 10) {
                self.forget_moves();
            }
            self.seen = now;
            return LearnOutcome::Known;
        }
        if now - self.seen >= AGEING {
            self.forget_moves();
        } else {
            if self.refuses(port, now) {
                return LearnOutcome::Frozen;
            }
            self.begin(from, now);
            self.moves += 1;
            self.ports.push(port);
            if self.moves > 10 {
                let best = self.ports.iter().map(|port| rank(*port)).max().expect("it has some");
                let of_best: BTreeSet<_> = self.ports.iter().filter(|port| rank(**port) == best).collect();
                let first = self.ports[0];
                let place = if of_best.len() == 1 { **of_best.first().expect("it has one") } else { first };
                self.at = place;
                self.freeze(now, rank(place) > rank(first), &[from, port]);
                if place != port {
                    return LearnOutcome::Frozen;
                }
            }
        }
        self.at = port;
        self.seen = now;
        LearnOutcome::Moved { from: PortIndex(from) }
    }

    /// A move of a fixed station is a frame from another port than the last one.
    fn learn_fixed(&mut self, port: u16, now: u32) -> LearnOutcome {
        if port == self.at {
            return LearnOutcome::Known;
        }
        if self.origin == Origin::Owner && rank(port) == PlaceRank::Checked {
            return LearnOutcome::Fixed;
        }
        if self.refuses(port, now) {
            return LearnOutcome::Frozen;
        }
        let last = self.ports.last().copied();
        self.begin(port, now);
        if self.moves == 0 || last != Some(port) {
            self.moves += 1;
        }
        self.ports.push(port);
        if self.moves <= 10 {
            return LearnOutcome::Fixed;
        }
        self.freeze(now, false, &[port, last.expect("it has moved")]);
        LearnOutcome::Frozen
    }
}

#[derive(Clone, Debug)]
enum Act {
    Learn { station: u8, port: u16 },
    Pass { seconds: u32 },
    Reload,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let flaps = (0..3_u8, prop::collection::vec(0..PORTS, 1..4), 1..16_usize).prop_map(|(station, ports, times)| {
        let row = ports.into_iter().map(move |port| Act::Learn { station, port }).collect::<Vec<_>>();
        std::iter::repeat_n(row, times).flatten().collect()
    });
    let pass = prop_oneof![4 => 0..3_u32, 2 => 8..12_u32, 1 => 18..40_u32];
    let others = prop_oneof![
        6 => pass.prop_map(|seconds| vec![Act::Pass { seconds }]),
        6 => (0..3_u8, 0..PORTS).prop_map(|(station, port)| vec![Act::Learn { station, port }]),
        1 => Just(vec![Act::Reload]),
    ];
    prop::collection::vec(prop_oneof![1 => flaps, 1 => others], 1..30).prop_map(|acts| acts.concat())
}

proptest! {
    #[test]
    fn agrees_with_a_model_that_remembers_all_ports(acts in acts()) {
        let mut fdb = fresh();
        let mut now = 1;
        let mut model: BTreeMap<u8, Known> = [
            (0, Known::new(0, Origin::File, 0)),
            (1, Known::new(1, Origin::Owner, 0)),
        ].into();
        for act in acts {
            match act {
                Act::Learn { station: number, port } => {
                    let expected = match model.get_mut(&number) {
                        Some(known) => known.learn(port, now),
                        None => {
                            model.insert(number, Known::new(port, Origin::Learned, now));
                            LearnOutcome::Learned
                        }
                    };
                    prop_assert_eq!(fdb.learn(station(number), PortIndex(port), now), expected);
                }
                Act::Pass { seconds } => now += seconds,
                Act::Reload => {
                    let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
                    let fixed = [(VlanId::DEFAULT, station(0).mac(), PortIndex(0))];
                    let space = FdbSpace { owned: 1, ports: usize::from(PORTS) };
                    let next = Fdb::with_space(500, AGEING, &ports, &fixed, space).with_freezes(Arc::new(Ranks));
                    next.take_over(&fdb, |_| true);
                    fdb = next;
                }
            }
            for (number, known) in &model {
                let is_known = known.origin != Origin::Learned || now - known.seen < AGEING;
                let place = is_known.then_some(PortIndex(known.at));
                prop_assert_eq!(fdb.lookup(station(*number), now), place, "station {}", number);
                let frozen = known.frozen.as_ref().filter(|frozen| now - frozen.since < 10);
                let is_uplink = |_: &&Frozen| rank(known.at) == PlaceRank::Uplink;
                let uplinks = frozen.filter(is_uplink).map_or(0, |frozen| frozen.uplinks.iter().fold(0, |bits, port| bits | 1 << port));
                prop_assert_eq!(fdb.echoes(station(*number), now), uplinks, "station {}", number);
                for port in 0..PORTS {
                    let refuses = frozen.is_some() && port != known.at;
                    prop_assert_eq!(fdb.refuses(station(*number), PortIndex(port), now), refuses);
                }
            }
        }
    }
}

const HOME: PortIndex = PortIndex(0);
const OTHER: PortIndex = PortIndex(1);

/// An attacker that claims an address for an hour, a hundred times a second, never gets it, whether it was
/// there first or not.
#[test]
fn an_address_of_an_uplink_is_never_taken() {
    const UPLINK: PortIndex = PortIndex(2);
    for attacker_is_first in [false, true] {
        let fdb = fresh();
        let first = if attacker_is_first { OTHER } else { UPLINK };
        let _ = fdb.learn(station(9), first, 0);
        let mut lost = 0;
        for now in 0..3600 {
            for _ in 0..100 {
                let _ = fdb.learn(station(9), OTHER, now);
                if fdb.learn(station(9), UPLINK, now) == LearnOutcome::Frozen {
                    lost += 1;
                }
            }
            assert_eq!(fdb.lookup(station(9), now), Some(UPLINK));
        }
        assert_eq!((lost, fdb.frozen()), (0, 1));
    }
}

/// The count begins anew in each window, but not the series: an attacker that has the address when a window
/// ends is not its home.
#[test]
fn a_window_that_ends_makes_nobody_the_home() {
    let fdb = fresh();
    let _ = fdb.learn(station(9), HOME, 0);
    for _ in 0..4 {
        let _ = fdb.learn(station(9), OTHER, 0);
        let _ = fdb.learn(station(9), HOME, 0);
    }
    let _ = fdb.learn(station(9), OTHER, 9);
    assert_eq!(fdb.lookup(station(9), 9), Some(OTHER));
    for _ in 0..20 {
        let _ = fdb.learn(station(9), HOME, 10);
        let _ = fdb.learn(station(9), OTHER, 10);
    }
    assert_eq!(fdb.lookup(station(9), 10), Some(HOME));
}

/// Ten moves in ten seconds pass at once. So does the first one after a freeze.
#[test]
fn seldom_moves_pass() {
    let fdb = fresh();
    let _ = fdb.learn(station(9), HOME, 0);
    for now in 0..1000 {
        let to = if now % 2 == 0 { OTHER } else { HOME };
        assert!(matches!(fdb.learn(station(9), to, now), LearnOutcome::Moved { .. }), "at {now}");
    }
    for _ in 0..20 {
        let _ = fdb.learn(station(9), OTHER, 1000);
        let _ = fdb.learn(station(9), HOME, 1000);
    }
    assert_eq!(fdb.frozen(), 1);
    let elsewhere = if fdb.lookup(station(9), 1000) == Some(HOME) { OTHER } else { HOME };
    assert_eq!(fdb.learn(station(9), elsewhere, 1009), LearnOutcome::Frozen, "it is renewed");
    assert_eq!(fdb.learn(station(9), elsewhere, 1018), LearnOutcome::Frozen);
    assert!(matches!(fdb.learn(station(9), elsewhere, 1028), LearnOutcome::Moved { .. }));
}

/// The counts of many stations that move at once displace nothing.
#[test]
fn many_stations_freeze_at_once() {
    let fdb = fresh();
    let all = || (0..=u8::MAX).filter(|number| *number > 1).map(station);
    for station in all() {
        let _ = fdb.learn(station, HOME, 7);
    }
    for _ in 0..8 {
        for station in all() {
            let _ = fdb.learn(station, OTHER, 7);
            let _ = fdb.learn(station, HOME, 7);
        }
    }
    assert_eq!(fdb.frozen(), 254);
    assert!(all().all(|station| fdb.lookup(station, 7) == Some(HOME) && fdb.refuses(station, OTHER, 7)));
    assert_eq!((fdb.freezes().len(), fdb.freezes().len()), (KEPT, 0), "told once");
    // Those that age leave their neighbours' counts.
    for now in [8, 16, 24, 32, 40] {
        let _ = fdb.learn(station(77), HOME, now);
        let _ = fdb.learn(station(77), OTHER, now);
        (0..10_000).for_each(|_| fdb.sweep(now));
    }
    assert_eq!(fdb.learned(), 1);
    assert!(fdb.refuses(station(77), OTHER, 40));
}

/// A mark is not read for the one of another time, and a writer's time never goes back.
#[test]
fn a_mark_lasts_ten_seconds() {
    let fdb = fresh();
    let mark = |end: u32| IS_FROZEN | (end & SECOND) << 16;
    for now in [20, SECOND - 3, SECOND, 2 * SECOND + 7, u32::MAX - 20] {
        assert!(lasts(mark(now + 10), now) && lasts(mark(now + 1), now) && !lasts(mark(now), now), "{now}");
        assert!(is_renewed(mark(now + 10), now) && is_renewed(mark(now + 11), now) && !is_renewed(mark(now + 9), now));
    }
    assert!(!lasts(0, 5) && !is_renewed(0, SECOND - 9));
    assert_eq!(fdb.frozen(), 0);
}
