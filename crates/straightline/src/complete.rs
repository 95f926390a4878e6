//! Values that shells complete: names of ports, bridges and underlays, keys of the configuration, reasons of drops.
//!
//! The shell starts the program for each completion. So names are those of the running switch.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use clap_complete::engine::CompletionCandidate;
use straightline_api::{self as api, DEFAULT_PATH, Drops, JoinedKind, Neighbours, Ports};
use straightline_config as config;

/// Environment variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "COMPLETE";

/// Returns the ports of the running switch.
pub(crate) fn ports(begin: &OsStr) -> Vec<CompletionCandidate> {
    // Without a switch there are no names.
    let ports: Ports = api::ask(Path::new(DEFAULT_PATH)).unwrap_or_default();
    matching(begin, ports.ports.into_iter().map(|port| (port.name, port.kind)))
}

/// Returns the bridges of the running switch that have ports.
pub(crate) fn bridges(begin: &OsStr) -> Vec<CompletionCandidate> {
    let ports: Ports = api::ask(Path::new(DEFAULT_PATH)).unwrap_or_default();
    matching(begin, bridge_names(ports).into_iter().map(|name| (name, String::new())))
}

/// Returns the bridges that these ports have joined, by name.
fn bridge_names(ports: Ports) -> BTreeSet<String> {
    let joined = ports.ports.into_iter().filter_map(|port| port.joined);
    joined.filter(|joined| joined.kind == JoinedKind::Bridge).map(|joined| joined.name).collect()
}

/// Returns the underlays of the running switch. Each has an address of its own.
pub(crate) fn underlays(begin: &OsStr) -> Vec<CompletionCandidate> {
    let neighbours: Neighbours = api::ask(Path::new(DEFAULT_PATH)).unwrap_or_default();
    let mut names: Vec<_> = neighbours.addresses.into_iter().map(|own| (own.underlay, String::new())).collect();
    names.dedup();
    matching(begin, names.into_iter())
}

/// Returns the reasons for which the running switch has dropped packets.
pub(crate) fn reasons(begin: &OsStr) -> Vec<CompletionCandidate> {
    let drops: Drops = api::ask(Path::new(DEFAULT_PATH)).unwrap_or_default();
    let mut reasons: Vec<_> = drops.drops.into_iter().map(|drop| (drop.reason, drop.meaning)).collect();
    reasons.sort();
    reasons.dedup();
    matching(begin, reasons.into_iter())
}

/// Returns the sections and keys of configuration files.
pub(crate) fn keys(begin: &OsStr) -> Vec<CompletionCandidate> {
    let mut keys: Vec<_> = config::explain_all().iter().map(config::Explanation::to_json).collect();
    let text = |key: &serde_json::Value, field: &str| key[field].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<_> = keys.iter().map(|key| (text(key, "section"), String::new())).collect();
    names.extend(keys.drain(..).map(|key| (text(&key, "key"), text(&key, "meaning"))));
    names.sort();
    names.dedup_by(|a, b| a.0 == b.0);
    matching(begin, names.into_iter())
}

/// Returns the names that begin so, with their help.
fn matching(begin: &OsStr, names: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    let names = names.filter(|(name, _)| name.starts_with(&*begin));
    names.map(|(name, help)| CompletionCandidate::new(name).help((!help.is_empty()).then(|| help.into()))).collect()
}

#[cfg(test)]
mod tests {
    use straightline_api::{Joined, Port};

    use super::*;

    #[test]
    fn bridges_are_named_once_and_patches_are_none() {
        let port = |kind, name: &str| {
            let joined = Some(Joined { kind, name: name.to_owned() });
            Port { joined, ..Port::default() }
        };
        let ports = vec![
            port(JoinedKind::Bridge, "lan"),
            port(JoinedKind::Patch, "p"),
            port(JoinedKind::Bridge, "lan"),
            port(JoinedKind::Bridge, "dmz"),
            Port::default(),
        ];
        let names = bridge_names(Ports { ports });
        assert!(names.iter().eq(["dmz", "lan"]));
        let offered = matching(OsStr::new("l"), names.into_iter().map(|name| (name, String::new())));
        assert_eq!(offered.iter().map(CompletionCandidate::get_value).collect::<Vec<_>>(), ["lan"]);
    }
}
