//! The cost of a packet for one of many stations of other hosts, as `straightline evpn` adds them.
//!
//! `cargo bench -p straightline-switch --bench stations`: a guest in a bridge sends to stations behind 200
//! remotes of a VXLAN tunnel, in a random order. The wire takes packets and does nothing. Guest and worker
//! are one thread, and only the worker's turns are timed. A switch with 1000 stations and one with 100 000
//! alternate, in sets that are built anew; a sample is the median of a set.
//!
//! A packet is looked up twice, in the bridge's table and in the tunnel's. So the bound is the time of two
//! loads from random places of such a table, each behind the load before, less those of a table for 1000
//! stations. With `--test` it sends few packets and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, ensure};
use straightline_fdb::{Fdb, FdbSpace, OwnOutcome, Station};
use straightline_graph::clock::{cycles, hertz};
use straightline_graph::{EpollWaiter, Graph, Idle, Null, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_report::random::Random;
use straightline_report::statistics::{Pairing, median, ratio};
use straightline_testing::loads::Loads;
use straightline_underlay::{
    Address, Encap, Gather, RemoteSpace, Tunnel, TunnelConfig, TunnelKind, Underlay, UnderlayConfig, UnderlayOutput,
};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{MacAddr, VlanId};

/// Hosts behind the tunnel.
const HOSTS: u32 = 200;

/// Stations of the two switches, and the slots of a table of each: [`Fdb`] has two and a half for each
/// station, up to a power of two.
const STATIONS: [u32; 2] = [1000, 100_000];
const SLOTS: [usize; 2] = [1 << 12, 1 << 18];

/// Packets that the guest sends between the worker's turns.
const BURST: usize = 64;

/// Bursts of a round.
const BURSTS: usize = 200;

const ROUNDS: u32 = 15;

/// Sets of switches, each with memory and rings of its own.
const SETS: u32 = 12;

/// Loads of a measurement of the bound.
const LOADS: usize = 400_000;

const GUEST: PortIndex = PortIndex(0);
const TUNNEL: PortIndex = PortIndex(2);

struct Scene {
    worker: Worker,
    guest: Guest,
    /// The stations in a random order, and the next one.
    stations: Vec<MacAddr>,
    next: usize,
    frame: Vec<u8>,
    drops: Vec<Arc<Drops>>,
    _port: VhostUser,
    _dir: tempfile::TempDir,
}

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 0)) + number))
}

impl Scene {
    fn new(count: u32) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let drops: Vec<Arc<Drops>> = (0..3).map(|_| Arc::default()).collect();
        let config = VhostUserConfig::new("guest", dir.path().join("guest"));
        let port = VhostUser::open(config, GUEST, Arc::clone(&drops[0]), &rcu, Arc::clone(&waiter))?;
        let local = host(0);
        let config = UnderlayConfig {
            mac: Some(MacAddr([2, 0, 0, 0, 0, 3])),
            neighbours: (1..=HOSTS).map(|n| (host(n), MacAddr::from_u64(0x0202_0000_0000 | u64::from(n)))).collect(),
            ..UnderlayConfig::new("wan", vec![Address { ip: local, prefix: 16 }])
        };
        let underlay = Underlay::new(config, PortIndex(1));
        let config =
            TunnelConfig { mtu: 1450, ..TunnelConfig::new("tunnel", TunnelKind::Vxlan { vni: 1 }, local, Vec::new()) };
        let space = RemoteSpace { stations: count as usize };
        let tunnel = Tunnel::open(config, Arc::clone(&underlay), TUNNEL, Arc::clone(&drops[2]), space, &rcu);
        let hosts: Vec<_> = (1..=HOSTS).map(host).collect();
        tunnel.change_remotes(&hosts, &[]).map_err(|(_, error)| error).context("remotes")?;
        let space = FdbSpace { owned: count as usize, ports: 0 };
        let fdb = Arc::new(Fdb::with_space(1024, 300, &[GUEST, TUNNEL], &[], space));
        let mut random = Random::new(35);
        let mut stations = Vec::new();
        for n in 0..count {
            let [.., a, b, c, d, e] = random.next().to_be_bytes();
            let mac = MacAddr([2, a, b, c, d, e]);
            let station = Station::new(VlanId::DEFAULT, mac);
            ensure!(tunnel.set_owned(station, host(1 + n % HOSTS)) == Some(OwnOutcome::Owned), "the tunnel's place");
            ensure!(fdb.set_owned(station, TUNNEL) == OwnOutcome::Owned, "the bridge's place");
            stations.push(mac);
        }
        random.shuffle(&mut stations);

