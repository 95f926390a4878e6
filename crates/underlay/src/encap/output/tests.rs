mod networks;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Mutex;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_graph::{EpollWaiter, Form, Graph, Idle, Next, Node, Worker};
use straightline_packet::{
    Arena, Drops, Gso, GsoKind, GsoSegment, Offload, PacketVlan, Packets, Rcu, Segmenter, Settings, SourceQueueId,
};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_wire::VlanId;

use super::*;
use crate::headers::reference::{HOP, InnerHeaders, check, finish as finish_all, kinds, tunnel, underlay};
use crate::tunnel::remotes::RemoteIndex;
use crate::{Encap, OwnPackets, TunnelConfig, TunnelKind, UnderlayConfig};
use straightline_wire::messages::{Link, arp_request};

/// Port of the packets' source.
const SOURCE: PortIndex = PortIndex(0);

/// A packet of a source: its bytes, and what belongs to it.
type SourcePacket = (Vec<u8>, Offload, Option<PacketVlan>);

/// A source of packets whose bodies lie in guest memory.
#[derive(Debug)]
struct Source {
    memory: &'static GuestMemory,
    packets: Mutex<VecDeque<SourcePacket>>,
}

impl Source {
    const SIZE: u64 = 4 << 20;

    fn new() -> Arc<Self> {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, Self::SIZE).unwrap();
        let region = Region::map(file.as_fd(), 0, Self::SIZE, 0, 0).unwrap();
        // It lives as long as the process, because a turn may refer to it.
        let memory = Box::leak(Box::new(GuestMemory::new(vec![Arc::new(region)]).unwrap()));
        Arc::new(Source { memory, packets: Mutex::default() })
    }

    fn send(&self, packet: &[u8], offload: Offload) {
        self.send_in(None, packet, offload);
    }

    /// Sends a packet whose bridge has noted a VLAN.
    fn send_in(&self, vlan: Option<PacketVlan>, packet: &[u8], offload: Offload) {
        self.packets.lock().unwrap().push_back((packet.to_vec(), offload, vlan));
    }
}

