//! All keys of the configuration file, with their types, values and meanings.
//!
//! The file of each section lists its keys ([`Key`]) beside the code that reads them. Three things use
//! these lists: the check for unknown keys, `straightline check --explain`, and the JSON schema. Tests
//! compare the lists with the keys that the code reads, and with the tables of
//! `docs/configuration.md`.

mod explain;
mod schema;
#[cfg(test)]
pub(super) mod schema_tests;
#[cfg(test)]
mod tests;

use crate::SINGLE_SECTIONS;
use crate::key::Key;
use crate::sections::{firewall, group as groups_of_ports, kind, network, node, port, rate, switch, underlay};

pub use explain::{Explanation, UnknownKey, explain, explain_all};
pub use schema::schema;

/// The keys of one kind of section.
pub(super) struct Group {
    /// The first word of the section's name.
    pub(super) section: &'static str,
    /// The value of `kind` in such a section. `None`: the keys belong to all kinds, or the section
    /// has none.
    pub(super) kind: Option<&'static str>,
    pub(super) keys: Vec<Key>,
}

/// Returns all keys of all sections, in the order of the documents.
pub(super) fn groups() -> Vec<Group> {
    let group = |section, kind, keys: &[Key]| Group { section, kind, keys: keys.to_vec() };
    let of_ports = port::keys();
    let mut groups = vec![group("switch", None, switch::KEYS), group("port", None, &of_ports)];
    groups.extend(kind::keys().map(|(kind, keys)| Group { section: "port", kind: Some(kind), keys }));
    groups.extend([
        group("underlay", None, underlay::KEYS),
        group("patch", None, network::PATCH_KEYS),
        group("bridge", None, network::BRIDGE_KEYS),
        group("node", None, node::KEYS),
        group("node", Some("mirror"), node::MIRROR_KEYS),
        group("rate", None, rate::RATE_KEYS),
        group("group", None, groups_of_ports::GROUP_KEYS),
        group("set", None, groups_of_ports::SET_KEYS),
        group("firewall", None, firewall::KEYS),
    ]);
    groups
}

/// Returns the title of a section as the file has it.
fn title(section: &str) -> String {
    if SINGLE_SECTIONS.contains(&section) { format!("[{section}]") } else { format!("[{section}.NAME]") }
}
