//! Limits while ports, workers and members come and go.

use std::time::Instant;

use az::SaturatingAs;
use straightline_config::{Config, PortRate, RateConfig, WhenFull};
use straightline_graph::{Limit, RateLimits};
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::PortRate as RateStatus;
use straightline_testing::flows::{PAIRS, Traffic, options};
use straightline_testing::{BASIC, Rig, arrived, frame, mac, patch, rig, take, vhost_user, wait_all_back, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

fn bytes(per_second: u64, burst: u64) -> RateLimits {
    RateLimits { bytes: Some(Limit { per_second, burst }), packets: None }
}

/// Limits in packets.
fn packets(per_second: u64, burst: u64) -> RateLimits {
    RateLimits { bytes: None, packets: Some(Limit { per_second, burst }) }
}

fn rate_in(rig: &Rig, port: usize) -> RateStatus {
    rig.port(port).rate_in.expect("a limit")
}

fn fill(guest: &mut Guest, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(guest.send(&NetHeader::default(), &frame(mac(2), mac(1), 60, n)), "a buffer for packet {n}");
    }
    guest.flush();
}

/// A guest leaves while packets wait. It goes on at the same port, or at another one that has no limit,
/// as after a migration: each packet arrives once.
#[test]
fn packets_that_wait_go_on_at_the_next_connection() {
    for (layout, next) in [(BASIC | f::VIRTIO_F_EVENT_IDX, 0), (BASIC | f::VIRTIO_F_RING_PACKED, 2)] {
        let rig = rig(4, |config| {
            config.patches = vec![patch(0, 1), patch(2, 3)];
            config.ports[0].rate_in = Some(PortRate::Own(packets(500, 10)));
        });
        let mut source = rig.guest(0, &GuestOptions { features: layout, ..GuestOptions::default() });
        let mut sinks = [1, 3].map(|port| rig.guest(port, &GuestOptions::default()));
        fill(&mut source, 0..100);
        let mut got = Vec::new();
        wait_until("some have passed", || {
            got.extend(arrived(&mut sinks[0]));
            got.len() >= 10
        });
        // The old backend gives back what it has taken, and no more than that.
        source.stop().expect("the rings stop");
        source.flush();
        source.reconnect(rig.socket(next)).expect("a connection");
        wait_until("the others pass", || {
            sinks.iter_mut().for_each(|sink| got.extend(arrived(sink)));
            got.len() >= 100
        });
        let in_order = (0..).zip(&got).all(|(n, (_, got))| *got == frame(mac(2), mac(1), 60, n));
        assert!(in_order && got.len() == 100, "{} packets", got.len());
        rig.no_drops();
    }
}

/// Two ports with a bucket for both, on a worker each. They always have packets.
fn shared_by_two_workers(limits: RateLimits) -> Rig {
    let rig = rig(4, |config| {
        config.switch.workers = vec![0, 1];
        config.patches = vec![patch(0, 1), patch(3, 2)];
        // A receiver that is descheduled loses nothing.
        config.patches.iter_mut().for_each(|patch| patch.full = WhenFull::Wait);
        config.rates.push(RateConfig { name: "tenant".to_owned(), limits });
        for port in [0, 2] {
            config.ports[port].rate_in = Some(PortRate::Shared("tenant".to_owned()));
        }
    });
    let worker = |port: usize| rig.port(port).queues[0].rx_worker;
    assert_ne!(worker(0), worker(2), "one bucket of two workers");
    rig
}

#[test]
fn two_workers_exceed_a_bucket_by_a_quantum_each() {
    const QUANTUM: u64 = 5000;
    let rig = shared_by_two_workers(bytes(5_000_000, 20_000));
    let mut sources = [0, 2].map(|port| rig.guest(port, &GuestOptions::default()));
    let mut sinks = [1, 3].map(|port| rig.guest(port, &GuestOptions::default()));
    // The time is the subject: a rate is bytes in a time.
    let begin = Instant::now();
    let mut got = [0_u64; 2];
    wait_until("both have sent enough", || {
        for source in &mut sources {
            source.flush();
            while source.send(&NetHeader::default(), &frame(mac(2), mac(1), 1000, 0)) {}
            source.flush();
        }
        for (sink, got) in sinks.iter_mut().zip(&mut got) {
            *got += arrived(sink).iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        }
        // The time is read last, so a pause only raises the bound.
        let micros: u64 = begin.elapsed().as_micros().saturating_as();
        let most = 20_000 + 5 * micros + 2 * (QUANTUM + 1000);
        assert!(got[0] + got[1] <= most, "{got:?} of {most}");
        got[0] + got[1] >= 500_000
    });
    assert!([0, 2].iter().all(|&port| rate_in(&rig, port).wait_count > 0), "both have waited");
    rig.no_drops();
}

