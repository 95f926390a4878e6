//! A driver that requests, by commands, queue pairs that do not exist or whose rings are missing.

use hostile::attacker::Layout;
use hostile::scene::Scene;
use straightline_guest::Guest;
use straightline_testing::{send, wait_until};

use crate::once_control::Commander;
use crate::pairs::{FLOWS, PAIRS, RINGS, arrived_by, flow};

/// Returns the command VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET (virtio 1.2, 5.1.6.5.5).
fn use_pairs(pairs: u16) -> [u8; 4] {
    let [low, high] = pairs.to_le_bytes();
    [4, 0, low, high]
}

/// Sends packets of all flows, and returns which pairs they arrive by. None is lost.
fn used(scene: &mut Scene, guest: &mut Guest) -> Vec<bool> {
    (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
    let mut by = vec![0; PAIRS.into()];
    wait_until("all have arrived", || {
        by.iter_mut().zip(arrived_by(guest)).for_each(|(count, more)| *count += more);
        by.iter().sum::<usize>() == usize::from(FLOWS)
    });
    by.into_iter().map(|n| n > 0).collect()
}

fn first(pairs: u16) -> Vec<bool> {
    (0..PAIRS).map(|pair| pair < pairs).collect()
}

#[test]
fn a_number_of_pairs_that_there_is_not() {
    let mut scene = Scene::with_queues(Layout::Split, PAIRS);
    let (mut guest, mut commander) = Commander::new(&scene, PAIRS);
    let edges = (0..16).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u16::MAX]);
    let all = (0..=u16::MAX).step_by(65_536 / hostile::repeats(256, 65_536));
    let mut now = 1;
    for pairs in edges.chain(all) {
        let good = (1..=PAIRS).contains(&pairs);
        assert_eq!(commander.send(&guest, &use_pairs(pairs)), u8::from(!good), "{pairs} pairs");
        if good {
            now = pairs;
        }
        if good || pairs.is_multiple_of(1024) {
            assert_eq!(used(&mut scene, &mut guest), first(now), "after {pairs} pairs");
        }
    }
    assert_eq!(commander.send(&guest, &use_pairs(2)), 0);
    // Half a number, more than one number, another command of the class.
    for bad in [&[4, 0][..], &[4, 0, 4], &[4, 0, 4, 0, 0], &[4, 0, 4, 0, 4, 0], &[4, 1, 4, 0], &[4, 255, 4, 0]] {
        assert_eq!(commander.send(&guest, bad), 1, "{bad:?}");
    }
    assert_eq!(used(&mut scene, &mut guest), first(2));
    assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
    drop(guest);
    scene.recovers("a number of pairs");
    scene.end();
}

#[test]
fn pairs_asked_for_while_their_rings_are_missing() {
    let mut scene = Scene::with_queues(Layout::Split, PAIRS);
    let (mut guest, mut commander) = Commander::new(&scene, PAIRS);
    for _ in 0..10 {
        // The driver requests all pairs; those whose rings run are used.
        for running in [0b0001, 0b1001, 0b0110, 0b1111_u8] {
            for ring in 0..RINGS {
                let pair = usize::from(ring / 2);
                if running & 1 << pair == 0 {
                    guest.client().get_vring_base(ring).expect("stopped");
                } else {
                    guest.client().set_vring_kick(ring, None).expect("started");
                }
            }
            for pairs in 1..=PAIRS {
                assert_eq!(commander.send(&guest, &use_pairs(pairs)), 0, "{pairs} pairs");
                let mut expected = first(pairs);
                expected.iter_mut().enumerate().for_each(|(pair, used)| *used &= running & 1 << pair != 0);
                if expected.contains(&true) {
                    assert_eq!(used(&mut scene, &mut guest), expected, "{pairs} pairs, of which {running:#b} run");
                    continue;
                }
                let down = scene.rig.drops(0, "link-down");
                (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
                wait_until("all are counted", || scene.rig.drops(0, "link-down") == down + u64::from(FLOWS));
            }
        }
    }
    // The driver selects pairs, and the frontend enables rings. A disabled ring is not used
    // although its pair is selected.
    for pairs in [4, 2] {
        assert_eq!(commander.send(&guest, &use_pairs(pairs)), 0);
        guest.client().set_vring_enable(0, false).expect("disabled");
        let mut expected = first(pairs);
        expected[0] = false;
        assert_eq!(used(&mut scene, &mut guest), expected);
        guest.client().set_vring_enable(0, true).expect("enabled");
    }
    drop(guest);
    scene.recovers("pairs without rings");
    scene.end();
}

#[test]
fn pairs_asked_for_again_and_again_under_traffic() {
    let mut scene = Scene::with_queues(Layout::Split, PAIRS);
    let (mut guest, mut commander) = Commander::new(&scene, PAIRS);
    let mut sent = 0;
    let mut come = 0;
    for round in 0..u16::try_from(hostile::repeats(300, 10_000)).expect("small") {
        (0..8).for_each(|n| send(&mut scene.good, &flow(n, 600)));
        sent += 8;
        assert_eq!(commander.send(&guest, &use_pairs(1 + round % PAIRS)), 0);
        wait_until("none is lost", || {
            come += arrived_by(&mut guest).iter().sum::<usize>();
            come == sent
        });
    }
    // A reset undoes the command (virtio 1.2, 5.1.6.5.5: one pair until there is a command).
    let features = guest.features();
    guest.client().reset_device().expect("reset");
    guest.client().set_features(features).expect("features");
    guest.start().expect("started");
    commander.start(&mut guest);
    assert_eq!(used(&mut scene, &mut guest), first(1));
    assert_eq!(commander.send(&guest, &use_pairs(3)), 0);
    assert_eq!(used(&mut scene, &mut guest), first(3));
    assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
    drop(guest);
    scene.recovers("pairs again and again");
    scene.end();
}
