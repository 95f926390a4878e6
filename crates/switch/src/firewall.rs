//! Requests about the groups of ports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use az::SaturatingAs;
use straightline_conntrack as conntrack;
use straightline_firewall::{Direction, Flow, Pattern, Prefix, Rule, Set, known_sets_with, profiles};
use straightline_nodes::{FirewallControl, FlowControl, IpPrefix};
use straightline_packet::{IgnorePoison, PortIndex};
use straightline_wire::IpProtocol;

use crate::Switch;
use crate::api::{
    AddressSet, Connection, ConnectionShare, ConnectionUse, Connections, ConnectionsRequest, Decision, ErrorCode,
    EventKind, ExplainRequest, Explanation, GroupRules, Groups, GroupsOfPort, JoinedKind, PortGroups, Refusal,
    SetGroupRequest, SetGroupsRequest, Sets, SetsRequest,
};
use crate::config::{Group, PortConfig, is_name};
use crate::dynamic_port::{ClientGroups, DesiredConfig};
use crate::running::Snapshot;

impl Snapshot {
    /// Returns the rules that decide about a packet: those of the port, and those of the other end if it
    /// is a port with groups.
    pub(crate) fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        let ExplainRequest { port, packet } = request;
        let control = self.firewall(port)?;
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error).about(port);
        let flow: Flow = packet.parse().map_err(|error| refused(format!("packet {packet:?}: {error}")))?;
        let own = self.decision(&control, port, &flow);
        let mut decisions = vec![own.ok_or_else(|| no_groups(port))?];
        if let Some((name, mirrored)) = self.other_end(&control, port, &flow)
            && let Some(other) = self.decision(&control, &name, &mirrored)
        {
            // The sender decides first.
            let at = if flow.direction == Direction::Out { 1 } else { 0 };
            decisions.insert(at, other);
        }
        Ok(Explanation { packet: flow.to_string(), decisions })
    }

    fn decision(&self, control: &FirewallControl, port: &str, flow: &Flow) -> Option<Decision> {
        let decided = control.explain(self.index(port)?, flow)?;
        Some(Decision {
            port: port.to_owned(),
            direction: flow.direction.as_str().to_owned(),
            allowed: decided.allowed,
            rule: decided.rule,
        })
    }

    /// Returns the port with groups that has the remote address of a flow, and the flow as it sees it.
    fn other_end(&self, control: &FirewallControl, port: &str, flow: &Flow) -> Option<(String, Flow)> {
        let remote = flow.remote?;
        let own = self.config.ports.iter().find(|known| known.name == port)?;
        let others = self.config.ports.iter().filter(|known| known.name != port && !known.groups.is_empty());
        let is_remote = |prefix: IpPrefix| prefix.contains(remote);
        let mut others = others.filter(|known| self.ips_of(control, known).into_iter().any(is_remote));
        let other = others.next()?;
        // The address of the port itself, of the same version.
        let same = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
        let ip = self.ips_of(control, own).iter().map(IpPrefix::address).find(same)?;
        let direction = if flow.direction == Direction::Out { Direction::In } else { Direction::Out };
        Some((other.name.clone(), Flow { direction, remote: Some(ip), from_trusted: own.trusted, ..*flow }))
    }

    /// Returns the addresses of a port with a source check: those that are listed, or bound to it.
    fn ips_of(&self, control: &FirewallControl, port: &PortConfig) -> Vec<IpPrefix> {
        let Some(check) = &port.source_check else { return Vec::new() };
        let bound = || self.index(&port.name).map(|index| control.bound_addresses(index)).unwrap_or_default();
        check.ips.clone().unwrap_or_else(|| bound().into_iter().map(IpPrefix::exact).collect())
    }

    /// Returns the sets of the switch, and the addresses of groups, as rules name them.
    pub(crate) fn sets(&self, request: &SetsRequest) -> Result<Sets, Refusal> {
        let prefixes = |all: &[Prefix]| all.iter().map(Prefix::to_string).collect::<Vec<_>>();
        let set = |set: &Set, owner: &str| AddressSet {
            name: format!("set:{}", set.name),
            owner: owner.to_owned(),
            prefixes: prefixes(&set.prefixes).into_iter().chain(set.patterns.iter().map(Pattern::to_string)).collect(),
        };
        let mut sets: Vec<_> = self.config.sets.iter().map(|known| set(&known.named(), "file")).collect();
        sets.extend(known_sets_with(&self.config.firewall.nat64).iter().map(|known| set(known, "switch")));
        let control = self.tables.get::<FirewallControl>("firewall", "ports");
        let groups = control.map(|control| control.members()).unwrap_or_default();
        sets.extend(groups.iter().map(|(name, members)| AddressSet {
            name: format!("group:{name}"),
            owner: owner_of(self.client_groups.groups.contains(name), is_profile(name)),
            prefixes: prefixes(members),
        }));
        if let Some(name) = &request.name {
            sets.retain(|set| set.name == *name || set.name.strip_prefix("set:") == Some(name));
            if sets.is_empty() {
                let error = format!("no such set {name:?}; `straightline firewall sets` shows all");
                return Err(Refusal::new(ErrorCode::Refused, error).about(name));
            }
        }
        Ok(Sets { sets })
    }

    /// Returns the groups of the switch, and of its ports.
    pub(crate) fn all_groups(&self) -> Groups {
        let ClientGroups { groups: of_clients, ports: ports_of_clients } = &self.client_groups;
        let with_rules = |group: &Group, owner: String| {
            let texts = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect();
            GroupRules {
                name: group.name.clone(),
                owner,
                inbound: texts(&group.inbound),
                outbound: texts(&group.outbound),
            }
        };
        let own =
            self.config.groups.iter().map(|group| with_rules(group, owner_of(of_clients.contains(&group.name), false)));
        let is_used = |profile: &&Group| self.config.ports.iter().any(|port| port.groups.contains(&profile.name));
        let profiles = profiles().iter().filter(is_used).map(|profile| with_rules(profile, owner_of(false, true)));
        let with_groups = self.config.ports.iter().filter(|port| !port.groups.is_empty());
        let ports = with_groups.map(|port| GroupsOfPort {
            port: port.name.clone(),
            owner: owner_of(ports_of_clients.contains(&port.name), false),
            groups: port.groups.clone(),
        });
        Groups { groups: own.chain(profiles).collect(), ports: ports.collect() }
    }

    /// Returns the connections of ports with groups.
    pub(crate) fn connections(&self, request: &ConnectionsRequest) -> Result<Connections, Refusal> {
        let ConnectionsRequest { port, bridge, limit } = request;
        if let Some(bridge) = bridge {
            return self.connections_of_flows(bridge, port.as_deref(), *limit);
        }
        if let Some(port) = port {
            self.firewall(port)?;
        }
        let Some(control) = self.tables.get::<FirewallControl>("firewall", "ports") else {
            return Ok(Connections::default());
        };
        let limit = (*limit).min(ConnectionsRequest::MOST).saturating_as::<usize>();
        let mut answer = Connections::default();
        for known in &control.settings().ports {
            if port.as_ref().is_some_and(|port| *port != known.name) {
                continue;
            }
            let Some(counts) = control.counts(known.index) else { continue };
            let used = used(&counts, known.share.connections);
            answer.total += used.connections;
            answer.shares.push(ConnectionShare { port: known.name.clone(), bridge: None, used });
            let space = limit.saturating_sub(answer.connections.len());
            control.connections(known.index, |connections| {
                answer.connections.extend(connections.take(space).map(|(found, rule)| row(&known.name, &found, rule)));
            });
        }
        Ok(answer)
    }

    /// Returns the connections of a bridge's flows, or those of them that a port has begun.
    fn connections_of_flows(&self, bridge: &str, port: Option<&str>, limit: u32) -> Result<Connections, Refusal> {
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error).about(bridge);
        let of_port = port.map(|port| Ok(self.plan.ports[self.place_of(port)?].slot)).transpose()?;
        let control = self.tables.get::<FlowControl>("flows", bridge);
        let control = control.ok_or_else(|| refused(format!("no bridge {bridge:?} with flows")))?;
        let Some(counts) = control.connections() else {
            return Err(refused(format!("no flow of bridge {bridge:?} searches for connections: add one with `ct`")));
        };
        let used = used(&counts, control.settings().connections.most);
        let names = control.settings().ports.iter();
        let names: HashMap<u16, &str> = names.map(|(name, index)| (index.0, name.as_str())).collect();
        let limit = limit.min(ConnectionsRequest::MOST).saturating_as::<usize>();
        let mut answer = Connections::default();
        control.for_each_connection(|found| {
            if of_port.is_some_and(|of_port| of_port != found.opener) {
                return;
            }
            answer.total += 1;
            if answer.connections.len() < limit {
                answer.connections.push(flow_row(bridge, names.get(&found.opener).copied().unwrap_or(""), &found));
            }
        });
        answer.shares.push(ConnectionShare { port: String::new(), bridge: Some(bridge.to_owned()), used });
        Ok(answer)
    }

    /// Returns the groups of a port, with its connections in numbers.
    pub(crate) fn groups(&self, port: &PortConfig, slot: u16) -> Option<PortGroups> {
        let control = self.tables.get::<FirewallControl>("firewall", "ports")?;
        let counts = control.counts(PortIndex(slot))?;
        Some(PortGroups { names: port.groups.clone(), used: used(&counts, port.connections) })
    }

    /// Returns the groups of all ports, if this port has some.
    fn firewall(&self, port: &str) -> Result<Arc<FirewallControl>, Refusal> {
        let known = &self.config.ports[self.place_of(port)?];
        let control = self.tables.get::<FirewallControl>("firewall", "ports");
        control.filter(|_| !known.groups.is_empty()).ok_or_else(|| no_groups(port))
    }

    fn index(&self, port: &str) -> Option<PortIndex> {
        let at = self.config.port_index(port)?;
        Some(PortIndex(self.plan.ports[at].slot))
    }
}

