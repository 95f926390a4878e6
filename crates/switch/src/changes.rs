//! The changes of a reload, as operators read them.

use std::collections::HashSet;

use crate::api::{Change, ChangeKind, Changed};
use crate::config::{BridgeConfig, Config, PatchConfig, PortConfig, PortRate, note, rate_text};
use crate::plan::Step;

/// The most names in one list of a message.
const MOST_NAMES: usize = 8;

/// Describes a step from one configuration to another.
pub(crate) fn describe(step: &Step, old: &Config, new: &Config) -> Change {
    use ChangeKind::{Bridge, Node, Patch, Port, Underlay};
    use Changed::{Added, Changed as Other, Moved, Remade, Removed};
    let (kind, name, change, detail) = match step {
        Step::SwitchKey(key) => {
            let detail = format!("packets are copied by {} now", new.switch.level());
            return Change { kind: ChangeKind::Switch, name: (*key).to_owned(), change: Other, detail };
        }
        Step::PortAdded(at) => (Port, &new.ports[*at].name, Added, String::new()),
        Step::PortRemoved { old: at } => (Port, &old.ports[*at].name, Removed, String::new()),
        Step::PortRemade { new: at, why, .. } => {
            let guest = match new.ports[*at].kind.as_tunnel() {
                Some(_) => "",
                None => "; its guest must connect again",
            };
            (Port, &new.ports[*at].name, Remade, format!("{why}{guest}"))
        }
        Step::PortMoved { new: at, permissions, network, .. } => {
            let who = permissions.then(|| "changed permissions".to_owned());
            let to = network.as_ref().map(|network| format!("now in {network}"));
            let parts: Vec<_> = to.into_iter().chain(who).collect();
            (Port, &new.ports[*at].name, if network.is_some() { Moved } else { Other }, parts.join(", "))
        }
        Step::PortNodes { new: at } => {
            let port = &new.ports[*at];
            let list = |names: &[String]| if names.is_empty() { "no node".to_owned() } else { names.join(", ") };
            let old = old.port_index(&port.name).map(|at| &old.ports[at]);
            let mut parts = Vec::new();
            if old.is_some_and(|old| old.nodes != port.nodes) {
                parts.push(format!("its packets pass {} now", list(&port.nodes)));
            }
            if old.is_some_and(|old| old.egress_nodes != port.egress_nodes) {
                parts.push(format!("packets to it pass {} now", list(&port.egress_nodes)));
            }
            (Port, &port.name, Other, parts.join(", "))
        }
        Step::PortSourceCheck { new: at } => {
            let port = &new.ports[*at];
            let detail = match &port.source_check {
                Some(_) => "its packets are compared with its addresses",
                None => "its packets may claim any address",
            };
            (Port, &port.name, Other, detail.to_owned())
        }
        Step::PortClasses { old: was, new: at } => {
            let was = &old.ports[*was];
            let port = &new.ports[*at];
            let dscp = |port: &PortConfig| port.dscp.map_or_else(|| "none".to_owned(), |dscp| dscp.to_string());
            let set = |port: &PortConfig| {
                if port.expedited.is_empty() { "none".to_owned() } else { port.expedited.to_string() }
            };
            let both = [("dscp", dscp(was), dscp(port)), ("expedited", set(was), set(port))];
            let changed = both.into_iter().filter(|(_, was, is)| was != is);
            let parts: Vec<_> = changed.map(|(key, was, is)| format!("{key} {was} is now {is}")).collect();
            (Port, &port.name, Other, parts.join("; "))
        }
        Step::PortRate { old: was, new: at, key } => {
            let text = |config: &Config, port: &PortConfig| match port.rate(key) {
                Some(PortRate::Shared(name)) => {
                    format!("{name} ({})", rate_text(&config.limits(&PortRate::Shared(name.clone()))))
                }
                Some(PortRate::Own(limits)) => rate_text(limits),
                Some(PortRate::Live(limits)) => format!("{} (set by a command)", rate_text(limits)),
                None => "none".to_owned(),
            };
            let port = &new.ports[*at];
            let detail = format!("{key} {} is now {}", text(old, &old.ports[*was]), text(new, port));
            (Port, &port.name, Other, detail)
        }
        Step::PortGroups { new: at } => {
            let port = &new.ports[*at];
            let groups = if port.groups.is_empty() {
                "it has no groups now: all its packets pass".to_owned()
            } else {
                format!("its groups are {}, with {} connections", port.groups.join(", "), port.connections)
            };
            let trusted = if port.trusted { "; it is trusted" } else { "" };
            let limit = match port.message_limit {
                Some(PortConfig::DEFAULT_MESSAGE_LIMIT) => String::new(),
                Some(limit) => format!("; message-limit is {limit}"),
                None => "; message-limit is off".to_owned(),
            };
            (Port, &port.name, Other, format!("{groups}{trusted}{limit}"))
        }
        Step::Group(name, change) => {
            let detail = String::new();
            return Change { kind: ChangeKind::Group, name: name.clone(), change: *change, detail };
        }
        Step::Set(name, change) => {
            let detail = String::new();
            return Change { kind: ChangeKind::Set, name: name.clone(), change: *change, detail };
        }
        Step::Firewall => {
            let detail = "timeouts and windows of all connections, or `nat64`".to_owned();
            return Change { kind: ChangeKind::Switch, name: "firewall".to_owned(), change: Other, detail };
        }
        Step::PortShare { new: at } => {
            let port = &new.ports[*at];
            (Port, &port.name, Other, format!("its share of a worker is {} now", port.share))
        }
        Step::PortRules { new: at } => {
            let port = &new.ports[*at];
            let detail = port.rules.vlans.as_ref().map_or_else(
                || "it has other rules in its bridge, and no VLANs of its own".to_owned(),
                |vlans| format!("it has other rules in its bridge; its VLANs are {}", vlans.all()),
            );
            (Port, &port.name, Other, detail)
        }
        Step::UnderlayAdded(at) => (Underlay, &new.underlays[*at].name, Added, new.underlays[*at].port.clone()),
        Step::UnderlayRemoved { old: at } => (Underlay, &old.underlays[*at].name, Removed, String::new()),
        Step::UnderlayChanged { new: at, why, .. } => {
            (Underlay, &new.underlays[*at].name, Other, format!("{why}; it asks its neighbours again"))
        }
        Step::PatchAdded(at) => (Patch, &new.patches[*at].name, Added, new.patches[*at].ports.join(", ")),
        Step::PatchRemoved { old: at } => (Patch, &old.patches[*at].name, Removed, String::new()),
        Step::PatchChanged { old: was, new: at } => {
            let patch = &new.patches[*at];
            (Patch, &patch.name, Other, patch_change(&old.patches[*was], patch))
        }
        Step::BridgeAdded(at) => (Bridge, &new.bridges[*at].name, Added, list(&new.bridges[*at].ports)),
        Step::BridgeRemoved { old: at } => (Bridge, &old.bridges[*at].name, Removed, String::new()),
        Step::BridgeChanged { old: was, new: at } => {
            let bridge = &new.bridges[*at];
            (Bridge, &bridge.name, Other, bridge_change(&old.bridges[*was], bridge))
        }
        Step::NodeAdded(at) => (Node, &new.nodes[*at].name, Added, new.nodes[*at].describe()),
        Step::NodeRemoved { old: at } => (Node, &old.nodes[*at].name, Removed, String::new()),
        Step::NodeChanged { new: at, .. } => (Node, &new.nodes[*at].name, Other, new.nodes[*at].describe()),
    };
    Change { kind, name: name.clone(), change, detail }
}

