//! Groups and sets: their names, their ports, and the addresses of their members.

use std::collections::{HashMap, HashSet};

use straightline_firewall::{
    Action, Definitions, Direction, Origin, Peer, PolicyError, PortGroups, Rule, Service, shadowed_rules,
};

use super::network_of;
use crate::diagnostic::{Findings, Span};
use crate::sections::port::PortSpans;
use crate::{Draft, PortConfig, PortKind};

pub(super) fn check(draft: &Draft, report: &mut Findings<'_>) {
    for (port, spans) in &draft.ports {
        check_names(draft, port, spans, report);
        check_place(draft, port, spans, report);
        check_message_limit(draft, port, spans, report);
    }
    check_peers(draft, report);
    check_members(draft, report);
    check_use(draft, report);
    // A name without meaning has an error, and the rules mean nothing without it.
    if !report.has_errors() {
        check_rules(draft, report);
    }
}

/// Checks that each group of a port exists, and is named once.
fn check_names(draft: &Draft, port: &PortConfig, spans: &PortSpans, report: &mut Findings<'_>) {
    for (at, (name, span)) in port.groups.iter().zip(&spans.groups.groups).enumerate() {
        let title = format!("group {name:?} of port {:?}", port.name);
        if port.groups[..at].contains(name) {
            report.error(span, format!("{title}: named twice; name it once"));
        } else if !has_group(draft, name) && !draft.unread.may_have("group", name) {
            report.error(span, format!("{title}: no such group; {}", known_groups(draft)));
        }
    }
}

fn has_group(draft: &Draft, name: &str) -> bool {
    draft.groups.iter().any(|(group, _)| group.name == name) || is_profile(name)
}

fn is_profile(name: &str) -> bool {
    straightline_firewall::profiles().iter().any(|profile| profile.name == name)
}

fn known_groups(draft: &Draft) -> String {
    let own = draft.groups.iter().map(|(group, _)| &*group.name);
    let profiles = straightline_firewall::profiles().iter().map(|profile| &*profile.name);
    format!("groups and profiles are {}", own.chain(profiles).collect::<Vec<_>>().join(", "))
}

/// Checks that only ports of guests have a limit of messages. Warns of an interface of the machine that has
/// the limit of one guest, because many stations may be behind it.
fn check_message_limit(draft: &Draft, port: &PortConfig, spans: &PortSpans, report: &mut Findings<'_>) {
    let carries = draft.underlays.iter().any(|(underlay, _)| underlay.port == port.name);
    let Some(span) = &spans.groups.message_limit else {
        let is_uplink = matches!(port.kind, PortKind::AfPacket(_) | PortKind::AfXdp(_));
        if is_uplink && !carries && port.groups.is_empty() && port.is_of_guest() && is_beside_groups(draft, port) {
            let message = format!(
                "port {:?}: all stations behind it share the limit of messages of one guest, because ports of its \
                 network have groups; add message-limit = \"off\", or trusted = true if routers are behind it",
                port.name
            );
            report.warn(&spans.name, message);
        }
        return;
    };
    if carries || !port.is_of_guest() {
        let why = "only ports of guests have a limit, and this one is trusted, a trunk or a tunnel, or carries an \
                   underlay; remove the key";
        report.error(span, format!("message-limit of port {:?}: {why}", port.name));
    }
}

/// Returns whether a port of the same network has groups.
fn is_beside_groups(draft: &Draft, port: &PortConfig) -> bool {
    let Some((network, _)) = network_of(draft, &port.name) else { return false };
    let mut guarded = draft.ports.iter().filter(|(port, _)| !port.groups.is_empty());
    guarded.any(|(guarded, _)| network.ports.iter().any(|(name, _)| *name == guarded.name))
}

