//! A guest whose packets wait for its rate: whatever it does meanwhile, it passes no more, and costs
//! nobody else a packet.

use std::time::Instant;

use hostile::attacker::Layout;
use hostile::repeats;
use hostile::scene::{Down, Ring, Scene, valid};
use straightline_config::PortRate;
use straightline_graph::{Limit, RateLimits};
use straightline_guest::GuestOptions;
use straightline_testing::{arrived, frame, mac, pause, wait_until};
use straightline_virtio::net_header::NetHeader;

const PER_SECOND: u64 = 50;
const BURST: u64 = 4;

fn scene(layout: Layout) -> Scene {
    let limits = RateLimits { bytes: None, packets: Some(Limit { per_second: PER_SECOND, burst: BURST }) };
    Scene::with_good_guest(layout, 1, &GuestOptions::default(), |config| {
        config.ports[0].rate_in = Some(PortRate::Own(limits));
    })
}

/// Returns the most packets that may have passed since then. The time is the subject: a rate is packets in
/// a time. It is read after the packets, so a pause only raises the bound.
fn most(begin: Instant) -> u64 {
    let millis = u64::try_from(begin.elapsed().as_millis()).expect("a short time");
    BURST + PER_SECOND * millis / 1000 + 2
}

fn passed(scene: &Scene) -> u64 {
    scene.rig.port(0).rate_in.expect("a limit").passed_packets
}

#[test]
fn kicks_while_packets_wait_let_none_pass() {
    for layout in Layout::BOTH {
        let scene = scene(layout);
        let guest = scene.attacker();
        let chain = [valid(&guest, Ring::Transmit)];
        scene.measure_gap(&format!("kicks while packets wait, {layout:?}"), |_| {
            // The time is the subject: a rate is packets in a time.
            let begin = Instant::now();
            guest.publish_all(Ring::Transmit, &[&chain[..]; 16]);
            for _ in 0..repeats(2000, 200_000) {
                guest.kick(Ring::Transmit);
                let now = passed(&scene);
                let most = most(begin);
                assert!(now <= most, "{now} of {most}");
            }
        });
        guest.wait_used(Ring::Transmit);
        let drops = scene.rig.port(0).drops;
        assert!(!drops.contains_key("rate"), "they wait, and are not dropped: {drops:?}");
        scene.victims.go_on();
        scene.end();
    }
}

#[test]
fn an_index_that_changes_while_packets_wait_is_found() {
    let mut scene = scene(Layout::Split);
    let guest = scene.attacker();
    let before = scene.dropped();
    let chain = [valid(&guest, Ring::Transmit)];
    guest.publish_all(Ring::Transmit, &[&chain[..]; 16]);
    wait_until("the burst has passed", || passed(&scene) >= BURST);
    // More chains than the ring has.
    guest.publish_index(Ring::Transmit, 5000);
    scene.expect_outcome("the index jumps", &Down("transmit ring"), before);
    drop(guest);
    scene.settle();
    scene.recovers("the index jumps");
    scene.end();
}

#[test]
fn rings_that_stop_and_start_while_packets_wait_let_no_more_pass() {
    for layout in Layout::BOTH {
        let mut scene = scene(layout);
        // The time is the subject: a rate is packets in a time.
        let begin = Instant::now();
        for _ in 0..repeats(10, 200) {
            let mut guest = scene.compliant_guest();
            (0..64).for_each(|n| _ = guest.send(&NetHeader::default(), &frame(mac(2), mac(1), 60, n)));
            guest.flush();
            for count in [0, 1, 0, 1] {
                guest.enable(count).expect("the rings change");
                pause();
            }
            let bases = guest.stop().expect("the rings stop");
            guest.resume(&bases).expect("the rings start");
            // It leaves in the middle.
            drop(guest);
            arrived(&mut scene.good);
        }
        // What a disabled ring discards takes no token.
        let now = passed(&scene);
        let most = most(begin);
        assert!(now <= most, "{now} of {most}");
        scene.settle();
        scene.recovers("rings that stop and start");
        scene.end();
    }
}
