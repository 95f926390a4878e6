//! Several workers at one patch or bridge: nothing is lost, nothing comes twice, each flow stays in
//! order, and sleeping workers are woken.

use std::collections::BTreeSet;

use straightline_config::{Config, PortConfig, WhenFull};
use straightline_guest::{GuestOptions, Pair, Sequence, Stream};
use straightline_switch::Switch;
use straightline_switch::api::{Changes, Node};
use straightline_testing::flows::{FLOWS, PAIRS, Traffic, options, patched};
use straightline_testing::tunnel::{Net, OWN_DROPS, V4, V6};
use straightline_testing::{Rig, arrived, bridge, frame, mac, patch, rig, send, take, vhost_user, wait_until};

const BOTH: &[usize] = &[0, 1];

/// All ports in one bridge.
fn bridged(ports: usize) -> Rig {
    rig(ports, |config| {
        config.switch.workers = BOTH.to_vec();
        for port in &mut config.ports {
            vhost_user(port).queues = Some(PAIRS);
        }
        config.bridges.push(bridge(ports));
    })
}

fn reload(rig: &Rig, change: impl FnOnce(&mut Config)) -> Changes {
    let mut config = rig.switch.config();
    change(&mut config);
    rig.switch.reload(&config).expect("a reload")
}

/// Returns the packets that each worker has delivered to a port.
fn delivered(rig: &Rig, port: &str) -> [u64; 2] {
    packets(&rig.switch, &format!("{port}-tx"))
}

/// Returns the packets of a node at each worker.
fn packets(switch: &Switch, node: &str) -> [u64; 2] {
    let nodes = switch.source().runtime().nodes;
    [0, 1].map(|worker| {
        let is_asked = |of: &&Node| of.worker == Some(worker) && of.name == node;
        nodes.iter().filter(is_asked).map(|node| node.packets).sum()
    })
}

#[test]
fn each_serves_its_own_pairs() {
    let rig = patched(WhenFull::Drop, BOTH);
    let mut source = rig.guest(0, &options(PAIRS, false));
    let mut sink = rig.guest(1, &options(PAIRS, true));
    let mut traffic = Traffic::default();
    traffic.run(&mut source, &mut sink, 8000);
    // A worker delivers its flows to a ring of its own.
    for (flow, pairs) in traffic.pairs_of() {
        assert!(pairs.iter().all(|pair| pair % 2 == usize::from(flow) % 2), "flow {flow} at {pairs:?}");
    }
    assert_eq!(delivered(&rig, "p1"), [4000, 4000]);
    for queue in rig.port(1).queues {
        let worker = Some(usize::from(queue.index) % 2);
        assert_eq!((queue.rx_worker, queue.tx_worker), (worker, worker));
    }
    traffic.check_counters(&rig);
    rig.no_drops();
}

#[test]
fn with_one_pair_each_has_a_direction() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        let rig = rig(2, |config| {
            config.switch.workers = BOTH.to_vec();
            config.patches.push(patch(0, 1));
            config.patches[0].full = full;
        });
        let mut guests = [0, 1].map(|port| rig.guest(port, &GuestOptions::default()));
        let mut streams = [(0, 1), (1, 0)].map(|(from, to)| {
            Stream::prepare(&mut guests[usize::from(from)], mac(from), mac(to), &[60, 1514, 566]).expect("a stream")
        });
        let mut seen = [Sequence::default(), Sequence::default()];
        wait_until("all have arrived", || {
            for (at, guest) in guests.iter_mut().enumerate() {
                let stream = &mut streams[at];
                let other = &mut seen[1 - at];
                while stream.sent() < 5000 && stream.sent() - other.packets < 128 && stream.send(guest) {}
                guest.flush();
                let level = guest.level();
                guest.receive(64, |_, parts| seen[at].note(level, parts));
            }
            seen.iter().all(|seen| seen.packets == 5000)
        });
        for seen in &seen {
            assert_eq!((seen.lost(5000), seen.late), (0, 0));
        }
        assert_eq!(["p1", "p0"].map(|port| delivered(&rig, port)), [[5000, 0], [0, 5000]]);
        rig.no_drops();
    }
}

