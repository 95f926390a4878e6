//! After a while, a worker's turns allocate no memory. A station of an owner takes little.

use std::io::Write as _;
use std::sync::Arc;

use straightline_capture::trace::{TraceObserver, Wanted};
use straightline_capture::{CaptureObserver, Dropped, PortTable, SNAPLEN, Selection};
use straightline_fdb::Fdb;
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, Patch};
use straightline_packet::{Arena, Drops, Observer, ObserverId, PortIndex, Rcu, Settings};
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, TapOffloads, TapRequest};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_switch::Switch;
use straightline_switch::api::{ChangeRemotes, ChangeStations, NewStation};
use straightline_testing::allocations::{CountingAllocator, allocations, bytes_kept};
use straightline_testing::host::Host;
use straightline_testing::{self as testing, BASIC, BROADCAST, frame, mac, packets, rig};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A worker that this thread drives, and guests at its ports.
struct DrivenWorker {
    worker: Worker,
    _ports: Vec<VhostUser>,
    guests: Vec<Guest>,
    _dir: tempfile::TempDir,
}

fn hand(ports: usize, options: &GuestOptions, bridged: bool, two_copies: bool) -> DrivenWorker {
    hand_with(ports, options, bridged, two_copies, Vec::new())
}

/// Like [`hand`], with observers of the worker.
fn hand_with(
    ports: usize,
    options: &GuestOptions,
    bridged: bool,
    two_copies: bool,
    observers: Vec<Box<dyn Observer>>,
) -> DrivenWorker {
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
        let plain: Vec<_> = members.into_iter().map(BridgePort::plain).collect();
        let bridge = Bridge::new(&plain, fdb);
        graph.node("bridge", Box::new(bridge), &edges)
    } else {
        graph.node("patch", Box::new(Patch::new(index(0))), &edges)
    };
    for port in &all {
        graph.input(port.for_worker(0), node);
    }
    let settings = Settings { two_copies, ..Settings::default() };
    let mut arena = Arena::new(rcu.reader(), settings, drops);
    for (id, observer) in (0..).zip(observers) {
        arena.add_observer(ObserverId(id), observer);
    }
    let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
    let guests =
        (0..ports).map(|n| Guest::connect(&dir.path().join(format!("p{n}")), options).expect("a guest")).collect();
    DrivenWorker { worker, _ports: all, guests, _dir: dir }
}

/// Runs `rounds` of traffic; only the worker's turns are counted. Returns allocations and packets
/// that arrived.
fn run(hand: &mut DrivenWorker, rounds: usize, mut send: impl FnMut(usize, usize, &mut Guest)) -> (u64, usize) {
    let mut allocated = 0;
    let mut got = 0;
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
fn a_bridge_with_a_trace_and_a_capture() {
    let table = Arc::new(PortTable::default());
    table.set((0..4).map(|port| (PortIndex(port), port)));
    // The trace goes on until the end, with and without memory for further packets.
    let wanted = Arc::new(Wanted::new(u32::MAX));
    let (trace, mut traces) = TraceObserver::new(None, Arc::clone(&table), wanted, 4, 50);
    let selection =
        Selection { received: true, delivered: true, dropped: Dropped::Any, filter: None, snaplen: SNAPLEN };
    let (capture, mut ring) = CaptureObserver::new(Arc::new(selection), table, 4);
    let observers: Vec<Box<dyn Observer>> = vec![Box::new(trace), Box::new(capture)];
    let mut traced = 0;
    let mut records = Vec::new();
    check(hand_with(4, &GuestOptions::default(), true, false, observers), |round, from, guest| {
        mixed(round, from, guest);
        if from == 0 && round % 5 > 0 {
            traced += std::iter::from_fn(|| traces.next(|_| ())).count();
            records.clear();
            ring.drain(&mut records, usize::MAX, |time| time);
        }
    });
    assert!(traced > 500 && !records.is_empty(), "{traced} traces");
}

#[test]
fn several_queues() {
    let options = GuestOptions { queue_pairs: 3, ..GuestOptions::default() };
    check(hand(2, &options, false, false), |round, from, guest| {
        for (at, pair) in guest.pairs().iter_mut().enumerate() {
            for n in 0..8 {
                let to = mac(n);
                let source = mac(u8::try_from(10 * from + at).expect("few"));
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
                let payload = testing::noise(round as u64, 20_000);
                let (header, frame) = packets::segmented(kind, mac(1), mac(0), &payload, 1400);
                assert!(guest.send(&header, &frame));
            }
        }
    });
}

#[test]
fn segments_that_are_put_together() {
    /// Of each kind. No turn divides them, however slow the worker is (`UNDIVIDED` in the graph).
    const SEGMENTS: u32 = 14;
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
                let payload = testing::noise(round as u64, 1400);
                let (header, frame) = packets::partial(kind, mac(1), mac(0), &payload);
                let seq = usize::from(header.csum_start) + 4;
                for n in 0..SEGMENTS {
                    let mut header = header;
                    let mut frame = frame.clone();
                    // PSH would end a coalesced packet.
                    frame[seq + 9] = 0x10;
                    frame[seq..seq + 4].copy_from_slice(&(n * 1400).to_be_bytes());
                    if is_finished {
                        header = packets::finish(header, &mut frame);
                    }
                    frame[1000] ^= u8::from(is_wrong && n == SEGMENTS - 1);
                    assert!(guest.send(&header, &frame));
                }
            }
        };
        run(&mut hand, 5, &mut send);
        let (allocated, got) = run(&mut hand, 50, &mut send);
        let expected = 50 * 2 * if is_wrong { SEGMENTS as usize } else { 1 };
        assert_eq!((allocated, got), (0, expected));
    }
}

