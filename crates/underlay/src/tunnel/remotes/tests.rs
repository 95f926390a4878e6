use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use straightline_packet::PortIndex;

use super::*;
use crate::headers::reference::{tunnel, underlay};
use crate::{Tunnel, TunnelKind, Underlay};

/// The VLAN of tunnels that are one network.
const VLAN: VlanId = VlanId::DEFAULT;
const A: RemoteIndex = RemoteIndex(0);
const B: RemoteIndex = RemoteIndex(1);

fn mac(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

fn address(remote: u16) -> IpAddr {
    let [high, low] = remote.to_be_bytes();
    [192, 0, high, low].into()
}

/// Returns the paths to so many remotes.
fn paths(remotes: u16) -> Paths {
    let mut config = underlay(None);
    config.gateways = vec!["10.0.0.2".parse().unwrap()];
    let config = Underlay::new(config, PortIndex(0));
    let remotes = (0..remotes).map(address).collect();
    let settings = TunnelConfig { remotes, ..tunnel(TunnelKind::Vxlan { vni: 1 }, true) };
    Paths::clone(Tunnel::new(settings, config, PortIndex(1), Arc::default()).paths.fixed())
}

/// Returns the table of a tunnel with so many remotes.
fn table(remotes: u16, limit: usize, stations: &[(MacAddr, RemoteIndex)]) -> Remotes {
    let stations = stations.iter().map(|&(mac, RemoteIndex(remote))| (VLAN, mac, address(remote))).collect();
    let remotes = (0..remotes).map(address).collect();
    let config = TunnelConfig { remotes, stations, limit, ..tunnel(TunnelKind::Vxlan { vni: 1 }, true) };
    Remotes::new(&config, None).expect("several remotes")
}

#[test]
fn stations_are_learned_move_and_are_forgotten() {
    let remotes = table(2, 100, &[]);
    assert_eq!(remotes.of(VLAN, mac(1), 0), None);
    remotes.learn(VLAN, mac(1), A, 0);
    assert_eq!((remotes.of(VLAN, mac(1), 299), remotes.of(VLAN, mac(1), 300)), (Some(A), None));
    remotes.learn(VLAN, mac(1), B, 10);
    assert_eq!((remotes.of(VLAN, mac(1), 309), remotes.of(VLAN, mac(1), 310)), (Some(B), None));
    let moved = RemoteMove { vlan: VLAN, mac: mac(1), from: address(0), to: address(1) };
    assert_eq!((remotes.moves(&paths(2), 0), remotes.moves(&paths(2), 1)), ((vec![moved], 1), (vec![], 1)));
    let station =
        RemoteStation { vlan: VLAN, mac: mac(1), remote: address(1), seen: 10, is_static: false, is_owned: false };
    assert_eq!(remotes.stations(&paths(2), 309), [station]);
}

#[test]
fn fixed_stations_stay() {
    let remotes = table(2, 2, &[(mac(9), B), (mac(3), A)]);
    remotes.learn(VLAN, mac(9), A, 0);
    assert_eq!((remotes.of(VLAN, mac(9), u32::MAX), remotes.of(VLAN, mac(3), 5)), (Some(B), Some(A)));
}

#[test]
fn a_station_has_a_place_in_each_network() {
    let other = VlanId::MAX;
    let remotes = table(2, 100, &[(mac(9), B)]);
    remotes.learn(VLAN, mac(1), A, 0);
    assert_eq!((remotes.of(other, mac(1), 0), remotes.of(other, mac(9), 0)), (None, None));
    remotes.learn(other, mac(1), B, 0);
    remotes.learn(other, mac(9), A, 0);
    let look_up = |vlan| [1, 9].map(|n| remotes.of(vlan, mac(n), 0));
    assert_eq!((look_up(VLAN), look_up(other)), ([Some(A), Some(B)], [Some(B), Some(A)]));
    assert_eq!(remotes.moves(&paths(2), 0), (vec![], 0), "it is another station");
    let vlans: Vec<_> = remotes.stations(&paths(2), 0).iter().map(|station| station.vlan).collect();
    assert_eq!(vlans.iter().filter(|vlan| **vlan == other).count(), 2);
}

#[test]
fn addresses_that_no_station_has_are_not_learned() {
    let remotes = table(2, 100, &[]);
    for mac in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr::default()] {
        remotes.learn(VLAN, mac, A, 0);
        assert_eq!(remotes.of(VLAN, mac, 0), None, "{mac}");
    }
}

