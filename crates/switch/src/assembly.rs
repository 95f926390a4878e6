//! The parts of a plan, made and put together: ports, tables of bridges, and each worker's graph.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use straightline_graph::{Graph, NodeStats, Work};
use straightline_nodes::{Bridge, Fdb, MacPrefix, Patch, Sink, SourceCheck};
use straightline_packet::{Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, OpenError};
use straightline_port::vhost_user::{self, VhostUser, VhostUserConfig};
use straightline_port::{PortControl, Waiters};
use straightline_wire::MacAddr;

use crate::config::{self, BridgeConfig, Config, Copies, Mode, NodeConfig, PortConfig, PortKind};
use crate::default_mac::default_mac;
use crate::node_chain::NodeChains;
use crate::plan::{ForwardingDomain, Plan, PortPlan};
use crate::sandbox;

/// Bytes of bodies that a turn copies. A packet may be copied to all ports of a bridge, so a turn
/// takes only a share of these bytes.
const TURN_BYTES: u32 = 1 << 20;

/// The rules of a bridge's table: its limit, its ageing, its static entries.
pub(crate) type Rules = (usize, u32, Vec<(MacAddr, PortIndex)>);

/// Returns how a worker's turns are run.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        level: config.switch.level(),
        two_copies: config.switch.copies == Copies::Two,
        body_limit: TURN_BYTES,
        prefetch: !config.switch.without_prefetch,
    }
}

/// Opens a port. The kinds of port differ only here; afterwards each is a [`PortControl`].
pub(crate) fn open(
    port: &PortConfig,
    place: &PortPlan,
    drops: Arc<Drops>,
    rcu: &Rcu,
    waiters: Waiters,
    given: Option<Arc<OwnedFd>>,
    devices: &DevicesOnce,
) -> anyhow::Result<Arc<dyn PortControl>> {
    sandbox::allows(port).with_context(|| format!("port \"{}\"", port.name))?;
    let opened = match &port.kind {
        PortKind::VhostUser(kind) => open_vhost_user(port, kind, place, drops, rcu, waiters, given),
        PortKind::Tap(_) | PortKind::AfPacket(_) | PortKind::AfXdp(_) => {
            open_device(port, place, drops, rcu, waiters, devices)
        }
    };
    let opened = opened.with_context(|| format!("port \"{}\"", port.name))?;
    opened.assign_queues(place.assignment.clone());
    Ok(opened)
}

/// Opens a vhost-user port.
fn open_vhost_user(
    port: &PortConfig,
    kind: &config::VhostUserConfig,
    place: &PortPlan,
    drops: Arc<Drops>,
    rcu: &Rcu,
    waiters: Waiters,
    given: Option<Arc<OwnedFd>>,
) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = VhostUserConfig {
        name: port.name.clone(),
        socket: kind.socket.clone(),
        mode: match kind.mode {
            Mode::Server => vhost_user::Mode::Server(kind.permissions()),
            Mode::Client => vhost_user::Mode::Client,
            Mode::Given => vhost_user::Mode::Given(given.context("no client handed a socket over")?),
        },
        mtu: port.mtu,
        mac: port.mac.map(|mac| mac.octets()),
        default_mac: Some(default_mac(&port.name)),
        csum: kind.offloads.csum,
        tso: kind.offloads.tso,
        uso: kind.offloads.uso,
        queues: kind.queues,
        packed: kind.packed,
        waits: place.waits,
    };
    Ok(Arc::new(VhostUser::open(config, PortIndex(place.slot), drops, rcu, waiters)?))
}

/// Opens a port whose peer is an interface of this machine.
fn open_device(
    port: &PortConfig,
    place: &PortPlan,
    drops: Arc<Drops>,
    rcu: &Rcu,
    waiters: Waiters,
    devices: &DevicesOnce,
) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = DevicePortConfig {
        name: port.name.clone(),
        request: port.kind.device(port.mtu, port.mac).context("the kind has no interface")?,
        mtu: port.mtu,
        queues: u16::try_from(port.kind.most_queues()).unwrap_or(u16::MAX),
    };
    let devices = devices.get().context("cannot prepare to open interfaces")?;
    Ok(Arc::new(DevicePort::open(config, PortIndex(place.slot), drops, rcu, waiters, &devices)?))
}

/// The device ports of a switch, made with its first such port if the caller brought none.
#[derive(Debug, Default)]
pub(crate) struct DevicesOnce(Mutex<Option<Arc<Devices>>>);

impl DevicesOnce {
    pub(crate) fn new(devices: Option<Arc<Devices>>) -> Self {
        DevicesOnce(Mutex::new(devices))
    }

    /// Checks that this interface may be opened with these settings. Nothing is opened.
    pub(crate) fn check(&self, request: &DeviceRequest) -> Result<(), OpenError> {
        let devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.as_ref().map_or(Ok(()), |devices| devices.opener().check(request))
    }

    fn get(&self) -> std::io::Result<Arc<Devices>> {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(devices) = &*devices {
            return Ok(Arc::clone(devices));
        }
        Ok(Arc::clone(devices.insert(Devices::direct()?)))
    }
}

