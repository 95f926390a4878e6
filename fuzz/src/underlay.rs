//! An underlay with tunnels of every kind, in a graph of its own: packets come from its port, and go
//! inside or back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use straightline_graph::{Graph, Port};
use straightline_packet::{Arena, Batch, Drops, Level, PortIndex, Rcu, RcuCell, Settings, Turn};
use straightline_underlay::{
    Address, Decap, Gather, NeighbourStatus, Network, OwnPackets, Tunnel, TunnelConfig, TunnelKind, Tunnels, Underlay,
    UnderlayConfig, UnderlayOutput,
};
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{MacAddr, VlanId};

use crate::packets::{accept, guest_memory};

/// Our addresses, and those of the remote of all tunnels.
pub(crate) const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(crate) const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const REMOTE_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const REMOTE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// A next hop whose MAC address the settings fix.
pub(crate) const FIXED: (Ipv4Addr, MacAddr) = (Ipv4Addr::new(10, 0, 0, 9), MacAddr([2, 0, 0, 0, 0, 9]));

/// Index of the underlay's port. Those of the tunnels follow.
const UNDERLAY: u16 = 0;

/// A packet that left the graph: its port and its head.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub port: PortIndex,
    pub head: Vec<u8>,
    pub len: u32,
}

/// The ends of a turn's packets.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Packets that went inside.
    pub inside: Vec<Left>,
    /// Packets that went out by the underlay.
    pub outside: Vec<Left>,
    /// The number of drops.
    pub drops: u64,
}

/// A packet from outside.
#[derive(Debug)]
struct Fed {
    len: usize,
    splits: [u16; 3],
    header: NetHeader,
}

/// The underlay's port, as far as it receives: one packet at a time, in a guest's memory.
#[derive(Debug)]
struct Feed {
    memory: RcuCell<GuestMemory>,
    packet: Mutex<Option<Fed>>,
}

