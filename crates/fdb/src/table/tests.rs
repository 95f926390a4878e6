use super::*;
use crate::journal::FdbChange;
use std::collections::HashMap;

const VLAN: VlanId = VlanId::DEFAULT;

fn mac(n: u64) -> MacAddr {
    let [_, _, bytes @ ..] = (0x0200_0000_0000 | n).to_be_bytes();
    MacAddr(bytes)
}

fn successor(
    before: &Fdb,
    limit: usize,
    ageing: u32,
    ports: &[PortIndex],
    fixed: &[(VlanId, MacAddr, PortIndex)],
    keep: impl Fn(&FdbEntry) -> bool,
) -> Fdb {
    let fdb = Fdb::new(limit, ageing, ports, fixed);
    fdb.take_over(before, keep);
    fdb
}

const A: PortIndex = PortIndex(0);
const B: PortIndex = PortIndex(1);
const C: PortIndex = PortIndex(2);

#[test]
fn learns_moves_and_forgets() {
    let fdb = Fdb::new(16, 300, &[A, B], &[]);
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(1)), 0), None);
    assert_eq!(fdb.learn(Station::new(VLAN, mac(1)), A, 0), LearnOutcome::Learned);
    assert_eq!(fdb.learn(Station::new(VLAN, mac(1)), A, 5), LearnOutcome::Known);
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(1)), 10), Some(A));
    assert_eq!(fdb.learn(Station::new(VLAN, mac(1)), B, 10), LearnOutcome::Moved { from: A });
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(1)), 309), Some(B));
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(1)), 310), None, "aged");
    assert!(fdb.entries(310).is_empty());
    for _ in 0..64 {
        fdb.sweep(310);
    }
    assert_eq!(fdb.learned(), 0);
}

#[test]
fn the_last_moves_are_kept() {
    let fdb = Fdb::new(16, 300, &[A, B], &[]);
    let all = |fdb: &Fdb| fdb.moves(0);
    for port in [A, A, B] {
        fdb.learn(Station::new(VLAN, mac(1)), port, 0);
    }
    let moved = FdbMove { vlan: VLAN, mac: mac(1), from: A, to: B };
    assert_eq!((fdb.moved(), all(&fdb)), (1, (vec![moved], 1)));
    assert_eq!(fdb.moves(1), (vec![], 1));
    let next = successor(&fdb, 16, 300, &[A, B], &[], |_| true);
    assert_eq!(all(&next), (vec![moved], 1));
    for n in 0..40 {
        next.learn(Station::new(VLAN, mac(1)), if n % 2 == 0 { A } else { B }, 0);
    }
    let (moves, count) = next.moves(1);
    assert_eq!((moves.len(), count, moves.last()), (MOST_MOVES, 41, Some(&moved)));
    assert_eq!(moves[0], FdbMove { vlan: VLAN, mac: mac(1), from: B, to: A });
}

#[test]
fn static_entries_neither_move_nor_age() {
    let fdb = Fdb::new(4, 300, &[A, B], &[(VLAN, mac(7), B)]);
    assert_eq!(fdb.learn(Station::new(VLAN, mac(7)), A, 0), LearnOutcome::Fixed);
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(7)), u32::MAX), Some(B));
    for now in 0..1000 {
        fdb.sweep(now);
    }
    assert_eq!(fdb.entries(2000).len(), 1);
}

#[test]
fn the_limit_holds_until_something_is_forgotten() {
    let fdb = Fdb::new(3, 10, &[A], &[]);
    for n in 0..3 {
        assert_eq!(fdb.learn(Station::new(VLAN, mac(n + 1)), A, 0), LearnOutcome::Learned);
    }
    assert_eq!(fdb.learn(Station::new(VLAN, mac(9)), A, 5), LearnOutcome::Full);
    assert_eq!(fdb.full(), 1);
    for _ in 0..64 {
        fdb.sweep(10);
    }
    assert_eq!(fdb.learn(Station::new(VLAN, mac(9)), A, 10), LearnOutcome::Learned);
}

