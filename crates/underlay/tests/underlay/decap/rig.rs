//! An underlay with tunnels in a graph, and packets for it that are built field by field.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_graph::{Clock, EpollWaiter, Graph, Idle, Port, PortControl, QueueCounters, Worker, WorkerStats};
use straightline_packet::{
    Arena, Batch, Drops, Offload, PacketVlan, PortIndex, Rcu, Reason, Settings, SourceQueueId, Turn,
};
use straightline_underlay::{
    Address, Cookie, Decap, L2tpOver, Tunnel, TunnelConfig, TunnelKind, TunnelPort, Tunnels, Underlay, UnderlayConfig,
};
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_wire::{MacAddr, checksum};

pub(crate) const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(crate) const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// The end of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It left a tunnel: the tunnel's place, the bytes and what is left to do.
    Inside(usize, Vec<u8>, Offload),
    /// It goes back to the underlay.
    Back(Vec<u8>),
    /// It was dropped, and counted for the port: 0 is the underlay's, the tunnels' follow.
    Dropped(usize, Reason),
    /// The underlay used it.
    Used,
}

impl End {
    /// Returns the bytes of a packet that left a tunnel.
    #[track_caller]
    pub(crate) fn inside(self) -> Vec<u8> {
        match self {
            End::Inside(_, bytes, _) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the reason of a drop.
    #[track_caller]
    pub(crate) fn reason(self) -> Reason {
        match self {
            End::Dropped(_, reason) => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// A port whose packets come from a test. Their bodies are in guest memory.
#[derive(Debug)]
struct Source {
    memory: &'static GuestMemory,
    packets: Mutex<VecDeque<(Vec<u8>, Offload)>>,
}

impl Source {
    const SIZE: u64 = 1 << 20;

    fn new() -> Arc<Self> {
        thread_local! {
            static MEMORY: &'static GuestMemory = Source::memory();
        }
        Arc::new(Source { memory: MEMORY.with(|memory| *memory), packets: Mutex::default() })
    }

    /// Maps memory for the packets of a thread's tests. It lives as long as the process, because a
    /// turn may refer to it.
    fn memory() -> &'static GuestMemory {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, Self::SIZE).unwrap();
        let region = Region::map(file.as_fd(), 0, Self::SIZE, 0, 0).unwrap();
        Box::leak(Box::new(GuestMemory::new(vec![Arc::new(region)]).unwrap()))
    }
}

impl Port for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        let mut at = 0;
        for _ in 0..max {
            let Some((packet, offload)) = self.packets.lock().unwrap().pop_front() else { return };
            let len = u32::try_from(packet.len()).unwrap();
            let memory = self.memory;
            let segment = memory.segment(at, len, &mut 0).unwrap();
            at += u64::from(len);
            segment.write(turn.packets().level(), &packet);
            let id = turn.accept(PortIndex(0), SourceQueueId::NONE, segment).unwrap();
            turn.packets().set_offload(id, offload);
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// A port that notes its packets: 0 is the way back, tunnel `n` has `n + 1`.
#[derive(Debug)]
struct Sink {
    name: String,
    at: usize,
    ends: Arc<Mutex<Vec<End>>>,
    vlans: Arc<Mutex<Vec<Option<PacketVlan>>>>,
}

impl Port for Sink {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        for &id in batch.ids() {
            let mut bytes = turn.head(id).to_vec();
            for segment in turn.body(id) {
                let mut part = vec![0; segment.len() as usize];
                segment.read(turn.level(), &mut part);
                bytes.extend(part);
            }
            let end = if self.at == 0 {
                End::Back(bytes)
            } else {
                assert_eq!(turn.port(id).index(), self.at, "a packet is its tunnel's");
                self.vlans.lock().unwrap().push(turn.packets().vlan(id));
                End::Inside(self.at - 1, bytes, turn.offload(id))
            };
            self.ends.lock().unwrap().push(end);
        }
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// An underlay with tunnels, and a worker that serves it.
pub(crate) struct Rig {
    worker: Worker,
    source: Arc<Source>,
    ends: Arc<Mutex<Vec<End>>>,
    vlans: Arc<Mutex<Vec<Option<PacketVlan>>>>,
    pub(crate) drops: Vec<Arc<Drops>>,
    pub(crate) tunnels: Vec<Arc<Tunnel>>,
    pub(crate) underlay: Arc<Underlay>,
}

impl Rig {
    pub(crate) fn new(tunnels: Vec<TunnelConfig>) -> Self {
        Self::with(underlay(), tunnels)
    }

    pub(crate) fn with(underlay: UnderlayConfig, tunnels: Vec<TunnelConfig>) -> Self {
        let underlay = Underlay::new(underlay, PortIndex(0));
        let drops: Vec<Arc<Drops>> = (0..=tunnels.len()).map(|_| Arc::default()).collect();
        let index = |at: usize| PortIndex(u16::try_from(at).unwrap() + 1);
        let tunnels: Vec<_> = tunnels
            .into_iter()
            .enumerate()
            .map(|(at, config)| Tunnel::new(config, Arc::clone(&underlay), index(at), Arc::clone(&drops[at + 1])))
            .collect();
        let ends = Arc::new(Mutex::default());
        let vlans = Arc::new(Mutex::default());
        let mut graph = Graph::new();
        let sinks: Vec<_> = (0..=tunnels.len())
            .map(|at| {
                let sink = Sink { name: format!("sink{at}"), at, ends: Arc::clone(&ends), vlans: Arc::clone(&vlans) };
                graph.output(Arc::new(sink), false)
            })
            .collect();
        let decap =
            graph.node("decap", Box::new(Decap::new(Arc::clone(&underlay), Tunnels::new(tunnels.clone()))), &sinks);
        let source = Source::new();
        graph.input(Arc::clone(&source) as Arc<dyn Port>, decap);
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().unwrap());
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        Rig { worker, source, ends, vlans, drops, tunnels, underlay }
    }

    /// Returns the VLANs of the packets that have left tunnels since the last call, as these noted them.
    pub(crate) fn take_vlans(&self) -> Vec<Option<PacketVlan>> {
        std::mem::take(&mut self.vlans.lock().unwrap())
    }

    /// Returns the counters of a tunnel.
    pub(crate) fn counters(&self, tunnel: usize) -> Arc<QueueCounters> {
        Arc::clone(&TunnelPort::new(Arc::clone(&self.tunnels[tunnel]), Clock::real()).counters()[0])
    }

    /// Sends a packet and returns its end.
    #[track_caller]
    pub(crate) fn send(&mut self, packet: &[u8]) -> End {
        self.send_unfinished(packet, Offload::default())
    }

    /// Sends a packet that is not finished, and returns its end.
    #[track_caller]
    pub(crate) fn send_unfinished(&mut self, packet: &[u8], offload: Offload) -> End {
        let mut ends = self.send_all(vec![(packet.to_vec(), offload)]);
        assert!(ends.len() <= 1, "a packet has one end: {ends:?}");
        ends.pop().unwrap_or(End::Used)
    }

    /// Sends packets. Returns the ends of those that were delivered, by their outputs, and of those
    /// that were dropped.
    pub(crate) fn send_all(&mut self, packets: Vec<(Vec<u8>, Offload)>) -> Vec<End> {
        let counts = |drops: &[Arc<Drops>]| -> Vec<Vec<u64>> {
            drops.iter().map(|drops| Reason::ALL.iter().map(|&reason| drops.count(reason)).collect()).collect()
        };
        let before = counts(&self.drops);
        *self.source.packets.lock().unwrap() = packets.into();
        while !self.source.packets.lock().unwrap().is_empty() {
            self.worker.turn();
        }
        let mut ends = std::mem::take(&mut *self.ends.lock().unwrap());
        for (port, (before, after)) in before.iter().zip(counts(&self.drops)).enumerate() {
            for (at, &reason) in Reason::ALL.iter().enumerate() {
                ends.extend((before[at]..after[at]).map(|_| End::Dropped(port, reason)));
            }
        }
        ends
    }
}

pub(crate) fn underlay() -> UnderlayConfig {
    let addresses = [("10.0.0.2", 24), ("fd00::2", 64), ("10.0.0.3", 24)]
        .map(|(ip, prefix)| Address { ip: ip.parse().unwrap(), prefix });
    UnderlayConfig { mtu: 1600, mac: Some(OWN), ..UnderlayConfig::new("wan", addresses.to_vec()) }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn local(v4: bool) -> IpAddr {
    ip(if v4 { "10.0.0.2" } else { "fd00::2" })
}

pub(crate) fn remote(v4: bool) -> IpAddr {
    ip(if v4 { "10.0.0.1" } else { "fd00::1" })
}

pub(crate) fn tunnel(kind: TunnelKind, v4: bool) -> TunnelConfig {
    TunnelConfig {
        mac: Some(MacAddr([2, 0, 0, 0, 0, 0xfa])),
        ..TunnelConfig::new("t", kind, local(v4), vec![remote(v4)])
    }
}

pub(crate) fn l2tpv3(over: L2tpOver, session: u32, cookie: &[u8], l2spec: bool) -> TunnelKind {
    TunnelKind::L2tpv3 {
        over,
        session,
        peer_session: 99,
        cookie: Cookie::new(cookie).unwrap(),
        previous_cookie: None,
        peer_cookie: Cookie::default(),
        l2spec,
    }
}

/// A tunnel as its remote sends: what the tunnel's kind puts in front of inner packets.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) kind: TunnelKind,
    /// The protocol behind IP.
    pub(crate) protocol: u8,
    /// The destination port of UDP.
    pub(crate) port: u16,
    /// The tunnel's header.
    pub(crate) header: Vec<u8>,
}

impl Kind {
    fn in_udp(kind: TunnelKind, port: u16, header: &[u8]) -> Self {
        Kind { kind, protocol: 17, port, header: header.to_vec() }
    }

    fn in_ip(kind: TunnelKind, protocol: u8, header: &[u8]) -> Self {
        Kind { kind, protocol, port: 0, header: header.to_vec() }
    }

    pub(crate) fn vxlan(vni: u32) -> Self {
        Self::in_udp(TunnelKind::Vxlan { vni }, 4789, &[[8, 0, 0, 0], (vni << 8).to_be_bytes()].concat())
    }

    pub(crate) fn geneve(vni: u32, options: &[u8]) -> Self {
        let kind = TunnelKind::Geneve { vni, options: Vec::new() };
        let front = [u8::try_from(options.len() / 4).unwrap(), 0, 0x65, 0x58];
        Self::in_udp(kind, 6081, &[&front, &(vni << 8).to_be_bytes()[..], options].concat())
    }

    pub(crate) fn keyed_l2tpv3(cookie: &[u8]) -> Self {
        Self::in_ip(l2tpv3(L2tpOver::Ip, u32::MAX, cookie, false), 115, &[&[0xff; 4], cookie].concat())
    }

    pub(crate) fn gre(flags: u8, ip: bool, protocol: u16, rest: &[u8]) -> Self {
        let key = (flags & 0x20 != 0).then(|| {
            let at = if flags & 0x80 != 0 { 4 } else { 0 };
            u32::from_be_bytes(*rest[at..].first_chunk().unwrap())
        });
        let kind = TunnelKind::Gre { key, checksum: false, ip };
        Self::in_ip(kind, 47, &[&[flags, 0], &protocol.to_be_bytes()[..], rest].concat())
    }

    pub(crate) fn gtpu(inner_len: usize) -> Self {
        let len = u16::try_from(inner_len).unwrap().to_be_bytes();
        let kind = TunnelKind::Gtpu { teid: 0x1122_3344, peer_teid: 1 };
        Self::in_udp(kind, 2152, &[&[0x30, 0xff], &len[..], &[0x11, 0x22, 0x33, 0x44]].concat())
    }

    pub(crate) fn mpls() -> Self {
        Self::in_udp(TunnelKind::MplsUdp { label: 0x1_2345, peer_label: 1 }, 6635, &[0x12, 0x34, 0x51, 0x40])
    }

    /// Returns a tunnel of each kind. Inner IP packets, where the header tells their length, have
    /// that of [`inner_ip`].
    pub(crate) fn all() -> Vec<Self> {
        let over_udp = L2tpOver::Udp { port: 1701 };
        let udp_header = [0, 3, 0, 0, 1, 2, 3, 4, 0x88, 0x99, 0xaa, 0xbb, 0, 0, 0, 0];
        vec![
            Self::keyed_l2tpv3(&[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]),
            Self::in_ip(l2tpv3(L2tpOver::Ip, 7, &[], true), 115, &[0, 0, 0, 7, 0x40, 0, 0, 5]),
            Self::in_udp(l2tpv3(over_udp, 0x0102_0304, &[0x88, 0x99, 0xaa, 0xbb], true), 1701, &udp_header),
            Self::vxlan(0x12_3456),
            Self::geneve(0x12_3456, &[]),
            Self::geneve(0x12_3457, &[1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef]),
            Self::gre(0, false, 0x6558, &[]),
            Self::gre(0x20, false, 0x6558, &[0xca, 0xfe, 0, 1]),
            // The checksum is filled later.
            Self::gre(0xb0, false, 0x6558, &[0, 0, 0, 0, 0xca, 0xfe, 0, 2, 0, 0, 0, 9]),
            Self::gre(0x20, true, 0x0800, &[0xca, 0xfe, 0, 3]),
            Self::in_ip(TunnelKind::Nvgre { vsid: 0x12_3456 }, 47, &[0x20, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0x7f]),
            Self::in_udp(TunnelKind::VxlanGpe { vni: 1, ip: false }, 4790, &[0xc, 0, 0, 3, 0, 0, 1, 0]),
            Self::in_udp(TunnelKind::VxlanGpe { vni: 2, ip: true }, 4790, &[0xc, 0, 0, 1, 0, 0, 2, 0]),
            Self::gtpu(inner_ip().len()),
            Self::mpls(),
        ]
    }

    pub(crate) fn config(&self, v4: bool) -> TunnelConfig {
        tunnel(self.kind.clone(), v4)
    }

    /// Returns the inner packet for the kind.
    pub(crate) fn inner(&self) -> Vec<u8> {
        if self.kind.carries_ip() { inner_ip() } else { inner_frame() }
    }

    /// Returns what leaves the tunnel for this inner packet.
    pub(crate) fn outcome(&self, inner: &[u8]) -> Vec<u8> {
        if !self.kind.carries_ip() {
            return inner.to_vec();
        }
        let ether_type: &[u8] = if inner[0] >> 4 == 4 { &[8, 0] } else { &[0x86, 0xdd] };
        [&[0xff; 6], &[2, 0, 0, 0, 0, 0xfa], ether_type, inner].concat()
    }

    /// Returns the bytes behind the IP header, with all checksums.
    pub(crate) fn behind_ip(&self, v4: bool, inner: &[u8]) -> Vec<u8> {
        let mut message = [&self.header, inner].concat();
        if self.protocol == 47 && message[0] & 0x80 != 0 {
            message[4..6].fill(0);
            let sum = !checksum::sum(&message);
            message[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        if self.protocol == 17 { udp(v4, self.port, &message) } else { message }
    }

    /// Returns a whole packet, with all checksums.
    pub(crate) fn packet(&self, v4: bool, inner: &[u8]) -> Vec<u8> {
        outside(v4, self.protocol, 0, &self.behind_ip(v4, inner))
    }
}

/// Returns a datagram with its checksum.
pub(crate) fn udp(v4: bool, port: u16, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len() + 8).unwrap();
    let mut datagram =
        [&50_000_u16.to_be_bytes(), &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0][..], message].concat();
    let sum = !checksum::sum(&[&addresses(v4)[..], &[0, 17], &len.to_be_bytes(), &datagram].concat());
    datagram[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    datagram
}

/// Returns the remote's address and ours.
pub(crate) fn addresses(v4: bool) -> Vec<u8> {
    let octets = |ip| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    [octets(remote(v4)), octets(local(v4))].concat()
}

/// Returns an Ethernet frame with an IP packet for us.
pub(crate) fn outside(v4: bool, protocol: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let link = [OWN.0, PEER.0].concat();
    let len = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    if v4 {
        let mut header =
            [&[0x45, tos], &len(20 + payload.len())[..], &[0, 0, 0x40, 0, 64, protocol, 0, 0], &addresses(true)]
                .concat();
        fill_ipv4_checksum(&mut header);
        [&link, &[8, 0][..], &header, payload].concat()
    } else {
        let header =
            [&[0x60 | tos >> 4, tos << 4, 0, 0], &len(payload.len())[..], &[protocol, 64], &addresses(false)].concat();
        [&link, &[0x86, 0xdd][..], &header, payload].concat()
    }
}

pub(crate) fn fill_ipv4_checksum(header: &mut [u8]) {
    let len = usize::from(header[0] & 15) * 4;
    header[10..12].fill(0);
    let sum = !checksum::sum(&header[..len]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns an IPv4 packet with a datagram.
pub(crate) fn inner_ip() -> Vec<u8> {
    inner_ip_of(true, 0, 36)
}

/// Returns an IP packet with a datagram whose payload has `len` bytes.
pub(crate) fn inner_ip_of(v4: bool, tos: u8, len: usize) -> Vec<u8> {
    let mut frame = outside(v4, 17, tos, &udp(v4, 7, &vec![0x5a; len]));
    frame.split_off(14)
}

/// Returns an Ethernet frame with an IPv4 packet.
pub(crate) fn inner_frame() -> Vec<u8> {
    inner_frame_of(true, 0, 36)
}

pub(crate) fn inner_frame_of(v4: bool, tos: u8, len: usize) -> Vec<u8> {
    let ether_type: &[u8] = if v4 { &[8, 0] } else { &[0x86, 0xdd] };
    [&[2, 0xaa, 0, 0, 0, 2, 2, 0xaa, 0, 0, 0, 1], ether_type, &inner_ip_of(v4, tos, len)].concat()
}
