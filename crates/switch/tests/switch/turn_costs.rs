//! The cost of one turn: of floods to many ports, and of packets that are sent by system calls. A
//! worker that the test drives shows each turn by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use straightline_fdb::Fdb;
use straightline_graph::clock::{cycles, hertz};
use straightline_graph::{EpollWaiter, Graph, Idle, Next, Node, NodeIndex, Port, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, Patch};
use straightline_packet::{Arena, Batch, Drops, HEAD, PacketId, Packets, PortIndex, Rcu, Settings, Turn};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::packets::{Kind, segmented};
use straightline_testing::{BASIC, BROADCAST, arrived, frame, mac, noise};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;

/// The time that costly packets of a turn may take: see `shares` in the crate `graph`.
const TURN_SECONDS: f64 = 100e-6;

/// A worker with ports. The test drives each turn of it.
struct Driven {
    worker: Worker,
    stats: Arc<WorkerStats>,
    drops: Vec<Arc<Drops>>,
    ports: Vec<VhostUser>,
    dir: tempfile::TempDir,
}

impl Driven {
    /// Returns a worker whose graph `build` makes of the ports.
    fn new(ports: u16, build: impl FnOnce(&mut Graph, &[VhostUser])) -> Driven {
        let dir = tempfile::tempdir().expect("a folder");
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let drops: Vec<Arc<Drops>> = (0..ports).map(|_| Arc::default()).collect();
        let open = |n: u16| {
            let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
            let drops = Arc::clone(&drops[usize::from(n)]);
            VhostUser::open(config, PortIndex(n), drops, &rcu, Arc::clone(&waiter)).expect("a socket")
        };
        let ports: Vec<_> = (0..ports).map(open).collect();
        let mut graph = Graph::new();
        build(&mut graph, &ports);
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.change(drops.clone(), u32::try_from(ports.len()).expect("few") - 1);
        let stats = Arc::new(WorkerStats::default());
        let worker = Worker::new(graph, arena, waiter, Arc::clone(&stats), Idle::Spin);
        Driven { worker, stats, drops, ports, dir }
    }

    /// Returns a worker with a bridge of all ports.
    fn bridged(ports: u16) -> Driven {
        Driven::new(ports, |graph, all| {
            let indexes: Vec<_> = (0..ports).map(PortIndex).collect();
            let edges: Vec<_> = all.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
            let fdb = Arc::new(Fdb::new(1024, 300, &indexes, &[]));
            let plain: Vec<_> = indexes.into_iter().map(BridgePort::plain).collect();
            let bridge = graph.node("bridge", Box::new(Bridge::new(&plain, fdb)), &edges);
            all.iter().for_each(|port| graph.input(port.for_worker(0), bridge));
        })
    }

    /// Returns a worker whose port 0 sends to `slow`, and ports 1 and 2 to each other.
    fn with_slow_calls(slow: &Arc<SlowCalls>) -> Driven {
        Driven::sending_to_slow_calls(|graph| {
            let calls = graph.output(Arc::clone(slow) as Arc<dyn Port>, false);
            graph.node("attack", Box::new(Patch::new(PortIndex(9))), &[calls, calls])
        })
    }

    /// Returns a worker whose port 0 sends to the entry that `build` makes, and ports 1 and 2 to each
    /// other.
    fn sending_to_slow_calls(build: impl FnOnce(&mut Graph) -> NodeIndex) -> Driven {
        Driven::new(3, |graph, ports| {
            let attack = build(graph);
            graph.input(ports[0].for_worker(0), attack);
            let edges: Vec<_> = ports[1..].iter().map(|port| graph.output(port.for_worker(0), false)).collect();
            let patch = graph.node("patch", Box::new(Patch::new(PortIndex(1))), &edges);
            ports[1..].iter().for_each(|port| graph.input(port.for_worker(0), patch));
        })
    }

    fn guest(&self, port: usize, options: &GuestOptions) -> Guest {
        Guest::connect(&self.dir.path().join(format!("p{port}")), options).expect("a guest")
    }

    /// Runs turns without packets, as many as make the ports quiet that send nothing.
    fn idle(&mut self) {
        (0..100).for_each(|_| assert_eq!(self.worker.turn(), 0));
    }

