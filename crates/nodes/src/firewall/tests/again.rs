//! Packets that stay in their ring, and come again: each is decided once.

use straightline_testing::ports::{Narrow, RingSource};
use straightline_wire::messages::{Link, arp_request};

use super::*;

/// A port with groups between two rings whose packets may come again.
struct Waiting {
    worker: Worker,
    control: FirewallControl,
    rcu: Rcu,
    /// Packets of the port with groups, and of the other one.
    rings: [Arc<RingSource>; 2],
    outputs: [Arc<Narrow>; 2],
    drops: Vec<Arc<Drops>>,
}

impl Waiting {
    fn new(settings: FirewallSettings, is_in_patch: bool) -> Self {
        let rcu = Rcu::new();
        let control = FirewallControl::new(settings, &rcu, Level::detect(), Clock::real()).expect("known groups");
        let mut graph = Graph::new();
        let outputs: [Arc<Narrow>; 2] = Default::default();
        let rings = [VM, OTHER].map(|port| Arc::new(RingSource::new(port)));
        for ((direction, output), ring) in [Direction::Out, Direction::In].into_iter().zip(&outputs).zip(&rings) {
            let output = graph.output(Arc::clone(output) as _, true);
            let node = Box::new(Firewall::new(&control, VM, direction, is_in_patch));
            let node = graph.node(direction.as_str(), node, &[output]);
            graph.input(Arc::clone(ring) as _, node);
        }
        let drops: Vec<Arc<Drops>> = (0..3).map(|_| Arc::default()).collect();
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.set_now(Clock::real().seconds());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Waiting { worker, control, rcu, rings, outputs, drops }
    }

    /// Adds packets to the ring of a side, and runs turns until that ring has no packet that was not
    /// looked at. The output takes `space` packets in each. Returns those that it took.
    fn send(&mut self, side: usize, frames: Vec<Vec<u8>>, space: usize) -> Vec<Vec<u8>> {
        self.rings[side].send(frames);
        self.turns(side, space)
    }

    fn turns(&mut self, side: usize, space: usize) -> Vec<Vec<u8>> {
        self.outputs.iter().for_each(|output| output.set_space(space));
        let mut taken = Vec::new();
        // An input that has had its share is left out for some turns.
        for _ in 0..4 {
            self.worker.turn();
        }
        taken.extend(self.outputs[side].take().into_iter().map(|packet| packet.bytes));
        taken
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.drops.iter().map(|drops| drops.count(reason)).sum()
    }
}

#[test]
fn fragments_that_come_again_overlap_nothing() {
    for is_in_patch in [false, true] {
        let mut rig = Waiting::new(settings(&["udp 9 from any"], &[], |_| ()), is_in_patch);
        let datagram = frame(PEER, OWN, Transport::Udp { src_port: 7, dst_port: 9 }, &[1; 92]);
        let parts = cut(&datagram, 5, &[40, 80]);
        assert!(rig.send(1, parts.clone(), 0).is_empty());
        assert_eq!(rig.turns(1, 1), parts, "one in each turn");
        assert!(rig.send(1, parts[2..].to_vec(), 9).is_empty(), "a second time");
        assert_eq!(rig.dropped(Reason::FragmentRefused), 1);
    }
}

#[test]
fn a_reset_that_comes_again_passes_although_it_has_ended_its_connection() {
    let mut rig = Waiting::new(settings(&[], &["tcp 80 to any"], |_| ()), true);
    let [client, server] = [(OWN, 5000), (PEER, 80)];
    let syn = tcp(client, server, Flags::SYN, [100, 0], b"");
    let reset = tcp(client, server, Flags::RST, [101, 0], b"");
    assert_eq!(rig.send(0, vec![syn], 9).len(), 1);
    assert!(rig.send(0, vec![reset.clone()], 0).is_empty());
    assert_eq!(rig.turns(0, 9), std::slice::from_ref(&reset));
    assert!(rig.send(0, vec![reset], 9).is_empty(), "the next one is another packet");
    assert_eq!(rig.dropped(Reason::Invalid), 1);
}

