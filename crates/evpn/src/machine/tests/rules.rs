//! Each rule by itself, with its section.

use super::super::{Change, Notice, Rate, Refusal};
use super::*;

fn limits() -> Limits {
    Limits::default()
}

#[test]
fn a_station_is_announced_after_its_hold_time() {
    let mut machine = machine(1, limits());
    let floods: Vec<RouteKey> = machine.paths().collect();
    assert_eq!(floods, [flood(1).key]);
    machine.take_changes();
    learn(&mut machine, ms(100), mac(7));
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert_eq!(machine.next_due(), Some(ms(120)));
    machine.tick(ms(119));
    assert!(machine.take_changes().is_empty());
    machine.tick(ms(120));
    let route = station(1, mac(7), None, moved(0));
    assert_eq!(machine.take_changes(), [Change::Path(route.key)].into());
    assert_eq!(machine.path(&route.key), Some(route));
    // A station that has gone before is not announced.
    learn(&mut machine, ms(200), mac(8));
    machine.station_gone(ms(210), "lan", 1, mac(8), "vm1");
    machine.station_gone(ms(210), "lan", 1, mac(7), "vm1");
    machine.tick(ms(300));
    assert_eq!(machine.paths().count(), 1);
    assert_eq!(machine.take_changes().len(), 1);
}

#[test]
fn addresses_go_with_their_station() {
    let mut machine = machine(1, limits());
    machine.bound(ms(0), "lan", 1, mac(7), ip(7));
    learn(&mut machine, ms(0), mac(7));
    machine.tick(ms(20));
    let route = station(1, mac(7), Some(ip(7)), moved(0));
    assert_eq!(machine.path(&route.key), Some(route.clone()));
    // Another station with the same address is announced without it, until it is free.
    machine.bound(ms(30), "lan", 1, mac(8), ip(7));
    learn(&mut machine, ms(30), mac(8));
    machine.tick(ms(60));
    let other = station(1, mac(8), Some(ip(7)), moved(0));
    assert_eq!(machine.path(&other.key), None);
    assert!(announced(&machine, 1, mac(8)).is_some());
    machine.take_changes();
    machine.unbound(ms(70), "lan", 1, mac(7), ip(7));
    assert_eq!(machine.take_changes(), [Change::Path(route.key), Change::Path(other.key)].into());
    assert_eq!(machine.path(&other.key), Some(other));
}

/// RFC 7432 section 15: a station that moves gets a higher number; the other host withdraws.
#[test]
fn a_station_moves_here_and_away() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), Some(ip(7)), moved(4)));
    let placed = machine.placed(0, mac(7)).expect("it is elsewhere");
    assert_eq!((placed.remote, placed.sequence, placed.ips.clone()), (host(2), 4, [ip(7)].into()));
    machine.take_changes();
    // The switch sees its frames here.
    machine.station_seen(ms(100), "lan", 1, mac(7), "vm1", Seen::Claimed);
    assert!(machine.placed(0, mac(7)).is_some());
    machine.tick(ms(120));
    assert_eq!(machine.placed(0, mac(7)), None);
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(5)));
    assert_eq!(machine.take_changes().len(), 2);
    learn(&mut machine, ms(130), mac(7));
    machine.told(ms(140), Told::Withdrawn(station(2, mac(7), Some(ip(7)), moved(4)).key));
    // It moves back.
    tell(&mut machine, ms(500), station(2, mac(7), None, moved(6)));
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.sequence), Some(6));
}

/// A station that only claims, and is never learned, is not announced for long.
#[test]
fn a_claim_is_confirmed() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), None, moved(0)));
    machine.station_seen(ms(0), "lan", 1, mac(7), "vm1", Seen::Claimed);
    machine.tick(ms(20));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(1)));
    machine.tick(ms(31_000));
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.remote), Some(host(2)));
}

