//! Fuzz target: the text of a configuration.
//!
//! Invariants:
//! - An accepted configuration names only ports that exist, uses each once, and has its numbers in
//!   range.
//! - A refused configuration has errors. Each has a message, and a line that is in the text.

use std::collections::BTreeSet;

use crate::reached;
use straightline_config::{Config, Machine};

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    // As much of the input as is text.
    let text = data.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let machine = Machine::with_cpus(vec![0, 1, 2, 3], vec![0, 1]);
    match Config::parse("f.toml", text, &machine) {
        Ok(loaded) => {
            let config = loaded.config;
            let mut used = BTreeSet::new();
            let patched = config.patches.iter().flat_map(|patch| &patch.ports);
            for name in patched.chain(config.bridges.iter().flat_map(|bridge| &bridge.ports)) {
                assert!(config.port_index(name).is_some(), "{name} is no port");
                assert!(used.insert(name), "{name} is used twice");
            }
            for bridge in &config.bridges {
                assert!(bridge.limit as usize >= bridge.statics.len());
                assert!(bridge.statics.iter().all(|entry| bridge.ports.contains(&entry.port)));
                reached("a bridge");
            }
            for port in &config.ports {
                assert!((68..=9216).contains(&port.mtu));
                reached("a port");
            }
            assert!(config.switch.workers.iter().all(|cpu| [0, 1].contains(cpu)));
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in errors.0 {
                assert!(!error.message.is_empty());
                assert!(error.line.is_none_or(|line| line >= 1 && line <= text.matches('\n').count() + 1));
            }
            reached("an error");
        }
    }
}
