//! The cost of a packet for one of many stations of other hosts, as `straightline evpn` adds them.
//!
//! `cargo bench -p straightline-switch --bench stations`: a guest in a bridge sends to stations behind 200
//! remotes of a VXLAN tunnel, in a random order. The wire takes packets and does nothing. Guest and worker
//! are one thread, and only the worker's turns are timed. Three switches alternate:
//!
//! - one has 1000 stations;
//! - one has 100 000;
//! - one has 100 000, and only 100 of them get packets.
//!
//! They are built anew for each set, and a sample is the median of a set. All of this is done for a bridge
//! without VLANs, and for one with VLANs.
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
use straightline_nodes::{Bridge, BridgePort, PortVlans};
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

/// The switches: the stations that each knows, and those that get packets. The others are compared with the
/// first one.
const CASES: [(u32, usize); 3] = [(1000, 1000), (100_000, 100_000), (100_000, 100)];

/// Slots of a table for 1000 stations, and for 100 000: [`Fdb`] has two and a half for each station, up to a
/// power of two.
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
    /// The stations that get packets, in a random order, and the next one.
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
    fn new((count, active): (u32, usize), vlan: Option<VlanId>) -> anyhow::Result<Self> {
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
            let outside = Station::new(VlanId::DEFAULT, mac);
            ensure!(tunnel.set_owned(outside, host(1 + n % HOSTS)) == Some(OwnOutcome::Owned), "the tunnel's place");
            let inside = Station::new(vlan.unwrap_or_default(), mac);
            ensure!(fdb.set_owned(inside, TUNNEL) == OwnOutcome::Owned, "the bridge's place");
            stations.push(mac);
        }
        random.shuffle(&mut stations);
        stations.truncate(active);

        let mut graph = Graph::new();
        let gather = Arc::<Gather>::default();
        let wire = UnderlayOutput::new(underlay, Arc::new(Null::new("wire")), Arc::clone(&gather));
        let wire = graph.output(Arc::new(wire), false);
        let encap = graph.node("encap", Box::new(Encap::new(gather, tunnel)), &[wire]);
        let edges = [graph.output(port.for_worker(0), false), encap];
        let members = [GUEST, TUNNEL].map(|port| {
            let mut member = BridgePort::plain(port);
            member.rules.vlans = vlan.map(PortVlans::access);
            member
        });
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
    for vlan in [None, VlanId::new(10)] {
        // Of each set: the cycles of each switch, the bound, and the sum of the first switch and the bound.
        let mut cases = CASES.map(|_| Vec::new());
        let mut bounds = Vec::new();
        let mut sums = Vec::new();
        for set in 0..sets {
            let scenes = CASES.map(|case| Scene::new(case, vlan));
            let mut scenes = scenes.into_iter().collect::<Result<Vec<_>, _>>()?;
            let mut values = CASES.map(|_| Vec::new());
            let mut bound = Vec::new();
            for _ in 0..rounds {
                for (scene, values) in scenes.iter_mut().zip(&mut values) {
                    values.push(scene.round(bursts)?);
                }
                let times = loads.each_ref().map(|loads| loads.time(LOADS).as_secs_f64() / LOADS as f64);
                bound.push(2.0 * (times[1] - times[0]) * hertz());
            }
            let middle = |values: &[f64]| median(values).context("rounds");
            for (samples, values) in cases.iter_mut().zip(&values) {
                samples.push((set, middle(values)?));
            }
            bounds.push(middle(&bound)?);
            sums.push((set, middle(&values[0])? + middle(&bound)?));
        }
        if !is_test {
            print(vlan, &cases, &bounds, &sums)?;
        }
    }
    Ok(())
}

/// Prints the cycles of each switch, and its ratios to the first one.
fn print(vlan: Option<VlanId>, cases: &[Vec<(u32, f64)>], bounds: &[f64], sums: &[(u32, f64)]) -> anyhow::Result<()> {
    let beside = |samples: &[(u32, f64)], others: &[(u32, f64)]| {
        let ratio = ratio(samples, others, Pairing::ByRound).context("samples")?;
        let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.2}, {:.2}]", all.low, all.high));
        anyhow::Ok(format!("{:.2}{interval}", ratio.value))
    };
    println!("{} VLANs:\n", if vlan.is_some() { "with" } else { "without" });
    println!("| stations | that get packets | cycles a packet | to the first | to the first and the bound |");
    println!("|---|---|---|---|---|");
    for (at, ((stations, active), samples)) in CASES.into_iter().zip(cases).enumerate() {
        let values: Vec<_> = samples.iter().map(|(_, cycles)| *cycles).collect();
        let cycles = median(&values).context("samples")?;
        print!("| {stations} | {active} | {cycles:.1} |");
        if at == 0 {
            println!(" | |");
        } else {
            println!(" {} | {} |", beside(samples, &cases[0])?, beside(samples, sums)?);
        }
    }
    println!("\nmemory's bound, two loads of {} slots: {:.1} cycles\n", SLOTS[1], median(bounds).context("sets")?);
    Ok(())
}
