//! The switch's cost per packet beside many ports that send nothing, on one thread.
//!
//! `cargo bench -p straightline-switch --bench idle_ports` prints cycles of the time-stamp counter
//! per packet: two guests of a bridge send to each other, and the same worker serves other ports.
//! Rounds of all rows alternate. `ratio` is the rate in relation to the two ports alone, by medians.
//! `idle` ports are in the same bridge and have no guest, `guests` have one, `others` are in no
//! bridge. Each guest is one station, or `16 stations` whose frames alternate. `access`, `trunk`,
//! `customer` and `provider` are the roles of the two ports in a VLAN: a tag is written in one
//! direction and removed in the other. With `--test` it runs each row once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::Arc;

use straightline_fdb::Fdb;
use straightline_graph::clock::cycles;
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, PortRules, PortVlans, Sink, VlanRole};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, VlanId};

/// Packets that each guest sends between the worker's turns.
const BURST: usize = 64;

/// Frame lengths.
const SIZES: [usize; 2] = [60, 1514];

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The ports beside the two that exchange packets.
    others: u16,
    /// These have guests.
    with_guests: bool,
    /// These are in the bridge.
    is_bridged: bool,
    /// The stations that each guest is.
    stations: u8,
    /// The roles of the two ports.
    roles: [Role; 2],
}

/// The part of a port in VLAN 10.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The bridge has no VLANs.
    None,
    Access,
    Trunk(EtherType),
    Customer,
}

const ALONE: Row =
    Row { name: "alone", others: 0, with_guests: false, is_bridged: true, stations: 1, roles: [Role::None; 2] };

const TRUNK: Role = Role::Trunk(EtherType::VLAN);

const ROWS: [Row; 12] = [
    ALONE,
    Row { name: "alone, 16 stations", stations: 16, ..ALONE },
    Row { name: "16 idle", others: 16, ..ALONE },
    Row { name: "62 idle", others: 62, ..ALONE },
    Row { name: "126 idle", others: 126, ..ALONE },
    Row { name: "126 guests", others: 126, with_guests: true, ..ALONE },
    Row { name: "100 others", others: 100, is_bridged: false, ..ALONE },
    Row { name: "access, access", roles: [Role::Access; 2], ..ALONE },
    Row { name: "access, access, 16 stations", roles: [Role::Access; 2], stations: 16, ..ALONE },
    Row { name: "access, trunk", roles: [Role::Access, TRUNK], ..ALONE },
    Row { name: "trunk, trunk", roles: [TRUNK; 2], ..ALONE },
    Row { name: "customer, provider", roles: [Role::Customer, Role::Trunk(EtherType::SERVICE_VLAN)], ..ALONE },
];

impl Role {
    fn rules(self) -> PortRules {
        let vlan = VlanId::new(10).unwrap_or_default();
        let role = match self {
            Role::None => return PortRules::default(),
            Role::Access => VlanRole::Access(vlan),
            Role::Customer => VlanRole::Customer(vlan),
            Role::Trunk(tpid) => VlanRole::Trunk { tpid, vlans: Box::new([vlan].into_iter().collect()), native: None },
        };
        PortRules { vlans: Some(PortVlans { role, priority: 0 }), ..PortRules::default() }
    }

    /// Returns the tags of frames that the port's guest sends.
    fn tags(self) -> Vec<u8> {
        match self {
            Role::None | Role::Access => Vec::new(),
            Role::Trunk(EtherType::SERVICE_VLAN) => vec![0x88, 0xa8, 0, 10, 0x81, 0, 0, 7],
            Role::Trunk(_) => vec![0x81, 0, 0, 10],
            Role::Customer => vec![0x81, 0, 0, 7],
        }
    }
}

