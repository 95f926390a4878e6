//! Several workers at one domain: how many it can use, and which queue pair is whose.
//!
//! Of each transmit ring one worker takes, so a flow comes by one worker and stays in order. In a patch, no receive ring is
//! ever wanted by two: at most as many workers take from a port as its peer has receive rings, and these are dealt out among
//! them. Two ports with one pair each so have a worker for each direction. In a bridge everybody delivers everywhere, and a
//! port with fewer pairs than there are workers has rings with a lock that is waited for; so a bridge is given several only
//! where a port of it has several pairs.

use straightline_port::QueueAssignment;

use super::ForwardingDomain;
use crate::config::Config;

/// The queue pairs of its ports.
pub(super) fn pairs(config: &Config, domain: ForwardingDomain) -> usize {
    domain.ports(config).iter().map(|&port| config.ports[port].kind.queues()).sum()
}

/// The most workers that it can use.
pub(super) fn capacity(config: &Config, domain: ForwardingDomain) -> usize {
    let ports = domain.ports(config);
    let pairs = ports.iter().map(|&port| config.ports[port].kind.queues());
    match domain {
        ForwardingDomain::Patch(_) => 2 * pairs.min().unwrap_or(1),
        ForwardingDomain::Bridge(_) => pairs.max().unwrap_or(1),
        // What comes in is dropped.
        ForwardingDomain::Unconnected(_) => 1,
    }
}

/// How many workers each of these domains is to have: one, and those that are left go to whoever has most pairs for each
/// of its workers.
pub(super) fn widths(config: &Config, domains: &[ForwardingDomain], workers: usize) -> Vec<usize> {
    let mut widths = vec![1; domains.len()];
    let connected = domains.iter().filter(|domain| !matches!(domain, ForwardingDomain::Unconnected(_))).count();
    for _ in connected..workers {
        let can = |&at: &usize| widths[at] < capacity(config, domains[at]).min(workers);
        // Of equals the first: `max_by` takes the last.
        let most = (0..domains.len()).rev().filter(can).max_by(|&a, &b| {
            let (pairs_a, pairs_b) = (pairs(config, domains[a]), pairs(config, domains[b]));
            (pairs_a * widths[b]).cmp(&(pairs_b * widths[a]))
        });
        let Some(at) = most else { break };
        widths[at] += 1;
    }
    widths
}

/// Deals the pairs of a domain's ports out to the workers that serve it, each port beginning where the last one ended.
pub(super) fn seat(config: &Config, domain: ForwardingDomain, serving: &[usize]) -> Vec<(usize, QueueAssignment)> {
    let ports = domain.ports(config);
    let most = match domain {
        ForwardingDomain::Patch(_) => serving.len().min(capacity(config, domain) / 2),
        _ => serving.len(),
    };
    let mut at = 0;
    let takes: Vec<Vec<usize>> = ports
        .iter()
        .map(|&port| {
            let pairs = config.ports[port].kind.queues();
            let from = at;
            // Where not all are needed, the next port goes on behind those that were.
            at += if most < serving.len() { most } else { pairs };
            (0..config.ports[port].kind.most_queues())
                .map(|pair| serving[(from + pair % most) % serving.len()])
                .collect()
        })
        .collect();
    let seated = ports.iter().enumerate().map(|(member, &port)| {
        let others = takes.iter().enumerate().filter(|(other, _)| *other != member);
        let mut givers: Vec<usize> = others.flat_map(|(_, takes)| takes.iter().copied()).collect();
        givers.sort_unstable();
        givers.dedup();
        if givers.is_empty() {
            givers.push(takes[member][0]);
        }
        (port, QueueAssignment { takes: takes[member].clone(), gives: gives(&takes[member], &givers), givers })
    });
    seated.collect()
}

/// The same, where these workers deliver.
pub(super) fn delivered_by(assignment: &QueueAssignment, givers: Vec<usize>) -> QueueAssignment {
    QueueAssignment { takes: assignment.takes.clone(), gives: gives(&assignment.takes, &givers), givers }
}

/// Whose own each receive ring is: whoever has the pair's other ring, if he delivers at all; the rest goes to whoever has
/// fewest.
fn gives(takes: &[usize], givers: &[usize]) -> Vec<usize> {
    let mut owners: Vec<Option<usize>> = takes.iter().map(|taker| givers.contains(taker).then_some(*taker)).collect();
    for at in 0..owners.len() {
        if owners[at].is_none() {
            let rings = |giver: &&usize| owners.iter().filter(|owner| **owner == Some(**giver)).count();
            owners[at] = givers.iter().min_by_key(rings).copied();
        }
    }
    owners.into_iter().flatten().collect()
}