#[test]
fn many_stations_are_those_in_the_table() {
    let fdb = Fdb::new(10_000, 10, &[A], &[(VLAN, mac(1 << 20), A)]);
    let learn = |n| fdb.learn(Station::new(VLAN, mac(n)), A, 1);
    (1..8191).for_each(|n| _ = learn(n));
    assert!(!fdb.has_many(), "8190 and a static one");
    learn(8191);
    learn(8191);
    assert!(fdb.has_many());
    fdb.prefetch((0..100).map(|n| Station::new(VLAN, mac(n))));
    // Those that age are forgotten by sweeps.
    (0..64 * 1024).for_each(|_| fdb.sweep(100));
    assert!(!fdb.has_many());
}

#[test]
fn a_port_that_invents_addresses_leaves_the_others_their_places() {
    let ports = [0, 1, 2].map(PortIndex);
    let fdb = Fdb::new(60, 300, &ports, &[]);
    for n in 0..1000 {
        fdb.learn(Station::new(VLAN, mac(n)), A, 0);
    }
    // Its own ten places and the thirty common ones.
    assert_eq!(fdb.share(A), Share { used: 40, refused: 960, evicted: 0 });
    for (port, first) in [(B, 2000), (PortIndex(2), 3000)] {
        for n in first..first + 10 {
            assert_eq!(fdb.learn(Station::new(VLAN, mac(n)), port, 1), LearnOutcome::Learned);
        }
        assert_eq!(fdb.learn(Station::new(VLAN, mac(first + 10)), port, 1), LearnOutcome::Full);
        assert_eq!(fdb.share(port), Share { used: 10, refused: 1, evicted: 0 });
    }
    // An address that moves to a port without a free place is known nowhere. Frames for it are
    // flooded.
    assert_eq!(
        (fdb.lookup(Station::new(VLAN, mac(2000)), 1), fdb.learn(Station::new(VLAN, mac(2000)), A, 1)),
        (Some(B), LearnOutcome::Full)
    );
    assert_eq!((fdb.lookup(Station::new(VLAN, mac(2000)), 1), fdb.share(B).used), (None, 9));
    // An address that moves back to its own port finds its place.
    assert_eq!(fdb.learn(Station::new(VLAN, mac(2000)), B, 1), LearnOutcome::Learned);
    assert_eq!(fdb.learn(Station::new(VLAN, mac(9000)), PortIndex(3), 1), LearnOutcome::Full, "no port of this bridge");
}

#[test]
fn a_successor_knows_what_still_holds() {
    let fdb = Fdb::new(8, 300, &[A, B], &[(VLAN, mac(9), B)]);
    for n in 1..=6_u32 {
        fdb.learn(Station::new(VLAN, mac(n.into())), if n % 2 == 0 { B } else { A }, n);
    }
    let known = |fdb: &Fdb| {
        let mut known: Vec<_> = fdb.entries(6).into_iter().map(|e| (e.mac, e.port, e.seen, e.is_static)).collect();
        known.sort_unstable_by_key(|entry| entry.0.as_u64());
        known
    };
    let same = successor(&fdb, 8, 300, &[A, B], &[(VLAN, mac(9), B)], |_| true);
    assert_eq!((known(&same), same.learned()), (known(&fdb), 6));
    // One port is gone. One learned address is now fixed, and the formerly fixed address is
    // gone.
    let other = successor(&fdb, 8, 10, &[A], &[(VLAN, mac(3), A)], |_| true);
    assert_eq!(known(&other), [(mac(1), A, 1, false), (mac(3), A, 0, true), (mac(5), A, 5, false)]);
    assert_eq!((other.learned(), other.ageing(), other.fixed()), (2, 10, 1));
    assert_eq!(other.lookup(Station::new(VLAN, mac(1)), 11), None, "it ages by the new rule");
    // Too few places: the addresses seen last stay, and no refusal is counted.
    let small = successor(&fdb, 2, 300, &[A, B], &[], |_| true);
    assert_eq!(known(&small), [(mac(5), A, 5, false), (mac(6), B, 6, false)]);
    assert_eq!((small.full(), small.learn(Station::new(VLAN, mac(7)), A, 7)), (0, LearnOutcome::Full));
    // `keep` decides on learned addresses, and not on fixed ones.
    let kept = successor(&fdb, 8, 300, &[A, B], &[(VLAN, mac(9), B)], |entry| entry.port == A && entry.mac != mac(1));
    assert_eq!(known(&kept), [(mac(3), A, 3, false), (mac(5), A, 5, false), (mac(9), B, 0, true)]);
    assert_eq!((kept.learned(), kept.share(B).used), (2, 0));
}

