//! The requests about groups and their connections, and the answers.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::layout::Grid;

/// The arguments of the request `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainRequest {
    /// The name of a port with groups.
    pub port: String,
    /// A packet in words, such as `tcp to 192.0.2.1 port 443`.
    pub packet: String,
}

/// The answer to `explain`: the rule that decides at each port with groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The packet, as it was understood.
    pub packet: String,
    /// The decisions, in the order in which the packet meets them.
    pub decisions: Vec<Decision>,
}

/// The decision of a port's groups on the first packet of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Decision {
    /// The port.
    pub port: String,
    /// `out`: sent by the port; `in`: sent to it.
    pub direction: String,
    /// Whether the packet passes.
    pub allowed: bool,
    /// The rule that decides, with its place.
    pub rule: String,
}

/// Renders the answer to `explain`.
#[must_use]
pub fn explanation_text(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.packet);
    for Decision { port, direction, allowed, rule } in &explanation.decisions {
        let way = if direction == "out" { "out of" } else { "in to" };
        let verdict = if *allowed { "allowed" } else { "denied" };
        let _ = writeln!(text, "  {way} {port}: {verdict}, {rule}");
    }
    text
}

/// The answer to `groups`: the groups of the switch and of its ports, with their owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Groups {
    /// The groups: those of the file, those of clients, and the profiles that ports have.
    pub groups: Vec<GroupRules>,
    /// The ports with groups.
    pub ports: Vec<GroupsOfPort>,
}

/// A group, and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupRules {
    /// The name.
    pub name: String,
    /// `file`; `api`: a client has set it; `switch`: it is a profile.
    pub owner: String,
    /// The rules for packets to its ports.
    #[serde(default, rename = "in")]
    pub inbound: Vec<String>,
    /// The rules for packets from its ports.
    #[serde(default, rename = "out")]
    pub outbound: Vec<String>,
}

/// The groups of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupsOfPort {
    /// The port.
    pub port: String,
    /// `file`; `api`: a client has set them, or added the port with them.
    pub owner: String,
    /// The groups, in the order in which their rules are tried.
    pub groups: Vec<String>,
}

/// Renders the answer to `groups`.
#[must_use]
pub fn groups_text(answer: &Groups) -> String {
    if answer.groups.is_empty() && answer.ports.is_empty() {
        return "the switch has no groups\n".to_owned();
    }
    let mut groups = Grid::new(&["<group", "<owner", "<direction", "<rule"]);
    for GroupRules { name, owner, inbound, outbound } in &answer.groups {
        let rules = inbound.iter().map(|rule| ("in", rule)).chain(outbound.iter().map(|rule| ("out", rule)));
        let mut head = [name.clone(), owner.clone()];
        let mut rules = rules.peekable();
        if rules.peek().is_none() {
            let [name, owner] = std::mem::take(&mut head);
            groups.row([name, owner, String::new(), "none".to_owned()]);
        }
        for (direction, rule) in rules {
            let [name, owner] = std::mem::take(&mut head);
            groups.row([name, owner, direction.to_owned(), rule.clone()]);
        }
    }
    let mut ports = Grid::new(&["<port", "<owner", "<groups"]);
    for GroupsOfPort { port, owner, groups } in &answer.ports {
        ports.row([port.clone(), owner.clone(), groups.join(", ")]);
    }
    let ports = if answer.ports.is_empty() { String::new() } else { format!("\n{}", ports.render("")) };
    groups.render("") + &ports
}

/// The arguments of the request `sets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetsRequest {
    /// The name of a set, or `group:NAME` for the addresses of a group; without it all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The answer to `sets`: the addresses that the names in rules mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sets {
    /// The sets of the file, those that each switch has, and the groups whose ports have addresses.
    pub sets: Vec<AddressSet>,
}

/// The addresses of a set or of a group's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AddressSet {
    /// The name, as rules name it: `set:NAME` or `group:NAME`.
    pub name: String,
    /// `file`; `api`: a client has set the group; `switch`: each switch has it.
    pub owner: String,
    /// The addresses as prefixes.
    pub prefixes: Vec<String>,
}

/// Renders the answer to `sets`.
#[must_use]
pub fn sets_text(answer: &Sets) -> String {
    let mut rows = Grid::new(&["<name", "<owner", "<prefix"]);
    for AddressSet { name, owner, prefixes } in &answer.sets {
        let mut head = [name.clone(), owner.clone()];
        let none = "none".to_owned();
        let shown = if prefixes.is_empty() { std::slice::from_ref(&none) } else { prefixes };
        for prefix in shown {
            let [name, owner] = std::mem::take(&mut head);
            rows.row([name, owner, prefix.clone()]);
        }
    }
    rows.render("")
}

/// The arguments of the request `set-groups`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetGroupsRequest {
    /// The name of a port that has no groups in the file.
    pub port: String,
    /// The groups, in the order in which their rules are tried. None: all its packets pass.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The arguments of the request `set-group`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetGroupRequest {
    /// The name of a group that is not in the file.
    pub name: String,
    /// The rules for packets to its ports.
    #[serde(default, rename = "in")]
    pub inbound: Vec<String>,
    /// The rules for packets from its ports.
    #[serde(default, rename = "out")]
    pub outbound: Vec<String>,
    /// True: the group is deleted. No port may have it.
    #[serde(default)]
    pub delete: bool,
}