#[test]
fn a_waiting_packet_takes_no_further_allowance_and_no_further_place() {
    let share = PortShare { new_per_second: 20, ..PortShare::new(8) };
    let settings = settings(&[], &["udp 53 to any"], |settings| settings.ports[0].share = share);
    let mut rig = Waiting::new(settings, true);
    let questions: Vec<_> = (0..20).map(|n| udp((OWN, 4000 + n), (PEER, 53))).collect();
    for _ in 0..10 {
        assert!(rig.send(0, Vec::new(), 0).is_empty());
        if rig.rings[0].is_empty() {
            rig.rings[0].send(questions.clone());
        }
    }
    assert_eq!(rig.turns(0, 20), questions);
    assert_eq!(rig.control.counts(VM).expect("a share").evicted, 15);
}

#[test]
fn a_packet_that_its_guest_has_changed_is_decided_anew() {
    let mut rig = Waiting::new(settings(&[], &["udp 53 to any"], |_| ()), true);
    assert!(rig.send(0, vec![udp((OWN, 4000), (PEER, 53))], 0).is_empty());
    rig.rings[0].change(|frame| frame[37] = 54);
    assert!(rig.turns(0, 9).is_empty());
    assert_eq!(rig.dropped(Reason::Denied), 1);
    // The ticket of the packet before is still there, and good for that packet.
    assert_eq!(rig.send(0, vec![udp((OWN, 4000), (PEER, 53))], 9).len(), 1);
}

/// Messages without a rule that wait count once, and their form is judged again.
#[test]
fn messages_without_a_rule_that_come_again() {
    let arp = |len: usize| {
        let link = Link { src: MacAddr([2, 0, 0, 0, 0, 1]), dst: MacAddr([2, 0, 0, 0, 0, 2]), vlan: None };
        let mut frame = arp_request(link, OWN, PEER).expect("a message").bytes().to_vec();
        frame.resize(len, 0);
        frame
    };
    let mut rig = Waiting::new(settings(&[], &[], |_| ()), true);
    let messages = vec![arp(60); 100];
    assert!(rig.send(0, messages.clone(), 0).is_empty());
    for _ in 0..20 {
        assert!(rig.turns(0, 0).is_empty());
    }
    assert_eq!(rig.turns(0, 100), messages);
    assert_eq!(rig.dropped(Reason::ArpLimit), 0);
    assert!(rig.send(0, vec![arp(60)], 0).is_empty());
    rig.rings[0].change(|frame| *frame = arp(100));
    assert!(rig.turns(0, 9).is_empty());
    assert_eq!(rig.dropped(Reason::MessageForm), 1);
}

/// A server's answer that waits while its port stops being trusted is decided anew.
#[test]
fn a_ticket_is_void_when_other_ports_are_trusted() {
    let trusting = |trusted: &[PortIndex]| settings(&[], &[], |settings| settings.trusted = trusted.to_vec());
    let answer = || udp((PEER, 67), (OWN, 68));
    for (trusted, passes) in [(&[OTHER][..], 1), (&[], 0)] {
        let mut rig = Waiting::new(trusting(&[OTHER]), true);
        assert!(rig.send(1, vec![answer()], 0).is_empty());
        let next =
            FirewallControl::new(trusting(trusted), &rig.rcu, Level::detect(), Clock::real()).expect("known groups");
        next.commit(&rig.control);
        assert_eq!(rig.turns(1, 9).len(), passes);
        rig.control = next;
    }
}

/// A frame to another station begins no connection. If it waits, its ticket is not for one to the port.
#[test]
fn a_ticket_of_a_frame_to_another_station_is_for_that_one_alone() {
    let own = MacAddr([2, 0, 0, 0, 0, 9]);
    let mut rig = Waiting::new(
        settings(&["udp 9 from any"], &[], |settings| settings.ports[0].macs = vec![MacPrefix::exact(own)]),
        false,
    );
    assert!(rig.send(1, vec![udp((PEER, 7), (OWN, 9))], 0).is_empty());
    rig.rings[1].change(|frame| frame[..6].copy_from_slice(&own.0));
    assert_eq!(rig.turns(1, 9).len(), 1);
    assert_eq!(rig.control.counts(VM).expect("a share").inbound, 1);
}

#[test]
fn a_port_of_a_bridge_counts_a_drop_once() {
    let mut rig = Waiting::new(settings(&["udp 9 from any"], &[], |_| ()), false);
    assert!(rig.send(1, vec![udp((PEER, 7), (OWN, 9)), udp((PEER, 7), (OWN, 10))], 0).is_empty());
    assert_eq!(rig.turns(1, 9).len(), 1);
    assert_eq!(rig.dropped(Reason::Denied), 1);
}

