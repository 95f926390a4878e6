//! Members of groups by bindings: the addresses that the file or a DHCP server tells for ports.
//!
//! A port whose IP addresses are not listed has those of its bindings:
//!
//! | binding | its port |
//! |---|---|
//! | of the file | the one whose MAC address it names |
//! | of a DHCP server behind a trusted port | the one behind which its station is |
//!
//! What a guest says of itself makes it a member of nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use straightline_fdb::Binding;
use straightline_firewall::{Definitions, Prefix};
use straightline_packet::PortIndex;

use super::control::{FirewallPort, FirewallSettings};
use crate::BindingTable;

/// The most such addresses of a port. A guest may ask a server for many.
const MOST: usize = 64;

/// The addresses that bindings tell for each port.
pub(super) type BoundAddresses = BTreeMap<PortIndex, BTreeSet<IpAddr>>;

/// Adds the addresses that the bindings of a bridge tell for ports with groups.
pub(super) fn add_bound(bound: &mut BoundAddresses, settings: &FirewallSettings, table: &BindingTable) {
    let here: BTreeSet<PortIndex> = table.ports().collect();
    let takers: Vec<_> = settings.ports.iter().filter(|port| port.takes_bound && here.contains(&port.index)).collect();
    if takers.is_empty() {
        return;
    }
    for binding in table.bindings().told() {
        for port in takers.iter().filter(|port| is_told_for(&binding, port)) {
            let addresses = bound.entry(port.index).or_default();
            if addresses.len() < MOST {
                addresses.insert(binding.key.ip);
            }
        }
    }
}

fn is_told_for(binding: &Binding, port: &FirewallPort) -> bool {
    let mac = binding.mac.as_u64();
    match binding.port {
        Some(index) => port.index == index,
        None => port.macs.iter().map(|prefix| prefix.masked()).any(|(bits, mask)| mac & mask == bits),
    }
}

/// Returns the meaning of names in rules, with these addresses as members of the groups of their ports.
pub(super) fn with_bound(settings: &FirewallSettings, bound: &BoundAddresses) -> Definitions {
    let mut definitions = settings.definitions.clone();
    for port in &settings.ports {
        let Some(addresses) = bound.get(&port.index).filter(|_| port.takes_bound) else { continue };
        for group in &port.groups.groups {
            let members = definitions.members.entry(group.clone()).or_default();
            members.extend(addresses.iter().map(|address| Prefix::exact(*address)));
        }
    }
    for members in definitions.members.values_mut() {
        members.sort_unstable();
        members.dedup();
    }
    definitions
}
