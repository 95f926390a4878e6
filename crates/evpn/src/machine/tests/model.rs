//! The machine against a slow model: a list of all valid routes, searched anew for each answer.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Add(Route),
    Withdraw(RouteKey),
    /// GoBGP lists its table again, and has only routes of even hosts.
    List,
}

fn event() -> impl Strategy<Value = Event> {
    let route = (2..6u8, 1..4u8, proptest::option::of(1..4u8), 0..3u32, any::<bool>()).prop_map(
        |(host, number, address, sequence, sticky)| {
            station(host, mac(number), address.map(ip), Mobility { sticky: sticky && number == 3, sequence })
        },
    );
    let route = prop_oneof![4 => route, 1 => (2..6u8).prop_map(flood)];
    prop_oneof![
        6 => route.clone().prop_map(Event::Add),
        3 => route.prop_map(|route| Event::Withdraw(route.key)),
        1 => Just(Event::List),
    ]
}

/// Returns the remote and the number of a station, by searching all routes.
fn place(routes: &[Route], of: MacAddr) -> Option<(IpAddr, u32)> {
    let is_of = |route: &&Route| matches!(route.key, RouteKey::Station { mac, .. } if mac == of);
    let mut best: Option<&Route> = None;
    for route in routes.iter().filter(is_of) {
        let better = best.is_none_or(|best| {
            let numbers = (route.mobility.sticky, route.mobility.sequence);
            let best_numbers = (best.mobility.sticky, best.mobility.sequence);
            numbers > best_numbers || (numbers == best_numbers && route.next_hop < best.next_hop)
        });
        if better {
            best = Some(route);
        }
    }
    let best = best?;
    let is_flood = |route: &Route| matches!(route.key, RouteKey::Flood { .. }) && route.next_hop == best.next_hop;
    routes.iter().any(is_flood).then_some((best.next_hop, best.mobility.sequence))
}

proptest! {
    #[test]
    fn received_routes(events in proptest::collection::vec(event(), 1..60)) {
        let mut machine = machine(1, Limits::default());
        let mut routes: Vec<Route> = Vec::new();
        for (number, event) in events.into_iter().enumerate() {
            let now = ms(number as u64);
            match event {
                Event::Add(route) => {
                    routes.retain(|old| old.key != route.key);
                    routes.push(route.clone());
                    tell(&mut machine, now, route);
                }
                Event::Withdraw(key) => {
                    routes.retain(|old| old.key != key);
                    machine.told(now, Told::Withdrawn(key));
                }
                Event::List => {
                    routes.retain(|route| host(2) == route.next_hop || host(4) == route.next_hop);
                    machine.begin_routes();
                    for route in &routes {
                        tell(&mut machine, now, route.clone());
                    }
                    machine.end_routes(now);
                    machine.sweep_routes(now);
                }
            }
            let remotes = routes.iter().filter(|route| matches!(route.key, RouteKey::Flood { .. }));
            prop_assert_eq!(machine.remotes("vx0"), remotes.map(|route| route.next_hop).collect());
            let mut holders = std::collections::BTreeMap::new();
            for number in 1..4 {
                let placed = machine.placed(0, mac(number));
                prop_assert_eq!(placed.map(|placed| (placed.remote, placed.sequence)), place(&routes, mac(number)));
                // An address belongs to one station at most, and that host says so.
                for ip in placed.into_iter().flat_map(|placed| &placed.ips) {
                    prop_assert_eq!(holders.insert(*ip, number), None);
                    let says = |route: &Route| match route.key {
                        RouteKey::Station { mac: of, ip: has, .. } => of == mac(number) && has == Some(*ip),
                        RouteKey::Flood { .. } => false,
                    };
                    prop_assert!(routes.iter().any(says));
                }
            }
            prop_assert_eq!(machine.received(), routes.len());
        }
    }
}