#[test]
fn all_deliver_to_the_one_ring_that_there_is() {
    let rig = patched(WhenFull::Drop, BOTH);
    let mut source = rig.guest(0, &options(PAIRS, false));
    let mut sink = rig.guest(1, &options(1, false));
    let mut traffic = Traffic::default();
    traffic.run(&mut source, &mut sink, 20_000);
    assert_eq!(traffic.seen_at, [20_000, 0, 0, 0]);
    assert_eq!(delivered(&rig, "p1"), [10_000, 10_000]);
    traffic.check_counters(&rig);
    rig.no_drops();
}

#[test]
fn whoever_waits_for_room_in_a_shared_ring_is_woken() {
    for packed in [false, true] {
        let rig = patched(WhenFull::Wait, BOTH);
        let mut source = rig.guest(0, &options(PAIRS, packed));
        let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..options(1, packed) });
        let mut traffic = Traffic::default();
        for n in 0..200 {
            assert!(traffic.send(&mut source, n % FLOWS));
        }
        source.pairs().iter_mut().for_each(Pair::flush);
        let workers = || rig.switch.source().runtime().workers;
        let mut given = 0;
        wait_until("all have arrived", || {
            traffic.collect(&mut sink);
            if traffic.seen_at[0] == given && given < 200 {
                // Both workers sleep with packets that wait for this ring. If a worker's request for a
                // kick were lost, the worker would wake by itself after a second. That is too late for
                // so many packets.
                wait_until("both workers sleep", || workers().iter().all(|worker| worker.is_asleep));
                sink.pairs()[0].give(1);
                given += 1;
            }
            traffic.seen_at[0] == 200
        });
        rig.no_drops();
    }
}

#[test]
fn a_bridge_knows_everywhere_what_one_of_them_learned() {
    let rig = bridged(3);
    let mut guests = [0, 1, 2].map(|port| rig.guest(port, &options(PAIRS, false)));
    // Only one worker hears the sink.
    send(&mut guests[1], &frame(mac(9), mac(2), 60, 1));
    take(&mut guests[0], 1);
    take(&mut guests[2], 1);
    let [source, sink, other] = &mut guests;
    let mut traffic = Traffic::default();
    traffic.run(source, sink, 20_000);
    let pairs = traffic.pairs_of();
    assert!(pairs.values().all(|pairs| pairs.len() == 1), "{pairs:?}");
    assert!(traffic.seen_at.iter().all(|&n| n > 1000), "every queue has its share: {:?}", traffic.seen_at);
    assert!(delivered(&rig, "p1").iter().all(|&n| n > 9000), "{:?}", delivered(&rig, "p1"));
    assert_eq!(arrived(other).len(), 0, "nothing was flooded");
    let known: Vec<_> = rig.switch.source().fdb().entries.into_iter().map(|entry| (entry.mac, entry.port)).collect();
    let known: BTreeSet<_> = known.into_iter().collect();
    assert_eq!(known, [(mac(1).to_string(), "p0".to_owned()), (mac(2).to_string(), "p1".to_owned())].into());
    rig.no_drops();
}

#[test]
fn its_patch_becomes_a_bridge_and_a_patch_again_while_packets_pass() {
    let rig = patched(WhenFull::Drop, BOTH);
    let mut source = rig.guest(0, &options(PAIRS, false));
    let mut sink = rig.guest(1, &options(PAIRS, false));
    let mut traffic = Traffic::default();
    let patched = rig.switch.config();
    for round in 0..20 {
        for flow in 0..FLOWS {
            assert!(traffic.send(&mut source, flow));
        }
        source.pairs().iter_mut().for_each(Pair::flush);
        match round % 4 {
            // The ports are served by the same workers, then by one of them, then by both again.
            // Meanwhile, packets under way wait in their ring.
            0 => drop(reload(&rig, |config| config.patches[0].full = WhenFull::Wait)),
            1 => drop(reload(&rig, |config| {
                config.patches.clear();
                config.bridges.push(bridge(2));
            })),
            // Another port and bridge, unrelated to this one.
            2 => drop(reload(&rig, |config| {
                config.ports.push(PortConfig::vhost_user("new", rig.socket(0).with_file_name("new")));
                config.bridges.push(straightline_config::BridgeConfig {
                    name: "new".to_owned(),
                    ports: vec!["new".to_owned()],
                    ..bridge(0)
                });
            })),
            _ => drop(rig.switch.reload(&patched).expect("a reload")),
        }
        traffic.run(&mut source, &mut sink, 500);
    }
    assert_eq!(Traffic::total(&traffic.sent_by), 20 * (500 + u64::from(FLOWS)));
    traffic.check_counters(&rig);
    rig.no_drops();
}

