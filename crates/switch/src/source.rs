//! What a running switch answers: put together from counters that workers write, without stopping them.

use std::sync::Arc;
use std::time::Instant;

use straightline_graph::clock::{cycles, seconds};
use straightline_graph::{NodeStats, WorkerStats};
use straightline_nodes::Fdb as Table;
use straightline_packet::Level;
use straightline_port::QueueCounters;
use straightline_port::vhost_user::VhostUser;

use crate::api::{
    DropCount, Drops, Fdb, FdbEntry, Link, Node, Packets, Port, Ports, Queue, RingKind, Runtime, Source, Status, Worker,
};
use crate::config::{Config, PortKind};
use crate::sandbox;

/// The parts of a running switch that have something to tell.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) since: Instant,
    pub(crate) config: Config,
    /// In the configuration's order.
    pub(crate) ports: Vec<Arc<VhostUser>>,
    /// A bridge's name, its table, and the worker whose clock the table goes by.
    pub(crate) bridges: Vec<(String, Arc<Table>, usize)>,
    pub(crate) workers: Vec<(Arc<WorkerStats>, Vec<Arc<NodeStats>>)>,
}

impl Running {
    fn name(&self, port: usize) -> String {
        self.config.ports.get(port).map_or_else(String::new, |p| p.name.clone())
    }
}

impl Source for Running {
    fn ports(&self) -> Ports {
        let ports = self.config.ports.iter().zip(&self.ports).map(|(config, port)| {
            let status = port.status();
            let PortKind::VhostUser(kind) = &config.kind;
            Port {
                name: config.name.clone(),
                kind: config.kind.as_str().to_owned(),
                link: if status.up { Link::Up } else { Link::Down },
                reason: (!status.up).then_some(status.reason),
                features: status.features.iter().map(|&f| f.to_owned()).collect(),
                ring: status.ring.map(|ring| if ring.packed { RingKind::Packed } else { RingKind::Split }),
                ring_size: status.ring.map_or(0, |ring| ring.size.into()),
                regions: status.regions.try_into().unwrap_or(u32::MAX),
                queues: port.counters().iter().enumerate().map(|(index, counters)| queue(index, counters)).collect(),
                drops: port.drops().nonzero().map(|(reason, n)| (reason.name().to_owned(), n)).collect(),
                mtu: config.mtu,
                mac: config.mac.map(|mac| mac.to_string()),
                socket: Some(kind.socket.display().to_string()),
            }
        });
        Ports { ports: ports.collect() }
    }

    fn runtime(&self) -> Runtime {
        let workers = self.workers.iter().map(|(stats, _)| {
            let times = stats.times(cycles());
            Worker {
                cpu: stats.cpu,
                busy_s: seconds(times.busy),
                empty_poll_s: seconds(times.empty_poll),
                idle_s: seconds(times.idle),
                unexplained_s: seconds(times.unexplained),
                turns: stats.turns.get(),
                bodies_copied_bytes: stats.bodies_copied.get(),
                bodies_delivered_bytes: stats.bodies_delivered.get(),
            }
        });
        let nodes = self.workers.iter().flat_map(|(_, nodes)| nodes);
        Runtime {
            workers: workers.collect(),
            nodes: nodes.map(|n| Node::new(&n.name, n.calls.get(), n.packets.get(), n.cycles.get())).collect(),
        }
    }

    fn drops(&self) -> Drops {
        let counts = self.ports.iter().enumerate().flat_map(|(at, port)| {
            port.drops().nonzero().map(move |(reason, count)| DropCount {
                port: self.name(at),
                reason: reason.name().to_owned(),
                count,
            })
        });
        Drops { drops: counts.collect() }
    }

    fn fdb(&self) -> Fdb {
        let entries = self.bridges.iter().flat_map(|(name, table, worker)| {
            let started = self.workers.get(*worker).map_or(0, |(stats, _)| stats.started.get());
            let now = seconds(cycles().saturating_sub(started));
            table.entries(whole(now)).into_iter().map(move |entry| FdbEntry {
                bridge: name.clone(),
                mac: entry.mac.to_string(),
                port: self.name(entry.port.index()),
                age_s: if entry.is_static { 0.0 } else { (now - f64::from(entry.seen)).max(0.0) },
                is_static: entry.is_static,
            })
        });
        Fdb { entries: entries.collect() }
    }

    fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.since.elapsed().as_secs_f64(),
            simd: Level::detect().name().to_owned(),
            workers: self.workers.len(),
            ports_up: self.ports.iter().filter(|port| port.status().up).count(),
            ports: self.ports.len(),
            sandbox: sandbox::in_force().iter().map(|mechanism| mechanism.as_str().to_owned()).collect(),
            refused_calls: sandbox::refused_calls(),
        }
    }
}

fn queue(index: usize, counters: &QueueCounters) -> Queue {
    Queue {
        index: index.try_into().unwrap_or(u16::MAX),
        rx: Packets { packets: counters.rx_packets.get(), bytes: counters.rx_bytes.get() },
        tx: Packets { packets: counters.tx_packets.get(), bytes: counters.tx_bytes.get() },
        kicks_sent: counters.kicks_sent.get(),
        kicks_suppressed: counters.kicks_suppressed.get(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clock of the switch: positive, and far below 2^32 seconds"
)]
fn whole(seconds: f64) -> u32 {
    seconds as u32
}
