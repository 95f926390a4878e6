//! The graph of a domain as a value.
//!
//! A [`DomainSpec`] says all that the graph of a domain depends on. The graph is built from it, and
//! from the opened ports, tables and tunnels that it names. Nothing else of the configuration and the
//! plan is read. So two equal specs mean equal graphs, and a reload leaves such a domain alone.
//!
//! A spec names a port by its slot: a port that is closed and opened again gets another slot.

use std::collections::HashMap;
use std::sync::Arc;

use straightline_graph::RateLimits;
use straightline_nodes::{BindingPort, BindingSettings, BridgePort, BridgeRules, MacPrefix, PortVlans};
use straightline_packet::PortIndex;
use straightline_wire::{Dscp, DscpSet, MacAddr, VlanId};

use super::{ForwardingDomain, Plan, PortPlan};
use crate::config::{
    BridgeConfig, Config, NodeConfig, PortConfig, PortRate, SourceCheckConfig, TunnelSettings, UnderlayConfig,
};
use crate::default_mac::default_mac;

/// The kind and the name of a domain or of a part of one. Names are unique among their kind.
pub(crate) type SpecName = (&'static str, String);

/// All that the graph of a forwarding domain depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DomainSpec {
    pub(crate) name: SpecName,
    /// The number of workers that have the domain.
    pub(crate) workers: u32,
    /// Packets for full destinations stay in their rings.
    pub(crate) waits: bool,
    /// The underlays, by name.
    pub(crate) underlays: Vec<UnderlaySpec>,
    /// The patches, bridges and unconnected ports, by kind and name.
    pub(crate) parts: Vec<PartSpec>,
}

/// An underlay of a domain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnderlaySpec {
    pub(crate) settings: UnderlayConfig,
    /// The port that carries its packets.
    pub(crate) carrier: EndSpec,
}

/// A patch, a bridge or an unconnected port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartSpec {
    pub(crate) name: SpecName,
    pub(crate) network: NetworkSpec,
    /// The ports, in the order of the network's edges.
    pub(crate) ports: Vec<PortSpec>,
}

/// The node in the middle of a part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NetworkSpec {
    Patch,
    Bridge {
        rules: BridgeRules,
        /// The share of connections of its flows. While it changes, no worker may use the table.
        connections: Option<u32>,
    },
    Unconnected,
}

/// A port of a part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortSpec {
    pub(crate) end: EndSpec,
    /// The nodes that its packets pass before the network. Ports with equal lists share one.
    pub(crate) ingress: Arc<[NodeSpec]>,
    /// The nodes that packets to it pass behind the network.
    pub(crate) egress: Arc<[NodeSpec]>,
    pub(crate) source_check: Option<SourceCheckSpec>,
    /// The port's share of connections, if it has groups. While it changes, no worker may use the table.
    pub(crate) connections: Option<u32>,
    /// It has no groups, but others of its network have, and its messages without a rule have a limit.
    pub(crate) limits_messages: bool,
    /// The class of service that its packets get.
    pub(crate) dscp: Option<Dscp>,
    pub(crate) rate_in: Option<RateSpec>,
    pub(crate) rate_out: Option<RateSpec>,
}

/// The limit of a port in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateSpec {
    pub(crate) limits: RateLimits,
    /// The section `[rate.NAME]` whose bucket the port shares.
    pub(crate) shared: Option<String>,
}

/// A port as the beginning or end of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndSpec {
    pub(crate) name: String,
    pub(crate) place: PortPlan,
    /// The settings of a port that is a tunnel.
    pub(crate) tunnel: Option<TunnelSettings>,
    /// Its part of its worker's time in relation to other ports.
    pub(crate) share: u8,
    /// The classes of service whose packets pass before others.
    pub(crate) expedited: DscpSet,
}

/// A node of a port's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSpec {
    pub(crate) node: NodeConfig,
    /// The ports to whose outputs edges 1 and up lead.
    pub(crate) outputs: Vec<EndSpec>,
}

/// The addresses that a port's guest may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceCheckSpec {
    /// The port's own address.
    pub(crate) own: Option<MacAddr>,
    pub(crate) listed: SourceCheckConfig,
}

impl DomainSpec {
    /// Returns the largest number of copies of one packet: one for each other port of the largest
    /// patch or bridge, for a tunnel one for each remote, and the copies for mirrors.
    pub(crate) fn fan_out(&self) -> usize {
        let outputs = |nodes: &[NodeSpec]| nodes.iter().flat_map(|node| &node.outputs).map(EndSpec::copies).sum();
        let of_part = |part: &PartSpec| {
            let copies = || part.ports.iter().map(|port| port.end.copies());
            let ingress: usize = part.ports.iter().map(|port| outputs(&port.ingress)).max().unwrap_or(0);
            let egress: usize = part.ports.iter().map(|port| outputs(&port.egress)).sum();
            copies().sum::<usize>() - copies().min().unwrap_or(0) + ingress + egress
        };
        self.parts.iter().map(of_part).max().unwrap_or(0)
    }
}

