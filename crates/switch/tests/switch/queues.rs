//! Guests with several queue pairs: flows in order on one queue each, pairs that come and go under
//! traffic, metrics of each queue, sleep.

use std::sync::Arc;

use straightline_config::WhenFull;
use straightline_graph::{EpollWaiter, PortControl};
use straightline_guest::{Guest, GuestOptions, Pair};
use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::flows::{FLOWS, PAIRS, Traffic, WORKERS, collect, numbered, options, patched};
use straightline_testing::{patch, rig, wait_all_back, wait_asleep, wait_until};
use straightline_virtio::net_header::NetHeader;

#[test]
fn flows_stay_in_order_on_one_queue_each() {
    for workers in WORKERS {
        for (left, right) in [(false, false), (true, true), (false, true)] {
            let rig = patched(WhenFull::Drop, workers);
            let mut source = rig.guest(0, &options(PAIRS, left));
            let mut sink = rig.guest(1, &options(PAIRS, right));
            let mut traffic = Traffic::default();
            traffic.run(&mut source, &mut sink, 20_000);
            let pairs = traffic.pairs_of();
            assert!(pairs.values().all(|pairs| pairs.len() == 1), "{pairs:?}");
            assert!(traffic.seen_at.iter().all(|&n| n > 1000), "every queue has its share: {:?}", traffic.seen_at);
            assert!(rig.port(1).features.contains(&"mq".to_owned()));
            traffic.check_counters(&rig);
            rig.no_drops();
        }
    }
}

#[test]
fn guests_with_fewer_pairs_than_are_offered() {
    for workers in WORKERS {
        let rig = patched(WhenFull::Drop, workers);
        let mut source = rig.guest(0, &options(3, false));
        let mut sink = rig.guest(1, &options(2, false));
        let mut traffic = Traffic::default();
        traffic.run(&mut source, &mut sink, 4000);
        assert!(traffic.seen_at[..2].iter().all(|&n| n > 1000), "{:?}", traffic.seen_at);
        traffic.check_counters(&rig);
        drop(sink);
        // A guest that does not know several pairs.
        let mut sink = rig.guest(1, &options(1, false));
        let before = traffic.seen_at;
        traffic.run(&mut source, &mut sink, 4000);
        assert_eq!(traffic.seen_at[0] - before[0], 4000);
        assert_eq!(rig.port(1).drops.keys().filter(|reason| *reason != "link-down").count(), 0);
    }
}

// Cites vhost-user-multiple-queue-3.
#[test]
fn a_guest_that_wants_more_pairs_than_are_offered_gives_up() {
    let rig = patched(WhenFull::Drop, WORKERS[0]);
    // The back-end reports its rings, which are more than its pairs.
    let refusal = Guest::connect(rig.socket(0), &options(3 * PAIRS, false)).expect_err("too many pairs");
    let words = refusal.to_string();
    assert!(words.starts_with("the backend offers ") && words.ends_with(" queue pairs, not 12"), "{words}");
    assert!(Guest::connect(rig.socket(0), &options(PAIRS + 1, false)).is_err(), "a ring too many");
    let _guest = rig.guest(0, &options(PAIRS, false));
    rig.wait_up(0);
}

/// A port whose configuration has no number of queue pairs serves as many as its frontend starts,
/// with any number of workers, and shows those.
#[test]
fn a_frontend_that_decides_for_itself_starts_any_number_of_pairs() {
    for workers in WORKERS {
        let rig = rig(2, |config| {
            config.switch.workers = workers.to_vec();
            config.patches.push(patch(0, 1));
        });
        assert_eq!([0, 1].map(|port| rig.port(port).queues.len()), [1, 1], "before a guest comes");
        let mut source = rig.guest(0, &options(PAIRS, false));
        let mut sink = rig.guest(1, &options(PAIRS, true));
        let mut traffic = Traffic::default();
        traffic.run(&mut source, &mut sink, 8000);
        assert!(traffic.seen_at.iter().all(|&n| n > 1000), "{:?}", traffic.seen_at);
        traffic.check_counters(&rig);
        drop(sink);
        let most = GuestOptions { ring_size: 16, ..options(127, false) };
        let mut sink = rig.guest(1, &most);
        for flow in 0..FLOWS {
            assert!(traffic.send(&mut source, flow));
        }
        source.pairs().iter_mut().for_each(Pair::flush);
        let mut by = vec![0; 127];
        wait_until("all arrive", || {
            by.iter_mut().zip(sink.pairs()).for_each(|(count, pair)| *count += collect(pair).len());
            by.iter().sum::<usize>() == usize::from(FLOWS)
        });
        assert!(by.iter().filter(|&&count| count > 0).count() > usize::from(PAIRS), "{by:?}");
        assert_eq!(rig.port(1).queues.len(), 127);
        rig.wait_up(1);
        drop(sink);
        // The next frontend starts fewer, and gets its packets through those.
        let mut sink = rig.guest(1, &options(1, false));
        let mut traffic = Traffic::default();
        traffic.run(&mut source, &mut sink, 4000);
        assert_eq!(traffic.seen_at[0], 4000);
    }
}