impl Port for Feed {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
        let Some(fed) = self.packet.lock().expect("no panic").take() else { return };
        let memory = self.memory.load(turn).expect("published");
        let id = accept(turn, memory, 0, fed.len, fed.splits).expect("a free slot");
        match fed.header.check(u64::MAX, turn, id) {
            Ok(offload) => {
                turn.set_offload(id, offload);
                into.push(id);
            }
            Err(reason) => turn.discard(id, reason),
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that notes what is delivered.
#[derive(Debug, Default)]
struct Sink(Mutex<Vec<Left>>);

impl Port for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        let mut left = self.0.lock().expect("no panic");
        for &id in batch.ids() {
            left.push(Left { port: turn.packets().port(id), head: turn.head(id).to_vec(), len: turn.len(id) });
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// The graph, and everything at its ends.
pub(crate) struct Rig {
    graph: Graph,
    arena: Arena,
    second: u32,
    memory: GuestMemory,
    feed: Arc<Feed>,
    inside: Arc<Sink>,
    outside: Arc<Sink>,
    drops: Vec<Arc<Drops>>,
    underlay: Arc<Underlay>,
    pub tunnels: Vec<Arc<Tunnel>>,
}

impl Rig {
    /// Makes an underlay with a tunnel of each kind, to the remote's address.
    #[must_use]
    pub(crate) fn new(kinds: &[(TunnelKind, IpAddr)]) -> Self {
        let rcu = Rcu::new();
        let memory = RcuCell::new(&rcu);
        memory.swap(Some(Box::new(guest_memory())));
        let feed = Arc::new(Feed { memory, packet: Mutex::new(None) });
        let underlay = Underlay::new(settings(), PortIndex(UNDERLAY));
        let drops: Vec<Arc<Drops>> = (0..=kinds.len()).map(|_| Arc::default()).collect();
        let tunnels: Vec<_> = (1..)
            .zip(kinds)
            .map(|(index, (kind, remote))| {
                let config = tunnel(&format!("t{index}"), kind, *remote);
                Tunnel::new(config, Arc::clone(&underlay), PortIndex(index), Arc::clone(&drops[usize::from(index)]))
            })
            .collect();
        let inside = Arc::<Sink>::default();
        let outside = Arc::<Sink>::default();
        let mut graph = Graph::new();
        let output = UnderlayOutput::new(Arc::clone(&underlay), outside.clone(), Arc::<Gather>::default());
        let out = graph.output(Arc::new(output), false);
        let lan = graph.output(inside.clone(), false);
        let mut edges = vec![lan; kinds.len() + 1];
        edges[0] = out;
        let decap = Decap::new(Arc::clone(&underlay), Tunnels::new(tunnels.clone()));
        let decap = graph.node("decap", Box::new(decap), &edges);
        let own = OwnPackets::new(PortIndex(UNDERLAY), tunnels.iter().map(|tunnel| tunnel.port()).collect());
        let own = graph.node("own", Box::new(own), &edges);
        graph.input(feed.clone(), decap);
        graph.input(underlay.agent(outside.clone()), own);
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        Rig { graph, arena, second: 0, memory: guest_memory(), feed, inside, outside, drops, underlay, tunnels }
    }

    /// Begins the next second, and does what is due in it.
    pub(crate) fn next_second(&mut self) -> Ends {
        self.second += 1;
        self.arena.set_now(self.second);
        self.turn()
    }

    /// Returns the next hops.
    #[must_use]
    pub(crate) fn neighbours(&self) -> Vec<NeighbourStatus> {
        self.underlay.neighbours()
    }

    /// Runs a turn without a packet from outside.
    pub(crate) fn turn(&mut self) -> Ends {
        let before = self.dropped();
        self.arena.turn(|turn| self.graph.run(turn));
        let taken = |sink: &Sink| std::mem::take(&mut *sink.0.lock().expect("no panic"));
        Ends { inside: taken(&self.inside), outside: taken(&self.outside), drops: self.dropped() - before }
    }

    /// Runs a turn with a packet from outside: `header` is its virtio-net header, `splits` are the
    /// lengths of its first memory segments.
    pub(crate) fn receive(&mut self, packet: &[u8], splits: [u16; 3], header: NetHeader) -> Ends {
        self.memory.segments(0, packet.len() as u32, &mut 0, |segment| {
            segment.write(Level::Scalar, packet);
        });
        *self.feed.packet.lock().expect("no panic") = Some(Fed { len: packet.len(), splits, header });
        self.turn()
    }

    fn dropped(&self) -> u64 {
        self.drops.iter().flat_map(|drops| drops.nonzero()).map(|(_, n)| n).sum()
    }
}

fn settings() -> UnderlayConfig {
    let address = |ip: IpAddr, prefix| Address { ip, prefix };
    UnderlayConfig {
        mac: Some(OWN_MAC),
        neighbours: vec![(FIXED.0.into(), FIXED.1)],
        ..UnderlayConfig::new("wan", vec![address(OWN_V4.into(), 24), address(OWN_V6.into(), 64)])
    }
}

fn tunnel(name: &str, kind: &TunnelKind, remote: IpAddr) -> TunnelConfig {
    let local = if remote.is_ipv4() { OWN_V4.into() } else { OWN_V6.into() };
    TunnelConfig {
        networks: networks(kind, remote),
        mtu: 1400,
        mac: kind.carries_ip().then_some(MacAddr([2, 0, 0, 0, 0, 0xfe])),
        ..TunnelConfig::new(name, kind.clone(), local, vec![remote])
    }
}

/// Returns two networks over IPv6, for kinds that may have several.
fn networks(kind: &TunnelKind, remote: IpAddr) -> Vec<Network> {
    let Some(vni) = kind.vni().filter(|_| remote.is_ipv6() && !kind.carries_ip()) else { return Vec::new() };
    let network = |vid, vni| VlanId::new(vid).map(|vlan| Network { vlan, vni });
    [network(10, vni), network(20, vni ^ 1)].into_iter().flatten().collect()
}
