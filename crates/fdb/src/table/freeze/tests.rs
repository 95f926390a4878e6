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
    last: u32,
    moves: u32,
    frozen: Option<Frozen>,
}

#[derive(Clone, Debug)]
struct Frozen {
    since: u32,
    is_in_doubt: bool,
    uplinks: BTreeSet<u16>,
}

impl Known {
    fn new(at: u16, origin: Origin, seen: u32) -> Self {
        Known { at, origin, seen, ports: Vec::new(), window: 0, last: 0, moves: 0, frozen: None }
    }

    fn forget_moves(&mut self) {
        *self = Known::new(self.at, self.origin, self.seen);
    }

    fn freeze(&mut self, now: u32, is_in_doubt: bool, ports: &[u16]) {
        let uplinks = ports.iter().copied().filter(|port| rank(*port) == PlaceRank::Uplink && *port != self.at);
        self.frozen = Some(Frozen { since: now, is_in_doubt, uplinks: uplinks.collect() });
    }

    /// Begins a window or a series.
    fn begin(&mut self, from: u16, now: u32) {
        let has_settled = match self.ports.first() {
            None => true,
            Some(_) if self.origin != Origin::Learned => false,
            Some(first) if rank(*first) == rank(from) => self.seen >= self.last + AGEING,
            Some(_) => self.seen >= self.last + 20,
        };
        if has_settled {
            self.ports = vec![from];
        }
        if has_settled || now - self.window >= 10 {
            (self.window, self.moves) = (now, 0);
        }
        self.last = now;
    }

    /// Returns the highest rank of the series.
    fn best(&self) -> PlaceRank {
        match self.origin {
            Origin::File => PlaceRank::Checked,
            Origin::Owner => PlaceRank::Uplink,
            Origin::Learned => self.ports.iter().map(|port| rank(*port)).max().expect("it has some"),
        }
    }

    /// Returns what a freeze says of a frame from elsewhere.
    fn judge(&mut self, port: u16, now: u32) -> FreezeVerdict {
        let Some(frozen) = &self.frozen else { return FreezeVerdict::None };
        if now - frozen.since >= 10 {
            self.forget_moves();
            return FreezeVerdict::None;
        }
        if frozen.is_in_doubt && now - self.seen >= 10 {
            self.forget_moves();
            return FreezeVerdict::Silent;
        }
        let is_higher = rank(port) > self.best();
        let frozen = self.frozen.as_mut().expect("it is frozen");
        frozen.since = now;
        if is_higher {
            frozen.is_in_doubt = true;
            frozen.uplinks.extend(Some(self.at).filter(|port| rank(*port) == PlaceRank::Uplink));
            self.ports.push(port);
            return FreezeVerdict::Outranked;
        }
        frozen.uplinks.extend(Some(port).filter(|port| rank(*port) == PlaceRank::Uplink));
        FreezeVerdict::Refused
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
            match self.judge(port, now) {
                FreezeVerdict::Refused => return LearnOutcome::Frozen,
                FreezeVerdict::None if self.moves_too_often(port, now) => return LearnOutcome::Frozen,
                _ => {}
            }
        }
        self.at = port;
        self.seen = now;
        LearnOutcome::Moved { from: PortIndex(from) }
    }

    /// Counts a move. Returns whether the station is frozen elsewhere.
    fn moves_too_often(&mut self, port: u16, now: u32) -> bool {
        let from = self.at;
        self.begin(from, now);
        self.moves += 1;
        self.ports.push(port);
        if self.moves <= 10 {
            return false;
        }
        let best = self.best();
        let of_best: BTreeSet<_> = self.ports.iter().filter(|port| rank(**port) == best).collect();
        let first = self.ports[0];
        let place = if of_best.len() == 1 { **of_best.first().expect("it has one") } else { first };
        self.at = place;
        self.freeze(now, best > rank(first), &[from, port]);
        place != port
    }

    /// A move of a fixed station is a frame from another port than the last one.
    fn learn_fixed(&mut self, port: u16, now: u32) -> LearnOutcome {
        if port == self.at {
            return LearnOutcome::Known;
        }
        if self.origin == Origin::Owner && rank(port) == PlaceRank::Checked {
            return LearnOutcome::Fixed;
        }
        if self.judge(port, now) == FreezeVerdict::Refused {
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
                    model.values_mut().filter_map(|known| known.frozen.as_mut()).for_each(|frozen| frozen.uplinks.clear());
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
                    let refuses = frozen.is_some() && port != known.at && rank(port) <= known.best();
                    prop_assert_eq!(fdb.refuses(station(*number), PortIndex(port), now), refuses);
                }
            }
        }
    }
}

const HOME: PortIndex = PortIndex(0);
const OTHER: PortIndex = PortIndex(1);
const UPLINK: PortIndex = PortIndex(2);
const CHECKED: PortIndex = PortIndex(5);

