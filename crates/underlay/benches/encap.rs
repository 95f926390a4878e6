//! The cost of sending packets by tunnels: cycles of the time-stamp counter per packet.
//!
//! `cargo bench -p straightline-underlay --bench encap` prints the cycles of a tunnel's node and of
//! the underlay's output, in batches of 32 packets whose heads are in the cache. The underlay's port
//! takes packets and does nothing, so no copy is included. The values are medians over many short
//! rounds, in which all rows alternate. Below stands the ratio of a tunnel whose remotes and stations were
//! added while it runs, as `straightline evpn` does, to one that has them from its configuration, with the
//! interval of 95 %. `-- vxlan` measures rows whose name contains this word. With
//! `--test` it runs each row once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::net::IpAddr;
use std::sync::Arc;

use straightline_fdb::{OwnOutcome, Station};
use straightline_graph::{EpollWaiter, Graph, Idle, Next, Node, NodeIndex, NodeStats, Null, Port, Worker};
use straightline_packet::{Arena, Batch, Checksum, Drops, Offload, Packets, PortIndex, Rcu, Settings, Turn};
use straightline_report::statistics::{Pairing, ratio};
use straightline_underlay::{
    Address, Cookie, Encap, Gather, L2tpOver, RemoteSpace, Tunnel, TunnelConfig, TunnelKind, Underlay, UnderlayConfig,
    UnderlayOutput,
};
use straightline_wire::frame::{self, Frame, Net, Transport};
use straightline_wire::{MacAddr, VlanId};

/// Packets of a turn.
const BATCH: usize = 32;

/// Turns of a round. A round yields one value.
const TURNS: usize = 100;

/// The station to which the packets go.
const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 4]);

/// A port that receives the same packets in each turn.
#[derive(Debug)]
struct Source {
    packets: Vec<Vec<u8>>,
    offload: Offload,
}

impl Port for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
        for packet in self.packets.iter().take(max) {
            let Some(id) = turn.accept_owned(PortIndex(0), packet) else { return };
            turn.packets().set_offload(id, self.offload);
            into.push(id);
        }
    }

    fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}

/// Sends each packet to the tunnel after that of the packet before it.
struct Spread;

impl Node for Spread {
    fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for (at, &id) in batch.ids().iter().enumerate() {
            next.push(at % next.edges(), id);
        }
    }
}

/// The remotes of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remotes {
    /// One, which needs no table of stations.
    One,
    /// Several of the configuration, which has the station, too.
    Configured,
    /// Several that were added while the tunnel runs, as the station was.
    Added,
}

struct Row {
    name: String,
    worker: Worker,
    nodes: Vec<Arc<NodeStats>>,
    values: Vec<[f64; 2]>,
}

impl Row {
    /// Returns a row with `tunnels` tunnels, of which the first `used` have traffic.
    fn new(name: &str, kind: impl Fn(u32) -> TunnelKind, v6: bool, tunnels: u32, used: usize, partial: bool) -> Self {
        Self::with_remotes(name, kind, v6, (tunnels, used), partial, Remotes::One)
    }