    fn no_drops(&self) {
        assert_eq!(self.drops.iter().flat_map(|drops| drops.nonzero()).collect::<Vec<_>>(), []);
    }
}

fn send_all(guest: &mut Guest, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| assert!(guest.send(&NetHeader::default(), frame)));
    guest.flush();
}

/// Two ports of a large bridge exchange packets as two ports alone do: a whole burst in a turn.
#[test]
fn unicast_beside_many_ports_is_not_divided_by_their_number() {
    let mut driven = Driven::bridged(127);
    let mut a = driven.guest(0, &GuestOptions::default());
    let mut b = driven.guest(1, &GuestOptions::default());
    send_all(&mut b, &[frame(mac(1), mac(2), 1514, 0)]);
    while driven.worker.turn() > 0 {}
    a.receive(1, |_, _| ());
    let frames: Vec<_> = (0..64).map(|n| frame(mac(2), mac(1), 1514, n)).collect();
    send_all(&mut a, &frames);
    assert_eq!(driven.worker.turn(), 64);
    assert_eq!(b.receive(usize::MAX, |_, _| ()), 64);
}

/// A storm to 126 ports: no turn copies more than the bound, and nothing is lost or reordered.
#[test]
fn a_storm_is_spread_over_turns() {
    const PORTS: u16 = 127;
    const LEN: usize = 1514;
    let options = GuestOptions { ring_size: 64, ..GuestOptions::default() };
    let mut driven = Driven::bridged(PORTS);
    let mut guests: Vec<_> = (0..usize::from(PORTS)).map(|port| driven.guest(port, &options)).collect();
    driven.idle();
    let frames: Vec<_> = (0..60).map(|n| frame(BROADCAST, mac(1), LEN, n)).collect();
    send_all(&mut guests[0], &frames);
    // Bytes that the time covers at 8 bytes a cycle, and the copies of one packet.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some millions")]
    let bound = (TURN_SECONDS * hertz() * 8.0) as u64 + u64::from(PORTS - 1) * (LEN - HEAD) as u64;
    let mut turns = 0;
    let mut flooded = 0;
    loop {
        let before = driven.stats.bodies_copied.get();
        let packets = driven.worker.turn();
        let copied = driven.stats.bodies_copied.get() - before;
        assert!(copied <= bound, "a turn has copied {copied} bytes; the bound is {bound}");
        turns += usize::from(packets > 0);
        flooded += packets;
        if flooded == frames.len() {
            break;
        }
    }
    assert!(turns > 5, "{turns} turns");
    driven.no_drops();
    for (n, guest) in guests.iter_mut().enumerate().skip(1) {
        let got: Vec<_> = arrived(guest).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(got == frames, "guest {n} got {} packets", got.len());
    }
}

/// An output whose sends take a known time at least.
#[derive(Debug, Default)]
struct SlowCalls {
    /// Sends of the deliveries so far.
    sends: AtomicU64,
    /// The first addresses of the delivered packets, in their order.
    delivered: Mutex<Vec<MacAddr>>,
}

/// Cycles of a send of [`SlowCalls`].
const SEND: u64 = 3000;