/// Checks that a port with groups or with `trusted` is in a patch or bridge.
fn check_place(draft: &Draft, port: &PortConfig, spans: &PortSpans, report: &mut Findings<'_>) {
    let keys = [("groups", &spans.groups.list), ("trusted", &spans.groups.trusted)];
    for (key, span) in keys {
        let Some(span) = span else { continue };
        let carried = draft.underlays.iter().find(|(underlay, _)| underlay.port == port.name);
        let why = if let Some((underlay, _)) = carried {
            format!("it carries underlay {:?}; name {key} in its tunnels", underlay.name)
        } else if network_of(draft, &port.name).is_none() && draft.unread.is_empty() {
            "it is in no patch or bridge, so nothing passes it; remove the key, or name the port there".to_owned()
        } else {
            continue;
        };
        report.error(span, format!("{key} of port {:?}: {why}", port.name));
    }
    let speaks = port.trusted || port.source_check.is_some() || spans.groups.has_wrong_check;
    if let Some(span) = spans.groups.list.as_ref().filter(|_| !speaks) {
        let message = format!(
            "groups of port {:?}: without source-check, its ARP and its neighbour discovery drop, so others do not find \
             it; add source-check = \"mac\" and mac",
            port.name
        );
        report.warn(span, message);
    }
}

/// A rule of the file.
struct RuleSite<'a> {
    group: &'a str,
    rule: &'a Rule,
    span: &'a Span,
}

impl RuleSite<'_> {
    /// Returns the key and the group of the rule, as messages name them.
    fn title(&self) -> String {
        format!("{:?} of group {:?}", self.rule.direction.as_str(), self.group)
    }
}

/// Returns all rules, in the file's order of groups.
fn rules(draft: &Draft) -> impl Iterator<Item = RuleSite<'_>> {
    draft.groups.iter().flat_map(|(group, spans)| {
        let sites = move |direction| group.rules(direction).iter().zip(spans.rules(direction));
        let all = Direction::BOTH.into_iter().flat_map(sites);
        all.map(move |(rule, span)| RuleSite { group: &group.name, rule, span })
    })
}

/// Checks that each group and set in a rule exists.
fn check_peers(draft: &Draft, report: &mut Findings<'_>) {
    let known_sets = straightline_firewall::known_sets().iter().map(|set| &*set.name);
    let sets: Vec<_> = draft.sets.iter().map(|(set, _)| &*set.name).chain(known_sets).collect();
    for site in rules(draft) {
        for peer in &site.rule.peers {
            let problem = match peer {
                Peer::Group(name) if !has_group(draft, name) && !draft.unread.may_have("group", name) => {
                    format!("no such group; {}", known_groups(draft))
                }
                Peer::Set(name) if !sets.contains(&&**name) && !draft.unread.may_have("set", name) => {
                    format!("no such set; sets are {}", sets.join(", "))
                }
                _ => continue,
            };
            report.error(site.span, format!("{peer} in {}: {problem}", site.title()));
        }
    }
}

