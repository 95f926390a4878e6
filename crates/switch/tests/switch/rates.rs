//! Limits of ports: packets of a guest wait in its ring, others are dropped.

use std::sync::Arc;
use std::time::Instant;

use az::SaturatingAs;
use straightline_config::{Config, PortRate, RateConfig, WhenFull};
use straightline_graph::{
    EpollWaiter, Graph, Idle, Limit, Meter, Null, PortControl, RateBucket, RateLimits, Worker, WorkerStats,
};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::Patch;
use straightline_packet::{Arena, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_switch::api::{ErrorCode, EventKind, PortRate as RateStatus, RateRequest};
use straightline_testing::{
    BASIC, Rig, Victims, arrived, frame, mac, nothing, patch, rig, send, take, wait_all_back, wait_asleep, wait_event,
    wait_until,
};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

/// The layouts of rings, and with them the ways to disarm one.
const LAYOUTS: [u64; 3] = [BASIC, BASIC | f::VIRTIO_F_EVENT_IDX, BASIC | f::VIRTIO_F_RING_PACKED];

fn bytes(per_second: u64, burst: u64) -> RateLimits {
    RateLimits { bytes: Some(Limit { per_second, burst }), packets: None }
}

fn packets(per_second: u64, burst: u64) -> RateLimits {
    RateLimits { bytes: None, packets: Some(Limit { per_second, burst }) }
}

/// Two ports on a patch; what comes from the first is limited.
fn limited(limits: RateLimits) -> Rig {
    rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports[0].rate_in = Some(PortRate::Own(limits));
    })
}

fn rate_in(rig: &Rig, port: usize) -> RateStatus {
    rig.port(port).rate_in.expect("a limit")
}

/// Puts frames of `len` bytes into the ring, as many as it takes of these.
fn fill(guest: &mut Guest, len: usize, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(guest.send(&NetHeader::default(), &frame(mac(2), mac(1), len, n)), "a buffer for packet {n}");
    }
    guest.flush();
}

#[test]
fn packets_wait_in_their_ring_and_none_is_lost() {
    for layout in LAYOUTS {
        let rig = limited(bytes(4_000_000, 20_000));
        let mut source = rig.guest(0, &GuestOptions { features: layout, ..GuestOptions::default() });
        let mut sink = rig.guest(1, &GuestOptions::default());
        fill(&mut source, 1000, 0..256);
        for (n, (_, got)) in (0..).zip(take(&mut sink, 256)) {
            assert!(got == frame(mac(2), mac(1), 1000, n), "packet {n}");
        }
        wait_all_back(&mut source);
        // A turn counts its packets once they are delivered.
        wait_until("all packets are counted", || rate_in(&rig, 0).passed_packets >= 256);
        let rate = rate_in(&rig, 0);
        assert_eq!((rate.passed_bytes, rate.passed_packets, rate.dropped), (256_000, 256, 0));
        assert!(rate.wait_count > 0, "{rate:?}");
        rig.no_drops();
        // A guest that has waited, and then paused, is heard again: its kicks are armed.
        nothing(&rig.switch, &mut sink);
        wait_asleep(&rig.switch);
        send(&mut source, &frame(mac(2), mac(1), 60, 7));
        assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 60, 7));
    }
}

#[test]
fn no_more_passes_than_the_rate_and_the_burst() {
    let limits = packets(500, 20);
    let rig = limited(limits);
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    // The time is the subject: a rate is packets in a time.
    let begin = Instant::now();
    fill(&mut source, 60, 0..120);
    let mut got = 0;
    wait_until("all packets have passed", || {
        got += arrived(&mut sink).len();
        // The time is read last, so a pause only raises the bound.
        let millis: usize = begin.elapsed().as_millis().saturating_as();
        let most = 20 + millis / 2 + 2;
        assert!(got <= most, "{got} of {most}");
        got >= 120
    });
    rig.no_drops();
}

