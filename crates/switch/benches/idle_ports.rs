//! The switch's cost per packet beside many ports that send nothing, and in VLANs, on one thread.
//!
//! `cargo bench -p straightline-switch --bench idle_ports` prints cycles of the time-stamp counter
//! per packet that a guest sends. Two guests of a bridge send to each other, or one to all, and the
//! same worker serves other ports. Rounds of all rows alternate, in twelve sets that are built anew; a
//! sample is the median of a set. `rate` is the rate in relation to the row `beside`, by medians.
//! `cycles` is the ratio of the cycles, and `more` is their difference, each with its interval of 95 %.
//!
//! - `idle` ports are in the same bridge and have no guest, `guests` have one, `others` are in no
//!   bridge.
//! - Each guest is one station, or `16 stations` whose frames alternate.
//! - `access`, `trunk`, `customer` and `provider` are the roles of the two ports in a VLAN. With `to`,
//!   only the first sends.
//! - `flood`: one guest sends to all, in a bridge of 33 ports with guests.
//!
//! Words behind `--` choose the rows whose names contain one of them, and those beside them. With
//! `--test` it runs each row once and prints nothing.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::Arc;

use anyhow::Context;
use straightline_fdb::Fdb;
use straightline_graph::clock::cycles;
use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::{Bridge, BridgePort, PortRules, PortVlans, Sink, TagForm, VlanRole};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_report::statistics::{Interval, Looks, Pairing, median, ratio};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, VlanId};

/// Packets that each guest sends between the worker's turns.
const BURST: usize = 64;

/// Sets of rows, each with memory and rings of its own: where they lie changes a row by some per cent.
const SETS: u32 = 12;

/// Frame lengths.
const SIZES: [usize; 2] = [60, 1514];

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The row that it is compared with.
    beside: &'static str,
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
    /// The roles of the others: so many have the first one, and the rest the second.
    others_roles: (u16, [Role; 2]),
    /// The number of guests that send.
    senders: usize,
    /// Frames are for all stations.
    is_flood: bool,
}

/// The part of a port in VLAN 10.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The bridge has no VLANs.
    None,
    Access,
    Trunk(EtherType),
    Customer,
}

const ALONE: Row = Row {
    name: "alone",
    beside: "alone",
    others: 0,
    with_guests: false,
    is_bridged: true,
    stations: 1,
    roles: [Role::None; 2],
    others_roles: (0, [Role::None; 2]),
    senders: 2,
    is_flood: false,
};

const MANY: Row = Row { name: "alone, 16 stations", stations: 16, ..ALONE };

const ONE_WAY: Row = Row { name: "none to none", beside: "none to none", senders: 1, ..ALONE };

/// To 31 others and the second of the two.
const FLOOD: Row = Row {
    name: "flood, no VLANs",
    beside: "flood, no VLANs",
    others: 31,
    with_guests: true,
    senders: 1,
    is_flood: true,
    ..ALONE
};

/// To access ports.
const FLOOD_IN_VLAN: Row =
    Row { name: "flood, 32 access", roles: [Role::Access; 2], others_roles: (31, [Role::Access; 2]), ..FLOOD };

const TRUNK: Role = Role::Trunk(EtherType::VLAN);

const PROVIDER: Role = Role::Trunk(EtherType::SERVICE_VLAN);