impl Port for SlowCalls {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        for &id in batch.ids() {
            let sends = u64::from(turn.segments(id));
            self.sends.fetch_add(sends, Ordering::Relaxed);
            let end = cycles() + sends * SEND;
            while cycles() < end {}
            let head = turn.head(id).first_chunk::<6>().copied();
            self.delivered.lock().expect("no panic").extend(head.map(MacAddr));
        }
    }

    fn makes_calls(&self) -> bool {
        true
    }

    fn sends(&self, turn: &Turn<'_>, id: PacketId) -> u32 {
        turn.segments(id)
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Large packets for an output that sends each segment by a call: a turn sends what its time covers
/// and one packet more, and the other packets wait in their ring. A victim's packets pass meanwhile.
#[test]
fn segments_that_are_sent_by_calls_are_spread_over_turns() {
    let slow = Arc::new(SlowCalls::default());
    let mut driven = Driven::with_slow_calls(&slow);
    let features = BASIC | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_USO;
    let options = GuestOptions { features, buffer_len: 8192, ring_size: 64, ..GuestOptions::default() };
    let mut attacker = driven.guest(0, &options);
    let mut a = driven.guest(1, &GuestOptions::default());
    let mut b = driven.guest(2, &GuestOptions::default());
    driven.idle();
    for n in 0..60 {
        let (header, frame) = segmented(Kind::Udp4, mac(n), mac(1), &noise(n.into(), 128 * 50), 50);
        assert!(attacker.send(&header, &frame));
    }
    attacker.flush();
    let sends = || slow.sends.load(Ordering::Relaxed);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundreds")]
    let bound = (TURN_SECONDS * hertz()) as u64 / SEND + 128;
    let mut arrived = 0;
    for turn in 0.. {
        let before = sends();
        send_all(&mut a, &[frame(mac(2), mac(1), 100, turn)]);
        driven.worker.turn();
        assert!(sends() - before <= bound, "{} sends in a turn; the bound is {bound}", sends() - before);
        arrived += b.receive(usize::MAX, |_, _| ());
        assert_eq!(arrived as u64, turn + 1, "the victim's packet passes in its turn");
        if sends() == 60 * 128 {
            break;
        }
        assert!(turn < 100_000, "{} of {} sends", sends(), 60 * 128);
    }
    driven.no_drops();
    let delivered = slow.delivered.lock().expect("no panic");
    assert!(delivered.iter().copied().eq((0..60).map(mac)), "each packet once, in order: {delivered:?}");
    assert_eq!(driven.ports.len(), 3);
}

/// A packet whose sends take ten turns' time: the sender waits for as long as they took, while
/// another port has packets. So the other port has half of the worker.
#[test]
fn a_packet_of_many_turns_cost_holds_up_its_own_sender() {
    let slow = Arc::new(SlowCalls::default());
    holds_up_its_sender(Driven::with_slow_calls(&slow), &slow);
}

/// The same where the output delivers before another node runs, so that no packet can go back.
#[test]
fn a_packet_that_is_sent_early_holds_up_its_own_sender() {
    let slow = Arc::new(SlowCalls::default());
    let driven = Driven::sending_to_slow_calls(|graph| {
        let later = graph.node("later", Box::new(ToFirst), &[]);
        let calls = graph.output(Arc::clone(&slow) as Arc<dyn Port>, false);
        graph.node("attack", Box::new(ToFirst), &[calls, later])
    });
    holds_up_its_sender(driven, &slow);
}

/// Port 0 sends packets of many sends to `slow`, one after the other, and port 1 to port 2.
fn holds_up_its_sender(mut driven: Driven, slow: &SlowCalls) {
    const SEGMENTS: u64 = 1000;
    let features = BASIC | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let options = GuestOptions { features, buffer_len: 65_600, ring_size: 64, ..GuestOptions::default() };
    let mut attacker = driven.guest(0, &options);
    let mut a = driven.guest(1, &GuestOptions::default());
    let mut b = driven.guest(2, &GuestOptions::default());
    driven.idle();
    let payload = noise(1, 48 * usize::try_from(SEGMENTS).expect("few"));
    let (header, large) = segmented(Kind::Tcp4, mac(3), mac(1), &payload, 48);
    let mut send_large = || {
        assert!(attacker.send(&header, &large));
        attacker.flush();
    };
    send_large();
    let mut sent_at = None;
    let mut intervals = 0;
    for turn in 0.. {
        let before = slow.sends.load(Ordering::Relaxed);
        send_all(&mut a, &[frame(mac(2), mac(1), 100, turn)]);
        let began = cycles();
        driven.worker.turn();
        assert_eq!(b.receive(usize::MAX, |_, _| ()), 1, "the other port's packet passes in its turn");
        if slow.sends.load(Ordering::Relaxed) == before {
            continue;
        }
        send_large();
        // The sends, and as long again. A thread that is descheduled between has waited too.
        if let Some(sent_at) = sent_at.replace(began) {
            // Shares of some turns may repay the last part of the debt.
            let interval = began - sent_at;
            assert!(interval > SEGMENTS * SEND * 3 / 2, "the next packet passed after {interval} cycles");
            intervals += 1;
            if intervals == 2 {
                break;
            }
        }
    }
    driven.no_drops();
}

/// A node that sends all packets along its first edge.
struct ToFirst;

impl Node for ToFirst {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        next.extend(0, batch.ids());
    }
}