#[test]
fn a_starved_ring_asks_for_no_kick() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().expect("a folder");
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let config = VhostUserConfig::new("p0", dir.path().join("p0"));
        let port = VhostUser::open(config, PortIndex(0), Arc::default(), &rcu, Arc::clone(&waiter)).expect("a socket");
        let mut graph = Graph::new();
        let end = graph.output(Arc::new(Null::new("end")), false);
        let node = graph.node("patch", Box::new(Patch::new(PortIndex(1))), &[end, end]);
        // No tokens come, however slow the test is.
        let bucket = Arc::new(RateBucket::new(packets(0, 1), 0));
        let meter = Meter::new(bucket, Arc::default());
        let input = port.for_worker(0);
        graph.input_with(Arc::clone(&input), node, 1, Some(meter));
        let mut looks = Arena::new(rcu.reader(), Settings::default(), Vec::new());
        let arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::default()]);
        let mut worker = Worker::new(graph, arena, Arc::clone(&waiter), Arc::new(WorkerStats::default()), Idle::Spin);
        let options = GuestOptions { features: layout, ..GuestOptions::default() };
        let mut guest = Guest::connect(&dir.path().join("p0"), &options).expect("a guest");
        wait_until("the link is up", || port.status().up);
        looks.turn(|turn| input.arm(turn, false));
        waiter.woken_by();
        fill(&mut guest, 60, 0..2);
        assert_eq!(waiter.woken_by().0, 1, "it asks for a kick while it has tokens");
        assert_eq!(worker.turn(), 1, "one token");
        fill(&mut guest, 60, 2..40);
        assert_eq!(waiter.woken_by().0, 0, "no kick helps");
        assert_eq!(worker.turn(), 0);
    }
}

#[test]
fn a_packet_that_waits_for_buffers_costs_no_token() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.ports[0].rate_in = Some(PortRate::Own(packets(1000, 64)));
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    fill(&mut source, 700, 0..200);
    nothing(&rig.switch, &mut sink);
    assert_eq!(rate_in(&rig, 0).passed_packets, 0);
    let mut got = 0;
    for give in [1, 2, 30, 1, 166] {
        sink.give(give);
        for (_, bytes) in take(&mut sink, give) {
            assert!(bytes == frame(mac(2), mac(1), 700, got), "packet {got}");
            got += 1;
        }
        wait_until("the tokens are counted", || rate_in(&rig, 0).passed_packets == got);
    }
    wait_all_back(&mut source);
    rig.no_drops();
}

#[test]
fn a_link_that_is_set_down_drains_at_once() {
    let rig = limited(packets(50, 1));
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    fill(&mut source, 60, 0..200);
    wait_until("the first has passed", || !arrived(&mut sink).is_empty());
    rig.switch.set_link("p0", false).expect("a port");
    wait_all_back(&mut source);
    let counted = || rig.drops(0, "set-down") + rate_in(&rig, 0).passed_packets;
    wait_until("all packets are counted", || counted() >= 200);
    assert_eq!(counted(), 200);
    let passed = rate_in(&rig, 0).passed_packets;
    rig.switch.set_link("p0", true).expect("a port");
    send(&mut source, &frame(mac(2), mac(1), 60, 200));
    wait_until("the next passes", || rate_in(&rig, 0).passed_packets == passed + 1);
}

#[test]
fn a_ring_that_ends_while_packets_wait_keeps_them() {
    for layout in [BASIC | f::VIRTIO_F_EVENT_IDX, BASIC | f::VIRTIO_F_RING_PACKED] {
        // No tokens come, however slow the test is.
        let rig = limited(packets(0, 10));
        let mut source = rig.guest(0, &GuestOptions { features: layout, ..GuestOptions::default() });
        let mut sink = rig.guest(1, &GuestOptions::default());
        fill(&mut source, 60, 0..200);
        let mut got = Vec::new();
        wait_until("some have passed", || {
            got.extend(arrived(&mut sink));
            got.len() >= 10
        });
        let bases = source.stop().expect("the rings stop");
        got.extend(arrived(&mut sink));
        let passed = u64::from(bases[0][1] & 0x7fff);
        wait_until("the next backend goes on behind those that passed", || rate_in(&rig, 0).passed_packets == passed);
        assert!(passed < 200);
        assert_eq!(got.len() as u64, passed);
    }
}

