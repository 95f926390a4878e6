use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use straightline_graph::NodeControl;
use straightline_packet::{PortIndex, Rcu};
use straightline_wire::{MacAddr, VlanId};

use super::*;
use crate::headers::reference::{tunnel, underlay};
use crate::{TunnelConfig, TunnelKind, Underlay};

const STATIONS: usize = 6;

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn station(n: u8) -> Station {
    Station::new(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, n]))
}

fn open(remotes: &[u8], rcu: &Rcu) -> Arc<Tunnel> {
    let remotes = remotes.iter().map(|&last| ip(last)).collect();
    let config = TunnelConfig { remotes, ..tunnel(TunnelKind::Vxlan { vni: 7 }, true) };
    let space = RemoteSpace { stations: STATIONS };
    Tunnel::open(config, Underlay::new(underlay(None), PortIndex(0)), PortIndex(1), Arc::default(), space, rcu)
}

#[derive(Clone, Debug)]
enum Act {
    Change {
        add: Vec<u8>,
        remove: Vec<u8>,
    },
    Own {
        station: u8,
        remote: u8,
    },
    Disown {
        station: u8,
    },
    Learn {
        station: u8,
        remote: u8,
    },
    /// A reload with another list of remotes in the file.
    Reload {
        remotes: Vec<u8>,
    },
}

fn acts() -> impl Strategy<Value = Act> {
    let list = || prop::collection::btree_set(2..8_u8, 0..4).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    prop_oneof![
        3 => (list(), list()).prop_map(|(add, remove)| Act::Change { add, remove }),
        3 => (0..10_u8, 2..8_u8).prop_map(|(station, remote)| Act::Own { station, remote }),
        1 => (0..10_u8).prop_map(|station| Act::Disown { station }),
        2 => (0..10_u8, 2..8_u8).prop_map(|(station, remote)| Act::Learn { station, remote }),
        1 => list().prop_map(|remotes| Act::Reload { remotes }),
    ]
}

proptest! {
    /// The reference is a set of remotes and a map of stations. Indices that are used again name no other
    /// remote's stations.
    #[test]
    fn remotes_and_stations_come_and_go(acts in prop::collection::vec(acts(), 1..60)) {
        let rcu = Rcu::new();
        let mut tunnel = open(&[2], &rcu);
        let mut file: Vec<u8> = vec![2];
        let mut remotes: BTreeSet<u8> = [2].into();
        // Each station's remote, and whether an owner has it.
        let mut stations: BTreeMap<u8, (u8, bool)> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Change { add, remove } => {
                    let addresses = |list: &[u8]| list.iter().map(|&last| ip(last)).collect::<Vec<_>>();
                    prop_assert_eq!(tunnel.change_remotes(&addresses(&add), &addresses(&remove)), Ok(()));
                    // What is removed and added in one change is a new remote.
                    remotes.retain(|remote| !remove.contains(remote) || file.contains(remote));
                    stations.retain(|_, (remote, _)| remotes.contains(remote));
                    remotes.extend(add);
                }
                Act::Own { station: n, remote } => {
                    let done = tunnel.set_owned(station(n), ip(remote));
                    let owned = stations.values().filter(|(_, is_owned)| *is_owned).count();
                    let is_owned = stations.get(&n).is_some_and(|(_, is_owned)| *is_owned);
                    let expected = if !remotes.contains(&remote) {
                        None
                    } else if !is_owned && owned >= STATIONS {
                        Some(OwnOutcome::Full)
                    } else {
                        stations.insert(n, (remote, true));
                        Some(OwnOutcome::Owned)
                    };
                    prop_assert_eq!(done, expected);
                }
                Act::Disown { station: n } => {
                    let is_owned = stations.get(&n).is_some_and(|(_, is_owned)| *is_owned);
                    prop_assert_eq!(tunnel.remove_owned(station(n)), is_owned);
                    if is_owned {
                        stations.remove(&n);
                    }
                }
                Act::Learn { station: n, remote } => {
                    let table = tunnel.remotes.as_ref().unwrap();
                    if let Some(index) = tunnel.paths.now().index(ip(remote)) {
                        table.learn(VlanId::DEFAULT, station(n).mac(), index, 5);
                        let is_owned = stations.get(&n).is_some_and(|(_, is_owned)| *is_owned);
                        if !is_owned {
                            stations.insert(n, (remote, false));
                        }
                    }
                }
                Act::Reload { remotes: list } => {
                    let next = open(&list, &rcu);
                    next.commit(&*tunnel);
                    tunnel = next;
                    remotes.retain(|remote| !file.contains(remote));
                    remotes.extend(&list);
                    file = list;
                    stations.retain(|_, (remote, is_owned)| *is_owned && remotes.contains(remote));
                }
            }
            let expected: BTreeSet<IpAddr> = remotes.iter().map(|&last| ip(last)).collect();
            prop_assert_eq!(tunnel.remotes().into_iter().collect::<BTreeSet<_>>(), expected);
            let known: BTreeMap<_, _> =
                tunnel.stations(5).into_iter().map(|known| (known.mac, (known.remote, known.is_owned))).collect();
            let expected: BTreeMap<_, _> =
                stations.iter().map(|(&n, &(remote, is_owned))| (station(n).mac(), (ip(remote), is_owned))).collect();
            prop_assert_eq!(known, expected);
        }
    }
}

