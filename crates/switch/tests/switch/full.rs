//! A destination without buffers: packets are dropped and counted, or (`full = "wait"`) stay where
//! they are.

use std::path::Path;
use std::sync::Arc;

use straightline_config::{Config, NodeConfig, WhenFull};
use straightline_graph::{EpollWaiter, Next, Node, Port, PortControl, QueueAssignment};
use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_packet::{Arena, Batch, Drops, Packets, PortIndex, Rcu, Reason, Settings, Turn};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::packets::{Kind, check, segmented};
use straightline_testing::{
    BASIC, Rig, arrived, frame, mac, noise, nothing, patch, rig, send, take, wait_all_back, wait_asleep, wait_until,
};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

fn patched(config: &mut Config) {
    config.patches.push(patch(0, 1));
}

fn waiting(config: &mut Config) {
    config.patches.push(patch(0, 1));
    config.patches[0].full = WhenFull::Wait;
}

/// Connects a source, and a sink that gives the switch no buffers by itself.
fn guests(rig: &Rig) -> (Guest, Guest) {
    let sink = GuestOptions { withhold: true, ..GuestOptions::default() };
    (rig.guest(0, &GuestOptions::default()), rig.guest(1, &sink))
}

#[test]
fn a_full_destination_drops_and_counts() {
    let rig = rig(2, patched);
    let (mut source, mut sink) = guests(&rig);
    sink.give(10);
    for n in 0..25 {
        send(&mut source, &frame(mac(2), mac(1), 700, n));
    }
    rig.wait_drops(1, "no-buffer", 15);
    let got = take(&mut sink, 10);
    assert!((0..).zip(got).all(|(n, (_, bytes))| bytes == frame(mac(2), mac(1), 700, n)));
    sink.give(1);
    send(&mut source, &frame(mac(2), mac(1), 700, 99));
    assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 700, 99));
}

#[test]
fn with_wait_nothing_is_lost() {
    let rig = rig(2, waiting);
    let (mut source, mut sink) = guests(&rig);
    for n in 0..200 {
        assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 60 + n * 7, n as u64)));
    }
    source.flush();
    nothing(&rig.switch, &mut sink);
    assert_eq!(source.spare(), 56, "all of them wait in their ring");
    let mut got = Vec::new();
    for give in [1, 2, 3, 50, 1, 143] {
        sink.give(give);
        got.extend(take(&mut sink, give));
    }
    for (n, (_, bytes)) in got.into_iter().enumerate() {
        assert!(bytes == frame(mac(2), mac(1), 60 + n * 7, n as u64), "packet {n}");
    }
    wait_all_back(&mut source);
    rig.no_drops();
}

#[test]
fn with_wait_packets_are_dropped_once_their_destination_is_set_down() {
    let rig = rig(2, waiting);
    let (mut source, mut sink) = guests(&rig);
    for n in 0..50 {
        assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
    }
    source.flush();
    nothing(&rig.switch, &mut sink);
    wait_asleep(&rig.switch);
    rig.switch.set_link("p1", false).expect("a port");
    rig.wait_drops(1, "set-down", 50);
    wait_all_back(&mut source);
    rig.switch.set_link("p1", true).expect("a port");
    sink.give(1);
    send(&mut source, &frame(mac(2), mac(1), 700, 50));
    assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 700, 50));
}

/// A switch whose packets from port 0 pass this node on the way to a destination that they wait
/// for.
fn behind(node: impl Node + Clone + Sync + 'static) -> Rig {
    rig(2, |config| {
        waiting(config);
        config.nodes.push(NodeConfig::new("n", "n", node));
        config.ports[0].nodes.push("n".to_owned());
    })
}

/// Drops packets for station 3.
#[derive(Clone)]
struct Picky;

impl Node for Picky {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            match packets.head(id)[5] {
                3 => packets.discard(id, Reason::Node),
                _ => next.push(0, id),
            }
        }
    }
}