/// Three workers use one small table at once. The result is as if they had used it one after
/// the other.
#[test]
fn workers_share_it() {
    let ports: Vec<_> = (0..3).map(PortIndex).collect();
    let fdb = Fdb::new(24, 4, &ports, &[(VLAN, mac(500), B)]);
    let work = |worker: u64| {
        let mut seed = worker + 1;
        for n in 0..60_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let address = seed >> 33 & 0x1f;
            let port = ports[usize::try_from(seed >> 60).unwrap() % 3];
            // The clocks of workers differ by one second at most.
            let now = n / 500 + u32::from(worker == 1);
            // Some addresses stay at their port, and all workers see them. Others move between
            // ports.
            if address < 4 {
                let learned = fdb.learn(Station::new(VLAN, mac(1000 + address)), A, now);
                assert!(!matches!(learned, LearnOutcome::Moved { .. }));
                let found = fdb.lookup(Station::new(VLAN, mac(1000 + address)), now);
                assert!(found.is_none_or(|port| port == A), "{found:?}");
            } else {
                fdb.learn(Station::new(VLAN, mac(address)), port, now);
                assert_eq!(fdb.learn(Station::new(VLAN, mac(500)), port, now) == LearnOutcome::Fixed, port != B);
            }
            fdb.sweep(now);
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|worker| drop(scope.spawn(move || work(worker)))));
    let entries = fdb.entries(0);
    let mut addresses: Vec<_> = entries.iter().map(|entry| entry.mac.as_u64()).collect();
    addresses.sort_unstable();
    let count = addresses.len();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "none is there twice");
    for &port in &ports {
        let known = entries.iter().filter(|entry| entry.port == port && !entry.is_static).count();
        assert_eq!(fdb.share(port).used as usize, known, "{port:?}");
    }
    for entry in entries {
        assert!(fdb.stations.find(Station::new(entry.vlan, entry.mac)).is_some(), "each is found");
    }
    for _ in 0..64 {
        fdb.sweep(1000);
    }
    assert_eq!((fdb.learned(), fdb.entries(1000).len()), (0, 1));
    // All places are free again.
    (0..8).for_each(|n| assert_eq!(fdb.learn(Station::new(VLAN, mac(n)), A, 1000), LearnOutcome::Learned));
}

/// Compares the table with a reference implementation, a hash map, while many addresses come
/// and go in few slots.
#[test]
fn agrees_with_a_map() {
    let ports: Vec<_> = (0..16).map(PortIndex).collect();
    let fdb = Fdb::new(100, 50, &ports, &[]);
    // Three places for each of sixteen ports, and 52 common ones.
    let is_too_much = |model: &HashMap<u64, (PortIndex, u32)>| {
        let count_of = |port: &PortIndex| model.values().filter(|e| e.0 == *port).count();
        ports.iter().map(|port| count_of(port).saturating_sub(3)).sum::<usize>() > 52
    };
    let mut model: HashMap<u64, (PortIndex, u32)> = HashMap::new();
    let mut full = 0;
    let mut seed = 1_u64;
    for now in 0..20_000_u32 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = seed >> 33 & 0xff;
        let port = PortIndex(u16::try_from(seed >> 60).unwrap());
        let now = now / 8;
        let before = model.insert(n, (port, now));
        let expected = match before {
            Some(before) if before.0 == port => LearnOutcome::Known,
            _ if is_too_much(&model) => {
                model.remove(&n);
                LearnOutcome::Full
            }
            Some((from, _)) => LearnOutcome::Moved { from },
            None => LearnOutcome::Learned,
        };
        assert_eq!(fdb.learn(Station::new(VLAN, mac(n)), port, now), expected, "address {n} at {now}");
        full += u64::from(expected == LearnOutcome::Full);
        fdb.sweep(now);
        if now % 64 == 0 {
            for m in 0..256 {
                let expected = model.get(&m).filter(|e| now - e.1 < 50).map(|e| e.0);
                assert_eq!(fdb.lookup(Station::new(VLAN, mac(m)), now), expected, "address {m} at {now}");
            }
        }
        model.retain(|&m, e| now - e.1 < 50 || fdb.stations.find(Station::new(VLAN, mac(m))).is_some());
        assert_eq!((fdb.learned() as usize, fdb.full()), (model.len(), full));
    }
    assert!(full > 0, "there was always a free place");
}