#[test]
fn wrong_remotes_are_refused_and_change_nothing() {
    let rcu = Rcu::new();
    let tunnel = open(&[], &rcu);
    let refuse = |text: &str| tunnel.change_remotes(&[ip(9), text.parse().unwrap()], &[]);
    for (text, error) in [
        ("10.0.0.1", RemoteError::Own),
        ("fd00::9", RemoteError::OtherVersion(ip(1))),
        ("0.0.0.0", RemoteError::NoStation),
        ("239.1.1.1", RemoteError::NoStation),
        ("255.255.255.255", RemoteError::NoStation),
        ("127.0.0.1", RemoteError::NoStation),
        ("192.0.2.1", RemoteError::NoRoute),
    ] {
        assert_eq!(refuse(text), Err((1, error)), "{text}");
    }
    assert_eq!(tunnel.remotes(), [] as [IpAddr; 0]);
    let one = TunnelConfig { remotes: vec![ip(2)], ..tunnel_config() };
    let one = Tunnel::new(one, Underlay::new(underlay(None), PortIndex(0)), PortIndex(1), Arc::default());
    assert_eq!(one.change_remotes(&[ip(9)], &[]), Err((0, RemoteError::OneRemote)));
    assert!(one.has_key_of(&tunnel) && tunnel.has_key_of(&one));
}

fn tunnel_config() -> TunnelConfig {
    tunnel(TunnelKind::Vxlan { vni: 7 }, true)
}

#[test]
fn the_number_of_remotes_is_limited() {
    let rcu = Rcu::new();
    let mut config = underlay(None);
    config.addresses[0].prefix = 8;
    let space = RemoteSpace { stations: 1 };
    let settings = TunnelConfig { remotes: Vec::new(), ..tunnel_config() };
    let tunnel = Tunnel::open(settings, Underlay::new(config, PortIndex(0)), PortIndex(1), Arc::default(), space, &rcu);
    let octet = |n: usize| u8::try_from(n).unwrap();
    let many: Vec<IpAddr> = (0..=MOST_REMOTES).map(|n| IpAddr::from([10, 1, octet(n / 200), octet(n % 200)])).collect();
    assert_eq!(tunnel.change_remotes(&many, &[]), Err((MOST_REMOTES, RemoteError::TooMany)));
    assert!(tunnel.remotes().is_empty());
    assert_eq!(tunnel.change_remotes(&many[1..], &[]), Ok(()));
    assert_eq!(tunnel.remotes().len(), MOST_REMOTES);
}