/// Frames of the tunnel move no station: only routes do. One that is not heard any more ends.
#[test]
fn a_frame_of_the_tunnel_moves_no_station() {
    let mut machine = machine(1, limits());
    learn(&mut machine, ms(0), mac(7));
    learn(&mut machine, ms(0), mac(8));
    machine.tick(ms(20));
    for number in [7, 8] {
        machine.station_left(ms(100), "lan", 1, mac(number));
        // The switch has it behind the tunnel, and forgets it there.
        machine.station_gone(ms(100), "lan", 1, mac(number), "vx0");
        assert_eq!(announced(&machine, 1, mac(number)), Some(moved(0)));
    }
    learn(&mut machine, ms(200), mac(7));
    machine.tick(ms(31_000));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(0)));
    assert_eq!(announced(&machine, 1, mac(8)), None);
    // One that is not announced yet is left to the other host.
    learn(&mut machine, ms(40_000), mac(9));
    machine.station_left(ms(40_010), "lan", 1, mac(9));
    machine.tick(ms(41_000));
    assert_eq!(announced(&machine, 1, mac(9)), None);
}

/// The switch may have no place for a station. It then learns it, as any other.
#[test]
fn a_station_whose_place_is_refused_may_come_here() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), None, moved(0)));
    learn(&mut machine, ms(1), mac(7));
    machine.tick(ms(50));
    assert_eq!(announced(&machine, 1, mac(7)), None);
    machine.place_refused("lan", 1, mac(7));
    learn(&mut machine, ms(60), mac(7));
    machine.tick(ms(100));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(1)));
}

/// A neighbour that uses our distinguisher and our address makes no own path.
#[test]
fn own_paths_are_not_forged() {
    let mut machine = Machine::new(limits(), vec![domain(1)]);
    machine.begin_routes();
    tell(&mut machine, ms(0), station(1, mac(7), None, moved(9)));
    machine.end_routes(ms(0));
    assert_eq!(machine.counters().get(Refusal::OwnNextHop), 1);
    machine.begin_stations();
    learn(&mut machine, ms(0), mac(7));
    machine.end_stations(ms(0));
    machine.tick(ms(50));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(0)));
}

/// RFC 7432 section 15: of equal numbers, the lower address wins.
#[test]
fn equal_numbers_are_decided_by_the_address() {
    for (other, wins) in [(1, true), (3, false)] {
        let mut machine = machine(2, limits());
        learn(&mut machine, ms(0), mac(7));
        machine.tick(ms(20));
        tell(&mut machine, ms(30), flood(other));
        tell(&mut machine, ms(30), station(other, mac(7), None, moved(0)));
        assert_eq!(announced(&machine, 2, mac(7)).is_none(), wins);
        assert_eq!(machine.placed(0, mac(7)).is_some(), wins);
    }
}

/// A station that went on before it was announced is not taken back.
#[test]
fn a_route_in_the_hold_time_is_newer() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    learn(&mut machine, ms(0), mac(7));
    tell(&mut machine, ms(10), station(2, mac(7), None, moved(0)));
    machine.tick(ms(1000));
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert!(machine.placed(0, mac(7)).is_some());
}

#[test]
fn static_stations_do_not_move() {
    let mut machine = machine(1, limits());
    machine.station_seen(ms(0), "lan", 1, mac(7), "vm1", Seen::Static);
    let sticky = Mobility { sticky: true, sequence: 0 };
    assert_eq!(announced(&machine, 1, mac(7)), Some(sticky));
    tell(&mut machine, ms(1), flood(2));
    tell(&mut machine, ms(1), station(2, mac(7), None, Mobility { sticky: true, sequence: 99 }));
    assert_eq!(announced(&machine, 1, mac(7)), Some(sticky));
    assert_eq!(machine.placed(0, mac(7)), None);
    assert_eq!(machine.counters().get(Refusal::StaticHere), 1);
    // One that is static elsewhere does not come here.
    tell(&mut machine, ms(2), station(2, mac(8), None, sticky));
    machine.station_seen(ms(2), "lan", 1, mac(8), "vm1", Seen::Claimed);
    machine.tick(ms(50));
    assert_eq!(announced(&machine, 1, mac(8)), None);
    assert_eq!(machine.counters().get(Refusal::StickyElsewhere), 1);
    // Nor one whose number is the last.
    tell(&mut machine, ms(60), station(2, mac(9), None, moved(u32::MAX)));
    machine.station_seen(ms(60), "lan", 1, mac(9), "vm1", Seen::Claimed);
    machine.tick(ms(90));
    assert_eq!(machine.placed(0, mac(9)).map(|placed| placed.remote), Some(host(2)));
}