/// Describes the changes of a patch.
fn patch_change(old: &PatchConfig, new: &PatchConfig) -> String {
    let mut parts = members(&old.ports, &new.ports);
    note(&mut parts, "full", old.full.as_str(), new.full.as_str());
    parts.join(", ")
}

/// Describes the changes of a bridge. It does not name what stays: a bridge may have a thousand
/// ports.
fn bridge_change(old: &BridgeConfig, new: &BridgeConfig) -> String {
    let mut parts = members(&old.ports, &new.ports);
    note(&mut parts, "ageing", old.ageing, new.ageing);
    note(&mut parts, "limit", old.limit, new.limit);
    note(&mut parts, "snooping", old.snooping, new.snooping);
    if old.statics != new.statics {
        parts.push("its static addresses have changed".to_owned());
    }
    if old.flows != new.flows {
        parts.push("its flows have changed".to_owned());
    }
    parts.join(", ")
}

/// Describes the ports that have joined and left.
fn members(old: &[String], new: &[String]) -> Vec<String> {
    let beside = |ports: &[String], others: &[String]| -> Vec<String> {
        let others: HashSet<_> = others.iter().collect();
        ports.iter().filter(|port| !others.contains(port)).cloned().collect()
    };
    let joined = beside(new, old);
    let left = beside(old, new);
    let mut parts = Vec::new();
    if !joined.is_empty() {
        parts.push(format!("{} joined", list(&joined)));
    }
    if !left.is_empty() {
        parts.push(format!("{} left", list(&left)));
    }
    if parts.is_empty() && old != new {
        parts.push("its ports have another order".to_owned());
    }
    parts
}

/// Lists names, at most [`MOST_NAMES`].
fn list(names: &[String]) -> String {
    let (first, more) = names.split_at(names.len().min(MOST_NAMES));
    match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WhenFull;

    fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|n| format!("p{n}")).collect()
    }

    fn bridge(ports: Vec<String>) -> BridgeConfig {
        BridgeConfig { limit: 16, ..BridgeConfig::new("lan", ports) }
    }

    #[test]
    fn a_line_names_what_changed_and_not_what_stays() {
        let old = bridge(names(0..1000));
        let changed = |new: &BridgeConfig| {
            let old = Config { bridges: vec![old.clone()], ..Config::default() };
            let new = Config { bridges: vec![new.clone()], ..Config::default() };
            describe(&Step::BridgeChanged { old: 0, new: 0 }, &old, &new).to_string()
        };
        assert_eq!(changed(&bridge(names(1..1000))), "bridge \"lan\" changed: p0 left");
        let new = BridgeConfig { ageing: 60, ..bridge(names(1..1002)) };
        assert_eq!(changed(&new), "bridge \"lan\" changed: p1000, p1001 joined, p0 left, ageing 300 is now 60");
        assert_eq!(
            changed(&bridge(names(990..2000))),
            "bridge \"lan\" changed: p1000, p1001, p1002, p1003, p1004, p1005, p1006, p1007 and 992 more joined, p0, p1, \
             p2, p3, p4, p5, p6, p7 and 982 more left"
        );
        let turned = bridge(names(0..1000).into_iter().rev().collect());
        assert_eq!(changed(&turned), "bridge \"lan\" changed: its ports have another order");
    }

    #[test]
    fn a_patch_names_its_new_port_and_how_it_treats_full_rings() {
        let patch = |b: &str, full| PatchConfig { name: "x".to_owned(), ports: ["a".to_owned(), b.to_owned()], full };
        let old = patch("b", WhenFull::Drop);
        assert_eq!(patch_change(&old, &patch("c", WhenFull::Drop)), "c joined, b left");
        assert_eq!(patch_change(&old, &patch("b", WhenFull::Wait)), "full drop is now wait");
    }
}