impl EndSpec {
    /// Returns the index of the port for packets, drops and addresses.
    pub(crate) fn index(&self) -> PortIndex {
        PortIndex(self.place.slot)
    }

    /// Returns whether this worker receives packets from the port.
    pub(crate) fn is_received_by(&self, worker: usize) -> bool {
        self.place.assignment.rx_workers.contains(&worker)
    }

    /// Returns the number of packets that the port makes of one.
    fn copies(&self) -> usize {
        // Remotes that clients add are not known here. From this number on it makes no difference: a turn
        // takes its least amount of bodies.
        const UNKNOWN: usize = 8;
        self.tunnel.as_ref().map_or(1, |tunnel| {
            let least = if tunnel.takes_remotes { UNKNOWN } else { 0 };
            tunnel.remotes.len().max(least)
        })
    }
}

impl SourceCheckSpec {
    /// Returns the MAC addresses, the port's own first: most packets have it.
    pub(crate) fn macs(&self) -> Vec<MacPrefix> {
        self.own.map(MacPrefix::exact).into_iter().chain(self.listed.macs.iter().copied()).collect()
    }
}

/// Returns the specs of each worker's domains, in the order of the plan.
pub(crate) fn specs(config: &Config, plan: &Plan) -> Vec<Vec<Arc<DomainSpec>>> {
    let mut reader = Reader { config, plan, lists: HashMap::new() };
    let mut workers: HashMap<ForwardingDomain, u32> = HashMap::new();
    for &domain in plan.workers.iter().flat_map(|worker| &worker.domains) {
        *workers.entry(domain).or_default() += 1;
    }
    let known: HashMap<_, _> =
        workers.into_iter().map(|(domain, workers)| (domain, Arc::new(reader.domain(domain, workers)))).collect();
    let of_worker = |domains: &Vec<ForwardingDomain>| domains.iter().map(|domain| Arc::clone(&known[domain])).collect();
    plan.workers.iter().map(|worker| of_worker(&worker.domains)).collect()
}

/// Returns the domains of `specs` that are equal to a domain of `before`. Their packets pass while
/// everything else is changed.
pub(crate) fn unchanged(before: &[Arc<DomainSpec>], specs: &[Arc<DomainSpec>]) -> Vec<Arc<DomainSpec>> {
    let had: HashMap<_, _> = before.iter().map(|spec| (&spec.name, spec)).collect();
    specs.iter().filter(|spec| had.get(&spec.name).is_some_and(|had| had == spec)).cloned().collect()
}

/// Reads specs from a configuration and its plan. It is the only place that knows which keys a graph
/// depends on.
struct Reader<'a> {
    config: &'a Config,
    plan: &'a Plan,
    /// The lists of nodes that were read, by their names.
    lists: HashMap<&'a [String], Arc<[NodeSpec]>>,
}

impl<'a> Reader<'a> {
    fn domain(&mut self, domain: ForwardingDomain, workers: u32) -> DomainSpec {
        let config = self.config;
        let underlays = domain.underlays(config).into_iter().filter_map(|at| self.underlay(at));
        // The order in which the file names sections has no effect.
        let mut underlays: Vec<_> = underlays.collect();
        underlays.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        let mut parts: Vec<_> = domain.parts(config).into_iter().map(|part| self.part(part)).collect();
        parts.sort_by(|a, b| a.name.cmp(&b.name));
        DomainSpec { name: name(config, domain), workers, waits: domain.waits(config), underlays, parts }
    }

    fn underlay(&self, at: usize) -> Option<UnderlaySpec> {
        let settings = self.config.underlays[at].clone();
        let carrier = self.end(self.config.port_index(&settings.port)?);
        Some(UnderlaySpec { settings, carrier })
    }

    fn part(&mut self, part: ForwardingDomain) -> PartSpec {
        let network = match part {
            ForwardingDomain::Patch(_) => NetworkSpec::Patch,
            ForwardingDomain::Bridge(at) => {
                let bridge = &self.config.bridges[at];
                let connections = bridge.flows.as_ref().map(|_| bridge.connections);
                NetworkSpec::Bridge { rules: bridge_rules(self.config, self.plan, at), connections }
            }
            ForwardingDomain::Unconnected(_) | ForwardingDomain::Underlay(_) => NetworkSpec::Unconnected,
        };
        let ports = part.ports(self.config);
        let is_network = !matches!(network, NetworkSpec::Unconnected);
        let has_groups = is_network && ports.iter().any(|port| !self.config.ports[*port].groups.is_empty());
        let ports = ports.into_iter().map(|port| self.port(port, has_groups)).collect();
        PartSpec { name: name(self.config, part), network, ports }
    }

    /// Returns a port. `has_groups`: ports of its network have groups.
    fn port(&mut self, at: usize, has_groups: bool) -> PortSpec {
        let port = &self.config.ports[at];
        let is_limited = port.groups.is_empty() && port.is_of_guest() && port.message_limit.is_some();
        PortSpec {
            end: self.end(at),
            ingress: self.nodes(&port.nodes),
            egress: self.nodes(&port.egress_nodes),
            source_check: source_check(port),
            connections: (!port.groups.is_empty()).then_some(port.connections),
            limits_messages: has_groups && is_limited,
            dscp: port.dscp,
            rate_in: rate(self.config, port.rate_in.as_ref()),
            rate_out: rate(self.config, port.rate_out.as_ref()),
        }
    }

