//! The one table of metrics. A row names a metric, and the answers that its samples come from.
//!
//! Labels are bounded: names of the configuration, indexes of queues and workers, and fixed words.
//! No label has an address.

use std::time::Duration;

use straightline_api::{Link, Node, Packets, Port, PortRate, Queue, TableSummary, Worker};
use straightline_evpn::process::{NetworkStatus, Status as EvpnStatus};

use super::Kind::{Counter, Gauge, Info};
use super::{Family, Samples};
use crate::answers::Answers;

/// The only metric of a switch that does not answer.
pub(super) const UP: Family = Family {
    name: "up",
    kind: Gauge,
    unit: None,
    labels: &[],
    help: "1 if the switch answers, else 0",
    samples: |_, _| {},
};

/// All other metrics.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "build",
        kind: Info,
        unit: None,
        labels: &["version", "simd"],
        help: "Version of the switch, and instruction set of its copies and checksums",
        samples: |answers, samples| samples.add([&answers.status.version, &answers.status.simd], 1_u64),
    },
    Family {
        name: "uptime",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "Time since the switch started",
        samples: |answers, samples| samples.add([], answers.status.uptime_s),
    },
    Family {
        name: "free_descriptors",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Descriptors that the switch can still open",
        samples: |answers, samples| answers.status.fds_free.into_iter().for_each(|free| samples.add([], free)),
    },
    Family {
        name: "refused_calls",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "System calls that the sandbox of the switch has refused",
        samples: |answers, samples| samples.add([], answers.status.refused_calls),
    },
    Family {
        name: "api_refused_clients",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Clients that the API refused, because their user or all users had too many connections",
        samples: |answers, samples| samples.add([], answers.status.api_refused_clients),
    },
    Family {
        name: "api_held_threads",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Threads of the API that a client holds by a descriptor that does not close",
        samples: |answers, samples| samples.add([], answers.status.api_held_threads as u64),
    },
    Family {
        name: "stalls",
        kind: Counter,
        unit: None,
        labels: &["worker", "at"],
        help: "Turns longer than 100 ms, by the port or node that the worker served",
        samples: |answers, samples| {
            for stalls in &answers.status.stalls {
                samples.add([&stalls.worker.to_string(), &stalls.port], stalls.count);
            }
        },
    },
    Family {
        name: "port",
        kind: Info,
        unit: None,
        labels: &["port", "kind", "joined", "joined_kind"],
        help: "Kind of a port, and the patch, bridge or underlay that has it",
        samples: |answers, samples| {
            for port in &answers.ports.ports {
                let joined = port.joined.as_ref().map_or(["", ""], |joined| [&joined.name, joined.kind.as_str()]);
                samples.add([&port.name, &port.kind, joined[0], joined[1]], 1_u64);
            }
        },
    },
    Family {
        name: "port_up",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "1 if packets can pass the port's link, else 0",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.link == Link::Up)),
    },
    Family {
        name: "port_link_changes",
        kind: Counter,
        unit: None,
        labels: &["port"],
        help: "Times that the link came up or went down",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.link_changes)),
    },
    Family {
        name: "port_packets",
        kind: Counter,
        unit: None,
        labels: &["port", "queue", "direction"],
        help: "Packets that the switch received from a port (rx) or sent to it (tx)",
        samples: |answers, samples| traffic(answers, samples, |packets| packets.packets),
    },
    Family {
        name: "port",
        kind: Counter,
        unit: Some("bytes"),
        labels: &["port", "queue", "direction"],
        help: "Bytes of these packets, from the Ethernet header on",
        samples: |answers, samples| traffic(answers, samples, |packets| packets.bytes),
    },
    Family {
        name: "port_calls_sent",
        kind: Counter,
        unit: None,
        labels: &["port", "queue"],
        help: "Notifications sent to the guest",
        samples: |answers, samples| queues(answers, samples, |queue| queue.calls_sent),
    },
    Family {
        name: "port_calls_suppressed",
        kind: Counter,
        unit: None,
        labels: &["port", "queue"],
        help: "Notifications that the guest did not want, or that another one covered",
        samples: |answers, samples| queues(answers, samples, |queue| queue.calls_suppressed),
    },
    Family {
        name: "port_calls_repeated",
        kind: Counter,
        unit: None,
        labels: &["port", "queue"],
        help: "Notifications repeated because the guest did not react",
        samples: |answers, samples| queues(answers, samples, |queue| queue.calls_repeated),
    },
    Family {
        name: "port_drops",
        kind: Counter,
        unit: None,
        labels: &["port"],
        help: "Dropped packets from or to a port, for all reasons",
        samples: |answers, samples| {
            ports(answers, samples, |port| Some(port.drops.values().copied().fold(0, u64::saturating_add)));
        },
    },
    Family {
        name: "port_drops_by_reason",
        kind: Counter,
        unit: None,
        labels: &["port", "reason"],
        help: "Dropped packets by reason; reasons without a drop are left out",
        samples: |answers, samples| {
            for drop in &answers.drops.drops {
                samples.add([&drop.port, &drop.reason], drop.count);
            }
        },
    },
    Family {
        name: "port_kernel_drops",
        kind: Counter,
        unit: None,
        labels: &["port", "reason"],
        help: "Packets that the kernel dropped for a port, by the kernel's names",
        samples: |answers, samples| {
            for port in &answers.ports.ports {
                for (reason, count) in port.device.iter().flat_map(|device| &device.kernel_drops) {
                    samples.add([&port.name, reason], *count);
                }
            }
        },
    },
    Family {
        name: "port_warnings",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "Findings about the port's interface that do not stop it",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.device.as_ref()?.warnings.len())),
    },
    Family {
        name: "port_mtu",
        kind: Gauge,
        unit: Some("bytes"),
        labels: &["port"],
        help: "MTU of a port",
        samples: |answers, samples| ports(answers, samples, |port| Some(u64::from(port.mtu))),
    },
    Family {
        name: "port_rate_limit",
        kind: Gauge,
        unit: Some("bytes"),
        labels: &["port", "direction"],
        help: "Bytes a second that a limit lets pass; none if bytes are not limited",
        samples: |answers, samples| rates(answers, samples, |rate| rate.bits.map(|bits| bits / 8)),
    },
    Family {
        name: "port_rate_passed",
        kind: Counter,
        unit: Some("bytes"),
        labels: &["port", "direction"],
        help: "Bytes that have passed a limit; a GSO packet counts as its segments",
        samples: |answers, samples| rates(answers, samples, |rate| Some(rate.passed_bytes)),
    },
    Family {
        name: "port_rate_passed_packets",
        kind: Counter,
        unit: None,
        labels: &["port", "direction"],
        help: "Packets that have passed a limit; a GSO packet counts as its segments",
        samples: |answers, samples| rates(answers, samples, |rate| Some(rate.passed_packets)),
    },
    Family {
        name: "port_rate_waited",
        kind: Counter,
        unit: Some("seconds"),
        labels: &["port", "direction"],
        help: "Time that packets waited in the guest's ring for a limit",
        samples: |answers, samples| {
            rates(answers, samples, |rate| Some(Duration::from_millis(rate.waited_ms).as_secs_f64()))
        },
    },
    Family {
        name: "port_rate_dropped",
        kind: Counter,
        unit: None,
        labels: &["port", "direction"],
        help: "Packets that were dropped because of a limit",
        samples: |answers, samples| rates(answers, samples, |rate| Some(rate.dropped)),
    },
    Family {
        name: "port_connections",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "Connections of a port with groups",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.groups.as_ref()?.used.connections)),
    },
    Family {
        name: "port_connections_limit",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "Most connections that a port may have: its share",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.groups.as_ref()?.used.most)),
    },
    Family {
        name: "port_connections_refused",
        kind: Counter,
        unit: None,
        labels: &["port"],
        help: "Connections that did not begin because the share of the port was full",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.groups.as_ref()?.used.refused)),
    },
    Family {
        name: "port_addresses",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "Addresses that a bridge has learned behind a port",
        samples: |answers, samples| ports(answers, samples, |port| Some(u64::from(port.addresses?.learned))),
    },
    Family {
        name: "port_addresses_refused",
        kind: Counter,
        unit: None,
        labels: &["port"],
        help: "Times that a bridge did not learn an address because the port's share was full",
        samples: |answers, samples| ports(answers, samples, |port| Some(port.addresses?.refused)),
    },
    Family {
        name: "tunnel_addresses",
        kind: Gauge,
        unit: None,
        labels: &["port"],
        help: "Addresses that a tunnel with several remotes has learned",
        samples: |answers, samples| ports(answers, samples, |port| Some(remotes(port)?.0)),
    },
    Family {
        name: "tunnel_addresses_refused",
        kind: Counter,
        unit: None,
        labels: &["port"],
        help: "Times that a tunnel did not learn an address because its remote's share was full",
        samples: |answers, samples| ports(answers, samples, |port| Some(remotes(port)?.1)),
    },
    Family {
        name: "neighbours",
        kind: Gauge,
        unit: None,
        labels: &["underlay", "state"],
        help: "Next hops of an underlay by state",
        samples: neighbours,
    },
    Family {
        name: "duplicate_addresses",
        kind: Gauge,
        unit: None,
        labels: &["underlay"],
        help: "Addresses of an underlay that another station has too",
        samples: duplicate_addresses,
    },
    Family {
        name: "worker",
        kind: Info,
        unit: None,
        labels: &["worker", "cpu"],
        help: "CPU of a worker; empty if it is not pinned",
        samples: |answers, samples| {
            for (index, worker) in answers.runtime.workers.iter().enumerate() {
                let cpu = worker.cpu.map_or_else(String::new, |cpu| cpu.to_string());
                samples.add([&index.to_string(), &cpu], 1_u64);
            }
        },
    },
    Family {
        name: "worker",
        kind: Counter,
        unit: Some("seconds"),
        labels: &["worker", "state"],
        help: "Time of a worker by use: busy, empty-poll, idle, unexplained",
        samples: |answers, samples| {
            for (index, worker) in answers.runtime.workers.iter().enumerate() {
                let Worker { busy_s, empty_poll_s, idle_s, unexplained_s, .. } = worker;
                let times =
                    [("busy", busy_s), ("empty-poll", empty_poll_s), ("idle", idle_s), ("unexplained", unexplained_s)];
                for (state, time) in times {
                    samples.add([&index.to_string(), state], *time);
                }
            }
        },
    },
    Family {
        name: "worker_turns",
        kind: Counter,
        unit: None,
        labels: &["worker"],
        help: "Turns of a worker, empty ones included",
        samples: |answers, samples| workers(answers, samples, |worker| worker.turns),
    },
    Family {
        name: "worker_bodies_copied",
        kind: Counter,
        unit: Some("bytes"),
        labels: &["worker"],
        help: "Bytes of packet bodies that were copied",
        samples: |answers, samples| workers(answers, samples, |worker| worker.bodies_copied_bytes),
    },
    Family {
        name: "worker_bodies_delivered",
        kind: Counter,
        unit: Some("bytes"),
        labels: &["worker"],
        help: "Bytes of packet bodies that were delivered",
        samples: |answers, samples| workers(answers, samples, |worker| worker.bodies_delivered_bytes),
    },
    Family {
        name: "node_calls",
        kind: Counter,
        unit: None,
        labels: &["node", "worker"],
        help: "Calls of a node with at least one packet",
        samples: |answers, samples| nodes(answers, samples, |node| node.calls),
    },
    Family {
        name: "node_packets",
        kind: Counter,
        unit: None,
        labels: &["node", "worker"],
        help: "Packets in these calls",
        samples: |answers, samples| nodes(answers, samples, |node| node.packets),
    },
    Family {
        name: "node_cycles",
        kind: Counter,
        unit: None,
        labels: &["node", "worker"],
        help: "Processor cycles in these calls",
        samples: |answers, samples| nodes(answers, samples, |node| node.cycles),
    },
    Family {
        name: "bindings",
        kind: Gauge,
        unit: None,
        labels: &["bridge"],
        help: "Bindings of IP addresses in a bridge",
        samples: |answers, samples| {
            for (bridge, table) in bindings(answers) {
                samples.add([bridge], table.rows);
            }
        },
    },
    Family {
        name: "bindings_events",
        kind: Counter,
        unit: None,
        labels: &["bridge", "event"],
        help: "Events of the bindings of a bridge, by the counters of `straightline tables`",
        samples: |answers, samples| {
            for (bridge, table) in bindings(answers) {
                for (event, count) in &table.counters {
                    samples.add([bridge, event], *count);
                }
            }
        },
    },
    Family {
        name: "evpn_up",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "1 if `straightline evpn` answers, else 0",
        samples: |answers, samples| {
            answers.evpn.iter().for_each(|evpn| samples.add([], evpn.is_ok()));
        },
    },
    Family {
        name: "evpn_gobgp_up",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "1 if GoBGP answers `straightline evpn`, and its table has been read",
        samples: |answers, samples| evpn(answers, samples, |status| status.gobgp.up),
    },
    Family {
        name: "evpn_switch_up",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "1 if the switch answers `straightline evpn`",
        samples: |answers, samples| evpn(answers, samples, |status| status.switch.up),
    },
    Family {
        name: "evpn_switch_refused",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Remotes and stations that the switch has refused",
        samples: |answers, samples| evpn(answers, samples, |status| status.switch.refused),
    },
    Family {
        name: "evpn_sessions",
        kind: Gauge,
        unit: None,
        labels: &["state"],
        help: "BGP sessions of this host: up, down",
        samples: |answers, samples| {
            for neighbour in answers.evpn.iter().flatten().flat_map(|status| &status.gobgp.neighbours) {
                samples.add(["up"], u64::from(neighbour.up));
                samples.add(["down"], u64::from(!neighbour.up));
            }
        },
    },
    Family {
        name: "evpn_routes_received",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Received routes that are kept",
        samples: |answers, samples| evpn(answers, samples, |status| status.received),
    },
    Family {
        name: "evpn_routes_stale",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Received routes that GoBGP has not told again since it was away",
        samples: |answers, samples| evpn(answers, samples, |status| status.stale),
    },
    Family {
        name: "evpn_routes_announced",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Routes of this host",
        samples: |answers, samples| evpn(answers, samples, |status| status.announced),
    },
    Family {
        name: "evpn_routes_waiting",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Routes of this host that wait to be sent to GoBGP",
        samples: |answers, samples| evpn(answers, samples, |status| status.gobgp.waiting),
    },
    Family {
        name: "evpn_refused",
        kind: Counter,
        unit: None,
        labels: &["reason"],
        help: "Routes and stations that were refused or delayed, by reason",
        samples: |answers, samples| {
            for (reason, count) in answers.evpn.iter().flatten().flat_map(|status| &status.refused) {
                samples.add([reason], *count);
            }
        },
    },
    Family {
        name: "evpn_stations",
        kind: Gauge,
        unit: None,
        labels: &["network", "vlan", "place"],
        help: "Stations of a network by place: here, elsewhere, duplicate",
        samples: |answers, samples| {
            networks(answers, samples, |network| {
                vec![
                    ("here", network.here as u64),
                    ("elsewhere", network.elsewhere as u64),
                    ("duplicate", network.duplicate as u64),
                ]
            });
        },
    },
    Family {
        name: "evpn_moves",
        kind: Counter,
        unit: None,
        labels: &["network", "vlan", "direction"],
        help: "Moves of stations to this host (here) and from it (away)",
        samples: |answers, samples| {
            networks(answers, samples, |network| vec![("here", network.moves_here), ("away", network.moves_away)]);
        },
    },
    Family {
        name: "evpn_hosts",
        kind: Gauge,
        unit: None,
        labels: &["network", "vlan"],
        help: "Other hosts of a network",
        samples: |answers, samples| {
            for network in answers.evpn.iter().flatten().flat_map(|status| &status.networks) {
                samples.add([&network.network, &network.vlan.to_string()], network.remotes.len());
            }
        },
    },
];

