//! Which worker serves which ports, and what becomes of that when the configuration changes: pure functions.
//!
//! What packets pass between (the ports of a patch, of a bridge) is a *domain*, and a domain belongs to one worker: no
//! queue and no table is shared. Domains are dealt out by their ports, the largest first, to whoever has fewest.
//!
//! A plan that follows another one moves as little as it can. A port has a *slot*, which is its index for packets, drops
//! and addresses, for as long as it runs; a slot that becomes free is taken again by a later plan, never by the one that
//! freed it. A domain never changes its worker; a port that joins a domain of another worker does.

mod difference;
#[cfg(test)]
mod tests;

use crate::config::{Config, PortConfig, WhenFull};
pub(crate) use difference::{Step, difference, needs_restart, remade, undisturbed};

/// Ports that packets pass between, as indexes into the configuration's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The patch of this index.
    Patch(usize),
    /// The bridge of this index.
    Bridge(usize),
    /// The port of this index is in neither.
    Loose(usize),
}

impl Domain {
    /// What it is called: the same domain has the same name in another configuration.
    pub(crate) fn name(self, config: &Config) -> (&'static str, &str) {
        match self {
            Domain::Patch(at) => ("patch", &config.patches[at].name),
            Domain::Bridge(at) => ("bridge", &config.bridges[at].name),
            Domain::Loose(at) => ("port", &config.ports[at].name),
        }
    }

    /// Its ports, as indexes into the configuration's ports.
    pub(crate) fn ports(self, config: &Config) -> Vec<usize> {
        let index = |name: &String| config.port_index(name);
        match self {
            Domain::Patch(at) => config.patches[at].ports.iter().filter_map(index).collect(),
            Domain::Bridge(at) => config.bridges[at].ports.iter().filter_map(index).collect(),
            Domain::Loose(at) => vec![at],
        }
    }

    /// Whether its packets wait for room.
    pub(crate) fn waits(self, config: &Config) -> bool {
        matches!(self, Domain::Patch(at) if config.patches[at].full == WhenFull::Wait)
    }
}

/// What one worker serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerPlan {
    /// The CPU that it is pinned to.
    pub(crate) cpu: Option<usize>,
    /// In the order in which they were dealt out.
    pub(crate) domains: Vec<Domain>,
}

/// Where a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its index for packets, drops and addresses.
    pub(crate) slot: u16,
    /// Its worker.
    pub(crate) worker: usize,
    /// Whether packets for it, and from it, may have to wait for room.
    pub(crate) waits: bool,
}

/// A configuration as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// At least one.
    pub(crate) workers: Vec<WorkerPlan>,
    /// In the order of the configuration's ports.
    pub(crate) ports: Vec<Place>,
}

/// What runs when a plan is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    pub(crate) config: &'a Config,
    pub(crate) plan: &'a Plan,
    /// Ports that do not run any more whatever the configurations say, by name.
    pub(crate) lost: &'a [String],
}

impl Before<'_> {
    /// The port that stays what it is, as an index into the old configuration's ports.
    pub(crate) fn same_port(&self, port: &PortConfig) -> Option<usize> {
        let at = self.config.port_index(&port.name)?;
        (!self.lost.contains(&port.name) && remade(&self.config.ports[at], port).is_none()).then_some(at)
    }

    /// The worker that has the domain already; of a port by itself, the one that it was with.
    fn worker_of(&self, name: (&str, &str)) -> Option<usize> {
        let has = |domains: &[Domain]| domains.iter().any(|domain| domain.name(self.config) == name);
        let worker = self.plan.workers.iter().position(|worker| has(&worker.domains));
        let alone = || (name.0 == "port").then(|| self.config.port_index(name.1)).flatten();
        worker.or_else(|| alone().map(|at| self.plan.ports[at].worker))
    }

    /// Slots are all taken that anything may still refer to.
    fn is_taken(&self, slot: u16) -> bool {
        self.plan.ports.iter().any(|place| place.slot == slot)
    }
}

/// The domains of a checked configuration, those with most ports first.
fn domains(config: &Config) -> Vec<Domain> {
    let mut domains: Vec<Domain> = (0..config.patches.len()).map(Domain::Patch).collect();
    domains.extend((0..config.bridges.len()).map(Domain::Bridge));
    let mut joined = vec![false; config.ports.len()];
    for port in domains.iter().flat_map(|domain| domain.ports(config)) {
        joined[port] = true;
    }
    domains.extend((0..config.ports.len()).filter(|&port| !joined[port]).map(Domain::Loose));
    domains.sort_by_key(|domain| std::cmp::Reverse(domain.ports(config).len()));
    domains
}

/// Deals a checked configuration out, onto what runs where there is something.
pub(crate) fn plan(config: &Config, before: Option<Before<'_>>) -> Plan {
    let cpus = &config.switch.workers;
    let mut workers: Vec<_> = cpus.iter().map(|&cpu| WorkerPlan { cpu: Some(cpu), ..WorkerPlan::default() }).collect();
    if workers.is_empty() {
        workers.push(WorkerPlan::default());
    }
    let mut load = vec![0; workers.len()];
    let mut ports = vec![Place::default(); config.ports.len()];
    let mut put = |domain: Domain, worker: usize, load: &mut [usize]| {
        let members = domain.ports(config);
        load[worker] += members.len();
        for port in members {
            (ports[port].worker, ports[port].waits) = (worker, domain.waits(config));
        }
        workers[worker].domains.push(domain);
    };
    let mut new = Vec::new();
    for domain in domains(config) {
        match before.and_then(|before| before.worker_of(domain.name(config))).filter(|&worker| worker < load.len()) {
            Some(worker) => put(domain, worker, &mut load),
            None => new.push(domain),
        }
    }
    for domain in new {
        let least = (0..load.len()).min_by_key(|&worker| load[worker]).unwrap_or(0);
        put(domain, least, &mut load);
    }
    let mut free = (0..=u16::MAX).filter(|&slot| !before.is_some_and(|before| before.is_taken(slot)));
    for (place, port) in ports.iter_mut().zip(&config.ports) {
        let same = before.and_then(|before| Some(before.plan.ports[before.same_port(port)?].slot));
        // There are far fewer ports than slots: whoever starts them has made sure.
        place.slot = same.or_else(|| free.next()).unwrap_or(u16::MAX);
    }
    Plan { workers, ports }
}