/// The reference of the whole table: a map, with stations of the configuration, of owners and learned
/// ones. Each step compares what it returns, and what everybody then sees.
mod model {
    use proptest::prelude::*;

    use super::*;

    /// Stations of owners that fit.
    const OWNED_PLACES: usize = 4;
    /// The port with a limit of moves, and its limit.
    const LIMITED: (PortIndex, u32) = (PortIndex(2), 2);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Origin {
        File,
        Owner,
        Learned { seen: u32 },
    }

    #[derive(Clone, Debug)]
    enum Act {
        Learn {
            station: u64,
            port: u16,
        },
        SetOwned {
            station: u64,
            port: u16,
        },
        RemoveOwned {
            station: u64,
        },
        SetPorts {
            ports: Vec<PortIndex>,
        },
        Pass {
            seconds: u32,
        },
        /// Another table takes over.
        Reload {
            limit: usize,
        },
    }

    fn acts() -> impl Strategy<Value = Act> {
        let station = 0..12_u64;
        let port = 0..4_u16;
        prop_oneof![
            6 => (station.clone(), port.clone()).prop_map(|(station, port)| Act::Learn { station, port }),
            3 => (station.clone(), port).prop_map(|(station, port)| Act::SetOwned { station, port }),
            2 => station.prop_map(|station| Act::RemoveOwned { station }),
            1 => prop::collection::btree_set(0..4_u16, 1..5)
                .prop_map(|ports| Act::SetPorts { ports: ports.into_iter().map(PortIndex).collect() }),
            1 => (0..12_u32).prop_map(|seconds| Act::Pass { seconds }),
            1 => (4..20_usize).prop_map(|limit| Act::Reload { limit }),
        ]
    }

    struct Model {
        known: HashMap<u64, (PortIndex, Origin)>,
        ports: Vec<PortIndex>,
        limit: usize,
        now: u32,
        moves: (u32, u32),
    }

    impl Model {
        fn learned_at(&self, port: PortIndex) -> usize {
            let is_learned =
                |(at, origin): &&(PortIndex, Origin)| *at == port && matches!(origin, Origin::Learned { .. });
            self.known.values().filter(is_learned).count()
        }

        /// Returns whether the port has a place for one more, by the rule of shares.
        fn has_place(&self, port: PortIndex) -> bool {
            let count = self.ports.len();
            let own = (self.limit / 2 / count).max((self.limit / count).min(1));
            let extra: usize = self.ports.iter().map(|port| self.learned_at(*port).saturating_sub(own)).sum();
            self.ports.contains(&port) && (self.learned_at(port) < own || extra + own * count < self.limit)
        }

        fn learn(&mut self, station: u64, port: PortIndex) -> LearnOutcome {
            let is_known = |seen: u32, now: u32| now - seen < 10;
            match self.known.get(&station).copied() {
                Some((at, Origin::File | Origin::Owner)) if at == port => LearnOutcome::Known,
                Some((_, Origin::File | Origin::Owner)) => LearnOutcome::Fixed,
                Some((from, Origin::Learned { .. })) if from == port => {
                    self.known.insert(station, (port, Origin::Learned { seen: self.now }));
                    LearnOutcome::Known
                }
                Some((from, Origin::Learned { seen })) => {
                    if port == LIMITED.0 && is_known(seen, self.now) {
                        self.moves =
                            if self.moves.0 == self.now { (self.now, self.moves.1 + 1) } else { (self.now, 1) };
                        if self.moves.1 > LIMITED.1 {
                            return LearnOutcome::Held;
                        }
                    }
                    self.known.remove(&station);
                    if !self.has_place(port) {
                        return LearnOutcome::Full;
                    }
                    self.known.insert(station, (port, Origin::Learned { seen: self.now }));
                    LearnOutcome::Moved { from }
                }
                None if !self.has_place(port) => LearnOutcome::Full,
                None => {
                    self.known.insert(station, (port, Origin::Learned { seen: self.now }));
                    LearnOutcome::Learned
                }
            }
        }

        fn owned(&self) -> usize {
            self.known.values().filter(|(_, origin)| *origin == Origin::Owner).count()
        }