#[test]
fn a_reload_and_the_end_of_the_switch_do_not_wait_for_tokens() {
    let rig = limited(packets(50, 10));
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    fill(&mut source, 60, 0..200);
    let mut got = 0;
    wait_until("some have passed", || {
        got += arrived(&mut sink).len();
        got >= 10
    });
    let mut config = rig.switch.config();
    config.ports[0].rate_in = Some(PortRate::Own(packets(100_000, 100)));
    let changes = rig.switch.reload(&config).expect("a reload").changes;
    let text = changes[0].to_string();
    assert_eq!(text, "port \"p0\" changed: rate-in 50 packet/s is now 100k packet/s");
    wait_until("the others pass", || {
        got += arrived(&mut sink).len();
        got >= 200
    });
    wait_until("the counter goes on", || rate_in(&rig, 0).passed_packets == 200);
    // Without the limit they do not wait; with another one they do.
    config.ports[0].rate_in = None;
    rig.switch.reload(&config).expect("a reload");
    assert_eq!(rig.port(0).rate_in, None);
    config.ports[0].rate_in = Some(PortRate::Own(packets(50, 1)));
    rig.switch.reload(&config).expect("a reload");
    wait_all_back(&mut source);
    fill(&mut source, 60, 200..400);
    rig.no_drops();
    assert!(rig.switch.stop().is_empty());
}