/// An attacker that claims an address for an hour, a hundred times a second, never gets it, whether it was
/// there first or not.
#[test]
fn an_address_of_an_uplink_is_never_taken() {
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
    let mark = |end: u32| IS_FROZEN | 3 << RANK_SHIFT | (end & SECOND) << 16;
    for now in [20, SECOND - 3, SECOND, 2 * SECOND + 7, u32::MAX - 20] {
        assert!(lasts(mark(now + 10), now) && lasts(mark(now + 1), now) && !lasts(mark(now), now), "{now}");
        assert!(is_renewed(mark(now + 10), now) && is_renewed(mark(now + 11), now) && !is_renewed(mark(now + 9), now));
    }
    assert!(!lasts(0, 5) && !is_renewed(0, SECOND - 9));
    assert_eq!(fdb.frozen(), 0);
}

/// Has a station appear at two ports in turn, until it is frozen.
fn contend(fdb: &Fdb, number: u8, ports: [PortIndex; 2], now: u32) {
    for _ in 0..20 {
        for port in ports {
            let _ = fdb.learn(station(number), port, now);
        }
    }
}

/// Two ports contend for an address before its station is ever heard at a port of higher rank. That one takes
/// it with its first frame, from whichever of the two, and so does a port of a still higher rank.
#[test]
fn a_port_of_higher_rank_takes_a_frozen_station() {
    for ports in [[HOME, OTHER], [OTHER, HOME]] {
        let fdb = fresh();
        contend(&fdb, 9, ports, 7);
        assert_eq!((fdb.lookup(station(9), 7), fdb.frozen()), (Some(ports[0]), 1));
        let mut place = ports[0];
        for higher in [UPLINK, CHECKED] {
            assert!(!fdb.refuses(station(9), higher, 8), "nor does a port without learning refuse it");
            assert_eq!(fdb.learn(station(9), higher, 8), LearnOutcome::Moved { from: place });
            place = higher;
            for other in ports {
                assert_eq!(fdb.learn(station(9), other, 9), LearnOutcome::Frozen, "it is frozen at its new place");
                assert!(fdb.refuses(station(9), other, 9));
            }
            assert_eq!(fdb.learn(station(9), higher, 9), LearnOutcome::Known);
        }
        assert_eq!(fdb.learn(station(9), UPLINK, 9), LearnOutcome::Frozen);
        // If it is silent there, it is as good as new.
        let until = |now| now < 9 + FREEZE;
        for now in (10..).take_while(|now| until(*now)) {
            assert_eq!(fdb.learn(station(9), OTHER, now), LearnOutcome::Frozen);
        }
        assert_eq!(fdb.learn(station(9), OTHER, 9 + FREEZE), LearnOutcome::Moved { from: CHECKED });
        contend(&fdb, 9, [OTHER, HOME], 9 + FREEZE);
        assert_eq!(fdb.lookup(station(9), 9 + FREEZE), Some(OTHER));
    }
}

/// A loop between two uplinks has ties of a high rank. A third uplink does not take the station, which would
/// be the VM's.
#[test]
fn an_uplink_of_the_same_rank_takes_nothing() {
    let fdb = fresh();
    let third = PortIndex(4);
    let _ = fdb.learn(station(9), HOME, 0);
    for _ in 0..20 {
        let _ = fdb.learn(station(9), UPLINK, 0);
        let _ = fdb.learn(station(9), PortIndex(3), 0);
        let _ = fdb.learn(station(9), HOME, 0);
    }
    assert_eq!(fdb.lookup(station(9), 0), Some(HOME));
    assert_eq!(fdb.learn(station(9), third, 1), LearnOutcome::Frozen);
    assert!(fdb.refuses(station(9), third, 1));
    // If nobody is there, the freeze ends, and an uplink becomes the first.
    for now in 2..10 {
        assert_eq!(fdb.learn(station(9), UPLINK, now), LearnOutcome::Frozen, "at {now}");
    }
    assert!(matches!(fdb.learn(station(9), UPLINK, 10), LearnOutcome::Moved { .. }));
    contend(&fdb, 9, [PortIndex(3), UPLINK], 10);
    assert_eq!(fdb.lookup(station(9), 10), Some(UPLINK));
}

/// A reload forgets a freeze whose ports have other ranks.
#[test]
fn other_ranks_end_a_freeze_at_a_reload() {
    struct Higher(u16);
    impl PlaceRanks<PortIndex> for Higher {
        fn rank(&self, _station: Station, port: PortIndex) -> PlaceRank {
            if port.0 == self.0 { PlaceRank::Checked } else { rank(port.0) }
        }

        fn uplink_bit(&self, _port: PortIndex) -> u16 {
            0
        }
    }
    for (higher, is_kept) in [(HOME, false), (UPLINK, true)] {
        let before = fresh();
        contend(&before, 9, [HOME, OTHER], 7);
        let ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
        let after = Fdb::new(100, AGEING, &ports, &[]).with_freezes(Arc::new(Higher(higher.0)));
        after.take_over(&before, |_| true);
        assert_eq!(after.refuses(station(9), OTHER, 8), is_kept, "{higher:?}");
        assert_eq!(after.lookup(station(9), 8), Some(HOME));
    }
}

