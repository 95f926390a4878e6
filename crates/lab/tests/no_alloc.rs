//! After a while, neither a worker's turns nor the generator's turns allocate memory.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use common::host::Host;
use common::{BASIC, BROADCAST, frame, mac, packets, rig};
use etherparse::PacketBuilder;
use straightline_graph::{Graph, Idle, Worker, WorkerStats};
use straightline_lab::endpoints::{Layout as RingLayout, PortOptions, TestPort, VhostPort};
use straightline_lab::forward::{self, Mode, Touch};
use straightline_lab::{Guest, GuestOptions};
use straightline_nodes::{Bridge, Fdb, Patch};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, TapOffloads, TapRequest};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_port::{EpollWaiter, PortControl};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a counter for the thread that allocates.
struct Counting;

fn note() {
    // A thread that ends has no cell any more, and does not count.
    let _ = COUNTING.try_with(|counting| {
        if counting.get() {
            COUNT.with(|count| count.set(count.get() + 1));
        }
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of its
// own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f`; returns the number of its allocations and deallocations.
fn allocations(f: impl FnOnce()) -> u64 {
    COUNT.set(0);
    COUNTING.set(true);
    f();
    COUNTING.set(false);
    COUNT.get()
}

/// A worker that this thread drives, and guests at its ports.
struct DrivenWorker {
    worker: Worker,
    _ports: Vec<VhostUser>,
    guests: Vec<Guest>,
    _dir: tempfile::TempDir,
}

fn hand(ports: usize, options: &GuestOptions, bridged: bool, two_copies: bool) -> DrivenWorker {
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let drops: Vec<Arc<Drops>> = (0..ports).map(|_| Arc::default()).collect();
    let index = |n: usize| PortIndex(u16::try_from(n).expect("few ports"));
    let mut graph = Graph::new();
    let listen = |n: usize| {
        let config = VhostUserConfig {
            queues: Some(options.queue_pairs),
            ..VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")))
        };
        VhostUser::open(config, index(n), Arc::clone(&drops[n]), &rcu, Arc::clone(&waiter)).expect("a socket")
    };
    let all: Vec<_> = (0..ports).map(listen).collect();
    let edges: Vec<_> = all.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
    let node = if bridged {
        let members: Vec<_> = (0..ports).map(index).collect();
        let fdb = Arc::new(Fdb::new(64, 300, &members, &[]));
        let bridge = Bridge::new(members, fdb);
        graph.node("bridge", Box::new(bridge), &edges)
    } else {
        graph.node("patch", Box::new(Patch::new(index(0))), &edges)
    };
    for port in &all {
        graph.input(port.for_worker(0), node);
    }
    let settings = Settings { two_copies, ..Settings::default() };
    let arena = Arena::new(rcu.reader(), settings, drops);
    let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
    let guests =
        (0..ports).map(|n| Guest::connect(&dir.path().join(format!("p{n}")), options).expect("a guest")).collect();
    DrivenWorker { worker, _ports: all, guests, _dir: dir }
}

/// Runs `rounds` of traffic; only the worker's turns are counted. Returns allocations and packets
/// that arrived.
fn run(hand: &mut DrivenWorker, rounds: usize, mut send: impl FnMut(usize, usize, &mut Guest)) -> (u64, usize) {
    let (mut allocated, mut got) = (0, 0);
    for round in 0..rounds {
        for (from, guest) in hand.guests.iter_mut().enumerate() {
            send(round, from, guest);
            guest.pairs().iter_mut().for_each(|pair| pair.flush());
        }
        let worker = &mut hand.worker;
        allocated += allocations(|| while worker.turn() > 0 {});
        for guest in &mut hand.guests {
            got += guest.pairs().iter_mut().map(|pair| pair.receive(usize::MAX, |_, _| ())).sum::<usize>();
        }
    }
    (allocated, got)
}

fn check(mut hand: DrivenWorker, mut send: impl FnMut(usize, usize, &mut Guest)) {
    run(&mut hand, 5, &mut send);
    let (allocated, got) = run(&mut hand, 50, &mut send);
    assert!(got > 500, "there was no traffic to speak of: {got}");
    assert_eq!(allocated, 0, "for {got} packets");
}

/// Sends frames of every kind of length, unicast and flooded, some in several buffers.
fn mixed(round: usize, from: usize, guest: &mut Guest) {
    let from = u8::try_from(from).expect("few");
    for len in [14, 60, 300, 1000, 1514, 1518] {
        let to = if len == 300 { BROADCAST } else { mac(1 - from % 2) };
        let bytes = frame(to, mac(from), len, round as u64);
        guest.send(&NetHeader::default(), &bytes);
        let whole = [&NetHeader::default().to_bytes(), &bytes[..]].concat();
        let (a, b) = whole.split_at(5);
        guest.send_chain(&[a, b], false);
        // Too long: dropped.
        guest.send(&NetHeader::default(), &[1; 1600]);
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 2);
}

#[test]
fn a_patch() {
    check(hand(2, &GuestOptions::default(), false, false), mixed);
}

#[test]
fn a_patch_with_two_copies() {
    check(hand(2, &GuestOptions::default(), false, true), mixed);
}

#[test]
fn a_bridge() {
    check(hand(4, &GuestOptions::default(), true, false), mixed);
}

#[test]
fn several_queues() {
    let options = GuestOptions { queue_pairs: 3, ..GuestOptions::default() };
    check(hand(2, &options, false, false), |round, from, guest| {
        for (at, pair) in guest.pairs().iter_mut().enumerate() {
            for n in 0..8 {
                let (to, source) = (mac(n), mac(u8::try_from(10 * from + at).expect("few")));
                pair.send(&NetHeader::default(), &frame(to, source, 700, round as u64));
            }
        }
    });
}

#[test]
fn segmentation_and_checksums() {
    let features = GuestOptions::default().features
        | f::VIRTIO_NET_F_CSUM
        | f::VIRTIO_NET_F_HOST_TSO4
        | f::VIRTIO_NET_F_HOST_TSO6
        | f::VIRTIO_NET_F_HOST_USO;
    let options = GuestOptions { features, buffer_len: 65_600, ring_size: 256, ..GuestOptions::default() };
    check(hand(2, &options, false, false), |round, from, guest| {
        if from == 0 {
            for kind in packets::Kind::ALL {
                let payload = common::noise(round as u64, 20_000);
                let (header, frame) = packets::segmented(kind, mac(1), mac(0), &payload, 1400);
                assert!(guest.send(&header, &frame));
            }
        }
    });
}

#[test]
fn segments_that_are_put_together() {
    let features = GuestOptions::default().features
        | f::VIRTIO_NET_F_CSUM
        | f::VIRTIO_NET_F_GUEST_CSUM
        | f::VIRTIO_NET_F_GUEST_TSO4
        | f::VIRTIO_NET_F_GUEST_TSO6;
    let options = GuestOptions { features, ..GuestOptions::default() };
    // Partial checksums, finished ones, and finished ones of which the last is wrong.
    for (is_finished, is_wrong) in [(false, false), (true, false), (true, true)] {
        let mut hand = hand(2, &options, false, false);
        let mut send = |round: usize, from: usize, guest: &mut Guest| {
            let kinds = [packets::Kind::Tcp4, packets::Kind::Tcp6];
            for kind in kinds.into_iter().filter(|_| from == 0) {
                let payload = common::noise(round as u64, 1400);
                let (header, frame) = packets::partial(kind, mac(1), mac(0), &payload);
                let seq = usize::from(header.csum_start) + 4;
                for n in 0..30_u32 {
                    let (mut header, mut frame) = (header, frame.clone());
                    // PSH would end a coalesced packet.
                    frame[seq + 9] = 0x10;
                    frame[seq..seq + 4].copy_from_slice(&(n * 1400).to_be_bytes());
                    if is_finished {
                        header = packets::finish(header, &mut frame);
                    }
                    frame[1000] ^= u8::from(is_wrong && n == 29);
                    assert!(guest.send(&header, &frame));
                }
            }
        };
        run(&mut hand, 5, &mut send);
        let (allocated, got) = run(&mut hand, 50, &mut send);
        let expected = 50 * 2 * if is_wrong { 30 } else { 1 };
        assert_eq!((allocated, got), (0, expected));
    }
}

#[test]
fn a_tap() {
    let Some(host) = Host::new("a_tap") else { return };
    let (dir, rcu) = (tempfile::tempdir().expect("a folder"), Rcu::new());
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let drops: Vec<Arc<Drops>> = (0..2).map(|_| Arc::default()).collect();
    let socket = dir.path().join("p0");
    let config = VhostUserConfig::new("p0", socket.clone());
    let guest_port =
        VhostUser::open(config, PortIndex(0), Arc::clone(&drops[0]), &rcu, Arc::clone(&waiter)).expect("a socket");
    let request = DeviceRequest::Tap(TapRequest {
        name: "host0".to_owned(),
        queues: 1,
        mtu: 1500,
        mac: Some([2, 0, 0, 0, 0, 2]),
        offloads: TapOffloads { csum: true, tso: true, uso: false },
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    });
    let config = DevicePortConfig { name: "host".to_owned(), request, mtu: 1500, queues: 1 };
    let devices = Devices::direct().expect("devices");
    let tap = DevicePort::open(config, PortIndex(1), Arc::clone(&drops[1]), &rcu, Arc::clone(&waiter), &devices);
    let tap = tap.expect("a tap");
    host.ip("addr add 10.0.0.2/24 dev host0");
    host.ip("neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev host0");
    let mut graph = Graph::new();
    let ports = [guest_port.for_worker(0), tap.for_worker(0)];
    let edges = ports.clone().map(|port| graph.output(port, false));
    let node = graph.node("patch", Box::new(Patch::new(PortIndex(0))), &edges);
    ports.into_iter().for_each(|port| graph.input(port, node));
    let arena = Arena::new(rcu.reader(), Settings::default(), drops);
    let mut worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
    let features =
        GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_USO;
    let options = GuestOptions { features, buffer_len: 65_600, ..GuestOptions::default() };
    let mut guest = Guest::connect(&socket, &options).expect("a guest");
    let udp = std::net::UdpSocket::bind("10.0.0.2:3000").expect("bound");
    let (mut allocated, mut arrived) = (0, 0);
    for round in 0..40 {
        for len in [20, 300, 1400] {
            udp.send_to(&vec![7; len], "10.0.0.1:1000").expect("sent");
            let (header, frame) = packets::partial(packets::Kind::Tcp6, mac(2), mac(1), &common::noise(1, len));
            guest.send(&header, &frame);
            // The tap takes the first unsegmented, and not the second.
            for kind in [packets::Kind::Tcp4, packets::Kind::Udp4] {
                let (header, frame) = packets::segmented(kind, mac(2), mac(1), &common::noise(1, 9000), 1400);
                guest.send(&header, &frame);
            }
        }
        guest.flush();
        // A tap is not read in each turn.
        let counted = allocations(|| (0..40).for_each(|_| _ = worker.turn()));
        allocated += if round < 5 { 0 } else { counted };
        arrived += guest.receive(usize::MAX, |_, _| ());
    }
    assert!(arrived >= 100, "{arrived} packets from the tap");
    assert_eq!(tap.counters()[0].tx.packets.get(), 40 * (3 + 3 + 3 * 7), "packets to the tap");
    assert_eq!(allocated, 0);
}

#[test]
fn a_switch_is_built_the_same_way() {
    // The worker that this test drives by hand delivers the same packets as the entire switch.
    let rig = rig(2, |config| config.patches.push(common::patch(0, 1)));
    let options = GuestOptions { features: BASIC | f::VIRTIO_NET_F_MRG_RXBUF, ..GuestOptions::default() };
    let (mut a, mut b) = (rig.guest(0, &options), rig.guest(1, &options));
    mixed(0, 0, &mut a);
    a.flush();
    common::take(&mut b, 12);
    let mut by_hand = hand(2, &options, false, false);
    assert_eq!(
        run(&mut by_hand, 1, |_, from, guest| if from == 0 {
            mixed(0, 0, guest)
        })
        .1,
        12
    );
}

#[test]
fn a_tester_and_a_guest_that_forwards() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        for (mode, buffer_len) in [(Mode::Io, 2048), (Mode::FiveTupleSwap, 2048), (Mode::Csum, 500), (Mode::Io, 500)] {
            let rig = rig(4, |config| config.patches = vec![common::patch(0, 1), common::patch(2, 3)]);
            let ports = PortOptions { layout, buffer_len, queue_size: 64, ..PortOptions::default() };
            let connect = |ports: [usize; 2], options: &PortOptions| {
                let sockets = ports.map(|port| rig.socket(port).clone());
                VhostPort::connect_all(&sockets, options).expect("ports")
            };
            let mut generator = connect([0, 3], &ports);
            let options = forward::Options { mode, touch: Touch::Read, ports, ..forward::Options::default() };
            let mut guest = forward::guest(connect([1, 2], &options.ports), &options).expect("a guest");
            (0..4).for_each(|port| rig.wait_up(port));
            let mut frame = Vec::new();
            let udp = PacketBuilder::ethernet2(mac(0).0, mac(1).0).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
            udp.write(&mut frame, &[7; 1358]).expect("a frame");
            let (mut came, header) = (0, NetHeader::default());
            let mut exchange = |packets: usize| {
                came = 0;
                let end = std::time::Instant::now() + common::PATIENCE;
                let mut sent = 0;
                while came < packets {
                    if sent < packets && sent < came + 16 && generator[0].send(0, &header, &frame, &[(60, &[1, 2, 3])])
                    {
                        sent += 1;
                    }
                    generator[0].flush().expect("a sound backend");
                    let moved = guest.turn(0).expect("a sound backend");
                    came += generator[1].receive(32, &mut |_| {}).expect("a sound backend");
                    if moved == 0 {
                        guest.wake();
                        generator.iter_mut().for_each(TestPort::wake);
                        assert!(std::time::Instant::now() < end, "{came} of {packets} have come");
                        std::thread::yield_now();
                    }
                }
            };
            // By then, each buffer has been used at each place.
            exchange(200);
            assert_eq!(allocations(|| exchange(200)), 0, "{mode}, {layout:?}, buffers of {buffer_len}");
        }
    }
}