#[test]
fn a_second_patch_takes_nothing_from_the_first_and_guests_keep_their_order() {
    let rig = rig(4, |config| {
        config.switch.workers = BOTH.to_vec();
        for port in &mut config.ports {
            vhost_user(port).queues = Some(PAIRS);
        }
        config.patches.push(patch(0, 1));
    });
    let mut source = rig.guest(0, &options(PAIRS, false));
    let mut sink = rig.guest(1, &options(PAIRS, false));
    let mut left = rig.guest(2, &options(PAIRS, false));
    let mut right = rig.guest(3, &options(PAIRS, false));
    let mut traffic = Traffic::default();
    for round in 0..10 {
        for flow in 0..FLOWS {
            assert!(traffic.send(&mut source, flow));
        }
        source.pairs().iter_mut().for_each(Pair::flush);
        reload(&rig, |config| match round % 2 {
            0 => config.patches.push(patch(2, 3)),
            _ => drop(config.patches.pop()),
        });
        traffic.run(&mut source, &mut sink, 500);
        if round % 2 == 0 {
            Traffic::default().run(&mut left, &mut right, 500);
        }
    }
    // The set of workers did not change, so each flow has stayed where it was.
    let pairs = traffic.pairs_of();
    assert!(pairs.values().all(|pairs| pairs.len() == 1), "{pairs:?}");
    for (flow, &sent) in &traffic.sent {
        assert_eq!(traffic.seen.iter().find(|((seen, _), _)| seen == flow).map(|(_, next)| *next), Some(sent));
    }
    traffic.check_counters(&rig);
}

#[test]
fn they_share_an_underlay_and_each_flow_of_its_tunnels_keeps_its_order() {
    for (ends, keys) in [
        (V4, "kind = \"vxlan\"\nvni = 5"),
        (V6, "kind = \"geneve\"\nvni = 5"),
        (V4, "kind = \"gre\"\nkey = 7\nchecksum = true"),
        (V6, "kind = \"l2tpv3\"\ncookie = \"0011223344556677\""),
    ] {
        let mut net = Net::start_with_workers(ends, keys, &options(PAIRS, false));
        net.wait_up();
        let [mut there, mut back] = [Traffic::default(), Traffic::default()];
        there.run(&mut net.a, &mut net.b, 8000);
        back.run(&mut net.b, &mut net.a, 8000);
        for traffic in [&there, &back] {
            let pairs = traffic.pairs_of();
            assert!(pairs.len() == usize::from(FLOWS) && pairs.values().all(|pairs| pairs.len() == 1), "{pairs:?}");
        }
        // Both workers encapsulate and decapsulate. The wire keeps packets at their pairs.
        for (switch, nodes) in net.switches().zip([["encap.t1", "decap.left"], ["encap.t2", "decap.right"]]) {
            let [encapsulated, decapsulated] = nodes.map(|node| packets(switch, node));
            assert_eq!(encapsulated, [4000, 4000], "{keys}");
            // Those of the underlay itself pass this node, too.
            assert!(decapsulated.iter().all(|&packets| packets >= 4000), "{keys} {decapsulated:?}");
            let drops = switch.source().drops().drops;
            assert!(drops.iter().all(|drop| OWN_DROPS.contains(&&*drop.reason)), "{keys} {drops:?}");
        }
    }
}