const ROWS: [Row; 22] = [
    ALONE,
    MANY,
    Row { name: "16 idle", others: 16, ..ALONE },
    Row { name: "62 idle", others: 62, ..ALONE },
    Row { name: "126 idle", others: 126, ..ALONE },
    Row { name: "126 guests", others: 126, with_guests: true, ..ALONE },
    Row { name: "100 others", others: 100, is_bridged: false, ..ALONE },
    Row { name: "access, access", roles: [Role::Access; 2], ..ALONE },
    Row { name: "access, access, 16 stations", beside: MANY.name, roles: [Role::Access; 2], ..MANY },
    Row { name: "access, trunk", roles: [Role::Access, TRUNK], ..ALONE },
    Row { name: "trunk, trunk", roles: [TRUNK; 2], ..ALONE },
    Row { name: "customer, provider", roles: [Role::Customer, PROVIDER], ..ALONE },
    ONE_WAY,
    Row { name: "access to access", roles: [Role::Access; 2], ..ONE_WAY },
    Row { name: "access to trunk", roles: [Role::Access, TRUNK], ..ONE_WAY },
    Row { name: "trunk to access", roles: [TRUNK, Role::Access], ..ONE_WAY },
    Row { name: "customer to provider", roles: [Role::Customer, PROVIDER], ..ONE_WAY },
    Row { name: "provider to customer", roles: [PROVIDER, Role::Customer], ..ONE_WAY },
    FLOOD,
    FLOOD_IN_VLAN,
    Row { name: "flood, 30 access, 2 trunks", others_roles: (29, [Role::Access, TRUNK]), ..FLOOD_IN_VLAN },
    Row { name: "flood, 16 access, 16 trunks", others_roles: (15, [Role::Access, TRUNK]), ..FLOOD_IN_VLAN },
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
            PROVIDER => vec![0x88, 0xa8, 0, 10, 0x81, 0, 0, 7],
            Role::Trunk(_) => vec![0x81, 0, 0, 10],
            Role::Customer => vec![0x81, 0, 0, 7],
        }
    }
}

struct Scene {
    row: Row,
    worker: Worker,
    /// The guests of all ports that have one, the two first.
    guests: Vec<Guest>,
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
        let (many, [first, second]) = row.others_roles;
        let of_others = std::iter::repeat_n(first, many.into()).chain(std::iter::repeat(second));
        let roles = row.roles.into_iter().chain(of_others);
        let members_of_bridge = indexes.into_iter().zip(roles);
        let rules: Vec<_> = members_of_bridge
            .map(|(index, role)| BridgePort {
                index,
                rules: role.rules(),
                move_limit: None,
                has_groups: false,
                leads_on: false,
            })
            .collect();
        let mut forms: Vec<(TagForm, Vec<_>)> = Vec::new();
        for (&edge, port) in edges.iter().zip(&rules) {
            let Some(form) = port.rules.vlans.as_ref().and_then(PortVlans::form) else { continue };
            match forms.iter_mut().find(|(known, _)| *known == form) {
                Some((_, edges)) => edges.push(edge),
                None => forms.push((form, vec![edge])),
            }
        }
        forms.into_iter().for_each(|(form, edges)| graph.form(Box::new(form), &edges));
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
        let guests = (0..if with_guests { count } else { 2 }).map(connect).collect::<Result<_, _>>()?;
        let mut scene = Scene { row, worker, guests, _ports: ports, _dir: dir };
        scene.learn();
        Ok(scene)
    }

    /// Makes the bridge learn both guests, by packets that are flooded.
    fn learn(&mut self) {
        let mut sent = 0;
        for station in 0..self.row.stations {
            for (guest, frame) in self.guests.iter_mut().zip(frames(60, station, self.row)) {
                assert!(guest.send(&NetHeader::default(), &frame));
                guest.flush();
                sent += 1;
            }
        }
        // A flood may cost more than a turn's share. Then turns without packets follow.
        let mut taken = 0;
        while taken < sent {
            taken += self.worker.turn();
        }
        self.guests.iter_mut().for_each(|guest| _ = guest.receive(usize::MAX, |_, _| ()));
    }

    /// Runs one round; returns cycles per packet that was sent.
    fn round(&mut self, len: usize, bursts: usize) -> f64 {
        let Row { stations, senders, is_flood, .. } = self.row;
        let outputs = if is_flood { self.guests.len() - 1 } else { 1 };
        let frames: Vec<_> = (0..stations).map(|station| frames(len, station, self.row)).collect();
        let mut spent = 0;
        for _ in 0..bursts {
            for (at, guest) in self.guests.iter_mut().enumerate().take(senders) {
                for frames in frames.iter().cycle().take(BURST) {
                    assert!(guest.send(&NetHeader::default(), &frames[at]), "a ring of 256 has space");
                }
                guest.flush();
            }
            let mut arrived = 0;
            while arrived < senders * outputs * BURST {
                // A turn without packets is no cost of packets: a busy worker has none.
                let mut before = cycles();
                while self.worker.turn() > 0 {
                    let now = cycles();
                    spent += now - before;
                    before = now;
                }
                self.guests.iter_mut().for_each(|guest| arrived += guest.receive(usize::MAX, |_, _| ()));
            }
        }
        spent as f64 / (bursts * senders * BURST) as f64
    }
}

