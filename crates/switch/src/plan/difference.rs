//! The steps from one configuration to another.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use straightline_api::{Changed, JoinedKind};

use super::{Before, Plan};
use crate::config::{Config, Mac, PortConfig, SwitchConfig, UnderlayConfig, note};

/// One change. Indexes are into the new configuration's list, `old` ones into the old one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A key of `[switch]` that workers take up at once has another value.
    SwitchKey(&'static str),
    /// A port is added.
    PortAdded(usize),
    /// A port is removed.
    PortRemoved { old: usize },
    /// A port is closed and opened again, because what its guest negotiated or connected to has
    /// changed.
    PortRemade { old: usize, new: usize, why: String },
    /// A port stays open and its guest connected; its workers, its network or its permissions
    /// change.
    PortMoved { old: usize, new: usize, permissions: bool, network: Option<String> },
    /// Packets from or to a port pass other nodes.
    PortNodes { new: usize },
    /// A port's packets are checked against other addresses, or no longer checked.
    PortSourceCheck { new: usize },
    /// A port has another share of its worker's time.
    PortShare { new: usize },
    /// The class of service that its packets get changes, or those that pass before others.
    PortClasses { old: usize, new: usize },
    /// A port has other groups, another share of connections or limit of messages, or is trusted or no longer.
    PortGroups { new: usize },
    /// A port has another limit for this key: `rate-in` or `rate-out`.
    PortRate { old: usize, new: usize, key: &'static str },
    /// A port has other VLANs or other rules in its bridge.
    PortRules { new: usize },
    /// An underlay is added.
    UnderlayAdded(usize),
    /// An underlay is removed.
    UnderlayRemoved { old: usize },
    /// An underlay has other settings or another port. It forgets its neighbours.
    UnderlayChanged { old: usize, new: usize, why: String },
    /// A patch is added.
    PatchAdded(usize),
    /// A patch is removed.
    PatchRemoved { old: usize },
    /// A patch has other ports, or treats packets for a full destination differently.
    PatchChanged { old: usize, new: usize },
    /// A bridge is added.
    BridgeAdded(usize),
    /// A bridge is removed, and its learned addresses are forgotten.
    BridgeRemoved { old: usize },
    /// A bridge has other ports or rules. It keeps the learned addresses that are still valid.
    BridgeChanged { old: usize, new: usize },
    /// A node is added.
    NodeAdded(usize),
    /// A node is removed.
    NodeRemoved { old: usize },
    /// A node is replaced, and its state is forgotten.
    NodeChanged { old: usize, new: usize },
    /// A group is added, removed or has other rules.
    Group(String, Changed),
    /// A set is added, removed or has other addresses.
    Set(String, Changed),
    /// Timeouts or other settings of connections change.
    Firewall,
}

/// Returns the keys of `[switch]` that differ and are read only at the start.
pub(crate) fn needs_restart(old: &SwitchConfig, new: &SwitchConfig) -> Option<String> {
    let keys = [
        ("workers", old.workers != new.workers),
        ("idle", old.idle != new.idle),
        ("copies", old.copies != new.copies),
        ("api", old.api != new.api),
        ("api-group", old.api_group != new.api_group),
        ("api-perms", old.api_perms != new.api_perms),
        ("api-read-only", old.api_read_only != new.api_read_only),
        ("api-read-only-group", old.api_read_only_group != new.api_read_only_group),
        ("api-read-only-perms", old.api_read_only_perms != new.api_read_only_perms),
        ("sandbox", old.sandbox != new.sandbox),
    ];
    let changed: Vec<_> = keys.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key).collect();
    if !changed.is_empty() {
        return Some(changed.join(", "));
    }
    let applied = SwitchConfig { simd: new.simd, copy: new.copy, ..old.clone() };
    (applied != *new).then(|| "a key".to_owned())
}