// Cites vhost-user-ring-states-3, vhost-user-ring-states-8.
#[test]
fn receive_rings_are_enabled_and_disabled_under_traffic() {
    for workers in WORKERS {
        for packed in [false, true] {
            let rig = patched(WhenFull::Drop, workers);
            let mut source = rig.guest(0, &options(PAIRS, packed));
            let mut sink = rig.guest(1, &options(PAIRS, packed));
            let mut traffic = Traffic::default();
            for round in 0..5 {
                for count in [4, 2, 1, 3] {
                    // The frontend's message comes while packets are under way: none of them is
                    // lost.
                    for flow in 0..FLOWS {
                        assert!(traffic.send(&mut source, flow));
                    }
                    source.pairs().iter_mut().for_each(Pair::flush);
                    sink.enable(count).expect("enabled");
                    traffic.run(&mut source, &mut sink, 0);
                    let before = traffic.seen_at;
                    traffic.run(&mut source, &mut sink, 1000);
                    for (at, (seen, before)) in traffic.seen_at.iter().zip(before).enumerate() {
                        let more = seen - before;
                        assert!((more > 0) == (at < count), "{more} at pair {at} of {count} in round {round}");
                    }
                }
            }
            rig.wait_up(1);
            rig.no_drops();
            traffic.check_counters(&rig);
        }
    }
}

// Cites vhost-user-ring-states-4.
#[test]
fn what_a_disabled_transmit_ring_holds_is_dropped_and_counted() {
    for workers in WORKERS {
        let rig = patched(WhenFull::Drop, workers);
        let mut source = rig.guest(0, &options(PAIRS, false));
        let mut sink = rig.guest(1, &options(PAIRS, false));
        source.enable(2).expect("enabled");
        let mut traffic = Traffic::default();
        for flow in 0..FLOWS {
            assert!(traffic.send(&mut source, flow));
        }
        source.pairs().iter_mut().for_each(Pair::flush);
        rig.wait_drops(0, "ring-disabled", u64::from(FLOWS) / 2);
        wait_until("the others arrive", || {
            traffic.collect(&mut sink);
            Traffic::total(&traffic.seen_at) == u64::from(FLOWS) / 2
        });
        assert!(traffic.seen.keys().all(|(flow, _)| flow % PAIRS < 2));
        for (at, pair) in source.pairs().iter_mut().enumerate() {
            wait_all_back(pair);
            assert_eq!(rig.port(0).queues[at].rx.packets, u64::from(FLOWS / PAIRS));
        }
        // No receive ring is enabled.
        source.enable(4).expect("enabled");
        sink.enable(0).expect("disabled");
        assert!(traffic.send(&mut source, 3));
        source.pairs()[3].flush();
        rig.wait_drops(1, "ring-disabled", 1);
        rig.wait_down(1, "disabled the receive ring");
    }
}

#[test]
fn with_wait_nothing_is_lost_or_overtaken() {
    for workers in WORKERS {
        for packed in [false, true] {
            let rig = patched(WhenFull::Wait, workers);
            let mut source = rig.guest(0, &options(PAIRS, packed));
            let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..options(PAIRS, packed) });
            let mut traffic = Traffic::default();
            let mut round = 0_usize;
            let mut collected = 0;
            wait_until("all have arrived", || {
                // As many as the rings hold, of flows in any order.
                let mut flow = u16::try_from(round % 7).expect("small");
                while Traffic::total(&traffic.sent_by) < 6000 && traffic.send(&mut source, flow % FLOWS) {
                    flow += 3;
                }
                source.pairs().iter_mut().for_each(Pair::flush);
                // Buffers for some, in changing rings.
                sink.pairs()[round % 4].give([1, 9, 2, 30, 5][round % 5]);
                round += 1;
                traffic.collect(&mut sink);
                let now = Traffic::total(&traffic.seen_at);
                collected += usize::from(now > 0);
                now == 6000
            });
            assert!(collected > 100);
            for (flow, &sent) in &traffic.sent {
                let pairs = &traffic.pairs_of()[flow];
                assert_eq!(pairs.len(), 1, "flow {flow}");
                let last = pairs.first().and_then(|&at| traffic.seen.get(&(*flow, at)));
                assert_eq!(last, Some(&sent), "flow {flow}");
            }
            traffic.check_counters(&rig);
            rig.no_drops();
        }
    }
}