/// Returns the frames that one station of each guest sends to that of the other, or to all. Their length
/// is that without tags.
fn frames(len: usize, station: u8, row: Row) -> [Vec<u8>; 2] {
    [(2, 1, row.roles[0]), (1, 2, row.roles[1])].map(|(to, from, role)| {
        let to = if row.is_flood { [0xff; 6] } else { [2, 0, 0, 0, station, to] };
        let mut frame = vec![0xa5; len];
        frame[..6].copy_from_slice(&to);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, station, from, 0x88, 0xb5]);
        frame.splice(12..12, role.tags());
        frame
    })
}

/// Returns an interval in brackets.
fn brackets(interval: Option<Interval>, digits: usize) -> String {
    interval.map_or_else(String::new, |all| format!("[{:.digits$}, {:.digits$}]", all.low, all.high))
}

fn main() -> anyhow::Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let (sets, rounds, bursts) = if is_test { (1, 1, 2) } else { (SETS, 15, 50) };
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let is_chosen = |row: &Row| words.is_empty() || words.iter().any(|word| row.name.contains(word));
    let is_beside = |row: &Row| ROWS.iter().any(|other| other.beside == row.name && is_chosen(other));
    let rows: Vec<_> = ROWS.into_iter().filter(|row| is_chosen(row) || is_beside(row)).collect();
    let mut samples = vec![[const { Vec::new() }; SIZES.len()]; rows.len()];
    for set in 0..sets {
        let mut scenes = rows.iter().copied().map(Scene::new).collect::<Result<Vec<_>, _>>()?;
        let mut values = vec![[const { Vec::new() }; SIZES.len()]; rows.len()];
        for _ in 0..rounds {
            for (scene, values) in scenes.iter_mut().zip(&mut values) {
                for (&len, values) in SIZES.iter().zip(values) {
                    values.push(scene.round(len, bursts));
                }
            }
        }
        for (samples, values) in samples.iter_mut().flatten().zip(values.iter().flatten()) {
            samples.push((set, median(values).context("rounds")?));
        }
    }
    if is_test {
        return Ok(());
    }
    println!("| row | bytes | cycles a packet | rate | beside | cycles | more |\n|---|---|---|---|---|---|---|");
    for (row, own) in rows.iter().zip(&samples) {
        let beside = rows.iter().position(|other| other.name == row.beside).context("the row beside")?;
        for (nth, len) in SIZES.iter().enumerate() {
            let values: Vec<_> = own[nth].iter().map(|(_, cycles)| *cycles).collect();
            let median = median(&values).context("samples")?;
            let ratio = ratio(&own[nth], &samples[beside][nth], Pairing::ByRound).context("samples")?;
            let change = Looks::One.change(&own[nth], &samples[beside][nth], Pairing::ByRound).context("samples")?;
            println!(
                "| {} | {len} | {median:.1} | {:.2} | {} | {:.3} {} | {:.1} {} |",
                row.name,
                1.0 / ratio.value,
                row.beside,
                ratio.value,
                brackets(ratio.interval, 3),
                change.value,
                brackets(change.interval, 1)
            );
        }
    }
    Ok(())
}