#[test]
fn with_wait_a_node_may_drop_what_stands_among_those_that_wait() {
    let rig = behind(Picky);
    let (mut source, mut sink) = guests(&rig);
    let frame = |n: u64| frame(mac(if n % 3 == 1 { 3 } else { 2 }), mac(1), 700, n);
    for n in 0..60 {
        assert!(source.send(&NetHeader::default(), &frame(n)));
    }
    source.flush();
    nothing(&rig.switch, &mut sink);
    wait_asleep(&rig.switch);
    assert_eq!(source.spare(), 256 - 60, "all of them wait in their ring");
    wait_until("those that will be dropped are not counted yet", || rig.drops(0, "node") == 0);
    let mut got = Vec::new();
    for _ in 0..40 {
        sink.give(1);
        got.extend(take(&mut sink, 1));
    }
    for (n, (_, bytes)) in (0..60).filter(|n| n % 3 != 1).zip(&got) {
        assert!(*bytes == frame(n), "packet {n}");
    }
    rig.wait_drops(0, "node", 20);
    wait_all_back(&mut source);
    assert_eq!(rig.port(0).queues[0].rx.packets, 60);
    assert!(rig.port(1).drops.is_empty());
}

/// A bad header comes after packets that wait. Its packet already had a place in the turn.
#[test]
fn with_wait_a_packet_that_is_refused_late_costs_no_good_one() {
    let rig = rig(2, waiting);
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM;
    let mut source = rig.guest(0, &GuestOptions { features, ..GuestOptions::default() });
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    for n in 0..30 {
        let csum_start = if n % 3 == 1 { 5000 } else { 0 };
        let header = NetHeader { flags: u8::from(csum_start > 0), csum_start, ..NetHeader::default() };
        assert!(source.send(&header, &frame(mac(2), mac(1), 700, n)));
    }
    source.flush();
    nothing(&rig.switch, &mut sink);
    for n in (0..30).filter(|n| n % 3 != 1) {
        sink.give(1);
        assert!(take(&mut sink, 1)[0].1 == frame(mac(2), mac(1), 700, n), "packet {n}");
    }
    rig.wait_drops(0, "checksum-range", 10);
    assert!(rig.port(1).drops.is_empty());
}

/// Sends the last first.
#[derive(Clone)]
struct Reverse;

impl Node for Reverse {
    fn process(&mut self, _: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        batch.ids().iter().rev().for_each(|&id| next.push(0, id));
    }
}

/// A ring has no gaps: a packet that was overtaken by a delivered one cannot stay in it.
#[test]
fn with_wait_what_is_overtaken_and_finds_no_room_is_counted() {
    let rig = behind(Reverse);
    let (mut source, mut sink) = guests(&rig);
    sink.give(3);
    for n in 0..10 {
        assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
    }
    source.flush();
    for (n, (_, bytes)) in [9, 8, 7].into_iter().zip(take(&mut sink, 3)) {
        assert!(bytes == frame(mac(2), mac(1), 700, n), "packet {n}");
    }
    rig.wait_drops(0, "node", 7);
    sink.give(10);
    nothing(&rig.switch, &mut sink);
    assert!(rig.port(1).drops.is_empty());
}

/// An announcement is ours and has no ring to wait in.
#[test]
fn with_wait_an_announcement_that_finds_no_room_is_counted() {
    let rig = rig(2, waiting);
    let (mut source, mut sink) = guests(&rig);
    source.client().send_rarp([2, 0, 0, 0, 0, 1]).expect("an announcement");
    rig.wait_drops(1, "no-buffer", 1);
    sink.give(1);
    send(&mut source, &frame(mac(2), mac(1), 700, 1));
    assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 700, 1));
}