/// RFC 7432 section 15.1: after N moves within M nothing is sent, until a time has passed.
#[test]
fn duplicates_are_found() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    let mut now = ms(0);
    for turn in 0..5 {
        tell(&mut machine, now, station(2, mac(7), None, moved(2 * turn)));
        assert!(machine.take_notices().is_empty());
        machine.station_seen(now, "lan", 1, mac(7), "vm1", Seen::Claimed);
        now += ms(1000);
        machine.tick(now);
    }
    assert_eq!(machine.take_notices(), [Notice::Duplicate { network: "net".to_owned(), mac: mac(7) }]);
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert_eq!(machine.sizes(0).duplicate, 1);
    // It stays where it was. Routes for it change nothing now.
    tell(&mut machine, now, station(2, mac(7), None, moved(50)));
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.sequence), Some(8));
    machine.tick(now + limits().duplicate_retry);
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.sequence), Some(50));
    // Slow moves are none.
    let mut now = now + limits().duplicate_retry;
    for turn in 30..60 {
        tell(&mut machine, now, station(2, mac(7), None, moved(2 * turn)));
        machine.station_seen(now, "lan", 1, mac(7), "vm1", Seen::Claimed);
        now += ms(60_000);
        machine.tick(now);
    }
    assert_eq!(machine.counters().get(Refusal::Duplicate), 1);
}

/// Makes host 1 find that `mac(7)` at port `vm1` is a duplicate of one at host 2. Returns the time.
fn until_duplicate(machine: &mut Machine) -> Duration {
    tell(machine, ms(0), flood(2));
    let mut now = ms(0);
    for turn in 0..5 {
        tell(machine, now, station(2, mac(7), None, moved(2 * turn)));
        machine.station_seen(now, "lan", 1, mac(7), "vm1", Seen::Claimed);
        now += ms(1000);
        machine.tick(now);
        learn(machine, now, mac(7));
    }
    assert_eq!(machine.sizes(0).duplicate, 1);
    now
}

/// An attacker at another host does not take away a station whose port is checked: it stays, and its route
/// says that it may not move.
#[test]
fn a_duplicate_at_a_checked_port_stays() {
    let mut machine = machine(1, limits());
    machine.port_is_checked("vm1", true);
    let mut now = until_duplicate(&mut machine);
    let guarded = Mobility { sticky: true, sequence: 9 };
    assert_eq!(announced(&machine, 1, mac(7)), Some(guarded));
    // For as long as the other host goes on.
    for turn in 10..20 {
        now += limits().duplicate_retry / 2;
        tell(&mut machine, now, station(2, mac(7), None, moved(turn)));
        machine.tick(now);
        assert_eq!(announced(&machine, 1, mac(7)), Some(guarded));
        assert_eq!(machine.placed(0, mac(7)), None);
    }
    // A host that hears of it gives its own claim up.
    let mut other = super::machine(2, limits());
    tell(&mut other, ms(0), station(1, mac(7), None, guarded));
    other.station_seen(ms(0), "lan", 1, mac(7), "vm9", Seen::Claimed);
    other.tick(ms(50));
    assert_eq!(announced(&other, 2, mac(7)), None);
    // Then it is a usual station again.
    machine.told(now, Told::Withdrawn(station(2, mac(7), None, moved(0)).key));
    assert_eq!(announced(&machine, 1, mac(7)), Some(guarded));
    machine.tick(now + 2 * limits().duplicate_retry);
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(9)));
}

/// A VM that leaves its checked port while it is guarded goes on to its new host at once.
#[test]
fn a_guarded_station_that_leaves_is_free() {
    let mut machine = machine(1, limits());
    machine.port_is_checked("vm1", true);
    let now = until_duplicate(&mut machine);
    machine.station_gone(now, "lan", 1, mac(7), "vm1");
    assert_eq!(announced(&machine, 1, mac(7)), None);
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.remote), Some(host(2)));
    assert_eq!(machine.sizes(0).duplicate, 0);
}

