//! A running switch: ports, workers, and how they start and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use straightline_graph::{Graph, NodeStats, Worker, WorkerStats};
use straightline_nodes::{Bridge, Fdb, Patch, Sink};
use straightline_packet::{Arena, Drops, Gate, PortIndex, Reason, Settings};
use straightline_port::vhost_user::{self, Permissions, VhostUser, VhostUserConfig};
use straightline_port::{Port, Sleeper};
use straightline_wire::MacAddr;

use crate::api::Source;
use crate::config::{Config, Copies, Idle, Mode, PortConfig, PortKind, WhenFull};
use crate::plan::{Domain, Plan, plan, ports_of};
use crate::sandbox;
use crate::source::Running;

/// Bytes of bodies that a turn takes, floods counted: what a port of a large bridge may send in one turn is its share.
const TURN_BYTES: u32 = 1 << 20;

/// A switch that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Switch {
    running: Arc<Running>,
    sleepers: Vec<Arc<Sleeper>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Switch {
    /// Starts a checked configuration. When it returns, all sockets listen.
    ///
    /// # Errors
    /// What could not be had: a socket, a thread. Nothing is left running then.
    pub fn start(config: &Config) -> anyhow::Result<Switch> {
        let plan = plan(config);
        let gate = Gate::new();
        let sleepers = (0..plan.workers.len())
            .map(|_| Sleeper::new().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot make a worker's epoll set")?;
        let drops: Vec<Arc<Drops>> = config.ports.iter().map(|_| Arc::default()).collect();
        let ports = config
            .ports
            .iter()
            .enumerate()
            .map(|(at, port)| {
                let sleeper = Arc::clone(&sleepers[plan.port_worker[at]]);
                open(port, at, &plan, Arc::clone(&drops[at]), &gate, sleeper)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let fdbs: Vec<Arc<Fdb>> = config.bridges.iter().map(|bridge| Arc::new(fdb(config, bridge))).collect();

        let mut workers = Vec::new();
        let mut figures = Vec::new();
        for (worker, sleeper) in plan.workers.iter().zip(&sleepers) {
            let graph = graph(config, &worker.domains, &ports, &fdbs);
            let stats = Arc::new(WorkerStats { cpu: worker.cpu, ..WorkerStats::default() });
            figures.push((Arc::clone(&stats), graph.stats()));
            let arena = Arena::new(gate.member(), settings(config, &worker.domains), drops.clone());
            let idle = match config.switch.idle {
                Idle::Sleep => straightline_graph::Idle::Sleep,
                Idle::Spin => straightline_graph::Idle::Spin,
            };
            workers.push((worker.cpu, Worker::new(graph, arena, Arc::clone(sleeper), stats, idle)));
        }
        let fdb_worker = |at: usize| plan.workers.iter().position(|w| w.domains.contains(&Domain::Bridge(at)));
        let bridges = config.bridges.iter().zip(fdbs).enumerate();
        let running = Arc::new(Running {
            since: Instant::now(),
            config: config.clone(),
            ports,
            bridges: bridges.map(|(at, (b, fdb))| (b.name.clone(), fdb, fdb_worker(at).unwrap_or(0))).collect(),
            workers: figures,
        });
        let mut switch = Switch { running, sleepers, stop: Arc::default(), threads: Vec::new() };
        for (at, (cpu, worker)) in workers.into_iter().enumerate() {
            switch.spawn(at, cpu, worker)?;
        }
        Ok(switch)
    }

    fn spawn(&mut self, at: usize, cpu: Option<usize>, mut worker: Worker) -> anyhow::Result<()> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new()
            .name(format!("worker {at}"))
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = pin(cpu)
                {
                    tracing::warn!(worker = at, "cannot pin it to CPU {cpu}: {error}");
                }
                worker.run(&stop);
            })
            .context("cannot start a worker's thread")?;
        self.threads.push(thread);
        Ok(())
    }

    /// What can be asked of it while it runs.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.running) as Arc<dyn Source>
    }

    /// The figures of every node, in the order of a packet's way, for whoever embeds the switch.
    pub fn nodes(&self) -> Vec<Arc<NodeStats>> {
        self.running.workers.iter().flat_map(|(_, nodes)| nodes.iter().cloned()).collect()
    }

    /// Stops it: links go down, sockets are removed, threads end.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Ports first: workers still run, so that a port can wait for the turns that use it.
        for port in &self.running.ports {
            port.stop();
        }
        self.stop.store(true, Ordering::Relaxed);
        for sleeper in &self.sleepers {
            sleeper.ring();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker's thread had panicked");
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

fn pin(cpu: usize) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}