impl Switch {
    /// Sets the groups of a port that has none in the file. They hold until the switch ends.
    ///
    /// # Errors
    /// There is no such port or group, or the file has groups for it. Nothing is changed then.
    pub fn set_groups(&self, request: &SetGroupsRequest) -> Result<(), Refusal> {
        let SetGroupsRequest { port: name, groups } = request;
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error).about(name);
        let mut desired = self.desired.lock().ignore_poison();
        let now = self.running.now();
        let at = now.place_of(name)?;
        if desired.config.ports.iter().any(|port| port.name == *name && !port.groups.is_empty()) {
            return Err(refused(format!("port {name:?} has groups in the file, which win; change the file")));
        }
        let joined = now.config.joined(name).filter(|joined| joined.kind != JoinedKind::Underlay);
        if joined.is_none() || desired.carries_underlay(name) {
            return Err(refused(format!("port {name:?} is in no patch and no bridge, or carries an underlay")));
        }
        if let Some(port) = desired.added_port_mut(name) {
            let old = std::mem::replace(&mut port.groups, groups.clone());
            if let Err(error) = self.apply(&desired) {
                if let Some(port) = desired.added_port_mut(name) {
                    port.groups = old;
                }
                return Err(refused(error));
            }
        } else {
            let old = desired.port_groups.remove(name);
            if !groups.is_empty() {
                desired.port_groups.insert(name.clone(), groups.clone());
            }
            if let Err(error) = self.apply(&desired) {
                desired.port_groups.remove(name);
                desired.port_groups.extend(old.map(|old| (name.clone(), old)));
                return Err(refused(error));
            }
        }
        let shown = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
        tracing::info!(port = name, "groups set to {shown} by a command");
        let message = format!("port {:?}: groups set to {shown} by a command", now.config.ports[at].name);
        self.running.events.add(EventKind::GroupsSet { port: name.clone(), groups: groups.clone() }, message);
        Ok(())
    }

    /// Adds, changes or deletes a group that is not in the file. It holds until the switch ends.
    ///
    /// # Errors
    /// A rule is wrong, the file has the group, or a port has one that is to be deleted. Nothing is
    /// changed then.
    pub fn set_group(&self, request: &SetGroupRequest) -> Result<(), Refusal> {
        let SetGroupRequest { name, inbound, outbound, delete } = request;
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error).about(name);
        if !is_name(name) || is_profile(name) {
            let error =
                format!("group {name:?}: not a name of a group; use 1 to 32 of A-Z a-z 0-9 _ . -, and no profile's");
            return Err(refused(error));
        }
        let inbound: Vec<_> = inbound.iter().map(String::as_str).collect();
        let outbound: Vec<_> = outbound.iter().map(String::as_str).collect();
        let group = Group::parse(name, &inbound, &outbound);
        let group = group.map_err(|error| refused(format!("group {name:?}: {error}")))?;
        let mut desired = self.desired.lock().ignore_poison();
        if desired.config.groups.iter().any(|known| known.name == *name) {
            return Err(refused(format!("group {name:?} is in the file, which wins; change the file")));
        }
        let old = desired.groups.remove(name);
        if *delete && old.is_none() {
            return Err(refused(format!("group {name:?}: no client has added it")));
        }
        if !*delete {
            desired.groups.insert(name.clone(), group);
        }
        if let Err(error) = self.apply(&desired) {
            desired.groups.remove(name);
            desired.groups.extend(old.map(|old| (name.clone(), old)));
            return Err(refused(error));
        }
        let what = if *delete { "deleted" } else { "set" };
        tracing::info!("group {name:?} {what} by a command");
        self.running
            .events
            .add(EventKind::GroupSet { group: name.clone() }, format!("group {name:?}: {what} by a command"));
        Ok(())
    }

    /// Applies what clients desire.
    fn apply(&self, desired: &DesiredConfig) -> Result<(), String> {
        let changed = desired.with_dynamic_ports(&desired.config).and_then(|whole| self.change(&whole, desired));
        changed.map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// Returns the use of a port's share of connections.
fn used(counts: &conntrack::Counts, most: u32) -> ConnectionUse {
    let all = [counts.open, counts.half_open_outbound, counts.half_open_inbound, counts.closed];
    ConnectionUse {
        connections: all.into_iter().map(u64::from).sum(),
        most: most.into(),
        refused: counts.refused.iter().sum(),
        evicted: counts.evicted,
    }
}

fn no_groups(port: &str) -> Refusal {
    let error = format!("port {port:?} has no groups: all its packets pass; name some in `groups` of its section");
    Refusal::new(ErrorCode::Refused, error).about(port)
}

/// Returns a connection as the API shows it.
fn row(port: &str, found: &conntrack::Connection, rule: String) -> Connection {
    let key = &found.key;
    let (local, remote) = ends(found);
    Connection {
        port: port.to_owned(),
        direction: if found.direction == conntrack::Direction::Outbound { "out" } else { "in" }.to_owned(),
        protocol: protocol(key.protocol()),
        local,
        remote,
        vlan: key.vlan(),
        state: found.state.name().to_owned(),
        rule,
        idle_s: f64::from(found.idle) / 1000.0,
        bridge: None,
        zone: None,
    }
}

/// Returns a connection of a bridge's flows as the API shows it: its port has begun it.
fn flow_row(bridge: &str, port: &str, found: &conntrack::Connection) -> Connection {
    // Its key has the side that opened it as the remote one.
    let (remote, local) = ends(found);
    Connection {
        port: port.to_owned(),
        direction: "out".to_owned(),
        protocol: protocol(found.key.protocol()),
        local,
        remote,
        vlan: 0,
        state: found.state.name().to_owned(),
        rule: String::new(),
        idle_s: f64::from(found.idle) / 1000.0,
        bridge: Some(bridge.to_owned()),
        zone: Some(found.key.vlan()),
    }
}

/// Returns the owner of a group, or of a port's groups.
fn owner_of(is_of_client: bool, is_of_switch: bool) -> String {
    let owner = if is_of_switch {
        "switch"
    } else if is_of_client {
        "api"
    } else {
        "file"
    };
    owner.to_owned()
}

fn is_profile(name: &str) -> bool {
    profiles().iter().any(|profile| profile.name == name)
}

/// Returns both ends with their ports. A query of ICMP has its identifier at the end that asks.
fn ends(found: &conntrack::Connection) -> (String, String) {
    let key = &found.key;
    let with_port = |ip: IpAddr, port: u16| match ip {
        IpAddr::V4(_) => format!("{ip}:{port}"),
        IpAddr::V6(_) => format!("[{ip}]:{port}"),
    };
    match key.protocol() {
        IpProtocol::ICMP | IpProtocol::ICMPV6 => {
            let asks = found.direction == conntrack::Direction::Outbound;
            let [local, remote] = [key.local(), key.remote()];
            let id = key.local_port();
            if asks {
                (format!("{local} id {id}"), remote.to_string())
            } else {
                (local.to_string(), format!("{remote} id {id}"))
            }
        }
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol(132) => {
            (with_port(key.local(), key.local_port()), with_port(key.remote(), key.remote_port()))
        }
        _ => (key.local().to_string(), key.remote().to_string()),
    }
}

fn protocol(protocol: IpProtocol) -> String {
    match protocol {
        IpProtocol::TCP => "tcp".to_owned(),
        IpProtocol::UDP => "udp".to_owned(),
        IpProtocol::ICMP => "icmp".to_owned(),
        IpProtocol::ICMPV6 => "icmp6".to_owned(),
        IpProtocol(132) => "sctp".to_owned(),
        IpProtocol(number) => format!("ip {number}"),
    }
}