#[test]
fn a_table_of_100_000_stations() {
    const STATIONS: u32 = 100_000;
    // Half of the places are divided, and the other half is common.
    let remotes = table(64, 2 * STATIONS as usize, &[]);
    let remote = |n: u32| RemoteIndex(u16::try_from(n % 64).unwrap());
    (0..STATIONS).for_each(|n| remotes.learn(VLAN, mac(n), remote(n), n / 1000));
    (0..STATIONS).for_each(|n| assert_eq!(remotes.of(VLAN, mac(n), 100), Some(remote(n))));
    assert_eq!(remotes.shares(&paths(64)).iter().map(|share| (share.used, share.refused)).max(), Some((1563, 0)));
}

/// A step of a generated sequence.
#[derive(Clone, Debug)]
enum Step {
    /// The attacker behind remote 0 sends from new addresses.
    Invents(u32),
    /// The attacker behind remote 0 sends from the addresses that it has invented last.
    Repeats(u32),
    /// A quiet station is heard.
    Heard(u32),
    /// Seconds pass.
    Waits(u32),
}

const REMOTES: u16 = 4;
const LIMIT: usize = 256;
/// Quiet stations behind each other remote: as many places as each remote has of its own.
const QUIET: u32 = 32;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2000_u32).prop_map(Step::Invents),
        (0..400_u32).prop_map(Step::Repeats),
        (0..QUIET * u32::from(REMOTES - 1)).prop_map(Step::Heard),
        (0..200_u32).prop_map(Step::Waits),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The reference implementation is a map of when each quiet station was heard. Whatever an
    /// attacker behind another remote invents, a station that was heard within the ageing time is
    /// known, and no packet for it is flooded.
    #[test]
    fn quiet_stations_are_known(steps in steps()) {
        let remotes = table(REMOTES, LIMIT, &[]);
        let mut now = 0;
        let mut invented = 0;
        let mut heard = BTreeMap::new();
        let remote = |station: u32| RemoteIndex(1 + u16::try_from(station / QUIET).unwrap());
        let name = |station: u32| mac(0xff00_0000 + station);
        for step in steps {
            match step {
                Step::Invents(count) => {
                    (0..count).for_each(|n| remotes.learn(VLAN, mac(invented + n), A, now));
                    invented += count;
                }
                Step::Repeats(count) => {
                    (invented.saturating_sub(count)..invented).for_each(|n| remotes.learn(VLAN, mac(n), A, now));
                }
                Step::Heard(station) => {
                    remotes.learn(VLAN, name(station), remote(station), now);
                    heard.insert(station, now);
                }
                // Batches sweep the whole table in this time.
                Step::Waits(seconds) => (0..seconds).for_each(|_| {
                    now += 1;
                    remotes.sweep(now);
                }),
            }
            for (&station, &seen) in &heard {
                let expected = (now - seen < AGEING).then(|| remote(station));
                prop_assert_eq!(remotes.of(VLAN, name(station), now), expected, "station {} at {}", station, now);
            }
        }
        let shares = remotes.shares(&paths(REMOTES));
        prop_assert!(shares[1..].iter().all(|share| share.refused == 0), "{:?}", shares);
        prop_assert!(shares[0].used <= 32 + 128, "its own places and the common ones: {:?}", shares);
    }
}