#[test]
fn a_tap() {
    let Some(host) = Host::new("a_tap") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let rcu = Rcu::new();
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
    let mut allocated = 0;
    let mut arrived = 0;
    for round in 0..40 {
        for len in [20, 300, 1400] {
            udp.send_to(&vec![7; len], "10.0.0.1:1000").expect("sent");
            let (header, frame) = packets::partial(packets::Kind::Tcp6, mac(2), mac(1), &testing::noise(1, len));
            guest.send(&header, &frame);
            // The tap takes the first unsegmented, and not the second.
            for kind in [packets::Kind::Tcp4, packets::Kind::Udp4] {
                let (header, frame) = packets::segmented(kind, mac(2), mac(1), &testing::noise(1, 9000), 1400);
                guest.send(&header, &frame);
            }
        }
        guest.flush();
        // A tap is not read in each turn, and sends that took long are charged to later turns.
        let all = (round + 1) * (3 + 3 + 3 * 7);
        let sent = &tap.counters()[0].tx.packets;
        let counted = allocations(|| {
            (0..40).for_each(|_| _ = worker.turn());
            let mut more = 0..1_000_000;
            while sent.get() < all && more.next().is_some() {
                worker.turn();
            }
        });
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
    let rig = rig(2, |config| config.patches.push(testing::patch(0, 1)));
    let options = GuestOptions { features: BASIC | f::VIRTIO_NET_F_MRG_RXBUF, ..GuestOptions::default() };
    let mut a = rig.guest(0, &options);
    let mut b = rig.guest(1, &options);
    mixed(0, 0, &mut a);
    a.flush();
    testing::take(&mut b, 12);
    let mut by_hand = hand(2, &options, false, false);
    assert_eq!(
        run(&mut by_hand, 1, |_, from, guest| if from == 0 {
            mixed(0, 0, guest)
        })
        .1,
        12
    );
}

/// Returns the bytes that a switch keeps with as many stations of another host, each with an IP address.
fn bytes_with_stations(count: u32) -> isize {
    let dir = tempfile::tempdir().expect("a folder");
    let file = format!(
        "[port.nic]\nkind = \"vhost-user\"\nsocket = {:?}\nmtu = 1600\n\
         [underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.1/24\"]\n\
         [port.vx0]\nkind = \"vxlan\"\nvni = 7\nunderlay = \"wan\"\nremotes = []\nmtu = 1500\n\
         [port.vm]\nkind = \"vhost-user\"\nsocket = {:?}\nmtu = 1500\n\
         [bridge.lan]\nports = [\"vm\", \"vx0\"]\napi-stations = {count}\nneighbour-suppression = true\n",
        dir.path().join("nic"),
        dir.path().join("vm"),
    );
    let station = |number: u32| {
        let [_, b, c, d] = number.to_be_bytes();
        NewStation {
            mac: format!("02:01:00:{b:02x}:{c:02x}:{d:02x}"),
            port: "vx0".to_owned(),
            remote: Some("192.0.2.2".to_owned()),
            ips: vec![format!("10.{b}.{c}.{d}")],
            ..NewStation::default()
        }
    };
    let stations: Vec<NewStation> = (0..count).map(station).collect();
    let text = |text: &str| text.to_owned();
    let change =
        ChangeRemotes { tunnel: text("vx0"), owner: text("evpn"), command: text("add"), ..ChangeRemotes::default() };
    let changes =
        ChangeStations { bridge: text("lan"), owner: text("evpn"), command: text("add"), ..ChangeStations::default() };
    let config = testing::tunnel::config(&file);
    let (_switch, bytes) = bytes_kept(|| {
        let switch = Switch::start(&config).expect("a switch");
        switch.change_remotes(&change, &[text("192.0.2.2")]).expect("a remote");
        let done = switch.change_stations(&changes, &stations).expect("stations");
        assert_eq!(done.added, u64::from(count));
        switch
    });
    bytes
}

/// The tables of bridge, tunnel and bindings, and the list of owners: 100 000 stations take 200 bytes each.
#[test]
fn a_station_of_an_owner_takes_at_most_200_bytes() {
    let few = bytes_with_stations(1000);
    let many = bytes_with_stations(100_000);
    assert!(few > 0);
    let each = (many - few) / 99_000;
    let _ = writeln!(std::io::stdout(), "a station of an owner takes {each} bytes");
    assert!((20..=200).contains(&each), "{each} bytes");
}