/// A duplicate that was left to another host comes back as soon as that host gives it up.
#[test]
fn a_duplicate_that_nobody_else_has_is_free() {
    let mut machine = machine(1, limits());
    let now = until_duplicate(&mut machine);
    assert_eq!(announced(&machine, 1, mac(7)), None);
    machine.told(now, Told::Withdrawn(station(2, mac(7), None, moved(0)).key));
    learn(&mut machine, now, mac(7));
    machine.tick(now + ms(50));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(9)));
    assert_eq!(machine.sizes(0).duplicate, 0);
}

/// The switch vouches for addresses of stations here, so these go before those that another host announces.
#[test]
fn an_address_here_goes_before_one_elsewhere() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), Some(ip(7)), moved(0)));
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.ips.len()), Some(1));
    machine.bound(ms(10), "lan", 1, mac(8), ip(7));
    learn(&mut machine, ms(10), mac(8));
    machine.tick(ms(30));
    let own = station(1, mac(8), Some(ip(7)), moved(0));
    assert_eq!(machine.path(&own.key), Some(own.clone()));
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.ips.len()), Some(0));
    machine.unbound(ms(40), "lan", 1, mac(8), ip(7));
    assert_eq!(machine.path(&own.key), None);
    assert_eq!(machine.placed(0, mac(7)).map(|placed| placed.ips.len()), Some(1));
}

#[test]
fn moves_are_counted() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), None, moved(0)));
    machine.station_seen(ms(0), "lan", 1, mac(7), "vm1", Seen::Claimed);
    machine.tick(ms(20));
    assert_eq!((machine.sizes(0).moves_here, machine.sizes(0).moves_away), (1, 0));
    tell(&mut machine, ms(30), station(2, mac(7), None, moved(2)));
    assert_eq!((machine.sizes(0).moves_here, machine.sizes(0).moves_away), (1, 1));
}

#[test]
fn a_port_is_limited() {
    let port_routes = Rate { per_second: 10, burst: 3 };
    let mut machine = machine(1, Limits { port_routes, port_stations: 5, ..limits() });
    for number in 1..=8 {
        learn(&mut machine, ms(0), mac(number));
    }
    let count = |machine: &Machine| machine.sizes(0).here;
    machine.tick(ms(20));
    assert_eq!(count(&machine), 3);
    assert!(machine.counters().get(Refusal::PortRate) > 0);
    let mut now = ms(20);
    for _ in 0..100 {
        now = machine.next_due().expect("stations wait").max(now);
        machine.tick(now);
    }
    // Five are announced; three wait for their place.
    assert_eq!(count(&machine), 5);
    assert!(machine.counters().get(Refusal::PortFull) > 0);
    // Another port has its own.
    machine.station_seen(now, "lan", 1, mac(99), "vm2", Seen::Learned);
    machine.tick(now + ms(20));
    assert!(announced(&machine, 1, mac(99)).is_some());
    let gone: Vec<u8> = (1..=8).filter(|number| announced(&machine, 1, mac(*number)).is_some()).collect();
    for number in &gone {
        machine.station_gone(now, "lan", 1, mac(*number), "vm1");
    }
    now += ms(5000);
    machine.tick(now);
    assert_eq!(count(&machine), 4);
}

#[test]
fn moves_to_a_port_are_limited() {
    let port_moves = Rate { per_second: 10, burst: 2 };
    let mut machine = machine(1, Limits { port_moves, ..limits() });
    tell(&mut machine, ms(0), flood(2));
    for number in 1..=4 {
        tell(&mut machine, ms(0), station(2, mac(number), None, moved(0)));
        machine.station_seen(ms(0), "lan", 1, mac(number), "vm1", Seen::Claimed);
    }
    machine.tick(ms(20));
    assert_eq!(machine.sizes(0).here, 2);
    machine.tick(ms(150));
    assert_eq!(machine.sizes(0).here, 3);
}