    /// Returns a row as [`Self::new`] does: `counts` are those of all tunnels, and of those with traffic.
    fn with_remotes(
        name: &str,
        kind: impl Fn(u32) -> TunnelKind,
        v6: bool,
        counts: (u32, usize),
        partial: bool,
        remotes: Remotes,
    ) -> Self {
        let (tunnels, used) = counts;
        let (local, remote) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        let local = local.parse().expect("an address");
        let remote: IpAddr = remote.parse().expect("an address");
        let other: IpAddr = "10.0.0.3".parse().expect("an address");
        let rcu = Rcu::new();
        let config = UnderlayConfig {
            mtu: 9000,
            mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
            neighbours: vec![(remote, MacAddr([2, 0, 0, 0, 0, 2]))],
            ..UnderlayConfig::new("wan", vec![Address { ip: local, prefix: 24 }])
        };
        let underlay = Underlay::new(config, PortIndex(1));
        let gather = Arc::<Gather>::default();
        let mut graph = Graph::new();
        let wire = Arc::new(Null::new("wire"));
        let output = UnderlayOutput::new(Arc::clone(&underlay), wire, Arc::clone(&gather));
        let output = graph.output(Arc::new(output), false);
        let edges: Vec<NodeIndex> = (0..tunnels)
            .map(|n| {
                let far = match remotes {
                    Remotes::One => vec![remote],
                    Remotes::Configured => vec![remote, other],
                    Remotes::Added => Vec::new(),
                };
                let mut config = TunnelConfig::new(format!("t{n}"), kind(n), local, far);
                if remotes == Remotes::Configured {
                    config.stations = vec![(VlanId::DEFAULT, FAR, remote)];
                }
                let drops = Arc::<Drops>::default();
                let tunnel = if remotes == Remotes::Added {
                    let space = RemoteSpace { stations: 4096 };
                    let tunnel = Tunnel::open(config, Arc::clone(&underlay), PortIndex(2), drops, space, &rcu);
                    tunnel.change_remotes(&[remote, other], &[]).expect("two remotes");
                    let station = Station::new(VlanId::DEFAULT, FAR);
                    assert_eq!(tunnel.set_owned(station, remote), Some(OwnOutcome::Owned));
                    tunnel
                } else {
                    Tunnel::new(config, Arc::clone(&underlay), PortIndex(2), drops)
                };
                graph.node("encap", Box::new(Encap::new(Arc::clone(&gather), tunnel)), &[output])
            })
            .collect();
        let spread = graph.node("spread", Box::new(Spread), &edges[..used]);
        let (packets, offload) = packets(partial);
        graph.input(Arc::new(Source { packets, offload }), spread);
        let nodes = graph.stats();
        let arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
        let waiter = Arc::new(EpollWaiter::new().expect("an epoll instance"));
        let worker = Worker::new(graph, arena, waiter, Arc::default(), Idle::Spin);
        Row { name: name.to_owned(), worker, nodes, values: Vec::new() }
    }

    /// Runs one round, for the cycles per packet of the tunnels' nodes and of the output.
    fn round(&mut self, turns: usize) {
        let before = self.cycles();
        // A turn may take less, if the one before took very long.
        let mut packets = 0;
        while packets < turns * BATCH {
            packets += self.worker.turn();
        }
        let after = self.cycles();
        self.values.push([0, 1].map(|at| float(after[at] - before[at]) / float(packets as u64)));
    }

    fn cycles(&self) -> [u64; 2] {
        let cycles_of = |name: &str| self.nodes.iter().filter(|node| node.name == name).map(|n| n.cycles.get()).sum();
        [cycles_of("encap"), cycles_of("wire-tx")]
    }
}

/// Returns datagrams of different flows, and their offload.
fn packets(partial: bool) -> (Vec<Vec<u8>>, Offload) {
    let packet = |n: u8| {
        let frame = Frame {
            src: MacAddr([2, 0, 0, 0, 0, 3]),
            dst: FAR,
            tags: [None, None],
            net: Net::v4([192, 168, 0, 1].into(), [192, 168, 0, 2].into()),
            transport: Transport::Udp { src_port: 1000 + u16::from(n), dst_port: 2000 },
            payload_len: 18,
        };
        let mut bytes = vec![0; 60];
        let sum = if partial { frame::Checksum::Partial } else { frame::Checksum::Complete { payload_sum: 0 } };
        frame.emit(&mut bytes, sum).expect("space for all headers");
        bytes
    };
    let checksum = if partial { Checksum::Partial { start: 34, offset: 6 } } else { Checksum::Complete };
    ((0..BATCH).map(|n| packet(u8::try_from(n).unwrap_or(0))).collect(), Offload { checksum, gso: None })
}

