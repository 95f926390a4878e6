//! The plan: which worker serves which ports, before and after a change of the configuration. Pure
//! functions.
//!
//! A *forwarding domain* is a patch or a bridge with its ports. Domains are dealt out by their
//! queue pairs, the largest first, each to the worker with the fewest. With at least as many
//! domains as workers, each domain belongs to one worker: no queue and no table is shared. Workers
//! that would have nothing to do are given to the domains that can use several (`assignment`).
//!
//! An underlay joins the patches and bridges of its tunnels, and the bridge that its port is in: they
//! are one domain. A tunnel has no queues, so its packets use those of its underlay's port.
//!
//! A plan that follows another one changes as little as possible. A port has a *slot*, its index
//! for packets, drops and addresses, for as long as it runs. A free slot is reused by a later plan,
//! never by the plan that freed it. A domain keeps its workers, unless the number that it can use
//! has changed. A port that joins a domain of other workers moves to these workers.
//!
//! On a machine with several NUMA nodes, a domain gets the workers that are on the nodes of its
//! ports' guest memory and interfaces, as far as there are such (`nodes`). Where guests' memory is
//! turns out later than the first plan, so a later plan moves a domain that has workers elsewhere.

mod assignment;
mod difference;
mod nodes;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use assignment::{assign, delivered_by, distinct, domain_pairs, max_workers, worker_counts};
use straightline_graph::QueueAssignment;

use crate::config::{Config, NodeConfig, WhenFull};
use difference::remade;
pub(crate) use difference::{Step, difference, needs_restart};
pub(crate) use nodes::PlanNodes;
use nodes::retain_near;
pub(crate) use spec::{
    DomainSpec, EndSpec, NetworkSpec, NodeSpec, PartSpec, PortSpec, RateSpec, SourceCheckSpec, UnderlaySpec,
    bridge_rules, rate, source_check, specs, unchanged,
};

/// A forwarding domain: ports that packets pass between, as an index into the configuration's
/// lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ForwardingDomain {
    /// The patch of this index.
    Patch(usize),
    /// The bridge of this index.
    Bridge(usize),
    /// The port of this index, which is in no patch and no bridge.
    Unconnected(usize),
    /// The underlay of this index, with all patches and bridges that its tunnels are in. They may
    /// have tunnels of further underlays, which have higher indexes and belong to it as well.
    Underlay(usize),
}

impl ForwardingDomain {
    /// Returns its name, which is the same in another configuration that has the same domain.
    pub(crate) fn name(self, config: &Config) -> (&'static str, &str) {
        match self {
            ForwardingDomain::Patch(at) => ("patch", &config.patches[at].name),
            ForwardingDomain::Bridge(at) => ("bridge", &config.bridges[at].name),
            ForwardingDomain::Unconnected(at) => ("port", &config.ports[at].name),
            ForwardingDomain::Underlay(at) => ("underlay", &config.underlays[at].name),
        }
    }

    /// Returns its ports, as indexes into the configuration's ports.
    pub(crate) fn ports(self, config: &Config) -> Vec<usize> {
        let index = |name: &String| config.port_index(name);
        match self {
            ForwardingDomain::Patch(at) => config.patches[at].ports.iter().filter_map(index).collect(),
            ForwardingDomain::Bridge(at) => config.bridges[at].ports.iter().filter_map(index).collect(),
            ForwardingDomain::Unconnected(at) => vec![at],
            ForwardingDomain::Underlay(_) => {
                let of_parts = self.parts(config).into_iter().flat_map(|part| part.ports(config));
                let of_parts: Vec<_> = of_parts.collect();
                let underlays = self.underlays(config).into_iter();
                let own = underlays.filter_map(|underlay| index(&config.underlays[underlay].port));
                // A bridge may have the port of an underlay, too.
                own.filter(|port| !of_parts.contains(port)).chain(of_parts.iter().copied()).collect()
            }
        }
    }