#[test]
fn with_wait_a_bad_chain_in_the_middle_costs_no_good_one() {
    let rig = rig(2, waiting);
    let (mut source, mut sink) = guests(&rig);
    for n in 0..60 {
        if n % 3 == 1 {
            // Shorter than its header.
            assert!(source.send_chain(&[&[0; 5]], false));
        } else {
            assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 1000, n)));
        }
    }
    source.flush();
    nothing(&rig.switch, &mut sink);
    let mut got = Vec::new();
    for _ in 0..40 {
        sink.give(1);
        got.extend(take(&mut sink, 1));
    }
    let good: Vec<_> = (0..60).filter(|n| n % 3 != 1).collect();
    for (&n, (_, bytes)) in good.iter().zip(&got) {
        assert!(*bytes == frame(mac(2), mac(1), 1000, n), "packet {n}");
    }
    rig.wait_drops(0, "short-chain", 20);
    wait_all_back(&mut source);
    assert!(rig.port(1).drops.is_empty());
}

#[test]
fn with_wait_a_packet_that_no_ring_of_this_size_can_hold_stops_nobody() {
    let rig = rig(2, |config| {
        waiting(config);
        config.ports.iter_mut().for_each(|port| port.mtu = 9000);
    });
    let mut source = rig.guest(0, &GuestOptions { buffer_len: 9100, ..GuestOptions::default() });
    let mut sink = rig.guest(1, &GuestOptions { ring_size: 8, buffer_len: 512, ..GuestOptions::default() });
    let fits = frame(mac(2), mac(1), 8 * 512 - 12, 1);
    for frame in [&fits, &frame(mac(2), mac(1), 8 * 512 - 11, 1), &fits] {
        assert!(source.send(&NetHeader::default(), frame));
    }
    source.flush();
    for _ in 0..2 {
        assert!(take(&mut sink, 1)[0].1 == fits);
    }
    rig.wait_drops(1, "no-buffer", 1);
}

#[test]
fn with_wait_segments_come_whole_and_once() {
    let rig = rig(2, waiting);
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let mut source = rig.guest(0, &GuestOptions { features, buffer_len: 65_600, ring_size: 32, ..Default::default() });
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let payload = noise(5, 20 * 1000);
    for _ in 0..20 {
        let (header, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &payload, 1000);
        assert!(source.send(&header, &frame));
    }
    source.flush();
    let mut got = Vec::new();
    wait_until("all segments have come", || {
        sink.give(7);
        got.extend(arrived(&mut sink));
        got.len() >= 400
    });
    for (n, (_, bytes)) in got.iter().enumerate() {
        assert!(check(bytes, false).payload == payload[n % 20 * 1000..][..1000], "segment {n}");
    }
    nothing(&rig.switch, &mut sink);
    rig.no_drops();
}

#[test]
fn with_wait_a_source_that_left_keeps_nobody_awake() {
    let rig = rig(2, waiting);
    let (mut source, mut sink) = guests(&rig);
    for n in 0..10 {
        send(&mut source, &frame(mac(2), mac(1), 700, n));
    }
    nothing(&rig.switch, &mut sink);
    drop(source);
    rig.wait_down(0, "waiting for a frontend");
    // Buffers for packets that do not exist any more.
    sink.give(20);
    wait_asleep(&rig.switch);
}

/// The first segments of a packet repeatedly find buffers, and give them back.
#[test]
fn with_wait_segments_that_find_too_little_keep_nobody_awake() {
    let rig = rig(2, waiting);
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let mut source = rig.guest(0, &GuestOptions { features, buffer_len: 65_600, ring_size: 32, ..Default::default() });
    let mut sink = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    sink.give(7);
    let (header, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &noise(5, 20 * 1000), 1000);
    assert!(source.send(&header, &frame));
    source.flush();
    nothing(&rig.switch, &mut sink);
    wait_asleep(&rig.switch);
    sink.give(13);
    let mut got = 0;
    wait_until("all have come", || {
        got += arrived(&mut sink).len();
        got == 20
    });
    rig.no_drops();
}

