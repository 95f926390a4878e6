//! Checks that look at several sections at once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostic::{Findings, Span};
use super::{Draft, DraftInterface, NodeConfig, PortConfig};
use crate::sections::network::Network;

mod groups;
mod rates;
mod tunnels;
mod underlays;
mod vlans;

/// The most unused ports that get a warning each. A switch may have a thousand.
const MOST_UNUSED: usize = 8;

/// Fills in the defaults that depend on other sections.
pub(super) fn complete(draft: &mut Draft) {
    underlays::complete(draft);
    tunnels::complete(draft);
}

pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    check_use_of_ports(draft, report);
    check_use_of_nodes(draft, report);
    check_node_outputs(draft, report);
    check_statics(draft, report);
    check_sockets(draft, report);
    check_interfaces(draft, report);
    check_waits(draft, report);
    rates::check(draft, report);
    underlays::check(draft, report);
    tunnels::check(draft, report);
    vlans::check(draft, report);
    groups::check(draft, report);
}

/// Checks that every named port exists and is used once. An unused port is worth a warning.
fn check_use_of_ports(draft: &Draft, report: &mut Findings<'_>) {
    let mut networks: Vec<_> = draft.networks.iter().collect();
    // In the file's order, so that the later use gets the error.
    networks.sort_by_key(|network| network.ports.first().map_or(0, |(_, span)| span.start));
    let known: HashMap<_, _> = draft.ports.iter().map(|port| (port.0.name.as_str(), port)).collect();
    let mut used: HashMap<&str, (&str, usize)> = HashMap::new();
    for network in networks {
        let title = &network.title;
        let mut macs = HashMap::new();
        for (name, span) in &network.ports {
            let Some((port, spans)) = known.get(name.as_str()) else {
                if draft.unread.may_have("port", name) {
                    continue;
                }
                report.error(span, format!("port {name:?} in {title}: no such port; {}", known_ports(draft)));
                continue;
            };
            if let Some((user, line)) = used.get(name.as_str()) {
                let message = if *user == title.as_str() {
                    format!("port {name:?} in {title}: named twice; name it once")
                } else {
                    format!(
                        "port {name:?} in {title}: already in {user} (line {line}); a port is in one patch or bridge"
                    )
                };
                report.error(span, message);
                continue;
            }
            used.insert(name, (title, report.line(span)));
            if let (Some(mac), Some(mac_span)) = (port.mac, &spans.mac)
                && let Some(other) = macs.insert(mac, name)
            {
                let message = format!(
                    "mac {mac} of port {name:?}: port {other:?} of the same {title} has it too; give each port its own"
                );
                report.error(mac_span, message);
            }
        }
    }
    let is_output = |name: &String| draft.node_sites.iter().flat_map(|node| &node.outputs).any(|to| to.port == *name);
    let is_underlay = |name: &String| draft.underlays.iter().any(|(underlay, _)| underlay.port == *name);
    let is_used = |name: &String| used.contains_key(name.as_str()) || is_output(name) || is_underlay(name);
    let mut unused = draft.ports.iter().filter(|(port, _)| !is_used(&port.name));
    for (port, spans) in unused.by_ref().take(MOST_UNUSED) {
        let message = format!("port {:?} is in no patch or bridge; what it receives will be dropped", port.name);
        report.warn(&spans.name, message);
    }
    if let Some((port, spans)) = unused.next() {
        let message = match unused.count() {
            0 => format!("port {:?} is in no patch or bridge either", port.name),
            more => format!("port {:?} and {more} more are in no patch or bridge either", port.name),
        };
        report.warn(&spans.name, message);
    }
    let queues: usize = draft.ports.iter().map(|(port, _)| port.kind.most_queues()).sum();
    let workers = draft.switch.workers.len();
    if workers > queues && queues > 0 {
        report.warn_file(format!(
            "{workers} workers for {queues} queue pairs of all ports: some workers never have work; name fewer `workers` \
             in [switch], or raise `queues` of ports"
        ));
    }
    if draft.ports.is_empty() {
        report.warn_file("no ports; add a section [port.NAME]");
    }
}