#[test]
fn bad_routes_are_refused_and_counted() {
    let good = || station(2, mac(7), None, moved(0));
    let with = |change: fn(&mut Route)| {
        let mut route = good();
        change(&mut route);
        route
    };
    let key = |mac, ip| RouteKey::Station { rd: rd(2), tag: 0, mac, ip };
    let bad = [
        (Refusal::OwnNextHop, with(|route| route.next_hop = host(1))),
        (
            Refusal::OwnDistinguisher,
            with(|route| {
                route.key = RouteKey::Station { rd: rd(1), tag: 0, mac: mac(7), ip: None };
            }),
        ),
        (Refusal::NextHop, with(|route| route.next_hop = "224.0.0.5".parse().expect("an address"))),
        (Refusal::NextHop, with(|route| route.next_hop = "255.255.255.255".parse().expect("an address"))),
        (Refusal::NextHop, with(|route| route.next_hop = "127.0.0.1".parse().expect("an address"))),
        (Refusal::NextHop, with(|route| route.next_hop = "2001:db8::1".parse().expect("an address"))),
        (Refusal::NoTarget, with(|route| route.targets = vec![Target::of_vni(ASN, 5)])),
        (Refusal::NoTarget, with(|route| route.targets.clear())),
        (Refusal::OtherVni, with(|route| route.label = MAX_VNI)),
        (Refusal::Encapsulation, with(|route| route.encapsulations = vec![10])),
        (Refusal::Segment, with(|route| route.has_segment = true)),
        (Refusal::BadMac, Route { key: key(MacAddr::BROADCAST, None), ..good() }),
        (Refusal::BadMac, Route { key: key(MacAddr::default(), None), ..good() }),
        (Refusal::BadMac, Route { key: key(MacAddr([1, 0, 0x5e, 0, 0, 1]), None), ..good() }),
        (Refusal::BadAddress, Route { key: key(mac(7), Some("224.0.0.1".parse().expect("an address"))), ..good() }),
        (Refusal::BadAddress, Route { key: key(mac(7), Some("::".parse().expect("an address"))), ..good() }),
        (
            Refusal::UnknownTag,
            with(|route| {
                route.key = RouteKey::Station { rd: rd(2), tag: 9, mac: mac(7), ip: None };
            }),
        ),
        (Refusal::NoReplication, Route { pmsi: None, ..flood(3) }),
        (Refusal::NoReplication, Route { pmsi: Some(Pmsi { kind: 3, label: VNI }), ..flood(3) }),
        (Refusal::OtherVni, Route { pmsi: Some(Pmsi { kind: 6, label: 1 }), ..flood(3) }),
    ];
    for (refusal, route) in bad {
        let mut machine = machine(1, limits());
        tell(&mut machine, ms(0), flood(2));
        tell(&mut machine, ms(0), good());
        let text = format!("{refusal:?} {route:?}");
        let replaces = route.key == good().key;
        tell(&mut machine, ms(1), route);
        assert_eq!(machine.counters().get(refusal), 1, "{text}");
        assert_eq!(machine.received(), 1 + usize::from(!replaces), "{text}");
        // A bad route takes the place of the good one that it replaces.
        assert_eq!(machine.placed(0, mac(7)).is_some(), !replaces, "{text}");
        assert_eq!(machine.remotes("vx0"), [host(2)].into(), "{text}");
    }
    let mut machine = machine(1, limits());
    machine.told(ms(0), Told::Unused(5));
    machine.told(ms(0), Told::Malformed("no".to_owned()));
    machine.told(ms(0), Told::OtherFamily);
    assert_eq!(machine.counters().get(Refusal::UnusedType), 1);
    assert_eq!(machine.counters().get(Refusal::Malformed), 1);
    for refusal in Refusal::ALL {
        assert!(!refusal.word().is_empty() && refusal.meaning().ends_with('.'));
    }
}

#[test]
fn routes_are_limited_and_come_back() {
    let mut machine = machine(1, Limits { routes: 10, remotes: 2, ..limits() });
    for number in 2..=4 {
        tell(&mut machine, ms(0), flood(number));
    }
    assert_eq!(machine.remotes("vx0").len(), 2);
    assert_eq!(machine.counters().get(Refusal::TooManyRemotes), 1);
    for number in 1..=12 {
        tell(&mut machine, ms(0), station(2, mac(number), None, moved(0)));
    }
    assert_eq!((machine.received(), machine.counters().get(Refusal::TooManyRoutes)), (10, 4));
    // Floods count as well.
    tell(&mut machine, ms(0), flood(5));
    assert_eq!(machine.counters().get(Refusal::TooManyRoutes), 5);
    assert!(!machine.wants_routes());
    machine.told(ms(0), Told::Withdrawn(station(2, mac(1), None, moved(0)).key));
    machine.told(ms(0), Told::Withdrawn(station(2, mac(2), None, moved(0)).key));
    assert!(machine.wants_routes());
    assert!(!machine.wants_routes());
}