/// A worker sleeps until there are buffers in a ring that is disabled meanwhile. It is woken, and
/// finds the ring gone. Once the ring is back, no worker waits, and its driver need not kick.
#[test]
fn a_ring_that_is_disabled_forgets_who_waited_for_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let (_port, served, drops) = by_hand(dir.path(), "p", 0, &rcu);
    let options = GuestOptions { features: BASIC, withhold: true, ..GuestOptions::default() };
    let mut guest = Guest::connect(&dir.path().join("p"), &options).expect("a guest");
    let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![drops]);
    assert!(!wants_kicks(&guest), "a polling worker needs none");
    arena.turn(|turn| {
        let mut packets = Batch::new();
        packets.push(turn.accept_owned(PortIndex(1), &frame(mac(2), mac(1), 60, 1)).expect("a free slot"));
        served.deliver(turn, &packets, true);
    });
    arena.turn(|turn| assert!(!served.arm(turn, true), "nothing to wake for"));
    assert!(wants_kicks(&guest), "a worker sleeps");
    guest.enable(0).expect("disabled");
    arena.turn(|turn| served.disarm(turn, true));
    guest.enable(1).expect("enabled");
    assert!(!wants_kicks(&guest), "no worker sleeps");
    // It knows the workers that sleep from now on.
    arena.turn(|turn| assert!(!served.arm(turn, true)));
    assert!(!wants_kicks(&guest), "no worker waits for it any more");
}

/// A port, the port as a test serves it by hand, and its drop counters.
fn by_hand(dir: &Path, name: &str, index: u16, rcu: &Rcu) -> (VhostUser, Arc<dyn Port>, Arc<Drops>) {
    let config = VhostUserConfig { waits: true, ..VhostUserConfig::new(name, dir.join(name)) };
    let drops = Arc::new(Drops::default());
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let port = VhostUser::open(config, PortIndex(index), Arc::clone(&drops), rcu, waiter).expect("a socket");
    let served = port.for_worker(0);
    (port, served, drops)
}

/// Packets wait for buffers. Buffers come, and their kick is used up. But the next turn is full of
/// other packets before it reaches the waiting ones. The worker must not sleep now: the driver has
/// kicked already, and will not kick again.
#[test]
fn with_wait_room_that_nobody_has_tried_yet_keeps_a_worker_awake() {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let (_from, from, drops_from) = by_hand(dir.path(), "from", 0, &rcu);
    let (_to, to, drops_to) = by_hand(dir.path(), "to", 1, &rcu);
    let options = GuestOptions { features: BASIC, withhold: true, ..GuestOptions::default() };
    let mut source = Guest::connect(&dir.path().join("from"), &options).expect("a guest");
    let mut sink = Guest::connect(&dir.path().join("to"), &options).expect("a guest");
    let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![drops_from, drops_to]);
    let pass = |turn: &mut Turn<'_>| {
        let mut packets = Batch::new();
        from.receive(turn, &mut packets, 64);
        to.deliver(turn, &packets, true);
    };
    // Whether there are packets, and whether there are buffers.
    let arm = |turn: &mut Turn<'_>| (from.arm(turn, false), to.arm(turn, true));
    let disarm = |turn: &mut Turn<'_>| {
        from.disarm(turn, false);
        to.disarm(turn, true);
    };
    send(&mut source, &frame(mac(2), mac(1), 700, 1));
    arena.turn(pass);
    assert_eq!(arena.turn(arm), (false, false), "it waits for buffers");
    arena.turn(disarm);
    sink.give(1);
    assert_eq!(arena.turn(arm), (false, true), "there are buffers");
    arena.turn(disarm);
    arena.begin_round();
    arena.turn(|_| {});
    assert_eq!(arena.turn(arm), (true, false), "no delivery was tried");
    arena.turn(disarm);
    arena.turn(pass);
    assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 700, 1));
    // A worker that finds no buffers again may sleep.
    send(&mut source, &frame(mac(2), mac(1), 700, 2));
    arena.turn(pass);
    assert_eq!(arena.turn(arm), (false, false));
}

