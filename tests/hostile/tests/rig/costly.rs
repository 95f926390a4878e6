//! Packets that cost a worker much: GSO packets for a port of this machine, which the switch segments
//! and sends one by one.

use hostile::scene::measure_gap;
use straightline_config::{Offloads, PatchConfig, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::host::{Host, tap_with};
use straightline_testing::packets::{Kind, segmented};
use straightline_testing::{BROADCAST, Rig, Victims, mac, noise, patch, rig, wait_until};
use straightline_virtio::features as f;

/// Packets of the attack, and segments of each: as many as Linux makes of a packet.
const PACKETS: u64 = 60;
const SEGMENTS: u64 = 128;

/// Starts a switch in a host of its own. Port 0 (the attacker's) is patched with a tap that takes
/// nothing unsegmented, and ports 1 and 2 (the victims') with each other.
fn with_tap(test: &str) -> Option<(Host, Rig)> {
    let host = Host::new(test)?;
    let rig = rig(3, |config| {
        let offloads = Offloads { csum: true, tso: true, uso: false };
        config.ports.push(tap_with("attacked", |tap| tap.offloads = offloads));
        let ports = ["p0".to_owned(), "attacked".to_owned()];
        config.patches.push(PatchConfig { name: "attack".to_owned(), ports, full: WhenFull::Drop });
        config.patches.push(patch(1, 2));
    });
    host.ip("link set attacked up");
    rig.wait_up(3);
    Some((host, rig))
}

fn attacker(rig: &Rig) -> Guest {
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_USO;
    rig.guest(0, &GuestOptions { features, buffer_len: 65_600, ring_size: 64, ..GuestOptions::default() })
}

/// The ring has thousands of segments at once. A turn sends some, and the other packets wait in
/// their ring, so the victims have their turns between them.
#[test]
fn segments_for_a_tap_are_spread_over_turns() {
    let Some((_host, rig)) = with_tap("segments_for_a_tap_are_spread_over_turns") else { return };
    let victims = Victims::start(&rig, 1, 2);
    let mut attacker = attacker(&rig);
    let payload = noise(1, 128 * 64);
    let (header, frame) = segmented(Kind::Udp4, BROADCAST, mac(1), &payload, 64);
    let deliveries = || {
        let nodes = rig.switch.source().runtime().nodes;
        nodes.into_iter().find(|node| node.name == "attacked-tx").map_or(0, |node| node.calls)
    };
    measure_gap(&victims, "large packets for a tap", || {
        let before = deliveries();
        (0..PACKETS).for_each(|_| assert!(attacker.send(&header, &frame)));
        attacker.flush();
        wait_until("all segments are sent", || rig.port(3).queues[0].tx.packets == PACKETS * SEGMENTS);
        let deliveries = deliveries() - before;
        // By shares alone, which count copies, half as many deliveries would do.
        assert!(deliveries >= 56, "{PACKETS} packets of {SEGMENTS} segments left in {deliveries} deliveries");
    });
    victims.go_on();
    rig.no_drops();
    victims.finish();
}

/// Segments so small, or so many, that they would only multiply the work.
#[test]
fn segments_that_no_sender_makes_are_refused() {
    let Some((_host, rig)) = with_tap("segments_that_no_sender_makes_are_refused") else { return };
    let victims = Victims::start(&rig, 1, 2);
    let mut attacker = attacker(&rig);
    for (size, refused) in [(64, 0), (60, 1), (8, 2)] {
        let (header, frame) = segmented(Kind::Udp4, BROADCAST, mac(1), &noise(1, 128 * 64), size);
        assert!(attacker.send(&header, &frame));
        attacker.flush();
        wait_until("it is sent or refused", || {
            rig.port(3).queues[0].tx.packets == SEGMENTS && rig.drops(0, "segment-size") == refused
        });
    }
    victims.finish();
}
