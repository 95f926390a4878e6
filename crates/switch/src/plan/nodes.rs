//! The NUMA nodes that a plan takes into account.

use super::ForwardingDomain;
use crate::config::{Config, NumaNodes};

/// The NUMA nodes of the workers, and of the ports: those of guests' memory and of interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanNodes {
    /// The node of each worker, if it is known.
    workers: Vec<Option<usize>>,
    /// The nodes of each port that are known.
    ports: Vec<Vec<usize>>,
}

impl PlanNodes {
    /// Returns the nodes of a configuration on a machine. `memory` returns those of the guest's
    /// memory at a port of this name, if it runs.
    pub(crate) fn new(config: &Config, machine: &NumaNodes, memory: impl Fn(&str) -> Vec<usize>) -> Self {
        let workers = config.switch.workers.iter().map(|&cpu| machine.of_cpu(cpu)).collect();
        let ports = config.ports.iter().map(|port| {
            let mut nodes = memory(&port.name);
            nodes.extend(port.kind.interface().and_then(|name| machine.of_interface(name)));
            nodes
        });
        PlanNodes { workers, ports: ports.collect() }
    }

    /// Returns for each worker how many of a domain's memories and interfaces are on another node. 0
    /// for a worker whose node is not known.
    pub(super) fn distances(&self, config: &Config, domain: ForwardingDomain, workers: usize) -> Vec<usize> {
        let mut distances = vec![0; workers];
        // All are equally near on a machine with one node, as most are.
        if self.workers.windows(2).all(|pair| pair[0] == pair[1]) {
            return distances;
        }
        let ports = domain.ports(config).into_iter().filter_map(|port| self.ports.get(port));
        let of_domain: Vec<usize> = ports.flatten().copied().collect();
        for (distance, node) in distances.iter_mut().zip(&self.workers) {
            *distance = node.map_or(0, |node| of_domain.iter().filter(|&&other| other != node).count());
        }
        distances
    }
}

/// Removes the workers that are not among the nearest, if there are as many nearest ones.
pub(super) fn retain_near(distances: &[usize], had: &mut Vec<usize>) {
    let least = distances.iter().min().copied().unwrap_or(0);
    if distances.iter().filter(|&&distance| distance == least).count() >= had.len() {
        had.retain(|&worker| distances[worker] == least);
    }
}