    /// Returns the patches, bridges and unconnected ports that it consists of. Its packets pass one
    /// of them.
    pub(crate) fn parts(self, config: &Config) -> Vec<ForwardingDomain> {
        let ForwardingDomain::Underlay(at) = self else { return vec![self] };
        joined(config).parts.into_iter().filter(|(first, _)| *first == Some(at)).map(|(_, part)| part).collect()
    }

    /// Returns its underlays, as indexes into the configuration's underlays.
    pub(crate) fn underlays(self, config: &Config) -> Vec<usize> {
        let ForwardingDomain::Underlay(at) = self else { return Vec::new() };
        let first = joined(config).first;
        (0..first.len()).filter(|&underlay| first[underlay] == at).collect()
    }

    /// Returns the ports that nodes of its ports send copies to, each once.
    pub(crate) fn copy_ports(self, config: &Config) -> Vec<usize> {
        let ports = self.ports(config);
        let nodes = ports.iter().flat_map(|&port| config.ingress_nodes(port).chain(config.egress_nodes(port)));
        let mut outputs: Vec<_> =
            nodes.flat_map(NodeConfig::outputs).filter_map(|port| config.port_index(port)).collect();
        outputs.sort_unstable();
        outputs.dedup();
        outputs
    }

    /// Returns whether its packets wait for free buffers.
    pub(crate) fn waits(self, config: &Config) -> bool {
        matches!(self, ForwardingDomain::Patch(at) if config.patches[at].full == WhenFull::Wait)
    }
}

/// The part of a plan for one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerPlan {
    /// The CPU that the worker is pinned to.
    pub(crate) cpu: Option<usize>,
    /// Its domains, in the order in which they were dealt out. Several workers may have the same
    /// one.
    pub(crate) domains: Vec<ForwardingDomain>,
}

/// The part of a plan for one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortPlan {
    /// Its index for packets, drops and addresses.
    pub(crate) slot: u16,
    /// The workers that serve its queue pairs.
    pub(crate) assignment: QueueAssignment,
    /// Packets for it, and from it, may wait for free buffers.
    pub(crate) waits: bool,
}

impl PortPlan {
    /// Returns the worker that does everything for the port, if one does.
    pub(crate) fn only_worker(&self) -> Option<usize> {
        let mut all = self.assignment.rx_workers.iter().chain(&self.assignment.delivering);
        let first = *all.next()?;
        all.all(|&worker| worker == first).then_some(first)
    }
}

/// A configuration as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The workers, at least one.
    pub(crate) workers: Vec<WorkerPlan>,
    /// The ports, in the configuration's order.
    pub(crate) ports: Vec<PortPlan>,
}

/// The configuration and the plan that run when another plan is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    pub(crate) config: &'a Config,
    pub(crate) plan: &'a Plan,
}

impl<'a> Before<'a> {
    /// Returns the port that stays the same as the port at this index of another configuration. The
    /// result is an index into the old configuration's ports.
    pub(crate) fn same_port(&self, config: &Config, port: usize) -> Option<usize> {
        let at = self.config.port_index(&config.ports[port].name)?;
        remade((self.config, at), (config, port)).is_none().then_some(at)
    }

    /// Returns the domains, by name, each with the workers that have it.
    fn domains(self) -> HashMap<(&'static str, &'a str), (ForwardingDomain, Vec<usize>)> {
        let mut domains: HashMap<_, (_, Vec<_>)> = HashMap::new();
        for (at, worker) in self.plan.workers.iter().enumerate() {
            for &domain in &worker.domains {
                domains.entry(domain.name(self.config)).or_insert((domain, Vec::new())).1.push(at);
            }
        }
        domains
    }

    /// Returns the worker of a port that is in a domain, and becomes a domain by itself.
    fn worker_of_port(&self, name: (&str, &str)) -> Option<usize> {
        let port = (name.0 == "port").then(|| self.config.port_index(name.1)).flatten()?;
        self.plan.ports[port].assignment.rx_workers.first().copied()
    }
}

/// The patches, bridges and unconnected ports of a configuration, and which of them underlays join.
struct Joined {
    /// For each underlay, the first one in its domain.
    first: Vec<usize>,
    /// All patches, bridges and unconnected ports, each with the first underlay of its domain, if
    /// its domain has one.
    parts: Vec<(Option<usize>, ForwardingDomain)>,
}