#[test]
fn packets_to_a_port_beyond_its_rate_are_dropped() {
    let rig = rig(3, |config| {
        config.bridges.push(straightline_testing::bridge(3));
        config.ports[1].rate_out = Some(PortRate::Own(packets(50, 10)));
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sinks = [1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    // A flood: the other port gets all.
    fill(&mut source, 60, 0..200);
    assert_eq!(take(&mut sinks[1], 200).len(), 200);
    wait_until("all packets are counted", || {
        let rate = rig.port(1).rate_out.expect("a limit");
        rate.passed_packets + rate.dropped == 200
    });
    let rate = rig.port(1).rate_out.expect("a limit");
    assert_eq!(rig.drops(1, "rate"), rate.dropped);
    assert!(rate.passed_packets >= 10 && rate.dropped > 0 && !rate.waits, "{rate:?}");
    assert_eq!(take(&mut sinks[0], rate.passed_packets.saturating_as()).len() as u64, rate.passed_packets);
    wait_event(
        &rig.switch,
        "the limit is told",
        |event| matches!(event, EventKind::RateReached { port, key, .. } if port == "p1" && key == "rate-out"),
    );
}

#[test]
fn a_packet_beyond_the_rate_behind_one_that_waits_is_counted_once() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.ports[1].rate_out = Some(PortRate::Own(packets(0, 20)));
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    fill(&mut source, 60, 0..60);
    nothing(&rig.switch, &mut sink);
    assert!(rig.port(0).drops.is_empty() && rig.drops(1, "rate") == 0, "all of them wait for a buffer");
    let mut got = 0;
    for give in [1, 9, 10] {
        sink.give(give);
        got += take(&mut sink, give).len();
    }
    wait_all_back(&mut source);
    rig.wait_drops(1, "rate", 40);
    assert_eq!(got, 20);
    assert!(rig.port(0).drops.is_empty(), "{:?}", rig.port(0).drops);
}

#[test]
fn ports_that_share_a_bucket_are_served_in_turn() {
    let limits = bytes(5_000_000, 20_000);
    let rig = rig(4, |config| {
        config.patches = vec![patch(0, 1), patch(2, 3)];
        // A receiver that is descheduled loses nothing.
        config.patches.iter_mut().for_each(|patch| patch.full = WhenFull::Wait);
        config.rates.push(RateConfig { name: "tenant".to_owned(), limits });
        for port in [0, 2] {
            config.ports[port].rate_in = Some(PortRate::Shared("tenant".to_owned()));
        }
    });
    let mut sources = [0, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    let mut sinks = [1, 3].map(|port| rig.guest(port, &GuestOptions::default()));
    // The time is the subject: a rate is bytes in a time.
    let begin = Instant::now();
    let mut sent = [0_u64; 2];
    let mut got = [0_u64; 2];
    // Both always have packets, of different lengths.
    wait_until("both have sent enough", || {
        for ((source, len), sent) in sources.iter_mut().zip([1000, 300]).zip(&mut sent) {
            source.flush();
            while source.send(&NetHeader::default(), &frame(mac(2), mac(1), len, *sent)) {
                *sent += 1;
            }
            source.flush();
        }
        for (sink, got) in sinks.iter_mut().zip(&mut got) {
            *got += arrived(sink).iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        }
        // The time is read last, so a pause only raises the bound.
        let micros: u64 = begin.elapsed().as_micros().saturating_as();
        let most = 20_000 + 5 * micros + 2 * (5000 + 1000);
        assert!(got[0] + got[1] <= most, "{got:?} of {most}");
        got[0] + got[1] >= 700_000
    });
    let passed = [0, 2].map(|port| rate_in(&rig, port));
    assert!(passed.iter().all(|rate| rate.shared.as_deref() == Some("tenant") && rate.wait_count > 0), "{passed:?}");
    rig.no_drops();
    // One leaves, with packets that wait; the other has the rate alone.
    drop(sources);
    let mut config: Config = rig.switch.config();
    config.ports[2].rate_in = None;
    rig.switch.reload(&config).expect("a reload");
    let mut source = rig.guest(0, &GuestOptions::default());
    fill(&mut source, 1000, 0..100);
    wait_all_back(&mut source);
}

#[test]
fn a_limited_flooder_costs_a_paced_neighbour_nothing() {
    let rig = rig(4, |config| {
        config.patches = vec![patch(0, 1), patch(2, 3)];
        config.ports[0].rate_in = Some(PortRate::Own(bytes(2_000_000, 20_000)));
    });
    let victims = Victims::start(&rig, 2, 3);
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    let mut got = 0;
    let mut sent = 0;
    wait_until("the flood goes on", || {
        source.flush();
        while source.send(&NetHeader::default(), &frame(mac(2), mac(1), 1000, sent)) {
            sent += 1;
        }
        got += arrived(&mut sink).len();
        got >= 400
    });
    assert!(rate_in(&rig, 0).wait_count > 0);
    victims.go_on();
    victims.finish();
}

#[test]
fn a_command_changes_a_limit_until_the_next_reload() {
    let rig = limited(packets(50, 10));
    let file = rig.switch.config();
    let request = |direction: &str, rate: &[&str], burst: &[&str]| {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        rig.switch.set_rate(&RateRequest {
            port: "p0".to_owned(),
            direction: direction.to_owned(),
            rate: texts(rate),
            burst: texts(burst),
        })
    };
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    fill(&mut source, 60, 0..200);
    let set = request("in", &["1 Gbit/s", "1M packet/s"], &[]).expect("a rate");
    assert_eq!((set.before.as_str(), set.now.as_str()), ("50 packet/s", "1 Gbit/s, 1M packet/s"));
    assert!(set.until_reload);
    assert_eq!(take(&mut sink, 200).len(), 200);
    let rate = rate_in(&rig, 0);
    assert_eq!((rate.owner.as_str(), rate.limit.as_str()), ("api", "1 Gbit/s, 1M packet/s"));
    assert_eq!((rate.burst_bytes, rate.burst_packets), (Some(500_000), Some(4000)));
    request("out", &["100 Mbit/s"], &["1 MB"]).expect("a rate");
    assert_eq!(rig.port(0).rate_out.and_then(|rate| rate.burst_bytes), Some(1_000_000));
    request("out", &["off"], &[]).expect("no rate");
    assert_eq!(rig.port(0).rate_out, None);
    wait_event(&rig.switch, "it is told", |event| matches!(event, EventKind::RateSet { .. }));
    for (rate, burst, words) in [
        (&["1 bit/s"][..], &[][..], "too low"),
        (&["fast"], &[], "not a rate"),
        (&["1 Gbit/s", "2 Gbit/s"], &[], "a second value"),
        (&["1 Gbit/s"], &["1 B"], "the longest frame"),
        (&["1 Gbit/s"], &["9 packet"], "no rate is in packets"),
    ] {
        let refusal = request("in", rate, burst).expect_err("no such rate");
        assert!(refusal.error.contains(words), "{refusal:?}");
    }
    let unknown =
        RateRequest { port: "p7".to_owned(), direction: "in".to_owned(), rate: Vec::new(), burst: Vec::new() };
    assert_eq!(rig.switch.set_rate(&unknown).expect_err("no such port").code, ErrorCode::UnknownPort);
    assert_eq!(rate_in(&rig, 0).limit, "1 Gbit/s, 1M packet/s");
    // The file wins.
    let changes = rig.switch.reload(&file).expect("a reload").changes;
    assert_eq!(
        changes[0].to_string(),
        "port \"p0\" changed: rate-in 1 Gbit/s, 1M packet/s (set by a command) is now 50 packet/s"
    );
    let rate = rate_in(&rig, 0);
    assert_eq!((rate.owner.as_str(), rate.limit.as_str()), ("file", "50 packet/s"));
}