/// Returns the tables of bindings, with the names of their bridges.
fn bindings(answers: &Answers) -> impl Iterator<Item = (&str, &TableSummary)> {
    let tables = answers.tables.tables.iter();
    tables.filter_map(|table| Some((table.table.strip_prefix("bindings:")?, table)))
}

/// Adds a sample if `straightline evpn` answers.
fn evpn<V: Into<super::Number>>(answers: &Answers, samples: &mut Samples, value: fn(&EvpnStatus) -> V) {
    for status in answers.evpn.iter().flatten() {
        samples.add([], value(status));
    }
}

/// Adds the samples of each network, each with a word.
fn networks(answers: &Answers, samples: &mut Samples, values: fn(&NetworkStatus) -> Vec<(&'static str, u64)>) {
    for network in answers.evpn.iter().flatten().flat_map(|status| &status.networks) {
        let vlan = network.vlan.to_string();
        for (word, value) in values(network) {
            samples.add([&network.network, &vlan, word], value);
        }
    }
}

/// Adds a sample for each port that has a value.
fn ports<V: Into<super::Number>>(answers: &Answers, samples: &mut Samples, value: fn(&Port) -> Option<V>) {
    for port in &answers.ports.ports {
        if let Some(value) = value(port) {
            samples.add([&port.name], value);
        }
    }
}

/// Adds a sample for each limit that has a value.
fn rates<V: Into<super::Number>>(answers: &Answers, samples: &mut Samples, value: fn(&PortRate) -> Option<V>) {
    for port in &answers.ports.ports {
        for (direction, rate) in [("in", &port.rate_in), ("out", &port.rate_out)] {
            if let Some(value) = rate.as_ref().and_then(value) {
                samples.add([&port.name, direction], value);
            }
        }
    }
}

/// Returns the learned and the refused addresses of a tunnel with several remotes.
fn remotes(port: &Port) -> Option<(u64, u64)> {
    let addresses = port.tunnel.as_ref().map(|tunnel| &tunnel.addresses).filter(|addresses| !addresses.is_empty())?;
    Some((addresses.iter().map(|one| u64::from(one.learned)).sum(), addresses.iter().map(|one| one.refused).sum()))
}

/// Adds a sample for each queue pair.
fn queues(answers: &Answers, samples: &mut Samples, value: fn(&Queue) -> u64) {
    for port in &answers.ports.ports {
        for queue in &port.queues {
            samples.add([&port.name, &queue.index.to_string()], value(queue));
        }
    }
}

/// Adds two samples for each queue pair: received and sent.
fn traffic(answers: &Answers, samples: &mut Samples, value: fn(&Packets) -> u64) {
    for port in &answers.ports.ports {
        for queue in &port.queues {
            let index = queue.index.to_string();
            samples.add([&port.name, &index, "rx"], value(&queue.rx));
            samples.add([&port.name, &index, "tx"], value(&queue.tx));
        }
    }
}

/// Adds a sample for each worker.
fn workers(answers: &Answers, samples: &mut Samples, value: fn(&Worker) -> u64) {
    for (index, worker) in answers.runtime.workers.iter().enumerate() {
        samples.add([&index.to_string()], value(worker));
    }
}

/// Adds a sample for each node of each worker.
fn nodes(answers: &Answers, samples: &mut Samples, value: fn(&Node) -> u64) {
    for node in &answers.runtime.nodes {
        // Nodes that are gone have no worker.
        let worker = node.worker.map_or_else(String::new, |worker| worker.to_string());
        samples.add([&node.name, &worker], value(node));
    }
}

/// Adds a sample for each underlay.
fn duplicate_addresses(answers: &Answers, samples: &mut Samples) {
    let mut counts = std::collections::BTreeMap::<_, u64>::new();
    for own in &answers.neighbours.addresses {
        *counts.entry(own.underlay.as_str()).or_default() += u64::from(own.conflict.is_some());
    }
    for (underlay, count) in counts {
        samples.add([underlay], count);
    }
}

/// Adds a sample for each underlay and each state that a next hop of it has.
fn neighbours(answers: &Answers, samples: &mut Samples) {
    let mut counts = std::collections::BTreeMap::<_, u64>::new();
    for next_hop in &answers.neighbours.neighbours {
        *counts.entry((next_hop.underlay.as_str(), next_hop.state.as_str())).or_default() += 1;
    }
    for ((underlay, state), count) in counts {
        samples.add([underlay, state], count);
    }
}