#[expect(clippy::cast_precision_loss, reason = "cycles of one round")]
fn float(n: u64) -> f64 {
    n as f64
}

fn l2tpv3(n: u32) -> TunnelKind {
    let cookie = Cookie::new(&[0, 1, 2, 3, 4, 5, 6, 7]).expect("8 bytes");
    let session = n + 1;
    let peer_session = n + 1;
    let over = L2tpOver::Ip;
    TunnelKind::L2tpv3 {
        over,
        session,
        peer_session,
        cookie,
        previous_cookie: None,
        peer_cookie: cookie,
        l2spec: false,
    }
}

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let (rounds, turns) = if is_test { (1, 2) } else { (201, TURNS) };
    let vxlan = |vni| TunnelKind::Vxlan { vni };
    let geneve = |vni| TunnelKind::Geneve { vni, options: Vec::new() };
    let gre = |key| TunnelKind::Gre { key: Some(key), checksum: false, ip: false };
    let sealed = |key| TunnelKind::Gre { key: Some(key), checksum: true, ip: false };
    let gtpu = |teid| TunnelKind::Gtpu { teid, peer_teid: teid };
    let mut rows = [
        Row::new("l2tpv3, IPv6", l2tpv3, true, 1, 1, false),
        Row::new("l2tpv3, IPv6, partial", l2tpv3, true, 1, 1, true),
        Row::new("l2tpv3, 1 of 256 tunnels", l2tpv3, true, 256, 1, false),
        Row::new("l2tpv3, 32 of 256 tunnels", l2tpv3, true, 256, BATCH, false),
        Row::new("vxlan, IPv4", vxlan, false, 1, 1, false),
        Row::new("vxlan, IPv4, partial", vxlan, false, 1, 1, true),
        Row::new("vxlan, IPv6", vxlan, true, 1, 1, false),
        Row::new("vxlan, IPv6, partial", vxlan, true, 1, 1, true),
        Row::new("vxlan, 1 of 256 tunnels", vxlan, false, 256, 1, false),
        Row::new("vxlan, 32 of 256 tunnels", vxlan, false, 256, BATCH, false),
        Row::with_remotes("vxlan, remotes of the file", vxlan, false, (1, 1), false, Remotes::Configured),
        Row::with_remotes("vxlan, remotes added", vxlan, false, (1, 1), false, Remotes::Added),
        Row::new("geneve, IPv4, partial", geneve, false, 1, 1, true),
        Row::new("gre, IPv4", gre, false, 1, 1, false),
        Row::new("gre with checksum, IPv4, partial", sealed, false, 1, 1, true),
        Row::new("gtpu, IPv4, partial", gtpu, false, 1, 1, true),
    ];
    for _ in 0..rounds {
        for row in rows.iter_mut().filter(|row| wanted.as_ref().is_none_or(|wanted| row.name.contains(wanted))) {
            row.round(turns);
        }
    }
    if is_test {
        return;
    }
    println!("| tunnel | node | output | sum |\n|---|---|---|---|");
    for row in rows.iter_mut().filter(|row| !row.values.is_empty()) {
        let [node, output] = [0, 1].map(|at| {
            let mut of: Vec<f64> = row.values.iter().map(|value| value[at]).collect();
            of.sort_by(f64::total_cmp);
            of[of.len() / 2]
        });
        println!("| {} | {node:.1} | {output:.1} | {:.1} |", row.name, node + output);
    }
    let sums = |name: &str| -> Vec<(u32, f64)> {
        let row = rows.iter().find(|row| row.name == name);
        let values = row.into_iter().flat_map(|row| &row.values).map(|[node, output]| node + output);
        (0..).zip(values).collect()
    };
    if let Some(ratio) = ratio(&sums("vxlan, remotes added"), &sums("vxlan, remotes of the file"), Pairing::ByRound) {
        let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.3}, {:.3}]", all.low, all.high));
        println!("\nremotes added / of the file: {:.3}{interval}", ratio.value);
    }
}
