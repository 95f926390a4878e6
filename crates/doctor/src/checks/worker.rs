//! The CPUs of workers, beside those of virtual CPUs, of other workers, and of memory.

use std::collections::BTreeSet;

use straightline_api::{PortNodes, Runtime};

use super::{Check, CheckOutcome};
use crate::facts::{Facts, Peer, PortFacts, Unknown};

/// Returns the workers that are pinned to a CPU.
fn pinned(runtime: &Runtime) -> Vec<(usize, usize)> {
    runtime.workers.iter().enumerate().filter_map(|(at, worker)| Some((at, worker.cpu?))).collect()
}

/// Returns the VMs, each once, with a port of theirs. Reports ports whose VMs are not known.
fn peers<'f>(facts: &'f Facts, outcome: &mut CheckOutcome) -> Vec<(&'f str, &'f Peer)> {
    let mut found: Vec<(&str, &Peer)> = Vec::new();
    for port in facts.ports.iter().filter(|port| port.port.has_frontend()) {
        for peer in outcome.known(port.subject(), &port.peers).into_iter().flatten() {
            if !found.iter().any(|(_, other)| other.pid == peer.pid) {
                found.push((&port.port.name, peer));
            }
        }
    }
    found
}

/// Formats CPUs as `taskset` reads them: `0,2-3`.
fn list(cpus: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    texts.collect::<Vec<_>>().join(",")
}

/// Returns the command that keeps a VM off these CPUs.
fn keep_off(facts: &Facts, peer: &Peer, taken: &BTreeSet<usize>) -> String {
    let all: BTreeSet<usize> =
        facts.machine.cpus.as_ref().map(|cpus| cpus.keys().copied().collect()).unwrap_or_default();
    let others: BTreeSet<usize> = all.difference(taken).copied().collect();
    if others.is_empty() {
        "use fewer `workers` in [switch]".to_owned()
    } else {
        format!("taskset --all-tasks --pid --cpu-list {} {}", list(&others), peer.pid)
    }
}

/// Returns the CPUs on which virtual CPUs may run. If the threads have no names, the CPUs of all
/// threads are an upper bound: `None` if they include one of `concerned`.
fn vcpu_cpus<'p>(peer: &'p Peer, concerned: &BTreeSet<usize>) -> Result<&'p BTreeSet<usize>, &'p Unknown> {
    match (&peer.vcpu_cpus, &peer.allowed_cpus) {
        (Ok(cpus), _) => Ok(cpus),
        (Err(_), Ok(allowed)) if allowed.is_disjoint(concerned) => Ok(allowed),
        (Err(unknown), _) => Err(unknown),
    }
}

pub(super) const VCPUS: Check = Check {
    name: "vcpu-cpus",
    passes: "no virtual CPU runs on a worker's CPU",
    absent: "no worker has a CPU of its own (`workers` in [switch]), or no VM is known",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the workers", &facts.switch) else { return };
        let workers = pinned(&switch.after);
        if workers.is_empty() {
            return;
        }
        let taken: BTreeSet<usize> = workers.iter().map(|(_, cpu)| *cpu).collect();
        for (port, peer) in peers(facts, outcome) {
            let subject = format!("port {port}: {} (process {})", peer.program.name(), peer.pid);
            match vcpu_cpus(peer, &taken) {
                Err(unknown) => outcome.unknown(subject, unknown),
                Ok(cpus) if cpus.is_disjoint(&taken) => outcome.pass(),
                Ok(cpus) => {
                    let shared: BTreeSet<usize> = cpus.intersection(&taken).copied().collect();
                    outcome.warn(
                        format!("{subject} shares CPU {} with a worker", list(&shared)),
                        "worker and virtual CPU wait for each other",
                        keep_off(facts, peer, &taken),
                    );
                }
            }
        }
    },
};

pub(super) const SIBLINGS: Check = Check {
    name: "smt-siblings",
    passes: "no worker shares its core with another worker or a virtual CPU",
    absent: "no worker has a CPU of its own (`workers` in [switch])",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the workers", &facts.switch) else { return };
        let workers = pinned(&switch.after);
        if workers.is_empty() {
            return;
        }
        let Some(cpus) = outcome.known("the CPUs", &facts.machine.cpus) else { return };
        let mut hidden = BTreeSet::new();
        for &(at, cpu) in &workers {
            let subject = format!("worker {at} on CPU {cpu}");
            let Some(machine) = cpus.get(&cpu) else {
                outcome.unknown(subject, &Unknown::new("this machine does not show that CPU"));
                continue;
            };
            let Some(siblings) = outcome.known(&subject, &machine.siblings) else { continue };
            let others: BTreeSet<usize> = siblings.iter().copied().filter(|&other| other != cpu).collect();
            if let Some((other, _)) = workers.iter().find(|(other, taken)| *other > at && others.contains(taken)) {
                outcome.warn(
                    format!("{subject} shares its core with worker {other}"),
                    "two threads of one core slow each other down",
                    "choose CPUs of different cores for `workers` in [switch]",
                );
            }
            hidden.extend(others);
        }
        if hidden.is_empty() {
            // Each core has one thread.
            return outcome.pass();
        }
        for (port, peer) in peers(facts, outcome) {
            let subject = format!("port {port}: {} (process {})", peer.program.name(), peer.pid);
            match vcpu_cpus(peer, &hidden) {
                Err(unknown) => outcome.unknown(subject, unknown),
                Ok(cpus) if cpus.is_disjoint(&hidden) => outcome.pass(),
                Ok(_) => outcome.warn(
                    format!("{subject} may run on the core of a worker"),
                    format!("CPUs {} are threads of the workers' cores", list(&hidden)),
                    keep_off(
                        facts,
                        peer,
                        &hidden.union(&workers.iter().map(|(_, cpu)| *cpu).collect()).copied().collect(),
                    ),
                ),
            }
        }
        outcome.pass();
    },
};

