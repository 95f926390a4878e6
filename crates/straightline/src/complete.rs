//! Values that shells complete: names of ports and underlays, keys of the configuration, reasons of drops.
//!
//! The shell starts the program for each completion. So names are those of the running switch.

use std::ffi::OsStr;
use std::path::Path;

use clap_complete::engine::CompletionCandidate;
use straightline_api::{self as api, DEFAULT_PATH, Drops, Neighbours, Ports};
use straightline_config as config;

/// Environment variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "COMPLETE";

/// Returns the ports of the running switch.
pub(crate) fn ports(begin: &OsStr) -> Vec<CompletionCandidate> {
    // Without a switch there are no names.
    let ports: Ports = api::ask(Path::new(DEFAULT_PATH)).unwrap_or_default();
    matching(begin, ports.ports.into_iter().map(|port| (port.name, port.kind)))
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