    fn end(&self, at: usize) -> EndSpec {
        let port = &self.config.ports[at];
        EndSpec {
            name: port.name.clone(),
            place: self.plan.ports[at].clone(),
            tunnel: port.kind.as_tunnel().cloned(),
            share: port.share,
            expedited: port.expedited,
        }
    }

    fn nodes(&mut self, names: &'a [String]) -> Arc<[NodeSpec]> {
        if let Some(known) = self.lists.get(names) {
            return Arc::clone(known);
        }
        let outputs = |node: &NodeConfig| {
            let ports = node.outputs().iter().filter_map(|port| self.config.port_index(port));
            ports.map(|port| self.end(port)).collect()
        };
        let nodes = self.config.nodes_of(names);
        let list: Arc<[_]> = nodes.map(|node| NodeSpec { node: node.clone(), outputs: outputs(node) }).collect();
        self.lists.insert(names, Arc::clone(&list));
        list
    }
}

fn name(config: &Config, domain: ForwardingDomain) -> SpecName {
    let (kind, name) = domain.name(config);
    (kind, name.to_owned())
}

/// Returns the rules of the table of a bridge.
pub(crate) fn bridge_rules(config: &Config, plan: &Plan, at: usize) -> BridgeRules {
    let bridge = &config.bridges[at];
    let members = bridge.ports.iter().filter_map(|name| config.port_index(name));
    let members: Vec<_> = members.collect();
    let has_vlans = config.has_vlans(bridge);
    let statics = bridge.statics.iter().filter_map(|entry| {
        let port = config.port_index(&entry.port)?;
        let untagged = config.ports[port].rules.vlans.as_ref().and_then(PortVlans::untagged);
        let vlan = entry.vlan.or(untagged).unwrap_or(VlanId::DEFAULT);
        Some((vlan, MacAddr(entry.mac.octets()), PortIndex(plan.ports[port].slot)))
    });
    let statics: Vec<_> = statics.collect();
    // The configuration's limit counts static entries, the table's limit does not.
    let limit = (bridge.limit as usize).saturating_sub(statics.len());
    let ports = members.iter().map(|&port| BridgePort {
        index: PortIndex(plan.ports[port].slot),
        rules: config.ports[port].rules_in(has_vlans),
        move_limit: config.ports[port].move_limit,
        has_groups: !config.ports[port].groups.is_empty(),
        // Only the port of a VM has one station. Behind an interface of the machine, a network may be.
        leads_on: config.ports[port].trusted || config.ports[port].kind.as_vhost_user().is_none(),
    });
    BridgeRules {
        limit,
        ageing: bridge.ageing,
        api_stations: bridge.api_stations as usize,
        statics,
        loop_protection: bridge.loop_protection,
        ports: ports.collect(),
        snooping: bridge.snooping,
        flows: bridge.flows.is_some(),
        bindings: bridge.neighbour_suppression.then(|| binding_settings(config, plan, bridge, &members)),
    }
}

/// Returns the settings of a bridge's bindings. `members` are its ports.
fn binding_settings(config: &Config, plan: &Plan, bridge: &BridgeConfig, members: &[usize]) -> BindingSettings {
    let port = |&port: &usize| {
        let settings = &config.ports[port];
        BindingPort {
            index: PortIndex(plan.ports[port].slot),
            is_checked: settings.source_check.as_ref().is_some_and(|check| check.ips.is_some()),
            is_trusted: settings.trusted,
            is_tunnel: settings.kind.as_tunnel().is_some(),
            learns: settings.rules.learns,
        }
    };
    let statics = bridge.bindings.iter();
    BindingSettings {
        limit: bridge.limit as usize,
        // The answer keeps the station's place in the bridge, too.
        ageing: (bridge.ageing - bridge.ageing / 3).max(1),
        own: MacAddr(default_mac(&format!("bridge {}", bridge.name))),
        has_vlans: config.has_vlans(bridge),
        statics: statics
            .map(|known| (known.vlan.unwrap_or(VlanId::DEFAULT), known.ip, MacAddr(known.mac.octets())))
            .collect(),
        ports: members.iter().map(port).collect(),
    }
}

/// Returns the limit of a port.
pub(crate) fn rate(config: &Config, rate: Option<&PortRate>) -> Option<RateSpec> {
    let rate = rate?;
    let shared = if let PortRate::Shared(name) = rate { Some(name.clone()) } else { None };
    Some(RateSpec { limits: config.limits(rate), shared })
}

/// Returns the addresses that a port's guest may claim. `None`: all.
pub(crate) fn source_check(port: &PortConfig) -> Option<SourceCheckSpec> {
    let listed = port.source_check.clone()?;
    Some(SourceCheckSpec { own: port.mac.map(|mac| MacAddr(mac.octets())), listed })
}