/// One host does not take the places of all.
#[test]
fn a_host_has_a_share_of_the_routes() {
    let mut machine = machine(1, Limits { routes: 100, host_routes: 10, ..limits() });
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), flood(3));
    for number in 1..=20 {
        tell(&mut machine, ms(0), station(2, mac(number), None, moved(0)));
    }
    tell(&mut machine, ms(0), station(3, mac(99), None, moved(0)));
    let hosts = |machine: &Machine| {
        machine.hosts().map(|(host, routes)| (host, routes.kept, routes.refused)).collect::<Vec<_>>()
    };
    assert_eq!(hosts(&machine), [(host(2), 10, 11), (host(3), 2, 0)]);
    assert_eq!((machine.received(), machine.counters().get(Refusal::HostFull)), (12, 11));
    // What is known may change. A route that goes over to the full host goes.
    tell(&mut machine, ms(1), station(2, mac(1), None, moved(5)));
    assert_eq!(machine.placed(0, mac(1)).map(|placed| placed.sequence), Some(5));
    let mut over = station(3, mac(99), None, moved(0));
    over.next_hop = host(2);
    tell(&mut machine, ms(1), over);
    assert_eq!(machine.placed(0, mac(99)), None);
    assert_eq!(hosts(&machine), [(host(2), 10, 12), (host(3), 1, 0)]);
    // With space again, the table is listed again.
    assert!(!machine.wants_routes());
    machine.told(ms(2), Told::Withdrawn(station(2, mac(1), None, moved(0)).key));
    assert!(machine.wants_routes());
    assert!(!machine.wants_routes());
    machine.told(ms(3), Told::Withdrawn(flood(3).key));
    assert_eq!(hosts(&machine), [(host(2), 9, 12)]);
}

#[test]
fn routes_of_a_gobgp_that_is_away_are_stale() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    tell(&mut machine, ms(0), station(2, mac(7), None, moved(0)));
    machine.sweep_routes(ms(0));
    assert_eq!(machine.stale(), 0);
    machine.gobgp_lost(ms(1));
    assert_eq!(machine.stale(), 2);
    machine.begin_routes();
    tell(&mut machine, ms(2), flood(2));
    machine.end_routes(ms(2));
    assert_eq!(machine.stale(), 1);
    machine.sweep_routes(ms(3));
    assert_eq!((machine.stale(), machine.received()), (0, 1));
}

/// Stations behind hosts that want no floods are not placed: the switch has no remote for them.
#[test]
fn a_station_waits_for_its_host() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), station(2, mac(7), None, moved(0)));
    assert_eq!(machine.placed(0, mac(7)), None);
    tell(&mut machine, ms(1), flood(2));
    assert!(machine.placed(0, mac(7)).is_some());
    machine.told(ms(2), Told::Withdrawn(flood(2).key));
    assert_eq!(machine.placed(0, mac(7)), None);
    assert!(machine.remotes("vx0").is_empty());
}

#[test]
fn everything_is_compared_after_a_reconnect() {
    let mut machine = machine(1, limits());
    tell(&mut machine, ms(0), flood(2));
    for number in [7, 8] {
        tell(&mut machine, ms(0), station(2, mac(number), None, moved(0)));
    }
    learn(&mut machine, ms(0), mac(1));
    machine.tick(ms(20));
    machine.gobgp_lost(ms(100));
    machine.take_changes();
    // A new GoBGP: it has one of the routes, one of the own paths, and an old one.
    machine.begin_routes();
    tell(&mut machine, ms(200), flood(2));
    tell(&mut machine, ms(200), station(2, mac(8), None, moved(0)));
    machine.told(ms(200), Told::Own(flood(1)));
    machine.end_routes(ms(200));
    // Its neighbours have not told it all yet.
    let own = Change::Path(station(1, mac(1), None, moved(0)).key);
    assert_eq!(machine.take_changes(), [own].into());
    machine.sweep_routes(ms(300));
    assert_eq!(machine.take_changes(), [Change::Station { domain: 0, mac: mac(7) }].into());
    // GoBGP stays away.
    machine.gobgp_lost(ms(300));
    machine.tick(ms(300) + limits().stale);
    assert_eq!((machine.received(), machine.remotes("vx0").len()), (0, 0));
    assert_eq!(machine.sizes(0).here, 1);
    // So does the switch.
    machine.switch_lost(ms(400_000));
    machine.tick(ms(400_000) + limits().stale);
    assert_eq!(machine.paths().count(), 0);
    // It comes back with one station.
    machine.begin_stations();
    learn(&mut machine, ms(600_000), mac(2));
    machine.end_stations(ms(600_000));
    machine.tick(ms(600_020));
    assert_eq!(machine.paths().count(), 2);
}

