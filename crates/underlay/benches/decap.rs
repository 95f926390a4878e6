//! The cost of receiving packets by tunnels: cycles of the time-stamp counter per packet.
//!
//! `cargo bench -p straightline-underlay --bench decap` prints the cycles of the node behind an
//! underlay, in batches of 32 packets whose heads are in the cache. The inner frames have 60 bytes.
//! "Verified" rows have an outer checksum, so the node sums each packet. The values are medians over
//! many short rounds, in which all rows alternate. `-- vxlan` measures rows whose name contains this
//! word. With `--test` it runs each row once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::net::IpAddr;
use std::sync::Arc;

use straightline_graph::{EpollWaiter, Graph, Idle, NodeStats, Null, Port, Worker};
use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Settings, Turn};
use straightline_underlay::{
    Address, Cookie, Decap, L2tpOver, Tunnel, TunnelConfig, TunnelKind, Tunnels, Underlay, UnderlayConfig,
};
use straightline_wire::{IpProtocol, MacAddr, checksum, ipv4, ipv6, udp};

/// Packets of a turn.
const BATCH: usize = 32;

/// Turns of a round. A round yields one value.
const TURNS: usize = 100;

/// Bytes of an inner frame.
const INNER: usize = 60;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const COOKIE: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// A port that receives the same packets in each turn.
#[derive(Debug)]
struct Source(Vec<Vec<u8>>);

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        for packet in self.0.iter().take(max) {
            let Some(id) = turn.accept_owned(PortIndex(0), packet) else { return };
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// The form of a row's packets.
#[derive(Clone, Copy)]
struct Form {
    kind: fn(u32) -> TunnelKind,
    /// The protocol behind IP, and the port of UDP.
    protocol: (IpProtocol, u16),
    header: fn(u32) -> Vec<u8>,
    v6: bool,
    /// True if the packets have an outer checksum of UDP.
    sealed: bool,
    /// The congestion mark of outer and inner packets.
    ecn: u8,
}

impl Form {
    /// Returns a packet of the `n`th tunnel.
    fn packet(&self, n: u32, flow: u16) -> Vec<u8> {
        let mut inner = vec![0x5a; INNER];
        inner[..14].copy_from_slice(&[2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 8, 0]);
        let repr = ipv4::Repr {
            tos: self.ecn,
            payload_len: 26,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: IpProtocol::UDP,
            src: [192, 168, 0, 1].into(),
            dst: [192, 168, 0, 2].into(),
        };
        repr.emit(&mut inner[14..]).expect("space for the header");
        let mut message = [(self.header)(n), inner].concat();
        let (local, remote) = ends(self.v6);
        if self.protocol.0 == IpProtocol::UDP {
            let payload_len = u16::try_from(message.len()).expect("short");
            let repr = udp::Repr { src_port: 50_000 + flow, dst_port: self.protocol.1, payload_len, checksum: 0 };
            let mut header = [0; udp::LEN];
            repr.emit(&mut header).expect("space for the header");
            message.splice(..0, header);
            if self.sealed {
                let len = payload_len + 8;
                let pseudo = match (remote, local) {
                    (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_header_v4(src, dst, IpProtocol::UDP, len),
                    (IpAddr::V6(src), IpAddr::V6(dst)) => {
                        checksum::pseudo_header_v6(src, dst, IpProtocol::UDP, len.into())
                    }
                    _ => unreachable!("both ends have one version"),
                };
                let value = udp::checksum_of(checksum::add(pseudo, checksum::sum(&message)));
                message[udp::CHECKSUM..udp::CHECKSUM + 2].copy_from_slice(&value.to_be_bytes());
            }
        }
        let payload_len = u16::try_from(message.len()).expect("short");
        let mut packet = [&OWN.0[..], &[2, 0, 0, 0, 0, 2]].concat();
        match (remote, local) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                packet.extend([8, 0]);
                packet.resize(34, 0);
                let repr = ipv4::Repr { payload_len, protocol: self.protocol.0, src, dst, ..repr };
                repr.emit(&mut packet[14..]).expect("space for the header");
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                packet.extend([0x86, 0xdd]);
                packet.resize(54, 0);
                let repr = ipv6::Repr {
                    traffic_class: self.ecn,
                    flow_label: 0,
                    payload_len,
                    next_header: self.protocol.0,
                    hop_limit: 64,
                    src,
                    dst,
                };
                repr.emit(&mut packet[14..]).expect("space for the header");
            }
            _ => unreachable!("both ends have one version"),
        }
        packet.extend(message);
        packet
    }
}

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    let (local, remote) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
    (local.parse().expect("an address"), remote.parse().expect("an address"))
}

struct Row {
    name: String,
    worker: Worker,
    nodes: Vec<Arc<NodeStats>>,
    values: Vec<f64>,
}