/// The arguments of the request `connections`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "command-line", derive(clap::Args))]
pub struct ConnectionsRequest {
    /// The port whose connections are of interest; without it those of all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "command-line", arg(value_name = "PORT", help = "Name of the port; default: all ports"))]
    pub port: Option<String>,
    /// A bridge: the connections that its flows have committed, instead of those of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "BRIDGE"))]
    #[cfg_attr(feature = "command-line", arg(help = "Show the connections of a bridge's flows (`ct`) instead"))]
    pub bridge: Option<String>,
    /// The most connections of the answer.
    #[serde(default = "ConnectionsRequest::default_limit")]
    #[cfg_attr(feature = "command-line", arg(long, value_name = "N", default_value_t = Self::default_limit()))]
    #[cfg_attr(feature = "command-line", arg(help = "Most connections to show"))]
    pub limit: u32,
}

impl Default for ConnectionsRequest {
    fn default() -> Self {
        ConnectionsRequest { port: None, bridge: None, limit: Self::default_limit() }
    }
}

impl ConnectionsRequest {
    /// The most connections of an answer, whatever the request asks for.
    pub const MOST: u32 = 10_000;

    fn default_limit() -> u32 {
        1000
    }
}

/// The answer to `connections`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connections {
    /// The ports with groups, and the use of their shares. Of flows: the bridge.
    pub shares: Vec<ConnectionShare>,
    /// The connections, by port.
    pub connections: Vec<Connection>,
    /// The number of all connections of these ports.
    pub total: u64,
}

/// The connections of a port in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionShare {
    /// The port; empty for a bridge.
    pub port: String,
    /// The bridge, whose flows share its connections; none for a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The use of its share.
    #[serde(flatten)]
    pub used: ConnectionUse,
}

/// The use of a port's share of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionUse {
    /// Its connections.
    pub connections: u64,
    /// The most connections that it may have.
    pub most: u64,
    /// The connections that did not begin, because the share was full.
    pub refused: u64,
    /// The connections that ended early, to make space for others of the port.
    pub evicted: u64,
}

/// A connection of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connection {
    /// The port, whose groups have allowed the connection. Of flows: the port that has begun it; empty if
    /// it has left the bridge.
    pub port: String,
    /// `out` or `in`: who began it.
    pub direction: String,
    /// The protocol, such as `tcp`.
    pub protocol: String,
    /// The address on the port's side, with a port or identifier.
    pub local: String,
    /// The address of the other side, with a port or identifier.
    pub remote: String,
    /// The VLAN tag of its frames; 0 for none.
    #[serde(default)]
    pub vlan: u16,
    /// The state, in the words of `conntrack`.
    pub state: String,
    /// The group and the rule that have allowed it; empty for one of flows.
    pub rule: String,
    /// Seconds since the last packet.
    pub idle_s: f64,
    /// The bridge whose flows have committed it; none for a connection of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The zone of flows (`ct(zone=N)`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<u16>,
}

/// Renders the answer to `connections`.
#[must_use]
pub(super) fn connections_text(answer: &Connections) -> String {
    if answer.shares.is_empty() {
        return "no port has groups\n".to_owned();
    }
    let is_of_flows = answer.shares.iter().any(|share| share.bridge.is_some());
    let owner = if is_of_flows { "<bridge" } else { "<port" };
    let mut shares = Grid::new(&[owner, ">connections", ">share", ">refused", ">evicted"]);
    for ConnectionShare { port, bridge, used } in &answer.shares {
        let ConnectionUse { connections, most, refused, evicted } = used;
        let name = bridge.as_ref().unwrap_or(port);
        shares.row([name.clone(), connections.to_string(), most.to_string(), refused.to_string(), evicted.to_string()]);
    }
    let mut text = shares.render("");
    if answer.connections.is_empty() {
        return text;
    }
    let last = if is_of_flows { ">zone" } else { "<rule" };
    let header = ["<port", "<protocol", "<local", "<", "<remote", "<state", ">idle", last];
    let mut rows = Grid::new(&header);
    for connection in &answer.connections {
        let Connection { port, direction, protocol, local, remote, state, rule, idle_s, zone, .. } = connection;
        let arrow = if direction == "out" { "->" } else { "<-" };
        rows.row([
            port.clone(),
            protocol.clone(),
            local.clone(),
            arrow.to_owned(),
            remote.clone(),
            state.clone(),
            format!("{idle_s:.0} s"),
            zone.map_or_else(|| rule.clone(), |zone| zone.to_string()),
        ]);
    }
    text.push('\n');
    text += &rows.render("");
    let more = answer.total.saturating_sub(answer.connections.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "and {more} more: --limit shows more, a port's name only its own");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_flows_have_a_zone_in_place_of_a_rule() {
        let used = ConnectionUse { connections: 2, most: 1000, ..ConnectionUse::default() };
        let connection = Connection {
            port: "vm1".to_owned(),
            direction: "out".to_owned(),
            protocol: "udp".to_owned(),
            local: "10.0.0.1:9".to_owned(),
            remote: "10.0.0.2:53".to_owned(),
            state: "UNREPLIED".to_owned(),
            bridge: Some("lan".to_owned()),
            zone: Some(7),
            ..Connection::default()
        };
        let share = ConnectionShare { bridge: Some("lan".to_owned()), used, ..ConnectionShare::default() };
        let answer = Connections { shares: vec![share], connections: vec![connection], total: 2 };
        let expected = "\
bridge  connections  share  refused  evicted
lan               2   1000        0        0

port  protocol  local           remote       state      idle  zone
vm1   udp       10.0.0.1:9  ->  10.0.0.2:53  UNREPLIED   0 s     7
and 1 more: --limit shows more, a port's name only its own
";
        assert_eq!(connections_text(&answer), expected);
    }
}
