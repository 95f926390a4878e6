//! Outputs that change packets: each sees its own form of a flooded packet, and afterwards the packet
//! is as it was.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use straightline_graph::{EpollWaiter, Form, Graph, Idle, Next, Node, NodeIndex, Port, Worker};
use straightline_packet::{
    Arena, AtTurnEnd, Batch, Checksum, Drops, Observer, ObserverId, Offload, PacketId, Packets, PortIndex, Rcu, Reason,
    Served, Settings, SourceQueueId, Turn,
};

const SOURCE: PortIndex = PortIndex(0);

/// A ring whose packets can go back.
#[derive(Debug, Default)]
struct Ring {
    returned: AtomicUsize,
}

impl AtTurnEnd for Ring {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        self.returned.fetch_add(turn.roll_back(source).0, Ordering::Relaxed);
    }

    fn notify(&self) {}

    fn poisoned(&self) -> bool {
        false
    }

    fn can_keep(&self) -> bool {
        true
    }

    fn served(&self) -> Served {
        Served::Port(SOURCE)
    }
}

/// A port that receives each of its packets once.
#[derive(Debug)]
struct Source {
    ring: &'static Ring,
    packets: Mutex<Vec<(Vec<u8>, Offload)>>,
}

/// A port that records what it gets.
#[derive(Debug)]
struct Capture {
    index: PortIndex,
    sent: Mutex<Vec<(Vec<u8>, Offload)>>,
    /// With `wait`, packets from this one on stay in their ring.
    full_from: AtomicUsize,
}

impl Capture {
    fn new(index: u16) -> Arc<Self> {
        Arc::new(Capture { index: PortIndex(index), sent: Mutex::default(), full_from: AtomicUsize::new(usize::MAX) })
    }