        fn set_owned(&mut self, station: u64, port: PortIndex) -> OwnOutcome {
            match self.known.get(&station) {
                _ if !self.ports.contains(&port) => OwnOutcome::NoPort,
                Some((_, Origin::File)) => OwnOutcome::Fixed,
                Some((_, Origin::Owner)) => {
                    self.known.insert(station, (port, Origin::Owner));
                    OwnOutcome::Owned
                }
                _ if self.owned() >= OWNED_PLACES => OwnOutcome::Full,
                _ => {
                    self.known.insert(station, (port, Origin::Owner));
                    OwnOutcome::Owned
                }
            }
        }
    }

    fn fresh(limit: usize) -> Fdb {
        let ports: Vec<_> = (0..4).map(PortIndex).collect();
        let space = FdbSpace { owned: OWNED_PLACES, ports: 4 };
        let fdb = Fdb::with_space(limit, 10, &ports, &[(VLAN, mac(0), B)], space).with_move_limits([LIMITED]);
        fdb.follow();
        fdb
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_of_three_origins(acts in prop::collection::vec(acts(), 1..120)) {
            let mut fdb = fresh(8);
            let known = [(0, (B, Origin::File))].into();
            let ports = (0..4).map(PortIndex).collect();
            let mut model = Model { known, ports, limit: 8, now: 1, moves: (0, 0) };
            // What a follower knows of learned stations.
            let mut told: HashMap<u64, PortIndex> = HashMap::new();
            let mut since = 0;
            for act in acts {
                let key = |station| Station::new(VLAN, mac(station));
                match act {
                    Act::Learn { station, port } => {
                        let expected = model.learn(station, PortIndex(port));
                        prop_assert_eq!(fdb.learn(key(station), PortIndex(port), model.now), expected);
                    }
                    Act::SetOwned { station, port } => {
                        prop_assert_eq!(fdb.set_owned(key(station), PortIndex(port)), model.set_owned(station, PortIndex(port)));
                    }
                    Act::RemoveOwned { station } => {
                        let is_owned = model.known.get(&station).is_some_and(|(_, origin)| *origin == Origin::Owner);
                        prop_assert_eq!(fdb.remove_owned(key(station)), is_owned);
                        if is_owned {
                            model.known.remove(&station);
                        }
                    }
                    Act::SetPorts { ports } => {
                        fdb.set_ports(&ports);
                        model.known.retain(|_, (port, origin)| *origin == Origin::File || ports.contains(port));
                        model.ports = ports;
                    }
                    Act::Pass { seconds } => {
                        model.now += seconds;
                        (0..64).for_each(|_| fdb.sweep(model.now));
                        let now = model.now;
                        let is_young = |origin: &Origin| !matches!(origin, Origin::Learned { seen } if now - seen >= 10);
                        model.known.retain(|_, (_, origin)| is_young(origin));
                    }
                    Act::Reload { limit } => {
                        // All ports are there again, and those seen last are taken over first. With equal
                        // times the table chooses, so only what must be there is compared.
                        let next = fresh(limit);
                        next.take_over(&fdb, |_| true);
                        let entries = next.entries(model.now);
                        let entries_by_owner = |owned| entries.iter().filter(move |entry| entry.is_owned == owned && !entry.is_static);
                        prop_assert_eq!(entries_by_owner(true).count(), model.owned());
                        for entry in entries_by_owner(false) {
                            let known = model.known.iter().any(|(n, (port, _))| mac(*n) == entry.mac && *port == entry.port);
                            prop_assert!(known);
                        }
                        prop_assert_eq!(next.learned() as usize, entries_by_owner(false).count());
                        let learned: Vec<_> = entries_by_owner(false).map(|entry| entry.mac).collect();
                        model.known.retain(|n, (_, origin)| {
                            !matches!(origin, Origin::Learned { .. }) || learned.contains(&mac(*n))
                        });
                        (model.ports, model.limit, model.moves) = ((0..4).map(PortIndex).collect(), limit, (0, 0));
                        told = entries.iter().filter(|e| !e.is_owned && !e.is_static).map(|e| (e.mac.as_u64() & 0xff, e.port)).collect();
                        since = next.follow();
                        fdb = next;
                    }
                }
                for station in 0..12 {
                    let expected = model.known.get(&station).map(|(port, _)| *port);
                    prop_assert_eq!(fdb.lookup(key(station), model.now), expected, "station {}", station);
                }
                prop_assert_eq!(fdb.owned() as usize, model.owned());
                // A follower that only reads changes knows each learned station.
                let (changes, count) = fdb.changes(since).expect("few changes");
                since = count;
                for FdbChange { station, port, kind } in changes {
                    let number = station.mac().as_u64() & 0xff;
                    match kind {
                        FdbChangeKind::Learned | FdbChangeKind::Moved { .. } => {
                            told.insert(number, PortIndex(port));
                        }
                        FdbChangeKind::Forgotten => {
                            prop_assert_eq!(told.remove(&number), Some(PortIndex(port)));
                        }
                        FdbChangeKind::Claimed => {}
                    }
                }
                let learned = model.known.iter().filter(|(_, (_, origin))| matches!(origin, Origin::Learned { .. }));
                prop_assert_eq!(&told, &learned.map(|(n, (port, _))| (*n, *port)).collect::<HashMap<_, _>>());
            }
        }
    }
}