/// Returns which parts of a checked configuration are one domain.
fn joined(config: &Config) -> Joined {
    let mut parts: Vec<ForwardingDomain> = (0..config.patches.len()).map(ForwardingDomain::Patch).collect();
    parts.extend((0..config.bridges.len()).map(ForwardingDomain::Bridge));
    let mut is_joined = vec![false; config.ports.len()];
    let carriers = config.underlays.iter().filter_map(|underlay| config.port_index(&underlay.port));
    for port in parts.iter().flat_map(|part| part.ports(config)).chain(carriers) {
        is_joined[port] = true;
    }
    parts.extend((0..config.ports.len()).filter(|&port| !is_joined[port]).map(ForwardingDomain::Unconnected));
    let mut first: Vec<usize> = (0..config.underlays.len()).collect();
    if first.is_empty() {
        return Joined { first, parts: parts.into_iter().map(|part| (None, part)).collect() };
    }
    let reached: Vec<Vec<usize>> = parts.iter().map(|part| reached_underlays(config, *part)).collect();
    for underlays in &reached {
        let Some(least) = underlays.iter().map(|&underlay| first[underlay]).min() else { continue };
        for underlay in underlays {
            let was = first[*underlay];
            first.iter_mut().filter(|first| **first == was).for_each(|first| *first = least);
        }
    }
    let parts = reached.iter().zip(parts).map(|(underlays, part)| (underlays.first().map(|&at| first[at]), part));
    Joined { parts: parts.collect(), first }
}

/// Returns the underlays that share a part's ports, and those that its packets can go to: by its
/// tunnels, and by its nodes that send copies to tunnels.
fn reached_underlays(config: &Config, part: ForwardingDomain) -> Vec<usize> {
    let ports = part.ports(config);
    let shares = |underlay: &usize| {
        config.port_index(&config.underlays[*underlay].port).is_some_and(|carrier| ports.contains(&carrier))
    };
    let shared: Vec<_> = (0..config.underlays.len()).filter(shares).collect();
    let ports = ports.iter().copied().chain(part.copy_ports(config));
    let tunnels = ports.filter_map(|port| config.ports[port].kind.as_tunnel());
    let used = tunnels.filter_map(|tunnel| config.underlay_index(&tunnel.underlay));
    shared.into_iter().chain(used).collect()
}

/// Returns the domains of a checked configuration, those with the most queue pairs first.
fn domains(config: &Config) -> Vec<ForwardingDomain> {
    let Joined { first, parts } = joined(config);
    let mut domains: Vec<_> = parts.into_iter().filter(|(first, _)| first.is_none()).map(|(_, part)| part).collect();
    let firsts = (0..first.len()).filter(|&underlay| first[underlay] == underlay);
    domains.extend(firsts.map(ForwardingDomain::Underlay));
    domains.sort_by_key(|&domain| std::cmp::Reverse(domain_pairs(config, domain)));
    domains
}

