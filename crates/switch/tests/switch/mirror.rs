//! A port that receives copies of what others send and receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use straightline_config::{Config, Machine, NodeConfig, SourceCheckConfig, WhenFull};
use straightline_graph::{Next, Node};
use straightline_guest::{Guest, GuestOptions, Sequence, Stream};
use straightline_nodes::MacPrefix;
use straightline_packet::{Batch, Packets, Reason};
use straightline_testing::flows::{self, PAIRS, Traffic};
use straightline_testing::packets::{Kind, NEEDS_CSUM, check, partial, segmented};
use straightline_testing::{
    BASIC, BROADCAST, Rig, Victims, arrived, bridge, frame, mac, noise, nothing, nothing_at, patch, rig, send, take,
    vhost_user, wait_all_back, wait_until,
};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

/// A mirror to the port `pN`, as a file describes it.
fn named(name: &str, port: usize) -> NodeConfig {
    let text = format!(
        "[port.p{port}]\nkind = \"vhost-user\"\nsocket = \"/tmp/p\"\n\
         [node.{name}]\nkind = \"mirror\"\nto = \"p{port}\"\n"
    );
    Config::parse("mirror.toml", &text, &Machine::this()).expect("a good file").config.nodes.remove(0)
}

/// The node `m`, a mirror to the port `pN`.
fn mirror(port: usize) -> NodeConfig {
    named("m", port)
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A patch of `p0` and `p1`, with a mirror to `p2` in these lists of `p0`.
fn mirrored(nodes: &[&str], egress: &[&str], full: WhenFull) -> Rig {
    rig(3, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = full;
        config.nodes.push(mirror(2));
        config.ports[0].nodes = list(nodes);
        config.ports[0].egress_nodes = list(egress);
    })
}

fn guests<const N: usize>(rig: &Rig) -> [Guest; N] {
    std::array::from_fn(|port| rig.guest(port, &GuestOptions::default()))
}

/// A guest that can hold more packets than a turn has.
fn deep() -> GuestOptions {
    GuestOptions { ring_size: 1024, ..GuestOptions::default() }
}

fn reload(rig: &Rig, change: impl FnOnce(&mut Config)) {
    let mut config = rig.switch.config();
    change(&mut config);
    rig.switch.reload(&config).expect("a reload");
}

#[test]
fn nodes_copies_what_enters_and_egress_nodes_what_leaves() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        for (nodes, egress, entered, left) in [(&["m"][..], &[][..], 1, 0), (&[], &["m"], 0, 1), (&["m"], &["m"], 1, 1)]
        {
            let rig = mirrored(nodes, egress, full);
            let [mut first, mut second, mut watcher] = guests(&rig);
            let [there, back] = [frame(mac(2), mac(1), 900, 1), frame(mac(1), mac(2), 1400, 2)];
            send(&mut first, &there);
            assert_eq!(take(&mut second, 1)[0].1, there);
            assert!(take(&mut watcher, entered).iter().all(|(_, bytes)| *bytes == there));
            nothing(&rig.switch, &mut watcher);
            send(&mut second, &back);
            assert_eq!(take(&mut first, 1)[0].1, back);
            assert!(take(&mut watcher, left).iter().all(|(_, bytes)| *bytes == back));
            nothing(&rig.switch, &mut watcher);
            rig.no_drops();
            // What the mirror's own guest sends goes nowhere.
            send(&mut watcher, &there);
            rig.wait_drops(2, "not-connected", 1);
            nothing(&rig.switch, &mut first);
            nothing(&rig.switch, &mut second);
        }
    }
}

/// Writes a byte behind the addresses of every packet.
#[derive(Clone)]
struct Stamp(u8);

impl Node for Stamp {
    fn process(&mut self, turn: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        batch.ids().iter().for_each(|&id| turn.head_mut(id)[14] = self.0);
        next.extend(0, batch.ids());
    }
}