impl Port for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let mut at = 0;
        for _ in 0..max {
            let Some((packet, offload, vlan)) = self.packets.lock().unwrap().pop_front() else { return };
            let len = u32::try_from(packet.len()).unwrap();
            let memory = self.memory;
            let segment = memory.segment(at, len, &mut 0).unwrap();
            at += u64::from(len);
            segment.write(turn.packets().level(), &packet);
            let id = turn.accept(SOURCE, SourceQueueId::NONE, segment).unwrap();
            turn.packets().set_offload(id, offload);
            turn.packets().set_vlan(id, vlan);
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that keeps what it gets: each packet with finished checksums, GSO packets in segments.
#[derive(Debug, Default)]
struct Capture {
    sent: Mutex<Vec<Vec<u8>>>,
    /// The VLANs of packets that it got, as their bridge has noted them.
    vlans: Mutex<Vec<Option<PacketVlan>>>,
    /// Packets of each delivery.
    batches: Mutex<Vec<usize>>,
    /// The MTU of the port's interface.
    mtu: Mutex<Option<u16>>,
}

impl Capture {
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl Port for Capture {
    fn name(&self) -> &str {
        "capture"
    }

    fn mtu(&self, _turn: &Turn<'_>) -> Option<u16> {
        *self.mtu.lock().unwrap()
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        self.batches.lock().unwrap().push(batch.len());
        for &id in batch.ids() {
            self.vlans.lock().unwrap().push(turn.packets().vlan(id));
            // A port writes its own header in front of the packet.
            turn.front_mut::<12>(id).fill(0xee);
            let level = turn.packets().level();
            let mut whole = turn.packets().head(id).to_vec();
            for segment in turn.body(id) {
                let mut bytes = vec![0; segment.len() as usize];
                assert_eq!(segment.read(level, &mut bytes), bytes.len());
                whole.extend(bytes);
            }
            let offload = turn.packets().offload(id);
            let mut sent = self.sent.lock().unwrap();
            match offload.gso {
                None => {
                    finish_all(&mut whole, offload.checksum);
                    sent.push(whole);
                }
                Some(gso) => {
                    let mut plan = Segmenter::new(gso, turn.len(id)).unwrap();
                    let mut segment = GsoSegment::default();
                    while plan.next(turn.packets().head(id), &mut segment) {
                        let payload = segment.payload();
                        let payload = &whole[payload.start as usize..payload.end as usize];
                        let mut bytes = [segment.headers(), payload].concat();
                        finish_all(&mut bytes, segment.checksum());
                        sent.push(bytes);
                    }
                }
            }
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Sends each packet along all edges.
struct Flood;

impl Node for Flood {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for edge in 0..next.edges() {
            next.extend(edge, batch.ids());
        }
    }
}

/// Pushes one 802.1Q tag with this VLAN.
#[derive(Debug)]
struct PushTag(u8);

impl Form for PushTag {
    fn change(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Reason> {
        packets.prepend(id, &[0; 4]).map_err(|_| Reason::NoHeadroom)?;
        let head = packets.head_mut(id);
        head.copy_within(4..16, 0);
        head[12..16].copy_from_slice(&[0x81, 0, 0, self.0]);
        Ok(())
    }
}

/// VLANs of the ports that get tags.
const VLANS: [u8; 3] = [7, 9, 7];

/// A source whose packets are flooded to a plain port, ports that get tags, all tunnels of an
/// underlay, one more port that gets tags, and one more plain port, in this order.
struct Rig {
    worker: Worker,
    source: Arc<Source>,
    plain: [Arc<Capture>; 2],
    tagged: [Arc<Capture>; 3],
    wire: Arc<Capture>,
    /// Packets that the underlay sends into the tunnels' patches.
    inside: Arc<Capture>,
    underlay: Arc<Underlay>,
    tunnels: Vec<Arc<Tunnel>>,
    drops: Vec<Arc<Drops>>,
}

impl Rig {
    fn new(config: UnderlayConfig, tunnels: Vec<TunnelConfig>) -> Self {
        let underlay = Underlay::new(config, PortIndex(1));
        let drops: Vec<Arc<Drops>> = (0..tunnels.len() + 2).map(|_| Arc::default()).collect();
        let tunnel = |(at, config): (usize, TunnelConfig)| {
            let port = PortIndex(u16::try_from(at + 2).unwrap());
            Tunnel::new(config, Arc::clone(&underlay), port, Arc::clone(&drops[port.index()]))
        };
        let tunnels: Vec<Arc<Tunnel>> = tunnels.into_iter().enumerate().map(tunnel).collect();
        let source = Source::new();
        let wire = Arc::<Capture>::default();
        let plain = [Arc::<Capture>::default(), Arc::default()];
        let inside = Arc::<Capture>::default();
        let gather = Arc::<Gather>::default();
        let mut graph = Graph::new();
        // What is added first runs last.
        let last = graph.output(Arc::clone(&plain[1]) as Arc<dyn Port>, false);
        let tagged = VLANS.map(|_| Arc::<Capture>::default());
        let to_tagged = |graph: &mut Graph, at: usize| graph.output(Arc::clone(&tagged[at]) as Arc<dyn Port>, false);
        let last_tagged = to_tagged(&mut graph, 2);
        let port = Arc::clone(&wire) as Arc<dyn Port>;
        let output = UnderlayOutput::new(Arc::clone(&underlay), port, Arc::clone(&gather));
        let output = graph.output(Arc::new(output), false);
        let mut edges = vec![last, last_tagged];
        for tunnel in &tunnels {
            let node = Encap::new(Arc::clone(&gather), Arc::clone(tunnel));
            edges.push(graph.node(tunnel.config().name.clone(), Box::new(node), &[output]));
        }
        let [nines, sevens] = [1, 0].map(|at| to_tagged(&mut graph, at));
        graph.form(Box::new(PushTag(7)), &[sevens, last_tagged]);
        graph.form(Box::new(PushTag(9)), &[nines]);
        edges.extend([nines, sevens]);
        edges.push(graph.output(Arc::clone(&plain[0]) as Arc<dyn Port>, false));
        let flood = graph.node("flood", Box::new(Flood), &edges);
        let to_inside = graph.output(Arc::clone(&inside) as Arc<dyn Port>, false);
        let ports: Vec<PortIndex> = tunnels.iter().map(|tunnel| tunnel.port()).collect();
        let edges: Vec<_> = [output].into_iter().chain(ports.iter().map(|_| to_inside)).collect();
        let own = graph.node("own", Box::new(OwnPackets::new(PortIndex(1), ports)), &edges);
        graph.input(underlay.agent(Arc::clone(&wire) as Arc<dyn Port>), own);
        graph.input(Arc::clone(&source) as Arc<dyn Port>, flood);
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Rig { worker, source, plain, tagged, wire, inside, underlay, tunnels, drops }
    }

    fn turn(&mut self) {
        while !self.source.packets.lock().unwrap().is_empty() {
            self.worker.turn();
        }
    }

    /// Sends one packet and returns what comes out of the underlay.
    fn send(&mut self, packet: &[u8], offload: Offload) -> Vec<Vec<u8>> {
        self.source.send(packet, offload);
        self.turn();
        self.wire.take()
    }

    fn dropped(&self, tunnel: usize) -> Vec<(Reason, u64)> {
        self.drops[self.tunnels[tunnel].port.index()].nonzero().collect()
    }
}

/// All kinds, over both versions of IP.
fn all_tunnels() -> Vec<TunnelConfig> {
    let both = kinds().into_iter().flat_map(|kind| [true, false].map(|v4| tunnel(kind.clone(), v4)));
    both.map(|config| TunnelConfig { mtu: 9000, ..config }).collect()
}

/// A packet of a guest.
#[derive(Clone, Debug)]
struct Sent {
    headers: InnerHeaders,
    payload: Vec<u8>,
    is_partial: bool,
    /// Bytes of each segment.
    size: Option<u16>,
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        if self.is_partial { self.headers.unfinished(&self.payload) } else { self.headers.complete(&self.payload) }
    }

    fn offload(&self) -> Offload {
        let checksum = if self.is_partial { self.headers.partial() } else { Checksum::Complete };
        let InnerHeaders { v4, tcp, .. } = self.headers;
        let kind = match (v4, tcp) {
            (true, true) => GsoKind::Tcp4,
            (false, true) => GsoKind::Tcp6,
            (true, false) => GsoKind::Udp4,
            (false, false) => GsoKind::Udp6,
        };
        let l4 = self.headers.l4();
        let header_len = self.headers.len();
        let gso = self.size.map(|size| Gso { kind, ecn: false, size, l3: 14, l4, header_len, outer: None });
        Offload { checksum, gso }
    }

    /// Returns the packets that others see, with finished checksums, if segments have `size` bytes
    /// at most.
    fn pieces(&self, size: u16) -> Vec<Vec<u8>> {
        let Some(own) = self.size else { return vec![self.headers.complete(&self.payload)] };
        let size = own.min(size);
        let pieces = self.payload.chunks(size.into()).enumerate();
        pieces.map(|(nth, piece)| self.headers.nth(u16::try_from(nth).unwrap(), size).complete(piece)).collect()
    }
}

fn packets() -> impl Strategy<Value = Vec<Sent>> {
    let headers = (any::<[bool; 2]>(), any::<u8>(), any::<u16>(), any::<u32>());
    let headers =
        headers.prop_map(|([v4, tcp], tos, ident, seq)| InnerHeaders { ident, seq, ..InnerHeaders::new(v4, tcp, tos) });
    let whole = (headers.clone(), prop::collection::vec(any::<u8>(), 0..1400), any::<bool>());
    let whole = whole.prop_map(|(headers, payload, is_partial)| Sent { headers, payload, is_partial, size: None });
    let long = (headers, prop::collection::vec(any::<u8>(), 1..9000), 1..1300_u16);
    // A size that would give thousands of segments would test nothing more.
    let long = long.prop_map(|(headers, payload, size)| {
        let least = u16::try_from(payload.len() / 20 + 1).unwrap();
        Sent { headers, payload, is_partial: true, size: Some(size.max(least)) }
    });
    prop::collection::vec(prop_oneof![whole, long], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every tunnel sends what the reference implementation sends, other ports get the tags of their
    /// own form, and no port sees the headers of another one.
    #[test]
    fn a_flood_leaves_packets_as_they_were(sent in packets(), vlan in prop::option::of(1..4095_u16)) {
        let mut rig = Rig::new(underlay(vlan), all_tunnels());
        for packet in &sent {
            rig.source.send(&packet.bytes(), packet.offload());
        }
        rig.turn();
        let pieces: Vec<(u8, Vec<u8>)> = sent
            .iter()
            .flat_map(|packet| packet.pieces(u16::MAX).into_iter().map(|piece| (packet.headers.tos, piece)))
            .collect();
        for plain in &rig.plain {
            let got = plain.take();
            prop_assert_eq!(got.len(), pieces.len());
            prop_assert!(got.iter().zip(&pieces).all(|(got, (_, piece))| got == piece));
        }
        for (port, vlan) in rig.tagged.iter().zip(VLANS) {
            let got = port.take();
            let tagged = |piece: &[u8]| [&piece[..12], &[0x81, 0, 0, vlan], &piece[12..]].concat();
            prop_assert_eq!(got.len(), pieces.len());
            prop_assert!(got.iter().zip(&pieces).all(|(got, (_, piece))| *got == tagged(piece)));
        }
        let mut got = rig.wire.take().into_iter();
        // Tunnels were added to the graph in their order, so they run in the opposite order.
        for tunnel in rig.tunnels.iter().rev() {
            for (tos, piece) in &pieces {
                check(tunnel.config(), vlan, &got.next().expect("a packet"), piece, *tos);
            }
            let bytes: usize = sent.iter().map(|sent| sent.bytes().len()).sum();
            let tx = &tunnel.counters.tx;
            prop_assert_eq!((tx.packets.get(), tx.bytes.get()), (sent.len() as u64, bytes as u64));
        }
        prop_assert_eq!(got.next(), None);
        prop_assert!(rig.drops.iter().all(|drops| drops.total() == 0));
    }
}

const NOTHING: Offload = Offload { checksum: Checksum::Complete, gso: None };

fn vxlan() -> TunnelConfig {
    tunnel(TunnelKind::Vxlan { vni: 7 }, true)
}

/// A packet for the station with this last byte of the address.
fn packet_to(last: u8) -> Vec<u8> {
    let dst = MacAddr([2, 0xaa, 0, 0, 0, last]);
    InnerHeaders { dst, ..InnerHeaders::new(true, false, 0) }.complete(&[last; 20])
}

/// Settings with three remotes. Station 9 is fixed behind the second one.
fn three_remotes() -> (UnderlayConfig, TunnelConfig) {
    let remotes: Vec<std::net::IpAddr> = (2..5).map(|n| [10, 0, 0, n].into()).collect();
    let macs = (2..5).map(|n| MacAddr([2, 0, 0, 0, 0, n]));
    let neighbours = remotes.iter().copied().zip(macs).collect();
    let stations = vec![(VlanId::DEFAULT, MacAddr([2, 0xaa, 0, 0, 0, 9]), remotes[1])];
    (UnderlayConfig { neighbours, ..underlay(None) }, TunnelConfig { remotes, stations, ..vxlan() })
}

#[test]
fn each_station_has_its_remote_and_floods_go_to_all() {
    let (underlay, tunnel) = three_remotes();
    let mut rig = Rig::new(underlay, vec![tunnel.clone()]);
    rig.tunnels[0].remotes.as_ref().unwrap().learn(VlanId::DEFAULT, MacAddr([2, 0xaa, 0, 0, 0, 8]), RemoteIndex(2), 0);
    let group = InnerHeaders { dst: MacAddr([1, 0, 0x5e, 0, 0, 1]), ..InnerHeaders::new(true, false, 0) };
    let group = group.complete(&[0; 20]);
    let sent = [packet_to(9), packet_to(8), group, packet_to(1), packet_to(9)];
    sent.iter().for_each(|packet| rig.source.send(packet, NOTHING));
    rig.turn();
    let got = rig.wire.take();
    for (n, to) in [(2, vec![2, 3]), (3, vec![0, 2, 3, 4]), (4, vec![1, 2, 3])] {
        let got: Vec<_> = got.iter().filter(|packet| packet[33] == n).collect();
        assert_eq!(got.len(), to.len());
        for (packet, at) in got.into_iter().zip(to) {
            assert_eq!(packet[..6], [2, 0, 0, 0, 0, n]);
            let mut as_first = packet.clone();
            as_first[..6].copy_from_slice(&HOP.0);
            let remotes = vec![[10, 0, 0, n].into()];
            check(&TunnelConfig { remotes, ..tunnel.clone() }, None, &as_first, &sent[at], 0);
        }
    }
    // A delivery has each packet once.
    assert_eq!(*rig.wire.batches.lock().unwrap(), [3, 4, 2]);
    assert_eq!(rig.tunnels[0].counters.tx.packets.get(), 9);
    // Only known stations: their packets go in one delivery.
    rig.wire.batches.lock().unwrap().clear();
    (0..6).for_each(|n| rig.source.send(&packet_to(8 + n % 2), NOTHING));
    rig.turn();
    let remotes: Vec<u8> = rig.wire.take().iter().map(|packet| packet[33]).collect();
    assert_eq!(remotes, [4, 3, 4, 3, 4, 3]);
    assert_eq!(*rig.wire.batches.lock().unwrap(), [6]);
}

#[test]
fn at_most_64_packets_have_headers_at_a_time() {
    let mut rig = Rig::new(underlay(None), vec![vxlan(), tunnel(TunnelKind::Nvgre { vsid: 1 }, false)]);
    (0..64).for_each(|n| rig.source.send(&packet_to(n), NOTHING));
    rig.turn();
    assert_eq!(rig.wire.take().len(), 128);
    assert_eq!(*rig.wire.batches.lock().unwrap(), [64, 64]);
}

#[test]
fn packets_of_many_tunnels_are_delivered_together() {
    let tunnels = (0..256).map(|vni| tunnel(TunnelKind::Vxlan { vni }, true)).collect();
    let mut rig = Rig::new(underlay(None), tunnels);
    // The flood sends each packet by all tunnels. So there is one round for each tunnel.
    assert_eq!(rig.send(&packet_to(1), NOTHING).len(), 256);
    assert_eq!(*rig.wire.batches.lock().unwrap(), [1; 256]);
    assert_eq!(rig.plain[1].take(), [packet_to(1)]);
}

#[test]
fn a_small_packet_waits_for_its_next_hop() {
    let config = UnderlayConfig { neighbours: Vec::new(), ..underlay(None) };
    for kind in kinds() {
        let tunnel = tunnel(kind, true);
        let mut rig = Rig::new(config.clone(), vec![tunnel.clone()]);
        // The first turn asks for the next hop.
        rig.worker.turn();
        assert_eq!(rig.wire.take().iter().filter(|packet| packet[12..14] == [8, 6]).count(), 1);
        let inner = InnerHeaders::new(true, true, 2);
        let long = inner.complete(&[7; 300]);
        assert!(rig.send(&long, NOTHING).is_empty());
        assert_eq!(rig.dropped(0), [(Reason::NoNeighbour, 1)]);
        let partial = Offload { checksum: inner.partial(), gso: None };
        assert!(rig.send(&inner.unfinished(b"first"), partial).is_empty());
        assert_eq!(rig.dropped(0), [(Reason::NoNeighbour, 1)], "the packet is kept");
        assert!(rig.send(&inner.unfinished(b"second"), partial).is_empty());
        assert_eq!(rig.dropped(0), [(Reason::NoNeighbour, 2)], "only one is kept");
        assert_eq!(rig.tunnels[0].counters.tx.packets.get(), 1);
        let kept = rig.underlay.neighbours.answered(tunnel.remotes[0], Some(HOP), HOP).unwrap();
        check(&tunnel, None, kept.bytes(), &inner.complete(b"first"), 2);
        let sent = rig.send(&inner.unfinished(b"third"), partial);
        check(&tunnel, None, &sent[0], &inner.complete(b"third"), 2);
        // All other outputs got all packets as they were.
        assert_eq!(rig.plain[1].take().len(), 4);
    }
}

#[test]
fn no_packet_leaves_without_our_address_and_without_a_way() {
    let mut rig = Rig::new(UnderlayConfig { mac: None, ..underlay(None) }, vec![vxlan()]);
    assert!(rig.send(&packet_to(1), NOTHING).is_empty());
    assert_eq!(rig.dropped(0), [(Reason::LinkDown, 1)]);
    let far = TunnelConfig { remotes: vec![[192, 0, 2, 1].into()], ..vxlan() };
    let mut rig = Rig::new(underlay(None), vec![far.clone()]);
    assert!(rig.send(&packet_to(1), NOTHING).is_empty());
    assert_eq!(rig.dropped(0), [(Reason::NoNeighbour, 1)]);
    let gateways = vec![[10, 0, 0, 2].into()];
    let mut rig = Rig::new(UnderlayConfig { gateways, ..underlay(None) }, vec![far.clone()]);
    check(&far, None, &rig.send(&packet_to(1), NOTHING)[0], &packet_to(1), 0);
}

#[test]
fn a_tunnel_that_is_set_down_sends_nothing() {
    let mut rig = Rig::new(underlay(None), vec![vxlan()]);
    rig.tunnels[0].set_down(true);
    assert!(rig.send(&packet_to(1), NOTHING).is_empty());
    assert_eq!(rig.dropped(0), [(Reason::SetDown, 1)]);
    assert_eq!(rig.plain[1].take(), [packet_to(1)]);
    rig.tunnels[0].set_down(false);
    assert_eq!(rig.send(&packet_to(1), NOTHING).len(), 1);
}

/// Bytes of the longest inner IP packet for VXLAN over IPv4 and an underlay of 1600 bytes.
const FITS: usize = 1600 - 20 - 8 - 8 - 14;

#[test]
fn what_does_not_fit_is_dropped_and_its_sender_is_told() {
    let mut rig = Rig::new(underlay(None), vec![TunnelConfig { mtu: 9000, ..vxlan() }]);
    let inner = InnerHeaders::new(true, false, 0);
    let fits = inner.complete(&vec![1; FITS - 28]);
    assert_eq!(rig.send(&fits, NOTHING)[0].len(), 1614);
    let too_long = inner.complete(&vec![1; FITS - 27]);
    assert!(rig.send(&too_long, NOTHING).is_empty());
    assert_eq!(rig.dropped(0), [(Reason::TooBig, 1)]);
    rig.worker.turn();
    let told = rig.inside.take();
    assert_eq!(told.len(), 1);
    // ICMP: destination unreachable, fragmentation needed.
    assert_eq!((told[0][23], &told[0][34..36]), (1, &[3, 4][..]));
    assert_eq!(usize::from(u16::from_be_bytes([told[0][40], told[0][41]])), FITS);
    assert_eq!(rig.plain[1].take(), [fits, too_long]);
    // The tunnel's own MTU is the limit if it is the lower one. A tag comes on top of it.
    let mut rig = Rig::new(underlay(None), vec![vxlan()]);
    let mut tagged = inner.complete(&vec![1; 1500 - 28]);
    tagged.splice(12..12, [0x81, 0, 0, 9]);
    assert_eq!(rig.send(&tagged, NOTHING).len(), 1);
    tagged.push(0);
    assert!(rig.send(&tagged, NOTHING).is_empty());
    rig.worker.turn();
    assert_eq!(rig.inside.take()[0][44..46], 1500_u16.to_be_bytes());
}

#[test]
fn tcp_is_segmented_to_what_fits_and_datagrams_are_not() {
    let tunnel = TunnelConfig { mtu: 9000, ..vxlan() };
    let mut rig = Rig::new(underlay(None), vec![tunnel.clone()]);
    let payload: Vec<u8> = (0..20_000_u32).map(|at| at.to_be_bytes()[3]).collect();
    for v4 in [true, false] {
        let headers = InnerHeaders::new(v4, true, 1);
        let sent = Sent { headers, payload: payload.clone(), is_partial: true, size: Some(8940) };
        let got = rig.send(&sent.bytes(), sent.offload());
        let size = u16::try_from(FITS + 14).unwrap() - headers.len();
        let pieces = sent.pieces(size);
        assert_eq!(got.len(), pieces.len());
        assert!(got.iter().all(|packet| packet.len() <= 1614));
        got.iter().zip(&pieces).for_each(|(packet, piece)| check(&tunnel, None, packet, piece, 1));
        assert_eq!(rig.plain[1].take(), sent.pieces(u16::MAX), "other ports keep the size");
        let headers = InnerHeaders::new(v4, false, 1);
        for (size, is_sent) in [(FITS + 14 - usize::from(headers.len()), true), (FITS, false)] {
            let size = Some(u16::try_from(size).unwrap());
            let sent = Sent { headers, payload: payload[..5000].to_vec(), is_partial: true, size };
            assert_eq!(!rig.send(&sent.bytes(), sent.offload()).is_empty(), is_sent);
            assert_eq!(rig.plain[1].take(), sent.pieces(u16::MAX));
        }
    }
    assert_eq!(rig.dropped(0), [(Reason::TooBig, 2)]);
}

#[test]
fn the_mtu_of_the_ports_interface_is_the_limit() {
    let mut rig = Rig::new(underlay(None), vec![TunnelConfig { mtu: 9000, ..vxlan() }]);
    *rig.wire.mtu.lock().unwrap() = Some(1500);
    let payload = vec![1; 5000];
    let headers = InnerHeaders::new(true, true, 1);
    let sent = Sent { headers, payload, is_partial: true, size: Some(2000) };
    let got = rig.send(&sent.bytes(), sent.offload());
    assert_eq!((got.len(), got.iter().map(Vec::len).max()), (4, Some(1514)), "TCP is segmented to it");
    let inner = InnerHeaders::new(true, false, 0);
    assert_eq!(rig.send(&inner.complete(&vec![1; FITS - 100 - 28]), NOTHING)[0].len(), 1514);
    assert!(rig.send(&inner.complete(&vec![1; FITS - 99 - 28]), NOTHING).is_empty());
    assert_eq!(rig.dropped(0), [(Reason::TooBig, 1)]);
    rig.worker.turn();
    let told = rig.inside.take();
    assert_eq!(usize::from(u16::from_be_bytes([told[0][40], told[0][41]])), FITS - 100);
    assert_eq!(usize::from(rig.tunnels[0].status().mtu_inside), FITS - 100);
    // The settings are the limit if they are the lower one, or if the interface's MTU is not known.
    for mtu in [Some(9000), None] {
        rig.underlay.set_interface_mtu(mtu);
        assert_eq!(usize::from(rig.tunnels[0].status().mtu_inside), FITS);
    }
}

#[test]
fn a_tunnel_of_ip_answers_for_far_addresses() {
    let mac = MacAddr([2, 0, 0, 0, 0, 0x77]);
    let tunnel = TunnelConfig { mac: Some(mac), ..tunnel(TunnelKind::Gtpu { teid: 1, peer_teid: 2 }, true) };
    let mut rig = Rig::new(underlay(None), vec![tunnel]);
    let station = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    let link = Link { src: station, dst: MacAddr::BROADCAST, vlan: None };
    let question = arp_request(link, [192, 168, 1, 1].into(), [192, 168, 1, 2].into()).unwrap();
    assert!(rig.send(question.bytes(), NOTHING).is_empty());
    rig.worker.turn();
    let answer = rig.inside.take().remove(0);
    assert_eq!((&answer[..6], &answer[6..12]), (&station.0[..], &mac.0[..]));
    assert_eq!(rig.tunnels[0].face.as_ref().unwrap().inside(), station);
    assert!(rig.dropped(0).is_empty());
    let tagged = |bytes: &[u8], vid| [&bytes[..12], &[0x81, 0, 0, vid], &bytes[12..]].concat();
    // Behind a priority tag, it neither carries IP nor answers.
    let asked = tagged(question.bytes(), 0);
    for other in [tagged(&packet_to(1), 9), tagged(&packet_to(1), 0), asked, vec![0xff; 60], vec![0; 14]] {
        assert!(rig.send(&other, NOTHING).is_empty());
    }
    rig.worker.turn();
    assert!(rig.inside.take().is_empty());
    assert_eq!(rig.dropped(0), [(Reason::NotIp, 5)]);
    assert_eq!(rig.send(&packet_to(1), NOTHING).len(), 1);
}

#[test]
fn packets_of_the_underlays_own_go_out_as_they_are() {
    let mut rig = Rig::new(underlay(None), vec![vxlan()]);
    assert!(rig.underlay.outbox.push(&[0x5a; 60]));
    let got = rig.send(&packet_to(1), NOTHING);
    assert_eq!((got.len(), &got[0][..]), (2, &[0x5a; 60][..]));
    assert_eq!(*rig.wire.batches.lock().unwrap(), [1, 1]);
}

#[test]
fn questions_beyond_the_places_of_a_tunnel_are_counted() {
    let face = |teid| TunnelConfig {
        mac: Some(MacAddr([2, 0, 0, 0, 0, 0x77])),
        ..tunnel(TunnelKind::Gtpu { teid, peer_teid: teid }, true)
    };
    let mut rig = Rig::new(underlay(None), vec![face(1), face(2)]);
    let link = Link { src: MacAddr([2, 0xaa, 0, 0, 0, 1]), dst: MacAddr::BROADCAST, vlan: None };
    for target in 2..52 {
        let question = arp_request(link, [192, 168, 1, 1].into(), [192, 168, 1, target].into()).unwrap();
        rig.source.send(question.bytes(), NOTHING);
    }
    rig.worker.turn();
    rig.worker.turn();
    assert_eq!(rig.inside.take().len(), 32, "each tunnel has its answers");
    for tunnel in 0..2 {
        assert_eq!(rig.dropped(tunnel), [(Reason::AnswerLimit, 34)]);
    }
}

#[test]
fn the_longest_packets_are_noted() {
    let mut rig = Rig::new(underlay(None), vec![TunnelConfig { mtu: 9000, ..vxlan() }]);
    let remote = rig.tunnels[0].config.remotes[0];
    let believes = |rig: &Rig, len| {
        let error = crate::tunnel::path_mtu::TooLong { len, mtu: 0 };
        rig.tunnels[0].paths.fixed().get(0).unwrap().mtu.lower_to(remote, error, 1600, 0).is_some()
    };
    let long = InnerHeaders::new(true, false, 0).complete(&vec![1; 1400]);
    assert!(!believes(&rig, 1400));
    let sent = u32::try_from(rig.send(&long, NOTHING)[0].len()).unwrap() - 14;
    assert!(believes(&rig, sent) && !believes(&rig, sent + 1));
    // Segments of a TCP packet.
    let headers = InnerHeaders::new(true, true, 1);
    for (size, longest) in [(1440, 1440 + 54 + 36), (9000, 1600)] {
        let sent = Sent { headers, payload: vec![1; 5000], is_partial: true, size: Some(size) };
        let got = rig.send(&sent.bytes(), sent.offload());
        assert_eq!(got.iter().map(Vec::len).max(), Some(longest + 14));
        let longest = u32::try_from(longest).unwrap();
        assert!(believes(&rig, longest) && !believes(&rig, longest + 1));
    }
}

/// Puts bytes in front of packets, as another tunnel would.
struct Deepen(usize);

impl Node for Deepen {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            packets.prepend(id, &vec![0; self.0]).unwrap();
            next.push(0, id);
        }
    }
}

#[test]
fn headers_that_are_too_deep_are_dropped() {
    let underlay = Underlay::new(underlay(Some(7)), PortIndex(1));
    let options = [&[1, 2, 3, 8][..], &[5; 32]].concat();
    // 110 bytes, the deepest headers.
    let config = tunnel(TunnelKind::Geneve { vni: 1, options }, false);
    for (more, fits) in [(0, true), (6, true), (7, false), (80, false)] {
        let gather = Arc::<Gather>::default();
        let drops = Arc::<Drops>::default();
        let tunnel = Tunnel::new(config.clone(), Arc::clone(&underlay), PortIndex(2), Arc::clone(&drops));
        let source = Source::new();
        let wire = Arc::<Capture>::default();
        let mut graph = Graph::new();
        let port = Arc::clone(&wire) as Arc<dyn Port>;
        let output = UnderlayOutput::new(Arc::clone(&underlay), port, Arc::clone(&gather));
        let output = graph.output(Arc::new(output), false);
        let encap = graph.node("encap", Box::new(Encap::new(gather, tunnel)), &[output]);
        let deepen = graph.node("deepen", Box::new(Deepen(more)), &[encap]);
        graph.input(Arc::clone(&source) as Arc<dyn Port>, deepen);
        let of_all = vec![Arc::default(), Arc::default(), Arc::clone(&drops)];
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), of_all);
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        source.send(&packet_to(1), NOTHING);
        worker.turn();
        assert_eq!(wire.take().len(), usize::from(fits), "{more}");
        assert_eq!((drops.count(Reason::NoHeadroom), drops.total()), (u64::from(!fits), u64::from(!fits)), "{more}");
        assert!(underlay.outbox.is_empty(), "the sender is told of no MTU");
    }
}

/// Writes over all of a packet's head behind its addresses.
struct Overwrite;

impl Node for Overwrite {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        batch.ids().iter().for_each(|&id| packets.head_mut(id)[12..].fill(0x77));
        next.extend(0, batch.ids());
    }
}

