//! Requests about the groups of ports.

use std::net::IpAddr;
use std::sync::Arc;

use az::SaturatingAs;
use straightline_conntrack as conntrack;
use straightline_firewall::{Direction, Flow};
use straightline_nodes::{FirewallControl, IpPrefix};
use straightline_packet::PortIndex;
use straightline_wire::IpProtocol;

use crate::api::{
    Connection, ConnectionShare, Connections, ConnectionsRequest, Decision, ErrorCode, ExplainRequest, Explanation,
    PortGroups, Refusal, nearest_first,
};
use crate::config::PortConfig;
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
        if let Some((name, mirrored)) = self.other_end(port, &flow)
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
    fn other_end(&self, port: &str, flow: &Flow) -> Option<(String, Flow)> {
        let remote = flow.remote?;
        let own = self.config.ports.iter().find(|known| known.name == port)?;
        let address = |port: &PortConfig| -> Option<Vec<IpPrefix>> { port.source_check.as_ref()?.ips.clone() };
        let has = |ips: &[IpPrefix], ip: IpAddr| ips.iter().any(|prefix| prefix.contains(ip));
        let other = self.config.ports.iter().find(|known| {
            known.name != port && !known.groups.is_empty() && address(known).is_some_and(|ips| has(&ips, remote))
        })?;
        // The address of the port itself, of the same version.
        let same = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
        let ip = address(own)?.iter().map(IpPrefix::address).find(same)?;
        let direction = if flow.direction == Direction::Out { Direction::In } else { Direction::Out };
        Some((other.name.clone(), Flow { direction, remote: Some(ip), from_trusted: own.trusted, ..*flow }))
    }

    /// Returns the connections of ports with groups.
    pub(crate) fn connections(&self, request: &ConnectionsRequest) -> Result<Connections, Refusal> {
        let ConnectionsRequest { port, limit } = request;
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
            let used = used(&counts);
            answer.shares.push(ConnectionShare {
                port: known.name.clone(),
                used,
                most: known.share.connections.into(),
                refused: counts.refused.iter().sum(),
                evicted: counts.evicted,
            });
            answer.total += used;
            let space = limit.saturating_sub(answer.connections.len());
            control.connections(known.index, |connections| {
                answer.connections.extend(connections.take(space).map(|(found, rule)| row(&known.name, &found, rule)));
            });
        }
        Ok(answer)
    }

    /// Returns the groups of a port, with its connections in numbers.
    pub(crate) fn groups(&self, port: &PortConfig, slot: u16) -> Option<PortGroups> {
        let control = self.tables.get::<FirewallControl>("firewall", "ports")?;
        let counts = control.counts(PortIndex(slot))?;
        Some(PortGroups {
            names: port.groups.clone(),
            connections: used(&counts),
            most: port.connections.into(),
            refused: counts.refused.iter().sum(),
            evicted: counts.evicted,
        })
    }

    /// Returns the groups of all ports, if this port has some.
    fn firewall(&self, port: &str) -> Result<Arc<FirewallControl>, Refusal> {
        let ports = &self.config.ports;
        let Some(known) = ports.iter().find(|known| known.name == port) else {
            let known = nearest_first(port, ports.iter().map(|port| port.name.as_str()));
            let error = format!("no such port {port:?}; ports are {known}");
            return Err(Refusal::new(ErrorCode::UnknownPort, error).about(port));
        };
        let control = self.tables.get::<FirewallControl>("firewall", "ports");
        control.filter(|_| !known.groups.is_empty()).ok_or_else(|| no_groups(port))
    }

    fn index(&self, port: &str) -> Option<PortIndex> {
        let at = self.config.port_index(port)?;
        Some(PortIndex(self.plan.ports[at].slot))
    }
}

/// Returns the number of a port's connections.
fn used(counts: &conntrack::Counts) -> u64 {
    [counts.open, counts.half_open_outbound, counts.half_open_inbound, counts.closed].into_iter().map(u64::from).sum()
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
    }
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