        let mut graph = Graph::new();
        let gather = Arc::<Gather>::default();
        let wire = UnderlayOutput::new(underlay, Arc::new(Null::new("wire")), Arc::clone(&gather));
        let wire = graph.output(Arc::new(wire), false);
        let encap = graph.node("encap", Box::new(Encap::new(gather, tunnel)), &[wire]);
        let edges = [graph.output(port.for_worker(0), false), encap];
        let members = [GUEST, TUNNEL].map(BridgePort::plain);
        let bridge = graph.node("bridge", Box::new(Bridge::new(&members, fdb)), &edges);
        graph.input(port.for_worker(0), bridge);
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let guest = Guest::connect(&dir.path().join("guest"), &GuestOptions::default())?;
        Ok(Scene { worker, guest, stations, next: 0, frame: frame()?, drops, _port: port, _dir: dir })
    }

    /// Runs one round. Returns cycles a packet.
    fn round(&mut self, bursts: usize) -> anyhow::Result<f64> {
        let mut spent = 0;
        for _ in 0..bursts {
            for _ in 0..BURST {
                self.frame[..6].copy_from_slice(&self.stations[self.next].0);
                self.next = (self.next + 1) % self.stations.len();
                ensure!(self.guest.send(&NetHeader::default(), &self.frame), "a ring of 256 has space");
            }
            self.guest.flush();
            let mut taken = 0;
            while taken < BURST {
                let before = cycles();
                let packets = self.worker.turn();
                // A turn without packets is no cost of packets: a busy worker has none.
                spent += if packets > 0 { cycles() - before } else { 0 };
                taken += packets;
            }
        }
        let drops: Vec<_> = self.drops.iter().flat_map(|drops| drops.nonzero()).collect();
        ensure!(drops.is_empty(), "no packet is dropped: {drops:?}");
        Ok(spent as f64 / (bursts * BURST) as f64)
    }
}

/// Returns a datagram of 60 bytes.
fn frame() -> anyhow::Result<Vec<u8>> {
    let headers = Frame {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        net: Net::v4([192, 168, 0, 1].into(), [192, 168, 0, 2].into()),
        transport: Transport::Udp { src_port: 1000, dst_port: 2000 },
        payload_len: 18,
    };
    let mut frame = vec![0; 60];
    headers.emit(&mut frame, Checksum::Complete { payload_sum: 0 })?;
    Ok(frame)
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let (sets, rounds, bursts) = if is_test { (1, 1, 2) } else { (SETS, ROUNDS, BURSTS) };
    let loads = SLOTS.map(Loads::new);
    // Of each set: the cycles of both switches, the bound, and the sum of the small switch and the bound.
    let [mut few, mut many, mut sums] = [const { Vec::new() }; 3];
    let mut bounds = Vec::new();
    for set in 0..sets {
        let mut scenes = STATIONS.map(Scene::new).into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut values = [const { Vec::new() }; 2];
        let mut bound = Vec::new();
        for _ in 0..rounds {
            for (scene, values) in scenes.iter_mut().zip(&mut values) {
                values.push(scene.round(bursts)?);
            }
            let times = loads.each_ref().map(|loads| loads.time(LOADS).as_secs_f64() / LOADS as f64);
            bound.push(2.0 * (times[1] - times[0]) * hertz());
        }
        let middle = |values: &[f64]| median(values).context("rounds");
        few.push((set, middle(&values[0])?));
        many.push((set, middle(&values[1])?));
        bounds.push(middle(&bound)?);
        sums.push((set, middle(&values[0])? + middle(&bound)?));
    }
    if is_test {
        return Ok(());
    }
    println!("| stations | cycles a packet |\n|---|---|");
    for (count, samples) in STATIONS.into_iter().zip([&few, &many]) {
        let values: Vec<_> = samples.iter().map(|(_, cycles)| *cycles).collect();
        println!("| {count} | {:.1} |", median(&values).context("samples")?);
    }
    println!("\nmemory's bound, two loads of {} slots: {:.1} cycles", SLOTS[1], median(&bounds).context("sets")?);
    for (what, beside) in [("1000 stations", &few), ("1000 stations and the bound", &sums)] {
        let ratio = ratio(&many, beside, Pairing::ByRound).context("samples")?;
        let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.2}, {:.2}]", all.low, all.high));
        println!("100 000 stations beside {what}: {:.2}{interval}", ratio.value);
    }
    Ok(())
}
