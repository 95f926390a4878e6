//! Values that tables are made from. A table whose spec is equal stays the same.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use straightline_graph::{Clock, NodeControl, RateLimits, RateOwner, RateTable};
use straightline_nodes::{
    AllowedAddresses, BindingSettings, BindingTable, BridgeRules, BridgeTable, FirewallControl, FirewallSettings,
    FlowConnections, FlowControl, FlowSettings, SnoopingTable,
};
use straightline_packet::{Drops, Level, PortIndex, Rcu};
use straightline_underlay::{RemoteSpace, Tunnel, TunnelConfig, Underlay, UnderlayConfig};
use straightline_wire::MacAddr;

use super::{Tables, firewall};
use crate::config::{self, Config, Mac, NodeConfig, PortKind};
use crate::default_mac::default_mac;
use crate::plan::{Plan, RateSpec, SourceCheckSpec, bridge_rules, rate, source_check};

/// All that a table is made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableSpec {
    Underlay {
        settings: UnderlayConfig,
        /// The port that carries its packets.
        port: PortIndex,
    },
    Tunnel {
        settings: TunnelConfig,
        underlay: String,
        port: PortIndex,
        /// `None`: clients may not add remotes.
        space: Option<RemoteSpace>,
    },
    Bridge {
        name: String,
        rules: BridgeRules,
        /// The source checks of ports that have one.
        checks: Vec<(PortIndex, SourceCheckSpec)>,
    },
    Bindings {
        bridge: String,
        settings: BindingSettings,
    },
    Snooping {
        bridge: String,
        ports: Vec<PortIndex>,
    },
    Flows {
        bridge: String,
        settings: FlowSettings,
    },
    SourceCheck {
        port: String,
        check: SourceCheckSpec,
    },
    /// The groups of all ports, and their connections.
    Firewall {
        settings: FirewallSettings,
        level: Level,
    },
    /// A bucket that several ports share.
    Rate {
        name: String,
        limits: RateLimits,
    },
    /// The limit of a port, for `rate-in` or `rate-out`.
    PortRate {
        port: String,
        key: &'static str,
        rate: RateSpec,
    },
    Node(NodeConfig),
}

impl TableSpec {
    /// Returns the name of the table.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Underlay { settings, .. } => format!("underlay:{}", settings.name),
            Self::Tunnel { settings, .. } => format!("tunnel:{}", settings.name),
            Self::Bridge { name, .. } => format!("bridge:{name}"),
            Self::Bindings { bridge, .. } => format!("bindings:{bridge}"),
            Self::Snooping { bridge, .. } => format!("snooping:{bridge}"),
            Self::Flows { bridge, .. } => format!("flows:{bridge}"),
            Self::SourceCheck { port, .. } => format!("source-check:{port}"),
            Self::Firewall { .. } => "firewall:ports".to_owned(),
            Self::Rate { name, .. } => format!("rate:{name}"),
            Self::PortRate { port, key, .. } => format!("{key}:{port}"),
            Self::Node(node) => format!("node:{}", node.name),
        }
    }

    /// Makes the control half. It finds those that it depends on in `tables`. `None`: nothing is kept.
    pub(super) fn open(
        &self,
        tables: &Tables,
        rcu: &Rcu,
        clock: &Clock,
        drops: impl Fn(&str) -> Arc<Drops>,
    ) -> anyhow::Result<Option<Arc<dyn NodeControl>>> {
        Ok(match self {
            Self::Underlay { settings, port } => Some(Underlay::new(settings.clone(), *port)),
            Self::Tunnel { settings, underlay, port, space } => {
                let name = &settings.name;
                let underlay = tables.get::<Underlay>("underlay", underlay);
                let underlay = underlay.with_context(|| format!("port {name:?}: its underlay is not open"))?;
                Some(match space {
                    Some(space) => Tunnel::open(settings.clone(), underlay, *port, drops(name), *space, rcu),
                    None => Tunnel::new(settings.clone(), underlay, *port, drops(name)),
                })
            }
            Self::Bridge { name, rules, checks } => {
                let checks = checks.iter().map(|(port, check)| (*port, allowed(check).node()));
                Some(Arc::new(BridgeTable::new(name, rules, checks.collect::<HashMap<_, _>>())))
            }
            Self::Bindings { bridge, settings } => Some(Arc::new(BindingTable::new(bridge, settings.clone()))),
            Self::Snooping { ports, .. } => Some(Arc::new(SnoopingTable::new(ports.clone()))),
            Self::Flows { bridge, settings } => {
                let flows = FlowControl::new(settings.clone(), rcu, clock.clone());
                Some(Arc::new(flows.with_context(|| format!("flows of bridge {bridge:?}"))?))
            }
            Self::SourceCheck { check, .. } => Some(Arc::new(allowed(check))),
            Self::Firewall { settings, level } => {
                Some(Arc::new(FirewallControl::new(settings.clone(), rcu, *level, clock.clone())?))
            }
            Self::Rate { limits, .. } => Some(Arc::new(RateTable::new(RateOwner::Shared, *limits))),
            Self::PortRate { port, key, rate } => {
                let owner = RateOwner::Port { port: port.clone(), key };
                let shared = rate.shared.as_ref().and_then(|name| tables.get::<RateTable>("rate", name));
                Some(Arc::new(match shared {
                    Some(shared) => RateTable::member(owner, &shared),
                    None => RateTable::new(owner, rate.limits),
                }))
            }
            Self::Node(node) => node.control(),
        })
    }

    /// Returns the error for a table that cannot continue the one before it: its line if it is known,
    /// and the reason.
    pub(super) fn refusal(&self, key: Option<&str>, why: &str) -> String {
        match self {
            Self::Node(node) => node.refusal(key, why),
            Self::Underlay { .. }
            | Self::Tunnel { .. }
            | Self::Bridge { .. }
            | Self::Bindings { .. }
            | Self::Snooping { .. }
            | Self::Flows { .. }
            | Self::SourceCheck { .. }
            | Self::Firewall { .. }
            | Self::Rate { .. }
            | Self::PortRate { .. } => {
                let key = key.map_or_else(String::new, |key| format!("{key} in "));
                format!("{key}{}: {why}", self.name())
            }
        }
    }
}