struct Scene {
    row: Row,
    worker: Worker,
    guests: Vec<Guest>,
    _idle: Vec<Guest>,
    _ports: Vec<VhostUser>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(row: Row) -> anyhow::Result<Scene> {
        let Row { others, with_guests, is_bridged, .. } = row;
        let dir = tempfile::tempdir()?;
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new()?);
        let count = 2 + others;
        let drops: Vec<Arc<Drops>> = (0..count).map(|_| Arc::default()).collect();
        let mut graph = Graph::new();
        let mut ports = Vec::new();
        for (n, drops) in (0..).zip(&drops) {
            let config = VhostUserConfig::new(format!("p{n}"), dir.path().join(format!("p{n}")));
            ports.push(VhostUser::open(config, PortIndex(n), Arc::clone(drops), &rcu, Arc::clone(&waiter))?);
        }
        let (members, outside) = ports.split_at(if is_bridged { ports.len() } else { 2 });
        let indexes: Vec<_> = (0..).take(members.len()).map(PortIndex).collect();
        let edges: Vec<_> = members.iter().map(|port| graph.output(port.for_worker(0), false)).collect();
        let fdb = Arc::new(Fdb::new(1024, 300, &indexes, &[]));
        let roles = row.roles.into_iter().chain(std::iter::repeat(Role::None));
        let members_of_bridge = indexes.into_iter().zip(roles);
        let rules: Vec<_> = members_of_bridge.map(|(index, role)| BridgePort { index, rules: role.rules() }).collect();
        for (&edge, port) in edges.iter().zip(&rules) {
            if let Some(form) = port.rules.vlans.as_ref().and_then(PortVlans::form) {
                graph.form(Box::new(form), &[edge]);
            }
        }
        let bridge = graph.node("bridge", Box::new(Bridge::new(&rules, fdb)), &edges);
        members.iter().for_each(|port| graph.input(port.for_worker(0), bridge));
        for port in outside {
            let nowhere = graph.node("nowhere", Box::new(Sink::new(Reason::NotConnected)), &[]);
            graph.input(port.for_worker(0), nowhere);
        }
        let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
        arena.change(drops, u32::try_from(members.len() - 1)?.max(1));
        let worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let connect = |n: u16| Guest::connect(&dir.path().join(format!("p{n}")), &GuestOptions::default());
        let guests = (0..2).map(connect).collect::<Result<_, _>>()?;
        let idle = (2..if with_guests { count } else { 2 }).map(connect).collect::<Result<_, _>>()?;
        let mut scene = Scene { row, worker, guests, _idle: idle, _ports: ports, _dir: dir };
        scene.learn();
        Ok(scene)
    }

    /// Makes the bridge learn both guests, by packets that are flooded.
    fn learn(&mut self) {
        for station in 0..self.row.stations {
            for (guest, frame) in self.guests.iter_mut().zip(frames(60, station, self.row.roles)) {
                assert!(guest.send(&NetHeader::default(), &frame));
                guest.flush();
            }
        }
        // A flood may cost more than a turn's share. Then turns without packets follow.
        (0..1000).for_each(|_| _ = self.worker.turn());
        self.guests.iter_mut().for_each(|guest| _ = guest.receive(usize::MAX, |_, _| ()));
    }

    /// Runs one round; returns cycles per packet.
    fn round(&mut self, len: usize, bursts: usize) -> u64 {
        let mut spent = 0;
        let mut packets = 0;
        for _ in 0..bursts {
            for (at, guest) in self.guests.iter_mut().enumerate() {
                let of_stations = (0..self.row.stations).map(|station| frames(len, station, self.row.roles));
                let of_stations: Vec<_> = of_stations.collect();
                for frames in of_stations.iter().cycle().take(BURST) {
                    assert!(guest.send(&NetHeader::default(), &frames[at]), "a ring of 256 has space");
                }
                guest.flush();
            }
            let mut arrived = 0;
            while arrived < 2 * BURST {
                // A turn without packets is no cost of packets: a busy worker has none.
                let mut before = cycles();
                while self.worker.turn() > 0 {
                    let now = cycles();
                    spent += now - before;
                    before = now;
                }
                self.guests.iter_mut().for_each(|guest| arrived += guest.receive(usize::MAX, |_, _| ()));
            }
            packets += arrived as u64;
        }
        spent / packets
    }
}

/// Returns the frames that one station of each guest sends to that of the other. Their length is that
/// without tags.
fn frames(len: usize, station: u8, roles: [Role; 2]) -> [Vec<u8>; 2] {
    [(2, 1, roles[0]), (1, 2, roles[1])].map(|(to, from, role)| {
        let mut frame = vec![0xa5; len];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, station, to, 2, 0, 0, 0, station, from, 0x88, 0xb5]);
        frame.splice(12..12, role.tags());
        frame
    })
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let (rounds, bursts) = if is_test { (1, 2) } else { (41, 50) };
    let mut scenes = Vec::new();
    for row in ROWS {
        scenes.push((row.name, Scene::new(row)?));
    }
    let mut values = vec![[const { Vec::new() }; SIZES.len()]; scenes.len()];
    for _ in 0..rounds {
        for ((_, scene), values) in scenes.iter_mut().zip(&mut values) {
            for (&len, values) in SIZES.iter().zip(values) {
                values.push(scene.round(len, bursts));
            }
        }
    }
    if is_test {
        return Ok(());
    }
    println!("| ports beside | bytes | cycles | ratio |\n|---|---|---|---|");
    let mut alone = [0.0; SIZES.len()];
    for ((name, _), values) in scenes.iter().zip(&mut values) {
        for (nth, (len, values)) in SIZES.iter().zip(values).enumerate() {
            values.sort_unstable();
            let median = f64::from(u32::try_from(values[values.len() / 2])?);
            if *name == "alone" {
                alone[nth] = median;
            }
            println!("| {name} | {len} | {median:.0} | {:.2} |", alone[nth] / median);
        }
    }
    Ok(())
}