#[test]
fn a_tunnel_behind_enclosed_nodes_alone_sees_their_changes() {
    let underlay = Underlay::new(underlay(None), PortIndex(1));
    let configs = [vxlan(), tunnel(TunnelKind::Vxlan { vni: 8 }, true), tunnel(TunnelKind::Vxlan { vni: 9 }, true)];
    let gather = Arc::<Gather>::default();
    let source = Source::new();
    let wire = Arc::<Capture>::default();
    let mut graph = Graph::new();
    let output = UnderlayOutput::new(Arc::clone(&underlay), Arc::clone(&wire) as Arc<dyn Port>, Arc::clone(&gather));
    let output = graph.output(Arc::new(output), false);
    let mut edges = Vec::new();
    for (nth, config) in configs.iter().enumerate() {
        let tunnel = Tunnel::new(config.clone(), Arc::clone(&underlay), PortIndex(2), Arc::default());
        let mut first = graph.node("encap", Box::new(Encap::new(Arc::clone(&gather), tunnel)), &[output]);
        if nth > 0 {
            first = graph.node("overwrite", Box::new(Overwrite), &[first]);
            graph.enclose(first);
        }
        edges.push(first);
    }
    let flood = graph.node("flood", Box::new(Flood), &edges);
    graph.input(Arc::clone(&source) as Arc<dyn Port>, flood);
    let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    let waiter = Arc::new(EpollWaiter::new().unwrap());
    let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
    let sent = packet_to(1);
    source.send(&sent, NOTHING);
    worker.turn();
    let mut overwritten = sent.clone();
    overwritten[12..].fill(0x77);
    let got = wire.take();
    // The first tunnel's packet leaves before the enclosed nodes run, and the last entry runs first.
    assert_eq!(got.len(), 3);
    check(&configs[0], None, &got[0], &sent, 0);
    for (packet, config) in got[1..].iter().zip([&configs[2], &configs[1]]) {
        check(config, None, packet, &overwritten, 0);
    }
}