/// Returns why a port must be closed and opened again to get a new configuration under the same
/// name. Returns `None` if its guest can stay connected. Ports are indexes into the ports of their
/// configurations.
pub(super) fn remade((old_config, old): (&Config, usize), (config, new): (&Config, usize)) -> Option<String> {
    let old = &old_config.ports[old];
    let new = &config.ports[new];
    let PortConfig {
        name: _,
        kind,
        mtu,
        mac,
        nodes: _,
        egress_nodes: _,
        source_check: _,
        rules: _,
        share: _,
        dscp: _,
        expedited: _,
        rate_in: _,
        rate_out: _,
        groups: _,
        connections: _,
        trusted: _,
        message_limit: _,
        move_limit: _,
    } = old;
    let mut differences = Vec::new();
    note(&mut differences, "mtu", *mtu, new.mtu);
    let text = |mac: Option<Mac>| mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
    note(&mut differences, "mac", text(*mac), text(new.mac));
    differences.extend(kind.differs(&new.kind));
    if let (Some(old), Some(new)) = (kind.as_tunnel(), new.kind.as_tunnel())
        && old.underlay == new.underlay
    {
        let underlays = (old_config.underlay_index(&old.underlay), config.underlay_index(&new.underlay));
        let is_other = match underlays {
            (Some(old), Some(new)) => underlay_remade((old_config, old), (config, new)).is_some(),
            (old, new) => old.is_some() != new.is_some(),
        };
        if is_other {
            differences.push(format!("underlay {:?} has changed", new.underlay));
        }
    }
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Returns why an underlay must be made anew to get a new configuration under the same name, or
/// `None` if it can stay. Underlays are indexes into the underlays of their configurations.
fn underlay_remade((old_config, old): (&Config, usize), (config, new): (&Config, usize)) -> Option<String> {
    let old = &old_config.underlays[old];
    let new = &config.underlays[new];
    let UnderlayConfig { name: _, port, addresses, gateways, vlan, mtu, mac, neighbours, path_mtu } = old;
    let mut differences = Vec::new();
    let text = |vlan: Option<u16>| vlan.map_or_else(|| "none".to_owned(), |vlan| vlan.to_string());
    note(&mut differences, "port", port, &new.port);
    note(&mut differences, "vlan", text(*vlan), text(new.vlan));
    note(&mut differences, "mtu", *mtu, new.mtu);
    for (key, differs) in [
        ("address", *addresses != new.addresses),
        ("gateway", *gateways != new.gateways),
        ("mac", *mac != new.mac),
        ("neighbours", *neighbours != new.neighbours),
        ("path-mtu", *path_mtu != new.path_mtu),
    ] {
        if differs {
            differences.push(format!("{key} has changed"));
        }
    }
    // A port that is made anew has another index.
    if let (true, Some(old), Some(new)) = (*port == new.port, old_config.port_index(port), config.port_index(port))
        && old_config.ports[old].kind.as_tunnel().is_none()
        && remade((old_config, old), (config, new)).is_some()
    {
        differences.push(format!("port {port:?} is made anew"));
    }
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Returns all changes, ports first.
pub(crate) fn difference(before: Before<'_>, config: &Config, plan: &Plan) -> Vec<Step> {
    let old_config = before.config;
    let old_switch = &old_config.switch;
    let keys = [("simd", old_switch.simd != config.switch.simd), ("copy", old_switch.copy != config.switch.copy)];
    let mut steps: Vec<_> =
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| Step::SwitchKey(key)).collect();
    let old_networks = old_config.networks();
    let networks = config.networks();
    for (new, port) in config.ports.iter().enumerate() {
        let Some(old) = old_config.port_index(&port.name) else {
            steps.push(Step::PortAdded(new));
            continue;
        };
        if let Some(why) = remade((old_config, old), (config, new)) {
            steps.push(Step::PortRemade { old, new, why });
            continue;
        }
        let was = &old_config.ports[old];
        if (&was.nodes, &was.egress_nodes) != (&port.nodes, &port.egress_nodes) {
            steps.push(Step::PortNodes { new });
        }
        if old_config.ports[old].source_check != port.source_check {
            steps.push(Step::PortSourceCheck { new });
        }
        if was.share != port.share {
            steps.push(Step::PortShare { new });
        }
        let groups = |port: &PortConfig| (port.groups.clone(), port.connections, port.trusted, port.message_limit);
        if groups(was) != groups(port) {
            steps.push(Step::PortGroups { new });
        }
        if (was.dscp, was.expedited) != (port.dscp, port.expedited) {
            steps.push(Step::PortClasses { old, new });
        }
        for key in ["rate-in", "rate-out"] {
            let [before, after] = [(old_config, was), (config, port)]
                .map(|(config, port)| (port.rate(key), super::rate(config, port.rate(key))));
            if before != after {
                steps.push(Step::PortRate { old, new, key });
            }
        }
        if was.rules != port.rules || was.move_limit != port.move_limit {
            steps.push(Step::PortRules { new });
        }
        let permissions = old_config.ports[old].kind.permissions() != port.kind.permissions();
        let name = port.name.as_str();
        let was = old_networks.get(name).map(|network| network.name(old_config));
        let is = networks.get(name).map(|network| network.name(config));
        let network = (was != is).then(|| network_name(is));
        if permissions || network.is_some() || before.plan.ports[old] != plan.ports[new] {
            steps.push(Step::PortMoved { old, new, permissions, network });
        }
    }
    let gone = |(_, port): &(usize, &PortConfig)| config.port_index(&port.name).is_none();
    steps.extend(old_config.ports.iter().enumerate().filter(gone).map(|(old, _)| Step::PortRemoved { old }));
    for (new, underlay) in config.underlays.iter().enumerate() {
        match old_config.underlay_index(&underlay.name) {
            None => steps.push(Step::UnderlayAdded(new)),
            Some(old) => {
                let why = underlay_remade((old_config, old), (config, new));
                steps.extend(why.map(|why| Step::UnderlayChanged { old, new, why }));
            }
        }
    }
    for (old, underlay) in old_config.underlays.iter().enumerate() {
        if config.underlay_index(&underlay.name).is_none() {
            steps.push(Step::UnderlayRemoved { old });
        }
    }
    compare(
        (&old_config.patches, &config.patches),
        |patch| &patch.name,
        |change| {
            steps.push(match change {
                ListChange::Added(new) => Step::PatchAdded(new),
                ListChange::Removed(old) => Step::PatchRemoved { old },
                ListChange::Changed(old, new) => Step::PatchChanged { old, new },
            });
        },
    );
    compare(
        (&old_config.bridges, &config.bridges),
        |bridge| &bridge.name,
        |change| {
            steps.push(match change {
                ListChange::Added(new) => Step::BridgeAdded(new),
                ListChange::Removed(old) => Step::BridgeRemoved { old },
                ListChange::Changed(old, new) => Step::BridgeChanged { old, new },
            });
        },
    );
    compare(
        (&old_config.nodes, &config.nodes),
        |node| &node.name,
        |change| {
            steps.push(match change {
                ListChange::Added(new) => Step::NodeAdded(new),
                ListChange::Removed(old) => Step::NodeRemoved { old },
                ListChange::Changed(old, new) => Step::NodeChanged { old, new },
            });
        },
    );
    compare(
        (&old_config.groups, &config.groups),
        |group| &group.name,
        |change| {
            let (name, changed) = change.named(&old_config.groups, &config.groups, |group| &group.name);
            steps.push(Step::Group(name, changed));
        },
    );
    compare(
        (&old_config.sets, &config.sets),
        |set| &set.name,
        |change| {
            let (name, changed) = change.named(&old_config.sets, &config.sets, |set| &set.name);
            steps.push(Step::Set(name, changed));
        },
    );
    if old_config.firewall != config.firewall {
        steps.push(Step::Firewall);
    }
    steps
}

enum ListChange {
    Added(usize),
    Removed(usize),
    Changed(usize, usize),
}

impl ListChange {
    /// Returns the name of the thing, and how it has changed.
    fn named<T>(&self, old: &[T], new: &[T], name: fn(&T) -> &String) -> (String, Changed) {
        let (thing, changed) = match *self {
            ListChange::Added(at) => (&new[at], Changed::Added),
            ListChange::Removed(at) => (&old[at], Changed::Removed),
            ListChange::Changed(_, at) => (&new[at], Changed::Changed),
        };
        (name(thing).clone(), changed)
    }
}

fn compare<T: PartialEq + Debug>((old, new): (&[T], &[T]), name: fn(&T) -> &String, mut tell: impl FnMut(ListChange)) {
    let old_names: HashMap<_, _> = old.iter().enumerate().map(|(at, item)| (name(item), at)).collect();
    let new_names: HashSet<_> = new.iter().map(name).collect();
    for (at, item) in new.iter().enumerate() {
        match old_names.get(name(item)) {
            None => tell(ListChange::Added(at)),
            Some(&was) if old[was] != *item => tell(ListChange::Changed(was, at)),
            Some(_) => {}
        }
    }
    for (was, item) in old.iter().enumerate() {
        if !new_names.contains(name(item)) {
            tell(ListChange::Removed(was));
        }
    }
}

/// Returns a network as messages name it.
fn network_name(network: Option<(JoinedKind, &str)>) -> String {
    network.map_or_else(|| "no patch and no bridge".to_owned(), |(kind, name)| format!("{} \"{name}\"", kind.as_str()))
}