/// A new process takes over the numbers of the one before, and withdraws what is not here any more.
#[test]
fn paths_are_inherited() {
    let mut machine = Machine::new(limits(), vec![domain(1)]);
    machine.begin_routes();
    for number in [7, 8] {
        machine.told(ms(0), Told::Own(station(1, mac(number), None, moved(3))));
    }
    machine.end_routes(ms(0));
    machine.begin_stations();
    learn(&mut machine, ms(10), mac(7));
    machine.end_stations(ms(10));
    machine.tick(ms(30));
    assert_eq!(announced(&machine, 1, mac(7)), Some(moved(3)));
    machine.take_changes();
    machine.tick(ms(6000));
    let gone = Change::Path(station(1, mac(8), None, moved(3)).key);
    assert!(machine.take_changes().contains(&gone));
    assert_eq!(announced(&machine, 1, mac(8)), None);
}

/// A new process knows its stations before GoBGP has told the numbers of the process before. Smaller
/// numbers would lose against routes that other hosts still have.
#[test]
fn stations_wait_for_their_numbers() {
    let mut machine = Machine::new(limits(), vec![domain(1)]);
    machine.begin_stations();
    for number in [7, 8] {
        learn(&mut machine, ms(0), mac(number));
    }
    machine.station_seen(ms(0), "lan", 1, mac(9), "vm1", Seen::Static);
    machine.end_stations(ms(0));
    machine.tick(ms(20));
    assert_eq!(machine.sizes(0).here, 0);
    // GoBGP answers late, and once it was lost in between.
    machine.begin_routes();
    machine.told(limits().stale, Told::Own(station(1, mac(7), None, moved(3))));
    machine.gobgp_lost(limits().stale);
    machine.tick(limits().stale);
    machine.begin_routes();
    machine.told(limits().stale, Told::Own(station(1, mac(7), None, moved(3))));
    machine.told(limits().stale, Told::Own(station(1, mac(6), None, moved(2))));
    machine.end_routes(limits().stale);
    for (number, sequence) in [(7, 3), (8, 0)] {
        assert_eq!(announced(&machine, 1, mac(number)), Some(moved(sequence)));
    }
    assert_eq!(announced(&machine, 1, mac(9)), Some(Mobility { sticky: true, sequence: 0 }));
    machine.take_changes();
    // What the process before announced, and no station has, ends soon.
    machine.tick(limits().stale + ms(6000));
    assert!(machine.take_changes().contains(&Change::Path(station(1, mac(6), None, moved(2)).key)));
}

#[test]
fn a_lost_or_refused_path_is_sent_again() {
    let mut machine = machine(1, limits());
    learn(&mut machine, ms(0), mac(7));
    machine.tick(ms(20));
    machine.take_changes();
    let key = station(1, mac(7), None, moved(0)).key;
    machine.told(ms(30), Told::Withdrawn(key));
    assert_eq!(machine.take_changes(), [Change::Path(key)].into());
    assert_eq!(machine.counters().get(Refusal::LostPath), 1);
    for (refused, sequence) in [(0, 1), (1, 3), (3, 7)] {
        assert_eq!(machine.refused(&key, refused), [key]);
        // Another path of the station was sent with the same number.
        assert_eq!(machine.refused(&key, refused), [key]);
        assert_eq!(announced(&machine, 1, mac(7)), Some(moved(sequence)));
    }
}