/// A packet of some flow of few. Its numbers are near those that its connection expects.
fn any_frame() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let flags = prop_oneof![
        4 => Just(Flags::ACK),
        3 => Just(Flags::SYN),
        2 => Just(Flags::SYN.with(Flags::ACK)),
        2 => Just(Flags::FIN.with(Flags::ACK)),
        2 => Just(Flags::RST),
    ];
    let segment = (any::<bool>(), 0..3_u16, flags, 0..4_u32, 0..4_u32, 0..2_usize).prop_map(
        |(is_out, flow, flags, seq, ack, len)| {
            let own = (OWN, 80);
            let peer = (PEER, 5000 + flow);
            let numbers = if is_out { [500 + seq, 100 + ack] } else { [100 + seq, 500 + ack] };
            let (src, dst) = if is_out { (own, peer) } else { (peer, own) };
            (is_out, tcp(src, dst, flags, numbers, &[7][..len]))
        },
    );
    let datagram = (any::<bool>(), 0..3_u16).prop_map(|(is_out, flow)| {
        let own = (OWN, 9);
        let peer = (PEER, 5000 + flow);
        (is_out, if is_out { udp(own, peer) } else { udp(peer, own) })
    });
    let fragment = (0..3_u16, 0..4_usize).prop_map(|(id, nth)| {
        let whole = frame(PEER, OWN, Transport::Udp { src_port: 5000 + id, dst_port: 9 }, &[1; 92]);
        (false, cut(&whole, id, &[16, 40, 80]).swap_remove(nth))
    });
    prop_oneof![6 => segment, 2 => datagram, 3 => fragment]
}

/// `STRAIGHTLINE_LONG=1` (`cargo xtask test --long`) tries more.
fn cases() -> u32 {
    if std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1") { 5000 } else { 40 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Packets that wait some turns, and come again with all behind them, get the decisions that they
    /// get at once where nothing waits. The connections of both are the same.
    #[test]
    fn packets_that_come_again_are_decided_once(
        connections in prop_oneof![Just(4_u32), Just(64)],
        is_in_patch in any::<bool>(),
        steps in prop::collection::vec((any::<bool>(), prop::collection::vec(any_frame(), 0..9), 0..8_usize), 1..30),
    ) {
        let settings = || settings(&["tcp 80 from any", "udp 9 from any"], &[], |settings| {
            settings.ports[0].share = PortShare::new(connections);
        });
        let mut waiting = Waiting::new(settings(), is_in_patch);
        let mut at_once = Rig::with(settings());
        let mut passed: [[Vec<Vec<u8>>; 2]; 2] = Default::default();
        for (is_out, frames, space) in steps {
            let side = usize::from(!is_out);
            let frames = frames.into_iter().filter(|(is_from_vm, _)| *is_from_vm == is_out);
            let frames: Vec<_> = frames.map(|(_, frame)| frame).collect();
            // The other side waits, too.
            waiting.outputs[1 - side].set_space(0);
            passed[0][side].extend(waiting.send(side, frames.clone(), space));
            passed[0][1 - side].extend(waiting.outputs[1 - side].take().into_iter().map(|packet| packet.bytes));
            at_once.sources[side].send(frames.into_iter().map(|frame| Carried::plain(side.try_into().expect("few"), frame)).collect());
            while at_once.sources[side].waits() {
                at_once.worker.turn();
            }
            passed[1][side].extend(at_once.taken[side].take().into_iter().map(|packet| packet.bytes));
        }
        while !waiting.rings.iter().all(|ring| ring.is_empty()) {
            for side in [0, 1] {
                passed[0][side].extend(waiting.turns(side, 100));
            }
        }
        let [late, early] = passed;
        prop_assert_eq!(late, early);
        for &reason in Reason::ALL {
            prop_assert_eq!(waiting.dropped(reason), at_once.dropped(reason), "{:?}", reason);
        }
        prop_assert_eq!(waiting.control.counts(VM), at_once.control.counts(VM));
        let all = |control: &FirewallControl| {
            let seen = |c: straightline_conntrack::Connection| {
                (c.key.remote_port(), c.key.protocol(), c.state, c.direction, c.opener_packets, c.answer_packets)
            };
            let mut all = control.connections(VM, |all| all.map(|(c, _)| format!("{:?}", seen(c))).collect::<Vec<_>>());
            all.sort();
            all
        };
        prop_assert_eq!(all(&waiting.control), all(&at_once.control));
    }
}
