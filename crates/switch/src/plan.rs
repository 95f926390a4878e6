//! Which worker serves which ports: a pure function of the configuration.
//!
//! What packets pass between (the ports of a patch, of a bridge) is a *domain*, and a domain belongs to one worker: no
//! queue and no table is shared. Domains are dealt out by their ports, the largest first, to whoever has fewest.

use crate::config::{Config, WhenFull};

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

/// What one worker serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerPlan {
    /// The CPU that it is pinned to.
    pub(crate) cpu: Option<usize>,
    /// In the configuration's order.
    pub(crate) domains: Vec<Domain>,
}

/// A configuration as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// At least one.
    pub(crate) workers: Vec<WorkerPlan>,
    /// For each port: its worker.
    pub(crate) port_worker: Vec<usize>,
    /// For each port: whether packets for it, and from it, may have to wait for room.
    pub(crate) port_waits: Vec<bool>,
}

/// The ports of a domain, as indexes into the configuration's ports.
pub(crate) fn ports_of(config: &Config, domain: Domain) -> Vec<usize> {
    let index = |name: &String| config.port_index(name);
    match domain {
        Domain::Patch(at) => config.patches[at].ports.iter().filter_map(index).collect(),
        Domain::Bridge(at) => config.bridges[at].ports.iter().filter_map(index).collect(),
        Domain::Loose(at) => vec![at],
    }
}

/// Deals a checked configuration out.
pub(crate) fn plan(config: &Config) -> Plan {
    let mut domains: Vec<Domain> = (0..config.patches.len()).map(Domain::Patch).collect();
    domains.extend((0..config.bridges.len()).map(Domain::Bridge));
    let mut joined = vec![false; config.ports.len()];
    for &domain in &domains {
        for port in ports_of(config, domain) {
            joined[port] = true;
        }
    }
    domains.extend((0..config.ports.len()).filter(|&port| !joined[port]).map(Domain::Loose));
    domains.sort_by_key(|&domain| std::cmp::Reverse(ports_of(config, domain).len()));

    let cpus = &config.switch.workers;
    let mut workers: Vec<_> = cpus.iter().map(|&cpu| WorkerPlan { cpu: Some(cpu), ..WorkerPlan::default() }).collect();
    if workers.is_empty() {
        workers.push(WorkerPlan::default());
    }
    let mut load = vec![0; workers.len()];
    let mut port_worker = vec![0; config.ports.len()];
    let mut port_waits = vec![false; config.ports.len()];
    for domain in domains {
        let least = (0..workers.len()).min_by_key(|&w| load[w]).unwrap_or(0);
        let ports = ports_of(config, domain);
        load[least] += ports.len();
        let waits = matches!(domain, Domain::Patch(at) if config.patches[at].full == WhenFull::Wait);
        for port in ports {
            port_worker[port] = least;
            port_waits[port] = waits;
        }
        workers[least].domains.push(domain);
    }
    Plan { workers, port_worker, port_waits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BridgeConfig, PatchConfig, PortConfig};

    fn config(ports: usize, workers: &[usize]) -> Config {
        let mut config = Config::default();
        config.switch.workers = workers.to_vec();
        config.ports = (0..ports).map(|n| PortConfig::vhost_user(format!("p{n}"), format!("/s{n}"))).collect();
        config
    }

    fn patch(a: &str, b: &str) -> PatchConfig {
        PatchConfig { name: format!("{a}{b}"), ports: [a.to_owned(), b.to_owned()], full: WhenFull::Wait }
    }

    #[test]
    fn without_cpus_there_is_one_worker() {
        let plan = plan(&config(2, &[]));
        assert_eq!(plan.workers.len(), 1);
        assert_eq!(plan.workers[0].cpu, None);
        assert_eq!(plan.workers[0].domains, [Domain::Loose(0), Domain::Loose(1)]);
    }

    #[test]
    fn a_domain_stays_together_and_the_load_is_shared() {
        let mut config = config(8, &[3, 5]);
        config.patches = vec![patch("p0", "p1"), patch("p2", "p3")];
        config.bridges = vec![BridgeConfig {
            name: "lan".to_owned(),
            ports: ["p4", "p5", "p6", "p7"].map(str::to_owned).to_vec(),
            ageing: 300,
            limit: 16,
            statics: Vec::new(),
        }];
        let plan = plan(&config);
        assert_eq!(plan.workers[0].domains, [Domain::Bridge(0)]);
        assert_eq!(plan.workers[1].domains, [Domain::Patch(0), Domain::Patch(1)]);
        assert_eq!(plan.port_worker, [1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(plan.port_waits, [true, true, true, true, false, false, false, false]);
    }
}