impl Row {
    /// Returns a row with `tunnels` tunnels, of which `used` have traffic: each packet is of the
    /// tunnel after that of the packet before it.
    fn new(name: &str, form: Form, tunnels: u32, used: u32) -> Self {
        let (local, remote) = ends(form.v6);
        let config = UnderlayConfig {
            mtu: 9000,
            mac: Some(OWN),
            ..UnderlayConfig::new("wan", vec![Address { ip: local, prefix: 24 }])
        };
        let underlay = Underlay::new(config, PortIndex(0));
        let drops: Vec<Arc<Drops>> = (0..=tunnels).map(|_| Arc::default()).collect();
        let mut graph = Graph::new();
        let edges: Vec<_> =
            (0..=tunnels).map(|n| graph.output(Arc::new(Null::new(format!("out{n}"))), false)).collect();
        let tunnels = (0..tunnels).map(|n| {
            let config = TunnelConfig::new(format!("t{n}"), (form.kind)(n + 1), local, vec![remote]);
            let index = PortIndex(u16::try_from(n + 1).expect("few tunnels"));
            Tunnel::new(config, Arc::clone(&underlay), index, Arc::clone(&drops[usize::from(index.0)]))
        });
        let tunnels = Tunnels::new(tunnels.collect());
        let decap = graph.node("decap", Box::new(Decap::new(Arc::clone(&underlay), tunnels)), &edges);
        let packets = (0_u16..).take(BATCH).map(|flow| form.packet(1 + u32::from(flow) % used, flow)).collect();
        graph.input(Arc::new(Source(packets)), decap);
        let nodes = graph.stats();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), drops.clone());
        let waiter = Arc::new(EpollWaiter::new().expect("an epoll instance"));
        let mut worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        let mut taken = 0;
        while taken < BATCH {
            taken += worker.turn();
        }
        assert!(drops.iter().all(|drops| drops.total() == 0), "{name}");
        Row { name: name.to_owned(), worker, nodes, values: Vec::new() }
    }

    /// Runs one round, for the cycles per packet of the node.
    fn round(&mut self, turns: usize) {
        let before = self.cycles();
        // A turn may take less, if the one before took very long.
        let mut packets = 0;
        while packets < turns * BATCH {
            packets += self.worker.turn();
        }
        self.values.push(float(self.cycles() - before) / float(packets as u64));
    }

    fn cycles(&self) -> u64 {
        self.nodes.iter().filter(|node| node.name == "decap").map(|node| node.cycles.get()).sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "cycles of one round")]
fn float(n: u64) -> f64 {
    n as f64
}

fn l2tpv3(session: u32) -> TunnelKind {
    TunnelKind::L2tpv3 {
        over: L2tpOver::Ip,
        session,
        peer_session: session,
        cookie: Cookie::new(&COOKIE).expect("8 bytes"),
        previous_cookie: None,
        peer_cookie: Cookie::default(),
        l2spec: false,
    }
}

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let (rounds, turns) = if is_test { (1, 2) } else { (201, TURNS) };
    let l2tpv3 = Form {
        kind: l2tpv3,
        protocol: (IpProtocol::L2TP, 0),
        header: |session| [&session.to_be_bytes()[..], &COOKIE].concat(),
        v6: true,
        sealed: false,
        ecn: 0,
    };
    let vxlan = Form {
        kind: |vni| TunnelKind::Vxlan { vni },
        protocol: (IpProtocol::UDP, 4789),
        header: |vni| [[8, 0, 0, 0], (vni << 8).to_be_bytes()].concat(),
        v6: false,
        ..l2tpv3
    };
    let geneve = Form {
        kind: |vni| TunnelKind::Geneve { vni, options: Vec::new() },
        protocol: (IpProtocol::UDP, 6081),
        header: |vni| [[0, 0, 0x65, 0x58], (vni << 8).to_be_bytes()].concat(),
        ..vxlan
    };
    let gre = Form {
        kind: |key| TunnelKind::Gre { key: Some(key), checksum: false, ip: false },
        protocol: (IpProtocol::GRE, 0),
        header: |key| [[0x20, 0, 0x65, 0x58], key.to_be_bytes()].concat(),
        ..vxlan
    };
    let mut rows = [
        Row::new("l2tpv3, IPv6", l2tpv3, 1, 1),
        Row::new("l2tpv3, IPv6, ECT(0)", Form { ecn: 2, ..l2tpv3 }, 1, 1),
        Row::new("l2tpv3, IPv4", Form { v6: false, ..l2tpv3 }, 1, 1),
        Row::new("l2tpv3, 1 of 256 tunnels", l2tpv3, 256, 1),
        Row::new("l2tpv3, 32 of 256 tunnels", l2tpv3, 256, 32),
        Row::new("vxlan, IPv4", vxlan, 1, 1),
        Row::new("vxlan, IPv4, verified", Form { sealed: true, ..vxlan }, 1, 1),
        Row::new("vxlan, IPv6, verified", Form { sealed: true, v6: true, ..vxlan }, 1, 1),
        Row::new("vxlan, 1 of 256 tunnels", vxlan, 256, 1),
        Row::new("vxlan, 32 of 256 tunnels", vxlan, 256, 32),
        Row::new("geneve, IPv4", geneve, 1, 1),
        Row::new("gre, IPv4", gre, 1, 1),
    ];
    for _ in 0..rounds {
        for row in rows.iter_mut().filter(|row| wanted.as_ref().is_none_or(|wanted| row.name.contains(wanted))) {
            row.round(turns);
        }
    }
    if is_test {
        return;
    }
    println!("| tunnel | cycles |\n|---|---|");
    for row in rows.iter_mut().filter(|row| !row.values.is_empty()) {
        row.values.sort_by(f64::total_cmp);
        println!("| {} | {:.1} |", row.name, row.values[row.values.len() / 2]);
    }
}