#[test]
fn a_copy_is_what_the_packet_was_at_its_mirror() {
    // With `wait`, copies are made when all nodes have seen the packet.
    for (full, seen) in [(WhenFull::Drop, [1, 3]), (WhenFull::Wait, [4, 4])] {
        let rig = rig(3, |config| {
            config.patches.push(patch(0, 1));
            config.patches[0].full = full;
            config.nodes.push(mirror(2));
            config.nodes.extend((1..=4).map(|n| NodeConfig::new(format!("s{n}"), "stamp", Stamp(n))));
            config.ports[0].nodes = list(&["s1", "m", "s2"]);
            config.ports[1].egress_nodes = list(&["s3", "m", "s4"]);
        });
        let [mut source, mut sink, mut watcher] = guests(&rig);
        send(&mut source, &frame(mac(2), mac(1), 900, 1));
        let stamped = |n: u8| {
            let mut frame = frame(mac(2), mac(1), 900, 1);
            frame[14] = n;
            frame
        };
        assert_eq!(take(&mut sink, 1)[0].1, stamped(4));
        for ((_, bytes), n) in take(&mut watcher, 2).into_iter().zip(seen) {
            assert_eq!(bytes, stamped(n));
        }
        rig.no_drops();
    }
}

#[test]
fn a_flooded_packet_is_copied_for_each_mirrored_port() {
    let rig = rig(4, |config| {
        config.bridges.push(bridge(3));
        config.nodes.push(mirror(3));
        for port in 0..3 {
            config.ports[port].egress_nodes = list(&["m"]);
        }
        config.ports[0].nodes = list(&["m"]);
    });
    let [mut source, mut first, mut second] = [0, 1, 2].map(|port| rig.guest(port, &deep()));
    let mut watcher = rig.guest(3, &deep());
    // A turn full of packets, three copies of each.
    for n in 0..250 {
        assert!(source.send(&NetHeader::default(), &frame(BROADCAST, mac(1), 60, n)));
    }
    source.flush();
    for sink in [&mut first, &mut second] {
        assert!((0..).zip(take(sink, 250)).all(|(n, (_, bytes))| bytes == frame(BROADCAST, mac(1), 60, n)));
    }
    let mut copies = [0; 250];
    for (_, bytes) in take(&mut watcher, 750) {
        let n = (0..250).find(|&n| bytes == frame(BROADCAST, mac(1), 60, n)).expect("one of them");
        copies[usize::try_from(n).expect("small")] += 1;
    }
    assert_eq!(copies, [3; 250]);
    // Packets to one port whose address is known, and back from a port without a mirror.
    send(&mut first, &frame(mac(1), mac(2), 60, 1));
    take(&mut source, 1);
    assert_eq!(take(&mut watcher, 1)[0].1, frame(mac(1), mac(2), 60, 1));
    nothing(&rig.switch, &mut watcher);
    rig.no_drops();
}

#[test]
fn a_mirror_that_is_full_or_down_costs_the_traffic_nothing() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        let rig = mirrored(&["m"], &[], full);
        let [mut source, mut sink] = guests(&rig);
        for n in 0..20 {
            send(&mut source, &frame(mac(2), mac(1), 700, n));
        }
        take(&mut sink, 20);
        rig.wait_drops(2, "link-down", 20);
        let mut watcher = rig.guest(2, &GuestOptions { withhold: true, ..GuestOptions::default() });
        watcher.give(5);
        for n in 20..60 {
            send(&mut source, &frame(mac(2), mac(1), 700, n));
        }
        assert!((20..).zip(take(&mut sink, 40)).all(|(n, (_, bytes))| bytes == frame(mac(2), mac(1), 700, n)));
        rig.wait_drops(2, "no-buffer", 35);
        assert!((20..).zip(take(&mut watcher, 5)).all(|(n, (_, bytes))| bytes == frame(mac(2), mac(1), 700, n)));
        assert!(rig.port(0).drops.is_empty() && rig.port(1).drops.is_empty());
        wait_all_back(&mut source);
    }
}

/// Drops every third packet, by the number in it.
#[derive(Clone)]
struct DropThird(Arc<AtomicU64>);

