//! The parts of a plan, made and put together: ports, tables of bridges, and each worker's graph.

use std::iter;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use straightline_fdb::Fdb;
use straightline_graph::{Graph, NodeIndex, NodeStats, PortControl, Waiters, Work};
use straightline_nodes::{Bridge, MacPrefix, Patch, Sink, SourceCheck};
use straightline_packet::{Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::ClosedApart;
use straightline_port::device::{DevicePort, DevicePortConfig, DeviceRequest, Devices, OpenError};
use straightline_port::vhost_user::{self, VhostUser, VhostUserConfig};
use straightline_underlay::{Decap, Encap, Gather, OwnPackets, Tunnel, TunnelPort, UnderlayOutput};
use straightline_wire::MacAddr;

use crate::config::{self, BridgeConfig, Config, Copies, Mode, NodeConfig, PortConfig, PortKind};
use crate::default_mac::default_mac;
use crate::node_chain::NodeChains;
use crate::plan::{ForwardingDomain, Plan, PortPlan};
use crate::sandbox;
use crate::underlays::Underlays;

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

/// The things that a port is opened with, beside its configuration.
pub(crate) struct OpenWith<'a> {
    pub(crate) place: &'a PortPlan,
    pub(crate) drops: Arc<Drops>,
    pub(crate) rcu: &'a Rcu,
    pub(crate) waiters: Waiters,
    /// The socket that a client handed over for the port.
    pub(crate) given: Option<Arc<ClosedApart<OwnedFd>>>,
    pub(crate) devices: &'a DevicesOnce,
    /// The tunnel, for a port that is one.
    pub(crate) tunnel: Option<Arc<Tunnel>>,
}

/// Opens a port. The kinds of port differ only here; afterwards each is a [`PortControl`].
pub(crate) fn open(port: &PortConfig, with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    sandbox::allows(port).with_context(|| format!("port \"{}\"", port.name))?;
    let assignment = with.place.assignment.clone();
    let opened = match &port.kind {
        PortKind::VhostUser(kind) => open_vhost_user(port, kind, with),
        PortKind::Tap(_) | PortKind::AfPacket(_) | PortKind::AfXdp(_) => open_device(port, with),
        PortKind::Tunnel(_) => open_tunnel(with),
    };
    let opened = opened.with_context(|| format!("port \"{}\"", port.name))?;
    opened.assign_queues(assignment);
    Ok(opened)
}

/// Opens a vhost-user port.
fn open_vhost_user(
    port: &PortConfig,
    kind: &config::VhostUserConfig,
    with: OpenWith<'_>,
) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = VhostUserConfig {
        name: port.name.clone(),
        socket: kind.socket.clone(),
        mode: match kind.mode {
            Mode::Server => vhost_user::Mode::Server(kind.permissions()),
            Mode::Client => vhost_user::Mode::Client,
            Mode::Given => vhost_user::Mode::Given(with.given.context("no client handed a socket over")?),
        },
        mtu: port.mtu,
        mac: port.mac.map(|mac| mac.octets()),
        default_mac: Some(default_mac(&port.name)),
        csum: kind.offloads.csum,
        tso: kind.offloads.tso,
        uso: kind.offloads.uso,
        queues: kind.queues,
        packed: kind.packed,
        waits: with.place.waits,
    };
    Ok(Arc::new(VhostUser::open(config, PortIndex(with.place.slot), with.drops, with.rcu, with.waiters)?))
}

/// Opens a port whose peer is an interface of this machine.
fn open_device(port: &PortConfig, with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    let config = DevicePortConfig {
        name: port.name.clone(),
        request: port.kind.device(port.mtu, port.mac).context("the kind has no interface")?,
        mtu: port.mtu,
        queues: u16::try_from(port.kind.most_queues()).unwrap_or(u16::MAX),
    };
    let devices = with.devices.get().context("cannot prepare to open interfaces")?;
    let index = PortIndex(with.place.slot);
    Ok(Arc::new(DevicePort::open(config, index, with.drops, with.rcu, with.waiters, &devices)?))
}

/// Opens a tunnel.
fn open_tunnel(with: OpenWith<'_>) -> anyhow::Result<Arc<dyn PortControl>> {
    Ok(Arc::new(TunnelPort::new(with.tunnel.context("it has no underlay")?)))
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
    pub(crate) underlays: &'a Underlays,
    /// The drop counters for slots that no port has.
    pub(crate) nobody: &'a Arc<Drops>,
}

