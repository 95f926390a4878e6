//! An attacker behind a tunnel's remote, which invents stations.

use hostile::scene::measure_gap;
use straightline_switch::api::EventKind;
use straightline_testing::{frame, has_nothing, mac, wait_event};
use straightline_wire::MacAddr;

use crate::network::{ATTACKERS_IP, Network, QUIET, QUIET_IP, vxlan};

/// The attacker sends from many more addresses than the tunnel's table has places, as fast as the
/// switch takes packets. Packets for the quiet station still go to its remote only.
#[test]
fn invented_stations() {
    let mut scene = Network::new();
    let invented = |n: usize| {
        let [.., a, b, c, d] = n.to_be_bytes();
        MacAddr([2, 1, a, b, c, d])
    };
    measure_gap(&scene.victims[1], "invented stations", || {
        for n in 0..hostile::repeats(20_000, 2_000_000) {
            // The bridge drops it, because the station is behind the same port.
            scene.inject(vxlan(ATTACKERS_IP, &frame(QUIET, invented(n), 60, 1)));
        }
        scene.go_on();
    });
    scene.net.settle();
    has_nothing(&mut scene.net.b);
    // Another station behind the quiet remote still finds a place.
    scene.inject(vxlan(QUIET_IP, &frame(QUIET, mac(0xe5), 60, 1)));
    scene.go_on();
    let known = scene.net.switch.source().fdb().remotes;
    let remote = known.into_iter().find(|entry| entry.mac == mac(0xe5).to_string()).map(|entry| entry.remote);
    assert_eq!(remote, Some(QUIET_IP.to_string()));
    let [attacker, quiet] = scene.port("t1").tunnel.expect("the ends").addresses[..] else { panic!("two remotes") };
    assert!(attacker.refused > 0, "{attacker:?}");
    assert_eq!((quiet.learned, quiet.refused), (2, 0));
    wait_event(&scene.net.switch, "a full share is an event", |kind| {
        matches!(kind, EventKind::NotLearned { port, remote: Some(remote), .. }
            if port == "t1" && *remote == ATTACKERS_IP.to_string())
    });
    scene.end();
}
