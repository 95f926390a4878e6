//! Groups of ports: ports and groups that have been left out, rules that never decide, and full shares of
//! connections.

use std::collections::BTreeMap;

use straightline_api::{ConnectionUse, GroupRules, Groups, Sets};
use straightline_firewall::{Definitions, Group, Origin, PortGroups, Prefix, Set, shadowed_rules};

use super::{Check, CheckOutcome};
use crate::facts::Facts;

/// The part of a share from which on it is nearly full.
const NEARLY: f64 = 0.9;

pub(super) const GROUPS: Check = Check {
    name: "groups",
    passes: "ports with groups have space for connections, and no port beside them is without",
    absent: "no port has groups",
    run: groups,
};

fn groups(facts: &Facts, outcome: &mut CheckOutcome) {
    let ports: Vec<_> = facts.running_ports(outcome).iter().map(|port| &port.port).collect();
    let Ok(switch) = &facts.switch else { return };
    let mut guarded: BTreeMap<&str, usize> = BTreeMap::new();
    for port in &ports {
        if let (Some(_), Some(joined)) = (&port.groups, &port.joined) {
            *guarded.entry(&joined.name).or_default() += 1;
        }
    }
    for port in ports {
        let Some(groups) = &port.groups else {
            let network = port.joined.as_ref().filter(|joined| guarded.contains_key(joined.name.as_str()));
            // A port that is trusted leads to a router: its packets come from everywhere.
            if let Some(network) = network.filter(|_| !port.trusted) {
                outcome.warn(
                    format!("port {} has no groups, and others of {} have", port.name, network.name),
                    "all its packets pass, whoever sends them",
                    "name its `groups`; or `trusted = true`, if the router is behind it",
                );
            }
            continue;
        };
        let before = switch.ports_before.iter().find(|before| before.name == port.name);
        let before = before.and_then(|before| before.groups.as_ref());
        let refuses = before.is_some_and(|before| groups.used.refused > before.used.refused);
        if refuses || is_nearly_full(&groups.used) {
            let ConnectionUse { connections, most, refused, evicted } = &groups.used;
            outcome.warn(
                format!("port {}: its share of connections is full: {connections} of {most}", port.name),
                format!("{refused} did not begin so far, {evicted} ended early"),
                format!(
                    "find out with `straightline connections {}` who holds so many, or raise `connections`",
                    port.name
                ),
            );
        } else {
            outcome.pass();
        }
    }
    groups_of_nobody(&switch.groups, outcome);
    shadowed(&switch.groups, &switch.sets, outcome);
}

/// Warns of groups of clients that no port has. Of those in the file, the check of the file warns.
fn groups_of_nobody(groups: &Groups, outcome: &mut CheckOutcome) {
    let of_clients = groups.groups.iter().filter(|group| group.owner == "api");
    for group in of_clients.filter(|group| !groups.ports.iter().any(|port| port.groups.contains(&group.name))) {
        outcome.warn(
            format!("group {} of a client is in groups of no port", group.name),
            "its rules decide nothing",
            format!(
                "give it to a port with `straightline firewall set`, or delete it with `straightline firewall group {} \
                 --delete`",
                group.name
            ),
        );
    }
}

/// Warns of rules in groups of clients that an earlier rule of the group hides. Of those in the file, the check of
/// the file warns.
fn shadowed(groups: &Groups, sets: &Sets, outcome: &mut CheckOutcome) {
    let definitions = definitions(groups, sets);
    for group in groups.groups.iter().filter(|group| group.owner == "api") {
        let alone = PortGroups { groups: vec![group.name.clone()], source_check: true, ..PortGroups::default() };
        // A client may delete a set between both answers.
        for found in shadowed_rules(&alone, &definitions).unwrap_or_default() {
            let (Origin::Group(..), Some(by)) = (&found.rule.origin, found.by) else { continue };
            outcome.warn(
                format!("rule {:?} of group {} never decides", found.rule.text, group.name),
                format!("{by} is before it, and decides about all its packets"),
                format!("remove it, or move it up, with `straightline firewall group {}`", group.name),
            );
        }
    }
}

/// Returns the meaning of the names in rules, as the switch has told it.
fn definitions(groups: &Groups, sets: &Sets) -> Definitions {
    let parsed = |group: &GroupRules| {
        let [inbound, outbound] =
            [&group.inbound, &group.outbound].map(|rules| rules.iter().map(String::as_str).collect::<Vec<_>>());
        Group::parse(&group.name, &inbound, &outbound).ok()
    };
    let mut definitions = Definitions::new(groups.groups.iter().filter_map(parsed), []);
    for set in &sets.sets {
        let prefixes: Vec<Prefix> = set.prefixes.iter().filter_map(|prefix| prefix.parse().ok()).collect();
        if let Some(name) = set.name.strip_prefix("set:") {
            let patterns = set.prefixes.iter().filter_map(|pattern| pattern.parse().ok()).collect();
            definitions.sets.insert(name.to_owned(), Set { name: name.to_owned(), prefixes, patterns });
        } else if let Some(name) = set.name.strip_prefix("group:") {
            definitions.members.insert(name.to_owned(), prefixes);
        }
    }
    definitions
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with a threshold")]
fn is_nearly_full(used: &ConnectionUse) -> bool {
    used.connections as f64 >= NEARLY * used.most as f64
}