impl Node for DropThird {
    fn process(&mut self, turn: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            self.0.fetch_add(1, Ordering::Relaxed);
            if turn.head(id)[14] % 3 == 1 {
                turn.discard(id, Reason::Node);
            } else {
                next.push(0, id);
            }
        }
    }
}

/// Packets that wait in their ring pass the mirrors again and again, and so do those that a node
/// has dropped behind them.
#[test]
fn with_wait_each_packet_is_copied_once_when_it_leaves_its_ring() {
    let passed = Arc::new(AtomicU64::new(0));
    let rig = rig(4, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.nodes.push(mirror(2));
        config.nodes.push(named("e", 3));
        config.nodes.push(NodeConfig::new("third", "third", DropThird(Arc::clone(&passed))));
        config.ports[0].nodes = list(&["m", "third"]);
        config.ports[1].egress_nodes = list(&["e"]);
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let mut entered = rig.guest(2, &deep());
    let mut left = rig.guest(3, &deep());
    let numbered = |n: u8| {
        let mut frame = frame(mac(2), mac(1), 700, n.into());
        frame[14] = n;
        frame
    };
    for n in 0..201 {
        assert!(source.send(&NetHeader::default(), &numbered(n)));
    }
    source.flush();
    wait_until("they have passed", || passed.load(Ordering::Relaxed) >= 201);
    nothing(&rig.switch, &mut sink);
    nothing(&rig.switch, &mut entered);
    nothing(&rig.switch, &mut left);
    let mut next_entered = 0;
    let mut next_left = 0;
    for give in [1, 1, 1, 5, 20, 1, 105] {
        sink.give(give);
        let got = take(&mut sink, give);
        let copies = take(&mut left, give);
        for ((_, bytes), (_, copy)) in got.iter().zip(copies) {
            assert_eq!(*bytes, copy);
            assert_eq!(bytes[14], next_left);
            next_left += if next_left % 3 == 0 { 2 } else { 1 };
        }
        nothing(&rig.switch, &mut left);
        // The mirror before the node also copies packets that the node drops, up to the next packet
        // that waits.
        for (_, bytes) in take(&mut entered, usize::from(next_left - next_entered)) {
            assert_eq!(bytes, numbered(next_entered));
            next_entered += 1;
        }
        nothing(&rig.switch, &mut entered);
    }
    assert_eq!((next_entered, next_left), (201, 201));
    assert!(passed.load(Ordering::Relaxed) > 300, "they passed more than once");
    rig.wait_drops(0, "node", 67);
    assert!([1, 2, 3].iter().all(|&port| rig.port(port).drops.is_empty()));
}

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 =
    f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;

/// A packet that this guest takes: its headers as sent and unfinished, or its segments or its
/// checksum finished.
fn receives(guest: &mut Guest, kind: Kind, header: &NetHeader, payload: &[u8]) {
    let takes_partial = guest.features() & f::VIRTIO_NET_F_GUEST_CSUM != 0;
    let takes_segments = guest.features() & f::VIRTIO_NET_F_GUEST_TSO4 != 0;
    let size = if header.gso_size == 0 || takes_segments { payload.len() } else { header.gso_size.into() };
    let mut seen = Vec::new();
    for (told, bytes) in take(guest, payload.len().div_ceil(size)) {
        let gso = if takes_segments { (header.gso_type, header.gso_size) } else { (0, 0) };
        assert_eq!((told.gso_type, told.gso_size), gso, "{kind:?}");
        assert_eq!(told.flags, if takes_partial { NEEDS_CSUM } else { 0 });
        seen.extend(check(&bytes, takes_partial).payload);
    }
    assert!(seen == payload, "{kind:?}");
}

/// Whatever the sink and the mirror's guest agreed on, each gets the packet as it takes it.
#[test]
fn every_guest_gets_what_it_takes() {
    let options = |features: u64| GuestOptions {
        features: BASIC | f::VIRTIO_NET_F_MRG_RXBUF | features,
        buffer_len: 65_600,
        ring_size: 128,
        ..GuestOptions::default()
    };
    for is_checked in [false, true] {
        let rig = rig(3, |config| {
            config.patches.push(patch(0, 1));
            config.nodes.push(mirror(2));
            if is_checked {
                config.ports[0].nodes = list(&["m"]);
            } else {
                config.ports[1].egress_nodes = list(&["m"]);
            }
            let macs = vec![MacPrefix::exact(mac(1))];
            config.ports[0].source_check = is_checked.then_some(SourceCheckConfig { macs, ips: None });
        });
        let mut source = rig.guest(0, &options(CSUM | TSO));
        for (of_sink, of_watcher) in
            [0, CSUM, CSUM | TSO].into_iter().flat_map(|a| [0, CSUM, CSUM | TSO].map(|b| (a, b)))
        {
            let mut sink = rig.guest(1, &options(of_sink));
            let mut watcher = rig.guest(2, &options(of_watcher));
            for kind in [Kind::Tcp4, Kind::Tcp6] {
                let payload = noise(7, 1400);
                let (header, bytes) = partial(kind, mac(2), mac(1), &payload);
                assert!(source.send(&header, &bytes));
                source.flush();
                receives(&mut sink, kind, &header, &payload);
                receives(&mut watcher, kind, &header, &payload);
                for (len, size) in [(60_000, 1400), (3000, 1000)] {
                    let payload = noise(8, len);
                    let (header, bytes) = segmented(kind, mac(2), mac(1), &payload, size);
                    assert!(source.send(&header, &bytes));
                    source.flush();
                    receives(&mut sink, kind, &header, &payload);
                    receives(&mut watcher, kind, &header, &payload);
                }
            }
            let spoofed = rig.drops(0, "spoofed");
            if is_checked {
                send(&mut source, &frame(mac(2), mac(9), 60, 1));
                rig.wait_drops(0, "spoofed", spoofed + 1);
            }
            nothing(&rig.switch, &mut sink);
            nothing(&rig.switch, &mut watcher);
            assert!(rig.port(1).drops.is_empty() && rig.port(2).drops.is_empty());
        }
    }
}

#[test]
fn workers_of_both_directions_copy_to_one_port() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        let rig = rig(3, |config| {
            config.switch.workers = vec![0, 1];
            config.patches.push(patch(0, 1));
            config.patches[0].full = full;
            config.nodes.push(mirror(2));
            config.ports[0].nodes = list(&["m"]);
            config.ports[0].egress_nodes = list(&["m"]);
        });
        let mut ends: [Guest; 2] = guests(&rig);
        let mut watcher = rig.guest(2, &deep());
        let mut streams = [(0, 1), (1, 0)].map(|(from, to)| {
            Stream::prepare(&mut ends[usize::from(from)], mac(from), mac(to), &[60, 1514, 566]).expect("a stream")
        });
        let mut seen = [Sequence::default(), Sequence::default()];
        let mut copies = 0;
        wait_until("all have arrived", || {
            for (at, guest) in ends.iter_mut().enumerate() {
                let stream = &mut streams[at];
                let other = &mut seen[1 - at];
                while stream.sent() < 3000 && stream.sent() - other.packets < 64 && stream.send(guest) {}
                guest.flush();
                let level = guest.level();
                guest.receive(64, |_, pieces| seen[at].note(level, pieces));
            }
            watcher.receive(usize::MAX, |_, _| copies += 1);
            copies == 6000 && seen.iter().all(|seen| seen.packets == 3000)
        });
        assert!(seen.iter().all(|seen| (seen.lost(3000), seen.late) == (0, 0)));
        let nodes = rig.switch.source().runtime().nodes;
        for worker in [0, 1] {
            let delivered = nodes.iter().filter(|node| node.worker == Some(worker) && node.name == "p2-tx");
            assert_eq!(delivered.map(|node| node.packets).sum::<u64>(), 3000, "{nodes:?}");
        }
        nothing(&rig.switch, &mut watcher);
        rig.no_drops();
    }
}