fn known_ports(draft: &Draft) -> String {
    if draft.ports.is_empty() {
        return "there is no section [port.NAME]".to_owned();
    }
    let names: Vec<_> = draft.ports.iter().map(|(port, _)| port.name.as_str()).collect();
    format!("ports are {}", names.join(", "))
}

/// Checks that every node that a port names exists and is named once in that list. A node that no
/// port names is worth a warning.
fn check_use_of_nodes(draft: &Draft, report: &mut Findings<'_>) {
    let lists = draft.ports.iter().flat_map(|(port, spans)| {
        [("nodes", port, &port.nodes, &spans.nodes), ("egress-nodes", port, &port.egress_nodes, &spans.egress_nodes)]
    });
    for (key, port, nodes, spans) in lists {
        for (at, (name, span)) in nodes.iter().zip(spans).enumerate() {
            let title = format!("node {name:?} in {key} of port {:?}", port.name);
            if nodes[..at].contains(name) {
                report.error(span, format!("{title}: named twice; name it once"));
            } else if !draft.node_sites.iter().any(|node| node.name == *name) && !draft.unread.may_have("node", name) {
                let names: Vec<_> = draft.node_sites.iter().map(|node| node.name.as_str()).collect();
                let known = if names.is_empty() {
                    "there is no section [node.NAME]".to_owned()
                } else {
                    format!("nodes are {}", names.join(", "))
                };
                report.error(span, format!("{title}: no such node; {known}"));
            }
        }
    }
    for node in &draft.node_sites {
        let is_used = |port: &PortConfig| port.nodes.contains(&node.name) || port.egress_nodes.contains(&node.name);
        if !draft.ports.iter().any(|(port, _)| is_used(port)) {
            let message =
                format!("node {:?} is in nodes or egress-nodes of no port; no packet will pass it", node.name);
            report.warn(&node.span, message);
        }
    }
}

/// Checks the ports that get copies from nodes. Each must exist, be in no patch or bridge, and name
/// no nodes of its own.
fn check_node_outputs(draft: &Draft, report: &mut Findings<'_>) {
    for (node, output) in draft.node_sites.iter().flat_map(|node| node.outputs.iter().map(move |output| (node, output)))
    {
        // A key that is absent or not a text has an error of its own.
        if output.port.is_empty() && output.span.is_empty() || draft.unread.may_have("port", &output.port) {
            continue;
        }
        let title = format!("port {:?} in {} of node {:?}", output.port, output.key, node.name);
        let Some((port, spans)) = draft.ports.iter().find(|(port, _)| port.name == output.port) else {
            report.error(&output.span, format!("{title}: no such port; {}", known_ports(draft)));
            continue;
        };
        if let Some((network, span)) = network_of(draft, &port.name) {
            let line = report.line(span);
            let message = format!(
                "{title}: already in {} (line {line}); name a port that is in no patch and no bridge",
                network.title
            );
            report.error(&output.span, message);
            continue;
        }
        let own = [("nodes", spans.nodes.first()), ("egress-nodes", spans.egress_nodes.first())];
        for (key, span) in own {
            if let Some(span) = span {
                let line = report.line(span);
                let message = format!(
                    "{title}: this port has {key} (line {line}), and a port that gets copies has no nodes; remove {key}, \
                     or name another port"
                );
                report.error(&output.span, message);
            }
        }
    }
}

/// Returns the patch or bridge that a port is in, with the place where it names the port.
fn network_of<'a>(draft: &'a Draft, port: &str) -> Option<(&'a Network, &'a Span)> {
    draft.networks.iter().find_map(|network| {
        let (_, span) = network.ports.iter().find(|(name, _)| name == port)?;
        Some((network, span))
    })
}