fn port_index(at: usize) -> PortIndex {
    PortIndex(u16::try_from(at).unwrap_or(u16::MAX))
}

fn open(
    port: &PortConfig,
    at: usize,
    plan: &Plan,
    drops: Arc<Drops>,
    gate: &Gate,
    sleeper: Arc<Sleeper>,
) -> anyhow::Result<Arc<VhostUser>> {
    sandbox::allows(port).with_context(|| format!("port \"{}\"", port.name))?;
    let PortKind::VhostUser(kind) = &port.kind;
    let config = VhostUserConfig {
        name: port.name.clone(),
        socket: kind.socket.clone(),
        mode: match kind.mode {
            Mode::Server => {
                vhost_user::Mode::Server(Permissions { owner: kind.owner, group: kind.group, mode: Some(kind.perms) })
            }
            Mode::Client => vhost_user::Mode::Client,
        },
        mtu: port.mtu,
        mac: port.mac.map(|mac| mac.octets()),
        csum: kind.offloads.csum,
        tso: kind.offloads.tso,
        uso: kind.offloads.uso,
        queues: kind.queues,
        packed: kind.packed,
        holds: plan.port_waits[at],
        waits: plan.port_waits[at],
    };
    let port = VhostUser::open(config, port_index(at), drops, gate, sleeper)
        .with_context(|| format!("port \"{}\"", port.name))?;
    Ok(Arc::new(port))
}

fn fdb(config: &Config, bridge: &crate::config::BridgeConfig) -> Fdb {
    let fixed = bridge.statics.iter().filter_map(|entry| {
        let port = config.port_index(&entry.port)?;
        Some((MacAddr(entry.mac.octets()), port_index(port)))
    });
    let fixed: Vec<_> = fixed.collect();
    // The configuration's limit counts static entries, the table's does not.
    Fdb::new((bridge.limit as usize).saturating_sub(fixed.len()), bridge.ageing, &fixed)
}

/// A worker's turn is bounded in bytes copied, so what it may take is less where one packet is copied to many.
fn settings(config: &Config, domains: &[Domain]) -> Settings {
    let copies = |&domain: &Domain| ports_of(config, domain).len().saturating_sub(1).max(1);
    let most = u32::try_from(domains.iter().map(copies).max().unwrap_or(1)).unwrap_or(u32::MAX);
    Settings {
        two_copies: config.switch.copies == Copies::Two,
        body_limit: (TURN_BYTES / most).max(1 << 16),
        ..Settings::default()
    }
}

fn graph(config: &Config, domains: &[Domain], ports: &[Arc<VhostUser>], fdbs: &[Arc<Fdb>]) -> Graph {
    let mut graph = Graph::new();
    for &domain in domains {
        let members = ports_of(config, domain);
        let port = |at: usize| Arc::clone(&ports[at]) as Arc<dyn Port>;
        let wait = matches!(domain, Domain::Patch(at) if config.patches[at].full == WhenFull::Wait);
        let node = match domain {
            Domain::Loose(_) => graph.node("unconnected", Box::new(Sink::new(Reason::NotConnected)), &[]),
            Domain::Patch(at) => {
                let edges: Vec<_> = members.iter().map(|&m| graph.output(port(m), wait)).collect();
                let patch = Patch::new(port_index(members[0]));
                graph.node(format!("patch.{}", config.patches[at].name), Box::new(patch), &edges)
            }
            Domain::Bridge(at) => {
                let edges: Vec<_> = members.iter().map(|&m| graph.output(port(m), false)).collect();
                let indexes = members.iter().map(|&m| port_index(m)).collect();
                let bridge = Bridge::new(indexes, Arc::clone(&fdbs[at]));
                graph.node(format!("bridge.{}", config.bridges[at].name), Box::new(bridge), &edges)
            }
        };
        for member in members {
            graph.input(port(member), node);
        }
    }
    graph
}