/// Several queue pairs everywhere: each flow stays in order at the mirror's port too.
#[test]
fn flows_stay_in_order_at_a_mirror() {
    let rig = rig(3, |config| {
        config.switch.workers = vec![0, 1];
        for port in &mut config.ports {
            vhost_user(port).queues = Some(PAIRS);
        }
        config.patches.push(patch(0, 1));
        config.nodes.push(mirror(2));
        config.ports[0].nodes = list(&["m"]);
    });
    let (mut source, mut sink) =
        (rig.guest(0, &flows::options(PAIRS, false)), rig.guest(1, &flows::options(PAIRS, false)));
    let mut watcher = rig.guest(2, &GuestOptions { ring_size: 1024, ..flows::options(PAIRS, false) });
    let mut traffic = Traffic::default();
    let mut next = std::collections::BTreeMap::new();
    let mut copies = 0;
    for _ in 0..20 {
        traffic.run(&mut source, &mut sink, 200);
        copies += 200;
        let mut got = 0;
        let all: u64 = next.values().sum();
        wait_until("the copies have arrived", || {
            for pair in watcher.pairs() {
                for (flow, number) in flows::collect(pair) {
                    let expected: &mut u64 = next.entry(flow).or_default();
                    assert_eq!(number, *expected, "flow {flow}");
                    *expected += 1;
                    got += 1;
                }
            }
            all + got == copies
        });
    }
    rig.no_drops();
}