/// Compares the nodes of a port's memory and interface with those of its workers. `ours` has the
/// nodes of all workers.
fn port_nodes(port: &PortFacts, places: &PortNodes, ours: &BTreeSet<usize>, outcome: &mut CheckOutcome) {
    let apart: BTreeSet<usize> = places.apart().collect();
    let Some(first) = apart.first() else { return outcome.pass() };
    let what = if places.interface.is_some() { "interface" } else { "guest's memory" };
    let remedy = if apart.is_subset(ours) {
        "run `straightline reload`: a patch or bridge moves to workers on the node of most of its ports".to_owned()
    } else {
        format!("choose `workers` from /sys/devices/system/node/node{first}/cpulist")
    };
    outcome.warn(
        format!("{}: its {what} is on NUMA node {}", port.subject(), list(&apart)),
        format!(
            "its workers are on node {}; packets cross between nodes",
            list(&places.workers.iter().copied().collect())
        ),
        remedy,
    );
}

pub(super) const NODES: Check = Check {
    name: "numa-nodes",
    passes: "workers, virtual CPUs, guest memory and interfaces are on the same NUMA node",
    absent: "no worker has a CPU of its own (`workers` in [switch])",
    run: |facts, outcome| {
        let Some(cpus) = outcome.known("the CPUs", &facts.machine.cpus) else { return };
        let Some(switch) = outcome.known("the workers", &facts.switch) else { return };
        let workers = pinned(&switch.after);
        if workers.is_empty() {
            return;
        }
        let mut nodes = BTreeSet::new();
        for (&cpu, machine) in cpus {
            match outcome.known(format!("CPU {cpu}"), &machine.node) {
                Some(node) => nodes.insert(*node),
                None => return,
            };
        }
        if nodes.len() == 1 {
            return outcome.pass();
        }
        let node_of = |cpu: &usize| cpus.get(cpu).and_then(|machine| machine.node.as_ref().ok()).copied();
        let ours: BTreeSet<usize> = workers.iter().filter_map(|(_, cpu)| node_of(cpu)).collect();
        let workers: BTreeSet<usize> = workers.iter().map(|(_, cpu)| *cpu).collect();
        for (port, peer) in peers(facts, outcome) {
            let subject = format!("port {port}: {} (process {})", peer.program.name(), peer.pid);
            // Threads without names are on no other node than the process.
            let known = peer.vcpu_cpus.as_ref().or(peer.allowed_cpus.as_ref());
            match known {
                Err(unknown) => outcome.unknown(subject, unknown),
                Ok(theirs) => {
                    let theirs: BTreeSet<usize> = theirs.iter().filter_map(node_of).collect();
                    if theirs.is_subset(&ours) {
                        outcome.pass()
                    } else {
                        outcome.warn(
                            format!("{subject} may run on NUMA node {}", list(&theirs)),
                            format!("the workers are on node {}; packets cross between nodes", list(&ours)),
                            format!("numactl --cpunodebind={0} --membind={0} for the VM", list(&ours)),
                        )
                    }
                }
            }
        }
        for port in &facts.ports {
            // A switch that tells its nodes knows which of its workers serve the port.
            if let Some(places) = &port.port.nodes {
                port_nodes(port, places, &ours, outcome);
                continue;
            }
            match outcome.known(port.subject(), &port.interface_node) {
                Some(Some(node)) if !ours.contains(node) => outcome.warn(
                    format!("{}: its interface is on NUMA node {node}", port.subject()),
                    format!("the workers (CPUs {}) are on node {}", list(&workers), list(&ours)),
                    format!("choose `workers` from /sys/devices/system/node/node{node}/cpulist"),
                ),
                Some(_) => outcome.pass(),
                None => {}
            }
        }
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_taskset_reads_them() {
        for (cpus, text) in [(&[][..], ""), (&[1], "1"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8")] {
            assert_eq!(list(&cpus.iter().copied().collect()), text);
        }
    }
}