/// An underlay's output in a worker's graph.
struct Carrier {
    /// The index of the underlay.
    underlay: usize,
    /// The packets for its tunnels.
    gather: Arc<Gather>,
    output: NodeIndex,
}

/// The place in a worker's graph at which a tunnel's received packets enter.
struct Entrance {
    /// The index of the tunnel's port.
    tunnel: usize,
    /// The first node that they pass.
    first: NodeIndex,
    /// The patch or bridge, behind the tunnel's nodes.
    network: NodeIndex,
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
    /// patch or bridge, for a tunnel one for each remote, and the copies for mirrors.
    fn copies(&self, domains: &[ForwardingDomain]) -> u32 {
        let of_port = |port: usize| self.config.ports[port].kind.as_tunnel().map_or(1, |tunnel| tunnel.remotes.len());
        let of_output = |name: &String| self.config.port_index(name).map_or(1, of_port);
        let outputs = |node: &NodeConfig| node.outputs().iter().map(of_output).sum::<usize>();
        let parts = domains.iter().flat_map(|domain| domain.parts(self.config));
        let copies = parts.map(|part| {
            let ports = part.ports(self.config);
            let ingress = ports.iter().map(|&port| self.config.ingress_nodes(port).map(outputs).sum::<usize>());
            let egress = ports.iter().map(|&port| self.config.egress_nodes(port).map(outputs).sum::<usize>());
            let all: usize = ports.iter().map(|&port| of_port(port)).sum();
            let own = ports.iter().map(|&port| of_port(port)).min().unwrap_or(0);
            all - own + ingress.max().unwrap_or(0) + egress.sum::<usize>()
        });
        let copies = copies.max();
        u32::try_from(copies.unwrap_or(1)).unwrap_or(u32::MAX).max(1)
    }

    fn graph(&self, worker: usize, domains: &[ForwardingDomain], node_stats: Vec<Arc<NodeStats>>) -> Graph {
        let mut graph = Graph::continuing(node_stats);
        let mut unconnected = None;
        for &domain in domains {
            let carriers = domain.underlays(self.config).into_iter();
            let carriers: Vec<_> = carriers.filter_map(|underlay| self.carrier(&mut graph, worker, underlay)).collect();
            let mut entrances = Vec::new();
            for part in domain.parts(self.config) {
                entrances.extend(self.part(&mut graph, worker, domain, part, &carriers, &mut unconnected));
            }
            for carrier in &carriers {
                self.receive(&mut graph, worker, carrier, &entrances);
            }
        }
        graph
    }

    /// Adds the output of an underlay.
    fn carrier(&self, graph: &mut Graph, worker: usize, underlay: usize) -> Option<Carrier> {
        let port = self.config.port_index(&self.config.underlays[underlay].port)?;
        let gather = Arc::new(Gather::default());
        let port = self.ports[port].for_worker(worker);
        let own = Arc::clone(&self.underlays.underlays[underlay]);
        let output = graph.output(Arc::new(UnderlayOutput::new(own, port, Arc::clone(&gather))), false);
        Some(Carrier { underlay, gather, output })
    }

    /// Adds the node that sends packets by the tunnel at this index.
    fn encap(&self, graph: &mut Graph, carriers: &[Carrier], tunnel: usize) -> Option<NodeIndex> {
        let settings = self.config.ports[tunnel].kind.as_tunnel()?;
        let underlay = self.config.underlay_index(&settings.underlay)?;
        let carrier = carriers.iter().find(|carrier| carrier.underlay == underlay)?;
        let encap = Encap::new(Arc::clone(&carrier.gather), Arc::clone(self.underlays.tunnels[tunnel].as_ref()?));
        Some(graph.node(format!("encap.{}", self.config.ports[tunnel].name), Box::new(encap), &[carrier.output]))
    }