/// Returns the rules of a bridge's table.
pub(crate) fn rules(config: &Config, plan: &Plan, bridge: &BridgeConfig) -> Rules {
    let fixed = bridge.statics.iter().filter_map(|entry| {
        let port = config.port_index(&entry.port)?;
        Some((MacAddr(entry.mac.octets()), PortIndex(plan.ports[port].slot)))
    });
    let fixed: Vec<_> = fixed.collect();
    // The configuration's limit counts static entries, the table's limit does not.
    ((bridge.limit as usize).saturating_sub(fixed.len()), bridge.ageing, fixed)
}

/// Returns the check of the addresses that a port's guest claims, if the port has one.
pub(crate) fn source_check(port: &PortConfig) -> Option<SourceCheck> {
    let check = port.source_check.as_ref()?;
    let own = port.mac.map(|mac| MacPrefix::exact(MacAddr(mac.octets())));
    // The port's own address first: most packets have it.
    let macs: Vec<_> = own.into_iter().chain(check.macs.iter().copied()).collect();
    Some(SourceCheck::new(&macs, check.ips.as_deref()))
}

/// The parts that a worker's graph is made of.
pub(crate) struct Parts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) plan: &'a Plan,
    /// In the configuration's order.
    pub(crate) ports: &'a [Arc<dyn PortControl>],
    /// The drop counters of each port.
    pub(crate) drops: &'a [Arc<Drops>],
    /// The table of each bridge that is in a graph to be made.
    pub(crate) fdbs: &'a [Option<Arc<Fdb>>],
    /// The drop counters for slots that no port has.
    pub(crate) nobody: &'a Arc<Drops>,
}

impl Parts<'_> {
    /// Returns a worker's work: the graph of these domains, and the drop counters of all ports.
    pub(crate) fn work(&self, worker: usize, domains: &[ForwardingDomain], node_stats: Vec<Arc<NodeStats>>) -> Work {
        let slots = self.plan.ports.iter().map(|place| usize::from(place.slot) + 1).max().unwrap_or(0);
        let mut drops = vec![Arc::clone(self.nobody); slots];
        for (place, port) in self.plan.ports.iter().zip(self.drops) {
            drops[usize::from(place.slot)] = Arc::clone(port);
        }
        Work { graph: self.graph(worker, domains, node_stats), drops, fan_out: self.copies(domains) }
    }

    /// Returns the largest number of copies of one packet: one for each other port of the largest
    /// domain, and the copies for mirrors.
    fn copies(&self, domains: &[ForwardingDomain]) -> u32 {
        let outputs = |node: &NodeConfig| node.outputs().len();
        let copies = domains.iter().map(|domain| {
            let ports = domain.ports(self.config);
            let ingress = ports.iter().map(|&port| self.config.ingress_nodes(port).map(outputs).sum::<usize>());
            let egress = ports.iter().map(|&port| self.config.egress_nodes(port).map(outputs).sum::<usize>());
            ports.len().saturating_sub(1) + ingress.max().unwrap_or(0) + egress.sum::<usize>()
        });
        let copies = copies.max();
        u32::try_from(copies.unwrap_or(1)).unwrap_or(u32::MAX).max(1)
    }

    fn graph(&self, worker: usize, domains: &[ForwardingDomain], node_stats: Vec<Arc<NodeStats>>) -> Graph {
        let config = self.config;
        let port = |at: usize| self.ports[at].for_worker(worker);
        let index = |at: usize| PortIndex(self.plan.ports[at].slot);
        let mut graph = Graph::continuing(node_stats);
        for &domain in domains {
            let members = domain.ports(config);
            let wait = domain.waits(config);
            let receives = |member: &usize| self.plan.ports[*member].assignment.rx_workers.contains(&worker);
            let mut chains = match wait {
                true => {
                    let received = members.iter().copied().filter(receives);
                    NodeChains::waiting(config, port, &mut graph, &members, received)
                }
                false => NodeChains::new(config, port),
            };
            let mut output = |graph: &mut Graph, member: usize| {
                let output = graph.output(port(member), wait);
                chains.egress(graph, member, output)
            };
            let node = match domain {
                ForwardingDomain::Unconnected(_) => {
                    graph.node("unconnected", Box::new(Sink::new(Reason::NotConnected)), &[])
                }
                ForwardingDomain::Patch(at) => {
                    let edges: Vec<_> = members.iter().map(|&m| output(&mut graph, m)).collect();
                    let patch = Patch::new(index(members[0]));
                    graph.node(format!("patch.{}", config.patches[at].name), Box::new(patch), &edges)
                }
                ForwardingDomain::Bridge(at) => {
                    let Some(fdb) = &self.fdbs[at] else { continue };
                    let edges: Vec<_> = members.iter().map(|&m| output(&mut graph, m)).collect();
                    let indexes = members.iter().map(|&m| index(m)).collect();
                    let workers = self.plan.workers.iter().filter(|worker| worker.domains.contains(&domain)).count();
                    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
                    let bridge = Bridge::new(indexes, Arc::clone(fdb)).shared_by(workers);
                    graph.node(format!("bridge.{}", config.bridges[at].name), Box::new(bridge), &edges)
                }
            };
            for member in members {
                if receives(&member) {
                    let first = chains.ingress(&mut graph, member, node);
                    // The source check comes before all other nodes, so that they see only true
                    // sources.
                    let first = match source_check(&config.ports[member]) {
                        Some(check) => {
                            let name = format!("source-check.{}", config.ports[member].name);
                            graph.node(name, Box::new(check), &[first])
                        }
                        None => first,
                    };
                    graph.input(port(member), first);
                }
            }
        }
        graph
    }
}