    fn take(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        self.take().into_iter().map(|(frame, _)| frame).collect()
    }
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn index(&self) -> Option<PortIndex> {
        Some(SOURCE)
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        let ring = turn.borrow_from(self.ring);
        for (packet, offload) in self.packets.lock().unwrap().drain(..) {
            let mark = turn.mark();
            let id = turn.accept_staged(SOURCE, ring, mark, 0).expect("a free slot");
            turn.prepend(id, &packet).expect("a short packet");
            turn.set_offload(id, offload);
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

impl Port for Capture {
    fn name(&self) -> &'static str {
        "capture"
    }

    fn index(&self) -> Option<PortIndex> {
        Some(self.index)
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, wait: bool) {
        for (nth, &id) in batch.ids().iter().enumerate() {
            if wait && nth >= self.full_from.load(Ordering::Relaxed) {
                turn.leave(id);
                continue;
            }
            // A port writes its own header in front of the packet.
            turn.front_mut::<12>(id).fill(0xee);
            self.sent.lock().unwrap().push((turn.head(id).to_vec(), turn.offload(id)));
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Records the frames that observers see: the port, and whether it has delivered or dropped them.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<Seen>>>);

/// A port, the reason if it has dropped the packet, and the packet.
type Seen = (u16, Option<Reason>, Vec<u8>);

impl Observer for Recorder {
    fn received(&mut self, _turn: &Turn<'_>, _port: PortIndex, _ids: &[PacketId]) {}

    fn delivered(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
        let seen = ids.iter().map(|&id| (port.0, None, turn.head(id).to_vec()));
        self.0.lock().unwrap().extend(seen);
    }

    fn dropped(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, reason: Reason) {
        self.0.lock().unwrap().push((port.0, Some(reason), turn.head(id).to_vec()));
    }

    fn turn_ended(&mut self, _turn: &Turn<'_>) {}
}

/// Pushes one 802.1Q tag with this VLAN.
#[derive(Debug)]
struct PushTag {
    vlan: u8,
    /// Number of changes.
    changes: Arc<AtomicUsize>,
}

impl Form for PushTag {
    fn change(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Reason> {
        packets.prepend(id, &[0; 4]).map_err(|_| Reason::NoHeadroom)?;
        let head = packets.head_mut(id);
        head.copy_within(4..16, 0);
        head[12..16].copy_from_slice(&[0x81, 0, 0, self.vlan]);
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn push_tag(vlan: u8) -> (Box<PushTag>, Arc<AtomicUsize>) {
    let changes = Arc::<AtomicUsize>::default();
    (Box::new(PushTag { vlan, changes: Arc::clone(&changes) }), changes)
}

/// Returns a frame with a tag.
fn tagged(frame: &[u8], vlan: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat()
}

/// A node that does this with each packet and sends it along all edges.
struct Do<F>(F);

impl<F: Fn(&mut Packets<'_>, PacketId) -> bool + Send> Node for Do<F> {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            if (self.0)(packets, id) {
                (0..next.edges()).for_each(|edge| next.push(edge, id));
            }
        }
    }
}

fn flood(graph: &mut Graph, edges: &[NodeIndex]) -> NodeIndex {
    graph.node("flood", Box::new(Do(|_: &mut Packets<'_>, _| true)), edges)
}

struct Rig {
    worker: Worker,
    source: Arc<Source>,
    drops: Vec<Arc<Drops>>,
    seen: Recorder,
}

impl Rig {
    /// A source whose packets go to the entry that `build` returns.
    fn new(build: impl FnOnce(&mut Graph) -> NodeIndex) -> Rig {
        let ring = Box::leak(Box::<Ring>::default());
        let source = Arc::new(Source { ring, packets: Mutex::default() });
        let mut graph = Graph::new();
        let first = build(&mut graph);
        graph.input(Arc::clone(&source) as Arc<dyn Port>, first);
        let drops: Vec<Arc<Drops>> = (0..16).map(|_| Arc::default()).collect();
        let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let seen = Recorder::default();
        arena.add_observer(ObserverId(0), Box::new(seen.clone()));
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        Rig { worker: Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin), source, drops, seen }
    }

    fn send(&mut self, packets: &[(Vec<u8>, Offload)]) {
        *self.source.packets.lock().unwrap() = packets.to_vec();
        self.worker.turn();
    }

    fn drops(&self, port: u16) -> Vec<(Reason, u64)> {
        self.drops[usize::from(port)].nonzero().collect()
    }
}

fn frame(n: u8) -> Vec<u8> {
    (0..60).map(|at: u8| at.wrapping_mul(7) ^ n).collect()
}

fn frames(count: u8) -> Vec<(Vec<u8>, Offload)> {
    (0..count).map(|n| (frame(n), Offload::default())).collect()
}

fn output(graph: &mut Graph, to: &Arc<Capture>, wait: bool) -> NodeIndex {
    graph.output(Arc::clone(to) as Arc<dyn Port>, wait)
}

#[test]
fn each_output_of_a_flood_sees_its_own_form() {
    let ports: [_; 12] = std::array::from_fn(|n| Capture::new(u16::try_from(n).unwrap() + 1));
    let (seven, seven_changes) = push_tag(7);
    let (nine, nine_changes) = push_tag(9);
    let mut rig = Rig::new(|graph| {
        let outputs = ports.each_ref().map(|port| output(graph, port, false));
        // Ports of three forms, mixed.
        let outputs_of = |form: usize| -> Vec<_> { outputs.iter().skip(form).step_by(3).copied().collect() };
        graph.form(seven, &outputs_of(1));
        graph.form(nine, &outputs_of(2));
        flood(graph, &outputs)
    });
    let checksum = Checksum::Partial { start: 34, offset: 6 };
    let mut sent = frames(80);
    sent[3].1 = Offload { checksum, gso: None };
    rig.send(&sent);
    assert_eq!([&seven_changes, &nine_changes].map(|n| n.load(Ordering::Relaxed)), [80, 80], "once for each form");
    for (nth, port) in ports.iter().enumerate() {
        let got = port.take();
        assert_eq!(got.len(), sent.len());
        for ((got, offload), (frame, _)) in got.iter().zip(&sent) {
            match nth % 3 {
                0 => assert_eq!(got, frame),
                form => assert_eq!(*got, tagged(frame, [7, 9][form - 1])),
            }
            let moved = if nth % 3 == 0 { checksum } else { Checksum::Partial { start: 38, offset: 6 } };
            let is_partial = got.ends_with(&sent[3].0[12..]);
            assert_eq!(offload.checksum, if is_partial { moved } else { Checksum::Complete });
        }
    }
    // Captures see what each port has sent.
    for (port, reason, seen) in rig.seen.0.lock().unwrap().iter() {
        let tag = [None, Some(7), Some(9)][usize::from(port - 1) % 3];
        let found = (seen[12..14] == [0x81, 0]).then(|| seen[15]);
        assert_eq!((found, *reason), (tag, None), "port {port}");
    }
    assert_eq!(rig.seen.0.lock().unwrap().len(), 12 * 80);
}

#[test]
fn a_packet_without_headroom_is_dropped_for_its_form_alone() {
    let ports = [1, 2, 3].map(Capture::new);
    let mut rig = Rig::new(|graph| {
        let outputs = ports.each_ref().map(|port| output(graph, port, false));
        graph.form(push_tag(7).0, &outputs[1..]);
        flood(graph, &outputs)
    });
    // With 114 bytes, 14 bytes are left in front, and a port's header takes 12.
    let deep = (vec![1; 114], Offload::default());
    rig.send(&[deep.clone(), frames(1).remove(0)]);
    assert_eq!(ports[0].frames(), [deep.0.clone(), frame(0)]);
    for port in &ports[1..] {
        assert_eq!(port.frames(), [tagged(&frame(0), 7)]);
        assert_eq!(rig.drops(port.index.0), [(Reason::NoHeadroom, 1)]);
    }
    assert_eq!(rig.drops(0), []);
    let seen = rig.seen.0.lock().unwrap();
    let dropped: Vec<_> = seen.iter().filter(|(_, reason, _)| reason.is_some()).collect();
    assert!(dropped.len() == 2 && dropped.iter().all(|(_, _, frame)| *frame == deep.0), "{dropped:?}");
}

#[test]
fn packets_that_wait_are_restored_and_stay_in_their_ring() {
    let port = Capture::new(1);
    let late = Capture::new(2);
    port.full_from.store(2, Ordering::Relaxed);
    let mut rig = Rig::new(|graph| {
        // Added first, so it runs last.
        let copies = graph.copy_output(Arc::clone(&late) as Arc<dyn Port>);
        let waits = output(graph, &port, true);
        graph.form(push_tag(7).0, &[waits]);
        flood(graph, &[waits, copies])
    });
    let mut sent = frames(5);
    sent.insert(1, (vec![1; 114], Offload::default()));
    sent.insert(4, (vec![2; 114], Offload::default()));
    rig.send(&sent);
    // The second one and the fifth one cannot have a tag. The fifth one goes back with the fourth one.
    assert_eq!(port.frames(), [tagged(&frame(0), 7), tagged(&frame(1), 7)]);
    assert_eq!(rig.source.ring.returned.load(Ordering::Relaxed), 4);
    assert_eq!(rig.drops(0), [(Reason::NoHeadroom, 1)], "a drop counts once the packet has left its ring");
    // A mirror gets what has left its ring, as it was.
    assert_eq!(late.frames(), [frame(0), vec![1; 114], frame(1)]);
}

#[test]
fn enclosed_nodes_change_packets_for_their_outputs_alone() {
    let changes: [fn(&mut Packets<'_>, PacketId) -> bool; 7] = [
        |packets, id| {
            packets.head_mut(id).fill(0xaa);
            true
        },
        |packets, id| packets.truncate(id, 20),
        |packets, id| packets.strip(id, 40).is_ok(),
        |packets, id| packets.prepend(id, &[5; 20]).is_ok(),
        |packets, id| {
            packets.set_port(id, PortIndex(9));
            packets.set_offload(id, Offload { checksum: Checksum::Verified, gso: None });
            true
        },
        |packets, id| {
            packets.discard(id, Reason::Node);
            false
        },
        |_, _| true,
    ];
    let ports: [_; 9] = std::array::from_fn(|n| Capture::new(u16::try_from(n).unwrap() + 1));
    let copy = Capture::new(10);
    let mut rig = Rig::new(|graph| {
        let outputs = ports.each_ref().map(|port| output(graph, port, false));
        let mut edges = outputs.to_vec();
        for (edge, change) in edges[1..8].iter_mut().zip(changes) {
            // A second node sees what the first one did, and a copy goes to another port between them.
            let after = graph.node("after", Box::new(Do(|_: &mut Packets<'_>, _| true)), &[*edge]);
            let copies = graph.copy_output(Arc::clone(&copy) as Arc<dyn Port>);
            *edge = graph.node("change", Box::new(Do(change)), &[after, copies]);
            graph.enclose(*edge);
        }
        graph.form(push_tag(7).0, &[edges[7], edges[8]]);
        flood(graph, &edges)
    });
    rig.send(&frames(3));
    let [first, filled, short, stripped, longer, verified, none, enclosed, form] =
        ports.each_ref().map(|port| port.take());
    for n in 0..3 {
        let own = frame(n);
        let at = usize::from(n);
        assert_eq!(first[at], (own.clone(), Offload::default()));
        assert_eq!(filled[at].0, [0xaa; 60]);
        assert_eq!(short[at].0, own[..20]);
        assert_eq!(stripped[at].0, own[40..]);
        assert_eq!(longer[at].0, [&[5; 20], &own[..]].concat());
        assert_eq!(verified[at], (own.clone(), Offload { checksum: Checksum::Verified, gso: None }));
        // The form comes before the nodes, so a mirror there sees what the peer gets.
        assert_eq!([&enclosed[at].0, &form[at].0], [&tagged(&own, 7), &tagged(&own, 7)]);
    }
    assert_eq!(none, []);
    assert_eq!(rig.drops(0), [(Reason::Node, 3)]);
    let copies = copy.frames();
    assert_eq!(copies.len(), 6 * 3);
    assert_eq!(copies.iter().filter(|copy| **copy == [0xaa; 60]).count(), 3);
    assert_eq!(rig.source.ring.returned.load(Ordering::Relaxed), 0);
}