/// A port with queue pairs on two workers has one bucket, and no flow loses a packet.
#[test]
fn queue_pairs_of_two_workers_share_the_limit_of_their_port() {
    let limits = packets(20_000, 64);
    let rig = rig(2, |config| {
        config.switch.workers = vec![0, 1];
        config.ports.iter_mut().for_each(|port| vhost_user(port).queues = Some(PAIRS));
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.ports[0].rate_in = Some(PortRate::Own(limits));
    });
    let mut source = rig.guest(0, &options(PAIRS, false));
    let mut sink = rig.guest(1, &options(PAIRS, false));
    // The time is the subject: a rate is packets in a time.
    let begin = Instant::now();
    let mut traffic = Traffic::default();
    // More than the burst come at once, so some wait.
    for _ in 0..200 {
        assert!(traffic.send(&mut source, 0));
    }
    traffic.run(&mut source, &mut sink, 3800);
    // The time is read last, so a pause only raises the bound.
    let millis: u64 = begin.elapsed().as_millis().saturating_as();
    wait_until("all packets are counted", || rate_in(&rig, 0).passed_packets == 4000);
    let rate = rate_in(&rig, 0);
    let most = 64 + 20 * (millis + 1) + 2 * (20 + 1);
    assert!(rate.passed_packets <= most && rate.wait_count > 0, "{rate:?}, at most {most}");
    traffic.check_counters(&rig);
    rig.no_drops();
}

/// Members of a bucket vanish while their packets wait: one guest leaves, one port is removed, one gets
/// a limit of its own. The last one has the rate alone.
#[test]
fn a_bucket_outlives_members_that_wait() {
    let rig = rig(8, |config| {
        config.switch.workers = vec![0, 1];
        config.patches = (0..4).map(|n| patch(2 * n, 2 * n + 1)).collect();
        config.rates.push(RateConfig { name: "tenant".to_owned(), limits: packets(50, 4) });
        for port in [0, 2, 4, 6] {
            config.ports[port].rate_in = Some(PortRate::Shared("tenant".to_owned()));
        }
    });
    let mut guests = [0, 2, 4, 6].map(|port| Some(rig.guest(port, &GuestOptions::default())));
    let mut sinks = [1, 3, 5, 7].map(|port| rig.guest(port, &GuestOptions::default()));
    guests.iter_mut().flatten().for_each(|guest| fill(guest, 0..200));
    wait_until("all wait", || [0, 2, 4, 6].iter().all(|&port| rate_in(&rig, port).passed_packets > 0));
    guests[0] = None;
    let reload = |change: &dyn Fn(&mut Config)| {
        let mut config = rig.switch.config();
        change(&mut config);
        rig.switch.reload(&config).expect("a reload");
    };
    reload(&|config| {
        config.patches.remove(1);
        config.ports.retain(|port| port.name != "p2");
    });
    reload(&|config| {
        let port = config.ports.iter_mut().find(|port| port.name == "p4").expect("a port");
        port.rate_in = Some(PortRate::Own(packets(1_000_000, 1000)));
    });
    // Those of the port with the other limit pass at once.
    wait_all_back(guests[2].as_mut().expect("a guest"));
    // The last member goes on, and the bucket keeps its tokens over another limit.
    reload(&|config| config.rates[0].limits = packets(100_000, 100));
    let mut got = 0;
    wait_until("the last member's packets pass", || {
        got += arrived(&mut sinks[3]).len();
        got == 200
    });
    let tables = rig.switch.source().tables().tables;
    let bucket = tables.iter().find(|table| table.table == "rate:tenant").expect("the bucket");
    assert_eq!(bucket.counters.get("members"), Some(&2), "those of the ports p0 and p6");
    // A new guest at the first port is served.
    let mut guest = rig.guest(0, &GuestOptions::default());
    arrived(&mut sinks[0]);
    fill(&mut guest, 0..50);
    assert_eq!(take(&mut sinks[0], 50).len(), 50);
}
