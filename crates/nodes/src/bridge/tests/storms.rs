//! Limits of floods: packets to be segmented, and bursts.

use straightline_graph::Clock;
use straightline_packet::{Gso, GsoKind, Offload};
use straightline_testing::ports::{Carried, Source, Taken};

use super::*;

const BROADCAST: [u8; 6] = [0xff; 6];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
const NOBODY: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Bytes of the headers of a UDP packet.
const HEADERS: u16 = 42;

/// A bridge of two ports, of which the first has limits.
struct Limited {
    graph: Graph,
    arena: Arena,
    source: Arc<Source>,
    taken: Arc<Taken>,
    drops: Vec<Arc<Drops>>,
}

impl Limited {
    fn new(limit: u32) -> Self {
        let mut ports: Vec<_> = (0..2).map(|port| BridgePort::plain(PortIndex(port))).collect();
        let limit = Some(limit);
        ports[0].rules.storm = StormLimits { broadcast: limit, multicast: limit, unknown: limit };
        let fdb = Arc::new(Fdb::new(64, 300, &[PortIndex(0), PortIndex(1)], &[]));
        let mut graph = Graph::new();
        let taken = Arc::new(Taken::default());
        let edges = [Arc::default(), Arc::clone(&taken)].map(|port: Arc<Taken>| graph.output(port, false));
        let bridge = graph.node("bridge", Box::new(Bridge::new(&ports, fdb)), &edges);
        let source = Arc::new(Source::default());
        graph.input(Arc::clone(&source) as _, bridge);
        let drops: Vec<Arc<Drops>> = ports.iter().map(|_| Arc::default()).collect();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        Limited { graph, arena, source, taken, drops }
    }

    /// Returns the number of packets that pass.
    fn pass(&mut self, packets: Vec<Carried>) -> usize {
        self.source.send(packets);
        let graph = &mut self.graph;
        while self.source.waits() {
            self.arena.turn(|turn| graph.run(turn));
            self.arena.begin_round();
        }
        self.taken.take().len()
    }

    fn dropped(&self) -> u64 {
        self.drops[0].count(Reason::Storm)
    }
}

/// Returns a UDP packet of this number of segments.
pub(crate) fn datagrams(to: [u8; 6], segments: u16) -> Carried {
    const SIZE: u16 = 8;
    let bytes = [&to[..], &[2, 0, 0, 0, 0, 1], &[8, 0], &vec![0; usize::from(HEADERS - 14 + segments * SIZE)]].concat();
    let gso = Gso { kind: GsoKind::Udp4, ecn: false, size: SIZE, l3: 14, l4: 34, header_len: HEADERS, outer: None };
    Carried { port: 0, bytes, offload: Offload { gso: Some(gso), ..Offload::default() } }
}

/// The limit is one in a second. A packet passes, and its segments are paid for two hours: no test is away so
/// long.
#[test]
fn a_packet_counts_as_its_segments() {
    for to in [BROADCAST, GROUP, NOBODY] {
        let mut limited = Limited::new(1);
        let packets = (0..10).map(|_| datagrams(to, 8000)).collect();
        assert_eq!((limited.pass(packets), limited.dropped()), (1, 9));
        assert_eq!(limited.pass(vec![datagrams(to, 1)]), 0);
        assert_eq!(limited.dropped(), 10);
    }
}

#[test]
fn a_tenth_of_a_second_passes_at_once() {
    const LIMIT: usize = 100;
    for to in [BROADCAST, GROUP, NOBODY] {
        let clock = Clock::real();
        let began = clock.now();
        let mut limited = Limited::new(100);
        let passed = limited.pass((0..200).map(|_| datagrams(to, 1)).collect());
        let millis = usize::try_from(clock.since(began).as_millis()).unwrap();
        // The bucket fills while the test runs.
        let most = LIMIT / 10 + 1 + LIMIT * (millis + 1) / 1000;
        assert!((LIMIT / 10..=most).contains(&passed), "{passed} in {millis} ms");
        assert_eq!(limited.dropped(), 200 - passed as u64);
    }
}