/// Checks that each static entry names a port of its own bridge.
fn check_statics(draft: &Draft, report: &mut Findings<'_>) {
    for (bridge, spans) in &draft.bridges {
        // A bridge without ports, or with a port that is no text, has an error of its own.
        let network = draft.networks.iter().find(|network| network.title == format!("bridge {:?}", bridge.name));
        if bridge.ports.is_empty() || network.is_none_or(|network| report.has_error_in(&network.list)) {
            continue;
        }
        for (entry, span) in bridge.statics.iter().zip(spans) {
            if !bridge.ports.contains(&entry.port) {
                let message = format!(
                    "port {:?} of static entry {} in bridge {:?}: not a port of this bridge; its ports are {}",
                    entry.port,
                    entry.mac,
                    bridge.name,
                    bridge.ports.join(", ")
                );
                report.error(span, message);
            }
        }
    }
}

/// Checks that no two owners have the same path, even if it is written in different ways. Paths to
/// connect to are checked too, because only one frontend can listen there.
fn check_sockets(draft: &Draft, report: &mut Findings<'_>) {
    let mut seen: HashMap<(PathBuf, Option<&OsStr>), (&str, usize)> = HashMap::new();
    let mut folders: HashMap<&Path, PathBuf> = HashMap::new();
    for socket in &draft.sockets {
        let folder = super::socket_path::folder(&socket.path);
        let folder = folders.entry(folder).or_insert_with(|| identity(folder)).clone();
        let place = (folder, socket.path.file_name());
        if let Some((owner, line)) = seen.get(&place) {
            let path = socket.path.display();
            let message = format!(
                "socket \"{path}\" of {}: {owner} has it already (line {line}); each needs its own",
                socket.owner
            );
            report.error(&socket.span, message);
        } else {
            seen.insert(place, (&socket.owner, report.line(&socket.span)));
        }
    }
}

/// Checks that no two ports have the same interface.
fn check_interfaces(draft: &Draft, report: &mut Findings<'_>) {
    let mut seen: HashMap<&str, (&str, usize)> = HashMap::new();
    for DraftInterface { owner, name, span } in &draft.interfaces {
        if let Some((other, line)) = seen.get(name.as_str()) {
            let message =
                format!("interface {name:?} of {owner}: {other} has it already (line {line}); each port needs its own");
            report.error(span, message);
        } else {
            seen.insert(name, (owner, report.line(span)));
        }
    }
}

/// Checks that packets wait for free buffers only between rings of guests: a device has no ring in
/// which a packet could stay, and announces no free buffers. Neither has a tunnel, even as the
/// output of a node: it would send a packet that waits once in every turn.
fn check_waits(draft: &Draft, report: &mut Findings<'_>) {
    let port_of = |name: &str| draft.ports.iter().map(|(port, _)| port).find(|port| port.name == name);
    for network in &draft.networks {
        let Some(waits) = &network.waits else { continue };
        let members = || network.ports.iter().filter_map(|(name, _)| port_of(name));
        let device = members().find(|port| !port.kind.can_wait());
        let nodes = members().flat_map(|port| port.nodes.iter().chain(&port.egress_nodes));
        let outputs = nodes.filter_map(|name| draft.nodes.iter().find(|node| node.name == *name));
        let mut outputs = outputs.flat_map(NodeConfig::outputs).filter_map(|name| port_of(name));
        let why = match (device, outputs.find(|port| port.kind.as_tunnel().is_some())) {
            (Some(port), _) => format!("port {:?} is no vhost-user port, so no packet can wait for it", port.name),
            (None, Some(port)) => format!("a node sends copies to tunnel {:?}, which sends each at once", port.name),
            (None, None) => continue,
        };
        report.error(waits, format!("full = \"wait\" in {}: {why}; use full = \"drop\"", network.title));
    }
}

/// Returns the folder without links and dots if it exists, else as it is written.
fn identity(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}
