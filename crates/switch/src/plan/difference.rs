//! The steps from one configuration to another.

use std::fmt::Debug;

use super::{Before, ForwardingDomain, Plan, PortPlan};
use crate::config::{Config, Mac, NodeConfig, PortConfig, SourceCheckConfig, SwitchConfig, note};

/// One change. Indexes are into the new configuration's list, `old` ones into the old one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
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
}

/// Returns the keys of `[switch]` that differ and are read only at the start.
pub(crate) fn needs_restart(old: &SwitchConfig, new: &SwitchConfig) -> Option<String> {
    let keys = [
        ("workers", old.workers != new.workers),
        ("idle", old.idle != new.idle),
        ("copies", old.copies != new.copies),
        ("simd", old.simd != new.simd),
        ("copy", old.copy != new.copy),
        ("api", old.api != new.api),
        ("sandbox", old.sandbox != new.sandbox),
    ];
    let changed: Vec<_> = keys.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key).collect();
    if !changed.is_empty() {
        return Some(changed.join(", "));
    }
    (old != new).then(|| "a key".to_owned())
}

/// Returns why a port must be closed and opened again to get a new configuration under the same
/// name. Returns `None` if its guest can stay connected.
pub(crate) fn remade(old: &PortConfig, new: &PortConfig) -> Option<String> {
    let PortConfig { name: _, kind, mtu, mac, nodes: _, egress_nodes: _, source_check: _ } = old;
    let mut differences = Vec::new();
    note(&mut differences, "mtu", *mtu, new.mtu);
    let text = |mac: Option<Mac>| mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
    note(&mut differences, "mac", text(*mac), text(new.mac));
    differences.extend(kind.differs(&new.kind));
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Returns all changes, ports first.
pub(crate) fn difference(before: Before<'_>, config: &Config, plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    let old_config = before.config;
    for (new, port) in config.ports.iter().enumerate() {
        let Some(old) = old_config.port_index(&port.name) else {
            steps.push(Step::PortAdded(new));
            continue;
        };
        if let Some(why) = remade(&old_config.ports[old], port) {
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
        let permissions = old_config.ports[old].kind.permissions() != port.kind.permissions();
        let (was, is) = (network(old_config, old), network(config, new));
        let network = (was != is).then_some(is);
        if permissions || network.is_some() || before.plan.ports[old] != plan.ports[new] {
            steps.push(Step::PortMoved { old, new, permissions, network });
        }
    }
    let gone = |(_, port): &(usize, &PortConfig)| config.port_index(&port.name).is_none();
    steps.extend(old_config.ports.iter().enumerate().filter(gone).map(|(old, _)| Step::PortRemoved { old }));
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
    steps
}

enum ListChange {
    Added(usize),
    Removed(usize),
    Changed(usize, usize),
}

fn compare<T: PartialEq + Debug>((old, new): (&[T], &[T]), name: fn(&T) -> &String, mut tell: impl FnMut(ListChange)) {
    for (at, item) in new.iter().enumerate() {
        match old.iter().position(|other| name(other) == name(item)) {
            None => tell(ListChange::Added(at)),
            Some(was) if old[was] != *item => tell(ListChange::Changed(was, at)),
            Some(_) => {}
        }
    }
    for (was, item) in old.iter().enumerate() {
        if !new.iter().any(|other| name(other) == name(item)) {
            tell(ListChange::Removed(was));
        }
    }
}

/// Returns the network that a port is in, as messages name it.
fn network(config: &Config, port: usize) -> String {
    let name = &config.ports[port].name;
    let patch = config.patches.iter().find(|patch| patch.ports.contains(name));
    let bridge = config.bridges.iter().find(|bridge| bridge.ports.contains(name));
    match (patch, bridge) {
        (Some(patch), _) => format!("patch \"{}\"", patch.name),
        (_, Some(bridge)) => format!("bridge \"{}\"", bridge.name),
        _ => "no patch and no bridge".to_owned(),
    }
}

/// Returns a worker's unchanged domains. Their packets pass while everything else is changed.
pub(crate) fn undisturbed(before: Before<'_>, config: &Config, plan: &Plan, worker: usize) -> Vec<ForwardingDomain> {
    let places = |config: &Config, plan: &Plan, domain: ForwardingDomain| -> Vec<PortPlan> {
        let ports = domain.ports(config).into_iter().chain(domain.copy_ports(config));
        ports.map(|port| plan.ports[port].clone()).collect()
    };
    let rules = |config: &Config, domain: ForwardingDomain| match domain {
        ForwardingDomain::Bridge(at) => Some(config.bridges[at].clone()),
        _ => None,
    };
    let ways = |config: &Config, domain: ForwardingDomain| -> Vec<Vec<NodeConfig>> {
        let ports = domain.ports(config).into_iter();
        let lists = ports.flat_map(|port| {
            [config.ingress_nodes(port).cloned().collect(), config.egress_nodes(port).cloned().collect()]
        });
        lists.collect()
    };
    let checks = |config: &Config, domain: ForwardingDomain| -> Vec<Option<SourceCheckConfig>> {
        domain.ports(config).iter().map(|&port| config.ports[port].source_check.clone()).collect()
    };
    let is_same = |new: ForwardingDomain, old: ForwardingDomain| {
        new.name(config) == old.name(before.config)
            && places(config, plan, new) == places(before.config, before.plan, old)
            && rules(config, new) == rules(before.config, old)
            && ways(config, new) == ways(before.config, old)
            && checks(config, new) == checks(before.config, old)
    };
    let had = before.plan.workers.get(worker).map_or(&[][..], |worker| &worker.domains);
    let domains = plan.workers[worker].domains.iter().copied();
    domains.filter(|&new| had.iter().any(|&old| is_same(new, old))).collect()
}
