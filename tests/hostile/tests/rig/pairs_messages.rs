//! Messages about queue pairs that do not exist, that were not negotiated, or that never start.
//! Also, one descriptor for the kicks and calls of all pairs.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use hostile::attacker::Layout;
use hostile::scene::Scene;
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, Pair};
use straightline_testing::{arrived, frame, mac, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::vhost_user::{FrontendClient, Message, Request};

use crate::cve_2020_10723::{all_that_name, is_refused};
use crate::messages::frontend;
use crate::pairs::{FLOWS, PAIRS, RINGS, arrived_by, flow};

#[test]
fn rings_beyond_the_pairs_that_are_offered() {
    for pairs in [2, PAIRS, 127] {
        let mut scene = Scene::with_queues(Layout::Split, pairs);
        // Two rings for each pair, and the control ring.
        let rings = 2 * u32::from(pairs) + 1;
        for index in [rings, rings + 1, 2 * rings, 255, 256, rings + 256, 65_535, u32::MAX] {
            for message in all_that_name(index) {
                is_refused(&scene, &message);
            }
            scene.victims.go_on();
        }
        let mut client = frontend(&scene);
        client.set_vring_num(u16::try_from(rings - 1).expect("few"), 64).expect("the last one that there is");
        drop(client);
        scene.recovers("rings that there are not");
        scene.end();
    }
}

#[test]
fn how_many_pairs_there_are_asked_at_any_time() {
    for pairs in [1, PAIRS, 127] {
        let mut scene = Scene::with_queues(Layout::Split, pairs);
        let ask = Message::request(Request::GetQueueNum, Vec::new());
        // The request is repeated, before anything is negotiated.
        let client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
        for _ in 0..hostile::repeats(100, 10_000) {
            client.send_raw(&ask, &[]).expect("sent");
            let answer = client.recv_raw().expect("answered").expect("not closed");
            assert_eq!(answer.payload, (2 * u64::from(pairs)).to_ne_bytes());
        }
        drop(client);
        // A payload or a descriptor makes the request invalid.
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        for (payload, fds) in [(vec![0; 4], &[][..]), (vec![0; 8], &[]), (vec![], &[event.as_fd()])] {
            let client = frontend(&scene);
            client.send_raw(&Message::request(Request::GetQueueNum, payload), fds).expect("sent");
            assert!(client.recv_raw().is_ok_and(|answer| answer.is_none()), "refused: the connection closes");
        }
        // The answer is the number of rings, because no frontend that counts pairs was recognised.
        // Then the frontend tries more pairs than exist.
        let mut client = frontend(&scene);
        assert_eq!(client.get_queue_num().expect("answered"), 2 * u64::from(pairs));
        drop(client);
        let more = GuestOptions { queue_pairs: (pairs + 1).min(127), ring_size: 16, ..GuestOptions::default() };
        assert_eq!(Guest::connect(scene.rig.socket(0), &more).is_ok(), pairs == 127, "{pairs} pairs");
        scene.victims.go_on();
        scene.recovers("a number");
        scene.end();
    }
}

#[test]
fn pairs_that_were_not_negotiated_are_not_used() {
    for layout in Layout::BOTH {
        // The control ring, if there is one, has the index of the second pair's receive ring
        // (virtio 1.2, 5.1.2).
        for control in [0, f::VIRTIO_NET_F_CTRL_VQ | f::VIRTIO_NET_F_CTRL_RX] {
            let mut scene = Scene::with_queues(layout, PAIRS);
            let mut guest = scene.compliant_guest();
            let features = guest.features() & !f::VIRTIO_NET_F_MQ | control;
            guest.client().reset_device().expect("reset");
            guest.client().set_features(features).expect("without MQ");
            // The frontend still starts all its rings.
            guest.start().expect("started");
            scene.rig.wait_up(0);
            for (n, pair) in (0..).zip(guest.pairs()) {
                assert!(pair.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
                pair.flush();
            }
            assert!(take(&mut scene.good, 1)[0].1 == frame(mac(2), mac(1), 700, 0));
            (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
            let mut by = vec![0; PAIRS.into()];
            wait_until("all have arrived", || {
                by.iter_mut().zip(arrived_by(&mut guest)).for_each(|(count, more)| *count += more);
                by[0] == usize::from(FLOWS)
            });
            scene.victims.go_on();
            assert!(arrived(&mut scene.good).is_empty(), "packets in the other rings stay there");
            // Receive buffers in the control ring are no commands: they come back empty.
            let others = if control == 0 { 1 } else { 2 };
            assert!(by[others..].iter().all(|&n| n == 0), "{by:?}");
            for pair in &mut guest.pairs()[1..] {
                pair.flush();
                assert_eq!(pair.spare(), 255);
            }
            assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
            drop(guest);
            scene.recovers("pairs that were not negotiated");
            scene.end();
        }
    }
}

#[test]
fn pairs_that_never_start_are_missed_by_nobody() {
    for layout in Layout::BOTH {
        for started in [0b0001, 0b0100, 0b1010, 0b1110_u8] {
            let mut scene = Scene::with_queues(layout, PAIRS);
            let mut guest = scene.compliant_guest();
            let runs = |pair: usize| started & 1 << pair != 0;
            // All rings are stopped before any packet, and only these start again.
            let bases = guest.stop().expect("stopped");
            for ring in (0..RINGS).filter(|ring| runs(usize::from(ring / 2))) {
                guest
                    .client()
                    .set_vring_base(ring, bases[usize::from(ring / 2)][usize::from(ring % 2)])
                    .expect("a base");
                guest.client().set_vring_kick(ring, None).expect("a kick");
            }
            for (n, pair) in (0..).zip(guest.pairs()) {
                assert!(pair.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
                pair.flush();
            }
            let count = usize::try_from(started.count_ones()).expect("few");
            assert_eq!(take(&mut scene.good, count).len(), count);
            (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
            let mut by = vec![0; PAIRS.into()];
            wait_until("all have arrived", || {
                by.iter_mut().zip(arrived_by(&mut guest)).for_each(|(count, more)| *count += more);
                by.iter().sum::<usize>() == usize::from(FLOWS)
            });
            assert!(by.iter().enumerate().all(|(pair, &n)| (n > 0) == runs(pair)), "{by:?}");
            // Without the first pair the link is down, and operators see the reason.
            if runs(0) {
                scene.rig.wait_up(0)
            } else {
                scene.rig.wait_down(0, "its receive ring does not start: no kick")
            }
            assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
            drop(guest);
            scene.recovers("pairs that never start");
            scene.end();
        }
    }
}

#[test]
fn one_kick_and_one_call_for_all_rings() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        let mut guest = scene.compliant_guest();
        // All rings have one descriptor for kicks and calls, so each call kicks all rings.
        let event = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let (_ours, theirs) = UnixStream::pair().expect("sockets");
        for (kick, call) in [(event.as_fd(), event.as_fd()), (event.as_fd(), theirs.as_fd())] {
            for ring in 0..RINGS {
                guest.client().set_vring_call(ring, Some(call)).expect("a call");
                guest.client().set_vring_kick(ring, Some(kick)).expect("a kick");
            }
            for round in 0..100 {
                for (n, pair) in (0..).zip(guest.pairs()) {
                    assert!(pair.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, 4 * round + n)));
                    pair.flush();
                }
                (0..8).for_each(|n| send(&mut scene.good, &flow(n, 600)));
                rustix::io::write(kick, &1_u64.to_ne_bytes()).expect("a kick");
                assert_eq!(take(&mut scene.good, PAIRS.into()).len(), usize::from(PAIRS));
                let mut come = 0;
                wait_until("all have arrived", || {
                    come += arrived_by(&mut guest).iter().sum::<usize>();
                    guest.pairs().iter_mut().for_each(Pair::flush);
                    come == 8
                });
            }
            scene.victims.go_on();
        }
        assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
        drop(guest);
        scene.recovers("one descriptor for all");
        scene.end();
    }
}