/// An attacker claims an address while its station is silent, and is heard there for less than the time of
/// ageing. It is not the first of the next series.
#[test]
fn a_claim_during_silence_makes_nobody_the_first() {
    for (silence, home) in [(12, HOME), (21, HOME), (AGEING - 1, HOME), (AGEING, OTHER), (AGEING + 9, OTHER)] {
        let fdb = fresh();
        let _ = fdb.learn(station(9), HOME, 100);
        for now in 100..=100 + silence {
            let _ = fdb.learn(station(9), OTHER, now);
        }
        contend(&fdb, 9, [HOME, OTHER], 100 + silence);
        assert_eq!(fdb.lookup(station(9), 100 + silence), Some(home), "after {silence} s");
    }
}

/// A VM fills its share, and claims the addresses of others. None of them is forgotten, and its claims freeze.
#[test]
fn a_full_port_takes_no_station_from_the_table() {
    for victim in [OTHER, UPLINK, CHECKED] {
        let fdb = fresh().with_limits([(HOME, 2)]);
        let _ = fdb.learn(station(10), HOME, 0);
        let _ = fdb.learn(station(11), HOME, 0);
        let _ = fdb.learn(station(9), victim, 0);
        let claims: Vec<_> = (0..20).map(|_| fdb.learn(station(9), HOME, 0)).collect();
        assert_eq!(claims[..10], [LearnOutcome::Full; 10]);
        assert_eq!(claims[10..], [LearnOutcome::Frozen; 10]);
        assert_eq!((fdb.lookup(station(9), 0), fdb.frozen()), (Some(victim), 1));
        assert_eq!((fdb.share(HOME).used, fdb.share(victim).used, fdb.learned()), (2, 1, 3));
        for now in 1..100 {
            assert_eq!(fdb.learn(station(9), victim, now), LearnOutcome::Known);
            assert_eq!(fdb.learn(station(9), HOME, now), LearnOutcome::Frozen);
        }
    }
}

/// A station that is silent at its place has moved to the full port, as far as anybody knows. Frames for it are
/// flooded.
#[test]
fn a_silent_station_leaves_for_a_full_port() {
    for claims in [1, 20] {
        let fdb = fresh().with_limits([(HOME, 1)]);
        let _ = fdb.learn(station(10), HOME, 0);
        let _ = fdb.learn(station(9), OTHER, 0);
        for _ in 0..claims {
            let _ = fdb.learn(station(9), HOME, 0);
        }
        for now in 1..FREEZE {
            let _ = fdb.learn(station(9), HOME, now);
            assert_eq!(fdb.lookup(station(9), now), Some(OTHER));
        }
        assert_eq!(fdb.learn(station(9), HOME, FREEZE), LearnOutcome::Full);
        assert_eq!((fdb.lookup(station(9), FREEZE), fdb.learned()), (None, 1));
    }
    // A port of a higher rank takes it from the table at once.
    let fdb = fresh().with_limits([(UPLINK, 1)]);
    let _ = fdb.learn(station(10), UPLINK, 0);
    let _ = fdb.learn(station(9), OTHER, 0);
    assert_eq!(fdb.learn(station(9), UPLINK, 0), LearnOutcome::Full);
    assert_eq!((fdb.lookup(station(9), 0), fdb.learned()), (None, 1));
}

/// A station whose place has no space any more is not frozen.
#[test]
fn a_place_without_space_freezes_nobody() {
    let fdb = fresh().with_limits([(HOME, 1)]);
    let _ = fdb.learn(station(9), HOME, 0);
    let _ = fdb.learn(station(9), OTHER, 0);
    let _ = fdb.learn(station(10), HOME, 0);
    for _ in 0..20 {
        for port in [PortIndex(3), UPLINK] {
            let _ = fdb.learn(station(9), port, 0);
        }
    }
    // The uplinks have one rank, so the station would stay where it was first.
    assert_eq!(fdb.frozen(), 0);
    assert_eq!((fdb.lookup(station(9), 0), fdb.learned()), (Some(UPLINK), 2));
}

/// The ranks beside those of ports: the configuration is above all, and an owner between a source check and an
/// uplink. Ports without learning refuse by the same order.
#[test]
fn fixed_stations_have_ranks_of_their_own() {
    for (number, checked) in [(0, LearnOutcome::Frozen), (1, LearnOutcome::Fixed)] {
        let fdb = fresh();
        contend(&fdb, number, [UPLINK, PortIndex(3)], 7);
        assert_eq!(fdb.learn(station(number), UPLINK, 7), LearnOutcome::Frozen);
        assert_eq!(fdb.learn(station(number), CHECKED, 7), checked);
        let refuses = [UPLINK, CHECKED].map(|port| fdb.refuses(station(number), port, 7));
        assert_eq!(refuses, [true, checked == LearnOutcome::Frozen]);
    }
}