/// Plans a checked configuration, starting from what runs, if anything does.
pub(crate) fn plan(config: &Config, before: Option<Before<'_>>, nodes: &PlanNodes) -> Plan {
    let cpus = &config.switch.workers;
    let mut workers: Vec<_> = cpus.iter().map(|&cpu| WorkerPlan { cpu: Some(cpu), ..WorkerPlan::default() }).collect();
    if workers.is_empty() {
        workers.push(WorkerPlan::default());
    }
    let mut load = vec![0; workers.len()];
    let mut ports = vec![PortPlan::default(); config.ports.len()];
    let mut put = |domain: ForwardingDomain, serving: &[usize], load: &mut [usize]| {
        for (port, assignment) in assign(config, domain, serving) {
            let planned = assignment.rx_workers.iter().take(config.ports[port].kind.queues());
            planned.for_each(|&worker| load[worker] += 1);
            (ports[port].assignment, ports[port].waits) = (assignment, domain.waits(config));
        }
        serving.iter().for_each(|&worker| workers[worker].domains.push(domain));
    };
    let domains = domains(config);
    let known = before.map(Before::domains).unwrap_or_default();
    let mut new = Vec::new();
    for (&domain, width) in domains.iter().zip(worker_counts(config, &domains, load.len())) {
        let (mut had, could) = match (before, known.get(&domain.name(config))) {
            (Some(before), Some((old, workers))) => (workers.clone(), max_workers(before.config, *old)),
            (Some(before), None) => (before.worker_of_port(domain.name(config)).into_iter().collect(), 1),
            (None, _) => (Vec::new(), 0),
        };
        had.retain(|&worker| worker < load.len());
        let can = max_workers(config, domain);
        had.truncate(can);
        let grows = had.is_empty() || (can > could && width > had.len());
        let width = if grows { width } else { had.len() };
        let distances = nodes.distances(config, domain, load.len());
        retain_near(&distances, &mut had);
        if had.len() < width {
            new.push((distances, domain, had, width));
        } else {
            put(domain, &had, &mut load);
        }
    }
    // A domain without nearest workers takes those that the others leave.
    new.sort_by_key(|(distances, ..)| distances.iter().min() == distances.iter().max());
    for (distances, domain, mut serving, width) in new {
        while serving.len() < width {
            let others = (0..load.len()).filter(|worker| !serving.contains(worker));
            let Some(nearest) = others.min_by_key(|&worker| (distances[worker], load[worker])) else { break };
            serving.push(nearest);
        }
        // The next plan finds the workers in this order.
        serving.sort_unstable();
        put(domain, &serving, &mut load);
    }
    for (port, senders) in copy_workers(config, &ports) {
        ports[port].assignment = delivered_by(&ports[port].assignment, distinct(&senders));
    }
    // Anything may still refer to these.
    let taken: HashSet<u16> =
        before.into_iter().flat_map(|before| &before.plan.ports).map(|place| place.slot).collect();
    let mut free = (0..=u16::MAX).filter(|slot| !taken.contains(slot));
    for (port, place) in ports.iter_mut().enumerate() {
        let same = before.and_then(|before| Some(before.plan.ports[before.same_port(config, port)?].slot));
        // There are far fewer ports than slots: reload checks that.
        place.slot = same.or_else(|| free.next()).unwrap_or(u16::MAX);
    }
    Plan { workers, ports }
}

/// Returns the ports that nodes copy to, each with the workers that deliver these copies. These are
/// the workers that receive from a port whose `nodes` copy to it, and the workers that deliver to a
/// port whose `egress-nodes` do. Tunnels are left out: their copies are delivered where their
/// underlay's packets are. The function needs the places of all ports that are in a patch or bridge.
fn copy_workers(config: &Config, places: &[PortPlan]) -> BTreeMap<usize, Vec<usize>> {
    let reached = reached_ports(config);
    let mut workers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut copy = |nodes: &mut dyn Iterator<Item = &NodeConfig>, senders: &[usize]| {
        let ports = nodes.flat_map(NodeConfig::outputs).filter_map(|name| config.port_index(name));
        for to in ports.filter(|&to| config.ports[to].kind.as_tunnel().is_none()) {
            workers.entry(to).or_default().extend(distinct(senders));
        }
    };
    for (port, place) in places.iter().enumerate() {
        copy(&mut config.ingress_nodes(port), &place.assignment.rx_workers);
        if reached.contains(config.ports[port].name.as_str()) {
            copy(&mut config.egress_nodes(port), &place.assignment.delivering);
        }
    }
    workers.retain(|_, senders| !senders.is_empty());
    workers
}

/// Returns the names of the ports that another port's packets can reach: they are in a patch, or in
/// a bridge that has other ports.
fn reached_ports(config: &Config) -> HashSet<&str> {
    let patches = config.patches.iter().flat_map(|patch| &patch.ports);
    let bridges = config.bridges.iter().filter(|bridge| bridge.ports.len() > 1).flat_map(|bridge| &bridge.ports);
    patches.chain(bridges).map(String::as_str).collect()
}
