//! Several workers for one domain: how many it can use, and which queue pair each serves.
//!
//! One worker receives from each transmit ring, so a flow passes one worker and stays in order.
//!
//! - **Patch.** No two workers ever use the same receive ring. At most as many workers receive from
//!   a port as its peer has receive rings, and these rings are dealt out among the workers. So two
//!   ports with one pair each have a worker for each direction.
//! - **Bridge.** Every worker delivers to every port. If a port has fewer pairs than there are
//!   workers, workers share its rings and wait for their locks. So a bridge gets several workers
//!   only if one of its ports has several pairs.
//! - **Underlay.** As a bridge, with the patches and bridges of its tunnels. Each worker also sends
//!   packets of the underlay's own.

use std::collections::{BTreeMap, BTreeSet};

use straightline_graph::QueueAssignment;

use super::ForwardingDomain;
use crate::config::Config;

/// Returns the number of queue pairs of a domain's ports.
pub(super) fn domain_pairs(config: &Config, domain: ForwardingDomain) -> usize {
    domain.ports(config).iter().map(|&port| config.ports[port].kind.queues()).sum()
}

/// Returns the most workers that a domain can use.
pub(super) fn max_workers(config: &Config, domain: ForwardingDomain) -> usize {
    let ports = domain.ports(config);
    let pairs = ports.iter().map(|&port| config.ports[port].kind.queues());
    match domain {
        ForwardingDomain::Patch(_) => 2 * pairs.min().unwrap_or(1),
        // A tunnel has no pairs.
        ForwardingDomain::Bridge(_) | ForwardingDomain::Underlay(_) => pairs.max().unwrap_or(1).max(1),
        // All its packets are dropped.
        ForwardingDomain::Unconnected(_) => 1,
    }
}

/// Returns the number of workers for each domain: one each. Workers that are left over go to the
/// domain with the most pairs for each of its workers.
pub(super) fn worker_counts(config: &Config, domains: &[ForwardingDomain], workers: usize) -> Vec<usize> {
    let mut worker_counts = vec![1; domains.len()];
    let pairs: Vec<_> = domains.iter().map(|&domain| domain_pairs(config, domain)).collect();
    let connected = domains.iter().filter(|domain| !matches!(domain, ForwardingDomain::Unconnected(_))).count();
    for _ in connected..workers {
        let can = |&at: &usize| worker_counts[at] < max_workers(config, domains[at]).min(workers);
        // The first of equal domains is wanted. `max_by` returns the last, so the order is
        // reversed.
        let most = (0..domains.len())
            .rev()
            .filter(can)
            .max_by(|&a, &b| (pairs[a] * worker_counts[b]).cmp(&(pairs[b] * worker_counts[a])));
        let Some(at) = most else { break };
        worker_counts[at] += 1;
    }
    worker_counts
}

/// Deals the pairs of a domain's ports out to the workers that serve it. Each port begins where the
/// last one ended.
pub(super) fn assign(config: &Config, domain: ForwardingDomain, serving: &[usize]) -> Vec<(usize, QueueAssignment)> {
    let is_tunnel = |port: &usize| config.ports[*port].kind.as_tunnel().is_some();
    let (tunnels, ports): (Vec<_>, Vec<_>) = domain.ports(config).into_iter().partition(is_tunnel);
    let most = match domain {
        ForwardingDomain::Patch(_) => serving.len().min(max_workers(config, domain) / 2),
        _ => serving.len(),
    };
    let mut at = 0;
    let rx_workers: Vec<Vec<usize>> = ports
        .iter()
        .map(|&port| {
            let pairs = config.ports[port].kind.queues();
            let from = at;
            // If not all workers are needed, the next port begins behind the last worker used.
            at += if most < serving.len() { most } else { pairs };
            (0..config.ports[port].kind.most_queues())
                .map(|pair| serving[(from + pair % most) % serving.len()])
                .collect()
        })
        .collect();
    let receivers = Receivers::new(&rx_workers);
    let mut assigned: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(member, &port)| {
            let mut delivering: Vec<usize> = match domain {
                ForwardingDomain::Underlay(_) => distinct(serving),
                _ => receivers.other_than(&rx_workers[member]),
            };
            if delivering.is_empty() {
                delivering.push(rx_workers[member][0]);
            }
            (
                port,
                QueueAssignment {
                    rx_workers: rx_workers[member].clone(),
                    tx_workers: tx_workers(&rx_workers[member], &delivering),
                    delivering,
                },
            )
        })
        .collect();
    for tunnel in tunnels {
        let carrier = config.carrier(tunnel);
        let of_carrier = assigned.iter().find(|(port, _)| Some(*port) == carrier);
        let assignment = of_carrier.map_or_else(QueueAssignment::default, |(_, assignment)| assignment.clone());
        assigned.push((tunnel, assignment));
    }
    assigned
}

/// The workers that receive from the ports of a domain.
///
/// A bridge may have a thousand ports of a hundred pairs. So the workers are gathered once, not once
/// for each port.
struct Receivers {
    /// Each worker, in ascending order, with the number of ports that it receives from.
    ports: BTreeMap<usize, usize>,
}

impl Receivers {
    /// Gathers the workers that receive from ports. `rx_workers` has those of each port, by pair.
    fn new(rx_workers: &[Vec<usize>]) -> Self {
        let mut ports = BTreeMap::new();
        for worker in rx_workers.iter().flat_map(|of_port| distinct(of_port)) {
            *ports.entry(worker).or_default() += 1;
        }
        Receivers { ports }
    }

    /// Returns the workers that receive from another port than the one that has `rx_workers`, in
    /// ascending order.
    fn other_than(&self, rx_workers: &[usize]) -> Vec<usize> {
        let own = distinct(rx_workers);
        let others = |worker: &usize, ports: usize| ports > usize::from(own.contains(worker));
        self.ports.iter().filter(|&(worker, &ports)| others(worker, ports)).map(|(&worker, _)| worker).collect()
    }
}

/// Returns the workers, each once, in ascending order.
pub(super) fn distinct(workers: &[usize]) -> Vec<usize> {
    let distinct: BTreeSet<_> = workers.iter().copied().collect();
    distinct.into_iter().collect()
}

/// Returns `assignment` with other workers that deliver.
pub(super) fn delivered_by(assignment: &QueueAssignment, delivering: Vec<usize>) -> QueueAssignment {
    QueueAssignment {
        rx_workers: assignment.rx_workers.clone(),
        tx_workers: tx_workers(&assignment.rx_workers, &delivering),
        delivering,
    }
}

/// Returns the owner of each receive ring: the worker that has the pair's other ring, if it
/// delivers at all. Other rings go to the worker with the fewest.
fn tx_workers(rx_workers: &[usize], delivering: &[usize]) -> Vec<usize> {
    let mut owners: Vec<Option<usize>> =
        rx_workers.iter().map(|worker| delivering.contains(worker).then_some(*worker)).collect();
    for at in 0..owners.len() {
        if owners[at].is_none() {
            let rings = |worker: &&usize| owners.iter().filter(|owner| **owner == Some(**worker)).count();
            owners[at] = delivering.iter().min_by_key(rings).copied();
        }
    }
    owners.into_iter().flatten().collect()
}
