//! CVE-2020-10725: one of four packed descriptors that were handled together was used without
//! translation.

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Down, Ring, Scene, valid};
use straightline_testing::{frame, mac, send, take, wait_until};
use straightline_virtio::ring::{Descriptor, WRITE};

/// Writes a frame behind a header into a buffer, and returns its descriptor.
fn filled(guest: &Attacker, buffer: u16, bytes: &[u8]) -> Descriptor {
    let addr = guest.buffer_address(Ring::Transmit, buffer);
    guest.write_memory(addr, &[0; 12]);
    guest.write_memory(addr + 12, bytes);
    Descriptor { addr, len: u32::try_from(12 + bytes.len()).expect("short"), flags: 0, next: 0 }
}

/// Returns invalid variants of a descriptor, each with its drop reason.
fn faults(good: Descriptor, end: u64) -> [(Descriptor, &'static str); 6] {
    [
        (Descriptor { len: 0, ..good }, "short-chain"),
        (Descriptor { addr: 0, ..good }, "bad-address"),
        (Descriptor { addr: 0, len: 0, ..good }, "short-chain"),
        (Descriptor { addr: u64::MAX - 8, ..good }, "bad-address"),
        (Descriptor { addr: end - 8, ..good }, "bad-address"),
        (Descriptor { flags: WRITE, ..good }, "bad-direction"),
    ]
}

#[test]
fn cve_2020_10725_a_fault_in_each_lane_of_four() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for lane in 0..4 {
            for fault in 0..6 {
                let guest = scene.attacker();
                let frames: Vec<_> = (0..4).map(|n| frame(mac(2), mac(1), 400 + 300 * n, n as u64)).collect();
                let mut four: Vec<_> =
                    (0..).zip(&frames).map(|(buffer, bytes)| filled(&guest, buffer, bytes)).collect();
                let (bad, reason) = faults(four[lane], guest.end())[fault];
                four[lane] = bad;
                let chains: Vec<_> = four.chunks(1).collect();
                let before = scene.rig.drops(0, reason);
                guest.publish_all(Ring::Transmit, &chains);
                let mut right = frames.clone();
                right.remove(lane);
                let came: Vec<_> = take(&mut scene.good, 3).into_iter().map(|(_, bytes)| bytes).collect();
                assert!(came == right, "lane {lane}, fault {fault}: the others pass, complete and in order");
                wait_until("it is dropped", || scene.rig.drops(0, reason) > before);
                guest.wait_used(Ring::Transmit);
                assert_eq!(scene.rig.drops(0, reason), before + 1, "{reason}");
                drop(guest);
                scene.recovers("a lane of four");
            }
        }
        scene.end();
    }
}

#[test]
fn cve_2020_10725_a_fault_in_each_lane_of_four_buffers() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for lane in 0..4_u16 {
            for fault in 0..6 {
                let guest = scene.attacker();
                let good = |lane| Descriptor {
                    addr: guest.buffer_address(Ring::Receive, lane),
                    len: 2000,
                    ..valid(&guest, Ring::Receive)
                };
                let mut four: Vec<_> = (0..4).map(good).collect();
                let bad = faults(four[usize::from(lane)], guest.end())[fault].0;
                // In a receive ring, the other direction is invalid.
                four[usize::from(lane)] =
                    if bad.flags == WRITE && fault == 5 { Descriptor { flags: 0, ..bad } } else { bad };
                let chains: Vec<_> = four.chunks(1).collect();
                guest.publish_all(Ring::Receive, &chains);
                let counts = scene.dropped();
                for n in 0..4 {
                    send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
                }
                scene.expect_and_recover("a lane of four buffers", &Down("receive ring"), counts, guest);
            }
        }
        scene.end();
    }
}
