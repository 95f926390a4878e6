use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{DropCount, Queue};

fn port(name: &str, packets: u64, bytes: u64) -> Port {
    let rx = Packets { packets, bytes };
    let queues = vec![Queue { rx, ..Queue::default() }, Queue { index: 1, rx, tx: rx, ..Queue::default() }];
    Port { name: name.to_owned(), queues, ..Port::default() }
}

fn worker(times: [f64; 4]) -> Worker {
    let [busy_s, empty_poll_s, idle_s, unexplained_s] = times;
    Worker { busy_s, empty_poll_s, idle_s, unexplained_s, ..Worker::default() }
}

/// Returns a sample of a switch that started at 1000 s, with these ports.
fn sample(time: f64, ports: Vec<Port>) -> Sample {
    let status = Status { uptime_s: time - 1000.0, ..Status::default() };
    Sample {
        status: Timed { time, answer: status },
        ports: Timed { time, answer: Ports { ports } },
        runtime: Timed { time, answer: Runtime::default() },
        drops: Timed { time, answer: Drops::default() },
    }
}

fn drop_count(count: u64) -> DropCount {
    DropCount { port: "a".to_owned(), reason: "too-big".to_owned(), count, ..DropCount::default() }
}

#[test]
fn rates_are_per_second_of_the_answers() {
    let mut before = sample(1010.0, vec![port("a", 100, 1000)]);
    let mut now = sample(1012.0, vec![port("a", 300, 2000)]);
    before.ports.answer.ports[0].drops.insert("too-big".to_owned(), 10);
    now.ports.answer.ports[0].drops = [("too-big".to_owned(), 14), ("no-buffer".to_owned(), 2)].into();
    now.drops.answer.drops.push(drop_count(14));
    before.runtime.answer.workers.push(worker([1.0, 2.0, 3.0, 0.5]));
    now.runtime.answer.workers.push(worker([1.5, 3.0, 3.5, 0.5]));
    before.runtime.answer.nodes.push(Node::new("patch", 10, 100, 1000));
    now.runtime.answer.nodes.push(Node::new("patch", 20, 300, 5000));
    let rates = Rates::between(&before, &now);
    assert_eq!(rates.interval_s, Some(2.0));
    // Two queues receive, one delivers.
    assert_eq!(rates.ports[0].rx, Some(Flow { packets_per_s: 200.0, bits_per_s: 8000.0 }));
    assert_eq!(rates.ports[0].tx, Some(Flow { packets_per_s: 100.0, bits_per_s: 4000.0 }));
    assert_eq!(rates.ports[0].drops_per_s, Some(3.0));
    assert_eq!(rates.total.drops_per_s, 3.0);
    assert_eq!(rates.drops[0].per_s, Some(7.0));
    assert_eq!(rates.workers[0].shares.unwrap().as_array(), [0.25, 0.5, 0.25, 0.0]);
    let node = &rates.nodes[0];
    assert_eq!((node.packets_per_s, node.cycles_per_s), (Some(100.0), Some(2000.0)));
    assert_eq!((node.packets_per_call, node.cycles_per_packet), (Some(20.0), Some(20.0)));
}

#[test]
fn the_packets_of_tunnels_count_once() {
    let tunnel = |packets, bytes| Port { tunnel: Some(crate::Tunnel::default()), ..port("t1", packets, bytes) };
    let before = sample(1010.0, vec![port("vm1", 100, 1000), tunnel(100, 1000), port("wan", 100, 1500)]);
    let mut now = sample(1011.0, vec![port("vm1", 110, 2000), tunnel(110, 2000), port("wan", 110, 3000)]);
    now.ports.answer.ports[1].drops = [("tunnel-cookie".to_owned(), 4)].into();
    let rates = Rates::between(&before, &now);
    assert!(rates.ports[1].is_tunnel && rates.ports[1].tx == rates.ports[0].tx, "{rates:?}");
    // Those of vm1, and those of the underlay with their outer headers.
    assert_eq!(rates.total.tx, Flow { packets_per_s: 20.0, bits_per_s: 8.0 * 2500.0 });
    assert_eq!(rates.total.rx.packets_per_s, 40.0);
    assert_eq!((rates.total.ports, rates.total.drops_per_s), (3, 4.0));
}