#[test]
fn mirrors_come_and_go_at_reloads_and_nothing_is_lost() {
    for full in [WhenFull::Drop, WhenFull::Wait] {
        let rig = rig(6, |config| {
            config.switch.workers = vec![0, 1];
            config.patches.push(patch(0, 1));
            config.patches[0].full = full;
            config.patches.push(patch(2, 3));
        });
        let mut watchers = [4, 5].map(|port| rig.guest(port, &deep()));
        let victims = Victims::start(&rig, 0, 1);
        let mut others = [2, 3].map(|port| rig.guest(port, &GuestOptions::default()));
        for round in 0..10 {
            reload(&rig, |config| {
                config.nodes = vec![mirror(4 + round % 2)];
                config.ports[0].nodes = list(&["m"]);
                config.ports[1].egress_nodes = if round % 3 == 0 { list(&["m"]) } else { Vec::new() };
            });
            for watcher in &mut watchers {
                arrived(watcher);
            }
            victims.go_on();
            assert!(!arrived(&mut watchers[round % 2]).is_empty());
            assert!(arrived(&mut watchers[1 - round % 2]).is_empty());
            // A second patch, of another worker, has it too.
            reload(&rig, |config| config.ports[3].egress_nodes = list(&["m"]));
            victims.go_on();
            let packet = frame(mac(3), mac(2), 800, 1);
            // Its ring may be full of the other patch's copies.
            wait_until("a copy has arrived", || {
                send(&mut others[0], &packet);
                arrived(&mut others[1]);
                arrived(&mut watchers[round % 2]).iter().any(|(_, bytes)| *bytes == packet)
            });
            reload(&rig, |config| {
                config.nodes.clear();
                for port in &mut config.ports {
                    port.nodes.clear();
                    port.egress_nodes.clear();
                }
            });
            watchers.iter_mut().for_each(|watcher| drop(arrived(watcher)));
            victims.go_on();
            nothing_at(&rig.switch, &mut watchers);
        }
        victims.finish();
        for port in 0..4 {
            assert!(rig.port(port).drops.is_empty(), "{:?}", rig.port(port));
        }
    }
}

#[test]
fn a_mirror_goes_on_with_its_port_when_that_is_made_anew() {
    let rig = mirrored(&["m"], &[], WhenFull::Drop);
    let [mut source, mut sink, watcher] = guests(&rig);
    reload(&rig, |config| config.ports[2].mtu = 9000);
    drop(watcher);
    let mut watcher = rig.guest(2, &GuestOptions::default());
    send(&mut source, &frame(mac(2), mac(1), 60, 1));
    take(&mut sink, 1);
    assert_eq!(take(&mut watcher, 1)[0].1, frame(mac(2), mac(1), 60, 1));
    rig.no_drops();
}