fn allowed(check: &SourceCheckSpec) -> AllowedAddresses {
    AllowedAddresses::new(&check.macs(), check.listed.ips.as_deref())
}

/// Returns the specs of all tables. Each comes after those that it depends on.
///
/// # Errors
/// A name in the configuration has no section.
pub(super) fn specs(config: &Config, plan: &Plan) -> anyhow::Result<Vec<TableSpec>> {
    let index = |at: usize| PortIndex(plan.ports[at].slot);
    let mut specs = Vec::new();
    for underlay in &config.underlays {
        let port = config.port_index(&underlay.port);
        let port = port.with_context(|| format!("underlay {:?}: no port {:?}", underlay.name, underlay.port))?;
        specs.push(TableSpec::Underlay { settings: settings(underlay, &config.ports[port].kind), port: index(port) });
    }
    for rate in &config.rates {
        specs.push(TableSpec::Rate { name: rate.name.clone(), limits: rate.limits });
    }
    for (at, port) in config.ports.iter().enumerate() {
        for key in ["rate-in", "rate-out"] {
            if let Some(rate) = rate(config, port.rate(key)) {
                specs.push(TableSpec::PortRate { port: port.name.clone(), key, rate });
            }
        }
        if let Some(tunnel) = port.kind.as_tunnel() {
            let settings = tunnel.config(port, MacAddr(default_mac(&port.name)));
            let bridge = config.bridges.iter().find(|bridge| bridge.ports.contains(&port.name));
            let stations = bridge.map_or(0, |bridge| bridge.api_stations as usize);
            let space = tunnel.takes_remotes.then_some(RemoteSpace { stations });
            specs.push(TableSpec::Tunnel { settings, underlay: tunnel.underlay.clone(), port: index(at), space });
        }
        if let Some(check) = source_check(port) {
            specs.push(TableSpec::SourceCheck { port: port.name.clone(), check });
        }
    }
    for (at, bridge) in config.bridges.iter().enumerate() {
        let members = bridge.ports.iter().filter_map(|name| config.port_index(name));
        if bridge.snooping {
            let ports = members.clone().map(index).collect();
            specs.push(TableSpec::Snooping { bridge: bridge.name.clone(), ports });
        }
        if let Some(flows) = &bridge.flows {
            let ports = members.clone().map(|port| (config.ports[port].name.clone(), index(port)));
            let settings = FlowSettings {
                ports: ports.collect(),
                meters: flows.meters.clone(),
                lines: flows.lines.clone(),
                connections: FlowConnections {
                    most: bridge.connections,
                    tracking: firewall::connection_settings(&config.firewall),
                },
            };
            specs.push(TableSpec::Flows { bridge: bridge.name.clone(), settings });
        }
        let checks = members.filter_map(|port| Some((index(port), source_check(&config.ports[port])?)));
        let rules = bridge_rules(config, plan, at);
        if let Some(settings) = rules.bindings.clone() {
            specs.push(TableSpec::Bindings { bridge: bridge.name.clone(), settings });
        }
        specs.push(TableSpec::Bridge { name: bridge.name.clone(), rules, checks: checks.collect() });
    }
    if let Some(settings) = firewall::settings(config, plan) {
        specs.push(TableSpec::Firewall { settings, level: config.switch.level() });
    }
    specs.extend(config.nodes.iter().cloned().map(TableSpec::Node));
    Ok(specs)
}

/// Returns the settings of an underlay on a port of this kind.
fn settings(underlay: &config::UnderlayConfig, port: &PortKind) -> UnderlayConfig {
    let wire = |mac: Mac| MacAddr(mac.octets());
    // The network of the underlay may have other switches of this machine, so our address in it makes
    // our MAC address unique.
    let own = port.has_mac_of_peer().then(|| {
        let ip = underlay.addresses.first().map_or_else(String::new, |address| address.ip.to_string());
        MacAddr(default_mac(&format!("underlay {} {ip}", underlay.name)))
    });
    UnderlayConfig {
        name: underlay.name.clone(),
        addresses: underlay.addresses.clone(),
        gateways: underlay.gateways.clone(),
        vlan: underlay.vlan,
        mtu: underlay.mtu,
        mac: underlay.mac.map(wire).or(own),
        neighbours: underlay.neighbours.iter().map(|&(ip, mac)| (ip, wire(mac))).collect(),
        path_mtu: underlay.path_mtu,
    }
}

/// Returns the names of the tables that stay the same.
#[cfg(test)]
pub(crate) fn same(old: &Config, old_plan: &Plan, new: &Config, plan: &Plan) -> std::collections::BTreeSet<String> {
    let old = specs(old, old_plan).expect("a checked configuration");
    let new = specs(new, plan).expect("a checked configuration");
    new.iter().filter(|spec| old.contains(spec)).map(TableSpec::name).collect()
}