/// Checks that the addresses of ports are known whose group a rule names.
fn check_members(draft: &Draft, report: &mut Findings<'_>) {
    let mut naming = HashMap::new();
    for site in rules(draft) {
        for group in site.rule.groups() {
            naming.entry(group).or_insert_with(|| format!("{} (line {})", site.title(), report.line(site.span)));
        }
    }
    for (port, spans) in &draft.ports {
        for (name, span) in port.groups.iter().zip(&spans.groups.groups) {
            let Some(site) = naming.get(name.as_str()) else { continue };
            let place = format!("group {name:?} of port {:?}: a rule in {site} names it", port.name);
            match &port.source_check {
                // It has an error already.
                None if spans.groups.has_wrong_check => {}
                None => {
                    let message = format!(
                        "{place}, so the port's addresses must be checked; add source-check = \"mac\", mac and \
                         allowed-ips"
                    );
                    report.error(span, message);
                }
                Some(check) if check.ips.is_none() && !tells_addresses(draft, &port.name) => {
                    let message = format!(
                        "{place}, but nothing tells the port's addresses; add allowed-ips, or give its bridge \
                         neighbour-suppression = true, and trusted = true to the port of its DHCP server"
                    );
                    report.warn(span, message);
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns whether bindings may tell the addresses of a port: from its bridge's DHCP server, or the file.
fn tells_addresses(draft: &Draft, port: &str) -> bool {
    let mut bridges = draft.bridges.iter().map(|(bridge, _)| bridge);
    let bridge = bridges.find(|bridge| bridge.ports.iter().any(|member| member == port));
    let is_trusted = |name: &String| draft.ports.iter().any(|(member, _)| member.name == *name && member.trusted);
    bridge.is_some_and(|bridge| {
        bridge.neighbour_suppression && (!bridge.bindings.is_empty() || bridge.ports.iter().any(is_trusted))
    })
}

/// Warns of groups that no port has, and of sets that no rule names.
fn check_use(draft: &Draft, report: &mut Findings<'_>) {
    for (group, spans) in &draft.groups {
        if !draft.ports.iter().any(|(port, _)| port.groups.contains(&group.name)) {
            report
                .warn(&spans.name, format!("group {:?} is in groups of no port; its rules decide nothing", group.name));
        }
    }
    let named: HashSet<_> = draft.groups.iter().flat_map(|(group, _)| group.all_rules()).flat_map(Rule::sets).collect();
    for (set, span) in &draft.sets {
        if !named.contains(&*set.name) {
            report.warn(span, format!("set {:?} is in no rule", set.name));
        }
    }
}

/// Warns of rules that never decide, and reports groups that are too large.
fn check_rules(draft: &Draft, report: &mut Findings<'_>) {
    let definitions = draft.definitions();
    for (group, spans) in &draft.groups {
        let alone = PortGroups { groups: vec![group.name.clone()], source_check: true, ..PortGroups::default() };
        for shadowed in shadowed_rules(&alone, &definitions).unwrap_or_default() {
            let Origin::Group(_, number) = shadowed.rule.origin else { continue };
            let Some(span) = spans.rules(shadowed.rule.direction).get(number - 1) else { continue };
            let Some(by) = shadowed.by else { continue };
            let title =
                format!("{:?} in {:?} of group {:?}", shadowed.rule.text, shadowed.rule.direction.as_str(), group.name);
            report.warn(span, format!("{title} never decides: {by} is before it; remove it, or move it up"));
        }
    }
    let mut seen = HashSet::new();
    for (port, spans) in &draft.ports {
        let Some(groups) = port.port_groups() else { continue };
        let Some(span) = spans.groups.list.as_ref().filter(|_| seen.insert(groups.clone())) else { continue };
        for rule in stateless_beside_out(&port.groups, &definitions) {
            let message = format!(
                "groups of port {:?}: {:?} lets its guest send UDP from these ports to these peers, unless a rule \
                 of `out` denies it; name few peers, or allow the answers in `out`",
                port.name,
                rule.to_string()
            );
            report.warn(span, message);
        }
        if let Err(error @ PolicyError::TooMany(_)) = groups.check(&definitions) {
            report.error(span, format!("groups of port {:?}: {error}; use fewer addresses in sets", port.name));
        }
    }
}

/// Returns the rules with `stateless` of these groups, if their `out` does not allow all UDP.
fn stateless_beside_out<'d>(groups: &[String], definitions: &'d Definitions) -> Vec<&'d Rule> {
    let groups = || groups.iter().filter_map(|name| definitions.group(name));
    let allows_all = groups().flat_map(|group| group.rules(Direction::Out)).any(|rule| {
        let is_any = rule.peers.is_empty() || rule.peers == [Peer::Any];
        let has_udp = match &rule.service {
            Service::Any => true,
            Service::Udp(ports) => ports.is_empty(),
            _ => false,
        };
        rule.action == Action::Allow && is_any && has_udp
    });
    if allows_all {
        return Vec::new();
    }
    groups().flat_map(|group| group.rules(Direction::In)).filter(|rule| rule.stateless).collect()
}

impl Draft {
    /// Returns the meaning of the names in rules.
    fn definitions(&self) -> Definitions {
        let groups = self.groups.iter().map(|(group, _)| group.clone());
        let sets = self.sets.iter().map(|(set, _)| set.named());
        crate::sections::types::definitions(groups, sets, self.ports.iter().map(|(port, _)| port))
            .with_nat64(&self.firewall.nat64)
    }
}