/// Of every two packets, the first would take more buffers than a packet may, and the second takes
/// one. So the failure of the first packet says nothing about the next one. The work for the port
/// still ends, and the rest of the turn is counted as dropped.
#[test]
fn buffers_that_are_looked_at_in_vain_are_not_looked_at_for_ever() {
    for packed in [0, f::VIRTIO_F_RING_PACKED] {
        let dir = tempfile::tempdir().expect("a folder");
        let rcu = Rcu::new();
        let open = |name: &str, index| {
            let config = VhostUserConfig { mtu: 9000, ..VhostUserConfig::new(name, dir.path().join(name)) };
            let drops = Arc::new(Drops::default());
            let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
            let port = VhostUser::open(config, PortIndex(index), Arc::clone(&drops), &rcu, waiter).expect("a socket");
            let served = port.for_worker(0);
            (port, served, drops)
        };
        let [(_from, from, drops_from), (_to, to, drops_to)] = [open("from", 0), open("to", 1)];
        let features = GuestOptions::default().features | packed;
        let options = GuestOptions { buffer_len: 9100, ..GuestOptions::default() };
        let mut source = Guest::connect(&dir.path().join("from"), &options).expect("a guest");
        let options = GuestOptions { features, buffer_len: 26, ring_size: 1024, ..GuestOptions::default() };
        let mut sink = Guest::connect(&dir.path().join("to"), &options).expect("a guest");
        let small = frame(mac(2), mac(1), 14, 1);
        for n in 0..256 {
            assert!(source.send(&NetHeader::default(), if n % 2 == 0 { &[7; 9000] } else { &small }));
        }
        source.flush();
        let settings = Settings { body_limit: 4 << 20, ..Settings::default() };
        let mut arena = Arena::new(rcu.reader(), settings, vec![drops_from, Arc::clone(&drops_to)]);
        arena.turn(|turn| {
            let mut packets = Batch::new();
            for _ in 0..4 {
                from.receive(turn, &mut packets, 64);
            }
            assert_eq!(packets.len(), 256);
            to.deliver(turn, &packets, false);
        });
        let delivered = arrived(&mut sink).len();
        assert_eq!(drops_to.count(Reason::ManyDescriptors), 256 - delivered as u64);
        // 16384 descriptors are 64 packets of 256.
        assert!((60..70).contains(&delivered), "{delivered}");
        // The next turn has its own limit.
        send(&mut source, &small);
        arena.turn(|turn| {
            let mut packets = Batch::new();
            from.receive(turn, &mut packets, 64);
            to.deliver(turn, &packets, false);
        });
        assert_eq!(take(&mut sink, 1)[0].1, small);
    }
}

/// A worker waits for buffers at a port to which other workers deliver from now on.
#[test]
fn a_worker_that_delivers_no_more_waits_for_no_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let (port, served, drops) = by_hand(dir.path(), "p", 0, &rcu);
    let options = GuestOptions { features: BASIC, withhold: true, ..GuestOptions::default() };
    let guest = Guest::connect(&dir.path().join("p"), &options).expect("a guest");
    let mut arena = Arena::new(rcu.reader(), Settings::default(), vec![drops]);
    arena.turn(|turn| {
        let mut packets = Batch::new();
        packets.push(turn.accept_owned(PortIndex(1), &frame(mac(2), mac(1), 60, 1)).expect("a free slot"));
        served.deliver(turn, &packets, true);
    });
    arena.turn(|turn| assert!(!served.arm(turn, true), "nothing to wake for"));
    assert!(wants_kicks(&guest), "a worker sleeps");
    port.assign_queues(QueueAssignment::one(1, 1));
    wait_until("no tx worker sleeps", || !wants_kicks(&guest));
}

/// VIRTQ_USED_F_NO_NOTIFY (virtio 1.2, 2.7.10).
fn wants_kicks(guest: &Guest) -> bool {
    let used = guest.geometry(Ring::Receive).used;
    guest.read_memory(used, 2).expect("the ring is in memory")[0] & 1 == 0
}