#[test]
fn a_station_of_an_owner_is_claimed_and_does_not_move() {
    let fdb = Fdb::with_space(16, 300, &[A, B], &[], FdbSpace { owned: 1, ports: 0 });
    let key = Station::new(VLAN, mac(1));
    assert_eq!(fdb.learn(key, B, 0), LearnOutcome::Learned);
    let since = fdb.follow();
    assert_eq!(fdb.set_owned(key, A), OwnOutcome::Owned);
    assert_eq!(fdb.learned(), 0, "its place is free");
    for now in [5, 5, 6] {
        assert_eq!(fdb.learn(key, B, now), LearnOutcome::Fixed);
        assert_eq!(fdb.learn(key, A, now), LearnOutcome::Known);
    }
    assert_eq!(fdb.lookup(key, 100_000), Some(A));
    let (changes, _) = fdb.changes(since).unwrap();
    let kinds: Vec<_> = changes.iter().map(|change| (change.port, change.kind)).collect();
    let claimed = (1, FdbChangeKind::Claimed);
    assert_eq!(kinds, [(1, FdbChangeKind::Forgotten), claimed, claimed], "once a second");
    assert_eq!(fdb.set_owned(Station::new(VLAN, mac(2)), A), OwnOutcome::Full);
    assert!(fdb.remove_owned(key) && !fdb.remove_owned(key));
    assert_eq!(fdb.learn(key, B, 7), LearnOutcome::Learned);
    assert!(!fdb.remove_owned(key), "a learned one is nobody's");
}

/// 100 000 stations of an owner take at most 64 bytes each in the table.
#[test]
fn a_large_table_of_an_owner_is_small() {
    let count = 100_000;
    let fdb = Fdb::with_space(64, 300, &[A, B], &[], FdbSpace { owned: count, ports: 0 });
    for n in 0..count as u64 {
        assert_eq!(fdb.set_owned(Station::new(VLAN, mac(n)), A), OwnOutcome::Owned);
    }
    assert!(fdb.stations.len() * 16 <= count * 64, "{} slots", fdb.stations.len());
    assert_eq!(fdb.lookup(Station::new(VLAN, mac(99_999)), 5), Some(A));
}

/// A guest that claims all stations of other hosts hides no change from followers, and no claim of others.
#[test]
fn a_port_that_claims_many_stations_does_not_fill_the_journal() {
    let count = 20_000;
    let fdb = Fdb::with_space(64, 300, &[A, B, C], &[], FdbSpace { owned: count, ports: 0 });
    let key = |n: usize| Station::new(VLAN, mac(n as u64));
    for n in 0..count {
        assert_eq!(fdb.set_owned(key(n), A), OwnOutcome::Owned);
    }
    let since = fdb.follow();
    for n in 0..count {
        assert_eq!(fdb.learn(key(n), B, 7), LearnOutcome::Fixed);
    }
    assert_eq!(fdb.learn(key(5), C, 7), LearnOutcome::Fixed);
    assert_eq!(fdb.learn(key(9), B, 8), LearnOutcome::Fixed);
    let (changes, _) = fdb.changes(since).expect("none is lost");
    let claims = |port: u16| changes.iter().filter(|change| change.port == port).count();
    assert_eq!((claims(B.0), claims(C.0)), (257, 1));
    assert_eq!(fdb.held(), count as u64 - 256);
}
