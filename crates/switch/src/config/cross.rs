//! Checks that look at several sections at once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::Draft;
use super::diagnostic::Report;

pub(super) fn check(draft: &Draft, report: &mut Report<'_>) {
    check_use_of_ports(draft, report);
    check_use_of_nodes(draft, report);
    check_statics(draft, report);
    check_sockets(draft, report);
}

/// Every port that is named exists, no port is used twice, and an unused one is worth a warning.
fn check_use_of_ports(draft: &Draft, report: &mut Report<'_>) {
    let mut networks: Vec<_> = draft.networks.iter().collect();
    // In the file's order, so that the later use is the one that is wrong.
    networks.sort_by_key(|network| network.ports.first().map_or(0, |(_, span)| span.start));
    let mut used: HashMap<&str, (&str, usize)> = HashMap::new();
    for network in networks {
        let title = &network.title;
        let mut macs = HashMap::new();
        for (name, span) in &network.ports {
            let Some((port, spans)) = draft.ports.iter().find(|(port, _)| port.name == *name) else {
                report.error(span, format!("port {name:?} in {title}: no such port; {}", known_ports(draft)));
                continue;
            };
            if let Some((user, line)) = used.get(name.as_str()) {
                let message = if *user == title.as_str() {
                    format!("port {name:?} in {title}: named twice")
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
                let message = format!("mac {mac} of port {name:?}: port {other:?} of the same {title} has it too");
                report.error(mac_span, message);
            }
        }
    }
    for (port, spans) in &draft.ports {
        if !used.contains_key(port.name.as_str()) {
            let message = format!("port {:?} is in no patch or bridge; what it receives will be dropped", port.name);
            report.warn(&spans.name, message);
        }
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

/// Every node that a port names exists and is there once, and one that no port names is worth a warning.
fn check_use_of_nodes(draft: &Draft, report: &mut Report<'_>) {
    for (port, spans) in &draft.ports {
        for (at, (name, span)) in port.nodes.iter().zip(&spans.nodes).enumerate() {
            let title = format!("node {name:?} in nodes of port {:?}", port.name);
            if port.nodes[..at].contains(name) {
                report.error(span, format!("{title}: named twice"));
            } else if !draft.node_sites.iter().any(|node| node.name == *name) {
                let names: Vec<_> = draft.node_sites.iter().map(|node| node.name.as_str()).collect();
                let known = match names.is_empty() {
                    true => "there is no section [node.NAME]".to_owned(),
                    false => format!("nodes are {}", names.join(", ")),
                };
                report.error(span, format!("{title}: no such node; {known}"));
            }
        }
    }
    for node in &draft.node_sites {
        if !draft.ports.iter().any(|(port, _)| port.nodes.contains(&node.name)) {
            report.warn(&node.span, format!("node {:?} is in nodes of no port; no packet will pass it", node.name));
        }
    }
}

/// A static entry names a port of its own bridge.
fn check_statics(draft: &Draft, report: &mut Report<'_>) {
    for (bridge, spans) in &draft.bridges {
        // A bridge without ports has an error of its own.
        if bridge.ports.is_empty() {
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

/// Two owners cannot have one path, however it is written; not to connect to either, where one frontend listens.
fn check_sockets(draft: &Draft, report: &mut Report<'_>) {
    let mut seen: HashMap<(PathBuf, Option<OsString>), (&str, usize)> = HashMap::new();
    for socket in &draft.sockets {
        let place = (folder_identity(&socket.path), socket.path.file_name().map(ToOwned::to_owned));
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

/// The folder without links and dots if it exists, else as it is written.
fn folder_identity(path: &Path) -> PathBuf {
    let folder = super::socket_path::folder(path);
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}