#[test]
fn a_restart_leaves_no_rate() {
    let before = sample(1010.0, vec![port("a", 100, 1000)]);
    let mut now = sample(1012.0, vec![port("a", 300, 2000)]);
    now.status.answer.uptime_s = 0.5;
    now.drops.answer.drops.push(drop_count(14));
    let rates = Rates::between(&before, &now);
    assert_eq!((rates.interval_s, rates.ports[0].rx, rates.ports[0].drops_per_s), (None, None, None));
    assert_eq!((rates.drops[0].per_s, rates.drops[0].count), (None, 14));
}

#[test]
fn new_ports_and_counters_that_go_back_have_no_rate() {
    let before = sample(1010.0, vec![port("a", 100, 1000), port("b", 5, 5), port("c", 9, 9)]);
    let now = sample(1011.0, vec![port("new", 300, 2000), port("b", 4, 500), port("c", 10, 9)]);
    let rates = Rates::between(&before, &now);
    assert_eq!((rates.ports[0].rx, rates.ports[1].rx), (None, None));
    assert_eq!(rates.ports[2].rx, Some(Flow { packets_per_s: 2.0, bits_per_s: 0.0 }));
    assert_eq!(rates.total.rx, rates.ports[2].rx.unwrap());
    assert_eq!(rates.ports.len(), 3);
}

#[test]
fn without_time_there_is_no_rate() {
    let sample = sample(1010.0, vec![port("a", 100, 1000)]);
    let rates = Rates::between(&sample, &sample);
    assert_eq!((rates.interval_s, rates.ports[0].rx), (None, None));
}

#[test]
fn json_has_no_place_for_a_number_that_is_not_finite() {
    let rates = Rates::first(&sample(1010.0, vec![port("a", 1, 1)]));
    let json = serde_json::to_string(&rates).unwrap();
    assert!(json.contains("\"rx\":null") && json.contains("\"total\":{\"ports\":1"), "{json}");
}

prop_compose! {
    fn any_sample()(
        start in 0.0_f64..4.0,
        time in 1000.0_f64..1004.0,
        ports in vec(("[a-d]", any::<u64>(), any::<u64>(), any::<u64>()), 0..6),
        workers in vec(prop::array::uniform4(any::<f64>()), 0..4),
        nodes in vec(("[a-d]", any::<u64>(), any::<u64>(), any::<u64>()), 0..6),
    ) -> Sample {
        let port = |(name, packets, bytes, drops): &(String, u64, u64, u64)| Port {
            drops: [("too-big".to_owned(), *drops)].into(),
            ..port(name, *packets, *bytes)
        };
        let mut sample = sample(time, ports.iter().map(port).collect());
        sample.status.answer.uptime_s = time - start;
        let node = |(name, calls, packets, cycles): &(String, u64, u64, u64)| Node::new(name, *calls, *packets, *cycles);
        sample.drops.answer.drops = ports.iter().map(|port| drop_count(port.3)).collect();
        sample.runtime.answer = Runtime {
            workers: workers.into_iter().map(worker).collect(),
            nodes: nodes.iter().map(node).collect(),
            cleared: None,
        };
        sample
    }
}

proptest! {
    #[test]
    fn no_rate_is_negative_or_infinite_and_shares_add_up(before in any_sample(), now in any_sample()) {
        let rates = Rates::between(&before, &now);
        let mut all = vec![rates.total.drops_per_s];
        let flow = |flow: Flow| [flow.packets_per_s, flow.bits_per_s];
        for port in &rates.ports {
            all.extend(port.drops_per_s);
            all.extend(port.rx.into_iter().chain(port.tx).flat_map(flow));
        }
        all.extend([rates.total.rx, rates.total.tx].into_iter().flat_map(flow));
        all.extend(rates.drops.iter().filter_map(|row| row.per_s));
        for node in &rates.nodes {
            let of = [node.packets_per_s, node.cycles_per_s, node.packets_per_call, node.cycles_per_packet];
            all.extend(of.into_iter().flatten());
        }
        for rate in all {
            prop_assert!(rate.is_finite() && rate >= 0.0, "{rate}");
        }
        for shares in rates.workers.iter().filter_map(|worker| worker.shares) {
            let shares = shares.as_array();
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
        }
        let received: f64 = rates.ports.iter().filter_map(|port| port.rx).map(|rx| rx.packets_per_s).sum();
        prop_assert!((received - rates.total.rx.packets_per_s).abs() <= 1e-9 * received);
    }
}