    /// Adds a patch, bridge or unconnected port with its outputs, its nodes and its inputs. It is
    /// all of a domain, or a part of a domain with these underlays. All unconnected ports share one
    /// sink. Returns the entrances of its tunnels.
    fn part(
        &self,
        graph: &mut Graph,
        worker: usize,
        domain: ForwardingDomain,
        part: ForwardingDomain,
        carriers: &[Carrier],
        unconnected: &mut Option<NodeIndex>,
    ) -> Vec<Entrance> {
        let config = self.config;
        let port = |at: usize| self.ports[at].for_worker(worker);
        let index = |at: usize| PortIndex(self.plan.ports[at].slot);
        let members = part.ports(config);
        let wait = domain.waits(config);
        let receives = |member: &usize| self.plan.ports[*member].assignment.rx_workers.contains(&worker);
        let copies = |graph: &mut Graph, to: usize| {
            let tunnel = self.encap(graph, carriers, to);
            tunnel.unwrap_or_else(|| graph.copy_output(port(to)))
        };
        let mut chains = if wait {
            let received = members.iter().copied().filter(receives);
            NodeChains::waiting(config, copies, graph, &members, received)
        } else {
            NodeChains::new(config, copies)
        };
        let mut output = |graph: &mut Graph, member: usize| {
            let tunnel = self.encap(graph, carriers, member);
            let output = tunnel.unwrap_or_else(|| graph.output(port(member), wait));
            chains.egress(graph, member, output)
        };
        let node = match part {
            ForwardingDomain::Patch(at) => {
                let edges: Vec<_> = members.iter().map(|&m| output(graph, m)).collect();
                let patch = Patch::new(index(members[0]));
                graph.node(format!("patch.{}", config.patches[at].name), Box::new(patch), &edges)
            }
            ForwardingDomain::Bridge(at) => {
                let Some(fdb) = &self.fdbs[at] else { return Vec::new() };
                let edges: Vec<_> = members.iter().map(|&m| output(graph, m)).collect();
                let indexes = members.iter().map(|&m| index(m)).collect();
                let workers = self.plan.workers.iter().filter(|worker| worker.domains.contains(&domain)).count();
                let workers = u32::try_from(workers).unwrap_or(u32::MAX);
                let bridge = Bridge::new(indexes, Arc::clone(fdb)).shared_by(workers);
                graph.node(format!("bridge.{}", config.bridges[at].name), Box::new(bridge), &edges)
            }
            ForwardingDomain::Unconnected(_) | ForwardingDomain::Underlay(_) => *unconnected
                .get_or_insert_with(|| graph.node("unconnected", Box::new(Sink::new(Reason::NotConnected)), &[])),
        };
        let mut entrances = Vec::new();
        for member in members {
            let is_tunnel = config.ports[member].kind.as_tunnel().is_some();
            if !is_tunnel && !receives(&member) {
                continue;
            }
            let first = chains.ingress(graph, member, node);
            // The source check comes before all other nodes, so that they see only true sources.
            let first = match source_check(&config.ports[member]) {
                Some(check) => {
                    let name = format!("source-check.{}", config.ports[member].name);
                    graph.node(name, Box::new(check), &[first])
                }
                None => first,
            };
            if is_tunnel {
                entrances.push(Entrance { tunnel: member, first, network: node })
            } else {
                graph.input(port(member), first)
            }
        }
        entrances
    }

    /// Adds the inputs of an underlay: its port, and packets of its own.
    fn receive(&self, graph: &mut Graph, worker: usize, carrier: &Carrier, entrances: &[Entrance]) {
        let config = self.config;
        let Carrier { underlay: at, output, .. } = *carrier;
        let name = &config.underlays[at].name;
        let Some(port_at) = config.port_index(&config.underlays[at].port) else { return };
        let port = self.ports[port_at].for_worker(worker);
        let entrance = |tunnel: usize| entrances.iter().find(|entrance| entrance.tunnel == tunnel);
        let tunnels: Vec<_> = config.tunnels_of(at).filter_map(entrance).collect();
        let underlay = &self.underlays.underlays[at];
        let index = |at: usize| PortIndex(self.plan.ports[at].slot);
        let edges = |node: fn(&Entrance) -> NodeIndex| -> Vec<NodeIndex> {
            iter::once(output).chain(tunnels.iter().map(|entrance| node(entrance))).collect()
        };
        if self.plan.ports[port_at].assignment.rx_workers.contains(&worker) {
            let decap = Decap::new(Arc::clone(underlay), Arc::clone(&self.underlays.tables[at]));
            let decap = graph.node(format!("decap.{name}"), Box::new(decap), &edges(|entrance| entrance.first));
            graph.input(Arc::clone(&port), decap);
        }
        let own = OwnPackets::new(index(port_at), tunnels.iter().map(|entrance| index(entrance.tunnel)).collect());
        let own = graph.node(format!("own.{name}"), Box::new(own), &edges(|entrance| entrance.network));
        graph.input(underlay.agent(port), own);
    }
}