/// Returns a flow of a pair of the source, and the sink's pair that it was seen at: one that `is_wanted`.
fn flow_of(traffic: &Traffic, by: u16, is_wanted: impl Fn(usize) -> bool) -> (u16, usize) {
    let of_pair = traffic.pairs_of().into_iter().filter(|(flow, _)| flow % PAIRS == by);
    let mut seen = of_pair.filter_map(|(flow, pairs)| Some((flow, *pairs.first()?)));
    seen.find(|(_, at)| is_wanted(*at)).expect("ten flows reach several pairs")
}

#[test]
fn with_wait_a_full_queue_holds_up_nobody_but_its_sources() {
    for workers in WORKERS {
        let rig = patched(WhenFull::Wait, workers);
        let mut source = rig.guest(0, &options(PAIRS, false));
        let mut sink = rig.guest(1, &options(PAIRS, false));
        let mut traffic = Traffic::default();
        traffic.run(&mut source, &mut sink, 4000);
        // Pair 1 of the source fills a pair of the sink, and more packets wait.
        let (stuck, full) = flow_of(&traffic, 1, |_| true);
        let (free, other) = flow_of(&traffic, 3, |at| at != full);
        let before = rig.port(1).queues[full].tx.packets;
        let mut sent = 0;
        wait_until("the pair is full", || {
            sent += u64::from(traffic.send(&mut source, stuck));
            source.pairs()[1].flush();
            rig.port(1).queues[full].tx.packets - before == 256 && sent >= 300
        });
        // Another ring of the source continues, also once the worker sleeps.
        for round in 0..20 {
            if round % 5 == 0 {
                wait_asleep(&rig.switch);
            }
            assert!(traffic.send(&mut source, free));
            source.pairs()[3].flush();
            wait_until("it passes", || collect(&mut sink.pairs()[other]) == [(free, traffic.sent[&free] - 1)]);
        }
        // With free buffers, everything that waited comes, in order.
        let mut got = 0;
        wait_until("what waited has come", || {
            got += collect(&mut sink.pairs()[full]).len();
            got == usize::try_from(sent).expect("small")
        });
        rig.no_drops();
    }
}

#[test]
fn a_kick_of_any_queue_wakes_a_worker_that_sleeps() {
    for workers in WORKERS {
        let rig = patched(WhenFull::Drop, workers);
        let mut source = rig.guest(0, &options(PAIRS, false));
        let mut sink = rig.guest(1, &options(PAIRS, true));
        let mut traffic = Traffic::default();
        for round in 0..8 {
            wait_asleep(&rig.switch);
            assert!(traffic.send(&mut source, round));
            source.pairs().iter_mut().for_each(Pair::flush);
            wait_until("it arrives", || {
                traffic.collect(&mut sink);
                Traffic::total(&traffic.seen_at) == u64::from(round) + 1
            });
        }
    }
}

#[test]
fn one_ring_that_breaks_stops_the_whole_port_and_no_other() {
    for workers in WORKERS {
        let rig = patched(WhenFull::Drop, workers);
        let mut broken = rig.guest(0, &options(PAIRS, false));
        let _peer = rig.guest(1, &options(PAIRS, false));
        broken.pairs()[1].publish_index(straightline_guest::Ring::Transmit, 1000);
        rig.wait_down(0, "transmit ring 1: available index 1000");
        rig.wait_up(1);
    }
}

#[test]
fn a_flooded_queue_leaves_turns_to_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let config = VhostUserConfig { queues: Some(PAIRS), ..VhostUserConfig::new("p", dir.path().join("p")) };
    let drops = Arc::new(Drops::default());
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let port = VhostUser::open(config, PortIndex(0), Arc::clone(&drops), &rcu, waiter).expect("a socket");
    let served = port.for_worker(0);
    let mut guest = Guest::connect(&dir.path().join("p"), &options(PAIRS, false)).expect("a guest");
    for (at, count) in [(0, 200), (1, 0), (2, 200), (3, 1)] {
        let pair = &mut guest.pairs()[at];
        for number in 0..count {
            assert!(pair.send(&NetHeader::default(), &numbered(u16::try_from(at).expect("small"), number)));
        }
        pair.flush();
    }
    let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![drops]);
    let mut turns = Vec::new();
    for _ in 0..8 {
        arena.turn(|turn| {
            let mut frame = Batch::new();
            served.receive(turn, &mut frame, 64);
            let mut by = [0; PAIRS as usize];
            for &id in frame.ids() {
                by[usize::from(turn.head(id)[43])] += 1;
            }
            turns.push(by);
        });
    }
    let expected =
        [[64, 0, 0, 0], [0, 0, 64, 0], [63, 0, 0, 1], [0, 0, 64, 0], [64, 0, 0, 0], [0, 0, 64, 0], [9, 0, 8, 0]];
    assert_eq!(turns[..7], expected);
    assert_eq!(turns[7], [0; 4]);
}
